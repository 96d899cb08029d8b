"""A ranker for a rare class, by kernels on its rows with locally adjusted widths: `LAGORanker`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.spatial.distance import cdist
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import average_precision_score
from sklearn.neighbors import NearestNeighbors
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted

from gpytorch_partition.all_or_nothing import all_or_nothing, on_one_fit
from gpytorch_partition.estimators.checks import check_magnitudes, check_word
from gpytorch_partition.estimators.reading import ReadsNumbers
from gpytorch_partition.inputs.standardization import Standardization
from gpytorch_partition.inputs.text_targets import composed
from gpytorch_partition.linalg.parallel import slices

SHAPES = ("spherical", "elliptical")
ALPHAS = tuple(2.0 ** (step / 2) for step in range(10, -9, -1))  # 32 down to 1/16
_BLOCK_NUMEL = 2**18  # distances computed at once (2 MiB): they stay in the cache
_NO_SCORE = -1e30  # stands for the logarithm of zero, which scikit-learn's metrics refuse


class _LeftOut(NamedTuple):
    """Changes of the kernels when a row is left out: its own is removed, and those it is a neighbor of are wider."""

    gone: np.ndarray  # `N`: the kernel without which a row is scored
    rows: np.ndarray  # the neighbors, sorted, with their kernels and new squared distances
    kernels: np.ndarray
    squares: np.ndarray

    def applied(self, squares: np.ndarray, block: slice) -> np.ndarray:
        some = slice(*np.searchsorted(self.rows, [block.start, block.stop]))
        squares[self.rows[some] - block.start, self.kernels[some]] = self.squares[some]
        squares[np.arange(len(squares)), self.gone[block]] = np.inf
        return squares


@dataclass(eq=False, repr=False)
class LAGORanker(ReadsNumbers, ClassifierMixin, BaseEstimator):
    r"""
    Rank rare rows ahead of the background (LAGO, the locally adjusted Go-kernel density estimator), by log densities.

    Use it when a few rows in a hundred or a thousand are of interest (active compounds, frauds, defects), to decide
    which new rows to look at first. The score (Zhu 2008, eq. 22) is a density estimate of the `n` rare rows over one of
    the background,

    .. math:: f(x) \propto \sum_{i = 1}^n k(\| R_i^{-1} (x - x_i) \| / \alpha).

    :math:`R_i` is the mean distance to the K neighbors (`"spherical"`, eq. 24), or a diagonal matrix of the mean
    distances in each column (`"elliptical"`, eq. 25; Zhu, Su & Chipman 2006). Where it is zero, the smallest positive
    one of the other rare rows replaces it, or one standard deviation where there is none.

    Columns are standardized inside. K and :math:`\alpha` maximize the average precision of cross-validated scores,
    which also set the `threshold_` of :meth:`predict`: as many training rows are above it as are rare.

    Training takes a neighbor search for the rare rows and :math:`O(N n)` kernel values for each pair of K and
    :math:`\alpha`; scores take :math:`O(n D)` a row.

    :param shape: `"spherical"` or `"elliptical"`. The former is seldom worse where the rare class is small (Zhu 2008,
        4.2.3). (Default: `"spherical"`.)
    :param n_neighbors: K, or several to choose from. Results depend little on it (4.2.4). (Default: 5.)
    :param alpha: Factor of all radii, several to choose from, or `"auto"`: powers of :math:`\sqrt 2` from 1/16 to 32.
        Results depend much on it. (Default: `"auto"`.)
    :param kernel: Function of the scaled distance u: `"gaussian"`, exp(-u^2 / 2); `"triangular"`, 1 - u up to 1;
        `"uniform"`, 1 up to 1. Rows outside all supports of the latter two tie in the last place. (Default:
        `"gaussian"`.)
    :param rare_class: The label to be ranked first. (Default: None, the rarer one; of equally many, the last.)
    :param n_jobs: Threads of the neighbor search. (Default: None, one.)

    Fitted attributes, beside those of scikit-learn: `n_neighbors_`, `alpha_`, the values chosen; `average_precision_`,
    `average_precisions_`, the cross-validated average precision of these, and of each pair (`len(n_neighbors) x
    len(alpha)`, the latter in descending order); `centers_`, `radii_`, `n x D` rare rows and their `n x 1` or `n x D`
    radii, in standard deviations; `rare_class_`, `threshold_`.

    Example:
        >>> random = np.random.RandomState(0)
        >>> X = np.concatenate([random.randn(2000, 2), 0.3 * random.randn(20, 2) + 1.5])
        >>> y = np.repeat(["background", "rare"], [2000, 20])
        >>> model = LAGORanker().fit(X[::2], y[::2])
        >>> best_first = np.argsort(-model.score_samples(X[1::2]))
        >>> bool((y[1::2][best_first[:10]] == "rare").mean() > 10 * 0.01)
        True
    """

    shape: str = "spherical"
    _: KW_ONLY
    n_neighbors: int | Sequence[int] = 5
    alpha: float | Sequence[float] | str = "auto"
    kernel: str = "gaussian"
    rare_class: Any = None
    n_jobs: int | None = None

    @all_or_nothing
    def fit(self, X: Any, y: Any) -> LAGORanker:
        """
        Place the kernels, and choose K and alpha.

        :param X: `N x D` rows, finite, or a table.
        :param y: `N` labels of two classes, with two rows of each at least.
        :raises ValueError: If the data or a parameter cannot be used.
        :raises TypeError: If X is sparse.
        """
        numbers, alphas = self._checked_parameters()
        X, y = self._read_numbers(X, y, reset=True)
        check_magnitudes(X, "X")
        is_rare = self._checked_classes(y)
        X = self._fit_view(X, torch.from_numpy(is_rare.astype(np.float64)))
        self._columns = Standardization.of_columns(X)
        x = self._columns.apply_array(X).numpy()
        self.centers_ = x[is_rare]
        most = int((~is_rare).sum()) - 1
        self._choose(x, is_rare, sorted({min(number, most) for number in numbers}), alphas)
        return self

    @on_one_fit
    def score_samples(self, X: Any) -> np.ndarray:
        """Return the log mean kernel value of each row (`N`), its similarity to the rare class; -1e30 for zero."""
        check_is_fitted(self, "radii_")
        x = self._columns.apply_array(self._read_numbers(X, reset=False)).numpy()
        return self._log_scores(x, self.radii_, [self.alpha_])[0]

    @on_one_fit
    def decision_function(self, X: Any) -> np.ndarray:
        """Return :meth:`score_samples` less the threshold (`N`), above 0 for `classes_[1]`."""
        excess = self.score_samples(X) - self.threshold_
        return excess if self.rare_class_ == self.classes_[1] else -excess

    @on_one_fit
    def predict(self, X: Any) -> np.ndarray:
        """Return labels (`N`): the rare class above `threshold_`, for about as large a share of rows as in training."""
        is_second = self.decision_function(X) > 0
        return self.classes_[is_second.astype(int)]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the average precision of the ranking, for the rare class: 1 where all its rows come first."""
        scores = self.score_samples(X)
        return float(average_precision_score(np.asarray(y) == self.rare_class_, scores, sample_weight=sample_weight))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def _checked_parameters(self) -> tuple[list[int], list[float]]:
        check_word(self.shape, "shape", SHAPES)
        check_word(self.kernel, "kernel", tuple(_KERNELS))
        alpha = ALPHAS if isinstance(self.alpha, str) and self.alpha == "auto" else self.alpha
        numbers = _candidates(self.n_neighbors, "n_neighbors", "positive integers")
        alphas = _candidates(alpha, "alpha", "'auto' or numbers from 1e-100 to 1e+100")
        if any(number != int(number) for number in numbers):
            raise ValueError(f"expected n_neighbors to be positive integers, got {self.n_neighbors!r}")
        return sorted(int(number) for number in numbers), sorted(alphas, reverse=True)

    def _checked_classes(self, y: np.ndarray) -> np.ndarray:
        check_classification_targets(y)
        self.classes_, counts = np.unique(y, return_counts=True)
        if len(self.classes_) > 2:
            target = type_of_target(y, input_name="y", raise_unknown=True)
            raise ValueError(f"Only binary classification is supported. The type of the target is {target}.")
        if len(self.classes_) < 2:
            raise ValueError(f"expected y of two classes, got one class, {self.classes_.tolist()[0]!r}")
        rare = self.classes_[1 - int(np.argmin(counts[::-1]))] if self.rare_class is None else composed(self.rare_class)
        if rare not in self.classes_.tolist():
            raise ValueError(f"expected rare_class to be one of the labels {self.classes_.tolist()}, got {rare!r}")
        self.rare_class_, is_rare = rare, y == rare
        for number, name in ((is_rare.sum(), "rare"), ((~is_rare).sum(), "background")):
            if number < 2:  # cross-validation leaves one out
                raise ValueError(f"expected at least 2 rows of the {name} class, got {number}: give more rows")
        return is_rare

    def _choose(self, x: np.ndarray, is_rare: np.ndarray, numbers: list[int], alphas: list[float]) -> None:
        neighbors, gaps = self._neighbors(x[~is_rare], max(numbers))
        neighbors = np.flatnonzero(~is_rare)[neighbors]
        folds = np.where(is_rare, np.cumsum(is_rare) - 1, np.cumsum(~is_rare) % is_rare.sum())
        self.average_precisions_ = np.empty((len(numbers), len(alphas)))
        self.average_precision_, count = -1.0, int(is_rare.sum())
        for row, number in enumerate(numbers):
            radii = gaps[:, :number].mean(1)
            least = radii.min(0, where=radii > 0, initial=np.inf)
            least = np.where(np.isfinite(least), least, 1.0)
            left_out = _left_out(gaps[:, : number + 1], neighbors[:, :number], folds, least)
            radii = np.where(radii > 0, radii, least)
            scores = self._log_scores(x, radii, alphas, left_out)
            found = [average_precision_score(is_rare, values) for values in scores]
            self.average_precisions_[row] = found
            if max(found) > self.average_precision_:
                best = int(np.argmax(found))
                self.average_precision_, self.n_neighbors_, self.alpha_ = found[best], number, alphas[best]
                above, below = -np.partition(-scores[best], [count - 1, count])[count - 1 : count + 1]
                self.radii_, self.threshold_ = radii, float((above + below) / 2)

    def _neighbors(self, background: np.ndarray, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Return K + 1 neighbors of each rare row, and their distances: `n x (K + 1) x 1` or `D`."""
        search = NearestNeighbors(n_neighbors=number + 1, n_jobs=self.n_jobs).fit(background)
        distances, neighbors = search.kneighbors(self.centers_)
        if self.shape == "spherical":
            return neighbors, distances[:, :, None]
        return neighbors, np.abs(self.centers_[:, None] - background[neighbors])

    def _log_scores(
        self, x: np.ndarray, radii: np.ndarray, alphas: list[float], left_out: _LeftOut | None = None
    ) -> np.ndarray:
        """Return log mean kernel values (`len(alphas) x N`) of all kernels, or of those in training of a fold."""
        scores = np.empty((len(alphas), len(x)))
        log_sum = _KERNELS[self.kernel]
        with np.errstate(divide="ignore", over="ignore"):
            for block in slices(len(x), max(1, _BLOCK_NUMEL // len(radii))):
                squares = scaled_squares(x[block], self.centers_, radii)
                if left_out is not None:
                    squares = left_out.applied(squares, block)
                for values, alpha in zip(scores, alphas):
                    values[block] = log_sum(squares, alpha)
        return np.maximum(scores - np.log(len(radii) - (left_out is not None)), _NO_SCORE)


def scaled_squares(x: np.ndarray, centers: np.ndarray, radii: np.ndarray) -> np.ndarray:
    """Return squared distances (`N x n`) of rows from centers, in units of radii (`n x 1` or `n x D`)."""
    if radii.shape[1] < centers.shape[1] or centers.shape[1] == 1:
        return cdist(x, centers, "sqeuclidean") / radii[:, 0] ** 2
    squares = np.zeros((len(x), len(centers)))
    for column, center, inverse in zip(x.T, centers.T, 1 / radii.T):
        gaps = column[:, None] - center
        gaps *= inverse
        squares += np.square(gaps, out=gaps)
    return squares


def _candidates(value: Any, name: str, expected: str) -> list[float]:
    try:
        numbers = np.atleast_1d(np.asarray(value, dtype=float))
    except (TypeError, ValueError):
        numbers = np.empty(0)
    are_usable = ((numbers >= 1e-100) & (numbers <= 1e100)).all()  # their squares are finite
    if isinstance(value, bool | str) or numbers.ndim != 1 or not len(numbers) or not are_usable:
        raise ValueError(f"expected {name} to be {expected}, one or several, got {value!r}")
    return numbers.tolist()


def _left_out(gaps: np.ndarray, neighbors: np.ndarray, folds: np.ndarray, least: np.ndarray) -> _LeftOut:
    """Return the kernels' changes when the next neighbor replaces each of the neighbors (`n x K` row numbers)."""
    number = neighbors.shape[1]
    own = gaps[:, :number]
    radii = (gaps.sum(1, keepdims=True) - own) / number
    radii = np.where(radii > 1e-12 * least, radii, least)  # a difference of sums may be rounding
    kernels = np.arange(len(gaps)).repeat(number)
    order = np.argsort(neighbors, axis=None, kind="stable")
    return _LeftOut(folds, neighbors.ravel()[order], kernels[order], np.square(own / radii).sum(2).ravel()[order])


def _gaussian(squares: np.ndarray, alpha: float) -> np.ndarray:
    least = np.minimum(squares.min(1), np.finfo(float).max)  # squares may overflow
    terms = least[:, None] - squares
    terms *= 0.5 / alpha**2
    return np.log(np.exp(terms, out=terms).sum(1)) - least * (0.5 / alpha**2)


def _triangular(squares: np.ndarray, alpha: float) -> np.ndarray:
    terms = np.sqrt(squares)
    terms /= -alpha
    terms += 1
    return np.log(np.maximum(terms, 0, out=terms).sum(1))


# Logarithms of the sums of kernel values over the columns of squared distances, in units of alpha.
_KERNELS: dict[str, Callable[[np.ndarray, float], np.ndarray]] = {
    "gaussian": _gaussian,
    "triangular": _triangular,
    "uniform": lambda squares, alpha: np.log((squares <= alpha**2).sum(1)),
}
