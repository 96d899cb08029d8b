"""
The parts of the default kernel, records of one table at the end: forests, boosted trees, slopes, and smooth, linear and
rough parts. To add a part, add its record.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import sklearn
import torch
from gpytorch.kernels import Kernel, LinearKernel, MaternKernel
from sklearn.ensemble import GradientBoostingRegressor
from torch import Tensor

from gpytorch_partition.inputs.row_weights import RowWeights
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
from gpytorch_partition.presets.data import TrainingData
from gpytorch_partition.presets.folds import Blocks
from gpytorch_partition.presets.options import Options, Setup
from gpytorch_partition.presets.vector_boosting import VectorBoosting
from gpytorch_partition.tables import NumberView, view_in_folds

AnyPartitionKernel = TypeVar("AnyPartitionKernel", bound=PartitionKernel)


@dataclass(frozen=True, eq=False)
class PartInputs:
    """
    The inputs from which a part is built.

    :param x: `N x D` standardized rows; codes of categories are unchanged.
    :param y: `N` targets, or `N x T` of several.
    :param lengthscales: `D` lengthscales of the smooth part, or one per column of its view; None until they are
        learned.
    :param setup: Source of the draws, and the options.
    :param categories: Numbers of levels of columns of codes, by column number. (Default: none.)
    :param has_view: Whether rows have categories or missing cells, so that parts that compare numbers see a view of
        them. (Default: no.)
    :param weights: Weights of the rows. (Default: None, 1.)
    :param cross_fitted: Rows on which trees are grown, where these are a view. (Default: None, `x`.)
    :param original: `N` targets in the units of a user's ensemble. (Default: None, no ensemble.)
    :param blocks: Groups or times by which rows are held out. (Default: None, single rows.)
    :param new_x: The rows (`N x D`) as held-out ones, in which rare levels are missing cells. (Default: None, `x`.)
    """

    x: Tensor
    y: Tensor
    lengthscales: Tensor | None
    setup: Setup
    categories: Mapping[int, int] = field(default_factory=dict)
    has_view: bool = False
    weights: RowWeights | None = None
    cross_fitted: Tensor | None = None
    original: Tensor | None = None
    blocks: Blocks | None = None
    new_x: Tensor | None = None

    @classmethod
    def of(cls, data: TrainingData, setup: Setup, lengthscales: Tensor | None = None) -> PartInputs:
        """Return the inputs of parts for training data."""
        return cls(
            data.x,
            data.y,
            lengthscales,
            setup,
            data.categories,
            data.has_view,
            weights=data.weights,
            original=data.original,
            blocks=data.blocks,
        )

    def of_rows(self, rows: Tensor | np.ndarray | slice, **changes: Any) -> PartInputs:
        """
        Return the inputs of some rows.

        :param rows: Numbers of the rows.
        :param changes: Values of other fields.
        """
        weights = None if self.weights is None else self.weights.of_rows(rows)
        original = None if self.original is None else self.original[rows]
        blocks = None if self.blocks is None else self.blocks.of_rows(rows)
        new_x = None if self.new_x is None else self.new_x[rows]
        changes |= {"weights": weights, "original": original, "blocks": blocks, "new_x": new_x}
        return replace(self, x=self.x[rows], y=self.y[rows], **changes)

    def x_without(self, held_out: np.ndarray) -> Tensor:
        """Return the rows, with held-out ones as new rows."""
        if self.new_x is None:
            return self.x
        found = self.x.clone()
        found[held_out] = self.new_x[held_out]
        return found

    @property
    def tree_weights(self) -> Tensor | None:
        """Return the weights of the rows in trees and views (`N`)."""
        return None if self.weights is None else self.weights.capped

    @property
    def groups(self) -> Tensor | None:
        """Return groups of the rows, or stretches of time (`N`), which inner folds must not split."""
        return None if self.blocks is None else self.blocks.groups

    @property
    def grown_x(self) -> Tensor:
        """Return the rows on which trees are grown."""
        return self.x if self.cross_fitted is None else self.cross_fitted

    def seen(self, view: NumberView) -> PartInputs:
        """Return the inputs of parts that see a view."""
        return replace(self, x=view(self.x), cross_fitted=self.seen_in_folds(), categories={}, has_view=False)

    def seen_in_folds(self) -> Tensor:
        """Return the view of the rows (`N x k`) for learning from the same targets."""
        view, rows = view_in_folds(self.x, self.categories, self.y, self.setup.random, self.tree_weights, self.groups)
        return view(rows)


@dataclass(frozen=True)
class Part:
    """
    A kernel of unit scale that the default kernel may have as a term.

    :param name: Name of the part in weights, choices and states.
    :param build: Function that builds the kernel from its inputs.
    :param unfitted: Function that builds a kernel for `load_state_dict` from the number of columns.
    :param compares_numbers: Whether it sees a :class:`~gpytorch_partition.tables.NumberView` where rows have categories
        or missing cells; else it handles both itself. (Default: yes.)
    :param is_rough: Whether only rough fields have it. (Default: no.)
    :param is_given: Whether only models of a user's ensemble have it. (Default: no.)
    :param limit: For parts of rough fields, the kernel's limit for many trees: covariances (`n x n`) from standardized
        rows (`n x D`) and lengthscales (`D`). (Default: None, for all others.)
    """

    name: str
    build: Callable[[PartInputs], Kernel]
    unfitted: Callable[[int], Kernel]
    compares_numbers: bool = True
    is_rough: bool = False
    is_given: bool = False
    limit: Callable[[Tensor, Tensor], Tensor] | None = None


def new_parts(inputs: PartInputs, names: Collection[str] | None = None) -> dict[str, Kernel]:
    """
    Return new parts, of unit scale, by name.

    :param inputs: Inputs of the parts.
    :param names: Names of the parts wanted. (Default: those of the usual sum.)
    """
    names = usual_parts() if names is None else names
    wanted = [part for part in PARTS if part.name in names]
    # The rows are checked already; a check for every tree would take a tenth of the time for a thousand rows.
    with sklearn.config_context(assume_finite=True):
        if not inputs.has_view:
            return {part.name: part.build(inputs) for part in wanted}
        view = NumberView(inputs.x, inputs.categories, inputs.y, weights=inputs.tree_weights)
        seen = inputs.seen(view)
        return {
            part.name: EncodedKernel(part.build(seen), view) if part.compares_numbers else part.build(inputs)
            for part in wanted
        }


def usual_parts() -> tuple[str, ...]:
    """Return the names of the parts of the usual sum."""
    return tuple(part.name for part in PARTS if not (part.is_rough or part.is_given))


def unfitted_parts(num_columns: int, view_columns: int | None = None) -> dict[str, Kernel]:
    """Return all parts for `load_state_dict`, by name, for a number of columns, and of columns of their view if any."""
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
    """Boosted trees, each of a random share of the rows (Friedman 2002)."""
    share = min(share, _most_samples(inputs) / len(inputs.x))
    if inputs.y.dim() == 2:
        several = VectorBoosting(num_trees, max_depth, share, 0.5, inputs.setup.random)
        return _kernel_of(several.fit(inputs.grown_x.float().cpu().numpy(), inputs.y.cpu().numpy()), heights)
    draws = {"subsample": share, "max_features": 0.5, "random_state": inputs.setup.random}
    boosting = GradientBoostingRegressor(n_estimators=num_trees, max_depth=max_depth, **draws)
    # Rounded, so that other units change no split, and thereby all later trees.
    weights = None if inputs.tree_weights is None else inputs.tree_weights.cpu().numpy()
    boosting.fit(inputs.grown_x.float().cpu().numpy(), inputs.y.float().cpu().numpy(), sample_weight=weights)
    return _kernel_of(boosting, heights)


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
    Sums over clusters in float32, which is five times as fast.

    Rounding is a ten-millionth of a part's largest eigenvalue. The noise, a ten-thousandth of the targets' variance at
    least, exceeds it unless a part has a hundred times that variance; a model of few rows then computes sums in float64
    (`DefaultGP.sum_precisely_if_needed`).
    """
    kernel.sum_dtype = torch.float32
    return kernel


def smooth_part(x: Tensor, lengthscales: Tensor, setup: Setup) -> LandmarkKernel:
    """
    Return a Matern-3/2 kernel through random inducing points, of unit scale.

    :param x: `N x D` standardized rows.
    :param lengthscales: `D` lengthscales.
    :param setup: Source of the draws, and the options.
    """
    wanted = num_inducing_points(len(x), setup.options)
    points = choose_landmarks(x.double(), min(wanted, torch.unique(x, dim=0).shape[0]), setup.random)
    return LandmarkKernel.from_kernel(_matern(lengthscales), points)


def num_inducing_points(num_rows: int, options: Options) -> int:
    """Return the number of inducing points for a number of rows, if that many are distinct."""
    share = max(options.fewest_inducing_points, int(options.inducing_share * num_rows))
    return min(options.most_inducing_points, share, max(1, options.most_loadings // num_rows))


def _smooth(inputs: PartInputs) -> LandmarkKernel:
    assert inputs.lengthscales is not None
    return smooth_part(inputs.x, inputs.lengthscales, inputs.setup)


def _matern(lengthscales: Tensor) -> MaternKernel:
    kernel = MaternKernel(nu=1.5, ard_num_dims=len(lengthscales)).double()
    kernel.lengthscale = lengthscales
    return kernel.requires_grad_(False)


def _linear(num_columns: int) -> LinearKernel:
    kernel = LinearKernel()
    kernel.variance = 1 / num_columns
    return kernel


def _linear_covariances(x: Tensor, _: Tensor) -> Tensor:
    return x @ x.T / x.shape[1]


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
    r"""
    Mondrian trees of columns in units of their lengthscales, rotated at random, for several widths l.

    With many trees the kernel depends on the distance r only, about as the mean of :math:`e^{-r / l}` with weights in
    proportion to l.
    """
    assert inputs.lengthscales is not None
    (num_rows, num_columns), random, kernels = inputs.x.shape, inputs.setup.random, []
    num_trees = _num_rough_trees(num_rows, inputs.setup.options)
    for width in widths:
        maps = rotations(num_trees, num_columns, random).to(inputs.x) / inputs.lengthscales.unsqueeze(-1)
        lifetime = 1 / (width * _mean_manhattan_norm(num_columns))
        kernels.append(MondrianKernel(inputs.x, num_trees, lifetime=lifetime, projection=maps, random_state=random))
    return _rough_mixture(kernels, widths)


def _num_rough_trees(num_rows: int, options: Options) -> int:
    return min(options.num_rough_trees, max(options.fewest_rough_trees, options.most_rough_visits // num_rows))


def _rough_mixture(kernels: list[MondrianKernel], widths: Sequence[float]) -> PartitionMixtureKernel:
    return _in_float32(PartitionMixtureKernel(kernels, widths, learn_weights=False))


def _mean_manhattan_norm(num_columns: int) -> float:
    """The mean sum of absolute coordinates over the unit sphere."""
    log_ratio = math.lgamma(num_columns / 2) - math.lgamma((num_columns + 1) / 2)
    return num_columns * math.exp(log_ratio) / math.sqrt(math.pi)


def _mean_exponential(x: Tensor, lengthscales: Tensor, widths: Sequence[float]) -> Tensor:
    points = x / lengthscales
    distances = torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")
    return sum(
        (width / sum(widths) * torch.exp(-distances / width) for width in widths), start=torch.zeros_like(distances)
    )


ENSEMBLE = "ensemble"
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
    Part("linear", lambda inputs: _linear(inputs.x.shape[1]), _linear, limit=_linear_covariances),
    _rough_part("rough", 2.0, 1 / 2, 1 / 8, 1 / 32),
    _rough_part("rough_short", 1 / 32),
    Part(ENSEMBLE, _given, _unfitted_trees, compares_numbers=False, is_given=True),
)
# The parts of a rough field, and the parts that only a rough field has.
ROUGH_FIELD = tuple(part.name for part in PARTS if part.limit is not None)
ROUGH = tuple(part.name for part in PARTS if part.is_rough)
