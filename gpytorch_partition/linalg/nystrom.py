"""A randomized Nystrom approximation of a matrix that is known by its products only, for a preconditioner."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from gpytorch_partition.linalg.cholesky import stable_cholesky

# Columns of the sketch in a product: enough to share the reading of the matrix, few enough to bound the workspace.
_COLUMNS_PER_PRODUCT = 32


class NystromFactor(NamedTuple):
    r"""
    The factor of :math:`K \approx L L^\top + \lambda_\ell I`, exact in the directions found, constant in all others.

    :math:`L = U (\Lambda - \lambda_\ell)^{1/2}` from the :math:`\ell` leading eigenpairs; the eigenvalue
    :math:`\lambda_\ell` stands for those not found. The spectrum of partition kernels is bounded below (a row is most
    similar to itself). A low-rank factor alone would be zero there, and log determinants estimated through it noisier
    than without any preconditioner.
    """

    root: Tensor  # L, *batch x N x rank
    gram: Tensor  # L^T L, *batch x rank x rank
    shift: Tensor  # lambda_l, *batch


def nystrom_factor(
    matmul: Callable[[Tensor], Tensor],
    shape: torch.Size,
    rank: int,
    generator: torch.Generator,
    dtype: torch.dtype,
) -> NystromFactor:
    r"""
    Return a randomized Nystrom approximation of a matrix, with a shift on the complement.

    This is algorithm 2.1 of Frangella, Tropp & Udell 2021.

    This costs `rank` products with K, 32 at a time, and :math:`O(N \ell^2)`. The result holds `rank` numbers per row,
    the work about three times as many.

    :param matmul: :math:`V \mapsto K V` (`*batch x N x t`) for positive semidefinite K.
    :param shape: `*batch x N` of the vectors.
    :param rank: Number :math:`\ell` of eigenpairs, cut to N.
    :param generator: Source of the random sketch, on the device of the vectors.
    :param dtype: Dtype of the vectors.

    Example:
        >>> K = torch.diag(torch.tensor([9.0, 4.0, 0.5, 0.5]))
        >>> factor = nystrom_factor(K.matmul, K.shape[:1], 3, torch.Generator().manual_seed(0), K.dtype)
        >>> bool((factor.shift - 0.5).abs() < 1e-4)
        True
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
