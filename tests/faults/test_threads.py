"""Threads that fit and predict at once get, to the last bit, what one thread gets, and leave the process as it was."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

import gpytorch
import numpy as np
import pytest
import torch

from gpytorch_partition import MondrianKernel, RandomForestKernel, fit_exact_gp, settings
from gpytorch_partition.estimators import PartitionGPRegressor, PartitionSVC, svm
from gpytorch_partition.lifetimes import expected_gradient_projection
from gpytorch_partition.models import PartitionGP
from tests.faults.estimators_zoo import CASES, answers, numbers, rows, same
from tests.faults.interrupts import differences, process_state

NUM_THREADS = 4


@pytest.fixture(autouse=True)
def often_switched():
    """Threads that take turns a hundred times as often as usual."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(5e-5)
    yield
    sys.setswitchinterval(before)


def at_once(works: list[Callable[[], Any]], num_threads: int = NUM_THREADS) -> list[Any]:
    """What some works return, by several threads that take one after the other."""
    results: list[Any] = [None] * len(works)
    left, barrier = iter(range(len(works))), threading.Barrier(num_threads)

    def run() -> None:
        barrier.wait()
        for number in left:
            try:
                results[number] = works[number]()
            except BaseException as error:
                results[number] = error

    threads = [threading.Thread(target=run) for _ in range(num_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


def _fitted_and_asked(name: str, seed: int) -> Callable[[], list[np.ndarray]]:
    case, X = CASES[name], rows(seed, 40 + seed)

    def work() -> list[np.ndarray]:
        return answers(case, case.make().fit(X, case.targets(X)), rows(seed, 15))

    return work


def _plain_gpytorch(seed: int) -> Callable[[], list[np.ndarray]]:
    """A model at GPyTorch's settings, at which its rows are solved by iterations."""

    def work() -> list[np.ndarray]:
        generator = torch.Generator().manual_seed(seed)
        x = torch.rand(900, 2, generator=generator)
        y = (6 * x[:, 0]).sin()
        likelihood = gpytorch.likelihoods.GaussianLikelihood()
        model = PartitionGP(x, y, likelihood, MondrianKernel(x, 10, random_state=seed))
        found = model.eval()(x[:10] + 0.01)
        return [found.mean.detach().numpy(), np.array([gpytorch.settings.max_cholesky_size.value()])]

    return work


def _one_pass(seed: int) -> Callable[[], list[np.ndarray]]:
    def work() -> list[np.ndarray]:
        X = rows(0, 50)
        x, y = torch.from_numpy(X), torch.from_numpy(numbers(X))
        likelihood = gpytorch.likelihoods.GaussianLikelihood()
        model = PartitionGP(x, y, likelihood, RandomForestKernel(x, y, 10, random_state=seed))
        with settings.probe_seed(seed):
            found = fit_exact_gp(model, likelihood, method=("krylov", "dense", "l-bfgs")[seed % 3], max_iterations=3)
        return [np.array([found.log_marginal_likelihood])]

    return work


# Filters are scikit-learn's: its checks of arrays enter `warnings.catch_warnings`, which is not for threads before
# Python 3.14. Threads of pools end when they like.
OF_OTHERS = {"filters", "threads"}
FAST = ["regressor, forest", "regressor, mondrian", "regressor, RBF", "features", "SVC", "LAGO", "kernel PCA"]


def _check_same(works: list[Callable[[], list[np.ndarray]]]) -> None:
    before = process_state()
    alone, together = [work() for work in works], at_once(works)
    assert [number for number, (a, b) in enumerate(zip(alone, together)) if not same(a, b)] == []
    assert set(differences(before, process_state())) <= OF_OTHERS


@pytest.mark.filterwarnings("ignore")
def test_four_threads_give_what_one_gives():
    _check_same([_fitted_and_asked(name, 0) for name in FAST] + [_one_pass(seed) for seed in range(6)])


@pytest.mark.filterwarnings("ignore")
def test_four_threads_with_models_at_the_settings_of_gpytorch():
    _check_same([_plain_gpytorch(seed) for seed in range(8)])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_four_threads_and_every_estimator():
    works = [_fitted_and_asked(name, seed) for seed in range(2) for name in CASES]
    works += [_one_pass(seed) for seed in range(6)]
    assert len(works) >= 46
    _check_same(works)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["regressor, forest", "regressor, mondrian", "regressor, two targets"])
def test_threads_ask_the_same_model_of_which_one_asks_for_the_first_time(name):
    case, X = CASES[name], rows(0)
    fit = case.make().fit
    others = [rows(seed, 12) for seed in range(6)]
    alone = [answers(case, fit(X, case.targets(X)), other) for other in others]
    model = fit(X, case.targets(X))
    together = at_once([lambda other=other: answers(case, model, other) for other in others])
    assert all(same(a, b) for a, b in zip(alone, together))


def test_a_thread_that_draws_from_the_global_state_is_not_disturbed():
    X = rows(0)
    model = PartitionGPRegressor("forest", 10, random_state=0).fit(X, numbers(X))
    drawn: list[float] = []

    def draw() -> None:
        torch.manual_seed(3)
        drawn.extend(torch.randn(()).item() for _ in range(3000))

    alone = model.sample_y(X[:5], 20)
    found = at_once([draw, *[lambda: model.sample_y(X[:5], 20)] * 6], 2)
    torch.manual_seed(3)
    assert drawn == [torch.randn(()).item() for _ in range(3000)]
    assert all(np.array_equal(samples, alone) for samples in found[1:])


def test_filters_of_warnings_stay_those_of_the_user():
    """Those that the package itself would like to hold back: of L-BFGS, of values at bounds, of sparse matrices."""
    X = rows(0)
    x, y = torch.from_numpy(X), torch.from_numpy(numbers(X))

    def project() -> None:
        expected_gradient_projection(x, y, num_trees=5, num_iterations=2, random_state=0)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = list(warnings.filters)
        at_once([project] * 4 + [lambda: MondrianKernel(x, 10, random_state=0)(x) @ y] * 8)
        assert warnings.filters == before


def test_descents_that_run_at_once_are_reproducible(monkeypatch):
    monkeypatch.setattr(svm, "_MOST_DENSE_ROWS", 0)
    X = rows(0, 300)
    y = (3 * X[:, 0]).astype(int)

    def fit(n_jobs: int = 1) -> Callable[[], list[np.ndarray]]:
        return lambda: [PartitionSVC(100.0, "mondrian", 20, random_state=0, n_jobs=n_jobs).fit(X, y).coef_]

    alone = fit()()
    assert all(same(alone, found) for found in [*at_once([fit()] * 8), fit(3)()])


class FitsAsItIsRead:
    """Rows whose reader is interrupted by a fit to other rows, as another thread may fit."""

    def __init__(self, X: np.ndarray, fit: Callable[[], Any]) -> None:
        self.X, self.fit, self.shape, self.ndim, self.dtype = X, fit, X.shape, X.ndim, X.dtype

    def __len__(self) -> int:
        return len(self.X)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        self.fit()
        return np.asarray(self.X, dtype)


ASKED = {
    "regressor, forest": ("predict", "sample_y", "nearest_rows"),
    "regressor, two targets": ("predict",),
    "classifier, forest": ("predict", "predict_proba", "decision_function", "nearest_rows"),
    "features": ("transform",),
    "kernel PCA": ("transform",),
    "SVC": ("predict", "decision_function"),
    "SVC, probabilities": ("predict_proba",),
    "SVR": ("predict",),
    "LAGO": ("decision_function", "score_samples"),
    "Mondrian classifier": ("predict", "predict_proba"),
}


@pytest.mark.filterwarnings("ignore:.*outside the range")
@pytest.mark.parametrize(("name", "method"), [(name, method) for name in ASKED for method in ASKED[name]])
def test_a_prediction_is_of_one_fit_whoever_fits_meanwhile(name, method):
    case, (X, others, new) = CASES[name], (rows(0), rows(2, 40), rows(1, 9))
    model = case.make().fit(X, case.targets(X))
    expected = str(getattr(model, method)(new))
    read = FitsAsItIsRead(new, lambda: model.fit(others, case.targets(others)))
    assert str(getattr(model, method)(read)) == expected
    assert str(getattr(model, method)(new)) != expected
