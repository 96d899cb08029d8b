"""One product with the covariance, against sparse matrices: features times their transpose, (Z / m) (Z^T V)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from gpytorch_partition.partitions.incidence import Incidence

from .measure import medians
from .problems import flat_operator, random_clusters
from .report import Bar, Options, Row, Table

NUM_PARTITIONS, NUM_CLUSTERS = 200, 256
# Columns of V, and how many times faster than scipy float32 is to be.
BARS = {1: 1.3, 4: None, 16: 6.0}


def product(options: Options) -> Iterator[Table]:
    """Milliseconds per product, and ratios to the sparse matrices of scipy and of torch."""
    num_rows = options.pick(200_000, 20_000, 2_000)
    rows = random_clusters(num_rows, NUM_PARTITIONS, NUM_CLUSTERS)
    table = [row for dtype in (torch.float32, torch.float64) for row in _compare(rows, dtype, options.pick(9, 3, 1))]
    title = f"Product K V, N = {num_rows:,}, m = {NUM_PARTITIONS}, {NUM_CLUSTERS} clusters a partition (milliseconds)"
    yield Table("product", title, table)


def _compare(rows: Incidence, dtype: torch.dtype, repetitions: int) -> Iterator[Row]:
    covariance = flat_operator(rows, dtype)
    by_scipy, by_torch = _scipy_product(rows, dtype), _torch_product(rows, dtype)
    for columns, bar in BARS.items():
        values = torch.randn(rows.num_rows, columns, dtype=dtype, generator=torch.Generator().manual_seed(columns))
        calls: dict[str, Callable[[], Any]] = {
            "ours": lambda values=values: covariance @ values,
            "scipy": lambda values=values: by_scipy(values.numpy()),
            "torch": lambda values=values: by_torch(values),
        }
        torch.testing.assert_close(calls["ours"](), torch.from_numpy(calls["scipy"]()), rtol=1e-3, atol=1e-3)
        yield _row(dtype, columns, medians(calls, repetitions), bar)


def _row(dtype: torch.dtype, columns: int, times: dict[str, float], bar: float | None) -> Row:
    name, ratio = str(dtype).removeprefix("torch."), times["scipy"] / times["ours"]
    is_judged = bar is not None and dtype == torch.float32
    return {
        "dtype": name,
        "columns": columns,
        "ours": 1000 * times["ours"],
        "scipy.sparse CSR": 1000 * times["scipy"],
        "torch sparse CSR": 1000 * times["torch"],
        "scipy / ours": ratio,
        "torch / ours": times["torch"] / times["ours"],
        "bar": Bar(f"product, {columns} column(s): scipy / ours", ratio, at_least=bar) if is_judged else None,
    }


def _scipy_product(rows: Incidence, dtype: torch.dtype) -> Callable[[np.ndarray], np.ndarray]:
    features = _features(rows, dtype)
    return lambda values: features @ (features.T @ values)


def _torch_product(rows: Incidence, dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    features = _features(rows, dtype)
    matrix, transpose = _torch_csr(features), _torch_csr(features.T.tocsr())
    return lambda values: matrix @ (transpose @ values)


def _features(rows: Incidence, dtype: torch.dtype) -> scipy.sparse.csr_array:
    """The rows of Z over the root of m."""
    codes = rows.codes.numpy()
    value = np.full(codes.size, rows.num_partitions**-0.5, torch.empty(0, dtype=dtype).numpy().dtype)
    starts = np.arange(0, codes.size + 1, rows.num_partitions, dtype=np.int32)
    return scipy.sparse.csr_array((value, codes.reshape(-1), starts), shape=(rows.num_rows, rows.num_clusters))


def _torch_csr(matrix: scipy.sparse.csr_array) -> Tensor:
    parts = (torch.from_numpy(part) for part in (matrix.indptr, matrix.indices, matrix.data))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.sparse_csr_tensor(*parts, size=matrix.shape)
