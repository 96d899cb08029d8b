"""Removal of rows that are copies of others, for estimators."""

from __future__ import annotations

import numpy as np

from gpytorch_partition.inputs.row_choice import rows_without_copies, warn_of_copies
from gpytorch_partition.inputs.row_weights import RowWeights
from gpytorch_partition.presets.folds import Blocks


class LeavesOutCopies:
    """A mixin for estimators that choose noise, or a link, by held-out rows."""

    _counted_rows: np.ndarray | None = None  # numbers of the rows that count; None for all

    def _without_copies(
        self, X: np.ndarray, y: np.ndarray, weights: RowWeights | None, *, are_classes: bool = False
    ) -> tuple[np.ndarray, np.ndarray, RowWeights | None]:
        """Return rows, targets and weights without copies, where these would pass for rows without noise."""
        rows = rows_without_copies(X, y, are_classes=are_classes)
        if rows is None:
            return X, y, weights
        warn_of_copies(len(X) - len(rows), len(X))
        self._counted_rows = rows if self._counted_rows is None else self._counted_rows[rows]
        return X[rows], y[rows], None if weights is None else weights.of_rows(rows)

    def _counted_blocks(self, blocks: Blocks | None) -> Blocks | None:
        if blocks is not None:
            blocks = blocks if self._counted_rows is None else blocks.of_rows(self._counted_rows)
            blocks.check()
        return blocks
