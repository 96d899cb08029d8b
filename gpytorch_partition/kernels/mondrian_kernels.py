"""Mondrian kernels: of a lifetime that can be changed, and the average over a trained distribution of lifetimes."""

from __future__ import annotations

from copy import deepcopy
from math import floor, log2
from typing import Any, cast

import gpytorch
import torch
from gpytorch.constraints import Positive
from scipy.stats import gamma
from torch import Tensor

from gpytorch_partition.clusters.cluster_index import ClusterSizes
from gpytorch_partition.clusters.incidence import Incidence
from gpytorch_partition.inputs.numbers import check_positive, random_state_of
from gpytorch_partition.inputs.training_rows import checked_rows, median_distance
from gpytorch_partition.kernels.partition_kernel import PartitionKernel, training_points
from gpytorch_partition.operators.cluster_operators.cluster_operator import ClusterOperator
from gpytorch_partition.operators.cluster_operators.path_sum_linear_operator import (
    AttachedPathsLinearOperator,
    PathSumLinearOperator,
    TreeExits,
)
from gpytorch_partition.partitions.mondrian.mondrian_partition import (
    AttachedRows,
    LeafRows,
    MondrianPartition,
    NestedMondrianPartition,
)
from gpytorch_partition.partitions.mondrian.mondrian_trees import MondrianTrees

LONGER = 30  # lifetimes that are worth a try, over the usual one


class MondrianKernel(PartitionKernel):
    r"""
    Compare points by the share of m Mondrian trees in which they share a cell (Balog et al. 2016, section 3.1).

    Use it to get every kernel width from one set of trees, or if the posterior must return to the prior far from rows.

    Its limit for many trees is the Laplace kernel :math:`\exp(-\lambda \|x - x'\|_1)` with the lifetime :math:`\lambda`
    (proposition 1), also outside the box of the training rows. :attr:`lifetime` can be set to any positive value up to
    :attr:`max_lifetime` (section 4.1); :func:`~gpytorch_partition.lifetime_sweep` chooses it.

    Standardize columns, or give them lengthscales, or other directions to cut across, by `projection`, which is fixed.
    :func:`~gpytorch_partition.lifetimes.expected_gradient_projection` learns one from targets.

    All parameters, their errors and costs are those of :class:`~gpytorch_partition.partitions.MondrianPartition`,
    except `batch_shape` and `active_dims`, which are those of :class:`~gpytorch_partition.PartitionKernel`.

    Example:
        >>> x = torch.linspace(0, 1, 50).unsqueeze(-1)
        >>> kernel = MondrianKernel(x, num_trees=2000, lifetime=2.0, random_state=0)
        >>> bool((kernel(x).to_dense()[0, 20] - torch.exp(-2.0 * x[20])).abs() < 0.05)
        True
    """

    partition: MondrianPartition
    vanishes_far_away = True
    _instead_of_lengthscale = "kernel.lifetime is 1 / lengthscale, which lifetime_sweep chooses"

    def __init__(
        self,
        train_x: Tensor | None = None,
        num_trees: int = 200,
        *,
        lifetime: float | None = None,
        max_lifetime: float | None = None,
        projection: Tensor | str | None = None,
        random_state: Any = None,
        batch_shape: torch.Size | tuple[int, ...] = (),
        active_dims: tuple[int, ...] | None = None,
    ) -> None:
        partition = MondrianPartition(
            training_points(train_x, active_dims),
            num_trees,
            lifetime=lifetime,
            max_lifetime=max_lifetime,
            projection=projection,
            random_state=random_state,
        )
        super().__init__(partition, batch_shape=batch_shape, active_dims=active_dims)
        self.has_usual_width = train_x is not None and lifetime is None
        self._remember(train_x)

    @property
    def lifetime(self) -> float:
        """Return the lifetime, in units of 1/x; it can be set up to :attr:`max_lifetime`, and is 0 while unfitted."""
        return self.partition.lifetime

    @lifetime.setter
    def lifetime(self, lifetime: float) -> None:
        self.partition.lifetime = lifetime
        self.has_usual_width = False

    @property
    def max_lifetime(self) -> float:
        """Return the longest lifetime that can be set, in units of 1/x; 0 while the kernel is unfitted."""
        return self.partition.max_lifetime

    def cut(self, lifetime: float) -> MondrianKernel:
        """Return a copy with the same trees and another :attr:`lifetime`, in :math:`O(N m)` for cached rows."""
        partition = self.partition.cut(lifetime)
        kernel = deepcopy(self)
        kernel.partition, kernel.has_usual_width = partition, False
        return kernel

    @property
    def other_widths(self) -> str:
        others, has_others = f"max_lifetime={LONGER * self.lifetime:.3g}", self.max_lifetime != self.lifetime
        trees = "" if has_others else f"build it as MondrianKernel(train_x, {others}), so that it has others, and "
        told = f"the lifetime of a MondrianKernel ({self.lifetime:.3g}, by the median distance of its rows) stays"
        return f"{told} as it is: {trees}lifetime_sweep(kernel, train_x, train_y) chooses it; or set kernel.lifetime"


_QUANTILE = 0.999  # of the initial distribution of the lifetime
_NUM_QUANTILES = 2.0  # the default max_lifetime, in units of that quantile
# Step of the finite difference in the concentration a, relative to min(a, sqrt(a)), the scale on which the distribution
# function changes with a: truncation and rounding errors are then both below 1e-11.
_RELATIVE_STEP = 1e-3


class GammaMondrianKernel(PartitionKernel):
    r"""
    Average the Mondrian kernel over a lifetime :math:`\lambda \sim \mathrm{Gamma}(a, b)`, a and b trained.

    Use it in place of a Mondrian kernel to train the width by gradients, like a lengthscale.

    With :math:`r = \|x - x'\|_1` the limit of many trees is the rational quadratic in the L1 distance,

    .. math:: k(x, x') = \mathbb{E}\, e^{-\lambda r} = (1 + r / b)^{-a},

    and :math:`e^{-(a / b) r}` for :math:`a \to \infty` with a / b fixed. Lifetimes end at :attr:`max_lifetime`.

    A product costs :math:`O(N m + V)` for V nodes. Joint samples of more than `max_cholesky_size` points are an error.

    :param train_x: `N x D` rows whose bounding box the trees begin with. (Default: None, for `load_state_dict`.)
    :param num_trees: Number m of trees. (Default: 200.)
    :param concentration: Initial value of a. (Default: 2.)
    :param lifetime: Initial mean a / b, in units of 1/x. (Default: as of :class:`~gpytorch_partition.MondrianKernel`.)
    :param max_lifetime: Cuts are sampled up to it. (Default: twice the 99.9 % quantile of the initial distribution.)
    :param random_state: As in :class:`~gpytorch_partition.PartitionKernel`, and so are `batch_shape` and `active_dims`.
    :raises ValueError: If the rows or an option cannot be used.

    Example:
        >>> x = torch.linspace(0, 1, 50).unsqueeze(-1)
        >>> kernel = GammaMondrianKernel(x, num_trees=2000, concentration=2.0, lifetime=4.0, random_state=0)
        >>> exact = (1 + x[20] * kernel.lifetime / kernel.concentration) ** -kernel.concentration
        >>> bool((kernel(x).to_dense()[0, 20] - exact).abs() < 0.05)
        True
    """

    partition: NestedMondrianPartition
    can_be_counted, vanishes_far_away = False, True
    _instead_of_lengthscale = "kernel.lifetime is the mean of 1 / lengthscale, trained as concentration / rate"

    def __init__(
        self,
        train_x: Tensor | None = None,
        num_trees: int = 200,
        *,
        concentration: float = 2.0,
        lifetime: float | None = None,
        max_lifetime: float | None = None,
        random_state: Any = None,
        batch_shape: torch.Size | tuple[int, ...] = (),
        active_dims: tuple[int, ...] | None = None,
    ) -> None:
        check_positive(concentration=concentration)
        check_positive(optional=True, lifetime=lifetime, max_lifetime=max_lifetime)
        partition, mean = NestedMondrianPartition(), lifetime or 1.0
        if (points := training_points(train_x, active_dims)) is not None:
            random = random_state_of(random_state)
            checked_rows(points, type(self).__name__)
            mean = lifetime or 1 / median_distance(points, random, "lifetime")
            longest = max_lifetime or _NUM_QUANTILES * gamma.ppf(_QUANTILE, concentration, scale=mean / concentration)
            if not 0 < longest < float("inf"):
                raise ValueError(
                    "expected concentration and lifetime to make a longest lifetime that float64 holds, got "
                    f"{concentration=} and {lifetime=}, which make {longest}: give max_lifetime"
                )
            partition = NestedMondrianPartition(points, num_trees, lifetime=longest, random_state=random)
        super().__init__(partition, batch_shape=batch_shape, active_dims=active_dims)
        self._remember(train_x)
        self.gamma = GammaLifetime(concentration, concentration / mean)

    @property
    def concentration(self) -> Tensor:
        """Return the trained concentration a; it can be set to a positive number."""
        return self.gamma.get("concentration")

    @concentration.setter
    def concentration(self, value: Any) -> None:
        self.gamma.set("concentration", value)

    @property
    def rate(self) -> Tensor:
        """Return the trained rate b, in units of x; it can be set to a positive number."""
        return self.gamma.get("rate")

    @rate.setter
    def rate(self, value: Any) -> None:
        self.gamma.set("rate", value)

    @property
    def lifetime(self) -> Tensor:
        """Return the mean lifetime a / b, in units of 1/x."""
        return self.concentration / self.rate

    @property
    def max_lifetime(self) -> float:
        """Return the lifetime up to which cuts are sampled, in units of 1/x; 0 while the kernel is unfitted."""
        return self.partition.max_lifetime

    def _described(self) -> str:
        told = f"concentration {self.concentration.item():.4g}, rate {self.rate.item():.4g}"
        return f"{super()._described()}, mean lifetime {self.lifetime.item():.4g} ({told})"

    def _effects_between(self, left: Incidence, right: Incidence, like: Tensor) -> ClusterOperator:
        if isinstance(left, AttachedRows):
            return self._attached(left, like)
        if isinstance(right, AttachedRows):
            return self._attached(right, like)._transpose_nonbatch()
        trees = cast(LeafRows, left).trees
        return PathSumLinearOperator(self._node_weights(trees, like), layout=trees.layout)

    def _node_weights(self, trees: MondrianTrees, like: Tensor) -> Tensor:
        return self._between(trees.births, trees.cut_times, trees, like)

    def _attached(self, points: AttachedRows, like: Tensor) -> ClusterOperator:
        """S between points and leaves; the node where a point leaves its tree has the weight up to that time."""
        trees = points.trees
        shares = self._between(trees.births[points.nodes], points.times, trees, like)
        exits = TreeExits(trees.layout, points.nodes)
        return AttachedPathsLinearOperator(self._node_weights(trees, like), shares, exits=exits)

    def _between(self, births: Tensor, ends: Tensor, trees: MondrianTrees, like: Tensor) -> Tensor:
        r"""Weights :math:`(F(\text{end}) - F(\text{birth})) / m` in whole steps, without which K is indefinite."""
        steps = 2.0 ** (floor(log2(trees.num_trees)) - floor(log2(torch.finfo(like.dtype).eps)) + 1)
        start, end = (_rounded(self.gamma.cdf(times) * (steps / trees.num_trees)) for times in (births, ends))
        return ((end - start) / steps).to(like)

    def _cluster_operator(self, sizes: ClusterSizes, like: Tensor) -> ClusterOperator:
        raise ValueError(
            "a GammaMondrianKernel cannot share a feature space with others, nor be counted in chunks: add it to "
            "other kernels with +, or use a MondrianKernel"
        )


class GammaLifetime(gpytorch.Module):
    """Hold a and b of the lifetime's distribution, outside the kernel, whose parameters GPyTorch takes for batched."""

    def __init__(self, concentration: float, rate: float) -> None:
        super().__init__()
        for name, value in (("raw_concentration", concentration), ("raw_rate", rate)):
            constraint = Positive(transform=torch.exp, inv_transform=torch.log)
            self.register_parameter(name, torch.nn.Parameter(torch.tensor(float(value)).log()))
            self.register_constraint(name, constraint)

    def get(self, name: str) -> Tensor:
        return self.constraint_for_parameter_name(f"raw_{name}").transform(getattr(self, f"raw_{name}"))

    def set(self, name: str, value: Any) -> None:
        raw = getattr(self, f"raw_{name}")
        value = torch.as_tensor(value).detach().to(raw)
        if not bool(((value > 0) & (value < torch.inf)).all()):
            raise ValueError(f"expected a positive, finite {name}, got {value.tolist()}")
        constraint = self.constraint_for_parameter_name(f"raw_{name}")
        self.initialize(**{f"raw_{name}": constraint.inverse_transform(value)})

    def cdf(self, times: Tensor) -> Tensor:
        r"""Return :math:`P(\lambda \le t)` (float64) of times t in units of 1/x; 0 and infinity are allowed."""
        return _GammaCDF.apply(self.get("concentration").double(), self.get("rate").double(), times.double())


def _rounded(values: Tensor) -> Tensor:
    """Values rounded to whole numbers, exactly, with the derivatives of the unrounded values."""
    return values + (values.round() - values).detach()


class _GammaCDF(torch.autograd.Function):
    """The regularized incomplete gamma function :math:`P(a, b t)`, differentiable in a (by a difference) and b."""

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
