"""The columns of a fit, by which those of other rows are checked."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from torch import Tensor


class Columns(NamedTuple):
    """How many columns there are, and their names, in order; none of arrays."""

    number: int
    names: list[Any]

    def check(self, X: Any) -> None:
        """
        Refuse other numbers of columns, and other names or another order of these.

        :raises ValueError: If they are not the same, where both have names.
        """
        names, shape = names_of(X), np.shape(X)
        if np.ndim(X) != 2 or shape[1] != self.number or (self.names and names and names != self.names):
            got = f"columns {names}" if names else f"shape {tuple(shape)}"
            raise ValueError(f"expected the {self.number} columns of fit ({self.names or 'unnamed'}), got {got}")

    def check_complete(self, x: Tensor) -> None:
        """
        Refuse missing cells of kernels that do not know them.

        :raises ValueError: If some are NaN.
        """
        holes = x.isnan().any(0).nonzero().squeeze(-1).tolist()
        if holes:
            columns = [self.names[i] for i in holes] if self.names else holes
            raise ValueError(
                f"expected no missing cells, got NaN in columns {columns}: fill or drop them, or give kernel='forest', "
                "which knows them"
            )


def names_of(X: Any) -> list[Any]:
    """The names of the columns of a dataframe, a lazy one too; none of an array."""
    return list(getattr(X, "column_names", getattr(X, "columns", ())))  # pyarrow's, and those of others
