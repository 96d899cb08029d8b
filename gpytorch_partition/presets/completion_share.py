"""The last step, which chooses the share of missing cells' variance to add by held-out rows with missing cells."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from gpytorch_partition import settings
from gpytorch_partition.inference.prediction.unknown_cells import unknown_cells
from gpytorch_partition.likelihoods.noise_likelihoods import noise_variances
from gpytorch_partition.likelihoods.scale_mixture import gaussian_log_densities, log_densities
from gpytorch_partition.models import PartitionGP
from gpytorch_partition.presets.data import TrainingData
from gpytorch_partition.presets.weights_and_noise import Choice

_SHARES = (1.0, 0.75, 0.5, 0.25, 0.0)
_MOST_ROWS = 300  # held-out rows with missing cells, whose densities are summed
_PRIOR = 2.0  # nats that these rows must gain before nothing is added


@torch.no_grad()
def completion_share(model: PartitionGP, choice: Choice, data: TrainingData) -> tuple[float, float]:
    """
    Return the share of the completions' variance to add, and the nats that a held-out row gains by it on average.

    Where many training rows miss cells, the variances that held-out rows chose already suit such rows. Where few do,
    the evidence is weak, and all is added.

    :param model: The model of all rows.
    :param choice: The choice, with its held-out rows.
    :param data: All rows and targets.
    """
    held_out = choice.held_out
    is_incomplete = data.rows[held_out.rows].isnan().any(1) & ~held_out.variances.isnan()
    some = is_incomplete.nonzero()[:_MOST_ROWS, 0]
    added = _added_variances(model, data, held_out.rows[some]) if len(some) else None
    if added is None:
        return 1.0, 0.0
    density = _density(choice, some)
    totals = [float(density(share * added).sum()) - _PRIOR * (1 - share) for share in _SHARES]
    share = _SHARES[totals.index(max(totals))]
    gain = float((density(share * added) - density(0 * added)).mean())
    return share, gain * int(is_incomplete.sum()) / len(held_out.rows)


def _added_variances(model: PartitionGP, data: TrainingData, rows: Tensor) -> Tensor | None:
    """Variances that completions add at training rows (`n`, by their numbers), standardized."""
    with settings.iterative(), settings.no_debug():
        found = unknown_cells(
            data.x[rows],
            data.x,
            data.categories,
            lambda x: data.unit.apply(model(data.columns.undo(x)).mean).numpy(),
            lambda x: (noise_variances(model.likelihood, data.columns.undo(x)) / data.unit.scale**2).numpy(),
        )
    return None if found is None else torch.from_numpy(found.variances)


def _density(choice: Choice, rows: Tensor) -> Callable[[Tensor], Tensor]:
    """Log densities of some held-out rows, as a function of variances (`n`) to add."""
    errors, variances, noise = (
        values[rows] for values in (choice.held_out.errors, choice.held_out.variances, choice.held_out.noise)
    )
    if choice.tails is not None:
        scales, df = noise * choice.tails.factor / choice.factor, choice.tails.df
        return lambda added: log_densities(errors, variances + added, scales, df)
    return lambda added: gaussian_log_densities(errors, variances + added + noise)
