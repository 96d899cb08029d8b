"""`Options`, all constants of the default model, and `Setup`, what every step takes beside the data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from math import inf
from typing import Any, TypeAlias

import numpy as np

from gpytorch_partition.inputs.seeds import random_state_of


@dataclass(frozen=True)
class Options:
    """
    The options of the default model, each with its unit; numbers that define a single part are in the table of parts.

    Raises a `ValueError` for numbers that are not positive (gains and columns apart) and for fewer than two folds.

    Example:
        >>> Options(num_trees=20).num_trees
        20
    """

    omitted_parts: tuple[str, ...] = ()  # names of parts of the usual sum; the others are drawn as beside them
    most_rows: float = inf  # training rows, at most, of `PartitionGPRegressor`; if there are more, so many random ones

    # Trees.
    num_trees: int = 100  # of each forest
    num_slope_trees: int = 50  # of the forest with a slope in every leaf
    num_boosted_trees: int = 150  # of the deep ones
    num_shallow_boosted_trees: int = 200
    fewest_tree_rows: int = 128  # rows of a tree, at least
    most_tree_rows: int = 5_000  # rows of a tree, at most: one of N leaves costs more than its products with all rows
    most_tree_share: float = 0.04  # share of the rows that a tree may have even if these are more

    # Inducing points of the smooth part.
    fewest_inducing_points: int = 1_000  # up to so many rows, all of them
    inducing_share: float = 0.1  # above, this share of the rows
    most_inducing_points: int = 2_000
    most_loadings: int = 2**27  # numbers for all (row, inducing point): a GiB; posterior samples hold them twice

    # Rough parts, and when they replace all others. On simulated fields gains of 4 to 14 nats on 700 rows vanished when
    # both models had all rows; on a map the gain was 50.
    num_rough_trees: int = 200  # for each lengthscale, up to the number of visits
    fewest_rough_trees: int = 100  # for each lengthscale, whatever the number of visits
    most_rough_visits: int = 10**7  # of (row, tree), for each lengthscale
    least_rough_gain: float = 20.0  # nats
    most_rough_columns: int = 20  # rotated trees cost their square; 0 for no rough fields
    num_patches: int = 12  # of neighbors
    patch_rows: int = 150  # of each patch
    num_patch_folds: int = 3  # of each patch

    # How few rows choose weights and lengthscales.
    choosing_share: float = 0.25  # of the rows
    fewest_choosing_rows: int = 700  # if there are as many
    most_choosing_rows: int = 1_500
    num_lengthscale_rows: int = 400  # rows that the lengthscales of a fold are learned on
    num_folds: int = 5
    fewer_folds_above: tuple[int, ...] = (500, 1_000)  # rows, above each of which there is a fold less, down to two
    least_noise_gain: float = 3.0  # nats that a noise which varies must gain
    least_tail_gain: float = 5.0  # nats that Student-t noise must gain
    num_noise_trees: int = 200  # of the forest that says where the noise is
    least_noise: float = 1e-4  # variances of the targets; a likelihood's constraint is half of it
    least_weight: float = 2e-4  # variances of the targets: a part of less is left out
    least_noise_share: float = 1e-2  # variances of the noise: a part of less is left out

    # How the others calibrate scale and noise. Of 1,300 rows of eight sets, two draws of each, models that were
    # calibrated were worse by .004 nats on average, of 2,000 rows better.
    most_uncalibrated: float = 2.0  # multiple of the choosing rows above which there is a calibration
    num_calibration_folds: int = 5
    # Rows of the model that predicts a fold, at most. 2,000 of 8,000 took a third of the time of the calibration: on
    # california the predictive density was the same, on kin40k worse by .14 nats.
    most_calibration_rows: float = inf
    enough_residuals: int = 10_000  # of held-out rows: then no more folds are held out
    most_variances: int = 1_000  # rows of a fold whose variances are computed, at most
    enough_variances: int = 300  # of all folds together
    num_calibrated_noise_trees: int = 100  # of the forest of all held-out residuals
    num_variance_samples: int = 32  # that a variance comes from
    threshold_share: float = 0.95  # of new rows, at which inducing points leave out less than the threshold
    most_rescaling: float = 100.0  # factor of all variances, or one over it, at most
    most_noise_rescaling: float = 5.0  # factor of the noise beside the weights, which means depend on

    def __post_init__(self) -> None:
        for field in fields(self):
            value, is_number = getattr(self, field.name), isinstance(field.default, int | float)
            if is_number and not field.name.endswith(("_gain", "_columns")) and not value > 0:
                raise ValueError(f"expected {field.name} above 0, got {value!r}")
        if isinstance(self.omitted_parts, str) or self.threshold_share > 1 or self.num_variance_samples < 2:
            raise ValueError("expected a tuple of omitted_parts, a threshold_share up to 1 and 2 num_variance_samples")
        if min(self.num_folds, self.num_patch_folds, self.num_calibration_folds) < 2:
            raise ValueError("expected two or more num_folds, num_patch_folds and num_calibration_folds")

    def folds_of(self, num_rows: int) -> int:
        """How many folds so many rows are chosen by."""
        return max(2, self.num_folds - sum(num_rows > number for number in self.fewer_folds_above))


def some_rows(num_rows: int, options: Options, random_state: Any) -> np.ndarray | slice:
    """
    The numbers of the training rows that a model is of: all, or as many random ones as the options allow.

    :param num_rows: How many there are.
    :param options: Those of the model.
    :param random_state: Seed or `RandomState`.

    Example:
        >>> some_rows(5, Options(most_rows=2), 0)
        array([0, 2])
    """
    if num_rows <= options.most_rows:
        return slice(None)
    return np.sort(random_state_of(random_state).permutation(num_rows)[: int(options.most_rows)])


DEFAULT = Options()

# From rows (N x D), targets in the units of the ensemble (N) and a source of seeds to a fitted tree ensemble.
Refit: TypeAlias = Callable[[np.ndarray, np.ndarray, np.random.RandomState], Any]


@dataclass(frozen=True, eq=False)
class Setup:
    """
    What every step takes beside the data.

    :param random: Source of the draws.
    :param n_jobs: Trees grown at a time.
    :param options: The numbers of the default model.
    :param refit: Fits the ensemble of a user, whose kernel is then the only part. (Default: None, the usual parts.)
    """

    random: np.random.RandomState
    n_jobs: int | None = None
    options: Options = DEFAULT
    refit: Refit | None = None

    @property
    def growing(self) -> dict[str, Any]:
        """The keywords of whatever grows trees."""
        return {"random_state": self.random, "n_jobs": self.n_jobs}
