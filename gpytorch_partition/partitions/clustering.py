"""Partitions by random clusterings with any clusterer of scikit-learn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from joblib import Parallel, delayed
from torch import Tensor

from gpytorch_partition.inputs.bits import bits_of, floats_of
from gpytorch_partition.inputs.counts import checked_count
from gpytorch_partition.inputs.seeds import random_state_of
from gpytorch_partition.inputs.training_rows import checked_rows, warn_about_unequal_scales
from gpytorch_partition.linalg.parallel import for_each
from gpytorch_partition.partitions.fitted_clusterers import Sites, label_densest, sites_of
from gpytorch_partition.partitions.nearest import blocks, label_nearest
from gpytorch_partition.partitions.partition import Partition
from gpytorch_partition.partitions.stochastic_clustering import Drawing, View, clustering, scale_of, seen_by

_BUFFERS = {"kept": 2, "projections": 3, "sites": 2, "site_clusters": 1, "shapes": 3, "offsets": 1}
_BUFFERS |= {"site_counts": 1, "num_clusters": 1, "num_columns": 1}


class ClusteringPartition(Partition):
    r"""
    A partition into m clusterings of random views of the rows, by clones of a clusterer (Davies & Ghahramani 2014,
    section 4.1.1).

    :class:`~gpytorch_partition.ClusteringKernel` uses it, and :class:`~gpytorch_partition.PartitionKernel` for fitted
    clusterers. Construct it yourself for clusters without a kernel, such as the clusters of new points by a clusterer
    that has no `predict` (DBSCAN).

    Each clustering may draw its initialisation (`random_state`, if the clusterer has one), any of its parameters, a
    subset of the rows, a subset of the columns and a random projection of these. Coordinates are scaled so that
    distances equal, on average, those in all columns, and a radius is comparable between views.

    For KMeans, MiniBatchKMeans, MeanShift, AffinityPropagation, Birch, GaussianMixture and BayesianGaussianMixture new
    points join the cluster that the clusterer's `predict` gives. For all others (DBSCAN, HDBSCAN,
    AgglomerativeClustering, pipelines, your own) they join the cluster of the nearest row that was clustered, the first
    in a tie. Both rules are evaluated here in float64, from buffers. A label is thus a pure function of the point, and
    `state_dict` is complete; the clusterers are not kept.

    Building costs m fits. Labels cost :math:`O(C K)` per (point, clustering) with C centers or clustered rows of K
    dimensions, :math:`O(C K^2)` for Gaussian mixtures. Memory: 8 K bytes per center or clustered row.

    :param x: `N x D` rows, possibly more than have targets; standard deviations of columns that differ by more than 100
        times give a `UserWarning`. (Default: None, an unfitted partition for `load_state_dict`.)
    :param clusterer: An unfitted clusterer with `fit_predict`, and `get_params` and `set_params`.
    :param num_partitions: Number m of clusterings. (Default: 200.)
    :param param_distributions: Parameters of the clusterer to draw, by name, such as numbers of clusters, radii or
        concentrations. Each has a range `(low, high)`, drawn uniformly in the logarithm, integers if both are; a list
        to choose from; or a distribution of SciPy. `"cut_distance"` is the radius at which HDBSCAN's hierarchy is cut
        (`dbscan_clustering`); its `cluster_selection_epsilon` fails on some data with scikit-learn 1.9 and NumPy 2.4.
        (Default: none.)
    :param rows: Rows that each clustering sees, a number, or a share as a float. Clusterers that keep their rows take
        :math:`O(N^2)`, so above 10,000 rows they are refused unless `rows` is given. (Default: all.)
    :param columns: Columns that each clustering sees, a number or a share. (Default: all.)
    :param projection: Number K of dimensions of a Gaussian random projection. (Default: None.)
    :param noise: The clusters of noise points (label -1). `"alone"`: each is a cluster of its own, joined by the new
        points nearest to it. `"together"`: all are one cluster. `"nearest"`: each joins the nearest row that is no
        noise. (Default: `"alone"`.)
    :param random_state: Seed or `RandomState`; `None` is a fresh one, never NumPy's global one.
    :param n_jobs: Clusterings at once, as joblib counts them. (Default: None, one.)
    :raises TypeError: If `clusterer` is not a clusterer.
    :raises ValueError: If the rows or a parameter cannot be used, or nothing is random.

    Example:
        >>> from sklearn.cluster import KMeans
        >>> x = torch.tensor([[0.0], [0.1], [5.0], [5.1], [9.0]])
        >>> clusters = ClusteringPartition(x, KMeans(), 3, param_distributions={"n_clusters": (2, 4)}, random_state=0)
        >>> clusters.cluster_counts
        tensor([3, 3, 2])
        >>> labels = clusters.labels(torch.tensor([[0.05], [0.2], [5.5]]))
        >>> (labels[0] == labels[1]).tolist(), (labels[0] == labels[2]).tolist()
        ([True, True, True], [False, False, False])
    """

    kept: Tensor  # (m, k) numbers of columns
    projections: Tensor  # (m, k, K) bit patterns; (0, 0, 0) if there are none
    sites: Tensor  # (P, K) bit patterns of centers or clustered rows, clustering by clustering
    site_clusters: Tensor  # (P,)
    shapes: Tensor  # (P, K, K) bit patterns of factors of precisions; (0, 0, 0) if sites are centers
    offsets: Tensor  # (P,) bit patterns; (0,) if sites are centers
    site_counts: Tensor  # (m,)
    num_clusters: Tensor  # (m,)
    num_columns: Tensor  # (1,)

    def __init__(
        self,
        x: Tensor | None = None,
        clusterer: Any = None,
        num_partitions: int = 200,
        *,
        param_distributions: Mapping[str, Any] | None = None,
        rows: int | float | None = None,
        columns: int | float | None = None,
        projection: int | None = None,
        noise: str = "alone",
        random_state: int | np.random.RandomState | None = None,
        n_jobs: int | None = None,
    ) -> None:
        super().__init__()
        for name, dim in _BUFFERS.items():
            self.register_buffer(name, torch.empty((0,) * dim, dtype=torch.int64))
        if x is None:
            return
        points = checked_rows(x, type(self).__name__)
        drawing = Drawing.checked(points.shape, clusterer, param_distributions, rows, columns, projection, noise)
        num_partitions = checked_count(num_partitions, "clusterings", "num_partitions")
        if num_partitions > 1 and not drawing.is_random:
            raise ValueError(
                f"all {num_partitions} clusterings by {clusterer} would be the same: randomize rows, columns, "
                "projection or param_distributions, such as param_distributions={'eps': (0.2, 2.0)}, or give "
                "num_partitions=1"
            )
        warn_about_unequal_scales(points, type(self).__name__)
        seeds = random_state_of(random_state).randint(2**31 - 1, size=num_partitions)
        array = points.cpu().numpy()
        drawn = Parallel(n_jobs=n_jobs)(delayed(clustering)(drawing, array, int(seed)) for seed in seeds)
        self._keep(drawn, points.shape[1], points.device)

    @classmethod
    def of_fitted(cls, clusterers: Sequence[Any]) -> ClusteringPartition:
        """
        Build the partitions of clusterers that are already fitted, on all columns.

        :param clusterers: Fitted clusterers whose rule for new points is known. DBSCAN is among them; new points join
            the nearest core point.
        :raises TypeError: If the rule is not known.
        :raises ValueError: If there are no clusterers, or they are fitted on different numbers of columns.

        Example:
            >>> from sklearn.cluster import KMeans
            >>> kmeans = KMeans(2, random_state=0).fit([[0.0], [0.1], [5.0]])
            >>> ClusteringPartition.of_fitted([kmeans]).labels(torch.tensor([[1.0], [9.0]])).flatten().tolist()
            [0, 1]
        """
        sites = [sites_of(clusterer) for clusterer in clusterers]
        widths = {each.points.shape[1] for each in sites}
        if len(widths) != 1:
            raise ValueError(f"expected clusterers fitted on the same columns, got numbers of columns {sorted(widths)}")
        (width,) = widths
        new = cls()
        new._keep([(View(np.arange(width)), each) for each in sites], width, torch.device("cpu"))
        return new

    def _keep(self, drawn: list[tuple[View, Sites]], num_columns: int, device: torch.device) -> None:
        views, sites = zip(*drawn)
        state = {
            "kept": torch.from_numpy(np.stack([view.kept for view in views])),
            "sites": _bits([each.points for each in sites]),
            "site_clusters": torch.from_numpy(np.concatenate([each.clusters for each in sites])),
            "site_counts": torch.tensor([len(each.points) for each in sites]),
            "num_clusters": torch.tensor([int(each.clusters.max()) + 1 for each in sites]),
            "num_columns": torch.tensor([num_columns]),
        }
        if views[0].matrix is not None:
            state["projections"] = bits_of(torch.from_numpy(np.stack([view.matrix for view in views])))
        if any(each.shapes is not None for each in sites):
            state["shapes"] = _bits([_shapes(each) for each in sites])
            state["offsets"] = _bits([np.zeros(len(s.points)) if s.offsets is None else s.offsets for s in sites])
        for name, value in state.items():
            setattr(self, name, value.to(device))

    @property
    def num_partitions(self) -> int:
        """Number m of clusterings."""
        return self.site_counts.numel()

    @property
    def num_features(self) -> int | None:
        """Number D of columns of the rows; None if the partition is not fitted."""
        return int(self.num_columns) if self.is_fitted else None

    @property
    def cluster_counts(self) -> Tensor:
        """Numbers of clusters of the `m` clusterings."""
        return self.num_clusters

    def _labels(self, x: Tensor) -> Tensor:
        labels = torch.zeros(self.num_partitions, x.shape[0], dtype=torch.int64, device=x.device)
        ends = self.site_counts.cumsum(0).tolist()

        def label(partition: int) -> None:
            own = slice(ends[partition] - int(self.site_counts[partition]), ends[partition])
            self._label(partition, own, x, labels[partition])

        for_each(label, range(self.num_partitions))
        return labels.T

    def _label(self, partition: int, own: slice, x: Tensor, out: Tensor) -> None:
        matrix = self.projections[partition] if self.projections.numel() else None
        scale = scale_of(self.kept.shape[1], int(self.num_columns))

        def seen(rows: Tensor) -> Tensor:
            return seen_by(rows, self.kept[partition], scale, None if matrix is None else floats_of(matrix))

        points = floats_of(self.sites[own])
        if not self.shapes.numel():
            label_nearest(x, points, out, seen)
        else:
            shapes, offsets = floats_of(self.shapes[own]), floats_of(self.offsets[own])
            for rows, densest in blocks(x, out, len(points)):
                densest.copy_(label_densest(seen(rows), points, shapes, offsets))
        out.copy_(self.site_clusters[own][out])


def _shapes(sites: Sites) -> np.ndarray:
    width = sites.points.shape[1]
    return np.broadcast_to(np.eye(width), (len(sites.points), width, width)) if sites.shapes is None else sites.shapes


def _bits(arrays: list[np.ndarray]) -> Tensor:
    return bits_of(torch.from_numpy(np.concatenate(arrays)))
