"""The parts of the default kernel and classifier, records of one table at the end: to add a part, add its record."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import sklearn
import torch
from gpytorch.kernels import Kernel, LinearKernel, MaternKernel
from numpy.typing import NDArray
from sklearn.ensemble import BaseEnsemble, GradientBoostingRegressor
from sklearn.tree import DecisionTreeRegressor
from torch import Tensor

from gpytorch_partition.inputs.numbers import ShapedBuffers, bits_of, floats_of
from gpytorch_partition.inputs.standardization import expanded
from gpytorch_partition.kernels import (
    EncodedKernel,
    LandmarkKernel,
    LocalLinearKernel,
    MondrianKernel,
    PartitionKernel,
    PartitionMixtureKernel,
    RandomForestKernel,
)
from gpytorch_partition.kernels.landmark_kernel import choose_landmarks
from gpytorch_partition.partitions.forest import ForestPartition
from gpytorch_partition.partitions.grown_forest import grow_forest
from gpytorch_partition.partitions.mondrian.projections import rotations
from gpytorch_partition.presets.data import PartInputs
from gpytorch_partition.presets.options import Setup
from gpytorch_partition.tables import NumberView

_LEARNING_RATE = 0.1  # of boosted trees of several targets
_MOST_EXCESS = 2.0  # of far values over their logarithms, in the largest one of training rows
_SHARE_OF_COLUMNS = 0.5  # share of the columns that boosted trees try at each split

AnyPartitionKernel = TypeVar("AnyPartitionKernel", bound=PartitionKernel)


@dataclass(frozen=True)
class Part:
    """A kernel of unit scale that the default kernel may have as a term."""

    name: str  # in weights, choices and states
    build: Callable[[PartInputs], Kernel]
    unfitted: Callable[[int], Kernel]  # builds a kernel for `load_state_dict` from the number of columns
    compares_numbers: bool = True  # sees a NumberView where rows have categories or missing cells; else knows both
    is_rough: bool = False  # only rough fields have it
    is_given: bool = False  # only models of a user's ensemble have it
    is_of_far_values: bool = False  # takes the place of the linear part where columns have far values
    # For rough fields, the limit for many trees: covariances (n x n) from standardized rows and lengthscales.
    limit: Callable[[Tensor, Tensor], Tensor] | None = None


def new_parts(inputs: PartInputs, names: Collection[str] | None = None) -> dict[str, Kernel]:
    """Return new parts of unit scale, by name: those of the given names, or (None) those of the usual sum."""
    if names is None:
        others = {"linear": FAR_LINEAR} if inputs.has_far_values else {}
        names = [others.get(name, name) for name in usual_parts()]
    wanted = [part for part in PARTS if part.name in names]
    # The rows are checked already; a check for every tree would take a tenth of the time for a thousand rows.
    with sklearn.config_context(assume_finite=True):
        if not inputs.has_view:
            return {part.name: part.build(inputs) for part in wanted}
        view = inputs.view()
        seen = inputs.seen(view)
        return {
            part.name: EncodedKernel(part.build(seen), view) if part.compares_numbers else part.build(inputs)
            for part in wanted
        }


def usual_parts() -> tuple[str, ...]:
    """Return the names of the parts of the usual sum."""
    return tuple(part.name for part in PARTS if not (part.is_rough or part.is_given or part.is_of_far_values))


def unfitted_parts(num_columns: int, view_columns: int | None) -> dict[str, Kernel]:
    """Return all parts for `load_state_dict`, by name, for rows of so many columns, and views of `view_columns`."""
    if view_columns is None:
        return {part.name: part.unfitted(num_columns) for part in PARTS}
    return {
        part.name: EncodedKernel(part.unfitted(view_columns)) if part.compares_numbers else part.unfitted(num_columns)
        for part in PARTS
    }


# Trees.


def _forest(inputs: PartInputs, share: float, min_samples_leaf: int, **others: Any) -> RandomForestKernel:
    wanted = max(int(share * len(inputs.x)), inputs.setup.options.fewest_tree_rows)
    num_samples = min(wanted, _most_samples(inputs), len(inputs.x))
    trees = {
        "num_trees": inputs.setup.options.num_trees,
        "min_samples_leaf": min_samples_leaf,
        **others,
        **inputs.setup.growing,
    }
    trees |= {"categories": tuple(inputs.categories), "sample_weight": inputs.tree_weights, "groups": inputs.groups}
    return _kernel_of(grow_forest(inputs.grown_x, inputs.y, max_samples=num_samples, **trees), "all")


def _slopes(inputs: PartInputs) -> LocalLinearKernel:
    forest = _forest(inputs, share=0.3, min_samples_leaf=15, num_trees=inputs.setup.options.num_slope_trees)
    return LocalLinearKernel(forest, inputs.x.shape[1])


def _boosted(inputs: PartInputs, num_trees: int, heights: str, share: float, max_depth: int) -> RandomForestKernel:
    share = min(share, _most_samples(inputs) / len(inputs.x))
    if inputs.y.dim() == 2:
        several = VectorBoosting(num_trees, max_depth, share, inputs.setup.random)
        return _kernel_of(several.fit(inputs.grown_x.float().cpu().numpy(), inputs.y.cpu().numpy()), heights)
    draws = {"subsample": share, "max_features": _SHARE_OF_COLUMNS, "random_state": inputs.setup.random}
    boosting = GradientBoostingRegressor(n_estimators=num_trees, max_depth=max_depth, **draws)
    # Rounded, so that other units change no split, and thereby all later trees.
    weights = None if inputs.tree_weights is None else inputs.tree_weights.cpu().numpy()
    boosting.fit(inputs.grown_x.float().cpu().numpy(), inputs.y.float().cpu().numpy(), sample_weight=weights)
    return _kernel_of(boosting, heights)


class VectorBoosting(BaseEnsemble):
    """
    An ensemble by stochastic gradient boosting (Friedman 2002) of the sum of squared errors of `T` targets.

    Every tree splits for all targets, has a mean of each in its leaves, and is grown on a share of the rows.

    Example:
        >>> x = np.random.RandomState(0).rand(200, 2)
        >>> y = np.stack([x[:, 0], x[:, 0] - x[:, 1]], 1)
        >>> boosting = VectorBoosting(50, 3, 0.5, np.random.RandomState(0)).fit(x, y)
        >>> len(boosting.estimators_), boosting.estimators_[0].n_outputs_
        (50, 2)
    """

    def __init__(self, n_estimators: int, max_depth: int, subsample: float, random: Any) -> None:
        super().__init__(DecisionTreeRegressor(), n_estimators=n_estimators)
        self.limits = {"max_depth": max_depth, "max_features": _SHARE_OF_COLUMNS}
        self.subsample, self.random = subsample, random

    def fit(self, x: NDArray[np.float32], y: NDArray[np.float64]) -> VectorBoosting:
        """Grow the trees on `N x D` rows and `N x T` targets."""
        self.n_features_in_, self.estimators_ = x.shape[1], []
        residuals, size = y - y.mean(0), max(1, int(self.subsample * len(x)))
        for _ in range(self.n_estimators):
            rows = self.random.choice(len(x), size, replace=False)
            tree = DecisionTreeRegressor(random_state=self.random, **self.limits)
            residuals = residuals - _LEARNING_RATE * tree.fit(x[rows], residuals[rows]).predict(x)
            self.estimators_.append(tree)
        return self


def _most_samples(inputs: PartInputs) -> int:
    return max(inputs.setup.options.most_tree_rows, int(inputs.setup.options.most_tree_share * len(inputs.x)))


def _kernel_of(ensemble: Any, heights: str) -> RandomForestKernel:
    """The kernel, without an OverconfidenceWarning since weights are chosen on held-out rows."""
    kernel = RandomForestKernel(heights=heights)
    kernel.partition = ForestPartition(ensemble)
    return _in_float32(kernel)


def _given(inputs: PartInputs) -> RandomForestKernel:
    refit, original = inputs.setup.refit, inputs.original
    assert refit is not None
    assert original is not None
    return _kernel_of(refit(inputs.x.cpu().numpy(), original.cpu().numpy(), inputs.setup.random), "all")


def _unfitted_trees(_: int, heights: str = "all") -> RandomForestKernel:
    return _in_float32(RandomForestKernel(heights=heights))


def _in_float32(kernel: AnyPartitionKernel) -> AnyPartitionKernel:
    """
    Sum over clusters in float32, which is five times as fast.

    Rounding is a ten-millionth of a part's largest eigenvalue. The noise, a ten-thousandth of the targets' variance at
    least, exceeds it unless a part has a hundred times that variance (`DefaultGP.sum_precisely_if_needed`).
    """
    kernel.sum_dtype = torch.float32
    return kernel


def smooth_part(x: Tensor, lengthscales: Tensor, setup: Setup) -> LandmarkKernel:
    """Return a Matern-3/2 kernel through random inducing points of standardized rows, of unit scale."""
    wanted = setup.options.num_inducing_points(len(x))
    points = choose_landmarks(x.double(), min(wanted, torch.unique(x, dim=0).shape[0]), setup.random)
    return LandmarkKernel.from_kernel(_matern(lengthscales), points)


def _smooth(inputs: PartInputs) -> LandmarkKernel:
    assert inputs.lengthscales is not None
    return smooth_part(inputs.x, inputs.lengthscales, inputs.setup)


def _matern(lengthscales: Tensor) -> MaternKernel:
    kernel = MaternKernel(nu=1.5, ard_num_dims=len(lengthscales)).double()
    kernel.lengthscale = lengthscales
    return kernel.requires_grad_(False)


def _linear(num_columns: int, kernel: LinearKernel | None = None) -> LinearKernel:
    kernel = LinearKernel() if kernel is None else kernel
    kernel.variance = 1 / num_columns
    return kernel


class FarLinearKernel(LinearKernel):
    """
    Multiply standardized columns, and as columns of their own what far values are beyond their logarithms.

    So a target that is linear in a column with a long tail is found, and of a wrong cell nothing is learned but its own
    row. The excess is in units of its root mean square. Beyond twice the largest one of the rows, it is in one more
    column, which is 0 in all of them: there means end, and variances grow.

    :param x: `N x D` standardized rows. (Default: None, unfitted.)
    """

    def __init__(self, x: Tensor | None = None) -> None:
        super().__init__()
        self.excess = _Excess(x)

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Any:
        return super().forward(self.excess(x1), self.excess(x2), diag=diag, **params)


class _Excess(ShapedBuffers):
    scales: Tensor  # (D,) bit patterns of float64; 0 for columns without far values
    most: Tensor  # (D,) largest excess that means depend on

    def __init__(self, x: Tensor | None) -> None:
        super().__init__()
        excess = torch.empty(1, 0, dtype=torch.float64) if x is None else (expanded(x) - x).double()
        self.register_buffer("scales", bits_of(excess.square().mean(0).sqrt()))
        self.register_buffer("most", bits_of(_MOST_EXCESS * excess.abs().amax(0)))

    def forward(self, x: Tensor) -> Tensor:
        scales, most = floats_of(self.scales).to(x), floats_of(self.most).to(x)
        has_excess = scales > 0
        excess, most = (expanded(x) - x)[..., has_excess], most[has_excess]
        known = excess.clamp(-most, most)
        return torch.cat([x, known / scales[has_excess], (excess - known) / scales[has_excess]], -1)


# Rough parts.


def _rough_part(name: str, *widths: float) -> Part:
    return Part(
        name,
        partial(_rough, widths=widths),
        lambda _: _rough_mixture([MondrianKernel() for _ in widths], widths),
        is_rough=True,
        limit=partial(_mean_exponential, widths=widths),
    )


def _rough(inputs: PartInputs, widths: Sequence[float]) -> PartitionMixtureKernel:
    """
    Grow Mondrian trees of columns in units of their lengthscales, rotated at random, for several widths l.

    With many trees the kernel depends on the distance r only, about as the mean of :math:`e^{-r / l}` with weights in
    proportion to l.
    """
    assert inputs.lengthscales is not None
    (num_rows, num_columns), random, kernels = inputs.x.shape, inputs.setup.random, []
    num_trees = inputs.setup.options.num_rough(num_rows)
    for width in widths:
        maps = rotations(num_trees, num_columns, random).to(inputs.x) / inputs.lengthscales.unsqueeze(-1)
        lifetime = 1 / (width * _mean_manhattan_norm(num_columns))
        kernels.append(MondrianKernel(inputs.x, num_trees, lifetime=lifetime, projection=maps, random_state=random))
    return _rough_mixture(kernels, widths)


def _rough_mixture(kernels: list[MondrianKernel], widths: Sequence[float]) -> PartitionMixtureKernel:
    return _in_float32(PartitionMixtureKernel(kernels, widths, learn_weights=False))


def _mean_manhattan_norm(num_columns: int) -> float:
    log_ratio = math.lgamma(num_columns / 2) - math.lgamma((num_columns + 1) / 2)
    return num_columns * math.exp(log_ratio) / math.sqrt(math.pi)


def _mean_exponential(x: Tensor, lengthscales: Tensor, widths: Sequence[float]) -> Tensor:
    points = x / lengthscales
    distances = torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")
    return sum(
        (width / sum(widths) * torch.exp(-distances / width) for width in widths), start=torch.zeros_like(distances)
    )


ENSEMBLE, FAR_LINEAR = "ensemble", "far_linear"
SMOOTH = Part("smooth", _smooth, lambda num_columns: LandmarkKernel.from_kernel(_matern(torch.ones(num_columns)), None))

# Forests of most rows, and of trees that ignore the targets; boosted trees, deep ones (their leaves) and shallow ones
# (at all heights); trees with few leaves and a slope in each. Seeds depend on this order.
PARTS = (
    Part("forest", partial(_forest, share=0.632, min_samples_leaf=1), _unfitted_trees, compares_numbers=False),
    Part(
        "random_trees",
        partial(_forest, share=0.5, min_samples_leaf=2, max_features=1),
        _unfitted_trees,
        compares_numbers=False,
    ),
    Part(
        "boosted",
        lambda inputs: _boosted(inputs, inputs.setup.options.num_boosted_trees, "leaf", share=0.3, max_depth=5),
        partial(_unfitted_trees, heights="leaf"),
    ),
    Part(
        "shallow_boosted",
        lambda inputs: _boosted(inputs, inputs.setup.options.num_shallow_boosted_trees, "all", share=0.5, max_depth=3),
        _unfitted_trees,
    ),
    Part("slopes", _slopes, lambda num_columns: LocalLinearKernel(_unfitted_trees(num_columns), num_columns)),
    SMOOTH,
    Part("linear", lambda inputs: _linear(inputs.x.shape[1]), _linear, limit=lambda x, _: x @ x.T / x.shape[1]),
    Part(
        FAR_LINEAR,
        lambda inputs: _linear(inputs.x.shape[1], FarLinearKernel(inputs.x)),
        lambda num_columns: _linear(num_columns, FarLinearKernel()),
        is_of_far_values=True,
    ),
    _rough_part("rough", 2.0, 1 / 2, 1 / 8, 1 / 32),
    _rough_part("rough_short", 1 / 32),
    Part(ENSEMBLE, _given, _unfitted_trees, compares_numbers=False, is_given=True),
)
# The parts of a rough field, and the parts that only a rough field has.
ROUGH_FIELD = tuple(part.name for part in PARTS if part.limit is not None)
ROUGH = tuple(part.name for part in PARTS if part.is_rough)
# Lengthscales of the smooth parts, in square roots of the number of columns. All columns have the same: a lengthscale
# for each of them, learned on the classes, would take most of the time of a fit.
_WIDTHS = {"smooth_short": 0.5, "smooth_long": 2.0}


def class_parts(inputs: PartInputs) -> dict[str, Kernel]:
    """Return kernels of unit scale for a classifier to weigh; targets are `N` zeros and ones, or `N x k`."""
    trees = new_parts(inputs, ("forest", "random_trees"))
    if not inputs.has_view:
        return trees | _smooth_and_linear(inputs)
    view = NumberView(inputs.x, inputs.categories, inputs.y)
    seen = replace(inputs, x=view(inputs.x), categories={}, has_view=False)
    return trees | {name: EncodedKernel(part, view) for name, part in _smooth_and_linear(seen).items()}


def _smooth_and_linear(inputs: PartInputs) -> dict[str, Kernel]:
    num_columns = inputs.x.shape[1]
    unit = torch.full((num_columns,), num_columns**0.5, dtype=torch.float64)
    smooth = {name: SMOOTH.build(replace(inputs, lengthscales=width * unit)) for name, width in _WIDTHS.items()}
    return new_parts(inputs, ("linear",)) | smooth
