"""The base class of all partitions: labels as a pure function of the point, codes of rows, and their state."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from gpytorch_partition.clusters.cache import without_computed
from gpytorch_partition.clusters.cluster_index import BoundedClusterIndex, ClusterIndex, SeenClusterIndex
from gpytorch_partition.clusters.incidence import Incidence
from gpytorch_partition.descriptions import counted, ranged, without_values
from gpytorch_partition.inputs.numbers import same_bits, take_shapes
from gpytorch_partition.inputs.training_rows import MISSING
from gpytorch_partition.linalg.parallel import slices
from gpytorch_partition.progress import progress

_LABELS_PER_CHUNK = 2**23  # int64 labels computed at once: 64 MiB


class _CodedRows(NamedTuple):
    x: Tensor
    cluster_index: Any  # a ClusterIndex, or a source's own means to code other rows
    incidence: Incidence


class Partition(torch.nn.Module):
    """
    Divide points into clusters, m times: the base class (Davies & Ghahramani 2014, section 2.3).

    Use it as the base of a source of clusters whose state is to be saved with the kernel (docs/own_kernels.md has a
    file). :class:`~gpytorch_partition.PartitionKernel` takes functions, programs with a seed and clusterers directly.

    A source implements `_labels` for a block of rows, :attr:`num_partitions`, :attr:`num_features` and, if its labels
    are `0 ... C_r - 1`, :attr:`cluster_counts`. Its state is in integer buffers (floats as bit patterns), which no
    change of dtype rounds, and from which `load_state_dict` makes an unfitted partition the saved one.

    Example:
        >>> class Signs(Partition):
        ...     num_partitions, cluster_counts = 2, torch.tensor([2, 2])
        ...     def _labels(self, x):
        ...         return (x[:, :2] > 0).long()
        >>> Signs().labels(torch.tensor([[0.5, -1.0], [0.1, 2.0]]))
        tensor([[1, 0],
                [1, 1]])
    """

    # How many sets of rows (training rows, a test set, ...) keep their codes.
    num_cached = 4

    _cached_rows: Sequence[_CodedRows] = ()

    @property
    @abstractmethod
    def num_partitions(self) -> int:
        """Return the number m of partitions."""

    @property
    def num_features(self) -> int | None:
        """Return the number D of columns that points must have, by the buffer `num_columns`; None if none matters."""
        columns = self._buffers.get("num_columns")
        return int(columns) if columns is not None and self.is_fitted else None

    @property
    def cluster_counts(self) -> Tensor | None:
        """Return the number of clusters of each partition (`m`), if labels are `0 ... C_r - 1`; else None."""
        return None

    @property
    def is_fitted(self) -> bool:
        return self.num_partitions > 0

    @abstractmethod
    def _labels(self, x: Tensor) -> Tensor:
        """Labels (`n x m`, int64) of a block of rows (`n x D`)."""

    def labels(self, x: Tensor) -> Tensor:
        """
        Return the label (`*batch x N x m`, int64) of the cluster that each point falls in, for each partition.

        Labels depend only on the point, not on other rows of the call or on any random state.

        :param x: `*batch x N x D` points.
        :raises RuntimeError: If the partition is not fitted.
        :raises ValueError: If x is not a finite floating point tensor of the right width with two dimensions or more.
        """
        self.check_points(x)
        return self._in_blocks(x, torch.int64, lambda labels: labels)

    def _in_blocks(self, x: Tensor, dtype: torch.dtype, numbers_of: Callable[[Tensor], Tensor]) -> Tensor:
        rows = x.detach().reshape(-1, x.shape[-1])
        found = torch.empty(rows.shape[0], self.num_partitions, dtype=dtype, device=x.device)
        size = max(1, _LABELS_PER_CHUNK // max(1, self.num_partitions))
        for block in progress(slices(rows.shape[0], size), "labelling rows"):
            found[block] = numbers_of(self._labels(rows[block]))
        return found.view(*x.shape[:-1], self.num_partitions)

    def incidences(self, x1: Tensor, x2: Tensor) -> tuple[Incidence, Incidence]:
        """
        Return the one-hot rows of two sets of points in one feature space; one object for both if the points are equal.

        The codes of the last few sets of rows are cached. Where labels are unbounded, x2 defines the feature space, or
        x1 if it is larger and x2 is not cached.
        """
        x1, x2 = _without_repeats(x1), _without_repeats(x2)
        if same_bits(x1, x2):
            rows = self._coded(x1)
            return rows.incidence, rows.incidence
        if x1.shape[-2] > x2.shape[-2] and not (x2.shape[-2] and self._cached(x2)):
            anchor = self._coded(x1)
            return anchor.incidence, self._coded_like(anchor, x2)
        anchor = self._coded(x2)
        return self._coded_like(anchor, x1), anchor.incidence

    def _cached(self, x: Tensor) -> _CodedRows | None:
        return next((rows for rows in self._cached_rows if same_bits(rows.x, x)), None)

    def _coded(self, x: Tensor) -> _CodedRows:
        with torch.inference_mode(False), torch.no_grad():  # training may use what a prediction has computed
            rows = self._cached(x) or self._code(x)
        # A new list in one assignment: other threads may be going through the old one.
        others = [other for other in self._cached_rows if other is not rows]
        self._cached_rows = [rows, *others][: self.num_cached]
        return rows

    def _coded_like(self, anchor: _CodedRows, x: Tensor) -> Incidence:
        if self.cluster_counts is not None:
            return self._coded(x).incidence
        index = anchor.cluster_index
        return Incidence(index.codes(self.labels(x)), index.num_clusters, index.sizes)

    def _code(self, x: Tensor) -> _CodedRows:
        self.check_points(x)
        num_rows = x.shape[:-1].numel()
        if self.cluster_counts is None:
            labels = self.labels(x)
            index = self.new_cluster_index(num_rows, labels.view(-1, self.num_partitions))
            codes = index.codes(labels)
        else:
            index = self.new_cluster_index(num_rows)
            codes = self._in_blocks(x, index.dtype, index.codes)  # 64-bit labels of all rows are never held at once
        return _CodedRows(x.detach().clone(), index, Incidence(codes, index.num_clusters, index.sizes))

    def new_cluster_index(self, num_rows: int, labels: Tensor | None = None) -> ClusterIndex:
        """Return a map from labels to codes for some rows, defined by their labels (`N x m`) if these are unbounded."""
        counts = self.cluster_counts
        if counts is not None:
            return BoundedClusterIndex(counts, num_rows=num_rows)
        return SeenClusterIndex.of(cast(Tensor, labels))

    def check_points(self, x: Tensor) -> None:
        """Raise the errors of :meth:`labels` for points (`*batch x N x D`) that have no labels."""
        name = type(self).__name__
        self._check_fitted()
        if not torch.is_tensor(x) or not x.is_floating_point():
            kind = x.dtype if torch.is_tensor(x) else type(x).__name__
            raise ValueError(f"{name} expected a floating point tensor of points (... x N x D), got {kind}.")
        if x.dim() < 2:
            raise ValueError(f"{name} expected points (... x N x D), got shape {tuple(x.shape)}.")
        if self.num_features is not None and x.shape[-1] != self.num_features:
            raise ValueError(
                f"{name} was built on {self.num_features} columns, got points with {x.shape[-1]}: give the columns it "
                "was built on, or choose them with active_dims."
            )
        self._check_values(x)

    def _check_fitted(self) -> None:
        if not self.is_fitted:
            raise RuntimeError(
                f"{type(self).__name__} is not fitted: expected one that is built on rows, got one without: give rows, "
                "or load_state_dict a fitted one's state"
            )

    def _check_values(self, x: Tensor) -> None:
        if not torch.isfinite(x).all():
            raise ValueError(
                f"{type(self).__name__} expected finite points, got NaN or infinity: drop or impute these rows."
            )
        if (x == MISSING).any():
            told = "no clusters for missing values, and got some: drop or impute these rows"
            raise ValueError(f"{type(self).__name__} has {told}")

    def extra_repr(self) -> str:
        """Describe the partitions in words, for reprs of the partition and of kernels."""
        if (told := without_values(self)) or not self.is_fitted:
            return told or "unfitted"
        columns = "" if self.num_features is None else f", {counted(self.num_features, 'column')}"
        return f"{self._described()}{columns}"

    def _described(self) -> str:
        counts = self.cluster_counts
        clusters = "" if counts is None else f" of {ranged(counts.tolist())} clusters"
        return f"{counted(self.num_partitions, 'partition')}{clusters}"

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors, by name, that labels depend on."""
        return dict(self.named_buffers())

    def has_tensors(self, tensors: list[Tensor]) -> bool:
        """Return whether labels still depend on exactly these tensor objects."""
        own = list(self.tensors().values())
        return len(own) == len(tensors) and all(a is b for a, b in zip(own, tensors))

    def __deepcopy__(self, memo: dict[int, Any]) -> Partition:
        new = copy(self)  # without what is derived
        new.__dict__.update({name: value for name, value in self.__dict__.items() if name not in new.__dict__})
        new._buffers = self._buffers.copy()
        memo[id(self)] = new
        # Tensors are shared, so an object that remembers them (`has_tensors`) finds the same tensors in its own copy.
        memo.update((id(tensor), tensor) for tensor in self._buffers.values())
        return new

    def __getstate__(self) -> dict[str, Any]:
        state = without_computed(self)
        state.pop("_cached_rows", None)
        return state

    def _forget_derived(self) -> None:
        for name in self.__dict__.keys() - self.__getstate__().keys():
            self.__dict__.pop(name, None)

    def _apply(self, fn: Any, recurse: bool = True) -> Partition:
        tensors = list(self.tensors().values())
        super()._apply(fn, recurse)
        if not self.has_tensors(tensors):  # `to` a place where they are keeps codes
            self._forget_derived()
        return self

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        missing = [prefix + name for name in self._buffers if prefix + name not in state_dict]
        if missing:
            *_, missing_keys, _, _ = args
            missing_keys += missing
            return
        take_shapes(self, state_dict, prefix)
        self._forget_derived()
        super()._load_from_state_dict(state_dict, prefix, *args)


def _without_repeats(x: Tensor) -> Tensor:
    if x.dim() <= 2 or x.shape[:-2].numel() == 0:
        return x
    first = x[(0,) * (x.dim() - 2)]
    return first if same_bits(x, first.expand_as(x)) else x
