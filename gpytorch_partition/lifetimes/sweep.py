"""The marginal likelihood at many lifetimes of one set of Mondrian trees: best lifetime, posterior, averages."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, cast

import torch
from gpytorch.likelihoods import GaussianLikelihood
from linear_operator import settings as linear_settings
from torch import Tensor

from gpytorch_partition import settings
from gpytorch_partition.clusters.co_occurrence import count_co_occurrences, streamed_cluster_sums, zero_counts
from gpytorch_partition.clusters.incidence import Incidence
from gpytorch_partition.inference.evidence.krylov import default_num_probes, krylov_measures
from gpytorch_partition.inference.evidence.profile_likelihood import Bounds, maximize
from gpytorch_partition.inference.evidence.spectral_likelihood import SpectralLikelihood, dense_measure
from gpytorch_partition.inference.feature_space.feature_space import FeatureSpace
from gpytorch_partition.inference.prediction import costs
from gpytorch_partition.inputs.numbers import checked_positive
from gpytorch_partition.kernels.mondrian_kernel import MondrianKernel
from gpytorch_partition.lifetimes.cluster_ridge import ClusterRidge, Regression
from gpytorch_partition.lifetimes.cut_by_cut import along_cuts
from gpytorch_partition.models.exact_gp import PartitionGP
from gpytorch_partition.operators.cluster_operators.flat_linear_operator import FlatLinearOperator
from gpytorch_partition.operators.partition_linear_operator import PartitionLinearOperator
from gpytorch_partition.partitions.mondrian.partition import GrownRows, MondrianPartition
from gpytorch_partition.partitions.mondrian.trees import Attachments, Cells
from gpytorch_partition.progress import progress

# A prior of the lifetime: a distribution with the method `cdf`, or a distribution function.
Prior = Any

_NUM_LIFETIMES = 30  # lifetimes in the default grid
_SHORTEST = 1e-3  # shortest lifetime of the default grid, as a share of the longest
_MOST_CELLS = 10_000  # cells at the longest lifetime with which the regression can be followed cut by cut
_TOLERANCE_NATS = 0.05  # change of the log marginal likelihood, in nats, at which Lanczos steps stop ...
_TOLERANCE_ERRORS = 0.1  # ... or in standard errors of its own, whichever is larger
_EXACT_TIME_FACTOR = 4  # time that an exact likelihood may take, over the time of an estimate by Lanczos
_LEAST_NOISE = 1e-6  # least noise that is chosen, in mean squares of the targets: Cholesky factors keep their digits
_NEGLIGIBLE = 1e-4  # posterior probability of a lifetime below which averages leave it out


@dataclass(frozen=True, eq=False)
class LifetimeSweep:
    """
    The results of :func:`lifetime_sweep`, for L lifetimes in ascending order.

    :param lifetimes: `L`, in units of 1/x.
    :param log_marginal_likelihood: `L`, in nats, of all rows together.
    :param standard_error: `L` standard errors of the likelihoods: 0 where exact, else from probe vectors that all
        lifetimes share.
    :param validation_error: `L` root mean squared errors of the validation rows, in units of y; None without such rows.
    :param edges: `L + 1` bounds of the intervals that the lifetimes represent, up to the kernel's `max_lifetime`.
    :param outputscales: `L` outputscales s that the likelihoods are those of.
    :param noises: `L` noises.
    """

    lifetimes: Tensor
    log_marginal_likelihood: Tensor
    standard_error: Tensor
    validation_error: Tensor | None
    edges: Tensor
    outputscales: Tensor
    noises: Tensor
    _data: _Data = field(repr=False)

    @property
    def best_lifetime(self) -> float:
        """The lifetime of greatest marginal likelihood."""
        return float(self.lifetimes[self.log_marginal_likelihood.argmax()])

    def posterior(self, prior: Prior | None = None) -> Tensor:
        r"""
        The posterior probabilities of the lifetimes (`L`): :math:`p(y | \lambda_i) [F(e_{i + 1}) - F(e_i)]`, normalized
        (Balog et al. 2016, supplement B), with e the :attr:`edges`.

        :param prior: Prior of the lifetime: its distribution function F, or a distribution of PyTorch or SciPy with a
            `cdf`; the first and the last lifetime then represent all shorter and all longer ones. (Default: uniform in
            the logarithm between the first and the last edge, which is `max_lifetime` at most.)
        :raises ValueError: If the prior gives no probability to any lifetime.
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
        those of new targets. Costs a prediction, with its solves, for each lifetime with a posterior probability above
        1e-4.

        :param x: `N_test x D` points.
        :param prior: Prior of the lifetime, as in :meth:`posterior`, and so are the errors.
        """
        weights = self.posterior(prior)
        weights = torch.where(weights > _NEGLIGIBLE, weights, 0)
        chosen = weights.nonzero().squeeze(-1).tolist()
        weights = weights[chosen] / weights.sum()
        parts = [(float(self.lifetimes[number]), self._regression(number)) for number in chosen]
        moments = [self._data.predict(*part, x) for part in progress(parts, "averaging lifetimes")]
        means, variances = (torch.stack(parts).double() for parts in zip(*moments))
        mean = weights @ means
        return mean, weights @ (variances + (means - mean).square())

    def plot(self, ax: Any = None, *, prior: Prior | None = None) -> Any:
        """
        The posterior over lifetimes (:func:`gpytorch_partition.plots.plot_lifetimes`).

        :param ax: A matplotlib `Axes`. (Default: new ones.)
        :param prior: Prior of the lifetime, as in :meth:`posterior`.
        :return: The axes.
        """
        from gpytorch_partition.plots import plot_lifetimes

        return plot_lifetimes(self, prior=prior, ax=ax)

    def _regression(self, number: int) -> Regression:
        outputscale, noise = float(self.outputscales[number]), float(self.noises[number])
        return replace(self._data.regression, outputscale=outputscale, noise=noise)


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
    The marginal likelihood of :math:`y \sim N(\bar y, s K_\lambda + \sigma^2 I)` at every lifetime, from one set of
    trees, and the best lifetime set in the kernel (Balog et al. 2016, section 4).

    Rows are sorted into the trees once. At a lifetime with p cells the likelihood is exact, by a p x p Cholesky factor
    (:class:`~gpytorch_partition.lifetimes.cluster_ridge.ClusterRidge`), if that takes no more than a few times as long
    as an estimate. Co-occurrences are then counted once, :math:`O(N m^2)`: those of shorter lifetimes are sums of their
    rows and columns, at a cost that does not depend on N. As p grows about geometrically with the lifetime, all factors
    together, :math:`O(p^3)`, cost a few times the last. With too many cells for this, each lifetime takes one Lanczos
    run, whose estimate has a standard error, or, up to 2,000 rows, dense algebra.

    At every cut: :math:`O(p^{3.5})` in all and `24 p^2` bytes, for up to 10,000 cells at the longest lifetime.

    **With few trees the best lifetime is too long**, the more so the smaller a given noise is. The kernel of m trees
    misses the Laplace kernel by up to :math:`1 / (2 \sqrt m)`, and targets that have less noise than that can only be
    explained by smaller cells. Of a draw of a Laplace process of lifetime 10 (1,000 rows, two columns, a noise of 1e-4
    outputscales; `python -m tests.benchmarks mondrian_figures`) the likelihood with outputscale and noise as they were
    is largest at 83 with 20 trees, 28 with 50, 19 with 100 and 9.3 with 200, where the exact kernel's is largest at
    9.3. Without `outputscale` and `noise`, which are then the most likely ones at each lifetime, the noise makes up for
    the missing trees: 19, 9.3, 13 and 9.3. Use 200 trees or more (the kernel's default), or leave both out.

    With little given noise the error of validation rows has a peak on the way, about where there are as many cells as
    training rows: the regression interpolates there ("double descent"). With more trees the peak moves to shorter
    lifetimes; with the most likely noise there is none.

    :param kernel: The kernel, whose `max_lifetime` is the longest that is tried; its :attr:`~MondrianKernel.lifetime`
        is set to the best.
    :param x: `N x D` training points.
    :param y: `N` training targets; their prior mean is their own mean.
    :param outputscale: s. (Default: None; it and the noise are the most likely ones at each lifetime, at the cost of
        an eigendecomposition in place of a Cholesky factor, some ten times as long.)
    :param noise: :math:`\sigma^2`; given together with the outputscale, or neither.
    :param lifetimes: Lifetimes to try, in units of 1/x; or `"cuts"`, every lifetime at which a cut separates rows.
        (Default: 30, evenly in the logarithm, from a thousandth of the longest lifetime to the longest.)
    :param validation: Points (`N_val x D`) and targets (`N_val`) to compute errors of at every lifetime. Between cuts
        of the training rows the likelihood is constant, but errors may change where other points leave the cells.
    :return: The likelihoods, the posterior over the lifetime, and predictions averaged over it.
    :raises TypeError: If the kernel is not a :class:`~gpytorch_partition.MondrianKernel`, or rows or targets are no
        tensors.
    :raises RuntimeError: If the kernel is unfitted.
    :raises ValueError: If rows and targets do not match or are not finite, outputscale or noise are not positive or
        only one of them is given, or lifetimes are none, not positive, or longer than the kernel's `max_lifetime`; for
        cuts, if there are too many cells, or outputscale and noise are not given; if the noise is so small that
        rounding makes the Cholesky factor fail.

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
    if chosen is None and noise is None:
        raise ValueError('expected outputscale and noise with lifetimes="cuts": only given lifetimes choose them')
    data = _Data.of(kernel, x, y, outputscale, noise)
    held_out = None if validation is None else _Validation.of(kernel, data, *validation)
    with torch.no_grad(), settings.iterative():
        sweep = _at_cuts(data, held_out) if chosen is None else _at_lifetimes(data, held_out, chosen)
    kernel.lifetime = sweep.best_lifetime
    return sweep


class _Data(NamedTuple):
    """
    The data of a sweep: a copy of the kernel, training data (targets in float64, less their mean), the trees over these
    rows, outputscale and noise (1 and 1 if they are to be chosen), and whether these are given.
    """

    kernel: MondrianKernel
    x: Tensor
    y: Tensor
    mean: Tensor
    rows: GrownRows
    regression: Regression
    is_given: bool

    @classmethod
    def of(cls, kernel: MondrianKernel, x: Tensor, y: Tensor, outputscale: float | None, noise: float | None) -> _Data:
        rows = _partition(kernel).grown(kernel.columns.select(x))
        kernel = kernel.cut(kernel.lifetime)
        mean = y.double().mean()
        y = y.double() - mean
        squares = float(y.square().sum())
        regression = Regression(outputscale or 1.0, noise or 1.0, kernel.num_partitions, len(y), squares)
        return cls(kernel, x, y, mean, rows, regression, noise is not None)

    def covariance(self, cells: Cells) -> PartitionLinearOperator:
        """The covariance K at the lifetime of these cells, in float64 whatever the dtype of the rows."""
        rows, one = Incidence(self.rows.codes(cells), cells.num_clusters), torch.ones((), dtype=torch.float64)
        share = one.view(1) / self.regression.num_partitions
        effects = FlatLinearOperator(share, num_clusters=cells.num_clusters)
        return PartitionLinearOperator(one, effects, left=rows, right=rows)

    def regression_of(self, likelihood: SpectralLikelihood) -> Regression:
        """The regression with outputscale and noise as they are given, or the most likely ones."""
        if self.is_given:
            return self.regression
        least = _LEAST_NOISE * max(self.regression.squares / self.regression.num_rows, 1e-30)
        found = maximize(likelihood, Bounds((0.0, math.inf), (least, math.inf), mean=0.0))
        return replace(self.regression, outputscale=found.outputscale, noise=found.noise)

    def predict(self, lifetime: float, regression: Regression, x: Tensor) -> tuple[Tensor, Tensor]:
        """Predictive means and latent variances of the exact process at a lifetime."""
        likelihood = GaussianLikelihood()
        model = PartitionGP(self.x, self.y.to(self.x), likelihood, self.kernel.cut(lifetime)).eval()
        likelihood.noise_covar.raw_noise_constraint.lower_bound.fill_(0)
        likelihood.noise, model.covar_module.outputscale = regression.noise, regression.outputscale
        with torch.no_grad(), settings.iterative():
            predicted = model(x)
            return predicted.mean.double() + self.mean, predicted.variance


class _Validation(NamedTuple):
    """Held-out rows: where they leave the trees of the training rows, and their targets, less the training mean."""

    events: Attachments
    y: Tensor

    @classmethod
    def of(cls, kernel: MondrianKernel, data: _Data, x: Tensor, y: Tensor) -> _Validation:
        return cls(_partition(kernel).attached(data.rows, kernel.columns.select(x)), y.double() - data.mean)

    def error(self, rows: GrownRows, cells: Cells, lifetime: float, effects: Tensor) -> float:
        """The root mean squared error, given the effects of the cells at a lifetime."""
        by_event = effects[self.events.cells(rows.trees, cells, lifetime)]
        return float((by_event[self.events.codes].sum(-1) - self.y).square().mean().sqrt())


class _LifetimeResult(NamedTuple):
    """The result of one lifetime; effects of cells only where there are validation rows or they cost nothing."""

    regression: Regression
    log_likelihood: float
    standard_error: float = 0.0
    effects: Tensor | None = None


def _at_lifetimes(data: _Data, held_out: _Validation | None, lifetimes: list[float]) -> LifetimeSweep:
    """The sweep over given lifetimes: from the longest on, because counts of shorter ones are sums of its counts."""
    ridge: tuple[ClusterRidge, Cells] | None = None
    found, errors = [], []
    for lifetime in progress(lifetimes[::-1], "sweeping lifetimes"):
        cells = data.rows.trees.cells(lifetime)
        if _uses_counts(data, cells):
            ridge = _counted(data, cells) if ridge is None else _coarser(ridge, cells)
            found.append(_by_counts(data, ridge[0]))
        else:
            found.append(_by_rows(data, cells, held_out is not None))
        if held_out is not None:
            errors.append(held_out.error(data.rows, cells, lifetime, cast(Tensor, found[-1].effects)))
    found.reverse()
    edges = _edges(lifetimes).clamp_max(data.kernel.max_lifetime)
    return _sweep_of(lifetimes, found, errors[::-1], edges, data)


def _sweep_of(
    lifetimes: list[float], found: list[_LifetimeResult], errors: list[float], edges: Tensor, data: _Data
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
        data,
    )


def _uses_counts(data: _Data, cells: Cells) -> bool:
    """Whether the likelihood is computed exactly, by the p x p matrix of clusters."""
    num_rows, size = data.regression.num_rows, cells.num_clusters
    if _is_dense(data):
        return size <= num_rows
    estimate = costs.krylov_seconds(num_rows, data.regression.num_partitions, 2 + default_num_probes(num_rows))
    return costs.cholesky_seconds(size) < _EXACT_TIME_FACTOR * estimate


def _is_dense(data: _Data) -> bool:
    """Whether there are few enough rows for dense algebra."""
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


def _by_counts(data: _Data, ridge: ClusterRidge) -> _LifetimeResult:
    """The likelihood from the counts of clusters."""
    if not data.is_given:
        share = ridge.counts.new_full((1,), 1 / data.regression.num_partitions)
        space = FeatureSpace(ridge.counts, FlatLinearOperator(share, num_clusters=len(ridge.sums)))
        sums, total = torch.stack([ridge.sums, ridge.counts.diagonal()], -1), float(data.y.double().sum())
        squares = [[data.regression.squares, total], [total, data.regression.num_rows]]
        measure = space.measure(sums, torch.tensor(squares, dtype=torch.float64))
        ridge = replace(ridge, regression=data.regression_of(SpectralLikelihood(measure)))
    return _LifetimeResult(ridge.regression, ridge.log_marginal_likelihood, 0.0, ridge.effects)


def _by_rows(data: _Data, cells: Cells, with_effects: bool) -> _LifetimeResult:
    """The likelihood from the covariance of the rows: dense for few, one Lanczos run for many."""
    covariance = data.covariance(cells)
    if _is_dense(data):
        return _by_cholesky(data, covariance, cells)
    regression, value, standard_error = _by_lanczos(data, covariance)
    if not with_effects:
        return _LifetimeResult(regression, value, standard_error)
    noisy = covariance._mul_constant(regression.outputscale).add_diagonal(torch.tensor(regression.noise).double())
    alpha = noisy.solve(data.y.double().unsqueeze(-1))
    return _LifetimeResult(regression, value, standard_error, _effects(data, regression, cells, alpha))


def _by_cholesky(data: _Data, covariance: PartitionLinearOperator, cells: Cells) -> _LifetimeResult:
    """The exact likelihood by dense algebra."""
    dense, targets, regression = covariance.to_dense(), data.y.double(), data.regression
    if not data.is_given:
        regression = data.regression_of(SpectralLikelihood(dense_measure(dense, targets.unsqueeze(-1))))
    noisy = regression.outputscale * dense
    noisy.diagonal().add_(regression.noise)
    factor = torch.linalg.cholesky(noisy)
    alpha = torch.cholesky_solve(targets.unsqueeze(-1), factor)
    normal = torch.distributions.MultivariateNormal(torch.zeros_like(noisy[0]), scale_tril=factor)
    return _LifetimeResult(regression, float(normal.log_prob(targets)), 0.0, _effects(data, regression, cells, alpha))


def _by_lanczos(data: _Data, covariance: PartitionLinearOperator) -> tuple[Regression, float, float]:
    """The likelihood and its standard error, by Lanczos steps until the likelihood settles."""
    targets, seed = data.y.double().unsqueeze(-1), settings.probe_seed.value()
    regression, before, value, error = data.regression, math.inf, math.inf, math.inf
    for measure in krylov_measures(covariance, targets, default_num_probes(len(targets)), seed):
        likelihood = SpectralLikelihood(measure)
        regression = data.regression_of(likelihood)
        before, value = value, likelihood.value(regression.outputscale, regression.noise, 0.0)
        error = likelihood.standard_error(regression.outputscale, regression.noise)
        if abs(value - before) <= max(_TOLERANCE_NATS, _TOLERANCE_ERRORS * error):
            break
    return regression, value, math.hypot(error, likelihood.bias(regression.outputscale, regression.noise))


def _effects(data: _Data, regression: Regression, cells: Cells, alpha: Tensor) -> Tensor:
    r"""Effects of cells (:math:`\tfrac sm Z^\top \alpha`) from the weights of rows (`N x 1`)."""
    share = regression.outputscale / regression.num_partitions
    return share * streamed_cluster_sums(data.rows.codes(cells), alpha, cells.num_clusters).squeeze(-1)


def _at_cuts(data: _Data, held_out: _Validation | None) -> LifetimeSweep:
    """The sweep over every lifetime at which a cut separates rows, and one before the first cut."""
    trees, terminal = data.rows.trees, data.rows.terminal
    if trees.num_leaves > _MOST_CELLS:
        raise ValueError(
            f"expected at most {_MOST_CELLS:,} cells at the longest lifetime to follow cut by cut, got "
            f"{trees.num_leaves:,}: give lifetimes, use fewer trees or a shorter max_lifetime"
        )
    ridge, _ = _counted(data, terminal)
    first = min(float(trees.cut_times.min()), data.kernel.max_lifetime) / 2  # any before the first cut
    lifetimes, found, errors = [], [], []
    for step in along_cuts(ridge, terminal, trees):
        lifetimes.append(step.time or first)
        found.append(_LifetimeResult(data.regression, step.log_marginal_likelihood))
        if held_out is not None:
            errors.append(held_out.error(data.rows, step.cells, lifetimes[-1], step.effects))
    times = torch.tensor(lifetimes, dtype=torch.float64)
    edges = torch.cat([times, times.new_tensor([data.kernel.max_lifetime])])
    return _sweep_of(lifetimes, found, errors, edges, data)


def _distribution_function(edges: Tensor, prior: Prior | None) -> Tensor:
    """The distribution function F at the edges; all probability lies between the first and the last."""
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
        raise TypeError(f"only the trees of a MondrianKernel have a lifetime, got a {type(kernel).__name__}")
    if validation is not None and not (isinstance(validation, Sequence) and len(validation) == 2):
        raise ValueError(f"expected validation as points and targets, (x, y), got {type(validation).__name__}")
    pairs = [(x, y)] if validation is None else [(x, y), validation]
    for points, targets in pairs:
        if not torch.is_tensor(targets):
            raise TypeError(f"expected targets as a tensor, got {type(targets).__name__}")
        kernel.partition.check_points(kernel.columns.select(points))
        if points.dim() != 2 or targets.shape != points.shape[:1] or not len(targets):
            shapes = f"{tuple(points.shape)} and {tuple(targets.shape)}"
            raise ValueError(f"expected rows (N x D) and as many targets (N), at least one, got {shapes}")
        if not bool(torch.isfinite(targets).all()):
            raise ValueError("expected finite targets, got NaN or infinity: drop these rows")
    if (outputscale is None) != (noise is None):
        raise ValueError("expected both outputscale and noise, or neither, which chooses the most likely ones")
    for name, value in (("outputscale", outputscale), ("noise", noise)):
        if value is not None:
            checked_positive(value, name)
