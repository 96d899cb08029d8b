"""States of fitted regressors, of tensors and plain values, and models of states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from gpytorch_partition.estimators.fitted_regressor import FittedRegressor
from gpytorch_partition.estimators.kernels import KERNELS
from gpytorch_partition.estimators.regression_fit import new_likelihood
from gpytorch_partition.inputs.row_weights import RowWeights
from gpytorch_partition.inputs.standardization import Standardization
from gpytorch_partition.kernels import EncodedKernel, RandomForestKernel
from gpytorch_partition.models import CoregionalizedGP, PartitionGP
from gpytorch_partition.models.counted_gp import rebuilt_counted
from gpytorch_partition.presets.assembly import description_of, own_description, rebuilt, unfitted_kernel
from gpytorch_partition.tables import TableEncoder
from gpytorch_partition.training.coregionalization import Coregionalization

KIND = "file of a PartitionGPRegressor"


def state_of(fitted: FittedRegressor, encoder: TableEncoder | None) -> dict[str, Any]:
    """Return the state of a model and its units, and of the encoder of its tables."""
    model = fitted.model
    kernel = model.covar_module if fitted.has_several else model.covar_module.base_kernel
    return {
        "encoder": None if encoder is None else encoder.to_state(),
        "x_mean": fitted.columns.mean,
        "x_scale": fitted.columns.scale,
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
    """Return the model and the encoder of a state."""
    encoder = None if state["encoder"] is None else TableEncoder.from_state(state["encoder"])
    columns, unit = (Standardization(state[f"{name}_mean"], state[f"{name}_scale"]) for name in "xy")
    categories = {} if encoder is None else {column: len(each) for column, each in encoder.categories_.items()}
    model = _model_of(state).eval()
    return FittedRegressor(model, columns, unit, categories, state["parameters"]["num_partitions"]), encoder


def _model_of(state: Mapping[str, Any]) -> Any:
    x, y, tensors = state["train_x"], state["train_y"], state["model"]
    kernel = KERNELS.get(state["parameters"]["kernel"], RandomForestKernel)()
    if state["counted"] is not None:
        start = "covar_module.base_kernel."
        kernel.load_state_dict({name.removeprefix(start): tensors[name] for name in tensors if name.startswith(start)})
        return rebuilt_counted(state["counted"], x, y, kernel)
    kernel = EncodedKernel(kernel) if state["has_view"] else kernel
    if y.dim() == 2:
        model: Any = _unfitted_targets(state, x, y, kernel)
    else:
        weights = tensors.get("likelihood.noise_covar.weights")  # of rows, where these have some
        likelihood = new_likelihood(None if weights is None else RowWeights.of(weights))
        model = rebuilt(state, x, y) or PartitionGP(x, y, likelihood, kernel)
    model.load_state_dict(tensors)
    return model


def _unfitted_targets(state: Mapping[str, Any], x: Tensor, y: Tensor, kernel: Kernel) -> CoregionalizedGP:
    """Return a model of several targets of the kind of a saved one, with this kernel or that of a default model."""
    description = own_description(state)
    is_default = description["parts"] is not None
    ones = torch.ones(y.shape[1], dtype=torch.float64)
    unfitted = Coregionalization(ones.diag(), ones, ones, 0.0)
    kernel = unfitted_kernel(description, x.shape[1]) if is_default else kernel
    return CoregionalizedGP(x, y, kernel, unfitted, description if is_default else None)


def plain(value: Any) -> Any:
    """Return an attribute without NumPy: an array as a tensor, a scalar as that of Python."""
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value)
    return value.item() if isinstance(value, np.generic) else value


def restored(value: Any) -> Any:
    """Return an attribute of a state: tensors as arrays, lists (tuples in files) as tuples."""
    if isinstance(value, torch.Tensor):
        return value.numpy()
    return tuple(value) if isinstance(value, list) else value
