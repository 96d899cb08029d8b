"""The protocol of solvers, the solver made of an exact factorization, and dense algebra for few rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from linear_operator import settings
from linear_operator.operators import AddedDiagLinearOperator, LinearOperator
from torch import Tensor

from gpytorch_partition.operators.cluster_operators.cluster_operator import as_columns

Terms = tuple[Tensor | None, Tensor | None]  # a quadratic form and a log determinant


class Solver(Protocol):
    """A way to solve with a covariance plus noise A (`*batch x N x N`), as :func:`choose_solver` returns it."""

    def solve(self, rhs: Tensor) -> Tensor:
        r"""Return :math:`A^{-1} V` (`*batch x N x t`)."""

    def inv_quad_logdet(self, rhs: Tensor | None, logdet: bool | None, reduce: bool | None) -> Terms:
        r"""Return :math:`v^\top A^{-1} v` and :math:`\log |A|` with gradients, as linear_operator's method does."""


class Factorization(Protocol):
    def solve(self, rhs: Tensor) -> Tensor:
        r"""Return :math:`A^{-1} V`, without a graph."""

    def log_determinant(self) -> Tensor:
        r"""Return :math:`\log |A|`."""


@dataclass(frozen=True)
class Factorized:
    """A solver by an exact factorization, whose log determinant has gradients."""

    noisy: AddedDiagLinearOperator
    parts: Factorization

    def solve(self, rhs: Tensor) -> Tensor:
        return self.parts.solve(rhs)

    def inv_quad_logdet(self, rhs: Tensor | None, logdet: bool | None, reduce: bool | None) -> Terms:
        """Return the quadratic form and log determinant, as :meth:`Solver.inv_quad_logdet`; `rhs` must be given."""
        assert rhs is not None
        return quadratic_forms(self.noisy, rhs, self.parts, reduce), self.parts.log_determinant()


def quadratic_forms(noisy: AddedDiagLinearOperator, rhs: Tensor, parts: Factorization, reduce: bool | None) -> Tensor:
    r"""Return :math:`v^\top A^{-1} v` (`*batch x t`, or its sum) as :math:`2 v^\top w - w^\top A w`, w constant."""
    columns = as_columns(rhs)
    weights = parts.solve(columns.detach())
    forms = ((2 * columns - noisy.matmul(weights)) * weights).sum(-2)
    return forms.sum(-1) if reduce else forms


def has_few_rows(covariance: LinearOperator) -> bool:
    return covariance.size(-1) <= settings.max_cholesky_size.value()


@dataclass(frozen=True)
class Dense:
    """A solver by a Cholesky factor of A (`*batch x N x N`) in its own dtype, :math:`O(N^3)` once, with gradients."""

    noisy: AddedDiagLinearOperator

    def solve(self, rhs: Tensor) -> Tensor:
        r"""Return :math:`A^{-1} V` (`*batch x N x t`), with gradients."""
        return torch.cholesky_solve(rhs, self.noisy.dense_root())

    def inv_quad_logdet(self, rhs: Tensor | None, logdet: bool | None, reduce: bool | None) -> Terms:
        return LinearOperator.inv_quad_logdet(self.noisy, rhs, logdet, reduce)
