"""The marginal likelihood at many lifetimes of one set of Mondrian trees: best lifetime, posterior, averages."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from torch import Tensor

from gpytorch_partition import settings
from gpytorch_partition.callers import level_of_caller
from gpytorch_partition.inputs.numbers import check_positive
from gpytorch_partition.kernels.mondrian_kernels import LONGER, MondrianKernel
from gpytorch_partition.lifetimes.lifetime_likelihoods import (
    ClusterRidge,
    HeldOut,
    LifetimeResult,
    Regression,
    SweepData,
    along_cuts,
    by_counts,
    by_rows,
    counted,
    uses_counts,
)
from gpytorch_partition.models.counted_rows import check_rows
from gpytorch_partition.progress import progress

# A prior of the lifetime: a distribution with the method `cdf`, or a distribution function.
Prior = Any

_NUM_LIFETIMES = 30  # lifetimes in the default grid
_SHORTEST = 1e-3  # shortest lifetime of the default grid, as a share of the longest
_MOST_CELLS = 10_000  # cells at the longest lifetime with which the regression can be followed cut by cut
_LARGEST_SHARE = 0.1  # posterior probability of a lifetime from which on neighbours of it are tried ...
_SMALLEST_STEP = 1e-3  # ... as long as they are further away than this, in the logarithm
_NEARLY = 0.8  # share of the longest lifetime from which on a longer one may be better ...
_NEAR_THE_USUAL = 0.4  # ... and of the usual one, at which trees end without a given max_lifetime ...
_CLEARLY = 3.0  # ... if the likelihood is so many nats larger than that of the shortest: chance makes 1 or 2
_NEGLIGIBLE = 1e-4  # posterior probability of a lifetime below which averages leave it out


@dataclass(frozen=True, eq=False)
class LifetimeSweep:
    """
    Hold the results of :func:`lifetime_sweep`, for L lifetimes in ascending order.

    Use it to see how certain the width of these trees is (:meth:`posterior`, :meth:`plot`), and to predict by the
    average over all widths (:meth:`predict`).
    """

    lifetimes: Tensor  #: `L`, in units of 1/x.
    log_marginal_likelihood: Tensor  #: `L`, in nats, of all rows together.
    standard_error: Tensor  #: `L` standard errors of the likelihoods: 0 where exact, else from common probe vectors.
    validation_error: Tensor | None  #: `L` root mean squared errors of validation rows, in units of y, or None.
    edges: Tensor  #: `L + 1` bounds of the intervals that the lifetimes represent, up to the kernel's `max_lifetime`.
    outputscales: Tensor  #: `L` outputscales s of the likelihoods.
    noises: Tensor  #: `L` noises.
    means: Tensor  #: `L` prior means of the targets, in units of y.
    _data: SweepData = field(repr=False)

    @property
    def best_lifetime(self) -> float:
        """Return the lifetime of greatest marginal likelihood, in units of 1/x."""
        return float(self.lifetimes[self.log_marginal_likelihood.argmax()])

    def posterior(self, prior: Prior | None = None) -> Tensor:
        r"""
        Return the posterior probabilities of the lifetimes (`L`; Balog et al. 2016, supplement B).

        They are :math:`p(y | \lambda_i) [F(e_{i + 1}) - F(e_i)]` normalized, with e the :attr:`edges`.

        :param prior: Prior of the lifetime: its distribution function F, or a distribution of PyTorch or SciPy; first
            and last lifetimes stand for all beyond. (Default: uniform in the logarithm between edges.)
        :raises ValueError: If the prior gives no probability to any lifetime.
        """
        masses = _distribution_function(self.edges, prior).diff()
        logits = self.log_marginal_likelihood + masses.log()
        if not bool((logits > -math.inf).any()) or bool((masses < 0).any()):
            raise ValueError("expected a prior that gives probability to some of the lifetimes, got none")
        return logits.softmax(0)

    def predict(self, x: Tensor, prior: Prior | None = None) -> tuple[Tensor, Tensor]:
        """
        Return the means and latent variances of points (`N_test` each), averaged over the lifetimes by their posterior.

        The predictive distribution is the mixture of those of all lifetimes (supplement B). Add the noise for the
        variances of new targets. Each lifetime with a posterior probability above 1e-4 costs a prediction.
        """
        weights = self.posterior(prior)
        weights = torch.where(weights > _NEGLIGIBLE, weights, 0)
        chosen = weights.nonzero().squeeze(-1).tolist()
        weights = weights[chosen] / weights.sum()
        parts = [(float(self.lifetimes[number]), self._regression(number)) for number in chosen]
        model = self._data.model()
        moments = [self._data.predict(model, *part, x) for part in progress(parts, "averaging lifetimes")]
        means, variances = (torch.stack(parts).double() for parts in zip(*moments))
        mean = weights @ means
        return mean, weights @ (variances + (means - mean).square())

    def plot(self, ax: Any = None, *, prior: Prior | None = None) -> Any:
        """Plot the posterior over lifetimes (:func:`gpytorch_partition.explain.plots.plot_lifetimes`)."""
        from gpytorch_partition.explain.plots import plot_lifetimes

        return plot_lifetimes(self, prior=prior, ax=ax)

    def _regression(self, number: int) -> Regression:
        outputscale, noise = float(self.outputscales[number]), float(self.noises[number])
        mean = float(self.means[number] - self._data.mean)
        return replace(self._data.regression, outputscale=outputscale, noise=noise, mean=mean)


def lifetime_sweep(
    kernel: MondrianKernel,
    x: Tensor,
    y: Tensor,
    *,
    outputscale: float | None = None,
    noise: float | None = None,
    lifetimes: Iterable[float] | str | None = None,
    validation: tuple[Tensor, Tensor] | None = None,
) -> LifetimeSweep:
    r"""
    Return the marginal likelihood of each lifetime, and set the kernel to the best (Balog et al. 2016, section 4).

    Call it with kernel, rows and targets alone to choose the width: in :math:`y \sim N(c, s K_\lambda + \sigma^2 I)`
    mean c, outputscale s and noise are then the most likely ones at each lifetime.

    The likelihood is exact up to 2,000 rows, or with few cells, else an estimate with a standard error. Choose the
    width by 2,000 random rows where there are more; the kernel may be built on all of them. A sweep over every cut
    costs :math:`O(p^{3.5})` in all, for up to 10,000 cells.

    **With few trees the best lifetime is too long** where the noise is given: use 200 or more (default), or no noise.

    :param kernel: The kernel, whose `max_lifetime` is the longest tried, and whose `lifetime` is set to the best.
    :param x: `N x D` training points.
    :param y: `N` training targets. Where outputscale and noise are given, their prior mean is their own mean.
    :param outputscale: s. (Default: None, the most likely one at each lifetime, as noise and mean are, some ten times
        as long.) The best lifetime depends on it: give it only if it is known.
    :param noise: :math:`\sigma^2`; given together with the outputscale, or neither.
    :param lifetimes: Lifetimes to try, in units of 1/x; or `"cuts"`, every one at which a cut separates rows. (Default:
        30, evenly in the logarithm, from a thousandth of the longest, and more where the posterior is.)
    :param validation: Points (`N_val x D`) and targets (`N_val`) to compute errors of at every lifetime.
    :return: The likelihoods, the posterior over the lifetime, and predictions averaged over it. A `UserWarning` says
        that the best lifetime is about the longest of the default grid: a longer one may be better.
    :raises TypeError: If the kernel is no Mondrian kernel, or rows or targets are no tensors.
    :raises ValueError: If rows, targets or a number cannot be used, cuts are too many, or noise is lost in rounding.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> x = torch.rand(400, 1, generator=generator, dtype=torch.float64)
        >>> y = (20 * x.squeeze(-1)).sin() + 0.1 * torch.randn(400, generator=generator, dtype=torch.float64)
        >>> kernel = MondrianKernel(x, num_trees=50, max_lifetime=100.0, random_state=0)
        >>> sweep = lifetime_sweep(kernel, x, y)
        >>> 3 < sweep.best_lifetime < 30, kernel.lifetime == sweep.best_lifetime
        (True, True)
    """
    _check(kernel, x, y, outputscale, noise, validation)
    chosen = _checked_lifetimes(kernel, lifetimes)
    if chosen is None and noise is None:
        raise ValueError('expected outputscale and noise with lifetimes="cuts": only given lifetimes choose them')
    data = SweepData.of(kernel, x, y, outputscale, noise)
    held_out = None if validation is None else HeldOut.of(kernel, data, *validation)
    with torch.no_grad(), settings.iterative():
        if chosen is None:
            sweep = _at_cuts(data, held_out)
        elif lifetimes is None:
            sweep = _refined(data, held_out, chosen)
        else:
            sweep = _on_grid(data, _at_lifetimes(data, held_out, chosen))
    is_usual = kernel.has_usual_width and kernel.lifetime == kernel.max_lifetime
    longest, values = float(sweep.lifetimes[-1]), sweep.log_marginal_likelihood
    is_near = sweep.best_lifetime > (_NEAR_THE_USUAL if is_usual else _NEARLY) * longest
    if lifetimes is None and is_near and float(values.max() - values[0]) > _CLEARLY:
        # First: where warnings are errors, the kernel stays as it is.
        found = f"the best lifetime, {sweep.best_lifetime:.3g}, is about the longest that the trees have, {longest:.3g}"
        longer = f", such as {LONGER * longest:.3g}" * is_usual
        warnings.warn(f"{found}: build the kernel with a longer max_lifetime{longer}", stacklevel=level_of_caller())
    kernel.lifetime = sweep.best_lifetime
    return sweep


Found = dict[float, tuple[LifetimeResult, float | None]]  # by lifetime: the result and the error of held-out rows


def _refined(data: SweepData, held_out: HeldOut | None, lifetimes: list[float]) -> LifetimeSweep:
    found: Found = {}
    while lifetimes:
        found |= _at_lifetimes(data, held_out, lifetimes)
        sweep = _on_grid(data, found)
        lifetimes = _between(sweep.lifetimes.tolist(), sweep.posterior().tolist())
    return sweep


def _between(lifetimes: list[float], shares: list[float]) -> list[float]:
    """The middles, in the logarithm, between lifetimes of a large share of the posterior and their neighbours."""
    return [
        math.sqrt(low * high)
        for low, high, *share in zip(lifetimes, lifetimes[1:], shares, shares[1:])
        if max(share) > _LARGEST_SHARE and math.log(high / low) > _SMALLEST_STEP
    ]


def _on_grid(data: SweepData, found: Found) -> LifetimeSweep:
    lifetimes = sorted(found)
    results, errors = zip(*(found[lifetime] for lifetime in lifetimes))
    edges = _edges(lifetimes).clamp_max(data.kernel.max_lifetime)
    return _sweep_of(lifetimes, results, [error for error in errors if error is not None], edges, data)


def _at_lifetimes(data: SweepData, held_out: HeldOut | None, lifetimes: list[float]) -> Found:
    ridge: ClusterRidge | None = None
    finer = data.rows.terminal  # the cells of the last counts
    found: Found = {}
    for lifetime in progress(lifetimes[::-1], "sweeping lifetimes"):  # counts of shorter ones are sums of the longer's
        cells = data.rows.trees.cells(lifetime)
        if uses_counts(data, cells):
            place = finer.place_in(cells)
            ridge = counted(data, cells) if ridge is None else ridge.coarsened(place, cells.num_clusters)
            finer, result = cells, by_counts(data, ridge)
        else:
            result = by_rows(data, cells, held_out is not None)
        error = None
        if held_out is not None:
            error = held_out.error(data.rows, cells, lifetime, cast(Tensor, result.effects), result.regression.mean)
        found[lifetime] = result, error
    return found


def _sweep_of(
    lifetimes: list[float], found: Sequence[LifetimeResult], errors: list[float], edges: Tensor, data: SweepData
) -> LifetimeSweep:
    def column(values: Iterable[float]) -> Tensor:
        return torch.tensor(list(values), dtype=torch.float64)

    return LifetimeSweep(
        column(lifetimes),
        column(each.log_likelihood for each in found),
        column(each.standard_error for each in found),
        column(errors) if errors else None,
        edges,
        column(each.regression.outputscale for each in found),
        column(each.regression.noise for each in found),
        column(each.regression.mean for each in found) + data.mean,
        data,
    )


def _at_cuts(data: SweepData, held_out: HeldOut | None) -> LifetimeSweep:
    trees, terminal = data.rows.trees, data.rows.terminal
    if trees.num_leaves > _MOST_CELLS:
        raise ValueError(
            f"expected at most {_MOST_CELLS:,} cells at the longest lifetime to follow cut by cut, got "
            f"{trees.num_leaves:,}: give lifetimes, fewer trees or a shorter max_lifetime"
        )
    ridge = counted(data, terminal)
    first = min(float(trees.cut_times.min()), data.kernel.max_lifetime) / 2  # any before the first cut
    lifetimes, found, errors = [], [], []
    for step in along_cuts(ridge, terminal, trees):
        lifetimes.append(step.time or first)
        found.append(LifetimeResult(data.regression, step.log_marginal_likelihood))
        if held_out is not None:
            errors.append(held_out.error(data.rows, step.cells, lifetimes[-1], step.effects, 0.0))
    times = torch.tensor(lifetimes, dtype=torch.float64)
    edges = torch.cat([times, times.new_tensor([data.kernel.max_lifetime])])
    return _sweep_of(lifetimes, found, errors, edges, data)


def _distribution_function(edges: Tensor, prior: Prior | None) -> Tensor:
    """The distribution function at the edges; all probability lies between the first and the last."""
    if prior is None:
        return edges.log()
    edges = edges.clone()
    edges[0], edges[-1] = 0, math.inf
    distribution: Any = getattr(prior, "cdf", prior)
    if isinstance(prior, torch.distributions.Distribution):
        support = prior.support
        edges = edges.clamp(getattr(support, "lower_bound", -math.inf), getattr(support, "upper_bound", math.inf))
    return torch.as_tensor(distribution(edges)).double()


def _edges(lifetimes: list[float]) -> Tensor:
    """The bounds of the intervals that lifetimes represent: in the logarithm, halfway to the next lifetime."""
    logs = torch.tensor(lifetimes, dtype=torch.float64).log()
    if len(logs) == 1:
        return (logs + torch.tensor([-0.5, 0.5], dtype=torch.float64)).exp()
    middles = (logs[1:] + logs[:-1]) / 2
    edges = torch.cat([2 * logs[:1] - middles[:1], middles, 2 * logs[-1:] - middles[-1:]]).exp()
    return edges.clamp_min(math.ulp(0.0))  # a logarithm is taken


def _checked_lifetimes(kernel: MondrianKernel, lifetimes: Any) -> list[float] | None:
    if isinstance(lifetimes, str):
        if lifetimes != "cuts":
            raise ValueError(f'expected lifetimes as numbers, or "cuts", got {lifetimes!r}')
        return None
    longest = kernel.max_lifetime
    if lifetimes is None:
        exponents = torch.linspace(math.log10(_SHORTEST), 0, _NUM_LIFETIMES, dtype=torch.float64)
        return (longest * 10**exponents).tolist()
    if not isinstance(lifetimes, Iterable):
        raise ValueError(f'expected several lifetimes, or "cuts", got {lifetimes!r}: put it into a list')
    try:
        chosen = sorted({float(lifetime) for lifetime in lifetimes})
    except (TypeError, ValueError):
        raise ValueError(f'expected lifetimes as numbers, or "cuts", got {lifetimes!r}') from None
    if not chosen or not 0 < chosen[0] <= chosen[-1] <= longest:
        raise ValueError(
            f"expected lifetimes in (0, {longest:g}], up to the kernel's max_lifetime, got {chosen or 'none'}: build "
            "the kernel with a longer max_lifetime"
        )
    return chosen


def _check(kernel: Any, x: Tensor, y: Tensor, outputscale: float | None, noise: float | None, validation: Any) -> None:
    if not isinstance(kernel, MondrianKernel):
        raise TypeError(
            f"expected a MondrianKernel, whose trees have lifetimes, got a {type(kernel).__name__}: give it itself "
            "where it is in another kernel, as the base_kernel of a ScaleKernel"
        )
    if validation is not None and not (isinstance(validation, Sequence) and len(validation) == 2):
        raise ValueError(f"expected validation as points and targets, (x, y), got {type(validation).__name__}")
    pairs = [(x, y)] if validation is None else [(x, y), validation]
    for points, targets in pairs:
        check_rows(points, targets, least=1)
        kernel.partition.check_points(kernel.columns.select(points))
    if (outputscale is None) != (noise is None):
        raise ValueError("expected both outputscale and noise, or neither, which chooses the most likely ones")
    check_positive(optional=True, outputscale=outputscale, noise=noise)
