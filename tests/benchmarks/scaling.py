"""How one product grows with the number of rows, and what is held for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from gpytorch_partition import RandomForestKernel
from gpytorch_partition.operators import PartitionLinearOperator
from gpytorch_partition.partitions.incidence import Incidence

from .measure import growth, in_own_process, medians
from .problems import flat_operator, friedman, random_clusters
from .report import Bar, Options, Row, Table

NUM_PARTITIONS, NUM_CLUSTERS, COLUMNS = 100, 256, 16
LARGEST_EXPONENT, LARGEST_BYTES = 1.05, 9.0


def scaling(options: Options) -> Iterator[Table]:
    """Seconds of one product at several N, bytes held per (row, partition), peak memory; one process each."""
    sizes = options.pick([10_000, 100_000, 1_000_000], [10_000, 100_000], [1_000, 4_000])
    rows = [row for make in KERNELS for row in _grown(make, sizes, options.pick(9, 3, 1))]
    title = f"Growth of one product K V, m = {NUM_PARTITIONS}, {COLUMNS} columns; what is held after it"
    yield Table("scaling", title, rows)


def _grown(make: str, sizes: list[int], repetitions: int) -> Iterator[Row]:
    times: list[float] = []
    for num_rows in sizes:
        (time, held), peak = in_own_process(_measured, make, num_rows, repetitions)
        times.append(time)
        row: Row = {
            "kernel": make,
            "N": num_rows,
            "milliseconds": 1000 * time,
            "nanoseconds per (row, partition, column)": 1e9 * time / (num_rows * NUM_PARTITIONS * COLUMNS),
            "peak GiB": peak,
            "bytes held per (row, partition)": held,
            "bar for the bytes": Bar(f"bytes held per (row, partition), {make}", held, at_most=LARGEST_BYTES),
        }
        if num_rows == sizes[-1]:
            exponent = growth(sizes, times)
            row["exponent"] = exponent
            row["bar for the exponent"] = Bar(f"growth of one product, {make}", exponent, at_most=LARGEST_EXPONENT)
        yield row


def _measured(make: str, num_rows: int, repetitions: int) -> tuple[float, float]:
    """Seconds of a product, and bytes held by the incidence after it per (row, partition)."""
    covariance = KERNELS[make](num_rows)
    values = torch.randn(num_rows, COLUMNS, dtype=covariance.dtype)
    time = medians({make: lambda: covariance @ values}, repetitions)[make]
    return time, held_bytes(covariance.left) / (num_rows * NUM_PARTITIONS)


def held_bytes(rows: Incidence) -> int:
    """Bytes of all tensors that an incidence refers to."""
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage() for tensor in _tensors(vars(rows))}
    return sum(storage.nbytes() for storage in storages.values())


def _tensors(value: Any) -> Iterator[Tensor]:
    if torch.is_tensor(value):
        yield value
    elif isinstance(value, dict | tuple | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _tensors(part)


def _flat(num_rows: int) -> PartitionLinearOperator:
    return flat_operator(random_clusters(num_rows, NUM_PARTITIONS, NUM_CLUSTERS))


def _flat_double(num_rows: int) -> PartitionLinearOperator:
    return flat_operator(random_clusters(num_rows, NUM_PARTITIONS, NUM_CLUSTERS), torch.float64)


def _trees(num_rows: int, **options: Any) -> PartitionLinearOperator:
    x, y = friedman(num_rows)
    kernel = RandomForestKernel(x, y, NUM_PARTITIONS, random_state=0, **options)
    return kernel(x).evaluate_kernel().detach()


KERNELS: dict[str, Callable[[int], PartitionLinearOperator]] = {
    f"flat, {NUM_CLUSTERS} random clusters": _flat,
    f"flat, {NUM_CLUSTERS} random clusters, float64": _flat_double,
    "forest, all heights, trees grown on 2,000 rows": lambda num_rows: _trees(num_rows, max_samples=min(2000, num_rows)),
    "forest, all heights, trees that grow with N": _trees,
}
