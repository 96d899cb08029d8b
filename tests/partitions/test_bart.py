"""Posterior draws of BART against stochtree's own leaves."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gpytorch_partition import RandomForestKernel
from gpytorch_partition.partitions import ForestPartition
from gpytorch_partition.partitions.ensembles import bart_trees

stochtree = pytest.importorskip("stochtree")

NUM_TREES, NUM_DRAWS = 20, 4
X = np.round(np.random.RandomState(0).rand(300, 4), 2)  # many values are thresholds
Y = np.sin(6 * X[:, 0]) + X[:, 1] + 0.1 * np.random.RandomState(1).randn(300)


def sampled(**options):
    model = stochtree.BARTModel()
    model.sample(
        X_train=X,
        y_train=Y,
        num_gfr=5,
        num_burnin=10,
        num_mcmc=NUM_DRAWS,
        general_params={"random_seed": 1},
        mean_forest_params={"num_trees": NUM_TREES},
        **options,
    )
    return model


@pytest.fixture(scope="module")
def model():
    return sampled()


def own_leaves(model, points):
    """The leaf of each point, draws by trees by points, numbered by stochtree."""
    found = stochtree.compute_forest_leaf_indices(model, points, "mean")
    return torch.from_numpy(np.ascontiguousarray(found.T)).view(NUM_DRAWS, NUM_TREES, len(points))


def same(leaves):
    """Which pairs of points share a leaf, averaged over trees."""
    return (leaves.unsqueeze(-1) == leaves.unsqueeze(-2)).double().mean(-3)


@pytest.mark.parametrize("missing", [False, True])
def test_leaves_are_those_of_stochtree(model, missing):
    points = np.concatenate([X, np.random.RandomState(2).randn(100, 4)])
    if missing:
        points[::7, 0] = np.nan
    labels = ForestPartition(model).labels(torch.from_numpy(points))
    expected = own_leaves(model, points).flatten(0, 1)
    assert labels.shape == (len(points), NUM_DRAWS * NUM_TREES)
    for own, theirs in zip(labels.T, expected):
        assert torch.equal(own[:, None] == own, theirs[:, None] == theirs)


def test_draws_are_chosen_and_weighed(model):
    expected = same(own_leaves(model, X))
    x = torch.from_numpy(X)
    kernel = RandomForestKernel.from_forest(bart_trees(model, draws=[3, 1], draw_weights=[3.0, 1.0]), "leaf").double()
    torch.testing.assert_close(kernel(x).to_dense(), 0.75 * expected[3] + 0.25 * expected[1])
    whole = RandomForestKernel.from_forest(model, "leaf").double()
    torch.testing.assert_close(whole(x).to_dense(), expected.mean(0))


def test_estimators_are_read():
    estimator = stochtree.StochTreeBARTRegressor(num_gfr=2, num_mcmc=2, mean_forest_params={"num_trees": 5})
    with pytest.raises(ValueError, match="call fit"):
        bart_trees(estimator)
    estimator.fit(X, Y)
    assert ForestPartition(estimator).num_partitions == 10


def test_clear_errors(model):
    pandas = pytest.importorskip("pandas")
    for draws in ([4], [0.5], 3, []):
        with pytest.raises(ValueError, match="from 0 to 3, got"):
            bart_trees(model, draws=draws)
    with pytest.raises(TypeError, match="expected a BARTModel of stochtree.*got int"):
        bart_trees(3)
    with pytest.raises(ValueError, match="expected 4 weights"):
        bart_trees(model, draw_weights=[1.0])
    with pytest.raises(ValueError, match="0 or more"):
        bart_trees(model, draw_weights=[-1.0, 1.0, 1.0, 1.0])
    with pytest.raises(ValueError, match="call sample"):
        bart_trees(stochtree.BARTModel())
    frame = pandas.DataFrame(X)
    frame[3] = pandas.Categorical((4 * X[:, 3]).astype(int))
    encoded = stochtree.BARTModel()
    encoded.sample(X_train=frame, y_train=Y, num_gfr=2, num_mcmc=2, mean_forest_params={"num_trees": 5})
    with pytest.raises(ValueError, match="columns of numbers"):
        bart_trees(encoded)
