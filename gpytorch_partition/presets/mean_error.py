"""The mean error of held-out rows, which is added to predictions."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gpytorch_partition.presets.weights_and_noise import Choice

_OFFSETS = (1.0, 0.75, 0.5, 0.25)  # shares of the mean error that predictions may get
_MOST_LOSS = 0.01  # nats that held-out rows may lose by it


def with_mean_error(choice: Choice) -> Choice:
    """Return the choice with the mean error of the rows that chose it, for :func:`centred`."""
    errors, forest = choice.held_out.errors, choice.noise_forest
    ratios = torch.zeros_like(errors) if forest is None else torch.from_numpy(forest.oob_prediction_)
    deviations = deviations_of(choice, ratios)
    return replace(choice, offset=mean_error_of(errors, deviations), deviations=deviations)


def centred(choice: Choice) -> Choice:
    """
    Return the choice whose predictions are not too low or too high on average, by the mean error of held-out rows.

    It is for rows without weights, groups and times, whose errors have one scale and are independent. Where targets
    have a long tail, densities are best around the mode, which is not the mean. There only a share of the mean error is
    added: the largest with which held-out rows lose .01 nats at most.
    """
    rows = choice.held_out
    for share in _OFFSETS if choice.offset else ():
        offset = share * choice.offset
        found = replace(choice, offset=offset, held_out=replace(rows, errors=rows.errors - offset * choice.deviations))
        gain = float((found.log_densities() - choice.log_densities()).mean())
        if gain > -_MOST_LOSS:
            density = choice.log_density + gain - 1 / len(rows.rows)
            return replace(found, log_density=density, mean_error=found.held_out.mean_error())
    return replace(choice, offset=0.0, mean_error=rows.mean_error())


def deviations_of(choice: Choice, log_ratios: Tensor) -> Tensor:
    """Return standard deviations of the noise, over that of its level."""
    return (0.5 * choice.exponent * log_ratios).exp()


def mean_error_of(errors: Tensor, deviations: Tensor) -> float:
    r"""
    Return :math:`c = \sum e_i / \sum d_i`, with which errors :math:`e_i - c d_i` are 0 on average, shrunk towards 0.

    Predictions are too low where the errors of a long tail count less, because the noise is larger there or Student's
    t. The factor :math:`\max(0, 1 - s^2 / c^2)`, with the standard error s of c, is that of James & Stein (1961).
    """
    mean = errors.sum() / deviations.sum()
    variance = (errors - mean * deviations).square().sum() / deviations.sum().square()
    return float(mean * (1 - variance / mean.square()).clamp_min(0)) if mean else 0.0
