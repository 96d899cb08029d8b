"""What the pictures of models, columns, kernels and lifetimes show, read off their parts."""

from __future__ import annotations

import sys
import warnings
from dataclasses import replace
from datetime import UTC
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib import pyplot
from matplotlib.figure import Figure

import gpytorch_partition as gp
from gpytorch_partition.estimators import PartitionGPClassifier, PartitionGPRegressor, PartitionSVC
from gpytorch_partition.explain import plots
from gpytorch_partition.explain.dependence import PartialDependence
from gpytorch_partition.explain.importance import Importance

RANDOM = np.random.RandomState(0)
ROWS = RANDOM.rand(200, 2)
TARGETS = 10 * ROWS[:, 0] + RANDOM.randn(200)
X = torch.from_numpy(ROWS)
MODEL = PartitionGPRegressor("mondrian", num_partitions=20, random_state=0).fit(ROWS, TARGETS)
CLUSTERS = gp.FastClusterKernel(X, 20, random_state=0)
TREES = gp.MondrianKernel(X, 10, lifetime=2.0, max_lifetime=8.0, random_state=0)
SWEEP = gp.lifetime_sweep(TREES, X, torch.from_numpy(TARGETS), lifetimes=[0.5, 1.0, 2.0, 4.0])
SHARES = Importance(
    ("a", "b", "$c"), np.array([0.2, 0.9, -0.1]), np.array([[0.1, 0.4, 0.0], [0.1, 0.5, -0.1]]), ("p", "q")
)
CHECKED = replace(SHARES, permutation=np.array([0.1, 0.8, -0.05]), permutation_std=np.full(3, 0.02))
CURVE = PartialDependence("a", np.linspace(0, 1, 9), np.arange(9.0), np.ones(9), ROWS[:, 0])

PICTURES = {
    "truth": lambda ax: plots.plot_truth(MODEL, ROWS, TARGETS, ax=ax),
    "coverage": lambda ax: plots.plot_coverage(MODEL, ROWS, TARGETS, ax=ax),
    "residuals": lambda ax: plots.plot_residuals(MODEL, ROWS, TARGETS, ax=ax),
    "importance": lambda ax: SHARES.plot(ax),
    "checked importance": lambda ax: CHECKED.plot(ax),
    "partial dependence": lambda ax: CURVE.plot(ax),
    "kernel slice": lambda ax: plots.plot_kernel_slice(CLUSTERS, X, 1, ax=ax),
    "cells": lambda ax: plots.plot_cells(CLUSTERS, X, 3, ax=ax),
    "lifetimes": lambda ax: SWEEP.plot(ax),
}


WEEK = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
ANSWERS = ["never", "at times", "often", "always"]
OUTLIERS = np.where(np.arange(200) == 7, 1e6, TARGETS)


def test_levels_have_an_order_that_means_something():
    codes = np.sqrt(np.arange(200) * 10).astype(int)  # the later ones are more frequent
    cells = {"day": np.array(WEEK)[codes % 7], "size": np.array(["L", "S", "M"])[codes % 7 // 3]}
    cells |= {"answer": pd.Categorical(np.array(ANSWERS)[codes % 4], ANSWERS), "code": codes % 3}
    model = PartitionGPRegressor("forest", 3, random_state=0, categorical_features=["code"]).fit(
        frame := pd.DataFrame(cells), TARGETS
    )
    often = frame["size"].value_counts().index.tolist()
    for name, order in {"day": WEEK, "answer": ANSWERS, "size": often, "code": [0, 1, 2]}.items():
        assert model.partial_dependence(frame, name).grid.tolist() == order


def test_one_outlier_does_not_hide_the_others():
    found = (TARGETS, np.ones(200))
    for draw in (
        lambda ax: plots.plot_predictions(ax, OUTLIERS, found),
        lambda ax: plots.plot_residuals(SimpleNamespace(predict=lambda *_, **__: found), ROWS, OUTLIERS, ax=ax),
        lambda ax: plots.plot_cells(CLUSTERS, torch.cat([X, torch.full((1, 2), 1e6)]), ax=ax),
    ):
        draw(ax := panel())
        assert max(np.abs([*ax.get_xlim(), *ax.get_ylim()])) < 40
    texts = [text.get_text() for text in ax.figure.axes[0].texts]
    plots.plot_predictions(ax := panel(), np.append(OUTLIERS[:149], 1e7), (np.append(TARGETS[:149], 0), np.ones(150)))
    assert [text.get_text() for text in ax.texts] == ["2 beyond the axes"], texts


@pytest.mark.parametrize(("lifetimes", "labels"), [(4.0, ["1", "2"]), (0.02, ["0.005", "0.01"])])
def test_tick_labels_are_numbers_side_by_side(lifetimes, labels):
    plots.plot_lifetimes(replace_lifetimes(lifetimes), ax=(ax := panel()))
    ax.figure.draw_without_rendering()
    assert {*labels} <= {text.get_text() for text in ax.get_xticklabels()}
    assert not any(text.get_text() for text in ax.get_xticklabels(minor=True))
    plots.plot_predictions(ax := panel(), 1e6 + 1e5 * TARGETS, (1e6 + 1e5 * TARGETS, np.ones(200)))
    ax.figure.set_size_inches(4, 4)
    ax.figure.draw_without_rendering()
    low, high = ax.get_xlim()
    ticks = zip(ax.get_xticks(), ax.get_xticklabels())
    boxes = [label.get_window_extent() for place, label in ticks if low <= place <= high]
    assert all(one.x1 < other.x0 for one, other in zip(boxes, boxes[1:]))


def replace_lifetimes(longest):
    factor = longest / float(SWEEP.lifetimes.max())
    return replace(SWEEP, lifetimes=factor * SWEEP.lifetimes, edges=factor * SWEEP.edges)


def panel():
    return Figure(layout="constrained").subplots()


@pytest.mark.parametrize("picture", PICTURES)
def test_each_is_drawn_on_the_axes_given(picture, tmp_path):
    ax = panel()
    assert PICTURES[picture](ax) is ax
    assert ax.get_xlabel()
    assert ax.get_ylabel() or "importance" in picture
    ax.figure.savefig(tmp_path / "picture.png", dpi=40)
    assert not pyplot.get_fignums()


@pytest.mark.parametrize("picture", ["truth", "importance", "cells"])
def test_each_makes_axes_of_its_own(picture):
    ax = PICTURES[picture](None)
    assert [ax.figure.number] == pyplot.get_fignums()
    pyplot.close(ax.figure)


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"gpytorch_partition\[plot\]"):
        SHARES.plot()


NOISE = np.random.RandomState(0)
Y = 100 + 10 * NOISE.randn(400)
GOOD = (Y + 2 * NOISE.randn(400), np.full(400, 2.0))
NARROW = (GOOD[0], np.full(400, 0.5))


def figure_of(num_rows=400, **options):
    good, narrow = ((mean[:num_rows], std[:num_rows]) for mean, std in (GOOD, NARROW))
    return plots.plot_comparison(Y[:num_rows], {"good": good}, {"narrow": narrow}, **options)


@pytest.mark.parametrize("count", [1, 3, 4])
def test_a_panel_per_model_and_one_for_calibration(count):
    figure = plots.plot_comparison(Y, {f"model {i}": GOOD for i in range(count)}, {})
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
    figure = plots.plot_comparison(
        Y, {"a": GOOD}, {f"the reference model {i}": (Y, GOOD[1] * 9) for i in range(num_models)}
    )
    figure.draw_without_rendering()
    panel = figure.axes[1]
    legend = panel.get_legend().get_window_extent()
    assert not legend.overlaps(panel.get_window_extent().shrunk(1, 0.99))
    assert not legend.overlaps(panel._left_title.get_window_extent())


def test_names_with_dollars_are_drawn_as_they_are(tmp_path):
    figure_of(title="prices", target="price_$_{us$").savefig(tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 10_000


def test_residuals_are_targets_less_predictions():
    ax = plots.plot_residuals(MODEL, ROWS[:100], TARGETS[:100], ax=panel())
    mean, std = MODEL.predict(ROWS[:100], return_std=True)
    points = np.concatenate([line.get_xydata() for line in ax.lines if line.get_marker() == "o"])
    expected = np.column_stack([mean, TARGETS[:100] - mean])
    np.testing.assert_allclose(points[np.argsort(points[:, 1])], expected[np.argsort(expected[:, 1])])
    (bars,) = ax.collections
    heights = [segment[1, 1] for segment in bars.get_segments()]
    np.testing.assert_allclose(sorted(heights), np.sort(1.6448536 * std), rtol=1e-6)


def test_bars_of_importance_are_the_parts_and_both_zeros_are_in_line():
    ax = CHECKED.plot(panel())
    assert [text.get_text() for text in ax.get_yticklabels()] == ["b", "a", r"\$c"]
    widths = [[bar.get_width() for bar in bars] for bars in ax.containers]
    np.testing.assert_allclose(np.sum(widths, 0), [0.9, 0.2, -0.1])
    (above,) = [other for other in ax.figure.axes if other is not ax]
    low, high = ax.get_xlim()
    np.testing.assert_allclose(low / high, above.get_xlim()[0] / above.get_xlim()[1])
    assert above.get_xlim()[0] < -0.07
    assert above.get_xlim()[1] > 0.82


def test_only_the_first_columns_are_drawn_and_that_is_said():
    assert plots.plot_importance(SHARES, ax=panel(), most=1).get_xlabel().endswith("(2 columns not drawn)")
    assert plots.plot_importance(CHECKED, ax=panel(), most=2).get_xlabel().endswith("(1 column not drawn)")
    assert plots.plot_importance(SHARES, ax=panel()).get_xlabel() == "share of the explained variance"


def test_a_column_whose_permutation_matters_is_drawn_whatever_its_share():
    shares, falls = np.array([0.5, 0.3, 0.2, 0.0]), np.array([0.4, 0.01, 0.0, 0.3])
    found = Importance(tuple("abcd"), shares, shares[None], ("p",), falls, np.full(4, 0.01))
    ax = plots.plot_importance(found, ax=panel(), most=3)
    assert [text.get_text() for text in ax.get_yticklabels()] == ["a", "b", "d"]


def test_partial_dependence_has_its_interval():
    ax = CURVE.plot(panel(), level=0.5, target="$")
    (band,) = ax.collections
    vertices = band.get_paths()[0].vertices
    np.testing.assert_allclose(vertices[:, 1].max(), 8 + 0.6744898)
    assert ax.get_ylabel() == r"mean prediction of \$"
    assert "50 % interval" in ax.get_legend().get_texts()[0].get_text()


@pytest.mark.parametrize(
    ("grid", "which"), [("ab", "2 of 4 categories, the most frequent"), ("ad", "2 of 4 categories")]
)
def test_categories_that_are_not_drawn_are_said(grid, which):
    values = np.array([*"aaaaabbbcd"], dtype=object)
    curve = PartialDependence("town", np.array([*grid], dtype=object), np.arange(2.0), np.ones(2), values)
    share = 80 if grid == "ab" else 60
    assert curve.plot(panel()).get_xlabel() == f"town\n({which}: {share} % of the rows)"
    whole = replace(curve, values=values[:8]) if grid == "ab" else replace(curve, grid=np.array([*"abcd"]))
    assert (
        replace(whole, mean=np.ones(len(whole.grid)), std=np.ones(len(whole.grid))).plot(panel()).get_xlabel() == "town"
    )


@pytest.mark.parametrize("name", ["price", None])
def test_axes_have_the_name_of_the_targets(name, tmp_path):
    y = pd.Series(TARGETS, name=name)
    model, called = PartitionGPRegressor("mondrian", 5, random_state=0).fit(ROWS, y), name or "target"
    model.save(tmp_path / "model.gp")
    for each in (model, PartitionGPRegressor.load(tmp_path / "model.gp")):
        assert each.target_name_ == name
        curve = each.partial_dependence(ROWS[:5], 0, grid=[0.1, 0.9])
        assert curve.plot(panel()).get_ylabel() == f"mean prediction of {called}"
        assert plots.plot_residuals(each, ROWS, TARGETS, ax=panel()).get_xlabel() == f"predicted {called}"
    assert plots.plot_truth(MODEL, ROWS, y, ax=panel()).get_xlabel() == f"true {called}"
    assert curve.plot(panel(), target="rent").get_ylabel() == "mean prediction of rent"


DAYS = np.array(["2007-11-11T05:22", "2008-07-17", "2009-03-23T01:40", "2009-11-27"], dtype="datetime64[us]")


@pytest.mark.parametrize("count", [2, 4, 30])
@pytest.mark.parametrize("zone", [None, UTC])
def test_dates_are_drawn_as_dates_however_few(count, zone):
    days = DAYS[0] + np.linspace(0, 700, count).astype("timedelta64[D]")
    grid = days if zone is None else np.array([day.astype(object).replace(tzinfo=zone) for day in days])
    ax = PartialDependence("day", grid, np.arange(float(count)), np.ones(count), grid).plot(panel())
    ax.figure.draw_without_rendering()
    labels = [label for label in ax.get_xticklabels() if label.get_text()]
    assert all(len(label.get_text()) <= 5 for label in labels)
    boxes = [label.get_window_extent() for label in labels]
    assert not any(left.overlaps(right) for left, right in zip(boxes, boxes[1:]))
    first, last = ax.lines[0].get_xdata()[[0, -1]]
    assert (np.datetime64(first), np.datetime64(last)) == (days[0], days[-1])  # places are times, not numbers of values


def test_many_or_long_names_of_categories_do_not_run_into_each_other():
    for names in (
        [f"2007-11-{day:02d}" for day in range(1, 31)],
        [f"measured at the old harbour of place {i}" for i in range(3)],
    ):
        grid = np.array(names, dtype=object)
        ax = PartialDependence("a", grid, np.ones(len(grid)), np.ones(len(grid)), grid).plot(panel())
        assert {label.get_rotation() for label in ax.get_xticklabels()} == {45}
        assert {label.get_ha() for label in ax.get_xticklabels()} == {"right"}
        texts = [label.get_text() for label in ax.get_xticklabels()]
        assert max(map(len, texts)) <= 28
        assert len(set(texts)) == len(names)  # those that begin alike differ


def test_a_slice_is_the_kernel():
    ax = plots.plot_kernel_slice(CLUSTERS, X, 1, points=X[:1], ax=panel())
    place, value = ax.lines[0].get_xdata()[57], ax.lines[0].get_ydata()[57]
    point = X[:1].clone()
    point[0, 1] = float(place)
    np.testing.assert_allclose(value, CLUSTERS(X[:1], point).to_dense().item())


def test_a_slice_of_one_column_is_no_matter_of_units():
    """The points of a slice are alike in all other columns, which is no sign of other units."""
    x = torch.from_numpy(np.random.RandomState(0).randn(100, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("error", gp.OtherUnitsWarning)
        plots.plot_kernel_slice(gp.FastClusterKernel(x, 10, random_state=0).eval(), x, 1, ax=panel())


def test_cells_are_those_of_the_partition():
    ax = plots.plot_cells(CLUSTERS, X, 3, ax=panel())
    assert ax.get_title(loc="left") == f"{int(CLUSTERS.partition.cluster_counts[3])} cells of FastClusterPartition"
    tree = plots.plot_cells(TREES.partition.tree(2).cut(3.0), X, ax=panel())
    assert tree.get_title(loc="left").endswith(" cells of MondrianPartition")
    from_partition = plots.plot_cells(CLUSTERS.partition, X, 3, ax=panel())
    np.testing.assert_array_equal(ax.images[0].get_array(), from_partition.images[0].get_array())


def test_lifetimes_have_their_posterior():
    ax = SWEEP.plot(panel())
    (stairs,) = ax.patches
    area = stairs.get_data().values * np.diff(np.log(stairs.get_data().edges))
    np.testing.assert_allclose(area, SWEEP.posterior().numpy())
    assert ax.get_xscale() == "log"


@pytest.mark.parametrize("lifetimes", [[0.01, 2.0, 8.0], [0.01, 8.0], [2.0]])
def test_the_likelihood_has_a_line_where_one_lifetime_has_all_of_the_posterior(lifetimes):
    sweep = gp.lifetime_sweep(TREES, X, torch.from_numpy(TARGETS), lifetimes=lifetimes)
    assert sweep.posterior().max() > 0.999
    ax = sweep.plot(panel())
    (other,) = [each for each in ax.figure.axes if each is not ax]
    (line,) = other.lines
    np.testing.assert_array_equal(line.get_xdata(), lifetimes)
    assert line.get_marker() == "."  # a line of a single lifetime is a point


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: plots.plot_cells(CLUSTERS, X, columns=(0, 2)), "two different columns"),
        (lambda: plots.plot_cells(CLUSTERS, X, columns=(0, 0)), "two different columns"),
        (lambda: plots.plot_cells(CLUSTERS, X, 20, ax=panel()), "below 20"),
        (lambda: plots.plot_cells(CLUSTERS + TREES, X), "got AdditiveKernel: of a sum"),
        (lambda: plots.plot_kernel_slice(CLUSTERS, X, "size"), "a number below 2, .* got 'size'"),
        (lambda: plots.plot_truth(MODEL, X, np.zeros(3)), "a known target for each of the"),
        (lambda: plots.plot_coverage(MODEL, X, np.full(len(X), np.nan)), "missing"),
    ],
)
def test_what_cannot_be_drawn_is_refused(draw, message):
    with pytest.raises(ValueError, match=message):
        draw()
    assert not pyplot.get_fignums()


@pytest.mark.parametrize("draw", [plots.plot_truth, plots.plot_coverage, plots.plot_residuals])
@pytest.mark.parametrize("kind", [PartitionGPClassifier, PartitionSVC])
def test_classifiers_have_pictures_of_their_own(kind, draw):
    machine = kind(kernel="mondrian", num_partitions=20, random_state=0).fit(ROWS, TARGETS > 5)
    with pytest.raises(TypeError, match=f"got a {kind.__name__}, which .*CalibrationDisplay.from_predictions"):
        draw(machine, ROWS, TARGETS > 5)
    assert not pyplot.get_fignums()
