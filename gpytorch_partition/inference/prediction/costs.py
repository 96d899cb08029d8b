"""
What the ways to the same answer are expected to cost, so that the cheapest can be taken.

In seconds on two cores of a server CPU, rough: what is decided by them are ratios, right to a factor of a few.
"""

from __future__ import annotations

import os

import torch
from linear_operator.operators import LinearOperator

from gpytorch_partition.clusters.incidence import Incidence
from gpytorch_partition.inference.feature_space.feature_space import DECOMPOSITION_SECONDS, known_feature_space
from gpytorch_partition.operators.addition import structured_terms
from gpytorch_partition.operators.partition_added_diag_linear_operator import PartitionAddedDiagLinearOperator
from gpytorch_partition.operators.partition_linear_operator import PartitionLinearOperator
from gpytorch_partition.settings import num_variance_samples

# One pair of clusters of a row counted; a Cholesky factor with its inverse of a p x p matrix over p^3; one (row,
# partition) and one row (vectors kept orthogonal) of a column of a Lanczos step, in float64.
_COUNT, _FACTOR, _STEP_VISIT, _STEP_ROW = 2e-9, 1.7e-11, 1e-9, 4e-8
# One column of an iteration of conjugate gradients with a dozen or more: a (row, partition), a row (the preconditioner
# and the vectors' own algebra), a node of a tree, and a loading in the only cluster, in float32; and how many times as
# long it takes in float64.
_VISIT, _ROW, _NODE, _LOADING, _DOUBLE = 1.5e-10, 2e-8, 2e-9, 6e-11, 5
# Lanczos steps of a fit: 40 to 100 were measured for 20,000 rows, 75 for 60,000, 165 for 1,000,000.
_STEPS, _STEPS_AT, _STEPS_GROWTH = 60, 20_000, 0.3
# Iterations of a sample's solve: 10 for 5,000 rows at a noise of .1 outputscales; 23 to 37 were measured for 50,000, 35
# to 100 with a tenth of that noise. A variance to within 1 % takes four times as many.
_ITERATIONS, _ITERATIONS_AT, _GROWTH, _VARIANCE_FACTOR = 10, (5_000, 0.1), 0.45, 4
# The feature space is chosen for so many clusters at most, and while the bytes for each pair of them that are held
# meanwhile, five numbers, fit in half of the memory.
_MOST_CLUSTERS, _PAIR_BYTES = 20_000, 5 * 8
# What the preparation for samples costs, in iterations of one column.
_PREPARATION = 800


def decomposition_seconds(rows: Incidence) -> float:
    """To fit in feature space: counts and eigenpairs; nothing if these rows have them."""
    space = known_feature_space(rows)
    if space is not None and space.is_decomposed:
        return 0.0
    if rows.num_clusters > _most_clusters():
        return float("inf")
    return _count_seconds(rows) + rows.num_clusters**3 * DECOMPOSITION_SECONDS


def factor_seconds(rows: Incidence, outputscale: float, noise: float) -> float:
    """To predict in feature space: counts and a Cholesky factor; nothing if these rows have what serves as well."""
    space = known_feature_space(rows)
    if space is not None and space.has_root(outputscale, noise):
        return 0.0
    if rows.num_clusters > _most_clusters():
        return float("inf")
    return _count_seconds(rows) + rows.num_clusters**3 * _FACTOR


def _most_clusters() -> float:
    return min(_MOST_CLUSTERS, (_memory() / 2 / _PAIR_BYTES) ** 0.5)


def _memory() -> float:
    """Bytes of this machine's memory, or 8 GiB where it does not say."""
    if hasattr(os, "sysconf") and {"SC_PAGE_SIZE", "SC_PHYS_PAGES"} <= os.sysconf_names.keys():
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return 2**33


def _count_seconds(rows: Incidence) -> float:
    known = known_feature_space(rows) is not None
    return 0.0 if known else rows.num_rows * rows.num_partitions**2 / 2 * _COUNT


def cholesky_seconds(num_clusters: int) -> float:
    """One Cholesky factor in feature space, counts known."""
    return float("inf") if num_clusters > _most_clusters() else num_clusters**3 * _FACTOR


def krylov_seconds(num_rows: int, num_partitions: int, num_columns: int) -> float:
    """To fit by one Lanczos run of so many vectors."""
    steps = _STEPS * (num_rows / _STEPS_AT) ** _STEPS_GROWTH
    return steps * num_rows * num_columns * (num_partitions * _STEP_VISIT + _STEP_ROW)


def conjugate_gradient_seconds(noisy: PartitionAddedDiagLinearOperator, num_points: int) -> float:
    """To solve for the variances of some points."""
    return num_points * _VARIANCE_FACTOR * _iterations(noisy) * _iteration_seconds(noisy._linear_op)


def sample_seconds(noisy: PartitionAddedDiagLinearOperator) -> float:
    """To solve for pathwise samples."""
    return (num_variance_samples.value() * _iterations(noisy) + _PREPARATION) * _iteration_seconds(noisy._linear_op)


def noise_ratio(noisy: PartitionAddedDiagLinearOperator) -> float:
    """
    The noise (its harmonic mean), in prior variances of what takes iterations.

    A term with a single cluster has a few large eigenvalues, which the preconditioner takes: landmarks of 10
    outputscales beside a forest of .3 took as many iterations as the forest alone, or 1.7 times as many.
    """
    covariances = structured_terms(noisy._linear_op)
    hard = [term for term in covariances if term.left.num_clusters > 1] or covariances
    variance = sum(float(term.diagonal().mean()) for term in hard)
    tiny = torch.finfo(noisy.dtype).tiny
    noise = 1 / float(noisy._diag_tensor._diagonal().clamp_min(tiny).reciprocal().mean())
    return max(noise, tiny) / max(variance, tiny)


def _iterations(noisy: PartitionAddedDiagLinearOperator) -> float:
    """More rows make the largest eigenvalues larger, less noise the smallest ones smaller."""
    num_rows, ratio = _ITERATIONS_AT
    return _ITERATIONS * (noisy.size(-1) / num_rows) ** _GROWTH * (ratio / noise_ratio(noisy)) ** 0.5


def _iteration_seconds(covariance: LinearOperator) -> float:
    """One column of one iteration."""
    rows = covariance.size(-1) * _ROW * (_DOUBLE if covariance.dtype == torch.float64 else 1)
    return rows + sum(map(_product_seconds, structured_terms(covariance)))


def _product_seconds(term: PartitionLinearOperator) -> float:
    """One column of a product with a term of the covariance; matrix products double in float64, sums take longer."""
    rows, nodes = term.left, term.cluster_operator.num_nodes
    is_double = term.cluster_operator.dtype == torch.float64
    num_loadings = 1 if term.left_loadings is None else term.left_loadings.shape[-1]
    if rows.num_clusters == 1:
        return rows.num_rows * num_loadings * _LOADING * (2 if is_double else 1)
    seconds = num_loadings * (rows.num_rows * rows.num_partitions * _VISIT + nodes * _NODE)
    return seconds * (_DOUBLE if is_double else 1)
