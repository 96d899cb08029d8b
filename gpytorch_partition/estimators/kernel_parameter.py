"""Kernels of estimators by their parameter `kernel`: a name, a function, a kernel or a tree ensemble."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from inspect import signature
from typing import Any, TypeAlias

import numpy as np
import torch
from gpytorch.kernels import AdditiveKernel, CosineKernel, IndexKernel, InducingPointKernel, Kernel, ScaleKernel
from linear_operator import settings, to_linear_operator
from linear_operator.operators import DenseLinearOperator, LinearOperator
from sklearn.base import is_classifier
from sklearn.gaussian_process.kernels import Kernel as KernelOfArrays
from torch import Tensor

from gpytorch_partition.estimators.checks import check_count
from gpytorch_partition.inputs.numbers import MOST_PARTITIONS, random_state_of
from gpytorch_partition.kernels import (
    DeferredKernel,
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
from gpytorch_partition.partitions.ensembles import libraries
from gpytorch_partition.partitions.fast_cluster import default_height
from gpytorch_partition.presets.default import check_regression_ensemble
from gpytorch_partition.tables import NumberView, needs_view, view_in_folds

KERNELS = {"forest": RandomForestKernel, "fast_cluster": FastClusterKernel, "mondrian": MondrianKernel}
NAMES = ("auto", *KERNELS)

#: The type of the parameter `kernel` of estimators.
KernelLike: TypeAlias = Any  # a name, a function (x, y) -> kernel, a kernel, or a tree ensemble
OF_STATE = "ensemble"  # name in states for the kernel of an ensemble, which a load cannot fit again
MOST_DENSE_ROWS = 2_000  # with more, a kernel without a structure would need an N x N matrix


def resolved_kernel(
    kernel: KernelLike,
    x: Tensor,
    y: Tensor | None = None,
    *,
    num_partitions: int = 200,
    random_state: Any = None,
    n_jobs: int | None = None,
    categories: Mapping[int, int] | None = None,
    sample_weight: Tensor | None = None,
) -> Kernel:
    """
    Return the kernel of an estimator: a kernel that is built already, or a new one, built on rows.

    :param kernel: A name of `KERNELS` or a function `(x, y) -> kernel`, which build one on these rows. Or a kernel of
        this package, a sum of such, or a :class:`gpytorch.kernels.ScaleKernel` or
        :class:`~gpytorch_partition.StandardizedKernel` around them, which is used as it is, and not trained. Or a tree
        ensemble, as in :meth:`~gpytorch_partition.RandomForestKernel.from_forest`; of an unfitted one a clone is
        fitted.
    :param x: `N x D` rows: standardized ones, unless the kernel is built already or an ensemble.
    :param y: `N` targets or `N x k` indicators of classes; None where there are none, which `"forest"` refuses.
    :param categories: The number of levels of each column that holds codes, by its number. A forest splits them into
        sets; other kernels are built on a :class:`~gpytorch_partition.tables.NumberView`. (Default: none.)
    :param sample_weight: `N` weights of the rows for forests and views. (Default: None, 1.)
    :raises ValueError: If it is an unknown name, or a kernel or rows that cannot be used.
    :raises TypeError: If it is anything else, or a kernel that is not linear in the number of rows.
    """
    check_count(num_partitions, "num_partitions", most=MOST_PARTITIONS)
    if libraries.is_ensemble(kernel):
        return kernel_of_ensemble(kernel, x, y, random_state)
    built = kernel
    if not isinstance(kernel, Kernel):
        check_name(kernel, tuple(KERNELS))
        options = {"num_partitions": num_partitions, "random_state": random_state, "n_jobs": n_jobs}
        built = new_kernel(kernel, x, y, categories=categories, sample_weight=sample_weight, **options)
    _check_linear(built)
    check_kernel(built)
    return built


def new_kernel(
    kernel: str | Callable[[Tensor, Any], Kernel],
    x: Tensor,
    y: Tensor | None,
    *,
    num_partitions: int,
    random_state: Any,
    n_jobs: int | None,
    categories: Mapping[int, int] | None = None,
    sample_weight: Tensor | None = None,
) -> Kernel:
    """Build a kernel on rows, by a name of `KERNELS` or by a function, which may return any kernel of GPyTorch."""
    categories = categories or {}
    if kernel != "forest" and needs_view(x, categories):
        view = NumberView(x if y is None else x[: len(y)], categories, y, weights=sample_weight)
        options = {"num_partitions": num_partitions, "random_state": random_state, "n_jobs": n_jobs}
        return EncodedKernel(new_kernel(kernel, view(x), y, **options), view)
    if callable(kernel):
        built = kernel(x, y)
        if not isinstance(built, Kernel):
            raise TypeError(f"expected the function to return a gpytorch Kernel, got {type(built).__name__}")
        check_kernel(built)
        check_standardizable(built, x.shape[-1])
        return built
    if kernel == "forest":
        if y is None:
            raise ValueError("expected targets for kernel='forest', got none: call fit(X, y), or give 'fast_cluster'")
        options = {"random_state": random_state, "n_jobs": n_jobs}
        columns = tuple(categories)
        return RandomForestKernel(x, y, num_partitions, categories=columns, sample_weight=sample_weight, **options)
    if kernel == "fast_cluster":
        # Rows without targets do not count: they would make clusters finer, which predict worse.
        height = default_height(len(x) if y is None else len(y))
        return FastClusterKernel(x, num_partitions, height=height, random_state=random_state)
    lifetime = 1.0 if bool((x == x[0]).all()) else None  # without distances there is no scale to go by
    kernel = MondrianKernel(x, num_partitions, lifetime=lifetime, random_state=random_state)
    kernel.has_usual_width = False  # the name chooses it
    return kernel


def kernel_and_rows(
    kernel: KernelLike, x: Tensor, y: Tensor, points: Tensor, *, categories: Mapping[int, int], **options: Any
) -> tuple[Kernel, Tensor]:
    """
    Return a kernel for training by marginal likelihood, built on `points` (training rows first), and its rows.

    Where categories become mean targets, rows hold their fold (:meth:`~gpytorch_partition.tables.NumberView.in_folds`).
    """
    if kernel == "forest" or not needs_view(points, categories):
        return new_kernel(kernel, points, y, categories=categories, **options), x
    random = random_state_of(options["random_state"])
    view, rows = view_in_folds(x, categories, y, random, options.get("sample_weight"))
    seen = view(torch.cat([rows, points[len(x) :]]))
    return EncodedKernel(new_kernel(kernel, seen, y, **options), view), rows


def _check_linear(kernel: Kernel) -> None:
    if isinstance(kernel, AdditiveKernel):
        for term in kernel.kernels:
            _check_linear(term)
    elif isinstance(kernel, (ScaleKernel, StandardizedKernel, EncodedKernel, IterativeKernel)):
        _check_linear(kernel.base_kernel)
    elif not isinstance(kernel, ClusterKernel):
        raise TypeError(
            f"expected a kernel of this package, got a {type(kernel).__name__}, whose products are not linear in the "
            "rows: give LandmarkKernel.from_kernel(kernel, points)"
        )


def name_of(kernel: Any) -> str | None:
    return kernel if isinstance(kernel, str) else None


def sees_raw_columns(kernel: Any) -> bool:
    """Return whether a parameter `kernel` sees columns as they are: a kernel built on rows, or a tree ensemble."""
    of_rows = (ClusterKernel, StandardizedKernel, EncodedKernel)
    is_built = isinstance(kernel, Kernel) and any(isinstance(module, of_rows) for module in kernel.modules())
    return is_built or libraries.is_ensemble(kernel)


def check_takes_unlabelled(kernel: Any) -> None:
    if sees_raw_columns(kernel):
        told = f"a {type(kernel).__name__}, which is built already: give a function (x, y) -> kernel"
        raise ValueError(f"expected no unlabelled rows with this kernel, got {told}")
    if name_of(kernel) in ("auto", "forest"):
        raise ValueError(
            f"kernel={kernel!r} learns its partitions from targets, which unlabelled rows lack: give "
            "kernel='fast_cluster' or 'mondrian', or a function that builds a kernel on rows alone"
        )


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
            f"expected {limit:,} rows or fewer, as a {name} like this has no structure, got {len(x):,}: give inducing "
            "points, lambda x, y: LandmarkKernel.from_kernel(k, x[:500]), a kernel of this package, or 'auto'"
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
    libraries.check_has_trees(ensemble)
    if grows or not libraries.is_fitted(ensemble):
        libraries.check_refittable(ensemble)
        if y is None:
            name = type(ensemble).__name__
            raise ValueError(f"expected targets, which a clone of the {name} is fitted to, got none: fit(X, y)")
        ensemble = libraries.fitted_clone(ensemble, x.cpu().numpy(), np.asarray(y), random_state_of(random_state))
    return RandomForestKernel.from_forest(ensemble)


def check_given(kernel: Any, names: tuple[str, ...]) -> None:
    if name_of(kernel) == OF_STATE:
        raise ValueError("expected the ensemble again to fit, got a state of its trees: set_params(kernel=ensemble)")
    if libraries.is_ensemble(kernel):
        check_regression_ensemble(kernel)
    elif isinstance(kernel, Kernel):
        check_kernel(kernel)
    else:
        check_name(kernel, names)


def check_name(kernel: Any, names: tuple[str, ...]) -> None:
    is_function = callable(kernel) and not isinstance(kernel, type | KernelOfArrays)
    with suppress(ValueError):  # some functions written in C have no signature
        try:
            signature(kernel).bind(None, None)
        except TypeError:
            is_function = False
    if not is_function and not (isinstance(kernel, str) and kernel in names):
        others = "a tree ensemble, a kernel of GPyTorch or of this package, or a function (x, y) -> kernel"
        told = f"expected kernel to be one of {names}, {others}, got {kernel!r:.100}"
        raise TypeError(told) if callable(kernel) else ValueError(told)


def check_kernel(kernel: Kernel) -> None:
    """Refuse batches of kernels, kernels of several outputs for a row, and kernels built to load a state."""
    if any(isinstance(each, DeferredKernel) for each in kernel.modules()):  # before it is asked anything, by one row
        raise ValueError("expected a kernel built on rows, got a DeferredKernel: give a function (x, y) -> kernel")
    row = torch.ones(1, 1)
    for each in kernel.modules():
        name, partition = type(each).__name__, getattr(each, "partition", None)
        if isinstance(each, Kernel) and (each.batch_shape or each.num_outputs_per_input(row, row) != 1):
            raise ValueError(
                f"expected a kernel without batch dimensions and of one output for each row, got a {name} of batch "
                f"shape {tuple(each.batch_shape)}: fit several targets by fit(X, Y)"
            )
        if isinstance(each, Kernel) and isinstance(partition, Partition) and not partition.is_fitted:
            raise ValueError(f"expected a kernel that is built on rows, got a {name} of none: give {name}(x, ...)")


def check_standardizable(kernel: Kernel, num_columns: int) -> None:
    """Refuse kernels that would be wrong on standardized columns, or with so many of them."""
    for each in kernel.modules():
        if isinstance(each, InducingPointKernel | IndexKernel):
            raise ValueError(
                f"expected a kernel of standardized columns, got an {type(each).__name__}: give GroupKernel([0]) for "
                "codes, LandmarkKernel.from_kernel(kernel, x[:500]) for inducing points"
            )
        seen = num_columns if getattr(each, "active_dims", None) is None else len(each.active_dims)
        if isinstance(each, CosineKernel) and seen > 1:
            raise ValueError(
                f"expected one column for a CosineKernel, which is positive definite only there, got {seen}: give "
                "CosineKernel(active_dims=(0,))"
            )


def check_columns(ensemble: Any, estimator: Any) -> None:
    """Refuse tables for an ensemble with text, categories or dates, or other columns than those it was fitted to."""
    encoder = estimator.encoder_
    has_dates = encoder is not None and list(encoder.get_feature_names_out()) != list(encoder.feature_names_in_)
    if has_dates or estimator._categories or (encoder is not None and estimator.categorical_features is not None):
        raise ValueError(
            "expected columns of numbers, as the ensemble or the kernel was built on, got text, categories or dates: "
            "give the numbers that it was fitted to (levels of a frame that are numbers as they are, codes if it was "
            "fitted to codes), or kernel='auto'"
        )
    own, given = ([*map(str, getattr(each, "feature_names_in_", ()))] for each in (ensemble, estimator))
    if own and given and own != given:
        raise ValueError(
            f"expected the columns that the {type(ensemble).__name__} was fitted to, in their order, {own}, got "
            f"{given}: give X[ensemble.feature_names_in_]"
        )


def state_name(kernel: Any) -> str:
    if libraries.is_ensemble(kernel):
        return OF_STATE
    if isinstance(kernel, str):
        return kernel
    got = getattr(kernel, "__name__", type(kernel).__name__)
    raise TypeError(
        f"expected a kernel by name, or a tree ensemble, got {got}, which no plain value can stand for: pickle the "
        "estimator instead"
    )


def targets_of_ensemble(ensemble: Any, indicators: Tensor, classes: np.ndarray) -> np.ndarray:
    """Return an ensemble's targets of classification: classes, their numbers, or 0 and 1 for regressors."""
    numbers = (indicators[:, 0] if indicators.shape[1] == 1 else indicators.argmax(1)).long().numpy()
    if not hasattr(ensemble, "get_params") or libraries.library_of(ensemble) == "xgboost":
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
