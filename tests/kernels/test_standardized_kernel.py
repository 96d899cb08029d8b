"""Kernels of standardized columns against the kernel inside, on columns standardized by hand."""

from __future__ import annotations

import copy

import pytest
import torch
from gpytorch.kernels import LinearKernel, ScaleKernel

from gpytorch_partition import FastClusterKernel, RandomForestKernel, encode_missing
from gpytorch_partition.inputs.standardization import Standardization
from gpytorch_partition.kernels import StandardizedKernel

GENERATOR = torch.Generator().manual_seed(0)
X = torch.rand(80, 3, generator=GENERATOR, dtype=torch.float64) * torch.tensor([1e-3, 1.0, 1e4]) + 5
X[:, 1] = 7.0
Z = (X - X.mean(0)) / torch.where(X.std(0, correction=0) > 0, X.std(0, correction=0), 1.0)
NEW = X[:10].flip(0) * 1.01


def kernel_of(x=X, z=Z):
    return StandardizedKernel(ScaleKernel(FastClusterKernel(z, 50, random_state=0)), x).double()


def test_it_is_the_kernel_inside():
    new = (NEW - X.mean(0)) / torch.where(X.std(0, correction=0) > 0, X.std(0, correction=0), 1.0)
    kernel = kernel_of()
    torch.testing.assert_close(kernel(X, NEW).to_dense(), kernel.base_kernel(Z, new).to_dense())
    torch.testing.assert_close(kernel(NEW, diag=True), kernel.base_kernel(new, diag=True))
    linear = StandardizedKernel(LinearKernel(), X).double()
    torch.testing.assert_close(linear(X).to_dense(), linear.base_kernel.variance * Z @ Z.T)


def test_far_values_of_the_map_count_by_their_logarithm_in_a_loaded_kernel_too():
    x = X.index_put((torch.tensor(0), torch.tensor(2)), torch.tensor(1e9).double())
    columns = Standardization.of_columns(x)
    kernel, loaded = (StandardizedKernel(LinearKernel(), each).double() for each in (columns, None))
    loaded.load_state_dict(kernel.state_dict())
    for each in (kernel, loaded):
        assert torch.equal(each.standardized(x), columns.apply(x))
    assert 10 < float(columns.apply(x).max()) < 200


def test_missing_values_stay_missing():
    x = X.masked_fill(torch.rand(X.shape, generator=GENERATOR) < 0.2, torch.nan)
    forest = RandomForestKernel(x, X[:, 0], 20, random_state=0)
    kernel = StandardizedKernel(forest, x)
    z = (x - x.nanmean(0)) / (x - x.nanmean(0)).square().nanmean(0).sqrt().clamp_min(1e-12)
    expected = forest(z.masked_fill(x == 7.0, 0.0)).to_dense()
    torch.testing.assert_close(kernel(x).to_dense(), expected)
    torch.testing.assert_close(kernel(encode_missing(x)).to_dense(), expected)


def test_a_change_of_dtype_rounds_no_units():
    kernel = kernel_of()
    there_and_back = copy.deepcopy(kernel).float().double()
    assert torch.equal(there_and_back(X, NEW).to_dense(), kernel(X, NEW).to_dense())


def test_rows_that_say_no_units():
    for rows, message in ((X[:0], "at least one row"), (1 / (X - X[0]), "finite rows"), (X.numpy(), "tensor of rows")):
        with pytest.raises(ValueError, match=message):
            StandardizedKernel(LinearKernel(), rows)
