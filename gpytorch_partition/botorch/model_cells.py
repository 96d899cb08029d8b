"""The cells of a model's partitions: a key for the cell of each point, and the walls of trees' cells by column."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from gpytorch.kernels import AdditiveKernel, ConstantKernel, Kernel, ProductKernel, ScaleKernel
from torch import Tensor

from gpytorch_partition.explain.kernel_parts import Map, columns_of, selects_columns
from gpytorch_partition.kernels.partition_kernel import PartitionKernel
from gpytorch_partition.kernels.partition_mixture_kernel import PartitionMixtureKernel
from gpytorch_partition.kernels.wrapper_kernels import DeferredKernel, IterativeKernel, StandardizedKernel
from gpytorch_partition.partitions.forest import ForestPartition, TreeCutPartition
from gpytorch_partition.partitions.hashed_cells import hashed


class _Source(NamedTuple):
    kernel: PartitionKernel
    see: Map  # from points of the space to the kernel's inputs
    columns: Tensor | None  # the model's columns among the kernel's inputs; None if they are transformed

    @property
    def forest(self) -> ForestPartition | None:
        """The kernel's trees, where their thresholds are those of the model's columns."""
        partition = self.kernel.partition
        partition = partition.forest if isinstance(partition, TreeCutPartition) else partition
        return partition if isinstance(partition, ForestPartition) and self.columns is not None else None


class ModelCells:
    """
    Hold the cells of a model, sets of points that share a cluster in every partition of all its kernels.

    Prior covariances, and so posteriors, are the same for all points of a cell.

    :param model: A BoTorch model with a constant mean, or a `ModelListGP` of such models, whose kernels are scales,
        sums, products and mixtures of partition kernels.
    """

    def __init__(self, model: Any) -> None:
        model.eval()  # in training mode, an input transformation would learn from all points
        self._models = [(each, list(_model_sources(each))) for each in getattr(model, "models", [model])]

    def check_bounds(self, bounds: Tensor) -> None:
        """Raise a `ValueError` for bounds (`2 x d`) that do not fit the models' inputs."""
        for model, _ in self._models:
            inputs = model.train_inputs[0]
            is_transformed = getattr(model, "input_transform", None) is not None
            if bounds.dtype != inputs.dtype or (bounds.shape[-1] != inputs.shape[-1] and not is_transformed):
                expected, got = (f"{each.shape[-1]} columns of {each.dtype}" for each in (inputs, bounds))
                raise ValueError(f"expected bounds like the inputs of the model, {expected}, got {got}")

    def keys(self, X: Tensor) -> Tensor:
        """Return a number for the cell of each point (`n`, int64), a 64-bit hash of its labels."""
        keys = torch.zeros(X.shape[0], dtype=torch.int64, device=X.device)
        for _, sources in self._models:
            for source in sources:
                labels = source.kernel.cluster_ids(source.see(X))
                partitions = torch.arange(labels.shape[-1], device=X.device)
                keys = hashed(keys, 0) + hashed(labels ^ hashed(partitions, 1), 2).sum(-1)
        return keys

    def walls(self, bounds: Tensor) -> list[Tensor | None]:
        """Return the sorted walls of cells along each column within bounds (`2 x d`); None where unknown."""
        found = [_model_walls(model, sources, bounds) for model, sources in self._models]
        columns = zip(*found, strict=True)
        return [None if any(each is None for each in walls) else torch.cat(walls).unique() for walls in columns]


def _model_sources(model: Any) -> Iterator[_Source]:
    kernel = getattr(model, "covar_module", None)
    if not isinstance(kernel, Kernel) or not hasattr(model, "transform_inputs"):
        raise TypeError(
            "expected a BoTorch model with a covar_module, such as SingleTaskGP, or a ModelListGP of such, got "
            f"{type(model).__name__}"
        )
    inputs = model.train_inputs[0]
    yield from _sources(kernel, model.transform_inputs, torch.arange(inputs.shape[-1], device=inputs.device))


def _sources(kernel: Kernel, see: Map, columns: Tensor | None) -> Iterator[_Source]:
    is_mixture = isinstance(kernel, PartitionMixtureKernel)
    if isinstance(kernel, PartitionKernel) and not is_mixture:
        own = kernel.columns.numbers
        yield _Source(kernel, see, columns[own] if columns is not None and own.numel() else columns)
        return
    if selects_columns(kernel) and not is_mixture:
        see, columns = _then(see, columns_of(kernel)), None if columns is None else columns[kernel.active_dims]
    if isinstance(kernel, StandardizedKernel):
        see, columns = _then(see, kernel.standardized), None
    for inner in _inner_kernels(kernel):
        yield from _sources(inner, see, columns)


def _inner_kernels(kernel: Kernel) -> list[Kernel]:
    if isinstance(kernel, (AdditiveKernel, ProductKernel, PartitionMixtureKernel)):
        return list(kernel.kernels)
    if isinstance(kernel, (ScaleKernel, DeferredKernel, IterativeKernel, StandardizedKernel)):
        return [kernel.base_kernel]
    if isinstance(kernel, ConstantKernel):
        return []
    raise TypeError(
        f"expected a model whose kernel is made of partition kernels, got a {type(kernel).__name__}, whose cells are "
        "unknown. If a part is a partition kernel, search with botorch.optim.optimize_acqf_discrete_local_search, or "
        "optimize_acqf and options={'with_grad': False}; else with optimize_acqf_mixed_alternating."
    )


def _then(first: Map, second: Map) -> Map:
    return lambda X: second(first(X))


def _model_walls(model: Any, sources: list[_Source], bounds: Tensor) -> list[Tensor | None]:
    unknown: list[Tensor | None] = [None] * bounds.shape[-1]
    forests = [(source.forest, source.columns) for source in sources]
    num_columns = model.train_inputs[0].shape[-1]
    if num_columns != bounds.shape[-1] or any(forest is None for forest, _ in forests):
        return unknown
    thresholds = [_thresholds(forests, column) for column in range(num_columns)]
    table = torch.nn.utils.rnn.pad_sequence(thresholds, padding_value=torch.nan).to(bounds)
    transform = getattr(model, "input_transform", None)
    try:
        values = table if transform is None else transform.untransform(table)
    except NotImplementedError:
        return unknown
    if not torch.equal(values.isfinite(), table.isfinite()):  # columns are mixed
        return unknown
    return [column[(low < column) & (column < high)] for column, low, high in zip(values.T, *bounds)]


def _thresholds(forests: list[Any], column: int) -> Tensor:
    found = [
        forest.thresholds(place)
        for forest, columns in forests
        for place in (columns == column).nonzero().squeeze(-1).tolist()
    ]
    return torch.cat(found) if found else torch.empty(0, dtype=torch.float64)
