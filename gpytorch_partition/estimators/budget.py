"""Fits of the default model within a budget of seconds, and reports of them."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from numbers import Real
from time import monotonic
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from gpytorch_partition.callers import level_of_caller
from gpytorch_partition.presets.budget import Level, fit_within, levels
from gpytorch_partition.presets.options import Options
from gpytorch_partition.progress import tell

logger = logging.getLogger(__name__)

_TOLERANCE = 1.2  # budgets that a fit may take without a warning


def check_budget(budget: float | None, kernel: Any) -> None:
    """
    Raise an error for a budget that cannot be kept.

    :raises ValueError: If it is not a positive number of seconds, or the kernel is not the default model.
    """
    if budget is None:
        return
    if not isinstance(budget, Real) or isinstance(budget, bool) or not 0 < budget < float("inf"):
        raise ValueError(f"expected budget to be a positive number of seconds, or None for no limit, got {budget!r}")
    if not (isinstance(kernel, str) and kernel == "auto"):
        raise ValueError(
            "budget= is for kernel='auto', which knows what it can leave out: other kernels take the time of their "
            f"partitions and rows, so give fewer of them (num_partitions=), got budget={budget!r}"
        )


def fit_in_time(
    estimator: Any,
    fit: Callable[[Options], None],
    shape: tuple[int, float],
    options: Options,
    clock: Callable[[], float] = monotonic,
) -> None:
    """
    Fit the default model of an estimator within its budget, and set `options_` and `left_out_`.

    :param estimator: The estimator, with `budget` (None: the model with all its parts) and `random_state`. Each attempt
        draws the same from it, so that the last one's options fit the same model again.
    :param fit: Function that fits the estimator by some options.
    :param shape: Numbers of training rows and of their columns (infinity for tables).
    :param options: Options of the largest model.
    :param clock: Function that returns the time in seconds. (Default: the machine's.)

    A fit of more than 1.2 budgets gives a :class:`~sklearn.exceptions.ConvergenceWarning`.
    """
    start, random = clock(), estimator.random_state
    state = random.get_state() if isinstance(random, np.random.RandomState) else None

    def attempt(options: Options) -> None:
        if state is not None:
            random.set_state(state)
        fit(options)

    choices = [Level(options, ())] if estimator.budget is None else list(levels(*shape, options))
    level = fit_within(estimator.budget or 0.0, choices, attempt, clock)
    estimator.options_, estimator.left_out_ = level
    if estimator.budget is not None:
        _say(estimator, clock() - start, shape[0])


def _say(estimator: Any, seconds: float, num_rows: int) -> None:
    budget = estimator.budget
    left_out = f"left out {'; '.join(estimator.left_out_)}" if estimator.left_out_ else "left out nothing"
    told = f"a budget of {budget:g} seconds, of which {seconds:.1f} were taken, {left_out}"
    logger.info("%s", told)
    tell(told)
    if seconds > _TOLERANCE * budget:
        warnings.warn(
            f"expected to fit {num_rows:,} rows in {budget:g} seconds, took {seconds:.1f}: give a larger budget, or "
            "fewer rows",
            ConvergenceWarning,
            stacklevel=level_of_caller(),
        )
