"""Landmarks: different rows, drawn the same from the same seed."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gpytorch_partition.kernels.landmark_kernel import choose_landmarks

X = torch.randn(400, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def _chosen(x, num_landmarks, seed=0):
    return choose_landmarks(x, num_landmarks, np.random.RandomState(seed))


def _rows(x):
    return {tuple(row) for row in x.tolist()}


def test_landmarks_are_different_rows():
    landmarks = _chosen(X, 50)
    assert landmarks.shape == (50, 3)
    assert len(_rows(landmarks)) == 50
    assert _rows(landmarks) <= _rows(X)
    assert torch.equal(landmarks, _chosen(X, 50))
    assert not torch.equal(landmarks, _chosen(X, 50, seed=1))


def test_every_row_is_as_likely():
    """Sorting, which finds repeated rows, must not favor small numbers."""
    x = torch.arange(40.0).unsqueeze(-1)
    means = [float(_chosen(x, 5, seed).mean()) for seed in range(400)]
    assert abs(np.mean(means) - 19.5) < 4 * 5 / 400**0.5


@pytest.mark.parametrize("num_landmarks", [3, 7])
def test_repeated_rows_count_once(num_landmarks):
    x = torch.cat([X[:1].expand(2_000, 3), X[:7]])
    assert _rows(_chosen(x, 7)) == _rows(X[:7])
    assert len(_rows(_chosen(x, num_landmarks))) == num_landmarks
    with pytest.raises(ValueError, match="different rows, 7"):
        _chosen(x, 8)


def test_the_default_is_500_or_all_there_are():
    assert _chosen(X, None).shape == (400, 3)
    assert _chosen(torch.cat([X, X + 10]), None).shape == (500, 3)
    with pytest.raises(ValueError, match="inducing points, 1 or more"):
        _chosen(X, 0)
