"""Files and their columns: what is read, what is noted, and what each thing that is wrong is called."""

from __future__ import annotations

import bz2
import gzip
import importlib.util
import io
import lzma
import zipfile
from datetime import date
from decimal import Decimal
from unicodedata import normalize

import numpy as np
import pandas as pd
import pytest

from gpytorch_partition.command_line import table_files
from gpytorch_partition.command_line.model_file import read_new_rows
from gpytorch_partition.command_line.outputs import CommandError, write_table
from gpytorch_partition.command_line.table_files import Dialect, read_frame
from gpytorch_partition.command_line.training_data import Roles, read_training_data
from gpytorch_partition.tables import TableEncoder

RANDOM = np.random.RandomState(0)


@pytest.fixture
def file(tmp_path):
    def write(content, name="data.csv", encoding="utf-8"):
        path = tmp_path / name
        path.write_bytes(content.encode(encoding) if isinstance(content, str) else content)
        return path

    return write


def cells(path, **options):
    frame, _ = read_frame(path, Dialect(**options))
    return {name: [None if cell != cell else cell for cell in frame[name]] for name in frame}


def rows(num_rows, cells="{i},{i}.5"):
    return "\n".join(cells.format(i=i) for i in range(num_rows)) + "\n"


def zipped(content):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("data.csv", content)
    return buffer.getvalue()


def training_data(path, target="y", **roles):
    return read_training_data(path, Roles(target, **roles))


class TestFiles:
    TEXT = "town,price\nKöln,1.5\nBrühl, 2.5\n"
    READ = {"town": ["Köln", "Brühl"], "price": ["1.5", "2.5"]}

    @pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "cp1252"])
    def test_encodings(self, file, encoding):
        assert cells(file(self.TEXT, encoding=encoding)) == self.READ
        assert cells(file(self.TEXT, encoding="utf-16-le"), encoding="utf-16-le") == self.READ
        assert cells(file(self.TEXT, encoding="utf-16")) == self.READ  # as Excel writes "Unicode text"

    @pytest.mark.parametrize(
        ("end", "compressed"),
        [("gz", gzip.compress), ("bz2", bz2.compress), ("xz", lzma.compress), ("zip", zipped)],
    )
    def test_compression_is_seen_from_the_name(self, file, end, compressed):
        assert cells(file(compressed(self.TEXT.encode()), f"data.csv.{end}")) == self.READ

    def test_workbooks_are_read_as_text_files_are(self, tmp_path):
        pytest.importorskip("openpyxl")
        path = tmp_path / "data.xlsx"
        sheet = pd.DataFrame([["Title", None, None], ["", "größe", "2019"], [7, 1.5, "n/a"], [8, None, "x"]])
        sheet.to_excel(path, header=False, index=False)
        assert cells(path, header=1) == {"Unnamed: 0": [7, 8], "größe": [1.5, None], "2019": [None, "x"]}
        with pytest.raises(CommandError, match="in column 1, which has no name"):
            read_frame(path)
        sheet.iloc[1:].replace("2019", "größe").to_excel(path, header=False, index=False)
        with pytest.raises(CommandError, match="more than one column is named 'größe'"):
            read_frame(path)

    def test_numbers_of_workbooks_have_no_notation(self, tmp_path):
        pytest.importorskip("openpyxl")
        path = tmp_path / "data.xlsx"
        columns = {"number": [1.234, "n/a", 1e-7], "text": ["1,234", "5,0", "n/a"], "both": [1.234, 5, "1,5"]}
        pd.DataFrame(columns).to_excel(path, index=False)
        read = {"number": [1.234, None, 1e-7], "text": ["1,234", "5,0", None], "both": ["1,234", "5", "1,5"]}
        assert cells(path, decimal=",") == read
        frame, _ = read_frame(path, id_column="number")
        assert frame["number"].tolist() == ["1.234", "n/a", "1e-07"]

    def test_workbooks_of_new_rows_are_read_as_parquet_is(self, tmp_path):
        pytest.importorskip("openpyxl")
        pytest.importorskip("pyarrow")
        table = pd.DataFrame({"a": 1.125 + np.arange(24), "b": [f"{i % 5},5" for i in range(24)], "y": range(24)})
        commas = table.assign(a=[f"{value:.3f}".replace(".", ",") for value in table["a"]])
        commas.to_csv(tmp_path / "fit.csv", sep=";", index=False)
        data = read_training_data(tmp_path / "fit.csv", Roles("y"))
        new = table[["a", "b"]].assign(a=1.571)
        new.to_excel(tmp_path / "new.xlsx", index=False)
        assert read_new_rows(tmp_path / "new.xlsx", data.reader, ["a", "b"]).table["a"].tolist() == [1.571] * 24
        table.to_excel(tmp_path / "fit.xlsx", index=False)
        assert read_training_data(tmp_path / "fit.xlsx", Roles("y")).table["a"].tolist() == table["a"].tolist()

    @pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
    @pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
    def test_delimiters_and_ends_of_lines(self, file, delimiter, end):
        text = self.TEXT.replace(", ", ",").replace(",", delimiter).replace("Brühl", '"a, b; c|\td"')
        assert cells(file(text.replace("\n", end))) == self.READ | {"town": ["Köln", "a, b; c|\td"]}

    @pytest.mark.parametrize(
        ("text", "options", "read"),
        [
            ("size, net, m;price\n1;2\n3;4\n", {}, {"size, net, m": ["1", "3"], "price": ["2", "4"]}),
            ("a;b\n1,5;2,5\n", {}, {"a": ["1,5"], "b": ["2,5"]}),
            ("full name\nJohn Smith\n", {}, {"full name": ["John Smith"]}),
            ("a  b\n1  2\n", {"sep": r"\s+"}, {"a": ["1"], "b": ["2"]}),
            ("a::b\n1::2\n", {"sep": "::"}, {"a": ["1"], "b": ["2"]}),
            ('a,b\n"one\ntwo ""2""",1\n\nx,2\n', {}, {"a": ['one\ntwo "2"', "x"], "b": ["1", "2"]}),
            (
                "a,b,\n1,2,\na,b,\n,,\n3,n/a,\n,,\n",
                {},
                {"a": ["1", None, "3"], "b": ["2", None, None], "Unnamed: 2": [None] * 3},
            ),
            ("color\ncolor\nred\n", {"sep": ","}, {"color": ["color", "red"]}),
            ("Title\na,b\n1,2\n", {"sep": ",", "header": 1}, {"a": ["1"], "b": ["2"]}),
            ("Title\n\na,b\n1,2\n", {"header": 2}, {"a": ["1"], "b": ["2"]}),  # blank lines count
            ("a,b,y\nS,B,1\n10,2,3\n", {}, {"a": ["S", "10"], "b": ["B", "2"], "y": ["1", "3"]}),
            ("1,2\n3,4\n", {"sep": ",", "header": None}, {"0": ["1", "3"], "1": ["2", "4"]}),
            ("a,b\n1\nx,2\n", {}, {"a": ["1", "x"], "b": [None, "2"]}),  # a line that ends early
        ],
    )
    def test_forms(self, file, text, options, read):
        assert cells(file(text), **options) == read

    def test_more_text_than_fits_is_refused(self, file, monkeypatch):
        monkeypatch.setattr(table_files, "_MOST_BYTES", 2**20)
        with pytest.raises(CommandError, match="it holds over .* GiB of text: take fewer rows, or write parquet"):
            read_frame(file(gzip.compress(b"a,b\n" + b"1,2\n" * 2**19), "a.csv.gz"))

    def test_a_workbook_that_unpacks_to_more_is_refused(self, tmp_path, monkeypatch):
        pytest.importorskip("openpyxl")
        path = tmp_path / "a.xlsx"
        pd.DataFrame({"a": ["x" * 1000 for _ in range(300)]}).to_excel(path)
        assert len(read_frame(path)[0]) == 300
        monkeypatch.setattr(table_files, "_MOST_BYTES_OF_WORKBOOK", path.stat().st_size)
        with pytest.raises(CommandError, match="it holds over .* GiB, unpacked: take fewer rows, or write parquet"):
            read_frame(path)

    @pytest.mark.parametrize("num_bad", [1, 3])
    def test_a_file_is_utf_8_or_windows_1252_as_a_whole(self, file, num_bad):
        lines = ["town,y", *(f"Köln {number % 3},{number}" for number in range(40))]
        content = b"\n".join(
            line.encode("cp1252" if 7 <= place < 7 + num_bad else "utf-8") for place, line in enumerate(lines)
        )
        with pytest.raises(CommandError, match="line 8 is not UTF-8, as others are: mend it, or give its --encoding"):
            read_frame(file(content))
        assert read_frame(file(content), Dialect(encoding="cp1252"))[0]["town"][6] == "Köln 0"
        frame, notes = read_frame(file("\n".join(lines), encoding="cp1252"))
        assert frame["town"][0] == "Köln 0"
        assert notes == ["it is not UTF-8, and was read as Windows-1252: --encoding names another"]

    def test_names_and_levels_have_one_form_but_ids_are_as_they_are(self, file):
        text = "id,größe,y\nÄ,Köln,1\n"
        frame, _ = read_frame(file(normalize("NFD", text)), id_column="id")
        assert frame.to_dict("list") == {"id": ["A\u0308"], "größe": ["Köln"], "y": ["1"]}

    MESSY = "a,b,c,y\n" + "".join(f"x{i},{i % 4},{i % 3},{i}.5\n" for i in range(30))

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (MESSY.replace("a,b,c,y", "Report,,,\n,,,\na,b,c,y"), "in column 1, which has no name: .* --header"),
            (
                MESSY.replace("\n", ",\n").replace("x7,3,1,7.5,", "x7,,3,1,7.5"),
                "1 cells, the first in row 7, are in column 4, which has",
            ),
            (MESSY.replace("\n", ",\n").replace("c,y,", "c,y"), "one more cell than there are names"),
            (MESSY.replace("x7,", "x7,,"), "Expected 4 fields in line 9, saw 5"),
            (
                MESSY.replace("c,y\n", "c,y\n,kg,m,s\n"),
                "first row has text in 'b', 'c', 'y', .*: delete this row",
            ),
            ("Report of 2024\n\n" + MESSY, "its columns are 'Report of 2024'; --header says which line"),
            (MESSY.replace("x7,", '"x7,'), "EOF inside string"),
        ],
    )
    def test_what_may_be_read_in_two_ways_is_refused(self, file, text, message):
        with pytest.raises(CommandError, match=message):
            training_data(file(text))

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (MESSY.replace("a,b,c,y", "x0,1,2,0.5"), "columns are called '1', '2', '0.5': give --header none"),
            (MESSY.replace("x7,", '"x7,').replace("x9,", '"x9,'), "row 7 has a cell with whole lines in it"),
            (MESSY + "TOTAL,,,435\n", "rows 30 are called 'TOTAL': delete them if they sum up others"),
        ],
    )
    def test_what_may_be_amiss_is_told(self, file, text, message):
        data = training_data(file(text), "y" if "y" in text else "0.5")
        assert any(message in note for note in data.notes)

    @pytest.mark.parametrize(
        ("content", "name", "message"),
        [
            (b"a,b\n", "a.csv", "a header but no rows"),
            (b"", "a.csv", "No columns to parse from file"),
            (gzip.compress(b"a,b\n" + bytes(range(48, 58)) * 99)[:-9], "a.csv.gz", "Compressed file ended"),
            (b"1,2\n3,4\n", "a.csv", "begins with numbers: say by --header"),
            (bytes(range(256)) * 9, "a.csv", "is not a text file"),
            ("a,b\n1,2\n".encode("utf-16-le"), "a.csv", r"is not a text file in UTF-8: .* \(utf-16"),
            (b"a,b\n1,2\n", "a.gz", "cannot read .*a.gz: "),
            (b"a,b\n1,2\n", "a.xlsx", "cannot read .*a.xlsx: "),
            (b"PAR1" + bytes(90), "a.pq", "cannot read .*a.pq: "),
            (b'a,b\n1,2\n3,"4\n5,6\n', "a.csv", "EOF inside string starting at row 2"),
            (b"a,a,y\n1,2,3\n", "a.csv", "more than one column is named 'a': rename"),
            (b"a,y\n1,2\n1,2,3\n", "a.csv", "Expected 2 fields in line 3, saw 3"),
        ],
        ids=lambda value: value if isinstance(value, str) else "file",  # archives hold the time
    )
    def test_files_that_cannot_be_read(self, file, content, name, message):
        pytest.importorskip({"a.pq": "pyarrow", "a.xlsx": "openpyxl"}.get(name, "pandas"))
        with pytest.raises(CommandError, match=message):
            read_frame(file(content, name))

    @pytest.mark.parametrize(("end", "missing"), [("csv", "pandas"), ("pq", "pyarrow"), ("xlsx", "openpyxl")])
    def test_without_its_library_the_extra_is_named(self, file, monkeypatch, end, missing):
        real = importlib.util.find_spec
        monkeypatch.setattr(table_files, "find_spec", lambda name: None if name == missing else real(name))
        with pytest.raises(CommandError, match=rf'is read by {missing} .*: pip install "gpytorch_partition\[tables\]"'):
            read_frame(file(self.TEXT, f"data.{end}"))

    def test_written_numbers_are_read_back_to_the_last_bit(self, file):
        numbers, written = np.random.RandomState(0).randn(20, 2), io.StringIO()
        write_table(written, {"a": numbers[:, 0], "b": numbers[:, 1]})
        read = TableEncoder().fit_read(read_frame(file(written.getvalue()))[0])
        np.testing.assert_array_equal(np.column_stack(list(read.values())), numbers)


class TestRoles:
    def test_the_target_is_apart_and_ids_are_as_they_are_written(self, file):
        data = training_data(file("a,y,b\n" + rows(20, "{i},{i}.5,00{i}x") + "7,9.25,NA\n"), id="b")
        assert list(data.table) == ["a"]
        np.testing.assert_array_equal(data.y, [*(np.arange(20) + 0.5), 9.25])
        assert data.ids[::20].tolist() == ["000x", "NA"]

    def test_rows_without_a_target_are_left_out_and_said(self, file):
        data = training_data(file("a,y\n5,\n" + rows(20) + "6,NA\n"))
        assert data.rows.tolist() == list(range(1, 21))
        assert data.table["a"].tolist() == list(range(20))
        assert data.notes[0] == "2 rows without a target ('y') left out: 0, 21 (from 0)"

    @pytest.mark.parametrize(
        ("header", "column", "said"),
        [
            ("a", "{i}x", "left out: another text in every row, as an id has"),
            ("a", "x", "left out: always 'x'"),
            ("a", "5", "left out: always 5.0"),
            ("a", "", "left out: empty"),
            ("drop", "5 €", "left out: dropped"),
            ("id", "{i}", "left out: it counts the rows (rename it to keep it)"),
            ("", "{i}", "left out: numbers of rows without a name, as an index has"),
        ],
    )
    def test_useless_columns_are_left_out_and_said(self, file, header, column, said):
        text = (
            f"{header},b,y\n" + rows(20, column + ",{i},{i}.5") + "7,8,\n" * (header == "a")
        )  # a row that is left out
        data = training_data(file(text), drop=["drop"] * (header == "drop"))
        assert list(data.table) == ["b"]
        assert f"\n  {header or 'Unnamed: 0'}" in data.notes[-1]
        assert f"  {said}\n" in data.notes[-1]

    @pytest.mark.parametrize("again", [2, 20], ids=["a tenth", "appended twice"])
    @pytest.mark.parametrize("first", ["R-{i}", "{line}"], ids=["ids", "numbers of rows"])
    def test_copies_are_left_out(self, file, again, first):
        lines = [f"{first.format(i=i, line=line)},{i},{i}.5\n" for line, i in enumerate([*range(20), *range(again)])]
        data = training_data(file(",x,y\n" + "".join(lines)))
        assert list(data.table) == ["x"]
        assert data.rows.tolist() == list(range(20))
        assert f"{again} of {20 + again} rows are copies of others" in data.notes[0]

    def test_columns_that_stay(self, file):
        assert list(training_data(file("a,y\n" + rows(20, ",{i}.5") + "x,3\nx,4\n")).table) == ["a"]  # with holes
        assert list(training_data(file("t,y\n" + rows(20, "{i},{i}.5"))).table) == ["t"]  # times count the rows
        data = training_data(file("a,c,y\n" + rows(20, "{i},{i},{i}.5")), categorical=["c"])
        assert data.table["c"][:2].tolist() == ["0", "1"]
        assert data.categorical == ["c"]

    def test_numbers_that_stand_for_missing_cells_are_told_and_can_be_left_out(self, file):
        path = file("a,b,y\n" + rows(40, "{i},{i},{i}.5") + "9999,2,-999\n1,9999,-999\n1,1,1e30\n")
        told = training_data(path).notes[-1]
        assert "1 cells are 9999, far from all others" in told
        assert "; 2 cells are -999, far from all others (missing=-999 if they stand for holes) (the target)" in told
        data = read_training_data(path, Roles("y"), Dialect(missing=[-999, 9999, 1e30]))
        assert data.rows.tolist() == list(range(40))
        new, _ = data.reader.read({"a": np.array(["5", "9999"])})
        np.testing.assert_array_equal(new["a"], [5, np.nan])
        assert TableEncoder.from_state(data.reader.to_state()).missing == [-999, 9999, 1e30]

    @pytest.mark.parametrize("index", [RANDOM.permutation(900), [*range(24)] * 2], ids=["sample", "two files"])
    def test_an_index_is_left_out_and_counters_are_named(self, file, index):
        lines = "".join(f"{index[i]},{(7 * i) % 48 + 1},{i % 5},{'' if i % 9 == 0 else i}\n" for i in range(48))
        data = training_data(file(",Respondent,x,y\n" + lines))
        assert list(data.table) == ["Respondent", "x"]
        assert "Unnamed: 0  left out: numbers of rows without a name" in data.notes[-1]
        assert "Respondent  numbers; from 2 to 48, each once, as a counter of rows has" in data.notes[-1]

    def test_weights_are_no_feature(self, file):
        data = training_data(file("a,w,y\n" + rows(20, "{i},2.5,{i}.5") + "7,0,8\n9,,\n"), weight="w")
        assert list(data.table) == ["a"]
        np.testing.assert_array_equal(data.weights, np.full(20, 2.5))
        assert "1 rows of weight 0 ('w') left out: 20 (from 0)" in data.notes

    def test_unknown_categories_are_said_and_warned_of(self, file):
        data = training_data(file("a,b,y\n" + rows(20, "x,{i},{i}.5") + rows(20, "y,{i},{i}.7")))
        with pytest.warns(UserWarning, match=r"'a' has no category that the model knows \(such as 'x', 'y'\)"):
            read_new_rows(file("a\nX\nY\n\n"), data.reader, ["a"])
        new = read_new_rows(file("a\nx\nY\n"), data.reader, ["a"])
        assert new.notes == ["column 'a': fit did not learn 'Y': taken for missing cells (1 in all)"]
        data = training_data(file("a,b,y\n" + rows(20, "x,{i},{i}.5") + rows(20, "y,{i},{i}.7") + "z,1,\n"))
        new = read_new_rows(file("a\nx\nz\n"), data.reader, ["a"])  # z had no target
        assert new.notes == ["column 'a': fit did not learn 'z': taken for missing cells (1 in all)"]


WEIGHTED = "a,w,y\n" + rows(20, "{i},CELL,{i}.5")


@pytest.mark.parametrize(
    ("text", "roles", "message"),
    [
        ("a,y\n" + rows(19), {}, "expected 20 rows or more with a target, got 19"),
        ("y\n" + rows(20, "{i}"), {}, "no column is left to learn from"),
        ("a,y\n" + rows(20, "x,{i}"), {}, "no column is left to learn from.*'a': left out: always 'x'"),
        ("a,y\n" + rows(20, "{i},7"), {}, "the target 'y' is always 7"),
        ("a,y\n" + rows(20, "{i},"), {}, "the target 'y' is empty in all rows"),
        ("a,y\n" + rows(20, "{i},k{i}"), {}, r"'y' holds text: 20 of 20 .* 'k0' \(row 0\) and .*: give numbers"),
        ("a,y\n" + rows(20) + "1,x\n2,u\n3,z\n", {}, r"3 of 23 are no numbers, .* 'x' \(row 20\) .* leave these"),
        (
            "a;y\n" + rows(20, "{i};6,{i} min"),
            {},
            r"'6,0 min' \(row 0\) .*: give numbers",
        ),
        ("a,y\n" + rows(20, "{i},20{i:02d}-01-02"), {}, "the target 'y' holds dates: give a number"),
        ("a,y\n" + rows(20) + "inf,3\n", {}, "infinity in 1 cell.* of column 'a': leave cells empty"),
        ("a,y\n" + rows(20) + "1e200,3\n", {}, "expected column 'a' in units"),
        ("Price,y\n" + rows(20), {"target": "prices"}, "--target: no column is called 'prices'; did you mean 'Price'?"),
        ("Price,y\n" + rows(20), {"id": "PRICE"}, "--id: .* mean 'Price'[?] Its columns are 'Price', 'y'"),
        ("Price,y\n" + rows(20), {"drop": ["pirce"]}, "--drop: .* mean 'Price'"),
        ("Price,y\n" + rows(20), {"categorical": ["prise"]}, "--categorical: .* mean 'Price'"),
        ("Price,y\n" + rows(20), {"weight": "price "}, "--weight: .* mean 'Price'"),
        ("Price,y\n" + rows(20), {"id": "y"}, "--id: 'y' is named by another option too"),
        *[
            (f"{name},y\n" + rows(20), {"id": name}, f"--id: predictions have a column '{name}' of their own")
            for name in ("std", "mean", "target", "upper_97.5", "forest_mean")
        ],
        ("Price,y\n" + rows(20), {"id": "Price", "weight": "Price"}, "--weight: 'Price' is named by another"),
        ("Price,y\n" + rows(20), {"drop": ["Price"], "categorical": ["Price"]}, "--categorical: 'Price' is named by"),
        (
            WEIGHTED.replace("CELL", "2") + "7,-3,8\n9,,1\n",
            {"weight": "w"},
            "weights of rows from 0, .* got -3 for row 20",
        ),
        (WEIGHTED.replace("CELL", "2") + "7,inf,8\n", {"weight": "w"}, "infinity in 1 cell.* of column 'w'"),
        (
            WEIGHTED.replace("CELL", "{i}x").format(i=1),
            {"weight": "w"},
            "weight as numbers, one for each row: .*'1x'",
        ),
        (WEIGHTED.replace("CELL", "0"), {"weight": "w"}, "weights of rows .* that are not all zero"),
        (
            WEIGHTED.replace("CELL", "0") + "1,1,2\n",
            {"weight": "w"},
            "or more with a target and a weight above 0, got 1",
        ),
    ],
)
def test_problems_are_said_with_their_place_and_what_to_do(file, text, roles, message):
    with pytest.raises(CommandError, match=message) as error:
        training_data(file(text), **roles)
    assert "\n" not in str(error.value)


def test_a_target_with_other_marks_than_the_options_name(file):
    with pytest.raises(CommandError, match="'y' holds text: its numbers have other marks than --decimal"):
        read_training_data(file("a;y\n" + rows(20, "{i};{i}.5")), Roles("y"), Dialect(decimal=","))


class TestParquet:
    @pytest.fixture(autouse=True)
    def _needs(self):
        self.parquet, self.pyarrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")

    def test_columns_keep_their_types_but_for_true_and_false(self, tmp_path):
        path = tmp_path / "data.pq"
        columns = {
            "n": pd.array([1, None, 3] * 7, dtype="Int64"),
            "t": ["NA", None, " b"] * 7,
            "d": pd.to_datetime(["2024-01-02", None, "2024-05-06"] * 7),
            "c": pd.Categorical(["1", "2", "1"] * 7),
            "b": [True, False, None] * 7,
            "decimal": [Decimal("1.5"), None, Decimal("2")] * 7,
            "day": [date(2024, 1, 2), None, date(2024, 5, 6)] * 7,
            "written": ["1,5", "2,25", None] * 7,
            "y": np.arange(21.0),
        }
        pd.DataFrame(columns).to_parquet(path)
        data = training_data(path)
        kinds = ["numbers", "text", "dates", "category", "text", "numbers", "dates", "numbers", "numbers"]
        assert [*data.reader.kinds_.values()] == kinds
        np.testing.assert_array_equal(data.table["n"][:3], [1, np.nan, 3])
        assert data.table["t"][:3].tolist() == ["NA", None, " b"]
        assert data.table["b"][:3].tolist() == ["True", "False", None]
        np.testing.assert_array_equal(data.table["written"][:3], [1.5, 2.25, np.nan])
        assert data.categorical == ["t", "c", "b"]

    def test_lists_structs_and_bytes_are_refused_by_name_where_they_are_used(self, tmp_path):
        path = tmp_path / "data.pq"
        odd = {"l": [[1]] * 20, "s": [{"a": 1}] * 20, "b": [b"x"] * 20}
        self.parquet.write_table(self.pyarrow.table({**odd, "x": range(20), "y": np.arange(20.0) ** 2}), path)
        with pytest.raises(CommandError, match="'l' holds "):
            training_data(path)
        assert list(training_data(path, drop=["s", "b"], id="l").table) == ["x"]

    @pytest.mark.parametrize("holes", [False, True])
    def test_ids_come_through_as_they_are(self, tmp_path, holes):
        """Neighbours above 2**53, which float64 does not tell apart, and times in their zone."""
        path, first = tmp_path / "data.pq", 2**60 + 1
        numbers = self.pyarrow.array([*range(first, first + 19), None if holes else 7])
        times = np.datetime64("2024-03-29T23:00", "us") + np.arange(20) * np.timedelta64(1, "D")
        times = self.pyarrow.array(times, self.pyarrow.timestamp("us", "Europe/Berlin"))
        columns = {"n": numbers, "t": times, "x": range(20), "y": np.arange(20.0) ** 2}
        self.parquet.write_table(self.pyarrow.table(columns), path)
        data = training_data(path, id="n")
        assert data.ids.tolist() == [*map(str, range(first, first + 19)), "" if holes else "7"]
        assert read_new_rows(path, data.reader, ["x"], id_column="n").ids[1] == str(first + 1)
        assert training_data(path, categorical=["n"]).table["n"][1] == str(first + 1)  # ids may be categories
        assert training_data(path, id="t").ids[:2].tolist() == [
            "2024-03-30 00:00:00+01:00",
            "2024-03-31 00:00:00+01:00",
        ]
