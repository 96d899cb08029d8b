"""
Pure functions of a shard of rows, and merges of their results, which any engine can run.

A shard is a pair of points and targets. No result depends on where or how often it was computed, so a lost result is
computed again. Results are merged by a tree that depends only on the number of shards.
"""

from __future__ import annotations

from copy import copy
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.ensemble import BaggingRegressor
from torch import Tensor

from gpytorch_partition.clusters.cluster_index import ClusterIndex
from gpytorch_partition.clusters.incidence import Incidence
from gpytorch_partition.inference.spaces.cluster_rows import LocalRows
from gpytorch_partition.inference.spaces.feature_space import summed_variances
from gpytorch_partition.inference.spaces.statistics import ClusterStatistics, merged_states
from gpytorch_partition.inputs.standardization import Standardization
from gpytorch_partition.kernels.partition_kernel import PartitionKernel
from gpytorch_partition.models.cluster_space_gp import local_rows
from gpytorch_partition.models.counted_rows import check_rows
from gpytorch_partition.models.feature_space_gp import FeatureSpaceGP
from gpytorch_partition.partitions.grown_forest import grow_forest

State = dict[str, Any]


def tensors_of(chunk: Any) -> tuple[Tensor, Tensor]:
    """Return a pair of arrays, tensors or dataframes as points (`n x D`) and targets (`n`), checked."""
    if not isinstance(chunk, tuple | list) or len(chunk) != 2:
        got = f"{len(chunk)} parts" if isinstance(chunk, tuple | list) else f"a {type(chunk).__name__}"
        raise TypeError(f"expected chunks of two parts, points and targets, got {got}")
    x, y = map(numbers_of, chunk)
    y = y.squeeze(-1) if y.dim() == 2 and y.shape[1] == 1 else y
    check_rows(x, y)
    return x, y


def numbers_of(part: Any) -> Tensor:
    if torch.is_tensor(part):
        return part
    array = np.asarray(part)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"expected columns of numbers, got {array.dtype}: encode text and categories first")
    return torch.tensor(array if array.dtype.kind == "f" else array.astype(np.float64))


class Columns(NamedTuple):
    """Hold the number of columns and their names, in order; arrays have no names."""

    number: int
    names: list[Any]

    def check(self, X: Any) -> None:
        """Raise a `ValueError` for another number of columns, or other names or order, where both have names."""
        names, shape = names_of(X), np.shape(X)
        if np.ndim(X) != 2 or shape[1] != self.number or (self.names and names and names != self.names):
            got = f"columns {names}" if names else f"shape {tuple(shape)}"
            raise ValueError(f"expected the {self.number} columns of fit ({self.names or 'unnamed'}), got {got}")

    def check_complete(self, x: Tensor) -> None:
        holes = x.isnan().any(0).nonzero().squeeze(-1).tolist()
        if holes:
            columns = [self.names[i] for i in holes] if self.names else holes
            raise ValueError(
                f"expected no missing cells, got NaN in columns {columns}: fill or drop them, or give kernel='forest', "
                "which knows them"
            )


def names_of(X: Any) -> list[Any]:
    """Return the names of the columns of a dataframe, also of a lazy one; empty for an array."""
    return list(getattr(X, "column_names", getattr(X, "columns", ())))  # pyarrow's name, and that of other libraries


def counted(chunk: Any, kernel: PartitionKernel, max_clusters: int) -> State:
    """Return the packed counts of a chunk, `2 p^2` bytes for p clusters."""
    part = FeatureSpaceGP(kernel, max_clusters=max_clusters)
    part.add_rows(*tensors_of(chunk))
    return part.statistics.state_dict()


def merged_counts(first: State, second: State, kernel: PartitionKernel, max_clusters: int) -> State:
    """Return the packed counts of the rows of both states; with unbounded labels the clusters are the union."""
    if first["values"] is None:
        return merged_states(first, second)
    total, other = (ClusterStatistics(kernel.partition, max_clusters) for _ in range(2))
    total.load_state_dict(first)
    other.load_state_dict(second)
    return total.merge_(other).state_dict()


def labelled(chunk: Any, kernel: PartitionKernel) -> LocalRows:
    """Return the codes of a chunk, sorted by cluster for the products: 8 bytes for each row and partition."""
    rows = local_rows(kernel, *tensors_of(chunk))
    if rows.num_rows:
        _ = rows.incidence.members
    return rows


class Sample(NamedTuple):
    """Hold a sample of all rows without replacement: the rows with the least of random numbers, sorted by these."""

    order: Tensor
    x: Tensor
    y: Tensor
    sizes: Tensor  # rows of each shard that it was drawn from, in the order of the shards

    def least(self, size: int) -> Sample:
        first = self.order.argsort(stable=True)[:size]
        return Sample(self.order[first], self.x[first], self.y[first], self.sizes)

    def merged(self, other: Sample, size: int) -> Sample:
        """Return a sample of the rows of both; `other` is of later shards."""
        return Sample(*map(torch.cat, zip(self, other))).least(size)


def sampled(shard: tuple[Any, int], size: int) -> Sample:
    """Draw random rows of a chunk, `size` or all, by a seed of its own."""
    chunk, seed = shard
    x, y = tensors_of(chunk)
    order = torch.from_numpy(np.random.default_rng(seed).random(len(y)))
    return Sample(order, x, y, torch.tensor([len(y)])).least(size)


def grown(shard: tuple[Any, int, int]) -> BaggingRegressor:
    chunk, num_trees, seed = shard
    return grow_forest(*tensors_of(chunk), num_trees=num_trees, random_state=seed)


def joined(first: BaggingRegressor, second: BaggingRegressor) -> BaggingRegressor:
    forest = copy(first)
    for name in ("estimators_", "estimators_features_"):
        setattr(forest, name, [*getattr(first, name), *getattr(second, name)])
    return forest


def seeds(seed: int, number: int) -> list[int]:
    """Return seeds of `number` shards, independent of each other and of those of other values of `seed`."""
    return [int(np.random.SeedSequence([seed, i]).generate_state(1)[0]) for i in range(number)]


class Units(NamedTuple):
    columns: Standardization
    target: Standardization

    def of(self, chunk: Any) -> tuple[Tensor, Tensor]:
        x, y = tensors_of(chunk)
        return self.columns.apply(x), self.target.apply(y)


class Predictor(NamedTuple):
    """A predictor of the rows of a shard that holds numbers of clusters, but no rows and no counts."""

    kernel: PartitionKernel
    clusters: ClusterIndex
    units: Units
    level: float
    effects: Tensor  # p x 1
    root: Tensor | None  # of the effects' covariance, where standard deviations are asked for
    noise: float

    def __call__(self, part: Any) -> np.ndarray:
        """Return means (`n x 1`), or means and standard deviations of new observations (`n x 2`)."""
        x = self.units.columns.apply(numbers_of(part))
        rows = Incidence(self.clusters.codes(self.kernel.cluster_ids(x)), self.clusters.num_clusters)
        found = [self.units.target.undo(self.level + rows.row_values(self.effects).squeeze(-1))]
        if self.root is not None:
            found.append((summed_variances(rows, self.root) + self.noise).sqrt() * self.units.target.scale)
        return torch.stack(found, -1).numpy()


class Errors(NamedTuple):
    """Hold number of rows, mean of targets, and sums of squares: of targets less the mean, and of prediction errors."""

    num_rows: int
    mean: float
    squares: float
    errors: float

    @classmethod
    def of(cls, chunk: Any, predictor: Predictor) -> Errors:
        x, y = tensors_of(chunk)
        y = y.double()
        mean, errors = float(y.sum() / max(1, len(y))), y - torch.from_numpy(predictor(x)).squeeze(-1)
        return cls(len(y), mean, float((y - mean).square().sum()), float(errors.square().sum()))

    def merged(self, other: Errors) -> Errors:
        """Merge the errors of two sets of rows, without cancellation (Chan, Golub & LeVeque 1983)."""
        num_rows, shift = self.num_rows + other.num_rows, other.mean - self.mean
        share = other.num_rows / max(1, num_rows)
        squares = self.squares + other.squares + self.num_rows * share * shift**2
        return Errors(num_rows, self.mean + share * shift, squares, self.errors + other.errors)

    @property
    def determination(self) -> float:
        if not self.num_rows:
            raise ValueError("expected one row or more, got none")
        return 1 - self.errors / self.squares if self.squares else float(self.errors == 0)
