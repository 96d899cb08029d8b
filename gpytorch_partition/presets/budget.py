"""What the default model leaves out where its time is limited, and what its fit is expected to take."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf
from time import monotonic
from typing import NamedTuple

from gpytorch_partition.descriptions import counted
from gpytorch_partition.presets.choice import needs_calibration, num_rows_for
from gpytorch_partition.presets.options import Options
from gpytorch_partition.presets.parts import num_inducing_points
from gpytorch_partition.stages import OutOfTimeError, time_limit

_SHARE_OF_THE_FIRST = 0.1  # of the budget: what is tried first is expected to take no more
_MOST_OF_THE_FIRST = 0.5  # of the budget: when the first attempt is given up, if there is anything less
_LATEST = 1.05  # budgets, after which an attempt is given up for one that has succeeded
_MARGIN = 1.15  # factor of what an attempt is expected to take, when there must be time for it
_DOUBT = 0.2  # exponent of how much more it is than the one before, in another factor: the figures are rough
_WORTH_IT = 0.95  # times what the level before takes, a level must take less
_FEWEST_ROWS = 500  # training rows that a model is left with, if there are more
_SHARE_OF_ROWS = 0.7  # of the rows of one level, in the next one
_USUAL_TREES = 600


class Level(NamedTuple):
    """A default model that leaves something out, and the seconds that its fit takes on one core."""

    options: Options
    left_out: tuple[str, ...]
    seconds: float


# What each level changes beside what those before it do, in order of what is lost for each second that is gained.
# Not the calibration: of 900 rows of concrete, intervals of 90 % with weights by 200 rows covered 81 % without one, and
# 92 % with one. Nor all parts but a forest, whose fit to 3,000 rows of california took as long as that of the last
# level, and was no better.
_REDUCTIONS: tuple[Mapping[str, float], ...] = (
    {"most_rough_columns": 0},
    {"enough_residuals": 1, "num_calibrated_noise_trees": 50},
    {"most_choosing_rows": 700},
    {"most_calibration_rows": 200_000},
    {"most_calibration_rows": 20_000},
    {
        "num_trees": 50,
        "num_slope_trees": 25,
        "num_boosted_trees": 75,
        "num_shallow_boosted_trees": 100,
        "num_noise_trees": 100,
        "fewest_inducing_points": 500,
        "most_inducing_points": 500,
    },
    {"most_choosing_rows": 350, "fewest_choosing_rows": 350, "num_lengthscale_rows": 250, "num_folds": 4},
    {"most_choosing_rows": 200, "fewest_choosing_rows": 200, "num_lengthscale_rows": 150, "num_folds": 3},
)


class _Size(NamedTuple):
    """What there is, in a model of so many rows, of all that levels leave out; 0 of what it does not have."""

    rough_parts: int
    calibration_folds: int
    calibration_rows: int
    trees: int
    inducing_points: int
    choosing_rows: int
    folds: int

    @classmethod
    def of(cls, num_rows: int, num_columns: float, options: Options) -> _Size:
        """That of the model of some options."""
        calibrates, choosing_rows = needs_calibration(num_rows, options), num_rows_for(num_rows, options)
        return cls(
            int(calibrates and num_columns <= options.most_rough_columns),
            _num_calibration_folds(num_rows, options) if calibrates else 0,
            int(min(0.8 * num_rows, options.most_calibration_rows)) if calibrates else 0,
            _trees(options),
            min(num_rows, num_inducing_points(num_rows, options)),
            choosing_rows,
            options.folds_of(choosing_rows),
        )

    def less_than(self, full: _Size) -> tuple[str, ...]:
        """What this one leaves out of another, if anything."""
        share = 1 - self.trees / full.trees
        told = {
            "rough_parts": "rough parts, for functions that vary on many lengthscales",
            "calibration_folds": f"calibration by more than {counted(self.calibration_folds, 'fold')}",
            "calibration_rows": f"calibration by models of more than {self.calibration_rows:,} rows",
            "trees": "half of the trees" if share == 0.5 else f"{100 * share:.0f} % of the trees",
            "inducing_points": f"inducing points above {self.inducing_points:,}",
            "choosing_rows": f"weights by more than {self.choosing_rows:,} rows",
            "folds": f"weights by more than {self.folds} folds",
        }
        return tuple(text for name, text in told.items() if getattr(self, name) < getattr(full, name))


def levels(num_rows: int, num_columns: float, options: Options, *, has_view: bool = False) -> list[Level]:
    """
    The models to choose from, the best and slowest first: they leave out more and more, in the end rows.

    :param num_rows: Number of training rows.
    :param num_columns: Number of their columns.
    :param options: Those of the best one.
    :param has_view: Whether they are of a table with categories or holes, of which no model has rough parts. (Default:
        no.)

    Example:
        >>> for level in levels(900, 3, Options()):
        ...     print(f"{level.seconds:.1f} seconds:", *level.left_out[-1:])
        9.8 seconds:
        7.4 seconds: inducing points above 500
        4.5 seconds: weights by more than 350 rows
        3.2 seconds: weights by more than 3 folds
        3.0 seconds: 270 of 900 rows
        2.9 seconds: 400 of 900 rows
    """
    num_columns = inf if has_view else num_columns  # as of columns that are too many for rough parts
    full = _Size.of(num_rows, num_columns, options)
    found = [Level(options, (), sum_seconds(num_rows, num_columns, options))]
    for changes in _REDUCTIONS:
        options = _less(options, changes)
        seconds = sum_seconds(num_rows, num_columns, options)
        if seconds < _WORTH_IT * found[-1].seconds:
            found.append(Level(options, _Size.of(num_rows, num_columns, options).less_than(full), seconds))
    kept, told = num_rows, _Size.of(num_rows, num_columns, options).less_than(full)
    while kept > _FEWEST_ROWS:
        kept = max(_FEWEST_ROWS, int(_SHARE_OF_ROWS * kept))
        left_out = (*told, f"{num_rows - kept:,} of {num_rows:,} rows")
        found.append(Level(replace(options, most_rows=kept), left_out, sum_seconds(kept, num_columns, options)))
    return found


def _less(options: Options, changes: Mapping[str, float]) -> Options:
    """The options with these numbers where they are smaller."""
    return replace(options, **{name: min(getattr(options, name), number) for name, number in changes.items()})


def sum_seconds(num_rows: int, num_columns: float, options: Options) -> float:
    """
    What the fit of a default model is expected to take on one core of a server: figures of one machine, right to a
    factor of two; where targets differ, searches and solves take more or fewer steps.

    :param num_rows: Number of training rows.
    :param num_columns: Number of their columns.
    :param options: Those of the model.
    """
    return choosing_seconds(num_rows, num_columns, options) + later_seconds(num_rows, options)


def choosing_seconds(num_rows: int, num_columns: float, options: Options) -> float:
    """The part of :func:`sum_seconds` for weights and noise by folds of few rows."""
    rows = num_rows_for(num_rows, options)
    num_folds = options.folds_of(rows)
    trees, thousands = _trees(options) / _USUAL_TREES, rows / 1_000
    growing = num_folds * trees * (0.7 + 0.5 * thousands**2)
    lengthscales = 1.5 * thousands**2.8 + num_folds * 3.0 * (min(options.num_lengthscale_rows, rows) / 1_000) ** 2
    weights = 1.8 * num_folds * thousands**3 + options.num_noise_trees / 400
    return growing + lengthscales + weights + _rough_seconds(num_rows, num_columns, options)


def later_seconds(num_rows: int, options: Options) -> float:
    """The part of :func:`sum_seconds` for models of many rows: those that calibrate, and the one of all."""
    trees = _trees(options) / _USUAL_TREES
    building = trees * (0.5 + 0.05 * num_rows / 1_000)
    if not needs_calibration(num_rows, options):
        return building
    folds = _num_calibration_folds(num_rows, options)
    kept = min(0.8 * num_rows, options.most_calibration_rows)
    solve = trees * 0.42 * (kept / 1_000) ** 1.1
    return building + folds * (building + solve) + 3 * solve + options.num_calibrated_noise_trees / 100


def _num_calibration_folds(num_rows: int, options: Options) -> int:
    most = options.num_calibration_folds
    return min(most, -(-options.enough_residuals * most // num_rows))


def _trees(options: Options) -> int:
    boosted = options.num_boosted_trees + options.num_shallow_boosted_trees
    return 2 * options.num_trees + options.num_slope_trees + boosted


def _rough_seconds(num_rows: int, num_columns: float, options: Options) -> float:
    if num_columns > options.most_rough_columns or not needs_calibration(num_rows, options):
        return 0.0
    rows = num_rows_for(num_rows, options)
    return 0.7 * options.folds_of(rows) * (rows / 1_000) ** 3


def fit_within(
    budget: float, choices: Sequence[Level], fit: Callable[[Options], None], clock: Callable[[], float] = monotonic
) -> Level:
    """
    Fit the best of some models that a budget of time allows.

    First one that takes a tenth of the budget or less: it is what remains if nothing better is done in time, and tells
    how fast the machine is, on these rows. Then the best that is expected to be done in time, as long as there is one.
    An attempt that is not done in time is given up.

    :param budget: In seconds.
    :param choices: The models, the best first.
    :param fit: Fits one; it may be given up by an `OutOfTimeError`, and then keeps what it fitted before.
    :param clock: What tells the time, in seconds. (Default: the machine's.)
    :return: The model that was fitted last.

    Example:
        >>> now, fitted = [0.0], []
        >>> def fit(options):
        ...     fitted.append(options.num_trees)
        ...     now[0] += 2.0 * options.num_trees  # twice as long as expected
        >>> choices = [Level(Options(num_trees=n), (), float(n)) for n in (100, 30, 10, 3)]
        >>> fit_within(120.0, choices, fit, clock=lambda: now[0]).options.num_trees, fitted
        (30, [10, 30])
    """
    start, last = clock(), len(choices) - 1
    done, failed, slowness = None, -1, 1.0  # numbers of the best that is fitted, and of the last that was given up
    number = next((n for n, level in enumerate(choices) if level.seconds <= _SHARE_OF_THE_FIRST * budget), last)
    while True:
        begin, level = clock(), choices[number]
        share = _MOST_OF_THE_FIRST if done is None else _LATEST
        limit = inf if done is None and number == last else share * budget - (begin - start)
        try:
            with time_limit(limit, clock):
                fit(level.options)
            done, slowness = number, (clock() - begin) / level.seconds
        except OutOfTimeError:
            failed, slowness = number, max(slowness, (clock() - begin) / level.seconds)
        left = budget - (clock() - start)
        better = range(failed + 1, last + 1 if done is None else done)
        in_time = (n for n in better if slowness * _cautious(choices[n].seconds, level.seconds) <= left)
        number = next(in_time, last)
        if number == last and done is not None:
            return choices[done]


def _cautious(seconds: float, before: float) -> float:
    """The seconds of an attempt, as expected, with a margin for those of the one before that told the speed."""
    return _MARGIN * max(1.0, seconds / before) ** _DOUBT * seconds
