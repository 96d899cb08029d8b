"""The part of the regressor for several targets."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from gpytorch.kernels import Kernel
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from gpytorch_partition import settings
from gpytorch_partition.callers import level_of_caller
from gpytorch_partition.estimators.given_kernels import check_dense_size
from gpytorch_partition.estimators.tables import check_targets
from gpytorch_partition.estimators.targets import fit_targets, known_rows, known_score, read_targets
from gpytorch_partition.inference.prediction.unknown_cells import UnknownCells, unknown_cells
from gpytorch_partition.inputs.missing import decode_missing
from gpytorch_partition.models import CoregionalizedGP
from gpytorch_partition.partitions.ensembles.refitting import is_ensemble
from gpytorch_partition.presets.default import FEWEST_ROWS
from gpytorch_partition.presets.folds import Blocks
from gpytorch_partition.presets.options import DEFAULT, some_rows
from gpytorch_partition.presets.targets import default_targets_model, imputed
from gpytorch_partition.tables.cells import as_pandas
from gpytorch_partition.training.coregionalization import LEAST_NOISE
from gpytorch_partition.training.marginal_likelihood import NOISE_AT_BOUND

_CLOSE_TO_BOUND = 1.01


class SeveralTargets:
    """A mixin of :class:`~gpytorch_partition.estimators.PartitionGPRegressor` for `N x T` targets."""

    model_: Any
    kernel: Any
    log_marginal_likelihood_value_: float | None
    _unit: Any
    _target_names: list[str] | None = None

    @property
    def _has_several(self) -> bool:
        return isinstance(getattr(self, "model_", None), CoregionalizedGP)

    @property
    def target_covariance_(self) -> NDArray[np.float64]:
        """The covariance of the functions of several targets (`T x T`), in units of the targets."""
        self._check_several()
        scale = self._unit.scale
        return (self.model_.task_covariance * scale * scale.unsqueeze(-1)).numpy()

    @property
    def noise_covariance_(self) -> NDArray[np.float64]:
        """The covariance of the errors of a row (`T x T`), in units of the targets; diagonal where none was found."""
        self._check_several()
        scale = self._unit.scale
        return (self.model_.noise_covariance * scale * scale.unsqueeze(-1)).numpy()

    @property
    def target_names_(self) -> NDArray[np.object_]:
        """The names of several targets (`T`): those of the data frame, or y0, y1 and so on."""
        self._check_several()
        names = self._target_names or [f"y{number}" for number in range(self.model_.num_targets)]
        return np.array(names, dtype=object)

    @property
    def target_name_(self) -> str | None:
        """The name of the one target: that of the Series, or of the column of parquet files; None if it had none."""
        check_is_fitted(self, "model_")
        return None if self._has_several or self._target_names is None else self._target_names[0]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        r"""
        Return :math:`R^2` of the means; for several targets their average, as in scikit-learn.

        Each of several targets is scored on the rows where it is known.

        :param X: `N x D` rows.
        :param y: `N` targets, or `N x T` with or without missing entries (NaN, None).
        :param sample_weight: `N` weights of the rows. (Default: None, 1.)
        :raises ValueError: If y cannot be used, a single target is missing in a row, or one of several is known in
            fewer than two rows.
        :raises sklearn.exceptions.NotFittedError: Before `fit`.
        """
        check_is_fitted(self, "model_")
        if self._has_several:
            return known_score(y, cast(Any, self).predict(X), self.target_names_.tolist(), sample_weight)
        check_targets(y, are_numbers=True)
        return float(super().score(X, as_pandas(y), sample_weight))  # type: ignore[misc]  # that of RegressorMixin

    def _check_several(self) -> None:
        check_is_fitted(self, "model_")
        if not self._has_several:
            raise AttributeError("the regressor was fitted to one target, which has noise_ and outputscale_")

    def _check_one_target_only(self: Any, weights: Any) -> None:
        if weights is not None:
            raise ValueError(
                "expected sample_weight=None with several targets, whose rows all count the same: fit a regressor to "
                "each, fit(X[known], Y[known, t], sample_weight=w[known]) with known = ~numpy.isnan(Y[:, t]) (or "
                "sklearn.multioutput.MultiOutputRegressor where none is missing). Rows that are not to count: leave "
                "them out, or set their entries to NaN"
            )
        if self.budget is not None:
            raise ValueError(
                f"expected budget=None with several targets, whose model leaves out nothing, got {self.budget!r}: to "
                "be faster give fewer rows, options=Options(most_rows=2000) of gpytorch_partition.presets, or "
                "kernel='forest'; or a budget to a regressor for each target"
            )
        if is_ensemble(self.kernel):
            raise ValueError(
                f"expected one target for the kernel of a {type(self.kernel).__name__}, got several: give each a "
                "regressor of its own (sklearn.multioutput.MultiOutputRegressor), or kernel='auto' or 'forest'"
            )

    def _read_targets(
        self: Any, X: Any, y: Any
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64] | None]:
        """Return rows with a known target, their targets, and their numbers (None for all rows)."""
        values, names = read_targets(X, y)
        rows = self._read(X, np.zeros(len(values)), reset=True, y_numeric=True, ensure_all_finite=self._finiteness)[0]
        self._target_names, known = None if names is None else names.tolist(), known_rows(values)
        return rows[known], values[known], None if known.all() else np.flatnonzero(known)

    def _fit_targets(self: Any, x: Tensor, targets: Tensor, points: Tensor, blocks: Blocks | None) -> None:
        """Fit a model to standardized rows (`N x D`) and targets (`N x T`), with a kernel built on points."""
        if isinstance(self.kernel, str) and self.kernel == "auto" and len(x) >= FEWEST_ROWS:
            model = self._choose_targets_model(x, targets, blocks)
        else:
            model = self._fit_by_likelihood(x, targets, points)
        self._set_model(model)
        self.n_iter_ = 0
        self.at_bounds_: dict[str, float] = self._noises_at_bound()

    def _choose_targets_model(self: Any, x: Tensor, targets: Tensor, blocks: Blocks | None) -> CoregionalizedGP:
        self.log_marginal_likelihood_value_ = None
        self.options_ = self.options or DEFAULT
        rows, counted = some_rows(len(x), self.options_, self.random_state), self._counted_rows
        if not isinstance(rows, slice):
            self._counted_rows = rows if counted is None else counted[rows]
        growing = {"random_state": self.random_state, "n_jobs": self.n_jobs, "options": self.options_}
        growing |= {"categories": self._categories, "blocks": None if blocks is None else blocks.of_rows(rows)}
        return default_targets_model(x[rows], targets[rows], **growing)

    def _noises_at_bound(self: Any) -> dict[str, float]:
        found = {
            f"noise of {name}": float(noise)
            for name, noise in zip(self.target_names_, self.model_.noise)
            if noise <= _CLOSE_TO_BOUND * LEAST_NOISE
        }
        for name in found:
            warnings.warn(
                f"{name} is at its bound: {NOISE_AT_BOUND}.",
                ConvergenceWarning,
                stacklevel=level_of_caller(),
            )
        return found

    def _fit_by_likelihood(self: Any, x: Tensor, targets: Tensor, points: Tensor) -> CoregionalizedGP:
        def built(grown_on: Tensor) -> tuple[Kernel, Tensor]:
            kernel, rows = self._kernel_and_rows(x, grown_on, points, None)
            check_dense_size(kernel, rows)
            return kernel, rows

        grown_on = imputed(x, targets, self._categories, self.random_state, self.n_jobs)
        model, self.log_marginal_likelihood_value_ = fit_targets(
            x, targets, built, grown_on, max_iterations=self.max_iterations
        )
        return model

    def _moments_of_targets(
        self: Any, rows: np.ndarray, with_std: bool, include_noise: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return means and standard deviations (or nothing) in units of the targets (`n x T` each)."""
        x = self._points(rows)
        mean = self._unit.undo(self.model_.means(x)).numpy()
        if not with_std:
            return mean, np.empty(0)
        variance = self.model_.variances(x) + (self.model_.noise if include_noise else 0.0)
        return mean, variance.clamp_min(0).sqrt().numpy() * self._y_scale

    def _with_unknown_cells(
        self: Any, rows: np.ndarray, mean: np.ndarray, std: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return means and standard deviations (`n x T`, or none), averaged over completions of rows."""
        with_std = len(std) > 0
        unknown = self._unknown_cells_of_targets(rows, with_std)
        mean = np.stack([each.mean(own) for each, own in zip(unknown, mean.T)], 1) if unknown else mean
        if with_std:
            std = np.sqrt(std**2 + np.stack([each.variance(len(rows)) for each in unknown], 1)) if unknown else std
        return mean, std

    @torch.no_grad()
    def _unknown_cells_of_targets(self: Any, rows: np.ndarray, with_std: bool) -> list[UnknownCells]:
        """Return each target's values at completions of rows, the same ones for all; empty without missing cells."""
        if not np.isnan(rows).any():
            return []
        train_x = decode_missing(self.model_.train_inputs[0])
        x = self._columns.apply_array(rows).to(train_x)
        found = [
            unknown_cells(
                x, train_x, self._categories, partial(self._means_of_target, number), None, only_means=not with_std
            )
            for number in range(self.model_.num_targets)
        ]
        return [each for each in found if each is not None]

    def _means_of_target(self: Any, number: int, x: Tensor) -> np.ndarray:
        with settings.iterative(), settings.no_debug():
            return self._unit.undo(self.model_.means(self._filled(x))).numpy()[:, number]

    def _joint_moments_of_targets(self: Any, rows: np.ndarray, include_noise: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return means (`n x T`) and covariances of the rows (`n x n x T`) in units of the targets."""
        x = self._points(rows)
        covariance = self.model_.covariances(x)
        if include_noise:
            covariance += torch.eye(len(x), dtype=torch.float64).unsqueeze(-1) * self.model_.noise
        mean, found = self._unit.undo(self.model_.means(x)).numpy(), covariance.numpy() * self._y_scale**2
        for number, each in enumerate(self._unknown_cells_of_targets(rows, True)):
            mean[:, number] = each.mean(mean[:, number])
            found[..., number] += np.diag(each.variance(len(rows)))
        return mean, found

    def _samples_of_targets(self: Any, rows: np.ndarray, num_samples: int, include_noise: bool) -> np.ndarray:
        """Return joint samples (`n x T x num_samples`) in units of the targets."""
        found = self.model_.samples(self._points(rows), num_samples, include_noise=include_noise)
        samples = self._unit.undo(found).permute(1, 2, 0).numpy()
        for number, each in enumerate(self._unknown_cells_of_targets(rows, True)):
            samples[:, number] = each.samples(samples[:, number], np.random.RandomState(0))  # the same ones for all
        return samples
