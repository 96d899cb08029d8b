"""What the pictures show, read off their parts."""

from __future__ import annotations

import numpy as np
import pytest

from gpytorch_partition.explain.plots import plot_comparison

RANDOM = np.random.RandomState(0)
Y = 100 + 10 * RANDOM.randn(400)
GOOD = (Y + 2 * RANDOM.randn(400), np.full(400, 2.0))
NARROW = (GOOD[0], np.full(400, 0.5))


def figure_of(num_rows=400, **options):
    good, narrow = ((mean[:num_rows], std[:num_rows]) for mean, std in (GOOD, NARROW))
    return plot_comparison(Y[:num_rows], {"good": good}, {"narrow": narrow}, **options)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_a_panel_per_model_and_one_for_calibration(count):
    figure = plot_comparison(Y, {f"model {i}": GOOD for i in range(count)}, {})
    titles = [panel.get_title(loc="left") for panel in figure.axes if panel.axison]
    assert len(titles) == count + 1
    assert titles[0].startswith("model 0: RMSE 2.01")
    assert titles[-1] == "Calibration of central intervals"


def drawn_rows(panel):
    """True targets and means that the panel's two sets of points show."""
    points = [container.lines[0].get_xydata() for container in panel.containers]
    return np.concatenate(points), [len(part) for part in points]


def test_every_row_is_drawn_inside_or_outside_its_interval():
    figure = figure_of(num_rows=120)
    points, counts = drawn_rows(figure.axes[0])
    order = np.argsort(points[:, 0])
    np.testing.assert_allclose(points[order], np.column_stack([Y, GOOD[0]])[:120][np.argsort(Y[:120])])
    missed = np.abs(Y - GOOD[0])[:120] > 1.6448536 * 2.0
    assert counts == [120 - missed.sum(), missed.sum()]


def test_of_many_rows_some_are_drawn_and_that_is_said():
    panel = figure_of().axes[0]
    points, _ = drawn_rows(panel)
    assert len(points) == 150
    assert {Y.min(), Y.max()} <= set(points[:, 0])
    assert "150 of 400 rows drawn" in [text.get_text() for text in panel.texts]


def test_calibration_curves_tell_right_from_narrow():
    curves = {line.get_label(): line.get_xydata() for line in figure_of().axes[1].lines}
    np.testing.assert_allclose(curves["good"][:, 1], curves["good"][:, 0], atol=0.1)
    middle = curves["narrow"][np.argmin(np.abs(curves["narrow"][:, 0] - 0.9))]
    assert middle[1] < 0.5


@pytest.mark.parametrize("num_models", [1, 6])
def test_the_legend_of_calibration_curves_covers_none_and_no_title(num_models):
    """Intervals that are far too wide have curves along the upper left corner."""
    figure = plot_comparison(Y, {"a": GOOD}, {f"the reference model {i}": (Y, GOOD[1] * 9) for i in range(num_models)})
    figure.draw_without_rendering()
    panel = figure.axes[1]
    legend = panel.get_legend().get_window_extent()
    assert not legend.overlaps(panel.get_window_extent().shrunk(1, 0.99))
    assert not legend.overlaps(panel._left_title.get_window_extent())


def test_names_with_dollars_are_drawn_as_they_are(tmp_path):
    figure_of(title="prices", target="price_$_{us$").savefig(tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 10_000
