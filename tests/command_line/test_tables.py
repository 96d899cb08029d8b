"""CSV files: what is read, and what each thing that is wrong is called."""

from __future__ import annotations

import io

import numpy as np
import pytest

from gpytorch_partition.command_line import tables
from gpytorch_partition.command_line.errors import CommandError
from gpytorch_partition.command_line.tables import read_table, read_training_data, write_table


@pytest.fixture
def csv_file(tmp_path):
    def write(text, encoding="utf-8"):
        path = tmp_path / "data.csv"
        path.write_bytes(text.encode(encoding))
        return path

    return write


def rows(num_rows, cells="{i},{i}.5"):
    return "\n".join(cells.format(i=i) for i in range(num_rows)) + "\n"


def test_all_columns(csv_file):
    names, values = read_table(csv_file("a, b\n1,2.5\n\n-3e2, 4\n"))
    assert names == ["a", "b"]
    np.testing.assert_array_equal(values, [[1, 2.5], [-300, 4]])


def test_chosen_columns_in_any_order_whatever_the_others_hold(csv_file):
    names, values = read_table(csv_file("note,a,b\nred,1,2\n,3,4\n"), ["b", "a"])
    assert names == ["b", "a"]
    np.testing.assert_array_equal(values, [[2, 1], [4, 3]])


def test_a_byte_order_mark_and_quotes(csv_file):
    names, values = read_table(csv_file('"a","b, c"\r\n"1","2"\r\n', encoding="utf-8-sig"))
    assert names == ["a", "b, c"]
    np.testing.assert_array_equal(values, [[1, 2]])


def test_many_blocks(csv_file, monkeypatch):
    monkeypatch.setattr(tables, "_ROWS_PER_BLOCK", 7)
    _, values = read_table(csv_file("a,b\n" + rows(50)))
    np.testing.assert_array_equal(values[:, 1], np.arange(50) + 0.5)


def test_written_numbers_are_read_back_to_the_last_bit(csv_file):
    values = np.random.RandomState(0).randn(20, 2)
    file = io.StringIO()
    write_table(file, ["a", "b"], values)
    np.testing.assert_array_equal(read_table(csv_file(file.getvalue()))[1], values)


def test_training_data_have_their_target_apart(csv_file):
    X, y, columns, target = read_training_data(csv_file("a,y,b\n" + rows(20, "{i},{i}.5,7")), "y")
    np.testing.assert_array_equal(X, np.column_stack([np.arange(20), np.full(20, 7)]))
    np.testing.assert_array_equal(y, np.arange(20) + 0.5)
    assert (columns, target) == (["a", "b"], "y")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("\n", "is empty"),
        ("a,b\n", "a header but no rows"),
        ("a,b,a\n1,2,3\n", "more than one column named 'a'"),
        ("1,2\n3,4\n", "begins with numbers"),
        ("a,b\n1,Paris\n", r"line 2, column 'b': expected a number, got 'Paris'"),
        ("a,b\n1,2\n\n3,\n", r"line 4, column 'b': the cell is empty"),
        ("a,b\nnan,2\n", r"line 2, column 'a': expected a finite number, got 'nan'"),
        ("a,b\n1,inf\n", r"line 2, column 'b': expected a finite number, got 'inf'"),
        ("a,b\n1,2\n3\n", r"line 3: expected 2 cells as in the header, got 1"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(csv_file, text, message):
    with pytest.raises(CommandError, match=message):
        read_table(csv_file(text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,y\n" + rows(19), "has 19 rows, but learning takes at least 20"),
        ("a,b\n" + rows(20), "no column 'y'; its columns are 'a', 'b'"),
        ("y\n" + rows(20, "{i}"), "no column but the target 'y'"),
        ("a,y\n" + rows(20, "{i},7"), "the target 'y' in .* is always 7"),
    ],
)
def test_what_cannot_be_learned_from(csv_file, text, message):
    with pytest.raises(CommandError, match=message):
        read_training_data(csv_file(text), "y")


def test_missing_columns_are_all_named(csv_file):
    with pytest.raises(CommandError, match="no columns 'c', 'd'; its columns are 'a', 'b'"):
        read_table(csv_file("a,b\n1,2\n"), ["c", "a", "d"])


def test_files_that_cannot_be_read(tmp_path, csv_file):
    with pytest.raises(CommandError, match=r"cannot read .*none\.csv: No such file"):
        read_table(tmp_path / "none.csv")
    with pytest.raises(CommandError, match="cannot read"):
        read_table(tmp_path)
    with pytest.raises(CommandError, match="not a CSV file in UTF-8"):
        read_table(csv_file("a,ü\n1,2\n", encoding="latin-1"))
