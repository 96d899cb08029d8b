"""Printable summaries of fitted models."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from gpytorch_partition.descriptions import counted

_MOST_COLUMNS = 8  # lengthscales shown
_LEAST_RELEVANCE = 0.01  # of the largest of a part; columns below are not shown
_NLPD_OF_MEAN = 0.5 * (1 + math.log(2 * math.pi))  # of standardized targets, by a Gaussian of their mean and deviation
_MOST_TARGETS = 4  # correlations of a target that are shown
_MOST_CLASSES = 8  # frequencies shown


@dataclass(frozen=True)
class PartSummary:
    """
    A part of the kernel, with its shares of variances over the training rows.

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
    One of several targets, in its own units.

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
        return (
            f"{counted(self.num_entries, 'row')}, function {self.function_std:.4g}, noise "
            f"{self.noise_std:.4g} ({share}); goes with {told}"
        )


@dataclass(frozen=True, kw_only=True)
class _Summary:
    """The fields of all summaries, and their text."""

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
    The parts and numbers of a fitted :class:`~gpytorch_partition.estimators.PartitionGPRegressor`.

    `summary()` uses it as its result, readable when printed. Standard deviations are over the training rows, in units
    of the targets. Those of several targets are root mean squares, in standard deviations of each.
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
    degrees_of_freedom: float | None = None  #: Those of Student-t noise; None for Gaussian noise.
    num_outliers: int = 0  #: Number of rows with less than a quarter of the usual weight in Student-t noise.
    is_skewed: bool = False  #: Whether all targets are above 0, and far less skewed in logarithms.
    #: The side of the predictions, "above" or "below", on which nearly all outliers lie, so that no row is discounted.
    long_tail: str | None = None
    targets: tuple[TargetSummary, ...] = ()  #: Several targets one by one.
    has_usual_width: bool = False  #: Whether the width of a Mondrian kernel is the median distance of the rows.

    def _facts(self) -> dict[str, str]:
        low_and_high, width = self.row_weights or (), "the median distance of the rows, not chosen by targets"
        likelihood, density = self.log_marginal_likelihood, self.log_predictive_density
        return {
            **self._functions(),
            **self._tails(),
            "weights": "of rows, from {:.4g} to {:.4g}; the noise is that of weight 1".format(*low_and_high)
            if low_and_high
            else "",
            **self._facts_of_parts(),
            "width": f"{width} (lifetime_sweep would choose it)" if self.has_usual_width else "",
            "likelihood": "" if likelihood is None else f"log marginal likelihood {likelihood:.2f} nats",
            "held out": ""
            if density is None
            else f"NLPD {-density + 0.0:.3f} nats a row of targets in standard deviations (without any column: "
            f"{_NLPD_OF_MEAN:.3f})",
            "at bounds": ", ".join(f"{name} = {value}" for name, value in self.at_bounds.items()) or "none",
            "seconds": self._told_seconds,
            "left out": "; ".join(self.left_out),
        }

    def _functions(self) -> dict[str, str]:
        if self.targets:
            return {f"target {each.name}": str(each) for each in self.targets}
        expected = f"targets: {self.target_std:.4g}; the prior expects {self.prior_std:.4g}"
        function = f"means have a standard deviation of {self.function_std:.4g} over the rows ({expected})"
        share = f" ({_percent(self.noise_std / self.target_std)} of theirs)" if self.target_std else ""
        noise = f"standard deviation {self.noise_std:.4g} in the targets' units{share}"
        if self.noise_range is None:
            return {"function": function, "noise": f"{noise}, the same everywhere"}
        varies = "on average, varies with x from {:.4g} to {:.4g}".format(*self.noise_range)
        return {"function": function, "noise": f"{noise} {varies}"}

    def _tails(self) -> dict[str, str]:
        found, shape = {}, f"Student-t noise with {self.degrees_of_freedom or 0:g} degrees of freedom"
        if self.degrees_of_freedom is not None and not self.num_outliers:
            found["tails"] = f"{shape}; no row is discounted"
        elif self.degrees_of_freedom is not None:
            found["outliers"] = (
                f"{counted(self.num_outliers, 'row')}, which count less than a quarter; {shape}, whose standard "
                "deviation above includes outliers"
            )
        if self.long_tail is not None:
            found["long tail"] = f"{self.long_tail} the predictions, so no row is discounted; logarithms may fit better"
        elif self.is_skewed:
            found["skewed"] = "targets are above 0, with a long tail: a model of their logarithms may fit better"
        return found


@dataclass(frozen=True, kw_only=True, repr=False)
class ClassSummary(_Summary):
    """
    The parts and numbers of a fitted :class:`~gpytorch_partition.estimators.PartitionGPClassifier`.

    `summary()` uses it as its result, readable when printed. Shares of parts are those of the indicators of all classes
    together.
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
