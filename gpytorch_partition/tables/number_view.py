"""Views of a table matrix as numbers, with mean targets for categories and medians for missing cells."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpytorch_partition.inputs.numbers import ShapedBuffers, bits_of, floats_of
from gpytorch_partition.inputs.row_choice import row_folds
from gpytorch_partition.inputs.training_rows import checked_categories, decode_missing

_NUM_FOLDS = 5
_FIRST_OF_FOLDS = -2  # the code of the first level in the first fold; those of unknown levels may be -1
MOST_ONE_HOT = 10  # levels of a one-hot category, at most; above, a level is its mean target
# One-hot columns of a table; beyond, only categories of two levels have them, as each column has a lengthscale.
_MOST_COLUMNS = 100


class NumberView(ShapedBuffers):
    """
    Map a table matrix (`N x D`) to numbers without missing cells (`N x k`), for kernels other than forests.

    Use it to give a table to a kernel of distances: `EncodedKernel(kernel, view)`. Estimators make their own.

    - A number is unchanged; a missing one becomes the median of the training rows (0 if there is none).
    - A category of up to 10 levels is one-hot, zeros for missing cells and unknown levels. Where that would make more
      than 100 columns, only categories of two levels are one-hot.
    - A category of more levels becomes the mean of the targets at its level, shrunk to that of all rows as in
      :class:`sklearn.preprocessing.TargetEncoder` (without targets the log of one plus its number of rows),
      standardized. Unknown levels are missing cells, which are a level where training rows have some. In training,
      where rows hold the number of their fold (:meth:`in_folds`), it is the mean of the targets of other folds.

    :param x: `N x D` rows of a table matrix, in the units of the kernel. (Default: None, an unfitted view for
        `load_state_dict`.)
    :param categories: The number C of levels of each column of codes 0 ... C - 1, by the column's number, whether or
        not the rows have them all. (Default: none.)
    :param y: `N` (or `N x k`) targets. (Default: None.)
    :param folds: `N` numbers of folds from 0 on, for :meth:`in_folds`. (Default: None, no folds.)
    :param weights: `N` weights of the rows, above 0. In medians and mean targets a row of weight w counts as w rows.
        (Default: None, 1.)

    Example:
        >>> x = torch.tensor([[0.5, 0.0], [torch.nan, 2.0], [1.5, 1.0], [2.5, 1.0]], dtype=torch.float64)
        >>> NumberView(x, categories={1: 3})(x)
        tensor([[0.5000, 1.0000, 0.0000, 0.0000],
                [1.5000, 0.0000, 0.0000, 1.0000],
                [1.5000, 0.0000, 1.0000, 0.0000],
                [2.5000, 0.0000, 1.0000, 0.0000]], dtype=torch.float64)
    """

    medians: Tensor  # (D,) medians of numbers, as bit patterns of float64, which no change of dtype can round
    level_counts: Tensor  # (D,) numbers of levels; 0 for numbers
    widths: Tensor  # (D,) numbers of columns that each column becomes
    fold_counts: Tensor  # (D,) numbers of folds that have a table of their own for a column
    values: Tensor  # bit patterns of float64: a table for each category, C + 1 rows (the last for missing) by width,
    # and tables of the folds

    def __init__(
        self,
        x: Tensor | None = None,
        categories: Mapping[int, int] | None = None,
        y: Tensor | None = None,
        folds: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> None:
        super().__init__()
        for name in ("medians", "level_counts", "widths", "fold_counts", "values"):
            self.register_buffer(name, torch.empty(0, dtype=torch.int64))
        if x is None:
            return
        categories = checked_categories(categories, decode_missing(x))
        rows = decode_missing(x.detach()).cpu().double()
        targets = None if y is None else y.detach().cpu().double().numpy().reshape(len(rows), -1)
        counted = torch.ones(len(rows), dtype=rows.dtype) if weights is None else weights.detach().cpu().double()
        kept = [] if folds is None or y is None else [(folds != fold).cpu().numpy() for fold in folds.unique()]
        counts, widths, num_folds = (torch.full((rows.shape[1],), each) for each in (0, 1, 0))
        tables: list[NDArray[np.float64]] = []
        for column, size in sorted(categories.items()):
            is_one_hot = size <= _most_one_hot(categories)
            found = [np.eye(size + 1, size)] if is_one_hot else []
            for some in [] if is_one_hot else [slice(None), *kept]:
                cells = rows[:, column].numpy()[some]
                places = np.where(np.isnan(cells), size, cells).astype(np.int64)
                of_rows = None if targets is None else targets[some]
                found.append(_numbers_of_levels(places, of_rows, size + 1, counted.numpy()[some]))
            counts[column], widths[column], num_folds[column] = size, found[0].shape[1], len(found) - 1
            tables += map(np.ravel, found)
        self.medians = bits_of(_weighted_medians(rows, counted).nan_to_num()).to(x.device)
        self.level_counts, self.widths, self.fold_counts = (each.to(x.device) for each in (counts, widths, num_folds))
        self.values = bits_of(torch.from_numpy(np.concatenate([np.empty(0), *tables]))).to(x.device)

    @property
    def num_columns(self) -> int:
        """Return the number k of columns of the view."""
        return int(self.widths.sum())

    def forward(self, x: Tensor) -> Tensor:
        """
        Return the view (`*batch x N x k`) of rows (`*batch x N x D`), in their dtype.

        :raises RuntimeError: If the view is unfitted.
        :raises ValueError: If there are not D columns.
        """
        if not self.medians.numel():
            raise RuntimeError("NumberView is not fitted: give it training rows, or load a state")
        if x.shape[-1] != self.medians.numel():
            raise ValueError(f"expected {self.medians.numel()} columns, as in the view, got {x.shape[-1]}: give these")
        x, medians, values = decode_missing(x), floats_of(self.medians).to(x), floats_of(self.values).to(x)
        columns, start = [], 0
        sizes = zip(self.level_counts.tolist(), self.widths.tolist(), self.fold_counts.tolist())
        for number, (count, width, num_folds) in enumerate(sizes):
            cells = x[..., number]
            if count:
                size = (1 + num_folds) * (count + 1)
                table = values[start : (start := start + size * width)].view(size, width)
                columns.append(table[_places(cells, count, num_folds)])
            else:
                columns.append(torch.where(cells.isnan(), medians[number], cells).unsqueeze(-1))
        return torch.cat(columns, -1)

    def in_folds(self, x: Tensor, folds: Tensor) -> Tensor:
        """
        Return rows (`N x D`) whose codes also hold the number of their fold, for this view to read.

        In a column of mean targets, level c in fold k has the code -2 - (k (C + 1) + c), a missing cell c = C.
        """
        found = x.clone()
        for column in self.fold_counts.nonzero()[:, 0].tolist():
            count = int(self.level_counts[column])
            places = folds.to(x.device) * (count + 1) + _places(decode_missing(x[:, column]), count, 0)
            found[:, column] = (_FIRST_OF_FOLDS - places).to(x)
        return found


def view_in_folds(
    x: Tensor,
    categories: Mapping[int, int],
    y: Tensor,
    random: np.random.RandomState,
    weights: Tensor | None = None,
    groups: Tensor | None = None,
) -> tuple[NumberView, Tensor]:
    """
    Return a view, and its training rows (`N x D`) with mean targets of other folds, for a model to hold.

    Call it for an :class:`~gpytorch_partition.kernels.EncodedKernel` of categories with more than ten levels. The rows
    are :meth:`NumberView.in_folds` of five random folds.

    :param x, categories, y, weights: As for :class:`NumberView`.
    :param random: Source of the folds; it draws nothing if no level becomes a mean target, or rows are too few.
    :param groups: `N` numbers of groups, which folds keep whole. (Default: None, folds of single rows.)

    Example:
        >>> x = torch.arange(24.0).remainder(12)[:, None]  # codes of twelve levels
        >>> view, rows = view_in_folds(x, {0: 12}, x[:, 0], np.random.RandomState(0))
        >>> view(rows).shape, bool((rows < 0).all())  # codes of folds
        (torch.Size([24, 1]), True)
    """
    if len(x) < _NUM_FOLDS or max(categories.values(), default=0) <= _most_one_hot(categories):
        return NumberView(x, categories, y, weights=weights), x
    folds = torch.empty(len(x), dtype=torch.int64, device=x.device)
    labels = None if groups is None else groups.cpu().numpy()
    for number, (_, held_out) in enumerate(row_folds(len(x), _NUM_FOLDS, random, labels)):
        folds[held_out] = number
    view = NumberView(x, categories, y, folds, weights)
    return view, view.in_folds(x, folds)


def needs_view(x: Tensor, categories: Mapping[int, int]) -> bool:
    """Return whether rows have categories or missing cells, so that kernels of numbers need a view of them."""
    return len(categories) > 0 or bool(decode_missing(x).isnan().any())


def _most_one_hot(categories: Mapping[int, int]) -> int:
    columns = sum(size for size in categories.values() if size <= MOST_ONE_HOT)
    return MOST_ONE_HOT if columns <= _MOST_COLUMNS else 2


def _places(cells: Tensor, count: int, num_folds: int) -> Tensor:
    """Return rows of a category's table (folds below it) for codes; unknown codes are missing cells."""
    of_folds = _FIRST_OF_FOLDS - cells
    places = torch.where((cells >= 0) & (cells < count), cells, count)
    in_fold = (of_folds >= 0) & (of_folds < num_folds * (count + 1))
    return torch.where(in_fold, count + 1 + of_folds, places).long()


def _weighted_medians(rows: Tensor, weights: Tensor) -> Tensor:
    """Return lower medians (`D`) of columns in which a row of weight w is w rows; NaN of columns without numbers."""
    values, order = rows.sort(0)  # NaN comes last
    sums = torch.where(values.isnan(), 0.0, weights[order]).cumsum(0)
    places = (sums >= 0.5 * sums[-1]).to(torch.uint8).argmax(0)
    return values.gather(0, places.unsqueeze(0)).squeeze(0)


def _numbers_of_levels(
    places: NDArray[np.int64], targets: NDArray[np.float64] | None, size: int, weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return standardized numbers for the levels of a category, the last one missing cells (`size x width`)."""
    if targets is None:
        found = np.log1p(np.bincount(places, minlength=size))[:, None]
    else:
        found = np.stack([_mean_targets(places, target, size, weights) for target in targets.T], 1)
    seen = found[places]
    scale = seen.std(0)
    return (found - seen.mean(0)) / np.where(scale > 0, scale, 1.0)


def _mean_targets(
    places: NDArray[np.int64], target: NDArray[np.float64], size: int, weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return mean targets as of scikit-learn's encoder on w copies of each row (Micci-Barreca 2001, section 3)."""
    counts = np.bincount(places, weights, minlength=size)
    mean = np.average(target, weights=weights)
    variance = np.average((target - mean) ** 2, weights=weights)
    means = np.full(size, mean)
    np.divide(np.bincount(places, weights * target, minlength=size), counts, out=means, where=counts > 0)
    squares = np.bincount(places, weights * (target - means[places]) ** 2, minlength=size)
    total = variance * counts + np.divide(squares, counts, out=np.zeros(size), where=counts > 0)
    share = np.divide(variance * counts, total, out=np.zeros(size), where=total > 0)
    return share * means + (1 - share) * mean
