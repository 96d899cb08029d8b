"""Columns of codes, rows that are copies of others, and moments of columns and targets."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gpytorch_partition.inputs.row_choice import rows_without_copies
from gpytorch_partition.inputs.standardization import Standardization
from gpytorch_partition.inputs.training_rows import checked_categories

CODES = torch.tensor([[0.5, 2.0], [0.1, torch.nan], [0.2, 0.0]])


X = torch.randn(200, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 5 + 2


def test_numbers_of_any_kind_and_missing_cells_are_taken():
    assert checked_categories({np.int64(1): np.int32(4)}, CODES) == {1: 4}
    assert checked_categories(None, CODES) == checked_categories({}, CODES) == {}


@pytest.mark.parametrize(
    ("categories", "expected"),
    [
        ([1], "a mapping of columns"),
        ({2: 3}, "numbers from 0 to 1, got 2"),
        ({-1: 3}, "numbers from 0 to 1, got -1"),
        ({"town": 3}, "got 'town'"),
        ({1: 0}, "the number of levels of column 1, 1 or more, got 0"),
        ({1: 2.5}, "got 2.5"),
        ({1: 2}, "codes from 0 to 1, or NaN, in column 1 of categories, got 2"),
        ({0: 3}, "in column 0 of categories, got 0.5"),
    ],
)
def test_what_cannot_be_used_is_told(categories, expected):
    with pytest.raises(ValueError, match=expected):
        checked_categories(categories, CODES)


@given(st.integers(0, 10_000), st.integers(0, 12), st.booleans(), st.sampled_from([0.0, 1e9, 1.7e18]))
def test_the_first_of_equal_rows_is_kept(seed, num_copies, has_holes, large):
    """Whatever another column holds: nanoseconds since 1970 are of 1e18, beside which a sum loses all other cells."""
    random = np.random.RandomState(seed)
    x, y = np.c_[random.randn(60, 3), large * random.randint(1, 3, 60)], random.randn(60)
    x[:, :2][random.rand(60, 2) < 0.2 * has_holes] = np.nan
    chosen = np.concatenate([np.arange(60), random.randint(60, size=num_copies)])
    order = random.permutation(len(chosen))
    found = rows_without_copies(x[chosen][order], y[chosen][order])
    first = np.unique(chosen[order], return_index=True)[1]
    assert found is None if num_copies == 0 else (found == np.sort(first)).all()


@pytest.mark.parametrize("change", ["targets", "few rows", "few targets", "hardly any"])
def test_rows_that_are_no_copies_are_kept(change):
    random = np.random.RandomState(0)
    x, y = random.randn(300, 2), random.randn(300)
    x[200:], y[200:] = x[:100], y[:100]
    assert len(rows_without_copies(x, y)) == 200
    if change == "targets":
        y[200:] += 0.1
    if change == "few rows":
        x = np.round(x)[:, :1]
        y = x[:, 0] + 1e-3 * np.arange(300) % 7
    if change == "few targets":
        y = np.sign(x[:, 0])
    if change == "hardly any":
        x, y = x[:202], y[:202]
        assert rows_without_copies(x[:200], y[:200]) is None
        x, y = np.r_[x, random.randn(100, 2)], np.r_[y, random.randn(100)]
    assert rows_without_copies(x, y) is None


def test_zeros_of_both_signs_are_the_same():
    x, y = np.random.RandomState(0).randn(40, 2), np.arange(40.0)
    x[::2, 0] = 0.0
    copies = x[:10].copy()
    copies[copies == 0] = -0.0
    assert len(rows_without_copies(np.r_[x, copies], np.r_[y, y[:10]])) == 40


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


@pytest.mark.parametrize("wrong", [1e6, -9999.0, 100.0])
@pytest.mark.parametrize("num_wrong", [1, 2])
def test_values_far_from_the_others_count_by_their_logarithm(wrong, num_wrong):
    values, others = X.clone(), X[num_wrong:, 0]
    values[:num_wrong, 0], values[5, 1] = wrong, torch.nan
    found = Standardization.of_columns(values)
    middle = others.sort()[0][2:-2]
    assert abs(found.mean[0] - others.mean()) < num_wrong * 10 * middle.std() / 200 + 0.05
    assert middle.std() < found.scale[0] < 2 * others.std()  # 8 to 5,000 times as large with these cells
    assert torch.equal(found.mean[1:], Standardization.of(values).mean[1:])
    assert torch.equal(found.scale[1:], Standardization.of(values).scale[1:])
    standardized, distance = found.apply(values), abs((wrong - found.mean[0]) / found.scale[0]) / 10
    expected = 10 * (1 + distance.log()) if distance > 1 else 10 * distance
    assert float(standardized[0, 0].abs()) == pytest.approx(float(expected))
    torch.testing.assert_close(
        standardized[num_wrong:], ((values - found.mean) / found.scale)[num_wrong:], equal_nan=True
    )
    torch.testing.assert_close(found.undo(standardized), values, equal_nan=True)


@pytest.mark.parametrize("num_known", [0, 1, 2, 3])
def test_columns_of_few_known_values_are_standardized_as_others(num_known):
    values = X.clone()
    values[num_known:, 0] = torch.nan
    found, expected = Standardization.of_columns(values), Standardization.of(values)
    assert torch.equal(found.apply(values).nan_to_num(9.9), expected.apply(values).nan_to_num(9.9))


@pytest.mark.parametrize("num_rows", [40, 300])
def test_a_wrong_cell_and_missing_ones_leave_the_moments_of_the_others(num_rows):
    values = torch.randn(num_rows, 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    values[0], values[1 : num_rows // 3] = 1e9, torch.nan
    found, expected = Standardization.of_columns(values), Standardization.of(values[1:])
    assert abs(found.mean - expected.mean) < 0.6
    assert expected.scale < found.scale < 3 * expected.scale


@pytest.mark.parametrize("num_rare", [1, 4])
def test_codes_and_columns_of_nearly_one_value_stay(num_rare):
    rare = torch.zeros(300, 2).double()
    rare[:num_rare, 0], rare[:, 1] = torch.arange(1.0, num_rare + 1).double(), torch.arange(300)
    found = Standardization.of_columns(rare).without([1])
    assert torch.equal(found.apply(rare)[:, 1], rare[:, 1])
    assert torch.equal(found.scale[:1], Standardization.of(rare).scale[:1])
    torch.testing.assert_close(found.undo(found.apply(rare)), rare)


def test_far_values_have_finite_gradients():
    found = Standardization.of_columns(X).without([2])
    points = torch.tensor([[1e7, 2.0, 300.0]], dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(found.apply(points).sum(), points)
    expected = torch.stack([10 / (points[0, 0] - found.mean[0]), 1 / found.scale[1], torch.ones(()).double()])
    torch.testing.assert_close(gradient[0], expected.detach())
