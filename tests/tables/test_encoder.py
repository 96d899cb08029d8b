"""Tables of every kind of column against what is written beside them; states, new rows and refusals."""

from __future__ import annotations

import datetime as dt
import io
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import eye_array
from sklearn.exceptions import NotFittedError

from gpytorch_partition.tables import TableEncoder

NAN = np.nan


def encoded(*columns, **named):
    """The matrix of a frame, and its encoder."""
    frame = pd.DataFrame({**{f"c{number}": column for number, column in enumerate(columns)}, **named})
    encoder = TableEncoder()
    return encoder.fit_transform(frame), encoder


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (pd.array([1, None, 3], dtype="Int64"), [1, NAN, 3]),
        (pd.array([True, None, False], dtype="boolean"), [1, NAN, 0]),
        (pd.array([1.5, None, 2], dtype="Float32"), [1.5, NAN, 2]),
        ([True, False, True], [1, 0, 1]),
        (np.array([1, None, Decimal("2.5")], dtype=object), [1, NAN, 2.5]),
        (np.array([True, pd.NA, 2.5], dtype=object), [1, NAN, 2.5]),
        (pd.arrays.SparseArray([0.0, 0.0, 2.0]), [0, 0, 2]),
        (pd.to_timedelta(["1D", None, "12h"]), [1, NAN, 0.5]),
        ([dt.timedelta(days=2), None, dt.timedelta(hours=6)], [2, NAN, 0.25]),
        (np.array([dt.time(6, 30), None, dt.time(0, 0, 36)], dtype=object), [6.5, NAN, 0.01]),
        (pd.Categorical(["low", None, "high"], ["low", "mid", "high"], ordered=True), [0, NAN, 2]),
        (np.array([2**40, 1, 0]), [2**40, 1, 0]),
        (np.array([1, 2, 2], dtype=np.uint8), [1, 2, 2]),
    ],
)
def test_numbers_stay_numbers(cells, expected):
    matrix, encoder = encoded(cells)
    np.testing.assert_array_equal(matrix[:, 0], expected)
    assert encoder.categories_ == {}


@pytest.mark.parametrize(
    ("cells", "codes", "levels"),
    [
        (["b", "a", None, "b"], [1, 0, NAN, 1], ["a", "b"]),
        (pd.array(["b", None, "a", "b"], dtype="string"), [1, NAN, 0, 1], ["a", "b"]),
        (np.array(["b", NAN, None, pd.NA], dtype=object), [0, NAN, NAN, NAN], ["b"]),
        (pd.Categorical(["y", "x", None, "y"], ["z", "y", "x"]), [1, 2, NAN, 1], ["z", "y", "x"]),
        (pd.Categorical([7, 7, 3, 9]), [1, 1, 0, 2], [3, 7, 9]),
        (np.array(["x1", 1, 2.5, None], dtype=object), [2, 0, 1, NAN], ["1", "2.5", "x1"]),
    ],
)
def test_text_and_categories_become_codes(cells, codes, levels):
    matrix, encoder = encoded(cells)
    np.testing.assert_array_equal(matrix[:, 0], codes)
    assert encoder.categories_ == {0: levels}


def test_dates_become_days_and_the_calendar_parts_that_vary():
    dates = pd.to_datetime(["2024-02-29 06:00", "2024-12-31 18:30", None])
    matrix, encoder = encoded(when=dates, day=pd.to_datetime(["2021-01-04", "2021-01-05", "2021-01-06"]))
    names = [
        "when",
        "when_month",
        "when_day_of_year",
        "when_weekday",
        "when_hour",
        "day",
        "day_day_of_year",
        "day_weekday",
    ]
    assert encoder.get_feature_names_out().tolist() == names
    for row, date in zip(matrix, dates[:2]):
        days = (date - pd.Timestamp(0)) / pd.Timedelta("1D")
        expected = [days, date.month, date.day_of_year, date.weekday(), date.hour + date.minute / 60]
        np.testing.assert_allclose(row[:5], expected)
    assert np.isnan(matrix[2, :5]).all()
    np.testing.assert_array_equal(matrix[:, 7], [0, 1, 2])
    assert encoder.sources_ == [0] * 5 + [1] * 3
    assert encoder.messages_[0] == "column 'when': dates (days, month, day_of_year, weekday, hour)"


@pytest.mark.parametrize(
    "cells",
    [
        np.array(["2024-02-29", "1969-12-31"], dtype="datetime64[D]"),
        np.array([dt.date(2024, 2, 29), dt.date(1969, 12, 31)], dtype=object),
        np.array([dt.datetime(2024, 2, 29), pd.Timestamp("1969-12-31")], dtype=object),
        pd.PeriodIndex(["2024-02-29", "1969-12-31"], freq="D"),
        pd.to_datetime(["2024-02-29", "1969-12-31"]).tz_localize("Europe/Berlin"),
    ],
)
def test_dates_of_any_type(cells):
    matrix, encoder = encoded(cells)
    np.testing.assert_array_equal(matrix, [[19782, 2, 60, 3], [-1, 12, 365, 2]])


def test_time_zones():
    berlin = pd.to_datetime(["2024-07-01 08:00", "2024-07-01 09:00"]).tz_localize("Europe/Berlin")
    matrix, encoder = encoded(berlin)
    np.testing.assert_allclose(matrix[:, 1], [8, 9])
    np.testing.assert_allclose(encoder.transform(pd.DataFrame({"c0": berlin.tz_convert("UTC")})), matrix)
    with pytest.raises(TypeError, match="time zone in both"):
        encoder.transform(pd.DataFrame({"c0": berlin.tz_localize(None)}))


FRAME = pd.DataFrame(
    {
        "size": [1.0, NAN, 3.0],
        "color": ["red", "blue", None],
        "kind": pd.Categorical(["a", "b", "a"], ["b", "a", "c"]),
        "when": pd.to_datetime(["2024-01-01", "2024-02-01", None]),
        "void": [None, None, None],
        "same": ["x", "x", "x"],
    }
)
MATRIX = TableEncoder().fit_transform(FRAME)


def test_the_same_table_in_other_clothes():
    mapping = {name: FRAME[name].to_numpy() for name in reversed(FRAME.columns)}
    mapping["kind"] = FRAME["kind"]
    objects = FRAME.astype(object).to_numpy()
    np.testing.assert_array_equal(TableEncoder().fit(FRAME).transform(mapping), MATRIX)
    by_array = TableEncoder().fit(objects)
    assert by_array.categories_[2] == ["a", "b"]  # an array does not know declared levels
    np.testing.assert_array_equal(np.delete(by_array.transform(objects), 2, 1), np.delete(MATRIX, 2, 1))
    np.testing.assert_array_equal(TableEncoder().fit_transform([["a", 1], ["b", 2]]), [[0, 1], [1, 2]])


def test_an_empty_column_is_left_out_and_a_constant_one_is_not():
    encoder = TableEncoder().fit(FRAME)
    assert encoder.get_feature_names_out().tolist()[-1] == "same"
    assert not any("void" in name for name in encoder.get_feature_names_out())
    assert "column 'void': left out: empty" in encoder.messages_
    full = FRAME.assign(void=["now", "it has", "some"])
    np.testing.assert_array_equal(encoder.transform(full), MATRIX)


def test_new_levels_and_new_holes_are_missing():
    encoder = TableEncoder().fit(FRAME)
    new = FRAME.assign(color=["green", "red", None], kind=["d", "c", "a"], when=[None] * 3, same=None)
    expected = MATRIX.copy()
    expected[:, 1], expected[:, 2], expected[:, 3:] = [NAN, 1, NAN], [NAN, 2, 1], NAN
    np.testing.assert_array_equal(encoder.transform(new), expected)


def test_state():
    encoder, file = TableEncoder().fit(FRAME), io.BytesIO()
    torch.save(encoder.to_state(), file)
    file.seek(0)
    copy = TableEncoder.from_state(torch.load(file, weights_only=True))
    np.testing.assert_array_equal(copy.transform(FRAME), MATRIX)
    assert (copy.messages_, copy.categories_) == (encoder.messages_, encoder.categories_)
    with pytest.raises(ValueError, match="unseen at fit"):
        copy.transform(FRAME.rename(columns={"size": "length"}))


def test_numbers_that_are_to_be_categories():
    frame = pd.DataFrame({"zip": [10115, 80331, 10115], "size": [1.5, NAN, 1.5]})
    encoder = TableEncoder(categorical_features=["zip", 1])
    np.testing.assert_array_equal(encoder.fit_transform(frame), [[0, 0], [1, NAN], [0, 0]])
    assert encoder.categories_ == {0: [10115, 80331], 1: [1.5]}
    np.testing.assert_array_equal(encoder.transform(frame + 1), np.full((3, 2), NAN))
    with pytest.raises(ValueError, match="among 'zip', 'size'"):
        TableEncoder(categorical_features=["zipp"]).fit(frame)


def test_ten_thousand_levels():
    names = np.array([f"name {number}" for number in range(10_000)], dtype=object)
    rows = np.random.RandomState(0).randint(10_000, size=50_000)
    encoder = TableEncoder().fit({"name": np.repeat(names, 2)})
    codes = encoder.transform({"name": names[rows]})[:, 0]
    assert np.array_equal(np.array(encoder.categories_[0], dtype=object)[codes.astype(int)], names[rows])


def test_as_many_different_texts_as_rows_are_left_out():
    frame = pd.DataFrame({"id": [f"R-{n}" for n in range(20)], "x": np.arange(20.0)})
    with pytest.warns(UserWarning, match="column 'id' has as many different texts as rows.*left out"):
        encoder = TableEncoder().fit(frame)
    assert [*encoder.kinds_.values()] == ["id", "numbers"]
    assert "'id'" in encoder.messages_[0]
    for each in (encoder, TableEncoder.from_state(encoder.to_state())):  # new ids may be anything
        assert each.transform(frame.assign(id=range(20))).tolist() == frame[["x"]].to_numpy().tolist()
        assert list(each.get_feature_names_out()) == ["x"]
    assert [*TableEncoder(categorical_features=["id"]).fit(frame).kinds_.values()] == ["text", "numbers"]
    assert [*TableEncoder().fit(frame.astype({"id": "category"})).kinds_.values()] == ["category", "numbers"]
    assert [*TableEncoder().fit(frame[:19]).kinds_.values()] == ["text", "numbers"]
    with pytest.warns(UserWarning, match="left out"), pytest.raises(ValueError, match="ids .* only"):
        TableEncoder().fit(frame[["id"]])


def test_ids_may_have_copies_but_not_repeated_measurements():
    frame = pd.DataFrame({"id": [f"R-{n}" for n in range(40)], "x": np.arange(40.0), "day": pd.Timestamp("2020-01-01")})
    frame["x"] = frame["x"].mask(frame["x"] % 3 == 0)
    again = pd.concat([frame, frame[:4]])
    with pytest.warns(UserWarning, match="column 'id' has as many different texts as rows.*left out"):
        assert [*TableEncoder().fit(again).kinds_.values()][0] == "id"
    assert [*TableEncoder().fit(pd.concat([frame, frame[:4].assign(x=5.0)])).kinds_.values()][0] == "text"
    assert [*TableEncoder().fit(pd.concat([frame, frame[:5]])).kinds_.values()][0] == "text"


@pytest.mark.parametrize(
    ("cells", "error", "message"),
    [
        ([[1], [2]], TypeError, "column 'c0' holds list"),
        ([{"a": 1}, 2], TypeError, "argument must be .* string.* number"),
        ([1j, 2], TypeError, "column 'c0' holds complex"),
        (np.array([b"a", b"b"], dtype=object), TypeError, "column 'c0' holds bytes"),
        ([1.0, np.inf], ValueError, "infinity in 1 cell.* column 'c0'"),
        ([dt.date(2020, 1, 1), 5], TypeError, "column 'c0' holds date, int"),
        ([None, None], ValueError, "a column with a value"),
    ],
)
def test_cells_that_cannot_be_read(cells, error, message):
    with pytest.raises(error, match=message):
        TableEncoder().fit(pd.DataFrame({"c0": pd.Series(list(cells))}))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda frame: frame.drop(columns="size"), ValueError, "yet now missing"),
        (lambda frame: frame[frame.columns[::-1]], ValueError, "same order"),
        (lambda frame: frame.assign(more=1), ValueError, "unseen at fit"),
        (lambda frame: frame.assign(size="large"), TypeError, "expected numbers in column 'size', .* got text"),
        (lambda frame: frame.assign(color=1.0), TypeError, "expected text in column 'color', .* got numbers"),
        (lambda frame: frame.assign(when=3), TypeError, "expected dates in column 'when', .* got numbers"),
        (lambda frame: frame.assign(size=-np.inf), ValueError, "infinity in 3 cell"),
        (lambda frame: frame.iloc[:0], ValueError, "0 sample"),
        (lambda frame: {"size": [1.0]}, ValueError, "none of the name.* 'color', 'kind'"),
        (lambda frame: {**dict(frame), "more": [1, 2, 3]}, ValueError, "unknown one.*'more'"),
        (lambda frame: {**dict(frame), "size": [1.0]}, ValueError, "same length"),
    ],
)
def test_new_tables_that_do_not_fit(change, error, message):
    encoder = TableEncoder().fit(FRAME)
    with pytest.raises(error, match=message):
        encoder.transform(change(FRAME))


def test_what_is_no_table():
    with pytest.raises(ValueError, match="Expected 2D array"):
        TableEncoder().fit(np.array(["a", "b"]))
    with pytest.raises(TypeError, match="sparse matrix"):
        TableEncoder().fit(eye_array(3))
    with pytest.raises(ValueError, match="different names|unique column names"):
        TableEncoder().fit(pd.DataFrame([[1, 2]], columns=["a", "a"]))
    with pytest.raises(NotFittedError):
        TableEncoder().transform(FRAME)


@pytest.mark.parametrize("zone", ["Europe/Berlin", "UTC", dt.timezone(dt.timedelta(hours=-3, minutes=-30))])
def test_dates_as_objects_are_on_the_clock_of_fit(zone):
    frame = pd.DataFrame({"when": pd.date_range("2024-03-30", periods=6, freq="7h", tz=zone)})
    encoder = TableEncoder().fit(frame)
    np.testing.assert_array_equal(encoder.transform(frame.astype(object)), encoder.transform(frame))


def test_dates_as_objects_have_the_zone_that_all_share_or_utc():
    berlin = pd.date_range("2024-03-30 12:00", periods=2, freq="D", tz="Europe/Berlin")
    shared = TableEncoder().fit_transform(pd.DataFrame({"when": berlin.astype(object)}))
    np.testing.assert_array_equal(shared, TableEncoder().fit_transform(pd.DataFrame({"when": berlin})))
    mixed = pd.DataFrame({"when": np.array([berlin[0], berlin[1].tz_convert("UTC")], dtype=object)})
    days = TableEncoder().fit_transform(mixed)[:, 0]
    np.testing.assert_allclose(days % 1, [11 / 24, 10 / 24])  # summer time began between them


@pytest.mark.parametrize("chosen", [["b"], [1], np.array([1]), [False, True, False], np.array([False, True, False])])
def test_columns_are_chosen_by_name_number_or_flag(chosen):
    table = pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0], "c": [5.0, 6.0]})
    assert list(TableEncoder(chosen).fit(table).categories_) == [1]


def test_a_chosen_category_has_no_order():
    size = pd.Categorical(["s", "l"], categories=["s", "l"], ordered=True)
    assert TableEncoder(["size"]).fit(pd.DataFrame({"size": size})).categories_ == {0: ["s", "l"]}


def test_flags_are_as_many_as_columns():
    with pytest.raises(ValueError, match="as 1 flags, got 2"):
        TableEncoder([True, False]).fit({"a": [1, 2]})


@pytest.mark.parametrize(("before", "now"), [([1, 2], ["1", "2"]), (["1", "2"], [1, 2])])
def test_categories_of_text_and_of_numbers_are_not_compared(before, now):
    encoder = TableEncoder().fit(pd.DataFrame({"zip": pd.Categorical(before)}))
    with pytest.raises(TypeError, match="no level would be known"):
        encoder.transform(pd.DataFrame({"zip": pd.Categorical(now)}))


def test_numbers_beyond_float64():
    with pytest.raises(ValueError, match="infinity in 1 cell"):
        TableEncoder().fit({"a": np.array([10**400, 1], dtype=object)})
    with pytest.raises(ValueError, match="tell such numbers apart"):
        TableEncoder(["a"]).fit({"a": np.array([2**53, 2**53 + 1])})


def test_of_many_levels_one_of_a_single_row_is_as_a_new_one():
    many = np.array([f"town {i // 2}" for i in range(24)] + ["alone"])
    encoder = TableEncoder()
    codes = encoder.fit_transform({"town": many})[:, 0]
    assert np.isnan(codes[-1])
    assert "alone" not in encoder.categories_[0]
    np.testing.assert_array_equal(codes[:-1], encoder.transform({"town": many[:-1]})[:, 0])
    few = np.array(["a"] * 5 + ["b"] * 5 + ["alone"])
    assert "alone" in TableEncoder().fit({"town": few}).categories_[0]
