"""The parameter `kernel` of estimators: names, functions, and kernels that are built already."""

from __future__ import annotations

import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel

from gpytorch_partition import FastClusterKernel, MondrianKernel, RandomForestKernel
from gpytorch_partition.estimators.kernels import resolved_kernel

X = torch.rand(60, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = X[:, 0].sin()
CLUSTERS = FastClusterKernel(X, 10, random_state=0)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("forest", RandomForestKernel), ("fast_cluster", FastClusterKernel), ("mondrian", MondrianKernel)],
)
def test_a_name_builds_the_kernel_that_its_seed_fixes(name, kind):
    first, second = (resolved_kernel(name, X, Y, num_partitions=7, random_state=0) for _ in range(2))
    assert type(first) is kind
    assert first.num_partitions == 7
    assert torch.equal(first(X).to_dense(), second(X).to_dense())


@pytest.mark.parametrize(
    "kernel", [CLUSTERS, ScaleKernel(CLUSTERS), CLUSTERS + MondrianKernel(X, 5, random_state=0)], ids=repr
)
def test_a_built_kernel_stays_as_it_is(kernel):
    assert resolved_kernel(kernel, X) is kernel


def test_a_function_gets_rows_and_targets():
    kernel = resolved_kernel(lambda x, y: RandomForestKernel(x, y, 3, random_state=0), X, Y)
    assert kernel.num_partitions == 3


@pytest.mark.parametrize(
    ("kernel", "error", "message"),
    [
        ("rbf", ValueError, "got 'rbf'"),
        (3, ValueError, "got 3"),
        (None, ValueError, "got None"),
        ("forest", ValueError, r"Call fit\(X, y\)"),
        (RBFKernel(), TypeError, "got a RBFKernel.*LandmarkKernel"),
        (ScaleKernel(CLUSTERS) + RBFKernel(), TypeError, "got a RBFKernel"),
        (CLUSTERS * RBFKernel(), TypeError, "got a PartitionProductKernel"),
        (lambda x, y: RBFKernel(), TypeError, "got a RBFKernel"),
        (lambda x, y: x, TypeError, "function to return a gpytorch Kernel, got Tensor"),
        (FastClusterKernel(X, 5, batch_shape=(2,)), ValueError, r"of batch shape \(2,\)"),
    ],
)
def test_anything_else_is_refused(kernel, error, message):
    with pytest.raises(error, match=message):
        resolved_kernel(kernel, X)
