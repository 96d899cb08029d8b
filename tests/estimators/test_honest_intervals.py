"""Intervals of 90 % cover 90 % of new rows where something about the rows is not known for certain."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from gpytorch.kernels import MaternKernel
from sklearn.datasets import load_diabetes

from gpytorch_partition.estimators import PartitionGPRegressor
from gpytorch_partition.inference.prediction.unknown_cells import completions
from gpytorch_partition.presets import weights_and_noise
from gpytorch_partition.presets.data import TrainingData
from gpytorch_partition.presets.options import Setup
from tests.few_trees import few_trees

FEW_TREES = few_trees(10, 10, num_noise_trees=20, num_folds=3)


def matern(x, y):
    return MaternKernel(nu=1.5)


def coverage(model, frame, y):
    _, ends = model.predict(frame, quantiles=(0.05, 0.95))
    return 100 * np.mean((ends[:, 0] < y) & (y < ends[:, 1]))


class TestLevelsThatBecomeMeanTargets:
    """A hundred and fifty towns, two rows of each: in-sample means of them hold half of a row's own noise."""

    @staticmethod
    def towns(seed, effect, num_rows=300, num_new=400):
        random = np.random.RandomState(seed)
        towns, effects = random.randint(150, size=num_rows + num_new), effect * random.randn(150)
        frame = pd.DataFrame({"a": random.rand(num_rows + num_new), "town": [f"town {town}" for town in towns]})
        y = np.sin(5 * frame["a"].to_numpy()) + effects[towns] + 0.5 * random.randn(num_rows + num_new)
        return frame[:num_rows], y[:num_rows], frame[num_rows:], y[num_rows:]

    @pytest.mark.parametrize("effect", [0.0, 1.0])
    @pytest.mark.parametrize("kernel", ["mondrian", "fast_cluster", matern])
    def test_intervals_cover_what_they_say(self, kernel, effect):
        found = []
        for seed in range(3):
            frame, y, new, truth = self.towns(seed, effect)
            found.append(coverage(PartitionGPRegressor(kernel, 30, random_state=0).fit(frame, y), new, truth))
        assert 84 < np.mean(found) < 96

    def test_a_row_does_not_depend_on_others(self):
        frame, y, new, _ = self.towns(0, 1.0)
        model = PartitionGPRegressor("mondrian", 20, random_state=0).fit(frame, y)
        assert np.array_equal(model.predict(new[:1]), model.predict(new)[:1])
        assert (model.nearest_rows(frame[:5], k=1)[1] <= 1).all()

    def test_unlabelled_rows_and_float32(self):
        frame, y, new, truth = self.towns(1, 1.0)
        model = PartitionGPRegressor("fast_cluster", 30, random_state=0, dtype="float32").fit(frame, y, unlabelled=new)
        assert coverage(model, new, truth) > 80


def holes(seed, case, num_rows=300, num_new=300):
    """Five columns, of which the first counts most and the second knows much of it; what is missing in a quarter."""
    random = np.random.RandomState(seed)
    x = random.randn(num_rows + num_new, 5)
    x[:, 1] = 0.9 * x[:, 0] + 0.4 * x[:, 1]
    y = 2 * np.tanh(1.5 * x[:, 0]) + 0.7 * x[:, 2] + 0.4 * random.randn(len(x))
    missing = random.rand(len(x)) < (np.where(x[:, 0] > 0.5, 0.7, 0.1) if case == "informative" else 0.25)
    frame = pd.DataFrame(x, columns=list("abcde"))
    if case == "new level":
        towns, effects = random.randint(30, size=len(x)), random.randn(30)
        y += np.where(missing, random.randn(len(x)), effects[towns])
        frame["town"] = np.where(missing, "new", np.char.add("town", towns.astype(str)))
    else:
        frame.loc[missing, "a"] = np.nan
    if case.startswith("new"):
        frame, y, missing = (part[~missing | (np.arange(len(x)) >= num_rows)] for part in (frame, y, missing))
        num_rows = len(frame) - num_new
    return frame[:num_rows], y[:num_rows], frame[num_rows:][missing[num_rows:]], y[num_rows:][missing[num_rows:]]


class TestMissingCells:
    """Without the variance of what the cells may be, the intervals of these covered 28 to 75 %."""

    @pytest.mark.filterwarnings("ignore:cells are missing")
    @pytest.mark.parametrize("case", ["new", "missing", "informative", "new level"])
    def test_rows_with_holes_are_covered(self, case):
        found = []
        for seed in range(3):
            frame, y, new, truth = holes(seed, case)
            found.append(coverage(PartitionGPRegressor("forest", 50, random_state=0).fit(frame, y), new, truth))
        assert 84 < np.mean(found) < 98.5

    @pytest.mark.filterwarnings("ignore:cells are missing")
    def test_new_holes_are_predicted_from_what_similar_rows_have(self):
        frame, y, new, truth = holes(0, "new")
        model = PartitionGPRegressor("mondrian", 50, random_state=0).fit(frame, y)
        error, typical = (np.std(truth - model.predict(rows)) for rows in (new, new.assign(a=frame["a"].median())))
        assert error < 0.9 * typical

    @pytest.mark.parametrize("case", ["new", "missing"])
    @pytest.mark.filterwarnings("ignore:cells are missing")
    def test_all_ways_to_ask_agree_and_no_row_depends_on_others(self, case):
        frame, y, new, _ = holes(0, case)
        model = PartitionGPRegressor("forest", 50, random_state=0).fit(frame, y)
        rows = pd.concat([new[:20], frame[:20].fillna(0.0)])
        mean, std = model.predict(rows, return_std=True)
        assert np.array_equal(model.predict(rows), mean)
        means, covariance = model.predict(rows, return_cov=True)
        np.testing.assert_allclose(means, mean)
        np.testing.assert_allclose(np.sqrt(np.diag(covariance)), std, rtol=1e-6)
        single = [model.predict(rows[i : i + 1], return_std=True) for i in (0, 7, 30)]
        np.testing.assert_allclose(np.ravel(single), np.stack([mean, std], 1)[[0, 7, 30]].ravel(), rtol=1e-9)
        samples = model.sample_y(rows, 4000)
        np.testing.assert_allclose(samples.mean(1), mean, atol=0.15)
        np.testing.assert_allclose(samples.std(1), std, rtol=0.1)


@pytest.mark.parametrize("kernel", ["forest", "mondrian", matern])
@pytest.mark.parametrize(("constant", "other"), [("x", "new"), ("x", None), (1.0, None)])
def test_another_cell_in_a_column_that_was_the_same_in_all_rows_changes_nothing(kernel, constant, other):
    """A level that `fit` has not seen is a new hole, of which rows with usual holes would get other means."""
    frame, y, new, _ = holes(0, "random")
    model = PartitionGPRegressor(kernel, num_partitions=20, random_state=0).fit(frame.assign(constant=constant), y)
    model = model if callable(kernel) else PartitionGPRegressor.from_state(model.to_state())
    mean, std = model.predict(new.assign(constant=constant), return_std=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        other_mean, other_std = model.predict(new.assign(constant=other), return_std=True)
    np.testing.assert_array_equal(other_mean, mean)
    np.testing.assert_array_equal(other_std, std)


def test_completions_are_the_cells_of_the_nearest_rows_that_know_them():
    random = np.random.RandomState(0)
    train, row = torch.from_numpy(random.randn(40, 3)), torch.tensor([[0.1, torch.nan, torch.nan]], dtype=torch.float64)
    train[::2, 1] = torch.nan
    found = completions(row, train, [])[0]
    knows_both = train[1::2]
    nearest = knows_both[(knows_both[:, 0] - 0.1).abs().argsort()[:10]]
    torch.testing.assert_close(found[:, 1:], nearest[:, 1:])
    assert (found[:, 0] == 0.1).all()
    codes = torch.tensor([[0.0, 5.0], [1.0, 6.0], [1.0, 7.0], [9.0, 8.0]], dtype=torch.float64)
    chosen = completions(torch.tensor([[1.0, torch.nan]], dtype=torch.float64), codes, [0])[0, :2, 1]
    assert set(chosen.tolist()) == {6.0, 7.0}


@pytest.mark.slow
def test_weights_that_few_rows_chose_leave_wide_intervals():
    """Eight values that fit thirty residuals: 85 % are covered without the factor 30 / 22 of variances, else 91 %."""
    X, y = load_diabetes(return_X_y=True)
    found = []
    for seed in range(8):
        rows = np.random.RandomState(seed).permutation(len(y))
        train, new = rows[:30], rows[30:]
        model = PartitionGPRegressor(random_state=0, options=replace(FEW_TREES, least_boosting_gain=math.inf))
        found.append(coverage(model.fit(X[train], y[train]), X[new], y[new]))
    assert 88 < np.mean(found) < 94


@pytest.mark.parametrize(("num_rows", "factor"), [(30, 30 / 22), (300, 300 / 292)])
def test_the_factor_of_variances(monkeypatch, num_rows, factor):
    x = torch.rand(num_rows, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = x[:, 0] + 0.1 * torch.randn(num_rows, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    few = few_trees(5, num_folds=2)
    data = TrainingData(x, y)
    found = weights_and_noise.choose(data, Setup(np.random.RandomState(0), options=few))
    monkeypatch.setattr(weights_and_noise, "_allowance", lambda *_: 1.0)
    plain = weights_and_noise.choose(data, Setup(np.random.RandomState(0), options=few))
    assert found.noise == pytest.approx(factor * plain.noise)
    assert found.outputscales == pytest.approx({name: factor * weight for name, weight in plain.outputscales.items()})


class TestColumnsThatBeginToVary:
    """Rare flags: some are set in no training row, and in one of twenty new ones."""

    @staticmethod
    def rows(seed, number):
        random = np.random.RandomState(seed)
        numbers, flags = random.randn(number, 2), random.rand(number, 40) < 0.003
        effects = 3 * np.random.RandomState(11).randn(40)
        return np.c_[numbers, flags], numbers[:, 0] + flags @ effects + 0.3 * random.randn(number)

    def test_new_values_are_as_uncertain_as_held_out_rows_were(self):
        (X, y), (new, truth) = self.rows(0, 300), self.rows(1, 2_000)
        model = PartitionGPRegressor(random_state=0).fit(X, y)
        has_begun = (new[:, 2:] != 0) @ (X[:, 2:] == 0).all(0)
        assert 30 < has_begun.sum() < 200
        assert coverage(model, new[has_begun], truth[has_begun]) > 80  # without it 20
        scores = model.judge(new, truth).log_density + np.log(y.std())
        assert scores.mean() > model.log_predictive_density_ - 0.1

    def test_their_size_and_unit_do_not_matter(self):
        X, y = self.rows(0, 100)
        X[:, 2:] = 1e6
        new = X[:3].copy()
        new[1, 5], new[2, 5] = 1e6 + 1, 2e6
        model = PartitionGPRegressor(random_state=0, options=FEW_TREES).fit(X, y)
        points = model._fitted.points(new)[:, 5]
        assert points.tolist() == pytest.approx([0.0, 10.0, 10.0])
