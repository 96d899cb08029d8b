"""The kernels that the default one is a sum of: forests, boosted trees, slopes, and smooth, linear and rough parts."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial, reduce
from operator import add
from typing import Any, TypeVar

import numpy as np
import sklearn
import torch
from gpytorch.kernels import Kernel, LinearKernel, MaternKernel, ScaleKernel
from sklearn.ensemble import GradientBoostingRegressor
from torch import Tensor

from gpytorch_partition.kernels import (
    IterativeKernel,
    LandmarkKernel,
    LocalLinearKernel,
    MondrianKernel,
    PartitionKernel,
    PartitionMixtureKernel,
    RandomForestKernel,
    StandardizedKernel,
)
from gpytorch_partition.partitions.forest import ForestPartition, grow_forest
from gpytorch_partition.partitions.landmarks import choose_landmarks
from gpytorch_partition.partitions.mondrian.projections import rotations

# Trees of most rows, and without a look at the targets.
_FORESTS: dict[str, dict[str, Any]] = {
    "forest": {"max_samples": 0.632, "min_samples_leaf": 1},
    "random_trees": {"max_samples": 0.5, "min_samples_leaf": 2, "max_features": 1},
}
# Where there is nothing but them: leaves of single rows would take the noise for the function.
_LEAVES_ALONE = {"min_samples_leaf": 3}
# Trees with few leaves, in each of which the function has slopes.
_COARSE: dict[str, Any] = {"num_trees": 50, "max_samples": 0.3, "min_samples_leaf": 15}
# Rows of a tree: few for many rows, since a tree of N leaves costs more than its products with all rows.
_NUM_TREES, _FEWEST_SAMPLES, _MOST_SAMPLES, _MOST_SHARE = 100, 128, 5_000, 0.04
# Boosted trees, each of a random share of the rows (Friedman 2002): deep ones, of which the leaves count, and shallow
# ones at all heights.
_BOOSTED: dict[str, dict[str, Any]] = {
    "boosted": {"n_estimators": 150, "max_depth": 5, "subsample": 0.3},
    "shallow_boosted": {"n_estimators": 200, "max_depth": 3, "subsample": 0.5},
}
_HEIGHTS = {"boosted": "leaf", "shallow_boosted": "all"}
# Landmarks of the smooth part: all rows, up to the first number; then a share of them, up to the second.
_FEWEST_LANDMARKS, _MOST_LANDMARKS, _SHARE = 1_000, 2_000, 0.1
# Numbers held for all rows and landmarks, at most (a GiB in float64): samples of the posterior hold them twice.
_MOST_LOADINGS = 2**27
# Lengthscales of rough parts, in those of the smooth part, and trees for each of them: up to the first number, but so
# many (row, tree) as the last one at most, or else the second number.
ROUGH = {"rough": (2.0, 1 / 2, 1 / 8, 1 / 32), "rough_short": (1 / 32,)}
_NUM_ROUGH_TREES, _FEWEST_ROUGH_TREES, _MOST_VISITS = 200, 100, 10**7


AnyPartitionKernel = TypeVar("AnyPartitionKernel", bound=PartitionKernel)


def new_parts(
    x: Tensor,
    y: Tensor,
    lengthscales: Tensor | None,
    random: np.random.RandomState,
    n_jobs: int | None,
    names: Collection[str] | None = None,
) -> dict[str, Kernel]:
    """
    The parts, of unit scale, by name.

    :param x: `N x D` standardized rows.
    :param y: `N` targets.
    :param lengthscales: `D` lengthscales of the smooth part; None where rows miss values, which only trees know.
    :param random: Source of the draws.
    :param n_jobs: Trees grown at a time.
    :param names: The parts wanted. (Default: all but the rough ones.)
    """
    leaves = _LEAVES_ALONE if lengthscales is None else {}
    new: dict[str, Callable[[], Kernel]] = {
        name: partial(_forest, x, y, options | leaves, random, n_jobs) for name, options in _FORESTS.items()
    }
    if lengthscales is not None:
        new |= {name: partial(_boosted, name, x, y, random) for name in _BOOSTED}
        new["slopes"] = lambda: LocalLinearKernel(_forest(x, y, _COARSE, random, n_jobs), x.shape[1])
        new["smooth"] = partial(smooth_part, x, lengthscales, random)
        new["linear"] = partial(_linear, x.shape[1])
        new |= {name: partial(_rough, x, lengthscales, widths, random) for name, widths in ROUGH.items()}
    wanted = new.keys() - ROUGH.keys() if names is None else names
    # Rows were looked at: to do so again for every tree takes a tenth of the time of a thousand rows.
    with sklearn.config_context(assume_finite=True):
        return {name: build() for name, build in new.items() if name in wanted}


def unfitted_part(name: str, num_columns: int) -> Kernel:
    """The part of this name for `load_state_dict`."""
    if name == "linear":
        return _linear(num_columns)
    if name == "slopes":
        return LocalLinearKernel(_in_float32(RandomForestKernel()), num_columns)
    if name == "smooth":
        return LandmarkKernel.from_kernel(_matern(torch.ones(num_columns)), None)
    if name in ROUGH:
        return _rough_mixture([MondrianKernel() for _ in ROUGH[name]], ROUGH[name])
    return _in_float32(RandomForestKernel(heights=_HEIGHTS.get(name, "all")))


@torch.no_grad()
def dense_covariances(parts: Mapping[str, Kernel], x: Tensor) -> Tensor:
    """
    Covariances of a few rows, `c x n x n` (float64): :math:`O(n^2)` for each tree or column of a part.

    :param parts: c kernels, by name.
    :param x: `n x D` standardized rows.
    """
    return torch.stack([part(x).to_dense().double() for part in parts.values()])


def weighted_sum(
    parts: Mapping[str, Kernel], outputscales: Mapping[str, float], train_x: Tensor | None
) -> IterativeKernel:
    """
    The sum of kernels of standardized columns with fixed weights, for points in the units of the training rows.

    :param parts: The kernels, by name.
    :param outputscales: The weights of those that count, by name.
    :param train_x: `N x D` rows; None for an unfitted kernel.
    """
    total = reduce(add, (_scaled(parts[name], outputscale) for name, outputscale in outputscales.items()))
    return IterativeKernel(StandardizedKernel(total, train_x)).requires_grad_(False)


def weighted(part: Kernel, outputscale: float, train_x: Tensor | None) -> StandardizedKernel:
    """
    One kernel as it is in such a sum.

    :param part: The kernel, of standardized columns.
    :param outputscale: Its weight.
    :param train_x: `N x D` rows; None for an unfitted kernel.
    """
    return StandardizedKernel(_scaled(part, outputscale), train_x).requires_grad_(False)


def _scaled(part: Kernel, outputscale: float) -> ScaleKernel:
    scaled = ScaleKernel(part)
    scaled.outputscale = outputscale
    return scaled


def _forest(
    x: Tensor, y: Tensor, options: Mapping[str, Any], random: np.random.RandomState, n_jobs: int | None
) -> RandomForestKernel:
    share = int(options["max_samples"] * len(x))
    num_samples = min(max(share, _FEWEST_SAMPLES), _most_samples(len(x)), len(x))
    options = {"num_trees": _NUM_TREES, **options, "max_samples": num_samples}
    return _kernel_of(grow_forest(x, y, random_state=random, n_jobs=n_jobs, **options), "all")


def _boosted(name: str, x: Tensor, y: Tensor, random: np.random.RandomState) -> RandomForestKernel:
    options = dict(_BOOSTED[name])
    share = min(options.pop("subsample"), _most_samples(len(x)) / len(x))
    boosting = GradientBoostingRegressor(subsample=share, max_features=0.5, random_state=random, **options)
    # Rounded, so that other units change no split, which would change all trees after it.
    boosting.fit(x.float().cpu().numpy(), y.float().cpu().numpy())
    return _kernel_of(boosting, _HEIGHTS[name])


def _kernel_of(ensemble: Any, heights: str) -> RandomForestKernel:
    """Without a warning of trees that have seen most targets: what is chosen by held-out rows allows for it."""
    kernel = RandomForestKernel(heights=heights)
    kernel.partition = ForestPartition(ensemble)
    return _in_float32(kernel)


def _most_samples(num_rows: int) -> int:
    return max(_MOST_SAMPLES, int(_MOST_SHARE * num_rows))


def _in_float32(kernel: AnyPartitionKernel) -> AnyPartitionKernel:
    """
    Sums over clusters in float32: five times as fast. Rounding is a ten-millionth of a part's largest eigenvalue, which
    the noise, a ten-thousandth of the targets' variance at least, exceeds unless a part has a hundred times that
    variance.
    """
    kernel.sum_dtype = torch.float32
    return kernel


def smooth_part(x: Tensor, lengthscales: Tensor, random: np.random.RandomState) -> LandmarkKernel:
    """
    A Matern-3/2 kernel through random landmarks, of unit scale.

    :param x: `N x D` standardized rows.
    :param lengthscales: `D` lengthscales.
    :param random: Source of the draws.
    """
    wanted = min(_MOST_LANDMARKS, max(_FEWEST_LANDMARKS, int(_SHARE * len(x))), max(1, _MOST_LOADINGS // len(x)))
    num_landmarks = min(wanted, torch.unique(x, dim=0).shape[0])
    return LandmarkKernel.from_kernel(_matern(lengthscales), choose_landmarks(x.double(), num_landmarks, random))


def _matern(lengthscales: Tensor) -> MaternKernel:
    kernel = MaternKernel(nu=1.5, ard_num_dims=len(lengthscales)).double()
    kernel.lengthscale = lengthscales
    return kernel.requires_grad_(False)


def _linear(num_columns: int) -> LinearKernel:
    kernel = LinearKernel()
    kernel.variance = 1 / num_columns
    return kernel


def _rough(
    x: Tensor, lengthscales: Tensor, widths: Sequence[float], random: np.random.RandomState
) -> PartitionMixtureKernel:
    r"""
    Mondrian trees of columns in units of their lengthscales, rotated at random, for several widths l: with many trees
    a kernel of the distance r only, about the mean of :math:`e^{-r / l}` with weights in proportion to l.
    """
    (num_rows, num_columns), kernels = x.shape, []
    num_trees = _num_rough_trees(num_rows)
    for width in widths:
        maps = rotations(num_trees, num_columns, random).to(x) / lengthscales.unsqueeze(-1)
        lifetime = 1 / (width * _mean_manhattan_norm(num_columns))
        kernels.append(MondrianKernel(x, num_trees, lifetime=lifetime, projection=maps, random_state=random))
    return _rough_mixture(kernels, widths)


def _num_rough_trees(num_rows: int) -> int:
    return min(_NUM_ROUGH_TREES, max(_FEWEST_ROUGH_TREES, _MOST_VISITS // num_rows))


def _rough_mixture(kernels: list[MondrianKernel], widths: Sequence[float]) -> PartitionMixtureKernel:
    return _in_float32(PartitionMixtureKernel(kernels, widths, learn_weights=False))


def _mean_manhattan_norm(num_columns: int) -> float:
    """The mean sum of absolute coordinates over the unit sphere."""
    log_ratio = math.lgamma(num_columns / 2) - math.lgamma((num_columns + 1) / 2)
    return num_columns * math.exp(log_ratio) / math.sqrt(math.pi)
