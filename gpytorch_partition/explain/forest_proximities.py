"""Proximities of a fitted forest: similarities of rows by shared leaves, in the weightings of the literature."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_matrix, diags_array, vstack

from gpytorch_partition.inputs.numbers import checked_count
from gpytorch_partition.inputs.training_rows import encode_missing
from gpytorch_partition.linalg.parallel import slices
from gpytorch_partition.partitions.forest import ForestPartition

WEIGHTINGS = ("leaf", "oob", "gap", "kerf")

_ENTRIES = 2**24  # products of leaves held at once: 200 MiB
_LEAST_SHARE = 1e-12


@dataclass(frozen=True, eq=False)
class Proximities:
    r"""
    Hold the proximities :math:`P = Q R^\top` (`N2 x N`) of rows to the training rows of a forest, as sparse factors.

    Use it, the result of :func:`proximities`, to find near rows, outliers and prototypes, or to fill missing cells.
    With `"oob"` an entry is divided by the number of trees that have seen neither row.

    Example:
        >>> from sklearn.ensemble import RandomForestRegressor
        >>> X = np.linspace(0, 1, 50)[:, None]
        >>> forest = RandomForestRegressor(100, oob_score=True, random_state=0).fit(X, X[:, 0])
        >>> bool(np.allclose(proximities(forest, X, weighting="gap") @ X[:, 0], forest.oob_prediction_))
        True
    """

    left: csr_matrix  # Q, N2 x p for p leaves
    right: csr_matrix  # R, N x p
    is_unseen: tuple[csr_matrix, csr_matrix] | None = None  # of "oob": whether a tree has not seen a row, `N2 x m`
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

        A training row is not its own neighbor. Of ties the first rows are taken. Costs the entries of :meth:`matrix`,
        of which blocks are held.

        :param k: Number of rows. (Default: 5.)
        :raises ValueError: If k is not from 1 to the number of other training rows.
        """
        if checked_count(k, "rows", "k") > self.shape[1] - self.is_of_training:
            raise ValueError(f"expected k below the number of training rows, {self.shape[1]}, got {k}")
        rows = (block[row] for block in self._blocks(without_own=True) for row in range(block.shape[0]))
        found = [_nearest(row, k, own if self.is_of_training else None) for own, row in enumerate(rows)]
        columns, values = ([pair[part] for pair in found] for part in (0, 1))
        return np.array(columns, dtype=np.int64).reshape(-1, k), np.array(values).reshape(-1, k)

    def outlier_scores(self, classes: Any = None) -> np.ndarray:
        r"""
        Return how isolated each training row is among those of its class (`N`; Breiman & Cutler 2004).

        It is :math:`N / \sum_j p_{ij}^2` over other rows j of the class, less its median in the class, over the mean
        absolute difference from it there. Above 10 a row may be called an outlier.

        Costs the entries of :meth:`matrix`, of which blocks are held.

        :param classes: `N` classes. (Default: None, all rows are of one.)
        :raises ValueError: If there is not a class for each row, or the rows are new ones.
        """
        self._check_training("outlier scores")
        labels = np.zeros(self.shape[1], int) if classes is None else np.unique(classes, return_inverse=True)[1]
        if labels.shape != (self.shape[1],):
            raise ValueError(f"expected a class for each of {self.shape[1]} training rows, got {labels.shape}")
        of_class = csr_matrix((np.ones(len(labels)), (np.arange(len(labels)), labels)))
        squares = np.concatenate([block.power(2) @ of_class.toarray() for block in self._blocks(without_own=True)])
        raw = len(labels) / np.maximum(squares[np.arange(len(labels)), labels], _LEAST_SHARE)
        scores = np.empty(len(labels))
        for label in range(labels.max() + 1):
            own = labels == label
            middle = np.median(raw[own])
            spread = np.abs(raw[own] - middle).mean()
            scores[own] = (raw[own] - middle) / (spread or 1.0)
        return scores

    def prototypes(self, X: Any, classes: Any, k: int = 10) -> dict[Any, np.ndarray]:
        """
        Return a typical row of each class, by class: medians of columns (`D`; Breiman & Cutler 2004).

        They are those of the rows of the class among the k nearest of the training row with the most such neighbors.

        :param X: `N x D` training rows, of numbers.
        :param classes: `N` classes.
        :param k: Number of nearest rows. (Default: 10.)
        :raises ValueError: If the rows are new ones, or k is too large.
        """
        self._check_training("prototypes")
        X, labels, neighbors = np.asarray(X, dtype=np.float64), np.asarray(classes), self.nearest(k)[0]
        found = {}
        for label in np.unique(labels).tolist():
            is_own = labels[neighbors] == label
            center = int(is_own.sum(1).argmax())
            found[label] = np.nanmedian(X[neighbors[center][is_own[center]]], 0)
        return found

    def imputed(self, X: Any) -> np.ndarray:
        """
        Return the rows (`N x D`) with missing cells (NaN) filled by means of the rows that have them, by proximity.

        A cell whose row has no proximity to any such row gets the column's mean.

        :param X: `N x D` training rows, of numbers, which the forest must have accepted.
        :raises ValueError: If the rows are new ones.
        """
        self._check_training("imputed rows")
        X = np.asarray(X, dtype=np.float64)
        is_known = ~np.isnan(X)
        total, weight = self @ np.where(is_known, X, 0.0), self @ is_known.astype(float)
        means = np.nanmean(X, 0)
        filled = np.where(weight > _LEAST_SHARE, total / np.maximum(weight, _LEAST_SHARE), means)
        return np.where(is_known, X, filled)

    def _check_training(self, told: str) -> None:
        if not self.is_of_training:
            raise ValueError(f"expected proximities of training rows for {told}, got those of new rows")

    def _blocks(self, without_own: bool = False) -> Iterator[csr_matrix]:
        for rows in slices(self.shape[0], max(1, _ENTRIES // max(1, self.shape[1]))):
            block = csr_matrix(self.left[rows] @ self.right.T)
            if self.is_unseen is not None:
                counts = (self.is_unseen[0][rows] @ self.is_unseen[1].T).multiply(block > 0).tocsr()
                counts.data = 1 / counts.data
                block = csr_matrix(block.multiply(counts))
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
    - `"kerf"`: the same divided by its sum over training rows, the weights of kernel random forests (Scornet 2016).
    - `"oob"`: the share among trees that have seen neither row (Breiman & Cutler 2004), 0 where there is none; new rows
      no tree has seen.
    - `"gap"`: over the trees that have not seen the first row, the share of the second in the leaf's training rows
      (Rhodes, Cutler & Moon 2023). Weighted means of targets are the forest's out-of-bag predictions, and its
      predictions for new rows.

    `"oob"` and `"gap"` need scikit-learn's forests, grown on bootstrap samples (`bootstrap=True`). Factors take
    :math:`O(N m)` time and memory for m trees, as products do (but for `"oob"`). Matrices take a number for each pair
    of rows that share a leaf.

    :param forest: A fitted ensemble, as :class:`~gpytorch_partition.partitions.ForestPartition` reads it.
    :param X: The `N x D` rows that it was fitted to, in the same order.
    :param new_X: `N2 x D` other rows. (Default: None, the training rows themselves.)
    :param weighting: `"leaf"`, `"oob"`, `"gap"` or `"kerf"`. (Default: `"leaf"`.)
    :raises ValueError: If the weighting is unknown, the rows are not those of the forest, or all trees have seen a row
        whose `"gap"` is asked for.
    :raises TypeError: If the forest has no bootstrap samples, and the weighting needs them.
    """
    if weighting not in WEIGHTINGS:
        raise ValueError(f"expected weighting to be one of {WEIGHTINGS}, got {weighting!r}")
    partition, is_of_training = ForestPartition(forest), new_X is None
    counts = _bootstrap_counts(forest, len(X)) if weighting in ("oob", "gap") else None
    right = _incidence(partition, X)
    left = right if is_of_training else _incidence(partition, new_X)
    if counts is None:
        factors = _of_leaves(left, right, partition.weights.numpy(), is_normalized=weighting == "kerf")
        return Proximities(*factors, is_of_training=is_of_training)
    unseen = (counts == 0).astype(np.float64)
    unseen_left = unseen if is_of_training else np.ones((left.shape[0], partition.num_partitions))
    if weighting == "gap":
        return Proximities(*_gap(left, right, unseen_left, counts), is_of_training=is_of_training)
    of_trees = csr_matrix(unseen_left), csr_matrix(unseen)
    return Proximities(_scaled(left, unseen_left), _scaled(right, unseen), of_trees, is_of_training)


def _of_leaves(
    left: csr_matrix, right: csr_matrix, weights: np.ndarray, *, is_normalized: bool
) -> tuple[csr_matrix, csr_matrix]:
    left = _scaled(left, np.tile(weights / len(weights), (left.shape[0], 1)))
    if is_normalized:
        left = diags_array(1 / (left @ (right.T @ np.ones(right.shape[0])))) @ left
    return csr_matrix(left), right


def _gap(left: csr_matrix, right: csr_matrix, unseen: np.ndarray, counts: np.ndarray) -> tuple[csr_matrix, csr_matrix]:
    """Return the factors of GAP, by whether trees have not seen a row (`n x m`), and how often drawn one (`N x m`)."""
    number = unseen.sum(1, keepdims=True)
    if not number.all():
        raise ValueError(
            f"expected trees that have not seen row {int(number.argmin())}, got none among {unseen.shape[1]}: grow "
            'more trees, or give weighting="leaf"'
        )
    drawn = _scaled(right, counts)
    of_leaves = np.maximum(np.asarray(drawn.sum(0)).ravel(), 1.0)
    return _scaled(left, unseen / number), csr_matrix(drawn @ diags_array(1 / of_leaves))


def _nearest(row: csr_matrix, k: int, own: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the columns of the k largest entries of a row but its own, and these; of ties the first ones."""
    columns, values = row.indices, row.data
    if len(columns) < k:
        values = row.toarray().ravel()
        columns = np.delete(np.arange(row.shape[1]), [] if own is None else own)
        values = values[columns]
    order = np.lexsort([columns, -values])[:k]
    return columns[order], values[order]


def _incidence(partition: ForestPartition, X: Any) -> csr_matrix:
    """Return which leaf of each tree a row is in (`n x p` zeros and ones, a number for each tree in order)."""
    x = encode_missing(torch.from_numpy(np.ascontiguousarray(X, dtype=np.float64)))
    rows, _ = partition.incidences(x, x)
    columns, ends = rows.codes.numpy().ravel(), np.arange(rows.num_rows + 1) * rows.num_partitions
    return csr_matrix((np.ones(columns.size), columns, ends), shape=(rows.num_rows, rows.num_clusters))


def _scaled(incidence: csr_matrix, weights: np.ndarray) -> csr_matrix:
    """Return an incidence whose entries are weights (`n x m`) of the trees."""
    entries = weights.ravel(), incidence.indices, incidence.indptr
    found = csr_matrix(entries, shape=incidence.shape, copy=True)  # zeros leave in place
    found.eliminate_zeros()
    return found


def _bootstrap_counts(forest: Any, num_rows: int) -> np.ndarray:
    """Return how often each tree has drawn each training row (`N x m`)."""
    samples = getattr(forest, "estimators_samples_", None) if getattr(forest, "bootstrap", False) else None
    if samples is None:
        raise TypeError(
            "expected a forest of scikit-learn with bootstrap=True, whose trees leave rows out, got a "
            f'{type(forest).__name__}: give weighting="leaf" or "kerf"'
        )
    if max(int(rows.max()) for rows in samples) >= num_rows:
        raise ValueError(f"expected the rows that the forest was fitted to, got {num_rows}, fewer than it has drawn")
    return np.stack([np.bincount(rows, minlength=num_rows) for rows in samples], 1).astype(np.float64)
