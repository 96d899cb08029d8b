"""A kernel's largest eigenvalues (low-rank truncation, principal components, cuts), and its distance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from gpytorch.kernels import Kernel
from linear_operator import to_dense, to_linear_operator
from torch import Tensor

from gpytorch_partition.clusters.cache import without_computed
from gpytorch_partition.inputs.numbers import check_tensors, is_whole, random_state_of
from gpytorch_partition.kernels.wrapper_kernels import checked_kernel
from gpytorch_partition.linalg.factors import Eigenpairs, largest_eigenpairs
from gpytorch_partition.linalg.random import solver_generator
from gpytorch_partition.settings import eager_kernels

_ROUNDING = 1e-12  # smaller eigenvalues, relative to the trace, are rounding errors of zeros


@dataclass(frozen=True, eq=False)
class SpectralTruncation:
    r"""
    Hold the largest eigenvalues of a kernel matrix and their eigenvectors, :math:`K \approx U \Lambda U^\top`.

    Use it to replace a kernel by its best few columns; :func:`spectral_truncation` makes it. No matrix of this rank is
    closer to K (Eckart & Young 1936). With rows centred in feature space, it is kernel principal component analysis.
    """

    kernel: Kernel  #: The kernel k.
    x: Tensor  #: `N x D` rows.
    eigenvalues: Tensor  #: `r` eigenvalues, largest first, 0 where only rounding is left.
    eigenvectors: Tensor  #: `N x r` orthonormal eigenvectors U.
    total: float  #: The exact sum of all N eigenvalues, the trace of the (centred) matrix.
    is_centred: bool  #: Whether the matrix is centred.

    @torch.no_grad()
    def features(self, points: Tensor) -> Tensor:
        r"""
        Return the coordinates of points (`N2 x r`, float64), whose products are the truncated kernel.

        They are :math:`\varphi(x) = \Lambda^{-1/2} U^\top k(X, x)` (zeros where an eigenvalue is 0), with centred rows
        the scores of the principal components. Costs one product with the kernel, :math:`O((N + N_2) m r)`.
        """
        return _Covariance(self.kernel, points, self.x).matmul(self._weights) - self._offset

    def __getstate__(self) -> dict[str, Any]:
        return without_computed(self)

    @cached_property
    def _weights(self) -> Tensor:
        return self.eigenvectors * torch.where(self.eigenvalues > 0, self.eigenvalues, math.inf).rsqrt()

    @cached_property
    def _offset(self) -> Tensor:
        """The mean (`r`) of the rows' uncentred coordinates; zeros if they are not centred."""
        if not self.is_centred:
            return torch.zeros_like(self.eigenvalues)
        return _Covariance(self.kernel, self.x, self.x).matmul(self._weights).mean(0)


@torch.no_grad()
def spectral_truncation(
    kernel: Kernel, x: Tensor, rank: int, *, is_centred: bool = False, tolerance: float = 1e-9, random_state: Any = None
) -> SpectralTruncation:
    """
    Return the approximation of rank r of a kernel by its largest eigenvalues (Yuille 2014, lecture 9, 1.5).

    Call it to turn a kernel machine into a linear one on r columns (:meth:`SpectralTruncation.features`);
    `eigenvalues.sum() / total` is the share of the trace of K that these columns keep.

    Costs some tens to hundreds of products, :math:`O(N m r)` each for a partition kernel.

    :param kernel: Any kernel whose products are linear in N: one of this package, a sum of such kernels, or a
        :class:`gpytorch.kernels.ScaleKernel` around them.
    :param x: `N x D` rows.
    :param rank: r, from 1 to N.
    :param is_centred: Whether the rows are centred in feature space. (Default: False.)
    :param tolerance: Residual of each eigenvector, relative to the largest eigenvalue. (Default: 1e-9.)
    :param random_state: Seed of the first vectors; others change results by the tolerance. (Default: None, a fresh
        one.)
    :raises ValueError: If the rank is not from 1 to N, or the rows are no N x D tensor.

    Example:
        >>> from gpytorch_partition import FastClusterKernel
        >>> x = torch.rand(300, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        >>> kernel = FastClusterKernel(x, 50, random_state=0)
        >>> truncation = spectral_truncation(kernel, x, 100, random_state=0)
        >>> features = truncation.features(x)
        >>> error = torch.linalg.matrix_norm(kernel(x).to_dense() - features @ features.mT, ord=2)
        >>> bool(error < truncation.eigenvalues[-1])  # it is the next eigenvalue
        True
    """
    _check(x, rank, "rank")
    covariance = _Covariance(kernel, x, x)
    total = float(covariance.diagonal().sum())
    negligible = _ROUNDING * total
    if is_centred:
        total -= float(covariance.matmul(_ones(x)).mean())

    def product(columns: Tensor) -> Tensor:
        if not is_centred:
            return covariance.matmul(columns)
        image = covariance.matmul(columns - columns.mean(0))
        return image - image.mean(0)

    pairs = largest_eigenpairs(product, len(x), int(rank), generator=_generator(x, random_state), tolerance=tolerance)
    values = pairs.values.where(pairs.values.abs() > negligible, 0.0)
    total = total if abs(total) > negligible else 0.0  # 0 for centred rows that are equal to the kernel
    return SpectralTruncation(kernel, x.detach(), values, pairs.vectors, total, is_centred)


@torch.no_grad()
def spectral_embedding(
    kernel: Kernel, x: Tensor, num_components: int, *, tolerance: float = 1e-6, random_state: Any = None
) -> Eigenpairs:
    """
    Return coordinates in which rows that are alike to the kernel are close (normalized cuts; Shi & Malik 2000).

    Call it to draw the rows; :class:`~gpytorch_partition.estimators.PartitionSpectralClustering` clusters them.

    The coordinates are the leading eigenvectors of :math:`D^{-1/2} A D^{-1/2}`, divided by :math:`D^{1/2}`, with A the
    kernel matrix without its diagonal, which must not be negative, and D its row sums: those of
    :func:`sklearn.manifold.spectral_embedding` on the affinity K, with its first, constant coordinate. Costs and other
    parameters are those of :func:`spectral_truncation`.

    :return: `k` eigenvalues, largest first, and the coordinates (`N x k`).
    :raises ValueError: If `num_components` is not from 1 to N, the rows are no N x D tensor, or a row sum is negative.

    Example:
        >>> from gpytorch_partition import PartitionKernel
        >>> kernel = PartitionKernel(lambda x: torch.cat([x.floor(), (x / 2).floor()], -1).long())
        >>> embedding = spectral_embedding(kernel, torch.tensor([[0.1], [0.2], [1.5], [7.0], [7.5]]), 2)
        >>> embedding.values.numpy().round(3)
        array([1., 1.])
    """
    _check(x, num_components, "num_components")
    covariance = _Covariance(kernel, x, x)
    own = covariance.diagonal().unsqueeze(-1)
    degrees = covariance.matmul(_ones(x)) - own
    degrees = degrees.where(degrees.abs() > _ROUNDING * own, 0.0)  # 0 for rows that share no cluster with others
    if bool((degrees < 0).any()):
        raise ValueError(
            f"expected affinities that are not negative, got a row whose sum is {float(degrees.min()):.3g}"
        )
    root = degrees.where(degrees > 0, 1.0).sqrt()

    def product(columns: Tensor) -> Tensor:
        columns = columns / root
        return (covariance.matmul(columns) - own * columns) / root

    generator = _generator(x, random_state)
    pairs = largest_eigenpairs(product, len(x), int(num_components), generator=generator, tolerance=tolerance)
    return Eigenpairs(pairs.values, pairs.vectors / root)


@torch.no_grad()
def kernel_distance(kernel: Kernel, x1: Tensor, x2: Tensor) -> Tensor:
    r"""
    Return the distances (`N1 x N2`) of points in the kernel's feature space (Yuille 2014, lecture 9, 1.4):

    .. math:: d(x, x')^2 = k(x, x) + k(x', x') - 2 k(x, x') = \| \phi(x) - \phi(x') \|^2

    Use this metric for methods that take distances, such as nearest neighbours and hierarchical clustering. With flat
    partitions, :math:`d^2 / 2` is the share of partitions that separate two points. Costs :math:`O(N_1 N_2 m)` time.

    :param kernel: Any kernel of GPyTorch.
    :param x1: `N1 x D` points.
    :param x2: `N2 x D` points.
    :raises ValueError: If the points cannot be used.

    Example:
        >>> from gpytorch_partition import PartitionKernel
        >>> kernel = PartitionKernel(lambda x: torch.cat([x.floor(), x.round()], -1).long())
        >>> kernel_distance(kernel, torch.tensor([[0.2]]), torch.tensor([[0.4], [0.7], [3.0]])) ** 2 / 2
        tensor([[0.0000, 0.5000, 1.0000]])
    """
    check_tensors(x1=x1, x2=x2)
    own = [checked_kernel(kernel)(x, diag=True) for x in (x1, x2)]
    squares = own[0].unsqueeze(-1) + own[1].unsqueeze(-2) - 2 * to_dense(kernel(x1, x2))
    return squares.clamp_min(0).sqrt()


class _Covariance:
    def __init__(self, kernel: Kernel, x1: Tensor, x2: Tensor) -> None:
        with eager_kernels():
            covariance = to_linear_operator(checked_kernel(kernel)(x1.detach(), x2.detach()))
            self._operator = covariance.evaluate_kernel().detach()

    def matmul(self, columns: Tensor) -> Tensor:
        return self._operator.matmul(columns.to(self._operator.dtype)).double()

    def diagonal(self) -> Tensor:
        return self._operator.diagonal(dim1=-2, dim2=-1).double()


def _check(x: Any, rank: Any, name: str) -> None:
    check_tensors(x=x)
    if x.dim() != 2:
        raise ValueError(f"expected rows (N x D), got shape {tuple(x.shape)}")
    if not is_whole(rank, 1, len(x)):
        raise ValueError(f"expected {name} to be from 1 to the number of rows, {len(x)}, got {rank!r}")


def _generator(x: Tensor, random_state: Any) -> torch.Generator:
    return solver_generator(random_state_of(random_state).randint(2**31), "sketch", x.device)


def _ones(x: Tensor) -> Tensor:
    return torch.ones(len(x), 1, dtype=torch.float64, device=x.device)
