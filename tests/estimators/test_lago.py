"""LAGO against its formulas, row by row; the cross-validation against refits; scikit-learn's checks; bad input."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.metrics import average_precision_score

from gpytorch_partition.estimators import LAGORanker

RANDOM = np.random.RandomState(0)
X = np.concatenate([RANDOM.randn(150, 3), 0.5 * RANDOM.randn(12, 3) + 1.2]) * [1.0, 40.0, 0.01] + [3.0, 0.0, 7.0]
Y = np.repeat([0, 1], [150, 12])
ORDER = RANDOM.permutation(len(Y))
X, Y = X[ORDER], Y[ORDER]
NEW = X[:30] + 0.2 * RANDOM.randn(30, 3) * X.std(0)
PROFILES = {
    "gaussian": lambda u: np.exp(-(u**2) / 2),
    "triangular": lambda u: np.maximum(1 - u, 0),
    "uniform": lambda u: (u <= 1).astype(float),
}


def standardized(values):
    return (values - X.mean(0)) / X.std(0)


def radii_of(centers, background, number, shape):
    """Equations 24 and 25, as D radii of each center."""
    distances = np.linalg.norm(centers[:, None] - background, axis=2)
    nearest = np.argsort(distances, axis=1)[:, :number]
    if shape == "spherical":
        return np.take_along_axis(distances, nearest, 1).mean(1, keepdims=True) * np.ones(centers.shape[1])
    return np.abs(centers[:, None] - background[nearest]).mean(1)


def mean_kernel(point, centers, background, number, shape, alpha, kernel):
    radii = radii_of(centers, background, number, shape)
    return PROFILES[kernel](np.linalg.norm((point - centers) / radii, axis=1) / alpha).mean()


@pytest.mark.parametrize("shape", ["spherical", "elliptical"])
class TestAgainstTheFormulas:
    def test_gaussian_scores_are_equation_22(self, shape):
        """Density of Gaussians of covariance alpha^2 R^2 times |R|, which cancels all but (2 pi alpha^2)^(D / 2)."""
        model = LAGORanker(shape, n_neighbors=4, alpha=0.7).fit(X, Y)
        rare, background = standardized(X[Y == 1]), standardized(X[Y == 0])
        total = np.zeros(len(NEW))
        for center, radii in zip(rare, radii_of(rare, background, 4, shape)):
            total += np.prod(radii) * multivariate_normal(center, np.diag((0.7 * radii) ** 2)).pdf(standardized(NEW))
        expected = total * (2 * np.pi * 0.7**2) ** 1.5 / len(rare)
        np.testing.assert_allclose(np.exp(model.score_samples(NEW)), expected, rtol=1e-10)

    @pytest.mark.parametrize("kernel", ["triangular", "uniform"])
    def test_other_kernels(self, shape, kernel):
        model = LAGORanker(shape, n_neighbors=3, alpha=1.2, kernel=kernel).fit(X, Y)
        rare, background = standardized(X[Y == 1]), standardized(X[Y == 0])
        expected = [mean_kernel(point, rare, background, 3, shape, 1.2, kernel) for point in standardized(NEW)]
        assert 0 < np.mean(np.array(expected) > 0) < 1
        np.testing.assert_allclose(np.exp(model.score_samples(NEW)), expected, rtol=1e-10)

    @pytest.mark.parametrize("kernel", PROFILES)
    def test_cross_validated_precision_is_that_of_refits(self, shape, kernel):
        numbers, alphas = [2, 5], [2.0, 1.0, 0.5]
        model = LAGORanker(shape, n_neighbors=numbers, alpha=alphas, kernel=kernel).fit(X, Y)
        x, is_rare = standardized(X), Y == 1
        fold = np.where(is_rare, np.cumsum(is_rare) - 1, np.cumsum(~is_rare) % is_rare.sum())
        expected = np.empty((2, 3))
        for place in np.ndindex(2, 3):
            number, alpha = numbers[place[0]], alphas[place[1]]
            scores = []
            for row in range(len(x)):
                background = x[~is_rare & (np.arange(len(x)) != row)]
                centers = np.delete(x[is_rare], fold[row], axis=0)
                scores.append(mean_kernel(x[row], centers, background, number, shape, alpha, kernel))
            expected[place] = average_precision_score(is_rare, np.log(np.maximum(scores, 1e-300)).round(9))
        np.testing.assert_allclose(model.average_precisions_, expected, rtol=1e-9)
        best = np.unravel_index(np.argmax(expected), expected.shape)
        assert (model.n_neighbors_, model.alpha_) == (numbers[best[0]], alphas[best[1]])
        assert model.average_precision_ == expected.max()

    def test_blocks_of_rows_do_not_change_them(self, shape, monkeypatch):
        whole = LAGORanker(shape).fit(X, Y)
        monkeypatch.setattr("gpytorch_partition.estimators.lago._BLOCK_NUMEL", 7 * 12)
        parts = LAGORanker(shape).fit(X, Y)
        np.testing.assert_allclose(parts.average_precisions_, whole.average_precisions_)
        np.testing.assert_allclose(parts.score_samples(NEW), whole.score_samples(NEW))


class TestLabels:
    def test_the_rare_class_is_the_smaller_one_whatever_its_name(self):
        scores = LAGORanker().fit(X, Y).score_samples(NEW)
        swapped = LAGORanker().fit(X, np.where(Y == 1, "a", "b"))
        assert swapped.rare_class_ == "a"
        np.testing.assert_array_equal(swapped.score_samples(NEW), scores)
        # scikit-learn's sign: positive for classes_[1], which is the background here.
        np.testing.assert_array_equal(swapped.predict(NEW) == "a", swapped.decision_function(NEW) <= 0)
        np.testing.assert_array_equal(swapped.predict(NEW) == "a", LAGORanker().fit(X, Y).predict(NEW) == 1)

    def test_it_can_be_named(self):
        assert LAGORanker(rare_class=0).fit(X, Y).centers_.shape == (150, 3)

    def test_as_many_rows_as_are_rare_are_predicted_so(self):
        model = LAGORanker().fit(X, Y)
        assert 6 <= (model.predict(X) == 1).sum() <= 24

    def test_the_score_is_average_precision(self):
        model = LAGORanker().fit(X[:100], Y[:100])
        expected = average_precision_score(Y[100:] == 1, model.score_samples(X[100:]))
        assert model.score(X[100:], Y[100:]) == expected


class TestDegenerateRadii:
    def test_copies_in_the_background_leave_finite_scores(self):
        copies = np.concatenate([X, np.repeat(X[Y == 1][:1], 8, axis=0)])
        for shape in ("spherical", "elliptical"):
            model = LAGORanker(shape).fit(copies, np.concatenate([Y, np.zeros(8, int)]))
            assert (model.radii_ > 0).all()
            assert np.isfinite(model.score_samples(copies)).all()

    def test_constant_columns_do_not_matter(self):
        wider = np.column_stack([X, np.full(len(X), 3.0)])
        for shape in ("spherical", "elliptical"):
            scores = LAGORanker(shape).fit(wider, Y).score_samples(wider)
            np.testing.assert_allclose(scores, LAGORanker(shape).fit(X, Y).score_samples(X))

    def test_far_away_rows_come_last(self):
        far = np.array([[1e90, 0.0, 0.0], [-1e170, 1e170, 0.0]])
        for kernel in PROFILES:
            scores = LAGORanker(kernel=kernel).fit(X, Y).score_samples(np.concatenate([X[Y == 1], far]))
            assert np.isfinite(scores).all()
            assert scores[-2:].max() < scores[:-2].min()


class TestBadInput:
    def test_more_neighbors_than_rows_are_all_but_one(self):
        few = np.concatenate([X[Y == 0][:4], X[Y == 1][:3]])
        labels = np.repeat([0, 1], [4, 3])
        assert LAGORanker(n_neighbors=[2, 5, 9]).fit(few, labels).average_precisions_.shape == (2, 19)
