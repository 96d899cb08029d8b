r"""
Block Lanczos and stochastic Lanczos quadrature, for a matrix that is known by its products only.

The Krylov spaces of K and of :math:`s K + \sigma^2 I` are the same, so one run serves every s and :math:`\sigma^2`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gpytorch_partition.linalg.conjugate_gradients import Closure
from gpytorch_partition.linalg.factors import stable_eigh

# Number of first basis vectors that later ones are orthogonalized against, besides the last two blocks. Spurious
# copies are those of converged eigenvalues: large ones, with eigenvectors in the span of the first few dozen vectors.
_NUM_KEPT = 64


class LanczosRun:
    r"""
    A run of block Lanczos from a few vectors and of Lanczos from each of many probes, with one product per step.

    Probes are not reorthogonalized: copies share the weight of their eigenvalue, which does not change a quadrature.

    :param matmul: :math:`V \mapsto K V` for positive semidefinite K, `N x t`.
    :param block: `N x b` vectors that start the block.
    :param probes: `N x q` probe vectors of any length.
    """

    def __init__(self, matmul: Closure, block: Tensor, probes: Tensor, generator: torch.Generator) -> None:
        self.matmul, self.generator = matmul, generator
        # float64 resolves vectors of very different lengths and nearly parallel ones.
        vectors, triangle = torch.linalg.qr(block.double())
        self._store, self._size, self._newest = probes.new_empty(16 * block.shape[1], block.shape[0]), 0, 0
        self._width, self.dimension = block.shape[1], 0  # columns of a block; dimension of its Krylov space
        self.diagonal: list[Tensor] = []  # b x b blocks Q_j^T K Q_j
        self.below: list[Tensor] = []  # b x b blocks Q_{j+1}^T K Q_j
        self.probe_norms = probes.norm(dim=0)
        self._probe, self._probe_before = probes / self.probe_norms, torch.zeros_like(probes)
        self._alphas: list[Tensor] = []
        self._betas: list[Tensor] = [torch.zeros_like(self.probe_norms)]
        self.start = self._append(vectors.to(probes.dtype)) @ triangle

    @property
    def basis(self) -> Tensor:
        """Return the kept vectors of the orthonormal basis, as rows: the first 64, and the last two blocks."""
        return self._store[: self._size]

    @property
    def num_steps(self) -> int:
        return len(self._alphas)

    def extend(self, num_steps: int) -> None:
        """Take more steps, at most N in all; once the block's basis is complete, only the probes continue."""
        for _ in range(min(num_steps, self._store.shape[1] - self.num_steps)):
            last = self.basis[self._size - self._newest :].mT
            product = self.matmul(torch.cat([last, self._probe], -1))
            if self._newest:
                of_block = product[:, : self._newest].contiguous()
                self.diagonal.append((self.basis[-self._newest :] @ of_block).double())
                self.below.append(self._append(of_block))
            self._step_probes(product[:, last.shape[1] :])

    def _append(self, columns: Tensor) -> Tensor:
        """Append an orthonormal basis of the columns' parts orthogonal to the basis; return their coordinates in it."""
        lengths = columns.norm(dim=0).clamp_min(torch.finfo(columns.dtype).tiny)
        vectors, coordinates = columns / lengths, torch.diag(lengths)
        for _ in range(2):
            vectors, triangle = torch.linalg.qr(vectors - self.basis.mT @ (self.basis @ vectors))
            coordinates = triangle @ coordinates
        # Largest singular values first, so that the null directions of dependent columns come last and unmixed.
        rotation, singular, _ = torch.linalg.svd(coordinates / lengths)
        num_new = min(columns.shape[1], self._store.shape[1] - self.dimension)
        vectors, coordinates = (vectors @ rotation)[:, :num_new], (rotation.mT @ coordinates)[:num_new]
        is_null = singular[:num_new] <= 10 * torch.finfo(columns.dtype).eps
        if bool(is_null.any()):
            vectors = self._with_random_directions(vectors, is_null)
            coordinates = coordinates.masked_fill(is_null.unsqueeze(-1), 0)
        self._keep(vectors)
        return coordinates.double()

    def _keep(self, vectors: Tensor) -> None:
        self._newest = vectors.shape[1]
        self.dimension += self._newest
        most = _NUM_KEPT + 2 * self._width
        if self._size + self._newest > most:
            dropped = self._size + self._newest - most
            self._store[_NUM_KEPT : self._size - dropped] = self._store[_NUM_KEPT + dropped : self._size].clone()
            self._size -= dropped
        if self._size + self._newest > self._store.shape[0]:
            larger = self._store.new_empty(self._store.shape[0] * 3 // 2 + self._newest, self._store.shape[1])
            larger[: self._size] = self.basis
            self._store = larger
        self._store[self._size : self._size + self._newest] = vectors.mT
        self._size += self._newest

    def _with_random_directions(self, vectors: Tensor, is_null: Tensor) -> Tensor:
        """Replace the null vectors (the last) by random ones, orthogonal to all others."""
        fresh = torch.randn(vectors.shape, generator=self.generator, dtype=vectors.dtype, device=vectors.device)
        renewed = torch.where(is_null, fresh, vectors)
        for _ in range(2):
            renewed = torch.linalg.qr(renewed - self.basis.mT @ (self.basis @ renewed)).Q
        return torch.where(is_null, renewed, vectors)

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
        Return nodes (`k`) and coefficients (`k x b`): :math:`V^\top f(K) V \approx \sum_i f(\theta_i) c_i c_i^\top`.

        This is the matrix Gauss-Radau quadrature with b nodes at 0 (Golub & Meurant 2010, theorem 6.4). It is an upper
        bound for :math:`f(x) = (x + \lambda)^{-1}`, as the Gauss quadrature of :meth:`probe_quadratures` is for log
        determinants: unresolved parts of the spectrum make a likelihood too small, never too large.
        """
        matrix = _block_tridiagonal(self.diagonal, self.below[:-1])
        last = self.below[-1]
        if last.shape[0]:
            matrix = _block_tridiagonal([*self.diagonal, _corner(matrix, last)], self.below)
        nodes, vectors = stable_eigh(matrix)
        nodes = torch.where(nodes > _rounding(matrix), nodes, 0)
        return nodes, vectors[: self.start.shape[0]].mT @ self.start

    def lower_block_quadrature(self) -> tuple[Tensor, Tensor]:
        r"""Return nodes and coefficients by Gauss quadrature: a lower bound for :math:`f(x) = (x + \lambda)^{-1}`."""
        nodes, vectors = stable_eigh(_block_tridiagonal(self.diagonal, self.below[:-1]))
        return nodes.clamp_min(0), vectors[: self.start.shape[0]].mT @ self.start

    def probe_quadratures(self) -> tuple[Tensor, Tensor]:
        r"""Return nodes and weights (`q x k`) with :math:`z^\top f(K) z \approx \|z\|^2 \sum_i w_i f(\theta_i)`."""
        alphas, betas = torch.stack(self._alphas, -1).double(), torch.stack(self._betas[1:], -1).double()
        matrix = torch.diag_embed(alphas) + torch.diag_embed(betas[:, :-1], -1)
        nodes, vectors = stable_eigh(matrix)
        return nodes, vectors[:, 0].square()

    def lower_probe_quadratures(self, num_probes: int) -> tuple[Tensor, Tensor]:
        """Return nodes and weights of first probes by Gauss-Radau quadrature (Golub & Meurant 2010, theorem 6.4)."""
        alphas, betas = (torch.stack(each, -1).double()[:num_probes] for each in (self._alphas, self._betas[1:]))
        matrix = torch.diag_embed(torch.cat([alphas, alphas[:, -1:]], -1))
        matrix = radau_matrix(matrix + torch.diag_embed(betas, -1) + torch.diag_embed(betas, 1), 0.0)
        nodes, vectors = stable_eigh(matrix)
        return nodes, vectors[:, 0].square()


def radau_matrix(matrices: Tensor, least: float) -> Tensor:
    """Return Lanczos matrices (`*batch x k x k`) with a last diagonal entry that makes `least` an eigenvalue."""
    diagonal, below = matrices.diagonal(dim1=-2, dim2=-1), matrices.diagonal(-1, -2, -1).square()
    length = (below > 0).long().cumprod(-1).sum(-1)  # of the Krylov space, less one
    pivot, last = diagonal[..., 0] - least, diagonal[..., 0]
    tiny = torch.finfo(matrices.dtype).eps * diagonal[..., 0].abs()
    for step in range(below.shape[-1]):
        ratio = below[..., step] / pivot.maximum(tiny)
        last = torch.where(length == step + 1, least + ratio, last)
        pivot = diagonal[..., step + 1] - least - ratio
    is_end = torch.arange(diagonal.shape[-1], device=diagonal.device) == length.unsqueeze(-1)
    return matrices + torch.diag_embed(torch.where(is_end, last.unsqueeze(-1) - diagonal, 0))


def _block_tridiagonal(diagonal: list[Tensor], below: list[Tensor]) -> Tensor:
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
    """A bound on the change of eigenvalues by rounding."""
    number = torch.finfo(matrix.dtype)
    return (10 * len(matrix) * number.eps * matrix.diagonal().max()).clamp_min(number.tiny)
