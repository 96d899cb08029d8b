"""Numbers and dates as text, against what they were written from; what is none; and new rows in the notation of fit."""

from __future__ import annotations

import warnings
from itertools import product

import numpy as np
import pandas as pd
import pytest

from gpytorch_partition.estimators import PartitionGPRegressor
from gpytorch_partition.tables import MisreadColumnWarning, TableEncoder
from gpytorch_partition.tables.cells import Cells
from gpytorch_partition.tables.notations import as_read

RANDOM = np.random.RandomState(0)
DAYS = pd.Series(np.datetime64("1971-01-01") + np.sort(RANDOM.choice(19_000, 30, replace=False)))
TIMES = DAYS + pd.to_timedelta(RANDOM.randint(24 * 60, size=30), unit="min")
NAN = np.nan


def column(*cells):
    return {"a": np.array(cells, dtype=object)}


def text(cells):
    return Cells("text", np.array(cells, dtype=object))


@pytest.mark.parametrize(
    ("cells", "numbers", "notation"),
    [
        (["1", " -2.5", "3e2", "+.5", "0.25"], [1, -2.5, 300, 0.5, 0.25], ".,"),
        (["1.234,5", "12,75", "-3"], [1234.5, 12.75, -3], ",."),
        (["1 234,5", "1\u202f000,25", "7"], [1234.5, 1000.25, 7], ", "),
        (["1,234.5", "1,000,000", "7"], [1234.5, 1e6, 7], ".,"),
        (["1'234.50", "12"], [1234.5, 12], ".'"),
        (["$1,200", "$ 15.50", "-$20", "$-20", "7"], [1200, 15.5, -20, -20, 7], ".,$"),
        (["3,50 €", "1.000,00 €"], [3.5, 1000], ",.€"),
        (["12 %", "7.5%"], [12, 7.5], ".,%"),
        (["(12 %)", "(3)%", "7.5%"], [-12, -3, 7.5], ".,%"),
        (["\u22125", "3.25"], [-5, 3.25], ".,"),
        (["3.16-", "2.5", "1,000-"], [-3.16, 2.5, -1000], ".,"),
        (["3,50- €", "1 €"], [-3.5, 1], ",.€"),
        (["(1,234.50)", "2", "-3", "(.5)"], [-1234.5, 2, -3, -0.5], ".,"),
        (["($1,200)", "$(20)", "$7"], [-1200, -20, 7], ".,$"),
        (["(1.000,50 €)", "(3) €", "1 €"], [-1000.5, -3, 1], ",.€"),
        (["1,23,456", "12,34,567.5", "1,00,00,000"], [123456, 1234567.5, 1e7], ".,"),
        (["1", "", "NA", "NaN", "null", "None", "#N/A", "?", "-", "2"], [1, *[NAN] * 8, 2], ".,"),
        ([*map(str, range(30)), "n.d.", "12O"], [*range(30), NAN, NAN], ".,"),
        ([*map(str, range(30)), "1,5"], [*range(30), 1.5], ",."),
    ],
)
def test_numbers(cells, numbers, notation):
    found = as_read(text(cells))
    np.testing.assert_array_equal(found.values, numbers)
    assert found.notation == notation


@pytest.mark.parametrize(
    "cells",
    [
        ["A5", "A6"],
        ["5 kg", "6 kg"],
        ["04623", "10115"],  # names
        ["04623", *(str(number) for number in range(20_000, 20_300))],  # a few of many
        ["9007199254740993", "9007199254740992", "5"],  # the same in float64
        ["$5", "€6", "£7"],
        ["5 %", "0.05"],
        ["(1)", "(2)"],
        ["--5", "6"],
        ["(-5)", "6"],
        ["(5", "6"],
        ["-5-", "6"],
        ["1,23,45", "6"],
        ["1,234,56,789", "6"],
        ["1_000", "2"],
        ["0x10", "2"],
        ["1.5", "2,25"],
        ["1", "2", "3", "3a"],
        [*map(str, range(30)), *(f"x{number}" for number in range(5))],
        ["13:45", "7:30"],
        ["31.02.2024"],
        ["31.12.2024", "12/31/2024"],
        ["2024-13-01"],
        ["0815-1", "4711-01"],  # numbers of things
        ["May", "June"],
        ["soon", "2024-02-03"],
    ],
)
def test_what_is_no_number_or_date_is_a_category(cells):
    assert as_read(text(cells)).kind == "text"


@pytest.mark.parametrize(
    ("written", "dates"),
    [
        *((days, DAYS) for days in ("%d.%m.%Y", "%m/%d/%Y", "%m/%d/%y", "%d-%b-%y", "%B %d, %Y", "%Y-%m-%d")),
        *((times, TIMES) for times in ("%d.%m.%Y %H:%M", "%m/%d/%Y %I:%M %p", "%Y-%m-%dT%H:%M:%SZ", "%Y/%m/%d %H:%M")),
        ("%Y-%m", DAYS.dt.to_period("M").dt.to_timestamp()),
    ],
)
def test_dates(written, dates):
    found = as_read(text([*dates.dt.strftime(written), "?"]))
    np.testing.assert_array_equal(found.values[:-1], dates.to_numpy("datetime64[us]"))
    assert np.isnat(found.values[-1])
    assert not found.doubt


def test_time_zones_are_taken_to_utc():
    found = as_read(text(["2024-02-03T04:05+02:00", "2024-02-03"]))
    assert found.values.tolist() == [pd.Timestamp("2024-02-03 02:05"), pd.Timestamp("2024-02-03")]
    assert "another time zone" in found.doubt


CLOCK = DAYS.dt.strftime("%Y-%m-%d %H:%M")
ZONES = (CLOCK, DAYS), (CLOCK + "+05:00", CLOCK + "Z", DAYS.dt.tz_localize("UTC"))


@pytest.mark.parametrize(
    ("of_fit", "new"), [pair for one, other in (ZONES, ZONES[::-1]) for pair in product(one, other)]
)
def test_clocks_of_a_zone_are_no_other_clocks(of_fit, new):
    encoder = TableEncoder().fit({"when": of_fit})
    with pytest.raises(TypeError, match="time zone"):
        encoder.transform({"when": new})
    encoder.transform({"when": of_fit})


def test_numbers_in_two_notations_are_names_with_a_warning():
    cells = [f"{number}.5%" if number % 2 else f"0.{number}" for number in range(10, 70)]
    with pytest.warns(
        MisreadColumnWarning, match="could have numbers in more than one notation: write all cells alike"
    ):
        TableEncoder().fit({"a": cells * 2})


@pytest.mark.parametrize("dtype", ["int64", "uint64", "Int64"])
def test_whole_numbers_that_float64_makes_one_are_told(dtype):
    near, far = (pd.Series(10**18 + step * np.arange(30)).astype(dtype) for step in (1, 10**9))
    with pytest.warns(MisreadColumnWarning, match="30 whole numbers become 1.: convert the column to text"):
        TableEncoder().fit({"a": near})
    with warnings.catch_warnings(action="error"):
        TableEncoder().fit({"a": far})


@pytest.mark.parametrize("written", ["{:,}", "-{}", "{}.0", "${}"])
def test_numbers_that_float64_makes_one_are_names(written):
    found = as_read(text([written.format(10**18 + number) for number in range(30)]))
    assert len(set(found.values)) == 30


class TestNewRows:
    FRAME = pd.DataFrame({"a": DAYS.dt.strftime("%m/%d/%Y"), "n": [f"1.{n:03d},50 €" for n in range(30)]})

    @pytest.fixture(params=["fitted", "from a state"])
    def encoder(self, request):
        encoder = TableEncoder().fit(self.FRAME)
        return encoder if request.param == "fitted" else TableEncoder.from_state(encoder.to_state())

    def test_they_are_read_as_in_fit_by_themselves(self, encoder):
        found = encoder.read(column("03/04/2024", "2024-03-05", "n/a", "soon"))[0]["a"]
        assert found[:2].tolist() == pd.to_datetime(["2024-03-04", "2024-03-05"]).to_pydatetime().tolist()
        assert np.isnat(found[2:]).all()
        np.testing.assert_array_equal(encoder.read({"n": np.array(["2.000 €", "7", "x"])})[0]["n"], [2000, 7, NAN])
        assert encoder.readings_["n"] == "numbers as 1.234,5 €"

    @pytest.mark.parametrize(
        ("name", "cells", "message"),
        [
            ("a", ["soon"], r"expected dates \(%m/%d/%Y\) in column 'a', .* text \('soon'\)"),
            ("a", ["03/04/2024", "13/04/2024"], "'a' written as %m/%d/%Y, as in fit, got '13/04/2024'"),
            ("n", ["1.5", "1,5"], "'n' written as 1.234,5 €, as in fit, got '1.5'"),
        ],
    )
    def test_other_notations_are_refused(self, encoder, name, cells, message):
        with pytest.raises(TypeError, match=message):
            encoder.read({name: np.array(cells)})


class TestTwoReadings:
    OPEN, SURE = column("1.234", "2.500"), {"b": np.array(["0,5", "1,25"], dtype=object)}

    def test_they_are_warned_of(self):
        with pytest.warns(MisreadColumnWarning, match=r"'a': its numbers are text, read as 1,234.5, and could have"):
            assert TableEncoder().fit_read(self.OPEN)["a"].tolist() == [1.234, 2.5]
        with pytest.warns(MisreadColumnWarning, match="read as %d/%m/%Y, and could have the month first"):
            TableEncoder().fit(column("03/04/2024", "05/06/2024"))

    def test_years_of_two_digits_to_come_are_warned_of(self):
        with pytest.warns(MisreadColumnWarning, match="read as %d.%m.%y, and could have years a century earlier"):
            TableEncoder().fit(column("24.09.38", "03.05.71"))

    def test_they_have_the_mark_of_other_columns_or_that_is_given(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert TableEncoder(decimal=",").fit_read(self.OPEN)["a"].tolist() == [1234, 2500]
            assert TableEncoder(thousands=" ").fit_read(self.OPEN)["a"].tolist() == [1.234, 2.5]
            encoder = TableEncoder().fit({**self.OPEN, **self.SURE})
        found, notes = encoder.read(self.OPEN)
        assert found["a"].tolist() == [1234, 2500]
        assert notes == ["column 'a': '1.234' is read as 1234, since numbers were 1.234,5 in fit"]
        with pytest.raises(ValueError, match="expected different marks"):
            TableEncoder(decimal=",", thousands=",").fit(self.SURE)


def test_holes_are_said_and_categories_stay_categories():
    encoder = TableEncoder().fit(column(*DAYS.astype(str), "soon", "?"))
    said = "dates as YYYY-MM-DD (days, month, day_of_year, weekday); 'soon' among its dates taken for missing cells"
    assert encoder.messages_ == [f"column 'a': {said}"]
    frame = pd.DataFrame({"a": DAYS.astype(str), "n": [*map(str, range(30))]})
    assert [*TableEncoder().fit(frame.astype("category")).kinds_.values()] == ["category"] * 2
    assert [*TableEncoder(["a", "n"]).fit(frame).kinds_.values()] == ["text"] * 2


def test_partial_dependence_of_dates_and_numbers_as_text():
    frame = pd.DataFrame({"a": DAYS.dt.strftime("%d-%b-%y"), "t": [f"{n % 7},5" for n in range(30)]})
    model = PartitionGPRegressor("mondrian", 20, random_state=0).fit(frame, np.arange(30.0) + RANDOM.randn(30))
    found = model.partial_dependence(frame, "a", grid_resolution=5)
    assert found.grid.dtype.kind == "M"
    assert found.mean[-1] > found.mean[0]
    assert model.partial_dependence(frame, "t", grid_resolution=3).grid.dtype == np.float64
