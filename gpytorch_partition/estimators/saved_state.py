"""Saved regressors: the plain values and tensors of their state, checked before a model is made of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from numbers import Integral, Real
from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from gpytorch_partition import settings
from gpytorch_partition.estimators.given_kernels import OF_STATE
from gpytorch_partition.estimators.kernels import KERNELS
from gpytorch_partition.estimators.machine import check_count
from gpytorch_partition.inputs.missing import MISSING
from gpytorch_partition.inputs.saved_tables import check_saved, has_shape
from gpytorch_partition.presets.parts import PARTS
from gpytorch_partition.tables import NumberView, TableEncoder

_DTYPES = (torch.float32, torch.float64)
_FEW = 2  # rows by which the parts of a model are tried


def check_state(owner: object, state: Mapping[str, Any]) -> None:
    """
    Check all of a regressor's state but the model's tensors, which its modules check when they are loaded.

    :param owner: The regressor.
    :param state: What `to_state` returned, or a load of it.
    :raises KeyError: If a part is missing.
    :raises RuntimeError: If a part cannot be one of a regressor.
    """
    check_saved(isinstance(state, Mapping), owner, "parts by name")
    _check_parameters(owner, state["parameters"])
    _check_rows(owner, state["train_x"], state["train_y"])
    _check_units(owner, state)
    _check_of_rows(owner, state, len(state["train_x"]))
    _check_description(owner, state)
    _check_names(owner, state)
    _check_numbers(owner, state)


def check_parts_fit(owner: object, kernel: Kernel, x: Tensor) -> None:
    """
    Check that the parts of a loaded kernel fit together, by its covariance of two training rows.

    :param owner: The regressor.
    :param kernel: The kernel, in evaluation mode.
    :param x: `N x D` training rows.
    :raises RuntimeError: If they do not, or the covariance is not finite.
    """
    with torch.no_grad(), settings.iterative(), settings.no_debug():
        try:
            covariance = kernel(x[:_FEW], x[:_FEW]).to_dense()
        except (IndexError, ValueError, TypeError, RuntimeError) as error:
            raise RuntimeError(f"the parts of the saved model do not fit together: {error}") from error
    is_covariance = bool(covariance.isfinite().all()) and bool((covariance.diagonal(dim1=-2, dim2=-1) >= 0).all())
    check_saved(is_covariance, owner, "finite covariances")


def check_encoder_fits(owner: object, encoder: TableEncoder, x: Tensor, model: torch.nn.Module) -> None:
    """
    Check that the codes of training rows, and what the model knows of levels, are those of an encoder.

    :param owner: The regressor.
    :param encoder: The encoder.
    :param x: `N x D` training rows.
    :param model: The model.
    :raises RuntimeError: If they are not.
    """
    check_saved(len(encoder.get_feature_names_out()) == x.shape[1], owner, "as many columns as its table makes")
    counts = torch.zeros(x.shape[1], dtype=torch.int64)
    for number, levels in encoder.categories_.items():
        counts[number] = len(levels)
        known = x[:, number][x[:, number] != MISSING]
        check_saved(((known == known.round()) & (known < len(levels))).all(), owner, "codes of levels")
    for view in model.modules():
        if isinstance(view, NumberView):
            check_saved(torch.equal(view.level_counts, counts), owner, "a view of the same levels")


def _check_parameters(owner: object, parameters: Any) -> None:
    check_saved(isinstance(parameters, Mapping), owner, "parameters by name")
    check_saved(parameters["kernel"] in ("auto", *KERNELS, OF_STATE), owner, "the name of a kernel")
    try:
        check_count(parameters["num_partitions"], "num_partitions")
    except ValueError as error:
        raise RuntimeError(f"{type(owner).__name__}: {error}, in its saved state") from error
    check_saved(_is_count(parameters["max_iterations"]), owner, "a number of iterations")
    chosen = parameters.get("categorical_features")
    check_saved(chosen is None or _are(chosen, lambda one: isinstance(one, str | int)), owner, "categorical features")


def _check_rows(owner: object, x: Any, y: Any) -> None:
    check_saved(torch.is_tensor(x) and x.dtype in _DTYPES and x.dim() == 2, owner, "training rows (N x D)")
    check_saved(x.numel() > 0 and x.isfinite().all(), owner, "finite training rows, one or more")
    is_right = torch.is_tensor(y) and y.dtype in _DTYPES and y.dim() in (1, 2) and len(y) == len(x)
    check_saved(is_right, owner, "a target for each row")
    known = y if y.dim() == 1 else y[~y.isnan()]
    check_saved(known.numel() > 0 and known.isfinite().all(), owner, "finite targets")


def _check_units(owner: object, state: Mapping[str, Any]) -> None:
    num_columns, y = state["train_x"].shape[1], state["train_y"]
    mean, scale = state["x_mean"], state["x_scale"]
    is_right = all(has_shape(each, num_columns) and each.dtype in _DTYPES for each in (mean, scale))
    check_saved(is_right and mean.isfinite().all(), owner, "a finite mean of each column")
    check_saved(((scale > 0) & scale.isfinite()).all(), owner, "a scale above 0 of each column")
    for name, least in (("y_mean", -torch.inf), ("y_scale", 0.0)):
        values = state[name] if y.dim() == 2 else [state[name]]
        are_right = _are(values, partial(_is_above, least))
        check_saved(are_right and len(values) == (y.shape[1] if y.dim() == 2 else 1), owner, f"{name} of each target")


def _check_of_rows(owner: object, state: Mapping[str, Any], num_rows: int) -> None:
    weights, numbers = state["row_weights"], state["counted_rows"]
    if weights is not None:
        check_saved(has_shape(weights, num_rows) and weights.is_floating_point(), owner, "a weight of each row")
        check_saved(((weights > 0) & weights.isfinite()).all(), owner, "weights above 0")
    if numbers is not None:
        check_saved(has_shape(numbers, num_rows) and numbers.dtype == torch.int64, owner, "a number of each row")
        check_saved((numbers >= 0).all() and len(numbers.unique()) == num_rows, owner, "distinct numbers of rows")


def _check_description(owner: object, state: Mapping[str, Any]) -> None:
    parts, noise, columns = state["parts"], state["noise"], state["view_columns"]
    known = {part.name for part in PARTS}
    is_right = parts is None or (_are(parts, known.__contains__) and 0 < len(parts) == len(set(parts)))
    check_saved(is_right, owner, "the names of its parts")
    check_saved(isinstance(noise, Mapping), owner, "what its noise is")
    check_saved(noise.get("long_tail") in (None, "above", "below"), owner, "the side of a long tail")
    if parts is not None:
        threshold = noise["threshold"]
        check_saved(isinstance(noise["noise_varies"], bool), owner, "whether its noise varies")
        check_saved(threshold is None or (_is_finite(threshold) and threshold >= 0), owner, "a threshold from 0")
    check_saved(columns is None or (_is_count(columns) and columns > 0), owner, "a number of columns of its view")
    density = state["log_predictive_density"]
    check_saved(density is None or isinstance(density, Real), owner, "a log predictive density")


def _check_names(owner: object, state: Mapping[str, Any]) -> None:
    y, encoder = state["train_y"], state["encoder"]
    num_columns = state["train_x"].shape[1] if encoder is None else len(encoder["columns"])
    num_targets = y.shape[1] if y.dim() == 2 else 1
    for name, size in (("feature_names", num_columns), ("target_names", num_targets)):
        names = state.get(name)
        is_right = names is None or (_are(names, lambda one: isinstance(one, str)) and len(names) == size)
        check_saved(is_right, owner, f"{size} {name}, or none")
    check_saved(_are(state["left_out"], lambda one: isinstance(one, str)), owner, "what it left out, in words")


def _check_numbers(owner: object, state: Mapping[str, Any]) -> None:
    value = state["log_marginal_likelihood_value"]
    check_saved(value is None or isinstance(value, Real), owner, "a log marginal likelihood")
    check_saved(_is_count(state["n_iter"]), owner, "a number of iterations")
    check_saved(isinstance(state["has_view"], bool), owner, "whether it has a view")
    check_saved(isinstance(state["at_bounds"], Mapping), owner, "which values are at their bounds")
    seconds = state["seconds"]
    check_saved(isinstance(seconds, Mapping) and _are([*seconds.values()], _is_finite), owner, "seconds of its stages")


def _are(values: Any, is_right: Callable[[Any], bool]) -> bool:
    return isinstance(values, Sequence) and not isinstance(values, str) and all(map(is_right, values))


def _is_count(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and 0 <= int(value) < 2**31


def _is_finite(value: Any) -> bool:
    return isinstance(value, Real) and abs(float(value)) < torch.inf


def _is_above(least: float, value: Any) -> bool:
    return _is_finite(value) and value > least
