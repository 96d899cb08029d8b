"""Predictions for rows that miss cells: averaged over what the cells may be, as similar training rows have them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

_NUM_DONORS = 10
_MOST_CANDIDATES = 2_000  # training rows that donors are sought among
_ROWS_AT_ONCE = 256  # whose distances are held at once
_TIE = 1e-9  # what puts one of two rows at the same distance first


@dataclass(frozen=True, eq=False)
class UnknownCells:
    r"""
    The means of a model at rows with holes, completed in K likely ways, and what follows for predictions of them.

    A prediction from the cells that are known is a mixture over what the others may be,
    :math:`p(y \mid x_{\text{known}}) = \int p(y \mid x)\, p(x_{\text{missing}} \mid x_{\text{known}})`, whose variance
    is the mean of variances and the *variance of means*. The first is what the model says of the row; the second, and
    how much larger the noise is at the completed rows, it does not know, and they are added. (A noise that varies with
    x was learned from residuals of rows with holes too, and may know the second: where it is larger at the row than at
    the completed ones, so much less is added, down to nothing. So may all variances where most rows have holes: of a
    cell that training rows miss too, the default model adds the share that held-out rows had.)

    The mean is the mixture's where the row misses a cell that no training row missed, of which the model knows nothing.
    (As K means estimate it, a K-th of the variance of means is added.) Where training rows miss cells as well, that a
    cell is missing may tell something, which the model has learned and the mixture does not know: its own mean stays.

    :param rows: `h` numbers of the rows with holes.
    :param own: `h` means of the model at these rows.
    :param means: `h x K` means of the completed rows, K 2 or more.
    :param is_new: `h`, whether a row misses a cell that no training row missed.
    :param variances: `h`, what is to be added to the variances of these rows.
    """

    rows: np.ndarray
    own: np.ndarray
    means: np.ndarray
    is_new: np.ndarray
    variances: np.ndarray

    def mean(self, mean: np.ndarray) -> np.ndarray:
        """The means of all rows (`N`), given those of the model."""
        found = mean.copy()
        found[self.rows[self.is_new]] = self.means[self.is_new].mean(1)
        return found

    def variance(self, num_rows: int) -> np.ndarray:
        """What is to be added to the variances of all rows (`N`), 0 for those without holes."""
        found = np.zeros(num_rows)
        found[self.rows] = self.variances
        return found

    def samples(self, samples: np.ndarray, random: np.random.RandomState) -> np.ndarray:
        """Samples of all rows (`N x s`), given those of the model: each draws one of the ways for each row."""
        found, (num_rows, num_means) = samples.copy(), self.means.shape
        mean, variance = self.means.mean(1), self.means.var(1)
        drawn = np.take_along_axis(self.means, random.randint(num_means, size=(num_rows, samples.shape[1])), 1)
        scale = np.sqrt(np.divide(self.variances, variance, out=np.zeros(num_rows), where=variance > 0))
        shift = np.where(self.is_new, mean - self.own, 0.0)
        found[self.rows] += shift[:, None] + (drawn - mean[:, None]) * scale[:, None]
        return found


def unknown_cells(
    x: Tensor,
    train_x: Tensor,
    categories: Collection[int],
    mean_of: Callable[[Tensor], np.ndarray],
    noise_of: Callable[[Tensor], np.ndarray] | None,
    *,
    only_means: bool = False,
    share: float = 1.0,
) -> UnknownCells | None:
    """
    What predictions need of the rows with holes; None if there are none, or a single training row.

    Costs K + 1 means and a search for donors for each.

    :param x: `N x D` standardized rows; NaN is a hole.
    :param train_x: Training rows.
    :param categories: Numbers of columns that hold codes.
    :param mean_of: The means (`n`) of the model at rows (`n x D`), which may have holes.
    :param noise_of: The variances of the noise there (`n`); None where predictions have no noise.
    :param only_means: Whether means are all that is wanted: they change only where a hole is new. (Default: no.)
    :param share: Share of the variance that is added where no hole is new. (Default: 1.)
    """
    is_new = (x.isnan() & ~train_x.isnan().any(0)).any(1)
    rows = (is_new if only_means else x.isnan().any(1)).nonzero()[:, 0]
    if not len(rows) or len(train_x) < 2:
        return None
    completed, new = completions(x[rows], train_x, categories), is_new[rows].numpy()
    means = mean_of(completed.flatten(0, 1)).reshape(completed.shape[:2])
    variances = means.var(1, ddof=1) * (1 + new / means.shape[1])
    if noise_of is not None:
        excess = noise_of(completed.flatten(0, 1)).reshape(means.shape).mean(1) - noise_of(x[rows])
        variances = (variances + excess).clip(0.0)
    variances = variances * np.where(new, 1.0, share)
    return UnknownCells(rows.numpy(), mean_of(x[rows]), means, new, variances)


def completions(x: Tensor, train_x: Tensor, categories: Collection[int]) -> Tensor:
    r"""
    Rows with holes, completed as similar training rows are, in K likely ways.

    A *donor* gives all cells that a row misses, so that cells that depend on each other go together (hot-deck
    imputation: Andridge & Little 2010, "A review of hot deck imputation for survey non-response"). The donors of a row
    are the K training rows (of 2,000 random ones) nearest to it in the columns that both know, by the mean squared
    difference of standardized numbers, and 2, which two random rows have on average, where categories differ. Where
    columns tell nothing about the missing ones, that is a random sample of their values. Rows that know all missing
    cells come first; of equally near ones, those that a fixed permutation puts first. So completions are a function of
    the row alone.

    Costs :math:`O(D \min(N, 2000))` for each row.

    :param x: `n x D` standardized rows, each with a hole (NaN).
    :param train_x: `N x D` training rows, in which NaN is a hole.
    :param categories: Numbers of columns that hold codes.
    :return: `n x K x D`, with K = 10, or N if that is less. What a donor misses as well stays missing.

    Example:
        >>> train_x = torch.tensor([[0.0, 5.0], [0.1, 6.0], [3.0, 7.0]])
        >>> completions(torch.tensor([[0.02, torch.nan]]), train_x, [])[0, :2]
        tensor([[0.0200, 5.0000],
                [0.0200, 6.0000]])
    """
    order = torch.from_numpy(np.random.RandomState(0).permutation(len(train_x))[:_MOST_CANDIDATES])
    donors, is_code = train_x[order], [column in categories for column in range(x.shape[1])]
    return torch.cat([_completed(block, donors, is_code) for block in x.split(_ROWS_AT_ONCE)])


def _completed(x: Tensor, donors: Tensor, is_code: Sequence[bool]) -> Tensor:
    # Below 1 whatever the distance, so that rows that lack fewer of the missing cells come first.
    ranks = _numbers_lacking(x, donors) + 1 - 1 / (1 + _distances(x.float(), donors.float(), is_code).double())
    ranks += _TIE * torch.arange(len(donors))
    nearest = ranks.topk(min(_NUM_DONORS, len(donors)), largest=False).indices
    return torch.where(x.isnan()[:, None], donors[nearest], x[:, None])


def _numbers_lacking(x: Tensor, donors: Tensor) -> Tensor:
    """How many of the cells that each row misses each donor misses as well (`n x M`)."""
    return x.isnan().double() @ donors.isnan().double().T


def _distances(x: Tensor, donors: Tensor, is_code: Sequence[bool]) -> Tensor:
    """Mean squared differences in the columns that both know (`n x M`), 0 if there are none; column by column."""
    total, count = x.new_zeros(len(x), len(donors)), x.new_zeros(len(x), len(donors))
    for column, differ in enumerate(is_code):
        difference = x[:, column, None] - donors[:, column]
        is_known = ~difference.isnan()
        square = 2.0 * (difference != 0) if differ else difference.square_()
        total += torch.where(is_known, square, 0.0)
        count += is_known
    return total / count.clamp_min(1)
