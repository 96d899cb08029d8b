"""Predictive distributions of the function or of new observations, and their samples, quantiles and scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from gpytorch.distributions import MultivariateNormal
from linear_operator.operators import DiagLinearOperator
from scipy.stats import norm
from torch import Tensor
from torch.distributions import StudentT

from gpytorch_partition.estimators.scores import Judgement, interval_score, of_percentages
from gpytorch_partition.inputs.row_weights import checked_weights
from gpytorch_partition.likelihoods import StudentTNoise, student_t_noise
from gpytorch_partition.likelihoods.fitc_likelihood import unspanned_variances
from gpytorch_partition.likelihoods.scale_mixture import (
    log_densities,
    student_crps,
    student_levels,
    student_quantiles,
)
from gpytorch_partition.models.counted_gp import CountedGP, CountedPosterior


def predictive(model: Any, x: Tensor, *, include_noise: bool) -> MultivariateNormal | CountedPosterior:
    r"""
    Return the distribution of new observations, or of the function alone, lazily.

    The variance that inducing points leave unspanned (:class:`~gpytorch_partition.likelihoods.FITCGaussianLikelihood`)
    is variance of the function, which more rows would reduce: it is counted in both.

    :param model: A Gaussian process with its likelihood, both in evaluation mode.
    :param x: `N x D` points, as the model takes them.
    :param include_noise: Whether to add the noise of observations.
    """
    if isinstance(model, CountedGP):
        return model.posterior(x, include_noise=include_noise)
    function = model(x)
    if include_noise:
        return model.likelihood(function, x)
    unspanned = unspanned_variances(model.likelihood, x)
    if unspanned is None:
        return function
    covariance = function.lazy_covariance_matrix + DiagLinearOperator(unspanned)
    return MultivariateNormal(function.mean, covariance)


def sampled(model: Any, x: Tensor, num_samples: int, *, include_noise: bool) -> Tensor:
    """
    Return joint samples (`num_samples x N`) of new observations, or of the function, from torch's random state.

    Parameters are those of :func:`predictive`.
    """
    noise = student_t_noise(model.likelihood)
    if noise is None or not include_noise:
        return predictive(model, x, include_noise=include_noise).sample(torch.Size([num_samples]))
    function = predictive(model, x, include_noise=False).sample(torch.Size([num_samples]))
    scales = noise.squared_scales(noise(x, shape=x.shape[:-1]).diagonal(dim1=-2, dim2=-1))
    return StudentT(noise.df.to(scales), function, scales.sqrt()).sample()


@torch.no_grad()
def heavy_quantiles(
    likelihood: Any, x: Tensor, mean: np.ndarray, std: np.ndarray, unit: float, probabilities: np.ndarray
) -> np.ndarray:
    """
    Return quantiles of new observations with Student-t noise (`N x q`), in units of the targets.

    :param likelihood: The likelihood.
    :param x: `N x D` points, as the model takes them.
    :param mean: `N` means.
    :param std: `N` standard deviations, noise included.
    :param unit: The standard deviation that the model's targets were divided by.
    :param probabilities: `q` numbers between 0 and 1.
    """
    noise = student_t_noise(likelihood)
    assert noise is not None
    return student_quantiles(mean, *_variances_and_scales(likelihood, x, std, unit), float(noise.df), probabilities)


def _variances_and_scales(likelihood: Any, x: Tensor, std: np.ndarray, unit: float) -> tuple[np.ndarray, np.ndarray]:
    """Return variances of the function, and squared scales of Student-t noise (`N` each)."""
    noise = student_t_noise(likelihood)
    assert noise is not None
    variances = noise(x, shape=x.shape[:-1]).diagonal(dim1=-2, dim2=-1).double()
    scales = unit**2 * noise.squared_scales(variances).numpy()
    return np.maximum(std**2 - unit**2 * variances.numpy(), 0.0), scales


def judged(model: Any, X: Any, y: Any, sample_weight: Any = None) -> Judgement:
    """
    Return the predictive distributions of new observations, with scores of the observations, in one pass.

    The distributions are Gaussian; where the model has found outliers, the noise is Student-t.

    :param model: A fitted :class:`~gpytorch_partition.estimators.PartitionGPRegressor`.
    :param X: `N x D` rows.
    :param y: `N` targets.
    :param sample_weight: `N` weights above 0, or one, which divide the variance of the noise. (Default: None, 1.)
    :raises ValueError: If the model has several targets, a target is missing, or a weight is not above 0.
    """
    y = _checked_observations(model, X, y)
    weights = _weights_above_0(sample_weight, len(y))
    rows = model._checked_rows(X)
    mean, std = model._moments(rows, True, weights is None)
    heavy = student_t_noise(model.likelihood_)
    if weights is None and heavy is None:
        return Judgement.gaussian(y, mean, std)
    noise = model._noise_of(model._points(rows))
    function = np.maximum(std**2 - noise, 0.0) if weights is None else std**2
    noise = noise if weights is None else noise / weights
    total = np.sqrt(function + noise)
    return Judgement.gaussian(y, mean, total) if heavy is None else _heavy_tailed(y, mean, function, noise, heavy)


def _checked_observations(model: Any, X: Any, y: Any) -> np.ndarray:
    if model._has_several:
        raise ValueError(
            f"expected a model of one target, got one of {len(model.target_names_)}: log densities "
            "of target number t are scipy.stats.norm.logpdf(y[:, t], mean[:, t], std[:, t])"
        )
    y = np.asarray(y, dtype=np.float64)
    num_rows = len(next(iter(X.values())) if isinstance(X, Mapping) else X)
    if y.shape != (num_rows,) or not np.isfinite(y).all():
        raise ValueError(
            f"expected a known target for each of the {num_rows} rows of X, got targets of shape {y.shape} with "
            f"{int((~np.isfinite(y)).sum())} missing"
        )
    return y


def _weights_above_0(sample_weight: Any, num_rows: int) -> np.ndarray | None:
    weights = checked_weights(sample_weight, num_rows)
    if weights is not None and not weights.all():
        raise ValueError(
            f"expected weights above 0 of rows to judge, got 0 for row {int((weights == 0).argmax())}: leave "
            "such rows out"
        )
    return weights


def _heavy_tailed(
    y: np.ndarray, mean: np.ndarray, function: np.ndarray, noise: np.ndarray, heavy: StudentTNoise
) -> Judgement:
    """Return the distributions of Gaussian functions with these means and variances and Student-t noise (`N` each)."""
    errors, scales, df = y - mean, noise * float((heavy.df - 2) / heavy.df), float(heavy.df)
    lower, upper = student_quantiles(mean, function, scales, df, np.array([0.05, 0.95])).T
    first, second, third = map(torch.from_numpy, (errors, function, scales))
    densities = log_densities(first, second, third, df).numpy()
    levels, crps = student_levels(errors, function, scales, df), student_crps(errors, function, scales, df)
    widths = interval_score(y, lower, upper)
    return Judgement(mean, np.sqrt(function + noise), lower, upper, densities, levels, crps, widths)


def checked_quantiles(quantiles: Any) -> np.ndarray:
    """
    Return probabilities as an array (`q`), or refuse them.

    :param quantiles: Probabilities between 0 and 1, in any order.
    :raises ValueError: If there are none, or they are no numbers strictly between 0 and 1.

    Example:
        >>> checked_quantiles((0.05, 0.95))
        array([0.05, 0.95])
    """
    is_sequence = isinstance(quantiles, Sequence | np.ndarray | Tensor) and not isinstance(quantiles, str)
    try:
        found = np.asarray(quantiles, dtype=np.float64) if is_sequence else np.empty((0, 0))
    except (TypeError, ValueError):
        found = np.empty((0, 0))
    if found.ndim != 1 or not len(found) or not ((found > 0) & (found < 1)).all():
        raise ValueError(
            "expected quantiles as a sequence of probabilities strictly between 0 and 1, such as (0.05, 0.95) for an "
            f"interval of 90 %, got {quantiles!r}{of_percentages(found)}"
        )
    return found


def gaussian_quantiles(mean: np.ndarray, std: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """
    Return quantiles of Gaussians (`*shape x q`).

    :param mean: `*shape` means.
    :param std: `*shape` standard deviations.
    :param probabilities: `q` numbers between 0 and 1.

    Example:
        >>> gaussian_quantiles(np.array([10.0]), np.array([2.0]), np.array([0.5, 0.975])).round(2)
        array([[10.  , 13.92]])
    """
    return mean[..., None] + std[..., None] * norm.ppf(probabilities)
