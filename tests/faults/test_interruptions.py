"""What is interrupted leaves what was there, whole: estimators, predictions, and models that count or are trained."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any, NamedTuple

import gpytorch
import linear_operator
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from sklearn.exceptions import NotFittedError

from gpytorch_partition import (
    GammaMondrianKernel,
    LandmarkKernel,
    MondrianKernel,
    RandomForestKernel,
    fit_exact_gp,
    settings,
)
from gpytorch_partition.estimators import MondrianClassifier
from gpytorch_partition.inference.evidence.profile_likelihood import Bounds
from gpytorch_partition.lifetimes import lifetime_sweep
from gpytorch_partition.models import ClusterSpaceGP, FeatureSpaceGP, PartitionGP, local_rows
from gpytorch_partition.training.cross_validation import fit_weights_by_cross_validation
from tests.faults.estimators_zoo import CASES, answers, classes, rows, same
from tests.faults.interrupts import differences, num_entries, places, process_state, stopped_at

X = torch.from_numpy(rows(0))
Y = (6 * X[:, 0]).sin() + X[:, 1]
MORE = torch.from_numpy(rows(3, 10))
MORE_Y = MORE[:, 0].cos()


OLD, NEW = rows(0), rows(1, 48)
SLOW = {
    "regressor, auto",
    "regressor, auto in a budget",
    "regressor, ensemble",
    "classifier, auto",
    "SVC, probabilities",
}
PREDICTING = [name for name in CASES if name not in ("spectral clustering", "parallel evolution", "bagged stepwise")]
KERNELS = {
    "forest": lambda: RandomForestKernel(X, Y, 5, random_state=0),
    "Mondrian": lambda: MondrianKernel(X, 5, random_state=0),
    "gamma Mondrian": lambda: GammaMondrianKernel(X, 5, random_state=0),
    "sum": lambda: RandomForestKernel(X, Y, 5, random_state=0) + LandmarkKernel(X, Y, 20, random_state=0),
}


def _some_slow(names, slow):
    return [pytest.param(name, marks=[pytest.mark.slow] * (name in slow)) for name in names]


@pytest.mark.parametrize("name", _some_slow(CASES, SLOW))
def test_an_interrupted_fit_leaves_the_old_model_or_none(name):
    case = CASES[name]
    old_y, new_y = case.targets(OLD), case.targets(NEW)
    fitted = case.make().fit(OLD, old_y)
    before, attributes = answers(case, fitted, OLD), dict(vars(case.make()))
    count = num_entries(partial(case.make().fit, NEW, new_y))
    for entry in places(count, 1):
        fresh, state = case.make(), process_state()
        assert stopped_at(entry, partial(fresh.fit, NEW, new_y)), entry
        assert set(vars(fresh)) == set(attributes), (entry, set(vars(fresh)) ^ set(attributes))
        with pytest.raises((NotFittedError, AttributeError)):
            answers(case, fresh, NEW)
        is_stopped = stopped_at(entry, partial(fitted.fit, NEW, new_y))  # a second fit may take fewer steps
        assert differences(state, process_state()) == [], entry
        assert same(answers(case, fitted, OLD), before) or not is_stopped, entry
        fitted = fitted if is_stopped else case.make().fit(OLD, old_y)
    after = answers(case, case.make().fit(NEW, new_y), NEW)
    assert same(answers(case, fitted.fit(NEW, new_y), NEW), after)
    assert same(answers(case, fresh.fit(OLD, old_y), OLD), before)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", _some_slow(PREDICTING, set(CASES) - {"regressor, forest", "SVC"}))
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
@pytest.mark.parametrize("name", _some_slow(KERNELS, KERNELS))
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


class Work(NamedTuple):
    """A model, what is done to it, and what it says, as tensors."""

    make: Callable[[], Any]
    do: Callable[[Any], Any]
    say: Callable[[Any], list[torch.Tensor]]


def _counted(kernel: Any) -> FeatureSpaceGP:
    model = FeatureSpaceGP(kernel)
    model.add_rows(X, Y)
    model.fit()
    return model


def _mondrian() -> FeatureSpaceGP:
    return _counted(MondrianKernel(X, 5, lifetime=2.0, random_state=0))


def _in_cluster_space() -> ClusterSpaceGP:
    kernel = RandomForestKernel(X, Y, 4, min_samples_leaf=8, random_state=0)
    model = ClusterSpaceGP(kernel, local_rows(kernel, X, Y))
    model.fit()
    return model


def _moments(model: FeatureSpaceGP | ClusterSpaceGP) -> list[torch.Tensor]:
    return [*model.predict(X[:5]), torch.tensor(model.num_rows), torch.tensor(vars(model.values)["noise"])]


def _gp() -> tuple[PartitionGP, Any]:
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    return PartitionGP(X, Y, likelihood, MondrianKernel(X, 5, random_state=0)), likelihood


def _sum() -> tuple[PartitionGP, Any]:
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    return PartitionGP(X, Y, likelihood, MondrianKernel(X, 5, random_state=0) + ScaleKernel(RBFKernel())), likelihood


def _parameters(model: Any) -> list[torch.Tensor]:
    model = model[0] if isinstance(model, tuple) else model
    return [parameter.detach().clone() for parameter in model.parameters()]


def _scaled() -> Any:
    return ScaleKernel(MondrianKernel(X, 5, random_state=0)) + ScaleKernel(RBFKernel())


def _classifier() -> MondrianClassifier:
    return MondrianClassifier(5, lifetime=1.0, epochs=2, random_state=0).fit(X.numpy(), classes(X.numpy()))


WORKS = {
    "rows added": Work(_mondrian, lambda model: model.add_rows(MORE, MORE_Y), _moments),
    "rows removed": Work(_mondrian, lambda model: model.remove_rows(X[:9], Y[:9]), _moments),
    "two steps": Work(_mondrian, lambda model: (model.add_rows(MORE, MORE_Y), model.fit()), _moments),
    "state of counts": Work(_mondrian, lambda model: model.load_state_dict(_state_of_more()), _moments),
    "one pass": Work(_gp, lambda both: fit_exact_gp(*both), _parameters),
    "cluster space": Work(_in_cluster_space, lambda model: model.fit(Bounds((0.1, 9.0), (0.3, 9.0))), _moments),
    "Lanczos": Work(_gp, lambda both: fit_exact_gp(*both, method="krylov"), _parameters),
    "L-BFGS": Work(_sum, lambda both: fit_exact_gp(*both, method="l-bfgs", max_iterations=3), _parameters),
    "weights by folds": Work(
        _scaled, lambda kernel: fit_weights_by_cross_validation(kernel, X, Y, folds=2, random_state=0), _parameters
    ),
    "sweep of lifetimes": Work(
        lambda: MondrianKernel(X, 5, max_lifetime=3.0, lifetime=1.5, random_state=0),
        lambda kernel: lifetime_sweep(kernel, X, Y - Y.mean(), lifetimes=[0.5, 1.0]),
        lambda kernel: [kernel(X).to_dense().detach()],
    ),
    "going on with more rows": Work(
        _classifier,
        lambda model: model.partial_fit(MORE.numpy(), classes(MORE.numpy())),
        lambda model: [torch.from_numpy(model.decision_function(X.numpy())), torch.tensor(model.num_cells_)],
    ),
}


def _state_of_more() -> dict[str, Any]:
    model = FeatureSpaceGP(MondrianKernel(X, 5, lifetime=2.0, random_state=0))
    model.add_rows(MORE, MORE_Y)
    model.fit()
    return model.state_dict()


def _same(first: list[torch.Tensor], second: list[torch.Tensor]) -> bool:
    return all(torch.allclose(a.double(), b.double(), rtol=1e-6, atol=1e-9) for a, b in zip(first, second, strict=True))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", WORKS)
def test_an_interrupted_model_is_the_old_one_or_the_new_one(name):
    work = WORKS[name]
    before, done = work.say(work.make()), work.make()
    count = num_entries(partial(work.do, done))
    after = work.say(done)
    assert not _same(before, after)
    ends = set()
    for entry in places(count, 5):
        model = work.make()
        work.say(model)  # what predictions cache must not outlive what it was computed from
        state = process_state()
        is_stopped = stopped_at(entry, partial(work.do, model))  # with cached rows there is less to do
        assert differences(state, process_state()) == [], entry
        said = work.say(model)
        assert is_stopped or _same(said, after)
        ends.add("before" if _same(said, before) else "after" if _same(said, after) else f"neither at {entry}")
    assert "before" in ends
    assert ends <= {"before", "after"} or name == "two steps"
    work.do(model := work.make())
    assert _same(work.say(model), after)


def test_counts_are_those_of_some_rows_wherever_a_chunk_was_interrupted():
    chunks = list(zip(X.split(20), Y.split(20)))
    make = lambda: FeatureSpaceGP(MondrianKernel(X, 5, lifetime=2.0, random_state=0))  # noqa: E731
    count = num_entries(lambda: make().add_chunks(chunks))
    for entry in places(count, 8, seed=1):
        model = make()
        assert stopped_at(entry, partial(model.add_chunks, chunks)) or model.num_rows == 60
        assert model.num_rows in (0, 20, 40, 60)
        model.add_chunks(chunks[model.num_rows // 20 :])
        whole = make()
        whole.add_chunks(chunks)
        torch.testing.assert_close(model.statistics.sums, whole.statistics.sums)
        assert torch.equal(model.statistics.counts, whole.statistics.counts)


def test_warnings_that_are_errors_leave_models_as_they_were():
    constant = torch.zeros(60, dtype=torch.float64)
    constant[0] = 1e-9
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = PartitionGP(X, constant, likelihood, MondrianKernel(X, 5, lifetime=1.0, random_state=0))
    before = _parameters(model)
    for method in ("dense", "l-bfgs"):
        with pytest.warns(UserWarning, match="bound"):
            fit_exact_gp(*_copy(model), method=method)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("gpytorch_partition.training.marginal_likelihood.warnings.warn", _refuse)
            with pytest.raises(RuntimeError, match="bound"):
                fit_exact_gp(model, likelihood, method=method)
        assert all(torch.equal(a, b) for a, b in zip(before, _parameters(model)))


def _refuse(message: str, *args: Any, **kwargs: Any) -> None:
    raise RuntimeError(message)


def _copy(model: PartitionGP) -> tuple[PartitionGP, Any]:
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    return PartitionGP(X, model.train_targets, likelihood, MondrianKernel(X, 5, random_state=0)), likelihood
