"""A cell a million times as large as the others of its column, and columns with long tails."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gpytorch_partition.estimators import (
    LAGORanker,
    MondrianClassifier,
    OutsideRangeWarning,
    PartitionGPClassifier,
    PartitionGPRegressor,
    PartitionSVC,
)
from gpytorch_partition.presets import default_model
from gpytorch_partition.presets.parts import FarLinearKernel
from tests.few_trees import few_trees

RANDOM = np.random.RandomState(0)
X, NEW = RANDOM.rand(250, 2), RANDOM.rand(500, 2)
WRONG = np.concatenate([[[1e6, 0.5]], X[1:]])
Y, TRUTH = (np.sin(6 * x[:, 0]) + x[:, 1] for x in (X, NEW))
LABELS, RIGHT = (values > 0.5 for values in (Y, TRUTH))
REGRESSORS = {
    name: lambda name=name: PartitionGPRegressor(name, 50, random_state=0) for name in ("fast_cluster", "mondrian")
}
CLASSIFIERS = {
    "gp": lambda: PartitionGPClassifier("mondrian", 50, random_state=0),
    "svc": lambda: PartitionSVC(kernel="mondrian", num_partitions=50, random_state=0),
    "mondrian": lambda: MondrianClassifier(20, random_state=0),
}


@pytest.mark.parametrize("name", REGRESSORS)
def test_it_hides_no_column_from_a_regressor(name):
    errors = [np.abs(REGRESSORS[name]().fit(x, Y).predict(NEW) - TRUTH).mean() for x in (X, WRONG)]
    assert errors[1] < 1.3 * errors[0]  # 1.6 to 8 times where it does


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_it_hides_no_column_from_a_classifier(name):
    right = [(CLASSIFIERS[name]().fit(x, LABELS).predict(NEW) == RIGHT).mean() for x in (X, WRONG)]
    assert right[1] > right[0] - 0.03


def test_it_hides_no_column_from_a_ranker():
    rare = np.quantile(Y, 0.9) < Y
    scores = LAGORanker().fit(WRONG, rare).decision_function(NEW)
    assert TRUTH[scores.argsort()[-30:]].min() > np.quantile(TRUTH, 0.6)


def test_a_warning_tells_the_distance_itself():
    model = PartitionGPRegressor("fast_cluster", 20, random_state=0).fit(X, Y)
    with pytest.warns(OutsideRangeWarning, match=r"'x0' \(1.02e\+06 times its range beyond\)"):
        model.predict(WRONG[:1])
    classifier = PartitionGPClassifier("fast_cluster", 20, random_state=0).fit(X, LABELS)
    with pytest.warns(OutsideRangeWarning, match=r"'x0' \(1.02e\+06 times its range beyond\)"):
        classifier.predict(WRONG[:1])


def test_a_cell_beyond_all_digits_hides_no_column_of_the_default_model():
    x = np.concatenate([[[1e30, 0.5]], X[1:]])
    options = few_trees(20, 50, num_folds=3)
    found = PartitionGPRegressor(random_state=0, options=options).fit(x, Y).predict(NEW)
    assert np.abs(found - TRUTH).mean() < 0.1


@pytest.mark.parametrize("has_missing", [False, True])
def test_a_function_that_is_linear_in_a_long_tail_is_found(has_missing):
    random = np.random.RandomState(2)
    x = np.stack([np.exp(2 * random.randn(700)), random.randn(700)], 1)
    y = x[:, 0] / 5 + x[:, 1] + 0.1 * random.randn(700)
    x[:300:7, 1] = np.nan if has_missing else x[:300:7, 1]
    options = few_trees(20, 50, num_folds=3)
    rows, targets = torch.from_numpy(x[:300]), torch.from_numpy(y[:300])
    model = default_model(rows, targets, random_state=0, options=options)
    (part,) = (module for module in model.modules() if isinstance(module, FarLinearKernel))
    assert part.excess(torch.full((1, 2), 5.0).double()).shape == (1, 4)  # the second column has no far values
    with torch.no_grad():
        error = (model(torch.from_numpy(x[300:])).mean - torch.from_numpy(x[300:] @ [0.2, 1.0])).abs()
    assert error.mean() < 0.1
    assert error.max() < 1.5


def test_the_excess_of_far_values_is_known_up_to_twice_the_largest_and_then_uncertain():
    x = torch.tensor([[0.5], [-1.0], [20.0], [-12.0]], dtype=torch.float64)
    in_full = 10 * torch.exp(x.abs() / 10 - 1) * x.sign()  # of values beyond 10
    excess = torch.where(x.abs() > 10, in_full - x, 0.0).squeeze(-1)
    scale, most = excess.square().mean().sqrt(), excess.abs().max()
    kernel = FarLinearKernel(x)
    kernel.variance = 1.0
    expected = torch.stack([x.squeeze(-1), excess / scale, 0 * excess], 1)
    torch.testing.assert_close(kernel.excess(x), expected)
    torch.testing.assert_close(kernel(x).to_dense().detach(), expected @ expected.T)
    beyond = torch.tensor([[100.0]], dtype=torch.float64)
    known, unknown = kernel.excess(beyond)[0, 1:]
    assert known == 2 * most / scale
    torch.testing.assert_close(known + unknown, (10 * torch.exp(beyond / 10 - 1) - beyond)[0, 0] / scale)
    loaded = FarLinearKernel().double()
    loaded.load_state_dict(kernel.state_dict())
    assert torch.equal(loaded.excess(beyond), kernel.excess(beyond))
