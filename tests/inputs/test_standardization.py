"""Moments of columns and targets: missing values, constant columns, and the two orders of summation."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gpytorch_partition.inputs.standardization import Standardization

X = torch.randn(200, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 5 + 2


@pytest.mark.parametrize("values", [X, X[:, 0], X.masked_fill(X > 4, torch.nan), X.float()])
def test_known_values_have_mean_0_and_deviation_1_and_come_back(values):
    found = Standardization.of(values)
    standardized = found.apply(values)
    torch.testing.assert_close(standardized.nanmean(0), torch.zeros(values.shape[1:]).double(), atol=1e-12, rtol=0)
    torch.testing.assert_close(standardized.square().nanmean(0), torch.ones(values.shape[1:]).double())
    torch.testing.assert_close(found.undo(standardized), values.double(), equal_nan=True)


@pytest.mark.parametrize("values", [X, X[:, 0], X.masked_fill(X > 4, torch.nan)])
def test_arrays_have_the_same_up_to_the_order_of_sums(values):
    found, array = Standardization.of_array(values.numpy()), values.numpy()[::-1]
    expected = Standardization.of(values)
    torch.testing.assert_close(found.mean, expected.mean, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found.scale, expected.scale, rtol=1e-12, atol=0)
    array.flags.writeable = False
    assert torch.equal(found.apply_array(array).nan_to_num(), found.apply(values).flip(0).nan_to_num())


@pytest.mark.parametrize("of", [Standardization.of, lambda x: Standardization.of_array(x.numpy())])
def test_columns_that_are_constant_up_to_rounding_or_unknown_keep_their_unit(of):
    thirds = torch.full((7,), 0.1).double() * 3 + torch.tensor([0, 1e-17] * 3 + [0]).double()
    found = of(torch.stack([thirds, torch.full((7,), torch.nan), torch.arange(7)], 1).double())
    assert found.scale.tolist() == [1, 1, 2]
    assert found.mean.tolist() == [pytest.approx(0.3), 0, 3]


def test_numbers_of_numpy_are_those_of_numpy():
    values = np.random.RandomState(0).rand(1_000, 4)
    found = Standardization.of_array(values)
    assert np.array_equal(found.mean, values.mean(0))
    assert np.array_equal(found.scale, values.std(0))


@pytest.mark.parametrize("level", [3e8, -5e-8, 0.0])
def test_constant_targets_have_the_unit_of_their_size(level):
    targets = torch.full((4, 2), level, dtype=torch.float64)
    targets[:, 1] = torch.tensor([1.0, 3.0, 1.0, 3.0])
    expected = [abs(level) or 1.0, 1.0]
    assert Standardization.of(targets, are_targets=True).scale.tolist() == expected
    assert Standardization.of_array(targets.numpy(), are_targets=True).scale.tolist() == expected
    assert Standardization.of_weighted(targets[:, 0], torch.ones(4).double()).scale == pytest.approx(expected[0])
