"""Forests that are grown here: extremely randomized trees on small subsamples, with weights and categories."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.ensemble import BaggingRegressor
from sklearn.tree import ExtraTreeRegressor
from sklearn.utils import check_random_state
from torch import Tensor

from gpytorch_partition.inputs.numbers import MOST_PARTITIONS, checked_count, random_state_of, weights_of
from gpytorch_partition.inputs.training_rows import checked_rows, decode_missing

# Rows that a tree is grown on by default: a share of all, within bounds. More cost time for a small gain: on 200,000
# rows of flight delays, 40,000 rows a tree gave an RMSE of .754, 20,000 gave .760.
_SAMPLE_SHARE, _MIN_SAMPLES, _MAX_SAMPLES = 0.2, 128, 20_000
_MOST_LEVELS = 2**24  # of a category: float32 has no more whole numbers
_PRIOR_ROWS = 1.0  # of the mean target, added to each level: means of few rows would else be extreme by their noise


def grow_forest(
    x: Tensor,
    y: Tensor,
    *,
    num_trees: int = 200,
    max_samples: float | int | None = None,
    min_samples_leaf: int = 3,
    max_features: float | int = 1 / 3,
    categories: Sequence[int] = (),
    sample_weight: Tensor | None = None,
    groups: Tensor | None = None,
    random_state: int | np.random.RandomState | None = None,
    n_jobs: int | None = None,
) -> BaggingRegressor:
    r"""
    Grow extremely randomized trees, each on a small subsample of the rows, for an accurate and calibrated kernel.

    :class:`~gpytorch_partition.RandomForestKernel` calls it. Call it yourself for kernels of the same trees at
    different `heights` (`RandomForestKernel.from_forest`).

    With a small subsample for each tree, drawn without replacement, every row is new to most trees, so that a process
    does not take its noise for signal. Smooth targets gain from trying all columns.

    Each tree costs :math:`O(N D)`, since scikit-learn checks all rows for every tree, and about :math:`O(n d \log n)`
    for its n rows with d columns tried.

    :param x: `N x D` training rows; NaN is a missing value.
    :param y: `N` or `N x k` targets: real numbers, or indicators of k classes.
    :param num_trees: Number m of trees. (Default: 200.)
    :param max_samples: Rows of each tree: a fraction of N, but at least 128 rows (or all), or a number of rows.
        (Default: None, 20 % of N, but at most 20,000 rows.)
    :param min_samples_leaf: Fewest rows of a tree's subsample in a leaf. (Default: 3.)
    :param max_features: Columns tried at each split: a fraction of D, but at least 2 columns (with one column tried,
        trees do not look at the targets), or a number of columns. (Default: 1/3.)
    :param categories: Numbers of columns that hold codes 0 ... C - 1 of categories, which are split into sets of levels
        by an order of the levels in each tree. :class:`LevelOrderTree` explains how. (Default: none.)
    :param sample_weight: `N` weights, 0 or more, of the rows' squared errors in the choice of splits. (Default: None.)
    :param groups: `N` numbers of groups of like rows: other groups order levels than grow the tree. (Default: None.)
    :param random_state: Seed or `RandomState`; `None` is a fresh one, never NumPy's global one.
    :param n_jobs: Trees grown at a time, in processes, which pays where growing takes minutes. (Default: None, one.)
    :return: A fitted `BaggingRegressor` of `ExtraTreeRegressor`, for :class:`ForestPartition`.
    :raises ValueError: If rows and targets do not match, are empty or infinite, targets are NaN, columns of categories
        hold other things than codes, or an option is out of range (scikit-learn's `InvalidParameterError` among them).

    Example:
        >>> from gpytorch_partition.partitions import ForestPartition
        >>> x = torch.rand(300, 2, generator=torch.Generator().manual_seed(0))
        >>> forest = grow_forest(x, x.sum(-1), num_trees=10, random_state=0)
        >>> ForestPartition(forest).labels(x).shape
        torch.Size([300, 10])
    """
    rows = decode_missing(checked_rows(x, "grow_forest", missing=True))
    targets = _checked_targets(y, rows.shape[0])
    if sample_weight is not None:
        targets = np.column_stack([targets, weights_of(sample_weight, len(targets), "rows").cpu().numpy()])
    groups = None if groups is None or not len(categories) else groups
    if groups is not None:
        targets = np.column_stack([targets, groups.cpu().numpy()])
    if isinstance(max_features, float) and 0 < max_features <= 1:
        max_features = min(rows.shape[1], max(2, int(max_features * rows.shape[1])))
    leaves = {"min_samples_leaf": min_samples_leaf, "max_features": max_features}
    forest = BaggingRegressor(
        _new_tree(rows, categories, sample_weight is not None, groups is not None, leaves),
        checked_count(num_trees, "trees", "num_trees", MOST_PARTITIONS),
        max_samples=_num_samples(max_samples, rows.shape[0]),
        bootstrap=False,
        random_state=random_state_of(random_state),
        n_jobs=n_jobs,
    )
    return forest.fit(rows.cpu().numpy(), targets)


def _new_tree(
    rows: Tensor, categories: Sequence[int], has_weights: bool, has_groups: bool, leaves: dict[str, Any]
) -> Any:
    if not isinstance(categories, Iterable) or isinstance(categories, str | bytes):
        raise ValueError(f"expected categories as a list of numbers of columns, got {categories!r}")
    if not len(list(categories)):
        return WeightedTree(**leaves) if has_weights else ExtraTreeRegressor(**leaves)
    levels, by_targets = _numbers_of_levels(rows, categories), leaves["max_features"] != 1
    others = {"by_targets": by_targets, "has_weights": has_weights, "has_groups": has_groups}
    return LevelOrderTree(categories=levels, **others, **leaves)


def _numbers_of_levels(x: Tensor, categories: Sequence[int]) -> dict[int, int]:
    wanted = [int(column) for column in categories]
    if len(set(wanted)) < len(wanted) or not set(wanted) <= set(range(x.shape[1])):
        raise ValueError(f"expected distinct categories from 0 to {x.shape[1] - 1}, numbers of columns, got {wanted}")
    for column in wanted:
        codes = x[:, column][~x[:, column].isnan()]
        if bool(((codes < 0) | (codes != codes.floor()) | (codes >= _MOST_LEVELS)).any()):
            raise ValueError(
                f"expected codes 0, 1, ... below {_MOST_LEVELS:,} in column {column} of categories, got "
                f"{codes.min():g} to {codes.max():g}: TableEncoder makes codes of text and categories"
            )
    return {column: int(x[:, column].nan_to_num(0).max()) + 1 for column in sorted(wanted)}


def _checked_targets(y: Tensor, num_rows: int) -> np.ndarray:
    if not torch.is_tensor(y) or y.dim() not in (1, 2) or y.shape[0] != num_rows or y.numel() == 0:
        got = tuple(y.shape) if torch.is_tensor(y) else type(y).__name__
        raise ValueError(f"grow_forest expected targets (N or N x k) for N = {num_rows} rows, got {got}.")
    if not torch.isfinite(y).all():
        raise ValueError("grow_forest expected finite targets, got NaN or infinity: drop the rows that have them.")
    targets = y.detach().cpu().to(torch.float64).numpy()
    return targets[:, 0] if targets.ndim == 2 and targets.shape[1] == 1 else targets


def _num_samples(max_samples: float | int | None, num_rows: int) -> int:
    if max_samples is None:
        return min(_num_samples(_SAMPLE_SHARE, num_rows), _MAX_SAMPLES)
    if isinstance(max_samples, int) and 1 <= max_samples <= num_rows:
        return max_samples
    if isinstance(max_samples, float) and 0 < max_samples <= 1:
        return min(num_rows, max(_MIN_SAMPLES, round(max_samples * num_rows)))
    raise ValueError(
        f"grow_forest expected max_samples as a fraction in (0, 1] or a number of rows from 1 to {num_rows}, got "
        f"{max_samples!r}."
    )


def without_last(y: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return (y[:, 0] if y.shape[1] == 2 else y[:, :-1]), y[:, -1]


class WeightedTree(ExtraTreeRegressor):
    """A tree with weights of rows, the last column of its targets: bagging would only draw rows by them."""

    def fit(self, X: Any, y: Any, check_input: bool = True) -> WeightedTree:
        targets, weights = without_last(np.asarray(y))
        if not weights.any():
            weights = np.ones_like(weights)  # a subsample of rows that do not count
        return super().fit(X, targets, sample_weight=weights, check_input=check_input)


class LevelOrderTree(ExtraTreeRegressor):
    """
    An extremely randomized tree that sees the levels of a category in the order of their mean targets.

    One of the C - 1 splits along the order has the least squared error of all :math:`2^{C - 1} - 1` (Fisher 1958, On
    grouping for maximum homogeneity; Breiman et al. 1984, Classification and regression trees, section 4.2); with
    several targets, along the first principal component of means (Coppersmith, Hong & Hosking 1999, Partitioning
    nominal attributes in decision trees). A random half of the rows (of whole groups, except for one) orders the
    levels, and the other half grows the tree: else levels of few rows would be sorted by their noise. Means are shrunk
    to that of all rows. Missing values and levels beyond the last stay missing.

    :param categories: The number C of levels of each column that holds codes 0 ... C - 1, by the column's number.
    """

    def __init__(
        self,
        *,
        categories: Mapping[int, int] | None = None,
        by_targets: bool = True,
        has_weights: bool = False,
        has_groups: bool = False,
        min_samples_leaf: int | float = 1,
        max_features: int | float = 1.0,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        super().__init__(min_samples_leaf=min_samples_leaf, max_features=max_features, random_state=random_state)
        self.categories = categories
        self.by_targets = by_targets
        self.has_weights = has_weights
        self.has_groups = has_groups

    def fit(self, X: Any, y: Any, check_input: bool = True) -> LevelOrderTree:
        random = check_random_state(self.random_state)
        weights, rows = None, None
        if self.has_groups:
            y, groups = without_last(y)
            names, numbers = np.unique(groups, return_inverse=True)
            rows = np.argsort(random.permutation(len(names))[numbers], kind="stable")
        if self.has_weights:
            y, weights = without_last(y)
        rows = random.permutation(len(X)) if rows is None else rows
        first, second = (rows[: len(X) // 2], rows[len(X) // 2 :]) if self.by_targets else (rows, rows)
        self.level_places_: dict[int, NDArray[np.int32]] = {}
        for column, size in (self.categories or {}).items():
            own = None if weights is None else weights[first]
            scores = _scores(X[first, column], y[first], size, own) if self.by_targets else random.permutation(size)
            self.level_places_[column] = np.unique(scores, return_inverse=True)[1].astype(np.int32)
        some = None if weights is None or not weights[second].any() else weights[second]
        return super().fit(self._placed(X[second]), y[second], sample_weight=some, check_input=check_input)

    def predict(self, X: Any, check_input: bool = True) -> NDArray[np.float64]:
        return super().predict(self._placed(np.asarray(X)), check_input=check_input)

    def apply(self, X: Any, check_input: bool = True) -> NDArray[np.int64]:
        return super().apply(self._placed(np.asarray(X)), check_input=check_input)

    def _placed(self, X: NDArray[Any]) -> NDArray[Any]:
        placed = np.array(X, np.float32)
        for column, places in self.level_places_.items():
            codes = np.floor(placed[:, column])
            known = (codes >= 0) & (codes < len(places))
            placed[:, column] = np.nan
            placed[known, column] = places[codes[known].astype(np.int64)]
        return placed


def _scores(
    codes: NDArray[np.float64], targets: NDArray[np.float64], size: int, weights: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    if not len(codes):
        return np.zeros(size)
    if weights is not None and not weights.any():
        weights = None
    targets = targets.reshape(len(codes), -1)
    targets = targets - np.average(targets, axis=0, weights=weights)
    known = ~np.isnan(codes)
    levels, shares = codes[known].astype(np.int64), None if weights is None else weights[known]
    counts = np.bincount(levels, shares, minlength=size)
    targets = targets[known] if shares is None else targets[known] * shares[:, None]
    sums = np.stack([np.bincount(levels, target, minlength=size) for target in targets.T], axis=1)
    means = sums / (counts + _PRIOR_ROWS)[:, None]
    if means.shape[1] == 1:
        return means[:, 0]
    return means @ np.linalg.eigh(means.T @ (counts[:, None] * means))[1][:, -1]
