"""Summaries of fitted models: their numbers, and their text."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from gpytorch_partition.descriptions import counted, written
from gpytorch_partition.explain.given_columns import model_column_names
from gpytorch_partition.explain.kernel_parts import KernelExpansion, KernelPart, covariance_shares
from gpytorch_partition.inputs.standardization import Standardization
from gpytorch_partition.kernels import LandmarkKernel, LocalLinearKernel, PartitionMixtureKernel, RandomForestKernel
from gpytorch_partition.likelihoods import student_t_noise, weights_of
from gpytorch_partition.likelihoods.noise_likelihoods import noise_variances
from gpytorch_partition.models import CoregionalizedGP, PartitionGP
from gpytorch_partition.models.counted_gp import CountedGP
from gpytorch_partition.presets.assembly import description_of
from gpytorch_partition.settings import iterative

_MOST_COLUMNS = 8  # lengthscales shown
_LEAST_RELEVANCE = 0.01  # of the largest of a part; columns below are not shown
_NLPD_OF_MEAN = 0.5 * (1 + math.log(2 * math.pi))  # of standardized targets, by a Gaussian of their mean and deviation
_MOST_TARGETS = 4  # correlations of a target that are shown
_MOST_CLASSES = 8  # frequencies shown
_MOST_ROWS = 5_000  # training rows, evenly spread, for shares of variances
_OUTLIER = 0.25  # of the usual weight, below which a row is an outlier
_SKEWED = 1.0  # skewness above which logarithms are advised


@dataclass(frozen=True)
class PartSummary:
    """
    Hold a part of the kernel, with its shares of variances over the training rows.

    :class:`ModelSummary` uses it.
    """

    name: str
    description: str  #: Its kernel in one line.
    prior: float  #: Its share of the expected prior variance.
    explained: float  #: Its share of the posterior mean's variance; below 0 where it works against the others.
    #: Lengthscales by column, in standard deviations of the columns (the shortest of a category's one-hot columns).
    lengthscales: dict[str, float] = field(default_factory=dict)
    num_trees: int = 0
    #: The share of each of these columns in the squared distance between two rows: variances over squared lengthscales.
    relevances: dict[str, float] = field(default_factory=dict)

    def told_lengthscales(self) -> str:
        """Return the lengthscales of the most relevant columns as text, and the number of other columns."""
        values = set(self.lengthscales.values())
        if len(values) == 1 < len(self.lengthscales):
            return f"{values.pop():.3g} for every column"
        order = sorted(self.relevances, key=lambda name: -self.relevances[name])
        least = _LEAST_RELEVANCE * max(self.relevances.values())
        shown = [name for name in order[:_MOST_COLUMNS] if self.relevances[name] >= least]
        told = ", ".join(f"{name} {self.lengthscales[name]:.3g}" for name in shown)
        others = len(order) - len(shown)
        return told + (f" and {counted(others, 'column')} of less weight" if others else "")


@dataclass(frozen=True)
class TargetSummary:
    """
    Hold the numbers of one of several targets, in its own units.

    :class:`ModelSummary` uses it.
    """

    name: str
    num_entries: int  #: Number of rows where it is known.
    target_std: float
    function_std: float  #: Standard deviation of its posterior mean over the training rows.
    noise_std: float
    correlations: dict[str, float]  #: The prior correlations of its function with those of all targets, by name.

    def __str__(self) -> str:
        others = {name: value for name, value in self.correlations.items() if name != self.name}
        closest = sorted(others, key=lambda name: -abs(others[name]))[:_MOST_TARGETS]
        told = ", ".join(f"{name} {others[name]:+.2f}" for name in closest)
        share = f"{_percent(self.noise_std / self.target_std)} of the target's" if self.target_std else ""
        function, noise = written(self.function_std), f"{written(self.noise_std)} ({share})"
        return f"{counted(self.num_entries, 'row')}, function {function}, noise {noise}; goes with {told}"


@dataclass(frozen=True, kw_only=True)
class _Summary:
    title: str
    num_rows: int  #: Number of training rows.
    num_columns: int  #: Number of given columns; the model may have more, as a date becomes several.
    parts: tuple[PartSummary, ...]
    seconds: dict[str, float]  #: Seconds of the stages of the fit, by name.
    constant_columns: tuple[str, ...] = ()  #: Names of columns that are constant in training, or empty.

    def facts(self) -> dict[str, str]:
        """Return all facts except the parts as texts, by name."""
        return {name: told for name, told in self._facts().items() if told}

    def _facts(self) -> dict[str, str]:
        raise NotImplementedError

    def _facts_of_parts(self) -> dict[str, str]:
        scaled = [part for part in self.parts if part.lengthscales]
        told = [(f"{part.name}: " if len(scaled) > 1 else "") + part.told_lengthscales() for part in scaled]
        trees = sum(part.num_trees for part in self.parts)
        names = ", ".join(self.constant_columns)
        return {
            "lengthscales": f"{'; '.join(told)} (in standard deviations of the columns)" if told else "",
            "trees": f"{trees:,}" if trees else "",
            "constant": f"{names} (the same in all rows, empty or ids: no information)" if names else "",
        }

    @property
    def _told_seconds(self) -> str:
        return ", ".join(f"{name} {seconds:.1f}" for name, seconds in self.seconds.items())

    def __str__(self) -> str:
        width = max(12, *(len(part.name) for part in self.parts))
        size = f"{counted(self.num_rows, 'row')}, {counted(self.num_columns, 'column')}"
        lines = [f"{self.title}: {size}", "", f"{'part':<{width}}   prior  explained  made of"]
        for part in self.parts:
            shares = f"{_percent(part.prior):>7}  {_percent(part.explained):>9}"
            lines.append(f"{part.name:<{width}} {shares}  {part.description}")
        return "\n".join([*lines, "", *(f"{name:<{width}}  {told}" for name, told in self.facts().items())])

    __repr__ = __str__


@dataclass(frozen=True, kw_only=True, repr=False)
class ModelSummary(_Summary):
    """
    Hold the parts and numbers of a fitted :class:`~gpytorch_partition.estimators.PartitionGPRegressor`.

    `summary()` uses it as its result, readable when printed. Standard deviations are over the training rows, in units
    of the targets. For several targets they are root mean squares, in standard deviations of each.
    """

    target_std: float
    function_std: float  #: Standard deviation of the posterior mean.
    prior_std: float  #: Standard deviation of the function that the prior expects.
    noise_std: float  #: Standard deviation of the noise; of a varying one the root mean square.
    noise_range: tuple[float, float] | None = None  #: Least and largest deviation of the noise; None if constant.
    #: In nats, of the standardized targets; None for models that are chosen by folds.
    log_marginal_likelihood: float | None
    #: Mean over held-out rows, in nats, of standardized targets, printed as NLPD; None where no rows were held out.
    log_predictive_density: float | None
    at_bounds: dict[str, Any]  #: Hyperparameters at a bound.
    #: The least and the largest weight of a row; None if all are 1, and with Student-t noise.
    row_weights: tuple[float, float] | None = None
    left_out: tuple[str, ...] = ()  #: Steps and parts that the default model leaves out for the budget of its time.
    degrees_of_freedom: float | None = None  #: Of Student-t noise; None for Gaussian noise.
    num_outliers: int = 0  #: Number of rows with less than a quarter of the usual weight in Student-t noise.
    is_skewed: bool = False  #: Whether all targets are above 0, and far less skewed in logarithms.
    #: The side of the predictions, "above" or "below", on which nearly all outliers lie, so that no row is discounted.
    long_tail: str | None = None
    #: Mean of held-out targets less their predictions, and its standard error; empty where no rows were held out.
    mean_error: tuple[float, ...] = ()
    #: Standard error of the mean log density; None where groups or times were held out, or nothing.
    log_density_error: float | None = None
    targets: tuple[TargetSummary, ...] = ()  #: Several targets one by one.
    has_usual_width: bool = False  #: Whether the width of a Mondrian kernel is the median distance of the rows.

    def _facts(self) -> dict[str, str]:
        width = "the median distance of the rows, not chosen by targets"
        weights, likelihood = (
            "of rows, from {:.4g} to {:.4g}; the noise is that of weight 1",
            self.log_marginal_likelihood,
        )
        return {
            **self._functions(),
            **self._tails(),
            "weights": "" if self.row_weights is None else weights.format(*self.row_weights),
            **self._facts_of_parts(),
            "width": f"{width} (lifetime_sweep would choose it)" if self.has_usual_width else "",
            "likelihood": "" if likelihood is None else f"log marginal likelihood {likelihood:.2f} nats",
            "held out": self._told_density,
            "mean error": self._told_mean_error,
            "at bounds": ", ".join(f"{name} = {value}" for name, value in self.at_bounds.items()) or "none",
            "seconds": self._told_seconds,
            "left out": "; ".join(self.left_out),
        }

    def _functions(self) -> dict[str, str]:
        if self.targets:
            return {f"target {each.name}": str(each) for each in self.targets}
        expected = f"targets: {written(self.target_std)}; expected before targets are seen: {written(self.prior_std)}"
        function = f"means have a standard deviation of {written(self.function_std)} over the rows ({expected})"
        share = f" ({_percent(self.noise_std / self.target_std)} of theirs)" if self.target_std else ""
        noise = f"standard deviation {written(self.noise_std)} in the targets' units{share}"
        if self.noise_range is None:
            return {"function": function, "noise": f"{noise}, the same everywhere"}
        varies = "on average, varies with x from {} to {}".format(*map(written, self.noise_range))
        return {"function": function, "noise": f"{noise} {varies}"}

    @property
    def _told_density(self) -> str:
        if self.log_predictive_density is None:
            return ""
        error = "" if self.log_density_error is None else f" (standard error {self.log_density_error:.3f})"
        unit = f"nats a row of targets in standard deviations (without any column: {_NLPD_OF_MEAN:.3f})"
        return f"NLPD {-self.log_predictive_density + 0.0:.3f}{error} {unit}"

    @property
    def _told_mean_error(self) -> str:
        error, deviation = self.mean_error or (0.0, 0.0)
        if not abs(error) > 2 * deviation:
            return ""
        size = f"{written(abs(error))} in the targets' units ({abs(error) / deviation:.1f} standard errors)"
        return f"held-out rows are predicted too {'low' if error > 0 else 'high'} by {size} on average"

    def _tails(self) -> dict[str, str]:
        found, shape = {}, f"Student-t noise with {self.degrees_of_freedom or 0:g} degrees of freedom"
        if self.degrees_of_freedom is not None and not self.num_outliers:
            found["tails"] = f"{shape}; no row is discounted"
        elif self.degrees_of_freedom is not None:
            rows = f"{counted(self.num_outliers, 'row')} with large errors"
            noise = f"{shape}, whose standard deviation above includes them"
            found["outliers"] = f"{rows} count less than a quarter of a usual row; {noise}"
        if self.long_tail is not None:
            found["long tail"] = f"{self.long_tail} the predictions, so no row is discounted; logarithms may fit better"
        elif self.is_skewed:
            found["skewed"] = "targets are above 0, with a long tail: a model of their logarithms may fit better"
        return found


@dataclass(frozen=True, kw_only=True, repr=False)
class ClassSummary(_Summary):
    """
    Hold the parts and numbers of a fitted :class:`~gpytorch_partition.estimators.PartitionGPClassifier`.

    `summary()` uses it as its result, readable when printed. Shares of parts are those of all classes together.
    """

    frequencies: dict[Any, float]  #: The weighted share of each class among the training rows.
    log_loss: float  #: Mean over held-out rows, in nats; infinite without such rows.
    width: float  #: Width of the link from means to probabilities; small ones make it the identity.
    power: float  #: Power of the link; above 1 it moves probabilities away from the frequencies.

    def _facts(self) -> dict[str, str]:
        shown = sorted(self.frequencies.items(), key=lambda item: -item[1])
        told = ", ".join(f"{name} {_percent(share)}" for name, share in shown[:_MOST_CLASSES])
        more = f", ... {len(shown) - _MOST_CLASSES} rarer" if len(shown) > _MOST_CLASSES else ""
        usual = -sum(share * math.log(share) for share in self.frequencies.values() if share > 0)
        held_out = f"log loss {self.log_loss:.3f} nats a row (of the classes' shares alone: {usual:.3f})"
        return {
            "classes": told + more,
            "held out": held_out if math.isfinite(self.log_loss) else "",
            "link": f"width {self.width:.3g}, power {self.power:.3g}",
            **self._facts_of_parts(),
            "seconds": self._told_seconds,
        }


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


@torch.no_grad()
def model_summary(estimator: Any, unit: Standardization) -> ModelSummary:
    """Return the summary of a fitted regressor, by two products with each part, of 5,000 rows at most."""
    model, columns = estimator.model_, model_column_names(estimator)
    some = _some_of(model.train_inputs[0])
    if isinstance(model, CountedGP):
        found = _of_counts(model, unit, columns, some)
    elif isinstance(model, CoregionalizedGP):  # whose shares are those of all targets together
        found = _of_targets(model, unit, columns, estimator.target_names_.tolist(), some)
    else:
        found = _of_one_target(model, unit, columns, some)
    return ModelSummary(
        **{"num_rows": len(model.train_inputs[0]), **found},
        **_of_estimator(estimator),
        log_marginal_likelihood=estimator.log_marginal_likelihood_value_,
        log_predictive_density=estimator.log_predictive_density_,
        at_bounds=estimator.at_bounds_,
        left_out=estimator.left_out_,
        has_usual_width=isinstance(estimator.kernel, str) and estimator.kernel == "mondrian",
    )


@torch.no_grad()
def class_summary(estimator: Any, functions: KernelExpansion) -> ClassSummary:
    some, link = _some_of(functions.train_x), estimator.link_
    shares = (round(float(share), 12) for share in link.frequencies)
    explained = covariance_shares(functions.part_means(some))
    return ClassSummary(
        **_of_estimator(estimator),
        num_rows=len(functions.train_x),
        parts=_described(functions, model_column_names(estimator), some, explained)[0],
        frequencies=dict(zip(estimator.classes_.tolist(), shares)),
        log_loss=estimator.log_loss_,
        width=float(link.width),
        power=float(link.power),
    )


def _of_estimator(estimator: Any) -> dict[str, Any]:
    kernel = estimator.kernel
    shown = repr(kernel) if isinstance(kernel, str) else getattr(kernel, "__name__", type(kernel).__name__)
    return {
        "title": f"{type(estimator).__name__} with kernel={shown}",
        "num_columns": estimator.n_features_in_,
        "seconds": estimator.seconds_,
        "constant_columns": estimator._constant_columns,
    }


def _of_one_target(model: PartitionGP, unit: Standardization, columns: list[str], some: Tensor) -> dict[str, Any]:
    functions, scale = KernelExpansion.of_model(model), float(unit.scale)
    means, noise = functions.part_means(some), description_of(model)["noise"]
    parts, prior = _described(functions, columns, some, covariance_shares(means))
    return {
        "parts": parts,
        "target_std": scale * float(model.train_targets.double().std(correction=0)),
        "function_std": scale * float(means.sum(1).std(correction=0)),
        "prior_std": scale * prior**0.5,
        "long_tail": noise.get("long_tail"),
        "mean_error": tuple(scale * value for value in noise.get("mean_error", ())),
        "log_density_error": noise.get("log_density_error"),
        "is_skewed": is_skewed(unit.undo(model.train_targets.double())),
        **_of_noise(model.likelihood, scale, some),
        **({} if noise.get("weighs_rows", True) else {"num_outliers": 0}),
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
    means, root, targets = functions.part_means(some), scales.sqrt(), list[TargetSummary]()
    parts, prior = _described(functions, columns, some, covariance_shares(means))
    deviations = means.sum(1).std(-1, correction=0)
    correlations = (model.task_covariance / root / root.unsqueeze(-1)).tolist()
    for number, (name, scale) in enumerate(zip(names, unit.scale.tolist())):
        known = model.train_targets[:, number]
        known = known[~known.isnan()].double()
        own = known.std(correction=0), deviations[number], model.noise[number].sqrt()
        target, function, noise = (scale * float(deviation) for deviation in own)
        closest = dict(zip(names, correlations[number]))
        targets.append(TargetSummary(name, len(known), target, function, noise, closest))
    return {
        "parts": parts,
        "target_std": 1.0,
        "function_std": float(deviations.square().mean().sqrt()),
        "prior_std": max(0.0, float(scales.mean()) * prior) ** 0.5,
        "noise_std": float(model.noise.mean().sqrt()),
        "targets": tuple(targets),
    }


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
    """Return whether targets (`N`) are above 0, with a skewness that logarithms reduce by more than half."""
    if len(targets) < 3 or not bool((targets > 0).all()):
        return False
    skewness = _skewness(targets)
    return skewness > _SKEWED and abs(_skewness(targets.log())) < skewness / 2


def _skewness(values: Tensor) -> float:
    centred = values - values.mean()
    return float(centred.pow(3).mean() / centred.square().mean().clamp_min(torch.finfo(values.dtype).tiny) ** 1.5)
