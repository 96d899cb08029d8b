"""A fit within a budget of seconds: attempts at models that leave more or less out, and what is said of them."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from numbers import Real
from time import monotonic
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from gpytorch_partition.presets.budget import Level, fit_within, levels
from gpytorch_partition.presets.options import Options
from gpytorch_partition.progress import tell
from gpytorch_partition.stages import OutOfTimeError, recorded_stages

logger = logging.getLogger(__name__)

_TOLERANCE = 1.2  # budgets that a fit may take without a warning
GIVEN_UP = "attempts that were not kept"  # the name of their seconds


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
    shape: tuple[int, int],
    options: Options,
    clock: Callable[[], float] = monotonic,
) -> None:
    """
    Fit the default model of an estimator within its budget, and set `options_`, `left_out_` and `seconds_`.

    :param estimator: With `budget` (None: the model with all its parts) and `random_state`, from which each attempt
        draws the same, so that the one that is kept can be had again by its options.
    :param fit: Fits the estimator by some options.
    :param shape: Numbers of training rows and of their columns.
    :param options: Those of the best model.
    :param clock: What tells the time, in seconds. (Default: the machine's.)

    Warns (:class:`~sklearn.exceptions.ConvergenceWarning`) where the least possible took more than 1.2 budgets.
    """
    start, random = clock(), estimator.random_state
    state = random.get_state() if isinstance(random, np.random.RandomState) else None

    def attempt(options: Options) -> None:
        before = dict(vars(estimator))
        if state is not None:
            random.set_state(state)
        try:
            with recorded_stages() as estimator.seconds_:
                fit(options)
        except OutOfTimeError:
            vars(estimator).clear()
            vars(estimator).update(before)
            raise

    level = Level(options, (), 0.0)
    if estimator.budget is None:
        attempt(options)
    else:
        level = fit_within(estimator.budget, levels(*shape, options), attempt, clock)
    estimator.options_, estimator.left_out_ = level.options, level.left_out
    if estimator.budget is not None:
        _say(estimator, clock() - start, shape[0])


def _say(estimator: Any, seconds: float, num_rows: int) -> None:
    """How the budget was used: in the log, among the seconds, and by a warning where it was too small."""
    budget, others = estimator.budget, seconds - sum(estimator.seconds_.values())
    if others > 0:
        estimator.seconds_[GIVEN_UP] = others
    left_out = f"left out {'; '.join(estimator.left_out_)}" if estimator.left_out_ else "left out nothing"
    told = f"a budget of {budget:g} seconds, of which {seconds:.1f} were taken, {left_out}"
    logger.info("%s", told)
    tell(told)
    if seconds > _TOLERANCE * budget:
        least = seconds - estimator.seconds_.get(GIVEN_UP, 0.0)
        warnings.warn(
            f"the fit took {seconds:.1f} seconds, more than the budget of {budget:g}: the least that can be fitted to "
            f"{num_rows:,} rows took {least:.1f} seconds, as fast as the machine was. Give a larger budget, or fewer "
            "rows",
            ConvergenceWarning,
            stacklevel=5,
        )
