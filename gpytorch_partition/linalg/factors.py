"""Factors of symmetric matrices: Cholesky, eigenvectors, the largest eigenpairs, Nystrom; tall, thin products."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import scipy.linalg
import torch
from linear_operator.utils.warnings import NumericalWarning
from torch import Tensor

from gpytorch_partition.linalg.conjugate_gradients import Closure

_JITTERS = (1e-10, 1e-8, 1e-6, 1e-4)  # in units of the mean of the diagonal
_LEAST_EIGENVALUE = 1e-10  # in the same units
_OVERSAMPLING = 6  # columns of a block beside those asked for: restarts converge by the gap behind them
_NUM_BLOCKS = 8  # blocks of a Krylov space before it is restarted
_MOST_CYCLES = 100  # of such spaces
_DENSE_SPACES = 2  # up to so many times the dimension of a Krylov space, a dense decomposition is cheaper
# Columns of the sketch in a product: enough to share the reading of the matrix, few enough to bound the workspace.
_COLUMNS_PER_PRODUCT = 32


def stable_eigh(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """
    Return eigenvalues (`*batch x n`, ascending) and eigenvectors in columns, as :func:`torch.linalg.eigh` does.

    PyTorch's divide and conquer fails for some matrices: QR iterations (Anderson et al. 1999, LAPACK's syev) follow.
    """
    try:
        return torch.linalg.eigh(matrix)
    except torch.linalg.LinAlgError:
        if not bool(matrix.tril().isfinite().all()):
            raise
    matrices = matrix.detach().cpu().reshape(-1, *matrix.shape[-2:]).numpy()
    found = [torch.from_numpy(scipy.linalg.eigh(each, driver="ev")[1]) for each in matrices]
    vectors = torch.stack(found).reshape(matrix.shape).to(matrix)
    symmetric = matrix.tril() + matrix.tril(-1).mT
    return (vectors * (symmetric @ vectors)).sum(-2), vectors


def symmetric_root(matrix: Tensor, least: Tensor | float = 0.0) -> Tensor:
    r"""Return C (`*batch x n x n`) with :math:`C C^\top` the matrix, whose eigenvalues below `least` count as that."""
    values, vectors = stable_eigh(matrix)
    return vectors * values.clamp_min(least).sqrt().unsqueeze(-2)


def stable_cholesky(matrix: Tensor) -> Tensor:
    """Return the lower Cholesky factor (`*batch x n x n`, float64), with gradients, if need be of a jittered matrix."""
    matrix = matrix.double()
    unit = matrix.detach().diagonal(dim1=-2, dim2=-1).abs().mean(-1, keepdim=True)
    jitter = torch.zeros_like(unit)
    factor, failed = torch.linalg.cholesky_ex(matrix)
    for share in _JITTERS:
        if not bool(failed.any()):
            return factor
        jitter = torch.where(failed.unsqueeze(-1) != 0, share * unit, jitter)
        factor, failed = torch.linalg.cholesky_ex(matrix + torch.diag_embed(jitter.expand(matrix.shape[:-1])))
    if not bool(failed.any()):
        return factor
    if num_wrong := int((~matrix.tril().isfinite()).sum()):
        raise ValueError(
            f"expected a matrix of finite numbers, got {num_wrong} that are infinite or NaN: look for them in the "
            "covariance's parameters, in the inputs and in the noise"
        )
    root = symmetric_root(matrix, torch.where(unit > 0, unit, 1) * _LEAST_EIGENVALUE)
    raised = torch.linalg.qr(root.mT).R.mT
    raised = raised * torch.where(raised.diagonal(dim1=-2, dim2=-1) < 0, -1, 1).unsqueeze(-2)
    return torch.where(failed[..., None, None] != 0, raised, factor)


class Eigenpairs(NamedTuple):
    """Hold eigenvalues (`k`), largest first, and orthonormal eigenvectors (`N x k`)."""

    values: Tensor
    vectors: Tensor


def largest_eigenpairs(
    matmul: Closure, num_rows: int, num_pairs: int, *, generator: torch.Generator, tolerance: float = 1e-9
) -> Eigenpairs:
    r"""
    Return the algebraically largest eigenpairs of a symmetric A by block Lanczos from a random block.

    A cycle builds an orthonormal basis of the Krylov space of eight blocks of k + 6 columns, fully reorthogonalized.
    The next cycle begins with its best approximations (Rayleigh-Ritz). Cycles end when all k have residuals :math:`\|A
    v - \lambda v\| \le \epsilon |\lambda_1|`. Errors of eigenvalues are then at most that, and of eigenvectors at most
    residual divided by gap (Musco & Musco 2015).

    Matrices of up to twice 8 (k + 6) rows are decomposed densely, exactly.

    :param tolerance: :math:`\epsilon`; a `NumericalWarning` is given if 100 cycles are too few. (Default: 1e-9.)
    :return: The pairs, each vector with its largest entry positive.
    """
    width = num_pairs + _OVERSAMPLING
    if num_rows <= _DENSE_SPACES * _NUM_BLOCKS * width:
        matrix = matmul(torch.eye(num_rows, dtype=torch.float64))
        values, vectors = stable_eigh(0.5 * (matrix + matrix.mT))
        return _signed(values.flip(0)[:num_pairs], vectors.flip(1)[:, :num_pairs])
    block = torch.randn(num_rows, width, generator=generator, dtype=torch.float64, device=generator.device)
    for _ in range(_MOST_CYCLES):
        values, block, residuals = _cycle(matmul, block)
        if bool((residuals[:num_pairs] <= tolerance * values[0].abs()).all()):
            break
    else:
        worst = float(residuals[:num_pairs].max() / values[0].abs())
        told = (
            f"eigenvectors have a relative residual of {worst:.2g} after {_MOST_CYCLES} cycles of block Lanczos, not "
            f"{tolerance:.2g}: eigenvalues close together converge slowly. Ask for fewer, or for a larger tolerance"
        )
        warnings.warn(told, NumericalWarning, stacklevel=2)
    return _signed(values[:num_pairs], block[:, :num_pairs])


def _cycle(matmul: Closure, block: Tensor) -> tuple[Tensor, Tensor, Tensor]:
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


class NystromFactor(NamedTuple):
    r"""
    Hold the factor of :math:`K \approx L L^\top + \lambda_\ell I`: exact in the directions found, constant in others.

    :math:`L = U (\Lambda - \lambda_\ell)^{1/2}` from the :math:`\ell` leading eigenpairs; the eigenvalue
    :math:`\lambda_\ell` stands for those not found, with which log determinants are less noisy.
    """

    root: Tensor  # L, *batch x N x rank
    gram: Tensor  # L^T L, *batch x rank x rank
    shift: Tensor  # lambda_l, *batch


def nystrom_factor(
    matmul: Closure, shape: torch.Size, rank: int, generator: torch.Generator, dtype: torch.dtype
) -> NystromFactor:
    r"""
    Return a randomized Nystrom approximation (Frangella, Tropp & Udell 2021, algorithm 2.1), shifted outside its span.

    :param matmul: :math:`V \mapsto K V` (`*batch x N x t`) for positive semidefinite K.
    :param shape: `*batch x N` of the vectors.
    :param rank: Number :math:`\ell` of eigenpairs, cut to N.
    """
    rank = min(rank, shape[-1])
    sketch = torch.randn(*shape, rank, generator=generator, dtype=dtype, device=generator.device)
    image = torch.cat([matmul(columns) for columns in sketch.split(_COLUMNS_PER_PRODUCT, -1)], -1)
    jitter = torch.finfo(dtype).eps * image.norm(dim=(-2, -1), keepdim=True)
    image = image.add_(jitter * sketch)
    core = (sketch.mT @ image).double()
    del sketch
    triangle = stable_cholesky(0.5 * (core + core.mT))
    image = torch.linalg.solve_triangular(triangle.to(dtype), image.mT, upper=False).mT
    basis, small = torch.linalg.qr(image)
    vectors, singular, _ = torch.linalg.svd(small)
    values = (singular.square() - jitter.squeeze(-1)).clamp_min(0)
    shift = values[..., -1]
    weights = values - shift.unsqueeze(-1)
    root = basis @ (vectors * weights.sqrt().unsqueeze(-2))
    return NystromFactor(root, torch.diag_embed(weights), shift)


def transposed_product(tall: Tensor, values: Tensor) -> Tensor:
    r"""Return :math:`R^\top V` (`*batch x k x t`), for a dozen columns 2 to 4 times as fast as `tall.mT @ values`."""
    return (values.mT @ tall).mT if values.shape[-1] <= tall.shape[-1] else tall.mT @ values


def tall_product(tall: Tensor, weights: Tensor) -> Tensor:
    """Return :math:`R W` (`*batch x N x t`); for a dozen columns, 2 times as fast as `tall @ weights`."""
    return (weights.mT @ tall.mT).mT.contiguous() if weights.shape[-1] <= tall.shape[-1] else tall @ weights
