r"""
Lanczos on closures: what a matrix does to a block of vectors and to probe vectors, from products with it alone.

The Krylov spaces of K and of :math:`s K + \sigma^2 I` are the same, so one run serves every s and :math:`\sigma^2`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Closure = Callable[[Tensor], Tensor]

# Vectors of the basis that later ones are orthogonalized against, beside the last two blocks. Copies come of
# eigenvalues that have been found, large ones, whose eigenvectors lie in the span of the first few dozen vectors.
_KEPT = 64


class LanczosRun:
    r"""
    Block Lanczos from a few vectors, and single Lanczos from each of many probes, in one product per step.

    The first 64 vectors of the block's basis are kept, and later ones orthogonalized, twice, against them and the last
    two blocks: without that, copies of the large eigenvalues return after a few dozen steps. Probes are left to
    themselves: copies share the weight of the eigenvalue that they are copies of, which a quadrature does not notice.

    Each step costs one product with K for b + q columns and :math:`O(N b (64 + b))`. Holds `64 + 2 b + 2 q` numbers
    per row.

    :param matmul: :math:`V \mapsto K V` for positive semidefinite K, `N x t`.
    :param block: `N x b` vectors that start the block.
    :param probes: `N x q` probe vectors of any length.
    :param generator: Source of the vectors that go on where a Krylov space is exhausted.

    Example:
        >>> K = torch.diag(torch.tensor([1.0, 2.0, 4.0]))
        >>> run = LanczosRun(K.matmul, torch.ones(3, 1), torch.ones(3, 1), torch.Generator())
        >>> run.extend(2)
        >>> nodes, coefficients = run.block_quadrature()
        >>> round(float(((coefficients**2).squeeze(-1) * nodes).sum()), 5)  # 1^T K 1
        7.0
    """

    def __init__(self, matmul: Closure, block: Tensor, probes: Tensor, generator: torch.Generator) -> None:
        self.matmul, self.generator = matmul, generator
        # In float64, so that vectors of very different lengths and nearly parallel ones keep what tells them apart.
        vectors, triangle = torch.linalg.qr(block.double())
        self._store, self._size, self._newest = probes.new_empty(16 * block.shape[1], block.shape[0]), 0, 0
        self._width, self.dimension = block.shape[1], 0  # of a block, and of the block's Krylov space
        self.diagonal: list[Tensor] = []  # b x b blocks Q_j^T K Q_j
        self.below: list[Tensor] = []  # b x b blocks Q_{j+1}^T K Q_j
        self.probe_norms = probes.norm(dim=0)
        self._probe, self._probe_before = probes / self.probe_norms, torch.zeros_like(probes)
        self._alphas: list[Tensor] = []
        self._betas: list[Tensor] = [torch.zeros_like(self.probe_norms)]
        self.start = self._append(vectors.to(probes.dtype)) @ triangle

    @property
    def basis(self) -> Tensor:
        """What is kept of the orthonormal basis, row by row: the first vectors, and the last two blocks."""
        return self._store[: self._size]

    @property
    def num_steps(self) -> int:
        """Steps taken so far."""
        return len(self._alphas)

    def extend(self, num_steps: int) -> None:
        """Take more steps, N in all at most; once the block's basis is complete, only the probes go on."""
        for _ in range(min(num_steps, self._store.shape[1] - self.num_steps)):
            last = self.basis[self._size - self._newest :].mT
            product = self.matmul(torch.cat([last, self._probe], -1))
            if self._newest:
                self._step_block(product[:, : self._newest].contiguous())
            self._step_probes(product[:, last.shape[1] :])

    def _step_block(self, product: Tensor) -> None:
        self.diagonal.append((self.basis[-self._newest :] @ product).double())
        self.below.append(self._append(product))

    def _append(self, columns: Tensor) -> Tensor:
        """Append an orthonormal basis of what columns have beyond the basis; return their coordinates in it."""
        lengths = columns.norm(dim=0).clamp_min(torch.finfo(columns.dtype).tiny)
        vectors, coordinates = columns / lengths, torch.diag(lengths)
        for _ in range(2):
            vectors, triangle = torch.linalg.qr(vectors - self.basis.mT @ (self.basis @ vectors))
            coordinates = triangle @ coordinates
        # Strongest directions first: what is left of dependent columns comes last, and no others with it.
        turn, sizes, _ = torch.linalg.svd(coordinates / lengths)
        room = min(columns.shape[1], self._store.shape[1] - self.dimension)
        vectors, coordinates = (vectors @ turn)[:, :room], (turn.mT @ coordinates)[:room]
        lost = sizes[:room] <= 10 * torch.finfo(columns.dtype).eps
        if bool(lost.any()):
            vectors, coordinates = self._renewed(vectors, lost), coordinates.masked_fill(lost.unsqueeze(-1), 0)
        self._keep(vectors)
        return coordinates.double()

    def _keep(self, vectors: Tensor) -> None:
        """Append vectors (`N x b`) to those kept, in a store that grows by half."""
        self._newest = vectors.shape[1]
        self.dimension += self._newest
        most = _KEPT + 2 * self._width
        if self._size + self._newest > most:
            dropped = self._size + self._newest - most
            self._store[_KEPT : self._size - dropped] = self._store[_KEPT + dropped : self._size].clone()
            self._size -= dropped
        if self._size + self._newest > self._store.shape[0]:
            larger = self._store.new_empty(self._store.shape[0] * 3 // 2 + self._newest, self._store.shape[1])
            larger[: self._size] = self.basis
            self._store = larger
        self._store[self._size : self._size + self._newest] = vectors.mT
        self._size += self._newest

    def _renewed(self, vectors: Tensor, lost: Tensor) -> Tensor:
        """Random directions, orthogonal to everything, for those in which nothing was left (the last ones)."""
        fresh = torch.randn(vectors.shape, generator=self.generator, dtype=vectors.dtype, device=vectors.device)
        renewed = torch.where(lost, fresh, vectors)
        for _ in range(2):
            renewed = torch.linalg.qr(renewed - self.basis.mT @ (self.basis @ renewed)).Q
        return torch.where(lost, renewed, vectors)

    def _step_probes(self, product: Tensor) -> None:
        """The three-term recurrence (Golub & Meurant 2010) of each probe."""
        alpha = (self._probe * product).sum(0)
        rest = product - alpha * self._probe - self._betas[-1] * self._probe_before
        beta = rest.norm(dim=0)
        self._alphas.append(alpha)
        self._betas.append(beta)
        self._probe_before, self._probe = self._probe, rest / beta.clamp_min(torch.finfo(rest.dtype).tiny)

    def block_quadrature(self) -> tuple[Tensor, Tensor]:
        r"""
        Nodes (`k`) and coefficients (`k x b`) with :math:`V^\top f(K) V \approx \sum_i f(\theta_i) c_i c_i^\top`.

        The matrix Gauss-Radau quadrature of the block tridiagonal matrix, with b nodes at 0, the left end of the
        spectrum of a positive semidefinite K (Golub & Meurant 2010, theorem 6.4), in float64. Of
        :math:`f(x) = (x + \lambda)^{-1}` it is an upper bound, where the Gauss quadrature of :meth:`probe_quadratures`
        is one of log determinants: what Lanczos has not resolved yet makes a likelihood too small, never too large.
        """
        matrix = _block_tridiagonal(self.diagonal, self.below[:-1])
        last = self.below[-1]
        if last.shape[0]:
            matrix = _block_tridiagonal([*self.diagonal, _corner(matrix, last)], self.below)
        nodes, vectors = torch.linalg.eigh(matrix)
        nodes = torch.where(nodes > _rounding(matrix), nodes, 0)
        return nodes, vectors[: self.start.shape[0]].mT @ self.start

    def probe_quadratures(self) -> tuple[Tensor, Tensor]:
        r"""Nodes and weights (both `q x k`) with :math:`z^\top f(K) z \approx \|z\|^2 \sum_i w_i f(\theta_i)`."""
        alphas, betas = torch.stack(self._alphas, -1).double(), torch.stack(self._betas[1:], -1).double()
        matrix = torch.diag_embed(alphas) + torch.diag_embed(betas[:, :-1], -1)
        nodes, vectors = torch.linalg.eigh(matrix)
        return nodes, vectors[:, 0].square()


def _block_tridiagonal(diagonal: list[Tensor], below: list[Tensor]) -> Tensor:
    """The symmetric matrix with these blocks on its diagonal and below it."""
    matrix, end = torch.block_diag(*[0.5 * (block + block.mT) for block in diagonal]), 0
    for block in below:
        begin, end = end, end + block.shape[1]
        matrix[end : end + block.shape[0], begin:end] = block
        matrix[begin:end, end : end + block.shape[0]] = block.mT
    return matrix


def _corner(matrix: Tensor, last: Tensor) -> Tensor:
    r"""The block :math:`B [T^{-1}]_{kk} B^\top` that, appended to T below B, makes it singular once per row of B."""
    regular = matrix + _rounding(matrix) * torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
    ends = regular.new_zeros(len(matrix), last.shape[1])
    ends[-last.shape[1] :].fill_diagonal_(1)
    return last @ torch.linalg.solve(regular, ends)[-last.shape[1] :] @ last.mT


def _rounding(matrix: Tensor) -> Tensor:
    """How far rounding moves eigenvalues."""
    number = torch.finfo(matrix.dtype)
    return (10 * len(matrix) * number.eps * matrix.diagonal().max()).clamp_min(number.tiny)
