r"""
Weights of the tree depths of a random forest kernel, learned by maximum marginal likelihood from counts of clusters.

Cut at depth d, m trees have the kernel :math:`K_d`, and :math:`K(u) = \sum_d u_d K_d = Z S(u) Z^\top` with :math:`u \ge
0, \sum_d u_d = 1` is the random forest kernel with the height d drawn from u (Davies & Ghahramani 2014, section 4.3.1,
draw it uniformly). S(u) are path sums, linear in u. With :math:`G = Z^\top Z = Q \Gamma Q^\top` (rank r) and :math:`R =
Q \Gamma^{1/2}`, the columns of :math:`U = Z Q \Gamma^{-1/2}` are orthonormal and :math:`Z = U R^\top`, so that

.. math::

    s K(u) + \sigma^2 I = U B U^\top + \sigma^2 (I - U U^\top), \qquad B = s R^\top S(u) R + \sigma^2 I.

The evidence of N rows is that of the r numbers :math:`U^\top y = \Gamma^{-1/2} Q^\top Z^\top y` with the covariance B,
and of N - r numbers of pure noise whose squares sum up to :math:`y^\top y - |U^\top y|^2`.

All trees share the weights. Weights relative to the heights of each tree (`softmax_node_weights`) had log marginal
likelihoods .9 to 3.1 nats lower on two of five regression sets.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from gpytorch_partition.callers import level_of_caller
from gpytorch_partition.clusters.tree_layout import TreeLayout, level_node_weights
from gpytorch_partition.inference.evidence.profile_likelihood import Bounds, Maximum
from gpytorch_partition.inference.spaces.feature_space import FeatureSpace
from gpytorch_partition.linalg.factors import stable_cholesky
from gpytorch_partition.linalg.parallel import minimize_lbfgsb
from gpytorch_partition.operators.cluster_operators.cluster_operator import FlatLinearOperator
from gpytorch_partition.operators.cluster_operators.path_sum_linear_operator import PathSumLinearOperator
from gpytorch_partition.progress import progress

# L-BFGS stops when a step gains less than this, in nats, or as a share of all that was gained if that is more.
_LEAST_GAIN = 1e-4


class LevelEvidence:
    r"""
    The exact log marginal likelihood as a differentiable function of level weights, outputscale and noise.

    Building it costs one eigendecomposition of the counts; an evaluation with its gradient :math:`O(p^3)` as well. It
    holds `12 p^2` bytes for p leaves, and `120 p^2` while it is built.

    :param counts: `p x p` G, float64.
    :param sums: `p x 2` :math:`Z^\top [y, 1]`; `squares` are :math:`[y, 1]^\top [y, 1]`.
    """

    def __init__(self, counts: Tensor, sums: Tensor, squares: Tensor, layout: TreeLayout) -> None:
        space = FeatureSpace(counts, FlatLinearOperator(counts.new_ones(1), num_clusters=len(counts)))
        measure, found = space.measure(sums, squares), space.values > 0
        self.num_rows, self.num_trees = measure.num_rows, layout.num_trees
        self.shared_levels = _shared_levels(layout)
        self.root = space.basis[:, found] * space.values[found].sqrt()  # R
        seen, unseen = torch.from_numpy(measure.coefficients).tensor_split([self.root.shape[1]])
        self.seen = seen  # U^T [y, 1]
        self.unseen_squares = unseen.mT @ unseen

    def __call__(self, level_weights: Tensor, outputscale: Tensor, noise: Tensor, mean: float | None = None) -> Tensor:
        """Return the log marginal likelihood of all rows together, in nats; None stands for the most likely mean."""
        rank = self.root.shape[1]
        covariance = outputscale * self._gram(level_weights) + noise * torch.eye(rank, dtype=noise.dtype)
        triangle = stable_cholesky(covariance)
        white = torch.linalg.solve_triangular(triangle, self.seen, upper=False)
        forms = white.mT @ white + self.unseen_squares / noise  # of y and 1, in the inverse covariance
        mean = forms[0, 1] / forms[1, 1] if mean is None else mean
        form = forms[0, 0] - 2 * mean * forms[0, 1] + mean**2 * forms[1, 1]
        log_determinant = 2 * triangle.diagonal().log().sum() + (self.num_rows - rank) * noise.log()
        return -0.5 * (form + log_determinant + self.num_rows * float(np.log(2 * np.pi)))

    def _gram(self, level_weights: Tensor) -> Tensor:
        """Return R^T S R, with S from a table: path sums of p columns take five times as long."""
        shares = torch.cat([level_weights.new_zeros(1), level_weights.cumsum(0)]) / self.num_trees
        operator = shares.index_select(0, self.shared_levels.view(-1)).view_as(self.shared_levels)
        return self.root.mT @ (operator @ self.root)


def _shared_levels(layout: TreeLayout) -> Tensor:
    """Return for each pair of leaves the number of depths 0 ... H at which they share a cluster (`p x p`, int32)."""
    nodes = PathSumLinearOperator((~layout.is_auxiliary).double(), layout=layout).to_dense()
    return nodes.fill_diagonal_(int(layout.heights.max()) + 1).to(torch.int32)


def maximize_level_weights(
    evidence: LevelEvidence, start: Maximum, level_weights: Tensor, bounds: Bounds, max_iterations: int = 100
) -> Tensor:
    """
    Return the level weights (`H + 1`, float64) with the largest marginal likelihood, 0 or more, that sum to 1.

    L-BFGS-B searches the weights, the outputscale and the noise, from a start; the mean has a closed form. The
    likelihood may have several maxima: the one uphill from the start is found. A
    :class:`~sklearn.exceptions.ConvergenceWarning` is given if the iterations do not suffice.
    """
    space, steps = _Coordinates(evidence), iter(progress(range(max_iterations), "learning level weights"))
    found = minimize_lbfgsb(
        _loss(evidence, space, start.log_likelihood, bounds.mean),
        space.position(level_weights, start.outputscale, start.noise),
        bounds=[*[(None, None)] * len(level_weights), *space.limits(bounds)],
        callback=lambda _: next(steps, None),
        options={"maxiter": max_iterations, "ftol": _LEAST_GAIN, "gtol": 0},
    )
    if found.nit >= max_iterations:
        message = f"level weights were still improving after {found.nit} iterations: raise max_iterations."
        warnings.warn(message, ConvergenceWarning, stacklevel=level_of_caller())
    return space.values(torch.from_numpy(found.x))[0]


class _Coordinates:
    """
    The coordinates of L-BFGS: softmax coordinates of the weights, then the logarithms of outputscale and noise.

    The logarithms are in units of their standard errors: no direction is far steeper than the others.
    """

    def __init__(self, evidence: LevelEvidence) -> None:
        self.units = torch.tensor([2 / evidence.root.shape[1], 2 / evidence.num_rows], dtype=torch.float64).sqrt()

    def position(self, level_weights: Tensor, outputscale: float, noise: float) -> NDArray:
        logarithms = torch.tensor([outputscale, noise], dtype=torch.float64).log()
        return torch.cat([level_weights.log(), logarithms / self.units]).numpy()

    def values(self, position: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        outputscale, noise = (position[-2:] * self.units).exp()
        return position[:-2].softmax(0), outputscale, noise

    def limits(self, bounds: Bounds) -> list[tuple[float, float]]:
        intervals = torch.tensor([bounds.outputscale, bounds.noise], dtype=torch.float64)
        low, high = (intervals.log() / self.units.unsqueeze(-1)).unbind(-1)
        return list(zip(low.tolist(), high.tolist()))


def _loss(
    evidence: LevelEvidence, space: _Coordinates, origin: float, mean: float | None
) -> Callable[[NDArray], tuple[float, NDArray]]:
    def loss(position: NDArray) -> tuple[float, NDArray]:
        point = torch.tensor(position, requires_grad=True)
        with torch.enable_grad():
            value = origin - evidence(*space.values(point), mean)
        return value.item(), torch.autograd.grad(value, point)[0].numpy()

    return loss


def level_operator(layout: TreeLayout, level_weights: Tensor) -> PathSumLinearOperator:
    """Return S(u), the covariance of the effects of leaves (`p x p`), from weights u of the depths (`H + 1`)."""
    return PathSumLinearOperator(level_node_weights(layout, level_weights) / layout.num_trees, layout=layout)


def checked_level_weights(level_weights: Tensor, layout: TreeLayout) -> Tensor:
    """Return level weights in float64; an error unless they are a number, 0 or more, for each depth, and sum to 1."""
    size = int(layout.heights.max()) + 1
    weights = torch.as_tensor(level_weights).detach().double().clone()
    if weights.shape != (size,) or not (weights >= 0).all() or abs(float(weights.sum()) - 1) > 1e-6:
        raise ValueError(f"expected {size} weights, 0 or more, that sum to 1, got {level_weights}")
    return weights
