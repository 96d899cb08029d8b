"""Weights by cross-validation against dense Gaussian conditionals, one held-out row at a time."""

from __future__ import annotations

import math

import pytest
import torch
from gpytorch.kernels import LinearKernel, RBFKernel, ScaleKernel
from scipy.stats import norm
from sklearn.ensemble import RandomTreesEmbedding
from sklearn.model_selection import KFold

from gpytorch_partition import (
    IterativeKernel,
    LandmarkKernel,
    LocalLinearKernel,
    MondrianKernel,
    RandomForestKernel,
    fit_weights_by_cross_validation,
)

GENERATOR = torch.Generator().manual_seed(0)
X = torch.rand(100, 2, generator=GENERATOR, dtype=torch.float64)
Y = 5 + (6 * X[:, 0]).sin() + 2 * X[:, 1] + 0.3 * torch.randn(100, generator=GENERATOR, dtype=torch.float64)


def forest(x, y):
    return RandomForestKernel(x, y, 20, random_state=0)


def smooth():
    kernel = RBFKernel().double()
    kernel.lengthscale = 0.3
    return kernel


def splits(random_state, folds):
    """As the function draws them: a permutation first, then the folds."""
    from numpy.random import RandomState

    random = RandomState(random_state)
    rows = random.permutation(len(X))
    return rows, list(KFold(folds, shuffle=True, random_state=random).split(rows))


def objective(outputscales, noise, random_state=0, folds=3, kernels=None):
    """Mean log density of held-out rows, and with it the nats of the noise."""
    rows, pairs = splits(random_state, folds)
    x, y, total = X[rows], Y[rows], 0.0
    for kept, held_out in pairs:
        built = kernels or [forest(x[kept], y[kept]), smooth()]
        covariance = sum(s * kernel(x).to_dense().double() for s, kernel in zip(outputscales, built)).detach()
        noisy = covariance + noise * torch.eye(len(x), dtype=torch.float64)
        for row in held_out:
            weights = torch.linalg.solve(noisy[kept][:, kept], covariance[kept, row])
            mean = Y.mean() + weights @ (y[kept] - Y.mean())
            variance = noisy[row, row] - weights @ covariance[kept, row]
            total += norm(mean.item(), variance.item() ** 0.5).logpdf(y[row].item())
    return total / len(x), (total + math.log(noise)) / len(x)


@pytest.fixture(scope="module")
def found():
    return fit_weights_by_cross_validation([forest, smooth()], X, Y, folds=3, random_state=0)


def test_the_density_is_that_of_held_out_rows(found):
    assert found.log_density == pytest.approx(objective(found.outputscales.tolist(), found.noise)[0], abs=1e-6)


def test_no_weights_nearby_are_better(found):
    values = [*found.outputscales.tolist(), found.noise]
    best = objective(values[:-1], values[-1])[1]
    for number in range(len(values)):
        for factor in (0.8, 1.25):
            moved = [value * factor if place == number else value for place, value in enumerate(values)]
            assert objective(moved[:-1], moved[-1])[1] < best + 1e-5


def test_the_kernel_is_built_on_all_rows_with_these_weights(found):
    expected = found.outputscales[0] * forest(X, Y)(X).to_dense() + found.outputscales[1] * smooth()(X).to_dense()
    torch.testing.assert_close(found.kernel(X).to_dense(), expected)
    assert found.mean == pytest.approx(Y.mean().item())
    assert torch.equal(found.rows, torch.arange(100))


def test_functions_see_the_rows_kept_only():
    seen = []

    def spy(x, y):
        seen.append((x, y))
        return smooth()

    fit_weights_by_cross_validation([spy], X, Y, folds=4, max_rows=40, random_state=0)
    assert [len(x) for x, _ in seen] == [30] * 4 + [100]
    for x, y in seen[:-1]:
        places = (X[None] == x[:, None]).all(-1).double().argmax(-1)
        assert torch.equal(Y[places], y)


def test_a_sum_of_scaled_kernels_is_set_in_place():
    kernel = ScaleKernel(smooth()) + ScaleKernel(MondrianKernel(X, 20, random_state=0)).double()
    kernels = [term.base_kernel for term in kernel.kernels]
    found = fit_weights_by_cross_validation(IterativeKernel(kernel), X, Y, folds=3, random_state=0)
    assert [term.outputscale.item() for term in kernel.kernels] == pytest.approx(found.outputscales.tolist())
    density = objective(found.outputscales.tolist(), found.noise, kernels=kernels)[0]
    assert found.log_density == pytest.approx(density, abs=1e-6)
    single = ScaleKernel(smooth())
    assert fit_weights_by_cross_validation(single, X, Y, random_state=0).kernel is single


def test_units_of_targets_and_kernels_do_not_matter(found):
    doubled = lambda x, y: ScaleKernel(smooth()).initialize(outputscale=1e6)  # noqa: E731
    other = fit_weights_by_cross_validation([forest, doubled], X, 1000 * Y - 3, folds=3, random_state=0)
    torch.testing.assert_close(other.outputscales[0] / 1e6, found.outputscales[0], rtol=1e-3, atol=0)
    torch.testing.assert_close(other.outputscales[1], found.outputscales[1], rtol=1e-3, atol=0)
    assert other.noise == pytest.approx(1e6 * found.noise, rel=1e-3)
    assert other.log_density == pytest.approx(found.log_density - math.log(1000), abs=1e-5)


def test_kernels_that_have_seen_targets_are_refused():
    kernels = (forest(X, Y), LocalLinearKernel(forest(X, Y), 2), LandmarkKernel(X, Y, 20, random_state=0))
    for kernel in kernels:
        with pytest.raises(TypeError, match="have not seen targets, but kernel 1"):
            fit_weights_by_cross_validation([smooth(), kernel], X, Y)
        with pytest.raises(TypeError, match="lambda x, y"):
            fit_weights_by_cross_validation(ScaleKernel(kernel), X, Y)
    embedding = RandomForestKernel.from_forest(RandomTreesEmbedding(10, random_state=0).fit(X))
    assert not embedding.has_seen_targets
    fit_weights_by_cross_validation([embedding], X, Y, random_state=0)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((smooth() + ScaleKernel(smooth()), X, Y), TypeError, "sum of ScaleKernel"),
        ((ScaleKernel(smooth(), batch_shape=torch.Size([2])), X, Y), TypeError, "sum of ScaleKernel"),
        (("forest", X, Y), TypeError, "got a str"),
        (([3], X, Y), TypeError, "got a int"),
        (([], X, Y), ValueError, "one kernel or more"),
        (([lambda x, y: 1.0], X, Y), TypeError, "return a kernel, .*, got float"),
        (([RBFKernel(batch_shape=torch.Size([2]))], X, Y), ValueError, "without batch shapes, got a RBFKernel"),
        (([LinearKernel()], X * math.nan, Y), ValueError, "NaN"),
        *[
            (([LinearKernel()], x, y), ValueError, "expected")
            for x, y in ((X, Y[:-1]), (X[0], Y), (X, Y * math.nan), (X, torch.ones(100).double()), (X[:5], Y[:5]))
        ],
    ],
)
def test_bad_input(arguments, error, message):
    with pytest.raises(error, match=message):
        fit_weights_by_cross_validation(*arguments)


@pytest.mark.parametrize(
    "options", [{"folds": 1}, {"folds": 101}, {"folds": 2.5}, {"max_rows": 3}, {"max_rows": math.inf}]
)
def test_bad_options(options):
    with pytest.raises(ValueError, match="folds from 2 to the number of rows that choose"):
        fit_weights_by_cross_validation([LinearKernel()], X, Y, **options)
