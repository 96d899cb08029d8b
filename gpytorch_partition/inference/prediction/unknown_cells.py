"""Predictions for rows with missing cells: averages over likely values, as similar training rows have them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

_NUM_DONORS = 10
_MOST_CANDIDATES = 2_000  # training rows that donors are sought among
_ROWS_AT_ONCE = 256  # whose distances are held at once
_TIE = 1e-9  # puts one of two rows at the same distance first


@dataclass(frozen=True, eq=False)
class UnknownCells:
    r"""
    Hold the means of a model at rows with missing cells, completed in K likely ways, with the variances to add.

    A prediction from the known cells is a mixture over the values of the missing ones, :math:`p(y \mid
    x_{\text{known}}) = \int p(y \mid x)\, p(x_{\text{missing}} \mid x_{\text{known}})`, whose variance is the mean of
    variances plus the *variance of means*. The model's variance at the row is the first. The second is added, with the
    excess of the noise at the completed rows over the noise at the row, which may have been learned from rows with
    missing cells too: together down to nothing. For a cell that training rows miss too, the default model adds the
    share found at held-out rows.

    If the row misses a cell that no training row misses, the mean is the mixture's. (K means estimate it, so a K-th of
    the variance of means is added.) Else the model's own mean stays: it has learned what a missing cell implies.
    """

    rows: np.ndarray  #: `h` numbers of the rows with missing cells
    own: np.ndarray  #: `h` means of the model at these rows
    means: np.ndarray  #: `h x K` means of the completed rows, K 2 or more
    is_new: np.ndarray  #: `h`, whether a row misses a cell that no training row misses
    variances: np.ndarray  #: `h` amounts to add to the variances of these rows

    def mean(self, mean: np.ndarray) -> np.ndarray:
        """Return the means of all rows (`N`), given those of the model."""
        found = mean.copy()
        found[self.rows[self.is_new]] = self.means[self.is_new].mean(1)
        return found

    def variance(self, num_rows: int) -> np.ndarray:
        """Return the amounts to add to the variances of all rows (`N`), 0 for complete rows."""
        found = np.zeros(num_rows)
        found[self.rows] = self.variances
        return found

    def samples(self, samples: np.ndarray, random: np.random.RandomState) -> np.ndarray:
        """Return samples of all rows (`N x s`), given those of the model; each draws one completion of each row."""
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
    Return the means and variances for rows with missing cells; None without such rows, or for a single training row.

    :param x: `N x D` standardized rows; NaN is a missing cell.
    :param categories: Numbers of columns that hold codes.
    :param mean_of: From rows (`n x D`), which may have missing cells, to the means (`n`) of the model.
    :param noise_of: To the variances of the noise there (`n`); None for predictions without noise.
    :param only_means: Whether only means are wanted: they change only at rows with a new missing cell. (Default: no.)
    :param share: Share of the variance that is added to rows without a new missing cell. (Default: 1.)
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
    Return rows with their missing cells completed from similar training rows, in K ways (`n x K x D`).

    A *donor* gives all missing cells of a row, so dependent cells stay together (hot-deck imputation: Andridge & Little
    2010, "A review of hot deck imputation for survey non-response"). The donors of a row are the K nearest (10, or N if
    that is less) of 2,000 random training rows. The distance is the mean squared difference of standardized numbers in
    the columns that both know. Categories that differ count 2, the average of two random rows. Columns that are
    unrelated to the missing ones thus give a random sample of their values. Rows that know all missing cells come
    first; a fixed permutation orders equally near ones. Completions are therefore a function of the row alone, at
    :math:`O(D \min(N, 2000))`. Cells that the donor misses as well stay missing.
    """
    order = torch.from_numpy(np.random.RandomState(0).permutation(len(train_x))[:_MOST_CANDIDATES])
    donors, is_code = train_x[order], [column in categories for column in range(x.shape[1])]
    return torch.cat([_completed(block, donors, is_code) for block in x.split(_ROWS_AT_ONCE)])


def _completed(x: Tensor, donors: Tensor, is_code: Sequence[bool]) -> Tensor:
    num_lacking = x.isnan().double() @ donors.isnan().double().T  # cells that both a row and a donor miss
    # Below 1 at any distance, so rows that miss fewer of the wanted cells come first.
    ranks = num_lacking + 1 - 1 / (1 + _distances(x.float(), donors.float(), is_code).double())
    ranks += _TIE * torch.arange(len(donors))
    nearest = ranks.topk(min(_NUM_DONORS, len(donors)), largest=False).indices
    return torch.where(x.isnan()[:, None], donors[nearest], x[:, None])


def _distances(x: Tensor, donors: Tensor, is_code: Sequence[bool]) -> Tensor:
    """Return mean squared differences in the columns that both know (`n x M`), 0 without any."""
    total, count = x.new_zeros(len(x), len(donors)), x.new_zeros(len(x), len(donors))
    for column, differ in enumerate(is_code):
        difference = x[:, column, None] - donors[:, column]
        is_known = ~difference.isnan()
        square = 2.0 * (difference != 0) if differ else difference.square_()
        total += torch.where(is_known, square, 0.0)
        count += is_known
    return total / count.clamp_min(1)
