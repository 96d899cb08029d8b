"""Rows in shards on workers of Dask: counting, products, and an exact process of more clusters than can be counted."""

from __future__ import annotations

import pickle
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from statistics import median
from time import process_time
from typing import Any

import torch

from gpytorch_partition import FastClusterKernel, RandomForestKernel
from gpytorch_partition.inference.feature_space.statistics import merged_states
from gpytorch_partition.kernels.partition_kernel import PartitionKernel
from gpytorch_partition.models import ClusterSpaceGP, FeatureSpaceGP

from .measure import held_gib, peak_gib, seconds, timed
from .problems import friedman_chunk
from .report import Bar, Options, Row, Table

NUM_PARTITIONS, NUM_SHARDS, NUM_WORKERS = 50, 16, 2
LEAST_SPEEDUP, MOST_MIB = 1.6, 500
MOST_MERGE, MOST_MEGABYTES, MOST_OVERHEAD = 30.0, 21.0, 30.0  # ms, MB and ms
MIB = 2**10  # of a GiB


def dask_shards(options: Options) -> Iterator[Table]:
    """Counting with one worker and two, messages, products and what is over their compute, and a forest's process."""
    if find_spec("distributed") is None:
        print('[no dask_shards: pip install "gpytorch_partition[dask]"]', file=sys.stderr)
        return
    kernel = FastClusterKernel(*friedman_chunk(-1, 10_000)[:1], NUM_PARTITIONS, num_centers=64, random_state=0)
    num_rows = options.pick(2_000_000, 100_000, 4_000)
    counts = [_counted(kernel, num_rows, number) for number in (1, NUM_WORKERS)]
    speedup, by_cpu = (counts[0][name] / counts[1][name] for name in ("seconds", "CPU seconds of a worker"))
    counts[1] |= {
        "speedup": speedup,
        "speedup by CPU seconds": by_cpu,
        "bar": Bar("two workers / one", speedup, at_least=LEAST_SPEEDUP),
    }
    yield Table("dask_counts", f"Counting {num_rows:,} x 10 rows in {NUM_SHARDS} shards, m = 50, p = 3,200", counts)
    yield Table("dask_messages", "The state of a shard's counts, p = 3,200", [_message(kernel)])
    size = options.pick(1_000_000, 50_000, 4_000)
    title = f"Products of {size:,} rows in shards, two workers"
    yield Table("dask_products", title, list(_products(kernel, size)))
    yield Table("dask_forest", f"The process of a forest on {size:,} x 10 rows, two workers", [_forest(size, options)])


@contextmanager
def _workers(number: int) -> Iterator[Any]:
    """Single-threaded processes, which keep the memory that they have freed."""
    import dask
    from distributed import Client, LocalCluster

    with (
        dask.config.set({"distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": None}),
        LocalCluster(n_workers=number, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        yield client


def _held() -> float:
    """MiB of a worker once the package is imported, as it is when this is called."""
    import gpytorch_partition.distributed  # noqa: F401

    return held_gib() * MIB


def _peak() -> float:
    return peak_gib() * MIB


def _cpu() -> float:
    return process_time()


def _most_beyond(client: Any, before: dict[str, float]) -> float:
    peaks = client.run(_peak)
    return max(peaks[worker] - before[worker] for worker in before)


def _chunks(num_rows: int, number: int = NUM_SHARDS) -> list[Any]:
    """Rows that workers make."""
    import dask

    make = dask.delayed(friedman_chunk, pure=True)
    return [make(i, num_rows // number) for i in range(number)]


def _counted(kernel: PartitionKernel, num_rows: int, number: int) -> Row:
    from gpytorch_partition.distributed import count_chunks

    with _workers(number) as client:
        before, spent, model = client.run(_held), client.run(_cpu), FeatureSpaceGP(kernel)
        elapsed = seconds(lambda: count_chunks(model, _chunks(num_rows), client))
        most, after = _most_beyond(client, before), client.run(_cpu)
    cpu = max(after[worker] - spent[worker] for worker in spent)
    bar = Bar("MiB of a worker beyond imports", most, at_most=MOST_MIB)
    return {
        "workers": number,
        "seconds": elapsed,
        "CPU seconds of a worker": cpu,
        "MiB a worker beyond imports": most,
        "bar, MiB": bar,
    }


def _message(kernel: PartitionKernel) -> Row:
    model = FeatureSpaceGP(kernel)
    model.add_rows(*friedman_chunk(0, 2_000))
    state = model.statistics.state_dict()
    merge = 1e3 * median(seconds(lambda: merged_states(state, state)) for _ in range(9))
    megabytes = len(pickle.dumps(state)) / 1e6
    return {
        "merge, ms": merge,
        "message, MB": megabytes,
        "bar, merge": Bar("ms of a merge", merge, at_most=MOST_MERGE),
        "bar, message": Bar("MB of a message", megabytes, at_most=MOST_MEGABYTES),
    }


def _products(kernel: PartitionKernel, num_rows: int) -> Iterator[Row]:
    """Products on Dask, and the compute of the slower worker within the same product."""
    from gpytorch_partition.distributed import DaskRows

    effects = torch.randn(int(kernel.partition.cluster_counts.sum()), 4, dtype=torch.float64)
    with _workers(NUM_WORKERS) as client:
        for number in (NUM_WORKERS, NUM_SHARDS):
            rows = DaskRows(kernel, _chunks(num_rows, number), client)
            for columns in (effects[:, :1], effects):
                taken = [_product(client, partial(rows.gram, columns)) for _ in range(25)]
                over = median(product - compute for product, compute in taken)
                bar = Bar("ms of a product over its compute", over, at_most=MOST_OVERHEAD)
                yield {
                    "shards": number,
                    "columns": columns.shape[1],
                    "product, ms": median(product for product, _ in taken),
                    "compute, ms": median(compute for _, compute in taken),
                    "over, ms": over,
                    "as many empty tasks, ms": _milliseconds(partial(rows._added, "nothing", _nothing), 25),
                    "bar": bar,
                }


def _product(client: Any, call: Any) -> tuple[float, float]:
    """Milliseconds of a call, and of the tasks of the worker that computed longest meanwhile."""
    from distributed import get_task_stream

    with get_task_stream(client) as stream:
        elapsed = seconds(call)
    compute: Counter[str] = Counter()
    for task in stream.data:
        spans = (span for span in task["startstops"] if span["action"] == "compute")
        compute[task["worker"]] += sum(span["stop"] - span["start"] for span in spans)
    return 1e3 * elapsed, 1e3 * max(compute.values())


def _nothing(shard: Any) -> torch.Tensor:
    return torch.zeros(())


def _milliseconds(call: Any, repetitions: int) -> float:
    call()
    return 1e3 * median(seconds(call) for _ in range(repetitions))


def _forest(num_rows: int, options: Options) -> Row:
    """By conjugate gradients over shards, of far more clusters than can be counted."""
    from gpytorch_partition.distributed import DaskRows

    sample = friedman_chunk(-1, options.pick(20_000, 5_000, 500))
    kernel = RandomForestKernel(*sample, NUM_PARTITIONS, random_state=0)
    points, targets = friedman_chunk(-2, 10_000)
    with _workers(NUM_WORKERS) as client:
        before, spent = client.run(_held), client.run(_cpu)
        rows, labels = timed(lambda: DaskRows(kernel, _chunks(num_rows), client))
        model = ClusterSpaceGP(kernel, rows)
        values, fit = timed(model.fit)
        means, solve = timed(lambda: model.means(points))
        most, after = _most_beyond(client, before), client.run(_cpu)
    return {
        "CPU seconds of a worker": max(after[worker] - spent[worker] for worker in spent),
        "clusters": rows.num_clusters,
        "labels, s": labels,
        "fit, s": fit,
        "means, s": solve,
        "noise": values.noise,
        "log likelihood per row": values.log_likelihood / num_rows,
        "standard error": model.standard_error,
        "RMSE": float((means - targets).square().mean().sqrt()),
        "MiB a worker beyond imports": most,
    }
