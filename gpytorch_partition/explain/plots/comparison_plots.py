"""Predictions against the truth, and their calibration: of arrays, for one model or several."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from typing import Any

import numpy as np
from scipy.stats import norm
from sklearn.metrics import root_mean_squared_error

from gpytorch_partition.estimators.scores import Judgement
from gpytorch_partition.explain.plots.plot_style import COLORS, GRAY, NOTE, legend_above, percent, set_title
from gpytorch_partition.explain.plots.plot_style import name as as_name

# Means and standard deviations, of Gaussians, or whole distributions beside their targets.
Prediction = tuple[np.ndarray, np.ndarray] | Judgement

_MOST_ROWS_SHOWN = 150
HALF_WIDTH = norm.ppf(0.95)  # of 90 % intervals, in standard deviations
_LEVELS = np.linspace(0, 1, 41)[1:-1]


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
    One panel per model with predicted against true targets, and one with the calibration curves of all models.

    Call it to compare models, of any library, by what they predict of the same held-out rows.

    The palette has six colors, which repeat after the sixth model.

    :param y: `N` targets.
    :param predictions: Means and standard deviations (`N` each, in units of the targets) of the models to show, or
        their :class:`~gpytorch_partition.estimators.scores.Judgement` where they are not Gaussian, by name.
    :param references: Those of models that only the calibration panel shows.
    :param title: Title of the figure. (Default: none.)
    :param target: What the targets are, for the axes. (Default: `"target"`.)
    :param sample_weight: `N` weights by which errors and shares of rows are averaged. (Default: None, the same.)
    :return: The :class:`matplotlib.figure.Figure`, which is not registered with pyplot and opens no window.
    :raises ImportError: Without matplotlib.

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
    num_rows = -(-num_panels // num_columns)
    layout = ConstrainedLayoutEngine(hspace=0.06, wspace=0.06)
    figure = Figure(figsize=(5.2 * num_columns, 4.9 * num_rows), layout=layout, dpi=150)
    figure.suptitle(title, fontsize=13)
    target = as_name(target)
    panels = figure.subplots(num_rows, num_columns, squeeze=False).ravel()
    limits = _limits(y, list(predictions.values()))
    for panel, (name, prediction), color in zip(panels, predictions.items(), cycle(COLORS)):
        plot_intervals(panel, y, _judged(y, prediction), color, sample_weight=sample_weight)
        error = root_mean_squared_error(y, prediction[0], sample_weight=sample_weight)
        set_title(panel, f"{name}: RMSE {error:.4g}")
        panel.set(xlabel=f"true {target}", ylabel=f"predicted {target}", ylim=limits)
    plot_calibration(panels[num_panels - 1], y, predictions, references, sample_weight=sample_weight)
    for panel in panels[num_panels:]:
        panel.set_axis_off()
    return figure


def plot_predictions(panel: Any, y: np.ndarray, mean: np.ndarray, std: np.ndarray, *, color: str = COLORS[0]) -> None:
    """
    Predicted against true targets, with central 90 % intervals; those that miss their target are black.

    Call it where there are arrays rather than a fitted regressor, for which there is :func:`plot_truth`.

    Of more than 150 rows, 150 evenly spread over the targets are drawn.

    :param panel: A matplotlib `Axes`.
    :param y: `N` targets.
    :param mean: `N` means.
    :param std: `N` standard deviations, noise included, in units of the targets.
    :param color: Color of the points. (Default: blue.)

    Example:
        >>> from matplotlib.figure import Figure
        >>> panel = Figure().subplots()
        >>> plot_predictions(panel, np.arange(4.0), np.arange(4.0) + 0.1, np.ones(4))
        >>> [text.get_text() for text in panel.get_legend().get_texts()]
        ['within its 90 % interval: 100 %', 'outside: 0 %']
    """
    plot_intervals(panel, y, Judgement.gaussian(y, mean, std), color)


def _judged(y: np.ndarray, prediction: Prediction) -> Judgement:
    return prediction if isinstance(prediction, Judgement) else Judgement.gaussian(y, *prediction)


def plot_intervals(
    panel: Any, y: np.ndarray, found: Judgement, color: str = COLORS[0], sample_weight: np.ndarray | None = None
) -> None:
    """
    The same of distributions of any kind.

    :param panel: A matplotlib `Axes`.
    :param y: `N` targets.
    :param found: Their predictive distributions.
    :param color: Color of the points. (Default: blue.)
    :param sample_weight: `N` weights by which rows count. (Default: None, the same.)
    """
    shown, mean = spread(y), found.mean
    missed = (y < found.lower) | (y > found.upper)
    outside = float(np.average(missed, weights=sample_weight))
    panel.axline((float(y.mean()), float(y.mean())), slope=1, color=GRAY, linewidth=1, zorder=1)
    for rows, tint, label in (
        (shown[~missed[shown]], color, f"within its 90 % interval: {percent(1 - outside)}"),
        (shown[missed[shown]], "black", f"outside: {percent(outside)}"),
    ):
        panel.errorbar(
            y[rows],
            mean[rows],
            (mean[rows] - found.lower[rows], found.upper[rows] - mean[rows]),
            fmt="o",
            color=tint,
            ecolor=(tint, 0.3),
            markersize=3.5,
            elinewidth=1.1,
            label=label,
        )
    if len(shown) < len(y):
        panel.text(0.98, 0.02, f"{len(shown)} of {len(y):,} rows drawn", ha="right", transform=panel.transAxes, **NOTE)
    legend_above(panel)
    panel.grid(alpha=0.25)


def plot_calibration(
    panel: Any,
    y: np.ndarray,
    predictions: Mapping[str, Prediction],
    references: Mapping[str, Prediction],
    *,
    sample_weight: np.ndarray | None = None,
) -> None:
    r"""
    Calibration curves: the share of targets inside the central intervals, against their nominal coverage.

    Call it to compare several models, or for arrays; for one fitted regressor there is :func:`plot_coverage`.

    The band holds 95 % of such curves, pointwise, if the intervals are right and the rows independent; rows with
    weights vary as :math:`(\sum_i w_i)^2 / \sum_i w_i^2` rows do.

    :param panel: A matplotlib `Axes`.
    :param y: `N` targets.
    :param predictions: Means and standard deviations (`N` each), or distributions, by name, drawn solid.
    :param references: The same, drawn dashed.
    :param sample_weight: `N` weights by which rows count. (Default: None, the same.)

    Example:
        >>> from matplotlib.figure import Figure
        >>> panel = Figure().subplots()
        >>> plot_calibration(panel, np.arange(4.0), {"a model": (np.zeros(4), np.ones(4))}, {})
        >>> panel.get_title(loc="left")
        'Calibration of central intervals'
    """
    num_rows = len(y) if sample_weight is None else sample_weight.sum() ** 2 / (sample_weight**2).sum()
    margin = norm.ppf(0.975) * np.sqrt(_LEVELS * (1 - _LEVELS) / num_rows)
    band = {"color": GRAY, "alpha": 0.15, "linewidth": 0, "label": f"chance alone (95 %, {num_rows:,.0f} rows)"}
    panel.fill_between(_LEVELS, _LEVELS - margin, _LEVELS + margin, **band)
    panel.axline((0, 0), slope=1, color=GRAY, linewidth=1)
    curves = [(name, pair, "-") for name, pair in predictions.items()]
    curves += [(name, pair, "--") for name, pair in references.items()]
    for (name, prediction, style), color in zip(curves, cycle(COLORS)):
        shares = _judged(y, prediction).coverage(_LEVELS, sample_weight)
        panel.plot(_LEVELS, shares, style, color=color, linewidth=1.8, label=name)
    set_title(panel, "Calibration of central intervals", above=(len(curves) + 2) // 2)
    panel.set(xlabel="nominal share inside", ylabel="share of test targets inside", xlim=(0, 1), ylim=(0, 1))
    legend_above(panel)
    panel.text(0.98, 0.03, "above the line: intervals too wide\nbelow: too narrow", ha="right", **NOTE)
    panel.grid(alpha=0.25)


def spread(y: np.ndarray) -> np.ndarray:
    """Indices of at most 150 rows, evenly spread over the sorted targets."""
    order = np.argsort(y, kind="stable")
    if len(y) <= _MOST_ROWS_SHOWN:
        return order
    return order[np.linspace(0, len(y) - 1, _MOST_ROWS_SHOWN).round().astype(int)]


def _limits(y: np.ndarray, predictions: list[Prediction]) -> tuple[float, float]:
    """The range of the vertical axes of all panels, which holds the targets drawn and their intervals."""
    rows = spread(y)
    judgements = [_judged(y, prediction) for prediction in predictions]
    ends = [end[rows] for found in judgements for end in (found.lower, found.upper)]
    low, high = float(np.min([y[rows], *ends])), float(np.max([y[rows], *ends]))
    return low - 0.03 * (high - low), high + 0.03 * (high - low)
