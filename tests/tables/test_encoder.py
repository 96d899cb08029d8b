"""Tables of every kind of column against what is written beside them; states, new rows and refusals."""

from __future__ import annotations

import datetime as dt
import io
import re
import sys
from decimal import Decimal
from unicodedata import normalize

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import eye_array
from sklearn.exceptions import NotFittedError

from gpytorch_partition.estimators import (
    LAGORanker,
    MondrianClassifier,
    PartitionGPClassifier,
    PartitionGPRegressor,
    PartitionSVC,
)
from gpytorch_partition.presets.data import Blocks
from gpytorch_partition.tables import TableEncoder

NAN = np.nan
RANDOM = np.random.RandomState(0)


def encoded(*columns, **named):
    """Return the matrix of a frame, and its encoder."""
    frame = pd.DataFrame({**{f"c{number}": column for number, column in enumerate(columns)}, **named})
    encoder = TableEncoder()
    return encoder.fit_transform(frame), encoder


def from_file(encoder):
    file = io.BytesIO()
    torch.save(encoder.to_state(), file)
    file.seek(0)
    return TableEncoder.from_state(torch.load(file, weights_only=True))


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


class TestDates:
    def test_they_become_days_and_the_calendar_parts_that_vary(self):
        dates = pd.to_datetime(["2024-02-29 06:00", "2024-12-31 18:30", None])
        matrix, encoder = encoded(when=dates, day=pd.to_datetime(["2021-01-04", "2021-01-05", "2021-01-06"]))
        parts = ["when", "when_month", "when_day_of_year", "when_weekday", "when_hour"]
        assert encoder.get_feature_names_out().tolist() == [*parts, "day", "day_day_of_year", "day_weekday"]
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
    def test_of_any_type(self, cells):
        np.testing.assert_array_equal(encoded(cells)[0], [[19782, 2, 60, 3], [-1, 12, 365, 2]])

    @pytest.mark.parametrize("zone", ["Europe/Berlin", "UTC", dt.timezone(dt.timedelta(hours=-3, minutes=-30))])
    def test_new_ones_are_on_the_clock_of_fit(self, zone):
        frame = pd.DataFrame({"when": pd.date_range("2024-03-30", periods=6, freq="7h", tz=zone)})
        encoder = TableEncoder().fit(frame)
        matrix = encoder.transform(frame)
        np.testing.assert_array_equal(matrix[:, -1], frame["when"].dt.hour)
        for new in (frame.astype(object), frame.assign(when=frame["when"].dt.tz_convert("Asia/Tokyo"))):
            np.testing.assert_array_equal(from_file(encoder).transform(new), matrix)
        with pytest.raises(TypeError, match="expected dates with a time zone in column 'when', as in fit, got dates"):
            encoder.transform(frame.assign(when=frame["when"].dt.tz_localize(None)))

    def test_objects_have_the_zone_that_all_share_or_utc(self):
        berlin = pd.date_range("2024-03-30 12:00", periods=2, freq="D", tz="Europe/Berlin")
        np.testing.assert_array_equal(encoded(berlin.astype(object))[0], encoded(berlin)[0])
        mixed = np.array([berlin[0], berlin[1].tz_convert("UTC")], dtype=object)
        np.testing.assert_allclose(encoded(mixed)[0][:, 0] % 1, [11 / 24, 10 / 24])  # summer time began between them


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
    np.testing.assert_array_equal(TableEncoder().fit_transform({"a": [NAN, "b"]}), [[NAN], [0]])  # no level "nan"


def test_an_empty_column_is_left_out_and_a_constant_one_is_not():
    encoder = TableEncoder().fit(FRAME)
    assert encoder.get_feature_names_out().tolist()[-1] == "same"
    assert not any("void" in name for name in encoder.get_feature_names_out())
    assert "column 'void': left out: empty" in encoder.messages_
    np.testing.assert_array_equal(encoder.transform(FRAME.assign(void=["now", "it has", "some"])), MATRIX)


def test_new_levels_and_new_holes_are_missing():
    new = FRAME.assign(color=["green", "red", None], kind=["d", "c", "a"], when=[None] * 3, same=None)
    expected = MATRIX.copy()
    expected[:, 1], expected[:, 2], expected[:, 3:] = [NAN, 1, NAN], [NAN, 2, 1], NAN
    np.testing.assert_array_equal(TableEncoder().fit(FRAME).transform(new), expected)
    void = FRAME.assign(kind=pd.Categorical([None] * 3, ["a", "b"]), color=pd.array([None] * 3, dtype="string"))
    expected = MATRIX.copy()
    expected[:, 1:3] = NAN
    np.testing.assert_array_equal(TableEncoder().fit(FRAME).transform(void), expected)


def test_state():
    encoder = TableEncoder().fit(FRAME)
    copy = from_file(encoder)
    np.testing.assert_array_equal(copy.transform(FRAME), MATRIX)
    assert (copy.messages_, copy.categories_) == (encoder.messages_, encoder.categories_)
    with pytest.raises(ValueError, match="unseen at fit"):
        copy.transform(FRAME.rename(columns={"size": "length"}))


@pytest.mark.parametrize("chosen", [["b"], [1], np.array([1]), [False, True, False], np.array([False, True, False])])
def test_columns_of_categories_are_chosen_by_name_number_or_flag(chosen):
    table = pd.DataFrame({"a": [1.0, 2.0, 1.0], "b": [10.5, NAN, 4.0], "c": [5.0, 6.0, 7.0]})
    encoder = TableEncoder(chosen).fit(table)
    assert encoder.categories_ == {1: [4, 10.5]}
    np.testing.assert_array_equal(encoder.transform(table)[:, 1], [1, NAN, 0])
    assert np.isnan(encoder.transform(table + 1)[:, 1]).all()


def test_a_chosen_category_has_no_order():
    size = pd.Categorical(["s", "l"], categories=["s", "l"], ordered=True)
    assert TableEncoder(["size"]).fit(pd.DataFrame({"size": size})).categories_ == {0: ["s", "l"]}


def test_levels_many_and_of_single_rows():
    names = np.array([f"name {number}" for number in range(10_000)], dtype=object)
    rows = np.random.RandomState(0).randint(10_000, size=50_000)
    encoder = TableEncoder().fit({"name": [*np.repeat(names, 2), "alone"]})
    codes = encoder.transform({"name": [*names[rows], "alone"]})[:, 0]
    assert np.isnan(codes[-1])  # as a new one, of more than ten levels
    assert np.array_equal(np.array(encoder.categories_[0], dtype=object)[codes[:-1].astype(int)], names[rows])
    assert "alone" in TableEncoder().fit({"town": np.array(["a"] * 5 + ["b"] * 5 + ["alone"])}).categories_[0]


def test_composed_and_decomposed_letters_are_the_same():
    frame = pd.DataFrame({"größe": np.arange(40.0), "stadt": ["Köln", "Bonn"] * 20})
    apart = frame.rename(columns=lambda name: normalize("NFD", name)).assign(stadt=normalize("NFD", "Köln"))
    encoder = TableEncoder().fit(frame.assign(stadt=[normalize("NFD", "Köln"), *frame["stadt"][1:]]))
    assert encoder.categories_ == {1: ["Bonn", "Köln"]}
    declared = apart.astype({"stadt": "category"})
    for new in (apart, declared, {name: apart[name].to_numpy() for name in apart}):
        np.testing.assert_array_equal(encoder.transform(new)[:, 1], np.ones(40))
    y = np.arange(40.0) + 50 * (frame["stadt"] == "Köln")
    for machine in (PartitionGPRegressor, PartitionSVC):
        model = machine(kernel="forest", num_partitions=5, random_state=0).fit(
            frame, y > 40 if machine is PartitionSVC else y
        )
        np.testing.assert_array_equal(model.predict(apart), model.predict(frame.assign(stadt="Köln")))


def test_labels_groups_and_names_in_arguments_are_composed_too():
    apart = normalize("NFD", "größe")
    frame = pd.DataFrame({"größe": np.arange(40.0) % 20, "b": np.arange(40.0) % 7})
    labels = np.where(frame["größe"] > 9, "Köln", "Bonn").astype(object)
    mixed = np.where(np.arange(40) % 2, labels, [normalize("NFD", label) for label in labels])
    mondrian = MondrianClassifier(random_state=0)
    for machine in (PartitionGPClassifier("forest", 5), PartitionSVC(num_partitions=5), mondrian, LAGORanker()):
        for y in (mixed, [*mixed], pd.Series(mixed), pd.Series(mixed, dtype="category"), mixed.astype(str)):
            assert machine.fit(frame, y).classes_.tolist() == ["Bonn", "Köln"]
    model = PartitionGPClassifier("forest", 5, random_state=0).fit(frame, mixed)
    curve = model.partial_dependence({apart: frame["größe"], "b": frame["b"]}, apart, target=normalize("NFD", "Köln"))
    np.testing.assert_array_equal(curve.mean, model.partial_dependence(frame, "größe", target="Köln").mean)
    assert TableEncoder([apart]).fit(frame).kinds_["größe"] == "category"
    targets = PartitionGPRegressor("forest", 5).fit(frame, pd.DataFrame({apart: frame["b"], "z": frame["größe"]}))
    assert targets.partial_dependence(frame, "b", target="größe").mean.shape
    assert len(Blocks.of(mixed, None, 40).labels.unique()) == 2


@pytest.mark.parametrize("name", ["Unnamed: 0", "__index_level_0__", ""])
def test_an_index_is_left_out_with_a_warning(name):
    frame = pd.DataFrame({name: RANDOM.permutation(500)[:30], "x": np.arange(30.0)})
    with pytest.warns(UserWarning, match=f"column '{name}': left out: numbers of rows without a name"):
        assert TableEncoder().fit_transform(frame).shape == (30, 1)
    kept = (
        frame.rename(columns={name: "dose"}),
        frame.assign(**{name: frame["x"] // 7}),
        frame.astype({name: "category"}),
    )
    assert all(TableEncoder().fit_transform(each).shape == (30, 2) for each in kept)


@pytest.mark.parametrize(
    ("cells", "told"),
    [
        ([-999.0, 2.0, 0.5, 3.0, -999.0, NAN], "2 cells are -999, far from all others"),
        ([1e30, 2.0, 0.5, 3.0], "1 cells are 1e.30, far"),
        ([*range(30), 1234.0], "1 cells are 1234, far"),
        ([-9999.0, -999.0, 0.5, 3.0, 2.0], "1 cells are -9999, .*; 1 cells are -999, "),
        ([1.0, 5.0, 9.0, 99.0, 99.0, 4.0], "2 cells are 99, far"),
        ([1.0, 5.0, 9.0, 99.0, 4.0], ""),
        ([999.0, 700.0, 1100.0, 400.0], ""),
        ([5000.0, 2.0, 3.0], ""),
    ],
)
def test_numbers_that_may_stand_for_missing_cells_are_told(cells, told):
    assert re.search(told, TableEncoder().fit({"a": np.array(cells)}).readings_["a"])
    assert told or TableEncoder().fit({"a": np.array(cells)}).messages_ == []
    assert np.isnan(TableEncoder(missing=[-999, 99]).fit_transform({"a": np.array([-999, 99, 5.0])})[:2]).all()


class TestIds:
    """Columns of as many different texts as rows are left out."""

    FRAME = pd.DataFrame({"id": [f"R-{n}" for n in range(40)], "x": np.arange(40.0), "day": pd.Timestamp("2020-01-01")})

    def test_they_are_left_out_unless_they_are_categories(self):
        with pytest.warns(UserWarning, match="column 'id': left out: another text in every row, .*; .astype"):
            encoder = TableEncoder().fit(self.FRAME)
        assert [*encoder.kinds_.values()] == ["id", "numbers", "dates"]
        for each in (encoder, from_file(encoder)):  # new ids may be anything
            assert each.transform(self.FRAME.assign(id=range(40)))[:, 0].tolist() == self.FRAME["x"].tolist()
            assert list(each.get_feature_names_out()) == ["x", "day"]
        chosen, declared = (
            TableEncoder(["id"]).fit(self.FRAME),
            TableEncoder().fit(self.FRAME.astype({"id": "category"})),
        )
        assert (chosen.kinds_["id"], declared.kinds_["id"]) == ("text", "category")
        assert TableEncoder().fit(self.FRAME[:19]).kinds_["id"] == "text"
        with pytest.warns(UserWarning, match="left out"), pytest.raises(ValueError, match="ids .* only"):
            TableEncoder().fit(self.FRAME[["id"]])

    @pytest.mark.filterwarnings("ignore:column 'id'")
    @pytest.mark.parametrize(("copies", "change", "kind"), [(4, {}, "id"), (4, {"x": 5.0}, "text"), (5, {}, "text")])
    def test_they_may_have_copies_but_not_repeated_measurements(self, copies, change, kind):
        frame = self.FRAME.assign(x=self.FRAME["x"].mask(self.FRAME["x"] % 3 == 0))
        again = pd.concat([frame, frame[:copies].assign(**change)])
        assert TableEncoder().fit(again).kinds_["id"] == kind


@pytest.mark.parametrize(
    ("table", "error", "message"),
    [
        ({"c": [[1], [2]]}, TypeError, "column 'c' holds list"),
        ({"c": [{"a": 1}, 2]}, TypeError, "argument must be .* string.* number"),
        ({"c": [1j, 2]}, TypeError, "column 'c' holds complex"),
        ({"c": np.array([b"a", b"b"], dtype=object)}, TypeError, "column 'c' holds bytes"),
        ({"c": [dt.date(2020, 1, 1), 5]}, TypeError, "column 'c' holds date, int"),
        ({"c": [1.0, np.inf]}, ValueError, "infinity in 1 cell.* column 'c'"),
        ({"c": np.array([10**400, 1], dtype=object)}, ValueError, "infinity in 1 cell"),
        ({"c": [None, None]}, ValueError, "a column with a value"),
        (np.array(["a", "b"]), ValueError, "Expected 2D array"),
        (eye_array(3), TypeError, "[Ss]parse"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), ValueError, "different names|unique column names"),
    ],
)
def test_tables_that_cannot_be_read(table, error, message):
    table = {"c": pd.Series(list(table["c"]))} if isinstance(table, dict) else table
    with pytest.raises(error, match=message):
        TableEncoder().fit(pd.DataFrame(table) if isinstance(table, dict) else table)


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        (["zipp"], "among 'a'"),
        ("zipp", "among 'a'"),
        ([True, False], "a flag for each, got 'True', 'False'"),
        (["a"], "tell such numbers apart"),
    ],
)
def test_categories_that_cannot_be_chosen(chosen, message):
    with pytest.raises(ValueError, match=message):
        TableEncoder(chosen).fit({"a": np.array([2**53, 2**53 + 1])})


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda frame: frame.drop(columns="size"), ValueError, "yet now missing"),
        (lambda frame: frame[frame.columns[::-1]], ValueError, "same order"),
        (lambda frame: frame.assign(more=1), ValueError, "unseen at fit"),
        (lambda frame: frame.assign(size="large"), TypeError, "expected numbers in column 'size', .* got text"),
        (lambda frame: frame.assign(color=1.0), TypeError, "expected text in column 'color', .* got numbers"),
        (lambda frame: frame.assign(kind=pd.Categorical([1, 2, 2])), TypeError, "'kind', .* got numbers as categories"),
        (lambda frame: frame.assign(when=3), TypeError, "expected dates in column 'when', .* got numbers"),
        (lambda frame: frame.assign(size=-np.inf), ValueError, "infinity in 3 cell"),
        (lambda frame: frame.iloc[:0], ValueError, "0 sample"),
        (lambda frame: {"size": [1.0]}, ValueError, "yet now missing:\n- color\n- kind"),
        (lambda frame: {**dict(frame), "more": [1, 2, 3]}, ValueError, "unseen at fit time:\n- more"),
        (lambda frame: {**dict(frame), "size": [1.0]}, ValueError, "length"),
    ],
)
def test_new_tables_that_do_not_fit(change, error, message):
    with pytest.raises(error, match=message):
        TableEncoder().fit(FRAME).transform(change(FRAME))
    with pytest.raises(NotFittedError):
        TableEncoder().transform(FRAME)


def test_categories_of_numbers_are_not_compared_with_text():
    encoder = TableEncoder().fit(pd.DataFrame({"zip": pd.Categorical([1, 2])}))
    with pytest.raises(TypeError, match="expected numbers as categories in column 'zip', as in fit, got text"):
        encoder.transform(pd.DataFrame({"zip": pd.Categorical(["1", "2"])}))


def test_without_pandas_other_columns_than_numbers_are_refused_with_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert TableEncoder().fit_transform(np.array([[1.0], [2.0]])).tolist() == [[1.0], [2.0]]
    with pytest.raises(ImportError, match=r'pip install "gpytorch_partition\[tables\]"'):
        TableEncoder().fit({"a": np.array(["2024-02-03"])})


ROWS = {
    "number": [1.5, None, 2.0, 4.0],
    "count": [1, 2, None, 4],
    "flag": [True, None, False, True],
    "text": ["b", "a", None, "b"],
    "day": [dt.date(2024, 1, 2), dt.date(2024, 5, 2), None, dt.date(2025, 1, 2)],
    "time": [dt.datetime(2024, 1, 2, 12), dt.datetime(2024, 5, 2, 18), None, dt.datetime(2025, 1, 2)],
    "decimal": [Decimal("1.50"), Decimal("2.25"), None, Decimal("0.50")],
}


class TestOtherFrames:
    """Frames of Polars and pyarrow, and pandas' frames of pyarrow's types, are read as those of pandas are."""

    @pytest.fixture(autouse=True)
    def _libraries(self):
        self.pyarrow, self.polars = pytest.importorskip("pyarrow"), pytest.importorskip("polars")
        zoned = self.pyarrow.array(ROWS["time"], self.pyarrow.timestamp("us", "Europe/Berlin"))
        self.table = self.pyarrow.table({**ROWS, "zoned": zoned})
        self.coded = self.pyarrow.array(["x", None, "y"] * 20).dictionary_encode()

    @pytest.mark.parametrize("form", ["pyarrow", "pandas", "polars"])
    def test_the_matrix_is_that_of_pandas(self, form):
        frames = {
            "pyarrow": self.table,
            "pandas": self.table.to_pandas(types_mapper=pd.ArrowDtype),
            "polars": self.polars.from_arrow(self.table),
        }
        encoder = TableEncoder()
        expected = TableEncoder().fit_transform(self.table.to_pandas())
        np.testing.assert_array_equal(encoder.fit_transform(frames[form]), expected)
        assert encoder.categories_ == {3: ["a", "b"]}

    def test_an_estimator_takes_a_frame_of_polars(self):
        rng = np.random.RandomState(0)
        frame = self.polars.DataFrame({"kind": rng.choice(["a", "b"], 60), "size": rng.rand(60)})
        y = self.polars.Series(frame["size"].to_numpy() + (frame["kind"] == "a").to_numpy())
        machine, pandas = PartitionGPRegressor("forest", num_partitions=20, random_state=0), frame.to_pandas()
        found = machine.fit(frame, y).predict(frame)
        np.testing.assert_array_equal(found, machine.fit(pandas, y.to_numpy()).predict(pandas))

    @pytest.mark.parametrize("chunked", [False, True])
    def test_missing_cells_of_dictionaries_stay_missing(self, chunked):
        codes = self.pyarrow.chunked_array([self.coded]) if chunked else self.coded
        for table in (self.pyarrow.table({"a": codes}), {"a": codes}):
            np.testing.assert_array_equal(TableEncoder().fit_transform(table)[:, 0], [0.0, NAN, 1.0] * 20)

    @pytest.mark.parametrize("kind", ["text", "dictionary", "numbers"])
    @pytest.mark.parametrize("chunked", [False, True])
    @pytest.mark.parametrize("machine", [PartitionGPRegressor, PartitionGPClassifier])
    def test_missing_targets_are_told_as_those_of_pandas(self, kind, chunked, machine):
        numbers = self.pyarrow.array([1.5, None, 3.0] * 20).dictionary_encode()
        targets = {"text": self.coded.cast("string"), "dictionary": self.coded, "numbers": numbers}[kind]
        targets = self.pyarrow.chunked_array([targets]) if chunked else targets
        X = pd.DataFrame({"a": np.arange(60.0)})
        with pytest.raises(
            ValueError, match=r"Of 60 targets 20 are missing, the first in row 1: .* and y.filter\(keep"
        ):
            machine("forest", num_partitions=2).fit(X, targets)
        keep = np.asarray(targets.is_valid())  # as the error says
        assert len(X[keep]) == len(targets.filter(keep)) == 40

    def test_classes_may_be_a_dictionary(self):
        classes = self.pyarrow.chunked_array([self.pyarrow.array(["y", "x"] * 30).dictionary_encode()])
        model = PartitionGPClassifier("forest", num_partitions=2).fit(np.arange(60.0)[:, None], classes)
        assert model.classes_.tolist() == ["x", "y"]
