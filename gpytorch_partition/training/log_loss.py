r"""
Probabilities of classes from regressions on their indicators, chosen by the log loss of held-out rows.

The mean of a Gaussian process of the indicators, with noise of variance 1 beside :math:`\sum_i s_i K_i`, estimates how
much more probable than usual a class is (Rasmussen & Williams 2006, section 6.5, on least-squares classification). A
link with two parameters makes probabilities of these means.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from gpytorch_partition.linalg.factors import stable_cholesky
from gpytorch_partition.linalg.parallel import minimize_lbfgsb
from gpytorch_partition.training.predictive_density import Fold

# Bounds of logarithms: of the weights, and of the width and the power of the link.
# With a width of .01, an excess that is .1 too low gives a probability of 5e-5, not less.
_LOG_WEIGHT, _LOG_WIDTH, _LOG_POWER = (-9.0, 9.0), (-4.6, 3.0), (-3.0, 5.0)
# Prior standard deviations of these logarithms, in nats for all rows together. Without them, a few dozen rows, and
# separable classes, would choose a bound.
_DEVIATIONS = (3.0, 2.0, 1.0)
_USUAL_WEIGHT, _USUAL_WIDTH = 2.5, 0.05  # the sum of the weights, and the width, to start from
_STOPPING_RULE = {"maxiter": 40, "ftol": 1e-5}


@dataclass(frozen=True, eq=False)
class ClassLink:
    r"""
    A link from the excess e, the amount by which a class is expected more often than its frequency f, to probabilities:

    .. math::

        p_c \propto f_c \left( \frac{h((f_c + e_c) / w)}{h(f_c / w)} \right)^t, \qquad h(z) = \log(1 + e^z)

    docs/explaining.md has the meaning of width w and power t. A share of the probabilities always comes from the
    frequencies, since n rows cannot distinguish probabilities far below 1 / n.

    :param frequencies: `C` frequencies f, positive, of sum 1.
    :param share: Share of the frequencies. (Default: 0.)

    Example:
        >>> link = ClassLink(torch.tensor([0.25, 0.75]), width=0.001, power=1.0)
        >>> link.log_probabilities(torch.tensor([[0.0], [0.2]])).exp()
        tensor([[0.2500, 0.7500],
                [0.0500, 0.9500]])
    """

    frequencies: Tensor
    width: float | Tensor
    power: float | Tensor
    share: float = 0.0

    def log_probabilities(self, excess: Tensor) -> Tensor:
        """Return log probabilities (`N x C`), from excesses (`N x C`, or `N x 1` for the second of two classes)."""
        both = torch.cat([-excess, excess], 1) if excess.shape[1] == 1 else excess
        ratio = _log_softplus((self.frequencies + both) / self.width) - _log_softplus(self.frequencies / self.width)
        usual = self.frequencies.log()
        found = torch.log_softmax(usual + self.power * ratio, 1)
        return torch.logaddexp(found + math.log1p(-self.share), usual + math.log(self.share)) if self.share else found


@dataclass(frozen=True, eq=False)
class ClassFit:
    """Hold the values that :func:`minimize_log_loss` finds."""

    outputscales: Tensor  # (c,) weights s, in variances of the noise
    link: ClassLink
    log_loss: float  # mean log loss of the held-out rows, in nats; infinite where there was none

    @classmethod
    def usual(cls, num_weights: int, frequencies: Tensor, num_rows: int) -> ClassFit:
        """Return the values from which the search starts; too few rows keep them."""
        weights = torch.full((num_weights,), _USUAL_WEIGHT / num_weights, dtype=torch.float64)
        return cls(weights, ClassLink(frequencies, _USUAL_WIDTH, 1.0, 1 / (num_rows + 1)), math.inf)


def minimize_log_loss(
    folds: Sequence[Fold], indicators: Tensor, frequencies: Tensor, *, row_weights: Tensor | None = None
) -> ClassFit:
    """
    Return weights and link with the least log loss of held-out rows, by L-BFGS-B with exact gradients.

    The link takes a share of 1 / (n + 1) from the frequencies, for n held-out rows in all. The logarithms of the values
    have weak normal priors around the start, in nats for all rows together.

    :param folds: The folds; their prior variances are not used.
    :param indicators: `N x q` zeros and ones: of all classes, or of the second of two.
    :param frequencies: `C` frequencies of the classes, positive, of sum 1.
    :param row_weights: `N` weights of the rows, 1 on average: the noise's variance is divided by them, and log losses
        are multiplied by them. (Default: None, 1.)
    """
    num_weights, num_held_out = len(folds[0].within), sum(len(fold.held_out) for fold in folds)
    usual = ClassFit.usual(num_weights, frequencies, num_held_out).link
    shares = torch.ones_like(indicators[:, 0]) if row_weights is None else row_weights
    start = np.log([*[_USUAL_WEIGHT / num_weights] * num_weights, _USUAL_WIDTH, 1.0])
    deviations = np.array([*[_DEVIATIONS[0]] * num_weights, *_DEVIATIONS[1:]])

    def held_out_loss(values: np.ndarray) -> tuple[float, np.ndarray]:
        parts = [_loss_of(fold, indicators, usual, values, shares) for fold in folds]
        losses, gradients = zip(*parts)
        return sum(losses) / num_held_out, np.sum(gradients, 0) / num_held_out

    def objective(values: np.ndarray) -> tuple[float, np.ndarray]:
        return _with_prior(held_out_loss(values), (values - start) / deviations, deviations, num_held_out)

    bounds = [*[_LOG_WEIGHT] * num_weights, _LOG_WIDTH, _LOG_POWER]
    found = minimize_lbfgsb(objective, start, bounds=bounds, options=_STOPPING_RULE).x
    weights, width, power = torch.from_numpy(found[:-2]).exp(), math.exp(found[-2]), math.exp(found[-1])
    return ClassFit(weights, replace(usual, width=width, power=power), held_out_loss(found)[0])


def calibrated(fit: ClassFit, excess: Tensor, indicators: Tensor, row_weights: Tensor | None) -> ClassFit:
    """Return the same weights with the link of least log loss, given the `excess` of rows that a model has not seen."""
    start, deviations = np.log([float(fit.link.width), float(fit.link.power)]), np.array(_DEVIATIONS[1:])
    link = replace(fit.link, share=1 / (len(excess) + 1))
    weights = torch.ones_like(indicators[:, 0]) if row_weights is None else row_weights

    def objective(values: np.ndarray) -> tuple[float, np.ndarray]:
        loss, _, gradient = _link_loss(excess, indicators, link, values, weights)
        found = loss / len(excess), gradient / len(excess)
        return _with_prior(found, (values - start) / deviations, deviations, len(excess))

    found = minimize_lbfgsb(objective, start, bounds=[_LOG_WIDTH, _LOG_POWER]).x
    width, power = np.exp(found).tolist()
    loss = _link_loss(excess, indicators, link, found, weights)[0] / len(excess)
    return replace(fit, link=replace(link, width=width, power=power), log_loss=loss)


def _with_prior(
    loss: tuple[float, np.ndarray], distances: np.ndarray, deviations: np.ndarray, num_rows: int
) -> tuple[float, np.ndarray]:
    """Add normal priors to a mean loss and its gradient; distances from their centres are in deviations."""
    return loss[0] + 0.5 * float(distances @ distances) / num_rows, loss[1] + distances / deviations / num_rows


def _loss_of(
    fold: Fold, indicators: Tensor, usual: ClassLink, values: np.ndarray, row_weights: Tensor
) -> tuple[float, np.ndarray]:
    r"""
    Return the log loss of a fold's held-out rows, summed, and its gradient.

    With :math:`A = \sum_i s_i K_i + W^{-1}`, :math:`\alpha = A^{-1} Y` and the excess :math:`C^\top \alpha`, a
    derivative G by the excess gives :math:`\langle C_i G, \alpha \rangle - \langle K_i A^{-1} C G, \alpha \rangle` by
    :math:`s_i`.
    """
    outputscales = torch.from_numpy(values[:-2]).exp()
    within, cross = (torch.tensordot(outputscales, part, 1) for part in (fold.within, fold.cross))
    root = stable_cholesky(within + torch.diag(1 / row_weights[fold.kept]))
    centred = indicators - usual.frequencies[-indicators.shape[1] :]
    weights = torch.cholesky_solve(centred[fold.kept], root)
    held_out = indicators[fold.held_out], usual, values[-2:], row_weights[fold.held_out]
    loss, by_excess, by_link = _link_loss(cross.mT @ weights, *held_out)
    solved = torch.cholesky_solve(cross @ by_excess, root)
    by_weights = [
        float(((part @ by_excess - own @ solved) * weights).sum()) for own, part in zip(fold.within, fold.cross)
    ]
    return loss, np.concatenate([np.array(by_weights) * outputscales.numpy(), by_link])


def _link_loss(
    excess: Tensor, indicators: Tensor, usual: ClassLink, values: np.ndarray, row_weights: Tensor
) -> tuple[float, Tensor, np.ndarray]:
    """The log loss, summed, and its derivatives by the excess and the logarithms of width and power."""
    with torch.enable_grad():
        excess = excess.detach().requires_grad_()
        logs = torch.from_numpy(values).requires_grad_()
        width, power = logs.exp().unbind()
        link = replace(usual, width=width, power=power)
        classes = torch.cat([1 - indicators, indicators], 1) if indicators.shape[1] == 1 else indicators
        loss = -(row_weights.unsqueeze(-1) * classes * link.log_probabilities(excess)).sum()
        by_excess, by_logs = torch.autograd.grad(loss, [excess, logs])
    return float(loss.detach()), by_excess, by_logs.numpy()


def _log_softplus(values: Tensor) -> Tensor:
    """The logarithm of log(1 + e^z), which is about z far below 0."""
    softplus = torch.nn.functional.softplus(values).clamp_min(torch.finfo(values.dtype).tiny)
    return torch.where(values < -30, values, softplus.log())
