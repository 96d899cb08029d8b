"""A weighted mean of partition kernels with trained weights: a partition kernel on their joined partitions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import Any, cast

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from gpytorch_partition.clusters.cluster_index import ClusterIndex, ClusterSizes, JointClusterIndex
from gpytorch_partition.clusters.incidence import Incidence
from gpytorch_partition.descriptions import listed
from gpytorch_partition.inference.prediction.ensemble import KernelDiagnosis
from gpytorch_partition.inputs.numbers import weights_of
from gpytorch_partition.kernels.partition_kernel import Logits, PartitionKernel
from gpytorch_partition.operators.cluster_operators.cluster_operator import ClusterOperator
from gpytorch_partition.operators.cluster_operators.composed_operators import side_by_side
from gpytorch_partition.partitions.partition import Partition


class JointPartition(Partition):
    """A partition that joins those of partition kernels, which hold the state and see columns of their own."""

    def __init__(self, sources: Sequence[PartitionKernel]) -> None:
        super().__init__()
        self._sources = tuple(sources)
        self._coded_by: list[Tensor] = []  # the sources' tensors when the cached rows were coded

    def extra_repr(self) -> str:
        return f"{' + '.join(str(partition.num_partitions) for partition in self.partitions)} partitions"

    @property
    def partitions(self) -> list[Partition]:
        return [source.partition for source in self._sources]

    @property
    def num_partitions(self) -> int:
        return sum(self._widths)

    @property
    def cluster_counts(self) -> Tensor | None:
        counts = [partition.cluster_counts for partition in self.partitions]
        known = [count for count in counts if count is not None]
        return torch.cat(known) if len(known) == len(counts) else None

    @property
    def _widths(self) -> list[int]:
        return [partition.num_partitions for partition in self.partitions]

    def tensors(self) -> dict[str, Tensor]:
        parts = enumerate(self.partitions)
        return {f"{number}.{name}": tensor for number, part in parts for name, tensor in part.tensors().items()}

    def incidences(self, x1: Tensor, x2: Tensor) -> tuple[Incidence, Incidence]:
        """Return one-hot rows as in :class:`Partition`; cached rows are dropped if a source's tensors were replaced."""
        if not self.has_tensors(self._coded_by):
            self._cached_rows = []  # first: an interruption between the two must not leave codes of other tensors
            self._coded_by = list(self.tensors().values())
        return super().incidences(x1, x2)

    def new_cluster_index(self, num_rows: int, labels: Tensor | None = None) -> ClusterIndex:
        parts = [None] * len(self._sources) if labels is None else labels.split(self._widths, -1)
        indices = [partition.new_cluster_index(num_rows, part) for partition, part in zip(self.partitions, parts)]
        return JointClusterIndex(indices, self._widths, num_rows)

    def _labels(self, x: Tensor) -> Tensor:
        return torch.cat([source.partition._labels(source.columns.select(x)) for source in self._sources], -1)

    def _check_fitted(self) -> None:
        for partition in self.partitions:
            partition._check_fitted()

    def _check_values(self, x: Tensor) -> None:
        for source in self._sources:
            source.partition.check_points(source.columns.select(x))

    def __deepcopy__(self, memo: dict[int, Any]) -> Partition:
        new = super().__deepcopy__(memo)
        new.__dict__["_sources"] = deepcopy(self._sources, memo)
        return new

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_coded_by": []}


class PartitionMixtureKernel(PartitionKernel):
    r"""
    Average partition kernels with weights, :math:`k = \sum_i w_i k_i` with :math:`w_i > 0, \sum_i w_i = 1`.

    Use it to combine fine and coarse forests, supervised and random ones, or trees and fast clusters, with weights that
    maximize the marginal likelihood. Unlike a sum of kernels it is a partition kernel itself: a product is one pass
    over the codes of all partitions. With fixed weights one Lanczos run fits outputscale and noise.

    :param kernels: Partition kernels (mixtures too), with their own `active_dims` and weights, without `batch_shape`.
    :param weights: Initial weights of the kernels, which need not sum to 1. (Default: all the same.)
    :param learn_weights: Whether weights are trained. (Default: True.)
    :param batch_shape: As in :class:`~gpytorch_partition.PartitionKernel`.
    :raises ValueError: If kernels cannot be mixed, or weights are not one positive number for each.

    Example:
        >>> from gpytorch_partition import FastClusterKernel, RandomForestKernel
        >>> x = torch.linspace(0, 1, 200).unsqueeze(-1)
        >>> forest = RandomForestKernel(x, x[:, 0], 20, random_state=0)
        >>> clusters = FastClusterKernel(x, 30, random_state=0)
        >>> kernel = PartitionMixtureKernel([forest, clusters], weights=[3, 1])
        >>> expected = 0.75 * forest(x).to_dense() + 0.25 * clusters(x).to_dense()
        >>> kernel.num_partitions, torch.allclose(kernel(x).to_dense(), expected, atol=1e-6)
        (50, True)
    """

    _instead_of_lengthscale = "its kernels may have what sets how far points look alike, and it has mixture_weights"

    def __init__(
        self,
        kernels: Iterable[PartitionKernel],
        weights: Sequence[float] | Tensor | None = None,
        *,
        learn_weights: bool = True,
        batch_shape: torch.Size | tuple[int, ...] = (),
    ) -> None:
        kernels = _checked(kernels)
        start = weights_of([1.0] * len(kernels) if weights is None else weights, len(kernels))
        super().__init__(JointPartition(kernels), batch_shape=batch_shape)
        self.kernels = torch.nn.ModuleList(kernels)
        self.logits = Logits()
        self.logits.set("raw_mixture_weights", (start / start.sum()).log().to(self.unit))
        self.raw_mixture_weights.requires_grad_(learn_weights)

    @property
    def raw_mixture_weights(self) -> torch.nn.Parameter:
        return cast(torch.nn.Parameter, self.logits.get("raw_mixture_weights"))

    @property
    def mixture_weights(self) -> Tensor:
        """Return the weights of the kernels (`k`, float64), which sum to 1; they can be set to positive numbers."""
        return cast(Tensor, self.logits.weights("raw_mixture_weights"))

    @mixture_weights.setter
    def mixture_weights(self, weights: Any) -> None:
        self.logits.write("raw_mixture_weights", weights)

    def _described(self) -> str:
        return f"{super()._described()}, weights {listed(self.mixture_weights.tolist())}"

    def named_sub_kernels(self) -> Iterable[tuple[str, Kernel]]:
        """Yield nothing: only the mixture has batch dimensions; its kernels have none to index or expand."""
        return iter(())

    def _choose_columns(self, dims: Any) -> None:
        for kernel in self.kernels:
            kernel.active_dims = dims

    def _elsewhere(self, x1: Tensor, x2: Tensor) -> Tensor:
        return torch.cat([cast(PartitionKernel, kernel)._elsewhere(x1, x2) for kernel in self.kernels])

    def diagnose(self, x: Tensor, y: Any, **options: Any) -> KernelDiagnosis:
        """Raise a `TypeError`: diagnose the kernels of the mixture, each of which has partitions of one kind."""
        raise TypeError(
            "expected a kernel of partitions that are all drawn alike, got a PartitionMixtureKernel: diagnose its "
            "parts one by one, [part.diagnose(x, y) for part in kernel.kernels]"
        )

    def _cluster_operator(self, sizes: ClusterSizes, like: Tensor) -> ClusterOperator:
        parts = zip(self.kernels, cast(tuple[ClusterSizes, ...], sizes), strict=True)
        operators = [cast(PartitionKernel, kernel)._cluster_operator(size, like) for kernel, size in parts]
        return side_by_side(self.mixture_weights.to(like), operators)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        self._load_unit(state_dict.get(prefix + "unit"))
        saved = state_dict.get(prefix + "logits.raw_mixture_weights")
        if saved is not None and saved.shape != (len(self.kernels),):
            raise RuntimeError(
                f"expected the state of a mixture of {len(self.kernels)} kernels, got one with weights of shape "
                f"{tuple(saved.shape)}: build the mixture of as many kernels as were saved"
            )
        Kernel._load_from_state_dict(self, state_dict, prefix, *args)


def _checked(kernels: Iterable[PartitionKernel]) -> list[PartitionKernel]:
    # Iterating over a kernel would index its batch without end.
    if isinstance(kernels, Kernel) or not isinstance(kernels, Iterable):
        raise TypeError(f"expected a list of partition kernels, got a {type(kernels).__name__}: put it into a list")
    kernels = list(kernels)
    if not kernels:
        raise ValueError("expected at least one kernel, got none")
    for kernel in kernels:
        if not isinstance(kernel, PartitionKernel):
            raise TypeError(
                f"expected partition kernels, got a {type(kernel).__name__}: the mixture has the weights; other "
                "kernels are added to it with +"
            )
        if kernel.batch_shape:
            got = tuple(kernel.batch_shape)
            raise ValueError(f"expected kernels without batch_shape, got {got}: give it to the mixture")
    return kernels
