"""Partitions by random clusterings: a clusterer of scikit-learn, cloned, on random views of the rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
import torch
from joblib import Parallel, delayed
from sklearn.base import clone
from sklearn.cluster import Birch, KMeans, MiniBatchKMeans
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture
from sklearn.utils.random import sample_without_replacement
from torch import Tensor

from gpytorch_partition.inputs.numbers import (
    MOST_PARTITIONS,
    bits_of,
    checked_count,
    floats_of,
    is_whole,
    random_state_of,
)
from gpytorch_partition.inputs.training_rows import checked_rows, warn_about_unequal_scales
from gpytorch_partition.linalg.parallel import for_each
from gpytorch_partition.partitions.partition import Partition
from gpytorch_partition.partitions.sites import (
    NOISES,
    Sites,
    blocks,
    checked_projection,
    label_densest,
    label_nearest,
    projected,
    sites_of,
)

# The radius at which a fitted HDBSCAN's hierarchy is cut: a parameter of its `dbscan_clustering`, not of HDBSCAN.
CUT = "cut_distance"

_ROWS_WITHOUT_ASKING = 10_000  # at most, without `rows`, for a clusterer of quadratic cost
_LINEAR = (KMeans, MiniBatchKMeans, Birch, GaussianMixture, BayesianGaussianMixture)  # others compare or keep all rows
_BUFFERS = {"kept": 2, "projections": 3, "sites": 2, "site_clusters": 1, "shapes": 3, "offsets": 1}
_BUFFERS |= {"site_counts": 1, "num_clusters": 1, "num_columns": 1}

# The columns that a clustering sees (`k`), their projection (`k x K`), and the sites of its clusters.
Clustering = tuple[np.ndarray, np.ndarray | None, Sites]


class Drawing(NamedTuple):
    clusterer: Any
    distributions: dict[str, Any]
    num_rows: int
    num_kept: int
    projection: int | None
    noise: str
    is_random: bool

    @classmethod
    def checked(
        cls, shape: torch.Size, clusterer: Any, distributions: Any, rows: Any, columns: Any, projection: Any, noise: str
    ) -> Drawing:
        if isinstance(clusterer, type):
            raise TypeError(f"expected a clusterer, got the class: give {clusterer.__name__}()")
        if not all(callable(getattr(clusterer, name, None)) for name in ("fit_predict", "get_params", "set_params")):
            raise TypeError(
                "expected a clusterer of scikit-learn, with fit_predict, get_params and set_params, got "
                f"{type(clusterer).__name__}"
            )
        distributions = _checked_distributions(distributions, clusterer)
        projection = checked_projection(projection)
        if noise not in NOISES:
            raise ValueError(f"expected noise to be one of {NOISES}, got {noise!r}")
        num_rows, num_kept = _number(rows, shape[0], "rows"), _number(columns, shape[1], "columns")
        if rows is None and shape[0] > _ROWS_WITHOUT_ASKING and not isinstance(clusterer, _LINEAR):
            raise ValueError(
                f"expected rows= with {shape[0]:,} rows and a {type(clusterer).__name__}, which compares all rows with "
                f"each other, got None: give rows=1000, those that each clustering sees, or rows={shape[0]}"
            )
        is_subset = num_rows < shape[0] or num_kept < shape[1]
        is_random = bool(distributions or is_subset or projection or _seed_names(clusterer))
        return cls(clusterer, distributions, num_rows, num_kept, projection, noise, is_random)


def clustering(drawing: Drawing, x: np.ndarray, seed: int) -> Clustering:
    """Cluster a random view of the rows; all randomness comes from the seed."""
    random, matrix = np.random.RandomState(seed), None
    kept = np.sort(random.permutation(x.shape[1])[: drawing.num_kept])
    if drawing.projection is not None:
        matrix = random.normal(size=(len(kept), drawing.projection)) / drawing.projection**0.5
    chosen = np.arange(len(x))
    if drawing.num_rows < len(x):
        chosen = np.sort(sample_without_replacement(len(x), drawing.num_rows, random_state=random))
    view = torch.from_numpy(kept), None if matrix is None else torch.from_numpy(matrix)
    rows = seen_by(torch.from_numpy(x[chosen]), *view).numpy()
    drawn = {name: _drawn(values, random) for name, values in drawing.distributions.items()}
    radius = drawn.pop(CUT, None)
    seeds = {name: int(random.randint(2**31 - 1)) for name in _seed_names(drawing.clusterer)}
    clusterer = clone(drawing.clusterer).set_params(**seeds | drawn)
    try:
        labels = clusterer.fit_predict(rows)
    except ValueError as error:
        name, shape = type(clusterer).__name__, tuple(rows.shape)
        raise ValueError(f"expected a clusterer that takes rows of shape {shape}, got a {name}: {error}") from error
    if radius is not None:
        labels = clusterer.dbscan_clustering(radius, clusterer.min_cluster_size)
    return kept, matrix, sites_of(clusterer, rows, labels, drawing.noise)


def seen_by(x: Tensor, kept: Tensor, matrix: Tensor | None) -> Tensor:
    """Return rows (`n x D`) as one clustering sees them (`n x K`, float64); labels see them equal to the last bit."""
    columns = x[:, kept].to(torch.float64) * math.sqrt(x.shape[1] / len(kept))
    return columns if matrix is None else projected(columns, matrix)


def _drawn(values: Any, random: np.random.RandomState) -> Any:
    if hasattr(values, "rvs"):
        return values.rvs(random_state=random)
    if isinstance(values, list):
        return values[random.randint(len(values))]
    low, high = values
    if all(isinstance(value, Integral) for value in values):
        return min(int(math.exp(random.uniform(math.log(low), math.log(high + 1)))), int(high))
    return math.exp(random.uniform(math.log(low), math.log(high)))


def _seed_names(clusterer: Any) -> list[str]:
    return [name for name in clusterer.get_params() if name == "random_state" or name.endswith("__random_state")]


def _checked_distributions(distributions: Any, clusterer: Any) -> dict[str, Any]:
    if distributions is not None and not isinstance(distributions, Mapping):
        raise ValueError(
            "expected param_distributions to map names of parameters to what they are drawn from, such as "
            f"{{'n_clusters': (2, 20)}}, got {distributions!r}"
        )
    names = [*clusterer.get_params(), *([CUT] if hasattr(clusterer, "dbscan_clustering") else [])]
    for name, values in (distributions or {}).items():
        if name not in names:
            raise ValueError(f"{type(clusterer).__name__} has no parameter {name!r} to draw: it has {sorted(names)}")
        if not (hasattr(values, "rvs") or (isinstance(values, list) and values) or _is_range(values)):
            raise ValueError(
                f"expected {name!r} to be drawn from a range (low, high) of positive numbers, a list or a distribution "
                f"with rvs, got {values!r}"
            )
    return dict(distributions or {})


def _is_range(values: Any) -> bool:
    is_pair = isinstance(values, tuple) and len(values) == 2 and all(isinstance(value, Real) for value in values)
    return is_pair and 0 < values[0] <= values[1] < math.inf


def _number(wanted: Any, size: int, name: str) -> int:
    if wanted is None:
        return size
    if is_whole(wanted, 1, size):
        return int(wanted)
    if isinstance(wanted, float) and 0 < wanted <= 1:
        return max(1, round(wanted * size))
    raise ValueError(f"expected {name} to be a number from 1 to {size}, or a share, a float up to 1.0, got {wanted!r}")


class ClusteringPartition(Partition):
    """
    Divide points by m clusterings of random views of some rows (Davies & Ghahramani 2014, section 4.1.1).

    :class:`~gpytorch_partition.ClusteringKernel` uses it. Construct it yourself for clusters without a kernel.

    Each clustering may draw its initialisation (`random_state`, if the clusterer has one), any of its parameters, a
    subset of the rows, a subset of the columns and a random projection of these. Coordinates are scaled so that
    distances equal, on average, those in all columns. New points join the cluster that the `predict` of K-means, mean
    shift, affinity propagation, Birch and Gaussian mixtures gives, and of others that of the nearest clustered row.

    :param x: `N x D` rows, possibly more than have targets; standard deviations of columns that differ by more than 100
        times give a `UserWarning`. (Default: None, an unfitted partition for `load_state_dict`.)
    :param clusterer: An unfitted clusterer with `fit_predict`, and `get_params` and `set_params`.
    :param num_partitions: Number m of clusterings. (Default: 200.)
    :param param_distributions: Parameters of the clusterer to draw, by name: a range `(low, high)`, uniform in the
        logarithm, integers if both are; a list; or a distribution of SciPy. `"cut_distance"` cuts HDBSCAN's hierarchy.
    :param rows: Rows that each clustering sees, a number, or a share as a float. Clusterers that keep their rows take
        :math:`O(N^2)`, so above 10,000 rows they are refused unless `rows` is given. (Default: all.)
    :param columns: Columns that each clustering sees, a number or a share. (Default: all.)
    :param projection: Number K of dimensions of a Gaussian random projection. (Default: None.)
    :param noise: The clusters of noise points (label -1). `"alone"`: each is one, joined by the new points nearest to
        it. `"together"`: all are one. `"nearest"`: each joins the nearest row that is no noise. (Default: `"alone"`.)
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
        num_partitions = checked_count(num_partitions, "clusterings", "num_partitions", MOST_PARTITIONS)
        if num_partitions > 1 and not drawing.is_random:
            raise ValueError(
                f"all {num_partitions} clusterings by {clusterer} would be the same: randomize rows, columns, "
                "projection or param_distributions (such as {'eps': (0.2, 2.0)}), or give num_partitions=1"
            )
        warn_about_unequal_scales(points, type(self).__name__)
        seeds = random_state_of(random_state).randint(2**31 - 1, size=num_partitions)
        array = points.cpu().numpy()
        drawn = Parallel(n_jobs=n_jobs)(delayed(clustering)(drawing, array, int(seed)) for seed in seeds)
        self._keep(drawn, points.shape[1], points.device)

    @classmethod
    def of_fitted(cls, clusterers: Sequence[Any]) -> ClusteringPartition:
        """
        Return the partitions of clusterers that are already fitted, on all columns.

        :param clusterers: Fitted clusterers whose rule for new points is known; of DBSCAN, the nearest core point.
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
        new._keep([(np.arange(width), None, each) for each in sites], width, torch.device("cpu"))
        return new

    def _keep(self, drawn: list[Clustering], num_columns: int, device: torch.device) -> None:
        kept, matrices, sites = zip(*drawn)
        state = {
            "kept": torch.from_numpy(np.stack(kept)),
            "sites": _bits([each.points for each in sites]),
            "site_clusters": torch.from_numpy(np.concatenate([each.clusters for each in sites])),
            "site_counts": torch.tensor([len(each.points) for each in sites]),
            "num_clusters": torch.tensor([int(each.clusters.max()) + 1 for each in sites]),
            "num_columns": torch.tensor([num_columns]),
        }
        if matrices[0] is not None:
            state["projections"] = bits_of(torch.from_numpy(np.stack(matrices)))
        if any(each.shapes is not None for each in sites):
            state["shapes"] = _bits([_shapes(each) for each in sites])
            state["offsets"] = _bits([np.zeros(len(s.points)) if s.offsets is None else s.offsets for s in sites])
        for name, value in state.items():
            setattr(self, name, value.to(device))

    @property
    def num_partitions(self) -> int:
        return self.site_counts.numel()

    @property
    def cluster_counts(self) -> Tensor:
        return self.num_clusters

    def _labels(self, x: Tensor) -> Tensor:
        labels = torch.zeros(self.num_partitions, x.shape[0], dtype=torch.int64, device=x.device)
        ends = self.site_counts.cumsum(0).tolist()

        def label(partition: int) -> None:
            own = slice(ends[partition] - int(self.site_counts[partition]), ends[partition])
            matrix = floats_of(self.projections[partition]) if self.projections.numel() else None
            seen, points = partial(seen_by, kept=self.kept[partition], matrix=matrix), floats_of(self.sites[own])
            out = labels[partition]
            if not self.shapes.numel():
                label_nearest(x, points, out, seen)
            else:
                shapes, offsets = floats_of(self.shapes[own]), floats_of(self.offsets[own])
                for rows, densest in blocks(x, out, len(points)):
                    densest.copy_(label_densest(seen(rows), points, shapes, offsets))
            out.copy_(self.site_clusters[own][out])

        for_each(label, range(self.num_partitions))
        return labels.T


def _shapes(sites: Sites) -> np.ndarray:
    width = sites.points.shape[1]
    return np.broadcast_to(np.eye(width), (len(sites.points), width, width)) if sites.shapes is None else sites.shapes


def _bits(arrays: list[np.ndarray]) -> Tensor:
    return bits_of(torch.from_numpy(np.concatenate(arrays)))
