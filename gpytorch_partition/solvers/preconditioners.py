r"""
Preconditioners for a kernel matrix plus noise, :math:`A = s K_0 + D`.

Chosen by :class:`gpytorch_partition.settings.preconditioner`:

- `"nystrom"` (default): :math:`P = s L L^\top + s \lambda_\ell I + D` from a randomized Nystrom factor of
  :math:`K_0`. It solves, samples exactly and has a log determinant, so solves and marginal likelihoods use it. The
  factor does not depend on s and D: a training run computes it once. Its spectrum tells how many iterations solves
  will take; other solves than likelihoods' have a larger rank where that saves many.
- `"partition"`: the average of the inverses of the single partitions. It has no log determinant: for solves only.
- `"none"`.

Forests of leaves have a flat spectrum and need none. `python -m benchmarks preconditioners --data DIR` measures them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import torch
from linear_operator import settings as linear_settings
from linear_operator.operators import ConstantDiagLinearOperator, DiagLinearOperator, LinearOperator
from torch import Tensor

from gpytorch_partition.clusters.cache import Key
from gpytorch_partition.linalg.factors import (
    NystromFactor,
    nystrom_factor,
    stable_cholesky,
    tall_product,
    transposed_product,
)
from gpytorch_partition.linalg.random import solver_generator
from gpytorch_partition.operators.cluster_operators.cluster_operator import of_columns
from gpytorch_partition.operators.partition_linear_operator import PartitionLinearOperator
from gpytorch_partition.settings import preconditioner, preconditioner_rank, probe_seed

_FACTOR: Key[NystromFactor] = Key("nystrom")  # the Nystrom factor of unit scale, kept with the rows
_LARGER_FACTOR: Key[NystromFactor] = Key("larger nystrom")  # the same of a larger rank
# Iterations of a solve for means by the root of eigenvalues over noise: 11 to 23 in default models of five data sets.
_ITERATIONS = 15.0
_LARGER = 4  # a larger rank over the usual one
_MOST_RANK = 400  # of a larger one: for samples, 1,600 took a quarter more time than 400
_FEWEST_ROWS = 5  # rows over a larger rank
_LEAST_SAVED = 30  # iterations by a larger rank, whose products take as long
_LEAST_SHARE = 0.3  # of iterations, each of which takes longer
_MOST_BYTES = 2**29  # of a root of a larger rank


class NystromPreconditioner(LinearOperator):
    r"""Hold the preconditioner :math:`P = s (L L^\top + \lambda_\ell I) + D` (`*batch x N x N`), with L a constant."""

    def __init__(self, scale: Tensor, noise: DiagLinearOperator, *, factor: NystromFactor) -> None:
        super().__init__(scale, noise, factor=factor)
        self.scale, self.noise, self.factor = scale, noise, factor

    def _size(self) -> torch.Size:
        return torch.Size((*torch.broadcast_shapes(self.scale.shape, self.noise.batch_shape), *self.noise.matrix_shape))

    def _transpose_nonbatch(self) -> LinearOperator:
        return self

    def _expand_batch(self, batch_shape: torch.Size | list[int]) -> LinearOperator:
        scale, noise = self.scale.expand(torch.Size(batch_shape)), self.noise._expand_batch(batch_shape)
        return NystromPreconditioner(scale, noise, factor=self.factor)

    @property
    def _shifted_noise(self) -> Tensor:
        r"""The diagonal part :math:`D + s \lambda_\ell`, `*batch x N x 1` (or `*batch x 1 x 1` if constant)."""
        constant = isinstance(self.noise, ConstantDiagLinearOperator)
        diagonal = self.noise.diag_values if constant else self.noise._diag
        return (diagonal + (self.scale * self.factor.shift).unsqueeze(-1)).unsqueeze(-1)

    @property
    def _capacitance(self) -> Tensor:
        r""":math:`I + s L^\top (D + s \lambda_\ell)^{-1} L` (`*batch x rank x rank`)."""
        root, shifted = self.factor.root, self._shifted_noise
        gram = self.factor.gram / shifted if shifted.shape[-2] == 1 else root.mT @ (root / shifted)
        eye = torch.eye(root.shape[-1], dtype=self.dtype, device=self.device)
        return eye + self.scale[..., None, None] * gram

    @cached_property
    @torch.no_grad()
    def iterations(self) -> float:
        """Return about how many iterations a solve takes, by the largest eigenvalue that P leaves, over the noise."""
        eigenvalue, tiny = (self.scale * self.factor.shift).unsqueeze(-1), torch.finfo(self.dtype).tiny
        return _ITERATIONS * (1 + float((eigenvalue / self.noise._diagonal().clamp_min(tiny)).mean(-1).max())) ** 0.5

    @property
    def saved_iterations(self) -> float:
        r"""
        Return about how many iterations a larger rank saves.

        Eigenvalues fall from a quarter of the rank to its end, and as their root beyond: the last ones are too small.
        """
        values = self.factor.gram.diagonal(dim1=-2, dim2=-1) + self.factor.shift.unsqueeze(-1)
        quarter = values.sort(-1, descending=True)[0][..., values.shape[-1] // 4]
        fall = (quarter / self.factor.shift.clamp_min(torch.finfo(quarter.dtype).tiny)).clamp_min(1)
        return self.iterations * (1 - float(fall.min()) ** -0.25)

    @property
    def larger_rank(self) -> int | None:
        """Return a larger rank by which solves take less time; None where they do not."""
        root, (*_, num_rows, usual) = self.factor.root, self.factor.root.shape
        most = _MOST_BYTES // (root[..., 0].numel() * root.dtype.itemsize)
        rank = min(_LARGER * usual, _MOST_RANK, num_rows // _FEWEST_ROWS, most)
        saves = self.saved_iterations > max(_LEAST_SAVED, _LEAST_SHARE * self.iterations)
        return rank if rank >= 2 * usual and saves else None

    @of_columns
    def _matmul(self, rhs: Tensor) -> Tensor:
        low_rank = tall_product(self.factor.root, transposed_product(self.factor.root, rhs))
        return self.scale[..., None, None] * low_rank + self._shifted_noise * rhs

    def inverse_closure(self) -> Callable[[Tensor], Tensor]:
        r"""Return :math:`V \mapsto P^{-1} V` (`*batch x N x t`) by the matrix inversion lemma, without a graph."""
        with torch.no_grad():
            shifted, root = self._shifted_noise.detach(), self.factor.root
            scaled = root / shifted if shifted.shape[-2] > 1 else root
            cholesky = stable_cholesky(self._capacitance.detach()).to(root.dtype)
            scale = self.scale.detach()[..., None, None]

        def inverse(rhs: Tensor) -> Tensor:
            inner = torch.cholesky_solve(scale * transposed_product(scaled, rhs), cholesky)
            if shifted.shape[-2] == 1:
                return (rhs - tall_product(root, inner / shifted)) / shifted
            return rhs / shifted - tall_product(scaled, inner)

        return inverse

    def log_determinant(self) -> Tensor:
        r"""Return :math:`\log |P|` (`*batch`), differentiable with respect to s and D."""
        shifted = self._shifted_noise
        repeat = self.shape[-1] if shifted.shape[-2] == 1 else 1
        cholesky = stable_cholesky(self._capacitance)
        inner = 2 * cholesky.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return inner.to(shifted.dtype) + repeat * shifted.log().sum((-2, -1))

    def sample(self, num_samples: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw exact samples from N(0, P), `*batch x N x num_samples`. (Default generator: the global one.)"""
        batch, root = self.batch_shape, self.factor.root
        options = {"dtype": self.dtype, "device": self.device, "generator": generator}
        effects = torch.randn(*batch, root.shape[-1], num_samples, **options)
        independent = torch.randn(*batch, self.shape[-1], num_samples, **options)
        return self.scale.sqrt()[..., None, None] * (root @ effects) + self._shifted_noise.sqrt() * independent

    def _bilinear_derivative(self, left_vecs: Tensor, right_vecs: Tensor) -> tuple[Tensor | None, ...]:
        root, shift = self.factor.root, self.factor.shift
        low_rank = (transposed_product(root, left_vecs) * transposed_product(root, right_vecs)).sum((-2, -1))
        scale_grad = low_rank + shift * (left_vecs * right_vecs).sum((-2, -1))
        scale_grad = scale_grad.sum_to_size(self.scale.shape)
        return (scale_grad, *self.noise._bilinear_derivative(left_vecs, right_vecs))


def is_preconditioned(noisy: LinearOperator, name: str) -> bool:
    """Return whether a covariance is solved with the preconditioner of this name, by its number of rows."""
    wanted = linear_settings.max_preconditioner_size.value() > 0
    large = noisy.size(-1) >= linear_settings.min_preconditioning_size.value()
    return wanted and large and preconditioner.value() == name


@torch.no_grad()
def probe_vectors(noisy: LinearOperator, chosen: NystromPreconditioner | None) -> tuple[Tensor, Tensor]:
    """Return fixed draws from N(0, P) as unit vectors (`*batch x N x probes`) and their norms; P is I without one."""
    generator = solver_generator(probe_seed.value(), "probes", noisy.device)
    num_probes = linear_settings.num_trace_samples.value()
    if chosen is None:
        size = (*noisy.shape[:-1], num_probes)
        probes = torch.randn(size, generator=generator, dtype=noisy.dtype, device=noisy.device)
    else:
        probes = chosen.sample(num_probes, generator)
    norms = probes.norm(dim=-2, keepdim=True)
    return probes / norms, norms


def nystrom_preconditioner(
    operator: LinearOperator, noise: DiagLinearOperator, larger_rank: int | None = None
) -> NystromPreconditioner:
    """Return the Nystrom preconditioner of `operator + noise`; the factor of a partition operator is kept with rows."""
    rank, key = (preconditioner_rank.value(), _FACTOR) if larger_rank is None else (larger_rank, _LARGER_FACTOR)
    seed = probe_seed.value()
    if not isinstance(operator, PartitionLinearOperator) or operator.left_loadings is not None:
        scale = torch.ones(operator.batch_shape, dtype=operator.dtype, device=operator.device)
        with torch.no_grad():
            return NystromPreconditioner(scale, noise, factor=nystrom_factor_of(operator, rank))
    unit = operator.without_scale()
    options = (rank, seed, unit.cluster_operator.structure)
    factor = operator.left.cache.get(key, unit, lambda: nystrom_factor_of(unit, rank), *options)
    return NystromPreconditioner(operator.scale, noise, factor=factor)


def nystrom_factor_of(operator: LinearOperator, rank: int) -> NystromFactor:
    generator = solver_generator(probe_seed.value(), "sketch", operator.device)
    size = torch.Size((*operator.batch_shape, operator.shape[-1]))
    return nystrom_factor(operator._matmul, size, rank, generator, operator.dtype)


def partition_inverse(operator: LinearOperator, noise: DiagLinearOperator) -> Callable[[Tensor], Tensor]:
    r"""
    Return the function :math:`V \mapsto B V`, with the mean of inverses :math:`B = \frac1m \sum_r (s K_r + D)^{-1}`.

    This is eq. 9 of Davies & Ghahramani 2014, with 1/m for its factor m, and its terms are eq. 10, whose second term
    lacks a factor :math:`1/\sigma` (as printed, B is indefinite for :math:`\sigma > 1`). By the Sherman-Morrison
    formula in each cluster c of weight :math:`a_c = s m S_{cc}`,

    .. math::

        B v = D^{-1} v - \frac1m D^{-1} Z\, \mathrm{diag}\Big(\frac{a_c}{1 + a_c \sum_{i \in c} 1/d_i}\Big)
        Z^\top D^{-1} v.

    :raises ValueError: If K is not of flat partitions alone: for trees (`heights="all"`), sums and loadings.
    """
    is_flat = isinstance(operator, PartitionLinearOperator) and operator.cluster_operator.is_flat
    if not is_flat or operator.left_loadings is not None:
        told = 'the preconditioner "partition" expected the covariance of flat partitions (fast cluster, Mondrian,'
        got = f'{type(operator).__name__}: use "nystrom" or "none"'
        raise ValueError(f'{told} heights="sampled" or "leaf"), got {got}')
    rows, num_partitions = operator.left, operator.left.num_partitions
    precision = noise._diagonal().detach().reciprocal().unsqueeze(-1)
    precision = precision.expand(*operator.batch_shape, rows.num_rows, 1)
    weights = operator.cluster_operator._diagonal().detach().unsqueeze(-1)
    weights = operator.scale.detach()[..., None, None] * num_partitions * weights
    shrinkage = weights / (1 + weights * rows.cluster_sums(precision)) / num_partitions

    def inverse(rhs: Tensor) -> Tensor:
        scaled = precision * rhs
        return scaled - precision * rows.row_values(shrinkage * rows.cluster_sums(scaled))

    return inverse
