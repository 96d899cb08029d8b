"""Ensembles whose trees have seen most targets give a warning, others do not."""

import warnings

import numpy as np
import pytest
import torch
from sklearn.ensemble import (
    AdaBoostRegressor,
    BaggingRegressor,
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    IsolationForest,
    RandomForestRegressor,
    RandomTreesEmbedding,
)
from sklearn.tree import DecisionTreeRegressor

from gpytorch_partition import OverconfidenceWarning, RandomForestKernel, default_model
from gpytorch_partition.partitions import grow_forest

X = np.random.default_rng(0).random((60, 2))
Y = X[:, 0]

SEEN = [
    RandomForestRegressor(3),
    ExtraTreesRegressor(3),
    RandomForestRegressor(3, max_samples=0.8),
    BaggingRegressor(DecisionTreeRegressor(), 3),
    GradientBoostingRegressor(n_estimators=3, subsample=0.3),
    HistGradientBoostingRegressor(max_iter=3, min_samples_leaf=5),
    AdaBoostRegressor(n_estimators=3),
    DecisionTreeRegressor(),
]
UNSEEN = [
    RandomForestRegressor(3, max_samples=0.3),
    RandomForestRegressor(3, max_samples=10),
    BaggingRegressor(DecisionTreeRegressor(), 3, max_samples=0.2, bootstrap=False),
    IsolationForest(n_estimators=3),
    RandomTreesEmbedding(3),
]


@pytest.mark.parametrize("ensemble", SEEN, ids=str)
def test_most_targets_seen(ensemble):
    with pytest.warns(OverconfidenceWarning, match="small subsamples") as caught:
        RandomForestKernel.from_forest(ensemble.fit(X, Y))
    assert len(caught) == 1
    assert caught[0].filename == __file__


@pytest.mark.parametrize("ensemble", UNSEEN, ids=str)
def test_few_targets_seen(ensemble):
    with warnings.catch_warnings():
        warnings.simplefilter("error", OverconfidenceWarning)
        RandomForestKernel.from_forest(ensemble.fit(X, Y))


@pytest.mark.parametrize("max_samples", [0.6, 200])
def test_large_subsamples_of_our_own(max_samples):
    x = torch.from_numpy(X).repeat(5, 1)
    with pytest.warns(OverconfidenceWarning, match="small subsamples") as caught:
        RandomForestKernel(x, x[:, 0], 3, max_samples=max_samples)
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_our_own_forests_and_the_default_model_are_quiet():
    x, y = torch.from_numpy(X), torch.from_numpy(Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", OverconfidenceWarning)
        RandomForestKernel(x, y, 3)
        RandomForestKernel(x.repeat(5, 1), y.repeat(5), 3, max_samples=0.5)
        RandomForestKernel.from_forest(grow_forest(x.repeat(5, 1), y.repeat(5)))
        default_model(x, y + 0.1 * torch.rand(60), random_state=0)
