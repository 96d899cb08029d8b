"""Sums over clusters in float32 beside a float64 covariance."""

import pytest
import torch
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.settings import max_eager_kernel_size as lazily
from linear_operator.settings import max_cholesky_size

from gpytorch_partition import FastClusterKernel, LocalLinearKernel, RandomForestKernel, settings
from gpytorch_partition.models import PartitionGP

N, NEW = 150, 40
X = torch.rand(N + NEW, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
X, TEST = X[:N], X[N:]
Y = (6 * X[:, 0]).sin() + X[:, 1]

KERNELS = {
    "forest": lambda: RandomForestKernel(X, Y, 20, random_state=0),
    "learned heights": lambda: RandomForestKernel(X, Y, 20, heights="learned", random_state=0),
    "flat": lambda: FastClusterKernel(X, 20, random_state=0),
}


def pair(name, loaded):
    """A kernel with sums in float32 and the same one without."""
    kernels = []
    for sum_dtype in (torch.float32, None):
        kernel = KERNELS[name]()
        kernel.sum_dtype = sum_dtype
        kernels.append((LocalLinearKernel(kernel, 3) if loaded else kernel).double())
    return kernels


@pytest.fixture(params=KERNELS)
def name(request):
    return request.param


@pytest.mark.parametrize("loaded", [False, True])
def test_products_are_those_of_float64_to_seven_digits(name, loaded):
    for points in (X, TEST):
        mixed, exact = (kernel(points, X).evaluate_kernel() for kernel in pair(name, loaded))
        values = torch.randn(N, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        found, expected = mixed @ values, exact @ values
        assert mixed.dtype == found.dtype == torch.float64
        assert 0 < (found - expected).abs().max() < 1e-5
        torch.testing.assert_close(mixed.to_dense(), exact.to_dense(), atol=1e-6, rtol=0)
    assert mixed.cluster_operator.dtype == torch.float32


@pytest.mark.parametrize("loaded", [False, True])
def test_roots_samples_and_entries(name, loaded):
    mixed, exact = (kernel(X).evaluate_kernel() for kernel in pair(name, loaded))
    root = mixed.sparse_root().to_dense()
    torch.testing.assert_close(root @ root.mT, exact.to_dense(), atol=1e-5, rtol=0)
    torch.testing.assert_close(mixed.sparse_root()._t_matmul(Y), root.mT @ Y, atol=1e-5, rtol=0)
    torch.testing.assert_close(mixed.diagonal(), exact.diagonal(), atol=1e-6, rtol=0)
    torch.testing.assert_close(mixed[3:9, [1, 2]].to_dense(), exact[3:9, [1, 2]].to_dense(), atol=1e-6, rtol=0)
    rows, columns = torch.tensor([0, 3, 5]), torch.tensor([1, 3, 2])
    assert mixed[rows, columns].dtype == torch.float64
    torch.testing.assert_close(mixed[rows, columns], exact[rows, columns], atol=1e-6, rtol=0)
    assert mixed.zero_mean_mvn_samples(2).dtype == torch.float64


def test_moves_keep_both_dtypes_and_conversions_do_not(name):
    mixed, _ = (kernel(X).evaluate_kernel() for kernel in pair(name, True))
    moved, converted = mixed.to("cpu"), mixed.to(dtype=torch.float64)
    assert (moved.dtype, moved.cluster_operator.dtype, moved.left_loadings.dtype) == (
        torch.float64,
        torch.float32,
        torch.float32,
    )
    assert converted.cluster_operator.dtype == converted.left_loadings.dtype == torch.float64
    assert mixed.pivoted_cholesky(5).dtype == torch.float64


@pytest.mark.parametrize("loaded", [False, True])
def test_predictions_by_iterative_solves_are_those_of_float64(name, loaded):
    moments = []
    for kernel in pair(name, loaded):
        model = PartitionGP(X, Y, GaussianLikelihood().double(), kernel).double().eval()
        model.likelihood.noise = 1e-3
        with torch.no_grad(), settings.iterative(), max_cholesky_size(20), lazily(1):
            posterior = model(TEST)
            samples = posterior.sample(torch.Size([3]))
            moments.append((posterior.mean, posterior.variance))
        assert samples.dtype == torch.float64
        assert torch.isfinite(samples).all()
    for found, expected in zip(*moments):
        torch.testing.assert_close(found, expected, atol=2e-3, rtol=1e-2)
