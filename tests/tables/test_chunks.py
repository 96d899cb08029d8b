"""What chunks are: the same rows from every source, each time anew, and errors that name the chunk."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import coo_matrix, csr_array

from gpytorch_partition.tables.chunks import ChunkSource, joined, rows_of

X = np.arange(40.0).reshape(20, 2)
Y = np.arange(20.0)


def halves(x=X, y=Y):
    return [(x[:8], y[:8]), (x[8:], y[8:])]


class TestSources:
    def arrays_on_disk(self, folder):
        np.save(folder / "x.npy", X)
        np.save(folder / "y.npy", Y)
        return tuple(np.load(folder / f"{name}.npy", mmap_mode="r") for name in "xy")

    @pytest.mark.parametrize("kind", ["arrays on disk", "list", "function", "tuples with a column of targets"])
    def test_all_rows_in_order_each_time(self, kind, tmp_path):
        sources = {
            "arrays on disk": lambda: self.arrays_on_disk(tmp_path),
            "list": halves,
            "function": lambda: lambda: iter(halves()),
            "tuples with a column of targets": lambda: halves(y=Y[:, None]),
        }
        source = ChunkSource(sources[kind]())
        for _ in range(2):
            chunks = list(source)
            np.testing.assert_array_equal(joined([chunk.x for chunk in chunks]), X)
            np.testing.assert_array_equal(np.concatenate([chunk.y for chunk in chunks]), Y)
            assert source.num_chunks == len(chunks)
            assert [chunk.first_row for chunk in chunks] == np.cumsum(
                [0, *map(len, (c.y for c in chunks[:-1]))]
            ).tolist()

    def test_large_arrays_are_read_in_pieces(self):
        x, y = np.zeros((150_000, 1)), np.zeros(150_000)
        assert [len(chunk.y) for chunk in ChunkSource((x, y))] == [2**16, 2**16, 150_000 - 2**17]

    def test_a_pair_of_a_frame_and_targets_keeps_columns(self):
        pandas = pytest.importorskip("pandas")
        frame = pandas.DataFrame({"a": Y, "b": Y.astype(str)}, index=np.arange(20)[::-1] + 5)
        (chunk,) = ChunkSource((frame, frame["a"]))
        pandas.testing.assert_frame_equal(chunk.x, frame)

    def test_columns_that_are_lists(self):
        (chunk,) = ChunkSource([({"a": [1, None, 3], "b": ("u", "v", "w")}, [1, 2, 3])])
        some = rows_of(chunk.x, np.array([0, 2]))
        assert {name: column.tolist() for name, column in some.items()} == {"a": [1, 3], "b": ["u", "w"]}

    def test_empty_chunks_are_left_out(self):
        chunks = [(X[:0], Y[:0]), *halves(), (X[:0], Y[:0])]
        assert [chunk.name for chunk in ChunkSource(chunks)] == ["chunk 1 (rows 0 to 7)", "chunk 2 (rows 8 to 19)"]


class TestParquet:
    @pytest.fixture
    def frame(self):
        pandas = pytest.importorskip("pandas")
        pytest.importorskip("pyarrow")
        names = np.array(["red", None, "blue", "green"], dtype=object)[np.arange(20) % 4]
        return pandas.DataFrame({"size": X[:, 0], "target": Y, "color": names})

    def test_files_in_the_order_of_their_names(self, frame, tmp_path):
        for name, rows in (("b", slice(12, 20)), ("a", slice(0, 12))):
            frame[rows].to_parquet(tmp_path / f"{name}.parquet", row_group_size=5)
        source = ChunkSource(tmp_path, "target")
        chunks = list(source)
        assert [len(chunk.y) for chunk in chunks] == [5, 5, 2, 5, 3]
        assert source.num_chunks == ChunkSource(str(tmp_path), "target").num_chunks == 5
        found = joined([chunk.x for chunk in chunks])
        assert list(found.columns) == ["size", "color"]
        np.testing.assert_array_equal(found["size"], X[:, 0])
        np.testing.assert_array_equal(found["color"].isna(), frame["color"].isna())

    def test_a_file_and_partitions_of_a_folder(self, frame, tmp_path):
        frame = frame.dropna()
        frame.to_parquet(tmp_path / "one.parquet")
        frame.to_parquet(tmp_path / "folder", partition_cols=["color"])
        (whole,) = ChunkSource(tmp_path / "one.parquet", "target")
        parts = list(ChunkSource(tmp_path / "folder", "target"))
        assert len(parts) == 3
        assert sorted(joined([part.x for part in parts])["color"]) == sorted(whole.x["color"])

    def read_files(self, folder, *columns, target="y"):
        """The column x of files that pandas has written, each with its own x."""
        pandas = pytest.importorskip("pandas")
        pytest.importorskip("pyarrow")
        for number, column in enumerate(columns):
            x = {} if column is None else {"x": column}
            frame = pandas.DataFrame({"z": [1.0, 2.0, 3.0], "y": np.arange(3.0) + number, **x})
            frame.to_parquet(folder / f"{number}.parquet")
        return joined([chunk.x for chunk in ChunkSource(folder, target)])

    @pytest.mark.parametrize(
        ("first", "second"),
        [
            ([None, None, None], ["a", None, "b"]),
            ([1, 2, 3], [1.5, np.nan, 2.5]),
            (np.array([1, 2, 3], np.float32), [0.1, 0.2, 0.3]),
            (None, [1, 2, 3]),
            ([1, 2, 3], None),
        ],
    )
    def test_files_have_the_columns_and_types_of_all(self, tmp_path, first, second):
        pandas = pytest.importorskip("pandas")
        found = self.read_files(tmp_path, first, second)["x"]
        values = [value for part in (first, second) for value in ([None] * 3 if part is None else part)]
        expected = pandas.Series(values, dtype=object)
        np.testing.assert_array_equal(found.isna(), expected.isna())
        assert found.dropna().tolist() == expected.dropna().tolist()

    def test_types_without_a_common_one_are_named(self, tmp_path):
        with pytest.raises(ValueError, match=r"1\.parquet.*Field x.*int64 vs.*string.*one type in all files"):
            self.read_files(tmp_path, [1, 2, 3], ["a", "b", "c"])
        with pytest.raises(ValueError, match=r"0\.parquet.*9007199254740993 not in range.*one type in all files"):
            self.read_files(tmp_path, [2**53 + 1, 2, 3], [0.5, 1.5, 2.5])

    def test_file_without_the_target_is_named(self, tmp_path):
        with pytest.raises(ValueError, match=r"expected the target 'x' in every file, .*1\.parquet has no such column"):
            self.read_files(tmp_path, [1, 2, 3], None, target="x")

    def test_damaged_files_are_named(self, frame, tmp_path):
        for name in "ab":
            frame.to_parquet(tmp_path / f"{name}.parquet")
        whole = (tmp_path / "b.parquet").read_bytes()
        for damaged in (b"", whole[:500]):
            (tmp_path / "b.parquet").write_bytes(damaged)
            with pytest.raises(ValueError, match=r"b\.parquet is damaged"):
                ChunkSource(tmp_path, "target")

    def test_indexes_are_no_columns(self, frame, tmp_path):
        """pandas writes the index of rows that a filter has left as a column, one of unbroken rows not."""
        frame[:8].to_parquet(tmp_path / "0.parquet")
        frame.iloc[[8, 9, 12, 15]].to_parquet(tmp_path / "1.parquet")
        assert all(list(chunk.x.columns) == ["size", "color"] for chunk in ChunkSource(tmp_path, "target"))

    @pytest.mark.parametrize(
        ("keys", "pandas_notes"),
        [(["001", "2"], True), (["001", "2"], False), ([1, 20], True), (["a b", "c/d"], False)],
    )
    def test_keys_of_folders_are_text_as_it_was_written(self, frame, tmp_path, keys, pandas_notes):
        parquet = pytest.importorskip("pyarrow.parquet")
        table = parquet.core.pa.Table.from_pandas(frame.assign(key=np.array(keys)[np.arange(20) % 2]))
        table = table if pandas_notes else table.replace_schema_metadata(None)
        parquet.write_to_dataset(table, tmp_path, partition_cols=["key"])
        source = ChunkSource(tmp_path, "target")
        assert [set(chunk.x["key"]) for chunk in source] == [{str(key)} for key in keys]
        assert set(joined([chunk.x for chunk in source])["size"]) == set(X[:, 0])

    @pytest.mark.parametrize("target", [None, "price"])
    def test_target_is_a_column(self, frame, tmp_path, target):
        frame.to_parquet(tmp_path / "one.parquet")
        with pytest.raises(ValueError, match=r"one of 'size', 'target', 'color', got .*fit_chunks\(path, 'name'\)"):
            ChunkSource(tmp_path, target)

    def test_no_parquet(self, frame, tmp_path):
        with pytest.raises(FileNotFoundError, match="does not exist"):
            ChunkSource(tmp_path / "nowhere", "target")
        (tmp_path / "notes.txt").write_text("no table")
        with pytest.raises(ValueError, match="expected a parquet file"):
            ChunkSource(tmp_path, "target")


class TestErrors:
    def read(self, chunks):
        return list(ChunkSource(chunks))

    def test_what_can_be_read_once_only(self):
        with pytest.raises(TypeError, match="generator, which is used up.*a function that begins anew"):
            ChunkSource(pair for pair in halves())

    @pytest.mark.parametrize("chunks", [3, {"x": X}])
    def test_what_holds_no_chunks(self, chunks):
        with pytest.raises(TypeError, match="expected a folder of parquet files, a pair of arrays"):
            ChunkSource(chunks)

    def test_target_of_what_has_targets(self):
        with pytest.raises(ValueError, match="expected target=None"):
            ChunkSource(halves(), "target")

    @pytest.mark.parametrize("chunks", [X, halves(), "folder"])
    def test_targets_as_a_second_argument(self, chunks):
        message = r"expected target as the name of a column.*got a ndarray.*fit_chunks\(\(X, y\)\).*fit\(X, y\)"
        with pytest.raises(TypeError, match=message):
            ChunkSource(chunks, Y)

    def test_rows_in_memory_with_the_name_of_a_column(self):
        frame = pytest.importorskip("pandas").DataFrame({"x": Y, "y": Y})
        with pytest.raises(TypeError, match=r"expected a folder .* got a DataFrame; fit\(X, y\) takes rows in memory"):
            ChunkSource(frame, "y")
        with pytest.raises(TypeError, match=r"expected a folder .* got a ndarray; fit\(X, y\) takes rows in memory"):
            ChunkSource(X, "y")

    @pytest.mark.parametrize(
        ("second", "error", "message"),
        [
            (X[:3], TypeError, r"chunk 1: expected a pair \(X, y\).*ndarray"),
            (
                (csr_array(X[:3]), Y[:3]),
                TypeError,
                r"chunk 1: expected dense rows, got a csr_array: give X.toarray\(\)",
            ),
            ((coo_matrix(X[:3]), Y[:3]), TypeError, r"chunk 1: expected dense rows, got a coo_matrix"),
            ((3, Y[:3]), TypeError, r"chunk 1: expected rows \(n x D\) or a table, got a int"),
            (("x.npy", Y[:3]), TypeError, r"chunk 1: expected rows \(n x D\) or a table, got a str"),
            ((X[:3], Y[:2]), ValueError, "chunk 1: expected as many targets as rows, got 3 rows and 2 targets"),
            ((X[:3], [1, np.nan, 2]), ValueError, "chunk 1: expected finite targets, got 1 .* row 1 of the chunk"),
            ((X[:3], ["a", "b", "c"]), ValueError, "chunk 1: expected targets that are numbers"),
            ((X[:3], X[:3]), ValueError, r"chunk 1: expected one target for each row, got .*\(3, 2\)"),
            ((X[:3, :1], Y[:3]), ValueError, r"chunk 1 \(rows 20 to 22\): expected the columns of the first chunk, 2"),
            ((Y[:3], Y[:3]), ValueError, r"chunk 1 \(rows 20 to 22\): expected rows \(n x D\)"),
            (({"a": Y[:3]}, Y[:3]), ValueError, r"chunk 1 \(rows 20 to 22\): expected the columns of the first"),
        ],
    )
    def test_bad_chunks_are_named(self, second, error, message):
        with pytest.raises(error, match=message):
            self.read([(X, Y), second])

    @pytest.mark.parametrize("y", [Y + 1j, Y.astype("datetime64[D]"), Y.astype("timedelta64[s]")])
    def test_targets_that_are_no_real_numbers(self, y):
        for source in (ChunkSource([(X, Y), (X, y)]), ChunkSource(lambda: iter([(X, Y), (X, y.reshape(-1, 1))]))):
            with pytest.raises(
                ValueError, match=f"chunk 1: expected targets that are real numbers, got {y.dtype.name[:7]}"
            ):
                list(source)

    @pytest.mark.parametrize(
        "second",
        [
            halves(y=np.where(Y == 3, 3.5, Y)),
            halves(X[::-1], Y[::-1]),
            halves(X[np.r_[8:20, :8]], Y[np.r_[8:20, :8]]),
            halves()[:1],
        ],
    )
    def test_other_rows_in_a_later_pass(self, second):
        passes = iter([halves(), [(X, Y)], second])
        source = ChunkSource(lambda: iter(next(passes)))
        for _ in range(2):
            list(source)
        with pytest.raises(RuntimeError, match="expected the same rows in all passes.*must not change"):
            list(source)

    def test_large_blocks_of_rows_that_change_places(self):
        x, y = np.zeros((2**18, 1)), np.arange(2.0**18) // 2**15
        passes = iter([[(x, y)], [(x, np.roll(y, 2**17))]])
        source = ChunkSource(lambda: iter(next(passes)))
        list(source)
        with pytest.raises(RuntimeError, match="with other targets or in another order"):
            list(source)

    def test_sparse_pair(self):
        with pytest.raises(TypeError, match="the pair of arrays: expected dense rows, got a csr_array"):
            ChunkSource((csr_array(X), Y))

    def test_no_rows(self):
        with pytest.raises(ValueError, match="expected chunks with rows, got 1 chunks without any"):
            self.read([(X[:0], Y[:0])])


@pytest.mark.parametrize("kind", ["array", "mapping", "frame"])
def test_rows_of_all_kinds(kind):
    if kind == "frame":
        x = pytest.importorskip("pandas").DataFrame({"a": X[:, 0], "b": X[:, 1]})
    else:
        x = X if kind == "array" else {"a": X[:, 0], "b": X[:, 1]}
    found = joined([rows_of(x, np.array([1, 3])), rows_of(x, np.array([0]))])
    values = found if kind == "array" else np.stack([found["a"], found["b"]], 1)
    np.testing.assert_array_equal(values, X[[1, 3, 0]])
