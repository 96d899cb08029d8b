"""A fitted model of a regressor, with the units of its rows and targets: moments, samples, scores, and its state."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.settings import skip_posterior_variances
from linear_operator.operators import DiagLinearOperator
from linear_operator.settings import max_cholesky_size
from scipy.linalg import solve_triangular
from scipy.stats import norm
from torch import Tensor
from torch.distributions import StudentT

from gpytorch_partition import settings
from gpytorch_partition.composition.distributions import marginal_variances
from gpytorch_partition.estimators.checks import TrainingRange
from gpytorch_partition.estimators.kernel_parameter import KERNELS
from gpytorch_partition.estimators.regression_fit import new_likelihood
from gpytorch_partition.estimators.scores import Judgement, interval_score
from gpytorch_partition.inference.prediction.unknown_cells import UnknownCells, unknown_cells
from gpytorch_partition.inputs.row_weights import RowWeights
from gpytorch_partition.inputs.standardization import Standardization
from gpytorch_partition.inputs.training_rows import decode_missing
from gpytorch_partition.kernels import EncodedKernel, RandomForestKernel
from gpytorch_partition.likelihoods import StudentTNoise, student_t_noise
from gpytorch_partition.likelihoods.noise_likelihoods import noise_variances, unspanned_variances
from gpytorch_partition.likelihoods.scale_mixture import log_densities, student_crps, student_levels, student_quantiles
from gpytorch_partition.linalg.factors import stable_cholesky
from gpytorch_partition.linalg.parallel import threads_for
from gpytorch_partition.linalg.random import drawn_from
from gpytorch_partition.models import CoregionalizedGP, PartitionGP
from gpytorch_partition.models.counted_gp import CountedGP, CountedPosterior, rebuilt_counted
from gpytorch_partition.models.partition_gp import innermost_kernels
from gpytorch_partition.presets.assembly import description_of, own_description, rebuilt, unfitted_kernel
from gpytorch_partition.progress import doing, progress
from gpytorch_partition.tables import NumberView, TableEncoder
from gpytorch_partition.training.coregionalization import Coregionalization

KIND = "file of a PartitionGPRegressor"

_MOST_TRIED_ROWS = 2_000  # training rows of a state whose predictions are tried: solves are dense and cheap
# Codes of rows predicted at once (a GiB): standard deviations may take the same solves for each block.
_CODES_AT_ONCE = 2**28
# Memory of the default model for a row, in numbers of the size of a code: trees, and inducing points in float64.
_AUTO_NUMBERS = 4_500
_FEWER_SAMPLES = 4  # share of the samples for variances of new observations of several targets: one in so many
_PILOT_ROWS, _PILOT_SAMPLES = 200, 32  # from which their number is chosen for one target
_ACCURACY = 0.03  # of standard deviations of new observations, for 95 % of rows


@dataclass(frozen=True, eq=False)
class FittedRegressor:
    """Hold a model of standardized rows and targets, in evaluation mode; what it returns is in units of the targets."""

    model: Any  # of one target, of several, or of counted rows
    columns: Standardization
    unit: Standardization
    categories: Mapping[int, int]  # number of levels of each column that holds codes
    codes_per_row: int  # number of partitions

    @property
    def likelihood(self) -> Any:
        return getattr(self.model, "likelihood", None)

    @property
    def has_several(self) -> bool:
        return isinstance(self.model, CoregionalizedGP)

    @property
    def is_counted(self) -> bool:
        return isinstance(self.model, CountedGP)

    @property
    def is_chosen(self) -> bool:
        """Return whether the model was chosen by folds, as the default one."""
        return description_of(self.model)["parts"] is not None

    @property
    def train_x(self) -> Tensor:
        """Return the training rows (`N x D`), or a sample of them, as the model takes them."""
        return self.model.train_inputs[0]

    @cached_property
    def range(self) -> TrainingRange:
        rows = self.model.extremes if self.is_counted else self.train_x
        return TrainingRange.of(self.columns.in_full(decode_missing(rows)))

    @property
    def scale(self) -> Any:
        """Return the standard deviation that the targets were divided by (`T` of several)."""
        return self.unit.scale.numpy() if self.has_several else self.unit.scale.item()

    def in_units(self, covariance: Tensor) -> np.ndarray:
        return (covariance * self.unit.scale * self.unit.scale.unsqueeze(-1)).numpy()

    def points(self, rows: np.ndarray) -> Tensor:
        return self._filled(self._standardized(rows))

    def _standardized(self, rows: np.ndarray) -> Tensor:
        x, low = self.columns.apply_array(rows), self.range.low
        if self.is_chosen:
            # A new value of a constant column lies sqrt(N) from it, as a single one that differs among N rows does:
            # held-out rows of such rare values were predicted so.
            is_new = (self.range.beyond(x) > 0) & (low == self.range.high)
            x = torch.where(is_new, low + (x - low).sign() * len(self.train_x) ** 0.5, x)
        return x.to(self.train_x.dtype)

    def _filled(self, x: Tensor) -> Tensor:
        return x if self._knows_missing_cells else torch.where(x.isnan(), self.train_x.median(0).values, x)

    @property
    def _knows_missing_cells(self) -> bool:
        """Return whether the model has a view, or only forests that take missing cells, or refuse them by name."""
        if any(isinstance(module, NumberView) for module in self.model.modules()):
            return True
        return all(
            isinstance(kernel, RandomForestKernel) and (kernel._forest.handles_missing or not self.is_chosen)
            for kernel in innermost_kernels(self.model.covar_module)
        )

    @property
    def _rows_at_once(self) -> int:
        return max(1, _CODES_AT_ONCE // (_AUTO_NUMBERS if self.is_chosen else self.codes_per_row))

    @contextmanager
    def _computing(self) -> Iterator[None]:
        # Without debugging GPyTorch does not warn that the rows may be the training rows.
        with settings.iterative(), settings.no_debug(), threads_for(len(self.train_x)):
            yield

    def moments(self, rows: np.ndarray, with_std: bool, include_noise: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return means and standard deviations (or nothing) of checked rows, `n` or `n x T` each."""
        size = self._rows_at_once
        with doing(f"predicting {len(rows):,} rows"):
            starts = progress(range(0, len(rows), size), "blocks")
            blocks = [self._moments_of_block(rows[i : i + size], with_std, include_noise) for i in starts]
        mean, std = (np.concatenate(parts) for parts in zip(*blocks))
        if unknown := self._unknown_cells(rows, with_std, include_noise):
            mean = _means(unknown, mean)
            if with_std:
                added = np.stack([each.variance(len(rows)) for each in unknown], 1)
                std = np.sqrt(std**2 + added.reshape(std.shape))
        return mean, std

    @torch.no_grad()
    def _moments_of_block(self, rows: np.ndarray, with_std: bool, include_noise: bool) -> tuple[np.ndarray, np.ndarray]:
        variance = torch.empty(0)
        with self._computing(), self._samples_of_variances(len(rows) if with_std and include_noise else 0):
            x = self.points(rows)
            if self.has_several:
                mean = self.unit.undo(self.model.means(x)).numpy()
                if with_std:
                    variance = (self.model.variances(x) + (self.model.noise if include_noise else 0.0)).clamp_min(0)
            else:
                found = predictive(self.model, x, include_noise=include_noise)
                mean = self.unit.undo(found.mean).numpy()
                if with_std:
                    variance = found.variance if self.is_counted else marginal_variances(found)
        return mean, np.sqrt(variance.double().numpy()) * self.scale if with_std else np.empty(0)

    def _samples_of_variances(self, num_observations: int) -> settings.num_variance_samples:
        """Return the setting of the samples for variances: fewer for new observations, a part of which is noise."""
        number = settings.num_variance_samples.value()
        is_large = not self.is_counted and len(self.train_x) > max_cholesky_size.value()
        if num_observations and self.has_several:
            number = max(2, number // _FEWER_SAMPLES)
        elif num_observations > _PILOT_SAMPLES and is_large and skip_posterior_variances.off():
            number = min(number, self._num_samples_beside_noise)
        return settings.num_variance_samples(number)

    @property
    def _num_samples_beside_noise(self) -> int:
        number = getattr(self.model.prediction_strategy, "num_samples_beside_noise", None)
        if number is None:
            number = self._chosen_number()  # which makes the strategy
            self.model.prediction_strategy.num_samples_beside_noise = number
        return number

    def _chosen_number(self) -> int:
        r"""
        Return the number n of samples with which deviations of new observations are within 3 %, at 95 % of rows.

        Their error is :math:`h \sqrt{2 / n} / 2`, where h is the function's share in the variance. The variance of the
        function at a row that was not learned from is :math:`v / (1 - v / \sigma^2)`, v being that at the row.
        """
        some = self.train_x[torch.linspace(0, len(self.train_x) - 1, _PILOT_ROWS).long()]
        with settings.num_variance_samples(_PILOT_SAMPLES):
            found, noise = marginal_variances(self.model(some)), noise_variances(self.likelihood, some)
        variances = _with_true_spread(found, _PILOT_SAMPLES)
        left_out = variances / (1 - variances / noise).clamp_min(0.05)
        share = float((left_out / (left_out + noise)).quantile(0.95))
        return max(_PILOT_SAMPLES, math.ceil(0.5 * (norm.ppf(0.975) * share / _ACCURACY) ** 2))

    @torch.no_grad()
    def joint_moments(self, rows: np.ndarray, include_noise: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return means (`n` or `n x T`) and covariances of checked rows (`n x n` or `n x n x T`)."""
        with self._computing():
            x = self.points(rows)
            if self.has_several:
                found = self.model.covariances(x)
                if include_noise:
                    found += torch.eye(len(x), dtype=torch.float64).unsqueeze(-1) * self.model.noise
                mean, covariance = self.unit.undo(self.model.means(x)).numpy(), found.numpy() * self.scale**2
            else:
                distribution = predictive(self.model, x, include_noise=include_noise)
                mean = self.unit.undo(distribution.mean).numpy()
                covariance = distribution.lazy_covariance_matrix.to_dense().double().numpy()
                covariance = 0.5 * (covariance + covariance.T) * self.scale**2
        if unknown := self._unknown_cells(rows, True, include_noise):
            added = np.stack([np.diag(each.variance(len(rows))) for each in unknown], 2)
            return _means(unknown, mean), covariance + added.reshape(covariance.shape)
        return mean, covariance

    @torch.no_grad()
    def samples(self, rows: np.ndarray, num_samples: int, seed: int, include_noise: bool) -> np.ndarray:
        """Return joint samples of checked rows (`n x num_samples`, or `n x T x num_samples`)."""
        with self._computing(), drawn_from(seed):
            x = self.points(rows)
            if self.has_several:
                drawn = self.model.samples(x, num_samples, include_noise=include_noise)
                found = self.unit.undo(drawn).permute(1, 2, 0).numpy()
            else:
                found = self.unit.undo(sampled(self.model, x, num_samples, include_noise=include_noise).T).numpy()
        by_target = found.reshape(len(rows), -1, num_samples)
        for number, each in enumerate(self._unknown_cells(rows, True, include_noise)):
            random = np.random.RandomState(0 if self.has_several else seed)  # the same completions for all targets
            by_target[:, number] = each.samples(by_target[:, number], random)
        return by_target.reshape(found.shape)

    def quantiles(
        self, rows: np.ndarray, mean: np.ndarray, std: np.ndarray, probabilities: np.ndarray, include_noise: bool
    ) -> np.ndarray:
        """Return predictive quantiles at checked rows (`n x q`, or `n x T x q`), from means and standard deviations."""
        noise = student_t_noise(self.likelihood) if include_noise else None
        if noise is None:
            return mean[..., None] + std[..., None] * norm.ppf(probabilities)
        with torch.no_grad():
            x = self.points(rows)
            variances = noise(x, shape=x.shape[:-1]).diagonal(dim1=-2, dim2=-1).double()
            scales = self.scale**2 * noise.squared_scales(variances).numpy()
            function = np.maximum(std**2 - self.scale**2 * variances.numpy(), 0.0)
        return student_quantiles(mean, function, scales, float(noise.df), probabilities)

    def judgement(self, rows: np.ndarray, y: np.ndarray, weights: np.ndarray | None) -> Judgement:
        """Return the distributions of new observations with scores; weights (`n`) divide the variance of the noise."""
        mean, std = self.moments(rows, True, weights is None)
        heavy = student_t_noise(self.likelihood)
        if weights is None and heavy is None:
            return Judgement.gaussian(y, mean, std)
        noise = self.noise_of(self.points(rows))
        function = np.maximum(std**2 - noise, 0.0) if weights is None else std**2
        noise = noise if weights is None else noise / weights
        if heavy is None:
            return Judgement.gaussian(y, mean, np.sqrt(function + noise))
        return _heavy_tailed(y, mean, function, noise, heavy)

    def joint_log_density(self, rows: np.ndarray, y: np.ndarray, weights: np.ndarray | None) -> float:
        """Return the log density of new observations (`n`) together; weights (`n`) divide the variance of the noise."""
        if student_t_noise(self.likelihood) is not None:
            raise ValueError(
                "expected Gaussian noise for a joint density, got Student-t noise: give joint=False, or fit with "
                "options=Options(least_tail_gain=float('inf'))"
            )
        mean, covariance = self.joint_moments(rows, weights is None)
        if weights is not None:
            covariance += np.diag(self.noise_of(self.points(rows)) / weights)
        factor = stable_cholesky(torch.from_numpy(covariance)).numpy()
        scores = solve_triangular(factor, y - mean, lower=True)
        return float(norm.logpdf(scores).sum() - np.log(factor.diagonal()).sum())

    @torch.no_grad()
    def _unknown_cells(self, rows: np.ndarray, with_std: bool, include_noise: bool) -> list[UnknownCells]:
        """Return each target's completions of rows with missing cells, the same ones for all; empty without such."""
        if not np.isnan(rows).any():
            return []
        train_x = decode_missing(self.train_x)
        x, options = self._standardized(rows).to(train_x), {"only_means": not with_std}
        if self.has_several:
            means = [partial(self._means_of, number) for number in range(self.model.num_targets)]
            found = [unknown_cells(x, train_x, self.categories, each, None, **options) for each in means]
        else:
            noise_of = self.noise_of if with_std and include_noise else None
            share = description_of(self.model)["noise"].get("completion_share", 1.0)
            mean_of = partial(self._means_of, None)
            found = [unknown_cells(x, train_x, self.categories, mean_of, noise_of, share=share, **options)]
        return [each for each in found if each is not None]

    def noise_of(self, x: Tensor) -> np.ndarray:
        """Return the variance of the noise (`n`) at standardized rows."""
        return noise_variances(self.likelihood, self._filled(x)).double().numpy() * self.scale**2

    def _means_of(self, target: int | None, x: Tensor) -> np.ndarray:
        with self._computing():
            if target is not None:
                return self.unit.undo(self.model.means(self._filled(x))).numpy()[:, target]
            blocks = self._filled(x).split(self._rows_at_once)
            return np.concatenate([self.unit.undo(self.model(block).mean).numpy() for block in blocks])


def _means(unknown: Sequence[UnknownCells], mean: np.ndarray) -> np.ndarray:
    columns = mean.reshape(len(mean), -1).T
    return np.stack([each.mean(own) for each, own in zip(unknown, columns)], 1).reshape(mean.shape)


def predictive(model: Any, x: Tensor, *, include_noise: bool) -> MultivariateNormal | CountedPosterior:
    """Return the distribution of new observations, or of the function alone; both with the unspanned variance."""
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
    """Return joint samples (`num_samples x N`) of :func:`predictive`, from torch's random state."""
    noise = student_t_noise(model.likelihood) if include_noise else None
    drawn = predictive(model, x, include_noise=include_noise and noise is None).sample(torch.Size([num_samples]))
    if noise is None:
        return drawn
    scales = noise.squared_scales(noise(x, shape=x.shape[:-1]).diagonal(dim1=-2, dim2=-1))
    return StudentT(noise.df.to(scales), drawn, scales.sqrt()).sample()


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
    """Return probabilities as an array (`q`), or refuse what is no sequence of numbers strictly between 0 and 1."""
    found = np.empty(0)
    if isinstance(quantiles, Sequence | np.ndarray | Tensor) and not isinstance(quantiles, str):
        with suppress(TypeError, ValueError):
            found = np.asarray(quantiles, dtype=np.float64)
    if found.ndim != 1 or not len(found) or not ((found > 0) & (found < 1)).all():
        raise ValueError(
            "expected quantiles as a sequence of probabilities strictly between 0 and 1, such as (0.05, 0.95) for an "
            f"interval of 90 %, got {quantiles!r}"
        )
    return found


def _with_true_spread(estimates: Tensor, num_samples: int) -> Tensor:
    """Return variances (`n`), estimated from samples, moved towards their mean until they spread as the true ones."""
    # The estimate of v from S samples is v chi_S^2 / S, so that 2 / (S + 2) of squared estimates are error.
    mean, error = estimates.mean(), 2 / (num_samples + 2) * estimates.square().mean()
    true_share = (1 - error / estimates.var().clamp_min(torch.finfo(estimates.dtype).tiny)).clamp_min(0)
    return mean + true_share.sqrt() * (estimates - mean)


def state_of(fitted: FittedRegressor, encoder: TableEncoder | None) -> dict[str, Any]:
    model = fitted.model
    kernel = model.covar_module if fitted.has_several else model.covar_module.base_kernel
    return {
        "encoder": None if encoder is None else encoder.to_state(),
        "x_mean": fitted.columns.mean,
        "x_scale": fitted.columns.scale,
        "x_far": torch.zeros_like(fitted.columns.mean) + fitted.columns.far,
        "y_mean": fitted.unit.mean,
        "y_scale": fitted.unit.scale,
        "train_x": fitted.train_x,
        "train_y": model.train_targets,
        "has_view": isinstance(kernel, EncodedKernel),
        "counted": model.state() if fitted.is_counted else None,
        "model": dict(model.state_dict()),
        **description_of(model),
    }


def fitted_of(state: Mapping[str, Any]) -> tuple[FittedRegressor, TableEncoder | None]:
    encoder = None if state["encoder"] is None else TableEncoder.from_state(state["encoder"])
    columns = Standardization(state["x_mean"], state["x_scale"], state["x_far"])
    unit = Standardization(state["y_mean"], state["y_scale"])
    categories = {} if encoder is None else {column: len(each) for column, each in encoder.categories_.items()}
    _check_units(state, encoder)
    model = _model_of(state).eval()
    fitted = FittedRegressor(model, columns, unit, categories, state["parameters"]["num_partitions"])
    if len(fitted.train_x) <= _MOST_TRIED_ROWS:
        rows = columns.undo(decode_missing(fitted.train_x[:2])).double().numpy()
        if not all(np.isfinite(each).all() for each in fitted.moments(rows, with_std=True, include_noise=True)):
            raise ValueError("expected the state of a model with finite predictions, got others: fit again")
    return fitted, encoder


def _check_units(state: Mapping[str, Any], encoder: TableEncoder | None) -> None:
    width = state["train_x"].shape[-1] if encoder is None else len(encoder.sources_)
    rows, targets = len(state["train_x"]), state["train_y"].shape[1:]
    shapes = {"x_mean": (width,), "x_scale": (width,), "x_far": (width,), "y_mean": targets, "y_scale": targets}
    shapes |= {"train_x": (rows, width), "train_y": (rows, *targets)}
    for name, shape in shapes.items():
        values = state[name]
        if not (isinstance(values, torch.Tensor) and values.is_floating_point() and values.shape == shape):
            raise ValueError(f"expected {name} of shape {tuple(shape)}, got {values!r:.60}: fit again")
        is_usable, wanted = (values > 0, "positive") if name == "x_far" else (values.isfinite(), "finite")
        if not bool(is_usable.all()) and not (name == "train_y" and targets):
            raise ValueError(f"expected {name} of {wanted} numbers, got others: fit again")


def _model_of(state: Mapping[str, Any]) -> Any:
    x, y, tensors = state["train_x"], state["train_y"], state["model"]
    kernel = KERNELS.get(state["parameters"]["kernel"], RandomForestKernel)()
    if state["counted"] is not None:
        start = "covar_module.base_kernel."
        kernel.load_state_dict({name.removeprefix(start): tensors[name] for name in tensors if name.startswith(start)})
        return rebuilt_counted(state["counted"], x, y, kernel)
    kernel = EncodedKernel(kernel) if state["has_view"] else kernel
    if y.dim() == 2:
        description, ones = own_description(state), torch.ones(y.shape[1], dtype=torch.float64)
        is_default = description["parts"] is not None
        kernel = unfitted_kernel(description, x.shape[1]) if is_default else kernel
        unfitted = Coregionalization(ones.diag(), ones, ones, 0.0)
        model: Any = CoregionalizedGP(x, y, kernel, unfitted, description if is_default else None)
    else:
        weights = tensors.get("likelihood.noise_covar.weights")  # of rows, where these have some
        likelihood = new_likelihood(None if weights is None else RowWeights.of(weights))
        model = rebuilt(state, x, y) or PartitionGP(x, y, likelihood, kernel)
    model.load_state_dict(tensors)
    return model


def plain(value: Any) -> Any:
    """Return an attribute without NumPy types: an array as a tensor, a scalar as a number of Python."""
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value)
    return value.item() if isinstance(value, np.generic) else value


def restored(value: Any) -> Any:
    """Return an attribute of a state: tensors as arrays, lists (tuples in files) as tuples."""
    if isinstance(value, torch.Tensor):
        return value.numpy()
    return tuple(value) if isinstance(value, list) else value
