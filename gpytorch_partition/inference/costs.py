"""
What the ways to the same answer are expected to cost, so that the cheapest can be taken.

In seconds on two cores of a server CPU, rough: what is decided by them are ratios. They are right to a factor of a few
for flat partitions; products with trees (`heights="all"`) and solves with little noise take several times as long.
"""

from __future__ import annotations

from gpytorch_partition.partitions.incidence import Incidence

# One pair of clusters of a row counted; one eigendecomposition of a p x p matrix over p^3; one (row, partition, column)
# of a product with a dozen columns or more in float32; one (row, partition) of a Lanczos step, in float64.
_COUNT, _DECOMPOSITION, _VISIT, _STEP_VISIT = 2e-9, 2.5e-10, 1e-10, 7e-9
# Lanczos steps of a fit; conjugate gradient iterations of a predictive variance and of a sample.
_STEPS, _VARIANCE_ITERATIONS, _SAMPLE_ITERATIONS = 100, 100, 50
# Feature spaces are not chosen beyond this many clusters: 4 p^2 numbers are held while one is built.
_MOST_CLUSTERS = 8192

# Pathwise samples that variances are estimated from: a standard deviation is then within 3.1 % (one standard error).
NUM_SAMPLES = 512


def feature_space_seconds(rows: Incidence) -> float:
    """To count co-occurrences and decompose them; nothing if that has been done for these rows."""
    if "feature_space" in rows.memo:
        return 0.0
    if rows.num_clusters > _MOST_CLUSTERS:
        return float("inf")
    pairs = rows.num_rows * rows.num_partitions**2 / 2
    return pairs * _COUNT + rows.num_clusters**3 * _DECOMPOSITION


def krylov_seconds(rows: Incidence) -> float:
    """To fit by one Lanczos run."""
    return _STEPS * _STEP_VISIT * rows.num_rows * rows.num_partitions


def conjugate_gradient_seconds(rows: Incidence, num_points: int) -> float:
    """To solve for the variances of some points."""
    return num_points * _VARIANCE_ITERATIONS * _product_seconds(rows)


def sample_seconds(rows: Incidence) -> float:
    """To solve for pathwise samples."""
    return NUM_SAMPLES * _SAMPLE_ITERATIONS * _product_seconds(rows)


def _product_seconds(rows: Incidence) -> float:
    """One column of one product."""
    return rows.num_rows * rows.num_partitions * _VISIT
