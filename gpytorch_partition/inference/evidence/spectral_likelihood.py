r"""
The marginal likelihood for every outputscale and noise at once, from the spectrum of the covariance.

With partitions and weights fixed, :math:`A = s K + \sigma^2 I` has the eigenvectors of K for every s and
:math:`\sigma^2`. A quadratic form in :math:`A^{-1}` and the log determinant are then sums over eigenvalues
:math:`\theta_i` (or over the nodes of a Gauss quadrature from one Lanczos run in their place) of
:math:`1 / (s \theta_i + \sigma^2)` and :math:`\log(s \theta_i + \sigma^2)`: microseconds to a millisecond each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from linear_operator.operators import LinearOperator
from numpy.typing import NDArray
from torch import Tensor

from gpytorch_partition.linalg.factors import stable_eigh
from gpytorch_partition.linalg.lanczos import LanczosRun
from gpytorch_partition.linalg.random import solver_generator

Array = NDArray[np.float64]
Pair = tuple[Tensor, Tensor]

# Lanczos steps after which a measure is returned, at the cost of an eigendecomposition per probe.
CHECKPOINTS = (20, 30, 40, 55, 75, 100, 130, 165, 200, 250, 300)

# The error of the log determinant is about sqrt(N / probes) nats: this many probes leave 1e-3 nats per datum at most.
_ROWS_TIMES_PROBES = 200_000
_FEWEST_PROBES = 2
_MOST_PROBES = 100
BIAS_PROBES = 10  # of these, the ones that measure how far quadratures have converged


@dataclass(frozen=True)
class SpectralMeasure:
    r"""
    Hold two discrete measures on the eigenvalues of a covariance K (`N x N`): one of targets, one for traces.

    Quadratic forms are :math:`v_a^\top f(K) v_b = \sum_i f(\theta_i) c_{ia} c_{ib}` for the vectors :math:`V = [y_1
    \ldots y_t, 1]` (or another level). Traces: :math:`\mathrm{tr} f(K)` is the mean over the rows of `trace_nodes` of
    :math:`\sum_i w_i f(\theta_i)`: one exact row, or independent estimates from probe vectors. By quadrature, log
    determinants and forms in the inverse of K plus noise are upper bounds; lower bounds come from the first probe
    vectors. Probe vectors have N - `num_zeros` numbers.
    """

    nodes: Array  #: `k` eigenvalues of the quadratic forms
    coefficients: Array  #: `k x (t + 1)` c
    trace_nodes: Array  #: `q x l` eigenvalues of the traces
    trace_weights: Array  #: `q x l` w; every row sums to N, less `num_zeros`
    num_rows: int  #: N
    num_probes: int = 0  #: number of estimates that traces are the mean of; 0 if they are exact
    num_zeros: int = 0  #: further eigenvalues that are 0 for certain; negative where probe vectors are longer than N
    lower: SpectralMeasure | None = None  #: of lower bounds, those of traces from the first probe vectors

    @classmethod
    def of(cls, forms: Pair, traces: Pair, num_rows: int, num_zeros: int = 0) -> SpectralMeasure:
        """Return the measure with nodes and coefficients of forms, and nodes and weights of traces, from tensors."""
        nodes, coefficients = (part.cpu().numpy() for part in forms)
        trace_nodes, trace_weights = (part.cpu().numpy() for part in traces)
        return cls(nodes, coefficients, trace_nodes, trace_weights, num_rows, num_zeros=num_zeros)

    @property
    def num_targets(self) -> int:
        return self.coefficients.shape[1] - 1


def dense_measure(covariance: Tensor, targets: Tensor, level: Tensor | None = None) -> SpectralMeasure:
    r"""Return the exact measure by one dense eigendecomposition, :math:`O(N^3)`; arguments as in `krylov_measures`."""
    values, vectors = stable_eigh(covariance.detach().double())
    nodes, coefficients = values.clamp_min(0), vectors.mT @ with_level(targets, level)
    return SpectralMeasure.of((nodes, coefficients), (nodes[None], torch.ones_like(nodes)[None]), len(nodes))


def with_level(targets: Tensor, level: Tensor | None = None) -> Tensor:
    """Return targets with a column for a constant mean, of ones or the given level (`N x (t + 1)`, float64)."""
    column = torch.ones_like(targets[:, 0]) if level is None else level
    return torch.cat([targets.detach().double(), column.detach().double().unsqueeze(-1)], -1)


def default_num_probes(num_rows: int) -> int:
    r"""
    Return the number of probe vectors for a number of rows: fewer for more rows, from 100 down to 2.

    At a noise of a tenth of the outputscale the standard error of the log marginal likelihood is then about 1e-3 nats
    per datum up to 100,000 rows, and :math:`0.3 / \sqrt N` above; at a noise of a ten-thousandth, three times that.
    """
    return min(_MOST_PROBES, max(_FEWEST_PROBES, -(-_ROWS_TIMES_PROBES // num_rows)))


def krylov_measures(
    covariance: LinearOperator, targets: Tensor, num_probes: int, seed: int, level: Tensor | None = None
) -> Iterator[SpectralMeasure]:
    """
    Yield measures of increasing accuracy from one Lanczos run, after 20, 30, 40, ... and at most 300 steps.

    Each step is one product with `t + 1 + num_probes` columns, in float64 for any dtype of the covariance: float32
    spoils fits to many rows. About `64 + 4 (t + 1 + num_probes)` numbers per row are held.

    :param covariance: `N x N` K, of unit scale.
    :param level: `N` effects of a mean of 1 on the targets (`N x t`). (Default: ones.)
    """
    num_rows, covariance = targets.shape[0], covariance.to(dtype=torch.float64)
    generator = solver_generator(seed, "probes", covariance.device)
    probes = torch.randn(num_rows, num_probes, generator=generator, dtype=covariance.dtype, device=covariance.device)
    run = LanczosRun(covariance._matmul, with_level(targets, level), probes, generator)
    for num_steps in CHECKPOINTS:
        run.extend(num_steps - run.num_steps)
        yield lanczos_measure(run, num_rows, run.block_quadrature(), run.lower_block_quadrature())


def lanczos_measure(run: LanczosRun, num_rows: int, forms: Pair, lower_forms: Pair) -> SpectralMeasure:
    """
    Return the measure of `num_rows` rows from a Lanczos run, which has the traces, and given quadratic forms.

    :param run: The run; its vectors may have another length than the rows, as in cluster space.
    :param forms: Nodes and coefficients of the quadratic forms, as in the fields of :class:`SpectralMeasure`.
    :param lower_forms: The same of their lower bounds.
    """
    size = run.basis.shape[1]

    def measure(forms: Pair, traces: Pair) -> SpectralMeasure:
        # Rounding can push the smallest eigenvalues of a positive semidefinite matrix just below zero.
        return SpectralMeasure.of(forms, (traces[0].clamp_min(0), size * traces[1]), num_rows)

    found = measure(forms, run.probe_quadratures())
    lower = measure(lower_forms, run.lower_probe_quadratures(BIAS_PROBES))
    return replace(found, num_probes=len(found.trace_nodes), num_zeros=num_rows - size, lower=lower)


class SpectralLikelihood:
    r"""
    The log marginal likelihood of one target, for any outputscale, noise and constant mean.

    .. math::

        \log p(y) = -\tfrac12 (y - c)^\top A^{-1} (y - c) - \tfrac12 \log |A| - \tfrac N2 \log 2 \pi,
        \qquad A = s K + \sigma^2 I.
    """

    def __init__(self, measure: SpectralMeasure, target: int = 0) -> None:
        self.measure, self.target, self.num_rows = measure, target, measure.num_rows
        self._y, self._one = measure.coefficients[:, target], measure.coefficients[:, -1]

    def value(self, outputscale: float, noise: float, mean: float) -> float:
        """Return the log marginal likelihood of all rows together, in nats."""
        form, constant = self._form(outputscale, noise, mean), self.num_rows * float(np.log(2 * np.pi))
        return -0.5 * (form + self.log_determinant(outputscale, noise) + constant)

    def _form(self, outputscale: float, noise: float, mean: float) -> float:
        residual = self._y - mean * self._one
        return float((residual**2 / (outputscale * self.measure.nodes + noise)).sum())

    def log_determinant(self, outputscale: float, noise: float) -> float:
        r"""Return :math:`\log |s K + \sigma^2 I|`."""
        of_zeros = self.measure.num_zeros * float(np.log(noise)) if self.measure.num_zeros else 0.0
        return float(self._log_determinants(outputscale, noise).mean()) + of_zeros

    def standard_error(self, outputscale: float, noise: float) -> float:
        r"""
        Return the standard error of :meth:`value` from its probe vectors, without its :meth:`bias`; 0 for exact traces.

        For L = log A and probe vectors of n numbers, uniform on the sphere, the variance of :math:`z^\top L z` is
        :math:`\tfrac{2 n}{n + 2} (\mathrm{tr} L^2 - (\mathrm{tr} L)^2 / n)`. The same probe vectors estimate these
        traces: one vector is enough.
        """
        if not self.measure.num_probes:
            return 0.0
        logs = np.log(outputscale * self.measure.trace_nodes + noise)
        trace, square = ((self.measure.trace_weights * powers).sum(-1).mean() for powers in (logs, logs**2))
        size = self.num_rows - self.measure.num_zeros
        variance = 2 * size / (size + 2) * max(0.0, float(square - trace**2 / size))
        return 0.5 * (variance / self.measure.num_probes) ** 0.5

    def bias(self, outputscale: float, noise: float, mean: float = 0.0) -> float:
        """Return by how many nats :meth:`value` may be too small: half the difference of its upper and lower bounds."""
        if self.measure.lower is None:
            return 0.0
        lower = SpectralLikelihood(self.measure.lower)._log_determinants(outputscale, noise)
        upper = self._log_determinants(outputscale, noise)[: len(lower)]
        determinant = max(0.0, float(upper.mean() - lower.mean()))
        return 0.5 * (determinant + self._form_bias(outputscale, noise, mean))

    def _form_bias(self, outputscale: float, noise: float, mean: float) -> float:
        assert self.measure.lower is not None
        lower = SpectralLikelihood(self.measure.lower, self.target)._form(outputscale, noise, mean)
        return max(0.0, self.form(noise / outputscale, mean) / outputscale - lower)

    def best_mean(self, ratio: float) -> float:
        r"""Return the mean for a ratio :math:`\lambda` of noise and outputscale by generalized least squares."""
        weights = self._one / (self.measure.nodes + ratio)
        return float((weights * self._y).sum() / (weights * self._one).sum())

    def form(self, ratio: float, mean: float) -> float:
        r"""Return the quadratic form :math:`(y - c)^\top (K + \lambda I)^{-1} (y - c)`."""
        return float(((self._y - mean * self._one) ** 2 / (self.measure.nodes + ratio)).sum())

    def _log_determinants(self, outputscale: float, noise: float) -> Array:
        shifted = outputscale * self.measure.trace_nodes + noise
        return (self.measure.trace_weights * np.log(shifted)).sum(-1)
