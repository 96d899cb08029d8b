"""What a kernel is grown on: some rows at the driver, or trees of a forest on shards."""

from __future__ import annotations

from copy import copy
from typing import Any, NamedTuple

import numpy as np
import torch
from distributed import Client
from sklearn.ensemble import BaggingRegressor
from torch import Tensor

from gpytorch_partition.distributed.chunks import tensors_of
from gpytorch_partition.distributed.tasks import on_chunks, reduced, seeds, wait_for
from gpytorch_partition.partitions.forest import grow_forest


class Sample(NamedTuple):
    """Rows with the least of independent random numbers, sorted by these: a sample of all rows without replacement."""

    order: Tensor
    x: Tensor
    y: Tensor
    sizes: Tensor  # rows of each shard that it was drawn from, in the order of the shards

    def least(self, size: int) -> Sample:
        """The first rows of them."""
        first = self.order.argsort(stable=True)[:size]
        return Sample(self.order[first], self.x[first], self.y[first], self.sizes)


def sampled_rows(client: Client, shards: list[Any], names: list[str], size: int, seed: int) -> Sample:
    """
    So many random rows of all shards, or all rows, in one pass: the same for any number of workers.

    :raises ValueError: If no shard has rows.
    """
    pairs = list(zip(shards, seeds(seed, len(shards))))
    parts = on_chunks(client, "sample_rows", _sampled, pairs, size)
    merged = reduced(client, "merge_samples", _merged, parts, size)
    wait_for(parts, names, "sampling rows")
    sample: Sample = merged.result()
    if not len(sample.y):
        raise ValueError("expected one row or more, got chunks without rows")
    return sample


def forest_of_shards(
    client: Client, shards: list[Any], names: list[str], sizes: Tensor, num_trees: int, seed: int
) -> BaggingRegressor:
    """
    A forest each of whose trees is grown on rows of one shard: as many of a shard with rows as of others, up to one.

    :param sizes: Rows of each shard, of which one has some.
    """
    filled = sizes.nonzero().squeeze(-1).tolist()
    shares = [len(part) for part in np.array_split(np.arange(num_trees), len(filled))]
    own = seeds(seed, len(shards))
    chosen = [(i, share) for i, share in zip(filled, shares) if share]
    parts = on_chunks(client, "grow_trees", _grown, [(shards[i], share, own[i]) for i, share in chosen])
    forest = reduced(client, "join_forests", _joined, parts)
    wait_for(parts, [names[i] for i, _ in chosen], "growing trees")
    return forest.result()


def _sampled(shard: tuple[Any, int], size: int) -> Sample:
    chunk, seed = shard
    x, y = tensors_of(chunk)
    order = torch.from_numpy(np.random.default_rng(seed).random(len(y)))
    return Sample(order, x, y, torch.tensor([len(y)])).least(size)


def _merged(first: Sample, second: Sample, size: int) -> Sample:
    return Sample(*map(torch.cat, zip(first, second))).least(size)


def _grown(shard: tuple[Any, int, int]) -> BaggingRegressor:
    chunk, num_trees, seed = shard
    return grow_forest(*tensors_of(chunk), num_trees=num_trees, random_state=seed)


def _joined(first: BaggingRegressor, second: BaggingRegressor) -> BaggingRegressor:
    """The forest of the trees of both."""
    forest = copy(first)
    for name in ("estimators_", "estimators_features_"):
        setattr(forest, name, [*getattr(first, name), *getattr(second, name)])
    return forest
