"""The parts of a model's kernel: what each contributes to the prior, and to the posterior mean."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from gpytorch.kernels import AdditiveKernel, Kernel, ScaleKernel
from linear_operator import to_linear_operator
from linear_operator.operators import LinearOperator
from torch import Tensor

from gpytorch_partition import settings
from gpytorch_partition.kernels import IterativeKernel, PartitionMixtureKernel, StandardizedKernel
from gpytorch_partition.models import PartitionGP
from gpytorch_partition.models.coregionalized import TargetView
from gpytorch_partition.tables import NumberView

Map = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class KernelPart:
    """
    A term of a kernel, as a kernel of points in the model's units.

    :param kernel: What is left inside of all scales, sums and maps of the points.
    :param weight: The product of the scales around it.
    :param maps: What the points go through before the kernel sees them, the first one first.
    """

    kernel: Kernel
    weight: float
    maps: tuple[Map, ...] = ()

    def sources(self, num_columns: int) -> Tensor | None:
        """
        The number of the model's column that each column which the kernel sees is made from, alone; None where that is
        not known. A change of units keeps columns, a view of a table makes several of a category.

        :param num_columns: Number of the model's columns.
        """
        found = torch.arange(num_columns)
        for change in self.maps:
            if isinstance(change, NumberView):
                found = found.repeat_interleave(change.widths.cpu())
            elif not isinstance(getattr(change, "__self__", None), StandardizedKernel):
                return None
        return found

    def points(self, x: Tensor) -> Tensor:
        """Points (`N x D`) as the kernel inside sees them."""
        for change in self.maps:
            x = change(x)
        return x

    def covariance(self, x1: Tensor, x2: Tensor) -> LinearOperator:
        """The covariance (`N1 x N2`) of the part, without its weight."""
        return to_linear_operator(self.kernel(self.points(x1), self.points(x2))).evaluate_kernel()

    def pairs(self, x1: Tensor, x2: Tensor) -> Tensor:
        """The covariances (`N`) of as many pairs of points, with the weight."""
        return self.weight * self.kernel(self.points(x1), self.points(x2), diag=True).double()

    def mean(self, x: Tensor, train_x: Tensor, alpha: Tensor) -> Tensor:
        r"""
        The part of the posterior mean (`N`, float64) that is this part's, :math:`w K_{* x} \alpha`.

        :param x: `N x D` points.
        :param train_x: Training rows.
        :param alpha: Their weights (:func:`dual_weights`).
        """
        return self.weight * self.covariance(x, train_x).matmul(alpha.unsqueeze(-1)).squeeze(-1).double()

    def prior_variance(self, x: Tensor) -> float:
        r"""
        The variance of this part over the rows that is expected before targets are seen,
        :math:`\operatorname{tr}(K) / N - 1^\top K 1 / N^2`; a level that all rows share is none. One product with K.

        :param x: `N x D` rows.
        """
        covariance = self.covariance(x, x)
        ones = torch.ones(len(x), 1, dtype=x.dtype, device=x.device)
        total = covariance.matmul(ones / len(x)).double().mean()
        return self.weight * float(covariance.diagonal(dim1=-2, dim2=-1).double().mean() - total)


class Expansion:
    r"""
    A function :math:`\sum_i k(x, x_i) w_i` of training rows, for what explains models; one of the classes' is such.

    :param kernel: k.
    :param train_x: `N x D` training rows.
    :param weights: `N` weights w.
    """

    def __init__(self, kernel: Kernel, train_x: Tensor, weights: Tensor) -> None:
        self.covar_module, self.train_inputs = kernel, (train_x,)
        self.prediction_strategy = SimpleNamespace(mean_cache=weights)


def kernel_parts(kernel: Kernel, *, of_mixtures: bool = False) -> list[KernelPart]:
    """
    The terms of a kernel: those of its sums, within scales and changes of units.

    :param kernel: A kernel without a batch shape.
    :param of_mixtures: Whether the kernels of a :class:`~gpytorch_partition.PartitionMixtureKernel` count as terms.
        (Default: no.)

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> kernel = ScaleKernel(RBFKernel() + ScaleKernel(RBFKernel()))
        >>> kernel.outputscale, kernel.base_kernel.kernels[1].outputscale = 2.0, 3.0
        >>> [round(part.weight, 4) for part in kernel_parts(kernel)]
        [2.0, 6.0]
    """
    return list(_parts(kernel, 1.0, (), of_mixtures))


def _parts(kernel: Kernel, weight: float, maps: tuple[Map, ...], of_mixtures: bool) -> Iterator[KernelPart]:
    if of_mixtures and isinstance(kernel, PartitionMixtureKernel):
        for inner, share in zip(kernel.kernels, kernel.mixture_weights.tolist()):
            yield from _parts(inner, weight * share, maps, of_mixtures)
    elif isinstance(kernel, ScaleKernel | IterativeKernel | StandardizedKernel | AdditiveKernel) or _has_view(kernel):
        maps = (*maps, _columns_of(kernel)) if _selects_columns(kernel) else maps
        if isinstance(kernel, ScaleKernel):
            weight *= kernel.outputscale.item()
        if isinstance(kernel, StandardizedKernel) or _has_view(kernel):
            maps = (*maps, kernel.view if _has_view(kernel) else kernel.standardized)
        inside = kernel.kernels if isinstance(kernel, AdditiveKernel) else [kernel.base_kernel]
        for inner in inside:
            yield from _parts(inner, weight, maps, of_mixtures)
    else:
        yield KernelPart(kernel, weight, maps)


def _has_view(kernel: Kernel) -> bool:
    """Whether a kernel is another one, `base_kernel`, of what its `view` makes of the points."""
    return isinstance(getattr(kernel, "base_kernel", None), Kernel) and callable(getattr(kernel, "view", None))


def _selects_columns(kernel: Kernel) -> bool:
    """Whether a kernel selects columns that the kernel inside does not: a ScaleKernel has a copy of its base's."""
    is_copy = isinstance(kernel, ScaleKernel) and kernel.base_kernel.active_dims is not None
    return kernel.active_dims is not None and not is_copy


def _columns_of(kernel: Kernel) -> Map:
    return lambda x: x.index_select(-1, kernel.active_dims)


@torch.no_grad()
def dual_weights(model: PartitionGP | TargetView | Expansion) -> Tensor:
    r"""
    The weights :math:`\alpha = (K + D)^{-1} (y - \mu)` (`N`) of the training rows in the posterior mean; one solve, or
    none if means were predicted before.

    :param model: A model in evaluation mode.
    """
    return strategy_of(model).mean_cache


@torch.no_grad()
def strategy_of(model: PartitionGP | TargetView | Expansion) -> Any:
    """
    GPyTorch's prediction strategy of a model, which keeps what predictions share.

    :param model: A model in evaluation mode.
    """
    with settings.iterative(), settings.no_debug():
        if model.prediction_strategy is None and isinstance(model, PartitionGP):
            model(model.train_inputs[0][:1]).mean  # noqa: B018, makes it
        return model.prediction_strategy


@torch.no_grad()
def part_means(parts: list[KernelPart], train_x: Tensor, alpha: Tensor) -> Tensor:
    """
    What each part adds to the posterior mean at the training rows (`parts x N`, float64). A product for each.

    :param parts: The parts.
    :param train_x: Training rows.
    :param alpha: Their weights (:func:`dual_weights`).
    """
    with settings.iterative():
        return torch.stack([part.mean(train_x, train_x, alpha) for part in parts])


def covariance_shares(means: Tensor) -> Tensor:
    r"""
    Each part's share of the variance of a sum, :math:`\operatorname{Cov}(f_j, f) / \operatorname{Var}(f)` (`parts`).

    They sum to 1; one is negative where its part works against the others (the total sensitivity index of Li et al.
    2010, "Global sensitivity analysis for systems with independent and/or correlated inputs").

    :param means: `parts x N` values of the parts.

    Example:
        >>> covariance_shares(torch.tensor([[0.0, 1.0, 2.0], [0.0, 3.0, 6.0]]))
        tensor([0.2500, 0.7500])
    """
    centered = means - means.mean(-1, keepdim=True)
    total = centered.sum(0)
    variance = total @ total
    return centered @ total / variance if variance > 0 else torch.zeros_like(means[:, 0])
