"""Cholesky factors of covariances, also of those that rounding has left without one."""

from __future__ import annotations

import torch
from torch import Tensor

from gpytorch_partition.linalg.eigenvectors import stable_eigh

_JITTERS = (1e-10, 1e-8, 1e-6, 1e-4)  # in units of the mean of the diagonal
_LEAST_EIGENVALUE = 1e-10  # in the same units


def stable_cholesky(matrix: Tensor) -> Tensor:
    r"""
    Return the lower Cholesky factor L (`*batch x n x n`, float64) of a covariance matrix, with gradients.

    If rounding has left a matrix without a factor, a jitter is added to its diagonal: 1e-10 of the diagonal's mean,
    then 1e-8, 1e-6 and 1e-4. If that is too little as well, eigenvalues below 1e-10 of the mean are raised to that.
    Other matrices of a batch stay as they are.

    :param matrix: `*batch x n x n` matrices, of which the lower triangles are read; they are not changed.
    :raises ValueError: If a number is infinite or NaN.

    Example:
        >>> L = stable_cholesky(torch.tensor([[4.0, 2.0], [2.0, 1.0]]))  # singular
        >>> (L @ L.mT).round(decimals=6)
        tensor([[4., 2.],
                [2., 1.]], dtype=torch.float64)
    """
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
    _check_finite(matrix.tril())
    return torch.where(failed[..., None, None] != 0, _factor_of_eigenvectors(matrix, unit), factor)


def _factor_of_eigenvectors(matrix: Tensor, unit: Tensor) -> Tensor:
    least = torch.where(unit > 0, unit, 1) * _LEAST_EIGENVALUE
    values, vectors = stable_eigh(matrix)
    root = vectors * values.clamp_min(least).sqrt().unsqueeze(-2)
    factor = torch.linalg.qr(root.mT).R.mT
    return factor * torch.where(factor.diagonal(dim1=-2, dim2=-1) < 0, -1, 1).unsqueeze(-2)


def _check_finite(matrix: Tensor) -> None:
    num_wrong = int((~matrix.isfinite()).sum())
    if num_wrong:
        raise ValueError(
            f"expected a matrix of finite numbers, got {num_wrong} that are infinite or NaN: look for them in the "
            "covariance's parameters, in the inputs and in the noise"
        )
