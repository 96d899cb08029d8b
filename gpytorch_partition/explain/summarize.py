"""Computation of the numbers in summaries of fitted models."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from gpytorch_partition.explain.kernel_parts import KernelExpansion, KernelPart, covariance_shares
from gpytorch_partition.explain.summary import ClassSummary, ModelSummary, PartSummary, TargetSummary
from gpytorch_partition.inputs.standardization import Standardization
from gpytorch_partition.kernels import LandmarkKernel, LocalLinearKernel, PartitionMixtureKernel, RandomForestKernel
from gpytorch_partition.likelihoods import student_t_noise, weights_of
from gpytorch_partition.likelihoods.fitc_likelihood import noise_variances
from gpytorch_partition.models import CoregionalizedGP, PartitionGP
from gpytorch_partition.models.counted_gp import CountedGP
from gpytorch_partition.presets.assembly import description_of
from gpytorch_partition.settings import iterative

_MOST_ROWS = 5_000  # training rows, evenly spread, for shares of variances
_OUTLIER = 0.25  # of the usual weight, below which a row is an outlier
_SKEWED = 1.0  # skewness above which logarithms are advised


@torch.no_grad()
def model_summary(
    model: Any, unit: Standardization, columns: list[str], names: list[str], **others: Any
) -> ModelSummary:
    """
    Return the summary of a fitted model, in evaluation mode.

    Shares come from at most 5,000 training rows, by two products with each part, and a solve before the first
    prediction. Shares of several targets are those of all together.

    :param model: A model of one target, of several, or of counted rows.
    :param unit: The standardization of its targets.
    :param columns: Names of the model's columns (a date of a table has several).
    :param names: Names of several targets, or none.
    :param others: The other fields of :class:`ModelSummary`.
    """
    some = _some_of(model.train_inputs[0])
    if isinstance(model, CountedGP):
        found = _of_counts(model, unit, columns, some)
    elif isinstance(model, CoregionalizedGP):
        found = _of_targets(model, unit, columns, names, some)
    else:
        found = _of_one_target(model, unit, columns, some)
    return ModelSummary(**{"num_rows": len(model.train_inputs[0]), **found, **others})


@torch.no_grad()
def class_summary(
    functions: KernelExpansion, link: Any, classes: list[Any], columns: list[str], **others: Any
) -> ClassSummary:
    """
    Return the summary of a fitted classifier. Costs a product with each part for the classes, at 5,000 rows at most.

    :param functions: The functions of the classes' indicators.
    :param link: The link from these functions to probabilities.
    :param classes: The classes.
    :param columns: Names of the model's columns.
    :param others: The other fields of :class:`ClassSummary`.
    """
    some = _some_of(functions.train_x)
    shares = (round(float(share), 12) for share in link.frequencies)
    return ClassSummary(
        num_rows=len(functions.train_x),
        parts=_described(functions, columns, some, covariance_shares(functions.part_means(some)))[0],
        frequencies=dict(zip(classes, shares)),
        width=float(link.width),
        power=float(link.power),
        **others,
    )


def title_of(estimator: Any) -> str:
    """Return a title: the class of an estimator, and its parameter `kernel`."""
    kernel = estimator.kernel
    shown = repr(kernel) if isinstance(kernel, str) else getattr(kernel, "__name__", type(kernel).__name__)
    return f"{type(estimator).__name__} with kernel={shown}"


def _of_one_target(model: PartitionGP, unit: Standardization, columns: list[str], some: Tensor) -> dict[str, Any]:
    functions, scale = KernelExpansion.of_model(model), float(unit.scale)
    means = functions.part_means(some)
    parts, prior = _described(functions, columns, some, covariance_shares(means))
    return {
        "parts": parts,
        "target_std": scale * float(model.train_targets.double().std(correction=0)),
        "function_std": scale * float(means.sum(1).std(correction=0)),
        "prior_std": scale * prior**0.5,
        "long_tail": description_of(model)["noise"].get("long_tail"),
        "is_skewed": is_skewed(unit.undo(model.train_targets.double())),
        **_of_noise(model.likelihood, scale, some),
    }


def _of_noise(likelihood: Any, scale: float, some: Tensor) -> dict[str, Any]:
    noise = scale * noise_variances(likelihood, some).double().sqrt()
    weights, tails = weights_of(likelihood), student_t_noise(likelihood)
    weights = weights if weights is not None and tails is None and bool((weights != 1).any()) else None
    varies = bool((noise - noise[0]).abs().max() > 1e-6 * noise[0])
    return {
        "noise_std": float(noise.square().mean().sqrt()),
        "noise_range": (float(noise.min()), float(noise.max())) if varies else None,
        "row_weights": (float(weights.min()), float(weights.max())) if weights is not None else None,
        "degrees_of_freedom": None if tails is None else float(tails.df),
        "num_outliers": 0 if tails is None else int((tails.weights < _OUTLIER * tails.weights.median()).sum()),
    }


def _of_counts(model: CountedGP, unit: Standardization, columns: list[str], some: Tensor) -> dict[str, Any]:
    """Return the fields of a model of counted rows; shares of variances are those of its sample."""
    functions, scale = KernelExpansion(model.covar_module, some, torch.empty(0)), float(unit.scale)
    parts, prior = _described(functions, columns, some, torch.ones(1))
    return {
        "num_rows": model.num_rows,
        "parts": parts,
        "target_std": scale * model.target_variance**0.5,
        "function_std": scale * float(model(some).mean.std(correction=0)),
        "prior_std": scale * prior**0.5,
        "noise_std": scale * float(model.likelihood.noise) ** 0.5,
    }


def _of_targets(
    model: CoregionalizedGP, unit: Standardization, columns: list[str], names: list[str], some: Tensor
) -> dict[str, Any]:
    functions, scales = KernelExpansion.of_model(model), model.task_covariance.diagonal()
    means = functions.part_means(some)
    parts, prior = _described(functions, columns, some, covariance_shares(means))
    deviations = means.sum(1).std(-1, correction=0)
    return {
        "parts": parts,
        "target_std": 1.0,
        "function_std": float(deviations.square().mean().sqrt()),
        "prior_std": max(0.0, float(scales.mean()) * prior) ** 0.5,
        "noise_std": float(model.noise.mean().sqrt()),
        "targets": _each_target(model, unit, names, deviations),
    }


def _each_target(
    model: CoregionalizedGP, unit: Standardization, names: list[str], deviations: Tensor
) -> tuple[TargetSummary, ...]:
    """Return a summary of each target; their means have these standard deviations (`T`)."""
    root = model.task_covariance.diagonal().sqrt()
    correlations = (model.task_covariance / root / root.unsqueeze(-1)).tolist()
    known = [column[~column.isnan()].double() for column in model.train_targets.unbind(-1)]
    return tuple(
        TargetSummary(
            name,
            len(known[number]),
            scale * float(known[number].std(correction=0)),
            scale * float(deviations[number]),
            scale * float(model.noise[number].sqrt()),
            dict(zip(names, correlations[number])),
        )
        for number, (name, scale) in enumerate(zip(names, unit.scale.tolist()))
    )


def _some_of(x: Tensor) -> Tensor:
    return x[:: -(-len(x) // _MOST_ROWS)]


def _described(
    functions: KernelExpansion, columns: list[str], x: Tensor, shares: Tensor
) -> tuple[tuple[PartSummary, ...], float]:
    """Return the parts with these shares of the explained variance, and the expected prior variance over rows."""
    with iterative():
        priors = [part.prior_variance(x) for part in functions.parts]
    total = sum(priors) or 1.0
    found = tuple(
        PartSummary(name, described(part.kernel), prior / total, share, *_widths_and_trees(part, columns, x))
        for name, part, prior, share in zip(functions.part_names, functions.parts, priors, shares.tolist())
    )
    return found, max(0.0, sum(priors))


def described(kernel: Kernel) -> str:
    """
    Return a kernel in one line.

    Example:
        >>> from gpytorch_partition import PartitionKernel
        >>> described(LocalLinearKernel(PartitionKernel(torch.floor), num_dims=2))
        'LocalLinearKernel(slopes of variance 0.5 in 2 columns) of PartitionKernel(floor)'
    """
    told = f"{type(kernel).__name__}({kernel.extra_repr()})".removesuffix("()")
    inside = [kernel.base_kernel] if isinstance(kernel, LandmarkKernel | LocalLinearKernel) else []
    inside = list(kernel.kernels) if isinstance(kernel, PartitionMixtureKernel) else inside
    return told if not inside else f"{told} of {' and '.join(map(described, inside))}"


def _widths_and_trees(
    part: KernelPart, columns: list[str], x: Tensor
) -> tuple[dict[str, float], int, dict[str, float]]:
    """Return a part's lengthscales by column (the shortest of a category), number of trees, and relevances."""
    num_trees = sum(each.num_partitions for each in part.kernel.modules() if isinstance(each, RandomForestKernel))
    kernel = part.kernel.base_kernel if isinstance(part.kernel, LandmarkKernel) else part.kernel
    values = kernel.lengthscale.detach().flatten().tolist() if kernel.has_lengthscale else []
    sources = part.sources(len(columns))
    found: dict[str, float] = {}
    relevances: dict[str, float] = {}
    if sources is not None and len(sources) == len(values):
        variances = part.points(x).double().var(0, correction=0).tolist()
        for source, value, variance in zip(sources.tolist(), values, variances):
            name = columns[source]
            found[name] = min(value, found.get(name, value))
            relevances[name] = relevances.get(name, 0.0) + variance / value**2
    total = sum(relevances.values()) or 1.0
    return found, num_trees, {name: value / total for name, value in relevances.items()}


def is_skewed(targets: Tensor) -> bool:
    """
    Return whether targets (`N`) are above 0, with a skewness that logarithms reduce by more than half.

    Example:
        >>> normal = torch.randn(500, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        >>> is_skewed(normal.exp()), is_skewed(normal + 9)
        (True, False)
    """
    if len(targets) < 3 or not bool((targets > 0).all()):
        return False
    skewness = _skewness(targets)
    return skewness > _SKEWED and abs(_skewness(targets.log())) < skewness / 2


def _skewness(values: Tensor) -> float:
    centred = values - values.mean()
    return float(centred.pow(3).mean() / centred.square().mean().clamp_min(torch.finfo(values.dtype).tiny) ** 1.5)
