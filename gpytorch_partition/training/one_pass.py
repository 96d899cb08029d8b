"""Training of a GPyTorch exact GP by one call, from one decomposition of its kernel if possible, else by L-BFGS."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import torch
from gpytorch.likelihoods import Likelihood
from gpytorch.models import ExactGP
from linear_operator import settings as linear_settings

from gpytorch_partition import settings
from gpytorch_partition.all_or_nothing import unchanged_by_errors
from gpytorch_partition.callers import level_of_caller
from gpytorch_partition.inference.evidence.profile_likelihood import settled_maxima
from gpytorch_partition.inference.evidence.spectral_likelihood import (
    SpectralMeasure,
    default_num_probes,
    dense_measure,
    krylov_measures,
)
from gpytorch_partition.inference.prediction import method_costs
from gpytorch_partition.inference.spaces.cluster_rows import LocalRows
from gpytorch_partition.inference.spaces.cluster_space import space_measures, space_width
from gpytorch_partition.inference.spaces.feature_space import measure_of
from gpytorch_partition.inputs.numbers import checked_count
from gpytorch_partition.kernels.cluster_kernel import ClusterKernel
from gpytorch_partition.solvers.direct import MOST_COLUMNS
from gpytorch_partition.training.marginal_likelihood import (
    MarginalLikelihoodFit,
    check_likelihood,
    maximize_marginal_likelihood,
    values_at_bounds,
    warn_about,
)
from gpytorch_partition.training.scaled_covariance import NotApplicableError, ScaledCovariance, recognize

METHODS = ("auto", "dense", "feature_space", "cluster_space", "krylov", "l-bfgs")


def fit_exact_gp(
    model: ExactGP,
    likelihood: Likelihood,
    *,
    method: str = "auto",
    num_probes: int | None = None,
    max_iterations: int = 100,
) -> MarginalLikelihoodFit:
    r"""
    Train outputscale, noise and constant mean of an exact GP by maximizing the marginal likelihood in one pass.

    Call it first: :math:`s K + \sigma^2 I` has the Krylov spaces of K for every s and :math:`\sigma^2`, so one Lanczos
    run gives the likelihood everywhere (Golub & Meurant 2010). Constraints hold, priors of the model count, and values
    that are not trained stay. Several sets of targets on the same rows (a batched model) share the run.

    Costs a few dozen products with K, 300 at most, in float64 for 4 columns (more below 100,000 rows, where there are
    more probe vectors). Temporary memory is up to 130 numbers per row (in cluster space: per cluster, and 8 per row),
    and four for each probe vector. Up to `max_cholesky_size` rows (2,000) the likelihood is exact, by one
    eigendecomposition. Above, its standard error is returned with it.

    Applies to models with a :class:`~gpytorch.likelihoods.GaussianLikelihood`, or a
    :class:`~gpytorch_partition.likelihoods.WeightedGaussianLikelihood`, whose covariance is one partition kernel, alone
    or in a :class:`~gpytorch.kernels.ScaleKernel`, with no other trained parameters. Others (sums of kernels,
    heteroscedastic noise, trained weights) are trained by
    :func:`~gpytorch_partition.training.marginal_likelihood.maximize_marginal_likelihood`, after a warning with the
    reason.

    The width of a :class:`~gpytorch_partition.MondrianKernel` does not change (choose it first by
    :func:`~gpytorch_partition.lifetime_sweep`), nor does that of a :class:`~gpytorch_partition.RandomBinningKernel`. A
    `UserWarning` says so where either was never chosen.

    :param model: The model. The values found are written into its modules, and its mode (training or evaluation) stays.
        After an error or an interruption its parameters are unchanged.
    :param likelihood: The model's likelihood.
    :param method: `"krylov"`, with vectors of N numbers; `"cluster_space"`, the same with vectors of a number for each
        cluster (for trees, each node) and a smaller error; `"dense"`, one eigendecomposition of the covariance, O(N^3);
        `"feature_space"`, exact as well, one of the p x p matrix of clusters, :math:`O(N m^2 + p^3)`; `"l-bfgs"`; or
        `"auto"`: dense up to `max_cholesky_size` rows, then feature space where it is expected to take no longer than
        Krylov, else cluster space where clusters (nodes) are fewer than rows, else Krylov.
    :param num_probes: Probe vectors of the log determinant for `"krylov"` and `"cluster_space"`. (Default: 100 for
        2,000 rows, falling to 2 from 100,000 rows on. The standard error is then about 1e-3 nats per datum or less, and
        three times that with a noise of a ten-thousandth of the outputscale.)
    :param max_iterations: L-BFGS iterations at most, if L-BFGS is used.
    :return: The likelihood reached, the method, and the values at a bound of their constraint (with a warning each).
    :raises ValueError: If the likelihood is not the model's own, the method is unknown, `num_probes` or
        `max_iterations` is no whole number from 1, a training target is NaN or infinite, or training inputs hold NaN.

    Example:
        >>> import torch
        >>> from gpytorch.likelihoods import GaussianLikelihood
        >>> from gpytorch_partition import MondrianKernel
        >>> from gpytorch_partition.models import PartitionGP
        >>> generator = torch.Generator().manual_seed(0)
        >>> x = torch.rand(200, 1, generator=generator)
        >>> y = 4 * x.squeeze(-1) + 0.3 * torch.randn(200, generator=generator)
        >>> likelihood = GaussianLikelihood()
        >>> model = PartitionGP(x, y, likelihood, MondrianKernel(x, 50, lifetime=2.0, random_state=0))
        >>> fit_exact_gp(model, likelihood).method, round(likelihood.noise.item(), 1)  # 0.3 squared
        ('dense', 0.1)
    """
    if method not in METHODS:
        raise ValueError(f"expected a method among {METHODS}, got {method!r}")
    checked_count(1 if num_probes is None else num_probes, "probe vectors", "num_probes")
    checked_count(max_iterations, "iterations", "max_iterations")
    if not torch.isfinite(model.train_targets).all():
        raise ValueError("expected finite training targets, got NaN or infinity: drop these rows")
    if any(bool(torch.isnan(inputs).any()) for inputs in model.train_inputs):
        raise ValueError("expected training inputs without NaN, got some: give the model encode_missing(train_x)")
    check_likelihood(model, likelihood)
    _say_width(model)
    if method == "l-bfgs":
        return maximize_marginal_likelihood(model, likelihood, max_iterations=max_iterations)
    try:
        with unchanged_by_errors(model, likelihood):
            fit = fit_in_one_pass(model, likelihood, method, num_probes)
            warn_about(fit, model)
        return fit
    except NotApplicableError as reason:
        if any(isinstance(module, ClusterKernel) for module in model.modules()):
            said = f"the model is trained by L-BFGS rather than in one pass: {reason}."
            warnings.warn(said, stacklevel=level_of_caller())
        return maximize_marginal_likelihood(model, likelihood, max_iterations=max_iterations)


def fit_in_one_pass(
    model: ExactGP, likelihood: Likelihood, method: str = "auto", num_probes: int | None = None
) -> MarginalLikelihoodFit:
    """Train a model as :func:`fit_exact_gp` does, without warnings; a NotApplicableError if it needs L-BFGS."""
    mode = model.training
    try:
        with settings.iterative():
            return _fit(recognize(model, likelihood), method, num_probes)
    finally:
        model.train(mode)


def _say_width(model: ExactGP) -> None:
    usual = [each for each in model.modules() if isinstance(each, ClusterKernel) and each.has_usual_width]
    for kernel in {type(each): each for each in reversed(usual)}.values():  # the first of each kind
        warnings.warn(kernel.other_widths, stacklevel=level_of_caller())


def _fit(scaled: ScaledCovariance, method: str, num_probes: int | None) -> MarginalLikelihoodFit:
    is_free, method = method == "auto", _fastest(scaled) if method == "auto" else method
    bounds = [scaled.bounds(target) for target in range(scaled.residuals.shape[1])]
    found = settled_maxima(_measures(scaled, method, num_probes), bounds, scaled.log_prior())
    if is_free and not found.is_settled and (exact := _exact_method(scaled)) is not None:
        return _fit(scaled, exact, num_probes)
    scaled.write(found.maxima)
    return MarginalLikelihoodFit(
        log_marginal_likelihood=sum(each.log_likelihood + scaled.log_jacobian for each in found.maxima),
        num_iterations=found.measure.trace_nodes.shape[1] if found.measure.num_probes else 0,
        converged=found.is_settled,
        at_bounds=dict(values_at_bounds(scaled.model)),
        method=method,
        standard_error=found.standard_error,
        bias=found.bias,
    )


def _fastest(scaled: ScaledCovariance) -> str:
    """Return the method expected to take the least time; an exact one if it takes no more than Lanczos among rows."""
    if scaled.num_rows <= linear_settings.max_cholesky_size.value():
        return "dense"
    covariance, rows = scaled.covariance, scaled.covariance.left
    iterative = "cluster_space" if space_width(covariance.cluster_operator) < scaled.num_rows else "krylov"
    if scaled.level is not None:
        return iterative  # counts of clusters have no weights
    return "feature_space" if method_costs.takes_eigenvectors(rows) else iterative


def _exact_method(scaled: ScaledCovariance) -> str | None:
    """Return the exact method where Lanczos quadrature does not settle; None where it would take too long."""
    if scaled.level is None and method_costs.may_take_eigenvectors(scaled.covariance.left):
        return "feature_space"
    return "dense" if scaled.num_rows <= MOST_COLUMNS else None


def _measures(scaled: ScaledCovariance, method: str, num_probes: int | None) -> Iterator[SpectralMeasure]:
    """Yield one measure if it is exact, else one after every few Lanczos steps, each more accurate."""
    covariance, targets = scaled.covariance, scaled.residuals
    if method == "dense":
        yield dense_measure(covariance.to(dtype=torch.float64).to_dense(), targets, scaled.level)
    elif method == "feature_space":
        if scaled.level is not None:
            raise ValueError(
                'expected method="cluster_space", "krylov" or "dense" for rows with weights, got "feature_space"'
            )
        yield measure_of(covariance, targets)
    elif method == "cluster_space":
        rows = LocalRows(covariance.left, targets, scaled.level)
        yield from space_measures(rows, covariance.cluster_operator, num_probes, settings.probe_seed.value())
    else:
        num_probes = num_probes or default_num_probes(scaled.num_rows)
        yield from krylov_measures(covariance, targets, num_probes, settings.probe_seed.value(), scaled.level)
