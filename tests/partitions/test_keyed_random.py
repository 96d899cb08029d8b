"""Keyed random numbers: SplitMix64 in plain integers, distributions by statistics."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from gpytorch_partition.partitions import hashed_cells
from gpytorch_partition.partitions.hashed_cells import exponentials, hashed, uniforms

KEYS = torch.arange(100_000)
WORD = 2**64


def splitmix64(seed, count):
    """The first outputs of the generator, in Python's integers."""
    outputs = []
    for i in range(1, count + 1):
        z = (seed + i * 0x9E3779B97F4A7C15) % WORD
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % WORD
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % WORD
        outputs.append(z ^ (z >> 31))
    return outputs


def as_signed(value):
    return value - WORD if value >= WORD // 2 else value


def test_oracle_gives_the_published_outputs():
    assert splitmix64(1234567, 3) == [6457827717110365317, 3203168211198807973, 9817491932198370423]


@given(st.integers(-(2**63), 2**63 - 1))
@settings(derandomize=True, deadline=None, max_examples=50)
def test_hash_is_splitmix64(key):
    outputs = splitmix64(key % WORD, 4)
    assert [hashed(torch.tensor([key]), salt).item() for salt in range(4)] == [as_signed(z) for z in outputs]


def test_uniforms_are_uniform():
    assert stats.kstest(uniforms(KEYS, 0).numpy(), "uniform").pvalue > 0.01


def test_exponentials_are_exponential():
    assert stats.kstest(exponentials(KEYS, 0).numpy(), "expon").pvalue > 0.01


@pytest.mark.parametrize("bits", [0, -1, -(2**63), 2**63 - 1])
def test_extreme_hashes_stay_inside_the_open_interval(monkeypatch, bits):
    monkeypatch.setattr(hashed_cells, "hashed", lambda keys, salt: torch.full_like(keys, bits))
    assert 0 < uniforms(KEYS[:1], 0).item() < 1
    assert 0 < exponentials(KEYS[:1], 0).item() < math.inf


def test_logarithm_is_accurate():
    u = torch.cat([uniforms(KEYS, 0), torch.tensor([2.0**-53, 0.5, 1 - 2.0**-53, 0.5**0.5], dtype=torch.float64)])
    expected = np.log(u.numpy())
    assert np.abs(hashed_cells._log(u).numpy() / expected - 1).max() < 1e-15


def test_a_number_does_not_depend_on_its_position():
    together = exponentials(KEYS[:1001], 2)
    assert torch.equal(together, torch.cat([exponentials(key, 2) for key in KEYS[:1001].split(7)]))
