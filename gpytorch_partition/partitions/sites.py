"""
The cluster of a point: of the nearest site, or of the densest Gaussian; the rules of fitted clusterers in this form.

The rounding of a library's `predict` depends on the number of rows in a call (6 % of labels at the boundaries of a
Gaussian mixture's components). Rules are therefore read as numbers and evaluated elementwise, in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.cluster import DBSCAN, AffinityPropagation, Birch, KMeans, MeanShift, MiniBatchKMeans
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture
from torch import Tensor

from gpytorch_partition.inputs.numbers import is_whole
from gpytorch_partition.linalg.parallel import piece_numel

_CENTERED = (KMeans, MiniBatchKMeans, MeanShift, AffinityPropagation)  # points belong to the nearest center

NOISES = ("alone", "together", "nearest")
LARGEST = 1e300  # coordinates are clamped to this magnitude, so that sums of them do not overflow


class Sites(NamedTuple):
    r"""Hold C sites; a point joins that of least :math:`\lVert (x - \mu_c) S_c \rVert^2 + b_c`, or the nearest one."""

    points: np.ndarray  # (C, K) float64
    clusters: np.ndarray  # (C,) int64, 0 ... number of clusters - 1
    shapes: np.ndarray | None = None  # (C, K, K) float64, upper triangular
    offsets: np.ndarray | None = None  # (C,) float64


def sites_of(
    clusterer: Any, rows: np.ndarray | None = None, labels: np.ndarray | None = None, noise: str = "alone"
) -> Sites:
    """
    Return the rule of a fitted clusterer: its own where it is known, else the cluster of the nearest row.

    :param rows: `N x K` rows that it clustered. (Default: None, which is enough for known rules and DBSCAN.)
    :param labels: `N` labels of these rows; negative ones are noise, as in :class:`ClusteringPartition`.
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
            f"expected a clusterer with a rule for new points, got a {type(clusterer).__name__}: give "
            "ClusteringPartition the rows and an unfitted clusterer, where new points join the nearest row"
        )
    return _members(rows, np.asarray(labels), noise)


def is_known(clusterer: Any) -> bool:
    """Return whether a fitted clusterer's rule for new points can be read without the rows that it clustered."""
    try:
        sites_of(clusterer)
    except (AttributeError, TypeError):
        return False
    return True


def label_densest(x: Tensor, points: Tensor, shapes: Tensor, offsets: Tensor) -> Tensor:
    """Return the site of each point (`n x K`) by the rule of :class:`Sites` with shapes, in :math:`O(n C K^2)`."""
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
    means = np.asarray(mixture.means_, dtype=np.float64)
    at_means = np.diag(mixture._estimate_weighted_log_prob(mixture.means_)).astype(np.float64)
    return Sites(means, np.arange(len(means)), _shapes(mixture, means), -2 * at_means)


def _shapes(mixture: Any, means: np.ndarray) -> np.ndarray:
    factors = np.asarray(mixture.precisions_cholesky_, dtype=np.float64)
    shape, identity = (*means.shape, means.shape[1]), np.eye(means.shape[1])
    if mixture.covariance_type in ("full", "tied"):
        return np.broadcast_to(factors, shape)
    return np.broadcast_to(factors.reshape(len(means), -1, 1) * identity, shape)


def label_nearest(x: Tensor, centers: Tensor, out: Tensor, seen: Callable[[Tensor], Tensor]) -> None:
    """
    Write the number of the nearest of `C x d` centers to `out` for each point, the lower number in a tie.

    :param seen: Maps points (`n x D`) to the columns of the centers, float64.
    """
    # The power of two below the largest magnitude: division by it is exact, and squares stay in range.
    unit = torch.ldexp(centers.new_ones(()), torch.frexp(centers.abs().amax()).exponent - 1)
    columns = (centers.T / unit).contiguous()
    workspace = x.new_empty(2, 0, columns.shape[1], dtype=torch.float64)
    for rows, nearest in blocks(x, out, centers.shape[0]):
        if not workspace.shape[1]:  # as many rows as the first block: fresh memory for each would cost page faults
            workspace = workspace.new_empty(2, len(rows), columns.shape[1])
        points = seen(rows).to(torch.float64) / unit
        distances = _squared_distances(points, columns, workspace[:, : len(rows)])
        on_cpu = distances.device.type == "cpu"  # where NumPy's argmin takes a sixth of the time of PyTorch's
        nearest.copy_(torch.from_numpy(distances.numpy().argmin(1)) if on_cpu else distances.argmin(1))


def blocks(x: Tensor, out: Tensor, num_centers: int) -> zip:
    """Return blocks of rows and of their output, so small that one number per (row, center) fits in the cache."""
    size = max(1, piece_numel(x.device) // num_centers)
    return zip(x.split(size), out.split(size))


def projected(x: Tensor, matrix: Tensor) -> Tensor:
    """Return points (`n x D`) times a matrix (`D x K`) in float64: one product and one addition after another."""
    return weighted_sum(x.to(torch.float64).clamp(-LARGEST, LARGEST).T.unsqueeze(-1), matrix.unsqueeze(1))


def weighted_sum(values: Tensor, weights: Tensor) -> Tensor:
    """Return the sum of products over the first dimension, in one order and with one rounding for any shape."""
    total = torch.zeros_like(values[0] * weights[0])
    for value, weight in zip(values, weights):
        total.add_(value * weight).clamp_(-LARGEST, LARGEST)
    return total


def checked_projection(projection: Any) -> int | None:
    """Return the number of dimensions of a random projection, or None for none; a `ValueError` for anything else."""
    if projection is None:
        return None
    if not is_whole(projection, 1):
        raise ValueError(f"expected projection to be a number of dimensions, 1 or more, or None, got {projection!r}")
    return int(projection)


def _squared_distances(rows: Tensor, columns: Tensor, workspace: Tensor) -> Tensor:
    """Squared distances in the first half of `2 x n x C` numbers; other products would break ties by block."""
    total, differences = workspace
    total.zero_()
    for values, centers in zip(rows.T, columns):
        torch.sub(values.unsqueeze(1), centers, out=differences)
        total.add_(differences.mul_(differences))
    return total
