"""What a regressor does where it has several targets."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from gpytorch_partition.estimators.targets import fit_targets, known_rows, read_targets
from gpytorch_partition.models import CoregionalizedGP
from gpytorch_partition.partitions.ensembles.refitting import is_ensemble
from gpytorch_partition.presets.default import FEWEST_ROWS
from gpytorch_partition.presets.options import DEFAULT
from gpytorch_partition.presets.targets import default_targets_model, imputed


class SeveralTargets:
    """Mixin of :class:`~gpytorch_partition.estimators.PartitionGPRegressor` for `N x T` targets."""

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
    def target_names_(self) -> NDArray[np.object_]:
        """The names of several targets (`T`): those of the data frame, or y0, y1 and so on."""
        self._check_several()
        names = self._target_names or [f"y{number}" for number in range(self.model_.num_targets)]
        return np.array(names, dtype=object)

    def _check_several(self) -> None:
        check_is_fitted(self, "model_")
        if not self._has_several:
            raise AttributeError("the regressor was fitted to one target, which has noise_ and outputscale_")

    def _check_one_target_only(self: Any, weights: Any) -> None:
        """Refuse what is not there for several targets."""
        for name, is_given in (("sample_weight", weights is not None), ("budget", self.budget is not None)):
            if is_given:
                raise ValueError(f"expected {name}=None with several targets, which have none: fit one at a time")
        if is_ensemble(self.kernel):
            raise ValueError(
                f"expected one target for the kernel of a {type(self.kernel).__name__}, got several: give each a "
                "regressor of its own (sklearn.multioutput.MultiOutputRegressor), or kernel='auto' or 'forest'"
            )

    def _read_targets(self: Any, X: Any, y: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Rows of which a target is known, and their targets."""
        values, names = read_targets(X, y)
        rows = self._read(X, np.zeros(len(values)), reset=True, y_numeric=True, ensure_all_finite=self._finiteness)[0]
        self._target_names, known = None if names is None else names.tolist(), known_rows(values)
        return rows[known], values[known]

    def _fit_targets(self: Any, x: Tensor, targets: Tensor, points: Tensor) -> None:
        """A model of standardized rows (`N x D`) and targets (`N x T`), with a kernel built on points."""
        if isinstance(self.kernel, str) and self.kernel == "auto" and len(x) >= FEWEST_ROWS:
            growing = {"random_state": self.random_state, "n_jobs": self.n_jobs, "options": self.options or DEFAULT}
            model = default_targets_model(x, targets, categories=self._categories, **growing)
            self.log_marginal_likelihood_value_ = None
        else:
            model = self._fit_by_likelihood(x, targets, points)
        self._set_model(model)
        self.at_bounds_: dict[str, Any] = {}
        self.n_iter_ = 0

    def _fit_by_likelihood(self: Any, x: Tensor, targets: Tensor, points: Tensor) -> CoregionalizedGP:
        """With a kernel by name or of a function."""
        model, self.log_marginal_likelihood_value_ = fit_targets(
            x,
            targets,
            lambda grown_on: self._kernel_and_rows(x, grown_on, points, None),
            imputed(x, targets, self._categories, self.random_state, self.n_jobs),
            max_iterations=self.max_iterations,
        )
        return model

    def _moments_of_targets(
        self: Any, rows: np.ndarray, with_std: bool, include_noise: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """Means and standard deviations (or nothing) in units of the targets (`n x T` each)."""
        x = self._points(rows)
        mean = self._unit.undo(self.model_.means(x)).numpy()
        if not with_std:
            return mean, np.empty(0)
        variance = self.model_.variances(x) + (self.model_.noise if include_noise else 0.0)
        return mean, variance.clamp_min(0).sqrt().numpy() * self._y_scale

    def _joint_moments_of_targets(self: Any, rows: np.ndarray, include_noise: bool) -> tuple[np.ndarray, np.ndarray]:
        """Means (`n x T`) and covariances of the points (`n x n x T`) in units of the targets."""
        x = self._points(rows)
        covariance = self.model_.covariances(x)
        if include_noise:
            covariance += torch.eye(len(x), dtype=torch.float64).unsqueeze(-1) * self.model_.noise
        return self._unit.undo(self.model_.means(x)).numpy(), covariance.numpy() * self._y_scale**2

    def _samples_of_targets(self: Any, rows: np.ndarray, num_samples: int, include_noise: bool) -> np.ndarray:
        """Joint samples (`n x T x num_samples`) in units of the targets."""
        found = self.model_.samples(self._points(rows), num_samples, include_noise=include_noise)
        return self._unit.undo(found).permute(1, 2, 0).numpy()
