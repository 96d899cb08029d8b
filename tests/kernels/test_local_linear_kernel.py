"""The local linear kernel against its formula."""

from __future__ import annotations

import gpytorch
import pytest
import torch
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.priors import GammaPrior

from gpytorch_partition import (
    FastClusterKernel,
    IterativeKernel,
    LocalLinearKernel,
    RandomForestKernel,
    encode_missing,
)
from gpytorch_partition.operators import PartitionLinearOperator, PartitionSumLinearOperator

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(200, 3, generator=GENERATOR, dtype=torch.float64)
Y = X[:, 0].sin() + X[:, 1].abs()
NEW = torch.randn(20, 3, generator=GENERATOR, dtype=torch.float64)
VARIANCES = torch.tensor([0.5, 2.0, 0.1], dtype=torch.float64)


def _forest(**kwargs):
    return RandomForestKernel(X, Y, 10, random_state=0, **kwargs).double()


def _kernel(base=None, **kwargs):
    kernel = LocalLinearKernel(base or _forest(), 3, **kwargs).double()
    kernel.variance = VARIANCES
    return kernel


def _expected(base, x1, x2, variances=VARIANCES):
    return base(x1, x2).to_dense() * (1 + (x1 * variances) @ x2.mT)


@pytest.mark.parametrize(("x1", "x2"), [(X, X), (NEW, X), (X, NEW), (X[:20], NEW)])
@pytest.mark.parametrize(
    "base", [_forest(), FastClusterKernel(X, 20, random_state=0).double(), ScaleKernel(_forest()).double()]
)
def test_the_covariance_is_the_product_of_a_partition_kernel_and_a_linear_one(base, x1, x2):
    kernel, expected = _kernel(base), _expected(base, x1, x2)
    covariance = kernel(x1, x2).evaluate_kernel()
    assert isinstance(covariance, PartitionLinearOperator)
    torch.testing.assert_close(covariance.to_dense(), expected)
    torch.testing.assert_close(covariance @ NEW.new_ones(len(x2), 2), expected @ NEW.new_ones(len(x2), 2))
    if x1.shape == x2.shape:
        torch.testing.assert_close(kernel(x1, x2, diag=True), expected.diagonal())


def test_a_sum_of_partition_kernels_is_made_linear_term_by_term():
    base = ScaleKernel(_forest()) + gpytorch.kernels.ConstantKernel() + FastClusterKernel(X, 20, random_state=0)
    for x1, x2 in ((X, X), (X[:20], NEW)):
        covariance = _kernel(IterativeKernel(base.double()))(x1, x2).evaluate_kernel()
        assert isinstance(covariance, PartitionSumLinearOperator)
        assert covariance.linear_ops[0].is_symmetric == (x1 is x2)
        torch.testing.assert_close(covariance.to_dense(), _expected(base, x1, x2))
        torch.testing.assert_close(covariance[3:8, 2:9].to_dense(), _expected(base, x1[3:8], x2[2:9]))


def test_other_kernels_are_refused():
    with pytest.raises(TypeError, match="expected a partition kernel"):
        _kernel(RBFKernel())(X).evaluate_kernel()
    with pytest.raises(RuntimeError, match="without loadings"):
        _kernel(_kernel())(X).evaluate_kernel()


class TestColumns:
    def test_of_the_linear_part(self):
        kernel = LocalLinearKernel(_forest(), 2, active_dims=(2, 0)).double()
        kernel.variance = torch.tensor([0.1, 0.5])
        expected = _forest()(NEW, X).to_dense() * (1 + 0.1 * NEW[:, 2:] @ X[:, 2:].T + 0.5 * NEW[:, :1] @ X[:, :1].T)
        torch.testing.assert_close(kernel(NEW, X).to_dense(), expected)

    def test_of_the_partitions(self):
        base = RandomForestKernel(X, Y, 10, random_state=0, active_dims=(1, 2)).double()
        torch.testing.assert_close(_kernel(base)(NEW, X).to_dense(), _expected(base, NEW, X))

    @pytest.mark.parametrize(("num_dims", "active_dims"), [(2, (0, 1, 2)), (0, None), (2, (1, 1))])
    def test_that_do_not_fit(self, num_dims, active_dims):
        with pytest.raises(ValueError, match="active_dims|got num_dims=0"):
            LocalLinearKernel(_forest(), num_dims, active_dims=active_dims)

    def test_of_points_that_do_not_fit(self):
        with pytest.raises(ValueError, match="2 columns for its linear part, got 3"):
            LocalLinearKernel(_forest(), 2)(X)
        with pytest.raises(ValueError, match="built on 3 columns"):
            LocalLinearKernel(_forest(), 2)(X[:, :2]).to_dense()


def test_missing_values_are_zero_in_the_linear_part():
    missing = X.masked_fill(torch.rand(200, 3, generator=GENERATOR) < 0.2, torch.nan)
    base = RandomForestKernel(missing, Y, 10, random_state=0).double()
    for points in (missing, encode_missing(missing)):
        found = _kernel(base)(points).to_dense()
        linear = 1 + (missing.nan_to_num(0) * VARIANCES) @ missing.nan_to_num(0).T
        torch.testing.assert_close(found, base(missing).to_dense() * linear)


def test_prior_and_constraint():
    kernel = LocalLinearKernel(_forest(), 3, variance_prior=GammaPrior(2.0, 2.0), variance_constraint=GreaterThan(0.01))
    assert bool((kernel.variance > 0.01).all())
    name, module, prior, closure, setter = next(iter(kernel.named_priors()))
    setter(module, torch.tensor([0.3, 0.4, 0.5]))
    torch.testing.assert_close(closure(module), torch.tensor([[0.3, 0.4, 0.5]]))


class TestBatches:
    def test_of_variances(self):
        kernel = LocalLinearKernel(_forest(), 3, batch_shape=(2,)).double()
        kernel.variance = torch.stack([VARIANCES, 2 * VARIANCES]).unsqueeze(-2)
        expected = torch.stack([_expected(_forest(), NEW, X, scale * VARIANCES) for scale in (1, 2)])
        torch.testing.assert_close(kernel(NEW, X).to_dense(), expected)
        torch.testing.assert_close(kernel(NEW.expand(2, 20, 3), X.expand(2, 200, 3)).to_dense(), expected)
        torch.testing.assert_close(kernel[1](NEW, X).to_dense(), expected[1])
