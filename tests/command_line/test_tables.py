"""Files as people have them: what is read, what is noted, and what each thing that is wrong is called."""

from __future__ import annotations

import bz2
import csv
import gzip
import importlib.util
import io
import lzma
import zipfile
from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pytest

from gpytorch_partition.command_line import parquet
from gpytorch_partition.command_line.columns import DATE, NUMBER, TEXT, Kind, default_mark, typed_column
from gpytorch_partition.command_line.errors import CommandError
from gpytorch_partition.command_line.new_rows import read_new_rows, unseen_levels
from gpytorch_partition.command_line.numbers import decimal_mark
from gpytorch_partition.command_line.roles import Roles, read_training_data
from gpytorch_partition.command_line.spellings import spelling_notes
from gpytorch_partition.command_line.tables import read_table, write_table


@pytest.fixture
def csv_file(tmp_path):
    def write(text, encoding="utf-8"):
        path = tmp_path / "data.csv"
        path.write_bytes(text.encode(encoding) if isinstance(text, str) else text)
        return path

    return write


def typed(path):
    """Columns as they are without any wish of the user."""
    raw = read_table(path)
    assert raw.problems == []
    mark = default_mark(raw)
    return {name: typed_column(name, cells, mark) for name, cells in raw.columns.items()}


def values(path):
    return {name: column.values for name, column in typed(path).items()}


def column_of(*cells, kind=None, mark=""):
    return typed_column("a", list(cells), mark, kind)


def rows(num_rows, cells="{i},{i}.5"):
    return "\n".join(cells.format(i=i) for i in range(num_rows)) + "\n"


def zipped(content, names=("data.csv",)):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in names:
            archive.writestr(name, content)
    return buffer.getvalue()


class TestFiles:
    TEXT = "town,price\nKöln,1.5\nBrühl,2.5\n"

    @pytest.mark.parametrize(
        "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "latin-1", "cp1252"]
    )
    def test_encodings(self, csv_file, encoding):
        path = csv_file(self.TEXT, encoding)
        assert values(path)["town"].tolist() == ["Köln", "Brühl"]
        is_guessed = encoding in ("latin-1", "cp1252")
        assert read_table(path).notes == ["it is not UTF-8: read as Windows-1252 (Latin-1)"] * is_guessed

    @pytest.mark.parametrize("compressed", [gzip.compress, bz2.compress, lzma.compress, zipped])
    def test_compression_is_seen_from_the_content(self, csv_file, compressed):
        assert values(csv_file(compressed(self.TEXT.encode())))["price"].tolist() == [1.5, 2.5]

    @pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
    @pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
    def test_delimiters_and_ends_of_lines(self, csv_file, delimiter, end):
        text = self.TEXT.replace("Brühl", '"a, b; c|\td"').replace(",1", f"{delimiter}1").replace("town,", "town,")
        text = text.replace("town,price", f"town{delimiter}price").replace('",2', f'"{delimiter}2').replace("\n", end)
        read = values(csv_file(text))
        assert read["town"].tolist() == ["Köln", "a, b; c|\td"]
        assert read["price"].tolist() == [1.5, 2.5]

    def test_a_delimiter_divides_rows_as_it_divides_the_header(self, csv_file):
        assert list(values(csv_file("size, net, m;price\n1;2\n3;4\n"))) == ["size, net, m", "price"]

    def test_spaces_divide_cells_if_they_divide_all_lines_alike(self, csv_file):
        text = ' mpg   name        weight \n 18.0  "a  b"   3504.  \r\n  9,5   x           20\n\n'
        read = read_table(csv_file(text)).columns
        assert read == {"mpg": ["18.0", "9,5"], "name": ["a  b", "x"], "weight": ["3504.", "20"]}

    def test_spaces_within_texts_do_not(self, csv_file):
        assert list(values(csv_file("full name\nJohn Smith\nJane Roe\n"))) == ["full name"]
        assert list(values(csv_file("size, net\n1 000,2\n3 000,4\n"))) == ["size", "net"]

    @pytest.mark.parametrize("odd", ["3 4 5", "3", "x y"])
    def test_spaces_that_divide_most_lines_are_refused_with_the_remedy(self, csv_file, odd):
        for text in ("a  b\n1  2\n" + odd + "\n", "a b\n" + "1 2\n" * 10 + odd + "\n"):
            with pytest.raises(CommandError, match=rf"line {text.count(chr(10))}: spaces divide .* put quotes around"):
                read_table(csv_file(text))

    def test_names_in_single_quotes(self, csv_file):
        for header in ("'a, b','it''s'", " 'a, b' , 'it''s'", "'a, b',it's"):
            read = read_table(csv_file(header + "\n'x, y',1\nO'Neill,2\n")).columns
            assert read == {"a, b": ["x, y", "O'Neill"], "it's": ["1", "2"]}
        assert list(read_table(csv_file("a 'b' c,d\n1,'2'\n")).columns.values()) == [["1"], ["'2'"]]
        with pytest.raises(CommandError, match="line 3: a quote opens here"):
            read_table(csv_file("'a','b'\n1,2\n'tis,3\n"))

    def test_a_first_line_of_excel_says_the_delimiter(self, csv_file):
        assert list(values(csv_file("sep=!\r\na!b\r\n1!2\r\n"))) == ["a", "b"]

    def test_cells_may_be_long(self, csv_file):
        before = csv.field_size_limit()
        assert values(csv_file('a;b\n"' + "x," * 100_000 + '";1\n'))["a"].tolist() == ["x," * 100_000]
        assert csv.field_size_limit() == before

    def test_quoted_newlines_and_where_rows_begin(self, csv_file):
        raw = read_table(csv_file('a,b\n"one\ntwo ""2""",1\n\nx,2\n'))
        assert raw.columns == {"a": ['one\ntwo "2"', "x"], "b": ["1", "2"]}
        assert raw.lines.tolist() == [2, 5]

    def test_what_spreadsheets_and_scripts_leave_behind(self, csv_file):
        raw = read_table(csv_file("a,b,\n1,2,\na,b,\n,,\n3,4,,,\n,,\n,,\n"))
        assert raw.columns == {"a": ["1", "", "3"], "b": ["2", "", "4"], "column 3": [""] * 3}
        assert raw.notes == ["1 lines repeat the header: left out"]

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"", "is empty"),
            (b"\n \n", "is empty"),
            (b",,\n1,2,3\n", "is empty: expected a first line with the names"),
            (b"a,b\n", "a header but no rows"),
            (b"1,2\n3,4\n", "begins with numbers"),
            (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x01", "is not a text file"),
            (bytes(range(256)) * 9, "is not a text file"),
            (gzip.compress(b"a,b\n1,2\n" * 99)[:-9], "is damaged"),
            (zipped(b"a,b\n1,2\n", ("a.csv", "b.csv")), "is a zip archive of 2 files: unpack it"),
            (zipped(b"<xml/>", ("xl/workbook.xml",)), "is an Excel workbook: save the sheet as a CSV file"),
            (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "is an Excel workbook"),
            (b'a,b\n1,"' + b"x" * 200_000, "line 2: a quote opens here that is not closed"),
            (b'a,b\n1,2\n3,"4\n5,6\n', "line 3: a quote opens here"),  # in the last column, to the end
            (b'a,b\n1,2\n3,"4', "line 3: a quote opens here"),
            (b'a,b,c\n1,"x\ny","z\n2,3,4\n', "line 3: a quote opens here"),  # in the second line of a row
            (b'a,b\n1,"2\n3,"4"\n5,6\n', "line 2: a quote opens here"),  # which the next one closes
            (b'"a,b\n1,2\n', "line 1: a quote opens here"),
            (b'a;b\r\n1;"2\r\n3;4\r\n', "line 2: a quote opens here"),
            ("a,b\n1,2\n".encode("utf-16")[:-1], "is damaged"),
        ],
        ids=lambda value: value if isinstance(value, str) else "file",  # archives hold the time
    )
    def test_files_that_cannot_be_read(self, csv_file, content, message):
        with pytest.raises(CommandError, match=message):
            read_table(csv_file(content))

    def test_folders_and_files_that_are_not_there(self, tmp_path):
        with pytest.raises(CommandError, match=r"cannot read .*none\.csv: No such file"):
            read_table(tmp_path / "none.csv")
        with pytest.raises(CommandError, match="it is a folder; give one file of it"):
            read_table(tmp_path)

    def test_written_numbers_are_read_back_to_the_last_bit(self, csv_file):
        numbers = np.random.RandomState(0).randn(20, 2)
        file = io.StringIO()
        write_table(file, ["a", "b"], numbers)
        np.testing.assert_array_equal(np.column_stack(list(values(csv_file(file.getvalue())).values())), numbers)


class TestNumbers:
    @pytest.mark.parametrize(
        ("cells", "numbers"),
        [
            (["1", " -2.5", "3e2", "+.5"], [1, -2.5, 300, 0.5]),
            (["1.234,5", "12,75", "-3"], [1234.5, 12.75, -3]),
            (["1 234,5", "1\u202f000,25", "7"], [1234.5, 1000.25, 7]),
            (["1,234.5", "1,000,000", "7"], [1234.5, 1e6, 7]),
            (["1'234.50", "12"], [1234.5, 12]),
            (["$1,200", "$ 15.50"], [1200, 15.5]),
            (["12 %", "7.5%"], [12, 7.5]),
            (["3,50 €", "1.000,00 €"], [3.5, 1000]),
            (["-$20.00", "$-20", "- 5", "$1,000.50"], [-20, -20, -5, 1000.5]),
            (["(5.00)", "($1,005.00)", "$(6)", "7"], [-5, -1005, -6, 7]),
            (["\u22125", "\u2212$1.5", "3"], [-5, -1.5, 3]),
            (["USD 5", "-USD 6", "7.5", "USD (8)"], [5, -6, 7.5, -8]),
            (["5 EUR", "1.000,50 EUR"], [5, 1000.5]),
            (["5 kg", "-1\u00a0234.5\u00a0kg", "0"], [5, -1234.5, 0]),
            (["120,5 m²", "80 m²"], [120.5, 80]),
            (["1,033 sq ft", "950 sq ft"], [1033, 950]),
            (["1", "", "NA", "NaN", "null", "None", "#N/A", "?", "-", "2"], [1, *[np.nan] * 8, 2]),
        ],
    )
    def test_notations(self, cells, numbers):
        column = column_of(*cells)
        assert column.kind.name == NUMBER
        np.testing.assert_array_equal(column.values, numbers)

    @pytest.mark.parametrize(
        "cells",
        [
            ["A5", "A6"],
            ["5A", "6A"],
            ["zone 5", "zone 6"],
            ["007 X", "008 X"],
            ["5 kg", "6 g"],
            ["5 Main St", "6 Oak St"],
            ["5 EUR", "6 USD"],
            ["$5", "€6", "£7"],
            ["5 %", "€6"],
            ["1.2 k", "800"],  # a factor that not all have
            ["(1)", "(2)"],
            ["--5", "6"],
            ["5-", "6"],
            ["x (5)", "x (6)"],
        ],
    )
    def test_codes_and_units_that_differ_are_texts(self, cells):
        assert column_of(*cells).values.tolist() == cells

    def test_a_few_texts_beside_negative_money_are_holes(self):
        column = column_of(*(f"${i}" for i in range(30)), "($7)", "n/d")
        np.testing.assert_array_equal(column.values, [*range(30), -7, np.nan])

    def test_new_rows_have_the_unit_of_the_fit(self):
        kind = column_of("5 kg", "6 kg").kind
        column = column_of("5 kg", "7", "8 g", kind=kind)
        np.testing.assert_array_equal(column.values, [5, 7, np.nan])
        assert column.notes == ["column 'a': '8 g' among its numbers are taken for missing cells (1 cell)"]
        assert np.isnan(column_of("5 kg", "7", kind=Kind(NUMBER)).values).tolist() == [True, False]

    def test_numbers_with_zeros_in_front_may_be_names(self):
        column = column_of("10115", "04623")
        np.testing.assert_array_equal(column.values, [10115, 4623])
        (note,) = column.notes
        assert note.startswith("column 'a': '04623' has zeros in front")
        assert "--categorical" in note
        assert not column_of("04623", kind=Kind(NUMBER)).notes  # of new rows it is known
        assert not column_of("0", "00", "0.5", "0.05").notes

    def test_numbers_that_look_like_days_are_told(self):
        column = column_of(*(f"202301{day}" for day in range(10, 31)))
        assert column.values[0] == 20230110
        assert column.notes == [
            "column 'a': if '20230110' is a date, write 2023-01-10: it is read as a number",
        ]
        assert not column_of(*(f"202301{day}" for day in range(20, 41))).notes  # there is no 32nd of January

    def test_signs_are_units_too_but_only_their_absence_may_differ(self):
        kind = column_of("$5", *map(str, range(6, 20))).kind
        column = column_of("$5", "7", "-$8", "9 €", "5 %", kind=kind)
        np.testing.assert_array_equal(column.values, [5, 7, -8, np.nan, np.nan])
        column = column_of("$5", "7", "5 %", kind=Kind(NUMBER))  # of a fit without a sign
        np.testing.assert_array_equal(column.values, [5, 7, np.nan])
        column = column_of("5 %", *(f"{n / 100}" for n in range(20)))  # a hundredth each, but for one
        np.testing.assert_array_equal(column.values, [np.nan, *(np.arange(20) / 100)])

    @pytest.mark.parametrize(
        ("cell", "mark"),
        [
            ("4.651,93 €", "decimal commas"),
            ("12,5 %", "decimal commas"),
            ("12,5 kg", "decimal commas"),
            ("0,123", "decimal commas"),
            ("$4,651.93", "decimal points"),
            ("(1,005.5)", "decimal points"),
            ("0.123", "decimal points"),
            ("-.123", "decimal points"),
            ("1234.567", "decimal points"),
            ("1.234", ""),
            ("1,234 kg", ""),
        ],
    )
    def test_what_tells_the_mark_of_a_file(self, cell, mark):
        assert decimal_mark([cell]) == mark

    @pytest.mark.parametrize(
        ("cell", "notation", "number"),
        [("1.234", "decimal points", 1.234), ("1.234", "decimal commas", 1234), ("1,234", "decimal points", 1.234)],
    )
    def test_files_with_semicolons_are_read_as_in_fit_and_that_is_said(self, csv_file, cell, notation, number):
        new = read_new_rows(csv_file(f"a;b\n{cell};x\n"), {"a": Kind(NUMBER, notation)}, None, False)
        assert new.table["a"].tolist() == [number]
        assert f"{cell!r} is read as {number}" in new.notes[0]
        assert ("as in the file that the model was fitted to" in new.notes[0]) is (cell == "1.234")

    def test_true_and_false_are_numbers_of_any_case(self):
        for cells in (["True", "false", "TRUE", ""], ["yes", "No", "YES", "NA"]):
            column = column_of(*cells)
            np.testing.assert_array_equal(column.values, [1, 0, 1, np.nan])
            again = column_of("TRUE", "0", "maybe", kind=column.kind)
            np.testing.assert_array_equal(again.values, [1, np.nan, np.nan])
            assert column_of("0", "1", kind=column.kind).values.tolist() == [0, 1]
        assert column_of("yes", "no", "maybe").kind.name == TEXT

    def test_hints_where_texts_are_numbers_beside_letters(self, csv_file):
        notes = training_data(csv_file("b,x,y\n" + rows(30, "zone {i},{i},{i}.5") + "zone 1,0,7\n")).notes
        assert "column 'b' is text of 30 categories; if it holds numbers ('zone 0'), write them without 'zone'" in notes
        notes = training_data(csv_file("a,b,y\n" + rows(30, "~{i},{i},{i}.5"))).notes
        assert "passes it through to predictions); if it holds numbers ('~0'), write them without '~'" in notes[0]

    def test_a_mark_that_leaves_doubts_is_that_of_the_file(self, csv_file):
        assert values(csv_file("a;b\n1,234;1.234\n2,5;2.500\n"))["b"].tolist() == [1234, 2500]
        assert values(csv_file("a;b\n1.25;1.234\n2.5;2.500\n"))["b"].tolist() == [1.234, 2.5]
        assert values(csv_file('a,b\n1.25,"1,234"\n2.5,"2,500"\n'))["b"].tolist() == [1234, 2500]
        assert values(csv_file("a;b\nx;1,234\ny;2,500\n"))["b"].tolist() == [1.234, 2.5]  # by the semicolons

    def test_no_decimal_comma_where_a_number_has_a_point(self):
        assert column_of("1.5", "2.345", mark="decimal commas").values.tolist() == [1.5, 2.345]

    def test_a_few_texts_among_many_numbers_are_holes(self):
        column = column_of(*map(str, range(30)), "n.d.", "n.d.", "12O")
        assert np.isnan(column.values).sum() == 3
        assert column.notes == ["column 'a': '12O', 'n.d.' among its numbers are taken for missing cells (3 cells)"]

    def test_numbers_among_texts_are_texts(self):
        assert column_of("1", "2", "3", "3a").values.tolist() == ["1", "2", "3", "3a"]
        assert column_of(*map(str, range(30)), *(f"x{i}" for i in range(5))).kind.name == TEXT

    def test_numbers_of_programs_only(self):
        assert column_of("1_000", "2").kind.name == TEXT
        assert column_of("0x10", "2").kind.name == TEXT


class TestDates:
    @pytest.mark.parametrize(
        ("cells", "first"),
        [
            (["2024-02-03", "2023-12-31"], "2024-02-03"),
            (["2024/2/3 4:05", "2023/12/31"], "2024-02-03T04:05"),
            (["2024-02-03T04:05:06.5Z", "2024-02-03 04:05:06"], "2024-02-03T04:05:06.5"),
            (["2024-02-03T04:05+02:00", "2023-12-31T00:00+02:00"], "2024-02-03T02:05"),
            (["2024-02", "2023-12"], "2024-02-01"),
            (["03.02.2024", "31.12.2023"], "2024-02-03"),
            (["03/02/24 4:05 PM", "31/12/23 12:00 AM"], "2024-02-03T16:05"),
            (["02/03/2024", "12/31/2023"], "2024-02-03"),
        ],
    )
    def test_orders(self, cells, first):
        column = column_of(*cells, "")
        assert column.kind.name == DATE
        assert column.notes == []
        assert column.values[0] == np.datetime64(first)
        assert np.isnat(column.values[-1])

    def test_an_order_that_leaves_doubts_is_said_and_kept(self):
        column = column_of("01/02/2024", "03/04/2024")
        assert column.values[0] == np.datetime64("2024-02-01")
        assert "could be month-day-year as well" in column.notes[0]
        again = column_of("01/02/2024", kind=Kind(DATE, "month-day-year"))
        assert (again.values[0], again.notes) == (np.datetime64("2024-01-02"), [])
        told = column_of("01/02/2024", "31/12/2024", kind=Kind(DATE, "month-day-year")).notes
        assert "read as day-month-year, and were month-day-year when the model was fitted" in told[0]
        assert "could be month-day-year" in column_of("01/02/2024", kind=Kind(DATE, "year-month-day")).notes[0]

    def test_times_of_day_are_hours_and_said(self):
        column = column_of(*(f"{hour}:30" for hour in range(20)), "late")
        assert column.values[:2].tolist() == [0.5, 1.5]
        assert "holds times of day or durations, taken as hours ('0:30' is 0.5)" in column.notes[1]
        again = column_of("6:15", "100:45", kind=column.kind)  # a duration too
        assert (again.values.tolist(), again.notes) == ([6.25, 100.75], [])

    @pytest.mark.parametrize(
        "cells", [["31.02.2024"], ["31.12.2024", "12/31/2024"], ["2024-13-01"], ["0815-1", "4711-01"]]
    )
    def test_what_is_no_date_is_text(self, cells):
        assert column_of(*cells).kind.name == TEXT


class TestGivenKinds:
    def test_cells_of_another_kind_are_holes(self):
        column = column_of("1", "many", kind=Kind(NUMBER))
        np.testing.assert_array_equal(column.values, [1, np.nan])
        assert "'many' among its numbers" in column.notes[0]
        column = column_of("2024-01-01", "soon", kind=Kind(DATE))
        assert np.isnat(column.values).tolist() == [False, True]

    def test_numbers_that_are_categories(self):
        cells = ["1", "1.0", "", "007", "01", "1E1", "10", "10.", "0.50", ".5"]
        levels = ["1", "1", None, "007", "01", "1E1", "10", "10", "0.5", "0.5"]
        assert column_of(*cells, kind=Kind("category")).values.tolist() == levels
        large = [str(2**60 + number) for number in range(3)]  # one number of float64
        assert column_of(*large, kind=Kind("category")).values.tolist() == large

    def test_text_stays_text(self):
        assert column_of("1", "NA", kind=Kind(TEXT)).values.tolist() == ["1", None]


def training_data(path, target="y", **roles):
    return read_training_data(path, Roles(target, **roles))


class TestRoles:
    def test_the_target_is_apart(self, csv_file):
        data = training_data(csv_file("a,y,b\n" + rows(20, "{i},{i}.5,x{i}x")), id="b")
        assert list(data.table) == ["a"]
        np.testing.assert_array_equal(data.y, np.arange(20) + 0.5)
        assert data.ids[:2] == ["x0x", "x1x"]

    def test_ids_are_passed_through_as_they_are_written(self, csv_file):
        assert training_data(csv_file("k,a,y\n" + rows(20, "00{i},{i}{i},{i}.5")), id="k").ids[7] == "007"

    def test_rows_without_a_target_are_left_out_and_said(self, csv_file):
        data = training_data(csv_file("a,y\n5,\n" + rows(20) + "6,NA\n"))
        assert data.rows.tolist() == list(range(1, 21))
        assert data.table["a"].tolist() == list(range(20))
        assert "2 rows without a target ('y') left out: lines 2, 23" in data.notes

    @pytest.mark.parametrize(
        ("column", "note"),
        [
            ("{i}x", "'a' has as many distinct texts as rows, as an id has: left out"),
            ("x", "'a' is always 'x': left out"),
            ("5", "'a' is always 5.0: left out"),
            ("", "'a' is empty: left out"),
        ],
    )
    def test_useless_columns_are_left_out_and_said(self, csv_file, column, note):
        data = training_data(csv_file("a,b,y\n" + rows(20, column + ",{i},{i}.5")))
        assert list(data.table) == ["b"]
        assert [note in said for said in data.notes] == [True]

    def test_numbers_of_rows_are_left_out_but_not_times(self, csv_file):
        data = training_data(csv_file(",t,y\n" + rows(20, "{i},{i},{i}.5")))
        assert list(data.table) == ["t"]
        assert data.notes == ["column 'column 1' counts the rows: left out (rename it to keep it)"]

    @pytest.mark.parametrize("again", [2, 20], ids=["a tenth", "appended twice"])
    def test_copies_are_left_out_and_ids_are_ids_still(self, csv_file, again):
        lines = rows(20, "R-{i},{i},{i}.5").splitlines(keepends=True)
        data = training_data(csv_file("id,x,y\n" + "".join([*lines, *lines[:again]])))
        assert list(data.table) == ["x"]
        assert data.rows.tolist() == list(range(20))
        assert f"{again} of {20 + again} rows are copies of others" in data.notes[0]

    def test_copies_that_a_counter_tells_apart(self, csv_file):
        data = training_data(csv_file(",x,y\n" + "".join(f"{i},{i % 20},{i % 20}.5\n" for i in range(22))))
        assert list(data.table) == ["x"]
        assert data.rows.tolist() == list(range(20))

    def test_a_column_that_is_constant_where_it_is_not_empty_stays(self, csv_file):
        data = training_data(csv_file("a,y\n" + rows(20, ",{i}.5") + "x,3\n"))
        assert list(data.table) == ["a"]

    def test_columns_are_dropped_and_categories_named(self, csv_file):
        data = training_data(csv_file("a,b,c,y\n" + rows(20, "{i},1,{i},{i}.5")), dropped=["a"], categorical=["c"])
        assert data.table["c"][:2].tolist() == ["0", "1"]
        assert list(data.table) == ["c"]
        assert data.notes == ["column 'b' is always 1.0: left out", "categories: 'c' (20)"]

    def test_dates_are_said(self, csv_file):
        data = training_data(csv_file("d,y\n" + rows(20, "20{i:02d}-01-02,{i}.5")))
        assert data.notes == ["dates, taken as days and parts of the calendar: 'd'"]


class TestProblems:
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("a,y\n" + rows(19), "has 19 rows, but learning takes at least 20"),
            ("a,b\n" + rows(20), "--target: no column is called 'y'; its columns are 'a', 'b'"),
            ("y\n" + rows(20, "{i}"), "no column is left to learn from"),
            ("a,y\n" + rows(20, "x,{i}"), "no column is left to learn from.*'a' is always 'x'"),
            ("a,y\n" + rows(20, "{i},7"), "the target 'y' is always 7"),
            ("a,y\n" + rows(20, "{i},"), "the target 'y' is empty in all rows"),
            ("a,y\n" + rows(20, "{i},k{i}"), r"'y' holds text: 20 of 20 .* 'k0' \(line 2\) and .*: give a column of"),
            (
                "a,y\n" + rows(20) + "1,x\n2,u\n3,z\n",
                r"3 of 23 are no numbers, .* 'x' \(line 22\) .* 'u' .* cells empty",
            ),
            (
                "a;y\n" + rows(20, "{i};6,{i} min") + "1;3 h\n2;4 h\n3;5 h\n",
                r"'6,0 min' \(line 2\) .*: take ' min' off, so that numbers are left$",
            ),
            (
                "a,y\n" + rows(20, '{i},"{i},5"') + "1,2.5\n2,3.5\n3,0.5\n",
                "such as '2.5' .*: write decimal points or .*, not both",
            ),
            ("a,y\n" + rows(20, "{i},({i})"), r"'y' holds text: 20 of 20 .* such as '\(0\)' \(line 2\)"),
            (
                "a,y\n" + rows(20, "{i},Yes") + rows(20, "{i},no"),
                r"'y' holds true and false \('Yes'\): PartitionGPClassifier .*; or write 1 and 0",
            ),
            ("a,y\n" + rows(20, "{i},20{i:02d}-01-02"), "the target 'y' holds dates: give a number"),
            ("a,y\n" + rows(20) + "inf,3\n", "column 'a' is infinite in line 22: leave these cells empty"),
            ("a,y\n" + rows(20) + "1,inf\n", "column 'y' is infinite in line 22"),
            ("a,y\n" + rows(20) + "1e200,3\n", "expected column 'a' in units"),
            ("a,a,y\n" + rows(20, "1,2,{i}"), "more than one column is named 'a': rename"),
            (
                "a,y\n" + rows(20) + "1\n",
                "line 22: expected 2 cells as in the header, got 1 cell; delete the line if it is",
            ),
            ("Sales\na,y\n" + rows(20), "a line of 1 cell, but 21 of the 21 lines below have 2: if"),
            ("a,y\n" + rows(20) + "1,2,3\n", "line 22: expected 2 cells as in the header, got 3 cells; put quotes"),
        ],
    )
    def test_each_is_said_with_its_place_and_what_to_do(self, csv_file, text, message):
        with pytest.raises(CommandError, match=message) as error:
            training_data(csv_file(text))
        assert "\n" not in str(error.value)

    def test_all_are_said_at_once(self, csv_file):
        path = csv_file("a,b,b,y\n" + rows(20, "{i},1,2,{i}.5") + "inf,1,2,3\n1,2\n1,2,3,4,5\n")
        with pytest.raises(CommandError) as error:
            training_data(path, dropped=["none"], id="y", categorical=["no"])
        lines = str(error.value).splitlines()
        assert lines[0] == f"{path} has 7 problems:"
        expected = ["line 23", "line 24", "named 'b'", "--drop", "--categorical", "--id", "infinite in line 22"]
        for part in expected:
            assert sum(part in line for line in lines[1:]) == 1

    @pytest.mark.parametrize(
        ("option", "roles"),
        [
            ("--target", {"target": "prices"}),
            ("--id", {"id": "PRICE"}),
            ("--weight", {"weight": "price "}),
            ("--drop", {"dropped": ["pirce"]}),
            ("--categorical", {"categorical": ["prise"]}),
        ],
    )
    def test_names_that_are_nearly_those_of_columns(self, csv_file, option, roles):
        with pytest.raises(CommandError) as error:
            training_data(csv_file("Price,y\n" + rows(20)), **roles)
        assert f"{option}: no column is called" in str(error.value)
        assert "; did you mean 'Price'? Its columns are 'Price', 'y'" in str(error.value)

    def test_twenty_are_shown(self, csv_file):
        with pytest.raises(CommandError) as error:
            training_data(csv_file("a,y\n" + rows(40) + "1\n" * 50))
        lines = str(error.value).splitlines()
        assert len(lines) == 22
        assert lines[-1] == "- and 30 more"


class TestParquet:
    def test_columns_of_a_frame_keep_their_types(self, tmp_path):
        pandas = pytest.importorskip("pandas")
        frame = pandas.DataFrame(
            {
                "n": pandas.array([1, None], dtype="Int64"),
                "t": ["x", None],
                "d": pandas.to_datetime(["2024-01-02", None]),
                "c": pandas.Categorical(["u", "v"]),
                "b": [True, False],
            }
        )
        raw = parquet.table_of_frame(tmp_path, frame)
        kinds = [typed_column(name, cells).kind.name for name, cells in raw.columns.items()]
        assert kinds == [NUMBER, TEXT, DATE, TEXT, NUMBER]
        np.testing.assert_array_equal(raw.columns["n"], [1, np.nan])
        assert raw.columns["t"].tolist() == ["x", None]
        assert typed_column("n", raw.columns["n"], kind=Kind("category")).values.tolist() == ["1", None]

    def test_decimals_and_durations_are_numbers_and_days_are_dates(self, tmp_path):
        pandas = pytest.importorskip("pandas")
        columns = {
            "decimal": [Decimal("1.5"), None],
            "day": [date(2024, 1, 2), None],
            "duration": pandas.to_timedelta(["36h", None]),
        }
        raw = parquet.table_of_frame(tmp_path, pandas.DataFrame(columns))
        kinds = [typed_column(name, cells).kind.name for name, cells in raw.columns.items()]
        assert kinds == [NUMBER, DATE, NUMBER]
        np.testing.assert_array_equal(raw.columns["decimal"], [1.5, np.nan])
        np.testing.assert_array_equal(raw.columns["duration"], [1.5, np.nan])  # days
        assert raw.columns["day"].tolist() == [datetime(2024, 1, 2), None]

    def test_text_is_read_as_that_of_csv_files(self, tmp_path):
        """Numbers, units and decimal commas, features and targets; not declared categories, nor what is no number."""
        pytest.importorskip("pyarrow")
        pandas = pytest.importorskip("pandas")
        path = tmp_path / "data.pq"
        texts = [f"{number},5" for number in range(20)]
        code, name = pandas.Categorical([str(number % 3) for number in range(20)]), ["NA", " b"] * 10
        frame = pandas.DataFrame({"n": texts, "w": [f"{n} kg" for n in range(20)], "c": code, "t": name, "y": texts})
        frame.to_parquet(path)
        data = training_data(path)
        assert [kind.name for kind in data.kinds.values()] == [NUMBER, NUMBER, TEXT, TEXT]
        np.testing.assert_array_equal(data.table["n"], np.arange(20) + 0.5)
        np.testing.assert_array_equal(data.y, np.arange(20) + 0.5)
        assert data.table["t"].tolist() == name
        assert data.categorical == ["c"]
        frame.assign(y=["1", "x"] * 10).to_parquet(path)
        with pytest.raises(CommandError, match=r"10 of 20 are no numbers, such as 'x' \(row 1\)"):
            training_data(path)

    def test_lists_structs_and_bytes_are_refused_by_name_where_they_are_used(self, tmp_path):
        parquet_of_arrow = pytest.importorskip("pyarrow.parquet")
        pyarrow = pytest.importorskip("pyarrow")
        pytest.importorskip("pandas")
        path = tmp_path / "data.pq"
        odd = {"l": [[1]] * 20, "s": [{"a": 1}] * 20, "b": [b"x"] * 20}
        parquet_of_arrow.write_table(pyarrow.table({**odd, "x": range(20), "y": np.arange(20.0) ** 2}), path)
        with pytest.raises(CommandError, match=r"(?s)3 problems.*'l' holds ndarray.*'s' holds dict.*'b' holds bytes"):
            training_data(path)
        assert list(training_data(path, dropped=["s", "b"], id="l").table) == ["x"]
        with pytest.raises(CommandError, match="'b' holds bytes"):
            read_new_rows(path, {"b": Kind(TEXT)}, None, False)

    def test_a_file(self, tmp_path):
        pytest.importorskip("pyarrow")
        pandas = pytest.importorskip("pandas")
        path = tmp_path / "data.pq"
        pandas.DataFrame({"a": range(20), "t": ["x", "y"] * 10, "y": range(20)}).to_parquet(path)
        assert list(training_data(path).table) == ["a", "t"]
        path.write_bytes(b"PAR1" + bytes(90))
        with pytest.raises(CommandError, match="is damaged"):
            read_table(path)

    @pytest.mark.parametrize("holes", [False, True])
    def test_ids_come_through_as_they_are(self, tmp_path, holes):
        """Neighbours above 2**53, which float64 does not tell apart, and times in their zone."""
        parquet_of_arrow = pytest.importorskip("pyarrow.parquet")
        pyarrow = pytest.importorskip("pyarrow")
        pytest.importorskip("pandas")
        path, first = tmp_path / "data.pq", 2**60 + 1
        numbers = pyarrow.array([*range(first, first + 19), None if holes else 7])
        times = np.datetime64("2024-03-29T23:00", "us") + np.arange(20) * np.timedelta64(1, "D")
        times = pyarrow.array(times, pyarrow.timestamp("us", "Europe/Berlin"))
        table = pyarrow.table({"n": numbers, "t": times, "x": range(20), "y": np.arange(20.0) ** 2})
        parquet_of_arrow.write_table(table, path)
        assert training_data(path, id="n").ids == [*map(str, range(first, first + 19)), "" if holes else "7"]
        assert read_new_rows(path, {"x": Kind(NUMBER)}, "n", True).ids[1] == str(first + 1)
        assert training_data(path, categorical=["n"]).table["n"][1] == str(first + 1)  # ids may be categories
        assert read_new_rows(path, {"n": Kind("category")}, None, False).table["n"][1] == str(first + 1)
        assert training_data(path, id="t").ids[:2] == ["2024-03-30 00:00:00+01:00", "2024-03-31 00:00:00+01:00"]

    def test_without_its_library_the_extra_is_named(self, tmp_path, monkeypatch):
        path = tmp_path / "data.parquet"
        path.write_bytes(b"PAR1....PAR1")
        real = importlib.util.find_spec
        monkeypatch.setattr(parquet, "find_spec", lambda name: None if name == "pyarrow" else real(name))
        with pytest.raises(CommandError, match=r'pip install "gpytorch_partition\[tables\]", or give a CSV file'):
            read_table(path)


def test_categories_that_may_be_misspelled_are_told():
    cells = ["München"] * 60 + ["münchen"] * 9 + ["Muenchen"] * 3 + [None]
    case, rare = spelling_notes("town", cells)
    assert case.endswith("differ in case or spaces only: 'München', 'münchen'")
    assert "1 of 3 categories have 8 rows or fewer ('Muenchen')" in rare
    assert spelling_notes("town", ["Rome"] * 60 + ["Oslo"] * 9) == []
    assert spelling_notes("street", [f"street {row // 4}" for row in range(400)]) == []  # all are rare


def test_a_column_of_unknown_categories_is_warned_of():
    table, levels = {"a": np.array(["X", "Y", None], dtype=object)}, {"a": ["x", "y"]}
    with pytest.warns(
        UserWarning, match=r"'a' has no category that the model knows \(such as 'x', 'y'\).*'X', 'Y'.*all 2"
    ):
        assert unseen_levels(table, levels) == []
    table["a"][0] = "x"
    assert unseen_levels(table, levels) == [
        "column 'a': the training rows did not have 'Y': taken for missing cells; they had 'Y' as 'y' (1 in all)"
    ]


class TestWeights:
    def test_they_are_no_feature(self, csv_file):
        text = "a,w,y\n" + rows(20, "{i},2.5,{i}.5") + "7,0,8\n9,,\n"
        data = training_data(csv_file(text), weight="w")
        assert list(data.table) == ["a"]
        np.testing.assert_array_equal(data.weights, np.full(20, 2.5))
        assert "1 row of weight 0 ('w') left out: line 22" in data.notes

    def test_all_that_is_wrong_is_said_at_once(self, csv_file):
        text = "a,w,y\n" + rows(30, "{i},{i}.25,{i}.5") + "7,-3,8\n9,,1\n1,inf,2\n2,much,2\ninf,1,1\n"
        with pytest.raises(CommandError) as error:
            training_data(csv_file(text), weight="w", id="nothing")
        for part in (
            "'w' is negative in line 32",
            "'w' is empty or no number in lines 33, 35",
            "is infinite in line 34",
        ):
            assert part in str(error.value)
        assert "no column is called 'nothing'" in str(error.value)
        assert "'a' is infinite in line 36" in str(error.value)

    @pytest.mark.parametrize(
        ("cell", "roles", "message"),
        [
            ("x{i}", {}, "'w' holds text, and weights are numbers from 0"),
            ("0", {}, "is 0 in all rows with a target"),
            ("1", {"weight": "v"}, "--weight: no column is called 'v'"),
            ("1", {"weight": "y"}, "'y' is the target already"),
            ("1", {"id": "w"}, "named by --drop, --id or --categorical too"),
            ("1", {"target": "z"}, "--target: no column is called 'z'"),
        ],
    )
    def test_columns_that_cannot_be_weights(self, csv_file, cell, roles, message):
        with pytest.raises(CommandError, match=message):
            training_data(csv_file("a,w,y\n" + rows(20, "{i}," + cell + ",{i}.5")), **{"weight": "w", **roles})

    def test_enough_rows_must_count(self, csv_file):
        text = "a,w,y\n" + rows(19, "{i},1,{i}.5") + "1,0,1\n2,0,2\n"
        with pytest.raises(CommandError, match="19 rows have a weight above 0"):
            training_data(csv_file(text), weight="w")
