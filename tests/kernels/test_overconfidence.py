"""
The warning is given where intervals are too narrow, and only there: each case says the coverage that it stands for.

The oracle is the coverage of 90 % intervals for new noisy targets, of a process that is trained by marginal likelihood.
"""

import warnings

import numpy as np
import pytest
import torch
from gpytorch.kernels import ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.mlls import ExactMarginalLogLikelihood
from sklearn.ensemble import (
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    IsolationForest,
    RandomForestRegressor,
)
from sklearn.tree import DecisionTreeRegressor

from gpytorch_partition import (
    FastClusterKernel,
    OverconfidenceWarning,
    RandomForestKernel,
    default_model,
    fit_exact_gp,
    fit_weights_by_cross_validation,
)
from gpytorch_partition.estimators import PartitionGPRegressor, PartitionSVR
from gpytorch_partition.models import PartitionGP
from gpytorch_partition.partitions import grow_forest

NUM_TRAINING = 500


def noisy(num_rows, seed):
    random = np.random.RandomState(seed)
    x = random.rand(num_rows, 6)
    signal = 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3]
    y = signal + 6 * random.randn(num_rows)
    return torch.from_numpy(x), torch.from_numpy((y - y.mean()) / y.std())


X, Y = noisy(1_600, 0)
OTHER, NEW = slice(NUM_TRAINING, 2 * NUM_TRAINING), slice(2 * NUM_TRAINING, 1_600)
TRAINING = slice(0, NUM_TRAINING)


def fitted(ensemble):
    return ensemble.fit(X[TRAINING].numpy(), Y[TRAINING].numpy())


def of_ours(**options):
    return grow_forest(X[TRAINING], Y[TRAINING], num_trees=50, random_state=0, **options)


CLOSE = {
    "forest": lambda: fitted(RandomForestRegressor(50, random_state=0)),
    "one tree": lambda: fitted(DecisionTreeRegressor(random_state=0)),
    "boosting": lambda: fitted(GradientBoostingRegressor(random_state=0)),
    "histograms": lambda: fitted(HistGradientBoostingRegressor()),
}
LOOSE = {
    "ours": of_ours,
    "leaves of fifty": lambda: fitted(RandomForestRegressor(50, min_samples_leaf=50, random_state=0)),
    "stumps": lambda: fitted(GradientBoostingRegressor(n_estimators=50, max_depth=1, random_state=0)),
    "small subsamples": lambda: fitted(GradientBoostingRegressor(subsample=0.1, random_state=0)),
    "without targets": lambda: fitted(IsolationForest(n_estimators=50, random_state=0)),
}


def trained(kernel, rows, x=X, y=Y):
    """Coverage of 90 % intervals of new targets, and the warnings of training on some rows."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = PartitionGP(x[rows], y[rows], GaussianLikelihood(), kernel)
        fit_exact_gp(model, model.likelihood)
    model.eval()
    with torch.no_grad():
        new = model.likelihood(model(x[NEW]))
    inside = (y[NEW] - new.mean).abs() <= 1.645 * new.stddev
    return inside.double().mean(), [each for each in caught if each.category is OverconfidenceWarning]


OTHERS = [(make, OTHER) for make in CLOSE.values()] + [(make, TRAINING) for make in LOOSE.values()]


@pytest.mark.parametrize("make", CLOSE.values(), ids=CLOSE)
def test_on_targets_that_trees_fit_closely_it_is_given_and_true(make):
    coverage, caught = trained(RandomForestKernel.from_forest(make()), TRAINING)
    assert coverage < 0.85
    assert len(caught) == 1
    assert "in folds" in str(caught[0].message)


@pytest.mark.parametrize(("make", "rows"), OTHERS, ids=[*(f"{name} on other rows" for name in CLOSE), *LOOSE])
def test_of_trees_that_do_not_and_on_other_rows_it_would_be_false(make, rows):
    coverage, caught = trained(RandomForestKernel.from_forest(make()), rows)
    assert coverage > 0.85
    assert not caught


def test_random_splits_among_all_columns_fit_closely():
    _, caught = trained(RandomForestKernel.from_forest(fitted(ExtraTreesRegressor(50, random_state=0))), TRAINING)
    assert caught


@pytest.mark.parametrize("heights", ["leaf", "learned", "sampled"])
def test_whatever_the_heights_and_in_a_loop_of_ones_own(heights):
    kernel = ScaleKernel(RandomForestKernel.from_forest(CLOSE["forest"](), heights, random_state=0))
    model = PartitionGP(X[TRAINING], Y[TRAINING], GaussianLikelihood(), kernel)
    model.train()
    with pytest.warns(OverconfidenceWarning):
        ExactMarginalLogLikelihood(model.likelihood, model)(model(X[TRAINING]), Y[TRAINING])


def of_forest(x, y):
    return RandomForestKernel.from_forest(RandomForestRegressor(20, random_state=0).fit(x, y))


@pytest.mark.slow
def test_who_chooses_by_held_out_rows_or_has_no_intervals_is_not_warned():
    x, y = X[TRAINING], Y[TRAINING]
    forest = RandomForestRegressor(20, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", OverconfidenceWarning)
        RandomForestKernel(x, y, 3, max_samples=0.9)
        default_model(x[:60], y[:60], random_state=0)
        PartitionGPRegressor(forest, random_state=0).fit(x[:200], y[:200])
        PartitionSVR(kernel=fitted(forest), random_state=0).fit(x, y)
        fit_weights_by_cross_validation([of_forest], x[:200], y[:200])


def wave(columns):
    """Rows of some columns and noisy targets that depend on the first."""
    random = np.random.RandomState(0)
    x = random.rand(1_600, columns)
    y = np.sin(8 * x[:, 0]) + 0.2 * random.randn(1_600)
    return torch.from_numpy(x), torch.from_numpy((y - y.mean()) / y.std())


FEW = slice(0, 100)


def test_of_fast_clusters_of_one_column_it_is_given_and_true():
    x, y = wave(1)
    coverage, caught = trained(FastClusterKernel(x[FEW], 100, random_state=0), FEW, x, y)
    assert coverage < 0.75
    assert len(caught) == 1
    assert "Give height=3" in str(caught[0].message)


@pytest.mark.parametrize(("columns", "height"), [(1, 3), (3, None)], ids=["its remedy", "three columns"])
def test_of_fewer_clusters_or_more_columns_it_would_be_false(columns, height):
    x, y = wave(columns)
    coverage, caught = trained(FastClusterKernel(x[FEW], 100, height=height, random_state=0), FEW, x, y)
    assert coverage > 0.85
    assert not caught


def test_of_one_column_in_a_loop_of_ones_own_and_of_none_that_has_no_intervals():
    x, y = (values[FEW] for values in wave(1))
    model = PartitionGP(x, y, GaussianLikelihood(), ScaleKernel(FastClusterKernel(x, 5, random_state=0)))
    model.train()
    with pytest.warns(OverconfidenceWarning, match="one column"):
        ExactMarginalLogLikelihood(model.likelihood, model)(model(x), y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", OverconfidenceWarning)
        PartitionSVR(kernel="fast_cluster", random_state=0).fit(x, y)
