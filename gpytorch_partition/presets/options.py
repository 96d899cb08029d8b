"""`Options`, all constants of the default model and of smaller ones, and `Setup`, what steps get beside the data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, fields, replace
from math import inf, log
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from gpytorch_partition.inputs.numbers import random_state_of


@dataclass(frozen=True)
class Options:
    """
    Set the constants of the default model, each with its unit.

    Use it to leave out parts, or to trade accuracy for time: `PartitionGPRegressor(options=Options(num_trees=50))`.
    Numbers that define a single part are in the table of parts. `replace(options, num_trees=50)` of :mod:`dataclasses`
    changes some of a model's `options_`.

    The *choosing rows* are those from which weights, noise and lengthscales are learned. Numbers called variances are
    shares of the variance of the targets.

    :raises ValueError: If a number other than gains and columns is not positive, or there are fewer than two folds or
        20 boosting rounds.

    Example:
        >>> Options(num_trees=20).num_trees
        20
    """

    #: Names of parts of the usual sum to leave out, as `summary()` names them (`"linear"` for `far_linear` as well).
    #: Draws of the others do not change.
    omitted_parts: tuple[str, ...] = ()
    most_rows: float = inf  #: Training rows of `PartitionGPRegressor`, at most; of more, a random sample of this size.

    # Trees.
    num_trees: int = 100  #: Trees of each forest.
    num_slope_trees: int = 50  #: Trees of the forest with a slope in every leaf.
    num_boosted_trees: int = 150  #: Trees of the deep boosting.
    num_shallow_boosted_trees: int = 200  #: Trees of the shallow boosting.
    fewest_tree_rows: int = 128  #: Rows of a tree, at least.
    most_tree_rows: int = 5_000  #: Rows of a tree, at most: a tree of N leaves costs more than its products.
    most_tree_share: float = 0.04  #: Share of the rows that a tree may have even if these are more.

    # Inducing points of the smooth part.
    most_inducing_points: int = 3_000  #: Inducing points, at most: up to this number of rows, all of them are.
    #: Numbers for all pairs of a row and an inducing point, at most: a GiB, of which posterior samples hold two.
    most_loadings: int = 2**27

    # Rough parts, and when they replace all others: on simulated fields gains of 4 to 14 nats vanished with all rows.
    num_rough_trees: int = 200  #: Rough trees for each lengthscale, up to `most_rough_visits`.
    fewest_rough_trees: int = 100  #: Rough trees for each lengthscale, at least, for any number of visits.
    most_rough_visits: int = 10**7  #: Pairs of a row and a tree, for each lengthscale.
    least_rough_gain: float = 20.0  #: Nats that rough parts must gain to replace the others.
    #: Columns of rough fields, at most, whose rotated trees cost the square of it; 0 for no rough fields.
    most_rough_columns: int = 20
    num_patches: int = 12  #: Patches of neighboring rows that judge rough parts.
    patch_rows: int = 150  #: Rows of each patch.
    num_patch_folds: int = 3  #: Folds of each patch, each held out once.

    # The choice of weights and lengthscales.
    choosing_share: float = 0.25  #: Choosing rows, as a share of all rows.
    fewest_choosing_rows: int = 700  #: Choosing rows, at least, if there are as many.
    most_choosing_rows: int = 1_500  #: Choosing rows, at most.
    num_lengthscale_rows: int = 400  #: Rows that the lengthscales of a fold are learned on.
    num_folds: int = 5  #: Folds of the choosing rows.
    fewer_folds_above: tuple[int, ...] = (500, 1_000)  #: Numbers of rows above each of which there is one fold less.
    least_noise_gain: float = 3.0  #: Nats that noise varying with x must gain.
    least_tail_gain: float = 5.0  #: Nats that Student-t noise must gain.
    #: Nats per row that Student-t noise must gain, and discounting rows with large errors beside it. A small gain is no
    #: evidence, since the models that discount have seen the rows that judge.
    least_discount_gain: float = 0.1
    least_boosting_gain: float = 3.0  #: Nats that a share of boosted trees in predictions must gain; infinity for none.
    most_boosting_rounds: int = 3_200  #: Trees that have a share in predictions, at most; 20 at least.
    num_noise_trees: int = 200  #: Trees of the forest that predicts the noise.
    least_noise: float = 1e-4  #: Least noise, in variances of the targets; a likelihood's constraint is half of it.
    #: Least weight, in variances of the targets. Parts of less are left out if held-out rows then lose less than a nat.
    least_weight: float = 2e-4
    least_noise_share: float = 1e-2  #: Least weight, in variances of the noise: as `least_weight`.

    # The calibration by the rows that did not choose: densities were worse with 1,300 rows, and better with 2,000.
    most_uncalibrated: float = 1.7  #: Number of rows, over the choosing rows, above which there is a calibration.
    num_calibration_folds: int = 5  #: Folds of the calibration.
    most_calibration_rows: float = inf  #: Rows of the model that predicts a fold, at most.
    enough_residuals: int = 5_000  #: Residuals of held-out rows from which no more folds are held out.
    most_variances: int = 1_000  #: Rows of a fold whose variances are computed, at most.
    enough_variances: int = 1_000  #: Variances of all folds together that suffice.
    num_calibrated_noise_trees: int = 100  #: Trees of the forest of all held-out residuals.
    num_variance_samples: int = 32  #: Samples from which a variance is estimated.
    threshold_share: float = 0.95  #: Share of new rows at which inducing points leave out less than the threshold.
    most_rescaling: float = 100.0  #: Factor of all variances, or one over it, at most.
    most_noise_rescaling: float = 5.0  #: Factor of the noise beside the weights, which means depend on, at most.

    def __post_init__(self) -> None:
        for field in fields(self):
            value, is_number = getattr(self, field.name), isinstance(field.default, int | float)
            if is_number and not field.name.endswith(("_gain", "_columns")) and not value > 0:
                raise ValueError(f"expected {field.name} above 0, got {value!r}")
        if isinstance(self.omitted_parts, str) or self.threshold_share > 1 or self.num_variance_samples < 2:
            got = f"{self.omitted_parts!r}, {self.threshold_share} and {self.num_variance_samples}"
            raise ValueError(
                "expected a tuple of omitted_parts, threshold_share up to 1, num_variance_samples from 2, got " + got
            )
        if min(self.num_folds, self.num_patch_folds, self.num_calibration_folds) < 2:
            raise ValueError("expected two or more num_folds, num_patch_folds and num_calibration_folds")
        if self.most_boosting_rounds < 20:
            raise ValueError(f"expected most_boosting_rounds from 20, got {self.most_boosting_rounds!r}")

    @property
    def factor_bounds(self) -> list[tuple[float, float]]:
        """Return bounds of the logarithms of the factors of all variances, and of the noise."""
        return [(-log(most), log(most)) for most in (self.most_rescaling, self.most_noise_rescaling)]

    def folds_of(self, num_rows: int) -> int:
        """Return the number of folds for a number of choosing rows."""
        return max(2, self.num_folds - sum(num_rows > number for number in self.fewer_folds_above))

    def num_choosing(self, num_rows: int) -> int:
        """Return the number of choosing rows, of N rows: a share of N, within limits."""
        share = min(int(self.choosing_share * num_rows), self.most_choosing_rows)
        return min(num_rows, max(self.fewest_choosing_rows, share))

    def calibrates(self, num_rows: int) -> bool:
        """Return whether the choosing rows are such a small share that all rows must calibrate the choice."""
        return num_rows > self.most_uncalibrated * self.num_choosing(num_rows)

    def num_inducing_points(self, num_rows: int) -> int:
        """Return the number of inducing points, if that many rows are distinct."""
        return min(self.most_inducing_points, max(1, self.most_loadings // num_rows))

    def num_rough(self, num_rows: int) -> int:
        """Return the number of trees of the rough part for each of its lengthscales."""
        return min(self.num_rough_trees, max(self.fewest_rough_trees, self.most_rough_visits // num_rows))


def some_rows(num_rows: int, options: Options, random_state: Any) -> np.ndarray | slice:
    """Return the numbers of a model's training rows: all, or as many random ones as the options allow."""
    if num_rows <= options.most_rows:
        return slice(None)
    return np.sort(random_state_of(random_state).permutation(num_rows)[: int(options.most_rows)])


DEFAULT = Options()

# A function from rows (N x D), targets in the ensemble's units (N) and a source of seeds to a fitted tree ensemble.
Refit: TypeAlias = Callable[[np.ndarray, np.ndarray, np.random.RandomState], Any]


@dataclass(frozen=True, eq=False)
class Setup:
    """Hold the inputs of every step beside the data."""

    random: np.random.RandomState  # source of the draws
    n_jobs: int | None = None  # trees grown at a time
    options: Options = DEFAULT
    refit: Refit | None = None  # fits the ensemble of a user, whose kernel is then the only part

    def again(self) -> Setup:
        """Return a setup with a copy of the random state, so that it draws the same numbers again."""
        return replace(self, random=deepcopy(self.random))

    @property
    def growing(self) -> dict[str, Any]:
        """Return the keyword arguments of functions that grow trees."""
        return {"random_state": self.random, "n_jobs": self.n_jobs}


# Smaller models for a limited time, and the search for the largest one that fits in it.

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
            "most_boosting_rounds": 200,
            "num_noise_trees": 100,
            "most_inducing_points": 500,
            "most_choosing_rows": 200,
            "fewest_choosing_rows": 200,
            "num_lengthscale_rows": 150,
            "num_folds": 3,
        },
    ),
)


class Level(NamedTuple):
    """Hold the options of a default model, and the parts of the largest one that it leaves out."""

    options: Options
    left_out: tuple[str, ...]


def levels(num_rows: int, num_columns: float, options: Options) -> Iterator[Level]:
    """
    Yield the models to try, from the largest to the smallest, which takes fewer rows.

    :param num_columns: Number of columns; infinity for tables.
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
    calibrates, choosing_rows = options.calibrates(num_rows), options.num_choosing(num_rows)
    most_folds = options.num_calibration_folds
    boosted_trees = options.num_boosted_trees + options.num_shallow_boosted_trees
    return {
        "rough parts": int(calibrates and num_columns <= options.most_rough_columns),
        "folds of the calibration": calibrates * min(most_folds, -(-options.enough_residuals * most_folds // num_rows)),
        "rows of the calibration": calibrates * int(min(0.8 * num_rows, options.most_calibration_rows)),
        "trees": 2 * options.num_trees + options.num_slope_trees + boosted_trees,
        "inducing points": min(num_rows, options.num_inducing_points(num_rows)),
        "rows that choose weights": choosing_rows,
        "folds that choose weights": options.folds_of(choosing_rows),
    }


def _differences(full: Mapping[str, int], less: Mapping[str, int]) -> Iterator[str]:
    for name, number in full.items():
        if less[name] < number:
            yield f"{number - less[name]:,} of {number:,} {name}" if less[name] else f"all {name}"


def fit_within(
    budget: float, choices: Sequence[Level], fit: Callable[[Options], None], clock: Callable[[], float]
) -> Level:
    """
    Fit models, the smallest first, while five times the seconds of the last one are left for the next; return the last.

    :param choices: The models, the largest first.
    :param fit: Function that fits a model in place of the previous one.
    """
    start = clock()
    for level in reversed(choices):
        begin = clock()
        fit(level.options)
        if clock() - start + _GROWTH * (clock() - begin) > budget:
            break
    return level
