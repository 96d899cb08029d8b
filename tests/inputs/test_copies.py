"""Rows that are copies of others."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpytorch_partition.inputs.copies import rows_without_copies


@given(st.integers(0, 10_000), st.integers(0, 12), st.booleans())
def test_the_first_of_equal_rows_is_kept(seed, num_copies, has_holes):
    random = np.random.RandomState(seed)
    x, y = random.randn(60, 3), random.randn(60)
    x[:, :2][random.rand(60, 2) < 0.2 * has_holes] = np.nan
    chosen = np.concatenate([np.arange(60), random.randint(60, size=num_copies)])
    order = random.permutation(len(chosen))
    found = rows_without_copies(x[chosen][order], y[chosen][order])
    first = np.unique(chosen[order], return_index=True)[1]
    assert found is None if num_copies == 0 else (found == np.sort(first)).all()


@pytest.mark.parametrize("change", ["targets", "weights", "few rows", "few targets", "hardly any"])
def test_rows_that_are_no_copies_are_kept(change):
    random = np.random.RandomState(0)
    x, y, weights = random.randn(300, 2), random.randn(300), np.ones(300)
    x[200:], y[200:] = x[:100], y[:100]
    assert len(rows_without_copies(x, y, weights)) == 200
    if change == "targets":
        y[200:] += 0.1
    if change == "weights":
        weights[200:] = 2
    if change == "few rows":
        x = np.round(x)[:, :1]
        y = x[:, 0] + 1e-3 * np.arange(300) % 7
    if change == "few targets":
        y = np.sign(x[:, 0])
    if change == "hardly any":
        x, y, weights = x[:202], y[:202], weights[:202]
        assert rows_without_copies(x[:200], y[:200]) is None
        x, y, weights = np.r_[x, random.randn(100, 2)], np.r_[y, random.randn(100)], np.ones(302)
    assert rows_without_copies(x, y, weights) is None
