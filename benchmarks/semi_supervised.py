"""
Whether rows without targets help: kernels built on few labelled rows, and on those and many others.

Each split of a set draws labelled rows, unlabelled rows and test rows. The estimator's fast clusters
have the height of the labelled rows; with the height of all rows, as the kernel's own default, clusters are finer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from gpytorch.kernels import Kernel
from sklearn.cluster import KMeans
from torch import Tensor

from gpytorch_partition import ClusteringKernel, FastClusterKernel
from gpytorch_partition.estimators import PartitionGPRegressor

from .regression_sets import Data, read_data
from .report import Options, Row, Table

SETS = ("autompg", "housing", "energy", "concrete", "cpu", "elevators", "bike", "california")
UNLABELLED, TEST_ROWS, NUM_PARTITIONS = 1_000, 500, 100
Builder = Callable[[Tensor, Tensor], Kernel]


def _fast_clusters_of_any_height(x: Tensor, y: Tensor) -> Kernel:
    return FastClusterKernel(x, NUM_PARTITIONS, random_state=0)


def _isolation(x: Tensor, y: Tensor) -> Kernel:
    return FastClusterKernel(x, NUM_PARTITIONS, num_centers=min(16, len(y) // 2), columns="all", random_state=0)


def _k_means(x: Tensor, y: Tensor) -> Kernel:
    counts = {"n_clusters": (2, len(y) // 2)}
    return ClusteringKernel(x, KMeans(), 50, param_distributions=counts, rows=min(500, len(x)), random_state=0)


KERNELS: dict[str, str | Builder] = {
    "fast cluster": "fast_cluster",
    "fast cluster, height by all rows": _fast_clusters_of_any_height,
    "isolation, 16 centers": _isolation,
    "k-means, 2 to n / 2 clusters": _k_means,
}


def semi_supervised(options: Options) -> Iterator[Table]:
    """RMSE and negative log predictive density of each set, number of labels and kernel, with and without."""
    splits, sizes = options.pick(8, 3, 1), options.pick((30, 100), (30,), (30,))
    names = options.pick(SETS, SETS[:2], SETS[:1]) if options.data else ("diabetes",)
    kernels = options.pick(list(KERNELS), list(KERNELS), list(KERNELS)[:2])
    rows: list[Row] = []
    for name in names:
        data = read_data(options, name)
        for size in sizes:
            for kernel in kernels:
                scores = np.array([_scores(data, kernel, size, number) for number in range(splits)])
                rows.append({"data": name, "labelled": size, "kernel": kernel, **_differences(scores)})
                yield Table("semi_supervised", _title(splits), rows, complete=False)
    yield Table("semi_supervised", _title(splits), rows)
    yield Table("semi_supervised_summary", "Whether unlabelled rows help: sets of so many, by kernel", _summary(rows))


def _title(splits: int) -> str:
    return (
        f"Few labels, with up to {UNLABELLED:,} unlabelled rows and without: standardized RMSE and negative log "
        f"predictive density (nats), means of {splits} splits; changes with a standard error"
    )


def _scores(data: Data, kernel: str, size: int, number: int) -> list[float]:
    """RMSE and NLPD without unlabelled rows, and with them."""
    order = np.random.default_rng(number).permutation(len(data.y))
    num_test = min(TEST_ROWS, len(order) // 4)
    test, labelled, others = np.split(order, [num_test, num_test + size])
    others = others[:UNLABELLED]
    scores: list[float] = []
    for unlabelled in (None, data.X[others]):
        model = PartitionGPRegressor(KERNELS[kernel], NUM_PARTITIONS, random_state=0)
        model.fit(data.X[labelled], data.y[labelled], unlabelled=unlabelled)
        mean, deviation = model.predict(data.X[test], return_std=True)
        scale = data.y.std()
        errors, deviation = (mean - data.y[test]) / scale, deviation / scale
        density = 0.5 * (errors**2 / deviation**2 + np.log(2 * np.pi * deviation**2))
        scores += [float(np.sqrt((errors**2).mean())), float(density.mean())]
    return scores


def _differences(scores: np.ndarray) -> dict[str, Any]:
    """Means over splits, and changes with their standard errors (0 for a single split)."""
    row: dict[str, Any] = {}
    for name, column in (("RMSE", 0), ("NLPD", 1)):
        change = scores[:, column + 2] - scores[:, column]
        row[f"{name} without"] = float(scores[:, column].mean())
        row[f"{name} with"] = float(scores[:, column + 2].mean())
        row[f"{name} change"] = float(change.mean())
        row[f"{name} standard error"] = float(change.std(ddof=1) / len(change) ** 0.5) if len(change) > 1 else 0.0
    return row


def _summary(rows: list[Row]) -> list[Row]:
    """In how many rows a change is beyond two standard errors, one way or the other, and how large it is."""
    found = []
    for kernel in dict.fromkeys(row["kernel"] for row in rows):
        own = [row for row in rows if row["kernel"] == kernel]
        line: Row = {"kernel": kernel, "of": len(own)}
        for name in ("RMSE", "NLPD"):
            changes = np.array([row[f"{name} change"] for row in own])
            bounds = 2 * np.array([row[f"{name} standard error"] for row in own])
            line[f"{name} better"] = int((changes < -bounds).sum())
            line[f"{name} worse"] = int((changes > bounds).sum())
            line[f"{name} median change"] = float(np.median(changes))
        found.append(line)
    return found
