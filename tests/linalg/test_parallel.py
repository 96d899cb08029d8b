"""Pieces of work on several threads, and SciPy's search, which must wake none."""

from __future__ import annotations

import re
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.optimize
import torch
from linear_operator.settings import max_cholesky_size
from threadpoolctl import ThreadpoolController

from gpytorch_partition.estimators import PartitionGPClassifier, PartitionGPRegressor
from gpytorch_partition.linalg.parallel import for_each, idle_threads, minimize_lbfgsb, threads_for
from gpytorch_partition.presets import Options
from gpytorch_partition.settings import iterative, probe_seed
from tests.faults.interrupts import differences, process_state


@pytest.fixture(params=[1, 3])
def num_threads(request, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: request.param)


@pytest.mark.usefixtures("num_threads")
def test_every_piece_is_worked_on_once():
    counts = torch.zeros(50)
    for_each(lambda i: counts[i].add_(1), range(50))
    assert torch.equal(counts, torch.ones(50))


@pytest.mark.usefixtures("num_threads")
def test_errors_reach_the_caller():
    with pytest.raises(ZeroDivisionError):
        for_each(lambda i: 1 // i, [2, 0])


@pytest.fixture
def two_threads():
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


def numbers_of_threads():
    """OpenMP's and MKL's in this thread, as PyTorch tells them; `torch.set_num_threads` has set both."""
    return set(map(int, re.findall(r"_get_max_threads\(\) : (\d+)", torch.__config__.parallel_info())))


@pytest.mark.usefixtures("two_threads")
def test_few_rows_have_one_thread_and_others_keep_theirs():
    with threads_for(5_001):
        assert numbers_of_threads() == {2}
    with ThreadPoolExecutor(1) as pool, threads_for(5_000), idle_threads() as submit:
        assert numbers_of_threads() == submit(numbers_of_threads).result() == {1}
        pool.submit(torch.get_num_threads).result()  # by which a new thread gets PyTorch's number
        assert pool.submit(numbers_of_threads).result() == {2}
    assert numbers_of_threads() == {2}


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("num_rows", [5_000, 5_001])
def test_calls_on_idle_threads_see_their_callers_settings_and_one_thread(num_rows):
    def seen(number):
        with idle_threads() as inner:
            found = inner(threading.get_ident).result()
        return number, found == threading.get_ident(), probe_seed.value(), torch.get_num_threads()

    with threads_for(num_rows), probe_seed(7), idle_threads() as submit:
        calls = [submit(seen, number) for number in range(3)]
        others = {submit(threading.get_ident).result() for _ in range(9)} - {threading.get_ident()}
        assert [call.result() for call in calls] == [(n, True, 7, 1 if num_rows == 5_000 else 2) for n in range(3)]
        with pytest.raises(ZeroDivisionError):
            submit(lambda: 1 // 0).result()
    assert bool(others) == (num_rows == 5_000)


@pytest.mark.usefixtures("two_threads")
def test_a_call_within_another_leaves_it_its_idle_threads():
    with threads_for(10), threads_for(10), idle_threads() as submit:
        assert submit(threading.get_ident).result() != threading.get_ident()


@pytest.mark.usefixtures("two_threads")
def test_pieces_of_work_have_one_thread_each():
    seen = []
    for_each(lambda _: seen.append((torch.get_num_threads(), threading.get_ident())), range(9))
    assert {number for number, _ in seen} == {1}
    assert threading.get_ident() not in {thread for _, thread in seen}


def interrupt():
    time.sleep(0.1)  # until all calls are submitted
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)


@pytest.fixture
def interrupts():
    """A process in the background ignores Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("two_threads", "interrupts")
@pytest.mark.parametrize("waits", [False, True], ids=["while submitting", "while waiting"])
def test_after_an_interruption_nothing_else_begins(waits):
    done = []

    def interrupted():
        with threads_for(10), idle_threads() as submit:
            if waits:
                submit(interrupt)
            for number in range(50):
                submit(lambda n: done.append(n) or time.sleep(0.02), number)
            if not waits:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    count = len(done)
    assert count < 50
    time.sleep(0.1)
    assert len(done) == count


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("estimator", [PartitionGPRegressor, PartitionGPClassifier])
def test_estimators_of_few_rows_compute_on_one_thread(estimator, monkeypatch):
    random = np.random.RandomState(0)
    X, model = random.rand(60, 2), estimator("mondrian", num_partitions=5, random_state=0)
    seen, cholesky = [], torch.linalg.cholesky_ex

    def watched(*args, **kwargs):
        seen.append(torch.get_num_threads())
        return cholesky(*args, **kwargs)

    monkeypatch.setattr(torch.linalg, "cholesky_ex", watched)
    model.fit(X, X[:, 0] > 0.5)
    model.predict(X)
    assert set(seen) == {1}


@pytest.mark.parametrize(
    "most_dense_rows", [2_000, pytest.param(100, marks=pytest.mark.slow)], ids=["exact", "from samples"]
)
def test_a_default_model_is_the_same_on_any_number_of_threads(most_dense_rows, two_threads, monkeypatch):
    """Its folds choose, and calibrate, on idle threads."""
    usual = iterative._values()
    monkeypatch.setattr(iterative, "_values", lambda _: {**usual, max_cholesky_size: most_dense_rows})
    random = np.random.RandomState(0)
    X = random.rand(300, 3)
    y = np.sin(6 * X[:, 0]) + 0.3 * random.randn(300)
    trees = {"num_trees": 10, "num_slope_trees": 5, "num_boosted_trees": 5, "num_shallow_boosted_trees": 5}
    few = Options(**trees, fewest_choosing_rows=100, choosing_share=0.1, most_boosting_rounds=20)

    def predicted():
        return PartitionGPRegressor(random_state=0, options=few).fit(X, y).predict(X, return_std=True)

    on_two, before = predicted(), process_state()
    assert np.array_equal(predicted(), on_two)
    assert not differences(before, process_state())
    torch.set_num_threads(1)
    # Sums of several threads are rounded otherwise, which iterations magnify; targets have a deviation near 1.
    rtol, atol = (1e-8, 0.0) if most_dense_rows == 2_000 else (0.0, 5e-4)
    np.testing.assert_allclose(predicted(), on_two, rtol=rtol, atol=atol)


OWN = {"prefix": "libscipy_openblas"}


def rosenbrock(x):
    return float(scipy.optimize.rosen(x)), scipy.optimize.rosen_der(x)


def threads():
    return [library["num_threads"] for library in ThreadpoolController().select(**OWN).info()]


def test_it_is_scipys():
    bounds, options = [(None, 0.8), (0.0, None), (None, None)], {"maxiter": 30, "ftol": 1e-12}
    steps = []
    found = minimize_lbfgsb(rosenbrock, np.zeros(3), bounds=bounds, callback=steps.append, options=options)
    expected = scipy.optimize.minimize(
        rosenbrock, np.zeros(3), jac=True, method="L-BFGS-B", bounds=bounds, options=options
    )
    assert np.array_equal(found.x, expected.x)
    assert len(steps) == found.nit == expected.nit
    assert minimize_lbfgsb(rosenbrock, [0.0, 0.0, 0.0]).x == pytest.approx(np.ones(3), abs=1e-3)


@pytest.mark.skipif(not threads(), reason="SciPy has another library")
def test_its_own_library_has_one_thread_while_it_searches():
    seen = []

    def objective(x):
        seen.extend(threads())
        return rosenbrock(x)

    with ThreadpoolController().select(**OWN).limit(limits=2):
        minimize_lbfgsb(objective, np.zeros(3))
        assert set(threads()) == {2}
        with pytest.raises(ZeroDivisionError):
            minimize_lbfgsb(lambda x: 1 / 0, np.zeros(3))
        assert set(threads()) == {2}
    assert set(seen) == {1}
