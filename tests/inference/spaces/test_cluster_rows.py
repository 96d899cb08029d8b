"""Rows as solvers in cluster space ask for them, against dense matrices."""

from __future__ import annotations

import pytest
import torch

from gpytorch_partition.clusters.incidence import Incidence
from gpytorch_partition.inference.spaces.cluster_rows import LocalRows, Rows

NUM_ROWS, SIZES = 50, (4, 3, 6)


def drawn_rows(*, has_level: bool = False, far: float = 0.0) -> tuple[LocalRows, torch.Tensor, torch.Tensor]:
    """Rows, with their dense Z (times the level) and dense [Y, 1] (with the level for 1)."""
    generator = torch.Generator().manual_seed(0)
    offsets = torch.tensor([0, 4, 7])
    codes = torch.stack([torch.randint(size, (NUM_ROWS,), generator=generator) for size in SIZES], -1) + offsets
    level = torch.rand(NUM_ROWS, generator=generator, dtype=torch.float64) + 0.5 if has_level else None
    ones = torch.ones(NUM_ROWS, 1, dtype=torch.float64) if level is None else level.unsqueeze(-1)
    targets = ones * (far + torch.randn(NUM_ROWS, 2, generator=generator, dtype=torch.float64))
    dense = torch.zeros(NUM_ROWS, sum(SIZES), dtype=torch.float64).scatter_(1, codes, 1)
    return LocalRows(Incidence(codes, sum(SIZES)), targets, level), ones * dense, torch.cat([targets, ones], -1)


@pytest.mark.parametrize("has_level", [False, True])
def test_products_and_moments_are_those_of_dense_matrices(has_level):
    rows, dense, columns = drawn_rows(has_level=has_level, far=7.0)
    effects = torch.randn(sum(SIZES), 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    assert isinstance(rows, Rows)
    assert torch.allclose(rows.gram(effects), dense.mT @ dense @ effects, rtol=1e-12)
    at_zero = rows.moments().moved(torch.zeros(2, dtype=torch.float64))
    assert at_zero.num_rows == NUM_ROWS
    assert torch.allclose(at_zero.sums, dense.mT @ columns, rtol=1e-12)
    assert torch.allclose(at_zero.squares, columns.mT @ columns, rtol=1e-12)


def test_targets_far_from_zero_keep_their_digits():
    near, far = (drawn_rows(far=far)[0].moments() for far in (0.0, 2.0**30))
    assert torch.allclose(far.squares, near.squares, atol=1e-4)


def test_moments_of_shards_add_up():
    rows, *_ = drawn_rows(far=3.0)
    shards = [
        LocalRows(Incidence(codes, rows.num_clusters), targets).moments()
        for codes, targets in zip(rows.incidence.codes.split([0, 20, 30]), rows.targets.split([0, 20, 30]))
    ]
    total = shards[0].merged(shards[1]).merged(shards[2])
    assert torch.equal(total.centers, shards[1].centers)
    expected = rows.moments().moved(total.centers)
    assert total.num_rows == NUM_ROWS
    assert all(torch.allclose(one, other, atol=1e-11) for one, other in zip(total[1:], expected[1:]))


@pytest.mark.parametrize("has_level", [False, True])
def test_normal_sums_have_the_covariance_of_sums_over_rows(has_level):
    rows, dense, _ = drawn_rows(has_level=has_level)
    sums = rows.normal_sums(4_000, seed=3)
    assert torch.equal(sums[:, :5], rows.normal_sums(5, seed=3))
    assert not torch.equal(sums[:, :5], rows.normal_sums(5, seed=4))
    found, expected = sums @ sums.mT / 4_000, dense.mT @ dense
    deviations = ((expected.square() + torch.outer(expected.diagonal(), expected.diagonal())) / 4_000).sqrt()
    assert ((found - expected) / deviations).abs().max() < 4.5
