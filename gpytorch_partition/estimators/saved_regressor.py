"""A fitted regressor as tensors and plain values, in a file or not, and back."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from gpytorch_partition.estimators.given_kernels import state_name
from gpytorch_partition.estimators.kernels import KERNELS
from gpytorch_partition.estimators.sample_weight import new_likelihood
from gpytorch_partition.estimators.saved_state import check_encoder_fits, check_parts_fit, check_state
from gpytorch_partition.estimators.targets import rebuilt_targets
from gpytorch_partition.files import FileFormat
from gpytorch_partition.inputs.row_weights import RowWeights
from gpytorch_partition.inputs.standardization import Standardization
from gpytorch_partition.kernels import EncodedKernel, RandomForestKernel
from gpytorch_partition.likelihoods import weights_of
from gpytorch_partition.models import PartitionGP
from gpytorch_partition.models.counted_gp import rebuilt_counted
from gpytorch_partition.presets.assembly import description_of, rebuilt
from gpytorch_partition.tables import TableEncoder

_FORMAT = FileFormat("gpytorch_partition regressor", "file of a PartitionGPRegressor", version=1)
_PARAMETERS = ("kernel", "num_partitions", "max_iterations", "dtype")


class SavedRegressor:
    """Mixin of :class:`~gpytorch_partition.estimators.PartitionGPRegressor`: its state, and files of it."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """
        Write the fitted regressor to a file, which :meth:`load` reads; it replaces another when it is whole.

        What is written is what `to_state` returns, beside a digest of the file. Costs the time to write the
        training rows and the nodes of the trees.

        :param path: The file.
        :raises TypeError: If the kernel came from a function, which no plain value can stand for.
        :raises OSError: If it cannot be written; then what was there stays.
        :raises sklearn.exceptions.NotFittedError: Before `fit`.
        """
        _FORMAT.save(path, {"regressor": self.to_state()})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """
        The regressor that :meth:`save` has written; it predicts the same to the last bit. No code of the file is run.

        :param path: The file.
        :raises gpytorch_partition.files.DamagedFileError: If the file is of another format, or damaged.
        :raises RuntimeError: If its parts do not fit together.
        :raises OSError: If it cannot be read.

        Example:
            >>> from tempfile import TemporaryDirectory
            >>> from gpytorch_partition.estimators import PartitionGPRegressor
            >>> X = np.linspace(0, 1, 30)[:, None]
            >>> model = PartitionGPRegressor("mondrian", num_partitions=10, random_state=0).fit(X, X[:, 0] ** 2)
            >>> with TemporaryDirectory() as folder:
            ...     model.save(f"{folder}/model.gp")
            ...     copy = PartitionGPRegressor.load(f"{folder}/model.gp")
            >>> bool((copy.predict(X) == model.predict(X)).all())
            True
        """
        return cls.from_state(_FORMAT.load(path)["regressor"])

    def to_state(self: Any) -> dict[str, Any]:
        """
        The fitted regressor as tensors and plain values, for containers of your own; :meth:`save` writes a file.

        Nothing large is copied: the tensors are the regressor's own, training rows and targets among them.

        :raises TypeError: If the kernel came from a function, which no plain value can stand for.
        :raises sklearn.exceptions.NotFittedError: Before `fit`.

        Example:
            >>> from gpytorch_partition.estimators import PartitionGPRegressor
            >>> X = np.linspace(0, 1, 30)[:, None]
            >>> model = PartitionGPRegressor("mondrian", num_partitions=10, random_state=0).fit(X, X[:, 0] ** 2)
            >>> copy = PartitionGPRegressor.from_state(model.to_state())
            >>> bool((copy.predict(X) == model.predict(X)).all())
            True
        """
        check_is_fitted(self, "model_")
        return {
            **self._state_of_columns(),
            **self._state_of_rows(),
            "y_mean": self._unit.mean.tolist(),
            "y_scale": self._unit.scale.tolist(),
            "target_names": self._target_names,
            "model": dict(self.model_.state_dict()),
            "log_marginal_likelihood_value": self.log_marginal_likelihood_value_,
            "at_bounds": self.at_bounds_,
            "n_iter": self.n_iter_,
            "has_view": isinstance(self.kernel_, EncodedKernel),
            "seconds": self.seconds_,
            "left_out": list(self.left_out_),
            "counted": self.model_.state() if self._is_counted else None,
            **description_of(self.model_),
        }

    def _state_of_columns(self: Any) -> dict[str, Any]:
        names, chosen = getattr(self, "feature_names_in_", None), self.categorical_features
        parameters = {name: _without_numpy(getattr(self, name)) for name in _PARAMETERS}
        parameters["categorical_features"] = None if chosen is None else list(map(_without_numpy, chosen))
        return {
            "parameters": parameters | {"kernel": state_name(self.kernel)},
            "feature_names": None if names is None else [str(name) for name in names],
            "x_mean": self._columns.mean,
            "x_scale": self._columns.scale,
            "encoder": None if self.encoder_ is None else self.encoder_.to_state(),
            "constant_columns": list(self._constant_columns),
            "constants": None if self._constants is None else torch.from_numpy(self._constants),
        }

    def _state_of_rows(self: Any) -> dict[str, Any]:
        counted = self._counted_rows
        return {
            "train_x": self.model_.train_inputs[0],
            "train_y": self.model_.train_targets,
            "row_weights": None if self._has_several else weights_of(self.likelihood_),
            "counted_rows": None if counted is None else torch.from_numpy(counted),
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """
        The regressor that :meth:`to_state` described; it predicts the same to the last bit.

        Seed and options are not part of the state: a refit would draw new partitions, by the usual options.

        :param state: What :meth:`to_state` returned, which has an example, or a load of it.
        :raises KeyError: If a part is missing.
        :raises RuntimeError: If a part cannot be one of a regressor, or they do not fit together.
        """
        regressor: Any = cls()
        check_state(regressor, state)
        regressor.set_params(**state["parameters"])
        regressor._set_model(_model_of(state))
        check_parts_fit(regressor, regressor.model_.covar_module, regressor.model_.train_inputs[0])
        regressor._set_columns(state)
        regressor._unit = Standardization(*torch.tensor([state["y_mean"], state["y_scale"]], dtype=torch.float64))
        regressor._target_names = state["target_names"]
        regressor.log_marginal_likelihood_value_ = state["log_marginal_likelihood_value"]
        regressor.at_bounds_, regressor.n_iter_ = state["at_bounds"], state["n_iter"]
        regressor.seconds_, counted = state["seconds"], state["counted_rows"]
        regressor._counted_rows = None if counted is None else counted.numpy()
        regressor.options_, regressor.left_out_ = None, tuple(state["left_out"])
        return regressor

    def _set_columns(self: Any, state: Mapping[str, Any]) -> None:
        """What the columns of X are called, and how they are read."""
        self._columns = Standardization(state["x_mean"], state["x_scale"])
        self._constant_columns, constants = tuple(state["constant_columns"]), state["constants"]
        self._constants = None if constants is None else constants.numpy()
        encoder = state["encoder"]
        self.encoder_ = None if encoder is None else TableEncoder.from_state(encoder)
        if self.encoder_ is not None:
            check_encoder_fits(self, self.encoder_, self.model_.train_inputs[0], self.model_)
        self.n_features_in_ = state["train_x"].shape[1] if encoder is None else len(encoder["columns"])
        if state["feature_names"] is not None:
            self.feature_names_in_ = np.array(state["feature_names"], dtype=object)


def _model_of(state: Mapping[str, Any]) -> Any:
    """The model of a state, with its tensors."""
    x, y, weights = state["train_x"], state["train_y"], state["row_weights"]
    kernel = KERNELS.get(state["parameters"]["kernel"], RandomForestKernel)()
    if state["counted"] is not None:
        prefix = "covar_module.base_kernel."
        tensors = {name.removeprefix(prefix): each for name, each in state["model"].items() if name.startswith(prefix)}
        kernel.load_state_dict(tensors)
        return rebuilt_counted(state["counted"], x, y, kernel)
    kernel = EncodedKernel(kernel) if state["has_view"] else kernel
    if y.dim() == 2:
        model: Any = rebuilt_targets(state, x, y, kernel)
    else:
        likelihood = new_likelihood(None if weights is None else RowWeights.of(weights))
        model = rebuilt(state, x, y) or PartitionGP(x, y, likelihood, kernel)
    model.load_state_dict(state["model"])
    return model


def _without_numpy(value: Any) -> Any:
    """A number, flag or text of NumPy as that of Python."""
    return value.item() if isinstance(value, np.generic) else value
