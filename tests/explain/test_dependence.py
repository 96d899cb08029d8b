"""Partial dependence: means and variances of averages against dense algebra, and scikit-learn's own displays."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure
from sklearn.inspection import PartialDependenceDisplay
from sklearn.inspection import partial_dependence as scikit_learns

from gpytorch_partition import settings
from gpytorch_partition.estimators import PartitionGPRegressor
from gpytorch_partition.explain.dependence import _default_grid, _known_values
from gpytorch_partition.tables import TableEncoder
from tests.explain.explained import NEW, X, Y, fitted, posterior, total

GRID = np.array([3.5, 5.0, 6.2])
DAYS = [f"{day:02d}.03.2024" for day in range(1, 32)]


@pytest.mark.parametrize("kernel", ["forest", "auto", "averaged", total])
def test_mean_and_variance_are_those_of_the_average(kernel):
    model = fitted(kernel)
    found = model.partial_dependence(NEW, 0, grid=GRID)
    for place, value in enumerate(GRID):
        rows = np.column_stack([np.full(len(NEW), value), NEW[:, 1:]])
        mean, covariance = posterior(model, rows)
        np.testing.assert_allclose(found.mean[place], mean.mean(), rtol=1e-6)
        np.testing.assert_allclose(found.std[place] ** 2, covariance.mean(), rtol=1e-4)
        assert found.std[place] ** 2 < 0.95 * np.diag(covariance).mean()  # which an average of variances would be


def test_solves_by_conjugate_gradients_give_the_same():
    model = PartitionGPRegressor("mondrian", num_partitions=20, dtype="float64", random_state=0).fit(X, Y)
    expected = model.partial_dependence(NEW, 0, grid=GRID)
    twin = PartitionGPRegressor.from_state(model.to_state())
    import linear_operator

    iterative = settings.iterative

    class Sparse(iterative):
        def __enter__(self):
            super().__enter__()
            linear_operator.settings.max_cholesky_size._set_value(10)

    try:
        settings.iterative = Sparse
        found = twin.partial_dependence(NEW, 0, grid=GRID)
    finally:
        settings.iterative = iterative
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-3)
    np.testing.assert_allclose(found.std, expected.std, rtol=0.02)


def test_means_are_scikit_learns():
    model = fitted()
    expected = scikit_learns(model, X, [1], kind="average", grid_resolution=7)
    found = model.partial_dependence(X, 1, grid_resolution=7)
    np.testing.assert_allclose(found.grid, expected["grid_values"][0])
    np.testing.assert_allclose(found.mean, expected["average"][0], rtol=1e-6)
    display = PartialDependenceDisplay.from_estimator(model, X, [0, (0, 1)], grid_resolution=3, ax=Figure().subplots())
    assert len(display.pd_results) == 2


def test_columns_have_names_and_values_of_their_own():
    pandas = pytest.importorskip("pandas")
    rows = pandas.DataFrame({"a": X[:, 0], "$b$": np.arange(120) % 3, "c": X[:, 2]})
    model = PartitionGPRegressor("forest", num_partitions=5, random_state=0).fit(rows, Y)
    found = model.partial_dependence(rows, "$b$")
    assert found.column == "$b$"
    assert found.grid.tolist() == [0, 1, 2]
    assert rows["$b$"].tolist() == list(np.arange(120) % 3)  # untouched
    np.testing.assert_array_equal(model.partial_dependence(rows, 1).mean, found.mean)


@pytest.mark.parametrize(
    ("values", "resolution", "options", "expected"),
    [
        ([3.0, np.nan, 1.0, 3.0], 5, {}, [1.0, 3.0]),
        (["b", None, "a", "c", "c", "b"], 2, {}, ["b", "c"]),
        ([7, 2, 7, 9, 9], 2, {"categorical_features": ["x"]}, [7, 9]),
        ([True, False, True], 5, {}, [False, True]),
        (np.arange(101.0) / 2, 3, {}, [2.5, 25.0, 47.5]),
        (np.arange(0.0, 202.0, 2.0), 3, {}, [8.0, 100.0, 192.0]),  # codes: between them a group has no value
        (np.arange(101).astype("datetime64[D]"), 3, {}, np.array([4, 50, 96]).astype("datetime64[D]")),
        (DAYS, 2, {}, np.array(["2024-03-01", "2024-03-30"]).astype("datetime64[D]")),
    ],
)
def test_grids_are_of_values_that_there_are(values, resolution, options, expected):
    table = {"x": np.array(values)}
    encoder = TableEncoder(**options).fit(table)
    kind, known = _known_values(encoder, table, 0)
    grid = _default_grid(known, resolution, kind)
    if grid.dtype.kind == "f":
        np.testing.assert_allclose(grid, expected, atol=0.6)
    else:
        np.testing.assert_array_equal(grid.astype(np.asarray(expected).dtype), expected)


def test_grids_of_dates_with_a_time_zone_span_them():
    pandas = pytest.importorskip("pandas")
    when = pandas.date_range("2024-01-01", periods=120, tz="Asia/Tokyo")
    rows = pandas.DataFrame({"when": when})
    model = PartitionGPRegressor("forest", num_partitions=5, random_state=0).fit(rows, Y)
    grid = model.partial_dependence(rows, "when", grid_resolution=5).grid
    days = [(date - when[0]).days for date in grid]
    np.testing.assert_allclose(days, np.linspace(0.05 * 119, 0.95 * 119, 5), atol=1)


def test_a_table_in_any_form_gives_the_same():
    columns = {"a": X[:, 0].tolist(), "size": ["s" if value > 0 else "l" for value in X[:, 1]]}
    model = PartitionGPRegressor("forest", num_partitions=5, random_state=0).fit(columns, Y)
    expected = model.partial_dependence(columns, "a").mean
    swapped = {name: columns[name] for name in ("size", "a")}
    np.testing.assert_array_equal(model.partial_dependence(swapped, "a").mean, expected)
    rows = list(zip(*columns.values()))
    model.fit(rows, Y)
    np.testing.assert_allclose(model.partial_dependence(rows, 0).mean, expected)


@pytest.mark.parametrize(
    ("column", "options", "message"),
    [
        ("x7", {}, "its name"),
        (3, {}, "number below 3"),
        (-4, {}, r"number below 3 \(-1 is the last one\)"),
        (True, {}, "number below 3"),
        (0, {"grid": []}, "one value or more"),
        (0, {"grid_resolution": 1}, "2 or more"),
    ],
)
def test_wrong_columns_and_grids_are_refused(column, options, message):
    with pytest.raises(ValueError, match=message):
        fitted().partial_dependence(X, column, **options)
