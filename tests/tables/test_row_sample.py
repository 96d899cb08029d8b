"""Samples of rows in one pass: uniform, of the wanted size, and the same however rows are divided."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, kstest

from gpytorch_partition.tables.chunks import ChunkSource
from gpytorch_partition.tables.row_sample import RowSample


def chunks_of(num_rows, ends):
    x, cuts = np.arange(float(num_rows)), sorted({0, *ends, num_rows})
    return ChunkSource([(x[a:b, None], 2 * x[a:b]) for a, b in zip(cuts, cuts[1:])])


def sample_of(num_rows, size, ends=(), seed=0):
    return RowSample(size, np.random.RandomState(seed)).of(chunks_of(num_rows, ends))


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 300), st.integers(1, 200), st.sets(st.integers(1, 299), max_size=8))
def test_ends_of_chunks_change_nothing(num_rows, size, ends):
    ends = [end for end in ends if end < num_rows]
    found, whole = sample_of(num_rows, size, ends), sample_of(num_rows, size)
    assert found.rows.tolist() == whole.rows.tolist() == sorted(set(whole.rows.tolist()))
    assert len(found.rows) == min(size, -(-num_rows // 2))
    np.testing.assert_array_equal(found.x[:, 0], found.rows)
    np.testing.assert_array_equal(found.y, 2 * found.rows)
    chunks = list(chunks_of(num_rows, ends))
    others = np.concatenate([chunk.first_row + found.others(chunk) for chunk in chunks])
    assert sorted([*others, *found.rows]) == list(range(num_rows))


def test_each_row_is_as_likely():
    ends = range(7, 100, 7)
    drawn = np.concatenate([sample_of(100, 10, ends, seed).rows for seed in range(300)])
    counts = np.bincount(drawn, minlength=100)  # a tenth of 300 each, on average
    assert min(binomtest(int(count), 300, 0.1).pvalue for count in counts) > 1e-5
    assert kstest(drawn / 100, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("seed", [0, 1])
def test_data_of_the_same_seed_are_not_the_priorities(seed):
    x = np.random.RandomState(seed).rand(20_000, 1)
    found = RowSample(2_000, np.random.RandomState(seed)).of(ChunkSource([(x, x[:, 0])]))
    assert kstest(found.y, "uniform").pvalue > 1e-3
