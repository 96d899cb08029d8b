"""Groups against one-hot matrices in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gpytorch_partition import GroupKernel
from gpytorch_partition.operators import PartitionLinearOperator


def places(num_rows, seed=0):
    """A column of numbers, and region, town and shop, numbered anew in every region and town."""
    random = np.random.RandomState(seed)
    codes = np.stack([random.randint(size, size=num_rows) for size in (4, 5, 6)], 1)
    return torch.from_numpy(np.concatenate([random.randn(num_rows, 1), codes], 1))


def same_groups(x1, x2, columns, nested):
    """For every level which pairs of rows agree, by comparison of values."""
    equal = [x1[:, None, column] == x2[None, :, column] for column in columns]
    levels = [torch.stack(equal[: i + 1]).all(0) if nested else equal[i] for i in range(len(columns))]
    return torch.stack(levels).double()


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(("columns", "weights"), [((1, 2, 3), (5.0, 2.0, 1.0)), ((3, 1), (1.0, 1.0)), ((2,), (3.0,))])
def test_the_share_of_common_groups(nested, columns, weights):
    kernel = GroupKernel(columns, nested=nested, weights=weights).double()
    shares = torch.tensor(weights, dtype=torch.float64) / sum(weights)
    new = places(40, seed=1)
    new[:5, 1:] += 7  # groups that no other row is in
    for x1, x2 in ((places(60), places(60)), (new, places(60)), (new, new)):
        operator = kernel(x1, x2).evaluate_kernel()
        assert isinstance(operator, PartitionLinearOperator)
        expected = torch.einsum("l,lij->ij", shares, same_groups(x1, x2, columns, nested))
        torch.testing.assert_close(operator.to_dense().detach(), expected)
        torch.testing.assert_close((operator @ torch.ones(len(x2)).double()).detach(), expected.sum(-1))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda x: GroupKernel((1, 1)), "distinct numbers of columns"),
        (lambda x: GroupKernel(None), "distinct numbers of columns"),
        (lambda x: GroupKernel((1,))(x.float() + 2.0**24), "below 16,777,216.*not told apart in torch.float32"),
        (lambda x: GroupKernel(()), "distinct numbers of columns"),
        (lambda x: GroupKernel((1, 2), weights=(1.0,)), "expected 2 positive weights"),
        (lambda x: GroupKernel((0, 1))(x), "expected whole numbers"),
        (lambda x: GroupKernel((1, 7))(x), "at least 8 columns, got 4"),
        (lambda x: GroupKernel((1,))(torch.where(x == 1, torch.nan, x)), "NaN or infinity"),
    ],
)
def test_clear_errors(make, message):
    with pytest.raises(ValueError, match=message):
        make(places(10)).evaluate_kernel()
