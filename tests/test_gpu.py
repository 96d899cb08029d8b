"""Kernels, exact GPs and the default model on a GPU, beside the same on the CPU."""

from __future__ import annotations

from copy import deepcopy

import gpytorch
import pytest
import torch
from gpytorch.kernels import ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from torch.testing import assert_close

from gpytorch_partition import default_model, fit_exact_gp, settings
from gpytorch_partition.models import PartitionGP
from tests.kernels.zoo import BUILD, ROWS, Model, X, Y

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

GENERATOR = torch.Generator().manual_seed(0)
MANY = torch.randn(3_000, 10, generator=GENERATOR)
TARGETS = MANY[:, 0].sin() + MANY[:, 1].abs() + 0.1 * torch.randn(3_000, generator=GENERATOR)
NEW = torch.randn(300, 10, generator=GENERATOR)
CLOSE = {"rtol": 1e-4, "atol": 1e-4}


def moved(value):
    return deepcopy(value).cuda()


def parameters(kernel):
    return [parameter for parameter in kernel.parameters() if parameter.requires_grad]


def evaluated(kernel, rows, values):
    """Return products, a diagonal, cross-covariances, and gradients, on the CPU."""
    covariance = kernel(rows)
    product = covariance @ values
    found = [product, covariance.diagonal(dim1=-2, dim2=-1), kernel(rows[:7], rows).to_dense()]
    if parameters(kernel):
        found += torch.autograd.grad((product * values).sum(), parameters(kernel))
    return [each.detach().cpu() for each in found]


@pytest.mark.parametrize("name", BUILD)
def test_kernels(name):
    rows, kernel = ROWS.get(name, X), BUILD[name](X)
    values = torch.randn(len(rows), 3, generator=torch.Generator().manual_seed(1))
    expected = evaluated(kernel, rows, values)
    assert_close(evaluated(moved(kernel), moved(rows), moved(values)), expected, **CLOSE)


@pytest.mark.parametrize("name", sorted(BUILD.keys() - ROWS.keys()))
def test_kernels_of_rows_there(name):
    values = torch.randn(len(X), 3, generator=torch.Generator().manual_seed(1))
    expected = evaluated(BUILD[name](X), X, values)
    found = BUILD[name](moved(X)).cuda()
    assert_close(evaluated(found, moved(X), moved(values)), expected, **CLOSE)


SOME = ["forest", "leaf", "learned", "fast_cluster", "mondrian", "local_linear", "iterative"]


def likelihoods(model, x, y):
    mll = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    loss = -mll(model.train()(x), y)
    loss.backward()
    return [loss.detach().cpu(), *(p.grad.cpu() for p in model.parameters() if p.grad is not None)]


@pytest.mark.parametrize("name", SOME)
@pytest.mark.parametrize("kind", [Model, PartitionGP])
def test_exact_gps(name, kind):
    x, y = X, Y + 0.1 * torch.randn(len(Y), generator=torch.Generator().manual_seed(2))
    model = kind(x, y, kernel=ScaleKernel(BUILD[name](x)), likelihood=GaussianLikelihood())
    there = deepcopy(model).cuda()
    assert_close(likelihoods(there, moved(x), moved(y)), likelihoods(model, x, y), rtol=1e-3, atol=1e-3)
    for each in (model, there):
        each.eval()
    with torch.no_grad():
        expected, found = model.likelihood(model(NEW)), there.likelihood(there(moved(NEW)))
        assert_close(found.mean.cpu(), expected.mean, rtol=1e-3, atol=1e-3)
        assert_close(found.variance.cpu(), expected.variance, rtol=1e-3, atol=1e-3)
        with gpytorch.settings.fast_pred_var():
            assert_close(there(moved(NEW)).variance.cpu(), model(NEW).variance, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("name", SOME)
def test_fits_and_predictions_of_many_rows(name):
    x, y = MANY, TARGETS
    model = PartitionGP(x, y, GaussianLikelihood(), BUILD[name](X))
    there = deepcopy(model).cuda()
    for each in (model, there):
        fit_exact_gp(each, each.likelihood)
        each.eval()
    assert_close(there.likelihood.noise.detach().cpu(), model.likelihood.noise.detach(), rtol=0.02, atol=1e-4)
    there.load_state_dict(model.state_dict())
    with torch.no_grad():
        for context in (settings.iterative, gpytorch.settings.fast_pred_var):
            with context():
                expected, found = model(NEW), there(moved(NEW))
                assert_close(found.mean.cpu(), expected.mean, rtol=1e-2, atol=1e-2)
                assert_close(found.variance.cpu(), expected.variance, rtol=0.1, atol=1e-3)
        with settings.iterative():
            draws = there(moved(NEW)).rsample(torch.Size([200]))
        assert draws.device.type == "cuda"
        assert_close(draws.var(0).mean(), there(moved(NEW)).variance.mean(), rtol=0.15, atol=1e-3)


@pytest.mark.parametrize("num_rows", [400, 2_500])
def test_default_model(num_rows):
    x, y = MANY[:num_rows], TARGETS[:num_rows]
    model = default_model(x, y, random_state=0)
    there, points = deepcopy(model).cuda(), NEW.double()
    with torch.no_grad(), settings.iterative():
        expected, found = model.likelihood(model(points), points), there.likelihood(there(moved(points)), moved(points))
        assert_close(found.mean.cpu(), expected.mean, rtol=1e-3, atol=1e-3)
        assert_close(found.variance.cpu(), expected.variance, rtol=0.05, atol=1e-3)


def test_default_model_of_rows_there():
    model = default_model(moved(MANY[:400]), moved(TARGETS[:400]), random_state=0)
    found = model(moved(NEW.double())).mean
    assert found.device.type == "cuda"
    expected = default_model(MANY[:400], TARGETS[:400], random_state=0)(NEW.double()).mean
    assert_close(found.cpu(), expected, rtol=1e-3, atol=1e-3)
