"""Pieces of work on several threads, and SciPy's search, which must wake none."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
import torch
from threadpoolctl import ThreadpoolController

from gpytorch_partition.linalg.minimum import minimize_lbfgsb
from gpytorch_partition.linalg.parallel import for_each


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
