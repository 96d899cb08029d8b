"""Half of a symmetric matrix of counts, there and back."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gpytorch_partition.clusters.co_occurrence import added, packed, unpacked


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


def test_a_message_is_a_quarter_of_the_counts():
    counts = symmetric(320, 0)
    assert packed(counts).nbytes < 0.26 * counts.nbytes
