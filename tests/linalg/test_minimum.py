"""SciPy's search, and the threads that it must not wake."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
from threadpoolctl import ThreadpoolController

from gpytorch_partition.linalg.minimum import minimize_lbfgsb

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
