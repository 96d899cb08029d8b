"""Kernels that are built on the rows of their first call in training mode."""

from __future__ import annotations

import copy

import gpytorch
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel

from gpytorch_partition import FastClusterKernel, RandomForestKernel
from gpytorch_partition.estimators import PartitionGPRegressor
from gpytorch_partition.kernels import DeferredKernel
from gpytorch_partition.solvers import PartitionAddedDiagLinearOperator

GENERATOR = torch.Generator().manual_seed(0)
X = torch.rand(60, 3, generator=GENERATOR, dtype=torch.float64)
Y = X[:, 0] + 0.1 * torch.randn(60, generator=GENERATOR, dtype=torch.float64)
POINTS = torch.rand(7, 3, generator=GENERATOR, dtype=torch.float64)


class Transformed(gpytorch.models.ExactGP):
    def __init__(self, kernel):
        super().__init__(X, Y, gpytorch.likelihoods.GaussianLikelihood())
        self.mean_module, self.covar_module = gpytorch.means.ConstantMean(), ScaleKernel(kernel)

    def forward(self, x):
        x = 1_000 * x + 5
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def forest(x):
    return RandomForestKernel(x, Y, num_trees=20, random_state=0)


def trained(kernel):
    model = Transformed(kernel).double()
    likelihood = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        loss = -likelihood(model(X), Y)
        loss.backward()
        optimizer.step()
    return model.eval()


def test_it_is_built_on_the_rows_as_the_model_gives_them():
    deferred, built = trained(DeferredKernel(forest)), trained(forest(1_000 * X + 5))
    for model in (deferred, copy.deepcopy(deferred)):
        found, expected = model(POINTS), built(POINTS)
        assert torch.equal(found.mean, expected.mean)
        assert torch.equal(found.variance, expected.variance)
    twin = trained(DeferredKernel(lambda x: FastClusterKernel(x, 20)))
    with pytest.raises(RuntimeError, match="base_kernel"):
        twin.load_state_dict(built.state_dict())


def test_it_has_the_solver_of_the_kernel_inside():
    covariance = DeferredKernel(forest)(X).add_jitter(0.1).evaluate_kernel()
    assert isinstance(covariance, PartitionAddedDiagLinearOperator)


def test_predictions_without_a_training_build_it_on_the_training_rows():
    deferred, built = (
        Transformed(kernel).double().eval() for kernel in (DeferredKernel(forest), forest(1_000 * X + 5))
    )
    assert torch.equal(deferred(POINTS).mean, built(POINTS).mean)


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (FastClusterKernel(X, 5, random_state=0), TypeError, "expected a function from rows to a kernel, got a Fast"),
        (lambda x: "forest", TypeError, "expected a kernel, of this package or GPyTorch's, got a str"),
        (lambda x: RBFKernel() + forest(x), ValueError, "without parameters, got kernels.0.raw_lengthscale: add"),
    ],
)
def test_what_cannot_be_deferred_is_refused(build, error, message):
    with pytest.raises(error, match=message):
        DeferredKernel(build)(X).to_dense()


@pytest.mark.parametrize("pair", [(X.expand(2, -1, -1),), (X, POINTS)], ids=["batch", "other rows"])
def test_a_first_call_of_other_rows_is_refused(pair):
    with pytest.raises(ValueError, match=r"a first call with the same N x D rows twice, to build a kernel on, got \("):
        DeferredKernel(forest)(*pair).to_dense()


def test_estimators_take_its_function():
    kernel = DeferredKernel(forest)
    with pytest.raises(ValueError, match="got a DeferredKernel: give a function"):
        PartitionGPRegressor(ScaleKernel(kernel)).fit(X.numpy(), Y.numpy())
    assert kernel.base_kernel is None


def test_the_kernel_inside_has_its_mode():
    kernel = DeferredKernel(forest).eval()
    kernel(X).to_dense()
    assert not kernel.base_kernel.training


def test_a_model_of_botorch_gives_it_transformed_rows():
    models, transforms = pytest.importorskip("botorch.models"), pytest.importorskip("botorch.models.transforms")
    botorch = pytest.importorskip("botorch")
    cells = pytest.importorskip("gpytorch_partition.botorch")
    transform = transforms.Normalize(3)
    posteriors = []
    for kernel in (forest(transform(1_000 * X)), DeferredKernel(forest)):
        data = {"train_X": 1_000 * X, "train_Y": Y[:, None], "covar_module": ScaleKernel(kernel)}
        model = models.SingleTaskGP(**data, input_transform=transforms.Normalize(3))
        botorch.fit_gpytorch_mll(gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model))
        posteriors.append(model.posterior(1_000 * POINTS))
    assert torch.equal(posteriors[0].mean, posteriors[1].mean)
    assert torch.equal(posteriors[0].variance, posteriors[1].variance)
    best = botorch.acquisition.LogExpectedImprovement(model, best_f=Y.max())
    bounds = torch.tensor([[0.0] * 3, [1_000.0] * 3], dtype=torch.float64)
    assert torch.isfinite(cells.optimize_acqf_cells(best, bounds, q=1)[1])


def test_a_state_before_the_first_call_is_ignored_with_a_warning():
    built = DeferredKernel(forest)
    built(X).to_dense()
    fresh = DeferredKernel(forest)
    with pytest.warns(UserWarning, match="call it on its training rows, then load"):
        fresh.load_state_dict(built.state_dict())
    fresh(X).to_dense()
    fresh.load_state_dict(built.state_dict())
