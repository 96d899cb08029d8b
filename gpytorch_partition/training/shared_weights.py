"""Weights of a sum of covariances for several targets, by the predictive density of held-out rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gpytorch_partition.linalg.minimum import minimize_lbfgsb
from gpytorch_partition.training.predictive_density import Fold, _loss_of

_LOG_WEIGHTS, _LOG_SCALES = (-9.0, 5.0), (-4.0, 4.0)  # bounds of logarithms
_LOG_NOISE = (math.log(1e-4), 1.0)
_START, _START_NOISE = 0.5, 0.2  # sum of the weights, and noise, in variances of the targets
_NOISE_BONUS = 1.0  # nats for every factor e of a noise, as for one target
_RELATIVE_TOLERANCE = 3e-6
_DECIMALS = 9  # kept decimals of logarithms


@dataclass(frozen=True, eq=False)
class SharedFit:
    r"""
    The values found, with target t as :math:`N(0, b_t \sum_i w_i K_i + d_t I)`.

    :param outputscales: `c` weights w.
    :param scales: `T` factors b with a geometric mean of 1.
    :param noise: `T` variances d.
    :param log_density: Mean log predictive density of the held-out entries, in nats.
    """

    outputscales: Tensor
    scales: Tensor
    noise: Tensor
    log_density: float


def maximize_shared_density(folds: Sequence[Fold], targets: Tensor, *, max_iterations: int = 40) -> SharedFit:
    r"""
    Return weights shared by all targets, and scale and noise of each, that predict held-out entries best, by L-BFGS-B.

    Targets are predicted one by one; their covariance is chosen afterwards. Every factor e of a noise counts as a nat,
    as in :func:`~gpytorch_partition.training.predictive_density.maximize_predictive_density`, which does this for one
    target at a T-th of the cost.

    :param folds: The folds, in rows.
    :param targets: `N x T` targets of mean 0; NaN is a missing entry.
    :param max_iterations: L-BFGS-B iterations at most. (Default: 40.)

    Example:
        >>> x = torch.linspace(-3, 3, 60, dtype=torch.float64)
        >>> smooth = torch.exp(-(x[:, None] - x).square())
        >>> folds = [Fold.of(smooth[None], (torch.arange(60) % 3 != k).nonzero()[:, 0],
        ...               (torch.arange(60) % 3 == k).nonzero()[:, 0]) for k in range(3)]
        >>> noise = torch.tensor([0.1, 0.4]) * torch.randn(60, 2, generator=torch.Generator().manual_seed(0)).double()
        >>> fit = maximize_shared_density(folds, x.sin().unsqueeze(-1) + noise)
        >>> bool(fit.noise[0] < 0.03), bool(fit.noise[1] > 0.1)
        (True, True)
    """
    num_parts, num_targets = len(folds[0].within), targets.shape[1]
    own = [(number, fold) for number in range(num_targets) for fold in of_target(folds, targets[:, number])]
    num_held_out = sum(len(fold.held_out) for _, fold in own)

    def loss(position: np.ndarray) -> tuple[float, np.ndarray]:
        weights, scales, noise = np.split(position, [num_parts, num_parts + num_targets])
        total, gradient = 0.0, np.zeros_like(position)
        for number, fold in own:
            values = np.array([*(weights + scales[number]), noise[number], 0.0])
            part, by = _loss_of(fold, targets[:, number], torch.zeros_like(targets[:, number]), values)
            total += part
            gradient[:num_parts] += by[:num_parts]
            gradient[num_parts + number] += by[:num_parts].sum()
            gradient[num_parts + num_targets + number] += by[num_parts]
        # A common factor of all weights equals one of all scales, so scales are centred.
        total += 0.5 * float(scales.sum()) ** 2 - _NOISE_BONUS * float(noise.sum())
        gradient[num_parts : num_parts + num_targets] += scales.sum()
        gradient[num_parts + num_targets :] -= _NOISE_BONUS
        return total / num_held_out, gradient / num_held_out

    start = [math.log(_START / num_parts)] * num_parts + [0.0] * num_targets + [math.log(_START_NOISE)] * num_targets
    bounds = [_LOG_WEIGHTS] * num_parts + [_LOG_SCALES] * num_targets + [_LOG_NOISE] * num_targets
    options = {"maxiter": max_iterations, "ftol": _RELATIVE_TOLERANCE}
    found = minimize_lbfgsb(loss, start, bounds=bounds, options=options)
    # The last digits of the search depend on where arrays lie in memory.
    weights, scales, noise = torch.from_numpy(found.x.round(_DECIMALS)).split([num_parts, num_targets, num_targets])
    log_density = -float(found.fun) - _NOISE_BONUS * float(noise.sum()) / num_held_out
    level = scales.mean()
    return SharedFit((weights + level).exp(), (scales - level).exp(), noise.exp(), log_density)


def of_target(folds: Sequence[Fold], target: Tensor) -> list[Fold]:
    """
    Return the folds on the rows where a target (`N`) is known, without folds that then keep or hold out no row.

    Example:
        >>> fold = Fold.of(torch.eye(4)[None], torch.tensor([0, 1]), torch.tensor([2, 3]))
        >>> of_target([fold], torch.tensor([0.0, torch.nan, 1.0, 2.0]))[0].kept
        tensor([0])
    """
    known = ~target.isnan()
    found = []
    for fold in folds:
        kept, held_out = known[fold.kept], known[fold.held_out]
        if bool(kept.all()) and bool(held_out.all()):
            found.append(fold)
        elif bool(kept.any()) and bool(held_out.any()):
            within, cross = fold.within[:, kept][..., kept], fold.cross[:, kept][..., held_out]
            found.append(Fold(within, cross, fold.prior[:, held_out], fold.kept[kept], fold.held_out[held_out]))
    return found
