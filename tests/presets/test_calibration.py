"""Predictions without a mean error, and intervals that hold, by held-out rows whose errors are known."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from gpytorch.settings import debug, prior_mode
from scipy.stats import norm
from scipy.stats import t as student

from gpytorch_partition import settings
from gpytorch_partition.estimators import PartitionGPRegressor
from gpytorch_partition.explain.dependence import averages
from gpytorch_partition.likelihoods import grow_residual_forest
from gpytorch_partition.presets import calibrated_noise
from gpytorch_partition.presets.assembly import assemble, description_of, rebuilt
from gpytorch_partition.presets.data import TrainingData
from gpytorch_partition.presets.mean_error import centred, with_mean_error
from gpytorch_partition.presets.options import Options, Setup
from gpytorch_partition.presets.weights_and_noise import Choice, HeldOutRows
from gpytorch_partition.presets.wider_intervals import widened_to_hold
from gpytorch_partition.training.predictive_density import HeavyTails

GENERATOR = torch.Generator().manual_seed(0)
NORMAL = torch.randn(2_000, generator=GENERATOR, dtype=torch.float64)
X = torch.rand(200, 2, generator=GENERATOR, dtype=torch.float64)


def choice_of(errors, noise, **others):
    """The choice of a linear part, by so many held-out rows whose functions are known."""
    rows = torch.arange(len(errors))
    noises = torch.full_like(errors, noise) if isinstance(noise, float) else noise
    held_out = HeldOutRows(rows, errors, torch.zeros_like(errors), noises)
    choice = Choice({"linear": 1.0}, torch.ones(1), float(noises[0]), 0.0, None, held_out.log_density(), rows)
    return replace(choice, held_out=held_out, **others)


# Variances.


def test_new_observations_have_the_noise_of_held_out_rows_and_training_rows_their_own():
    variances, noise = 0.5 * torch.ones(2_000).double(), torch.linspace(0.2, 2, 2_000).double()
    seen = calibrated_noise._HeldOut(torch.arange(2_000), (variances + noise).sqrt() * NORMAL, variances, noise)
    choice = choice_of(NORMAL, 0.25, factor=2.0)
    found = calibrated_noise._with_factors(choice, seen, torch.zeros_like(noise), Options())
    assert found.noise / choice.noise == found.outputscales["linear"] == pytest.approx(1, abs=0.2)
    assert found.new_noise == pytest.approx(1, abs=0.1)
    torch.testing.assert_close(found.held_out.noise, found.new_noise * noise)


# Mean errors.


def test_the_mean_error_is_taken_off_in_proportion_to_the_deviation_of_the_noise():
    forest = grow_residual_forest(X, X[:, 0] * NORMAL[:200], random_state=0)
    forest.oob_prediction_ = np.linspace(-2, 2, 2_000)
    deviations = torch.linspace(-1, 1, 2_000).double().exp()
    errors = deviations * (NORMAL - NORMAL.mean() + 0.4)
    choice = with_mean_error(choice_of(errors, deviations**2, noise_forest=forest, exponent=1.0))
    found = centred(choice)
    mean = float(errors.sum() / deviations.sum())
    spread = float((errors - mean * deviations).norm() / deviations.sum())
    assert found.offset == pytest.approx(mean * (1 - spread**2 / mean**2))
    torch.testing.assert_close(found.held_out.errors, errors - found.offset * deviations)
    assert abs(found.held_out.mean_error()[0]) < 0.02 * mean
    gain = float((errors.square() - found.held_out.errors.square()).div(2 * deviations**2).mean())
    assert found.log_density == pytest.approx(choice.log_density + gain - 1 / 2_000)


def test_a_mean_error_within_its_standard_error_changes_nothing():
    errors = NORMAL - NORMAL.mean() + 0.9 / 2_000**0.5
    choice = with_mean_error(choice_of(errors, 1.0))
    assert choice.offset == 0
    assert torch.equal(centred(choice).held_out.errors, errors)


def test_where_the_density_of_a_long_tail_would_suffer_a_share_is_taken_off():
    """Of three targets in four that lie at their mode, the density is large there only."""
    errors = torch.where(torch.arange(2_000) % 4 == 0, 2.0, 0.0) + 0.01 * NORMAL
    tails = HeavyTails(2.5, 0.001, 0.0, 0.0)
    choice = with_mean_error(choice_of(errors, 1.0, tails=tails))
    assert choice.offset == pytest.approx(0.5, rel=0.05)
    assert centred(choice).offset == 0
    wider = centred(replace(choice, tails=replace(tails, factor=0.5)))
    assert 0 < wider.offset <= choice.offset


def test_the_model_adds_the_offset_to_all_that_it_predicts():
    y = X[:, 0] + X[:, 1] * NORMAL[:200]
    forest = grow_residual_forest(X, y - X[:, 0], random_state=0)
    data, setup = TrainingData(X, 7 * y), Setup(np.random.RandomState(0), None, Options())
    choice = choice_of(y, 0.1, noise_forest=forest, exponent=0.8)
    usual, model = (assemble(replace(choice, offset=offset), data, setup).eval() for offset in (0.0, 0.3))
    noise = model.likelihood.noise_covar
    expected = 0.3 * float(data.unit.scale) * (noise(X).diagonal() / noise.noise).sqrt()
    assert expected.max() > 1.5 * expected.min()
    with torch.no_grad(), settings.iterative(), debug(False):
        torch.testing.assert_close(model(X).mean - usual(X).mean, expected)
        torch.testing.assert_close(model(X).variance, usual(X).variance)
        torch.testing.assert_close(model.likelihood(model(X), X).mean - usual(X).mean, expected)
        torch.testing.assert_close(model.level(X) - usual.level(X), expected)
        with prior_mode():
            assert torch.equal(model(X).mean, usual(X).mean)
        torch.testing.assert_close(averages(model, [X[:20], X[20:30]])[0][1], model(X[20:30]).mean.mean())
        assert torch.equal(model.train()(X).mean, usual.train()(X).mean)  # the prior
        other = rebuilt(description_of(model), X, 7 * y)
        other.load_state_dict(model.state_dict())
        torch.testing.assert_close(other.eval()(X).mean, model.eval()(X).mean)


def test_an_expected_observation_changes_nothing():
    """Of a model of one column, whose points may have one dimension."""
    x, y = X[:, :1], X[:, 0] + X[:, 1] * NORMAL[:200]
    forest = grow_residual_forest(x, y - x[:, 0], random_state=0)
    choice = choice_of(y, 0.1, noise_forest=forest, exponent=0.8, offset=0.3)
    model = assemble(choice, TrainingData(x, y), Setup(np.random.RandomState(0), None, Options())).eval()
    with torch.no_grad(), settings.iterative(), debug(False):
        torch.testing.assert_close(model(x[:9, 0]).mean, model(x[:9]).mean)
        expected = model(x[:9] + 0.01).mean
        fantasy = model.get_fantasy_model(x[:9] + 0.01, expected)
        torch.testing.assert_close(fantasy(x).mean, model(x).mean, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", ["weights", "groups"])
def test_rows_of_several_scales_or_blocks_are_not_centred(kind):
    x, y = X.numpy(), (X[:, 0] + 0.1 * NORMAL[:200].exp()).numpy()
    given = {"sample_weight": 1 + x[:, 1]} if kind == "weights" else {"groups": np.arange(200) % 20}
    model = PartitionGPRegressor(random_state=0, options=Options(num_trees=20)).fit(x, y, **given)
    noise = description_of(model.model_)["noise"]
    assert (noise["offset"], noise["mean_error"]) == (0.0, [])


@pytest.mark.parametrize(("shift", "said"), [(0.0, None), (0.2, "too low by 0.2"), (-0.2, "too high by 0.2")])
def test_a_mean_error_that_is_left_is_said(shift, said):
    y = (X[:, 0] + 0.1 * NORMAL[:200]).numpy()
    model = PartitionGPRegressor(random_state=0, options=Options(num_trees=20)).fit(X.numpy(), y)
    model.model_.description["noise"]["mean_error"] = [shift / y.std(), 0.01]
    told = model.summary().facts().get("mean error")
    assert told is None if said is None else said in told


# Intervals.


def two_values(share, number=1_000):
    """Errors about the mean of targets of two values, one of which so large a share has, in units of the targets."""
    return (torch.arange(number) < share * number).double() - share


def test_intervals_hold_rows_whose_targets_are_two_values():
    choice = choice_of(two_values(0.22), 0.22 * 0.78)
    found = widened_to_hold(choice)
    width = norm.ppf(0.95) * math.sqrt(found.noise)
    assert width == pytest.approx(0.78)  # the rarer value, which was outside
    loss = 0.5 * (math.log(found.noise / choice.noise) + choice.noise / found.noise - 1)
    assert found.log_density == pytest.approx(choice.log_density - loss)
    assert found.outputscales["linear"] == pytest.approx(found.noise / choice.noise)


def test_intervals_of_heavy_tails_hold_gross_errors():
    errors = torch.where(torch.arange(2_000) < 500, 20.0, 0.1) * NORMAL
    tails = HeavyTails(2.5, 0.04, 0.0, 0.0)
    choice = choice_of(errors, 1.0, tails=tails)
    found = widened_to_hold(choice)
    width = student.ppf(0.95, 2.5) * math.sqrt(0.04 * found.noise)
    assert float((errors.abs() <= width).double().mean()) == pytest.approx(0.85, abs=0.001)
    before, after = (student.logpdf(errors, 2.5, scale=(0.04 * each.noise) ** 0.5) for each in (choice, found))
    assert choice.log_density - found.log_density == pytest.approx((before - after).mean(), rel=1e-3)


def test_intervals_stay_where_they_hold_enough():
    choice = choice_of(two_values(0.14), 0.14 * 0.86)
    assert widened_to_hold(choice) is choice
    tails = HeavyTails(4.0, 0.5, 0.0, 0.0)
    assert widened_to_hold(replace(choice, tails=tails)).noise == choice.noise
