"""What kernels that compare numbers see of a table matrix: numbers for the levels of categories, medians for holes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.model_selection import KFold
from sklearn.preprocessing import OneHotEncoder, TargetEncoder
from torch import Tensor

from gpytorch_partition.inputs.bits import bits_of, floats_of
from gpytorch_partition.inputs.missing import decode_missing

_NUM_FOLDS = 5
MOST_ONE_HOT = 10  # levels of a category up to which each has a column; above, a level is its mean target
# One-hot columns of a table; with more, only categories of two levels have them: lengthscales are learned for each.
_MOST_COLUMNS = 100


class NumberView(torch.nn.Module):
    r"""
    The map from a table matrix (`N x D`) to a matrix of numbers without holes (`N x k`), for smooth, linear and
    distance-based kernels.

    - A number stays as it is; where it is missing, it is the median of the training rows (0 if there is none).
    - A category of up to 10 levels is one-hot (:class:`sklearn.preprocessing.OneHotEncoder`), zeros for missing cells
      and unknown levels. Where that would make more than 100 columns, only categories of two levels are.
    - One of more levels is the mean of the targets at its level, shrunk to that of all rows
      (:class:`sklearn.preprocessing.TargetEncoder`), and standardized, as other columns are; that of all rows for
      levels without rows. Unknown levels are missing cells, which are a level where training rows have some. Without
      targets, it is the logarithm of how common its level is.

    Every map of a category is a table with a number, or some, for each level, read off scikit-learn's encoder, so that
    the view is a function of the point and is held as buffers.

    Costs one pass over the cells.

    :param x: `N x D` rows of a table matrix, in the units of the kernel. (Default: None, an unfitted view for
        `load_state_dict`.)
    :param categories: The number C of levels of each column that holds codes 0 ... C - 1, by its number, whether or not
        the rows have them all. (Default: none.)
    :param y: `N` (or `N x k`) targets. (Default: None.)

    Example:
        >>> x = torch.tensor([[0.5, 0.0], [torch.nan, 2.0], [1.5, 1.0], [2.5, 1.0]], dtype=torch.float64)
        >>> NumberView(x, categories={1: 3})(x)
        tensor([[0.5000, 1.0000, 0.0000, 0.0000],
                [1.5000, 0.0000, 0.0000, 1.0000],
                [1.5000, 0.0000, 1.0000, 0.0000],
                [2.5000, 0.0000, 1.0000, 0.0000]], dtype=torch.float64)
    """

    medians: Tensor  # (D,) bit patterns of float64, which no change of dtype can round; of numbers
    level_counts: Tensor  # (D,) numbers of levels; 0 for numbers
    widths: Tensor  # (D,) numbers of columns that each column becomes
    values: Tensor  # bit patterns of float64: of each category a table, C + 1 rows (the last for missing) by its width

    def __init__(
        self, x: Tensor | None = None, categories: Mapping[int, int] | None = None, y: Tensor | None = None
    ) -> None:
        super().__init__()
        for name in ("medians", "level_counts", "widths", "values"):
            self.register_buffer(name, torch.empty(0, dtype=torch.int64))
        if x is not None:
            self._fit(x, categories or {}, y)

    def _fit(self, x: Tensor, categories: Mapping[int, int], y: Tensor | None) -> None:
        rows = decode_missing(x.detach()).cpu().double()
        targets = None if y is None else y.detach().cpu().double().numpy().reshape(len(rows), -1)
        counts, widths, tables = torch.zeros(rows.shape[1], dtype=torch.int64), torch.ones(rows.shape[1]).long(), []
        for column in sorted(categories):
            is_one_hot = categories[column] <= _most_one_hot(categories)
            table = _table(rows[:, column].numpy(), targets, categories[column], is_one_hot)
            counts[column], widths[column] = len(table) - 1, table.shape[1]
            tables.append(table.ravel())
        self.medians = bits_of(rows.nanmedian(0).values.nan_to_num()).to(x.device)
        self.level_counts, self.widths = counts.to(x.device), widths.to(x.device)
        self.values = bits_of(torch.from_numpy(np.concatenate([np.empty(0), *tables]))).to(x.device)

    @property
    def num_columns(self) -> int:
        """Number k of columns of the view."""
        return int(self.widths.sum())

    def forward(self, x: Tensor) -> Tensor:
        """
        The view (`*batch x N x k`) of rows (`*batch x N x D`), in their dtype.

        :raises RuntimeError: If the view is unfitted.
        :raises ValueError: If there are not D columns.
        """
        if not self.medians.numel():
            raise RuntimeError("NumberView is not fitted: give it training rows, or load a state")
        if x.shape[-1] != self.medians.numel():
            raise ValueError(f"expected {self.medians.numel()} columns, got points with {x.shape[-1]}")
        x, medians, values = decode_missing(x), floats_of(self.medians).to(x), floats_of(self.values).to(x)
        columns, start = [], 0
        for number, (count, width) in enumerate(zip(self.level_counts.tolist(), self.widths.tolist())):
            cells = x[..., number]
            if count:
                table = values[start : (start := start + (count + 1) * width)].view(count + 1, width)
                known = (cells >= 0) & (cells < count)
                columns.append(table[torch.where(known, cells, count).long()])
            else:
                columns.append(torch.where(cells.isnan(), medians[number], cells).unsqueeze(-1))
        return torch.cat(columns, -1)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        for name in ("medians", "level_counts", "widths", "values"):
            saved = state_dict.get(prefix + name)
            if torch.is_tensor(saved):
                setattr(self, name, torch.empty_like(saved, device=self.medians.device))
        super()._load_from_state_dict(state_dict, prefix, *args)


def cross_fitted(x: Tensor, categories: Mapping[int, int], y: Tensor, random: np.random.RandomState) -> Tensor:
    """
    The view of training rows, with mean targets of the rows of other folds, for what is then learned from the same
    targets: a level of few rows would else tell their noise.

    :param x: `N x D` rows of a table matrix.
    :param categories: As for :class:`NumberView`.
    :param y: `N` targets.
    :param random: Source of the folds.
    :return: `N x k`.
    """
    seen = NumberView(x, categories, y)(x)
    if max(categories.values(), default=0) <= _most_one_hot(categories):
        return seen
    for kept, held_out in KFold(_NUM_FOLDS, shuffle=True, random_state=random).split(x):
        seen[held_out] = NumberView(x[kept], categories, y[kept])(x[held_out])
    return seen


def needs_view(x: Tensor, categories: Mapping[int, int]) -> bool:
    """Whether rows have categories or holes, so that kernels of numbers need a view of them."""
    return len(categories) > 0 or bool(decode_missing(x).isnan().any())


def _most_one_hot(categories: Mapping[int, int]) -> int:
    """Levels up to which a category is one-hot, beside all other categories."""
    columns = sum(size for size in categories.values() if size <= MOST_ONE_HOT)
    return MOST_ONE_HOT if columns <= _MOST_COLUMNS else 2


def _table(
    codes: NDArray[np.float64], targets: NDArray[np.float64] | None, size: int, is_one_hot: bool
) -> NDArray[np.float64]:
    """A row of numbers for each level of a category, and one for missing cells."""
    levels = np.append(np.arange(size, dtype=np.float64), np.nan)[:, None]
    if is_one_hot:
        return _one_hot(levels)
    found = _counts(codes, size) if targets is None else _mean_targets(codes[:, None], targets, levels)
    seen = found[np.where(np.isnan(codes), size, codes).astype(np.int64)]
    scale = seen.std(0)
    return (found - seen.mean(0)) / np.where(scale > 0, scale, 1.0)


def _one_hot(levels: NDArray[np.float64]) -> NDArray[np.float64]:
    return OneHotEncoder(sparse_output=False, handle_unknown="ignore").fit(levels[:-1]).transform(levels)


def _mean_targets(
    codes: NDArray[np.float64], targets: NDArray[np.float64], levels: NDArray[np.float64]
) -> NDArray[np.float64]:
    encoders = (TargetEncoder(target_type="continuous").fit(codes, target) for target in targets.T)
    return np.concatenate([encoder.transform(levels) for encoder in encoders], axis=1)


def _counts(codes: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    counts = np.bincount(codes[~np.isnan(codes)].astype(np.int64), minlength=size)
    return np.log1p(np.append(counts, np.isnan(codes).sum()))[:, None]
