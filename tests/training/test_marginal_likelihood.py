"""Hyperparameters against a dense optimizer, and the words about values at a bound."""

from __future__ import annotations

from unittest.mock import patch

import linear_operator
import numpy as np
import pytest
import scipy.optimize
import scipy.stats
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from linear_operator.utils.errors import NanError, NotPSDError
from sklearn.exceptions import ConvergenceWarning

from gpytorch_partition import FastClusterKernel, PartitionKernel, settings
from gpytorch_partition.linalg.parallel import minimize_lbfgsb
from gpytorch_partition.models import PartitionGP
from gpytorch_partition.operators import guards as solver
from gpytorch_partition.training.marginal_likelihood import _Objective, maximize_marginal_likelihood


def problem(num_rows=120, noise=0.3, dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(num_rows, 2, generator=generator, dtype=torch.float64).to(dtype)
    y = x[:, 0].sin() + noise * torch.randn(num_rows, generator=generator, dtype=torch.float64).to(dtype)
    return x, y


def model_of(x, y):
    return PartitionGP(x, y, GaussianLikelihood(), FastClusterKernel(x, 40, random_state=0))


def hyperparameters(model):
    return model.covar_module.outputscale.item(), model.likelihood.noise.item(), model.mean_module.constant.item()


class Dense:
    """The exact likelihood at any hyperparameters, from one eigendecomposition of the kernel matrix."""

    def __init__(self, model):
        gram = model.covar_module.base_kernel(model.train_inputs[0]).to_dense().detach().double()
        self.values, vectors = (part.numpy() for part in torch.linalg.eigh(gram))
        self.y = vectors.T @ model.train_targets.double().numpy()
        self.ones = vectors.sum(0)

    def log_likelihood(self, scale, noise, constant):
        variances = scale * self.values + noise
        return scipy.stats.norm(constant * self.ones, np.sqrt(variances)).logpdf(self.y).sum()

    def optimum(self):
        """The best likelihood, and its outputscale, noise and constant."""
        found = scipy.optimize.minimize(
            lambda p: -self.log_likelihood(np.exp(p[0]), np.exp(p[1]), p[2]),
            np.array([0.0, -1.0, 0.0]),
            method="BFGS",
        )
        return -found.fun, np.exp(found.x[0]), np.exp(found.x[1]), found.x[2]


def dense_log_likelihood(model):
    return Dense(model).log_likelihood(*hyperparameters(model))


def test_it_finds_the_optimum_that_dense_algebra_finds():
    model = model_of(*problem())
    fit = maximize_marginal_likelihood(model, model.likelihood)
    best, best_scale, best_noise, best_constant = Dense(model).optimum()
    scale, noise, constant = hyperparameters(model)
    assert fit.converged
    assert fit.at_bounds == {}
    assert fit.log_marginal_likelihood == pytest.approx(best, abs=0.01)
    assert noise == pytest.approx(best_noise, rel=0.02)
    assert scale == pytest.approx(best_scale, rel=0.1)
    assert constant == pytest.approx(best_constant, abs=0.1)


def test_it_reports_the_likelihood_of_the_values_it_leaves():
    model = model_of(*problem())
    with pytest.warns(ConvergenceWarning):
        fit = maximize_marginal_likelihood(model, model.likelihood, max_iterations=4)
    exact = dense_log_likelihood(model)
    assert fit.log_marginal_likelihood == pytest.approx(exact, abs=1e-6)


def test_probe_vectors_do_nearly_as_well_as_dense_algebra():
    model = model_of(*problem(num_rows=900, dtype=torch.float32))
    fit = maximize_marginal_likelihood(model, model.likelihood)
    exact = dense_log_likelihood(model)
    assert exact == pytest.approx(Dense(model).optimum()[0], abs=0.002 * 900)
    assert fit.log_marginal_likelihood == pytest.approx(exact, abs=0.02 * 900)


def test_settings_given_in_an_iterative_context_of_the_callers_win():
    model = model_of(*problem(num_rows=300))
    with (
        patch.object(solver, "conjugate_gradients", wraps=solver.conjugate_gradients) as solves,
        settings.iterative(),
        linear_operator.settings.max_cholesky_size(100),
        pytest.warns(ConvergenceWarning),
    ):
        maximize_marginal_likelihood(model, model.likelihood, max_iterations=3)
    assert solves.call_count > 0


def test_a_kernel_of_a_sum_that_explains_nothing_leaves_the_others():
    rows = torch.arange(120.0)
    x, y = rows.unsqueeze(-1), (rows / 20).sin() + 0.3 * (1 - 2 * (rows % 2))
    pairs = PartitionKernel(lambda x: (x // 2).long())  # of targets that lie above the sine and below
    model = PartitionGP(x, y, GaussianLikelihood(), ScaleKernel(RBFKernel()) + ScaleKernel(pairs))
    model.covar_module.base_kernel.base_kernel.kernels[0].base_kernel.lengthscale = 20.0
    with pytest.warns(ConvergenceWarning, match="explains nothing, so predictions are those of the others"):
        maximize_marginal_likelihood(model, model.likelihood)
    assert (model.eval()(x).mean - (rows / 20).sin()).abs().max() < 0.2


def test_nothing_to_train_is_an_error():
    model = model_of(*problem()).requires_grad_(False)
    with pytest.raises(ValueError, match="parameters to train"):
        maximize_marginal_likelihood(model, model.likelihood)


def test_too_few_iterations_are_told():
    model = model_of(*problem())
    with pytest.warns(ConvergenceWarning, match="still improving after 2 iterations"):
        fit = maximize_marginal_likelihood(model, model.likelihood, max_iterations=2)
    assert not fit.converged
    assert fit.num_iterations == 2


class TestNoValue:
    """Positions of a search without a positive definite matrix, as with repeated rows, or without numbers."""

    @staticmethod
    def objective(least, error=NotPSDError):
        """A parabola around 1, which has no value below `least`."""
        objective = _Objective.__new__(_Objective)
        objective._last = None

        def evaluated(position):
            if position[0] < least:
                raise error("none here")
            return float((position[0] - 1) ** 2), 2 * (position - 1)

        objective._evaluated = evaluated
        return objective

    @pytest.mark.parametrize("error", [NotPSDError, NanError, FloatingPointError])
    def test_the_search_turns_back(self, error):
        found = minimize_lbfgsb(self.objective(2.0, error), [10.0], options={"maxiter": 50})
        assert 2 <= found.x[0] < 4
        assert minimize_lbfgsb(self.objective(0.9), [10.0]).x[0] == pytest.approx(1, abs=1e-4)

    def test_the_bowl_has_its_own_gradient(self):
        objective = self.objective(2.0)
        at = objective(np.array([3.0]))
        value, gradient = objective(np.array([1.5]))
        shifted, _ = objective(np.array([1.5 + 1e-6]))
        assert value > at[0]
        assert (shifted - value) / 1e-6 == pytest.approx(gradient[0], abs=1e-4)

    def test_without_a_first_value_it_is_an_error(self):
        with pytest.raises(NotPSDError):
            self.objective(2.0)(np.array([1.0]))

    def test_a_lengthscale_that_underflows(self):
        """softplus(-800) is 0 in float64: covariances are NaN there, on some processors at the end of a long search."""
        x, y = problem()
        model = PartitionGP(x, y, GaussianLikelihood(), ScaleKernel(RBFKernel()).to(x))
        objective = _Objective(model, model.likelihood)
        start = objective.position()
        value, _ = objective(start)
        far, gradient = objective(np.where(np.arange(len(start)) == len(start) - 1, -800.0, start))
        assert value < far < np.inf
        assert np.isfinite(gradient).all()
