"""Partitions by functions from points to labels: a user's, or those that a program draws from seeds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from joblib import Parallel, delayed
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from gpytorch_partition.descriptions import counted
from gpytorch_partition.inputs.numbers import MOST_PARTITIONS, checked_count, random_state_of
from gpytorch_partition.partitions.clustering import ClusteringPartition
from gpytorch_partition.partitions.partition import Partition
from gpytorch_partition.partitions.sites import is_known


class CallablePartition(Partition):
    """
    Divide points by a function from points to labels (Davies & Ghahramani 2014, section 4.2).

    Use it to share one function between kernels, which make one of any function themselves.

    :param function: Maps points `N x D`, a torch tensor (of a method of scikit-learn, a float64 array), to integer
        labels `N x m`, or `N` for one partition, torch or NumPy. Labels of a point must not depend on other rows; NaN
        and infinity are the function's to handle. `state_dict` does not save it.
    :param num_partitions: Number m of partitions. (Default: None, as many as the first labels have.)
    :raises TypeError: If `function` is not callable.

    :meth:`labels` raises a `ValueError` if the function does not return integers of the right shape.

    Example:
        >>> stripes = CallablePartition(lambda x: torch.stack([x[..., 0].floor(), x[..., 1].floor()], -1).long())
        >>> stripes.labels(torch.tensor([[0.2, 5.7], [3.9, -1.5]]))
        tensor([[ 0,  5],
                [ 3, -2]])
        >>> CallablePartition(lambda x: np.digitize(x[:, 0], [1.0, 3.0])).labels(torch.tensor([[0.2], [3.9]]))
        tensor([[0],
                [2]])
    """

    def __init__(self, function: Callable[[Tensor], Any], num_partitions: int | None = None) -> None:
        super().__init__()
        if not callable(function):
            raise TypeError(
                f"expected a function from points (N x D) to integer labels (N x m), got {type(function).__name__}: "
                "labels of rows do not say where new points belong. Give a fitted clusterer or its predict, "
                "ClusteringKernel(train_x, clusterer), or GroupKernel([column]) where a column of x holds the labels"
            )
        if num_partitions is not None:
            num_partitions = checked_count(num_partitions, "partitions", "num_partitions", MOST_PARTITIONS)
        self.function, self._num_partitions = function, num_partitions

    @property
    def num_partitions(self) -> int:
        return self._num_partitions or 0

    @property
    def is_fitted(self) -> bool:
        return True

    def extra_repr(self) -> str:
        name = getattr(self.function, "__name__", type(self.function).__name__)
        return name if not self._num_partitions else f"{counted(self._num_partitions, 'partition')} by {name}"

    def check_points(self, x: Tensor) -> None:
        super().check_points(x)
        if self._num_partitions is None:
            self._num_partitions = labels_by(self.function, x.detach().reshape(-1, x.shape[-1])[:1], None).shape[-1]

    def _labels(self, x: Tensor) -> Tensor:
        return labels_by(self.function, x, self._num_partitions)

    def _check_values(self, x: Tensor) -> None:
        """Accept all values: the function handles NaN."""


def labels_by(function: Callable[[Any], Any], x: Tensor, num_partitions: int | None) -> Tensor:
    """Return a function's labels (`n x m`, int64) of points (`n x D`), checked; a `ValueError` for others."""
    is_method = isinstance(getattr(function, "__self__", None), BaseEstimator)
    labels = function(x.detach().cpu().double().numpy() if is_method else x)
    if isinstance(labels, np.ndarray) and labels.dtype.kind in "biu":
        labels = torch.from_numpy(labels.astype(np.int64))
    if not torch.is_tensor(labels) or labels.is_floating_point() or labels.is_complex():
        kind = labels.dtype if isinstance(labels, (Tensor, np.ndarray)) else type(labels).__name__
        raise ValueError(
            f"expected the function to return integer labels, a torch tensor or a NumPy array, got {kind}: return "
            "labels.long(), or labels.astype(int) of an array"
        )
    shape = tuple(labels.shape)
    labels = labels.unsqueeze(-1) if labels.dim() == 1 else labels
    if labels.dim() == 2 and not labels.shape[-1]:
        raise ValueError("expected the function to return labels of at least one partition, got none")
    wanted = labels.shape[-1] if num_partitions is None and labels.dim() else num_partitions
    if tuple(labels.shape) != (x.shape[0], wanted):
        raise ValueError(
            "expected the function to return labels of shape "
            f"{(x.shape[0], wanted)}{', or one label for each,' if wanted == 1 else ''} for points {tuple(x.shape)}, "
            f"got {shape}"
        )
    return labels.to(device=x.device, dtype=torch.int64)


def partition_of(source: Any) -> Partition:
    """
    Return a user's source of clusters as a partition.

    :param source: A partition; a function from points to labels; a fitted clusterer of scikit-learn or its `predict`;
        or a list of fitted clusterers.
    :raises TypeError: If `source` is none of these, or a fitted clusterer that has no `predict`.
    """
    if isinstance(source, Partition):
        return source
    clusterers = [_estimator(each) for each in source] if isinstance(source, (list, tuple)) else [_estimator(source)]
    for clusterer in clusterers:
        if clusterer is not None:
            check_is_fitted(clusterer)
    if clusterers and all(clusterer is not None and is_known(clusterer) for clusterer in clusterers):
        return ClusteringPartition.of_fitted(clusterers)
    if isinstance(source, type):
        raise TypeError(f"expected a fitted clusterer or a function, got the class {source.__name__}")
    if isinstance(source, BaseEstimator) and not callable(getattr(source, "predict", None)):
        raise TypeError(
            f"expected a function from points to labels, or a clusterer with `predict`, got a {type(source).__name__} "
            "without: give ClusteringKernel(train_x, clusterer, 1, rows=0.5), where new points join the nearest row"
        )
    if isinstance(source, (list, tuple)):
        names = [type(each).__name__ for each in source]
        raise TypeError(f"expected fitted clusterers whose rule for new points is known, got a list of {names}")
    return CallablePartition(getattr(source, "predict", source) if isinstance(source, BaseEstimator) else source)


def _estimator(source: Any) -> BaseEstimator | None:
    if isinstance(source, BaseEstimator):
        return source
    owner = getattr(source, "__self__", None)
    return owner if isinstance(owner, BaseEstimator) and getattr(source, "__name__", "") == "predict" else None


class SampledPartition(Partition):
    """
    Divide points by m functions that a program draws from seeds (Davies & Ghahramani 2014, section 2.4).

    :meth:`~gpytorch_partition.PartitionKernel.from_sampler` uses it. Construct it yourself to inspect draws first.

    The state, in `state_dict` and in pickles, is the m seeds: after a load, the same program draws the functions again.

    :param draw: Maps a seed, an int, from which all randomness must come, to a fitted clusterer of scikit-learn, or to
        a function from points (`n x D` torch tensor) to integer labels, torch or NumPy, of shape `n` or `n x 1`.
    :param random_state: Seed or `RandomState` that the seeds are drawn from; `None` is a fresh one.
    :param n_jobs: Functions drawn at once, as joblib counts them, which cloudpickle must know. (Default: None, one.)

    Example:
        >>> def draw(seed):
        ...     threshold = np.random.RandomState(seed).normal()
        ...     return lambda x: x[:, 0] > threshold
        >>> signs = SampledPartition(draw, 4, random_state=0)
        >>> signs.labels(torch.tensor([[-3.0], [0.0], [3.0]]))
        tensor([[0, 0, 0, 0],
                [0, 0, 0, 1],
                [1, 1, 1, 1]])
    """

    draw: Callable[[int], Any]
    n_jobs: int | None
    seeds: Tensor  # (m,)

    def __init__(
        self,
        draw: Callable[[int], Any],
        num_partitions: int = 200,
        *,
        random_state: int | np.random.RandomState | None = None,
        n_jobs: int | None = None,
    ) -> None:
        super().__init__()
        if not callable(draw):
            raise TypeError(f"expected a function from a seed to a function of points, got {type(draw).__name__}")
        num_partitions = checked_count(num_partitions, "partitions", "num_partitions", MOST_PARTITIONS)
        self.draw, self.n_jobs = draw, n_jobs
        seeds = random_state_of(random_state).randint(2**31 - 1, size=num_partitions)
        self.register_buffer("seeds", torch.from_numpy(seeds.astype(np.int64)))
        self._drawn: tuple[list[int], list[Partition]] = ([], [])
        self._partitions()

    @property
    def num_partitions(self) -> int:
        return self.seeds.numel()

    def _partitions(self) -> list[Partition]:
        seeds = self.seeds.tolist()
        if self._drawn[0] != seeds:
            drawn = Parallel(n_jobs=self.n_jobs)(delayed(self.draw)(seed) for seed in seeds)
            self._drawn = (seeds, [_partition(each) for each in drawn])
        return self._drawn[1]

    def _described(self) -> str:
        return f"{counted(self.num_partitions, 'partition')} drawn by {getattr(self.draw, '__name__', 'a program')}"

    def _labels(self, x: Tensor) -> Tensor:
        return torch.cat([partition.to(x.device).labels(x) for partition in self._partitions()], -1)

    def _check_values(self, x: Tensor) -> None:
        """Accept all values: the functions handle NaN."""

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_drawn": ([], [])}


def _partition(drawn: Any) -> Partition:
    try:
        is_other = not isinstance(drawn, (type, BaseEstimator)) and callable(getattr(drawn, "predict", None))
        partition = partition_of(drawn.predict if is_other else drawn)
    except TypeError as error:
        raise TypeError(
            "expected draw(seed) to return a function from points to labels, or a fitted clusterer whose rule for new "
            f"points is known: {error}"
        ) from error
    return CallablePartition(partition.function, 1) if isinstance(partition, CallablePartition) else partition
