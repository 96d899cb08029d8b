"""
The rules of fitted scikit-learn clusterers for new points, as numbers: nearest sites, or densest Gaussians.

A library's `predict` multiplies all rows of a call at once, and its rounding depends on their number. For points at the
boundaries of a Gaussian mixture's components, 6 % of labels differ between a call for one point and for many. The rule
is therefore read and evaluated here, one elementwise operation after another, in float64.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.cluster import DBSCAN, AffinityPropagation, Birch, KMeans, MeanShift, MiniBatchKMeans
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture
from torch import Tensor

_LINEAR = (KMeans, MiniBatchKMeans, Birch, GaussianMixture, BayesianGaussianMixture)  # in the number of rows

_CENTERED = (KMeans, MiniBatchKMeans, MeanShift, AffinityPropagation)  # points belong to the nearest center

NOISES = ("alone", "together", "nearest")


class Sites(NamedTuple):
    r"""
    Sites of clusters, C in all; a point belongs to the site of least :math:`\lVert (x - \mu_c) S_c \rVert^2 + b_c`.

    Without shapes and offsets, it belongs to the nearest site.
    """

    points: np.ndarray  # (C, K) float64
    clusters: np.ndarray  # (C,) int64, 0 ... number of clusters - 1
    shapes: np.ndarray | None = None  # (C, K, K) float64, upper triangular
    offsets: np.ndarray | None = None  # (C,) float64


def sites_of(
    clusterer: Any, rows: np.ndarray | None = None, labels: np.ndarray | None = None, noise: str = "alone"
) -> Sites:
    """
    Return the rule of a fitted clusterer: its own where it is known, else the cluster of the nearest row it clustered.

    :param clusterer: Fitted KMeans, MiniBatchKMeans, MeanShift, AffinityPropagation (nearest center), Birch (nearest
        subcluster), GaussianMixture, BayesianGaussianMixture (component of largest responsibility), or any other.
    :param rows: `N x K` rows that it clustered, for any other. (Default: None; others except DBSCAN are refused.)
    :param labels: `N` labels of these rows; negative ones are noise.
    :param noise: The clusters of noise points: each its own (`"alone"`), one for all (`"together"`), or that of the
        nearest row that is no noise (`"nearest"`).
    :raises TypeError: If there are no rows, and the rule is unknown.
    """
    if isinstance(clusterer, (GaussianMixture, BayesianGaussianMixture)):
        return _components(clusterer)
    if isinstance(clusterer, Birch):
        return _labelled(clusterer.subcluster_centers_, clusterer.subcluster_labels_)
    if isinstance(clusterer, _CENTERED) and len(clusterer.cluster_centers_):
        return _labelled(clusterer.cluster_centers_, np.arange(len(clusterer.cluster_centers_)))
    if rows is None and isinstance(clusterer, DBSCAN) and len(clusterer.components_):
        return _labelled(clusterer.components_, clusterer.labels_[clusterer.core_sample_indices_])
    if rows is None or labels is None:
        raise TypeError(
            f"a fitted {type(clusterer).__name__} does not say where new points belong: give ClusteringPartition the "
            "rows and an unfitted one, and new points join the nearest row"
        )
    return _members(rows, np.asarray(labels), noise)


def keeps_rows(clusterer: Any) -> bool:
    """Return whether a clusterer's cost is quadratic in the number of rows, or its rule keeps all clustered rows."""
    return not isinstance(clusterer, _LINEAR)


def is_known(clusterer: Any) -> bool:
    """Return whether a fitted clusterer's rule for new points can be read without the rows that it clustered."""
    try:
        sites_of(clusterer)
    except (AttributeError, TypeError):
        return False
    return True


def label_densest(x: Tensor, points: Tensor, shapes: Tensor, offsets: Tensor) -> Tensor:
    r"""
    Return for each point the site with the least :math:`\lVert (x - \mu_c) S_c \rVert^2 + b_c`, in :math:`O(n C K^2)`.

    :param x: `n x K` points.
    :param points: `C x K` float64.
    :param shapes: `C x K x K` float64, upper triangular.
    :param offsets: `C` float64.
    :return: `n` int64.
    """
    differences = [values.unsqueeze(1) - sites for values, sites in zip(x.to(torch.float64).T, points.T)]
    total = offsets.expand(x.shape[0], -1).clone()
    for column in range(points.shape[1]):
        mapped = torch.zeros_like(total)
        for row in range(column + 1):
            mapped.add_(differences[row] * shapes[:, row, column])
        total.add_(mapped.mul_(mapped))
    return total.argmin(1)


def _labelled(points: np.ndarray, labels: np.ndarray) -> Sites:
    clusters = np.unique(labels, return_inverse=True)[1]
    return Sites(np.asarray(points, dtype=np.float64), clusters.reshape(-1).astype(np.int64))


def _members(rows: np.ndarray, labels: np.ndarray, noise: str) -> Sites:
    is_noise = labels < 0
    if noise == "nearest" and not is_noise.all():
        return _labelled(rows[~is_noise], labels[~is_noise])
    labels = labels.astype(np.int64)
    labels[is_noise] = labels.max(initial=0) + 1 + (np.arange(is_noise.sum()) if noise == "alone" else 0)
    return _labelled(rows, labels)


def _components(mixture: Any) -> Sites:
    """Sites of largest weighted log density: Mahalanobis distances, and offsets that do not depend on x."""
    means = np.asarray(mixture.means_, dtype=np.float64)
    at_means = np.diag(mixture._estimate_weighted_log_prob(mixture.means_)).astype(np.float64)
    return Sites(means, np.arange(len(means)), _shapes(mixture, means), -2 * at_means)


def _shapes(mixture: Any, means: np.ndarray) -> np.ndarray:
    """`C x K x K` upper triangular factors of the precisions, for each type of covariance."""
    factors = np.asarray(mixture.precisions_cholesky_, dtype=np.float64)
    shape, identity = (*means.shape, means.shape[1]), np.eye(means.shape[1])
    if mixture.covariance_type in ("full", "tied"):
        return np.broadcast_to(factors, shape)
    return np.broadcast_to(factors.reshape(len(means), -1, 1) * identity, shape)
