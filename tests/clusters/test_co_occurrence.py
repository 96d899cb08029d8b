"""Counts of clusters that rows share, against the one-hot matrix itself, and packed, there and back."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gpytorch_partition.clusters import co_occurrence
from gpytorch_partition.clusters.co_occurrence import (
    added,
    count_co_occurrences,
    packed,
    streamed_cluster_sums,
    unpacked,
)

SIZES = (3, 1, 40, 7)


def _codes(num_rows, dtype=torch.int32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    offsets = torch.tensor([0, *SIZES[:-1]]).cumsum(0)
    return (
        torch.stack([torch.randint(size, (num_rows,), generator=generator) for size in SIZES], -1)
        .add(offsets)
        .to(dtype)
    )


def _one_hot(codes):
    return torch.zeros(len(codes), sum(SIZES), dtype=torch.float64).scatter_(1, codes.long(), 1.0)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("num_rows", [0, 1, 5, 300])
def test_counts_are_exact(num_rows, dtype):
    codes = _codes(num_rows, dtype)
    counts = torch.zeros(sum(SIZES), sum(SIZES), dtype=torch.float64)
    count_co_occurrences(counts, codes)
    assert torch.equal(counts, _one_hot(codes).mT @ _one_hot(codes))


@pytest.mark.parametrize("num_threads", [1, 2])
def test_chunks_threads_and_signs(monkeypatch, num_threads):
    monkeypatch.setattr(co_occurrence, "_ROWS_PER_CHUNK", 16)
    monkeypatch.setattr(torch, "get_num_threads", lambda: num_threads)
    codes = _codes(20_000)
    expected = _one_hot(codes).mT @ _one_hot(codes)
    counts = torch.zeros_like(expected)
    count_co_occurrences(counts, codes)
    assert torch.equal(counts, expected)
    count_co_occurrences(counts, codes[:7_000], sign=-1)
    rest = torch.zeros_like(expected)
    count_co_occurrences(rest, codes[7_000:])
    assert torch.equal(counts, rest)


def test_sums():
    codes, values = _codes(300), torch.randn(300, 2, generator=torch.Generator().manual_seed(1))
    sums = streamed_cluster_sums(codes, values, sum(SIZES))
    assert sums.dtype == torch.float64
    torch.testing.assert_close(sums, _one_hot(codes).mT @ values.double(), rtol=1e-12, atol=1e-12)


def symmetric(size, seed, largest=100):
    counts = torch.randint(0, largest, (size, size), generator=torch.Generator().manual_seed(seed)).double()
    return counts.triu() + counts.triu(1).mT


@given(size=st.integers(0, 9), seed=st.integers(0, 99))
def test_packed_counts_are_unpacked(size, seed):
    counts = symmetric(size, seed)
    found = packed(counts)
    assert found.dtype == torch.int32
    assert torch.equal(unpacked(found, size), counts)


@given(size=st.integers(1, 9), seed=st.integers(0, 99))
def test_they_add_up(size, seed):
    first, second = symmetric(size, seed), symmetric(size, seed + 1)
    assert torch.equal(unpacked(added(packed(first), packed(second)), size), first + second)


@pytest.mark.parametrize("largest", [2**31 - 1, 2**31])
def test_large_counts_take_eight_bytes(largest):
    counts = symmetric(5, 0)
    counts[2, 2] = largest
    found = packed(counts)
    assert found.dtype == (torch.int32 if largest < 2**31 else torch.float64)
    assert torch.equal(unpacked(found, 5), counts)
    total = added(found, found)
    assert total.dtype == torch.float64
    assert torch.equal(unpacked(total, 5), 2 * counts)
