"""Kernels of estimators by their parameter `kernel`: a name, a function or a kernel that is built already."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch
from gpytorch.kernels import AdditiveKernel, Kernel, ScaleKernel
from torch import Tensor

from gpytorch_partition.estimators.checks import check_count
from gpytorch_partition.estimators.given_kernels import (
    check_columns_seen,
    check_has_rows,
    check_name,
    check_one_output,
    check_standardizable,
    kernel_of_ensemble,
    name_or_function,
)
from gpytorch_partition.inputs.numbers import MOST_PARTITIONS, random_state_of
from gpytorch_partition.kernels import (
    EncodedKernel,
    FastClusterKernel,
    IterativeKernel,
    MondrianKernel,
    RandomForestKernel,
    StandardizedKernel,
)
from gpytorch_partition.kernels.cluster_kernel import ClusterKernel
from gpytorch_partition.partitions.ensembles.libraries import is_ensemble
from gpytorch_partition.partitions.fast_cluster import default_height
from gpytorch_partition.tables import NumberView, needs_view, view_in_folds

KERNELS = {"forest": RandomForestKernel, "fast_cluster": FastClusterKernel, "mondrian": MondrianKernel}

#: The type of the parameter `kernel` of estimators.
KernelLike: TypeAlias = Any  # a name, a function (x, y) -> kernel, a class of kernels, a kernel, or a tree ensemble


def is_built(kernel: Any) -> bool:
    """Return whether a parameter `kernel` is a kernel itself, for which rows are not standardized."""
    return isinstance(kernel, Kernel)


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
        this package, which is used as it is, and not trained: of partitions, slopes or landmarks, a sum of such, or a
        :class:`gpytorch.kernels.ScaleKernel` or :class:`~gpytorch_partition.StandardizedKernel` around them. Or a class
        of kernels, as in :func:`~gpytorch_partition.estimators.given_kernels.name_or_function`. Or a tree ensemble, as
        in :meth:`~gpytorch_partition.RandomForestKernel.from_forest`; of an unfitted one a clone is fitted.
    :param x: `N x D` rows: standardized ones, unless the kernel is built already or an ensemble.
    :param y: `N` targets or `N x k` indicators of classes; None where there are none, which `"forest"` refuses.
    :param categories: The number of levels of each column that holds codes, by its number. A forest splits them into
        sets; other kernels are built on a :class:`~gpytorch_partition.tables.NumberView`. (Default: none.)
    :param sample_weight: `N` weights of the rows for `"forest"`, and for medians and mean targets of views. (Default:
        None, 1.)
    :raises ValueError: If it is an unknown name, or a kernel or rows that cannot be used.
    :raises TypeError: If it is anything else, or a kernel that is not linear in the number of rows.

    Example:
        >>> import torch
        >>> x = torch.rand(50, 2, generator=torch.Generator().manual_seed(0))
        >>> kernel = resolved_kernel("fast_cluster", x, num_partitions=30, random_state=0)
        >>> type(kernel).__name__, kernel.num_partitions, resolved_kernel(kernel, x) is kernel
        ('FastClusterKernel', 30, True)
    """
    check_count(num_partitions, "num_partitions", most=MOST_PARTITIONS)
    built: Any = kernel
    if is_ensemble(kernel):
        return kernel_of_ensemble(kernel, x, y, random_state)
    if not is_built(kernel):
        check_name(kernel, tuple(KERNELS))
        options = {"num_partitions": num_partitions, "random_state": random_state, "n_jobs": n_jobs}
        named = name_or_function(kernel, **options)
        built = new_kernel(named, x, y, categories=categories, sample_weight=sample_weight, **options)
    _check_linear(built)
    check_one_output(built)
    check_has_rows(built)
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
        check_columns_seen(built, x.shape[-1])
        check_one_output(built)
        check_has_rows(built)
        check_standardizable(built)
        return built
    if kernel == "forest":
        if y is None:
            raise ValueError(
                'expected targets, which kernel="forest" is grown on, got none: call fit(X, y), or give "fast_cluster"'
            )
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
    kernel: str | Callable[[Tensor, Any], Kernel],
    x: Tensor,
    y: Tensor,
    points: Tensor,
    *,
    categories: Mapping[int, int],
    random_state: Any,
    **options: Any,
) -> tuple[Kernel, Tensor]:
    """
    Return a kernel for training by marginal likelihood, built on `points` (training rows first), and its rows.

    Where categories become mean targets, training rows hold the number of their fold, so that the kernel sees mean
    targets of other folds (:meth:`~gpytorch_partition.tables.NumberView.in_folds`).
    """
    options = {**options, "random_state": random_state}
    if kernel == "forest" or not needs_view(points, categories):
        return new_kernel(kernel, points, y, categories=categories, **options), x
    view, rows = view_in_folds(x, categories, y, random_state_of(random_state), options.get("sample_weight"))
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
            f"expected a kernel of this package, a sum or a ScaleKernel of such, got a {type(kernel).__name__}, whose "
            "products are not linear in the rows: give LandmarkKernel.from_kernel(kernel, points)"
        )
