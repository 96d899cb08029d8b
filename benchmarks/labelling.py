"""How long it takes to find the clusters of many rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from torch import Tensor

from gpytorch_partition.partitions.fast_cluster import FastClusterPartition
from gpytorch_partition.partitions.forest import ForestPartition, grow_forest
from gpytorch_partition.partitions.mondrian.partition import MondrianPartition
from gpytorch_partition.partitions.partition import Partition

from .measure import in_own_process, peak_gib, seconds
from .problems import friedman
from .report import Options, Row, Table

NUM_PARTITIONS = 100


def labelling(options: Options) -> Iterator[Table]:
    """Seconds to build partitions, to label the rows they are built on, and to sort the rows by cluster."""
    num_rows = options.pick(1_000_000, 50_000, 2_000)
    rows = [in_own_process(_measured, source, num_rows) for source in SOURCES]
    yield Table("labelling", f"Labelling {num_rows:,} x 10 rows with {NUM_PARTITIONS} partitions (seconds)", rows)


def _measured(source: str, num_rows: int) -> Row:
    x, y = friedman(num_rows)
    made: list[Partition] = []
    build = seconds(lambda: made.append(SOURCES[source](x, y)))
    label = seconds(lambda: made[0].incidences(x, x))
    incidence = made[0].incidences(x, x)[0]
    return {
        "partitions": source,
        "building": build,
        "labelling": label,
        "sorting rows by cluster": seconds(lambda: incidence.members),
        "nanoseconds per label": 1e9 * label / (num_rows * NUM_PARTITIONS),
        "clusters": incidence.num_clusters,
        "peak GiB": peak_gib(),
    }


def _extra_trees(x: Tensor, y: Tensor) -> Partition:
    return ForestPartition(grow_forest(x, y, num_trees=NUM_PARTITIONS, random_state=0))


def _fast_clusters(x: Tensor, y: Tensor) -> Partition:
    return FastClusterPartition(x, NUM_PARTITIONS, height=8, random_state=0)


def _mondrian_trees(x: Tensor, y: Tensor) -> Partition:
    return MondrianPartition(x, NUM_PARTITIONS, random_state=0)


SOURCES: dict[str, Callable[[Tensor, Tensor], Partition]] = {
    "extra-trees (defaults)": _extra_trees,
    "fast cluster (h = 8)": _fast_clusters,
    "Mondrian trees": _mondrian_trees,
}
