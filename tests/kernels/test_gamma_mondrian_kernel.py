"""The Mondrian kernel with a Gamma distributed lifetime, against its limit and against mixtures of flat ones."""

from __future__ import annotations

import math

import gpytorch
import pytest
import torch
from scipy import stats
from torch.autograd import gradcheck

from gpytorch_partition import GammaMondrianKernel, MondrianKernel, PartitionMixtureKernel, fit_exact_gp
from gpytorch_partition.kernels.mondrian_kernels import GammaLifetime, _GammaCDF
from gpytorch_partition.models import FeatureSpaceGP, PartitionGP
from tests.limits import many_rows


def uniform(n, d=2, seed=0):
    return torch.rand(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


X = uniform(60)
NEW = torch.cat([3 * uniform(30, seed=1) - 1, 20 * uniform(3, seed=2), X[:2]])


def kernel_of(num_trees=20, **kwargs):
    return GammaMondrianKernel(X, num_trees, **{"lifetime": 2.0, "random_state": 0, **kwargs}).double()


def limit(kernel, x1, x2):
    return (1 + torch.cdist(x1, x2, p=1) / kernel.rate.detach()) ** -kernel.concentration.detach()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("num_trees", [7, 20, 32])
@torch.no_grad()
def test_all_parts_are_of_one_covariance(num_trees, dtype):
    """To the last bit: what rounding made of them one by one would differ by more than a tiny noise."""
    kernel, x, new = kernel_of(num_trees).to(dtype), X.to(dtype), NEW.to(dtype)
    joint = kernel(torch.cat([x, new])).to_dense()
    assert torch.equal(kernel(x).to_dense(), joint[: len(x), : len(x)])
    assert torch.equal(kernel(new, x).to_dense(), joint[len(x) :, : len(x)])
    assert torch.equal(kernel(new).to_dense(), joint[len(x) :, len(x) :])
    assert len(joint.diagonal().unique()) == 1


class TestDistribution:
    @pytest.mark.parametrize("a", [0.3, 2.0, 50.0, 1e4])
    def test_gradients(self, a):
        parameters = [torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (a, 2.0)]
        times = torch.tensor([0.0, 0.1, 1.0, a / 2, 3 * a, math.inf], dtype=torch.float64)
        assert gradcheck(lambda a, b: _GammaCDF.apply(a, b, times), parameters)

    def test_values(self):
        lifetime = GammaLifetime(2.5, 0.7)
        times = torch.tensor([0.0, 0.5, 4.0, math.inf], dtype=torch.float64)
        expected = torch.from_numpy(stats.gamma.cdf(times.numpy(), 2.5, scale=1 / 0.7))
        torch.testing.assert_close(lifetime.cdf(times).detach(), expected, rtol=1e-6, atol=1e-6)

    def test_is_positive_and_can_be_set(self):
        kernel = kernel_of(concentration=3.0)
        torch.testing.assert_close(kernel.lifetime.item(), 2.0)
        kernel.concentration, kernel.rate = 5.0, 0.5
        torch.testing.assert_close((kernel.concentration.item(), kernel.rate.item()), (5.0, 0.5))
        for wrong in (0.0, -1.0, math.inf, math.nan):
            with pytest.raises(ValueError, match="positive, finite concentration"):
                kernel.concentration = wrong


class TestLimit:
    def test_is_a_laplace_kernel_for_a_certain_lifetime(self):
        gamma = kernel_of(concentration=1e8, max_lifetime=4.0)
        flat = MondrianKernel(X, 20, lifetime=2.0, max_lifetime=gamma.max_lifetime, random_state=0).double()
        flat.partition.tree_keys = gamma.partition.tree_keys  # the same trees
        for x1, x2 in ((X, X), (NEW, X), (X, NEW), (NEW, NEW)):
            torch.testing.assert_close(gamma(x1, x2).to_dense().detach(), flat(x1, x2).to_dense())


class TestMixture:
    @pytest.mark.slow
    def test_is_the_mean_over_lifetimes(self):
        """Against flat kernels of the same trees at 100 quantiles of the lifetime."""
        gamma = kernel_of(5, max_lifetime=100.0)
        flat = MondrianKernel(X, 5, max_lifetime=100.0, random_state=0).double()
        flat.partition.tree_keys = gamma.partition.tree_keys
        quantiles = stats.gamma.ppf((torch.arange(100) + 0.5) / 100, 2.0, scale=1.0)
        points = NEW[:20]
        for x1, x2 in ((X, X), (points, X)):
            total = torch.zeros(len(x1), len(x2), dtype=torch.float64)
            for lifetime in quantiles.tolist():
                flat.lifetime = lifetime
                total += flat(x1, x2).to_dense() / 100
            assert (gamma(x1, x2).to_dense() - total).abs().max() < 0.011  # steps of .01, as trees are few

    def test_rows_do_not_depend_on_others(self):
        kernel = kernel_of()
        kernel(X)
        together = kernel(NEW, X).to_dense()
        alone = torch.cat([kernel(point.unsqueeze(0), X).to_dense() for point in NEW])
        torch.testing.assert_close(together, alone, rtol=1e-14, atol=1e-15)


class TestTraining:
    @pytest.mark.parametrize("limit", [100, 300])
    def test_finds_a_width(self, limit):
        """Dense and by products: from a lifetime ten times too long towards that of the data."""
        x = uniform(150, 1)
        generator = torch.Generator().manual_seed(3)
        y = (6 * x[:, 0]).sin() + 0.1 * torch.randn(150, generator=generator, dtype=torch.float64)
        kernel = GammaMondrianKernel(x, 20, lifetime=20.0, max_lifetime=100.0, random_state=0)
        likelihood = gpytorch.likelihoods.GaussianLikelihood()
        model = PartitionGP(x, y, likelihood, kernel)
        with many_rows(limit), pytest.warns(UserWarning, match="L-BFGS"):
            fit = fit_exact_gp(model, likelihood)
        assert fit.method == "l-bfgs"
        assert 0.1 < kernel.lifetime.item() < 10
        model.eval()
        new = uniform(50, 1, seed=5)
        with many_rows(limit), torch.no_grad():
            predicted = model(new)
            error = (predicted.mean - (6 * new[:, 0]).sin()).square().mean().sqrt()
            assert error < 0.06
            assert ((predicted.variance > 0) & (predicted.variance < 0.1)).all()


class TestState:
    def test_default_reach(self):
        kernel = kernel_of(concentration=2.0)
        assert kernel.max_lifetime == pytest.approx(2 * stats.gamma.ppf(0.999, 2.0, scale=1.0))


def test_what_it_cannot_do_is_an_error():
    kernel = GammaMondrianKernel(X, 5, random_state=0)
    with pytest.raises(ValueError, match="with \\+"):
        PartitionMixtureKernel([kernel, kernel])(X).to_dense()
    with pytest.raises(ValueError, match="GammaMondrianKernel"):
        FeatureSpaceGP(kernel)
    with pytest.raises(ValueError, match="concentration=1e-300"):
        GammaMondrianKernel(X, 5, concentration=1e-300)
    for options in ({"concentration": 0.0}, {"lifetime": -1.0}, {"lifetime": math.nan}, {"max_lifetime": 0.0}):
        with pytest.raises(ValueError, match="positive, finite"):
            GammaMondrianKernel(X, 5, **options)
