"""A prediction that is interrupted leaves the model as it was: asked again, it answers with the same bits."""

from __future__ import annotations

from copy import deepcopy
from functools import partial

import gpytorch
import linear_operator
import pytest
import torch

from gpytorch_partition import GammaMondrianKernel, LandmarkKernel, MondrianKernel, RandomForestKernel, settings
from gpytorch_partition.models import PartitionGP
from tests.faults.estimators_zoo import CASES, answers, rows, same
from tests.faults.interrupts import differences, num_entries, places, process_state, stopped_at

X = torch.from_numpy(rows(0, 80))
Y = (6 * X[:, 0]).sin() + X[:, 1]
PREDICTING = [name for name in CASES if name not in ("spectral clustering", "parallel evolution", "bagged stepwise")]
QUICK = ("regressor, forest", "SVC")
KERNELS = {
    "forest": lambda: RandomForestKernel(X, Y, 5, random_state=0),
    "Mondrian": lambda: MondrianKernel(X, 5, random_state=0),
    "gamma Mondrian": lambda: GammaMondrianKernel(X, 5, random_state=0),
    "sum": lambda: RandomForestKernel(X, Y, 5, random_state=0) + LandmarkKernel(X, Y, 20, random_state=0),
}


def _cases(names):
    return [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in names]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", _cases(PREDICTING))
def test_an_interrupted_estimator_answers_as_before(name):
    case, X = CASES[name], rows(0)
    fresh = case.make().fit(X, case.targets(X))
    model = deepcopy(fresh)
    before, state = answers(case, model, X), process_state()
    for entry in places(num_entries(partial(answers, case, model, X)), 4):
        for asked in (model, deepcopy(fresh)):  # with what predictions keep, and without
            stopped_at(entry, partial(answers, case, asked, X))
            assert same(answers(case, asked, X), before), entry
    assert differences(state, process_state()) == []


def _said(model, new):
    """By conjugate gradients and samples, as above the sizes of dense algebra."""
    torch.manual_seed(0)
    with torch.no_grad(), settings.iterative(), linear_operator.settings.max_cholesky_size(50):
        found = model(new)
        covariance = found.lazy_covariance_matrix
        return [found.mean, found.variance, covariance.to_dense(), covariance.zero_mean_mvn_samples(3)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", _cases(KERNELS))
def test_an_interrupted_gp_answers_as_before(name):
    """In float64: in float32 what failed once is computed in float64 from then on, and differs by its tolerance."""
    new = torch.cat([X[:5], X[:20] + 0.01])

    def model():
        made = PartitionGP(X, Y, gpytorch.likelihoods.GaussianLikelihood(), KERNELS[name]())
        made.likelihood.noise = 1e-3
        return made.eval()

    whole, state = _said(model(), new), process_state()
    for entry in places(num_entries(partial(_said, model(), new)), 4):
        stopped_at(entry, partial(_said, asked := model(), new))
        found = _said(asked, new)
        assert all(torch.equal(a, b) for a, b in zip(found, whole, strict=True)), entry
    assert differences(state, process_state()) == []
