"""FITC against dense matrices, and against the kernel itself where landmarks are all rows."""

from __future__ import annotations

import gpytorch
import pytest
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import MaternKernel, ScaleKernel
from gpytorch.likelihoods.noise_models import HomoskedasticNoise
from linear_operator.settings import max_cholesky_size

from gpytorch_partition import LandmarkKernel, settings
from gpytorch_partition.likelihoods import FITCGaussianLikelihood, ForestNoise
from gpytorch_partition.models import PartitionGP

GENERATOR = torch.Generator().manual_seed(0)
X = torch.rand(80, 2, generator=GENERATOR, dtype=torch.float64)
Y = (5 * X[:, 0]).sin() + 0.1 * torch.randn(80, generator=GENERATOR, dtype=torch.float64)
NEW = 3 * torch.rand(30, 2, generator=GENERATOR, dtype=torch.float64) - 1
OUTPUTSCALE, NOISE = 1.7, 0.03


def matern():
    kernel = MaternKernel(1.5).double()
    kernel.lengthscale = 0.4
    return kernel


def scaled(kernel):
    kernel = ScaleKernel(kernel).double()
    kernel.outputscale = OUTPUTSCALE
    return kernel


def fitc(landmarks, base_noise=None):
    exact = matern()
    approximation = LandmarkKernel.from_kernel(exact, landmarks)
    noise = base_noise or HomoskedasticNoise()
    likelihood = FITCGaussianLikelihood(noise.double(), scaled(exact), scaled(approximation))
    likelihood.noise = NOISE
    return PartitionGP(X, Y, likelihood, scaled(approximation)).requires_grad_(False)


def set_up(model):
    model.covar_module.outputscale = 1.0
    model.mean_module.constant = torch.tensor(0.3).double()
    return model.double().eval()


def predicted(model, x=NEW):
    with torch.no_grad(), gpytorch.settings.debug(False):
        observed = model.likelihood(model(x), x)
        return observed.mean, observed.variance


def by_hand(landmarks, noise, new_noise):
    """Quinonero-Candela & Rasmussen 2005, eqs. 24 and 25, with dense matrices of exact entries."""
    with torch.no_grad():
        k = lambda a, b: OUTPUTSCALE * matern()(a, b).to_dense()  # noqa: E731
        inner = k(landmarks, landmarks)
        q = lambda a, b: k(a, landmarks) @ torch.linalg.solve(inner, k(landmarks, b))  # noqa: E731
        held_out = lambda a: OUTPUTSCALE - q(a, a).diagonal()  # noqa: E731
        A = q(X, X) + torch.diag(held_out(X) + noise)
        mean = 0.3 + q(NEW, X) @ torch.linalg.solve(A, Y - 0.3)
        variance = q(NEW, NEW).diagonal() - (q(NEW, X) * torch.linalg.solve(A, q(X, NEW)).mT).sum(-1)
        return mean, variance + held_out(NEW) + new_noise


@pytest.mark.parametrize(("solver", "tolerance"), [("dense", 1e-6), ("iterative", 1e-3)])
def test_predictions_are_those_of_the_paper(solver, tolerance):
    model, expected = set_up(fitc(X[:12])), by_hand(X[:12], NOISE, NOISE)
    if solver == "dense":
        found = predicted(model)
    else:
        with settings.iterative(), max_cholesky_size(1), settings.predictive_variances("conjugate_gradients"):
            found = predicted(model)
    torch.testing.assert_close(found[0], expected[0], atol=tolerance, rtol=tolerance)
    torch.testing.assert_close(found[1], expected[1], atol=tolerance, rtol=tolerance)


def test_away_from_all_rows_the_variance_is_the_kernels():
    far = NEW + 100
    _, variance = predicted(set_up(fitc(X[:12])), far)
    torch.testing.assert_close(variance, torch.full_like(variance, OUTPUTSCALE + NOISE))


def test_only_what_exceeds_the_threshold_is_added():
    noise = fitc(X[:12]).likelihood.noise_covar
    everything = noise.unspanned(NEW)
    noise.threshold.fill_(0.5)
    assert 0 < (everything < 0.5).sum() < 30
    torch.testing.assert_close(noise.unspanned(NEW), (everything - 0.5).clamp_min(0))
    other = FITCGaussianLikelihood(noise.base_noise, noise.kernel, noise.approximation, threshold=0.5)
    assert torch.equal(other.noise_covar.unspanned(NEW), noise.unspanned(NEW))
    for threshold in (-0.5, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="expected a threshold of 0 or more"):
            FITCGaussianLikelihood(noise.base_noise, noise.kernel, noise.approximation, threshold)


def test_noise_that_varies_is_added_to():
    residuals = (0.1 + X[:, 1]) * torch.randn(80, generator=GENERATOR, dtype=torch.float64)
    noise = ForestNoise(X, residuals, num_trees=10, random_state=0)
    model = set_up(fitc(X[:12], noise))
    with torch.no_grad():
        ratios = [(noise.exponent * noise.log_ratio(x)).exp() for x in (X, NEW)]
    for found, expected in zip(predicted(model), by_hand(X[:12], *(NOISE * ratio for ratio in ratios))):
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def test_marginal_likelihood_and_its_gradient():
    model = set_up(fitc(X[:12])).train()
    noise = model.likelihood.noise_covar.base_noise
    noise.raw_noise.requires_grad_(True)
    mll = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    value = mll(model(X), Y, X)
    value.backward()
    with torch.no_grad():
        inner, cross = OUTPUTSCALE * matern()(X[:12]).to_dense(), OUTPUTSCALE * matern()(X, X[:12]).to_dense()
        q = cross @ torch.linalg.solve(inner, cross.mT)
    level = torch.tensor(NOISE, dtype=torch.float64, requires_grad=True)
    A = q + torch.diag(OUTPUTSCALE - q.diagonal()) + level * torch.eye(80).double()
    expected = torch.distributions.MultivariateNormal(torch.full_like(Y, 0.3), A).log_prob(Y) / 80
    expected.backward()
    assert value.item() == pytest.approx(expected.item(), abs=1e-5)
    by_raw = level.grad * torch.sigmoid(noise.raw_noise.detach())
    torch.testing.assert_close(noise.raw_noise.grad, by_raw, rtol=1e-4, atol=1e-6)


def test_batches_and_points_of_one_column():
    exact = matern()
    likelihood = FITCGaussianLikelihood(
        HomoskedasticNoise().double(), exact, LandmarkKernel.from_kernel(exact, X[:5, :1])
    )
    points = torch.stack([X[:, :1], X[:, :1] + 1])
    batched = likelihood.noise_covar(points).diagonal(dim1=-2, dim2=-1)
    assert batched.shape == (2, 80)
    torch.testing.assert_close(batched[1], likelihood.noise_covar(points[1, :, 0]).diagonal())
    torch.testing.assert_close(batched[0], likelihood.noise_covar([points[0]]).diagonal())


def test_points_are_needed():
    likelihood = fitc(X[:12]).likelihood
    with pytest.raises(ValueError, match=r"likelihood\(model\(x\), x\)"):
        likelihood(MultivariateNormal(torch.zeros(3), torch.eye(3)))
