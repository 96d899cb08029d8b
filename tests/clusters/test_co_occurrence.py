"""Counts of clusters that rows share, against the one-hot matrix itself."""

from __future__ import annotations

import pytest
import torch

from gpytorch_partition.clusters import co_occurrence
from gpytorch_partition.clusters.co_occurrence import count_co_occurrences, streamed_cluster_sums

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
