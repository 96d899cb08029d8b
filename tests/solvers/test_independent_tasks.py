"""Several tasks as independent ones, against the dense matrix K x B + I x noise."""

from __future__ import annotations

from contextlib import contextmanager

import gpytorch
import linear_operator
import pytest
import torch
from gpytorch.distributions import MultitaskMultivariateNormal
from gpytorch.kernels import LCMKernel, MultitaskKernel, ScaleKernel
from gpytorch.likelihoods import MultitaskGaussianLikelihood
from linear_operator.operators import DiagLinearOperator

from gpytorch_partition import FastClusterKernel

N, T = 60, 3
_generator = torch.Generator().manual_seed(3)
X = torch.rand(N, 2, generator=_generator, dtype=torch.float64)
TEST_X = torch.rand(5, 2, generator=_generator, dtype=torch.float64)
Y = torch.randn(N, T, generator=_generator, dtype=torch.float64)

NOISES = {
    "a variance for each task": {},
    "one variance": {"has_task_noise": False},
    "covarying": {"rank": 1},
    "covarying, no global noise": {"rank": T, "has_global_noise": False},
}


class Model(gpytorch.models.ExactGP):
    def __init__(self, covar_module, **noise):
        super().__init__(X, Y, MultitaskGaussianLikelihood(T, **noise))
        self.mean_module = gpytorch.means.MultitaskMean(gpytorch.means.ConstantMean(), T)
        self.covar_module = covar_module
        generator = torch.Generator().manual_seed(4)
        for parameter in self.double().parameters():
            parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)

    def forward(self, x):
        return MultitaskMultivariateNormal(self.mean_module(x), self.covar_module(x))


def model_with(noise, rank=2):
    return Model(ScaleKernel(MultitaskKernel(FastClusterKernel(X, 15, random_state=0), T, rank=rank)), **NOISES[noise])


def noisy_covariance(model):
    return model.likelihood(model.train()(X)).lazy_covariance_matrix.evaluate_kernel()


def likelihood_and_gradient(model):
    model.train().zero_grad()
    value = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)(model(X), Y)
    value.backward()
    return value.detach(), torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


@contextmanager
def dense_below(num_rows):
    with linear_operator.settings.max_cholesky_size(num_rows), gpytorch.settings.max_eager_kernel_size(1):
        yield


@pytest.mark.parametrize("noise", NOISES)
def test_likelihood_and_gradient_are_exact_where_single_tasks_are_dense(noise):
    model = model_with(noise)
    with dense_below(N * T):
        expected = likelihood_and_gradient(model)
    with dense_below(N):
        got = likelihood_and_gradient(model)
    assert all(map(torch.allclose, got, expected))


def test_equal_eigenvalues_have_gradients():
    model = model_with("one variance", rank=1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(0.5)  # B is a number times I plus a matrix of ones
    with dense_below(N * T):
        expected = likelihood_and_gradient(model)
    with dense_below(N):
        got = likelihood_and_gradient(model)
    assert noisy_covariance(model).independent_tasks.signal_variances.diff().abs().min() < 1e-9
    assert all(map(torch.allclose, got, expected))


def test_gradient_of_nearly_singular_noise_by_conjugate_gradients():
    model = model_with("covarying, no global noise")
    with torch.no_grad():  # condition number 1e6
        model.likelihood.task_noise_covar_factor.copy_(torch.tensor([[1.0, 0, 0], [1, 1e-3, 0], [0, 0, 1]]))
    with dense_below(N * T):
        _, expected = likelihood_and_gradient(model)
    with dense_below(5), linear_operator.settings.num_trace_samples(300):
        _, got = likelihood_and_gradient(model)
    assert (got - expected).norm() < 0.01 * expected.norm()


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("limit", [N, 5])
def test_predictions(noise, limit):
    model = model_with(noise).eval()
    with dense_below(N * T), torch.no_grad():
        prediction = model(TEST_X)
        expected = prediction.mean, prediction.variance, prediction.covariance_matrix
    model.train().eval()
    with dense_below(limit), torch.no_grad():
        prediction = model(TEST_X)
        got = prediction.mean, prediction.variance, prediction.covariance_matrix
    error = 1e-9 if limit == N else 5e-3
    assert all((a - b).norm() < error * b.norm() for a, b in zip(got, expected))


def test_other_noise_and_other_covariances_have_none():
    model = model_with("one variance")
    covariance = model.covar_module(X).evaluate_kernel()
    assert (covariance + DiagLinearOperator(torch.ones(N * T).double())).independent_tasks is None  # equal by chance
    kernels = [FastClusterKernel(X, 5, random_state=seed).double() for seed in (0, 1)]
    assert noisy_covariance(Model(LCMKernel(kernels, T))).independent_tasks is None
