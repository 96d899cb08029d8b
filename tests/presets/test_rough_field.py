"""The default model of functions that vary on all scales: the law of its parts, and when it is taken."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import gpytorch
import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from gpytorch_partition import settings
from gpytorch_partition.presets import Options, default, parts, rough_field, weights_and_noise
from gpytorch_partition.presets.assembly import assemble, description_of, rebuilt
from gpytorch_partition.presets.data import TrainingData
from gpytorch_partition.presets.default import choice_and_data
from gpytorch_partition.presets.options import Setup
from gpytorch_partition.tables import needs_view
from gpytorch_partition.training.predictive_density import Fold, PredictiveFit
from tests.few_trees import few_trees

SCALES = torch.tensor([0.5, 2.0], dtype=torch.float64)
X = torch.rand(1_000, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
HOLE = (X - 0.5).norm(dim=1) < 0.25


def exponential(x, scales):
    kernel = MaternKernel(0.5, ard_num_dims=len(scales)).double()
    kernel.lengthscale = scales
    with torch.no_grad():
        return kernel(x).to_dense()


def drawn(covariance, seed):
    """A function of this covariance, of variance 1 or so."""
    normal = torch.randn(len(covariance), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.linalg.cholesky(covariance + 1e-8 * torch.eye(len(covariance)).double()) @ normal


ROUGH = drawn(exponential(X, torch.tensor([0.5, 0.5])), seed=3)


# Trees and rows take most of the time.
ROWS = {"fewest_choosing_rows": 400, "most_choosing_rows": 400, "patch_rows": 40, "most_uncalibrated": 2.0}
FEW = few_trees(20, 50, least_boosting_gain=math.inf, num_rough_trees=50, num_folds=3, **ROWS)
ANY_GAIN = -np.inf


def setup(seed=0, **options):
    """With few trees and rows, and other options by name."""
    return Setup(np.random.RandomState(seed), options=replace(FEW, **options))


def chosen_for(y, x=X, **options):
    return weights_and_noise.choose(TrainingData(x, y.double(), has_view=needs_view(x, {})), setup(**options))


DATA = TrainingData(X[~HOLE], ROUGH[~HOLE])


@cache
def rough_choice():
    """What is chosen for a rough function, by rows outside a hole, at any gain; tests must not change it."""
    return choice_and_data(DATA, setup(most_uncalibrated=1.5, least_rough_gain=ANY_GAIN))[0]


def assembled(found, **options):
    return assemble(found, DATA, setup(**options)).eval()


def rough_parts(x, scales, **options):
    return parts.new_parts(parts.PartInputs(x, x[:, 0], scales, setup(**options)), names=parts.ROUGH_FIELD)


def predicted(model, x):
    with torch.no_grad(), settings.iterative(), gpytorch.settings.debug(False):
        observed = model.likelihood(model(x), x)
        return observed.mean, observed.stddev


def test_covariances_are_a_linear_one_and_exponential_ones():
    found = rough_field.rough_covariances(X, SCALES)
    widths = {2: 64 / 85, 1 / 2: 16 / 85, 1 / 8: 4 / 85, 1 / 32: 1 / 85}
    mean = sum(weight * exponential(X, width * SCALES) for width, weight in widths.items())
    expected = torch.stack([X @ X.T / 2, mean, exponential(X, SCALES / 32)])
    torch.testing.assert_close(found, expected, atol=2e-6, rtol=0)


@pytest.mark.parametrize("columns", [1, 2])
def test_trees_have_them_as_limits(columns):
    """But for the law of large numbers, and a little because a mean of exponentials is no exponential of the mean."""
    x, scales = X[:60, :columns], SCALES[:columns]
    new = rough_parts(x, scales, num_rough_trees=2_000)
    found = torch.stack([new[name](x).to_dense().detach() for name in ("linear", *parts.ROUGH)])
    exact = rough_field.rough_covariances(x, scales)
    torch.testing.assert_close(found, exact, atol=4.5 * 0.5 / 2_000**0.5, rtol=0)


@pytest.mark.parametrize("columns", [1, 2, 3, 7, 20])
def test_the_mean_of_absolute_coordinates_over_the_sphere(columns):
    points = torch.randn(200_000, columns, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    sums = (points / points.norm(dim=1, keepdim=True)).abs().sum(1)
    assert parts._mean_manhattan_norm(columns) == pytest.approx(sums.mean().item(), rel=5e-3)


def test_a_product_with_many_rows_has_fewer_trees():
    found = [Options().num_rough(rows) for rows in (1, 50_000, 80_000, 100_000, 10**7)]
    assert found == [200, 200, 125, 100, 100]


def test_trees_differ_between_lengthscales_and_seeds():
    inputs = (parts.PartInputs(X, X[:, 0], SCALES, setup(seed)) for seed in (0, 0, 1))
    first, again, other = (parts._rough(each, (0.5, 0.5)) for each in inputs)
    keys = [kernel.partition.tree_keys for each in (first, again, other) for kernel in each.kernels]
    assert torch.equal(keys[0], keys[2])
    assert len(torch.cat([keys[0], keys[1], keys[4]]).unique()) == 3 * 50


def candidate(log_density):
    kept, held_out = torch.arange(0, 200, 2), torch.arange(1, 200, 2)
    folds = [Fold.of(torch.eye(200).double()[None], *rows) for rows in ((kept, held_out), (held_out, kept))]
    fit = PredictiveFit(torch.ones(1), 0.1, 0.0, log_density)
    return rough_field.Candidate(["forest"], folds, torch.arange(200), fit, SCALES)


@pytest.mark.parametrize(("limit", "trees", "is_taken"), [(19.9, 50, False), (50, 19.9, False), (20.1, 20.1, True)])
def test_twenty_nats_decide(monkeypatch, limit, trees, is_taken):
    """By the limits, then by the trees; with patches there are no more questions."""
    fits = [PredictiveFit(torch.ones(3), 0.1, 0.0, 1 + gain / 200) for gain in (limit, trees, -1e3)]
    monkeypatch.setattr(rough_field, "maximize_predictive_density", lambda *_, **__: fits.pop(0))
    found = rough_field.rough_field(candidate(1.0), [SCALES, SCALES], X, ROUGH, setup())
    assert (found.names == ["linear", *parts.ROUGH]) == is_taken
    assert (len(found.rows) == 200 + 12 * 40) == is_taken


def test_each_fold_has_the_lengthscales_that_have_not_seen_it(monkeypatch):
    used, original = [], rough_field.rough_covariances
    monkeypatch.setattr(
        rough_field, "rough_covariances", lambda x, scales: (used.append(scales), original(x, scales))[1]
    )
    rough_field.rough_field(candidate(np.inf), [SCALES, 2 * SCALES], X, ROUGH, setup())
    assert torch.equal(torch.stack(used), torch.stack([SCALES, 2 * SCALES]))


def taken(monkeypatch, seed=0):
    """A rough field that is taken at any gain, and its parts."""
    built, original = [], rough_field.new_parts
    monkeypatch.setattr(rough_field, "new_parts", lambda *a, **k: built.append(original(*a, **k)) or built[0])
    y = (ROUGH - ROUGH.mean()) / ROUGH.std()
    same = setup(seed, least_rough_gain=ANY_GAIN)
    found = rough_field.rough_field(candidate(0.0), [SCALES, SCALES], X, y, same)
    return found, built[0], y


@pytest.mark.slow
def test_folds_hold_covariances_of_trees_as_the_model_has_them(monkeypatch):
    found, built, _ = taken(monkeypatch)
    assert len(found.folds) == 2 + 12 * 3
    for fold in found.folds[::6]:
        points = X[found.rows[fold.kept]], X[found.rows[fold.held_out]]
        within, prior = (rough_field.dense_covariances(built.values(), each) for each in points)
        torch.testing.assert_close(fold.within, within)
        torch.testing.assert_close(fold.prior, prior.diagonal(dim1=1, dim2=2))
    model = rough_parts(X, SCALES)
    for name in parts.ROUGH:
        pairs = zip(built[name].kernels, model[name].kernels)
        assert all(torch.equal(one.partition.tree_keys, other.partition.tree_keys) for one, other in pairs)


def test_weights_are_those_that_all_folds_favor(monkeypatch):
    """Those of random rows and those of patches: from their best weights there is nowhere to go."""
    found, _, y = taken(monkeypatch)
    again = rough_field.maximize_predictive_density(found.folds, y[found.rows], start=found.fit)
    assert again.log_density == pytest.approx(found.fit.log_density, abs=1e-3)
    of_random_rows = rough_field.maximize_predictive_density(found.folds[:2], y[found.rows[:200]])
    assert found.fit.log_density != pytest.approx(of_random_rows.log_density, abs=1e-2)


def test_patches_are_neighbors_in_units_of_the_lengthscales():
    patch = rough_field._nearest(X, 7, SCALES, 40)
    distances = ((X - X[7]) / SCALES).norm(dim=1)
    assert patch[0] == 7
    assert distances[patch].max() <= distances.sort().values[39]


@pytest.mark.slow
def test_patches_and_their_folds_are_random(monkeypatch):
    """A fold without an order: rows come by their distance from the center."""
    found, other = taken(monkeypatch)[0], taken(monkeypatch, seed=1)[0]
    assert found.rows[200::40].unique().numel() == 12
    assert not torch.equal(found.rows[200::40], other.rows[200::40])
    places = torch.stack([(fold.held_out - 200) % 40 for fold in found.folds[2::3]]).double()
    assert 15 < places.mean() < 24


@pytest.mark.slow
def test_a_rough_function_gets_nothing_else():
    y = drawn(exponential(X, torch.tensor([1.0, 1.0])), seed=6)
    found = chosen_for(y, num_rough_trees=200)
    assert found.is_rough
    assert set(found.outputscales) <= {"linear", *parts.ROUGH}
    assert found.noise < 0.02
    assert len(found.rows) == 400 + 12 * 40
    some = found.rows[:400]
    expected = weights_and_noise.learn_lengthscales(TrainingData(X, y).x[some], y[some], has_prior=True)
    torch.testing.assert_close(found.lengthscales, expected, rtol=1e-3, atol=0)


@pytest.mark.slow
def test_constant_noise_stays_constant():
    """Though rows are in several patches: a copy of a row would tell its residual."""
    noise = 0.2 * torch.randn(1_000, generator=torch.Generator().manual_seed(1))
    found = chosen_for(ROUGH + noise, least_rough_gain=ANY_GAIN)
    assert len(found.rows.unique()) < len(found.rows)
    assert found.is_rough
    assert found.noise_forest is None


def test_trees_that_have_seen_a_row_say_nothing_of_it():
    random, seen, rows = np.random.RandomState(0), torch.arange(0, 300), torch.arange(200, 400).repeat(2)
    forest = weights_and_noise.grow_residual_forest(X[seen], ROUGH[seen], random_state=random)
    found = weights_and_noise._out_of_sample(forest, TrainingData(X, X[:, 0]), seen, rows)
    assert torch.equal(found[:200], found[200:])
    torch.testing.assert_close(found[:100], torch.from_numpy(forest.oob_prediction_[200:]))
    torch.testing.assert_close(found[100:200], torch.from_numpy(forest.predict(X[300:400].numpy())))


@pytest.mark.slow
def test_nothing_is_calibrated(monkeypatch):
    def calibrate(*_):
        raise AssertionError

    monkeypatch.setattr(default, "Calibration", calibrate)
    found = rough_choice()
    monkeypatch.setattr(default, "choose", lambda *_: found)
    chosen = choice_and_data(TrainingData(X, ROUGH), setup())[0]
    assert (chosen.held_out, chosen.outputscales, chosen.offset) == (found.held_out, found.outputscales, 0.0)


@pytest.mark.slow
def test_patches_tell_noise_from_what_varies_quickly():
    """
    To 400 random rows both are noise (.100 and .111): what 2,000 rows see of a function, and what no number of them
    does.
    """
    x = torch.rand(2_000, 2, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    slow = drawn(exponential(x, torch.tensor([0.5, 0.5])), seed=1)
    quick = drawn(exponential(x, torch.tensor([0.01, 0.01])), seed=2)
    noise = torch.randn(2_000, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    seen, unseen = (chosen_for(slow + 0.3 * each, x, least_rough_gain=ANY_GAIN).noise for each in (quick, noise))
    assert unseen > 3 * seen


@pytest.mark.slow
def test_what_does_not_need_it_is_as_it_was_without():
    y = (6 * X[:, 0]).sin() + X[:, 1] + 0.1 * torch.randn(1_000, generator=torch.Generator().manual_seed(1))
    found = chosen_for(y)
    without = chosen_for(y, least_rough_gain=np.inf)
    assert not found.is_rough
    for name in ("outputscales", "noise", "log_density"):
        assert getattr(found, name) == getattr(without, name)
    assert torch.equal(found.rows, without.rows)


@pytest.mark.slow
def test_what_was_tried_in_vain_leaves_no_trace(monkeypatch):
    """Not in the random numbers of what comes after it, either."""
    asked = []

    def of_trees_that_say_nothing(of_parts, x):
        asked.append(len(x))
        return torch.eye(len(x), dtype=torch.float64).expand(len(of_parts), -1, -1)

    monkeypatch.setattr(rough_field, "dense_covariances", of_trees_that_say_nothing)
    found = chosen_for(ROUGH, least_rough_gain=-50.0)
    without = chosen_for(ROUGH, least_rough_gain=-50.0, most_rough_columns=0)
    assert asked == [400]
    assert not found.is_rough
    assert found.outputscales == without.outputscales
    assert found.noise == without.noise


@pytest.mark.slow
def test_it_is_not_for_few_rows_nor_many_or_incomplete_columns():
    assert not FEW.calibrates(800)
    assert FEW.calibrates(801)
    assert not chosen_for(ROUGH[:800], X[:800], least_rough_gain=ANY_GAIN).is_rough
    assert not chosen_for(ROUGH, torch.where(X > 0.995, torch.nan, X), least_rough_gain=ANY_GAIN).is_rough
    for most in (1, 2):
        assert chosen_for(ROUGH, least_rough_gain=ANY_GAIN, most_rough_columns=most).is_rough == (most == 2)


@pytest.mark.slow
def test_a_hole_is_as_uncertain_as_it_is():
    """Where no training rows are, though all held-out rows have others around them; by the true kernel."""
    mean, std = predicted(assembled(rough_choice(), num_rough_trees=150), X[HOLE])
    exact_mean, exact_std = given_the_others(exponential(X, torch.tensor([0.5, 0.5])))
    assert rough_choice().is_rough
    assert std.mean() == pytest.approx(exact_std.mean().item(), rel=0.25)
    assert (mean - exact_mean).square().mean().sqrt() < 0.4 * exact_std.mean()
    _, elsewhere = predicted(assembled(rough_choice(), num_rough_trees=150), X[~HOLE] + 0.002)
    assert std.mean() > 1.5 * elsewhere.mean()


def given_the_others(covariance):
    """Mean and standard deviation of the rough function in the hole, by its law."""
    within, cross = covariance[~HOLE][:, ~HOLE], covariance[~HOLE][:, HOLE]
    solved = torch.linalg.solve(within, cross)
    variance = covariance.diagonal()[HOLE] - (cross * solved).sum(0)
    return solved.mT @ ROUGH[~HOLE], variance.sqrt()


@pytest.mark.slow
def test_restored_models_predict_the_same():
    model = assembled(rough_choice())
    other = rebuilt(description_of(model), X[~HOLE], model.train_targets)
    other.load_state_dict(model.state_dict())
    for expected, result in zip(predicted(model, X[HOLE]), predicted(other, X[HOLE])):
        assert torch.equal(result, expected)


def test_nothing_is_dense_in_the_number_of_rows():
    """Of 3,000 rows: some numbers for each row and tree at most, in building, products and new points."""
    x, sizes = torch.rand(3_000, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64), []

    class Sizes(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), options=None):
            result = function(*arguments, **(options or {}))
            sizes.extend(each.numel() for each in tree_leaves(result) if torch.is_tensor(each))
            return result

    with Sizes(), torch.no_grad():
        kernel = parts._rough(parts.PartInputs(x, x[:, 0], SCALES, setup()), (1 / 8, 1 / 32))
        assert (kernel(x + 0.01, x) @ (kernel(x) @ x)).shape == (3_000, 2)
    assert max(sizes) <= 9 * 50 * len(x) < len(x) ** 2 / 6
