"""
One product with the covariance, against sparse matrices: features times their transpose, F (F^T V).

The bar is about scipy with both factors in CSR. Its transpose as a view (CSC) is reported as well: the faster of the
two depends on the version and the machine.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from gpytorch_partition.clusters.incidence import Incidence

from .measure import medians
from .problems import flat_operator, random_clusters
from .report import Bar, Options, Row, Table

NUM_PARTITIONS, NUM_CLUSTERS = 200, 256
# Columns of V, and how many times faster than scipy float32 is to be.
BARS = {1: 1.3, 4: None, 16: 6.0}

Sparse: TypeAlias = scipy.sparse.sparray


def product(options: Options) -> Iterator[Table]:
    """Milliseconds per product, and ratios to the sparse matrices of scipy and of torch."""
    num_rows = options.pick(200_000, 20_000, 2_000)
    rows = random_clusters(num_rows, NUM_PARTITIONS, NUM_CLUSTERS)
    table = [row for dtype in (torch.float32, torch.float64) for row in _compare(rows, dtype, options.pick(9, 3, 1))]
    title = f"Product K V, N = {num_rows:,}, m = {NUM_PARTITIONS}, {NUM_CLUSTERS} clusters a partition (milliseconds)"
    yield Table("product", title, table)


def _compare(rows: Incidence, dtype: torch.dtype, repetitions: int) -> Iterator[Row]:
    covariance = flat_operator(rows, dtype)
    features = _features(rows, dtype)
    transpose = features.T.tocsr()
    by_torch = _torch_product(features, transpose)
    for columns, bar in BARS.items():
        values = torch.randn(rows.num_rows, columns, dtype=dtype, generator=torch.Generator().manual_seed(columns))
        calls: dict[str, Callable[[], Any]] = {
            "ours": partial(covariance.matmul, values),
            "scipy": partial(_scipy_product, features, transpose, values.numpy()),
            "scipy CSC": partial(_scipy_product, features, features.T, values.numpy()),
            "torch": partial(by_torch, values),
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
        "scipy CSR": 1000 * times["scipy"],
        "scipy CSR, CSC": 1000 * times["scipy CSC"],
        "torch CSR": 1000 * times["torch"],
        "scipy CSR / ours": ratio,
        "scipy CSR, CSC / ours": times["scipy CSC"] / times["ours"],
        "torch CSR / ours": times["torch"] / times["ours"],
        "bar": Bar(f"product, {columns} column(s): scipy CSR / ours", ratio, at_least=bar) if is_judged else None,
    }


def _scipy_product(features: Sparse, transpose: Sparse, values: np.ndarray) -> np.ndarray:
    return features @ (transpose @ values)


def _torch_product(features: Sparse, transpose: Sparse) -> Callable[[Tensor], Tensor]:
    left, right = _torch_csr(features), _torch_csr(transpose)
    return lambda values: left @ (right @ values)


def _features(rows: Incidence, dtype: torch.dtype) -> Sparse:
    """The rows of Z over the root of m."""
    codes = rows.codes.numpy()
    value = np.full(codes.size, rows.num_partitions**-0.5, torch.empty(0, dtype=dtype).numpy().dtype)
    starts = np.arange(0, codes.size + 1, rows.num_partitions, dtype=np.int32)
    return scipy.sparse.csr_array((value, codes.reshape(-1), starts), shape=(rows.num_rows, rows.num_clusters))


def _torch_csr(matrix: Sparse) -> Tensor:
    starts, columns, values = (torch.from_numpy(part) for part in (matrix.indptr, matrix.indices, matrix.data))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.sparse_csr_tensor(starts, columns, values, size=matrix.shape)
