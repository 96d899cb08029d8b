"""
Estimated seconds of each method to fit and to predict, from which the fastest is chosen.

Rough figures for two cores of a server CPU: choices depend on their ratios only, which are right to a factor of a few.
"""

from __future__ import annotations

import os

import torch
from linear_operator.operators import LinearOperator

from gpytorch_partition.clusters.incidence import Incidence
from gpytorch_partition.inference.feature_space.feature_space import DECOMPOSITION_SECONDS, cached_feature_space
from gpytorch_partition.operators.accuracy import expected_iterations
from gpytorch_partition.operators.addition import structured_terms
from gpytorch_partition.operators.direct import is_small, sparse_roots
from gpytorch_partition.operators.partition_added_diag_linear_operator import PartitionAddedDiagLinearOperator
from gpytorch_partition.operators.partition_linear_operator import PartitionLinearOperator

# Feature space, float64.
_COUNT_SECONDS = 2e-9  # for a row and a pair of its clusters
_FACTOR_SECONDS = 1.7e-11  # for a p x p Cholesky factor with its inverse, over p^3
_MOST_CLUSTERS = 20_000  # for more the feature space is never chosen
_PAIR_BYTES = 5 * 8  # five numbers held for a pair of clusters: those of all pairs must fit in half of the memory
# Lanczos steps of a fit, float64: 40 to 100 were measured for 20,000 rows, 75 for 60,000, 165 for 1,000,000.
_STEPS = 60  # for `_STEPS_ROWS` rows
_STEPS_ROWS = 20_000
_STEPS_GROWTH = 0.3  # exponent of the number of rows
_STEP_VISIT_SECONDS = 1e-9  # for a column and a (row, partition)
_STEP_ROW_SECONDS = 4e-8  # for a column and a row: orthogonalization
_VARIANCE_FACTOR = 4  # iterations for a variance to within 1 %, over those for a sample
_PREPARATION = 800  # time of the preparation for samples, in iterations of one column
# A factor of A, float64, and a solve with it.
_FILL_SHARE = 0.4  # time for the entries, over that of a product with as many columns
_CHOLESKY_SECONDS = 6e-12  # over N^3
_SUBSTITUTION_SECONDS = 4e-11  # for a column, over N^2
# One column of an iteration with a dozen columns or more, float32.
_VISIT_SECONDS = 1.5e-10  # for a (row, partition)
_ROW_SECONDS = 2e-8  # for a row: the preconditioner and the algebra of vectors
_NODE_SECONDS = 2e-9  # for a node of a tree
_LOADING_SECONDS = 6e-11  # for a row and a loading, where there is a single cluster
_DOUBLE_FACTOR = 5  # time in float64 over time in float32


def decomposition_seconds(rows: Incidence) -> float:
    """Seconds to fit in feature space, for counts and eigenpairs; 0 if these rows have them already."""
    space = cached_feature_space(rows)
    if space is not None and space.is_decomposed:
        return 0.0
    if rows.num_clusters > _most_clusters():
        return float("inf")
    return _count_seconds(rows) + rows.num_clusters**3 * DECOMPOSITION_SECONDS


def factor_seconds(rows: Incidence, outputscale: float, noise: float) -> float:
    """Seconds to predict in feature space, for counts and a Cholesky factor; 0 if :meth:`has_root` for these values."""
    space = cached_feature_space(rows)
    if space is not None and space.has_root(outputscale, noise):
        return 0.0
    if rows.num_clusters > _most_clusters():
        return float("inf")
    return _count_seconds(rows) + rows.num_clusters**3 * _FACTOR_SECONDS


def _most_clusters() -> float:
    return min(_MOST_CLUSTERS, (_memory() / 2 / _PAIR_BYTES) ** 0.5)


def _memory() -> float:
    """Bytes of this machine's memory, or 8 GiB where the system does not tell."""
    if hasattr(os, "sysconf") and {"SC_PAGE_SIZE", "SC_PHYS_PAGES"} <= os.sysconf_names.keys():
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return 2**33


def _count_seconds(rows: Incidence) -> float:
    known = cached_feature_space(rows) is not None
    return 0.0 if known else rows.num_rows * rows.num_partitions**2 / 2 * _COUNT_SECONDS


def cholesky_seconds(num_clusters: int) -> float:
    """Seconds for one Cholesky factor in feature space, given the counts."""
    return float("inf") if num_clusters > _most_clusters() else num_clusters**3 * _FACTOR_SECONDS


def krylov_seconds(num_rows: int, num_partitions: int, num_columns: int) -> float:
    """Seconds to fit by one Lanczos run with that many columns."""
    steps = _STEPS * (num_rows / _STEPS_ROWS) ** _STEPS_GROWTH
    return steps * num_rows * num_columns * (num_partitions * _STEP_VISIT_SECONDS + _STEP_ROW_SECONDS)


def conjugate_gradient_seconds(noisy: PartitionAddedDiagLinearOperator, num_points: int) -> float:
    """Seconds to solve for the variances of that many points by conjugate gradients."""
    return num_points * _VARIANCE_FACTOR * _iterations(noisy) * _iteration_seconds(noisy._linear_op)


def sample_seconds(noisy: PartitionAddedDiagLinearOperator, num_samples: int) -> float:
    """Seconds to solve for that many pathwise samples."""
    return (num_samples * _iterations(noisy) + _PREPARATION) * _iteration_seconds(noisy._linear_op)


def direct_seconds(noisy: PartitionAddedDiagLinearOperator, num_solves: int) -> float:
    """
    Seconds for a factor of A, float64, unless it is known, and for that many solves with it: what iterations compete
    with up to 10,000 rows.

    On one core a factor of 10,000 rows takes 6 s, its entries 13 s for 100 trees and 500 inducing points, and 1,500
    solves 10 s. It takes as long as so many iterations of each solve, in float64, for that model and

    | rows | one solve | 64 | 512 |
    | --- | --- | --- | --- |
    | 3,000 | 1,000 | 17 | 3 |
    | 6,000 | 2,300 | 38 | 6 |
    | 10,000 | 4,500 | 71 | 10 |

    Of 10,000 rows 14 are expected at a noise of .1 of the prior variance, 43 at .01, 430 at .0001.
    """
    if not is_small(noisy):
        return float("inf")
    num_rows = noisy.size(-1)
    product = sum(_product_seconds(term, is_double=True) for term in structured_terms(noisy._linear_op))
    factor = 0.0 if noisy.knows_direct else num_rows * product * _FILL_SHARE + num_rows**3 * _CHOLESKY_SECONDS
    return factor + num_solves * (product + num_rows**2 * _SUBSTITUTION_SECONDS)


def feature_factor_seconds(noisy: PartitionAddedDiagLinearOperator) -> float:
    """Seconds for the factor of a root's coefficients, float64: a product of each of its columns, and the factor."""
    if noisy.knows_feature_factor:
        return 0.0
    if not noisy.has_feature_factor:
        return float("inf")
    roots = sparse_roots(noisy._linear_op.evaluate_kernel()) or []
    num_columns = sum(root.shape[-1] for root in roots)
    products = sum(_product_seconds(term, is_double=True) for term in structured_terms(noisy._linear_op))
    return num_columns * products + num_columns**3 * _FACTOR_SECONDS


def noise_ratio(noisy: PartitionAddedDiagLinearOperator) -> float:
    """
    The noise (its harmonic mean) over the prior variance of the terms that take iterations.

    A term with a single cluster has a few large eigenvalues, which the preconditioner removes: inducing points of
    outputscale 10 beside a forest of .3 took 1 to 1.7 times the iterations of the forest alone.
    """
    covariances = structured_terms(noisy._linear_op)
    hard = [term for term in covariances if term.left.num_clusters > 1] or covariances
    variance = sum(float(term.diagonal().mean()) for term in hard)
    tiny = torch.finfo(noisy.dtype).tiny
    noise = 1 / float(noisy._diag_tensor._diagonal().clamp_min(tiny).reciprocal().mean())
    return max(noise, tiny) / max(variance, tiny)


def _iterations(noisy: PartitionAddedDiagLinearOperator) -> float:
    """Iterations for a sample, no more than are tried before something better is."""
    return min(expected_iterations(noisy.size(-1), noise_ratio(noisy)), noisy.most_iterations)


def _iteration_seconds(covariance: LinearOperator) -> float:
    """Seconds for one column of one iteration."""
    rows = covariance.size(-1) * _ROW_SECONDS * (_DOUBLE_FACTOR if covariance.dtype == torch.float64 else 1)
    return rows + sum(map(_product_seconds, structured_terms(covariance)))


def _product_seconds(term: PartitionLinearOperator, is_double: bool | None = None) -> float:
    """Seconds for one column of a product with a term; in float64 matrix products take twice as long, sums 5 times."""
    rows, nodes = term.left, term.cluster_operator.num_nodes
    is_double = term.cluster_operator.dtype == torch.float64 if is_double is None else is_double
    num_loadings = 1 if term.left_loadings is None else term.left_loadings.shape[-1]
    if rows.num_clusters == 1:
        return rows.num_rows * num_loadings * _LOADING_SECONDS * (2 if is_double else 1)
    seconds = num_loadings * (rows.num_rows * rows.num_partitions * _VISIT_SECONDS + nodes * _NODE_SECONDS)
    return seconds * (_DOUBLE_FACTOR if is_double else 1)
