"""Criteria against least squares on the rows; evolution, stepwise selection and votes; scikit-learn's checks."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from gpytorch.kernels import RBFKernel
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import KFold, LeaveOneOut, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures

from gpytorch_partition.estimators import (
    BaggedStepwiseSelector,
    ParallelEvolutionSelector,
    PartitionGPRegressor,
    column_selection,
)
from gpytorch_partition.estimators.column_selection import (
    CRITERIA,
    LinearCriterion,
    NegativeScore,
    SubsetCriterion,
    evolved,
    stepwise,
    supported,
)

TRUE = np.array([1, 4, 7])
SUBSETS = np.array(list(product([False, True], repeat=5)))


def toy(seed, num_rows=50, num_columns=10):
    """The tutorial's (section 4.3.3), its columns 2, 5 and 8 counted from zero."""
    random = np.random.RandomState(seed)
    X = random.randn(num_rows, num_columns)
    return X, X[:, TRUE].sum(1) + random.randn(num_rows)


X, Y = toy(0)


class TestLinearCriterion:
    x = X[:, :5] * [1.0, 100.0, 0.01, 3.0, 1.0] + [5.0, 300.0, 0.0, 0.0, -1.0]

    def expected(self, mask, name):
        """From least squares on the rows, a refit for each row that is left out."""
        design = np.column_stack([np.ones(50), self.x[:, mask]])
        y = (Y - Y.mean()) / Y.std()
        residual = y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
        k, rss = design.shape[1], residual @ residual
        if name == "loo":
            model = LinearRegression()
            scores = cross_val_score(model, design, y, cv=LeaveOneOut(), scoring="neg_mean_squared_error")
            return -scores.mean()
        penalties = {"aic": 50 * np.log(rss / 50) + 2 * k, "bic": 50 * np.log(rss / 50) + k * np.log(50)}
        return penalties[name] if name in penalties else 50 * rss / (50 - k) ** 2

    @pytest.mark.parametrize("name", CRITERIA)
    def test_it_is_that_of_least_squares(self, name):
        masks = SUBSETS[:: 5 if name == "loo" else 1]
        values = LinearCriterion(self.x, Y, name)(masks)
        np.testing.assert_allclose(values, [self.expected(mask, name) for mask in masks], rtol=1e-6)

    @pytest.mark.parametrize("name", CRITERIA)
    def test_blocks_of_subsets_do_not_change_it(self, name, monkeypatch):
        whole = LinearCriterion(self.x, Y, name)(SUBSETS)
        monkeypatch.setattr(column_selection, "_BLOCK_NUMEL", 3 * 5**2)
        np.testing.assert_allclose(LinearCriterion(self.x, Y, name)(SUBSETS), whole)

    @pytest.mark.parametrize("name", CRITERIA)
    def test_copies_and_constants_bring_nothing(self, name):
        wider = np.column_stack([self.x, self.x[:, 0], np.full(50, 7.0)])
        criterion = LinearCriterion(wider, Y, name)
        alone, both, constant = criterion(np.eye(7, dtype=bool)[[0]] | np.eye(7, dtype=bool)[[0, 5, 6]])
        assert np.isfinite([alone, both, constant]).all()
        assert alone <= min(both, constant) + 1e-6

    def test_as_many_coefficients_as_rows_are_worth_infinity(self):
        criterion = LinearCriterion(X[:5], Y[:5], "aic")
        values = criterion(np.arange(10) < np.arange(6)[:, None])
        assert np.isfinite(values[:4]).all()
        assert np.isinf(values[4:]).all()


def test_an_estimators_criterion_is_its_cross_validated_score():
    score = NegativeScore(X, Y, LinearRegression(), "neg_mean_absolute_error", 4)
    criterion = SubsetCriterion(X, Y, score)
    mask = np.arange(10) % 3 == 1
    expected = cross_val_score(LinearRegression(), X[:, mask], Y, cv=4, scoring="neg_mean_absolute_error").mean()
    np.testing.assert_allclose(criterion(np.array([mask, mask, ~mask | mask]))[:2], -expected)
    assert criterion(np.zeros((1, 10), bool))[0] == np.inf


@pytest.mark.parametrize("cv", [KFold(3, shuffle=True), KFold(3).split(X)], ids=["shuffled", "a generator"])
def test_all_subsets_are_compared_on_the_same_folds(cv):
    twice = X[:, :1].repeat(2, 1)
    criterion = SubsetCriterion(twice, Y, NegativeScore(twice, Y, LinearRegression(), None, cv))
    first, second = criterion(np.eye(2, dtype=bool))
    assert first == second


class TestEvolution:
    def options(self, **changes):
        options = {"population_size": 20, "num_generations": 40, "mutation_rate": 0.1, "share": 0.5}
        return {**options, "random": np.random.RandomState(0), **changes}

    def test_a_long_one_finds_the_best_of_all_subsets(self):
        criterion = LinearCriterion(X, Y, "aic")
        everything = np.array(list(product([False, True], repeat=10)))
        best = everything[np.argmin(criterion(everything))]
        np.testing.assert_array_equal(evolved(criterion, 10, **self.options())[0], best)

    def test_values_never_get_worse(self):
        criterion = LinearCriterion(X, Y, "aic")
        best = [criterion(evolved(criterion, 10, **self.options(num_generations=n))[:1])[0] for n in range(0, 12, 3)]
        assert sorted(best, reverse=True) == best
        assert best[-1] < best[0]

    def test_a_stepwise_end_has_no_better_neighbor(self):
        criterion = LinearCriterion(X, Y, "aic")
        found = stepwise(criterion, 10)
        assert (criterion(found ^ np.eye(10, dtype=bool)) >= criterion(found[None])[0]).all()


class TestVotes:
    def test_short_evolution_finds_the_true_columns_more_often_than_the_criterion_and_bagging(self):
        everything = np.array(list(product([False, True], repeat=10)))
        found = {"evolution": 0, "bagging": 0, "aic": 0}
        for seed in range(15):
            x, y = toy(seed)
            best = everything[np.argmin(LinearCriterion(x, y, "aic")(everything))]
            selectors = {
                "evolution": ParallelEvolutionSelector(n_universes=20, random_state=seed).fit(x, y).support_,
                "bagging": BaggedStepwiseSelector(n_samples=20, random_state=seed).fit(x, y).support_,
                "aic": best,
            }
            for name, support in selectors.items():
                found[name] += np.array_equal(np.flatnonzero(support), TRUE)
        assert found["evolution"] > found["bagging"] > found["aic"]

    def test_importances_are_mean_votes(self):
        best = ParallelEvolutionSelector(n_universes=7, votes="best", random_state=0).fit(X, Y)
        assert best.votes_.shape == (7, 10)
        assert set(np.unique(best.votes_)) <= {0.0, 1.0}
        np.testing.assert_allclose(best.importances_, best.votes_.mean(0))
        population = ParallelEvolutionSelector(n_universes=7, random_state=0).fit(X, Y)
        np.testing.assert_allclose(population.votes_ * 20, (population.votes_ * 20).round(), atol=1e-9)

    def test_thresholds(self):
        shares = np.array([0.1, 0.95, 0.3, 0.9, 0.0])
        np.testing.assert_array_equal(supported(shares, "gap"), [False, True, False, True, False])
        np.testing.assert_array_equal(supported(shares, "mean"), shares > 0.45)
        np.testing.assert_array_equal(supported(shares, 0.2), [False, True, True, True, False])
        assert supported(np.full(3, 0.4), "gap").all()
        assert supported(np.array([0.4]), "gap").all()

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "selector", [ParallelEvolutionSelector(n_universes=4), BaggedStepwiseSelector(n_samples=4)]
    )
    def test_the_number_of_jobs_changes_nothing(self, selector):
        first, again = (clone(selector).set_params(random_state=3, n_jobs=jobs).fit(X, Y) for jobs in (None, 2))
        np.testing.assert_array_equal(first.votes_, again.votes_)

    def test_more_columns_than_rows(self):
        x, y = toy(1, num_rows=30, num_columns=80)
        selector = ParallelEvolutionSelector("bic", n_universes=10, random_state=0).fit(x, y)
        assert 0 < selector.support_.sum() < 80


class TestScikitLearn:
    def test_classes_by_an_estimator(self):
        labels = np.where(X[:, 2] - X[:, 6] > 0, "yes", "no")
        selector = ParallelEvolutionSelector(n_universes=2, population_size=8, estimator=LogisticRegression(), cv=3)
        assert set(selector.set_params(random_state=0).fit(X, labels).get_support(indices=True)) >= {2, 6}


class TestAnyObjective:
    def test_a_function_of_the_columns_is_minimized(self):
        def aic(columns, y):
            residual = y - LinearRegression().fit(columns, y).predict(columns)
            return len(y) * np.log(np.mean(residual**2)) + 2 * (columns.shape[1] + 1)

        found, expected = (
            ParallelEvolutionSelector(criterion, n_universes=5, random_state=0).fit(X, Y) for criterion in (aic, "aic")
        )
        np.testing.assert_array_equal(found.votes_, expected.votes_)

    def test_its_targets_may_be_classes_and_its_value_an_array_of_one_number(self):
        def overlap(columns, labels):
            return np.asarray(-np.abs(columns[labels == "high"].mean(0) - columns[labels == "low"].mean(0)).sum())

        labels = np.where(Y > 0, "high", "low")
        selector = ParallelEvolutionSelector(overlap, n_universes=5, random_state=0).fit(X, labels)
        expected = ParallelEvolutionSelector(lambda columns, y: float(overlap(columns, labels)), n_universes=5)
        np.testing.assert_array_equal(selector.votes_, expected.set_params(random_state=0).fit(X, Y).votes_)

    def test_infinity_rules_subsets_out(self):
        selector = ParallelEvolutionSelector(
            lambda columns, y: -columns.shape[1] if columns.shape[1] < 3 else np.inf,
            votes="best",
            n_universes=5,
            random_state=0,
        )
        assert set(selector.fit(X, Y).votes_.sum(1)) == {2.0}

    def test_infinity_for_all_subsets_chooses_nothing(self):
        with pytest.raises(ValueError, match="expected a finite criterion of some subset, got inf for all"):
            ParallelEvolutionSelector(lambda columns, y: np.inf, n_universes=2, random_state=0).fit(X, Y)

    @pytest.mark.parametrize("value", [np.nan, None, "a", np.zeros(1)], ids=str)
    def test_values_that_are_no_numbers(self, value):
        with pytest.raises(ValueError, match=r"expected criterion to return a number, got .* for columns \["):
            ParallelEvolutionSelector(lambda columns, y: value, random_state=0).fit(X, Y)


class TestColumnsOfASmoothKernel:
    """A sum of a wave and a product: the first is invisible to linear regression."""

    random = np.random.RandomState(0)
    x = random.rand(160, 8)
    y = 4 * np.cos(6 * x[:, 1]) + 3 * x[:, 4] * x[:, 6] + 0.2 * random.randn(160)

    @pytest.mark.filterwarnings("ignore:the model is trained by L-BFGS")
    def test_an_estimator_sees_what_a_line_does_not(self):
        quadratic = make_pipeline(PolynomialFeatures(2), LinearRegression())
        selector = ParallelEvolutionSelector(
            n_universes=4, estimator=quadratic, cv=3, random_state=0, population_size=12
        ).fit(self.x, self.y)
        np.testing.assert_array_equal(selector.get_support(indices=True), [1, 4, 6])
        errors = {}
        for name, columns in (("chosen", tuple(selector.get_support(indices=True))), ("all", tuple(range(8)))):
            model = PartitionGPRegressor(lambda x, y, kept=columns: RBFKernel(active_dims=kept), max_iterations=30)
            model.fit(self.x[:80], self.y[:80])
            errors[name] = np.mean((model.predict(self.x[80:]) - self.y[80:]) ** 2)
        assert errors["chosen"] < 0.7 * errors["all"]
