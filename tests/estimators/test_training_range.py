"""Predictions far from all rows: a warning where the model cannot know it, and wide intervals where it does."""

from __future__ import annotations

import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from gpytorch.kernels import LinearKernel, RBFKernel
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.ensemble import RandomForestRegressor

from gpytorch_partition import FastClusterKernel, LandmarkKernel, MondrianKernel, RandomForestKernel
from gpytorch_partition.estimators import OutsideRangeWarning, PartitionGPClassifier, PartitionGPRegressor
from gpytorch_partition.estimators.checks import TrainingRange, is_blind
from gpytorch_partition.presets import Options
from tests.few_trees import few_trees

RANDOM = np.random.RandomState(0)
X = RANDOM.rand(120, 2)
Y = np.sin(6 * X[:, 0]) + 0.1 * RANDOM.randn(120)
FAR = np.array([[50.0, 0.5], [0.5, 0.5]])
SMALL = few_trees()
BLIND = {
    "forest": "forest",
    "fast_cluster": "fast_cluster",
    "ensemble": RandomForestRegressor(10, random_state=0).fit(X, Y),
    "landmarks": lambda x, y: LandmarkKernel(x, y),
    "given": RandomForestKernel(torch.from_numpy(X), torch.from_numpy(Y), 10, random_state=0),
}
KNOWING = {"mondrian": "mondrian", "auto": "auto", "smooth": RBFKernel(), "linear": LinearKernel()}


def fitted(kernel, x=X, y=Y, **options):
    options = {"options": SMALL, "max_iterations": 20, **options}
    return PartitionGPRegressor(kernel, num_partitions=20, random_state=0, **options).fit(x, y)


def caught(predict):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        predict()
    return [each for each in found if each.category is OutsideRangeWarning]


class TestBlindModels:
    @pytest.mark.parametrize("name", BLIND)
    def test_they_are_as_sure_far_away_and_say_so_once(self, name):
        model = fitted(BLIND[name])
        (warning,) = caught(lambda: model.predict(FAR))
        message = str(warning.message)
        assert message.startswith("1 of 2 rows lie outside the range of the training rows, in 'x0' (")
        assert "kernel='auto'" in message
        assert warning.filename == __file__
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _, (far, near) = model.predict(FAR, return_std=True, include_noise=False)
        assert far < 2 * near + 0.05

    def test_not_for_training_rows_or_rows_a_hair_outside(self):
        model = fitted("forest")
        assert not caught(lambda: model.predict(X))
        assert not caught(lambda: model.predict(X * 1.2))

    def test_names_of_tables_and_what_is_not_compared(self):
        text = np.array(["u", "v", "w"])[RANDOM.randint(3, size=120)]
        frame = pd.DataFrame({"size": X[:, 0], "age": X[:, 1], "kind": text, "same": 1.0})
        model = fitted("forest", frame)
        new = pd.DataFrame(
            {"size": [0.5] * 3, "age": [np.nan, 30.0, 0.5], "kind": ["u", "new", "w"], "same": [1.0] * 3}
        )
        (warning,) = caught(lambda: model.predict(new))
        assert "1 of 3 rows" in str(warning.message)
        assert "'age'" in str(warning.message)
        assert "'kind'" not in str(warning.message)
        (warning,) = caught(lambda: model.predict(new.assign(age=0.5, same=2.0)))
        assert "3 of 3 rows" in str(warning.message)
        assert "'same'" in str(warning.message)

    def test_samples_and_loaded_states(self):
        model = fitted("forest")
        assert len(caught(lambda: model.sample_y(FAR))) == 1
        assert len(caught(lambda: PartitionGPRegressor.from_state(model.to_state()).predict(FAR))) == 1

    @pytest.mark.slow
    def test_many_predictions_of_one_call_give_one_warning(self):
        model = fitted("forest")
        rows, targets = np.concatenate([FAR, X[:8]]), Y[:10]
        assert len(caught(lambda: model.importance(rows, targets, n_repeats=2))) == 1
        assert len(caught(lambda: model.importance(rows, targets, n_repeats=2, n_jobs=2))) == 1
        assert len(caught(lambda: model.partial_dependence(rows, 1, grid_resolution=3))) == 1
        assert len(caught(lambda: model.partial_dependence(X[:8], 1, grid=[0.5, 9.0, 99.0]))) == 1
        assert not caught(lambda: model.importance(X[:8], Y[:8], n_repeats=2))
        assert len(caught(lambda: model.predict(FAR))) == len(caught(lambda: model.predict(FAR))) == 1

    def test_another_fit_has_another_range(self):
        model = fitted("forest")
        assert caught(lambda: model.predict(FAR))
        model.fit(X * 100, Y)
        assert not caught(lambda: model.predict(FAR))


class TestKnowingModels:
    @pytest.mark.parametrize("name", KNOWING)
    def test_intervals_widen_and_nothing_is_said(self, name):
        model = fitted(KNOWING[name])
        assert not caught(lambda: model.predict(FAR))
        _, (far, near) = model.predict(FAR, return_std=True, include_noise=False)
        assert far > 2 * near

    def test_the_default_model_of_few_rows(self):
        """Without the variance that inducing points lack, that of a smooth part alone was 0 at 50."""
        random = np.random.RandomState(0)
        x = random.rand(100, 5)
        model = fitted("auto", x, np.sin(6 * x[:, 0]) + 0.1 * random.randn(100))
        new = np.full((3, 5), 0.5)
        new[1:, 0] = 3.0, 50.0
        _, (near, far, farther) = model.predict(new, return_std=True, include_noise=False)
        assert min(far, farther) > 0.4 > 4 * near


def test_default_models_of_forests_only_do_not_know():
    only = Options(omitted_parts=("slopes", "smooth", "linear"), num_trees=10, num_boosted_trees=5)
    (warning,) = caught(lambda: fitted("auto", options=only).predict(FAR))
    assert "fit to some from there" in str(warning.message)
    assert "auto" not in str(warning.message)


def test_kinds_of_kernels():
    x, y = torch.from_numpy(X), torch.from_numpy(Y)
    forest, clusters = RandomForestKernel(x, y, 5, random_state=0), FastClusterKernel(x, 5, random_state=0)
    assert is_blind(forest + clusters)
    assert not is_blind(forest + MondrianKernel(x, 5, random_state=0))
    assert not is_blind(forest + LinearKernel())


def test_how_far_and_how_many():
    train = torch.tensor([[0.0, 5.0, torch.nan], [2.0, 5.0, torch.nan]], dtype=torch.float64)
    new = torch.tensor([[1.0, 5.0, 3.0], [3.0, 5.0 + 1e-9, 1.0], [-4.0, 6.0, torch.nan]], dtype=torch.float64)
    beyond = TrainingRange.of(train).beyond(new)
    torch.testing.assert_close(beyond, torch.tensor([[0, 0, 0], [0.5, 0, 0], [2.0, 0.5, 0]], dtype=torch.float64))
    rows, unit = torch.zeros(100, 1, dtype=torch.float64), TrainingRange.of(torch.tensor([[-1.0], [0.0]]))
    for values, is_said in (([0.5], False), ([0.5, 0.5], True), ([0.2] * 9, False), ([1.5], True)):
        rows[:] = 0.0
        rows[: len(values), 0] = torch.tensor(values, dtype=torch.float64)
        found = caught(lambda: unit.warn_of_rows_outside(rows, ["a"], (), "Remedy."))
        assert bool(found) is is_said, values


@pytest.mark.parametrize("load", [load_diabetes, load_breast_cancer])
def test_usual_splits_are_quiet(load):
    x, _ = load(return_X_y=True)
    said = 0
    for seed in range(10):
        order = np.random.RandomState(seed).permutation(len(x))
        test, train = (torch.from_numpy(x[part]) for part in (order[: len(x) // 10], order[len(x) // 10 :]))
        warn, names = TrainingRange.of(train).warn_of_rows_outside, ["x"] * x.shape[1]
        said += len(caught(partial(warn, test, names, (), "Remedy.")))
    assert said <= 1


class TestClasses:
    def test_forests_are_as_sure_and_mondrian_kernels_give_frequencies(self):
        for kernel, is_said in (("forest", True), ("mondrian", False)):
            machine = PartitionGPClassifier(kernel, num_partitions=30, random_state=0).fit(X, Y > 0)
            found = caught(lambda machine=machine: machine.predict_proba(FAR))
            assert bool(found) is is_said
        assert abs(machine.predict_proba(FAR)[0, 1] - np.mean(Y > 0)) < 0.1

    def test_many_predictions_of_one_call_give_one_warning(self):
        machine = PartitionGPClassifier("forest", num_partitions=30, random_state=0).fit(X, Y > 0)
        rows, classes = np.concatenate([FAR, X[:18]]), Y[:20] > 0
        assert len(caught(lambda: machine.importance(rows, classes, n_repeats=2))) == 1
        assert len(caught(lambda: machine.predict_proba(FAR))) == 1
