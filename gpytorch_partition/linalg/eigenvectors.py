"""Eigenvectors of symmetric matrices by a second algorithm where the first does not converge."""

from __future__ import annotations

import scipy.linalg
import torch
from torch import Tensor


def stable_eigh(matrix: Tensor) -> tuple[Tensor, Tensor]:
    r"""
    Return eigenvalues, in ascending order, and eigenvectors of symmetric matrices, as :func:`torch.linalg.eigh` does.

    PyTorch's divide and conquer fails to converge for some matrices. These are left to QR iterations, which are slower
    (Anderson et al. 1999, LAPACK's syev) and have gradients of the eigenvalues only.

    :param matrix: `*batch x n x n` matrices, of which the lower triangles are read.
    :return: `*batch x n` eigenvalues and `*batch x n x n` eigenvectors, in columns.
    :raises torch.linalg.LinAlgError: If a number is infinite or NaN.

    Example:
        >>> values, vectors = stable_eigh(torch.tensor([[2.0, 1.0], [1.0, 2.0]]))
        >>> values
        tensor([1., 3.])
    """
    try:
        values, vectors = torch.linalg.eigh(matrix)
    except torch.linalg.LinAlgError:
        if not bool(matrix.tril().isfinite().all()):
            raise
        return _by_qr_iterations(matrix)
    return values, vectors


def _by_qr_iterations(matrix: Tensor) -> tuple[Tensor, Tensor]:
    matrices = matrix.detach().cpu().reshape(-1, *matrix.shape[-2:]).numpy()
    found = [torch.from_numpy(scipy.linalg.eigh(each, driver="ev")[1]) for each in matrices]
    vectors = torch.stack(found).reshape(matrix.shape).to(matrix)
    symmetric = matrix.tril() + matrix.tril(-1).mT
    return (vectors * (symmetric @ vectors)).sum(-2), vectors
