"""The Gamma distribution of the lifetime of a Mondrian process, with trained parameters."""

from __future__ import annotations

from typing import Any

import gpytorch
import torch
from gpytorch.constraints import Positive
from torch import Tensor

# Step of the finite difference in the concentration a, relative to min(a, sqrt(a)), the scale on which the distribution
# function changes with a: truncation and rounding errors are then both below 1e-11.
_RELATIVE_STEP = 1e-3


class GammaLifetime(gpytorch.Module):
    r"""
    The distribution :math:`\lambda \sim \mathrm{Gamma}(a, b)` with the concentration a and the rate b as trained
    parameters.

    It is a submodule of the kernel, since GPyTorch indexes and expands a kernel's own parameters as if they began with
    its batch dimensions; these have none.

    :param concentration: Initial value of a.
    :param rate: Initial value of b, in units of x.

    Example:
        >>> lifetime = GammaLifetime(concentration=1.0, rate=2.0)
        >>> lifetime.cdf(torch.tensor([0.0, 0.5, torch.inf])).detach()  # 1 - exp(-2 t)
        tensor([0.0000, 0.6321, 1.0000], dtype=torch.float64)
    """

    raw_concentration: torch.nn.Parameter
    raw_rate: torch.nn.Parameter
    raw_concentration_constraint: Positive
    raw_rate_constraint: Positive

    def __init__(self, concentration: float, rate: float) -> None:
        super().__init__()
        for name, value in (("raw_concentration", concentration), ("raw_rate", rate)):
            constraint = Positive(transform=torch.exp, inv_transform=torch.log)
            self.register_parameter(name, torch.nn.Parameter(torch.tensor(float(value)).log()))
            self.register_constraint(name, constraint)

    @property
    def concentration(self) -> Tensor:
        """The concentration a; it can be set to a positive number."""
        return self.raw_concentration_constraint.transform(self.raw_concentration)

    @concentration.setter
    def concentration(self, value: Any) -> None:
        self._set("raw_concentration", value)

    @property
    def rate(self) -> Tensor:
        """The rate b, in units of x; it can be set to a positive number."""
        return self.raw_rate_constraint.transform(self.raw_rate)

    @rate.setter
    def rate(self, value: Any) -> None:
        self._set("raw_rate", value)

    def _set(self, name: str, value: Any) -> None:
        raw = getattr(self, name)
        value = torch.as_tensor(value).detach().to(raw)
        if not bool(((value > 0) & (value < torch.inf)).all()):
            raise ValueError(f"expected a positive, finite {name.removeprefix('raw_')}, got {value.tolist()}")
        self.initialize(**{name: self.constraint_for_parameter_name(name).inverse_transform(value)})

    def cdf(self, times: Tensor) -> Tensor:
        r"""
        Return :math:`F(t) = P(\lambda \le t)`, the regularized incomplete gamma function of a and b t (float64).

        :param times: Times t of any shape, in units of 1/x; 0 and infinity are allowed.
        """
        return _GammaCDF.apply(self.concentration.double(), self.rate.double(), times.double())


class _GammaCDF(torch.autograd.Function):
    r"""
    The regularized incomplete gamma function :math:`P(a, b t)`, differentiable in a and b.

    :math:`\partial F / \partial b = (b t)^a e^{-b t} / (b \Gamma(a))`; the derivative in a is not elementary, and is
    approximated by a central difference of four values.
    """

    @staticmethod
    def forward(ctx: Any, concentration: Tensor, rate: Tensor, times: Tensor) -> Tensor:
        ctx.save_for_backward(concentration, rate, times)
        return torch.special.gammainc(concentration, rate * times)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        concentration, rate, times = ctx.saved_tensors
        product = rate * times
        step = _RELATIVE_STEP * torch.minimum(concentration, concentration.sqrt())
        near, far = (
            torch.special.gammainc(concentration + k * step, product)
            - torch.special.gammainc(concentration - k * step, product)
            for k in (1, 2)
        )
        by_concentration = (8 * near - far) / (12 * step)
        logs = torch.xlogy(concentration, product) - product - torch.lgamma(concentration) - rate.log()
        by_rate = torch.where(product < torch.inf, logs.exp(), 0)
        return (gradient * by_concentration).sum(), (gradient * by_rate).sum(), None
