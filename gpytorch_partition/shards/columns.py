"""The columns of a fit, to check the columns of other rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from torch import Tensor


class Columns(NamedTuple):
    """The number of columns and their names, in order; arrays have no names."""

    number: int
    names: list[Any]

    def check(self, X: Any) -> None:
        """
        Raise an error for another number of columns, or other names or another order of columns.

        :raises ValueError: If numbers differ, or names do, where both have names.
        """
        names, shape = names_of(X), np.shape(X)
        if np.ndim(X) != 2 or shape[1] != self.number or (self.names and names and names != self.names):
            got = f"columns {names}" if names else f"shape {tuple(shape)}"
            raise ValueError(f"expected the {self.number} columns of fit ({self.names or 'unnamed'}), got {got}")

    def check_complete(self, x: Tensor) -> None:
        """
        Raise an error for missing cells, for kernels that do not accept them.

        :raises ValueError: If a cell is NaN.
        """
        holes = x.isnan().any(0).nonzero().squeeze(-1).tolist()
        if holes:
            columns = [self.names[i] for i in holes] if self.names else holes
            raise ValueError(
                f"expected no missing cells, got NaN in columns {columns}: fill or drop them, or give kernel='forest', "
                "which knows them"
            )


def names_of(X: Any) -> list[Any]:
    """Return the names of the columns of a dataframe, also of a lazy one; empty for an array."""
    return list(getattr(X, "column_names", getattr(X, "columns", ())))  # pyarrow's name, and that of other libraries
