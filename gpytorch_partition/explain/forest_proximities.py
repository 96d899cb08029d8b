"""Proximities of a fitted forest: similarities of rows by shared leaves, in the weightings of the literature."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_matrix, diags_array, vstack
from scipy.stats import median_abs_deviation
from sklearn.utils import check_array

from gpytorch_partition.explain.kernel_parts import largest
from gpytorch_partition.inputs.numbers import checked_count, is_whole, random_state_of, refuse_mask
from gpytorch_partition.inputs.training_rows import encode_missing
from gpytorch_partition.linalg.parallel import slices
from gpytorch_partition.partitions.ensembles.tree_values import check_names, names_of, tree_values
from gpytorch_partition.partitions.forest import ForestPartition
from gpytorch_partition.progress import progress

WEIGHTINGS = ("leaf", "boosting", "oob", "gap", "kerf")

_ENTRIES = 2**24  # products of leaves held at once: 200 MiB
_LEAST_SHARE = 1e-12


class Prototype(NamedTuple):
    """
    Hold the typical row of a class.

    Use it, a result of :meth:`Proximities.prototypes`, to say what the rows of a class are like.
    """

    row: int  #: number of the training row with the most near rows of the class
    median: np.ndarray  #: median of each column (`D`) over these near rows
    lower: np.ndarray  #: their first quartile (`D`)
    upper: np.ndarray  #: their third quartile (`D`)


@dataclass(frozen=True, eq=False)
class Proximities:
    r"""
    Hold the proximities :math:`P = Q R^\top` (`N2 x N`) of rows to the training rows of a forest, as sparse factors.

    Use it, the result of :func:`proximities`, to find near rows, outliers and prototypes, or to fill missing cells.

    Example:
        >>> from sklearn.ensemble import RandomForestRegressor
        >>> X = np.linspace(0, 1, 50)[:, None]
        >>> forest = RandomForestRegressor(100, oob_score=True, random_state=0).fit(X, X[:, 0])
        >>> bool(np.allclose(proximities(forest, X, weighting="gap") @ X[:, 0], forest.oob_prediction_))
        True
    """

    weighting: str
    left: csr_matrix = field(repr=False)  # Q, N2 x p for p leaves
    right: csr_matrix = field(repr=False)  # R, N x p
    is_unseen: tuple[np.ndarray, np.ndarray] | None = field(default=None, repr=False)  # by a tree, of "oob": `N2 x m`
    is_of_training: bool = True  # whether the rows are the training rows themselves

    @property
    def shape(self) -> tuple[int, int]:
        return self.left.shape[0], self.right.shape[0]

    def __matmul__(self, values: np.ndarray) -> np.ndarray:
        """Return sums over the training rows (`N2` or `N2 x k`), weighted by proximity."""
        if self.is_unseen is None:
            return self.left @ (self.right.T @ values)
        return np.concatenate([block @ values for block in self._blocks()])

    def matrix(self) -> csr_matrix:
        """Return all proximities above 0 (`N2 x N`), at 12 bytes each: a tree has one for each pair in a leaf."""
        return vstack([*self._blocks()], format="csr")

    def nearest(self, k: int = 5) -> tuple[np.ndarray, np.ndarray]:
        """
        Return the training rows of the largest proximity (`N2 x k` numbers) and these proximities, largest first.

        A training row is not its own neighbor. Of ties the first rows are taken: where fewer than k rows are near, the
        others have a proximity of 0. Costs the entries of :meth:`matrix`, of which blocks are held.

        :param k: Number of rows. (Default: 5.)
        :raises ValueError: If k is not from 1 to the number of other training rows.
        """
        if checked_count(k, "rows", "k") > self.shape[1] - self.is_of_training:
            raise ValueError(f"expected k below the number of training rows, {self.shape[1]}, got {k}")
        rows = (block[row] for block in self._blocks(without_own=True) for row in range(block.shape[0]))
        found = [_nearest(row, k, own if self.is_of_training else None) for own, row in enumerate(rows)]
        columns, values = ([pair[part] for pair in found[: self.shape[0]]] for part in (0, 1))
        return np.array(columns, dtype=np.int64).reshape(-1, k), np.array(values).reshape(-1, k)

    def outlier_scores(self, classes: Any = None) -> np.ndarray:
        r"""
        Return how isolated each training row is among those of its class (`N`; Breiman & Cutler 2004).

        It is :math:`N / \sum_j p_{ij}^2` over other rows j of the class, less its median in the class, over 1.4826
        times the median absolute difference from it there (the mean one where that is 0). Above 10 a row may be called
        an outlier. A row without proximity to any other of its class has infinity. Costs the entries of :meth:`matrix`.

        :param classes: `N` classes. (Default: None, all rows are of one.)
        :raises ValueError: If there is not a class for each row, or the rows are new ones.
        """
        self._check_training("outlier scores")
        labels = np.zeros(self.shape[1], int) if classes is None else self._checked_classes(classes)[1]
        of_class = csr_matrix((np.ones(len(labels)), (np.arange(len(labels)), labels))).toarray()
        squares = np.concatenate([block.power(2) @ of_class for block in self._blocks(without_own=True)])
        own_squares = squares[np.arange(len(labels)), labels]
        scores = np.full(len(labels), np.inf)
        for label in range(labels.max() + 1):
            near = (labels == label) & (own_squares > 0)
            if near.any():
                raw = len(labels) / own_squares[near]
                differences = raw - np.median(raw)
                spread = median_abs_deviation(raw, scale="normal") or np.abs(differences).mean()
                scores[near] = differences / (spread or 1.0)
        return scores

    def prototypes(self, X: Any, classes: Any, k: int = 10) -> dict[Any, Prototype]:
        """
        Return a typical row of each class, by class: medians and quartiles of columns (Breiman & Cutler 2004).

        They are those of the rows of the class among the k nearest of the training row with the most such neighbors; of
        ties, of the row that is nearest to them. Rows with a proximity of 0 are no neighbors.

        :param X: `N x D` training rows, of numbers.
        :param classes: `N` classes.
        :param k: Number of nearest rows. (Default: 10.)
        :raises ValueError: If the rows are new ones, k is too large, or no row is near one of a class.
        """
        self._check_training("prototypes")
        X, (levels, labels), (rows, values) = self._checked_rows(X), self._checked_classes(classes), self.nearest(k)
        found = {}
        for label, name in enumerate(levels.tolist()):
            is_own = (labels[rows] == label) & (values > 0)
            if not is_own.any():
                raise ValueError(f"expected rows near those of class {name!r}, found none: grow trees of larger leaves")
            center = int(np.lexsort([-(values * is_own).sum(1), -is_own.sum(1)])[0])
            near = X[rows[center][is_own[center]]]
            found[name] = Prototype(center, *(np.nanquantile(near, share, 0) for share in (0.5, 0.25, 0.75)))
        return found

    def imputed(self, X: Any, categories: Collection[int] = ()) -> Any:
        """
        Return the rows (`N x D`) with missing cells (NaN) filled from the rows that have them, by proximity.

        Numbers are filled by weighted means, categories by the value with the largest sum of proximities. A cell whose
        row has no proximity to any row with a known one gets the column's mean or commonest category.

        :param X: `N x D` training rows, of numbers. A frame of pandas returns as one, of float64.
        :param categories: Numbers of the columns that hold codes. (Default: none.)
        :raises ValueError: If the rows are new ones, a column has no known cell, or there is no such column.
        """
        self._check_training("imputed rows")
        numbers = self._checked_rows(X)
        is_known = ~np.isnan(numbers)
        if not is_known.any(0).all():
            raise ValueError(f"expected a known cell in each column, got none in column {is_known.any(0).argmin()}")
        total, weight = self @ np.where(is_known, numbers, 0.0), self @ is_known.astype(float)
        if not all(is_whole(column, 0, numbers.shape[1] - 1) for column in categories):
            raise ValueError(f"expected categories as numbers of columns from 0, got {categories!r}")
        means = np.nanmean(numbers, 0)
        filled = np.where(weight > _LEAST_SHARE, total / np.maximum(weight, _LEAST_SHARE), means)
        for column in categories:
            levels, counts = np.unique(numbers[is_known[:, column], column], return_counts=True)
            near = self @ (numbers[:, [column]] == levels).astype(float)
            filled[:, column] = levels[(near + _LEAST_SHARE * counts / counts.sum()).argmax(1)]
        filled = np.where(is_known, numbers, filled)
        return type(X)(filled, index=X.index, columns=X.columns) if hasattr(X, "iloc") else filled

    def _check_training(self, told: str) -> None:
        if not self.is_of_training:
            raise ValueError(f"expected proximities of training rows for {told}, got those of new rows")

    def _checked_classes(self, classes: Any) -> tuple[np.ndarray, np.ndarray]:
        given = np.asarray(classes)
        if given.shape != (self.shape[1],):
            raise ValueError(f"expected a class for each of {self.shape[1]} training rows, got shape {given.shape}")
        if any(name is None or type(name).__name__ == "NAType" or name != name for name in given.tolist()):
            raise ValueError("expected a class for each training row, got missing ones: give them a class of their own")
        return np.unique(given, return_inverse=True)

    def _checked_rows(self, X: Any) -> np.ndarray:
        X = _numbers(X)
        if len(X) != self.shape[1]:
            raise ValueError(f"expected the {self.shape[1]} training rows, got {len(X)} rows")
        return X

    def _blocks(self, without_own: bool = False) -> Iterator[csr_matrix]:
        for rows in slices(max(1, self.shape[0]), max(1, _ENTRIES // max(1, self.shape[1]))):
            block = csr_matrix(self.left[rows] @ self.right.T)
            if self.is_unseen is not None:
                counts = self.is_unseen[0][rows] @ self.is_unseen[1].T
                own = np.repeat(np.arange(len(counts)), np.diff(block.indptr))
                block.data = block.data / counts[own, block.indices]
            if without_own and self.is_of_training:
                block.setdiag(0.0, k=rows.start)
                block.eliminate_zeros()
            yield block


def proximities(forest: Any, X: Any, new_X: Any = None, *, weighting: str = "leaf") -> Proximities:
    r"""
    Return the proximities of a fitted tree ensemble: how often rows share leaves, weighted.

    Use it to look at a forest that you have: nearest rows, outliers, prototypes, missing cells, or to predict by
    weighted means. For Gaussian processes there is :meth:`gpytorch_partition.RandomForestKernel.from_forest`.

    - `"leaf"`: the share of trees in which two rows share a leaf (Breiman 2001), by their weights in the ensemble, as
      AdaBoost has them.
    - `"boosting"`: the same with trees weighted by the variance of their predictions over the training rows
      (dmlc/xgboost#11919): most trees of a boosting change little.
    - `"kerf"`: that of leaves divided by its sum over training rows, the weights of kernel random forests (Scornet
      2016).
    - `"oob"`: the share among trees that have seen neither row (Breiman & Cutler 2004), 0 where there is none.
    - `"gap"`: over the trees that have not seen the first row, the share of the second in the leaf's training rows
      (Rhodes, Cutler & Moon 2023). Weighted means of targets are the forest's out-of-bag predictions, and its
      predictions for new rows, where leaves predict plain means.

    `"oob"` and `"gap"` need scikit-learn's forests with `bootstrap=True`, `"boosting"` gradient boosting. Factors, and
    products but for `"oob"`, take :math:`O(N m)` time and memory for m trees; matrices a number for each pair of rows
    that share a leaf.

    :param forest: A fitted ensemble, as :class:`~gpytorch_partition.partitions.ForestPartition` reads it.
    :param X: The `N x D` rows that it was fitted to, in the same order.
    :param new_X: `N2 x D` other rows. (Default: None, the training rows themselves.)
    :param weighting: `"leaf"`, `"boosting"`, `"oob"`, `"gap"` or `"kerf"`. (Default: `"leaf"`.)
    :raises ValueError: If the weighting is unknown, rows are no numbers, have other columns than the forest's or, for
        `"oob"` or `"gap"`, are not those of the fit in their order, or all trees have seen a row of `"gap"`.
    :raises TypeError: If the forest has no bootstrap samples, or is no boosting, and the weighting needs it.
    """
    if weighting not in WEIGHTINGS:
        raise ValueError(f"expected weighting to be one of {WEIGHTINGS}, got {weighting!r}")
    partition, is_of_training = ForestPartition(forest), new_X is None
    rows = [_numbers(X, names_of(forest)), *([] if is_of_training else [_numbers(new_X, names_of(forest), 0)])]
    incidences = [_incidence(partition, each) for each in rows]
    right, left = incidences[0], incidences[-1]
    if weighting not in ("oob", "gap"):
        weights = partition.weights.numpy() / partition.num_partitions
        if weighting == "boosting":
            nodes = partition.layout.leaf_nodes.numpy()[right.indices].reshape(right.shape[0], -1)
            variances = tree_values(forest, rows[0], nodes).var(0).sum(-1)
            weights = variances / variances.sum() if variances.any() else np.full(len(variances), 1 / len(variances))
        factors = _of_leaves(left, right, weights, is_normalized=weighting == "kerf")
        return Proximities(weighting, *factors, is_of_training=is_of_training)
    counts = _bootstrap_counts(forest, partition, right)
    unseen = (counts == 0).astype(np.float64)
    unseen_left = unseen if is_of_training else np.ones((left.shape[0], partition.num_partitions))
    if weighting == "gap":
        return Proximities(weighting, *_gap(left, right, unseen_left, counts), is_of_training=is_of_training)
    of_trees = unseen_left.astype(np.float32), unseen.astype(np.float32)
    return Proximities(weighting, _scaled(left, unseen_left), _scaled(right, unseen), of_trees, is_of_training)


def geometric_importance(
    forest: Any, X: Any, *, n_repeats: int = 5, random_state: int | np.random.RandomState | None = None
) -> np.ndarray:
    r"""
    Return how far rows move in the geometry of a fitted tree ensemble when a column takes another row's value (`D`).

    Use it to see which columns make rows similar, whether or not predictions change: it needs no targets, and unlike
    scikit-learn's permutation importance it counts splits whose effects cancel.

    A column's number is the mean of :math:`1 - P(x, x')`, half the squared distance between the features of two rows in
    the kernel's space, x' being x with the column permuted, P the proximities `"leaf"`. It is 0 for a column that no
    tree splits, at most 1, and the sum over columns has no meaning. (The name is that of a criterion by Dagdoug, Dombry
    & Duchamps 2025, arXiv 2512.00397; this definition is the package's own.) Costs the leaves of `n_repeats N D` rows.

    :param forest: A fitted ensemble, as :class:`~gpytorch_partition.partitions.ForestPartition` reads it.
    :param X: `N x D` rows, of numbers.
    :param n_repeats: Permutations of each column, over which numbers are averaged. (Default: 5.)
    :param random_state: Seed of the permutations. (Default: None, another one at each call.)
    :raises ValueError: If rows are no numbers, or columns have other names or another order than the forest's.

    Example:
        >>> from sklearn.ensemble import RandomForestRegressor
        >>> X = np.random.RandomState(0).rand(200, 2)
        >>> forest = RandomForestRegressor(50, max_depth=3, random_state=0).fit(X, X[:, 0] > 0.5)
        >>> geometric_importance(forest, X, random_state=0).round(1)
        array([0.5, 0. ])
    """
    checked_count(n_repeats, "repeats", "n_repeats")
    partition, random, rows = ForestPartition(forest), random_state_of(random_state), _numbers(X, names_of(forest))
    weights, leaves = partition.weights.numpy() / partition.num_partitions, _leaves(partition, rows)
    found = np.zeros(rows.shape[1])
    for column in progress(list(range(rows.shape[1])) * n_repeats, "permuting columns"):
        moved = rows.copy()
        moved[:, column] = random.permutation(rows[:, column])
        found[column] += weights @ (_leaves(partition, moved) != leaves).mean(0) / n_repeats
    return found


def _numbers(X: Any, names: list[str] | None = None, fewest: int = 1) -> np.ndarray:
    refuse_mask(X, "rows", "fill them with NaN")
    check_names(X, names)
    found = check_array(X, dtype=np.float64, ensure_all_finite="allow-nan", ensure_min_samples=fewest, input_name="X")
    return np.ascontiguousarray(found)


def _of_leaves(
    left: csr_matrix, right: csr_matrix, weights: np.ndarray, *, is_normalized: bool
) -> tuple[csr_matrix, csr_matrix]:
    left = _scaled(left, np.tile(weights, (left.shape[0], 1)))
    if is_normalized:
        sums = left @ (right.T @ np.ones(right.shape[0]))
        left = diags_array(1 / np.where(sums > 0, sums, 1.0)) @ left  # 0 for rows that share no leaf
    return csr_matrix(left), right


def _gap(left: csr_matrix, right: csr_matrix, unseen: np.ndarray, counts: np.ndarray) -> tuple[csr_matrix, csr_matrix]:
    """Return the factors of GAP, by whether trees have not seen a row (`n x m`), and how often drawn one (`N x m`)."""
    number = unseen.sum(1, keepdims=True)
    if not number.all():
        raise ValueError(
            f"expected trees that have not seen row {int(number.argmin())}, got none among {unseen.shape[1]}: grow "
            "more trees, or give weighting='leaf'"
        )
    drawn = _scaled(right, counts)
    of_leaves = np.maximum(np.asarray(drawn.sum(0)).ravel(), 1.0)
    return _scaled(left, unseen / number), csr_matrix(drawn @ diags_array(1 / of_leaves))


def _nearest(row: csr_matrix, k: int, own: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the columns of the k largest entries of a row but its own, and these; of ties the first ones."""
    row.sort_indices()
    columns, values = row.indices, row.data
    if len(columns) < k:
        columns = np.delete(np.arange(row.shape[1]), [] if own is None else own)
        values = row.toarray().ravel()[columns]
    chosen = largest(values, k)
    return columns[chosen], values[chosen]


def _leaves(partition: ForestPartition, X: np.ndarray) -> np.ndarray:
    """Return the leaf of each row in each tree (`n x m`), counted through all trees."""
    rows = encode_missing(torch.from_numpy(X))
    return partition.incidences(rows, rows)[0].codes.numpy()


def _incidence(partition: ForestPartition, X: np.ndarray) -> csr_matrix:
    """Return which leaf of each tree a row is in (`n x p` zeros and ones, a number for each tree in order)."""
    leaves = _leaves(partition, X)
    ends = np.arange(len(X) + 1) * partition.num_partitions
    shape = len(X), len(partition.layout.leaf_nodes)
    return csr_matrix((np.ones(leaves.size), leaves.ravel(), ends), shape=shape)


def _scaled(incidence: csr_matrix, weights: np.ndarray) -> csr_matrix:
    """Return an incidence whose entries are weights (`n x m`) of the trees."""
    entries = weights.ravel(), incidence.indices, incidence.indptr
    found = csr_matrix(entries, shape=incidence.shape, copy=True)  # zeros leave in place
    found.eliminate_zeros()
    return found


def _bootstrap_counts(forest: Any, partition: ForestPartition, right: csr_matrix) -> np.ndarray:
    samples = getattr(forest, "estimators_samples_", None) if getattr(forest, "bootstrap", False) else None
    if samples is None:
        raise TypeError(
            "expected a forest of scikit-learn with bootstrap=True, whose trees leave rows out, got a "
            f"{type(forest).__name__}: give weighting='leaf' or 'kerf'"
        )
    num_rows = right.shape[0]
    if max(int(rows.max()) for rows in samples) >= num_rows:
        raise ValueError(f"expected the rows that the forest was fitted to, got {num_rows}, fewer than it has drawn")
    counts = np.stack([np.bincount(rows, minlength=num_rows) for rows in samples], 1).astype(np.float64)
    trees = np.concatenate([tree.tree_.n_node_samples for tree in forest.estimators_])
    drawn = np.asarray(_scaled(right, (counts > 0).astype(np.float64)).sum(0)).ravel()
    if getattr(forest, "_n_samples", num_rows) != num_rows or (drawn < trees[partition.layout.leaf_nodes]).any():
        raise ValueError("expected the rows that the forest was fitted to, in their order, got others")
    return counts
