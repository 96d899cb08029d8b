"""Numbers and rows that cannot be used are refused by the name of what was given, with what to do."""

from __future__ import annotations

import gpytorch
import numpy as np
import pytest
import torch

from gpytorch_partition import (
    GammaMondrianKernel,
    MondrianKernel,
    RandomBinningKernel,
    RandomForestKernel,
    fit_exact_gp,
)
from gpytorch_partition.estimators import PartitionGPRegressor
from gpytorch_partition.estimators.kernels import resolved_kernel
from gpytorch_partition.lifetimes import lifetime_sweep
from gpytorch_partition.models import FeatureSpaceGP, PartitionGP
from gpytorch_partition.training.marginal_likelihood import maximize_marginal_likelihood
from tests.faults.estimators_zoo import numbers, rows, two_targets

X = rows(0, 40)
x, y = torch.from_numpy(X), torch.from_numpy(X[:, 0])
NO_COUNTS = (0, -1, 1.5, True, "many")


@pytest.mark.parametrize("kernel", [GammaMondrianKernel, MondrianKernel, RandomBinningKernel])
def test_no_rows(kernel):
    with pytest.raises(ValueError, match=r"at least one row and one column \(N x D\), got shape \(0, 3\)"):
        kernel(x[:0], random_state=0)
    built = kernel(x, 5, random_state=0)
    for _ in range(2):  # the second time no rows are cached
        assert built(x[:0]).to_dense().shape == (0, 0)
        assert built(x, x[:0]).to_dense().shape == (40, 0)
        assert built(x[:0], x).to_dense().shape == (0, 40)


@pytest.mark.parametrize("method", ["add_rows", "remove_rows"])
@pytest.mark.parametrize("pair", [(X, X[:, 0]), (X, y), (x, X[:, 0]), (X.tolist(), y)], ids=["both", "x", "y", "list"])
def test_rows_that_are_no_tensors(method, pair):
    model = FeatureSpaceGP(MondrianKernel(x, 5, random_state=0))
    with pytest.raises(
        TypeError, match=r"as a tensor of real numbers, got (ndarray|list): torch\.as_tensor.*array_chunks"
    ):
        getattr(model, method)(*pair)
    with pytest.raises(TypeError, match="chunks of two parts, points and targets, got a Tensor"):
        model.add_chunks([x])


@pytest.mark.parametrize("number", NO_COUNTS)
def test_numbers_of_samples(number):
    for targets in (numbers(X), two_targets(X)):
        model = PartitionGPRegressor("fast_cluster", 5, random_state=0).fit(X, targets)
        assert model.sample_y(X[:3], np.int64(2)).shape[-1] == 2
        with pytest.raises(ValueError, match=f"expected n_samples to be a whole number, 1 or more, got {number!r}"):
            model.sample_y(X[:3], number)
    counted = FeatureSpaceGP(MondrianKernel(x, 5, random_state=0))
    counted.add_rows(x, y)
    counted.fit()
    with pytest.raises(ValueError, match=f"num_samples={number!r}"):
        counted.sample(x[:3], number)


@pytest.mark.parametrize("number", NO_COUNTS)
def test_numbers_of_partitions(number):
    for name in ("forest", "fast_cluster", "mondrian"):
        with pytest.raises(ValueError, match=f"expected num_partitions to be .*got {number!r}"):
            resolved_kernel(name, x, y, num_partitions=number)
        with pytest.raises(ValueError, match="expected num_partitions"):
            PartitionGPRegressor(name, number).fit(X, X[:, 0])


@pytest.mark.parametrize("number", NO_COUNTS)
def test_numbers_of_iterations(number):
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = PartitionGP(x, y, likelihood, MondrianKernel(x, 5, random_state=0))
    counted = FeatureSpaceGP(RandomForestKernel(x, y, 5, random_state=0))
    counted.add_rows(x, y)
    works = [
        lambda: fit_exact_gp(model, likelihood, max_iterations=number),
        lambda: maximize_marginal_likelihood(model, likelihood, max_iterations=number),
        lambda: counted.fit_level_weights(max_iterations=number),
        lambda: PartitionGPRegressor("forest", 5, max_iterations=number).fit(X, X[:, 0]),
    ]
    for work in works:
        with pytest.raises(ValueError, match=r"max_iterations.* 1 or more|1 or more, got max_iterations"):
            work()
    with pytest.raises(ValueError, match="num_probes="):
        fit_exact_gp(model, likelihood, num_probes=number)


def test_very_short_lifetimes():
    kernel = MondrianKernel(x, 5, max_lifetime=4.0, random_state=0)
    sweep = lifetime_sweep(kernel, x, y - y.mean(), lifetimes=[1e-300, 1.0])
    assert bool(sweep.posterior().isfinite().all())
    assert abs(float(sweep.posterior().sum()) - 1) < 1e-12
    assert bool(sweep.predict(x)[0].isfinite().all())
    with pytest.raises(ValueError, match=r"expected lifetimes as numbers, or \"cuts\", got \['a'\]"):
        lifetime_sweep(kernel, x, y, lifetimes=["a"])
    with pytest.raises(ValueError, match="concentration=1e-300"):
        GammaMondrianKernel(x, 5, concentration=1e-300)
