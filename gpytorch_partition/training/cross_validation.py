"""Weights of a sum of kernels and the noise by cross-validation, for any sum (Yuille 2014, lecture 9, section 1.3)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, TypeAlias

import torch
from gpytorch.kernels import AdditiveKernel, Kernel, ScaleKernel
from sklearn.model_selection import KFold
from torch import Tensor

from gpytorch_partition import settings
from gpytorch_partition.all_or_nothing import unchanged_by_errors
from gpytorch_partition.inputs.numbers import is_whole, random_state_of
from gpytorch_partition.inputs.standardization import Standardization
from gpytorch_partition.kernels.cluster_kernel import ClusterKernel
from gpytorch_partition.kernels.wrapper_kernels import IterativeKernel
from gpytorch_partition.training.predictive_density import Fold, dense_covariances, maximize_predictive_density

# A kernel that has not seen targets, or a function that builds one from rows and targets.
KernelSource: TypeAlias = Kernel | Callable[[Tensor, Tensor], Kernel]

_FEWEST_ROWS = 10  # fewer leave folds too small to choose anything


@dataclass(frozen=True, eq=False)
class CrossValidatedWeights:
    """Hold the weights that :func:`fit_weights_by_cross_validation` chooses."""

    kernel: Kernel  #: the sum, its weights set; kernels of functions are built on all rows
    outputscales: Tensor  #: `c` weights, in squared units of the targets
    noise: float  #: variance of the noise, in squared units of the targets
    mean: float  #: mean of the targets, which was subtracted
    log_density: float  #: mean log predictive density of a held-out row, in nats, for targets in their own units
    rows: Tensor  #: numbers of the rows that chose


def fit_weights_by_cross_validation(
    kernels: Kernel | Sequence[KernelSource],
    x: Tensor,
    y: Tensor,
    *,
    folds: int = 5,
    max_rows: int = 1_000,
    random_state: Any = None,
) -> CrossValidatedWeights:
    r"""
    Choose the weights of :math:`\sum_i s_i k_i` and the noise that predict held-out rows best, for any kernels.

    Use it where the marginal likelihood takes noise for signal, as of a kernel that was built on the targets. Each fold
    has kernels of its own, which have not seen its held-out rows: give kernels that look at targets as functions `(x,
    y) -> kernel`. Built ones of this package that have seen targets raise an error; others (a kernel of GPyTorch whose
    lengthscales were trained on all rows) may have seen them undetected.

    It maximizes the mean log density of single held-out rows (Rasmussen & Williams 2006, section 5.3, with folds). Each
    kernel is first divided by its mean variance; weights are then between about 1e-4 and 150 variances of the targets,
    and the noise is 1e-4 at least. Every factor e of the noise counts as a nat, as in
    :func:`~gpytorch_partition.training.predictive_density.maximize_predictive_density`. If a weight is at its lower
    bound, its kernel does not help.

    At most `max_rows` rows choose, since covariances are dense. A fold costs :math:`O(n^3)` some 60 times, and
    `8 c n^2` bytes for c kernels. Functions are called with the rows
    that a fold keeps, and once more with all rows for the kernel returned.

    :param kernels: A sum of :class:`gpytorch.kernels.ScaleKernel`, or one of them, whose outputscales are then set in
        place. Or a list of kernels without weights, and of functions from rows (`n x D`) and targets (`n`) to kernels;
        these do not change, and the sum returned consists of copies in the dtype of the rows.
    :param x: `N x D` rows, in the units of the kernels.
    :param y: `N` targets, in any unit.
    :param folds: Number of folds. (Default: 5.)
    :param max_rows: Number of rows that choose, a random sample if there are more. (Default: 1,000.)
    :param random_state: Seed of sample and folds, as in :class:`~gpytorch_partition.PartitionKernel`.
    :return: The kernel with its weights, the noise and the mean.
    :raises TypeError: If an item is no kernel or function, a kernel has seen targets, or a term of the sum is no scaled
        kernel.
    :raises ValueError: If there are no kernels, rows and targets do not match, are fewer than ten, not finite or do not
        vary, or `folds` or `max_rows` cannot be used.

    Example:
        >>> from gpytorch.kernels import LinearKernel, ScaleKernel
        >>> from gpytorch_partition import MondrianKernel, RandomForestKernel
        >>> x = torch.rand(300, 2, generator=torch.Generator().manual_seed(0))
        >>> y = (6 * x[:, 0]).sin() + x[:, 1] + 0.1 * torch.randn(300, generator=torch.Generator().manual_seed(1))
        >>> forest = lambda x, y: RandomForestKernel(x, y, 50, random_state=0)
        >>> found = fit_weights_by_cross_validation([forest, LinearKernel()], x, y, random_state=0)
        >>> len(found.kernel.kernels), 0.005 < found.noise < 0.04
        (2, True)
        >>> kernel = ScaleKernel(MondrianKernel(x, 50, random_state=0)) + ScaleKernel(LinearKernel())
        >>> found = fit_weights_by_cross_validation(kernel, x, y, random_state=0)  # sets the weights of the sum
        >>> torch.allclose(kernel.kernels[0].outputscale.double(), found.outputscales[0])
        True
    """
    scaled = _scaled_terms(kernels) if isinstance(kernels, Kernel) else None
    sources = [term.base_kernel for term in scaled] if scaled is not None else _checked_sources(kernels)
    for number, source in enumerate(sources):
        _refuse_seen_targets(number, source)
    _check_data(x, y, folds, max_rows)
    x, y = x.detach(), y.detach()
    random = random_state_of(random_state)
    rows = torch.from_numpy(random.permutation(len(y))[:max_rows])
    unit = Standardization.of(y.double(), are_targets=True)
    parts = list(_folds(sources, x[rows], y[rows], KFold(folds, shuffle=True, random_state=random)))
    sizes = torch.stack([fold.prior.mean(-1) for fold in parts]).mean(0).clamp_min(1e-300)
    found = maximize_predictive_density([_divided(fold, sizes) for fold in parts], unit.apply(y.double())[rows])
    variance = float(unit.scale) ** 2
    outputscales = found.outputscales * variance / sizes
    if scaled is None:
        scaled = [ScaleKernel(deepcopy(_built(source, x, y))).to(x) for source in sources]
    with unchanged_by_errors(*scaled):
        for term, outputscale in zip(scaled, outputscales):
            term.outputscale = outputscale.to(term.raw_outputscale)
    kernel = kernels if isinstance(kernels, Kernel) else reduce(add, scaled)
    log_density = found.log_density - 0.5 * math.log(variance)
    return CrossValidatedWeights(
        kernel, outputscales, found.noise * variance, float(unit.mean), log_density, rows.sort().values
    )


def _folds(sources: list[KernelSource], x: Tensor, y: Tensor, splits: KFold) -> Iterator[Fold]:
    for kept, held_out in splits.split(x):
        kernels = [_built(source, x[kept], y[kept]) for source in sources]
        with settings.iterative():
            covariances = dense_covariances(kernels, x)
        if not bool(covariances.isfinite().all()):
            raise ValueError("expected finite covariances of the rows, got NaN or infinity from one of the kernels")
        yield Fold.of(covariances, torch.from_numpy(kept), torch.from_numpy(held_out))


def _divided(fold: Fold, sizes: Tensor) -> Fold:
    within, cross = (part / sizes.view(-1, 1, 1) for part in (fold.within, fold.cross))
    return Fold(within, cross, fold.prior / sizes.unsqueeze(-1), fold.kept, fold.held_out)


def _built(source: KernelSource, x: Tensor, y: Tensor) -> Kernel:
    kernel = source if isinstance(source, Kernel) else source(x, y)
    if not isinstance(kernel, Kernel):
        raise TypeError(
            f"expected the function to return a kernel, as RandomForestKernel(x, y), got {type(kernel).__name__}"
        )
    if kernel.batch_shape:
        raise ValueError(
            f"expected kernels without batch shapes, got a {type(kernel).__name__} of {kernel.batch_shape}: drop it"
        )
    return kernel


def _scaled_terms(kernel: Kernel) -> list[ScaleKernel]:
    kernel = kernel.base_kernel if isinstance(kernel, IterativeKernel) else kernel
    terms = list(kernel.kernels) if isinstance(kernel, AdditiveKernel) else [kernel]
    for term in terms:
        if not isinstance(term, ScaleKernel) or term.batch_shape:
            raise TypeError(
                "expected a sum of ScaleKernel(...) without batch shapes, whose outputscales are the weights, got the "
                f"term {type(term).__name__}: wrap it, or give a list of kernels"
            )
    return terms


def _checked_sources(kernels: Any) -> list[KernelSource]:
    if not isinstance(kernels, Sequence) or isinstance(kernels, str):
        raise TypeError(f"expected a kernel, or a list of kernels and functions, got a {type(kernels).__name__}")
    if not len(kernels):
        raise ValueError("expected one kernel or more, got none")
    for source in kernels:
        if not callable(source):  # kernels are
            raise TypeError(f"expected kernels and functions (x, y) -> kernel, got a {type(source).__name__}")
    return list(kernels)


def _refuse_seen_targets(number: int, source: KernelSource) -> None:
    modules = source.modules() if isinstance(source, Kernel) else ()
    for module in modules:
        if isinstance(module, ClusterKernel) and module.has_seen_targets:
            name = type(module).__name__
            raise TypeError(
                f"expected kernels that have not seen targets, but kernel {number}, a {name}, was built on some, and "
                "held-out rows among them would be predicted too well: give a function instead, "
                f"lambda x, y: {name}(x, y, random_state=0), in a list of kernels"
            )


def _check_data(x: Any, y: Any, folds: int, max_rows: int) -> None:
    if not torch.is_tensor(x) or x.dim() != 2 or not x.is_floating_point():
        raise ValueError("expected x as an N x D floating point tensor, got another array or shape")
    if not torch.is_tensor(y) or y.shape != x.shape[:1] or not y.is_floating_point():
        got = tuple(y.shape) if torch.is_tensor(y) else type(y).__name__
        raise ValueError(f"expected one target for each of {len(x)} rows, as a floating point tensor, got {got}")
    if not bool(y.isfinite().all()):
        raise ValueError("expected finite targets, got NaN or infinity: drop these rows")
    if len(y) < _FEWEST_ROWS or bool((y == y[0]).all()):
        raise ValueError(f"expected {_FEWEST_ROWS} rows or more with targets that vary, got {len(y)}")
    if not is_whole(max_rows, _FEWEST_ROWS) or not is_whole(folds, 2, min(max_rows, len(y))):
        raise ValueError(
            f"expected max_rows to be {_FEWEST_ROWS} or more, and folds from 2 to the number of rows that choose, got "
            f"folds={folds!r}, max_rows={max_rows!r}"
        )
