"""Frames of Polars and pyarrow, and pandas' frames of pyarrow's types, are read as those of pandas are."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from gpytorch_partition.estimators import PartitionGPRegressor
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
