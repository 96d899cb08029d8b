"""What a fitted model consists of, as numbers, text and HTML."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from gpytorch_partition.descriptions import counted
from gpytorch_partition.explain.kernel_parts import KernelPart, covariance_shares, dual_weights, kernel_parts
from gpytorch_partition.inputs.standardization import Standardization
from gpytorch_partition.kernels import LandmarkKernel, LocalLinearKernel, PartitionMixtureKernel, RandomForestKernel
from gpytorch_partition.likelihoods import student_t_noise, weights_of
from gpytorch_partition.likelihoods.fitc_likelihood import noise_variances
from gpytorch_partition.models import CoregionalizedGP, PartitionGP
from gpytorch_partition.models.counted_gp import CountedGP
from gpytorch_partition.presets.assembly import description_of
from gpytorch_partition.settings import iterative

_MOST_ROWS = 5_000  # training rows, evenly spread, that shares of variances are computed on
_MOST_COLUMNS = 8  # lengthscales shown, of columns that matter:
_LEAST_RELEVANCE = 0.01  # of the largest of a part
_NLPD_OF_MEAN = 0.5 * (1 + math.log(2 * math.pi))  # of standardized targets, by a Gaussian of their mean and deviation
_OUTLIER = 0.25  # of the usual weight, below which a row is an outlier
_SKEWED = 1.0  # skewness from which on logarithms are thought of
_MOST_TARGETS = 4  # correlations of a target that are shown


@dataclass(frozen=True)
class PartSummary:
    """
    A part of the kernel.

    :class:`ModelSummary` uses it.

    :param name: Its name.
    :param description: What it is made of.
    :param prior: Its share of the variance over the training rows that the prior expects.
    :param explained: Its share of the variance of the posterior mean over the training rows; below 0 where it works
        against the others.
    :param lengthscales: Lengthscales by column, in standard deviations of the columns (of a category, the shortest of
        its one-hot columns); empty where it has none.
    :param num_trees: Number of its trees, 0 where it has none.
    :param relevances: Of the same columns as lengthscales, how much of the squared distance between two rows they make
        on average, variances over squared lengthscales; they sum to 1. A column that hardly varies has none, however
        short its lengthscale is.
    """

    name: str
    description: str
    prior: float
    explained: float
    lengthscales: dict[str, float] = field(default_factory=dict)
    num_trees: int = 0
    relevances: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class TargetSummary:
    """
    One of several targets, in its own units.

    :class:`ModelSummary` uses it.

    :param name: Its name.
    :param num_entries: Number of rows where it is known.
    :param target_std: Standard deviation of these.
    :param function_std: Standard deviation of its posterior mean over the training rows.
    :param noise_std: Standard deviation of its noise.
    :param correlations: The prior correlations of its function with those of all targets, by name.
    """

    name: str
    num_entries: int
    target_std: float
    function_std: float
    noise_std: float
    correlations: dict[str, float]

    def __str__(self) -> str:
        others = {name: value for name, value in self.correlations.items() if name != self.name}
        closest = sorted(others, key=lambda name: -abs(others[name]))[:_MOST_TARGETS]
        told = ", ".join(f"{name} {others[name]:+.2f}" for name in closest)
        share = f"{_percent(self.noise_std / self.target_std)} of the target's" if self.target_std else ""
        return (
            f"{counted(self.num_entries, 'row')}, function {self.function_std:.4g}, noise "
            f"{self.noise_std:.4g} ({share}); goes with {told}"
        )


@dataclass(frozen=True)
class ModelSummary:
    """
    What a fitted :class:`~gpytorch_partition.estimators.PartitionGPRegressor` consists of; readable when printed.

    `summary()` uses it as its result.

    :param title: The estimator.
    :param num_rows: Number N of training rows.
    :param num_columns: Number of columns that were given; the parts' own may be more, as a date becomes several.
    :param parts: The parts of the kernel.
    :param target_std: Standard deviation of the training targets.
    :param function_std: Standard deviation of the posterior mean over the training rows, in units of the targets.
    :param prior_std: What the prior expects of the function's; far less where trees that have seen targets put their
        splits where the function varies.
    :param noise_std: Standard deviation of the noise, in units of the targets; where it varies, its root mean square.
    :param noise_range: Its least and largest over the training rows; None where it is constant.
    :param log_marginal_likelihood: In nats, of the standardized targets; None where weights were chosen otherwise.
    :param log_predictive_density: Mean over held-out rows, in nats, of standardized targets: with the sign changed the
        NLPD, as which it is printed; None where no rows were held out.
    :param at_bounds: Hyperparameters at a bound.
    :param seconds: Seconds of the stages of the fit, by name.
    :param row_weights: The least and the largest weight of a training row, which divides the noise's variance there;
        None where all weigh 1, and with Student-t noise, which has weights of its own.
    :param left_out: What the default model leaves out for the budget of its time. (Default: nothing.)
    :param degrees_of_freedom: Of Student-t noise; None where noise is Gaussian.
    :param num_outliers: Rows that Student-t noise gives less than a quarter of the usual weight. (Default: 0.)
    :param is_skewed: Whether all targets are above 0, and far less skewed in logarithms. (Default: no.)
    :param long_tail: Side of the predictions, "above" or "below", on which nearly all outliers lie: they are the long
        tail of the targets, and all rows count. None where they do not, or Student-t noise was not tried.
    :param constant_columns: Names of columns that are the same in all training rows, or empty.
    :param has_usual_width: Whether the width of a Mondrian kernel is the median distance of the rows, as that of
        `kernel="mondrian"` is.
    :param targets: Several targets one by one; the numbers above are then root mean squares over all of them, in
        standard deviations of each. (Default: one target.)
    """

    title: str
    num_rows: int
    num_columns: int
    parts: tuple[PartSummary, ...]
    target_std: float
    function_std: float
    prior_std: float
    noise_std: float
    noise_range: tuple[float, float] | None
    log_marginal_likelihood: float | None
    log_predictive_density: float | None
    at_bounds: dict[str, Any]
    seconds: dict[str, float]
    row_weights: tuple[float, float] | None = None
    left_out: tuple[str, ...] = ()
    degrees_of_freedom: float | None = None
    num_outliers: int = 0
    is_skewed: bool = False
    long_tail: str | None = None
    targets: tuple[TargetSummary, ...] = ()
    constant_columns: tuple[str, ...] = ()
    has_usual_width: bool = False

    def __str__(self) -> str:
        size = f"{counted(self.num_rows, 'row')}, {counted(self.num_columns, 'column')}"
        return summary_text(f"{self.title}: {size}", self.parts, self.facts())

    __repr__ = __str__

    def facts(self) -> dict[str, str]:
        """What there is to say beside the parts, by what it is about."""
        found = {
            "function": f"means have a standard deviation of {self.function_std:.4g} over the rows "
            f"(targets: {self.target_std:.4g}; the prior expects {self.prior_std:.4g})",
            "noise": self._noise(),
        }
        if self.targets:
            found = {f"target {each.name}": str(each) for each in self.targets}
        if self.degrees_of_freedom is not None and not self.num_outliers:
            found["tails"] = (
                f"Student-t noise with {self.degrees_of_freedom:g} degrees of freedom; no row is discounted"
            )
        elif self.degrees_of_freedom is not None:
            found["outliers"] = (
                f"{counted(self.num_outliers, 'row')}, which count less than a quarter; Student-t noise with "
                f"{self.degrees_of_freedom:g} degrees of freedom, whose standard deviation above includes outliers"
            )
        if self.long_tail is not None:
            found["long tail"] = f"{self.long_tail} the predictions, so no row is discounted; logarithms may fit better"
        elif self.is_skewed:
            found["skewed"] = "targets are above 0, with a long tail: a model of their logarithms may fit better"
        if self.row_weights is not None:
            found["weights"] = "of rows, from {:.4g} to {:.4g}; the noise is that of weight 1".format(*self.row_weights)
        found |= facts_of_parts(self.parts, self.constant_columns)
        if self.has_usual_width:
            found["width"] = "the median distance of the rows, not chosen by targets (lifetime_sweep would choose it)"
        if self.log_marginal_likelihood is not None:
            found["likelihood"] = f"log marginal likelihood {self.log_marginal_likelihood:.2f} nats"
        if self.log_predictive_density is not None:
            found["held out"] = (
                f"NLPD {-self.log_predictive_density + 0.0:.3f} nats a row of targets in standard deviations (without "
                f"any column: {_NLPD_OF_MEAN:.3f})"
            )
        found["at bounds"] = ", ".join(f"{name} = {value}" for name, value in self.at_bounds.items()) or "none"
        if self.seconds:
            found["seconds"] = ", ".join(f"{name} {seconds:.1f}" for name, seconds in self.seconds.items())
        found |= {"left out": "; ".join(self.left_out)} if self.left_out else {}
        return found

    def _noise(self) -> str:
        share = f" ({_percent(self.noise_std / self.target_std)} of theirs)" if self.target_std else ""
        found = f"standard deviation {self.noise_std:.4g} in the targets' units{share}"
        if self.noise_range is None:
            return f"{found}, the same everywhere"
        low, high = self.noise_range
        return f"{found} on average, varies with x from {low:.4g} to {high:.4g}"

    def _repr_html_(self) -> str:
        """A table of the parts and one of the facts, for notebooks."""
        size = f"{counted(self.num_rows, 'row')}, {counted(self.num_columns, 'column')}"
        return summary_html(f"Fitted to {size}", self.parts, self.facts())


def summary_text(title: str, parts: Sequence[PartSummary], facts: Mapping[str, str]) -> str:
    """A table of the parts and a line for each fact."""
    width = max(12, *(len(part.name) for part in parts))
    lines = [title, "", f"{'part':<{width}}   prior  explained  made of"]
    for part in parts:
        shares = f"{_percent(part.prior):>7}  {_percent(part.explained):>9}"
        lines.append(f"{part.name:<{width}} {shares}  {part.description}")
    return "\n".join([*lines, "", *(f"{name:<{width}}  {value}" for name, value in facts.items())])


def summary_html(title: str, parts: Sequence[PartSummary], facts: Mapping[str, str]) -> str:
    """A table of the parts and one of the facts, for notebooks."""
    cells = [(part.name, _percent(part.prior), _percent(part.explained), part.description) for part in parts]
    table = _table([("part", "share of the prior", "share of the explained", "made of"), *cells], has_head=True)
    others = _table(list(facts.items()), has_head=False)
    return f"<details open><summary>{title}</summary>{table}{others}</details>"


def facts_of_parts(parts: Sequence[PartSummary], constant_columns: Sequence[str]) -> dict[str, str]:
    """Lengthscales, trees, and columns that tell nothing."""
    found: dict[str, str] = {}
    if scaled := [part for part in parts if part.lengthscales]:
        told = [(f"{part.name}: " if len(scaled) > 1 else "") + _those_that_matter(part) for part in scaled]
        found["lengthscales"] = f"{'; '.join(told)} (in standard deviations of the columns)"
    found |= {"trees": f"{trees:,}"} if (trees := sum(part.num_trees for part in parts)) else {}
    if constant_columns:
        found["constant"] = f"{', '.join(constant_columns)} (the same in all rows, empty or ids: no information)"
    return found


@torch.no_grad()
def summary_of(model: PartitionGP, unit: Standardization, columns: list[str], **others: Any) -> ModelSummary:
    """
    The summary of a fitted model.

    Shares are those of at most 5,000 training rows: two products with each part, and a solve if nothing was predicted
    before.

    :param model: The model, in evaluation mode.
    :param unit: What its targets were standardized by.
    :param columns: Names of its columns, of which a date of a table has several.
    :param others: The other fields of :class:`ModelSummary`.
    """
    x, scale = model.train_inputs[0], float(unit.scale)
    some = some_of(x)
    parts, alpha = kernel_parts(model.covar_module), dual_weights(model)
    with iterative():
        priors = [part.prior_variance(some) for part in parts]
        means = torch.stack([part.mean(some, x, alpha) for part in parts])
    description = description_of(model)
    names = description["parts"] or [type(part.kernel).__name__ for part in parts]
    found = described(parts, names, priors, covariance_shares(means), columns, some)
    noise = scale * noise_variances(model.likelihood, some).double().sqrt()
    weights, tails = weights_of(model.likelihood), student_t_noise(model.likelihood)
    weights = None if weights is None or tails is not None or bool((weights == 1).all()) else weights
    varies = bool((noise - noise[0]).abs().max() > 1e-6 * noise[0])
    return ModelSummary(
        num_rows=len(x),
        parts=found,
        target_std=scale * float(model.train_targets.double().std(correction=0)),
        function_std=scale * float(means.sum(0).std(correction=0)),
        prior_std=scale * max(0.0, sum(priors)) ** 0.5,
        noise_std=float(noise.square().mean().sqrt()),
        degrees_of_freedom=None if tails is None else float(tails.df),
        long_tail=description["noise"].get("long_tail"),
        num_outliers=0 if tails is None else int((tails.weights < _OUTLIER * tails.weights.median()).sum()),
        is_skewed=is_skewed(unit.undo(model.train_targets.double())),
        row_weights=None if weights is None else (float(weights.min()), float(weights.max())),
        noise_range=(float(noise.min()), float(noise.max())) if varies else None,
        **others,
    )


def is_skewed(targets: Tensor) -> bool:
    """
    Whether targets (`N`) are above 0 with a long tail, of which logarithms take more than half.

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


@torch.no_grad()
def summary_of_counts(model: CountedGP, unit: Standardization, columns: list[str], **others: Any) -> ModelSummary:
    """
    The summary of a model of counted rows; shares of variances are those of its sample.

    :param model: The model.
    :param unit: What its targets were standardized by.
    :param columns: Names of its columns.
    :param others: The other fields of :class:`ModelSummary`.
    """
    some, scale = some_of(model.train_inputs[0]), float(unit.scale)
    (part,) = kernel_parts(model.covar_module)
    with iterative():
        prior = part.prior_variance(some)
    return ModelSummary(
        num_rows=model.num_rows,
        parts=described([part], [type(part.kernel).__name__], [prior], torch.ones(1), columns, some),
        target_std=scale * model.target_variance**0.5,
        function_std=scale * float(model(some).mean.std(correction=0)),
        prior_std=scale * max(0.0, prior) ** 0.5,
        noise_std=scale * float(model.likelihood.noise) ** 0.5,
        noise_range=None,
        **others,
    )


@torch.no_grad()
def summary_of_targets(
    model: CoregionalizedGP, unit: Standardization, columns: list[str], names: list[str], **others: Any
) -> ModelSummary:
    """
    The summary of a fitted model of several targets; shares of parts are those of all targets together.

    :param model: The model.
    :param unit: What its targets were standardized by.
    :param columns: Names of its columns.
    :param names: Names of the targets.
    :param others: The other fields of :class:`ModelSummary`.
    """
    x, weights = model.train_inputs[0], model.dual_weights
    some = some_of(x)
    parts = kernel_parts(model.covar_module)
    with iterative():
        priors = [part.prior_variance(some) for part in parts]
        means = torch.stack([torch.stack([part.mean(some, x, own) for part in parts]) for own in weights.mT])
    # Rows of all targets one after another, each centred: shares are those of their common variance.
    centred = (means - means.mean(-1, keepdim=True)).transpose(0, 1).flatten(1)
    own_names = description_of(model)["parts"] or [type(part.kernel).__name__ for part in parts]
    found = described(parts, own_names, priors, covariance_shares(centred), columns, some)
    functions = means.sum(1).std(-1, correction=0)
    scales = model.task_covariance.diagonal()
    return ModelSummary(
        num_rows=len(x),
        parts=found,
        target_std=1.0,
        function_std=float(functions.square().mean().sqrt()),
        prior_std=max(0.0, float(scales.mean()) * sum(priors)) ** 0.5,
        noise_std=float(model.noise.mean().sqrt()),
        noise_range=None,
        targets=_targets(model, unit, names, functions),
        **others,
    )


def _targets(
    model: CoregionalizedGP, unit: Standardization, names: list[str], functions: Tensor
) -> tuple[TargetSummary, ...]:
    """The targets one by one, whose means have these standard deviations (`T`)."""
    root = model.task_covariance.diagonal().sqrt()
    correlations = (model.task_covariance / root / root.unsqueeze(-1)).tolist()
    known = [column[~column.isnan()].double() for column in model.train_targets.unbind(-1)]
    return tuple(
        TargetSummary(
            name,
            len(known[number]),
            scale * float(known[number].std(correction=0)),
            scale * float(functions[number]),
            scale * float(model.noise[number].sqrt()),
            dict(zip(names, correlations[number])),
        )
        for number, (name, scale) in enumerate(zip(names, unit.scale.tolist()))
    )


def described(
    parts: list[KernelPart],
    names: Sequence[str],
    priors: Sequence[float],
    shares: Tensor,
    columns: list[str],
    x: Tensor,
) -> tuple[PartSummary, ...]:
    """
    The parts of a kernel as a summary shows them.

    :param parts: The parts.
    :param names: Their names.
    :param priors: Their variances over the rows that the prior expects.
    :param shares: Their shares of the variance that is explained.
    :param columns: Names of the model's columns.
    :param x: Training rows.
    """
    total = sum(priors) or 1.0
    return tuple(
        PartSummary(name, description(part.kernel), prior / total, float(share), *_widths_and_trees(part, columns, x))
        for name, part, prior, share in zip(names, parts, priors, shares)
    )


def some_of(x: Tensor) -> Tensor:
    """Up to 5,000 rows, evenly spread."""
    return x[:: -(-len(x) // _MOST_ROWS)]


def description(kernel: Kernel) -> str:
    """
    A kernel in one line.

    Example:
        >>> from gpytorch_partition import PartitionKernel
        >>> description(LocalLinearKernel(PartitionKernel(torch.floor), num_dims=2))
        'LocalLinearKernel(slopes of variance 0.5 in 2 columns) of PartitionKernel(floor)'
    """
    told = f"{type(kernel).__name__}({kernel.extra_repr()})".removesuffix("()")
    inside = [kernel.base_kernel] if isinstance(kernel, LandmarkKernel | LocalLinearKernel) else []
    inside = list(kernel.kernels) if isinstance(kernel, PartitionMixtureKernel) else inside
    return told if not inside else f"{told} of {' and '.join(map(description, inside))}"


def _widths_and_trees(
    part: KernelPart, columns: list[str], x: Tensor
) -> tuple[dict[str, float], int, dict[str, float]]:
    """
    Lengthscales of a part by column, if it has one for each (the shortest of those of a category's one-hot columns),
    the number of its trees, and the relevances of the columns.
    """
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


def _those_that_matter(part: PartSummary) -> str:
    """The lengthscales of the columns that make most of the distances, and how many others there are."""
    values = set(part.lengthscales.values())
    if len(values) == 1 < len(part.lengthscales):
        return f"{values.pop():.3g} for every column"
    order = sorted(part.relevances, key=lambda name: -part.relevances[name])
    least = _LEAST_RELEVANCE * max(part.relevances.values())
    shown = [name for name in order[:_MOST_COLUMNS] if part.relevances[name] >= least]
    told = ", ".join(f"{name} {part.lengthscales[name]:.3g}" for name in shown)
    others = counted(len(order) - len(shown), "column")
    more = f" and {others} of less weight" if len(order) > len(shown) else ""
    return told + more


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _table(rows: list[tuple[str, ...]], has_head: bool) -> str:
    cells = [
        "".join(f'<{tag} style="text-align: left">{escape(cell)}</{tag}>' for cell in row)
        for row, tag in zip(rows, ["th" if has_head else "td"] + ["td"] * len(rows))
    ]
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"
