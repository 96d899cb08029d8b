"""Ensembles that select columns: evolution in parallel universes, and stepwise selection on bootstrap samples."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from numbers import Integral, Real
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import BaseEstimator
from sklearn.feature_selection import SelectorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from gpytorch_partition.all_or_nothing import all_or_nothing
from gpytorch_partition.estimators.regressor import check_magnitudes
from gpytorch_partition.estimators.subset_criteria import CRITERIA, EstimatorCriterion, LinearCriterion, standardized
from gpytorch_partition.inputs.numbers import random_state_of

VOTES = ("best", "population")
_RULES = ("gap", "mean")

Criterion = Callable[[np.ndarray], np.ndarray]


class _VotingSelector(SelectorMixin, BaseEstimator):
    """Base of selectors: members of an ensemble vote for columns; those with the most votes are selected."""

    @all_or_nothing
    def fit(self, X: Any, y: Any) -> Any:
        """
        Choose columns.

        :param X: `N x D` rows, finite, at least three.
        :param y: `N` targets that vary: numbers, or what the estimator takes.
        :return: The selector itself.
        :raises ValueError: If the data or a parameter cannot be used.
        :raises TypeError: If X is sparse.
        """
        self._check_parameters()
        numeric = getattr(self, "estimator", None) is None
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=numeric, ensure_min_samples=3)
        check_magnitudes(X, "X")
        if numeric:
            check_magnitudes(y := _numbers(y), "y")
        _check_variation(y)
        seeds = random_state_of(self.random_state).randint(2**31, size=self._num_members)
        vote = self._voter(X, y)
        self.votes_ = np.array(Parallel(n_jobs=self.n_jobs)(delayed(vote)(seed) for seed in seeds), dtype=float)
        self.importances_ = self.votes_.mean(0)
        self.support_ = supported(self.importances_, self.threshold)
        return self

    @abstractmethod
    def _voter(self, X: np.ndarray, y: np.ndarray) -> Callable[[int], np.ndarray]:
        """Return the function from a member's seed to its votes, `D` numbers from 0 to 1."""

    @abstractmethod
    def _check_parameters(self) -> None: ...

    @property
    @abstractmethod
    def _num_members(self) -> int: ...

    def _get_support_mask(self) -> np.ndarray:
        check_is_fitted(self, "support_")
        return self.support_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


class ParallelEvolutionSelector(_VotingSelector):
    r"""
    A selector of columns by Darwinian evolution in parallel universes (Zhu & Chipman 2006; Zhu 2008, section 4.3).

    Use it to select columns of a linear model, where one best subset is not reliable.

    In each universe a genetic algorithm minimizes a criterion such as the AIC over subsets of the columns, for a few
    generations only; then the universes vote. Subsets with all columns that matter are far better than others and
    prevail soon. In a short evolution their other columns are random and get few votes. The best subset by the
    criterion itself has some of these columns.

    A universe begins with random subsets. In every generation the better half survives. Pairs of survivors have
    children that take each column's gene from either parent (uniform crossover) and flip it with the probability of a
    mutation. The sources leave crossover and mutation open; these are Goldberg's (1989).

    A universe costs `(1 + n_generations / 2) * population_size` values of the criterion, each at most :math:`O(D^3)`
    for linear regression, for any number of rows
    (:class:`~gpytorch_partition.estimators.subset_criteria.LinearCriterion`).

    For the columns of a kernel: `RBFKernel(active_dims=selector.get_support(indices=True))`. For columns with nonlinear
    effects, give an `estimator` that can find them.

    :param criterion: Criterion of linear regression: `"aic"`, `"bic"`, `"gcv"`, or `"loo"`, the leave-one-out error.
        Ignored with an `estimator`. (Default: `"aic"`.)
    :param n_universes: Number of universes, whose votes are averaged. (Default: 50.)
    :param population_size: Subsets alive in a universe, at least 4. (Default: None, 2 D, 20 at least.)
    :param n_generations: Generations; with many, all universes end at the same best subset. The tutorial has 6 for an
        unknown population; here 4 find the true columns of simulated problems more often. (Default: 4.)
    :param mutation_rate: Probability to flip a gene of a child. (Default: None, 1 / D.)
    :param votes: Voters of a universe: `"best"`, its best subset (2008), or `"population"`, all its last subsets
        (2006), which finds the true columns more often here. (Default: `"population"`.)
    :param threshold: `"gap"`, the columns above the largest gap in the sorted importances; `"mean"`, those above the
        mean importance (Xin & Zhu 2012); or a share of the votes that they must exceed, such as .5. The first two
        select a column even where none matters. (Default: `"gap"`.)
    :param estimator: An estimator of scikit-learn whose cross-validated score is maximized instead. (Default: None.)
    :param scoring: Scorer of the estimator, by name or as a function. (Default: None, its `score`.)
    :param cv: Folds for the estimator, as in scikit-learn, split once: all subsets are compared on the same ones.
        (Default: None, five.)
    :param random_state: Seed, as in scikit-learn. It does not seed a random `estimator` or `cv`.
    :param n_jobs: Universes evolved at once, as joblib counts them. (Default: None, one.)

    Parameters are checked by :meth:`fit`, not here, as in scikit-learn.

    Fitted attributes:

    - `importances_`: `D` shares of the votes.
    - `votes_`: `n_universes x D` votes of the universes.
    - `support_`: `D` booleans, as :meth:`get_support` returns them.
    - `n_features_in_`, `feature_names_in_`: as in scikit-learn.

    Example:
        >>> random = np.random.RandomState(0)
        >>> X = random.randn(50, 10)
        >>> y = X[:, [1, 4, 7]].sum(1) + random.randn(50)
        >>> selector = ParallelEvolutionSelector(random_state=0).fit(X, y)
        >>> selector.get_support(indices=True)
        array([1, 4, 7])
        >>> selector.transform(X).shape
        (50, 3)
    """

    def __init__(
        self,
        criterion: str = "aic",
        n_universes: int = 50,
        *,
        population_size: int | None = None,
        n_generations: int = 4,
        mutation_rate: float | None = None,
        votes: str = "population",
        threshold: str | float = "gap",
        estimator: Any = None,
        scoring: Any = None,
        cv: Any = None,
        random_state: int | np.random.RandomState | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.criterion = criterion
        self.n_universes = n_universes
        self.population_size = population_size
        self.n_generations = n_generations
        self.mutation_rate = mutation_rate
        self.votes = votes
        self.threshold = threshold
        self.estimator = estimator
        self.scoring = scoring
        self.cv = cv
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _check_parameters(self) -> None:
        _check_word(self.criterion, "criterion", CRITERIA)
        _check_integer(self.n_universes, "n_universes", 1)
        _check_integer(4 if self.population_size is None else self.population_size, "population_size", 4)
        _check_integer(self.n_generations, "n_generations", 0)
        _check_share(0.0 if self.mutation_rate is None else self.mutation_rate, "mutation_rate")
        _check_word(self.votes, "votes", VOTES)
        _check_threshold(self.threshold)

    @property
    def _num_members(self) -> int:
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
        if self.estimator is None:
            return LinearCriterion(X, y, self.criterion)
        return EstimatorCriterion(X, y, self.estimator, self.scoring, self.cv)


class BaggedStepwiseSelector(_VotingSelector):
    r"""
    A selector of columns by stepwise selection on bootstrap samples, which vote (Breiman 1996; Zhu 2008, 4.3.4).

    Use it as the baseline for :class:`ParallelEvolutionSelector`. Each member begins without columns, and adds or
    removes the one that lowers the criterion of its bootstrap sample most, until none does. A step costs D values of
    the criterion (:class:`~gpytorch_partition.estimators.subset_criteria.LinearCriterion`).

    :param criterion: As in :class:`ParallelEvolutionSelector`. (Default: `"aic"`.)
    :param n_samples: Number of bootstrap samples. (Default: 50.)
    :param threshold: As in :class:`ParallelEvolutionSelector`. (Default: `"gap"`.)
    :param random_state: Seed, as in scikit-learn.
    :param n_jobs: Samples at once, as joblib counts them. (Default: None, one.)

    Parameters are checked by :meth:`fit`; fitted attributes are those of :class:`ParallelEvolutionSelector`.

    Example:
        >>> random = np.random.RandomState(0)
        >>> X = random.randn(50, 10)
        >>> y = X[:, [1, 4, 7]].sum(1) + random.randn(50)
        >>> BaggedStepwiseSelector(random_state=0).fit(X, y).get_support(indices=True)
        array([1, 4, 7])
    """

    def __init__(
        self,
        criterion: str = "aic",
        n_samples: int = 50,
        *,
        threshold: str | float = "gap",
        random_state: int | np.random.RandomState | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.criterion = criterion
        self.n_samples = n_samples
        self.threshold = threshold
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _check_parameters(self) -> None:
        _check_word(self.criterion, "criterion", CRITERIA)
        _check_integer(self.n_samples, "n_samples", 1)
        _check_threshold(self.threshold)

    @property
    def _num_members(self) -> int:
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
    """
    Return the population of one universe after its generations, best first.

    :param criterion: Function from `m x D` booleans to `m` numbers; less is better.
    :param num_columns: D.
    :param population_size: Subsets alive in a generation; the better half of them, rounded up, survives.
    :param num_generations: Number of generations.
    :param mutation_rate: Probability that a child's gene flips.
    :param share: Probability of a column in a first subset.
    :param random: Source of random numbers.
    :return: `population_size x D` booleans.

    Example:
        >>> def distance(masks):  # from the subset of the last two columns
        ...     return (masks != [False, False, True, True]).sum(1)
        >>> options = dict(population_size=8, num_generations=10, mutation_rate=0.2, share=0.5)
        >>> evolved(distance, 4, **options, random=np.random.RandomState(0))[0]
        array([False, False,  True,  True])
    """
    subsets = random.rand(population_size, num_columns) < share
    values = criterion(subsets)
    num_survivors = (population_size + 1) // 2
    for _ in range(num_generations):
        survivors = np.argsort(values, kind="stable")[:num_survivors]
        children = _children(subsets[survivors], population_size - num_survivors, mutation_rate, random)
        subsets = np.concatenate([subsets[survivors], children])
        values = np.concatenate([values[survivors], criterion(children)])
    return subsets[np.argsort(values, kind="stable")]


def _children(parents: np.ndarray, number: int, mutation_rate: float, random: np.random.RandomState) -> np.ndarray:
    mothers = random.randint(len(parents), size=number)
    fathers = (mothers + random.randint(1, len(parents), size=number)) % len(parents)
    shape = (number, parents.shape[1])
    genes = np.where(random.rand(*shape) < 0.5, parents[mothers], parents[fathers])
    return genes ^ (random.rand(*shape) < mutation_rate)


def stepwise(criterion: Criterion, num_columns: int) -> np.ndarray:
    """
    Return the subset (`D` booleans) found from the empty one by best single changes, until none improves it.

    :param criterion: Function from `m x D` booleans to `m` numbers; less is better.
    :param num_columns: D.

    Example:
        >>> stepwise(lambda masks: (masks != [True, False, True]).sum(1), 3)
        array([ True, False,  True])
    """
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
    """
    Return which columns a threshold selects.

    :param importances: `D` shares of the votes.
    :param threshold: `"gap"`, `"mean"` or a share, as in :class:`ParallelEvolutionSelector`.
    :return: `D` booleans; with `"gap"`, all where all are the same.

    Example:
        >>> supported(np.array([0.9, 0.1, 0.6, 0.2]), "gap")
        array([ True, False,  True, False])
    """
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
            f"expected y of numbers, got {y[0]!s}: encode two classes as 0 and 1, "
            "or give ParallelEvolutionSelector a classifier as its estimator"
        ) from None


def _check_variation(y: np.ndarray) -> None:
    """Refuse targets that do not vary: votes would be random."""
    if not (standardized(y.astype(np.float64)).any() if y.dtype.kind in "fiub" else (y != y[0]).any()):
        raise ValueError(f"expected targets that vary, got one value only, {y[0]}: no column can matter to them")


def _check_word(value: Any, name: str, words: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in words:
        raise ValueError(f"expected {name} to be one of {words}, got {value!r}")


def _check_integer(value: Any, name: str, least: int) -> None:
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise ValueError(f"expected {name} to be an integer of at least {least}, got {value!r}")


def _check_share(value: Any, name: str) -> None:
    if not isinstance(value, Real) or isinstance(value, bool) or not 0 <= float(value) <= 1:
        raise ValueError(f"expected {name} to be a number from 0 to 1, got {value!r}")


def _check_threshold(value: Any) -> None:
    if not (isinstance(value, str) and value in _RULES):
        if isinstance(value, str):
            raise ValueError(f"expected threshold to be one of {_RULES} or a number from 0 to 1, got {value!r}")
        _check_share(value, "threshold")
