"""A random clustering: a clusterer, cloned, on a random view of some rows, with parameters drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.base import clone
from sklearn.utils.random import sample_without_replacement
from torch import Tensor

from gpytorch_partition.partitions.fitted_clusterers import NOISES, Sites, keeps_rows, sites_of
from gpytorch_partition.partitions.nearest import checked_projection, projected

# The radius at which a fitted HDBSCAN's hierarchy is cut: a parameter of its `dbscan_clustering`, not of HDBSCAN.
CUT = "cut_distance"

_ROWS_WITHOUT_ASKING = 10_000  # at most, without `rows`, for a clusterer of quadratic cost


class View(NamedTuple):
    """The view of a row that a clustering sees: some columns, and a projection of them."""

    kept: np.ndarray  # (k,) numbers of columns
    matrix: np.ndarray | None = None  # (k, K)


class Drawing(NamedTuple):
    """The checked parameters of a random clustering."""

    clusterer: Any
    distributions: dict[str, Any]
    num_rows: int
    num_kept: int
    projection: int | None
    noise: str
    is_random: bool

    @classmethod
    def checked(
        cls,
        shape: Sequence[int],
        clusterer: Any,
        distributions: Any,
        rows: Any,
        columns: Any,
        projection: Any,
        noise: str,
    ) -> Drawing:
        _check_clusterer(clusterer)
        distributions = _checked_distributions(distributions, clusterer)
        projection = checked_projection(projection)
        if noise not in NOISES:
            raise ValueError(f"expected noise to be one of {NOISES}, got {noise!r}")
        num_rows, num_kept = _number(rows, shape[0], "rows"), _number(columns, shape[1], "columns")
        if rows is None:
            _check_affordable(clusterer, shape[0])
        is_subset = num_rows < shape[0] or num_kept < shape[1]
        is_random = bool(distributions or is_subset or projection or _seed_names(clusterer))
        return cls(clusterer, distributions, num_rows, num_kept, projection, noise, is_random)


def clustering(drawing: Drawing, x: np.ndarray, seed: int) -> tuple[View, Sites]:
    """Cluster a random view of the rows; all randomness comes from the seed."""
    random = np.random.RandomState(seed)
    view = _view(drawing, x.shape[1], random)
    chosen = np.arange(len(x))
    if drawing.num_rows < len(x):
        chosen = np.sort(sample_without_replacement(len(x), drawing.num_rows, random_state=random))
    matrix = None if view.matrix is None else torch.from_numpy(view.matrix)
    kept, scale = torch.from_numpy(view.kept), scale_of(len(view.kept), x.shape[1])
    rows = seen_by(torch.from_numpy(x[chosen]), kept, scale, matrix).numpy()
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
    return view, sites_of(clusterer, rows, labels, drawing.noise)


def _view(drawing: Drawing, num_columns: int, random: np.random.RandomState) -> View:
    kept = np.sort(random.permutation(num_columns)[: drawing.num_kept])
    if drawing.projection is None:
        return View(kept)
    return View(kept, random.normal(size=(len(kept), drawing.projection)) / drawing.projection**0.5)


def seen_by(x: Tensor, kept: Tensor, scale: float, matrix: Tensor | None) -> Tensor:
    """Return rows (`n x D`) as one clustering sees them (`n x K`, float64), here and in labels to the last bit."""
    columns = x[:, kept].to(torch.float64) * scale
    return columns if matrix is None else projected(columns, matrix)


def scale_of(num_kept: int, num_columns: int) -> float:
    """Return the factor that makes distances in some columns as large, on average, as in all columns."""
    return math.sqrt(num_columns / num_kept)


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


def _check_affordable(clusterer: Any, num_rows: int) -> None:
    if num_rows > _ROWS_WITHOUT_ASKING and keeps_rows(clusterer):
        raise ValueError(
            f"{type(clusterer).__name__} keeps the rows that it clusters, and compares each with all points: give "
            f"rows=1000, or another number that each clustering sees, and rows={num_rows} if all of them are meant"
        )


def _check_clusterer(clusterer: Any) -> None:
    if isinstance(clusterer, type):
        raise TypeError(f"expected a clusterer, got the class: give {clusterer.__name__}()")
    if not all(callable(getattr(clusterer, name, None)) for name in ("fit_predict", "get_params", "set_params")):
        raise TypeError(
            "expected a clusterer of scikit-learn, with fit_predict, get_params and set_params, got "
            f"{type(clusterer).__name__}"
        )


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
                f"expected {name!r} to be drawn from a range (low, high) of positive numbers, a list or a "
                f"distribution with rvs, got {values!r}"
            )
    return dict(distributions or {})


def _is_range(values: Any) -> bool:
    is_pair = isinstance(values, tuple) and len(values) == 2 and all(isinstance(value, Real) for value in values)
    return is_pair and 0 < values[0] <= values[1] < math.inf


def _number(wanted: Any, size: int, name: str) -> int:
    if wanted is None:
        return size
    if isinstance(wanted, Integral) and not isinstance(wanted, bool) and 1 <= int(wanted) <= size:
        return int(wanted)
    if isinstance(wanted, float) and 0 < wanted <= 1:
        return max(1, round(wanted * size))
    raise ValueError(
        f"expected {name} to be a number from 1 to {size}, or a share as a float up to 1.0, got {wanted!r}"
    )
