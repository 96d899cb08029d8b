"""The default model of functions that vary on all scales: the law of its parts, and when it is taken."""

from __future__ import annotations

import copy
import pickle
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
from gpytorch_partition.inference.predictive_fit import Fold, PredictiveFit
from gpytorch_partition.presets import choice, parts, rough_field
from gpytorch_partition.presets.assembly import assemble, unfitted_model
from gpytorch_partition.presets.choice import leaves_rows_out
from gpytorch_partition.presets.default import default_choice

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


@pytest.fixture(autouse=True)
def _few_trees_and_rows(monkeypatch):
    monkeypatch.setattr(parts, "_NUM_TREES", 20)
    monkeypatch.setattr(parts, "_NUM_ROUGH_TREES", 50)
    monkeypatch.setattr(parts, "_BOOSTED", {n: {**each, "n_estimators": 20} for n, each in parts._BOOSTED.items()})
    monkeypatch.setattr(choice, "_NUM_FOLDS", 3)
    monkeypatch.setattr(choice, "_FEWEST_ROWS", 400)
    monkeypatch.setattr(choice, "_MOST_ROWS", 400)
    monkeypatch.setattr(rough_field, "_PATCH_ROWS", 40)


def chosen_for(y, x=X):
    return choice.choose(x, (y - y.mean()) / y.std(), np.random.RandomState(0), None)


@cache
def rough_choice():
    """What is chosen for a rough function, by rows outside a hole, at any gain; tests must not change it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rough_field, "LEAST_ROUGH_GAIN", 0.0)
        return default_choice(X[~HOLE], ROUGH[~HOLE], np.random.RandomState(0), None)


def assembled(found):
    return assemble(found, X[~HOLE], ROUGH[~HOLE], np.random.RandomState(0), None).eval()


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
def test_trees_have_them_as_limits(monkeypatch, columns):
    """But for the law of large numbers, and a little because a mean of exponentials is no exponential of the mean."""
    monkeypatch.setattr(parts, "_NUM_ROUGH_TREES", 2_000)
    x, scales = X[:60, :columns], SCALES[:columns]
    new = parts.new_parts(x, x[:, 0], scales, np.random.RandomState(0), None, names=["linear", *parts.ROUGH])
    found = torch.stack([new[name](x).to_dense().detach() for name in ("linear", *parts.ROUGH)])
    exact = rough_field.rough_covariances(x, scales)
    torch.testing.assert_close(found, exact, atol=4.5 * 0.5 / 2_000**0.5, rtol=0)


def test_trees_differ_between_length_scales_and_seeds():
    first, again, other = (parts._rough(X, SCALES, (0.5, 0.5), np.random.RandomState(seed)) for seed in (0, 0, 1))
    keys = [kernel.partition.tree_keys for each in (first, again, other) for kernel in each.kernels]
    assert torch.equal(keys[0], keys[2])
    assert len(torch.cat([keys[0], keys[1], keys[4]]).unique()) == 3 * 50


def candidate(log_density):
    kept, left_out = torch.arange(0, 200, 2), torch.arange(1, 200, 2)
    folds = [Fold.of(torch.eye(200).double()[None], *rows) for rows in ((kept, left_out), (left_out, kept))]
    fit = PredictiveFit(torch.ones(1), 0.1, 0.0, log_density)
    return rough_field.Candidate(["forest"], folds, torch.arange(200), fit)


@pytest.mark.parametrize(("gain", "is_taken"), [(2.9, False), (3.1, True)])
def test_three_nats_decide(monkeypatch, gain, is_taken):
    fit = PredictiveFit(torch.ones(3), 0.1, 0.0, 1 + gain / 200)
    monkeypatch.setattr(rough_field, "maximize_predictive_density", lambda *_, **__: fit)
    found = rough_field.rough_field(candidate(1.0), [SCALES, SCALES], X, ROUGH, np.random.RandomState(0))
    assert (found.names == ["linear", *parts.ROUGH]) == is_taken
    assert (len(found.rows) == 200 + 12 * 40) == is_taken


def test_each_fold_has_the_length_scales_that_have_not_seen_it(monkeypatch):
    used, original = [], rough_field.rough_covariances
    monkeypatch.setattr(
        rough_field, "rough_covariances", lambda x, scales: (used.append(scales), original(x, scales))[1]
    )
    rough_field.rough_field(candidate(np.inf), [SCALES, 2 * SCALES], X, ROUGH, np.random.RandomState(0))
    assert torch.equal(torch.stack(used), torch.stack([SCALES, 2 * SCALES]))


def test_patches_are_neighbors_in_units_of_the_length_scales():
    patch = rough_field._nearest(X, 7, SCALES)
    distances = ((X - X[7]) / SCALES).norm(dim=1)
    assert patch[0] == 7
    assert distances[patch].max() <= distances.sort().values[39]


def test_a_rough_function_gets_nothing_else():
    found = chosen_for(ROUGH)
    assert found.is_rough
    assert set(found.outputscales) <= {"linear", *parts.ROUGH}
    assert found.noise < 0.02
    assert len(found.rows) == 400 + 12 * 40


@pytest.mark.slow
def test_patches_tell_noise_from_what_varies_quickly():
    """To 400 random rows both are noise: what 2,000 rows see of a function, and what no number of them does."""
    x = torch.rand(2_000, 1, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    slow = drawn(exponential(x, torch.tensor([0.5])), seed=1)
    quick = drawn(exponential(x, torch.tensor([0.004])), seed=2)
    noise = torch.randn(2_000, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rough_field, "LEAST_ROUGH_GAIN", -np.inf)
        seen, unseen = (chosen_for(slow + 0.3 * each, x).noise for each in (quick, noise))
    assert unseen > 4 * seen


def test_what_does_not_need_it_is_as_it_was_without(monkeypatch):
    y = (6 * X[:, 0]).sin() + X[:, 1] + 0.1 * torch.randn(1_000, generator=torch.Generator().manual_seed(1))
    found = chosen_for(y)
    monkeypatch.setattr(rough_field, "LEAST_ROUGH_GAIN", np.inf)
    without = chosen_for(y)
    assert not found.is_rough
    for name in ("outputscales", "noise", "log_density"):
        assert getattr(found, name) == getattr(without, name)
    assert torch.equal(found.rows, without.rows)


def test_it_is_not_for_few_rows_nor_many_or_incomplete_columns(monkeypatch):
    assert not leaves_rows_out(600)
    assert leaves_rows_out(601)
    assert not chosen_for(ROUGH[:600], X[:600]).is_rough
    assert not chosen_for(ROUGH, torch.where(X > 0.995, torch.nan, X)).is_rough
    monkeypatch.setattr(choice, "MOST_ROUGH_COLUMNS", 1)
    assert not chosen_for(ROUGH).is_rough


@pytest.mark.slow
def test_a_hole_is_as_uncertain_as_it_is(monkeypatch):
    """Where no training rows are, though all rows that are left out have others around them; by the true kernel."""
    monkeypatch.setattr(parts, "_NUM_ROUGH_TREES", 150)
    mean, std = predicted(assembled(rough_choice()), X[HOLE])
    exact_mean, exact_std = given_the_others(exponential(X, torch.tensor([0.5, 0.5])))
    assert rough_choice().is_rough
    assert std.mean() == pytest.approx(exact_std.mean().item(), rel=0.25)
    assert (mean - exact_mean).square().mean().sqrt() < 0.4 * exact_std.mean()
    _, elsewhere = predicted(assembled(rough_choice()), X[~HOLE] + 0.002)
    assert std.mean() > 1.5 * elsewhere.mean()


def given_the_others(covariance):
    """Mean and standard deviation of the rough function in the hole, by its law."""
    within, cross = covariance[~HOLE][:, ~HOLE], covariance[~HOLE][:, HOLE]
    solved = torch.linalg.solve(within, cross)
    variance = covariance.diagonal()[HOLE] - (cross * solved).sum(0)
    return solved.mT @ ROUGH[~HOLE], variance.sqrt()


@pytest.mark.parametrize("restore", ["state", "copy", "pickle"])
def test_restored_models_predict_the_same(restore):
    found = replace(rough_choice(), noise_forest=None, exponent=0.0)
    model = assembled(found)
    if restore == "state":
        names, y = list(found.outputscales), model.train_targets
        other = unfitted_model(X[~HOLE], y, names, noise_varies=False, threshold=None)
        other.load_state_dict(model.state_dict())
    else:
        other = copy.deepcopy(model) if restore == "copy" else pickle.loads(pickle.dumps(model))
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
        kernel = parts._rough(x, SCALES, (1 / 8, 1 / 32), np.random.RandomState(0))
        assert (kernel(x + 0.01, x) @ (kernel(x) @ x)).shape == (3_000, 2)
    assert max(sizes) <= 9 * 50 * len(x) < len(x) ** 2 / 6
