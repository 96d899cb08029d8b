"""Rows that are copies of others."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpytorch_partition.inputs.row_choice import rows_without_copies


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
