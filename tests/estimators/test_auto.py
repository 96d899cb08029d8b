"""The regressor that chooses its model from the data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpytorch_partition.estimators import PartitionGPRegressor
from gpytorch_partition.presets import Options
from gpytorch_partition.presets.parts import usual_parts
from tests.few_trees import few_trees

RANDOM = np.random.RandomState(0)
X = RANDOM.rand(200, 3) * [1.0, 1e3, 1e-3] + [0.0, 50.0, 1.0]
TRUTH = 100 * np.sin(6 * X[:, 0]) + 0.2 * X[:, 1]
Y = TRUTH + (2 + 60 * X[:, 0]) * RANDOM.randn(200)
NEW = X[:50] + [0.001, 1.0, 1e-6]


FEW_TREES = few_trees(20, num_folds=3)


@pytest.fixture(scope="module")
def fitted():
    return PartitionGPRegressor("auto", random_state=0, options=FEW_TREES).fit(X, Y)


def test_it_predicts_new_targets(fitted):
    mean, std = fitted.predict(NEW, return_std=True)
    truth = 100 * np.sin(6 * NEW[:, 0]) + 0.2 * NEW[:, 1]
    assert np.sqrt(np.mean((mean - truth) ** 2)) < 0.3 * TRUTH.std()
    low, high = std[NEW[:, 0] < 0.3].mean(), std[NEW[:, 0] > 0.7].mean()
    assert high > 1.7 * low
    assert fitted.log_predictive_density_ > -1.42
    assert fitted.log_marginal_likelihood_value_ is None


def test_far_from_all_rows_deviations_of_a_calibrated_model_grow():
    options = replace(FEW_TREES, fewest_choosing_rows=60, most_choosing_rows=60)
    fitted = PartitionGPRegressor("auto", random_state=0, options=options).fit(X, TRUTH + 5 * RANDOM.randn(200))
    points = np.concatenate([NEW, NEW + [100.0, 0.0, 0.0]])
    std = fitted.predict(points, return_std=True)[1]
    assert std[50:].min() > 3 * std[:50].max()


@pytest.mark.parametrize(
    ("x", "y", "warned"), [(X[:5], Y[:5], "10 rows or more to choose .* got 5"), (X, np.ones(200), "constant")]
)
def test_too_little_to_choose_by_leaves_the_forest(x, y, warned):
    """And its state."""
    model = PartitionGPRegressor("auto", random_state=0)
    with pytest.warns(match=warned):
        model.fit(x, y)
    assert type(model.kernel_).__name__ == "RandomForestKernel"
    copied = PartitionGPRegressor.from_state(model.to_state())
    assert np.array_equal(copied.predict(NEW), model.predict(NEW))


def test_boosted_parts_alone_are_averaged_over_completions_of_missing_cells():
    """Their trees take no missing cells, and no other part stands beside them."""
    random = np.random.RandomState(0)
    x = random.rand(100, 2)
    others = tuple(set(usual_parts()) - {"boosted"})
    options = Options(num_boosted_trees=20, omitted_parts=others)
    model = PartitionGPRegressor(random_state=0, options=options).fit(x, (x[:, 0] > 0.5) + 0.1 * random.randn(100))
    with pytest.warns(UserWarning, match="missing"):
        mean, std = model.predict([[np.nan, 0.5]], return_std=True)
    assert 0.2 < mean[0] < 0.8
    assert std[0] > 0.3
