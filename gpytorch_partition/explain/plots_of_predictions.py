"""Plots of predictions against true targets, of arrays, one regressor or several models, and the style of all plots."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from typing import Any

import numpy as np
from scipy.stats import norm
from sklearn.metrics import root_mean_squared_error

from gpytorch_partition.estimators.scores import Judgement

# Okabe & Ito's palette, distinguishable with any color vision.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F4F24")
GRAY = "#6E6E6E"
NOTE = {"va": "bottom", "ha": "right", "fontsize": 9, "color": GRAY}


# Means and standard deviations, of Gaussians, or whole distributions beside their targets.
Prediction = tuple[np.ndarray, np.ndarray] | Judgement
_MOST_ROWS_SHOWN = 150
_FAR = 3.0  # widths of the central 90 % of the values; beyond, values are outliers, which axes leave out
_MARGIN = 0.03  # of the range of the values
_LEVELS = np.linspace(0, 1, 41)[1:-1]


def axes(ax: Any, width: float = 5.6, height: float = 4.4) -> Any:
    """Return the given axes, or new ones in a figure of pyplot, with sizes in inches."""
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError('pictures need matplotlib: pip install "gpytorch_partition[plot]"') from error
    return pyplot.subplots(figsize=(width, height), layout="constrained")[1]


def name(text: Any) -> str:
    """Return a name with escaped dollars, which would begin a formula."""
    return str(text).replace("$", r"\$")


def set_title(ax: Any, text: str, above: int = 1) -> None:
    """Set a title on the left, with space for `above` lines between it and the axes."""
    ax.set_title(text, loc="left", fontsize=11, fontweight="bold", pad=6 + 16 * above)


def legend_above(ax: Any, num_columns: int = 2, handles: Any = None) -> None:
    """Add a legend in one line above the axes; make room for tick labels of large numbers."""
    from matplotlib.ticker import MaxNLocator, ScalarFormatter

    ax.yaxis.set_offset_position("right")  # a power of ten
    for axis in (ax.xaxis, ax.yaxis):
        if axis.get_scale() == "linear" and isinstance(axis.get_major_formatter(), ScalarFormatter):
            axis.get_major_formatter().set_useOffset(False)
            axis.set_major_locator(MaxNLocator(5 if axis is ax.xaxis else 7, steps=[1, 2, 2.5, 5, 10]))
    place = {"loc": "lower left", "bbox_to_anchor": (-0.015, 0.985)}
    options = {"fontsize": 9, "frameon": False, "handletextpad": 0.4, "columnspacing": 1.2}
    ax.legend(handles=handles, ncols=num_columns, **options, **place)


def limits_without_outliers(values: np.ndarray, margin: float = _MARGIN) -> tuple[float, float]:
    """Return the range of values, with a margin, without those far from the central 90 %."""
    low, high = np.quantile(values, (0.05, 0.95), method="nearest")
    kept = values[(values >= low - _FAR * (high - low)) & (values <= high + _FAR * (high - low))]
    kept = kept if high > low else values
    margin *= kept.max() - kept.min()
    return float(kept.min() - margin), float(kept.max() + margin)


def plot_truth(model: Any, X: Any, y: Any, *, ax: Any = None, target: str | None = None) -> Any:
    """
    Draw predicted against true targets, with central 90 % intervals of new observations; return the axes.

    :param model: A fitted regressor whose `predict` has `return_std`. If it has a method `judge`, as that of this
        package, intervals are those of its own distributions.
    :param X: `N x D` rows, best those that the model has not seen.
    :param y: `N` targets.
    :param ax: A matplotlib `Axes`. (Default: new ones.)
    :param target: Name of the targets, with their unit. (Default: None, the name of y or of the model's targets.)
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
    shown = _called(model, y) if target is None else name(target)
    (y, found), ax = _judged_by(model, X, y), axes(ax)
    plot_predictions(ax, y, found)
    set_title(ax, "Predictions")
    ax.set(xlabel=f"true {shown}", ylabel=f"predicted {shown}")
    return ax


def plot_coverage(model: Any, X: Any, y: Any, *, ax: Any = None, label: str = "the model") -> Any:
    """
    Draw the share of targets inside central intervals of new observations, against their nominal coverage.

    Use it to check intervals: above the line they are too wide, below it too narrow. Parameters, errors and an example
    are those of :func:`plot_truth`; `label` is the name of the curve.
    """
    (y, found), ax = _judged_by(model, X, y), axes(ax)
    plot_calibration(ax, y, {label: found})
    return ax


def plot_residuals(model: Any, X: Any, y: Any, *, ax: Any = None, target: str | None = None) -> Any:
    """
    Draw residuals against predictions, each on its 90 % interval.

    Use it to find a trend that the model has missed, or noise that its intervals do not follow. Parameters, errors and
    an example are those of :func:`plot_truth`. At most 150 rows are drawn, evenly spread over the predictions.
    """
    shown = _called(model, y) if target is None else name(target)
    (y, found), ax = _judged_by(model, X, y), axes(ax)
    rows, mean, residuals = _spread(found.mean), found.mean, y - found.mean
    low, high = found.lower - mean, found.upper - mean
    ax.axhline(0, color=GRAY, linewidth=1)
    ax.vlines(mean[rows], low[rows], high[rows], color=GRAY, alpha=0.25, linewidth=2.2, label="90 % interval")
    missed = (y < found.lower) | (y > found.upper)
    for some, color, label in _inside_and_outside(rows, missed, missed.mean(), COLORS[0], "inside"):
        ax.plot(mean[some], residuals[some], "o", color=color, markersize=3.5, label=label)
    _finish(ax, rows, (mean, residuals), (low, high), num_columns=3)
    set_title(ax, "Residuals")
    ax.set(xlabel=f"predicted {shown}", ylabel=f"true less predicted {shown}")
    return ax


def plot_predictions(
    ax: Any, y: np.ndarray, prediction: Prediction, *, color: str = COLORS[0], sample_weight: np.ndarray | None = None
) -> None:
    """
    Draw predicted against true targets, with central 90 % intervals; those that miss their target are black.

    It takes arrays; for a fitted regressor use :func:`plot_truth`. At most 150 rows are drawn, evenly spread over the
    targets.

    :param ax: A matplotlib `Axes`.
    :param y: `N` targets.
    :param prediction: Means and standard deviations (`N` each, noise included, in units of the targets), or a
        :class:`~gpytorch_partition.estimators.scores.Judgement`.
    :param sample_weight: `N` weights by which rows count. (Default: None, the same.)

    Example:
        >>> from matplotlib.figure import Figure
        >>> ax = Figure().subplots()
        >>> plot_predictions(ax, np.arange(4.0), (np.arange(4.0) + 0.1, np.ones(4)))
        >>> [text.get_text() for text in ax.get_legend().get_texts()]
        ['within its 90 % interval: 100 %', 'outside: 0 %']
    """
    found, rows = _judged(y, prediction), _spread(y)
    missed = (y < found.lower) | (y > found.upper)
    outside = float(np.average(missed, weights=sample_weight))
    ax.axline((float(y.mean()), float(y.mean())), slope=1, color=GRAY, linewidth=1, zorder=1)
    below, above = found.mean - found.lower, found.upper - found.mean
    for some, tint, label in _inside_and_outside(rows, missed, outside, color, "within its 90 % interval"):
        options = {"color": tint, "ecolor": (tint, 0.3), "markersize": 3.5, "elinewidth": 1.1, "label": label}
        ax.errorbar(y[some], found.mean[some], (below[some], above[some]), fmt="o", **options)
    _finish(ax, rows, (y, found.mean), (found.lower, found.upper))


def plot_calibration(
    ax: Any,
    y: np.ndarray,
    predictions: Mapping[str, Prediction],
    references: Mapping[str, Prediction] | None = None,
    *,
    sample_weight: np.ndarray | None = None,
) -> None:
    r"""
    Draw the share of targets inside the central intervals, against their nominal coverage.

    It takes the arrays of :func:`plot_predictions`; for one fitted regressor use :func:`plot_coverage`. The band holds
    95 % of such curves, pointwise, if intervals are right and rows independent (:math:`(\sum_i w_i)^2 / \sum_i w_i^2`
    rows by weights).

    :param predictions: Predictions as for :func:`plot_predictions`, by name, drawn solid; `references` are drawn
        dashed.

    Example:
        >>> from matplotlib.figure import Figure
        >>> ax = Figure().subplots()
        >>> plot_calibration(ax, np.arange(4.0), {"a model": (np.zeros(4), np.ones(4))})
        >>> ax.get_title(loc="left")
        'Calibration of central intervals'
    """
    num_rows = len(y) if sample_weight is None else sample_weight.sum() ** 2 / (sample_weight**2).sum()
    margin = norm.ppf(0.975) * np.sqrt(_LEVELS * (1 - _LEVELS) / num_rows)
    band = {"color": GRAY, "alpha": 0.15, "linewidth": 0, "label": f"chance alone (95 %, {num_rows:,.0f} rows)"}
    ax.fill_between(_LEVELS, _LEVELS - margin, _LEVELS + margin, **band)
    ax.axline((0, 0), slope=1, color=GRAY, linewidth=1)
    curves = [(label, each, "-") for label, each in predictions.items()]
    curves += [(label, each, "--") for label, each in (references or {}).items()]
    for (label, prediction, style), color in zip(curves, cycle(COLORS)):
        shares = _judged(y, prediction).coverage(_LEVELS, sample_weight)
        ax.plot(_LEVELS, shares, style, color=color, linewidth=1.8, label=label)
    set_title(ax, "Calibration of central intervals", above=(len(curves) + 2) // 2)
    ax.set(xlabel="nominal share inside", ylabel="share of test targets inside", xlim=(0, 1), ylim=(0, 1))
    legend_above(ax)
    ax.text(0.98, 0.03, "above the line: intervals too wide\nbelow: too narrow", **NOTE)
    ax.grid(alpha=0.25)


def plot_comparison(
    y: np.ndarray,
    predictions: Mapping[str, Prediction],
    references: Mapping[str, Prediction],
    *,
    title: str = "",
    target: str = "target",
    sample_weight: np.ndarray | None = None,
) -> Any:
    """
    Draw predicted against true targets, a panel for each model, and the calibration curves of all models.

    Use it to compare models, of any library, by their predictions of the same held-out rows. Predictions are those of
    :func:`plot_predictions`, by name; only the calibration panel shows the references.

    :return: The :class:`matplotlib.figure.Figure`, which is not registered with pyplot and opens no window.

    Example:
        >>> y, mean, std = np.arange(4.0), np.arange(4.0) + 0.1, np.ones(4)
        >>> figure = plot_comparison(y, {"a model": (mean, std)}, {"another": (mean, 2 * std)})
        >>> len(figure.axes)
        2
    """
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    num_panels = len(predictions) + 1
    num_columns = num_panels if num_panels <= 3 else 2
    num_rows, layout = -(-num_panels // num_columns), ConstrainedLayoutEngine(hspace=0.06, wspace=0.06)
    figure = Figure(figsize=(5.2 * num_columns, 4.9 * num_rows), layout=layout, dpi=150)
    figure.suptitle(title, fontsize=13)
    panels, limits = figure.subplots(num_rows, num_columns, squeeze=False).ravel(), _limits(y, predictions)
    for panel, (label, prediction), color in zip(panels, predictions.items(), cycle(COLORS)):
        plot_predictions(panel, y, prediction, color=color, sample_weight=sample_weight)
        error = root_mean_squared_error(y, prediction[0], sample_weight=sample_weight)
        set_title(panel, f"{label}: RMSE {error:.4g}")
        panel.set(xlabel=f"true {name(target)}", ylabel=f"predicted {name(target)}", ylim=limits)
    plot_calibration(panels[num_panels - 1], y, predictions, references, sample_weight=sample_weight)
    for panel in panels[num_panels:]:
        panel.set_axis_off()
    return figure


def _judged(y: np.ndarray, prediction: Prediction) -> Judgement:
    return prediction if isinstance(prediction, Judgement) else Judgement.gaussian(y, *prediction)


def _judged_by(model: Any, X: Any, y: Any) -> tuple[np.ndarray, Judgement]:
    if hasattr(model, "classes_") or hasattr(model, "predict_proba"):
        raise TypeError(
            f"expected a regressor, got a {type(model).__name__}, which predicts classes: give its probabilities to "
            "sklearn.calibration.CalibrationDisplay.from_predictions"
        )
    y = np.asarray(y, dtype=float)
    if hasattr(model, "judge") and y.ndim == 1 and not np.isnan(y).any():
        return y, model.judge(X, y)
    mean, std = model.predict(X, return_std=True)
    if mean.ndim > 1:
        raise ValueError(
            f"expected a model of one target, got one of {mean.shape[1]}: give target number t, where known, to "
            "plots.plot_predictions(axes, y[:, t], (mean[:, t], std[:, t]))"
        )
    if y.shape != mean.shape or np.isnan(y).any():
        raise ValueError(
            f"expected a known target for each of the {len(mean)} rows of X, got targets of shape {y.shape} with "
            f"{int(np.isnan(y).sum())} missing"
        )
    return y, Judgement.gaussian(y, mean, std)


def _called(model: Any, y: Any) -> str:
    names = (getattr(y, "name", None), getattr(model, "target_name_", None))
    return name(next((each for each in names if isinstance(each, str) and each), "target"))


def _inside_and_outside(
    rows: np.ndarray, missed: np.ndarray, outside: float, color: str, inside: str
) -> list[tuple[np.ndarray, str, str]]:
    labels = f"{inside}: {100 * (1 - outside):.0f} %", f"outside: {100 * outside:.0f} %"
    return [(rows[~missed[rows]], color, labels[0]), (rows[missed[rows]], "black", labels[1])]


def _finish(
    ax: Any, rows: np.ndarray, dots: tuple[np.ndarray, ...], ends: tuple[np.ndarray, ...], num_columns: int = 2
) -> None:
    """Set the ranges of axes by the dots (x and y) and the ends of intervals, and tell what is not drawn."""
    across, along = dots[0][rows], np.concatenate([each[rows] for each in (dots[1], *ends)])
    x, y = limits_without_outliers(across), limits_without_outliers(along)
    beyond = (across < x[0]) | (across > x[1]) | (dots[1][rows] < y[0]) | (dots[1][rows] > y[1])
    ax.set(xlim=x if x[0] < x[1] else None, ylim=y if y[0] < y[1] else None)
    told = [f"{len(rows)} of {len(dots[0]):,} rows drawn"] * (len(rows) < len(dots[0]))
    told += [f"{int(beyond.sum())} beyond the axes"] * bool(beyond.any())
    ax.text(0.98, 0.02, ", ".join(told), transform=ax.transAxes, **NOTE)
    legend_above(ax, num_columns)
    ax.grid(alpha=0.25)


def _spread(y: np.ndarray) -> np.ndarray:
    order = np.argsort(y, kind="stable")
    if len(y) <= _MOST_ROWS_SHOWN:
        return order
    return order[np.linspace(0, len(y) - 1, _MOST_ROWS_SHOWN).round().astype(int)]


def _limits(y: np.ndarray, predictions: Mapping[str, Prediction]) -> tuple[float, float]:
    """Return the range of the vertical axes of all panels, which holds the targets drawn and their intervals."""
    rows, found = _spread(y), [_judged(y, prediction) for prediction in predictions.values()]
    values = np.stack([y, *(each.lower for each in found), *(each.upper for each in found)])[:, rows]
    return limits_without_outliers(values.ravel())
