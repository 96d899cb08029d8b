"""A pickle after predictions is as large as one before, and predicts the same bits."""

from __future__ import annotations

import pickle
from copy import deepcopy

import numpy as np
import pytest
import torch
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.mlls import ExactMarginalLogLikelihood
from sklearn.base import clone

from gpytorch_partition import FastClusterKernel, MondrianKernel, RandomForestKernel, settings
from gpytorch_partition.models import FeatureSpaceGP, PartitionGP, spectral_truncation
from tests.faults.estimators_zoo import CASES, answers, rows, same
from tests.limits import many_rows
from tests.random_states import untouched_random_states

RANDOM = np.random.RandomState(0)
X, NEW = RANDOM.randn(200, 3), RANDOM.randn(90, 3)
Y = X[:, 0] + np.sin(3 * X[:, 1]) + 0.3 * RANDOM.randn(200)
ROWS, TARGETS, POINTS = (torch.from_numpy(each) for each in (X, Y, NEW))
MOST = 1.1  # times as large


def _counted(kernel):
    model = FeatureSpaceGP(kernel)
    model.add_rows(ROWS, TARGETS)
    model.fit()
    return model


def _process():
    kernel = MondrianKernel(ROWS, 10, random_state=0)
    return PartitionGP(ROWS, TARGETS, GaussianLikelihood(), kernel).eval()


@torch.no_grad()
def _process_moments(model, limit=2_000):
    with many_rows(limit):
        found = model(POINTS)
        return found.mean.numpy(), found.variance.numpy()


MODELS = {
    "process": (_process, _process_moments),
    "process_above_the_limit": (_process, lambda model: _process_moments(model, 50)),
    "counted_forest": (
        lambda: _counted(RandomForestKernel(ROWS, TARGETS, 4, min_samples_leaf=10, random_state=0)),
        lambda model: [each.detach().numpy() for each in model.predict(POINTS)],
    ),
    "counted_mondrian": (
        lambda: _counted(MondrianKernel(ROWS, 4, random_state=0)),
        lambda model: [each.detach().numpy() for each in model.predict(POINTS)],
    ),
    "truncation": (
        lambda: spectral_truncation(MondrianKernel(ROWS, 10, random_state=0), ROWS, 5),
        lambda model: [model.features(POINTS).detach().numpy()],
    ),
    "kernel": (
        lambda: FastClusterKernel(ROWS, 10, random_state=0),
        lambda kernel: [kernel(POINTS, ROWS).to_dense().detach().numpy()],
    ),
}


SLOW = {"regressor, auto", "regressor, auto in a budget", "regressor, ensemble", "classifier, auto"}
SEEDLESS = {"LAGO", "table encoder", "regressor, RBF"}


def _check_pickle(model, predicted):
    before = len(pickle.dumps(model))
    expected = predicted(model)
    after = pickle.dumps(model)
    assert len(after) <= MOST * before
    for found, wanted in zip(predicted(pickle.loads(after)), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore")
def test_a_pickle_holds_nothing_that_is_computed_again(name):
    new, predicted = MODELS[name]
    _check_pickle(new(), predicted)


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in CASES])
@pytest.mark.filterwarnings("ignore")
def test_nor_does_that_of_an_estimator_which_its_seed_fixes(name):
    case, X = CASES[name], rows(0)
    with untouched_random_states():
        model = case.make().fit(X, case.targets(X))
        _check_pickle(model, lambda model: answers(case, model, X))
    assert same(answers(case, clone(model).fit(X, case.targets(X)), X), answers(case, model, X))
    if name not in SEEDLESS:
        other = clone(model).set_params(random_state=1).fit(X, case.targets(X))
        assert not same(answers(case, other, X), answers(case, model, X))


def test_a_copy_of_a_model_that_has_predicted_has_fantasies():
    model = _process()
    with torch.no_grad(), settings.iterative():
        model(POINTS).mean  # noqa: B018
        fantasy = deepcopy(model).get_fantasy_model(POINTS[:2], torch.zeros(2).double())
        assert fantasy(POINTS).mean.isfinite().all()


@pytest.mark.parametrize("kernel", [MondrianKernel, FastClusterKernel])  # with bounded labels, and without
def test_a_model_that_has_predicted_in_inference_mode_is_trained(kernel):
    model = PartitionGP(ROWS, TARGETS, GaussianLikelihood(), kernel(ROWS, 10, random_state=0)).eval()
    with torch.inference_mode():
        assert model(POINTS).variance.isfinite().all()
    likelihood = ExactMarginalLogLikelihood(model.likelihood, model.train())
    likelihood(model(ROWS), TARGETS).backward()
    assert model.likelihood.raw_noise.grad.isfinite().all()


@pytest.mark.parametrize("num_rows", [60, 1_200])  # dense algebra, and not
def test_a_model_that_has_predicted_with_gradients_is_copied(num_rows):
    rows = torch.rand(num_rows, 2, generator=torch.Generator().manual_seed(0))
    model = PartitionGP(rows, rows.sum(-1), GaussianLikelihood(), MondrianKernel(rows, 10, random_state=0)).eval()
    expected = model(rows[:5])
    assert expected.variance.requires_grad
    copied = deepcopy(model)(rows[:5])
    torch.testing.assert_close(copied.mean, expected.mean)
    torch.testing.assert_close(copied.variance, expected.variance)
