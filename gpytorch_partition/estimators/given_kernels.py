"""Kernels given to estimators other than by name: classes, kernels of GPyTorch and tree ensembles, used or refused."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from inspect import Parameter, signature
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import (
    AdditiveKernel,
    CosineKernel,
    IndexKernel,
    InducingPointKernel,
    Kernel,
    ProductKernel,
    ScaleKernel,
    SpectralMixtureKernel,
)
from linear_operator import settings, to_linear_operator
from linear_operator.operators import DenseLinearOperator, LinearOperator
from sklearn.base import is_classifier
from torch import Tensor

from gpytorch_partition.inputs.numbers import random_state_of
from gpytorch_partition.kernels import (
    EncodedKernel,
    FastClusterKernel,
    IterativeKernel,
    MondrianKernel,
    RandomForestKernel,
    StandardizedKernel,
)
from gpytorch_partition.kernels.cluster_kernel import ClusterKernel
from gpytorch_partition.operators.algebra import structured_terms
from gpytorch_partition.partitions import Partition
from gpytorch_partition.partitions.ensembles.libraries import (
    check_has_trees,
    check_refittable,
    fitted_clone,
    is_ensemble,
    is_fitted,
    library_of,
)
from gpytorch_partition.presets.default import check_regression_ensemble

NAMED: dict[type, str] = {RandomForestKernel: "forest", FastClusterKernel: "fast_cluster", MondrianKernel: "mondrian"}
OF_STATE = "ensemble"  # name in states for the kernel of an ensemble, which a load cannot fit again
MOST_DENSE_ROWS = 2_000  # with more, a kernel without a structure would need an N x N matrix

# Names of parameters in this package's constructors: rows, targets and numbers of partitions.
_ROWS, _TARGETS, _COUNTS = "train_x", "train_y", ("num_partitions", "num_trees")
_TABLES = (
    "expected columns of numbers, as the ensemble or the kernel was built on, got text, categories or dates: encode "
    "them for both, as by OrdinalEncoder of scikit-learn, or give kernel='auto', which reads tables"
)

_NOT_ALONE = "expected a class of kernels that are built on rows, or without arguments"

# Names of scikit-learn's kernels, and of the same kernels in GPyTorch.
_OF_GPYTORCH = {
    "RBF": "RBFKernel",
    "Matern": "MaternKernel",
    "RationalQuadratic": "RQKernel",
    "ExpSineSquared": "PeriodicKernel",
    "DotProduct": "LinearKernel",
}


def is_data_free(kernel: Any) -> bool:
    """Return whether a kernel is one of GPyTorch alone, built on no rows, so that columns may be standardized."""
    ours = (ClusterKernel, StandardizedKernel, EncodedKernel)
    return isinstance(kernel, Kernel) and not any(isinstance(module, ours) for module in kernel.modules())


def name_of(kernel: Any) -> str | None:
    """Return the name that a parameter `kernel` is or stands for; None for other forms."""
    if isinstance(kernel, type):
        return NAMED.get(kernel)
    return kernel if isinstance(kernel, str) else None


def sees_raw_columns(kernel: Any) -> bool:
    """Return whether a parameter `kernel` sees columns as they are: a kernel built already, or a tree ensemble."""
    return (isinstance(kernel, Kernel) and not is_data_free(kernel)) or is_ensemble(kernel)


def name_or_function(kernel: Any, **options: Any) -> Any:
    """
    Return the name or function `(x, y) -> kernel` that a class, or an instance of GPyTorch's kernels, stands for.

    - :class:`~gpytorch_partition.RandomForestKernel`, :class:`~gpytorch_partition.FastClusterKernel` and
      :class:`~gpytorch_partition.MondrianKernel` stand for their names.
    - Another class of this package that takes `train_x` (and `train_y`) is built on the standardized rows (and
      targets), with the options (`num_partitions`, `random_state` and `n_jobs`) that it has as parameters.
    - A class of GPyTorch is built without arguments, with a lengthscale for each column if it has lengthscales.
    - An instance of GPyTorch is copied, and trained from its own values.
    - Anything else is returned.
    """
    if isinstance(kernel, type):
        return name_of(kernel) or _function_of_class(kernel, options)
    if is_data_free(kernel):
        return lambda x, y: deepcopy(kernel)
    return kernel


def check_dense_size(kernel: Kernel, x: Tensor) -> None:
    """Refuse kernels that would need an N x N matrix for more than 2,000 rows, or GPyTorch's `max_cholesky_size`."""
    if len(x) <= (limit := max(MOST_DENSE_ROWS, settings.max_cholesky_size.value())):
        return
    few = x[: x.shape[1] + 1]
    with torch.no_grad():
        covariance = to_linear_operator(kernel(few, few[:-1])).evaluate_kernel()
    if any(_has_dense_factor(term) for term in structured_terms(covariance)):
        name = type(kernel.base_kernel if isinstance(kernel, IterativeKernel) else kernel).__name__
        raise ValueError(
            f"expected {limit:,} rows or fewer, as a {name} like this has no structure, got {len(x):,}: "
            f"their matrices take {8 * len(x) ** 2 / 2**30:.3g} GiB each, give it through inducing points, lambda x, "
            "y: LandmarkKernel.from_kernel(k, x[:500]), a kernel of this package, or 'auto', which has a smooth part"
        )


def _has_dense_factor(operator: LinearOperator) -> bool:
    """Return whether a covariance of n and n - 1 points is a dense matrix or has such a factor."""
    if isinstance(operator, DenseLinearOperator):
        return operator.shape[-2] == operator.shape[-1] + 1
    return any(_has_dense_factor(part) for part in operator._args if isinstance(part, LinearOperator))


def kernel_of_ensemble(
    ensemble: Any, x: Tensor, y: Any, random_state: Any, *, grows: bool = False
) -> RandomForestKernel:
    """
    Return the kernel of an ensemble, at all heights of its trees.

    :param y: `N` targets for a clone. A clone is fitted if the ensemble is not fitted, or if `grows`, as folds need.
    :param random_state: Seeds clones of scikit-learn that have no seed.
    """
    check_has_trees(ensemble)
    if grows or not is_fitted(ensemble):
        check_refittable(ensemble)
        if y is None:
            raise ValueError(
                f"expected targets, which a clone of the {type(ensemble).__name__} is fitted to, got none: fit(X, y)"
            )
        ensemble = fitted_clone(ensemble, x.cpu().numpy(), np.asarray(y), random_state_of(random_state))
    return RandomForestKernel.from_forest(ensemble)


def check_given(kernel: Any, names: tuple[str, ...]) -> None:
    """Refuse, before any work, parameters `kernel` that no regressor can use."""
    if name_of(kernel) == OF_STATE:
        raise ValueError(
            "expected the ensemble again to fit, got a state, which keeps trees only: call set_params(kernel=ensemble)"
        )
    if is_ensemble(kernel):
        check_regression_ensemble(kernel)
    elif isinstance(kernel, type):
        name_or_function(kernel, num_partitions=1)
    elif isinstance(kernel, Kernel):
        check_one_output(kernel)
        check_has_rows(kernel)
    else:
        check_name(kernel, names)


def check_name(kernel: Any, names: tuple[str, ...]) -> None:
    """Refuse a parameter that is neither one of these names nor a class or function of rows and targets."""
    if callable(kernel):
        check_callable(kernel)
    elif not (isinstance(kernel, str) and kernel in names):
        raise ValueError(
            f"expected kernel to be one of {names}, a tree ensemble, a kernel, a class of kernels or a function, got "
            f"{kernel!r}"
        )


def check_callable(kernel: Any) -> None:
    """Refuse kernels of scikit-learn, and functions that do not take rows and targets."""
    if isinstance(kernel, type | Kernel):
        return
    _refuse_of_scikit_learn(type(kernel))
    try:
        parameters = signature(kernel)
    except ValueError:  # some functions written in C have no signature
        return
    try:
        parameters.bind(None, None)
    except TypeError as error:
        raise TypeError(
            "expected kernel as a function of rows and targets, (x, y) -> kernel, as lambda x, y: MondrianKernel(x, "
            f"200), got {getattr(kernel, '__name__', type(kernel).__name__)}{parameters}"
        ) from error


def check_columns_seen(kernel: Kernel, num_columns: int) -> None:
    """Refuse kernels of GPyTorch for another number of columns."""
    name = type(kernel).__name__
    if kernel.active_dims is not None:
        if int(kernel.active_dims.max()) >= num_columns:
            raise ValueError(
                f"expected active_dims below {num_columns}, the number of columns that the {name} is given, got "
                f"{kernel.active_dims.tolist()}"
            )
        num_columns = len(kernel.active_dims)
    while isinstance(kernel, ScaleKernel):  # which has the active_dims of its base kernel
        kernel = kernel.base_kernel
    if isinstance(kernel, AdditiveKernel | ProductKernel):
        for each in kernel.kernels:
            check_columns_seen(each, num_columns)
        return
    if isinstance(kernel, CosineKernel) and num_columns > 1:
        raise ValueError(
            f"expected one column for a CosineKernel, which is positive definite only there, got {num_columns}: give "
            "it one, CosineKernel(active_dims=(0,)), or a product or a sum of such kernels"
        )
    of_one = () if isinstance(kernel, SpectralMixtureKernel) else (None, 1)  # whose columns have a mean each
    if kernel.ard_num_dims not in (*of_one, num_columns):
        raise ValueError(
            f"expected one lengthscale, or {num_columns}, as the {type(kernel).__name__} is given {num_columns} "
            f"columns, got ard_num_dims={kernel.ard_num_dims}: give ard_num_dims={num_columns}, or active_dims too"
        )


def check_columns(ensemble: Any, estimator: Any) -> None:
    """Refuse tables for an ensemble with text, categories or dates, or other columns than those it was fitted to."""
    encoder = estimator.encoder_
    if encoder is not None and list(encoder.get_feature_names_out()) != list(encoder.feature_names_in_):
        raise ValueError(_TABLES)
    if estimator._categories or (encoder is not None and estimator.categorical_features is not None):
        raise ValueError(_TABLES)
    own, given = ([*map(str, getattr(each, "feature_names_in_", ()))] for each in (ensemble, estimator))
    if own and given and own != given:
        raise ValueError(
            f"expected the columns that the {type(ensemble).__name__} was fitted to, in their order, {own}, got "
            f"{given}: give X[ensemble.feature_names_in_]"
        )


def state_name(kernel: Any) -> str:
    """Return the name of a kernel in states of estimators; a function has none."""
    if is_ensemble(kernel):
        return OF_STATE
    if (name := name_of(kernel)) is not None:
        return name
    told = getattr(kernel, "__name__", type(kernel).__name__)
    raise TypeError(
        f"expected a kernel by name, or a tree ensemble, got {told}, which no plain value can stand for: pickle the "
        "estimator instead"
    )


def targets_of_ensemble(ensemble: Any, indicators: Tensor, classes: np.ndarray) -> np.ndarray:
    """Return an ensemble's targets of classification: classes, their numbers, or 0 and 1 for regressors."""
    numbers = (indicators[:, 0] if indicators.shape[1] == 1 else indicators.argmax(1)).long().numpy()
    if not hasattr(ensemble, "get_params") or library_of(ensemble) == "xgboost":
        return numbers
    if is_classifier(ensemble):
        return classes[numbers]
    if len(classes) > 2:
        name = type(ensemble).__name__
        raise TypeError(
            f"expected an ensemble of classes for {len(classes)} of them, got a {name}, which learns numbers: give a "
            "classifier, as RandomForestClassifier or LGBMClassifier"
        )
    return numbers.astype(np.float64)


def _function_of_class(kind: type, options: dict[str, Any]) -> Callable[[Tensor, Any], Kernel]:
    _refuse_of_scikit_learn(kind)
    if not issubclass(kind, Kernel):
        remedy = f": give an instance, {kind.__name__}()" if hasattr(kind, "fit") else ""
        raise TypeError(f"expected a class of kernels, got the class {kind.__name__}{remedy}")
    known = signature(kind).parameters
    needed = [name for name, each in known.items() if each.default is Parameter.empty and _is_named(each)]
    is_ours = issubclass(kind, ClusterKernel)
    if needed or (is_ours and _ROWS not in known):
        told = ", ".join(f"{name}=..." for name in needed or list(known)[:1])
        sees = ", which sees the columns as they are" if is_ours else ""
        raise TypeError(f"{_NOT_ALONE}, got {kind.__name__}: give an instance, kernel={kind.__name__}({told}){sees}")
    own = {name: value for name, value in options.items() if name in known}
    own |= {name: options["num_partitions"] for name in _COUNTS if name in known}

    def built(x: Tensor, y: Any) -> Kernel:
        if is_ours:
            return _built(kind, {_ROWS: x} | ({_TARGETS: y} if _TARGETS in known else {}) | own)
        return _built(kind, {"ard_num_dims": x.shape[1]} if getattr(kind, "has_lengthscale", False) else {})

    return built


def _built(kind: type, arguments: dict[str, Any]) -> Kernel:
    try:
        return kind(**arguments)
    except (TypeError, RuntimeError) as error:
        remedy = f"lambda x, y: {kind.__name__}(x, ...)" if _ROWS in arguments else f"{kind.__name__}(...)"
        raise TypeError(f"{_NOT_ALONE}, got {kind.__name__} ({error}): give kernel={remedy}") from error


def _refuse_of_scikit_learn(kind: type) -> None:
    from sklearn.gaussian_process.kernels import Kernel as KernelOfArrays

    if issubclass(kind, KernelOfArrays):
        name = _OF_GPYTORCH.get(kind.__name__)
        instead = "a kernel of gpytorch.kernels" if name is None else f"gpytorch.kernels.{name}()"
        raise TypeError(
            f"expected a kernel of GPyTorch or of this package, got {kind.__name__} of scikit-learn: give a name, or "
            f"{instead}, for others than PartitionGPRegressor by LandmarkKernel.from_kernel"
        )


def _is_named(parameter: Parameter) -> bool:
    return parameter.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


def check_one_output(kernel: Kernel) -> None:
    """Refuse batches of kernels, and kernels of several outputs for a row."""
    if kernel.batch_shape:
        raise ValueError(
            f"expected a kernel without batch dimensions, got {type(kernel).__name__} of batch shape "
            f"{tuple(kernel.batch_shape)}: fit an estimator for each, or several targets by one, fit(X, Y)"
        )
    row = torch.ones(1, 1)
    for each in kernel.modules():
        if isinstance(each, Kernel) and each.num_outputs_per_input(row, row) != 1:
            raise ValueError(
                f"expected a kernel of one output for each row, got a {type(each).__name__}, which has several: give "
                "that of the rows alone, and fit(X, Y) with targets N x T"
            )


def check_has_rows(kernel: Kernel) -> None:
    """Refuse kernels of this package that have no rows, as they are built to load a saved state."""
    for each in kernel.modules():
        partition = getattr(each, "partition", None)
        if isinstance(each, Kernel) and isinstance(partition, Partition) and not partition.is_fitted:
            name = type(each).__name__
            raise ValueError(
                f"expected a kernel that is built on rows, got a {name} of none: give {name}(torch.from_numpy(X), ...)"
            )


def check_standardizable(kernel: Kernel) -> None:
    """Refuse kernels that would be wrong on standardized columns, or whose values cannot be trained further."""
    for each in kernel.modules():
        if isinstance(each, InducingPointKernel):
            name = type(each.base_kernel).__name__
            raise ValueError(
                "expected a kernel without inducing points in units of its own, got an InducingPointKernel, whose "
                f"likelihood is its own too: give lambda x, y: LandmarkKernel.from_kernel({name}(...), x[:500])"
            )
        if isinstance(each, IndexKernel):
            raise ValueError(
                "expected a kernel of standardized columns, got an IndexKernel, which takes them for codes: give "
                "GroupKernel([0]), with the numbers of the columns of codes, alone or in a sum, which sees raw columns"
            )
        if isinstance(each, SpectralMixtureKernel) and _are_the_same(each):
            raise ValueError(
                f"expected a SpectralMixtureKernel whose {each.num_mixtures} mixtures differ, got equal ones, which "
                "stay so: set mixture_means, or give a function of x and y that calls initialize_from_data(x, y)"
            )


def _are_the_same(kernel: SpectralMixtureKernel) -> bool:
    """Return whether a kernel has several mixtures with equal means, scales and weights, the default of GPyTorch."""
    means, scales, weights = kernel.mixture_means, kernel.mixture_scales, kernel.mixture_weights.unsqueeze(-1)
    values = torch.cat([means.flatten(-2), scales.flatten(-2), weights], -1)
    return kernel.num_mixtures > 1 and bool((values == values[..., :1, :]).all())
