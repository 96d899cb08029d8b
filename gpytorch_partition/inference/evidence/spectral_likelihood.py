r"""
The marginal likelihood for every outputscale and noise at once, from the spectrum of the covariance.

With partitions and weights fixed, :math:`A = s K + \sigma^2 I` has the eigenvectors of K for every s and
:math:`\sigma^2`. A quadratic form in :math:`A^{-1}` and the log determinant are then sums over eigenvalues
:math:`\theta_i` (or over the nodes of a Gauss quadrature in their place) of :math:`1 / (s \theta_i + \sigma^2)` and
:math:`\log(s \theta_i + \sigma^2)`: microseconds each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpytorch_partition.linalg.factors import stable_eigh

Array = NDArray[np.float64]


@dataclass(frozen=True)
class SpectralMeasure:
    r"""
    Two discrete measures on the eigenvalues of a covariance K (`N x N`): one of targets, one for traces.

    Quadratic forms are :math:`v_a^\top f(K) v_b = \sum_i f(\theta_i) c_{ia} c_{ib}` for the vectors
    :math:`V = [y_1 \ldots y_t, 1]` (or another level). Traces: :math:`\mathrm{tr} f(K)` is the mean over the rows of
    `trace_nodes` of :math:`\sum_i w_i f(\theta_i)`: one exact row, or independent estimates from probe vectors.

    :param nodes: `k` eigenvalues of the quadratic forms.
    :param coefficients: `k x (t + 1)` c.
    :param trace_nodes: `q x l` eigenvalues of the traces.
    :param trace_weights: `q x l` w; every row sums to N, less `num_zeros`.
    :param num_rows: N.
    :param num_probes: Number of estimates that traces are the mean of. (Default: 0, they are exact.)
    :param lower_nodes: `r x l'` eigenvalues for lower bounds of log determinants from the first r probe vectors; the
        traces give upper bounds. (Default: None, they are exact.)
    :param lower_weights: `r x l'` weights of these, as of the traces.
    :param lower_form_nodes: `k'` eigenvalues for lower bounds of quadratic forms in the inverse of K plus noise; the
        nodes give upper bounds. (Default: None, they are exact.)
    :param lower_form_coefficients: `k' x (t + 1)` c of these.
    :param num_zeros: Number of further eigenvalues that are 0 for certain; probe vectors have N - `num_zeros` numbers.
        Negative where these are more than N. (Default: 0.)
    """

    nodes: Array
    coefficients: Array
    trace_nodes: Array
    trace_weights: Array
    num_rows: int
    num_probes: int = 0
    lower_nodes: Array | None = None
    lower_weights: Array | None = None
    lower_form_nodes: Array | None = None
    lower_form_coefficients: Array | None = None
    num_zeros: int = 0

    @property
    def num_targets(self) -> int:
        """The number t of targets."""
        return self.coefficients.shape[1] - 1


def dense_measure(covariance: Tensor, targets: Tensor, level: Tensor | None = None) -> SpectralMeasure:
    r"""
    Return the exact measure by one dense eigendecomposition: :math:`O(N^3)` time and :math:`O(N^2)` memory.

    :param covariance: `N x N` K.
    :param targets: `N x t` targets Y.
    :param level: `N` effects of a mean of 1 on the targets. (Default: ones.)
    """
    values, vectors = stable_eigh(covariance.detach().double())
    columns = with_level(targets, level)
    nodes = values.clamp_min(0).cpu().numpy()
    coefficients = (vectors.mT @ columns).cpu().numpy()
    return SpectralMeasure(nodes, coefficients, nodes[None], np.ones((1, len(nodes))), len(nodes))


def with_level(targets: Tensor, level: Tensor | None = None) -> Tensor:
    """
    Return the vectors [Y, 1] (`N x (t + 1)`, float64), whose quadratic forms a constant mean needs.

    :param targets: `N x t` Y.
    :param level: `N`, in place of the ones. (Default: ones.)
    """
    column = torch.ones_like(targets[:, 0]) if level is None else level
    return torch.cat([targets.detach().double(), column.detach().double().unsqueeze(-1)], -1)


class SpectralLikelihood:
    r"""
    The log marginal likelihood of one target, for any outputscale, noise and constant mean.

    .. math::

        \log p(y) = -\tfrac12 (y - c)^\top A^{-1} (y - c) - \tfrac12 \log |A| - \tfrac N2 \log 2 \pi,
        \qquad A = s K + \sigma^2 I.

    Each call costs as many operations as the measure has nodes: microseconds to a millisecond.

    :param measure: The spectrum.
    :param target: Index of the target.

    Example:
        >>> K, y = torch.diag(torch.tensor([2.0, 0.0])), torch.tensor([[1.0], [3.0]])
        >>> likelihood = SpectralLikelihood(dense_measure(K, y))
        >>> exact = torch.distributions.MultivariateNormal(torch.zeros(2), 1.5 * K + 0.5 * torch.eye(2))
        >>> round(likelihood.value(1.5, 0.5, 0.0) - float(exact.log_prob(y[:, 0])), 5)
        0.0
    """

    def __init__(self, measure: SpectralMeasure, target: int = 0) -> None:
        self.measure, self.target = measure, target
        self.num_rows = measure.num_rows
        self._y = measure.coefficients[:, target]
        self._one = measure.coefficients[:, -1]

    def value(self, outputscale: float, noise: float, mean: float) -> float:
        """Return the log marginal likelihood of all rows together, in nats."""
        residual = self._y - mean * self._one
        shifted = outputscale * self.measure.nodes + noise
        form = float((residual**2 / shifted).sum())
        constant = self.num_rows * float(np.log(2 * np.pi))
        return -0.5 * (form + self.log_determinant(outputscale, noise) + constant)

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
        """
        Return by how many nats :meth:`value` may be too small, where Lanczos quadrature misses small eigenvalues.

        It is half the differences of upper and lower bounds of the log determinant, from the same probe vectors, and of
        the quadratic form.
        """
        measure = self.measure
        if measure.lower_nodes is None or measure.lower_weights is None:
            return 0.0
        upper = self._log_determinants(outputscale, noise)[: len(measure.lower_nodes)].mean()
        logs = np.log(outputscale * measure.lower_nodes.clip(0) + noise)
        determinant = max(0.0, float(upper - (measure.lower_weights * logs).sum(-1).mean()))
        return 0.5 * (determinant + self._form_bias(outputscale, noise, mean))

    def _form_bias(self, outputscale: float, noise: float, mean: float) -> float:
        nodes, coefficients = self.measure.lower_form_nodes, self.measure.lower_form_coefficients
        if nodes is None or coefficients is None:
            return 0.0
        residual = coefficients[:, self.target] - mean * coefficients[:, -1]
        lower = float((residual**2 / (outputscale * nodes.clip(0) + noise)).sum())
        return max(0.0, self.form(noise / outputscale, mean) / outputscale - lower)

    def best_mean(self, ratio: float) -> float:
        r"""
        Return the most likely mean by generalized least squares.

        It is :math:`1^\top (K + \lambda)^{-1} y / 1^\top (K + \lambda)^{-1} 1`.

        :param ratio: :math:`\lambda`, noise over outputscale.
        """
        weights = self._one / (self.measure.nodes + ratio)
        return float((weights * self._y).sum() / (weights * self._one).sum())

    def form(self, ratio: float, mean: float) -> float:
        r"""Return the quadratic form :math:`(y - c)^\top (K + \lambda I)^{-1} (y - c)`."""
        return float(((self._y - mean * self._one) ** 2 / (self.measure.nodes + ratio)).sum())

    def _log_determinants(self, outputscale: float, noise: float) -> Array:
        shifted = outputscale * self.measure.trace_nodes + noise
        return (self.measure.trace_weights * np.log(shifted)).sum(-1)
