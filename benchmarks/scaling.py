"""
How one product grows with the number of rows, and what is held for it.

Ids and index are the codes of the rows and the rows of the clusters; trees are node tables of the cluster operator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from gpytorch_partition import RandomForestKernel
from gpytorch_partition.operators import PartitionLinearOperator

from .measure import growth, in_own_process, medians, peak_gib
from .problems import flat_operator, friedman, random_clusters
from .report import Bar, Options, Row, Table

NUM_PARTITIONS, NUM_CLUSTERS, COLUMNS = 100, 256, (1, 16)
LARGEST_EXPONENT, LARGEST_BYTES = 1.05, 9.0


def scaling(options: Options) -> Iterator[Table]:
    """Seconds of one product at several N, bytes held per (row, partition), peak memory; one process each."""
    sizes = options.pick([10_000, 100_000, 1_000_000], [10_000, 100_000], [1_000, 4_000])
    rows = [row for make in KERNELS for row in in_own_process(_grown, make, sizes, options.pick(9, 3, 1))]
    title = f"Growth of one product K V, m = {NUM_PARTITIONS}, 1 and 16 columns; what is held after it"
    yield Table("scaling", title, rows)


def _grown(make: str, sizes: list[int], repetitions: int) -> list[Row]:
    rows = [_measured(make, num_rows, repetitions) for num_rows in sizes]
    last = rows[-1]
    for columns in COLUMNS:
        exponent = growth(sizes, [row[f"ms, {columns} col."] for row in rows])
        last[f"exponent, {columns} col."] = exponent
        what = f"growth of one product, {columns} col., {make}"
        last[f"bar, {columns} col."] = Bar(what, exponent, at_most=LARGEST_EXPONENT)
    held = last["bytes of ids and index per (row, partition)"]
    last["bar for the bytes"] = Bar(f"bytes per (row, partition), {make}", held, at_most=LARGEST_BYTES)
    return rows


def _measured(make: str, num_rows: int, repetitions: int) -> Row:
    covariance = KERNELS[make](num_rows)
    values = torch.randn(num_rows, max(COLUMNS), dtype=covariance.dtype, generator=torch.Generator().manual_seed(0))
    products = {columns: partial(covariance.matmul, values[:, :columns].contiguous()) for columns in COLUMNS}
    times, visits = medians(products, repetitions), num_rows * NUM_PARTITIONS
    return {
        "kernel": make,
        "N": num_rows,
        **{f"ms, {columns} col.": 1000 * times[columns] for columns in COLUMNS},
        "ns per (row, partition), 16 col.": 1e9 * times[16] / visits,
        "peak GiB": peak_gib(),
        "bytes of ids and index per (row, partition)": held_bytes(covariance.left) / visits,
        "bytes of trees": held_bytes(covariance.cluster_operator) / visits,
    }


def held_bytes(owner: Any) -> int:
    """Bytes of all tensors that an object of this package refers to, directly or through others."""
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage() for tensor in _tensors(owner)}
    return sum(storage.nbytes() for storage in storages.values())


def _tensors(value: Any) -> Iterator[Tensor]:
    if torch.is_tensor(value):
        yield value
    elif isinstance(value, dict | tuple | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _tensors(part)
    elif type(value).__module__.startswith("gpytorch_partition"):
        yield from _tensors(vars(value))


def _flat(num_rows: int) -> PartitionLinearOperator:
    return flat_operator(random_clusters(num_rows, NUM_PARTITIONS, NUM_CLUSTERS))


def _flat_double(num_rows: int) -> PartitionLinearOperator:
    return flat_operator(random_clusters(num_rows, NUM_PARTITIONS, NUM_CLUSTERS), torch.float64)


def _trees(num_rows: int) -> PartitionLinearOperator:
    return _forest(num_rows, max_samples=None)


def _equal_trees(num_rows: int) -> PartitionLinearOperator:
    return _forest(num_rows, max_samples=min(2000, num_rows))


def _forest(num_rows: int, max_samples: int | None) -> PartitionLinearOperator:
    x, y = friedman(num_rows)
    kernel = RandomForestKernel(x, y, NUM_PARTITIONS, random_state=0, max_samples=max_samples)
    return kernel(x).evaluate_kernel().detach()


KERNELS: dict[str, Callable[[int], PartitionLinearOperator]] = {
    f"flat, {NUM_CLUSTERS} random clusters": _flat,
    f"flat, {NUM_CLUSTERS} random clusters, float64": _flat_double,
    "forest, all heights, trees grown on 2,000 rows": _equal_trees,
    "forest, all heights, default trees (20 % of the rows, at most 20,000)": _trees,
}
