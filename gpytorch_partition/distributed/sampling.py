"""Samples of rows at the driver, and trees of a forest grown on shards: the inputs of kernels."""

from __future__ import annotations

import numpy as np
from distributed import Client
from sklearn.ensemble import BaggingRegressor
from torch import Tensor

from gpytorch_partition.distributed.chunks import Shards
from gpytorch_partition.distributed.tasks import Task, map_reduced
from gpytorch_partition.shards.samples import Sample, grown, joined, sampled, seeds


def sampled_rows(client: Client, shards: Shards, size: int, seed: int) -> Sample:
    """
    Draw random rows of all shards, `size` or all, in one pass; the rows do not depend on the number of workers.

    :raises ValueError: If no shard has rows.
    """
    pairs = list(zip(shards.chunks, seeds(seed, len(shards.names))))
    take, merge = Task("sample_rows", sampled, (size,)), Task("merge_samples", Sample.merged, (size,))
    sample: Sample = map_reduced(client, Shards(pairs, shards.names), "sampling rows", take, merge)
    if not len(sample.y):
        raise ValueError("expected one row or more, got chunks without rows")
    return sample


def forest_of_shards(client: Client, shards: Shards, sizes: Tensor, num_trees: int, seed: int) -> BaggingRegressor:
    """
    Grow a forest in which each tree is grown on rows of one shard. Shards with rows have equal numbers of trees, up to
    one.

    :param sizes: Number of rows of each shard, not all 0.
    """
    filled = sizes.nonzero().squeeze(-1).tolist()
    shares = [len(part) for part in np.array_split(np.arange(num_trees), len(filled))]
    own = seeds(seed, len(shards.names))
    chosen = [(i, share) for i, share in zip(filled, shares) if share]
    growing = Shards([(shards.chunks[i], share, own[i]) for i, share in chosen], [shards.names[i] for i, _ in chosen])
    return map_reduced(client, growing, "growing trees", Task("grow_trees", grown), Task("join_forests", joined))
