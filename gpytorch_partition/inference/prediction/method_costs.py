"""
Work of each method to fit and to predict, by sizes; the method with the least work is taken.

The unit is a *product*: one column of one iteration, of N rows with the covariance and of vectors. There are p
clusters, q columns of a root, n test points and t samples, and a sample is expected to take i iterations:

| method | products, in float64 |
| --- | --- |
| conjugate gradients | 4 i n |
| samples (fewer where the nearest rows tell most) | i t + 800 |
| feature space of one kernel, up to 20,000 clusters | p^3 / 5,000 N |
| factor of the coefficients of a root | q + q^3 / 5,000 N |
| factor of A, up to 10,000 rows, and t solves | N / 3 + t |

In float32 a product takes a fifth of the time, so work in float64 counts five times as many products. Known results
take none. The factors are ratios of seconds on two cores of a server CPU for 100 trees, right to a factor of a few;
methods differ by more.
"""

from __future__ import annotations

import os

import torch

from gpytorch_partition.clusters.incidence import Incidence
from gpytorch_partition.inference.prediction.cluster_posterior import ClusterPosterior
from gpytorch_partition.inference.prediction.local_conditioning import have_local_predictors
from gpytorch_partition.inference.spaces.feature_space import cached_feature_space
from gpytorch_partition.linalg.conjugate_gradients import UnconvergedError
from gpytorch_partition.settings import num_variance_samples, predictive_variances
from gpytorch_partition.solvers.direct import MOST_ROWS, has_feature_factor, is_small, num_columns
from gpytorch_partition.solvers.iterative_solvers import most_iterations
from gpytorch_partition.solvers.partition_added_diag_linear_operator import PartitionAddedDiagLinearOperator
from gpytorch_partition.solvers.solver import has_few_rows

_VARIANCE_FACTOR = 4  # iterations for a variance to within 1 %, over those for a sample
_PREPARATION = 800  # products that prepare for samples
_CUBES = 5_000  # cubes of a number of clusters, over N, of a factor and its inverse in the time of a product
_FACTOR_SHARE = 3  # rows over products of a factor of A
_DOUBLE_FACTOR = 5  # time in float64 over time in float32
_EIGENVECTORS = 10**6  # cubes of clusters over rows, up to which eigenvectors take less time than Lanczos steps
_CHOLESKY = 2 * 10**7  # the same of a Cholesky factor, which may take four times as long
_MOST_CLUSTERS = 20_000  # for more the feature space is never chosen
_MOST_EIGENVECTORS = 10_000  # clusters of an exact fit where Lanczos steps do not suffice: two minutes
_MARGIN = 1.5  # by which a factor of A must be faster: it takes 16 N^2 bytes
_LOCAL_SHARE = 4  # samples over those that suffice where the nearest rows tell most
_PAIR_BYTES = 5 * 8  # five numbers held for a pair of clusters: those of all pairs must fit in half of the memory


def takes_eigenvectors(rows: Incidence) -> bool:
    """Return whether a fit takes exact eigenvectors of the clusters rather than Lanczos steps."""
    if is_decomposed(rows):
        return True
    return rows.num_clusters <= _most_clusters() and rows.num_clusters**3 <= _EIGENVECTORS * rows.num_rows


def may_take_eigenvectors(rows: Incidence) -> bool:
    """Return whether a fit may take exact eigenvectors where Lanczos steps do not suffice."""
    return is_decomposed(rows) or rows.num_clusters <= min(_MOST_EIGENVECTORS, _most_clusters())


def is_decomposed(rows: Incidence) -> bool:
    """Return whether eigenvectors of the clusters are known."""
    space = cached_feature_space(rows)
    return space is not None and space.is_decomposed


def takes_cholesky(num_clusters: int, num_rows: int) -> bool:
    """Return whether a lifetime of a sweep takes an exact Cholesky factor of the clusters."""
    return num_clusters <= _most_clusters() and num_clusters**3 <= _CHOLESKY * num_rows


def _most_clusters() -> float:
    return min(_MOST_CLUSTERS, (_memory() / 2 / _PAIR_BYTES) ** 0.5)


def _memory() -> float:
    """Return the bytes of this machine's memory, 8 GiB if unknown."""
    if hasattr(os, "sysconf") and {"SC_PAGE_SIZE", "SC_PHYS_PAGES"} <= os.sysconf_names.keys():
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return 2**33


def of_conjugate_gradients(noisy: PartitionAddedDiagLinearOperator, num_points: int) -> float:
    """Return the work, in products, of solves for the variances of test points."""
    return num_points * _VARIANCE_FACTOR * _iterations(noisy)


def of_samples(noisy: PartitionAddedDiagLinearOperator, num_samples: int) -> float:
    """Return the work, in products, of solves for pathwise samples."""
    return num_samples * _iterations(noisy) + _PREPARATION


def of_feature_space(noisy: PartitionAddedDiagLinearOperator, rows: Incidence, outputscale: float) -> float:
    """Return the work, in products, of a factor in the feature space of one kernel."""
    space = cached_feature_space(rows)
    if space is not None and space.has_root(outputscale, float(noisy._diag_tensor.diag_values)):
        return 0.0
    return _factor(rows.num_clusters, noisy) if rows.num_clusters <= _most_clusters() else float("inf")


def of_feature_factor(noisy: PartitionAddedDiagLinearOperator) -> float:
    """Return the work, in products, of a factor of the coefficients of a root's columns."""
    if noisy.knows_feature_factor:
        return 0.0
    covariance = noisy._linear_op.evaluate_kernel()
    if not has_feature_factor(covariance):
        return float("inf")
    size = int(num_columns(covariance))
    return size * _slowness(noisy) + _factor(size, noisy)


def of_direct(noisy: PartitionAddedDiagLinearOperator, num_solves: int) -> float:
    """Return the work, in products, of a factor of A in float64 and of solves with it."""
    if not is_small(noisy):
        return float("inf")
    factor = 0.0 if noisy.knows_direct else noisy.size(-1) / _FACTOR_SHARE
    return (factor + num_solves) * _slowness(noisy)


def _factor(size: int, noisy: PartitionAddedDiagLinearOperator) -> float:
    return size**3 / _CUBES / noisy.size(-1) * _slowness(noisy)


def _slowness(noisy: PartitionAddedDiagLinearOperator) -> float:
    return 1.0 if noisy.dtype == torch.float64 else _DOUBLE_FACTOR


def _iterations(noisy: PartitionAddedDiagLinearOperator) -> float:
    """Return the iterations of the last solve, or those to expect, no more than are tried before a better method is."""
    return min(noisy.iterations or noisy.expected_iterations, most_iterations(noisy))


# The choice for the posterior of cluster effects at some points.


def can_take(posterior: ClusterPosterior, method: str) -> bool:
    """Return whether a method of variances other than conjugate gradients applies."""
    if method == "factor":
        return posterior.noisy.feature_factor is not None
    return method == "samples" or posterior.has_feature_space


def makes_factor(posterior: ClusterPosterior, num_solves: int) -> bool:
    """Make a factor of a root's coefficients if it is faster than so many solves; return whether there is one."""
    if posterior.has_feature_space:
        return False
    solves = of_conjugate_gradients(posterior.noisy, num_solves)
    return of_feature_factor(posterior.noisy) < solves and posterior.noisy.feature_factor is not None


def choose_for_samples(posterior: ClusterPosterior, num_samples: int) -> None:
    """Make a factor if it is faster than solves; an UnconvergedError if a factor of A is faster."""
    if _is_free(posterior):
        makes_factor(posterior, num_samples)
    if not posterior.noisy.knows_feature_factor:
        check_iterations(posterior, num_samples, of_samples(posterior.noisy, num_samples))


def check_iterations(posterior: ClusterPosterior, num_solves: int, products: float) -> None:
    """Raise an UnconvergedError if solves by a factor of A take less work than iterations (`products`)."""
    is_free = not posterior.is_precise and _is_free(posterior)
    if is_free and _MARGIN * of_direct(posterior.noisy, num_solves) < products:
        raise UnconvergedError("iterations would take longer than a factor: solve in float64")


def _is_free(posterior: ClusterPosterior) -> bool:
    return predictive_variances.value() == "auto" and not has_few_rows(posterior.noisy)


def cheapest_method(posterior: ClusterPosterior) -> str:
    """Return the name of the method of variances with the least work; an UnconvergedError if a factor of A has less."""
    products = _products(posterior)
    if products.get("factor") == min(products.values()) and posterior.noisy.feature_factor is None:
        del products["factor"]  # rounding would be felt
    method = min(products, key=lambda name: products[name])
    check_iterations(posterior, posterior.num_points, products[method])
    return method


def _products(posterior: ClusterPosterior) -> dict[str, float]:
    """Work of each method for variances; a factor of A, where small, counts as conjugate gradients."""
    noisy, num_points, num_samples = posterior.noisy, posterior.num_points, num_variance_samples.value()
    by_factor = posterior.is_precise and is_small(noisy)
    of_solves = of_direct if by_factor else of_conjugate_gradients
    products = {"conjugate_gradients": of_solves(noisy, num_points)}
    if posterior.has_feature_space:
        rows, scale = posterior.covariance.left, float(posterior.covariance.scale)
        products["feature_space"] = of_feature_space(noisy, rows, scale)
    else:
        products["factor"] = of_feature_factor(noisy)
    if by_factor and num_points > MOST_ROWS:
        products["samples"] = of_direct(noisy, num_samples)
    elif not by_factor and num_points > num_samples:
        is_local = have_local_predictors(posterior.covariances)
        products["samples"] = of_samples(noisy, num_samples // _LOCAL_SHARE if is_local else num_samples)
    return products
