"""Held-out rows say how much of what completions of missing cells differ is added to variances."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from gpytorch_partition.presets import Options, default_model
from gpytorch_partition.presets.data import TrainingData
from gpytorch_partition.presets.weights_and_noise import Choice, HeldOutRows
from gpytorch_partition.presets.wider_intervals import _added_variances, completion_share
from gpytorch_partition.training.predictive_density import HeavyTails

NOISE = 0.01
ROWS = 2 * torch.arange(60)  # those with holes


@pytest.fixture(scope="module")
def incomplete():
    """A model of rows of which half miss the column that matters, and those rows."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(120, 2, generator=generator, dtype=torch.float64)
    y = 3 * x[:, 0] + 0.1 * torch.randn(120, generator=generator, dtype=torch.float64)
    x[::2, 0] = torch.nan
    data = TrainingData(5 * x + 1, 2 * y, has_view=True)
    options = Options(num_trees=20, least_noise_gain=math.inf, least_tail_gain=math.inf, least_boosting_gain=math.inf)
    return default_model(data.rows, data.targets, random_state=0, options=options), data


def choice_with(variances, rows=ROWS, tails=None, seed=1):
    """Rows whose errors are a Gaussian's of these variances, beside a function that is known and noise."""
    generator = torch.Generator().manual_seed(seed)
    errors = torch.randn(len(rows), generator=generator, dtype=torch.float64) * variances.sqrt()
    held_out = HeldOutRows(rows, errors, torch.zeros_like(errors), torch.full_like(errors, NOISE))
    return Choice({}, torch.ones(2), NOISE, 0.0, None, 0.0, rows, held_out=held_out, tails=tails)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("df", [None, 5.0])
def test_is_what_held_out_rows_had(incomplete, share, df):
    model, data = incomplete
    with torch.no_grad():
        added = _added_variances(model, data, ROWS)
    tails = None if df is None else HeavyTails(df, (df - 2) / df, 0.0, 0.0)
    choices = [choice_with(share * added + NOISE, tails=tails, seed=seed) for seed in range(6)]
    shares = [completion_share(model, choice, data)[0] for choice in choices]
    assert abs(sum(shares) / 6 - share) <= 0.15
    choice, (found, gain) = choices[0], completion_share(model, choices[0], data)
    if df is None:
        total = found * added + NOISE
        errors = choice.held_out.errors.square()
        by_hand = 0.5 * ((NOISE / total).log() + errors / NOISE - errors / total).mean()
        assert gain == pytest.approx(float(by_hand))


def test_few_rows_decide_nothing(incomplete):
    model, data = incomplete
    with torch.no_grad():
        added = _added_variances(model, data, ROWS)
    row = ROWS[added > 50 * NOISE][:1]
    found, gain = completion_share(model, choice_with(torch.full((1,), NOISE).double(), row), data)
    assert found == 1.0
    assert gain < 0


def test_without_holes_all_is_added(incomplete):
    model, data = incomplete
    whole = replace(data, rows=data.rows.nan_to_num())
    assert completion_share(model, choice_with(torch.ones(60).double()), whole) == (1.0, 0.0)
