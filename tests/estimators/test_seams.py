"""What one feature of the regressor owes to another: rows that are left out, holes, several targets, kernels given."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from gpytorch.kernels import RBFKernel
from sklearn.ensemble import RandomForestRegressor
from sklearn.exceptions import ConvergenceWarning

from gpytorch_partition import MondrianKernel, RandomForestKernel
from gpytorch_partition.estimators import PartitionGPRegressor
from gpytorch_partition.estimators.regression_fit import RegressionFit
from gpytorch_partition.inputs.standardization import Standardization
from gpytorch_partition.presets import Options
from tests.few_trees import few_trees

RANDOM = np.random.RandomState(0)
X = RANDOM.rand(60, 3)
Y = np.sin(5 * X[:, 0]) + X[:, 1] + 0.1 * RANDOM.randn(60)
BOTH = np.column_stack([Y, -Y + X[:, 2] + 0.1 * RANDOM.randn(60)])
FEW = few_trees(num_noise_trees=20)


def regressor(kernel, **options):
    return PartitionGPRegressor(kernel, num_partitions=20, random_state=0, **options)


def table(x):
    return pd.DataFrame({"a": x[:, 0], "t": np.where(x[:, 1] > 0.5, "hi", "lo"), "b": x[:, 2]})


@pytest.mark.parametrize("y", [Y, BOTH], ids=["one", "several"])
def test_rows_that_options_leave_out_are_no_neighbors_and_others_keep_their_numbers(y):
    model = regressor("auto", options=Options(**{**vars(FEW), "most_rows": 50})).fit(X, y)
    assert len(model.model_.train_inputs[0]) == 50
    kept = np.unique(model.nearest_rows(X, k=50)[0])
    assert len(kept) == 50
    assert (model.nearest_rows(X[kept], k=1)[0].ravel() == kept).all()


def test_rows_without_a_target_are_no_neighbors_and_others_keep_their_numbers():
    with pytest.warns(UserWarning, match="10 of 60 rows are left out"):
        model = regressor("forest").fit(X, np.where(np.arange(60)[:, None] < 10, np.nan, BOTH))
    assert model.nearest_rows(X[20:22], k=1)[0].ravel().tolist() == [20, 21]


def test_a_budget_that_ends_with_all_rows_forgets_those_of_its_attempts():
    x, y, numbers = torch.from_numpy(X), torch.from_numpy(Y), None
    model = PartitionGPRegressor(num_partitions=20, random_state=0, options=FEW)
    fit = RegressionFit(model, x, y, Standardization.of_array(Y), numbers, None, None)
    assert len(fit.of_options(y, Options(**{**vars(FEW), "most_rows": 30})).numbers) == 30
    assert fit.of_options(y, FEW).numbers is None


@pytest.mark.parametrize("kernel", ["forest", "mondrian"])
def test_holes_are_as_unknown_to_several_targets_as_to_one(kernel):
    rows = table(X[:10]).assign(a=np.nan)
    with pytest.warns(UserWarning, match="cells are missing"):
        mean, std = regressor(kernel).fit(table(X), BOTH).predict(rows, return_std=True)
    with pytest.warns(UserWarning, match="cells are missing"):
        alone = regressor(kernel).fit(table(X), Y).predict(rows, return_std=True)
    assert np.abs(mean[:, 0] - alone[0]).mean() < 0.3
    np.testing.assert_allclose(std[:, 0].mean(), alone[1].mean(), rtol=0.25)


def test_a_level_of_rows_without_weight_is_unknown():
    rare, weights = table(X), np.ones(60)
    rare.loc[0, "t"], weights[0] = "rare", 0
    rows = table(X[:5]).assign(t="rare")
    found = regressor("forest").fit(rare, Y, sample_weight=weights).predict(rows, return_std=True)
    expected = regressor("forest").fit(rare[1:], Y[1:]).predict(rows, return_std=True)
    np.testing.assert_array_equal(found, expected)


def test_noise_of_several_targets_at_its_bound_is_told():
    kernel = RandomForestKernel.from_forest(RandomForestRegressor(10, random_state=0).fit(X, Y))
    with pytest.warns(ConvergenceWarning, match="noise of y0 is at its bound"):
        model = regressor(kernel).fit(X, BOTH)
    assert list(model.at_bounds_) == ["noise of y0", "noise of y1"]


def test_what_one_target_refuses_several_do_too():
    many = RANDOM.rand(2_100, 2)
    with pytest.raises(ValueError, match="RBFKernel like this has no structure"):
        regressor(RBFKernel()).fit(many, many)
    with pytest.raises(ValueError, match="columns of numbers, as the ensemble or the kernel was built on"):
        regressor(MondrianKernel(torch.from_numpy(X), 20, random_state=0)).fit(table(X), Y)
