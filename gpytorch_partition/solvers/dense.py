"""Dense algebra for few rows: a Cholesky factor of A itself."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from linear_operator import settings
from linear_operator.operators import AddedDiagLinearOperator, LinearOperator
from torch import Tensor

from gpytorch_partition.solvers.solver import Terms


def has_few_rows(noisy: AddedDiagLinearOperator) -> bool:
    """Return whether there are at most `max_cholesky_size` rows."""
    return noisy.size(-1) <= settings.max_cholesky_size.value()


@dataclass(frozen=True)
class Dense:
    """A solver by a Cholesky factor of A (`*batch x N x N`) in its own dtype, :math:`O(N^3)` once, with gradients."""

    noisy: AddedDiagLinearOperator

    def solve(self, rhs: Tensor) -> Tensor:
        r"""Return :math:`A^{-1} V` (`*batch x N x t`), with gradients."""
        return torch.cholesky_solve(rhs, self.noisy.dense_root())

    def inv_quad_logdet(self, rhs: Tensor | None, logdet: bool | None, reduce: bool | None) -> Terms:
        """Return linear_operator's terms."""
        return LinearOperator.inv_quad_logdet(self.noisy, rhs, logdet, reduce)
