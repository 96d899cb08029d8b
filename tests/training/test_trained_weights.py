"""Weights of levels, trees and kernels learned by marginal likelihood: gradients, what is found, and what fits them."""

from __future__ import annotations

import warnings

import pytest
import torch
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.mlls import ExactMarginalLogLikelihood
from linear_operator import settings as linear_settings
from sklearn.ensemble import RandomForestRegressor

from gpytorch_partition import (
    FastClusterKernel,
    MondrianKernel,
    PartitionKernel,
    PartitionMixtureKernel,
    RandomForestKernel,
    fit_exact_gp,
    settings,
)
from gpytorch_partition.kernels import OverconfidenceWarning
from gpytorch_partition.models import PartitionGP
from gpytorch_partition.solvers import PartitionAddedDiagLinearOperator

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(150, 3, generator=GENERATOR, dtype=torch.float64)
Y = X[:, 0].sin() + X[:, 1].abs() + 0.3 * torch.randn(150, generator=GENERATOR, dtype=torch.float64)
FOREST = RandomForestRegressor(6, min_samples_leaf=5, random_state=0).fit(X.numpy(), Y.numpy())


def floors(x):
    return x.floor().long()


def forest(heights, **options):
    return RandomForestKernel.from_forest(FOREST, heights, random_state=0, **options)


def mixture():
    kernels = [
        forest("learned"),
        MondrianKernel(X, 5, lifetime=1.0, random_state=0),
        FastClusterKernel(X, 6, active_dims=(2, 0), random_state=0),
        PartitionKernel(floors, active_dims=(1,)),
    ]
    return PartitionMixtureKernel(kernels, [1, 2, 3, 4])


KERNELS = {
    "learned": lambda: forest("learned"),
    "impurity": lambda: forest("impurity"),
    "mixture": mixture,
    "flat mixture": lambda: PartitionMixtureKernel([forest("leaf"), MondrianKernel(X, 5)]),
}


def model_of(kernel, x=X, y=Y):
    model = PartitionGP(x, y, GaussianLikelihood(), kernel).double()
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter += 0.5 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return model


def trained(model):
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def likelihood_and_gradient(model):
    model.train()
    model.zero_grad()
    value = ExactMarginalLogLikelihood(model.likelihood, model)(model(*model.train_inputs), model.train_targets)
    value.backward()
    return value.item(), torch.cat([parameter.grad.reshape(-1) for parameter in trained(model)])


@pytest.mark.parametrize("name", KERNELS)
def test_gradient_of_the_likelihood_is_that_of_finite_differences(name):
    model = model_of(KERNELS[name]())
    _, gradient = likelihood_and_gradient(model)
    direction = torch.randn(gradient.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    place = torch.nn.utils.parameters_to_vector(trained(model)).detach()
    values = []
    for step in (1e-5, -1e-5):
        torch.nn.utils.vector_to_parameters(place + step * direction, trained(model))
        values.append(likelihood_and_gradient(model)[0])
    assert (values[0] - values[1]) / 2e-5 == pytest.approx(float(gradient @ direction), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("name", KERNELS)
def test_conjugate_gradients_and_quadrature_have_the_same_likelihood_and_gradient(name, monkeypatch):
    """With every unit vector as a probe, traces are exact: nothing is left to chance."""
    model = model_of(KERNELS[name]())
    expected, gradient = likelihood_and_gradient(model)
    every = torch.eye(150, dtype=torch.float64), torch.full((1, 150), 150**0.5, dtype=torch.float64)
    monkeypatch.setattr(PartitionAddedDiagLinearOperator, "_probe_vectors_and_norms", lambda self: every)
    with (
        linear_settings.max_cholesky_size(1),
        linear_settings.cg_tolerance(1e-10),
        linear_settings.max_lanczos_quadrature_iterations(150),
        settings.preconditioner("none"),
    ):
        found, own = likelihood_and_gradient(model)
    assert found == pytest.approx(expected, rel=1e-6)
    torch.testing.assert_close(own, gradient, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", ["learned", "mixture"])
def test_preconditioned_gradients_are_right_on_average(name):
    model = model_of(KERNELS[name]())
    _, gradient = likelihood_and_gradient(model)
    with (
        linear_settings.max_cholesky_size(1),
        linear_settings.min_preconditioning_size(1),
        settings.preconditioner_rank(30),
        linear_settings.cg_tolerance(1e-8),
        linear_settings.num_trace_samples(2_000),
        linear_settings.max_lanczos_quadrature_iterations(50),
    ):
        found = likelihood_and_gradient(model)[1]
    assert float((found - gradient).norm()) < 0.02 * float(gradient.norm())


def fixed_kernels():
    frozen = forest("learned")
    for parameter in frozen.logits.parameters():
        parameter.requires_grad_(False)
    mondrian = MondrianKernel(X, 5, lifetime=1.0, random_state=0)
    kernels = [mondrian, forest("impurity"), PartitionKernel(floors, active_dims=(1,))]
    trees = [forest("all"), FastClusterKernel(X, 6, random_state=0)]
    return {
        "impurity": forest("impurity"),
        "frozen": frozen,
        "mixture": PartitionMixtureKernel([*kernels, frozen], [1, 2, 3, 4], learn_weights=False),
        "trees and clusters": PartitionMixtureKernel(trees, learn_weights=False),
    }


@pytest.mark.parametrize("method", ["dense", "feature_space", "cluster_space", "krylov"])
@pytest.mark.parametrize("name", fixed_kernels())
def test_fixed_weights_are_fitted_in_one_pass(name, method):
    likelihood = GaussianLikelihood().double()
    model = PartitionGP(X, Y, likelihood, fixed_kernels()[name].double())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", OverconfidenceWarning)  # true, and nothing of weights
        fit = fit_exact_gp(model, likelihood, method=method, num_probes=300)
    assert fit.method == method
    scale, noise = model.covar_module.outputscale.item(), likelihood.noise.item()
    dense = scale * model.covar_module.base_kernel(X).to_dense().detach() + noise * torch.eye(150)
    mean = model.mean_module.constant.detach().expand(150)
    expected = torch.distributions.MultivariateNormal(mean, dense).log_prob(Y).item()
    assert fit.log_marginal_likelihood == pytest.approx(
        expected, abs=1e-3 if method in ("dense", "feature_space") else 6
    )
