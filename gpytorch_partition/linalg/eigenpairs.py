"""The largest eigenpairs of a symmetric matrix that is known by its products only."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import NamedTuple

import torch
from linear_operator.utils.warnings import NumericalWarning
from torch import Tensor

from gpytorch_partition.linalg.eigenvectors import stable_eigh

_OVERSAMPLING = 6  # columns of a block beside those asked for: restarts converge by the gap behind them
_NUM_BLOCKS = 8  # blocks of a Krylov space before it is restarted
_DENSE_SPACES = 2  # up to so many times the dimension of a Krylov space, a dense decomposition is cheaper


class Eigenpairs(NamedTuple):
    """
    The eigenvalues and eigenvectors, largest first.

    :param values: `k` eigenvalues.
    :param vectors: `N x k` orthonormal eigenvectors.
    """

    values: Tensor
    vectors: Tensor


def largest_eigenpairs(
    matmul: Callable[[Tensor], Tensor],
    num_rows: int,
    num_pairs: int,
    *,
    generator: torch.Generator,
    tolerance: float = 1e-9,
    max_restarts: int = 100,
) -> Eigenpairs:
    r"""
    Return the algebraically largest eigenvalues and their eigenvectors, by block Lanczos from a random block.

    A cycle builds an orthonormal basis of the Krylov space of eight blocks of k + 6 columns, fully reorthogonalized.
    The next cycle begins with its best approximations (Rayleigh-Ritz). Cycles end when all k have residuals
    :math:`\|A v - \lambda v\| \le \epsilon |\lambda_1|`. Errors of eigenvalues are then at most that, and mostly their
    squares divided by the gap to the next eigenvalue; errors of eigenvectors are at most residual divided by gap.
    (Musco & Musco 2015 explain why a block Krylov space needs so few products.)

    Each cycle costs 8 products with k + 6 columns and :math:`O(N k^2)`; work space is some 8 (k + 6) numbers per row.
    Matrices of up to twice 8 (k + 6) rows are decomposed densely, exactly.

    :param matmul: :math:`V \mapsto A V` for a symmetric A, `N x t`, float64.
    :param num_rows: N.
    :param num_pairs: Number k of eigenpairs, at most N.
    :param generator: Source of the first block.
    :param tolerance: :math:`\epsilon`. (Default: 1e-9.)
    :param max_restarts: Most cycles; a `NumericalWarning` is given if they are too few. (Default: 100.)
    :return: The pairs, each vector with its largest entry positive.

    Example:
        >>> A = torch.diag(torch.tensor([9.0, 1.0, 4.0], dtype=torch.float64))
        >>> pairs = largest_eigenpairs(A.matmul, 3, 2, generator=torch.Generator().manual_seed(0))
        >>> pairs.values
        tensor([9., 4.], dtype=torch.float64)
        >>> pairs.vectors.abs().round()
        tensor([[1., 0.],
                [0., 0.],
                [0., 1.]], dtype=torch.float64)
    """
    width = num_pairs + _OVERSAMPLING
    if num_rows <= _DENSE_SPACES * _NUM_BLOCKS * width:
        return _signed(*_dense_pairs(matmul, num_rows, num_pairs))
    block = torch.randn(num_rows, width, generator=generator, dtype=torch.float64, device=generator.device)
    for _ in range(max_restarts):
        values, block, residuals = _cycle(matmul, block)
        if bool((residuals[:num_pairs] <= tolerance * values[0].abs()).all()):
            break
    else:
        worst = float(residuals[:num_pairs].max() / values[0].abs())
        warnings.warn(
            f"eigenvectors have a relative residual of {worst:.2g} after {max_restarts} cycles of block Lanczos, not "
            f"{tolerance:.2g}: eigenvalues close together converge slowly. Ask for fewer, or for a larger tolerance",
            NumericalWarning,
            stacklevel=2,
        )
    return _signed(values[:num_pairs], block[:, :num_pairs])


def _dense_pairs(matmul: Callable[[Tensor], Tensor], num_rows: int, num_pairs: int) -> tuple[Tensor, Tensor]:
    matrix = matmul(torch.eye(num_rows, dtype=torch.float64))
    values, vectors = stable_eigh(0.5 * (matrix + matrix.mT))
    return values.flip(0)[:num_pairs], vectors.flip(1)[:, :num_pairs]


def _cycle(matmul: Callable[[Tensor], Tensor], block: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The best eigenvalues, vectors and residuals of the block's Krylov space, as many as the block has columns."""
    width = block.shape[1]
    basis = block.new_empty(block.shape[0], _NUM_BLOCKS * width)
    basis[:, :width] = torch.linalg.qr(block).Q
    projected = block.new_zeros(basis.shape[1], basis.shape[1])
    for end in range(width, basis.shape[1] + 1, width):
        known = basis[:, :end]
        product = matmul(known[:, end - width :].contiguous())
        projected[:end, end - width : end] = known.mT @ product
        rest = _orthogonalized(product, known)
        if end < basis.shape[1]:
            # Of a complete Krylov space the rest is rounding, which is a random direction once it is orthogonal.
            basis[:, end : end + width] = torch.linalg.qr(_orthogonalized(torch.linalg.qr(rest).Q, known)).Q
    values, rotation = stable_eigh(torch.triu(projected) + torch.triu(projected, 1).mT)
    values, rotation = values.flip(0)[:width], rotation.flip(1)[:, :width]
    return values, basis @ rotation, (rest @ rotation[-width:]).norm(dim=0)


def _orthogonalized(columns: Tensor, basis: Tensor) -> Tensor:
    """The parts of the columns orthogonal to the basis; twice is enough (Parlett)."""
    for _ in range(2):
        columns = columns - basis @ (basis.mT @ columns)
    return columns


def _signed(values: Tensor, vectors: Tensor) -> Eigenpairs:
    largest = vectors.gather(0, vectors.abs().argmax(0, keepdim=True))
    return Eigenpairs(values, vectors * torch.where(largest < 0, -1.0, 1.0).to(vectors))
