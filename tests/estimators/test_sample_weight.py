"""Weights of rows: the noise's variance is divided by them, in every kernel, and nothing else is."""

from __future__ import annotations

import math

import numpy as np
import pytest
from gpytorch.kernels import RBFKernel
from scipy.stats import norm

from gpytorch_partition.estimators import PartitionGPRegressor
from tests.few_trees import few_trees

RANDOM = np.random.RandomState(0)
N = 120
X = RANDOM.randn(N, 3) * [1.0, 20.0, 0.01]
TRUTH = 40 * np.sin(X[:, 0]) + X[:, 1] + 300
W = RANDOM.choice([0.1, 1.0, 5.0], N)
Y = TRUTH + 10 * RANDOM.randn(N) / np.sqrt(W)
NEW = RANDOM.randn(30, 3) * [1.0, 20.0, 0.01]
NAMES = ("forest", "fast_cluster", "mondrian")
FEW_TREES = few_trees(15, 10, num_folds=2, least_boosting_gain=math.inf)  # rows of different weights have none


def rbf(x, y):
    return RBFKernel(ard_num_dims=x.shape[1])


def model_of(kernel, weights=W, y=Y, x=X, num_partitions=20):
    model = PartitionGPRegressor(kernel, num_partitions=num_partitions, random_state=0, options=FEW_TREES)
    return model.fit(x, y, weights)


@pytest.fixture(scope="module", params=[*NAMES, rbf, "auto"], ids=lambda kernel: getattr(kernel, "__name__", kernel))
def fitted(request):
    return model_of(request.param)


def test_predictions_are_those_of_dense_algebra(fitted):
    model = fitted.model_
    points = fitted._fitted.columns.apply_array(np.concatenate([X, NEW]))
    scale = fitted._fitted.unit.scale.item() ** 2
    gram = scale * model.covar_module(points).to_dense().detach().double().numpy()
    noise = fitted.noise_
    if fitted.kernel == "auto":  # where it may vary
        noise = scale * fitted.likelihood_(model(points), points).variance.detach().numpy()
        noise -= scale * model(points).variance.detach().numpy()
        assert noise.min() > 0.2 * fitted.noise_
    else:
        noise = np.full(len(points), noise)
    noisy = gram[:N, :N] + np.diag(noise[:N] / W)
    constant = fitted._fitted.unit.undo(model.mean_module.constant.detach()).item()
    mean = constant + gram[N:, :N] @ np.linalg.solve(noisy, Y - constant)
    variance = np.diag(gram[N:, N:] - gram[N:, :N] @ np.linalg.solve(noisy, gram[:N, N:])) + noise[N:]
    found, std = fitted.predict(NEW, return_std=True)
    np.testing.assert_allclose(found, mean, rtol=1e-5)
    np.testing.assert_allclose(std, variance**0.5, rtol=1e-4)


def test_it_explains_itself(fitted):
    summary = fitted.summary()
    assert summary.num_rows == N
    assert "weights" in summary.facts()
    assert fitted.importance(X[:20], Y[:20], n_repeats=1).by_structure.shape == (3,)
    assert fitted.nearest_rows(X[:4], k=1)[0].ravel().tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("kernel", [*NAMES, rbf, pytest.param("auto", marks=pytest.mark.slow)])
def test_a_weight_of_1_is_no_weight(kernel):
    expected, found = model_of(kernel, None), model_of(kernel, np.ones(N))
    for one, other in zip(expected.predict(NEW, return_std=True), found.predict(NEW, return_std=True)):
        np.testing.assert_array_equal(one, other)
    assert "weights" not in found.summary().facts()


@pytest.mark.parametrize("kernel", [*NAMES, pytest.param("auto", marks=pytest.mark.slow)])
def test_twice_the_weights_have_twice_the_noise_at_weight_1(kernel):
    one, twice = model_of(kernel), model_of(kernel, 2 * W)
    assert twice.noise_ == pytest.approx(2 * one.noise_, rel=1e-4)
    function = {"return_std": True, "include_noise": False}
    for expected, found in zip(one.predict(NEW, **function), twice.predict(NEW, **function)):
        np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_observations_are_judged_at_their_own_weights(fitted):
    """That of a mean of w measurements has the variance of the function, and a w-th of the noise."""
    weights, y = np.linspace(0.5, 8, len(NEW)), fitted.predict(NEW) + 3.0
    mean, function = fitted.predict(NEW, return_std=True, include_noise=False)
    _, total = fitted.predict(NEW, return_std=True)
    std = np.sqrt(function**2 + (total**2 - function**2) / weights)
    found = fitted.judge(NEW, y, weights)
    np.testing.assert_allclose(found.std, std, rtol=1e-4)
    np.testing.assert_allclose(found.log_density, norm.logpdf(y, mean, std), rtol=1e-3)
    with pytest.raises(ValueError, match="weights above 0 .* got 0 for row 2"):
        fitted.judge(NEW, y, np.arange(len(NEW)) != 2)


@pytest.mark.parametrize("kernel", NAMES)
def test_one_weight_for_all_rows(kernel):
    expected = model_of(kernel, None)
    assert model_of(kernel, 4).noise_ == pytest.approx(4 * expected.noise_, rel=1e-4)


@pytest.mark.parametrize("kernel", NAMES)
def test_targets_of_next_to_no_weight_have_no_influence(kernel):
    weights, normal = np.where(np.arange(N) % 4 == 0, 1e-6, 1.0), np.random.RandomState(1).randn(N)
    clean = TRUTH + 3 * normal
    dirty = np.where(weights < 1, clean + 300 * np.random.RandomState(2).randn(N), clean)
    expected = model_of(kernel, weights, clean).predict(NEW)
    errors = [np.sqrt(np.mean((model_of(kernel, w, dirty).predict(NEW) - expected) ** 2)) for w in (weights, None)]
    assert errors[0] < 0.05 * TRUTH.std()
    assert errors[1] > 0.5 * TRUTH.std()


@pytest.mark.slow
def test_the_default_model_knows_weights_that_are_right():
    """Rows of a hundredth of the precision are as good as none; their noise says so, as their weights do."""
    weights = np.where(np.arange(N) % 4 == 0, 1e-4, 1.0)
    y, counted = TRUTH + 3 * np.random.RandomState(1).randn(N) / np.sqrt(weights), weights == 1
    expected = model_of("auto", None, y[counted], X[counted]).predict(NEW)
    model = model_of("auto", weights, y)
    errors = [np.sqrt(np.mean((each.predict(NEW) - expected) ** 2)) for each in (model, model_of("auto", None, y))]
    assert errors[0] < 0.03 * TRUTH.std() < 0.07 * TRUTH.std() < errors[1]
    assert model.noise_**0.5 == pytest.approx(3, rel=0.15)


@pytest.mark.parametrize("kernel", [*NAMES, pytest.param("auto", marks=pytest.mark.slow)])
def test_rows_of_no_weight_are_left_out(kernel):
    counted = np.arange(N) % 3 > 0
    model = model_of(kernel, np.where(counted, W, 0))
    expected = model_of(kernel, W[counted], Y[counted], X[counted])
    np.testing.assert_array_equal(model.predict(NEW), expected.predict(NEW))
    rows, _ = model.nearest_rows(X[counted][:5], k=1)
    assert rows.ravel().tolist() == np.flatnonzero(counted)[:5].tolist()
    copy = PartitionGPRegressor.from_state(model.to_state())
    assert copy.nearest_rows(X[counted][:5], k=1)[0].tolist() == rows.tolist()


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.where(np.arange(N) == 7, -1.0, 1.0), "got -1 for row 7"),
        (np.where(np.arange(N) == 3, np.nan, 1.0), "got nan for row 3"),
        (np.full(N, np.inf), "got inf for row 0"),
        (np.zeros(N), "zero for all"),
        (np.ones(N - 1), "one weight for each of 120 rows"),
        (np.ones((N, 2)), "1D array"),
        (["a"] * N, "numbers, one for each row"),
    ],
)
def test_weights_that_cannot_be_used(weights, message):
    with pytest.raises(ValueError, match=message):
        model_of(lambda x, y: pytest.fail("work was done"), weights)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["mondrian", "auto"])
def test_many_rows(kernel):
    """Above 2,000 rows, where solves are iterative, and the default model is calibrated."""
    random = np.random.RandomState(1)
    x = random.rand(2600, 2)
    weights = np.where(random.rand(2600) < 0.3, 0.01, 1.0)
    truth = np.sin(6 * x[:, 0]) + x[:, 1]
    # Of 20 Mondrian trees the noise is .06 here, without weights too: what they cannot say of the function is noise.
    model = model_of(kernel, weights, truth + 0.2 * random.randn(2600) / np.sqrt(weights), x, num_partitions=100)
    mean, std = model.predict(x[:200] + 1e-3, return_std=True)
    assert np.sqrt(np.mean((mean - truth[:200]) ** 2)) < 0.2
    assert model.noise_ == pytest.approx(0.04, rel=0.3)
    new = truth[:200] + 0.2 * random.randn(200)
    assert 0.84 < np.mean(np.abs(new - mean) < 1.645 * std) < 0.96
    copy = PartitionGPRegressor.from_state(model.to_state())
    np.testing.assert_array_equal(copy.predict(x[:50]), model.predict(x[:50]))


def test_copies_are_left_out():
    random = np.random.RandomState(0)
    X = random.rand(60, 2)
    y = np.sin(5 * X[:, 0]) + 0.1 * random.randn(60)
    more = np.r_[np.arange(60), np.arange(0, 60, 2)]
    with pytest.warns(UserWarning, match="30 of 90 rows are copies of others, target included, and are left out"):
        model = PartitionGPRegressor("mondrian", num_partitions=10, random_state=0).fit(X[more], y[more])
    once = PartitionGPRegressor("mondrian", num_partitions=10, random_state=0).fit(X, y)
    np.testing.assert_array_equal(model.predict(X, return_std=True), once.predict(X, return_std=True))
    shuffled = PartitionGPRegressor("mondrian", num_partitions=10, random_state=0)
    with pytest.warns(UserWarning, match="copies"):
        shuffled.fit(np.r_[X[:5], X], np.r_[y[:5], y])
    assert shuffled.nearest_rows(X[7:8], 1)[0].item() == 12  # the rows' own numbers
