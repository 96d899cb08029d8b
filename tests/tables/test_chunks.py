"""Chunks are the same rows from every source, each time anew, with errors that name them; samples are uniform."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_matrix, csr_array
from scipy.stats import binomtest, kstest

from gpytorch_partition.tables.chunks import ChunkSource, RowSample, joined, rows_of

X = np.arange(40.0).reshape(20, 2)
Y = np.arange(20.0)
FRAME = pd.DataFrame({"a": Y, "b": Y.astype(str)}, index=np.arange(20)[::-1] + 5)


def halves(x=X, y=Y):
    return [(x[:8], y[:8]), (x[8:], y[8:])]


def on_disk(folder):
    np.save(folder / "x.npy", X)
    np.save(folder / "y.npy", Y)
    return tuple(np.load(folder / f"{name}.npy", mmap_mode="r") for name in "xy")


@pytest.mark.parametrize(
    "source",
    [
        on_disk,
        lambda _: halves(),
        lambda _: lambda: iter(halves()),
        lambda _: halves(y=Y[:, None]),
        lambda _: [(X[:0], Y[:0]), *halves(), (X[:0], Y[:0])],
    ],
    ids=["arrays on disk", "list", "function", "column of targets", "empty chunks"],
)
def test_all_rows_in_order_each_time(source, tmp_path):
    source = ChunkSource(source(tmp_path))
    for _ in range(2):
        chunks = list(source)
        np.testing.assert_array_equal(joined([chunk.x for chunk in chunks]), X)
        np.testing.assert_array_equal(np.concatenate([chunk.y for chunk in chunks]), Y)
        assert [chunk.first_row for chunk in chunks] == [0, 8][: len(chunks)]
        assert source.num_chunks >= len(chunks)


def test_forms_of_rows():
    x, y = np.zeros((150_000, 1)), np.zeros(150_000)
    assert [len(chunk.y) for chunk in ChunkSource((x, y))] == [2**16, 2**16, 150_000 - 2**17]
    (chunk,) = ChunkSource((FRAME, FRAME["a"]))
    pd.testing.assert_frame_equal(chunk.x, FRAME)
    (chunk,) = ChunkSource([({"a": [1, None, 3], "b": ("u", "v", "w")}, [1, 2, 3])])
    some = rows_of(chunk.x, np.array([0, 2]))
    assert {name: column.tolist() for name, column in some.items()} == {"a": [1, 3], "b": ["u", "w"]}
    assert [*joined([rows_of(FRAME, np.array([1, 3])), rows_of(FRAME, np.array([0]))])["a"]] == [1, 3, 0]


class TestParquet:
    @pytest.fixture(autouse=True)
    def frame(self):
        pytest.importorskip("pyarrow")
        names = np.array(["red", None, "blue", "green"], dtype=object)[np.arange(20) % 4]
        return pd.DataFrame({"size": X[:, 0], "target": Y, "color": names})

    def test_files_in_the_order_of_their_names(self, frame, tmp_path):
        for name, rows in (("b", slice(12, 20)), ("a", slice(0, 12))):
            frame[rows].to_parquet(tmp_path / f"{name}.parquet", row_group_size=5)
        source = ChunkSource(tmp_path, "target")
        chunks = list(source)
        assert [len(chunk.y) for chunk in chunks] == [5, 5, 2, 5, 3]
        assert source.num_chunks == ChunkSource(str(tmp_path), "target").num_chunks == 5
        found = joined([chunk.x for chunk in chunks])
        pd.testing.assert_frame_equal(found, frame.drop(columns="target"))

    def read_files(self, folder, *columns):
        """Return the column x of files that pandas has written, each with its own x."""
        for number, column in enumerate(columns):
            x = {} if column is None else {"x": column}
            frame = pd.DataFrame({"z": [1.0, 2.0, 3.0], "y": np.arange(3.0) + number, **x})
            frame.to_parquet(folder / f"{number}.parquet")
        return joined([chunk.x for chunk in ChunkSource(folder, "y")])["x"]

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
        found = self.read_files(tmp_path, first, second)
        values = [value for part in (first, second) for value in ([None] * 3 if part is None else part)]
        expected = pd.Series(values, dtype=object)
        np.testing.assert_array_equal(found.isna(), expected.isna())
        assert found.dropna().tolist() == expected.dropna().tolist()

    @pytest.mark.parametrize(
        ("first", "second", "message"),
        [
            ([1, 2, 3], ["a", "b", "c"], "Field x.*int64 vs.*string.*convert columns"),
            ([2**53 + 1, 2, 3], [0.5, 1.5, 2.5], r"0\.parquet.*9007199254740993 not in range.*convert columns"),
        ],
    )
    def test_types_without_a_common_one_are_named(self, tmp_path, first, second, message):
        with pytest.raises(ValueError, match=message):
            self.read_files(tmp_path, first, second)

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

    def test_files_that_cannot_be_read_are_named(self, frame, tmp_path):
        with pytest.raises(FileNotFoundError, match="does not exist"):
            ChunkSource(tmp_path / "nowhere", "target")
        with pytest.raises(ValueError, match="there is none"):
            ChunkSource(tmp_path, "target")
        frame.to_parquet(tmp_path / "a.parquet")
        for target in (None, "price"):
            with pytest.raises(ValueError, match=r"one of 'size', 'target', 'color', .*fit_chunks\(path, 'name'\)"):
                ChunkSource(tmp_path, target)
        whole = (tmp_path / "a.parquet").read_bytes()
        for damaged in (b"", whole[:500], b"no table"):
            (tmp_path / "b.parquet").write_bytes(damaged)
            with pytest.raises(ValueError, match=r"expected whole parquet files.*b\.parquet"):
                ChunkSource(tmp_path, "target")
        frame.drop(columns="target").to_parquet(tmp_path / "b.parquet")
        with pytest.raises(ValueError, match="chunk 1: expected one finite target"):
            list(ChunkSource(tmp_path, "target"))


class TestErrors:
    @pytest.mark.parametrize(
        ("arguments", "error", "message"),
        [
            ([iter(halves())], TypeError, "list_iterator, which is used up.*a function that begins anew"),
            ([3], TypeError, "expected a folder of parquet files, a pair of arrays"),
            ([{"x": X}], TypeError, "expected a folder of parquet files, a pair of arrays"),
            ([halves(), "target"], ValueError, "expected target=None"),
            ([X, Y], TypeError, r"the name of a column.*got a ndarray.*fit_chunks\(\(X, y\)\).*fit\(X, y\)"),
            (["folder", Y], TypeError, "expected target as the name of a column"),
            ([FRAME, "y"], TypeError, r"expected a folder .* got a DataFrame; fit\(X, y\) takes rows in memory"),
            ([(csr_array(X), Y)], TypeError, "the pair of arrays: expected dense rows, got a csr_array"),
            ([[(X[:0], Y[:0])]], ValueError, "expected chunks with rows, got 1 chunks without any"),
        ],
    )
    def test_sources(self, arguments, error, message):
        with pytest.raises(error, match=message):
            list(ChunkSource(*arguments))

    @pytest.mark.parametrize(
        ("second", "error", "message"),
        [
            (X[:3], TypeError, r"expected a pair \(X, y\).*ndarray"),
            ((csr_array(X[:3]), Y[:3]), TypeError, r"expected dense rows, got a csr_array: give X.toarray\(\)"),
            ((coo_matrix(X[:3]), Y[:3]), TypeError, r"expected dense rows, got a coo_matrix"),
            ((3, Y[:3]), TypeError, r"expected rows \(n x D\) or a table, got a int"),
            (("x.npy", Y[:3]), TypeError, r"expected rows \(n x D\) or a table, got a str"),
            ((X[:3], Y[:2]), ValueError, "expected as many targets as rows, got 3 rows and 2 targets"),
            ((X[:3], [1, np.nan, 2]), ValueError, "expected one finite target for each row, .*NaN"),
            ((X[:3], Y[:3] + 1j), ValueError, "expected one finite target for each row, .*Complex"),
            ((X[:3], X[:3]), ValueError, r"expected one finite target for each row, got .*\(3, 2\)"),
            ((X[:3], ["a", "b", "c"]), ValueError, "expected targets that are numbers"),
            ((X[:3], Y[:3].astype("M8[D]")), ValueError, "expected targets that are real numbers, got datetime"),
            ((X[:3], Y[:3].astype("m8[s]")), ValueError, "expected targets that are real numbers, got timedelta"),
            ((X[:3, :1], Y[:3]), ValueError, r"\(rows 20 to 22\): expected the columns of the first chunk, 2"),
            ((Y[:3], Y[:3]), ValueError, r"\(rows 20 to 22\): expected rows \(n x D\)"),
            (({"a": Y[:3]}, Y[:3]), ValueError, r"\(rows 20 to 22\): expected the columns of the first"),
        ],
    )
    def test_bad_chunks_are_named(self, second, error, message):
        with pytest.raises(error, match=f"chunk 1.*{message}"):
            list(ChunkSource([(X, Y), second]))

    @pytest.mark.parametrize(
        "second",
        [
            halves(y=np.where(Y == 3, 3.5, Y)),
            halves(np.where(X[3, 0] == X, 0.5, X)),
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
        with pytest.raises(RuntimeError, match="with other numbers or in another order"):
            list(source)


@pytest.mark.parametrize("column", ["word", "day"])
def test_other_cells_of_tables_in_a_later_pass(column):
    frame = pd.DataFrame({"word": ["a", "b", None, "a"], "day": pd.date_range("2020", periods=4), "n": [1, 2, 3, 4]})
    other = frame.assign(**{column: frame[column][[1, 0, 2, 3]].tolist()})
    passes = iter([[(frame[:1], Y[:1]), (frame[1:], Y[1:4])], [(frame, Y[:4])], [(other, Y[:4])]])
    source = ChunkSource(lambda: iter(next(passes)))
    for _ in range(2):
        list(source)
    with pytest.raises(RuntimeError, match="with other numbers"):
        list(source)


def chunks_of(num_rows, ends):
    x, cuts = np.arange(float(num_rows)), sorted({0, *ends, num_rows})
    return ChunkSource([(x[a:b, None], 2 * x[a:b]) for a, b in zip(cuts, cuts[1:])])


def sample_of(num_rows, size, ends=(), seed=0):
    return RowSample(size, np.random.RandomState(seed)).of(chunks_of(num_rows, ends))


class TestRowSample:
    @settings(max_examples=30, deadline=None)
    @given(st.integers(2, 300), st.integers(1, 200), st.sets(st.integers(1, 299), max_size=8))
    def test_ends_of_chunks_change_nothing(self, num_rows, size, ends):
        ends = [end for end in ends if end < num_rows]
        found, whole = sample_of(num_rows, size, ends), sample_of(num_rows, size)
        assert found.rows.tolist() == whole.rows.tolist() == sorted(set(whole.rows.tolist()))
        assert len(found.rows) == min(size, -(-num_rows // 2))
        np.testing.assert_array_equal(found.x[:, 0], found.rows)
        np.testing.assert_array_equal(found.y, 2 * found.rows)
        others = np.concatenate([chunk.first_row + found.others(chunk) for chunk in chunks_of(num_rows, ends)])
        assert sorted([*others, *found.rows]) == list(range(num_rows))

    def test_each_row_is_as_likely(self):
        drawn = np.concatenate([sample_of(100, 10, range(7, 100, 7), seed).rows for seed in range(300)])
        counts = np.bincount(drawn, minlength=100)  # a tenth of 300 each, on average
        assert min(binomtest(int(count), 300, 0.1).pvalue for count in counts) > 1e-5
        assert kstest(drawn / 100, "uniform").pvalue > 1e-3

    @pytest.mark.parametrize("seed", [0, 1])
    def test_data_of_the_same_seed_are_not_the_priorities(self, seed):
        x = np.random.RandomState(seed).rand(20_000, 1)
        found = RowSample(2_000, np.random.RandomState(seed)).of(ChunkSource([(x, x[:, 0])]))
        assert kstest(found.y, "uniform").pvalue > 1e-3
