"""Predictions of a fitted regressor: means, variances, covariances and quantiles in units of the targets."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gpytorch.distributions import MultivariateNormal
from torch import Tensor

from gpytorch_partition import settings
from gpytorch_partition.composition.distributions import marginal_variances
from gpytorch_partition.estimators.uncertainty import gaussian_quantiles, heavy_quantiles, predictive
from gpytorch_partition.inference.prediction.unknown_cells import UnknownCells, unknown_cells
from gpytorch_partition.inputs.training_rows import decode_missing
from gpytorch_partition.kernels import RandomForestKernel
from gpytorch_partition.likelihoods import student_t_noise
from gpytorch_partition.likelihoods.fitc_likelihood import noise_variances
from gpytorch_partition.models.counted_gp import CountedPosterior
from gpytorch_partition.models.exact_gp import innermost_kernels
from gpytorch_partition.presets.assembly import description_of
from gpytorch_partition.progress import doing, progress, verbosity
from gpytorch_partition.tables import NumberView

# Codes of rows predicted at once (a GiB): standard deviations may take the same solves for each block.
_CODES_AT_ONCE = 2**28
# Memory of the default model for a row, in numbers of the size of a code: trees, and inducing points in float64.
_AUTO_NUMBERS = 4_500
# Its variances come from a quarter of the samples: those of the function, without the noise, have errors of 12.5 %.
_FEWER_SAMPLES = 4


class Moments:
    """A mixin of :class:`~gpytorch_partition.estimators.PartitionGPRegressor` that predicts checked rows."""

    model_: Any
    likelihood_: Any

    @property
    def _is_chosen(self: Any) -> bool:
        """Whether the model was chosen by folds, as the default one."""
        return description_of(self.model_)["parts"] is not None

    @property
    def _knows_missing_cells(self: Any) -> bool:
        """Whether the model has forests only, or a view; others get medians for missing cells."""
        if any(isinstance(module, NumberView) for module in self.model_.modules()):
            return True
        return all(isinstance(kernel, RandomForestKernel) for kernel in innermost_kernels(self.model_.covar_module))

    @property
    def _y_scale(self: Any) -> Any:
        return self._unit.scale.numpy() if self._has_several else self._unit.scale.item()

    def _points(self: Any, rows: np.ndarray) -> Tensor:
        train_x = self.model_.train_inputs[0]
        x = self._columns.apply_array(rows).to(train_x.dtype)
        self._warn_of_new_holes(x, train_x)
        return self._filled(x)

    def _filled(self: Any, x: Tensor) -> Tensor:
        """Return standardized rows, with medians for missing cells where the model cannot take these."""
        if not self._knows_missing_cells:
            return torch.where(x.isnan(), self.model_.train_inputs[0].median(0).values, x)
        return x

    def _predictive(self: Any, rows: np.ndarray, include_noise: bool) -> Any:
        return predictive(self.model_, self._points(rows), include_noise=include_noise)

    def _moments(self: Any, rows: np.ndarray, with_std: bool, include_noise: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return means and standard deviations (or nothing) in units of the targets."""
        size = max(1, _CODES_AT_ONCE // (_AUTO_NUMBERS if self._is_chosen else self.num_partitions))
        starts = range(0, len(rows), size)
        with verbosity(self.verbose), doing(f"predicting {len(rows):,} rows"):
            blocks = [self._moments_of(rows[i : i + size], with_std, include_noise) for i in progress(starts, "blocks")]
        mean, std = (np.concatenate(parts) for parts in zip(*blocks))
        if self._has_several:
            return self._with_unknown_cells(rows, mean, std)
        if (unknown := self._unknown_cells(rows, with_std, include_noise)) is None:
            return mean, std
        return unknown.mean(mean), np.sqrt(std**2 + unknown.variance(len(rows))) if with_std else std

    @torch.no_grad()
    def _unknown_cells(self: Any, rows: np.ndarray, with_std: bool, include_noise: bool) -> UnknownCells | None:
        """Return the completions of rows with missing cells; None without such rows."""
        if not np.isnan(rows).any():
            return None
        train_x = decode_missing(self.model_.train_inputs[0])
        x = self._columns.apply_array(rows).to(train_x)
        noise_of = self._noise_of if with_std and include_noise else None
        share = description_of(self.model_)["noise"].get("completion_share", 1.0)
        return unknown_cells(
            x, train_x, self._categories, self._means_of, noise_of, only_means=not with_std, share=share
        )

    def _noise_of(self: Any, x: Tensor) -> np.ndarray:
        """Return variances of the noise of standardized rows, in squared units of the targets."""
        return noise_variances(self.likelihood_, self._filled(x)).double().numpy() * self._y_scale**2

    def _means_of(self: Any, x: Tensor) -> np.ndarray:
        """Return means of standardized rows, in units of the targets."""
        size = max(1, _CODES_AT_ONCE // (_AUTO_NUMBERS if self._is_chosen else self.num_partitions))
        blocks = self._filled(x).split(size)
        with settings.iterative(), settings.no_debug():
            return np.concatenate([self._unit.undo(self.model_(block).mean).numpy() for block in blocks])

    def _quantiles(
        self: Any, rows: np.ndarray, mean: np.ndarray, std: np.ndarray, probabilities: np.ndarray, include_noise: bool
    ) -> np.ndarray:
        if not include_noise or student_t_noise(self.likelihood_) is None:
            return gaussian_quantiles(mean, std, probabilities)
        return heavy_quantiles(self.likelihood_, self._points(rows), mean, std, self._y_scale, probabilities)

    @torch.no_grad()
    def _moments_of(self: Any, rows: np.ndarray, with_std: bool, include_noise: bool) -> tuple[np.ndarray, np.ndarray]:
        # Without debugging GPyTorch does not warn that the rows may be the training rows.
        with settings.iterative(), settings.no_debug(), self._samples_of_variances(include_noise):
            if self._has_several:
                return self._moments_of_targets(rows, with_std, include_noise)
            found = self._predictive(rows, include_noise)
            mean = self._unit.undo(found.mean).numpy()
            variance = _variances(found).double().numpy() if with_std else np.empty(0)
        return mean, np.sqrt(variance) * self._y_scale

    def _samples_of_variances(self: Any, include_noise: bool) -> settings.num_variance_samples:
        """Set the number of samples for variances: fewer where solves are slower and noise is included."""
        number = settings.num_variance_samples.value()
        has_fewer = (self._is_chosen or self._has_several) and include_noise
        return settings.num_variance_samples(max(2, number // _FEWER_SAMPLES) if has_fewer else number)

    @torch.no_grad()
    def _joint_moments(self: Any, rows: np.ndarray, include_noise: bool) -> tuple[np.ndarray, np.ndarray]:
        with settings.iterative(), settings.no_debug():
            if self._has_several:
                return self._joint_moments_of_targets(rows, include_noise)
            found = self._predictive(rows, include_noise)
            mean = self._unit.undo(found.mean).numpy()
            covariance = found.lazy_covariance_matrix.to_dense().double().numpy()
        covariance = 0.5 * (covariance + covariance.T) * self._y_scale**2
        if (unknown := self._unknown_cells(rows, True, include_noise)) is None:
            return mean, covariance
        return unknown.mean(mean), covariance + np.diag(unknown.variance(len(rows)))


def _variances(found: MultivariateNormal | CountedPosterior) -> Tensor:
    return found.variance if isinstance(found, CountedPosterior) else marginal_variances(found)
