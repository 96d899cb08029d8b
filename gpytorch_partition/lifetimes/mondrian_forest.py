r"""
The Mondrian forest of Balog et al. 2016, section 6: the mean of the trees of a partition kernel, fitted separately.

Over m partitions both models predict :math:`f(x) = \frac1m \sum_r \theta_{r, c_r(x)}`, with one parameter per cluster,
and penalize parameters alike, with :math:`\delta = \sigma^2 / s` the ratio of noise and outputscale:

.. math::

    \text{kernel (3):} \quad & \sum_i \Bigl(y_i - \frac1m \sum_r \theta_{r, c_r(i)}\Bigr)^2
        + \frac{\delta}{m} \|\theta\|^2 \\
    \text{forest (4):} \quad & \sum_i \frac1m \sum_r \bigl(y_i - \theta_{r, c_r(i)}\bigr)^2
        + \frac{\delta}{m} \|\theta\|^2.

They differ only in the place of the average over trees, and are equal for m = 1.
"""

from __future__ import annotations

from typing import Any

import torch
from linear_operator.utils.errors import NotPSDError
from torch import Tensor

from gpytorch_partition.clusters.co_occurrence import streamed_cluster_sums
from gpytorch_partition.clusters.incidence import Incidence
from gpytorch_partition.inputs.numbers import check_positive
from gpytorch_partition.kernels.partition_kernel import PartitionKernel
from gpytorch_partition.models.counted_rows import check_has_partitions, check_rows
from gpytorch_partition.settings import predictions


class MondrianForest:
    r"""
    Average ridge regressions in closed form over partitions, as a Mondrian forest (Balog et al. 2016, equation 4).

    Use it to compare a Mondrian kernel with the forest of the same trees.

    With :math:`n_c` rows in a cluster c and :math:`\delta = \sigma^2 / s`,

    .. math::

        \hat\theta_c = \frac{\sum_{i \in c} y_i}{n_c + \delta}, \qquad
        \mathrm{Var}(\theta_c \mid y) = \frac{\sigma^2}{n_c + \delta}.

    The prior mean is 0, which clusters without rows predict as well: center the targets. This is the baseline of
    figures 9 and 10, not the smoothed forest of Lakshminarayanan et al. 2016.

    :param kernel: A kernel of flat partitions of equal weight: Mondrian, random binning, fast clusters, a user's own,
        or a random forest with `heights` of `"leaf"` or `"sampled"`.
    :param x: `N x D` training inputs, all columns.
    :param y: `N` finite targets.
    :param outputscale: s, the prior variance of a cluster's parameter, in the square of the unit of the targets.
    :param noise: :math:`\sigma^2`, in the same unit.
    :raises ValueError: If an argument cannot be used, or the partitions are nested or weighted.

    Example:
        >>> kernel = PartitionKernel(lambda x: torch.stack([x[..., 0].floor(), x[..., 0].round()], -1).long())
        >>> x, y = torch.tensor([[0.2], [0.7], [1.2]]), torch.tensor([1.0, 2.0, 3.0])
        >>> forest = MondrianForest(kernel, x, y, outputscale=1.0, noise=1.0)
        >>> forest.weights  # cells 0 and 1 of both partitions, each with one for unseen cells
        tensor([1.0000, 1.5000, 0.0000, 0.5000, 1.6667, 0.0000], dtype=torch.float64)
        >>> forest.predict(torch.tensor([[0.2], [9.0]]))
        tensor([0.7500, 0.0000], dtype=torch.float64)
    """

    def __init__(self, kernel: PartitionKernel, x: Tensor, y: Tensor, *, outputscale: float, noise: float) -> None:
        _check(kernel, x, y, outputscale, noise)
        self.kernel, self._x = kernel, kernel.columns.select(x.detach()).clone()
        self._tensors = list(kernel.partition.tensors().values())
        rows = self._rows(self._x)
        _check_flat(kernel, rows)
        columns = torch.stack([y.detach().double(), torch.ones_like(y, dtype=torch.float64)], -1)
        sums, counts = streamed_cluster_sums(rows.codes, columns, rows.num_clusters).unbind(-1)
        ridge_counts = counts + noise / outputscale
        self._means, self._variances = sums / ridge_counts, noise / ridge_counts

    @property
    def weights(self) -> Tensor:
        r"""Return the parameters :math:`\hat\theta` (`p`, float64), in the order of those of :func:`joint_weights`."""
        return self._means

    def predict(self, x: Tensor) -> Tensor:
        """Return the mean over trees of their posterior means (`N_test`, float64), at O(m) per point."""
        return self._averages(x, self._means.unsqueeze(-1)).squeeze(-1)

    def variance(self, x: Tensor) -> Tensor:
        """Return the variance of the mixture of the trees' posteriors (`N_test`, float64), without noise."""
        deviations = self._means - self._means.median()  # smaller numbers, whose squares lose fewer digits
        table = torch.stack([deviations, deviations**2 + self._variances], -1)
        mean, square = self._averages(x, table).unbind(-1)
        return square - mean**2

    def _averages(self, x: Tensor, table: Tensor) -> Tensor:
        rows = self._rows(self.kernel.columns.select(x))
        return rows.row_values(table / rows.num_partitions)

    def _rows(self, x: Tensor) -> Incidence:
        partition = self.kernel.partition
        if not partition.has_tensors(self._tensors):
            raise RuntimeError(
                "the kernel's partitions have changed since the forest was fitted (another lifetime?): fit it anew, "
                "or give it a copy of the kernel, such as kernel.cut(lifetime)"
            )
        # Caches the training rows as those that number the clusters, even if there are more points than rows.
        partition.incidences(self._x, self._x)
        return partition.incidences(x, self._x)[0]


@torch.no_grad()
def joint_weights(kernel: PartitionKernel, x: Tensor, y: Tensor, *, outputscale: float, noise: float) -> Tensor:
    r"""
    Return the parameters of the kernel's joint fit (Balog et al. 2016, equation 3), to compare with the forest's.

    With :math:`\alpha = (s K + \sigma^2 I)^{-1} y` the posterior mean is :math:`s Z S Z^\top \alpha`, :math:`S = I /
    m`, so that :math:`\theta = m s S Z^\top \alpha = s Z^\top \alpha`.

    The solve stops at GPyTorch's `eval_cg_tolerance` above `max_cholesky_size` rows: its default of .01 leaves an error
    of some percent. Parameters and errors are those of :class:`MondrianForest`, with s the prior variance of f.

    Example:
        >>> kernel = PartitionKernel(lambda x: x.floor().long())
        >>> x, y = torch.tensor([[0.2], [0.7], [1.2]]), torch.tensor([1.0, 2.0, 3.0])
        >>> joint_weights(kernel, x, y, outputscale=1.0, noise=1.0)  # equal to the forest's for one partition
        tensor([1.0000, 1.5000, 0.0000], dtype=torch.float64)
    """
    _check(kernel, x, y, outputscale, noise)
    covariance = kernel(x).evaluate_kernel()
    _check_flat(kernel, covariance.left)
    noisy = (covariance * outputscale).add_diagonal(torch.tensor(noise, dtype=covariance.dtype, device=y.device))
    with predictions():
        try:
            alpha = noisy.solve(y.to(covariance.dtype).unsqueeze(-1))
        except NotPSDError as error:
            raise ValueError(
                f"a noise of {noise / outputscale:.2g} outputscales is lost in rounding: expected a larger noise"
            ) from error
    return outputscale * covariance.cluster_sums(alpha).squeeze(-1).double()


def _check(kernel: Any, x: Tensor, y: Tensor, outputscale: float, noise: float) -> None:
    check_has_partitions(kernel)
    check_rows(x, y, least=1)
    check_positive(outputscale=outputscale, noise=noise)


def _check_flat(kernel: PartitionKernel, rows: Incidence) -> None:
    operator = kernel._cluster_operator(rows.sizes, torch.ones((), dtype=torch.float64))
    if not operator.has_equal_weights:
        got = f"nested or weighted ones of a {type(kernel).__name__}"
        raise ValueError(f'expected flat partitions that weigh the same, got {got}: of a forest take heights="leaf"')
