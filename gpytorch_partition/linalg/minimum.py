"""SciPy's L-BFGS-B for smooth functions of a few parameters, kept from competing with PyTorch's threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import OptimizeResult, minimize
from threadpoolctl import ThreadpoolController

# A value and the gradient.
Objective: TypeAlias = Callable[[NDArray[np.float64]], tuple[float, NDArray[np.float64]]]


def minimize_lbfgsb(
    objective: Objective,
    start: Sequence[float] | NDArray[np.float64],
    *,
    bounds: Sequence[tuple[float | None, float | None]] | NDArray[np.float64] | None = None,
    callback: Callable[[Any], Any] | None = None,
    options: Mapping[str, Any] | None = None,
) -> OptimizeResult:
    """
    Minimize a function by SciPy's L-BFGS-B, with the BLAS of SciPy and NumPy limited to one thread.

    OpenBLAS would wake all its threads for the small matrices of L-BFGS-B, which then spin on the cores that PyTorch
    needs for the objective: on two cores the default model of 1,100 rows took 1.7 times as long.

    :param objective: From a position (`k`, float64) to a value and its gradient (`k`).
    :param bounds: `k` pairs of limits; None for no limit. (Default: none.)
    :param callback: SciPy's: called with each position, or with a result if its parameter is `intermediate_result`.
    :param options: SciPy's: `maxiter`, `ftol`, `gtol`, `maxls`.
    """
    with ThreadpoolController().select(prefix="libscipy_openblas").limit(limits=1):
        return minimize(
            objective, start, jac=True, method="L-BFGS-B", bounds=bounds, callback=callback, options=options
        )
