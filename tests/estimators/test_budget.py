"""A budget of seconds for the fit of the default model, by a clock that goes on whenever it is looked at."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import count

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from gpytorch_partition.estimators import PartitionGPRegressor, regression_fit
from gpytorch_partition.estimators.regression_fit import fit_in_time
from tests.few_trees import few_trees

RANDOM = np.random.RandomState(0)
X = RANDOM.rand(560, 2)
Y = np.sin(6 * X[:, 0]) + 0.1 * RANDOM.randn(560)
FEW_ROWS = {"fewest_choosing_rows": 120, "num_lengthscale_rows": 60, "num_folds": 2, "most_uncalibrated": 10}
OPTIONS = few_trees(num_noise_trees=30, **FEW_ROWS)


@pytest.fixture
def clock(monkeypatch):
    """Every look takes so many seconds."""

    def set_clock(step):
        looks = count()
        monkeypatch.setattr(regression_fit, "fit_in_time", partial(fit_in_time, clock=lambda: step * next(looks)))

    return set_clock


def same(first, second):
    return all(np.array_equal(*pair) for pair in zip(*(m.predict(X[:40], return_std=True) for m in (first, second))))


@pytest.mark.parametrize("seed", [lambda: 0, pytest.param(lambda: np.random.RandomState(0), marks=pytest.mark.slow)])
def test_the_model_of_a_budget_can_be_had_without_one(clock, seed):
    clock(10.0)
    options = replace(OPTIONS, num_trees=100)  # half of which is left out
    model = PartitionGPRegressor(random_state=seed(), options=options, budget=100.0).fit(X, Y)
    assert model.left_out_
    assert model.options_ != options
    again = PartitionGPRegressor(random_state=seed(), options=model.options_).fit(X, Y)
    assert (again.left_out_, again.options_) == ((), model.options_)
    assert same(model, again)


def test_what_was_left_out_is_said_everywhere(clock, capsys):
    clock(10.0)
    model = PartitionGPRegressor(random_state=0, options=OPTIONS, budget=5.0, verbose=1)
    with pytest.warns(ConvergenceWarning, match="expected to fit 560 rows in 5 seconds, took"):
        model.fit(X, Y)
    assert model.left_out_ == ("60 of 560 inducing points",)
    assert "60 of 560 inducing points" in str(model.summary()).split("left out")[1]
    told = capsys.readouterr().err
    assert "a budget of 5 seconds, of which" in told
    assert "60 of 560 inducing points" in told
    assert PartitionGPRegressor.from_state(model.to_state()).left_out_ == model.left_out_


def test_a_generous_budget_leaves_out_nothing(clock):
    clock(0.0)
    model = PartitionGPRegressor(random_state=0, options=OPTIONS, budget=1e6).fit(X, Y)
    assert model.left_out_ == ()
    assert model.options_ == OPTIONS
    assert same(model, clone(model).set_params(budget=None).fit(X, Y))
    assert "left out" not in str(model.summary())


def test_few_rows_and_constant_targets_need_no_budget():
    model = PartitionGPRegressor(budget=10, num_partitions=5).fit(X[:20], np.ones(20))
    assert model.left_out_ == ()
    assert model.options_ is None
