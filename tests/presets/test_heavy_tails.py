"""Outliers among training targets: they are found, count for little, and new observations have heavy tails."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from scipy.stats import norm
from scipy.stats import t as student

from gpytorch_partition.estimators import PartitionGPRegressor
from gpytorch_partition.estimators.scores import Judgement, interval_score
from gpytorch_partition.explain import plots
from gpytorch_partition.likelihoods import StudentTLikelihood, student_t_noise
from gpytorch_partition.presets import Options, default, heavy_tails
from gpytorch_partition.presets.data import TrainingData
from gpytorch_partition.presets.heavy_tails import with_shape
from gpytorch_partition.presets.options import Setup
from gpytorch_partition.presets.weights_and_noise import Choice, HeldOutRows
from tests.few_trees import few_trees

OPTIONS = few_trees(15, 10, num_folds=3)
GAUSSIAN = replace(OPTIONS, least_tail_gain=1e9)
RANDOM = np.random.RandomState(0)
X, NEW = RANDOM.rand(160, 2), RANDOM.rand(400, 2)
CLEAN = np.sin(6 * X[:, 0]) + X[:, 1] + 0.1 * RANDOM.randn(160)
IS_OUTLIER = RANDOM.rand(160) < 0.08
Y = CLEAN + np.where(IS_OUTLIER, 5 * RANDOM.choice([-1, 1], 160), 0)
TRUTH = np.sin(6 * NEW[:, 0]) + NEW[:, 1]


def model_of(y=Y, options=OPTIONS, **others):
    return PartitionGPRegressor(random_state=0, options=options).fit(X, y, **others)


@pytest.fixture(scope="module")
def fitted():
    return model_of()


def error(model):
    return np.sqrt(np.mean((model.predict(NEW) - TRUTH) ** 2))


@pytest.mark.slow
def test_outliers_count_for_little(fitted):
    assert isinstance(fitted.likelihood_, StudentTLikelihood)
    weights = student_t_noise(fitted.likelihood_).weights.numpy()
    assert weights[IS_OUTLIER].max() < 0.1 < 0.3 < np.quantile(weights[~IS_OUTLIER], 0.05)
    assert error(fitted) < 0.5 * error(model_of(options=GAUSSIAN))
    summary = fitted.summary()
    assert summary.num_outliers == pytest.approx(IS_OUTLIER.sum(), abs=2)
    assert summary.facts()["outliers"].startswith(f"{summary.num_outliers} rows with large errors count less than")
    assert "weights" not in summary.facts()  # which the user did not give


@pytest.mark.slow
@pytest.mark.parametrize("far", [100, 1_000, 100_000])
def test_a_few_errors_far_away_hide_no_function_and_widen_few_intervals(far):
    """Squared errors of all rows are those of three, whose chance must not refuse the discounts."""
    y, places = CLEAN.copy(), np.random.RandomState(2).permutation(160)[:3]
    y[places] += [far, -far, far]
    found, usual = model_of(y), model_of(CLEAN)
    assert error(found) < 1.5 * error(usual)
    assert width(found) < 2 * width(usual)


def width(model):
    """Of intervals of 90 %."""
    judged = model.judge(NEW, TRUTH)
    return np.median(judged.upper - judged.lower)


def is_undiscounted(model):
    noise = student_t_noise(model.likelihood_)
    return noise is None or bool((noise.weights == 1).all())


def test_nothing_is_chosen_again_where_heavy_tails_gain_little(monkeypatch):
    monkeypatch.setattr(heavy_tails, "choose", None)
    assert is_undiscounted(model_of(options=replace(OPTIONS, least_discount_gain=10.0)))


@pytest.mark.slow
@pytest.mark.parametrize("side", ["above", "below"])
def test_outliers_on_one_side_are_the_long_tail_of_the_targets(side):
    sign = 1 if side == "above" else -1
    y = sign * np.exp(2 * X[:, 0] + 1.2 * np.random.RandomState(1).randn(160))
    new = sign * np.exp(2 * NEW[:, 0] + 1.2 * np.random.RandomState(2).randn(400))
    model = model_of(y)
    assert is_undiscounted(model)
    assert model.summary().facts()["long tail"].startswith(f"{side} the predictions")
    mean, ends = model.predict(NEW, quantiles=(0.05, 0.95))
    assert 0.85 < ((ends[:, 0] < new) & (new < ends[:, 1])).mean() < 0.97
    assert abs((new - mean).mean()) < 0.2 * new.std()


@pytest.mark.slow
def test_among_many_zeros_no_row_is_discounted():
    random = np.random.RandomState(1)
    y, new = (np.where(random.rand(n) < 0.6, 0.0, random.randn(n)) for n in (160, 400))
    model = model_of(y)
    assert is_undiscounted(model)
    _, ends = model.predict(NEW, quantiles=(0.05, 0.95))
    assert 0.85 < ((ends[:, 0] < new) & (new < ends[:, 1])).mean() < 0.97


def test_intervals_are_those_of_heavy_tails(fitted):
    probabilities = (0.05, 0.5, 0.95)
    mean, std, quantiles = fitted.predict(NEW, return_std=True, quantiles=probabilities)
    falling = fitted.predict(NEW, quantiles=probabilities[::-1])[1]
    np.testing.assert_array_equal(falling, quantiles[:, ::-1])
    samples = fitted.sample_y(NEW[:40], 4000, random_state=0)
    shares = (samples[:, :, None] < quantiles[:40, None, :]).mean((0, 1))
    np.testing.assert_allclose(shares, probabilities, atol=0.01)
    new = TRUTH + 0.1 * RANDOM.randn(400)
    inside = ((new > quantiles[:, 0]) & (new < quantiles[:, 2])).mean()
    assert 0.85 < inside < 0.999
    np.testing.assert_allclose(quantiles[:, 1], mean, atol=1e-3)
    assert (quantiles[:, 2] - mean < 1.645 * std).all()  # outliers make deviations large
    _, ends = fitted.predict(NEW, quantiles=(0.05, 0.95), include_noise=False)
    assert (ends[:, 1] < quantiles[:, 2]).all()


def test_judgements_are_those_of_the_distribution_itself(fitted):
    """Densities by numerical convolution of the Gaussian function with Student-t noise, levels by its quantiles."""
    y = TRUTH + 0.1 * RANDOM.randn(400)
    found = fitted.judge(NEW, y)
    with pytest.raises(ValueError, match="Gaussian noise for a joint density, got Student-t"):
        fitted.judge(NEW, y, joint=True)
    probabilities = (1 - found.level[:5]) / 2
    for row, tail in enumerate(probabilities):
        _, ends = fitted.predict(NEW[row : row + 1], quantiles=(tail, 1 - tail))
        assert np.abs(ends[0] - y[row]).min() < 2e-3  # the target is at an end of the interval
    _, latent = fitted.predict(NEW[:5], return_std=True, include_noise=False)
    mean, std = fitted.predict(NEW[:5], return_std=True)
    df = float(student_t_noise(fitted.likelihood_).df)
    scale = np.sqrt((std**2 - latent**2) * (df - 2) / df)
    weighted = fitted.judge(NEW, y, sample_weight=4.0)  # whose noise has half the scale
    np.testing.assert_allclose(weighted.std[:5] ** 2, latent**2 + (std**2 - latent**2) / 4, rtol=1e-4)
    for row in range(5):
        places = mean[row] + latent[row] * np.linspace(-9, 9, 20001)
        weights = norm.pdf(places, mean[row], latent[row]) * (places[1] - places[0])
        for judged, own_scale in ((found, scale[row]), (weighted, scale[row] / 2)):
            density = weights @ student.pdf(y[row], df, places, own_scale)
            assert judged.log_density[row] == pytest.approx(np.log(density), abs=2e-4)
            below = weights @ student.cdf(judged.lower[row], df, places, own_scale)
            assert below == pytest.approx(0.05, abs=1e-3)
    _, ends = fitted.predict(NEW, quantiles=(0.05, 0.95))
    np.testing.assert_allclose(np.stack([found.lower, found.upper], 1), ends, rtol=1e-6)
    levels = np.arange(0.005, 1, 0.01)
    _, quantiles = fitted.predict(NEW, quantiles=levels)
    below = y[:, None] < quantiles
    losses = 2 * (levels - below) * (y[:, None] - quantiles)  # of which the CRPS is the mean over all levels
    np.testing.assert_allclose(found.crps, losses.mean(1), rtol=0.02)
    np.testing.assert_allclose(found.interval_score, interval_score(y, *ends.T), rtol=1e-6)
    inside = (y > ends[:, 0]) & (y < ends[:, 1])
    assert abs(found.coverage() - inside.mean()) <= 1 / 400
    ax = plots.plot_residuals(fitted, NEW, y, ax=Figure().subplots())
    share = f"inside: {100 * inside.mean():.0f} %"
    assert share in [text.get_text() for text in ax.get_legend().get_texts()]
    gaussian = Judgement.gaussian(y, found.mean, found.std)
    assert found.log_density.mean() > gaussian.log_density.mean() + 0.1  # a Gaussian as wide would be worse


def test_without_outliers_nothing_changes():
    one, other = model_of(CLEAN), model_of(CLEAN, GAUSSIAN)
    assert student_t_noise(one.likelihood_) is None
    for found, expected in zip(one.predict(NEW, return_std=True), other.predict(NEW, return_std=True)):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.slow
def test_rows_have_weights_of_their_own_too():
    weights = np.where(np.arange(160) % 2 == 0, 0.25, 1.0)
    model = model_of(sample_weight=weights)
    ratios = student_t_noise(model.likelihood_).weights.numpy() / weights
    assert ratios[IS_OUTLIER].max() < 0.2
    assert error(model) < 0.5 * error(model_of(options=GAUSSIAN))


@pytest.mark.slow
def test_rows_that_do_not_choose_weigh_less_too():
    """Above 700 rows, few of which choose; and above 1,400, where the others calibrate."""
    few = replace(OPTIONS, fewest_choosing_rows=100, choosing_share=0.1, most_uncalibrated=2.0)
    model = model_of(options=replace(few, fewest_choosing_rows=70))
    weights = student_t_noise(model.likelihood_).weights.numpy()
    assert weights[IS_OUTLIER].max() < 0.2 < np.quantile(weights[~IS_OUTLIER], 0.05)
    assert error(model) < 0.6 * error(model_of(options=replace(few, least_tail_gain=1e9)))


def choice_of(errors, noise):
    rows = torch.arange(len(errors))
    held_out = HeldOutRows(rows, errors, torch.zeros_like(errors), torch.full_like(errors, noise))
    return Choice({"linear": 1.0}, torch.ones(1), noise, 0.0, None, held_out.log_density(), rows, held_out=held_out)


def test_heavy_tails_alone_change_the_shape_and_not_the_deviation():
    errors = torch.from_numpy(student.rvs(4, size=3_000, random_state=0))
    found = with_shape(choice_of(errors, 2.0), Options())
    df = found.tails.df
    assert df in (3.0, 4.0, 6.0)
    assert found.tails.factor * df / (df - 2) == pytest.approx(1.0)  # the variance is that of the Gaussian noise
    expected = student.logpdf(errors.numpy(), df, scale=(2.0 * (df - 2) / df) ** 0.5).mean()
    assert found.log_density == pytest.approx(expected, abs=1e-4)
    normal = torch.randn(3_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert with_shape(choice_of(normal, 1.0), Options()).tails is None


def test_rows_are_not_discounted_where_held_out_rows_are_predicted_worse_for_it(monkeypatch):
    """A row that is predicted badly is no error of measurement if others say the same."""
    assert student_t_noise(model_of().likelihood_).weights.min() < 0.1
    original = heavy_tails._squared_error
    monkeypatch.setattr(heavy_tails, "_squared_error", lambda *args: -original(*args))
    kept = student_t_noise(model_of().likelihood_)
    assert kept is None or bool((kept.weights == 1).all())


@pytest.mark.parametrize(("factor", "are_apart"), [(0.9, False), (1.3, False), (0.9, True), (1.5, True)])
def test_many_rows_take_discounts_back_where_they_predict_worse_with_them(monkeypatch, factor, are_apart):
    """
    Errors of the common rows, in the units of the targets: those of discounted rows have a smaller deviation.

    Each choice holds out some rows that the other does not, as where only one has inducing points, or all are others.
    """
    rows, errors = torch.arange(300).flip(0), torch.randn(300, generator=torch.Generator().manual_seed(0)).double()
    errors[:10] = 100.0
    order = 7 * torch.arange(300) % 300

    def choice_of(factor, order):
        ones = torch.ones(len(order)).double()
        held_out = HeldOutRows(rows[order], factor * errors[order], ones, ones)
        return Choice({}, torch.ones(1), 1.0, 0.0, None, 0.0, rows, held_out=held_out)

    class Calibration:
        def __init__(self, choice, data, *_):
            self.calibrated = lambda: choice
            self.errors = lambda: (choice.held_out.rows, data.unit.scale * choice.held_out.errors)

    own = TrainingData(errors.unsqueeze(-1), errors)
    discounted = TrainingData(own.rows, 0.5 * own.targets)
    of_discounted, of_own = (order >= 150, torch.arange(10, 150)) if are_apart else (order >= 10, torch.arange(290))
    found = {discounted: choice_of(2 * factor, order[of_discounted]), own: choice_of(1.0, of_own)}
    monkeypatch.setattr(default, "Calibration", Calibration)
    setup = Setup(np.random.RandomState(0), None, Options())
    taken, data = default._calibrated(found[discounted], discounted, found[own], own, setup)
    assert data is (own if factor > 1 else discounted)
    assert taken is found[data]
