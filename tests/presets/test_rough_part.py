"""The part of the default model for functions that are rough on all scales: its law, and when it is taken."""

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
from gpytorch_partition.presets import choice, parts
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
    monkeypatch.setattr(parts, "_BOOSTED", {n: {**each, "n_estimators": 20} for n, each in parts._BOOSTED.items()})
    monkeypatch.setattr(choice, "_NUM_FOLDS", 3)
    monkeypatch.setattr(choice, "_FEWEST_ROWS", 400)
    monkeypatch.setattr(choice, "_MOST_ROWS", 400)


def chosen_for(y, x=X):
    return choice.choose(x, (y - y.mean()) / y.std(), np.random.RandomState(0), None)


@cache
def rough_choice():
    """What is chosen for a rough function, by rows outside a hole, at any gain; tests must not change it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choice, "LEAST_ROUGH_GAIN", 0.0)
        return default_choice(X[~HOLE], ROUGH[~HOLE], np.random.RandomState(0), None)


def assembled(found):
    return assemble(found, X[~HOLE], ROUGH[~HOLE], np.random.RandomState(0), None).eval()


def predicted(model, x):
    with torch.no_grad(), settings.iterative(), gpytorch.settings.debug(False):
        observed = model.likelihood(model(x), x)
        return observed.mean, observed.stddev


def test_its_limit_is_a_mean_of_exponential_kernels():
    expected = (16 * exponential(X, SCALES / 2) + 4 * exponential(X, SCALES / 8) + exponential(X, SCALES / 32)) / 21
    torch.testing.assert_close(parts.rough_covariance(X, SCALES), expected)


@pytest.mark.parametrize("columns", [1, 2])
def test_trees_have_that_limit(monkeypatch, columns):
    """But for the law of large numbers, and a little because a mean of exponentials is no exponential of the mean."""
    monkeypatch.setattr(parts, "_NUM_ROUGH_TREES", 3_000)
    x, scales = X[:60, :columns], SCALES[:columns]
    found = parts.rough_part(x, scales, np.random.RandomState(0))(x).to_dense().detach()
    torch.testing.assert_close(found, parts.rough_covariance(x, scales), atol=4.5 * 0.5 / 3_000**0.5 * 0.8, rtol=0)


def test_a_rough_function_gets_it():
    found = chosen_for(ROUGH)
    assert found.outputscales["rough"] > 10 * found.outputscales.get("forest", 0.0)
    assert found.noise < 0.1


def test_what_does_not_need_it_is_as_it_was_without(monkeypatch):
    y = (6 * X[:, 0]).sin() + X[:, 1] + 0.1 * torch.randn(1_000, generator=torch.Generator().manual_seed(1))
    found = chosen_for(y)
    monkeypatch.setattr(choice, "LEAST_ROUGH_GAIN", np.inf)
    without = chosen_for(y)
    assert "rough" not in found.outputscales
    assert (found.outputscales, found.noise, found.log_density) == (
        without.outputscales,
        without.noise,
        without.log_density,
    )


def test_it_is_not_for_few_rows_nor_many_or_incomplete_columns(monkeypatch):
    assert not leaves_rows_out(600)
    assert leaves_rows_out(601)
    assert "rough" not in chosen_for(ROUGH[:600], X[:600]).outputscales
    assert "rough" not in chosen_for(ROUGH, torch.where(X > 0.995, torch.nan, X)).outputscales
    monkeypatch.setattr(choice, "_MOST_ROUGH_COLUMNS", 1)
    assert "rough" not in chosen_for(ROUGH).outputscales


def test_intervals_hold_in_a_hole():
    """Where no training rows are, though all rows that are left out have others around them."""
    mean, std = predicted(assembled(rough_choice()), X[HOLE])
    assert "rough" in rough_choice().outputscales
    assert ((ROUGH[HOLE] - mean).abs() <= 1.645 * std).double().mean() > 0.85
    _, elsewhere = predicted(assembled(rough_choice()), X[~HOLE] + 0.002)
    assert std.mean() > 1.5 * elsewhere.mean()


@pytest.mark.parametrize("restore", ["state", "copy", "pickle"])
def test_restored_models_predict_the_same(restore):
    found = replace(rough_choice(), threshold=None, noise_forest=None, exponent=0.0)
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
    """Of 5,000 rows: the codes are the largest that there is, in building, products and new points."""
    x, sizes = torch.rand(5_000, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64), []

    class Sizes(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), options=None):
            result = function(*arguments, **(options or {}))
            sizes.extend(each.numel() for each in tree_leaves(result) if torch.is_tensor(each))
            return result

    with Sizes(), torch.no_grad():
        kernel = parts.rough_part(x, SCALES, np.random.RandomState(0))
        assert (kernel(x + 0.01, x) @ (kernel(x) @ x)).shape == (5_000, 2)
    assert max(sizes) <= 3 * 150 * len(x) < len(x) ** 2 / 10
