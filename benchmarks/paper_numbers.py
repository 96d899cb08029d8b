"""How many partitions are enough (Davies & Ghahramani 2014, section 5.2, figure 5)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product

import numpy as np
import torch

from gpytorch_partition import settings

from .paper_methods import CLUSTERS, KERNELS, NUM_PARTITIONS, PRINTED, partition_gp
from .paper_pictures import over_numbers
from .predictors import Split
from .regression_sets import read_data, split_of
from .report import Options, Row, Table

SCORES = {
    "log density, joint": "log density per test target, all together",
    "log density, pointwise": "log density per test target, each alone",
    "squared error": "squared error of standardized targets",
}


def numbers(options: Options) -> Iterator[Table]:
    """Figure 5, and how far the kernel itself is from its limit."""
    sizes = options.pick([1, 2, 5, 10, 20, 50, 100, 200, 400], [1, 10, 50], [1, 3])
    name = "autompg" if options.data is not None else "diabetes"
    data = read_data(options, name)
    splits = [split_of(data, number, options.pick(None, 300, 60)) for number in range(options.pick(10, 2, 2))]
    rows = [{"kernel": method, "m": m} | _mean(method, m, splits) for method, m in product(KERNELS, sizes)]
    title = f"Figure 5: {name}, {len(splits)} splits, by the number of partitions. {_finding(rows)} {_error(splits[0])}"
    yield Table("paper_figure_5", title, rows, picture=over_numbers(rows, SCORES))


def _mean(method: str, num_partitions: int, splits: list[Split]) -> Row:
    """Means over splits, each with partitions of its own, and standard errors."""
    predict = partial(partition_gp, build=KERNELS[method], num_partitions=num_partitions)
    scores = [predict(split, seed=number).scores(torch.from_numpy(split.test_y)) for number, split in enumerate(splits)]
    row: Row = {}
    for column in SCORES:
        values = np.array([score[column] for score in scores])
        row |= {column: values.mean(), f"{column}: error": values.std(ddof=1) / len(values) ** 0.5}
    return row


def _finding(rows: list[Row]) -> str:
    """How much of the way from one partition to the best number few and many of them go."""
    words = ", ".join(f"{_enough(rows, method)} for {method}" for method in KERNELS)
    return (
        "The paper's findings: with few partitions the forest kernel is nearly as good as at its best, while the fast "
        f"cluster kernel improves until around {NUM_PARTITIONS}. Partitions from which on the squared error is within "
        f"5 % of the least, and the joint log density within .05 of the largest: {words}; so the first "
        f"{_verdict(rows, PRINTED, 0, 20)}, the second {_verdict(rows, CLUSTERS, 100, 400)}."
    )


def _enough(rows: list[Row], method: str) -> str:
    return " and ".join(map(str, _numbers(rows, method)))


def _numbers(rows: list[Row], method: str) -> tuple[int, int]:
    line = [row for row in rows if row["kernel"] == method]
    least = min(row["squared error"] for row in line)
    largest = max(row["log density, joint"] for row in line)
    by_error = next(row["m"] for row in line if row["squared error"] <= 1.05 * least)
    return by_error, next(row["m"] for row in line if row["log density, joint"] >= largest - 0.05)


def _verdict(rows: list[Row], method: str, low: int, high: int) -> str:
    held = [low <= number <= high for number in _numbers(rows, method)]
    return "holds" if all(held) else "holds in part" if any(held) else "does not hold"


def _error(split: Split) -> str:
    """The variance of the entries of the kernel matrix of 200 partitions, k (1 - k) / m."""
    x, y = torch.from_numpy(split.x), torch.from_numpy(split.y)
    words = []
    for method, build in KERNELS.items():
        with torch.no_grad(), settings.iterative():
            entries = build(x, y, NUM_PARTITIONS, 0)(x).to_dense()
        variances = entries * (1 - entries) / NUM_PARTITIONS
        words.append(f"{variances.mean():.2g} on average and {variances.max():.3g} at most for {method}")
    bound = 1 / (4 * NUM_PARTITIONS)
    return (
        f"The variance of an entry at m = {NUM_PARTITIONS}, k (1 - k) / m, which the paper puts at .002, is at most "
        f"{bound:.4g} (lemma 3.2): {', '.join(words)} (an upper bound where heights are averaged, as in ours)."
    )
