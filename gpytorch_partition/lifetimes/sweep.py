"""The marginal likelihood at every lifetime of one set of Mondrian trees, and what follows from it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import torch
from gpytorch.likelihoods import GaussianLikelihood
from linear_operator import settings as linear_settings
from torch import Tensor

from gpytorch_partition import settings
from gpytorch_partition.clusters.co_occurrence import count_co_occurrences, streamed_cluster_sums, zero_counts
from gpytorch_partition.clusters.incidence import Incidence
from gpytorch_partition.inference.evidence.krylov import default_num_probes, krylov_measures
from gpytorch_partition.inference.evidence.spectral_likelihood import SpectralLikelihood
from gpytorch_partition.inference.prediction import costs
from gpytorch_partition.kernels.mondrian_kernel import MondrianKernel
from gpytorch_partition.lifetimes.cluster_ridge import ClusterRidge, Regression
from gpytorch_partition.lifetimes.cut_by_cut import along_cuts
from gpytorch_partition.models.exact_gp import PartitionGP
from gpytorch_partition.operators.cluster_operators.flat_linear_operator import FlatLinearOperator
from gpytorch_partition.operators.partition_linear_operator import PartitionLinearOperator
from gpytorch_partition.partitions.mondrian.partition import GrownRows, MondrianPartition
from gpytorch_partition.partitions.mondrian.trees import Attachments, Cells
from gpytorch_partition.progress import progress

# A distribution (its method `cdf`), or a distribution function.
Prior = Any

# The lifetimes that are tried if nothing is said: so many, over three decades up to the longest.
_NUM_LIFETIMES, _SHORTEST = 30, 1e-3
# Cells at the longest lifetime for which the regression is followed cut by cut.
_MOST_CELLS = 10_000
# Lanczos steps go on until the likelihood changes by less than this: nats, and shares of its standard error.
_SETTLED_NATS, _SETTLED_ERRORS = 0.05, 0.1
# How many times as long as one with a standard error an exact likelihood may take.
_EXACTNESS = 4
# Lifetimes of less posterior probability are left out of averages.
_NEGLIGIBLE = 1e-4


@dataclass(frozen=True, eq=False)
class LifetimeSweep:
    """
    What :func:`lifetime_sweep` found, for L lifetimes in ascending order.

    :param lifetimes: `L`, in units of 1/x.
    :param log_marginal_likelihood: `L`, in nats, of all rows together.
    :param standard_error: `L`, of the likelihoods: 0 where they are exact, else that of probe vectors, which all
        lifetimes share.
    :param validation_error: `L` root mean squared errors of the validation rows, in units of y; None without such rows.
    :param edges: `L + 1` lifetimes between which each lifetime stands for its neighbors.
    """

    lifetimes: Tensor
    log_marginal_likelihood: Tensor
    standard_error: Tensor
    validation_error: Tensor | None
    edges: Tensor
    _data: _Data = field(repr=False)

    @property
    def best_lifetime(self) -> float:
        """The lifetime of greatest marginal likelihood."""
        return float(self.lifetimes[self.log_marginal_likelihood.argmax()])

    def posterior(self, prior: Prior | None = None) -> Tensor:
        r"""
        The posterior probabilities of the lifetimes (`L`): :math:`p(y | \lambda_i) [F(e_{i + 1}) - F(e_i)]`, normalized
        (Balog et al. 2016, supplement B), with e the :attr:`edges`.

        :param prior: Of the lifetime, by its distribution function F or as a distribution of PyTorch or SciPy that has
            one; the first and the last lifetime then stand for all shorter and all longer ones. (Default: uniform in
            the logarithm between the first and the last edge.)
        :raises ValueError: If it gives no probability to any lifetime.
        """
        masses = _distribution_function(self.edges, prior).diff()
        logits = self.log_marginal_likelihood + masses.log()
        if not bool((logits > -math.inf).any()) or bool((masses < 0).any()):
            raise ValueError("expected a prior that gives probability to some of the lifetimes, got none")
        return logits.softmax(0)

    def predict(self, x: Tensor, prior: Prior | None = None) -> tuple[Tensor, Tensor]:
        r"""
        The Bayesian model average over the lifetimes: means and latent variances of points (`N_test` each).

        The predictive distribution is the mixture of those of all lifetimes (supplement B); returned are its moments,
        :math:`\sum_i w_i \mu_i` and :math:`\sum_i w_i (v_i + \mu_i^2) - \mu^2`. Add the noise to the variances for
        those of new targets. Costs a prediction, with its solves, for each lifetime of more than a ten-thousandth of
        the posterior probability.

        :param x: `N_test x D` points.
        :param prior: Of the lifetime, as in :meth:`posterior`, and so are the errors.
        """
        weights = self.posterior(prior)
        weights = torch.where(weights > _NEGLIGIBLE, weights, 0)
        chosen = weights.nonzero().squeeze(-1).tolist()
        weights = weights[chosen] / weights.sum()
        lifetimes = [float(self.lifetimes[number]) for number in chosen]
        moments = [self._data.predict(lifetime, x) for lifetime in progress(lifetimes, "averaging lifetimes")]
        means, variances = (torch.stack(parts).double() for parts in zip(*moments))
        mean = weights @ means
        return mean, weights @ (variances + (means - mean).square())


def lifetime_sweep(
    kernel: MondrianKernel,
    x: Tensor,
    y: Tensor,
    *,
    outputscale: float,
    noise: float,
    lifetimes: Iterable[float] | str | None = None,
    validation: tuple[Tensor, Tensor] | None = None,
) -> LifetimeSweep:
    r"""
    The marginal likelihood of :math:`y \sim N(0, s K_\lambda + \sigma^2 I)` at every lifetime, from one set of trees,
    and the best lifetime written into the kernel (Balog et al. 2016, section 4).

    Rows are led down the trees once. The likelihood at a lifetime with p cells is exact by a p x p Cholesky factor
    (:class:`~gpytorch_partition.lifetimes.cluster_ridge.ClusterRidge`) where that takes no more than a few times as
    long as an estimate, and co-occurrences are counted once, :math:`O(N m^2)`: those of every shorter lifetime are sums
    of their rows and columns, at no cost in N. As p grows about geometrically along the lifetimes, all factors,
    :math:`O(p^3)`, cost a few times the last. Where cells are too many, one Lanczos run per lifetime takes over, which
    has a standard error; up to 2,000 rows dense algebra does.

    At every cut: :math:`O(p^{3.5})` in all and `24 p^2` bytes, for up to 10,000 cells at the end.

    :param kernel: The kernel, whose `max_lifetime` is the longest that is tried; its :attr:`~MondrianKernel.lifetime`
        is set to the best.
    :param x: `N x D` training points.
    :param y: `N` training targets, whose mean is taken to be zero: centre them. Far from it their squares leave little
        but rounding.
    :param outputscale: s.
    :param noise: :math:`\sigma^2`.
    :param lifetimes: To try, in units of 1/x; or `"cuts"`, every lifetime at which a cut separates rows. (Default: 30
        from a thousandth of the longest lifetime to that, evenly in the logarithm.)
    :param validation: Points (`N_val x D`) and targets (`N_val`) whose error is wanted at every lifetime. Between cuts
        of the training rows the likelihood is constant; errors may still change, where other points leave the cells.
    :return: The likelihoods, and what follows from them: the posterior over the lifetime, and predictions that are
        averages over it.
    :raises TypeError: If the kernel is no :class:`~gpytorch_partition.MondrianKernel`.
    :raises RuntimeError: If it is unfitted.
    :raises ValueError: If rows and targets do not match or are not finite, outputscale or noise are not positive, or
        lifetimes are none, not positive, or longer than the kernel's `max_lifetime`; for cuts, if cells are too many;
        if noise is so little that rounding leaves no factor of p x p counts.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> x = torch.rand(400, 1, generator=generator, dtype=torch.float64)
        >>> y = (20 * x.squeeze(-1)).sin() + 0.1 * torch.randn(400, generator=generator, dtype=torch.float64)
        >>> kernel = MondrianKernel(x, num_trees=50, max_lifetime=100.0, random_state=0)
        >>> sweep = lifetime_sweep(kernel, x, y, outputscale=1.0, noise=0.01, lifetimes=[1.0, 10.0, 100.0])
        >>> sweep.best_lifetime, kernel.lifetime
        (10.0, 10.0)
    """
    _check(kernel, x, y, outputscale, noise, validation)
    chosen = None if _is_at_cuts(lifetimes) else _checked_lifetimes(kernel, lifetimes)
    data = _Data.of(kernel, x, y, outputscale, noise)
    held_out = None if validation is None else _Validation.of(kernel, data.rows, *validation)
    with torch.no_grad(), settings.iterative():
        sweep = _at_cuts(data, held_out) if chosen is None else _at_lifetimes(data, held_out, chosen)
    kernel.lifetime = sweep.best_lifetime
    return sweep


class _Data(NamedTuple):
    """The kernel as it was, the training rows as its trees see them, and what is given."""

    kernel: MondrianKernel
    x: Tensor
    y: Tensor
    rows: GrownRows
    regression: Regression

    @classmethod
    def of(cls, kernel: MondrianKernel, x: Tensor, y: Tensor, outputscale: float, noise: float) -> _Data:
        rows = _partition(kernel).grown(kernel.columns.select(x))
        kernel = kernel.cut(kernel.lifetime)
        squares = float(y.double().square().sum())
        return cls(kernel, x, y, rows, Regression(outputscale, noise, kernel.num_partitions, len(y), squares))

    def covariance(self, cells: Cells) -> PartitionLinearOperator:
        """:math:`K` at a lifetime, given its cells, in float64 whatever the dtype of the rows."""
        rows, one = Incidence(self.rows.codes(cells), cells.num_clusters), torch.ones((), dtype=torch.float64)
        share = one.view(1) / self.regression.num_partitions
        effects = FlatLinearOperator(share, num_clusters=cells.num_clusters)
        return PartitionLinearOperator(one, effects, left=rows, right=rows)

    def predict(self, lifetime: float, x: Tensor) -> tuple[Tensor, Tensor]:
        """Predictive means and latent variances of the exact process at a lifetime."""
        likelihood = GaussianLikelihood()
        model = PartitionGP(self.x, self.y.to(self.x), likelihood, self.kernel.cut(lifetime)).eval()
        likelihood.noise_covar.raw_noise_constraint.lower_bound.fill_(0)
        likelihood.noise, model.covar_module.outputscale = self.regression.noise, self.regression.outputscale
        with torch.no_grad(), settings.iterative():
            predicted = model(x)
            return predicted.mean, predicted.variance


class _Validation(NamedTuple):
    """Rows that are left out: where they leave the trees of the training rows, and their targets."""

    events: Attachments
    y: Tensor

    @classmethod
    def of(cls, kernel: MondrianKernel, rows: GrownRows, x: Tensor, y: Tensor) -> _Validation:
        return cls(_partition(kernel).attached(rows, kernel.columns.select(x)), y.double())

    def error(self, rows: GrownRows, cells: Cells, lifetime: float, effects: Tensor) -> float:
        """The root mean squared error, given the effects of the cells at a lifetime."""
        by_event = effects[self.events.cells(rows.trees, cells, lifetime)]
        return float((by_event[self.events.codes].sum(-1) - self.y).square().mean().sqrt())


class _Found(NamedTuple):
    """One lifetime: likelihood, its standard error, and the effects of cells if they are wanted."""

    log_likelihood: float
    standard_error: float = 0.0
    effects: Tensor | None = None


def _at_lifetimes(data: _Data, held_out: _Validation | None, lifetimes: list[float]) -> LifetimeSweep:
    """The longest first, so that counts are made once."""
    ridge: tuple[ClusterRidge, Cells] | None = None
    found, errors = [], []
    for lifetime in progress(lifetimes[::-1], "sweeping lifetimes"):
        cells = data.rows.trees.cells(lifetime)
        if _is_primal(data, cells):
            ridge = _counted(data, cells) if ridge is None else _coarser(ridge, cells)
            found.append(_Found(ridge[0].log_marginal_likelihood, 0.0, ridge[0].effects))
        else:
            found.append(_by_rows(data, cells, held_out is not None))
        if held_out is not None:
            errors.append(held_out.error(data.rows, cells, lifetime, cast(Tensor, found[-1].effects)))
    return LifetimeSweep(
        torch.tensor(lifetimes, dtype=torch.float64),
        torch.tensor([each.log_likelihood for each in found[::-1]], dtype=torch.float64),
        torch.tensor([each.standard_error for each in found[::-1]], dtype=torch.float64),
        torch.tensor(errors[::-1], dtype=torch.float64) if errors else None,
        _edges(lifetimes),
        data,
    )


def _is_primal(data: _Data, cells: Cells) -> bool:
    """Whether an exact likelihood by the p x p matrix of clusters is worth its time."""
    num_rows, size = data.regression.num_rows, cells.num_clusters
    if _is_dense(data):
        return size <= num_rows
    estimate = costs.krylov_seconds(num_rows, data.regression.num_partitions, 2 + default_num_probes(num_rows))
    return costs.cholesky_seconds(size) < _EXACTNESS * estimate


def _is_dense(data: _Data) -> bool:
    """Whether rows are few enough for dense algebra."""
    return data.regression.num_rows <= linear_settings.max_cholesky_size.value()


def _counted(data: _Data, cells: Cells) -> tuple[ClusterRidge, Cells]:
    """The regression at a lifetime, from the rows."""
    codes, counts = data.rows.codes(cells), zero_counts(cells.num_clusters, data.x.device)
    count_co_occurrences(counts, codes)
    sums = streamed_cluster_sums(codes, data.y.unsqueeze(-1), cells.num_clusters).squeeze(-1)
    return ClusterRidge(data.regression, counts, sums), cells


def _coarser(finer: tuple[ClusterRidge, Cells], cells: Cells) -> tuple[ClusterRidge, Cells]:
    """The regression at a shorter lifetime, from that at a longer one."""
    ridge, before = finer
    return ridge.coarsened(before.place_in(cells), cells.num_clusters), cells


def _by_rows(data: _Data, cells: Cells, with_effects: bool) -> _Found:
    """The likelihood from the covariance of the rows: dense for few, one Lanczos run for many."""
    covariance, regression = data.covariance(cells), data.regression
    if _is_dense(data):
        noisy = regression.outputscale * covariance.to_dense()
        noisy.diagonal().add_(regression.noise)
        factor = torch.linalg.cholesky(noisy)
        alpha = torch.cholesky_solve(data.y.double().unsqueeze(-1), factor)
        normal = torch.distributions.MultivariateNormal(torch.zeros_like(noisy[0]), scale_tril=factor)
        return _Found(float(normal.log_prob(data.y.double())), 0.0, _effects(data, cells, alpha))
    value, standard_error = _by_lanczos(data, covariance)
    if not with_effects:
        return _Found(value, standard_error)
    noisy = covariance._mul_constant(regression.outputscale).add_diagonal(torch.tensor(regression.noise).double())
    alpha = noisy.solve(data.y.double().unsqueeze(-1))
    return _Found(value, standard_error, _effects(data, cells, alpha))


def _by_lanczos(data: _Data, covariance: PartitionLinearOperator) -> tuple[float, float]:
    """The likelihood and its standard error, by as many steps as it takes to settle."""
    num_rows, outputscale, noise = data.regression.num_rows, data.regression.outputscale, data.regression.noise
    targets, seed = data.y.double().unsqueeze(-1), settings.probe_seed.value()
    before = value = error = math.inf
    for measure in krylov_measures(covariance, targets, default_num_probes(num_rows), seed):
        likelihood = SpectralLikelihood(measure)
        before, value = value, likelihood.value(outputscale, noise, 0.0)
        error = likelihood.standard_error(outputscale, noise)
        if abs(value - before) <= max(_SETTLED_NATS, _SETTLED_ERRORS * error):
            break
    return value, error


def _effects(data: _Data, cells: Cells, alpha: Tensor) -> Tensor:
    r"""Effects of cells (:math:`\tfrac sm Z^\top \alpha`) from the weights of rows (`N x 1`)."""
    share = data.regression.outputscale / data.regression.num_partitions
    return share * streamed_cluster_sums(data.rows.codes(cells), alpha, cells.num_clusters).squeeze(-1)


def _at_cuts(data: _Data, held_out: _Validation | None) -> LifetimeSweep:
    """Every lifetime at which something changes, and one before the first cut."""
    trees, terminal = data.rows.trees, data.rows.terminal
    if trees.num_leaves > _MOST_CELLS:
        raise ValueError(
            f"expected at most {_MOST_CELLS:,} cells at the longest lifetime to follow cut by cut, got "
            f"{trees.num_leaves:,}: give lifetimes, use fewer trees or a shorter max_lifetime"
        )
    ridge, _ = _counted(data, terminal)
    first = min(float(trees.cut_times.min()), data.kernel.max_lifetime) / 2  # any before the first cut
    steps, errors = [], []
    for step in along_cuts(ridge, terminal, trees):
        lifetime = step.time or first
        steps.append((lifetime, step.log_marginal_likelihood))
        if held_out is not None:
            errors.append(held_out.error(data.rows, step.cells, lifetime, step.effects))
    times, values = torch.tensor(steps, dtype=torch.float64).unbind(-1)
    ends = torch.cat([times[1:], times.new_tensor([data.kernel.max_lifetime])])
    return LifetimeSweep(
        times,
        values,
        torch.zeros_like(values),
        torch.tensor(errors, dtype=torch.float64) if errors else None,
        torch.cat([times[:1], ends]),
        data,
    )


def _distribution_function(edges: Tensor, prior: Prior | None) -> Tensor:
    """F at the edges; nothing lies outside them."""
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
    """Where each lifetime's neighborhood ends: halfway, in the logarithm, to the next."""
    logs = torch.tensor(lifetimes, dtype=torch.float64).log()
    if len(logs) == 1:
        return (logs + torch.tensor([-0.5, 0.5], dtype=torch.float64)).exp()
    middles = (logs[1:] + logs[:-1]) / 2
    return torch.cat([2 * logs[:1] - middles[:1], middles, 2 * logs[-1:] - middles[-1:]]).exp()


def _partition(kernel: MondrianKernel) -> MondrianPartition:
    return cast(MondrianPartition, kernel.partition)


def _is_at_cuts(lifetimes: Any) -> bool:
    if isinstance(lifetimes, str) and lifetimes != "cuts":
        raise ValueError(f'expected lifetimes as numbers, or "cuts", got {lifetimes!r}')
    return isinstance(lifetimes, str)


def _checked_lifetimes(kernel: MondrianKernel, lifetimes: Any) -> list[float]:
    longest = kernel.max_lifetime
    if lifetimes is None:
        exponents = torch.linspace(math.log10(_SHORTEST), 0, _NUM_LIFETIMES, dtype=torch.float64)
        return (longest * 10**exponents).tolist()
    if not isinstance(lifetimes, Iterable):
        raise ValueError(f'expected several lifetimes, or "cuts", got {lifetimes!r}: put it into a list')
    chosen = sorted({float(lifetime) for lifetime in lifetimes})
    if not chosen or not 0 < chosen[0] <= chosen[-1] <= longest:
        raise ValueError(
            f"expected lifetimes in (0, {longest:g}], up to the kernel's max_lifetime, got {chosen or 'none'}: build "
            "the kernel with a longer max_lifetime"
        )
    return chosen


def _check(kernel: Any, x: Tensor, y: Tensor, outputscale: float, noise: float, validation: Any) -> None:
    if not isinstance(kernel, MondrianKernel):
        raise TypeError(f"only the trees of a MondrianKernel have a lifetime, got a {type(kernel).__name__}")
    pairs = [(x, y)] if validation is None else [(x, y), validation]
    for points, targets in pairs:
        kernel.partition.check_points(kernel.columns.select(points))
        if points.dim() != 2 or targets.shape != points.shape[:1] or not len(targets):
            shapes = f"{tuple(points.shape)} and {tuple(targets.shape)}"
            raise ValueError(f"expected rows (N x D) and as many targets (N), at least one, got {shapes}")
        if not bool(torch.isfinite(targets).all()):
            raise ValueError("expected finite targets, got NaN or infinity: drop these rows")
    for name, value in (("outputscale", outputscale), ("noise", noise)):
        if not 0 < value < math.inf:
            raise ValueError(f"expected a positive, finite {name}, got {value}")
