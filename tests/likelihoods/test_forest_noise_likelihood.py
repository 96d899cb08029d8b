"""Noise that varies with x: its values against scikit-learn's forest, and in models."""

from __future__ import annotations

import math

import gpytorch
import numpy as np
import pytest
import torch
from gpytorch.distributions import MultivariateNormal
from linear_operator.settings import max_cholesky_size
from sklearn.ensemble import RandomForestRegressor

from gpytorch_partition import FastClusterKernel, fit_exact_gp, settings
from gpytorch_partition.likelihoods import ForestNoise, ForestNoiseGaussianLikelihood, grow_residual_forest
from gpytorch_partition.models import PartitionGP

GENERATOR = torch.Generator().manual_seed(0)
X = torch.rand(500, 2, generator=GENERATOR, dtype=torch.float64)
STD = torch.where(X[:, 0] < 0.5, 0.1, 0.5)
NOISE = STD * torch.randn(500, generator=GENERATOR, dtype=torch.float64)
Y = (3 * X[:, 1]).sin() + NOISE
NEW = torch.rand(60, 2, generator=GENERATOR, dtype=torch.float64)


def likelihood_of(residuals=NOISE, x=X, **options):
    return ForestNoiseGaussianLikelihood(x, residuals, random_state=0, **options).to(x)


def variances(likelihood, x):
    prior = MultivariateNormal(torch.zeros(len(x)).to(x), torch.eye(len(x)).to(x))
    return likelihood(prior, x).variance - 1


def test_the_ratio_is_the_forests_prediction():
    squares = NOISE.numpy() ** 2
    logs = np.log(squares / squares.mean() + 0.02)
    forest = RandomForestRegressor(100, min_samples_leaf=11, max_features=0.5, max_samples=1.0, random_state=0)
    expected = forest.fit(X.numpy(), logs - logs.mean()).predict(NEW.numpy())
    noise = ForestNoise(X, NOISE, random_state=np.random.RandomState(0))
    torch.testing.assert_close(noise.log_ratio(NEW), torch.from_numpy(expected), atol=1e-5, rtol=0)


def test_level_and_exponent():
    likelihood = likelihood_of()
    ratio = likelihood.noise_covar.log_ratio(NEW)
    for level, exponent in ((0.3, 0.7), (2.0, 0.0)):
        likelihood.noise, likelihood.exponent = level, exponent
        expected = level * (exponent * ratio).exp()
        torch.testing.assert_close(variances(likelihood, NEW), expected, rtol=1e-5, atol=1e-7)
    assert likelihood_of().exponent.item() == pytest.approx(1.0)


def test_the_noise_is_found_where_it_is():
    found = variances(likelihood_of(), NEW).detach()
    quiet, loud = found[NEW[:, 0] < 0.45], found[NEW[:, 0] > 0.55]
    ratio = loud.log().mean() - quiet.log().mean()
    assert 0.5 < ratio / (2 * math.log(5)) < 1.1  # the floor under small residuals makes it smaller
    assert quiet.max() < loud.min()


def test_only_the_pattern_of_the_residuals_matters():
    torch.testing.assert_close(variances(likelihood_of(1e3 * NOISE), NEW), variances(likelihood_of(), NEW))


def test_a_model_that_knows_where_the_noise_is_predicts_better():
    """Level and exponent are trained with the model, and its intervals then hold on either side."""
    model = PartitionGP(X, Y, likelihood_of(), FastClusterKernel(X, 100, random_state=0))
    with pytest.warns(UserWarning, match="ForestNoiseGaussianLikelihood"):
        fit_exact_gp(model, model.likelihood)
    assert model.likelihood.exponent.item() > 0.5
    prediction = model.likelihood(model.eval()(NEW), NEW)
    quiet = NEW[:, 0] < 0.45
    assert prediction.stddev[quiet].mean() < 0.25
    assert prediction.stddev[NEW[:, 0] > 0.55].mean() > 0.4


def test_gradients_by_products_are_those_of_dense_algebra():
    x, y = X[:300], Y[:300]

    def gradients(most_dense):
        model = PartitionGP(x, y, likelihood_of(NOISE[:300], x), FastClusterKernel(x, 50, random_state=0))
        objective = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
        with max_cholesky_size(most_dense), settings.iterative(), gpytorch.settings.num_trace_samples(2000):
            value = objective(model(x), y, x)
            value.backward()
        noise = model.likelihood.noise_covar
        return torch.cat([noise.raw_noise.grad, noise.raw_exponent.grad]), value.item()

    (dense, value), (products, estimate) = gradients(1000), gradients(10)
    assert estimate == pytest.approx(value, abs=5e-3)
    torch.testing.assert_close(products, dense, rtol=0.05, atol=1e-3)


def test_in_float32():
    likelihood = likelihood_of()
    expected = variances(likelihood, NEW)
    torch.testing.assert_close(variances(likelihood.float(), NEW.float()).double(), expected, rtol=1e-4, atol=1e-5)


def test_batches_of_points():
    both = torch.stack([NEW, NEW.flip(0)])
    noise = likelihood_of().noise_covar
    expected = torch.stack([noise(points).diagonal(dim1=-1, dim2=-2) for points in both])
    torch.testing.assert_close(noise(both).diagonal(dim1=-1, dim2=-2), expected)


@pytest.mark.filterwarnings("error")
def test_few_residuals_give_no_warning():
    assert np.isfinite(grow_residual_forest(X[:5], X[:5, 1], num_trees=10, random_state=0).predict(X[:2].numpy())).all()


def test_missing_values():
    x = X.masked_fill(torch.rand(X.shape, generator=GENERATOR) < 0.1, torch.nan)
    assert torch.isfinite(variances(likelihood_of(x=x), x)).all()


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match=r"call likelihood\(model\(x\), x\)"):
        likelihood_of()(MultivariateNormal(Y[:3], torch.eye(3).double()))
    with pytest.raises(ValueError, match="500 finite residuals"):
        likelihood_of(NOISE[:-1])
    with pytest.raises(ValueError, match="500 finite residuals"):
        likelihood_of(NOISE.log())
    with pytest.raises(ValueError, match="not all 0"):
        likelihood_of(torch.zeros(500))
    with pytest.raises(ValueError, match="both rows and residuals"):
        ForestNoise(X)
    with pytest.raises(RuntimeError, match="not fitted"):
        ForestNoise()(X)
    with pytest.raises(ValueError, match="built on 2 columns"):
        likelihood_of().noise_covar(torch.rand(3, 5))
