"""Conversions of a fitted regressor to tensors and plain values, or a file, and back."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from gpytorch_partition import files
from gpytorch_partition.estimators.given_kernels import state_name
from gpytorch_partition.estimators.kernels import KERNELS
from gpytorch_partition.estimators.sample_weight import new_likelihood
from gpytorch_partition.estimators.targets import rebuilt_targets
from gpytorch_partition.inputs.row_weights import RowWeights
from gpytorch_partition.inputs.standardization import Standardization
from gpytorch_partition.kernels import EncodedKernel, RandomForestKernel
from gpytorch_partition.models import PartitionGP
from gpytorch_partition.models.counted_gp import rebuilt_counted
from gpytorch_partition.presets.assembly import description_of, rebuilt
from gpytorch_partition.tables import TableEncoder

_KIND = "file of a PartitionGPRegressor"
_PARAMETERS = ("num_partitions", "max_iterations", "dtype")
_FOUND = ("log_marginal_likelihood_value_", "at_bounds_", "n_iter_", "seconds_", "left_out_")
_RESULTS = (*_FOUND, "_constant_columns", "_constants", "_counted_rows")


class SavedRegressor:
    """A mixin of :class:`~gpytorch_partition.estimators.PartitionGPRegressor` with its state, and files of it."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """
        Write the fitted regressor, training rows included, to a file; :meth:`load` has an example.

        :param path: The file. An existing one is replaced once the new one is complete.
        :raises TypeError: If the kernel came from a function, which has no plain value.
        :raises OSError: If it cannot be written; an existing file then stays.
        :raises sklearn.exceptions.NotFittedError: Before `fit`.
        """
        files.save(path, _KIND, self.to_state())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """
        Return the regressor that :meth:`save` has written, to the last bit, without running code of the file.

        :param path: The file.
        :raises gpytorch_partition.files.DamagedFileError: If it is no such file, of another format, or damaged.
        :raises OSError: If it cannot be read.

        Example:
            >>> from tempfile import TemporaryDirectory
            >>> from gpytorch_partition.estimators import PartitionGPRegressor
            >>> X = np.linspace(0, 1, 30)[:, None]
            >>> model = PartitionGPRegressor("mondrian", num_partitions=10, random_state=0).fit(X, X[:, 0] ** 2)
            >>> with TemporaryDirectory() as folder:
            ...     model.save(f"{folder}/model.gp")
            ...     copies = PartitionGPRegressor.load(f"{folder}/model.gp"), model.from_state(model.to_state())
            >>> [bool((copy.predict(X) == model.predict(X)).all()) for copy in copies]
            [True, True]
        """
        return cls.from_state(files.load(path, _KIND))

    def to_state(self: Any) -> dict[str, Any]:
        """
        Return the fitted regressor as plain values and its own tensors, for storage of your own.

        Errors are those of :meth:`save`; :meth:`load` has an example.
        """
        check_is_fitted(self, "model_")
        names, chosen = getattr(self, "feature_names_in_", None), self.categorical_features
        return {
            "parameters": {
                **{name: _plain(getattr(self, name)) for name in _PARAMETERS},
                "kernel": state_name(self.kernel),
                "categorical_features": None if chosen is None else list(map(_plain, chosen)),
            },
            "results": {name: _plain(getattr(self, name)) for name in _RESULTS},
            "feature_names": None if names is None else list(map(str, names)),
            "target_names": self._target_names,
            "encoder": None if self.encoder_ is None else self.encoder_.to_state(),
            "x_mean": self._columns.mean,
            "x_scale": self._columns.scale,
            "y_mean": self._unit.mean,
            "y_scale": self._unit.scale,
            "train_x": self.model_.train_inputs[0],
            "train_y": self.model_.train_targets,
            "has_view": isinstance(self.kernel_, EncodedKernel),
            "counted": self.model_.state() if self._is_counted else None,
            "model": dict(self.model_.state_dict()),
            **description_of(self.model_),
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """
        Return the regressor of a state; a refit uses the default options and draws new partitions.

        :param state: The result of :meth:`to_state`, or a load of it; :meth:`load` has an example.
        :raises KeyError: If a part is missing.
        """
        regressor: Any = cls()
        regressor.set_params(**state["parameters"])
        regressor._set_model(_model_of(state))
        regressor._columns = Standardization(state["x_mean"], state["x_scale"])
        regressor._unit = Standardization(state["y_mean"], state["y_scale"])
        results, encoder, names = state["results"], state["encoder"], state["feature_names"]
        vars(regressor).update({name: _restored(results[name]) for name in _RESULTS}, options_=None)
        regressor._target_names = state["target_names"]
        regressor.encoder_ = None if encoder is None else TableEncoder.from_state(encoder)
        regressor.n_features_in_ = state["train_x"].shape[1] if encoder is None else len(encoder["columns"])
        if names is not None:
            regressor.feature_names_in_ = np.array(names, dtype=object)
        return regressor


def _model_of(state: Mapping[str, Any]) -> Any:
    x, y, tensors = state["train_x"], state["train_y"], state["model"]
    kernel = KERNELS.get(state["parameters"]["kernel"], RandomForestKernel)()
    if state["counted"] is not None:
        start = "covar_module.base_kernel."
        kernel.load_state_dict({name.removeprefix(start): tensors[name] for name in tensors if name.startswith(start)})
        return rebuilt_counted(state["counted"], x, y, kernel)
    kernel = EncodedKernel(kernel) if state["has_view"] else kernel
    if y.dim() == 2:
        model: Any = rebuilt_targets(state, x, y, kernel)
    else:
        weights = tensors.get("likelihood.noise_covar.weights")  # of rows, where these have some
        likelihood = new_likelihood(None if weights is None else RowWeights.of(weights))
        model = rebuilt(state, x, y) or PartitionGP(x, y, likelihood, kernel)
    model.load_state_dict(tensors)
    return model


def _plain(value: Any) -> Any:
    """Return an attribute without NumPy: an array as a tensor, a scalar as that of Python."""
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value)
    return value.item() if isinstance(value, np.generic) else value


def _restored(value: Any) -> Any:
    """Return an attribute of a state: tensors as arrays, lists (tuples in files) as tuples."""
    if isinstance(value, torch.Tensor):
        return value.numpy()
    return tuple(value) if isinstance(value, list) else value
