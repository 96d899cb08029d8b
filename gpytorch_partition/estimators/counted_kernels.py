"""Kernels with few enough clusters to count all pairs, grown on a sample of the rows."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from gpytorch_partition.descriptions import counted
from gpytorch_partition.estimators.given_kernels import is_data_free, name_of, name_or_function
from gpytorch_partition.estimators.kernels import resolved_kernel
from gpytorch_partition.inputs.numbers import random_state_of
from gpytorch_partition.kernels import FastClusterKernel, PartitionKernel, RandomForestKernel
from gpytorch_partition.partitions.ensembles.libraries import is_ensemble
from gpytorch_partition.partitions.forest import ForestPartition, TreeCutPartition

MOST_CLUSTERS = 3_200  # of kernels that are built here: counts of 82 MB, a fit of some ten seconds
_MOST_GIVEN = 8_192  # of kernels that are given: counts of half a GiB, minutes
# Boosted trees of "auto". With 100,000 rows 50 to 400 trees with 3,200 leaves in all are within .01 nats.
_NUM_TREES, _NUM_LEAVES = 100, 32
# With few rows, more leaves cover less: at 3,000 rows 90 % intervals hold 84 % with 32 leaves, 90 % with 4.
_ROWS_PER_LEAF, _FEWEST_LEAVES = 400, 4
_MOST_LEVELS = 255  # that boosting splits into sets


def check_countable(kernel: Any) -> None:
    """
    Refuse, before any work, a parameter `kernel` whose rows cannot be counted.

    :param kernel: The parameter.
    :raises ValueError: With alternatives.
    """
    if name_of(kernel) == "mondrian":
        raise ValueError(
            "kernel='mondrian' opens new cells wherever rows are, too many to count pairs of: give 'auto', 'forest' or "
            "'fast_cluster', or a MondrianKernel with a short lifetime, built on some rows"
        )
    if is_data_free(kernel) or (isinstance(kernel, Kernel) and not isinstance(kernel, PartitionKernel)):
        raise ValueError(
            f"expected a kernel of partitions, whose rows can be counted, got a {_name(kernel)}: {_REMEDY}"
        )
    if isinstance(kernel, PartitionKernel):
        _check_size(kernel)


def counted_kernel(
    kernel: Any,
    x: Tensor,
    y: Tensor,
    *,
    num_partitions: int,
    random_state: Any,
    n_jobs: int | None,
    categories: Mapping[int, int],
) -> tuple[PartitionKernel, tuple[str, ...]]:
    """
    Return a kernel with a few thousand clusters, and descriptions of what was left out to keep them few.

    - `"auto"`: the leaves of 100 boosted trees with 32 leaves each, or a leaf for 400 rows, but 4 at least.
    - `"forest"` and tree ensembles: their trees, cut at the depth that leaves at most 3,200 clusters.
    - `"fast_cluster"`: the height that makes at most 3,200 clusters.
    - A :class:`~gpytorch_partition.PartitionKernel`, or a function or class that builds one: as it is, up to 8,192.

    :param kernel: The parameter of the estimator.
    :param x: `n x D` rows of the sample as the kernel sees them.
    :param y: `n` targets; in their own units for an ensemble.
    :param num_partitions: Number of trees or clusterings of a named kernel but `"auto"`.
    :param random_state: Seed.
    :param n_jobs: Trees grown at once, where they can be.
    :param categories: The number of levels of each column that holds codes.
    :raises ValueError: If the kernel cannot be counted, or the rows hold categories or NaN that it cannot take.
    """
    name = name_of(kernel)
    if name == "auto":
        return _boosted(x, y, categories, random_state)
    if name == "fast_cluster":
        return _clustered(x, categories, num_partitions, random_state), ()
    options = {"num_partitions": num_partitions, "random_state": random_state, "n_jobs": n_jobs}
    given = kernel if isinstance(kernel, Kernel) else name_or_function(kernel, **options)
    built = resolved_kernel(given, x, y, categories=categories, **options)
    if name == "forest" or is_ensemble(kernel):
        return _cut(built)
    if not isinstance(built, PartitionKernel):
        raise ValueError(f"expected a kernel of partitions, whose rows can be counted, got a {_name(built)}: {_REMEDY}")
    _check_size(built)
    return deepcopy(built), ()


_REMEDY = "give 'auto', 'forest', 'fast_cluster', a tree ensemble or a PartitionKernel, or fit to rows in memory"


def _boosted(
    x: Tensor, y: Tensor, categories: Mapping[int, int], random_state: Any
) -> tuple[RandomForestKernel, tuple[str, ...]]:
    """Return the leaves of boosted trees, which split categories into sets and take missing values."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    sets = [column for column, levels in categories.items() if levels <= _MOST_LEVELS]
    ordered = len(categories) - len(sets)
    boosting = HistGradientBoostingRegressor(
        max_iter=_NUM_TREES,
        max_leaf_nodes=min(_NUM_LEAVES, max(_FEWEST_LEAVES, len(x) // _ROWS_PER_LEAF)),
        early_stopping=False,
        categorical_features=sets or None,
        random_state=random_state_of(random_state).randint(2**31),
    )
    boosting.fit(x.numpy(), y.numpy())
    told = f"sets of levels of {counted(ordered, 'column')} with more than {_MOST_LEVELS} (split by their order)"
    return RandomForestKernel.from_forest(boosting, heights="leaf"), (told,) if ordered else ()


def _clustered(x: Tensor, categories: Mapping[int, int], num_partitions: int, random_state: Any) -> FastClusterKernel:
    if categories or bool(x.isnan().any()):
        raise ValueError(
            "kernel='fast_cluster' on chunks expected numbers without missing cells, got categories or NaN: give "
            "'auto' or 'forest', which know both"
        )
    if (per_partition := MOST_CLUSTERS // num_partitions) < 2:
        raise ValueError(_too_many(num_partitions))
    height = min(per_partition.bit_length(), len(x).bit_length()) - 1
    return FastClusterKernel(x, num_partitions, height=height, random_state=random_state)


def _cut(kernel: RandomForestKernel) -> tuple[RandomForestKernel, tuple[str, ...]]:
    """Cut trees at the depth that leaves few enough clusters."""
    forest = kernel.partition
    assert isinstance(forest, ForestPartition)
    if (leaves := int(forest.cluster_counts.sum())) <= MOST_CLUSTERS:
        return kernel, ()
    depth, found = 0, _cut_at(forest, 0)
    while int((deeper := _cut_at(forest, depth + 1)).counts.sum()) <= MOST_CLUSTERS:  # all leaves are more
        depth, found = depth + 1, deeper
    if depth == 0:
        raise ValueError(_too_many(forest.num_partitions))
    shallow = RandomForestKernel(heights="sampled")
    shallow.partition = found
    height, kept = int(forest.layout.heights.max()), int(found.counts.sum())
    return shallow, (f"levels of trees below {depth} (of {height}; {kept:,} of {leaves:,} clusters)",)


def _cut_at(forest: ForestPartition, depth: int) -> TreeCutPartition:
    return forest.cut(torch.full((forest.num_partitions,), depth))


def _too_many(num_partitions: int) -> str:
    return (
        f"expected at most {MOST_CLUSTERS // 2:,} trees or partitions on chunks, which have {MOST_CLUSTERS:,} clusters "
        f"in all, got {num_partitions:,}: give fewer"
    )


def _check_size(kernel: PartitionKernel) -> None:
    counts = kernel.partition.cluster_counts
    if counts is not None and (size := int(np.sum(counts.tolist()))) > _MOST_GIVEN:
        raise ValueError(
            f"expected a kernel with at most {_MOST_GIVEN:,} clusters in all, all pairs of which are counted, got "
            f"{size:,}: give fewer partitions or coarser ones, or 'auto'"
        )


def _name(kernel: Any) -> str:
    return type(kernel).__name__
