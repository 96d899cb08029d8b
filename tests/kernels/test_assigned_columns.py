"""Columns that are chosen after a kernel was built, as BoTorch's MultiTaskGP does with a kernel it is given."""

from __future__ import annotations

import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel

from gpytorch_partition import (
    FastClusterKernel,
    LandmarkKernel,
    LocalLinearKernel,
    PartitionMixtureKernel,
    RandomForestKernel,
)

X = torch.rand(60, 5, generator=torch.Generator().manual_seed(0))
SEEN = X[:, [1, 3, 4]]
Y = X[:, 0].sin()
BUILD = {
    "forest": lambda: RandomForestKernel(SEEN, Y, 5, random_state=0),
    "landmark": lambda: LandmarkKernel(SEEN, Y, 10, random_state=0),
    "mixture": lambda: PartitionMixtureKernel([BUILD["forest"](), FastClusterKernel(SEEN, 5, random_state=0)]),
    "local_linear": lambda: LocalLinearKernel(ScaleKernel(BUILD["forest"]()), 3),
}


@pytest.mark.parametrize("columns", [(1, 3, 4), torch.tensor([1, 3, 4])])
@pytest.mark.parametrize("name", BUILD)
def test_columns_assigned_later_are_selected(name, columns):
    kernel, expected = BUILD[name](), BUILD[name]()(SEEN).to_dense()
    kernel.active_dims = columns
    torch.testing.assert_close(kernel(X).to_dense(), expected)
    scaled = ScaleKernel(kernel)
    torch.testing.assert_close(scaled(X).to_dense(), scaled.outputscale * expected)
    product = RBFKernel(active_dims=(0,)) * kernel
    torch.testing.assert_close(product(X).to_dense(), expected * RBFKernel()(X[:, :1]).to_dense())
    with pytest.raises(ValueError, match="columns"):
        kernel(SEEN[:, :1])
    torch.testing.assert_close(kernel(X).to_dense(), expected)


def test_assigned_columns_are_saved():
    kernel, twin = BUILD["forest"](), BUILD["forest"]()
    kernel.active_dims = (1, 3, 4)
    twin.load_state_dict(kernel.state_dict())
    torch.testing.assert_close(twin(X).to_dense(), BUILD["forest"]()(SEEN).to_dense())


def test_columns_of_its_own_stay_those_of_all_columns():
    kernel = RandomForestKernel(X, Y, 5, random_state=0, active_dims=(1, 3))
    expected = kernel(X).to_dense()
    kernel.active_dims = torch.tensor([1, 3, 4])  # all but the tasks' column
    torch.testing.assert_close(kernel(X).to_dense(), expected)
    with pytest.raises(ValueError, match=r"\(1, 3\).*\[1, 2\]"):
        kernel.active_dims = [1, 2]
