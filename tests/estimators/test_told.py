"""What estimators tell beside numbers: columns without information, levels that are new, and whose call it was."""

from __future__ import annotations

import logging
import re
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from gpytorch.kernels import RBFKernel
from sklearn.model_selection import cross_val_predict

from gpytorch_partition.callers import level_of_caller
from gpytorch_partition.estimators import PartitionGPClassifier, PartitionGPRegressor
from gpytorch_partition.tables import TableEncoder
from gpytorch_partition.tables.encoder import MisreadColumnWarning

RANDOM = np.random.RandomState(0)
N = 60
FRAME = pd.DataFrame(
    {
        "size": RANDOM.randn(N),
        "region": "here",
        "town": RANDOM.choice(["Lyon", "Nice", "Metz"], N),
        "empty": np.nan,
        "stage": np.where(np.arange(N) % 9, 1.0, np.nan),  # whether it is known may tell something
        "day": pd.Timestamp("2024-01-01"),
    }
)
Y = FRAME["size"].to_numpy() + (FRAME["town"] == "Lyon") + 0.1 * RANDOM.randn(N)


def forest(**options):
    return PartitionGPRegressor("forest", 10, random_state=0, **options)


class TestColumnsWithoutInformation:
    def test_they_are_named_in_the_log_and_the_summary(self, caplog):
        with caplog.at_level(logging.INFO, "gpytorch_partition"):
            model = forest().fit(FRAME, Y)
        assert (
            "columns that are the same in all rows, empty or ids, tell nothing: 'region', 'empty', 'day'" in caplog.text
        )
        assert model.summary().constant_columns == ("region", "empty", "day")
        assert model.summary().facts()["constant"].startswith("region, empty, day (the same in all rows, empty or ids")
        copy = PartitionGPRegressor.from_state(model.to_state())
        assert copy.summary().constant_columns == ("region", "empty", "day")

    def test_those_of_arrays_have_numbers(self, caplog):
        rows = np.column_stack([FRAME["size"], np.full(N, 3.0), FRAME["stage"], np.full(N, np.nan)])
        with caplog.at_level(logging.INFO, "gpytorch_partition"):
            model = forest().fit(rows, Y)
        assert model.summary().constant_columns == ("x1", "x3")
        assert "tell nothing: 'x1', 'x3'" in caplog.text

    def test_a_new_fit_forgets_them(self):
        model = forest().fit(FRAME, Y)
        model.fit(FRAME[["size", "town"]], Y)
        assert model.summary().constant_columns == ()
        assert "constant" not in model.summary().facts()


def short_where_nothing_varies(x, y):
    """Columns with lengthscales of 1, 5 and 50, and two with .1, which shall be constant."""
    kernel = RBFKernel(ard_num_dims=5)
    kernel.lengthscale = torch.tensor([1.0, 5.0, 50.0, 0.1, 0.1])
    return kernel.requires_grad_(False)


def test_lengthscales_are_those_of_columns_that_matter():
    frame = pd.DataFrame({"a": RANDOM.randn(N), "b": RANDOM.randn(N), "c": RANDOM.randn(N), "d": 7.0, "e": 8.0})
    model = PartitionGPRegressor(short_where_nothing_varies).fit(frame, Y)
    (part,) = model.summary().parts
    assert part.relevances == pytest.approx({"a": 1 / 1.0404, "b": 0.04 / 1.0404, "c": 0.0004 / 1.0404, "d": 0, "e": 0})
    assert model.summary().facts()["lengthscales"] == (
        "a 1, b 5 and 3 columns of less weight (in standard deviations of the columns)"
    )
    assert part.lengthscales["d"] == pytest.approx(0.1)  # the number itself is there still


class TestNewLevels:
    def test_the_log_names_them_once(self, caplog):
        model = forest().fit(FRAME, Y)
        new = FRAME.head(6).assign(town=["Oslo", "Lyon", "Rome", None, "Oslo", "Nice"])
        with caplog.at_level(logging.INFO, "gpytorch_partition"):
            model.predict(new)
            model.predict(new[::-1])  # the same levels, as often
        said = "column 'town': fit did not learn 'Oslo', 'Rome': taken for missing cells (3 in all)"
        assert [record.getMessage() for record in caplog.records if record.levelno >= logging.INFO] == [said]

    def test_known_levels_and_missing_cells_are_none(self, caplog):
        encoder = TableEncoder().fit(FRAME)
        with caplog.at_level(logging.INFO, "gpytorch_partition"):
            encoder.transform(FRAME.assign(town=[None, *FRAME["town"][1:]], region=None))
        assert not caplog.records

    def test_a_copy_from_a_state_says_them_too(self, caplog):
        encoder = TableEncoder.from_state(TableEncoder().fit(FRAME).to_state())
        with caplog.at_level(logging.INFO, "gpytorch_partition"):
            encoder.transform(FRAME.assign(region="there"))
        assert f"'region': fit did not learn 'there': taken for missing cells ({N} in all)" in caplog.text


def test_sizes_of_codes_are_for_those_who_look_for_them(caplog):
    with caplog.at_level(logging.INFO, "gpytorch_partition"):
        forest().fit(FRAME[["size"]], Y)
    assert not caplog.records


class TestWarningsPointToTheCaller:
    @pytest.mark.parametrize("unit", ["", " €", "%"])
    @pytest.mark.parametrize("machine", [forest(), PartitionGPClassifier("forest", 10, random_state=0)])
    def test_of_columns_that_were_misread(self, machine, unit):
        frame = FRAME.assign(day=[f"{row + 1}.{row + 100}{unit}" for row in range(N)])
        with pytest.warns(MisreadColumnWarning) as told:
            machine.fit(frame, np.sign(Y - Y.mean()))
        assert {warning.filename for warning in told} == {__file__}

    def test_through_scikit_learn(self):
        frame = FRAME[["size"]].assign(day=[f"{row + 1}.{row + 100}" for row in range(N)])
        for call in (
            lambda: TableEncoder().fit_transform(frame),  # which scikit-learn wraps
            lambda: cross_val_predict(forest(), frame, Y, cv=2),
        ):
            with pytest.warns(MisreadColumnWarning) as told:
                call()
            assert {warning.filename for warning in told if warning.category is MisreadColumnWarning} == {__file__}

    def test_of_new_holes_bounds_and_rows_outside(self):
        model = forest().fit(FRAME[["size"]], Y)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            model.predict(FRAME[["size"]].assign(size=np.nan))
            model.predict(FRAME[["size"]] + 1e3)
            forest().fit(FRAME[["size"]], np.ones(N))
        assert len(told) >= 3
        assert {warning.filename for warning in told} == {__file__}


def test_outside_the_package_the_caller_is_the_one_who_asks():
    assert level_of_caller() == 1


SLOW_LAWS = [pytest.param(law, marks=pytest.mark.slow) for law in ("counts", "pairs")]


@pytest.mark.parametrize("law", ["amounts", *SLOW_LAWS])
def test_mostly_one_value_is_told_where_intervals_hold_few_others(law):
    random = np.random.RandomState(0)
    x, (chance, noise) = random.randn(1300, 2), random.rand(2, 1300)
    amounts = np.where(chance > 0.7, np.exp(3 + x[:, 1] + noise), 0)
    counts = random.poisson(np.exp(0.6 * x[:, 0] - 1.2)).astype(float)
    y = {"amounts": amounts, "counts": counts, "pairs": np.where(chance > 0.52, 20 + noise, 0)}[law]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model = PartitionGPRegressor(num_partitions=20, random_state=0).fit(x[:300], y[:300])
    new, judged = y[300:], model.judge(x[300:], y[300:])
    share = float((judged.level <= 0.9)[new != 0].mean())
    messages = [str(each.message) for each in told if "of the targets are one value" in str(each.message)]
    assert len(messages) == (law != "pairs") == (share < 0.85)
    if messages:
        number = re.search(r"intervals hold (\d+)% of the others", messages[0])
        assert abs(int(number[1]) / 100 - share) < 0.15
        assert told[-1].filename == __file__


DAYS = pd.Series(np.datetime64("2020-01-01", "us") + np.arange(60) * np.timedelta64(9, "D"))
SOME = np.arange(60) % 12 == 5  # 8 %
SENTINELS = [
    (
        np.where(SOME[:, None], [-999.0, 1.0], np.stack([Y, Y**2], 1)),
        Y,
        ["column 'x0' 5 cells are -999,", "numpy.isin"],
    ),
    (np.where(SOME[:, None], [1.0, 1e30], np.stack([Y, Y**2], 1)), Y, ["column 'x1' 5 cells are 1e+30,"]),
    (
        np.stack([Y, Y**2], 1),
        np.where(SOME, 9999, Y),
        ["the target 5 cells are 9999,", "leave rows without a target out"],
    ),
    (np.stack([Y, 1 + SOME], 1), np.where(SOME, -9999, np.where(Y > 1, 9999, Y)), ["are 9999 and 5 cells are -9999"]),
    (
        pd.DataFrame({"day": DAYS.mask(SOME, pd.Timestamp("9999-12-31"))}),
        Y,
        ["'day' 5 cells are 9999-12-31,", "X.mask"],
    ),
    (pd.DataFrame({"day": DAYS.mask(SOME, pd.Timestamp("1900-01-01"))}), Y, ["'day' 5 cells are 1900-01-01,"]),
    (pd.DataFrame({"a": np.where(SOME, -999, Y), "c": pd.Categorical(SOME * -999)}), Y, ["in column 'a' 5 cells"]),
    (np.stack([Y], 1), np.stack([Y, np.where(SOME, -999, Y)], 1), ["in target 1 5 cells are -999,", "make them NaN"]),
    (np.stack([Y], 1), pd.DataFrame({"a": np.where(SOME, 1e30, Y), "b": Y}), ["in target 'a' 5 cells are 1e+30,"]),
    (
        np.stack([Y, 99.0 * SOME, 999 + Y, -9 - 0 * Y], 1),
        np.round(100 * Y) + 999,
        [],
    ),  # levels, and what is near others
    (pd.DataFrame({"born": DAYS - np.timedelta64(100 * 365, "D")}), Y, []),
]


@pytest.mark.parametrize(("X", "y", "told"), SENTINELS)
def test_numbers_that_may_stand_for_missing_cells_are_told_once(X, y, told):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        forest().fit(X, y)
    messages = [str(each.message) for each in caught if "far from all others" in str(each.message)]
    assert len(messages) == bool(told)
    assert all(part in messages[0] for part in told)
    assert {each.filename for each in caught} <= {__file__}
