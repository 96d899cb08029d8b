"""A uniform sample of the rows of all shards, and trees of a forest on each shard: the inputs of kernels."""

from __future__ import annotations

from copy import copy
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.ensemble import BaggingRegressor
from torch import Tensor

from gpytorch_partition.partitions.forest import grow_forest
from gpytorch_partition.shards.chunks import tensors_of


class Sample(NamedTuple):
    """Rows with the least of independent random numbers, sorted by these: a sample of all rows without replacement."""

    order: Tensor
    x: Tensor
    y: Tensor
    sizes: Tensor  # rows of each shard that it was drawn from, in the order of the shards

    def least(self, size: int) -> Sample:
        """Return the `size` rows of least random numbers."""
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
    """Grow trees on a chunk, by a seed of its own."""
    chunk, num_trees, seed = shard
    return grow_forest(*tensors_of(chunk), num_trees=num_trees, random_state=seed)


def joined(first: BaggingRegressor, second: BaggingRegressor) -> BaggingRegressor:
    """Return the forest of the trees of two forests."""
    forest = copy(first)
    for name in ("estimators_", "estimators_features_"):
        setattr(forest, name, [*getattr(first, name), *getattr(second, name)])
    return forest


def seeds(seed: int, number: int) -> list[int]:
    """Return seeds of `number` shards, independent of each other and of those of other values of `seed`."""
    return [int(np.random.SeedSequence([seed, i]).generate_state(1)[0]) for i in range(number)]
