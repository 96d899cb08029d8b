"""Smaller default models for a limited time, and the search for the largest one that fits in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from time import monotonic
from typing import NamedTuple

from gpytorch_partition.presets.options import Options
from gpytorch_partition.presets.parts import num_inducing_points
from gpytorch_partition.presets.weights_and_noise import needs_calibration, num_rows_for

_GROWTH = 5  # the next larger model's time over a model's, at most: 1.4 to 4 for 600 to 6,000 rows
_FEWEST_ROWS = 2_000  # training rows of the smallest model, if there are more
_ROW_FACTOR = 4  # the next larger model's rows over a model's, at most

# Each line: the number of rows above which a model is tried, and its changes besides those of earlier lines. The
# calibration stays longest: on 900 rows of concrete, 90 % intervals with weights from 200 rows covered 81 % without it
# and 92 % with it. All parts stay: a forest alone took as long on 3,000 rows of california as the last line.
_REDUCTIONS: tuple[tuple[int, Mapping[str, float]], ...] = (
    (
        1_200,
        {
            "most_rough_columns": 0,
            "enough_residuals": 1,
            "num_calibrated_noise_trees": 50,
            "most_choosing_rows": 700,
            "most_calibration_rows": 200_000,
        },
    ),
    (100_000, {"most_calibration_rows": 20_000}),
    (
        0,
        {
            "most_calibration_rows": 20_000,
            "num_trees": 50,
            "num_slope_trees": 25,
            "num_boosted_trees": 75,
            "num_shallow_boosted_trees": 100,
            "num_noise_trees": 100,
            "fewest_inducing_points": 500,
            "most_inducing_points": 500,
            "most_choosing_rows": 200,
            "fewest_choosing_rows": 200,
            "num_lengthscale_rows": 150,
            "num_folds": 3,
        },
    ),
)


class Level(NamedTuple):
    """A default model, and the parts of the largest one that it leaves out."""

    options: Options
    left_out: tuple[str, ...]


def levels(num_rows: int, num_columns: float, options: Options) -> Iterator[Level]:
    """
    Yield the models to try, from the largest to the smallest, which has fewer rows.

    :param num_rows: Number of training rows.
    :param num_columns: Number of columns; infinity for tables, for which no model has rough parts.
    :param options: Options of the largest model.

    Example:
        >>> for level in levels(9_000, 3, Options()):
        ...     print(*level.left_out[-1:])
        <BLANKLINE>
        800 of 1,500 rows that choose weights
        1,300 of 1,500 rows that choose weights
        6,750 of 9,000 rows
        7,000 of 9,000 rows
    """
    full = _sizes(num_rows, num_columns, options)
    yield Level(options, ())
    left_out: tuple[str, ...] = ()
    for fewest_rows, changes in _REDUCTIONS:
        if num_rows > fewest_rows:
            options = replace(options, **{name: min(getattr(options, name), size) for name, size in changes.items()})
            left_out = tuple(_differences(full, _sizes(num_rows, num_columns, options)))
            if left_out:
                yield Level(options, left_out)
    kept = num_rows
    while kept > _FEWEST_ROWS:
        kept = max(_FEWEST_ROWS, kept // _ROW_FACTOR)
        yield Level(replace(options, most_rows=kept), (*left_out, f"{num_rows - kept:,} of {num_rows:,} rows"))


def _sizes(num_rows: int, num_columns: float, options: Options) -> dict[str, int]:
    """Sizes that a smaller model may reduce, by name."""
    calibrates, choosing_rows = needs_calibration(num_rows, options), num_rows_for(num_rows, options)
    most_folds = options.num_calibration_folds
    boosted_trees = options.num_boosted_trees + options.num_shallow_boosted_trees
    return {
        "rough parts": int(calibrates and num_columns <= options.most_rough_columns),
        "folds of the calibration": calibrates * min(most_folds, -(-options.enough_residuals * most_folds // num_rows)),
        "rows of the calibration": calibrates * int(min(0.8 * num_rows, options.most_calibration_rows)),
        "trees": 2 * options.num_trees + options.num_slope_trees + boosted_trees,
        "inducing points": min(num_rows, num_inducing_points(num_rows, options)),
        "rows that choose weights": choosing_rows,
        "folds that choose weights": options.folds_of(choosing_rows),
    }


def _differences(full: Mapping[str, int], less: Mapping[str, int]) -> Iterator[str]:
    for name, number in full.items():
        if less[name] < number:
            yield f"{number - less[name]:,} of {number:,} {name}" if less[name] else f"all {name}"


def fit_within(
    budget: float, choices: Sequence[Level], fit: Callable[[Options], None], clock: Callable[[], float] = monotonic
) -> Level:
    """
    Fit models, the smallest first, while five times the seconds of the last one are left for the next.

    :param budget: Time in seconds.
    :param choices: The models, the largest first.
    :param fit: Function that fits a model in place of the previous one.
    :param clock: Function that returns the time in seconds. (Default: the machine's.)
    :return: The model that was fitted last.

    Example:
        >>> now, fitted = [0.0], []
        >>> def fit(options):
        ...     fitted.append(options.num_trees)
        ...     now[0] += options.num_trees
        >>> choices = [Level(Options(num_trees=number), ()) for number in (100, 30, 10, 3)]
        >>> fit_within(70.0, choices, fit, clock=lambda: now[0]).options.num_trees, fitted
        (30, [3, 10, 30])
    """
    start = clock()
    for level in reversed(choices):
        begin = clock()
        fit(level.options)
        if clock() - start + _GROWTH * (clock() - begin) > budget:
            break
    return level
