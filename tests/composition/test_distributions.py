"""Entropies, divergences, roots, samples and leave-one-out likelihoods above the Cholesky limit, against dense ones."""

from __future__ import annotations

import math

import gpytorch
import linear_operator
import pytest
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.mlls import LeaveOneOutPseudoLikelihood
from torch.distributions import kl_divergence

from gpytorch_partition import FastClusterKernel, MondrianKernel, RandomForestKernel, settings
from gpytorch_partition.models import PartitionGP

_generator = torch.Generator().manual_seed(0)
X = torch.rand(900, 2, generator=_generator, dtype=torch.float64)  # more than GPyTorch's own Cholesky limit
Y = torch.sin(6 * X[:, 0]) + X[:, 1] + 0.1 * torch.randn(900, generator=_generator, dtype=torch.float64)


def forest(**options):
    return RandomForestKernel(X, Y, num_trees=6, min_samples_leaf=20, random_state=0, **options)


def clusters(x=X):
    return FastClusterKernel(x, 10, height=4, random_state=0)


def cells():
    return MondrianKernel(X, 8, lifetime=3.0, random_state=0)


KERNELS = {"forest": forest, "clusters": clusters, "cells": cells}


def noisy(kernel, noise=0.1, outputscale=2.0, mean=0.3, x=X):
    """The distribution of noisy values, and the leaves that its gradients are by."""
    kernel = ScaleKernel(kernel).to(x)
    kernel.outputscale = outputscale
    noise = torch.tensor(noise, dtype=x.dtype, requires_grad=True)
    mean = torch.tensor(mean, dtype=x.dtype, requires_grad=True)
    covariance = kernel(x).add_diagonal(noise)
    return MultivariateNormal(mean.expand(len(x)), covariance), [noise, mean, kernel.raw_outputscale]


def dense(distribution):
    matrix = distribution.lazy_covariance_matrix.to_dense()
    return torch.distributions.MultivariateNormal(distribution.loc, matrix)


def check_gradients(found, expected, leaves, rtol=1e-6):
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)
    ours, theirs = (
        torch.autograd.grad(value, leaves, allow_unused=True, retain_graph=True) for value in (found, expected)
    )
    for own, their in zip(ours, theirs):
        own = torch.zeros(()).double() if own is None else own
        torch.testing.assert_close(own, torch.zeros_like(own) if their is None else their, rtol=rtol, atol=1e-6)


@pytest.mark.parametrize("noise", [0.1, 1e-6])
@pytest.mark.parametrize("name", KERNELS)
def test_entropies_and_divergences(name, noise):
    (p, leaves), (q, more) = noisy(KERNELS[name](), noise), noisy(KERNELS[name](), 3 * noise, 1.0, 0.0)
    check_gradients(p.entropy(), dense(p).entropy(), leaves)
    torch.testing.assert_close(kl_divergence(q, q).item(), 0.0, atol=1e-6, rtol=0)
    check_gradients(kl_divergence(p, q), kl_divergence(dense(p), dense(q)), [*leaves, *more], rtol=1e-5)


def test_divergence_of_kernels_with_other_clusters():
    (p, leaves), (q, more) = noisy(forest()), noisy(cells(), 0.3, 1.0)
    check_gradients(kl_divergence(p, q), kl_divergence(dense(p), dense(q)), [*leaves, *more])


def model_of(kernel, noise=0.1, x=X, y=Y):
    likelihood = gpytorch.likelihoods.GaussianLikelihood(noise_constraint=gpytorch.constraints.GreaterThan(1e-9)).to(x)
    model = PartitionGP(x, y, likelihood, kernel).to(x)
    likelihood.noise, model.covar_module.outputscale = noise, 2.0
    return model.train(), likelihood


def leave_one_out(model, likelihood):
    x, y = model.train_inputs[0], model.train_targets
    value = LeaveOneOutPseudoLikelihood(likelihood, model)(model(x), y)
    return value, torch.autograd.grad(value, [p for p in model.parameters() if p.requires_grad])


@pytest.mark.parametrize("noise", [0.1, 1e-6])
@pytest.mark.parametrize("name", [*KERNELS, "trained levels"])
def test_leave_one_out(name, noise):
    """Closed form with the diagonal of the inverse; the same as GPyTorch's, dense."""
    kernel = forest(heights="learned") if name == "trained levels" else KERNELS[name]()
    model, likelihood = model_of(kernel, noise)
    value, gradients = leave_one_out(model, likelihood)
    with linear_operator.settings.max_cholesky_size(1_000):
        expected, theirs = leave_one_out(model, likelihood)
    torch.testing.assert_close(value, expected, rtol=1e-8, atol=1e-8)
    rounding = 1e-8 * max(float(their.abs().max()) for their in theirs)
    for ours, their in zip(gradients, theirs):
        torch.testing.assert_close(ours, their, rtol=1e-5, atol=rounding)


def test_leave_one_out_predicts_what_is_left_out():
    model, likelihood = model_of(clusters())
    covariance = dense(likelihood(model(X))).covariance_matrix.detach()
    residual, total = Y - model.mean_module(X).detach(), 0.0
    for row in range(0, 900, 100):
        others = torch.arange(900) != row
        solved = torch.linalg.solve(covariance[others][:, others], covariance[others, row])
        variance = covariance[row, row] - solved @ covariance[others, row]
        total += torch.distributions.Normal(solved @ residual[others], variance.sqrt()).log_prob(residual[row])
    own = LeaveOneOutPseudoLikelihood(likelihood, model)
    output = likelihood(model(X))
    precision = torch.linalg.inv(covariance).diagonal()
    every = 0.5 * (
        precision.log() - (torch.linalg.solve(covariance, residual)) ** 2 / precision - math.log(2 * math.pi)
    )
    torch.testing.assert_close(every[::100].sum(), total)
    torch.testing.assert_close(own(model(X), Y), every.mean(), rtol=1e-8, atol=0)
    assert output.event_shape == (900,)


def test_twenty_thousand_rows_need_no_dense_matrix():
    """20,000 x 20,000 numbers would be 3.2 GB; the memory held is that of some columns."""
    x = torch.rand(20_000, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    y = x.sum(-1)
    model, likelihood = model_of(clusters(x), x=x, y=y)
    value, gradients = leave_one_out(model, likelihood)
    few = torch.arange(0, 20_000, 25)
    assert math.isfinite(value)
    assert all(bool(gradient.isfinite().all()) for gradient in gradients)
    assert math.isfinite(likelihood(model(x)).entropy())
    assert likelihood(model(x))[few].variance.shape == (800,)


@pytest.mark.parametrize("iterative", [False, True])
def test_refused_by_name(iterative):
    """What would be dense, at GPyTorch's settings above 800 rows and at this package's above 2,000."""
    size = 2_100 if iterative else 900
    x = torch.rand(size, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    kernel = MondrianKernel(x, 10, lifetime=50.0, random_state=0)  # more cells than rows
    model, likelihood = model_of(kernel, x=x, y=x.sum(-1))
    with settings.iterative() if iterative else settings.variance_tolerance(0.01):
        distribution = likelihood(model(x))
        with pytest.raises(RuntimeError, match=r"leave-one-out .* max_cholesky_size"):
            leave_one_out(model, likelihood)
        with pytest.raises(RuntimeError, match=r"Kullback-Leibler .* max_cholesky_size"):
            kl_divergence(distribution, distribution)
        for task in (lambda prior: prior.entropy(), lambda prior: prior.log_prob(x.sum(-1))):
            with pytest.raises(RuntimeError, match="likelihood"):
                task(model(x))
        with pytest.raises(RuntimeError, match="max_cholesky_size"):
            _ = (ScaleKernel(RBFKernel()).double()(x) + kernel(x)).root_decomposition()
        with pytest.raises(RuntimeError, match="max_cholesky_size"):
            _ = distribution.scale_tril


@pytest.mark.parametrize("name", KERNELS)
def test_roots_and_samples_of_given_numbers(name):
    """A root of covariance plus noise, which was one of 100 Lanczos steps: a diagonal of 1 in place of 1.1."""
    distribution, _ = noisy(KERNELS[name]())
    matrix, covariance = distribution.lazy_covariance_matrix, distribution.covariance_matrix.detach()
    root = matrix.root_decomposition()
    torch.testing.assert_close(root.diagonal(dim1=-1, dim2=-2), covariance.diagonal())
    probe = torch.randn(900, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(root @ probe, covariance @ probe)
    torch.testing.assert_close(root.root @ (root.root.mT @ probe), covariance @ probe)
    numbers = torch.eye(*distribution.base_sample_shape, dtype=torch.float64)  # each sample is a column of the root
    columns = distribution.rsample(base_samples=numbers) - distribution.loc
    torch.testing.assert_close((columns.mT @ columns).detach(), covariance)


@pytest.mark.parametrize("size", [100, 900])
def test_base_samples_of_a_prior(size):
    """Of a covariance without noise, whose root has as many columns as there are nodes."""
    prior = MultivariateNormal(torch.zeros(size).double(), forest()(X[:size]))
    numbers = prior.get_base_samples(torch.Size([2, 3]))
    samples = prior.rsample(torch.Size([2, 3]), base_samples=numbers)
    assert samples.shape == (2, 3, size)
    torch.testing.assert_close(samples[1, 2], prior.rsample(base_samples=numbers[1, 2]))
    with pytest.raises(ValueError, match="expected base samples of shape"):
        prior.rsample(base_samples=torch.zeros(4, size + 1))


def test_few_values_are_as_in_gpytorch():
    p, q = (noisy(forest(), noise, x=X[:200])[0] for noise in (0.1, 0.3))
    torch.testing.assert_close(p.entropy(), dense(p).entropy())
    torch.testing.assert_close(kl_divergence(p, q), kl_divergence(dense(p), dense(q)))
    torch.testing.assert_close(kl_divergence(p, MultivariateNormal(q.loc, q.covariance_matrix)), kl_divergence(p, q))
    assert p.get_base_samples(torch.Size([3])).shape == (3, 200)
