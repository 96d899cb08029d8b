"""Dates as text, in every format and every kind of table, against the dates that they were written from."""

from __future__ import annotations

import io
import warnings
from datetime import datetime

import numpy as np
import pandas as pd
import pytest
import torch

from gpytorch_partition.command_line.columns import typed_column
from gpytorch_partition.command_line.parquet import table_of_frame
from gpytorch_partition.command_line.roles import Roles, read_training_data
from gpytorch_partition.command_line.tables import read_table
from gpytorch_partition.estimators import PartitionGPRegressor
from gpytorch_partition.tables import MisreadColumnWarning, TableEncoder
from gpytorch_partition.tables.date_texts import dates_of_column

RANDOM = np.random.RandomState(0)
DAYS = pd.Series(np.datetime64("1971-01-01") + np.sort(RANDOM.choice(19_000, 30, replace=False)))
TIMES = DAYS + pd.to_timedelta(RANDOM.randint(24 * 3600, size=30), unit="s")
FORMATS = {
    "%d-%b-%y": DAYS,
    "%B %d, %Y": DAYS,
    "%b-%d-%Y": DAYS,
    "%d%b%Y": DAYS,
    "%d. %B %Y": DAYS,
    "%Y-%b-%d": DAYS,
    "%b %Y": DAYS.dt.to_period("M").dt.to_timestamp(),
    "%d.%m.%Y": DAYS,
    "%m/%d/%y": DAYS,
    "%Y-%m-%d %H:%M:%S GMT": TIMES,
    "%a, %d %b %Y %H:%M:%S GMT": TIMES,
    "%d/%m/%Y %I:%M:%S %p UTC": TIMES,
    "%A, %B %d, %Y %H:%M:%S": TIMES,
}


def as_csv(texts, path):
    path.write_text(pd.DataFrame({"a": texts}).to_csv(index=False))
    return typed_column("a", read_table(path).columns["a"]).values


def as_parquet(texts, path):
    return typed_column("a", table_of_frame(path, pd.DataFrame({"a": texts})).columns["a"]).values


def as_frame(texts, path):
    encoder = TableEncoder().fit(pd.DataFrame({"a": texts}))
    return encoder.read_column(0, np.array(texts, dtype=object))


@pytest.mark.parametrize("read", [as_csv, as_parquet, as_frame])
@pytest.mark.parametrize("written", FORMATS)
def test_every_format_in_every_table(written, read, tmp_path):
    dates = FORMATS[written]
    values = read([*dates.dt.strftime(written)], tmp_path / "data.csv")
    np.testing.assert_array_equal(values, dates.to_numpy("datetime64[us]"))


@pytest.mark.parametrize("read", [as_csv, as_parquet, as_frame])
def test_quarters_and_times_of_day(read, tmp_path):
    quarters = pd.period_range("1990Q1", periods=9, freq="Q")
    for texts in ([str(quarter) for quarter in quarters], [f"Q{each.quarter} {each.year}" for each in quarters]):
        np.testing.assert_array_equal(read(texts, tmp_path / "data.csv"), quarters.to_timestamp().to_numpy())
    hours = read(["13:45", "0:00:36", "7:30 PM"], tmp_path / "data.csv")
    np.testing.assert_allclose(hours, [13.75, 0.01, 19.5])


@pytest.mark.parametrize(
    "texts",
    [
        ["Feb 30, 2024"],
        ["May", "June"],
        ["Jan 10"],
        ["25:60"],
        ["R-2024"],
        ["0815-1", "4711-01"],  # numbers of things
        ["Feb 4711"],
        ["1990Q5"],
        ["31.12.2024", "12/31/2024"],
        ["12-10-20-0455"],  # no date with a zone behind it
    ],
)
def test_what_is_no_date(texts):
    assert dates_of_column(texts) is None


class TestEncoder:
    def test_new_rows_are_read_as_in_fit_by_themselves_and_from_a_file(self):
        frame = pd.DataFrame({"a": DAYS.dt.strftime("%m/%d/%Y"), "t": TIMES.dt.strftime("%H:%M")})
        encoder, file = TableEncoder().fit(frame), io.BytesIO()
        torch.save(encoder.to_state(), file)
        file.seek(0)
        for each in (encoder, TableEncoder.from_state(torch.load(file, weights_only=True))):
            one = each.read_column(0, np.array(["03/04/2024"], dtype=object))
            both = each.read_column(0, np.array(["03/04/2024", "13/04/2024", "n/a"], dtype=object))
            assert one[0] == both[0] == np.datetime64("2024-03-04")
            assert np.isnat(both[1:]).all()
            assert each.transform(pd.DataFrame({"a": ["4 Mar 2024"], "t": ["6:30 AM"]}))[0, -1] == 6.5
            with pytest.raises(TypeError, match=r"expected dates \(month-day-year\) in column 'a', .* text \('soon'\)"):
                each.transform(pd.DataFrame({"a": ["soon"], "t": [None]}))

    def test_an_order_that_is_open_is_warned_of_and_holes_are_said(self, caplog):
        with pytest.warns(MisreadColumnWarning, match="read as day-month-year, and could be month-day-year as well"):
            TableEncoder().fit({"a": np.array(["03/04/2024", "05/06/2024"], dtype=object)})
        texts = [*DAYS.astype(str), "soon", "?"]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            encoder = TableEncoder().fit({"a": np.array(texts, dtype=object)})
        assert encoder.messages_[0] == "column 'a': dates as text; 'soon' among its dates taken for missing cells"
        assert np.isnan(encoder.transform({"a": np.array(texts, dtype=object)})[-2:]).all()

    def test_categories_stay_categories(self):
        frame = pd.DataFrame({"a": DAYS.astype(str)})
        assert TableEncoder().fit(frame.astype("category")).kinds_ == ["category"]
        assert TableEncoder(["a"]).fit(frame).kinds_ == ["text"]


def test_ids_that_look_like_dates_have_a_hint(tmp_path):
    texts = [f"le {number + 1} mars 2024" for number in range(20)]
    with pytest.warns(UserWarning, match=r"as an id has.*if it holds dates \('le 1 mars 2024'\), write them"):
        TableEncoder().fit(pd.DataFrame({"a": texts, "b": 1.0}))


def test_categories_that_look_like_dates_have_a_hint_on_the_command_line(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("a,b,y\n" + "".join(f"le {n % 9} mars 2024,{n},{n}.5\n" for n in range(20)))
    notes = read_training_data(path, Roles("y")).notes
    hint = "column 'a' is text of 9 categories; if it holds dates ('le 0 mars 2024'), write them as YYYY-MM-DD"
    assert hint in notes


def test_partial_dependence_of_dates_and_times_as_text():
    frame = pd.DataFrame({"a": DAYS.dt.strftime("%d-%b-%y"), "t": TIMES.dt.strftime("%H:%M")})
    model = PartitionGPRegressor("mondrian", 20, random_state=0).fit(frame, np.arange(30.0) + RANDOM.randn(30))
    found = model.partial_dependence(frame, "a", grid_resolution=5)
    assert found.grid.dtype.kind == "M"
    assert found.mean[-1] > found.mean[0]
    assert model.partial_dependence(frame, "t", grid_resolution=3).grid.dtype == np.float64


def test_datetimes_are_naive():
    found = dates_of_column(["2024-02-03 04:05:06.25 +0200"])
    assert found.values["2024-02-03 04:05:06.25 +0200"] == datetime(2024, 2, 3, 2, 5, 6, 250_000)
