"""The default model: its choices on data where the right ones are known, its states, and what it refuses."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import gpytorch
import numpy as np
import pytest
import torch
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.likelihoods.noise_models import HomoskedasticNoise
from linear_operator.settings import max_cholesky_size

from gpytorch_partition import default_kernel, fit_exact_gp, settings
from gpytorch_partition.estimators import PartitionGPRegressor
from gpytorch_partition.likelihoods import ForestNoise, UnspannedNoise
from gpytorch_partition.models import PartitionGP
from gpytorch_partition.presets import Options, calibrated_noise, default, parts, weights_and_noise
from gpytorch_partition.presets import default_model as model_of
from gpytorch_partition.presets.assembly import assemble, description_of, rebuilt
from gpytorch_partition.presets.data import TrainingData
from gpytorch_partition.presets.default import choice_and_data
from gpytorch_partition.presets.options import Setup
from gpytorch_partition.presets.weights_and_noise import Choice
from gpytorch_partition.tables import NumberView
from gpytorch_partition.training.predictive_density import HeavyTails, PredictiveFit
from tests.few_trees import few_trees

GENERATOR = torch.Generator().manual_seed(0)
X = torch.rand(300, 3, generator=GENERATOR, dtype=torch.float64)
NORMAL = torch.randn(300, generator=GENERATOR, dtype=torch.float64)
SMOOTH = (6 * X[:, 0]).sin() + X[:, 1]
STEPS = torch.where((X[:, 0] > 0.5) ^ (X[:, 1] > 0.3), 1.0, -1.0).double()
NEW = torch.rand(400, 3, generator=GENERATOR, dtype=torch.float64)
NEW_NORMAL = torch.randn(400, generator=GENERATOR, dtype=torch.float64)


def predicted(model, x=NEW):
    with torch.no_grad(), settings.iterative(), gpytorch.settings.debug(False):
        observed = model.likelihood(model(x), x)
        return observed.mean, observed.stddev


def weights(model):
    """Sums of the weights of the parts of each class."""
    found = {}
    for kernel in model.covar_module.base_kernel.modules():
        if isinstance(kernel, gpytorch.kernels.ScaleKernel):
            name = type(kernel.base_kernel).__name__
            found[name] = found.get(name, 0.0) + kernel.outputscale.item()
    return found


def noise_of(model):
    """The noise of the observations themselves."""
    noise = model.likelihood.noise_covar
    return noise.base_noise if isinstance(noise, UnspannedNoise) else noise


# Trees take most of the time. Noise is Gaussian here: `test_heavy_tails.py` has the other.
FEW_TREES = few_trees(20, 50, num_folds=3, least_tail_gain=math.inf, least_boosting_gain=math.inf)
DATA = TrainingData(X, SMOOTH)


def default_model(x, y, **options):
    """With few trees, and other options by name."""
    return model_of(x, y, random_state=0, options=replace(FEW_TREES, **options))


def setup(seed=0, **options):
    return Setup(np.random.RandomState(seed), options=replace(FEW_TREES, **options))


@cache
def varying():
    """What is chosen for a smooth function with noise that varies, and the model; tests must not change them."""
    data, same = TrainingData(X, SMOOTH + (0.05 + X[:, 2]) * NORMAL), setup()
    chosen = choice_and_data(data, same)[0]
    return chosen, assemble(chosen, data, same).eval()


def test_a_smooth_function_gets_a_smooth_part():
    smooth_model = default_model(X, SMOOTH + 0.1 * NORMAL)
    mean, std = predicted(smooth_model)
    truth = (6 * NEW[:, 0]).sin() + NEW[:, 1]
    assert (mean - truth).square().mean().sqrt() < 0.05
    assert std.mean() == pytest.approx(0.1, rel=0.25)
    found = weights(smooth_model)
    assert found["LandmarkKernel"] > 10 * found.get("RandomForestKernel", 0.0)
    assert isinstance(noise_of(smooth_model), HomoskedasticNoise)


def test_a_wrong_cell_hides_no_column():
    """Beside a cell a million times as large all others are alike in standard deviations, and slopes are huge."""
    x, y = X.clone(), SMOOTH + 0.1 * NORMAL
    x[0, 0] = 1e6
    model = model_of(x, y, random_state=0, options=FEW_TREES)
    mean, _ = predicted(model)
    assert (mean - (6 * NEW[:, 0]).sin() - NEW[:, 1]).square().mean().sqrt() < 0.05  # .09 where the column is hidden
    wrong = NEW[:1].index_fill(1, torch.tensor([1]), 1e7)
    assert predicted(model, wrong)[0].abs() < 1e3


def test_steps_get_forests():
    """In columns of so many scales that only the order of values tells something."""
    model = default_model((12 * X).exp(), STEPS + 0.1 * NORMAL)
    found = weights(model)
    assert found["RandomForestKernel"] > 0.3
    assert found["RandomForestKernel"] > found.get("LandmarkKernel", 0.0)


def test_intervals_hold_where_the_noise_varies():
    _, model = varying()
    assert isinstance(noise_of(model), ForestNoise)
    mean, found = predicted(model)
    y = (6 * NEW[:, 0]).sin() + NEW[:, 1] + (0.05 + NEW[:, 2]) * NEW_NORMAL
    is_inside = (y - mean).abs() <= 1.645 * found
    assert 0.85 < is_inside.double().mean() < 0.95
    assert 0.82 < is_inside[NEW[:, 2] > 0.5].double().mean() < 0.96
    assert found[NEW[:, 2] > 0.9].mean() > 3 * found[NEW[:, 2] < 0.1].mean()


def test_a_small_part_beside_a_strong_trend_is_kept():
    """The trend's weight says nothing about how much the others matter."""
    wave = 0.1 * (12 * X[:, 1]).sin()
    model = default_model(X, 4 * X[:, 0] + wave + 0.01 * NORMAL)
    mean, std = predicted(model)
    error = mean - 4 * NEW[:, 0] - 0.1 * (12 * NEW[:, 1]).sin()
    assert error.square().mean().sqrt() < 0.04
    assert std.mean() < 0.06
    weights = torch.tensor([148.0, 0.05, 1.3e-4])
    fit = PredictiveFit(weights, noise=1e-3, exponent=0.0, log_density=0.0)
    assert weights_and_noise._without_negligible(fit, Options()).outputscales.tolist() == [*weights[:2].tolist(), 0]
    loud = replace(fit, noise=10.0)
    assert weights_and_noise._without_negligible(loud, Options()).outputscales.tolist() == [148.0, 0, 0]
    assert weights_and_noise._without_negligible(replace(fit, outputscales=weights / 1e9), Options()).outputscales.all()


def test_parts_are_kept_if_many_rows_lose_without_them():
    """A single row whose noise is small may lose more than all others."""
    many, one = torch.full((1_000,), 0.01), torch.zeros(1_000)
    one[0] = 9.0
    assert weights_and_noise._is_clear(many)
    assert not weights_and_noise._is_clear(one)
    assert not weights_and_noise._is_clear(many / 20)


@pytest.mark.slow
def test_parts_that_matter_where_noise_is_least_are_kept(monkeypatch):
    """Weights at their bound carry the function where targets are the same number; noise is large elsewhere."""
    random = np.random.default_rng(0)
    x = torch.from_numpy(random.uniform(size=(900, 2)))
    y = torch.where(x[:, 0] > 0.9, torch.from_numpy(random.gamma(0.5, 100, 900)), 0.0)
    new, zeros = x[500:], y[500:] == 0

    def share_inside():
        mean, std = predicted(model_of(x[:500], y[:500], random_state=0), new)
        return float((mean.abs() <= 1.645 * std)[zeros].double().mean())

    assert share_inside() > 0.9
    monkeypatch.setattr(weights_and_noise, "_NEGLIGIBLE", 1e9)
    monkeypatch.setattr(default, "widened_to_hold", lambda choice: choice)  # which would hold them by width
    assert share_inside() < 0.5


def test_rows_are_smoothed_evenly_where_noise_that_varies_predicts_clearly_worse(monkeypatch):
    y = (X[:, 0] + 0.1 * NORMAL - 0.7).clamp_min(0)
    monkeypatch.setattr(weights_and_noise, "is_worse", lambda *squares: True)
    model = model_of(X, y, random_state=0, options=FEW_TREES)
    monkeypatch.undo()
    of_rows = model.likelihood.noise_covar([X], shape=y.shape).diagonal()
    of_new = model.likelihood.noise_covar(X, shape=y.shape).diagonal()
    assert of_rows.max() < 1.01 * of_rows.min()
    assert of_new.max() > 10 * of_new.min()
    constant = model_of(X, y, random_state=0, options=replace(FEW_TREES, least_noise_gain=1e9))
    torch.testing.assert_close(predicted(model)[0], predicted(constant)[0])
    other = rebuilt(description_of(model), X, y)
    other.load_state_dict(model.state_dict())
    for found, expected in zip(predicted(other), predicted(model)):
        torch.testing.assert_close(found, expected)
    assert weights_and_noise.is_worse(torch.full((50,), 1.2), torch.ones(50))
    assert not weights_and_noise.is_worse(torch.full((50,), 1.05), torch.ones(50))
    assert not weights_and_noise.is_worse(1 + 9 * (torch.arange(50) == 0), torch.ones(50))  # by one row alone


@pytest.mark.filterwarnings("ignore:68% of the targets")
def test_rows_that_are_smoothed_evenly_are_no_outliers(monkeypatch):
    """Their weights, ratios of a noise that varies, are no discounts of large errors."""
    y = (X[:, 0] + 0.1 * NORMAL - 0.7).clamp_min(0)
    monkeypatch.setattr(weights_and_noise, "is_worse", lambda *squares: True)
    tails = HeavyTails(4.0, 0.5, 0.0, 0.0)
    monkeypatch.setattr(default, "with_shape", lambda choice, _: replace(choice, tails=tails))
    found = PartitionGPRegressor(options=FEW_TREES, random_state=0).fit(X.numpy(), y.numpy()).summary()
    assert (found.degrees_of_freedom, found.num_outliers) == (4.0, 0)


@pytest.mark.slow
def test_units_do_not_matter():
    unit = torch.tensor([1e3, 1e-3, 1.0], dtype=torch.float64)  # trees round to float32: no large offset beside 1e-3
    y = SMOOTH + (0.05 + X[:, 2]) * NORMAL
    other = default_model(X * unit, 1e4 * y - 3e5)
    mean, std = predicted(other, NEW * unit)
    expected, expected_std = predicted(varying()[1])
    torch.testing.assert_close((mean + 3e5) / 1e4, expected, atol=0.02, rtol=0)
    torch.testing.assert_close(std / 1e4, expected_std, atol=0.02, rtol=0.05)


def test_missing_values_are_medians_beside_the_forests():
    x = X.masked_fill(torch.rand(X.shape, generator=GENERATOR) < 0.1, torch.nan)
    model = default_model(x, STEPS + 0.1 * NORMAL)
    assert "RandomForestKernel" in weights(model)
    view = next(module for module in model.modules() if isinstance(module, NumberView))
    center = x.nanmean(0)
    medians = (x.nanmedian(0).values - center) / (x - center).square().nanmean(0).sqrt()
    torch.testing.assert_close(view(x.new_full((1, 3), torch.nan)), medians[None])
    mean, std = predicted(model, x)
    assert (mean - STEPS).square().mean().sqrt() < 0.5
    assert torch.isfinite(std).all()


def test_noise_is_told_from_the_function_where_points_are_measured_again():
    x = X.clone()
    x[3, 1] = torch.nan
    model = default_model(x, (6 * X[:, 0]).sin() + 0.1 * NORMAL)
    again = (6 * X[:, 0]).sin() + 0.1 * NEW_NORMAL[: len(X)]
    mean, std = predicted(model, x)
    assert ((again - mean).abs() <= 1.645 * std).double().mean() > 0.75


def test_inducing_points_of_many_rows_fit_in_memory():
    kernel = parts.smooth_part(X, torch.ones(3, dtype=torch.float64), setup(most_loadings=3_000))
    assert kernel.num_landmarks == 10


@cache
def assembled(threshold, noise_varies):
    """A model of each kind."""
    chosen = replace(varying()[0], threshold=threshold)
    if not noise_varies:
        chosen = replace(chosen, noise_forest=None, exponent=0.0)
    return assemble(chosen, TrainingData(X, SMOOTH + (0.05 + X[:, 2]) * NORMAL), setup()).eval()


def test_far_from_all_rows_intervals_are_wide():
    """By the smooth part's variance, less the threshold."""
    far = NEW + torch.tensor([0.0, 0.0, 1e6], dtype=torch.float64)
    weight = assembled(0.25, False).likelihood.noise_covar.kernel.base_kernel.outputscale
    variances = [predicted(assembled(threshold, False), far)[1].square() for threshold in (0.25, None)]
    torch.testing.assert_close(variances[0] - variances[1], (0.75 * weight).expand(400), rtol=1e-3, atol=0)


SMOOTH_ONLY = Choice({"smooth": 3.0}, torch.tensor([0.5, 1.0, 2.0]).double(), 0.1, 0.0, None, 0.0, torch.arange(50))


def held_out_of_the_smooth_part(points, x):
    """Shares of the variance, with dense matrices."""
    matern = gpytorch.kernels.MaternKernel(1.5, ard_num_dims=3).double()
    matern.lengthscale = SMOOTH_ONLY.lengthscales
    with torch.no_grad():
        cross, within = matern(x, points).to_dense(), matern(points).to_dense()
    return 1 - (cross * torch.linalg.solve(within, cross.mT).mT).sum(-1)


def test_what_inducing_points_leave_out_on_average_is_noise():
    found = calibrated_noise._unspanned_variance(SMOOTH_ONLY, DATA, setup(most_inducing_points=10))
    same = setup(most_inducing_points=10)
    same.random.permutation(len(X))
    points = parts.smooth_part(DATA.x, SMOOTH_ONLY.lengthscales, same).landmarks.landmarks
    assert found == pytest.approx(3.0 * float(held_out_of_the_smooth_part(points, DATA.x).mean()), rel=1e-5)
    without = replace(SMOOTH_ONLY, outputscales={"linear": 1.0})
    assert calibrated_noise._unspanned_variance(without, DATA, setup()) == 0


def test_the_threshold_is_what_inducing_points_leave_out_of_almost_all_new_rows():
    """With all rows kept as inducing points: only new ones are left out of anything."""
    fold = kept, others = np.arange(200), np.arange(200, 300)
    found = calibrated_noise._threshold(SMOOTH_ONLY, fold, DATA, setup())
    assert found == pytest.approx(
        held_out_of_the_smooth_part(DATA.x[kept], DATA.x[others]).quantile(0.95).item(), rel=1e-4
    )
    without = replace(SMOOTH_ONLY, outputscales={"linear": 1.0})
    assert calibrated_noise._threshold(without, fold, DATA, setup()) is None


def test_the_noise_is_bounded_in_units_of_the_targets():
    model = assemble(replace(varying()[0], noise_forest=None), TrainingData(X, 1e3 * SMOOTH), setup())
    bound = noise_of(model).raw_noise_constraint.lower_bound
    assert bound.item() == pytest.approx(0.5e-4 * 1e6 * SMOOTH.var(correction=0).item(), rel=1e-5)


def test_a_large_offset_of_the_targets_is_exact():
    model = default_model(X[:80], STEPS[:80] + 0.1 * NORMAL[:80] + 1e9)
    mean, _ = predicted(model, X[:80])
    assert (mean - 1e9 - STEPS[:80]).abs().mean() < 0.5


def chosen_by(num_rows):
    """Options by which so many rows choose."""
    return {"fewest_choosing_rows": num_rows, "most_choosing_rows": num_rows}


def test_a_missing_value_that_no_row_of_the_sample_has():
    x = X[:100].clone()
    x[int(np.random.RandomState(0).permutation(100)[-1]), 1] = torch.nan
    model = default_model(x, STEPS[:100] + 0.1 * NORMAL[:100], **chosen_by(60))
    mean, std = predicted(model, x)  # the folds had no hole, but the same parts on the same columns
    assert torch.isfinite(std).all()
    assert (mean - STEPS[:100]).square().mean().sqrt() < 0.5


def test_missing_values_that_training_did_not_have_are_refused():
    with pytest.raises(ValueError, match="missing values|finite points"):
        predicted(varying()[1], NEW.masked_fill(NEW > 0.9, torch.nan))


def test_many_columns_of_noise_say_nothing():
    """Lengthscales that had seen the held-out rows would find a signal."""
    x = torch.randn(100, 30, generator=GENERATOR, dtype=torch.float64)
    y, new = (
        torch.randn(100, generator=GENERATOR, dtype=torch.float64),
        torch.randn(300, 30, generator=GENERATOR, dtype=torch.float64),
    )
    mean, std = predicted(default_model(x, y), new)
    assert mean.std() < 0.4
    assert std.min() > 0.75


STEPPED = TrainingData(X, STEPS)
FORESTS_ONLY = Choice({"forest": 1.0}, None, 0.1, 0.0, None, 0.0, torch.arange(50))


def held_out(num_variances=10):
    """What a model says of every second row."""
    fold = np.arange(0, 300, 2), np.arange(1, 300, 2)
    same = setup()
    model = calibrated_noise._fold_model(FORESTS_ONLY, fold, STEPPED, same, None, num_variances=num_variances)
    return calibrated_noise._predicted(FORESTS_ONLY, [model], same)


def test_variances_for_the_calibration_come_from_all_over_the_rows():
    """Files are sorted: the first rows are not like the others."""
    found = held_out(10)
    assert sorted(found.rows.tolist()) == list(range(51, len(X), 2))
    assert found.has_variance.sum() == 10
    assert found.rows[found.has_variance].min() < 100
    assert found.rows[found.has_variance].max() > 200
    assert found.residuals.square().mean() < 0.5
    assert not held_out(0).has_variance.any()
    assert held_out(10**6).has_variance.all()


def test_a_model_of_a_fold_keeps_no_solves(monkeypatch):
    """GPyTorch's hooks keep a model in a cycle, and a factor of 8,600 rows takes half a GiB."""
    models, original = [], calibrated_noise.assembled
    monkeypatch.setattr(calibrated_noise, "assembled", lambda *args: models.append(original(*args)) or models[0])
    held_out()
    assert models[0].prediction_strategy is None


def test_held_out_rows_read_no_global_random_state():
    state, first = torch.random.get_rng_state(), held_out()
    assert torch.equal(state, torch.random.get_rng_state())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        again = held_out()
    for found, expected in zip(again, first):
        torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


def recorded_calls(monkeypatch, what):
    """Something of each call of `_held_out`, given the choice, how many variances are wanted, and what it says."""
    calls, original = [], calibrated_noise._held_out

    def recorded(chosen, model, *args):
        found = original(chosen, model, *args)
        calls.append(what(chosen, model.num_variances, found))
        return found

    monkeypatch.setattr(calibrated_noise, "_held_out", recorded)
    return calls


def test_models_of_folds_have_what_inducing_points_leave_out_as_noise(monkeypatch):
    calls = recorded_calls(monkeypatch, lambda chosen, *_: (chosen.noise, chosen.threshold))
    calibrated_noise.Calibration(SMOOTH_ONLY, DATA, setup(most_inducing_points=10), DATA).calibrated()
    noise = 0.1 + calibrated_noise._unspanned_variance(SMOOTH_ONLY, DATA, setup(most_inducing_points=10))
    assert noise > 0.2
    assert calls[:5] == 5 * [(pytest.approx(noise), None)]
    assert len(calls) > 5  # those with variances again, with the noise that was found
    assert len({*calls[5:]}) == 1


@pytest.mark.parametrize(("enough", "most", "folds"), [(20, 1_000, 1), (120, 1_000, 3), (61, 20, 4), (60, 20, 3)])
def test_variances_come_from_as_few_folds_as_have_enough(enough, most, folds, monkeypatch):
    calls = recorded_calls(monkeypatch, lambda _, wanted, found: (wanted, len(found.rows), found.has_variance.sum()))
    calibrated_noise.Calibration(
        FORESTS_ONLY, STEPPED, setup(enough_variances=enough, most_variances=most), STEPPED
    ).calibrated()
    wanted, rows, found = zip(*calls)
    assert list(found[:5]) == [*(min(most, number) for number in rows[:folds]), *(5 - folds) * [0]]
    assert list(wanted) == [*found[:5], *found[:folds]]
    assert found[5:] == rows[5:] == found[:folds]  # the rows that judge, again


@pytest.mark.parametrize(("enough", "folds"), [(30, 1), (10**6, 5)])
def test_so_many_folds_that_there_are_enough_residuals(enough, folds, monkeypatch):
    sizes, original = [], weights_and_noise.grow_residual_forest
    monkeypatch.setattr(
        weights_and_noise, "grow_residual_forest", lambda x, r, **o: (sizes.append(len(r)), original(x, r, **o))[1]
    )
    data = TrainingData(X, STEPS + 0.1 * NORMAL)
    calibrated_noise.Calibration(FORESTS_ONLY, data, setup(enough_residuals=enough), data).calibrated()
    assert sizes[0] == pytest.approx(folds / 5 * 250, abs=15)


@pytest.mark.parametrize(("most", "enough", "folds"), [(10**6, 60, 2), (30, 10**6, 1)])
def test_errors_that_compare_choices_are_the_first_that_calibrate(most, enough, folds, monkeypatch):
    monkeypatch.setattr(calibrated_noise, "_ENOUGH_SQUARES", enough)
    calls = recorded_calls(monkeypatch, lambda *call: call[-1])
    data = TrainingData(X, 3.0 * (STEPS + 0.1 * NORMAL))
    calibration = calibrated_noise.Calibration(FORESTS_ONLY, data, setup(enough_residuals=most), data)
    rows, errors = calibration.errors()
    assert len(calls) == folds
    assert torch.equal(rows, torch.cat([found.rows for found in calls]))
    assert torch.equal(errors, data.unit.scale * torch.cat([found.residuals for found in calls]))
    calibration.calibrated()
    assert len(calls) == 2 * (5 if most > 30 else 1)  # each fold is predicted once, and once more with its noise


class Forest:
    """Predicts these log ratios of held-out rows."""

    def __init__(self, log_ratios):
        self.oob_prediction_ = log_ratios.numpy()


@pytest.mark.parametrize("exponent", [0.0, 1.5])
def test_factors_and_noise_that_suit_the_residuals_are_found(exponent):
    """Residuals of a known law; the forest knows rows without variances as well, between those with them."""
    number = 4_000
    draws = torch.randn(2, 2 * number, generator=GENERATOR, dtype=torch.float64)
    variances, log_ratios = 0.2 + draws[1].abs(), draws[0] - 0.5
    factors = 0.25 + torch.rand(2 * number, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    truth = 3.0 * (variances + 0.5 * factors * (2.0 * (exponent * log_ratios).exp()))
    residuals = truth.sqrt() * torch.randn(2 * number, generator=GENERATOR, dtype=torch.float64)
    known = torch.rand(2 * number, generator=GENERATOR) < 0.5
    some = torch.where(known, variances, torch.nan)
    seen = calibrated_noise._HeldOut(torch.arange(2 * number), residuals, some, factors)
    chosen = Choice({"forest": 1.0, "linear": 2.0}, None, 0.5, 0.0, None, 0.0, torch.arange(3))
    found = calibrated_noise._with_noise(chosen, seen, Forest(log_ratios), Options())
    assert found.outputscales["forest"] == pytest.approx(3.0, rel=0.2)
    assert found.outputscales["linear"] == 2 * found.outputscales["forest"]
    assert found.noise == pytest.approx(3.0, rel=0.2)
    assert found.exponent == pytest.approx(exponent, abs=0.15)
    assert (found.noise_forest is None) == (exponent == 0)
    again = calibrated_noise._HeldOut(seen.rows[known], residuals[known], 6.0 * variances[known], factors[known])
    judged = calibrated_noise._with_factors(found, again, log_ratios[known], Options())
    ratio = judged.outputscales["forest"] / found.outputscales["forest"]
    assert ratio == pytest.approx(0.5, rel=0.2)  # variances were twice too large
    assert judged.factor == pytest.approx(1 / ratio, rel=0.1)
    assert judged.factor * judged.noise == pytest.approx(found.noise, rel=0.1)
    density = torch.distributions.Normal(0.0, truth.sqrt()[known]).log_prob(residuals[known]).mean()
    assert judged.log_density == pytest.approx(density.item(), abs=0.01)
    assert judged.log_density == pytest.approx(judged.held_out.log_density() - 2 / len(again.rows))


def test_the_least_noise_scales_with_the_weights():
    """Else means would be smoother than those that calibrated: without noise, errors were six times as large."""
    number = 1_000
    residuals = 1e-3 * torch.randn(number, generator=GENERATOR, dtype=torch.float64)
    variances = torch.full_like(residuals, 1e-4)
    seen = calibrated_noise._HeldOut(torch.arange(number), residuals, variances, torch.ones(number))
    chosen = Choice({"smooth": 24.0}, None, 1e-4, 0.0, None, 0.0, torch.arange(3))
    found = calibrated_noise._with_noise(chosen, seen, Forest(torch.zeros(number)), Options())
    assert found.outputscales["smooth"] < 0.05 * 24
    assert found.noise / found.outputscales["smooth"] <= 5.01 * 1e-4 / 24


def test_a_new_part_is_one_record(monkeypatch):
    """It is chosen, weighed, and known to a model that is rebuilt from plain values."""

    def periodic(_):
        kernel = gpytorch.kernels.PeriodicKernel().double()
        kernel.period_length = 0.25
        return kernel.requires_grad_(False)

    new = parts.Part("periodic", periodic, periodic)
    monkeypatch.setattr(parts, "PARTS", (*(part for part in parts.PARTS if part.name == "linear"), new))
    model = default_model(X[:100, :1], (8 * torch.pi * X[:100, 0]).sin() + 0.1 * NORMAL[:100])
    assert "periodic" in description_of(model)["parts"]
    assert weights(model)["PeriodicKernel"] > 0.1
    other = rebuilt(description_of(model), X[:100, :1], model.train_targets)
    other.load_state_dict(model.state_dict())
    for expected, found in zip(predicted(model, NEW[:, :1]), predicted(other, NEW[:, :1])):
        assert torch.equal(found, expected)


def test_other_parts_are_the_same_beside_one_that_is_left_out():
    y = DATA.y + 0.1 * NORMAL
    inputs = parts.PartInputs(DATA.x, y, None, setup())
    names, folds, _ = weights_and_noise._folds(inputs)
    fewer, without, _ = weights_and_noise._folds(replace(inputs, setup=setup(omitted_parts=("boosted", "slopes"))))
    assert fewer == [name for name in names if name not in ("boosted", "slopes")]
    with pytest.raises(ValueError, match="omitted_parts to be among .*, got .'boost'"):
        default_model(X, y, omitted_parts=("forest", "boost"))
    rest = [names.index(name) for name in fewer]
    for fold, other in zip(folds, without):
        assert torch.equal(fold.within[rest], other.within)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"most_tree_rows": 0}, "most_tree_rows above 0, got 0"),
        ({"least_noise": -1.0}, "least_noise above 0, got -1"),
        ({"num_lengthscale_rows": 0}, "num_lengthscale_rows above 0"),
        ({"num_variance_samples": 1}, "num_variance_samples from 2"),
        ({"threshold_share": 2.0}, "threshold_share up to 1"),
        ({"omitted_parts": "forest"}, "a tuple of omitted_parts"),
        ({"num_patch_folds": 1}, "two or more num_folds"),
    ],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Options(**options)


def test_rough_parts_cannot_be_omitted_nor_all_others():
    with pytest.raises(ValueError, match="omitted_parts to be among .*, got .'rough'"):
        default_model(X, SMOOTH, omitted_parts=("rough",))
    usual = parts.usual_parts()
    with pytest.raises(ValueError, match="a part that is not omitted"):
        default_model(X, SMOOTH, omitted_parts=usual)


def test_descriptions_are_plain_and_of_default_models_only():
    description = description_of(assembled(0.25, True))
    unit = TrainingData(X, SMOOTH + (0.05 + X[:, 2]) * NORMAL).unit.scale
    errors = [float(unit) * value for value in varying()[0].mean_error]
    assert varying()[0].mean_error == varying()[0].held_out.mean_error()
    assert description["noise"].pop("mean_error") == pytest.approx(errors)
    densities = varying()[0].log_densities()
    assert description["noise"].pop("log_density_error") == pytest.approx(
        float(densities.std()) / len(densities) ** 0.5
    )
    assert description["noise"] == {
        "noise_varies": True,
        "threshold": 0.25,
        "has_weights": False,
        "has_tails": False,
        "weighs_rows": False,
        "long_tail": None,
        "offset": 0.0,
    }
    assert description["log_predictive_density"] == varying()[0].log_density
    own = PartitionGP(X, SMOOTH, GaussianLikelihood(), gpytorch.kernels.RBFKernel())
    assert rebuilt(description_of(own), X, SMOOTH) is None
    with pytest.raises(KeyError):
        rebuilt(description | {"parts": ["unknown"]}, X, SMOOTH)


@pytest.mark.slow
def test_many_rows_are_calibrated_on_all_of_them(monkeypatch):
    """Weights of few rows, scale and noise of all: intervals hold, also above the dense limit."""
    called = []
    original = calibrated_noise._with_factors
    monkeypatch.setattr(calibrated_noise, "_with_factors", lambda *args: called.append(1) or original(*args))
    with settings.iterative(), max_cholesky_size(50):
        model = default_model(X, SMOOTH + (0.05 + X[:, 2]) * NORMAL, **chosen_by(100))
        mean, std = predicted(model)
    y = (6 * NEW[:, 0]).sin() + NEW[:, 1] + (0.05 + NEW[:, 2]) * NEW_NORMAL
    assert called == [1]
    assert isinstance(model.likelihood.noise_covar, UnspannedNoise)
    assert 0.82 < ((y - mean).abs() <= 1.645 * std).double().mean() < 0.97


@pytest.mark.parametrize(("ratio", "is_worse", "num_compared"), [(0.5, True, 1), (0.5, False, 1), (2.0, True, 0)])
def test_rows_that_did_not_choose_decide_whether_they_are_smoothed_evenly(ratio, is_worse, num_compared, monkeypatch):
    """Nothing is compared where errors of the rows that chose are clearly larger, by `ratio`, with constant noise."""
    compared = []

    def choose(*args):
        choice = weights_and_noise.choose(*args)
        rows = replace(choice.constant.held_out, errors=ratio * choice.held_out.errors)
        return replace(choice, constant=replace(choice.constant, held_out=rows))

    monkeypatch.setattr(default, "choose", choose)

    def compare(squares, others):
        if len(squares) == 100:  # rows that chose
            return weights_and_noise.is_worse(squares, others)
        compared.append((squares, others))
        return is_worse

    monkeypatch.setattr(calibrated_noise, "is_worse", compare)
    model = default_model(X, SMOOTH + (0.01 + 0.5 * (X[:, 2] > 0.5)) * NORMAL, **chosen_by(100))
    of_rows, of_new = (model.likelihood.noise_covar(x, shape=X.shape[:1]).diagonal() for x in ([X], X))
    assert len(compared) == num_compared
    assert (of_rows.max() < 1.01 * of_rows.min()) == (is_worse and bool(compared))
    assert of_new.max() > 5 * of_new.min()
    for squares, others in compared:
        assert len(squares) == len(others) == 200
        assert not torch.equal(squares, others)


@pytest.mark.slow
def test_the_kernel_in_a_model_of_ones_own():
    y = SMOOTH + 0.1 * NORMAL
    kernel = default_kernel(X, y, random_state=0, options=FEW_TREES)
    model = PartitionGP(X, y, GaussianLikelihood(), kernel)
    with pytest.warns(UserWarning, match="L-BFGS"):
        fit_exact_gp(model, model.likelihood)
    assert model.likelihood.noise.item() == pytest.approx(0.01, rel=0.4)
    mean, _ = predicted(model.eval())
    assert (mean - ((6 * NEW[:, 0]).sin() + NEW[:, 1])).square().mean().sqrt() < 0.05


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (X.numpy(), SMOOTH, "N x D tensor"),
        (X.long(), SMOOTH, "N x D tensor"),
        (X[:, 0], SMOOTH, "N x D tensor"),
        (X, SMOOTH[:-1], "one target for each of 300 rows"),
        (X[:9], SMOOTH[:9], "10 rows or more"),
        (X, SMOOTH * torch.nan, "finite targets"),
        (1 / (X - X[0]), SMOOTH, "without infinity"),
        (1e39 * X, SMOOTH, "numbers below 3.4e[+]38 .*, got 1e[+]39"),
        (X[:, :0], SMOOTH, "one column or more"),
        (X, torch.ones(300), "targets that vary"),
        (X, 1e-4 * SMOOTH, "standard deviation between 0.001 and 1e"),
        (X, 1e20 * SMOOTH, "standard deviation between 0.001 and 1e"),
    ],
)
def test_bad_data_are_refused(x, y, message):
    with pytest.raises(ValueError, match=message):
        model_of(x, y)


def test_categories_and_their_state():
    """Twenty towns, a category of two levels that matters in some of them, and holes; a description is plain."""
    generator = torch.Generator().manual_seed(5)
    towns, kinds = torch.randint(20, (200,), generator=generator), torch.randint(2, (200,), generator=generator)
    effects = torch.randn(20, generator=generator, dtype=torch.float64)
    x = torch.stack([X[:, 0].repeat(2)[:200], towns, kinds], 1).double()
    y = effects[towns] + (effects[towns] > 0) * kinds + x[:, 0] + 0.1 * torch.randn(200, generator=generator)
    x[::13, 0], x[::17, 1] = torch.nan, torch.nan
    model = model_of(x[:150], y[:150], categories={1: 20, 2: 2}, random_state=0, options=FEW_TREES)
    mean, std = predicted(model, x[150:])
    assert (mean - y[150:]).square().mean().sqrt() < 0.5 * y.std()
    assert ((mean - y[150:]).abs() < 1.645 * std).double().mean() > 0.75
    units = model.covar_module.base_kernel.base_kernel.units.mean.view(torch.float64)
    assert units[1:].tolist() == [0.0, 0.0]  # codes stay as they are
    assert model.description["view_columns"] == 1 + 1 + 2
    copy = rebuilt(model.description, model.train_inputs[0], model.train_targets)
    copy.load_state_dict(model.state_dict())
    for one, other in zip(predicted(copy, x[150:]), (mean, std)):
        assert torch.equal(one, other)
    unknown = x[150:].clone()
    unknown[:, 1] = 99.0
    assert torch.isfinite(predicted(model, unknown)[1]).all()


def test_calibration_learns_from_no_more_rows_than_asked(monkeypatch):
    seen = []

    original = calibrated_noise.new_parts

    def new_parts_seen(inputs, names):
        seen.append((len(inputs.x), inputs.setup.options.most_inducing_points))
        return original(inputs, names)

    monkeypatch.setattr(calibrated_noise, "new_parts", new_parts_seen)
    options = few_trees(num_folds=2, fewest_choosing_rows=100, most_loadings=300 * 40, num_calibration_folds=3)
    y = SMOOTH + 0.1 * NORMAL
    model_of(X, y, random_state=0, options=replace(options, most_calibration_rows=150))
    assert set(seen) == {(150, 40)}  # as many inducing points as the model of 300 rows
    seen.clear()
    model_of(X, y, random_state=0, options=options)
    assert set(seen) == {(200, 3_000)}
