"""Kernels of randomised clusterings: what building, labelling and a product cost, up to 1,000,000 rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import process_time
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.base import clone
from sklearn.cluster import DBSCAN, HDBSCAN, AgglomerativeClustering, Birch, KMeans, MiniBatchKMeans
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture
from torch import Tensor

from gpytorch_partition import ClusteringKernel, FastClusterKernel, PartitionKernel
from gpytorch_partition.partitions import PitmanYorMixture

from .measure import in_own_process, in_this_process, peak_gib
from .problems import friedman
from .report import Options, Row, Size, Table

NUM_PARTITIONS = 10
COUNTS, RADII = {"n_clusters": (4, 64)}, (1.5, 3.5)
COMPONENTS = {"n_components": (2, 16)}


class Source(NamedTuple):
    """A clusterer, what is drawn of it, and how many rows each clustering sees."""

    clusterer: Any
    drawn: dict[str, Any]
    rows: int


SOURCES = {
    "K-means": Source(KMeans(), COUNTS, 10_000),
    "mini-batch K-means": Source(MiniBatchKMeans(), COUNTS, 100_000),
    "Gaussian mixture": Source(GaussianMixture(), COMPONENTS, 10_000),
    "Dirichlet process mixture": Source(
        BayesianGaussianMixture(n_components=16, init_params="random_from_data"),
        {"weight_concentration_prior": (0.01, 100.0)},
        1_000,
    ),
    "Birch": Source(Birch(threshold=1.5), COUNTS, 10_000),
    "DBSCAN": Source(DBSCAN(min_samples=3), {"eps": RADII}, 300),
    "HDBSCAN": Source(HDBSCAN(min_cluster_size=3, copy=True), {"cut_distance": RADII}, 300),
    "agglomerative": Source(AgglomerativeClustering(), COUNTS, 300),
    "Pitman-Yor mixture": Source(PitmanYorMixture(), {"concentration": (0.1, 10.0)}, 300),
}
OTHERS = ("fast cluster (h = 8)", "isolation (16 centers)", "isolation (16 centers, projected)", "sampler (halves)")
KEEPING = ("DBSCAN", "HDBSCAN", "agglomerative", "Pitman-Yor mixture")


def clusterings(options: Options) -> Iterator[Table]:
    """Seconds by clusterer and number of rows; and of one clustering of all rows, where that takes their square."""
    run = in_this_process if options.size is Size.SMOKE else in_own_process
    sizes = options.pick((100_000, 1_000_000), (10_000,), (1_000,))
    title = f"{NUM_PARTITIONS} clusterings of 10 columns, on a random half of the columns (CPU seconds)"
    rows: list[Row] = []
    for size in sizes:
        for name in (*SOURCES, *OTHERS):
            rows.append(run(_measured, name, size))
            yield Table("clusterings", title, rows, complete=False)
    yield Table("clusterings", title, rows)
    sizes = options.pick((1_000, 3_000, 10_000), (1_000, 3_000), (300,))
    rows = [run(_on_all_rows, name, size) for name in KEEPING for size in sizes]
    yield Table(
        "clusterings_all_rows", "One clustering of all rows of 10 columns, and labels of as many (CPU seconds)", rows
    )


def _timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """What a call returns, and the seconds of all threads that it takes: those of a clock on a machine that is idle."""
    start = process_time()
    result = call()
    return result, process_time() - start


def _half(seed: int) -> Any:
    normal = torch.from_numpy(np.random.RandomState(seed).normal(size=11)).float()
    return lambda x: (x * normal[:10]).sum(1) > normal[10]


def _kernel(name: str, x: Tensor) -> PartitionKernel:
    if name == "sampler (halves)":
        return PartitionKernel.from_sampler(_half, NUM_PARTITIONS, random_state=0)
    if name == "fast cluster (h = 8)":
        return FastClusterKernel(x, NUM_PARTITIONS, height=8, random_state=0)
    if name not in SOURCES:
        projection = 5 if "projected" in name else None
        options = {"num_centers": 16, "columns": "all", "projection": projection}
        return FastClusterKernel(x, NUM_PARTITIONS, random_state=0, **options)
    source = SOURCES[name]
    options = {"param_distributions": source.drawn, "rows": min(source.rows, len(x)), "columns": 0.5}
    return ClusteringKernel(x, clone(source.clusterer), NUM_PARTITIONS, random_state=0, **options)


def _measured(name: str, num_rows: int) -> Row:
    x, y = friedman(num_rows)
    kernel, build = _timed(lambda: _kernel(name, x))
    (incidence, _), label = _timed(lambda: kernel.partition.incidences(x, x))
    covariance = kernel(x).evaluate_kernel()
    values = y.unsqueeze(-1)
    covariance @ values  # rows are sorted by cluster once
    return {
        "rows": num_rows,
        "partitions": name,
        "rows that each sees": min(SOURCES[name].rows, num_rows) if name in SOURCES else None,
        "building": build,
        "labelling": label,
        "a product": _timed(lambda: covariance @ values)[1],
        "clusters": incidence.num_clusters,
        "peak GiB": peak_gib(),
    }


def _on_all_rows(name: str, num_rows: int) -> Row:
    x, _ = friedman(num_rows)
    source = SOURCES[name]
    options = {"param_distributions": source.drawn, "rows": num_rows, "random_state": 0}
    kernel, build = _timed(lambda: ClusteringKernel(x, clone(source.clusterer), 1, **options))
    label = _timed(lambda: kernel.cluster_ids(x))[1]
    return {"partitions": name, "rows": num_rows, "building": build, "labelling": label, "peak GiB": peak_gib()}
