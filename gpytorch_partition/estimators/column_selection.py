"""Ensembles that select columns by evolution in parallel universes, or stepwise, and the criteria for subsets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
import torch
from joblib import Parallel, delayed
from scipy.linalg import solve_triangular
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.feature_selection import SelectorMixin
from sklearn.model_selection import check_cv, cross_val_score
from sklearn.utils.validation import check_is_fitted, validate_data

from gpytorch_partition.all_or_nothing import all_or_nothing
from gpytorch_partition.estimators.checks import check_count, check_magnitudes, check_share, check_word
from gpytorch_partition.inputs.numbers import random_state_of
from gpytorch_partition.linalg.factors import stable_cholesky

VOTES = ("best", "population")
_RULES = ("gap", "mean")

Criterion = Callable[[np.ndarray], np.ndarray]
_BLOCK_NUMEL = 2**22  # numbers in the matrices solved at once (32 MiB)
_JITTER = 1e-9  # on the diagonal of the correlations: columns may be copies of each other
_LEAST_RESIDUAL = 1e-8  # relative residual sums of squares below are rounding
# Functions of the mean squared residual, the number of rows n and of coefficients k (the intercept is one).
_FORMULAS: dict[str, Callable[..., np.ndarray]] = {
    "aic": lambda residual, n, k: n * np.log(residual) + 2 * k,
    "bic": lambda residual, n, k: n * np.log(residual) + np.log(n) * k,
    "gcv": lambda residual, n, k: residual / (1 - k / n) ** 2,
}
CRITERIA = (*_FORMULAS, "loo")


class _VotingSelector(SelectorMixin, BaseEstimator):
    """Base of selectors: members of an ensemble vote for columns; those with the most votes are selected."""

    @all_or_nothing
    def fit(self, X: Any, y: Any) -> Any:
        """
        Choose columns.

        :param X: `N x D` rows, finite, at least three.
        :param y: `N` targets that vary: numbers, or what the estimator or the function of columns takes.
        :raises ValueError: If the data or a parameter cannot be used.
        :raises TypeError: If X is sparse.
        """
        num_members = self._checked_parameters()
        numeric = isinstance(self.criterion, str) and getattr(self, "estimator", None) is None
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=numeric, ensure_min_samples=3)
        check_magnitudes(X, "X")
        if numeric:
            check_magnitudes(y := _numbers(y), "y")
        _check_variation(y)
        seeds = random_state_of(self.random_state).randint(2**31, size=num_members)
        vote = self._voter(X, y)
        self.votes_ = np.array(Parallel(n_jobs=self.n_jobs)(delayed(vote)(seed) for seed in seeds), dtype=float)
        self.importances_ = self.votes_.mean(0)
        self.support_ = supported(self.importances_, self.threshold)
        return self

    _voter: Callable[..., Callable[[int], np.ndarray]]  # from X and y, the function from a member's seed to its votes
    _checked_parameters: Callable[[], int]  # refuses parameters, and returns the number of members

    def _get_support_mask(self) -> np.ndarray:
        check_is_fitted(self, "support_")
        return self.support_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


@dataclass(eq=False, repr=False)
class ParallelEvolutionSelector(_VotingSelector):
    """
    Select columns by Darwinian evolution in parallel universes, which vote (Zhu & Chipman 2006; Zhu 2008, section 4.3).

    Use it to select columns of a linear model, where one best subset is not reliable. For columns with nonlinear
    effects, give an `estimator` that can find them; for those of a kernel:
    `RBFKernel(active_dims=selector.get_support(indices=True))`.

    In each universe a genetic algorithm (uniform crossover and mutation; Goldberg 1989) minimizes a criterion over
    random subsets of the columns, for a few generations only. Columns that matter prevail soon; the other columns of a
    short evolution are random and get few votes. A universe costs `(1 + n_generations / 2) * population_size` values
    of the criterion, each at most :math:`O(D^3)` for linear regression, for any number of rows
    (:class:`~gpytorch_partition.estimators.column_selection.LinearCriterion`).

    :param criterion: Criterion of linear regression: `"aic"`, `"bic"`, `"gcv"`, or `"loo"`, the leave-one-out error. Or
        a function of the columns chosen (`N x k`) and the targets that returns a number, less being better, and
        infinity for subsets to leave out (not for all). Ignored with an `estimator`. (Default: `"aic"`.)
    :param n_universes: Number of universes, whose votes are averaged. (Default: 50.)
    :param population_size: Subsets alive in a universe, at least 4. (Default: None, 2 D, 20 at least.)
    :param n_generations: Generations; with many, all universes end at the same best subset. (Default: 4.)
    :param mutation_rate: Probability to flip a gene of a child. (Default: None, 1 / D.)
    :param votes: Voters of a universe: `"best"`, its best subset (2008), or `"population"`, all its last subsets
        (2006). (Default: `"population"`.)
    :param threshold: `"gap"`, the columns above the largest gap in the sorted importances; `"mean"`, those above the
        mean importance (Xin & Zhu 2012); or a share of the votes that they must exceed. (Default: `"gap"`.)
    :param estimator: An estimator of scikit-learn whose cross-validated score is maximized instead. (Default: None.)
    :param scoring: Scorer of the estimator, by name or as a function. (Default: None, its `score`.)
    :param cv: Folds for the estimator, as in scikit-learn, split once. (Default: None, five.)
    :param random_state: Seed, as in scikit-learn. It does not seed a random `estimator` or `cv`.
    :param n_jobs: Universes evolved at once, as joblib counts them. (Default: None, one.)

    Fitted attributes, beside those of scikit-learn: `importances_`, `D` shares of the votes; `votes_`, those of each
    universe (`n_universes x D`); `support_`, `D` booleans.

    Example:
        >>> random = np.random.RandomState(0)
        >>> X = random.randn(50, 10)
        >>> y = X[:, [1, 4, 7]].sum(1) + random.randn(50)
        >>> selector = ParallelEvolutionSelector(random_state=0).fit(X, y)
        >>> selector.get_support(indices=True)
        array([1, 4, 7])
    """

    criterion: str | Callable[[np.ndarray, np.ndarray], float] = "aic"
    n_universes: int = 50
    _: KW_ONLY
    population_size: int | None = None
    n_generations: int = 4
    mutation_rate: float | None = None
    votes: str = "population"
    threshold: str | float = "gap"
    estimator: Any = None
    scoring: Any = None
    cv: Any = None
    random_state: int | np.random.RandomState | None = None
    n_jobs: int | None = None

    def _checked_parameters(self) -> int:
        if not callable(self.criterion):
            check_word(self.criterion, "criterion", CRITERIA)
        check_count(self.n_universes, "n_universes")
        check_count(4 if self.population_size is None else self.population_size, "population_size", 4)
        check_count(self.n_generations, "n_generations", 0)
        check_share(0.0 if self.mutation_rate is None else self.mutation_rate, "mutation_rate")
        check_word(self.votes, "votes", VOTES)
        _check_threshold(self.threshold)
        return self.n_universes

    def _voter(self, X: np.ndarray, y: np.ndarray) -> Callable[[int], np.ndarray]:
        num_columns = X.shape[1]
        options = {
            "population_size": self.population_size or max(20, 2 * num_columns),
            "num_generations": self.n_generations,
            "mutation_rate": 1 / num_columns if self.mutation_rate is None else self.mutation_rate,
            "share": min(0.5, len(X) / (4 * num_columns)),
        }
        return partial(_universe, self._criterion_of(X, y), num_columns, self.votes, options)

    def _criterion_of(self, X: np.ndarray, y: np.ndarray) -> Criterion:
        if self.estimator is not None:
            return SubsetCriterion(X, y, NegativeScore(X, y, self.estimator, self.scoring, self.cv))
        if isinstance(self.criterion, str):
            return LinearCriterion(X, y, self.criterion)
        return SubsetCriterion(X, y, self.criterion)


@dataclass(eq=False, repr=False)
class BaggedStepwiseSelector(_VotingSelector):
    """
    Select columns by stepwise selection on bootstrap samples, which vote (Breiman 1996; Zhu 2008, 4.3.4).

    Use it as the baseline for :class:`ParallelEvolutionSelector`, whose other parameters and attributes it has. Each
    member begins without columns, and adds or removes the one that lowers the criterion of its bootstrap sample most,
    until none does. A step costs D values of the criterion.

    :param n_samples: Number of bootstrap samples. (Default: 50.)

    Example:
        >>> random = np.random.RandomState(0)
        >>> X = random.randn(50, 10)
        >>> y = X[:, [1, 4, 7]].sum(1) + random.randn(50)
        >>> BaggedStepwiseSelector(random_state=0).fit(X, y).get_support(indices=True)
        array([1, 4, 7])
    """

    criterion: str = "aic"
    n_samples: int = 50
    _: KW_ONLY
    threshold: str | float = "gap"
    random_state: int | np.random.RandomState | None = None
    n_jobs: int | None = None

    def _checked_parameters(self) -> int:
        check_word(self.criterion, "criterion", CRITERIA)
        check_count(self.n_samples, "n_samples")
        _check_threshold(self.threshold)
        return self.n_samples

    def _voter(self, X: np.ndarray, y: np.ndarray) -> Callable[[int], np.ndarray]:
        return partial(_stepwise_of_sample, X, y, self.criterion)


def _universe(criterion: Criterion, num_columns: int, votes: str, options: dict[str, Any], seed: int) -> np.ndarray:
    subsets = evolved(criterion, num_columns, **options, random=np.random.RandomState(seed))
    return subsets[0] if votes == "best" else subsets.mean(0)


def _stepwise_of_sample(X: np.ndarray, y: np.ndarray, criterion: str, seed: int) -> np.ndarray:
    rows = np.random.RandomState(seed).randint(len(X), size=len(X))
    return stepwise(LinearCriterion(X[rows], y[rows], criterion), X.shape[1])


def evolved(
    criterion: Criterion,
    num_columns: int,
    *,
    population_size: int,
    num_generations: int,
    mutation_rate: float,
    share: float,
    random: np.random.RandomState,
) -> np.ndarray:
    """Return the last population of one universe (`population_size x D` booleans), best first."""
    subsets = random.rand(population_size, num_columns) < share
    values = criterion(subsets)
    num_survivors = (population_size + 1) // 2
    for _ in range(num_generations):
        survivors = np.argsort(values, kind="stable")[:num_survivors]
        children = _children(subsets[survivors], population_size - num_survivors, mutation_rate, random)
        subsets = np.concatenate([subsets[survivors], children])
        values = np.concatenate([values[survivors], criterion(children)])
    if not np.isfinite(values.min()):
        raise ValueError(f"expected a finite criterion of some subset, got {values.min()} for all of a population")
    return subsets[np.argsort(values, kind="stable")]


def _children(parents: np.ndarray, number: int, mutation_rate: float, random: np.random.RandomState) -> np.ndarray:
    mothers = random.randint(len(parents), size=number)
    fathers = (mothers + random.randint(1, len(parents), size=number)) % len(parents)
    shape = (number, parents.shape[1])
    genes = np.where(random.rand(*shape) < 0.5, parents[mothers], parents[fathers])
    return genes ^ (random.rand(*shape) < mutation_rate)


def stepwise(criterion: Criterion, num_columns: int) -> np.ndarray:
    """Return the subset (`D` booleans) found from the empty one by best single changes, until none improves it."""
    subset = np.zeros(num_columns, bool)
    value = criterion(subset[None])[0]
    while True:
        neighbors = subset ^ np.eye(num_columns, dtype=bool)
        values = criterion(neighbors)
        best = int(np.argmin(values))
        if values[best] >= value:
            return subset
        subset, value = neighbors[best], values[best]


def supported(importances: np.ndarray, threshold: str | float) -> np.ndarray:
    """Return which columns (`D` booleans) a threshold selects by their shares of votes; `"gap"` takes all if equal."""
    if threshold == "mean":
        return importances > importances.mean()
    if threshold != "gap":
        return importances > threshold
    order = np.sort(importances)
    gaps = np.diff(order)
    if not len(gaps) or gaps.max() <= 1e-12:
        return np.ones(len(importances), bool)
    return importances > order[np.argmax(gaps)]


def _numbers(y: np.ndarray) -> np.ndarray:
    try:
        return y.astype(np.float64)
    except ValueError:
        raise ValueError(
            f"expected y of numbers, got {y[0]!s}: encode two classes as 0 and 1, or give ParallelEvolutionSelector a "
            "classifier as its estimator"
        ) from None


def _check_variation(y: np.ndarray) -> None:
    if not (standardized(y.astype(np.float64)).any() if y.dtype.kind in "fiub" else (y != y[0]).any()):
        raise ValueError(f"expected targets that vary, got one value only, {y[0]}: no column can matter to them")


def _check_threshold(value: Any) -> None:
    if isinstance(value, str):
        check_word(value, "threshold", _RULES)
    else:
        check_share(value, "threshold")


class LinearCriterion:
    r"""
    A criterion of ordinary linear regression, with an intercept, on any subsets of the columns; less is better.

    With the residual sum of squares RSS of n rows and k coefficients, intercept included: `"aic"` is :math:`n \log(RSS
    / n) + 2 k`, `"bic"` :math:`n \log(RSS / n) + k \log n`, `"gcv"` the generalized cross-validation :math:`n\,RSS / (n
    - k)^2`, and `"loo"` the mean squared leave-one-out error. The correlations of the columns take :math:`O(N D^2)`
    once, a subset :math:`O(k^3)`, or :math:`O(N k^2)` with `"loo"`. Subsets with :math:`k \ge n` are infinite.
    """

    def __init__(self, X: np.ndarray, y: np.ndarray, name: str) -> None:
        self.name = name
        x, targets = standardized(X), standardized(y)
        self.num_rows = len(X)
        self.variance = float(np.mean(targets**2))
        self.correlations = x.T @ x / len(X)
        self.covariances = x.T @ targets / len(X)
        self.rows = (x, targets) if name == "loo" else None

    def __call__(self, masks: np.ndarray) -> np.ndarray:
        n, k = self.num_rows, 1 + masks.sum(1)
        values = np.full(len(masks), np.inf)
        few = k < n
        if self.rows is not None:
            values[few] = [self._leave_one_out(*self.rows, mask) for mask in masks[few]]
        else:
            residual = np.maximum(self._residuals(masks[few]), _LEAST_RESIDUAL)
            values[few] = _FORMULAS[self.name](residual, n, k[few])
        return values

    def _residuals(self, masks: np.ndarray) -> np.ndarray:
        size = max(1, _BLOCK_NUMEL // max(1, int(masks.sum(1).max(initial=0))) ** 2)
        parts = [self._residual_block(masks[i : i + size]) for i in range(0, len(masks), size)]
        return np.concatenate([*parts, np.empty(0)])

    def _residual_block(self, masks: np.ndarray) -> np.ndarray:
        """Return RSS / n; subsets are padded to the size of the largest by columns with coefficient 0."""
        columns = np.argsort(~masks, axis=1, kind="stable")[:, : masks.sum(1).max()]
        inside = np.take_along_axis(masks, columns, 1).astype(float)
        matrices = self.correlations[columns[:, :, None], columns[:, None, :]]
        matrices *= inside[:, :, None] * inside[:, None, :]
        diagonal = np.arange(columns.shape[1])
        matrices[:, diagonal, diagonal] += 1 - inside + _JITTER
        covariances = self.covariances[columns] * inside
        coefficients = np.linalg.solve(matrices, covariances[:, :, None])[:, :, 0]
        return self.variance - (covariances * coefficients).sum(1)

    def _leave_one_out(self, x: np.ndarray, y: np.ndarray, mask: np.ndarray) -> float:
        """Return the mean square of the residuals over (1 - leverages)."""
        correlations = self.correlations[np.ix_(mask, mask)] + _JITTER * np.eye(mask.sum())
        factor = stable_cholesky(torch.from_numpy(correlations)).numpy()
        scaled = solve_triangular(factor, x[:, mask].T, lower=True)
        residuals = y - scaled.T @ (scaled @ y) / len(x)
        leverages = (1 + np.square(scaled).sum(0)) / len(x)
        return float(np.mean(np.square(residuals / np.maximum(1 - leverages, _LEAST_RESIDUAL))))


class SubsetCriterion:
    """The values of a function of columns (`N x k`) and targets, infinity without columns; each is computed once."""

    def __init__(self, X: np.ndarray, y: np.ndarray, function: Callable[[np.ndarray, np.ndarray], float]) -> None:
        self.x, self.y, self.function = X, y, function
        self._known: dict[bytes, float] = {}

    def __call__(self, masks: np.ndarray) -> np.ndarray:
        return np.array([self._value(mask) for mask in masks])

    def _value(self, mask: np.ndarray) -> float:
        key = mask.tobytes()
        if key not in self._known:
            value: Any = self.function(self.x[:, mask], self.y) if mask.any() else np.inf
            value = value.item() if getattr(value, "shape", None) == () else value  # an array or a tensor of one number
            if not isinstance(value, Real) or np.isnan(float(value)):
                raise ValueError(
                    f"expected criterion to return a number, got {value!r} for columns "
                    f"{np.flatnonzero(mask).tolist()}: return infinity to leave them out"
                )
            self._known[key] = float(value)
        return self._known[key]


class NegativeScore:
    """Minus the mean cross-validated score of an estimator on some columns, by the same folds for all."""

    def __init__(self, X: np.ndarray, y: np.ndarray, estimator: Any, scoring: Any, cv: Any) -> None:
        folds = list(check_cv(cv, y, classifier=is_classifier(estimator)).split(X, y))
        self.estimator, self.options = clone(estimator), {"scoring": scoring, "cv": folds, "error_score": "raise"}

    def __call__(self, columns: np.ndarray, y: np.ndarray) -> float:
        return -float(cross_val_score(self.estimator, columns, y, **self.options).mean())


def standardized(values: np.ndarray) -> np.ndarray:
    """Return columns with mean 0 and standard deviation 1; columns that are constant up to rounding become 0."""
    centered = values - values.mean(0)
    scale = centered.std(0)
    constant = scale <= 1e-12 * np.abs(values).max(0)
    return np.where(constant, 0.0, centered / np.where(constant, 1.0, scale))
