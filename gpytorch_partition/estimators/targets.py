"""Several targets: reading and scoring them, and their model by marginal likelihood."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood
from linear_operator import to_linear_operator
from numpy.typing import NDArray
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_consistent_length
from torch import Tensor

from gpytorch_partition import settings
from gpytorch_partition.callers import level_of_caller
from gpytorch_partition.estimators.tables import refuse_times
from gpytorch_partition.inputs.text_targets import Remedies, odd_targets, told_of_odd
from gpytorch_partition.linalg.factors import stable_eigh
from gpytorch_partition.models import CoregionalizedGP, PartitionGP
from gpytorch_partition.presets.assembly import own_description, unfitted_kernel
from gpytorch_partition.progress import stage
from gpytorch_partition.tables.cells import is_missing
from gpytorch_partition.training.coregionalization import Coregionalization, fit_coregionalization
from gpytorch_partition.training.one_pass import fit_exact_gp

_REMEDIES = Remedies(
    words="make them missing entries, pandas.to_numeric(..., errors='coerce') of each target",
    classes="PartitionGPClassifier learns classes, of one target",
)
_FEWEST_ENTRIES = 2  # of a target, without which it has no variance


def has_several(y: Any) -> bool:
    """
    Return whether targets have two columns or more.

    Example:
        >>> has_several([[1.0, 2.0], [3.0, 4.0]]), has_several([[1.0], [3.0]]), has_several([1.0, 3.0])
        (True, False, False)
    """
    shape = getattr(y, "shape", None)
    if shape is None and isinstance(y, Sequence) and len(y) and isinstance(y[0], Sequence | np.ndarray):
        shape = (len(y), len(y[0])) if not isinstance(y[0], str) else (len(y),)
    return shape is not None and len(shape) == 2 and shape[1] > 1


def name_of_target(y: Any) -> list[str] | None:
    """
    Return the name of one target, such as a Series, in a list; None if it has none.

    Example:
        >>> import pandas as pd
        >>> name_of_target(pd.Series([1.0, 2.0], name="price")), name_of_target([1.0, 2.0])
        (['price'], None)
    """
    name = getattr(y, "name", None)
    return [str(name)] if isinstance(name, str | int) and name != "" else None


def read_targets(X: Any, y: Any) -> tuple[NDArray[np.float64], NDArray[np.object_] | None]:
    """
    Return targets as `N x T` numbers, NaN for missing entries, and their names where y is a data frame.

    :param X: Rows, as many as y has.
    :param y: `N x T` array, data frame or list of rows.
    :raises ValueError: If entries are no numbers, dates, durations or infinite, or a target has fewer than two.

    Example:
        >>> read_targets(np.zeros((2, 1)), [[1.0, None], [2.0, 3.0]])[0]  # doctest: +IGNORE_EXCEPTION_DETAIL
        Traceback (most recent call last):
        ValueError: expected two entries or more of every target, got 1 of y[:, 1]
    """
    values, names = _values(y)
    check_consistent_length(*X.values() if isinstance(X, Mapping) else [X], values)
    for number, count in enumerate((~np.isnan(values)).sum(0)):
        if count < _FEWEST_ENTRIES:
            told = f"y[:, {number}]" if names is None else repr(names[number])
            raise ValueError(
                f"expected two entries or more of every target, got {count} of {told}: drop this target, which nothing "
                "can be learned about"
            )
    return values, names


def known_score(y: Any, mean: NDArray[np.float64], names: Sequence[str], sample_weight: Any = None) -> float:
    r"""
    Return the mean over targets of :math:`R^2`, each over the rows where the target is known.

    With every entry known it is scikit-learn's score of a regressor with several outputs.

    :param y: `N x T` targets, as for `fit`; None and NaN are missing entries.
    :param mean: `N x T` predictions.
    :param names: `T` names of the targets.
    :param sample_weight: `N` weights of the rows. (Default: None, 1.)
    :raises ValueError: If y is of another shape, infinite, or knows a target of fewer than two rows.

    Example:
        >>> known_score([[1.0, 5.0], [2.0, None], [3.0, 7.0]], np.array([[1.0, 5.0], [2.0, 0.0], [3.0, 7.0]]), "ab")
        1.0
    """
    values = _values(y)[0]
    if values.shape != mean.shape:
        raise ValueError(f"expected targets of shape {mean.shape}, one column for each target, got {values.shape}")
    known = ~np.isnan(values)
    for name, count in zip(names, known.sum(0)):
        if count < _FEWEST_ENTRIES:
            raise ValueError(
                f"expected two known entries or more of target {name}, got {count}: R squared has no value. Score rows "
                "where it is known, or the other targets by sklearn.metrics"
            )
    weights = np.ones(len(values)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    check_consistent_length(values, weights)
    each = [
        r2_score(own[rows], found[rows], sample_weight=weights[rows])
        for own, found, rows in _columns(values, mean, known)
    ]
    return float(np.mean(each))


def _columns(*matrices: NDArray[Any]) -> Iterator[tuple[NDArray[Any], ...]]:
    return zip(*(matrix.T for matrix in matrices))


def _values(y: Any) -> tuple[NDArray[np.float64], NDArray[np.object_] | None]:
    names = np.array([str(name) for name in y.columns], dtype=object) if hasattr(y, "columns") else None
    values = _numbers(y.to_numpy() if hasattr(y, "columns") and hasattr(y, "to_numpy") else np.asarray(y))
    if np.isinf(values).any():
        raise ValueError("Input y contains infinity: expected finite targets, or NaN for missing ones. Drop the others")
    return values, names


def _numbers(values: np.ndarray) -> NDArray[np.float64]:
    if values.dtype.kind == "c":
        raise ValueError("Complex data not supported: expected targets that are real numbers")
    refuse_times(values)
    if values.dtype.kind == "O":
        values = np.where(np.vectorize(is_missing, otypes=[bool])(values), np.nan, values)
    if values.dtype.kind in "OUT" and (odd := odd_targets(values, "row {0} of y[:, {1}]")):
        raise ValueError(f"expected targets that are numbers: {told_of_odd(odd, values.size, _REMEDIES)}")
    return np.ascontiguousarray(values, dtype=np.float64)  # the memory layout changes the rounding of sums


def known_rows(y: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which rows have a known target (`N`), and warn of the others."""
    known = np.asarray(~np.isnan(y).all(1))
    if not known.all():
        missing = int((~known).sum())
        warnings.warn(
            f"{missing} of {len(y)} rows are left out, the first of them row {int((~known).argmax())}: none of their "
            f"{y.shape[1]} targets is known",
            UserWarning,
            stacklevel=level_of_caller(),
        )
    return known


def fit_targets(
    x: Tensor,
    y: Tensor,
    new_kernel: Callable[[Tensor], tuple[Kernel, Tensor]],
    grown_on: Tensor,
    *,
    max_iterations: int,
) -> tuple[CoregionalizedGP, float]:
    """
    Return a model of several targets with one kernel, fitted by marginal likelihood, and its log likelihood.

    A kernel with parameters of its own is trained on the first principal component of the targets; then their
    covariance, noise and means maximize the marginal likelihood
    (:func:`~gpytorch_partition.training.coregionalization.fit_coregionalization`).

    :param x: `N x D` standardized rows.
    :param y: `N x T` standardized targets; NaN is a missing entry.
    :param new_kernel: Function from targets without missing entries to the kernel and the rows that the model holds.
    :param grown_on: `N x T` these targets.
    :param max_iterations: L-BFGS iterations at most, where the kernel has parameters of its own.
    """
    with stage("building the kernel"):
        kernel, x = new_kernel(grown_on)
        model = PartitionGP(x, _first_component(grown_on).to(x), GaussianLikelihood(), kernel)
    with stage("fitting noise and scales"), settings.iterative():
        if any(parameter.requires_grad for parameter in kernel.parameters()):
            fit_exact_gp(model, model.likelihood, max_iterations=max_iterations)
        kernel, points = model.covar_module.base_kernel.requires_grad_(False).train(), model.train_inputs[0]
        # In training mode, with gradients enabled, kernels of ensembles detect training, and may warn.
        covariance = to_linear_operator(kernel(points, points)).evaluate_kernel()
        with torch.no_grad():
            found = fit_coregionalization(covariance, y)
        return CoregionalizedGP(x, y, kernel.eval(), found), found.log_likelihood


def _first_component(y: Tensor) -> Tensor:
    """Return the first principal component of targets (`N`), of unit variance."""
    centred = y.double() - y.double().mean(0)
    component = centred @ stable_eigh(centred.mT @ centred)[1][:, -1]
    return component / component.std().clamp_min(torch.finfo(component.dtype).tiny)


def rebuilt_targets(state: Mapping[str, Any], train_x: Tensor, train_y: Tensor, kernel: Kernel) -> CoregionalizedGP:
    """
    Return an unfitted model of several targets of the same kind as a saved one, for `load_state_dict`.

    :param state: The result of its estimator's `to_state`.
    :param train_x: `N x D` rows of that model.
    :param train_y: `N x T` targets of that model.
    :param kernel: An unfitted kernel of the same kind, for models that are no default ones.
    """
    description = own_description(state)
    if description["parts"] is not None:
        kernel = unfitted_kernel(description, train_x.shape[1])
    num_targets = train_y.shape[1]
    ones = torch.ones(num_targets, dtype=torch.float64)
    unfitted = Coregionalization(ones.diag(), ones, ones, 0.0)
    return CoregionalizedGP(train_x, train_y, kernel, unfitted, description if description["parts"] else None)
