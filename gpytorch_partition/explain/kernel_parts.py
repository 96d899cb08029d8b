"""The parts of a kernel, posterior means that are their sums, and rows that a kernel takes for similar."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import AdditiveKernel, Kernel, ScaleKernel
from linear_operator import to_linear_operator
from linear_operator.operators import LinearOperator
from torch import Tensor

from gpytorch_partition import settings
from gpytorch_partition.inputs.numbers import checked_count
from gpytorch_partition.inputs.training_rows import encode_missing
from gpytorch_partition.kernels import DeferredKernel, IterativeKernel, PartitionMixtureKernel, StandardizedKernel
from gpytorch_partition.models import CoregionalizedGP, PartitionGP
from gpytorch_partition.models.coregionalized import TargetView
from gpytorch_partition.presets.assembly import description_of
from gpytorch_partition.presets.boosted_mean import BoostedMean
from gpytorch_partition.tables import NumberView

Map = Callable[[Tensor], Tensor]
_ENTRIES = 2**24  # covariances held at once


@dataclass(frozen=True, eq=False)
class KernelPart:
    """Hold a term of a kernel: the kernel inside of scales, sums and maps, the product of its scales, and its maps."""

    kernel: Kernel
    weight: float
    maps: tuple[Map, ...] = ()

    def sources(self, num_columns: int) -> Tensor | None:
        """Return the number of the model's column behind each column that the kernel sees; None for other maps."""
        found = torch.arange(num_columns)
        for change in self.maps:
            if isinstance(change, NumberView):
                found = found.repeat_interleave(change.widths.cpu())
            elif not isinstance(getattr(change, "__self__", None), StandardizedKernel):
                return None
        return found

    def points(self, x: Tensor) -> Tensor:
        for change in self.maps:
            x = change(x)
        return x

    def covariance(self, x1: Tensor, x2: Tensor) -> LinearOperator:
        """Return the covariance (`N1 x N2`) of the part, without its weight."""
        return to_linear_operator(self.kernel(self.points(x1), self.points(x2))).evaluate_kernel()

    def pairs(self, x1: Tensor, x2: Tensor) -> Tensor:
        """Return the covariances (`N`) of N pairs of points, with the weight."""
        return self.weight * self.kernel(self.points(x1), self.points(x2), diag=True).double()

    def means(self, x: Tensor, train_x: Tensor, weights: Tensor) -> Tensor:
        r"""Return what the part adds to q functions at points, :math:`w K_{* x} \alpha` (`N x q`, float64)."""
        return self.weight * self.covariance(x, train_x).matmul(weights).double()

    def prior_variance(self, x: Tensor) -> float:
        r"""Return the expected prior variance over rows, :math:`\operatorname{tr}(K) / N - 1^\top K 1 / N^2`."""
        covariance = self.covariance(x, x)
        ones = torch.ones(len(x), 1, dtype=x.dtype, device=x.device)
        total = covariance.matmul(ones / len(x)).double().mean()
        return self.weight * float(covariance.diagonal(dim1=-2, dim2=-1).double().mean() - total)


@dataclass(frozen=True, eq=False)
class AveragedTrees(KernelPart):
    """Boosted trees that have a share in a model's predictions beside its kernel, as a part without prior variance."""

    trees: BoostedMean = field(kw_only=True)

    @classmethod
    def of(cls, trees: BoostedMean) -> AveragedTrees:
        (inside,) = kernel_parts(trees.kernel)
        return cls(inside.kernel, 0.0, inside.maps, trees=trees)

    def means(self, x: Tensor, train_x: Tensor, weights: Tensor) -> Tensor:
        return self.trees.share * self.trees(x).double().unsqueeze(-1)

    def prior_variance(self, x: Tensor) -> float:
        return 0.0


@dataclass(frozen=True, eq=False)
class KernelExpansion:
    r"""
    Hold the functions :math:`\sum_i k(x, x_i) \alpha_{iq}` of training rows: posterior means without their constants.

    The weights :math:`\alpha` are `N x q`. Boosted trees that have a share in predictions are the last part.
    """

    kernel: Kernel
    train_x: Tensor
    weights: Tensor
    names: tuple[str, ...] | None = None
    trees: BoostedMean | None = None

    @classmethod
    def of_model(cls, model: PartitionGP | CoregionalizedGP) -> KernelExpansion:
        """Return the functions of a model in evaluation mode. Costs one solve before the first prediction."""
        if isinstance(model, CoregionalizedGP):
            weights = model.dual_weights
        else:
            weights = strategy_of(model).mean_cache.unsqueeze(-1)
        names, trees = tuple(description_of(model)["parts"] or ()), getattr(model, "boosted", None)
        if trees is not None:  # whose share is the same at all training rows
            names, weights = (*names, "averaged_trees"), (1 - trees.share).to(weights) * weights
        return cls(model.covar_module, model.train_inputs[0], weights, names or None, trees)

    @cached_property
    def parts(self) -> list[KernelPart]:
        return kernel_parts(self.kernel) + ([] if self.trees is None else [AveragedTrees.of(self.trees)])

    @property
    def part_names(self) -> tuple[str, ...]:
        return tuple(self.names or [type(part.kernel).__name__ for part in self.parts])

    @torch.no_grad()
    def part_means(self, x: Tensor) -> Tensor:
        """Return each part's term of each function at points (`q x parts x N`, float64), by a product with each."""
        with settings.iterative():
            return torch.stack([part.means(x, self.train_x, self.weights).mT for part in self.parts], 1)


_OUTER = ScaleKernel | DeferredKernel | IterativeKernel | StandardizedKernel | AdditiveKernel


def kernel_parts(kernel: Kernel, *, of_mixtures: bool = False) -> list[KernelPart]:
    """Return the terms of a kernel's sums, also inside scales and changes of units; of mixtures if `of_mixtures`."""
    return list(_parts(kernel, 1.0, (), of_mixtures))


def _parts(kernel: Kernel, weight: float, maps: tuple[Map, ...], of_mixtures: bool) -> Iterator[KernelPart]:
    if of_mixtures and isinstance(kernel, PartitionMixtureKernel):
        for inner, share in zip(kernel.kernels, kernel.mixture_weights.tolist()):
            yield from _parts(inner, weight * share, maps, of_mixtures)
    elif isinstance(kernel, _OUTER) or _has_view(kernel):
        maps = (*maps, columns_of(kernel)) if selects_columns(kernel) else maps
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
    """Return whether a kernel is a `base_kernel` of the points of its `view`."""
    return isinstance(getattr(kernel, "base_kernel", None), Kernel) and callable(getattr(kernel, "view", None))


def selects_columns(kernel: Kernel) -> bool:
    """Return whether a kernel selects columns itself: a ScaleKernel has a copy of its base's `active_dims`."""
    is_copy = isinstance(kernel, ScaleKernel) and kernel.base_kernel.active_dims is not None
    return kernel.active_dims is not None and not is_copy


def columns_of(kernel: Kernel) -> Map:
    return lambda x: x.index_select(-1, kernel.active_dims)


@torch.no_grad()
def strategy_of(model: PartitionGP | TargetView) -> Any:
    """Return GPyTorch's prediction strategy of a model in evaluation mode, whose `mean_cache` holds rows' weights."""
    with settings.iterative(), settings.no_debug():
        if model.prediction_strategy is None and isinstance(model, PartitionGP):
            model(model.train_inputs[0][:1]).mean  # noqa: B018, makes it
        return model.prediction_strategy


def covariance_shares(means: Tensor) -> Tensor:
    r"""
    Return each part's share of the variance of a sum, :math:`\operatorname{Cov}(f_j, f) / \operatorname{Var}(f)`.

    A part that works against the others has a negative share (Li et al. 2010, "Global sensitivity analysis for systems
    with independent and/or correlated inputs"). Several functions (`*q x parts x N` values) are added.
    """
    centred = means - means.mean(-1, keepdim=True)
    total = centred.sum(-2, keepdim=True)
    shares, variance = (centred * total).sum(-1).reshape(-1, means.shape[-2]).sum(0), total.square().sum()
    return shares / variance if variance > 0 else torch.zeros_like(shares)


@torch.no_grad()
def nearest_rows(
    kernel: Kernel, points: Tensor, train_x: Tensor, k: int, names: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    r"""
    Return for each point the rows with the largest correlations :math:`k(x, x') / \sqrt{k(x, x)\, k(x', x')}`.

    Use it with a kernel alone; a fitted regressor or classifier has a method of this name. Ties keep the order of the
    rows. Costs :math:`O(N m)` for each block of points; at most :math:`2^{24}` covariances are held.

    :param k: Number of rows for each point, from 1 to N.
    :param names: `N` numbers of the rows. (Default: None, from 0.)
    :return: Numbers of rows and their correlations, `N2 x k` each, the nearest first.
    """
    if checked_count(k, "rows", "k") > len(train_x):
        raise ValueError(f"expected k up to {len(train_x)}, the number of training rows, got {k}")
    with settings.iterative(), settings.no_debug():
        roots = kernel(train_x, diag=True).double().sqrt()
        blocks = encode_missing(points).split(max(1, _ENTRIES // len(train_x)))
        found = [_nearest(kernel, block, train_x, roots, int(k)) for block in blocks]
    numbers, values = (np.concatenate(parts) for parts in zip(*found))
    return (numbers if names is None else names[numbers]), values


def _nearest(kernel: Kernel, points: Tensor, train_x: Tensor, roots: Tensor, k: int) -> tuple[np.ndarray, np.ndarray]:
    covariances = to_linear_operator(kernel(points, train_x)).to_dense().double()
    scales = kernel(points, diag=True).double().sqrt().unsqueeze(-1) * roots
    correlations = (covariances / scales.clamp_min(torch.finfo(torch.float64).tiny)).clamp(-1, 1).numpy()
    chosen = np.stack([largest(row, k) for row in correlations])
    return chosen, np.take_along_axis(correlations, chosen, 1)


def largest(values: np.ndarray, k: int) -> np.ndarray:
    """Return the numbers of the k largest values, the largest first; of ties the first ones."""
    least = np.partition(values, len(values) - k)[len(values) - k]
    candidates = np.flatnonzero(values >= least)
    return candidates[np.argsort(-values[candidates], kind="stable")[:k]]
