"""Predictions of the rows of a shard by numbers of clusters, and the errors of many shards."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gpytorch_partition.clusters.cluster_index import ClusterIndex
from gpytorch_partition.clusters.incidence import Incidence
from gpytorch_partition.inference.spaces.feature_space import summed_variances
from gpytorch_partition.inputs.standardization import Standardization
from gpytorch_partition.kernels.partition_kernel import PartitionKernel
from gpytorch_partition.shards.chunks import numbers_of, tensors_of


class Units(NamedTuple):
    """The standardization of columns and of targets, by a sample of the rows."""

    columns: Standardization
    target: Standardization

    def of(self, chunk: Any) -> tuple[Tensor, Tensor]:
        """Return a chunk in standard deviations from the mean."""
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
    """Number of rows, mean of targets, and sums of squares: of targets less the mean, and of prediction errors."""

    num_rows: int
    mean: float
    squares: float
    errors: float

    @classmethod
    def of(cls, chunk: Any, predictor: Predictor) -> Errors:
        """Compute the errors of a chunk."""
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
        """The coefficient of determination R2."""
        if not self.num_rows:
            raise ValueError("expected one row or more, got none")
        return 1 - self.errors / self.squares if self.squares else float(self.errors == 0)
