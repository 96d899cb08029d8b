r"""
A linear projection of the inputs for the Mondrian kernel, learned from the gradients of the posterior mean.

This is the loop of transformed iterative Mondrian forests (Baptista, O'Reilly & Xie 2024), with the posterior mean of
the joint Gaussian model in place of the forest: the directions along which f varies are the range of :math:`H =
E[\nabla f(x) \nabla f(x)^\top]`, and the next trees are drawn over :math:`H^{1/2} x`.
"""

from __future__ import annotations

from numbers import Integral

import numpy as np
import torch
from gpytorch.likelihoods import GaussianLikelihood
from torch import Tensor

from gpytorch_partition import settings
from gpytorch_partition.inputs.numbers import random_state_of
from gpytorch_partition.inputs.training_rows import checked_rows
from gpytorch_partition.kernels.mondrian_kernels import MondrianKernel
from gpytorch_partition.linalg.factors import stable_eigh
from gpytorch_partition.models.counted_rows import check_rows
from gpytorch_partition.models.partition_gp import PartitionGP
from gpytorch_partition.progress import progress
from gpytorch_partition.training.one_pass import fit_in_one_pass

_MOST_ROWS = 5_000  # rows that a model is fitted to; more are sampled
_MOST_POINTS = 1_000  # rows at which gradients are averaged; more are sampled
# Step h of the differences, in standard deviations: short ones pick up the noise of single cells, long ones smooth f.
_STEP = 0.5


def expected_gradient_projection(
    x: Tensor,
    y: Tensor,
    *,
    num_trees: int = 200,
    num_iterations: int = 4,
    lifetime: float | None = None,
    diagonal: bool = False,
    random_state: int | np.random.RandomState | None = None,
) -> Tensor:
    r"""
    Return a `projection` for :class:`~gpytorch_partition.MondrianKernel` from the gradients of the regression function.

    Call it where few columns, or few directions, may matter: trees are drawn without the targets.

    Each round fits outputscale, noise and mean of a Gaussian process with a Mondrian kernel
    (:func:`~gpytorch_partition.fit_exact_gp`), estimates the gradients of its posterior mean by central differences,

    .. math:: g_d = \frac{\mu(x + h s_d e_d) - \mu(x - h s_d e_d)}{2 h}, \qquad h = \tfrac12,

    with :math:`s_d` the standard deviation of column d, and takes :math:`H = c\, \overline{g g^\top}` with trace D. The
    first round sees standardized columns, the next one :math:`U = \operatorname{diag}(s)^{-1} H^{1/2}`.

    The full H is better where f varies along a few oblique directions, and worse where it depends on single columns:
    compare on held-out rows. **The final model sees the same targets again**: its likelihood is too high to compare,
    and standard deviations are too small, the more so, the fewer rows there are. At most 5,000 rows are fitted.

    :param x: `N x D` training inputs.
    :param y: `N` targets.
    :param num_trees: Number m of trees in each round. (Default: 200.)
    :param num_iterations: Number of rounds. (Default: 4.)
    :param lifetime: Lifetime of the trees, in units of 1/:math:`U^\top x`. (Default: 1 / the median L1 distance of
        projected rows, computed anew in each round.)
    :param diagonal: Keep only the diagonal of H: a lengthscale for each column, and no new directions.
    :param random_state: Seed of samples and trees, as in :class:`~gpytorch_partition.PartitionKernel`.
    :return: U, `D x D` float64; or the `D` numbers on its diagonal.
    :raises ValueError: If rows, targets or a number cannot be used, or do not vary.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> x = torch.randn(300, 3, generator=generator)
        >>> y = (2 * x[:, 0]).sin() + 0.1 * torch.randn(300, generator=generator)
        >>> weights = expected_gradient_projection(x, y, num_trees=50, diagonal=True, random_state=0)
        >>> bool(weights[0] > 4 * weights[1:].max())
        True
        >>> kernel = MondrianKernel(x, projection=weights, random_state=0)
    """
    x = checked_rows(x, expected_gradient_projection.__name__)
    check_rows(x, y)
    for name, values in (("targets", y), ("rows", x)):
        if bool((values == values[:1]).all()):
            raise ValueError(f"expected {name} that vary, got equal ones, from which no direction can be learned")
    if not isinstance(num_iterations, Integral) or num_iterations < 1:
        raise ValueError(f"expected a number of rounds, 1 or more, got num_iterations={num_iterations}")
    random = random_state_of(random_state)
    rows = _sample(len(x), _MOST_ROWS, random)
    x, y = x[rows], y.detach().double()
    y = (y[rows] - y.mean()) / y.std()
    scales = x.std(0, correction=0)
    projection = inverse = torch.where(scales > 0, 1 / scales, 0)
    for _ in progress(range(num_iterations), "learning a projection"):
        kernel = MondrianKernel(x, num_trees, lifetime=lifetime, projection=projection, random_state=random)
        likelihood = GaussianLikelihood()
        model = PartitionGP(x, y, likelihood, kernel)
        fit_in_one_pass(model, likelihood)  # without warnings: a noise at its bound does not matter for the directions
        gradients = _gradients(model.eval(), x[_sample(len(x), _MOST_POINTS, random)], _STEP * scales) * scales
        if diagonal:
            projection = inverse * _normalized(gradients.square().sum(0)).sqrt()
        else:
            values, vectors = stable_eigh(_normalized(gradients.T @ gradients))
            root = (vectors * values.clamp_min(0).sqrt()) @ vectors.T
            projection = inverse.unsqueeze(-1) * root
    return projection


@torch.no_grad()
def _gradients(model: PartitionGP, x: Tensor, steps: Tensor) -> Tensor:
    """Gradients (`n x D`) of the posterior mean by central differences; 0 in columns with a step of 0."""
    gradients = torch.zeros_like(x)
    with settings.iterative():
        for column in steps.nonzero().squeeze(-1).tolist():
            step = torch.zeros_like(x[0]).index_fill_(0, torch.tensor(column, device=x.device), steps[column].item())
            above, below = model(torch.cat([x + step, x - step])).mean.chunk(2)
            gradients[:, column] = (above - below) / (2 * steps[column])
    return gradients


def _normalized(outer: Tensor) -> Tensor:
    """A multiple of H (`D x D`), or of its diagonal (`D`), whose trace is D."""
    trace = outer.sum() if outer.dim() == 1 else outer.trace()
    if not trace > 0:
        raise ValueError("expected a model that varies, got a flat one without gradients: give a longer lifetime")
    return outer * (len(outer) / trace)


def _sample(number: int, most: int, random: np.random.RandomState) -> Tensor:
    if number <= most:
        return torch.arange(number)
    return torch.from_numpy(np.sort(random.choice(number, most, replace=False)))
