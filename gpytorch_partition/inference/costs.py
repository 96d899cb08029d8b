"""
What the ways to the same answer are expected to cost, so that the cheapest can be taken.

In seconds on two cores of a server CPU, rough: what is decided by them are ratios, right to a factor of a few.
"""

from __future__ import annotations

import torch
from linear_operator.operators import LinearOperator

from gpytorch_partition.inference.feature_space import DECOMPOSITION_SECONDS, known_feature_space
from gpytorch_partition.operators.partition_added_diag_linear_operator import PartitionAddedDiagLinearOperator
from gpytorch_partition.operators.path_sum_linear_operator import PathSumLinearOperator
from gpytorch_partition.partitions.incidence import Incidence

# One pair of clusters of a row counted; a Cholesky factor with its inverse of a p x p matrix over p^3; one (row,
# partition) and one row (vectors kept orthogonal) of a column of a Lanczos step, in float64.
_COUNT, _FACTOR, _STEP_VISIT, _STEP_ROW = 2e-9, 1.7e-11, 1e-9, 4e-8
# One column of an iteration of conjugate gradients with a dozen or more: a (row, partition), a row (the preconditioner
# and the vectors' own algebra), and a node of a tree, in float32.
_VISIT, _ROW, _NODE = 1.5e-10, 2e-8, 2e-9
# Lanczos steps of a fit, and iterations of a sample's solve: 10 for 5,000 rows at a noise of .1 outputscales; 23 to 37
# were measured for 50,000, 35 to 100 with a tenth of that noise. A variance to within 1 % takes four times as many.
_STEPS, _ITERATIONS, _ITERATIONS_AT, _GROWTH, _VARIANCE_FACTOR = 100, 10, (5_000, 0.1), 0.45, 4
# Beyond so many clusters neither is chosen: 4 p^2 numbers are held meanwhile, 2 and 4.6 GB.
_MOST_DECOMPOSED, _MOST_FACTORED = 8_192, 12_000

# Pathwise samples that variances are estimated from: a standard deviation is then within 3.1 % (one standard error).
NUM_SAMPLES = 512


def decomposition_seconds(rows: Incidence) -> float:
    """To fit in feature space: counts and eigenpairs; nothing if these rows have them."""
    space = known_feature_space(rows)
    if space is not None and space.is_decomposed:
        return 0.0
    if rows.num_clusters > _MOST_DECOMPOSED:
        return float("inf")
    return _count_seconds(rows) + rows.num_clusters**3 * DECOMPOSITION_SECONDS


def factor_seconds(rows: Incidence, outputscale: float, noise: float) -> float:
    """To predict in feature space: counts and a Cholesky factor; nothing if these rows have what serves as well."""
    space = known_feature_space(rows)
    if space is not None and space.has_root(outputscale, noise):
        return 0.0
    if rows.num_clusters > _MOST_FACTORED:
        return float("inf")
    return _count_seconds(rows) + rows.num_clusters**3 * _FACTOR


def _count_seconds(rows: Incidence) -> float:
    known = known_feature_space(rows) is not None
    return 0.0 if known else rows.num_rows * rows.num_partitions**2 / 2 * _COUNT


def krylov_seconds(rows: Incidence, num_columns: int) -> float:
    """To fit by one Lanczos run of so many vectors."""
    return _STEPS * rows.num_rows * num_columns * (rows.num_partitions * _STEP_VISIT + _STEP_ROW)


def conjugate_gradient_seconds(noisy: PartitionAddedDiagLinearOperator, num_points: int) -> float:
    """To solve for the variances of some points."""
    return num_points * _VARIANCE_FACTOR * _iterations(noisy) * _iteration_seconds(noisy._linear_op)


def sample_seconds(noisy: PartitionAddedDiagLinearOperator) -> float:
    """To solve for pathwise samples."""
    return NUM_SAMPLES * _iterations(noisy) * _iteration_seconds(noisy._linear_op)


def noise_ratio(noisy: PartitionAddedDiagLinearOperator) -> float:
    """The least noise, in outputscales."""
    least, tiny = noisy._diag_tensor._diagonal().min(), torch.finfo(noisy.dtype).tiny
    return max(float(least), tiny) / max(float(noisy._linear_op.scale), tiny)


def _iterations(noisy: PartitionAddedDiagLinearOperator) -> float:
    """More rows make the largest eigenvalues larger, less noise the smallest ones smaller."""
    num_rows, ratio = _ITERATIONS_AT
    return _ITERATIONS * (noisy.size(-1) / num_rows) ** _GROWTH * (ratio / noise_ratio(noisy)) ** 0.5


def _iteration_seconds(covariance: LinearOperator) -> float:
    """One column of one iteration."""
    rows, clusters = covariance.left, covariance.cluster_operator
    nodes = clusters.layout.num_nodes if isinstance(clusters, PathSumLinearOperator) else 0
    return rows.num_rows * (rows.num_partitions * _VISIT + _ROW) + nodes * _NODE
