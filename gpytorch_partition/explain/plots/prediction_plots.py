"""How good a fitted regressor is: predictions against the truth, calibration and residuals."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpytorch_partition.estimators.scores import Judgement
from gpytorch_partition.explain.plots import comparison_plots as comparison
from gpytorch_partition.explain.plots.plot_style import COLORS, GRAY, NOTE, axes, legend_above, name, percent, set_title


def plot_truth(model: Any, X: Any, y: Any, *, ax: Any = None, target: str | None = None) -> Any:
    """
    Predicted against true targets, with central 90 % intervals of new observations.

    :param model: A fitted regressor whose `predict` has `return_std`; of one that has a method `judge`, as this
        package's has, intervals are those of its own distributions.
    :param X: `N x D` rows, best those that the model has not seen.
    :param y: `N` targets.
    :param ax: A matplotlib `Axes`. (Default: new ones.)
    :param target: What the targets are, with their unit. (Default: None, the name of y, or that of the model's
        targets.)
    :return: The axes.
    :raises TypeError: If the model is a classifier.
    :raises ValueError: If the model has several targets, or targets do not match the rows or are NaN.

    Example:
        >>> from matplotlib.figure import Figure
        >>> from sklearn.gaussian_process import GaussianProcessRegressor
        >>> X = np.arange(5.0)[:, None]
        >>> model = GaussianProcessRegressor().fit(X, X[:, 0])
        >>> plot_truth(model, X, X[:, 0], ax=Figure().subplots()).get_xlabel()
        'true target'
    """
    target = _called(model, y) if target is None else target
    (y, found), ax = _judged(model, X, y), axes(ax)
    comparison.plot_intervals(ax, y, found)
    set_title(ax, "Predictions")
    ax.set(xlabel=f"true {name(target)}", ylabel=f"predicted {name(target)}")
    return ax


def plot_coverage(model: Any, X: Any, y: Any, *, ax: Any = None, label: str = "the model") -> Any:
    """
    The share of targets inside central intervals, against the share that there should be.

    Look at it before intervals are trusted: above the line they are too wide, below it too narrow.

    Parameters are those of :func:`plot_truth`; all intervals are those of new observations.

    :param label: What the curve is called. (Default: `"the model"`.)
    :return: The axes.
    """
    (y, found), ax = _judged(model, X, y), axes(ax)
    comparison.plot_calibration(ax, y, {label: found}, {})
    return ax


def plot_residuals(model: Any, X: Any, y: Any, *, ax: Any = None, target: str | None = None) -> Any:
    """
    Residuals against predictions, each on its 90 % interval: the intervals grow where the noise does.

    Look at it to see what the model has missed: a trend, or noise that its intervals do not follow.

    Parameters are those of :func:`plot_truth`. Of more than 150 rows, 150 evenly spread over the predictions are drawn.

    :return: The axes.
    """
    target = _called(model, y) if target is None else target
    (y, found), ax = _judged(model, X, y), axes(ax)
    mean, low, high = found.mean, found.lower - found.mean, found.upper - found.mean
    shown, residuals = comparison.spread(mean), y - mean
    ax.axhline(0, color=GRAY, linewidth=1)
    ax.vlines(mean[shown], low[shown], high[shown], color=GRAY, alpha=0.25, linewidth=2.2, label="90 % interval")
    missed = (residuals < low) | (residuals > high)
    for rows, color, label in (
        (shown[~missed[shown]], COLORS[0], f"inside: {percent(1 - missed.mean())}"),
        (shown[missed[shown]], "black", f"outside: {percent(missed.mean())}"),
    ):
        ax.plot(mean[rows], residuals[rows], "o", color=color, markersize=3.5, label=label)
    if len(shown) < len(y):
        ax.text(0.98, 0.02, f"{len(shown)} of {len(y):,} rows drawn", ha="right", transform=ax.transAxes, **NOTE)
    set_title(ax, "Residuals")
    legend_above(ax, 3)
    ax.set(xlabel=f"predicted {name(target)}", ylabel=f"true less predicted {name(target)}")
    ax.grid(alpha=0.25)
    return ax


def _called(model: Any, y: Any) -> str:
    """What the targets are called: a Series has a name, and a model remembers it."""
    names = (getattr(y, "name", None), getattr(model, "target_name_", None))
    return next((each for each in names if isinstance(each, str) and each), "target")


def _judged(model: Any, X: Any, y: Any) -> tuple[np.ndarray, Judgement]:
    """Targets, and their distributions: the model's own if it knows them, else Gaussians."""
    if hasattr(model, "classes_") or hasattr(model, "predict_proba"):
        raise TypeError(
            f"expected a regressor, got a {type(model).__name__}, which predicts classes: draw how often they come "
            "true by sklearn.calibration.CalibrationDisplay.from_predictions(y, model.predict_proba(X)[:, 1], "
            "pos_label=model.classes_[1])"
        )
    y = np.asarray(y, dtype=float)
    if hasattr(model, "judge") and y.ndim == 1 and not np.isnan(y).any():
        return y, model.judge(X, y)
    mean, std = model.predict(X, return_std=True)
    if mean.ndim > 1:
        raise ValueError(
            f"expected a model of one target, got one of {mean.shape[1]}: draw target number t, of the rows where "
            "it is known, by plots.plot_calibration(axes, y[:, t], {'model': (mean[:, t], std[:, t])}, {}) or by "
            "plots.plot_predictions(axes, y[:, t], mean[:, t], std[:, t]), with mean and std of predict"
        )
    if y.shape != mean.shape or np.isnan(y).any():
        raise ValueError(
            f"expected a known target for each of the {len(mean)} rows of X, got targets of shape {y.shape} with "
            f"{int(np.isnan(y).sum())} missing"
        )
    return y, Judgement.gaussian(y, mean, std)
