"""Frames of Polars and pyarrow, and pandas' frames of pyarrow's types, are read as those of pandas are."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from gpytorch_partition.estimators import PartitionGPClassifier, PartitionGPRegressor
from gpytorch_partition.tables import TableEncoder

pyarrow = pytest.importorskip("pyarrow")
polars = pytest.importorskip("polars")

ROWS = {
    "number": [1.5, None, 2.0, 4.0],
    "count": [1, 2, None, 4],
    "flag": [True, None, False, True],
    "text": ["b", "a", None, "b"],
    "day": [date(2024, 1, 2), date(2024, 5, 2), None, date(2025, 1, 2)],
    "time": [datetime(2024, 1, 2, 12), datetime(2024, 5, 2, 18), None, datetime(2025, 1, 2)],
    "decimal": [Decimal("1.50"), Decimal("2.25"), None, Decimal("0.50")],
}
TABLE = pyarrow.table(ROWS)
zoned = pyarrow.array(ROWS["time"], pyarrow.timestamp("us", "Europe/Berlin"))
TABLE = TABLE.append_column("zoned", zoned)
PANDAS = TABLE.to_pandas()


@pytest.mark.parametrize(
    "frame",
    [TABLE, TABLE.to_pandas(types_mapper=pd.ArrowDtype), polars.from_arrow(TABLE)],
    ids=["pyarrow", "pandas", "polars"],
)
def test_the_matrix_is_that_of_pandas(frame):
    encoder = TableEncoder()
    np.testing.assert_array_equal(encoder.fit_transform(frame), TableEncoder().fit_transform(PANDAS))
    assert encoder.categories_ == {3: ["a", "b"]}


def test_an_estimator_takes_a_frame_of_polars():
    rng = np.random.RandomState(0)
    frame = polars.DataFrame({"kind": rng.choice(["a", "b"], 60), "size": rng.rand(60)})
    y = polars.Series(frame["size"].to_numpy() + (frame["kind"] == "a").to_numpy())
    model = PartitionGPRegressor("forest", num_partitions=20, random_state=0).fit(frame, y)
    expected = PartitionGPRegressor("forest", num_partitions=20, random_state=0).fit(frame.to_pandas(), y.to_numpy())
    np.testing.assert_array_equal(model.predict(frame), expected.predict(frame.to_pandas()))


CODED = pyarrow.array(["x", None, "y"] * 20).dictionary_encode()
CODED_NUMBERS = pyarrow.array([1.5, None, 3.0] * 20).dictionary_encode()
PLAIN = pyarrow.array(["x", None, "y"] * 20)


@pytest.mark.parametrize("chunked", [False, True])
def test_missing_cells_of_dictionaries_stay_missing(chunked):
    codes, numbers = (pyarrow.chunked_array([each]) if chunked else each for each in (CODED, CODED_NUMBERS))
    for table in (pyarrow.table({"a": codes, "b": numbers}), {"a": codes, "b": numbers}):
        expected = np.tile([[0.0, 1.5], [np.nan, np.nan], [1.0, 3.0]], (20, 1))
        np.testing.assert_array_equal(TableEncoder().fit_transform(table), expected)


@pytest.mark.parametrize("targets", [PLAIN, CODED, CODED_NUMBERS], ids=["text", "dictionary", "numbers"])
@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("machine", [PartitionGPRegressor, PartitionGPClassifier])
def test_missing_targets_of_pyarrow_are_told_as_those_of_pandas(targets, chunked, machine):
    targets = pyarrow.chunked_array([targets]) if chunked else targets
    X = pd.DataFrame({"a": np.arange(60.0)})
    with pytest.raises(ValueError, match=r"Of 60 targets 20 are missing, the first in row 1: .* and y.filter\(keep\)"):
        machine("forest", num_partitions=2).fit(X, targets)
    keep = np.asarray(targets.is_valid())  # as the error says
    assert len(X[keep]) == len(targets.filter(keep)) == 40


def test_classes_may_be_a_dictionary():
    classes = pyarrow.chunked_array([pyarrow.array(["y", "x"] * 30).dictionary_encode()])
    model = PartitionGPClassifier("forest", num_partitions=2).fit(np.arange(60.0)[:, None], classes)
    assert model.classes_.tolist() == ["x", "y"]
