"""Random grids against brute force, the Laplace kernel by statistics, and bad input."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from gpytorch_partition.inputs.numbers import floats_of
from gpytorch_partition.partitions import RandomBinningPartition

NUM_GRIDS = 8_000
X = torch.from_numpy(np.random.RandomState(0).randn(60, 3))


def share_of_bins(grids, a, b):
    return (grids.labels(a) == grids.labels(b)).double().mean(1)


def check_share(share, expected):
    """Within four standard errors."""
    error = (expected * (1 - expected) / NUM_GRIDS).sqrt()
    assert ((share - expected).abs() <= 4 * error + 1e-12).all(), (share, expected)


@pytest.mark.parametrize("center", [0.0, 1e6])
def test_limit_is_the_laplace_kernel_everywhere(center):
    lengthscale = (0.2, 1.0, 5.0)
    grids = RandomBinningPartition(X, NUM_GRIDS, lengthscale=lengthscale, random_state=0)
    a, b = X[:20] + center, X[20:40] + center
    scales = torch.as_tensor(lengthscale, dtype=torch.float64).expand(3)
    check_share(share_of_bins(grids, a, b), torch.exp(-((a - b).abs() / scales).sum(1)))
    torch.testing.assert_close(grids.lengthscale, scales)


def test_pitches_and_shifts_have_their_laws():
    grids = RandomBinningPartition(X, NUM_GRIDS, lengthscale=(0.2, 1.0, 5.0), random_state=0)
    pitches, shifts = floats_of(grids.pitches), floats_of(grids.shifts)
    for column, scale in enumerate((0.2, 1.0, 5.0)):
        assert stats.kstest(pitches[:, column], stats.gamma(2, scale=scale).cdf).pvalue > 0.001
        assert stats.kstest(shifts[:, column] / pitches[:, column], "uniform").pvalue > 0.001
    assert abs(np.corrcoef(pitches.T)[0, 1]) < 0.03


def test_points_share_a_label_where_all_integers_agree():
    grids = RandomBinningPartition(X, 50, lengthscale=3.0, random_state=0)
    labels = grids.labels(X)
    bins = ((X[:, None] - floats_of(grids.shifts)) / floats_of(grids.pitches)).floor()
    same = (bins[:, None] == bins[None]).all(-1)
    assert torch.equal(labels[:, None] == labels[None], same)
    assert 0.05 < same.double().mean() < 0.95


def test_default_is_the_median_distance():
    grids = RandomBinningPartition(X, 5, random_state=0)
    distances = torch.pdist(X, 1)
    assert grids.lengthscale.tolist() == pytest.approx([distances.median().item()] * 3, rel=0.1)


def test_extreme_points_and_both_zeros():
    """Numbers of bins overflow, and floor has a negative zero."""
    grids = RandomBinningPartition(X[:, :1], 100, lengthscale=1e-10, random_state=0)
    far = torch.tensor([[1e300], [2e300], [-1e300], [1e300]], dtype=torch.float64)
    labels = grids.labels(far)
    assert not (labels[0] == labels[1]).any()
    assert not (labels[0] == labels[2]).any()
    assert torch.equal(labels[0], labels[3])
    zeros = grids.labels(torch.tensor([[0.0], [-0.0]], dtype=torch.float64))
    assert torch.equal(zeros[0], zeros[1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lengthscale": 0.0}, "positive, finite lengthscale"),
        ({"lengthscale": (1.0, -1.0, 1.0)}, "positive, finite lengthscale"),
        ({"lengthscale": (1.0, float("nan"), 1.0)}, "positive, finite lengthscale"),
        ({"lengthscale": (1.0, 1.0)}, "one for each of 3 columns"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        RandomBinningPartition(X, **options)


def test_equal_rows_need_a_lengthscale():
    with pytest.raises(ValueError, match="rows that differ"):
        RandomBinningPartition(torch.ones(5, 2))


@pytest.mark.filterwarnings("error")
def test_lengthscales_of_their_own_do_not_warn():
    RandomBinningPartition(X * torch.tensor([1.0, 1e3, 1.0]), 5, lengthscale=(1.0, 1e3, 1.0), random_state=0)
