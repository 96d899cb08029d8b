"""Rows that are never held at once: chunks on disk, and shards on workers of Dask."""

from __future__ import annotations

import pickle
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

import numpy as np
import torch

from gpytorch_partition import FastClusterKernel, RandomForestKernel
from gpytorch_partition.estimators import PartitionGPRegressor
from gpytorch_partition.inference.spaces.statistics import merged_states
from gpytorch_partition.kernels.partition_kernel import PartitionKernel
from gpytorch_partition.models import ClusterSpaceGP, FeatureSpaceGP

from .datasets import friedman_chunk
from .report import Options, Row, Table, cpu_timed, grid, held_gib, measured, peak_gib, seconds, timed

FILE_ROWS, PARQUET = 500_000, "parquet folder"


def out_of_core(options: Options) -> Iterator[Table]:
    """Fit to a parquet folder and to memory maps; then to the same rows in memory and not."""
    num_rows, few = options.pick(10_000_000, 500), options.pick(100_000, 500)

    def fitted(kind: str) -> Row:
        with TemporaryDirectory() as folder:
            options.apart(_write, folder, kind, num_rows)
            return options.apart(_fitted, folder, kind)

    jobs = [{"rows from": kind} for kind in (PARQUET, "memory maps") if kind != PARQUET or find_spec("pyarrow")]
    yield from measured(options, "out_of_core", f"fit_chunks on {num_rows:,} rows of 10 columns", jobs, fitted)
    kernels = ("auto", "forest", "fast_cluster")
    jobs = grid(fit=("fit_chunks", "fit"), kernel=kernels)
    compared = partial(options.apart, _compared, few, *options.pick((600.0, 10_000), (1.0, 500)))
    title = f"The same {few:,} rows, in chunks and in memory"
    yield from measured(options, "out_of_core_quality", title, jobs, compared)


def _write(folder: str, kind: str, num_rows: int) -> None:
    sizes = [min(FILE_ROWS, num_rows - start) for start in range(0, num_rows, FILE_ROWS)]
    if kind == PARQUET:
        import pandas

        for number, size in enumerate(sizes):
            x, y = _chunk(number, size)
            frame = pandas.DataFrame(x, columns=[f"x{column}" for column in range(x.shape[1])]).assign(y=y)
            frame.to_parquet(Path(folder) / f"part-{number:04}.parquet")
        return
    shapes = {"x": (num_rows, 10), "y": (num_rows,)}
    x, y = (
        np.lib.format.open_memmap(Path(folder) / f"{name}.npy", shape=shape, mode="w+", dtype=np.float64)
        for name, shape in shapes.items()
    )
    for number, size in enumerate(sizes):
        rows = slice(number * FILE_ROWS, number * FILE_ROWS + size)
        x[rows], y[rows] = _chunk(number, size)
    x.flush(), y.flush()


def _fitted(folder: str, kind: str) -> Row:
    model = PartitionGPRegressor(random_state=0)
    if kind == PARQUET:
        _, seconds = timed(lambda: model.fit_chunks(folder, "y"))
    else:
        x, y = (np.load(Path(folder) / f"{name}.npy", mmap_mode="r") for name in "xy")
        _, seconds = timed(lambda: model.fit_chunks((x, y)))
    return {
        "GiB on disk": sum(path.stat().st_size for path in Path(folder).iterdir()) / 2**30,
        "seconds": seconds,
        "of which": ", ".join(f"{name} {value:.0f}" for name, value in model.seconds_.items()),
        "GiB at most": peak_gib(),
        **_quality(model, named=kind == PARQUET),
    }


def _compared(num_rows: int, budget: float, num_tests: int, fit: str, kernel: str) -> Row:
    limit = budget if (fit, kernel) == ("fit", "auto") else None
    (x, y), model = _chunk(0, num_rows), PartitionGPRegressor(kernel, random_state=0, budget=limit)
    _, seconds = cpu_timed(lambda: model.fit(x, y) if fit == "fit" else model.fit_chunks([(x, y)]))
    return {"CPU seconds": seconds, **_quality(model, num_tests), "left out": "; ".join(model.left_out_)}


def _quality(model: PartitionGPRegressor, num_tests: int = 10_000, named: bool = False) -> Row:
    x, y = _chunk(-1, num_tests)
    found = model.judge({f"x{column}": x[:, column] for column in range(x.shape[1])} if named else x, y)
    error = float(np.sqrt(np.mean((y - found.mean) ** 2)))
    return {"RMSE": error, "NLPD": -float(found.log_density.mean()), "coverage of 90 %": float(found.coverage(0.9))}


def _chunk(number: int, num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    x, y = friedman_chunk(number, num_rows)
    return x.double().numpy(), y.double().numpy()


M, NUM_SHARDS, NUM_WORKERS = 50, 16, 2


def dask_shards(options: Options) -> Iterator[Table]:
    """Measure counting with one worker and two, messages, what products take over their compute, and a process."""
    if find_spec("distributed") is None:
        print('[no dask_shards: pip install "gpytorch_partition[dask]"]', file=sys.stderr)
        return
    kernel = FastClusterKernel(friedman_chunk(-1, 10_000)[0], M, num_centers=64, random_state=0)
    many, size = options.pick(2_000_000, 4_000), options.pick(1_000_000, 4_000)
    title = f"Counting {many:,} x 10 rows in {NUM_SHARDS} shards, m = {M}, p = 3,200"
    most = options.pick(NUM_WORKERS, 1)  # to start one takes seconds
    jobs = grid(workers=range(1, most + 1))
    yield from measured(options, "dask_counts", title, jobs, partial(_counted, kernel, many))
    yield Table("dask_messages", "The state of a shard's counts, p = 3,200", [_message(kernel)])
    jobs = grid(shards=(NUM_WORKERS, NUM_SHARDS), columns=(1, 4))
    title = f"Products of {size:,} rows in shards, two workers"
    with _workers(most) as client:
        yield from measured(options, "dask_products", title, jobs, partial(_products, client, kernel, size))
    title, jobs = f"The process of a forest on {size:,} x 10 rows, two workers", [{"N": size}]
    yield from measured(options, "dask_forest", title, jobs, partial(_forest, options.pick(20_000, 500), most))


@contextmanager
def _workers(number: int) -> Iterator[Any]:
    """Start single-threaded processes, which keep the memory that they have freed."""
    import dask
    from distributed import Client, LocalCluster

    with (
        dask.config.set({"distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": None}),
        LocalCluster(n_workers=number, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        yield client


def _held() -> tuple[float, float]:
    import gpytorch_partition.distributed  # noqa: F401

    return held_gib() * 2**10, process_time()


def _peak() -> tuple[float, float]:
    return peak_gib() * 2**10, process_time()


def _spent(client: Any, before: dict[str, tuple[float, float]]) -> Row:
    after = client.run(_peak)
    grown = [[end - start for start, end in zip(before[worker], after[worker])] for worker in before]
    mib, cpu = (max(values) for values in zip(*grown))
    return {"CPU seconds of a worker": cpu, "MiB a worker beyond imports": mib}


def _chunks(num_rows: int, number: int = NUM_SHARDS) -> list[Any]:
    import dask

    make = dask.delayed(friedman_chunk, pure=True)
    return [make(i, num_rows // number) for i in range(number)]


def _counted(kernel: PartitionKernel, num_rows: int, number: int) -> Row:
    from gpytorch_partition.distributed import count_chunks

    with _workers(number) as client:
        before, model = client.run(_held), FeatureSpaceGP(kernel)
        elapsed = seconds(lambda: count_chunks(model, _chunks(num_rows), client))
        return {"seconds": elapsed, **_spent(client, before)}


def _message(kernel: PartitionKernel) -> Row:
    model = FeatureSpaceGP(kernel)
    model.add_rows(*friedman_chunk(0, 2_000))
    state = model.statistics.state_dict()
    merge = 1e3 * median(seconds(lambda: merged_states(state, state)) for _ in range(9))
    return {"merge, ms": merge, "message, MB": len(pickle.dumps(state)) / 1e6}


def _products(client: Any, kernel: PartitionKernel, num_rows: int, number: int, columns: int) -> Row:
    from gpytorch_partition.distributed import DaskRows

    effects = torch.randn(int(kernel.partition.cluster_counts.sum()), columns, dtype=torch.float64)
    rows = DaskRows(kernel, _chunks(num_rows, number), client)
    taken = [_product(client, partial(rows.gram, effects)) for _ in range(25)]
    empty = [seconds(partial(rows._added, "nothing", _nothing)) for _ in range(26)][1:]
    return {
        "product, ms": median(product for product, _ in taken),
        "compute, ms": median(compute for _, compute in taken),
        "over, ms": median(product - compute for product, compute in taken),
        "as many empty tasks, ms": 1e3 * median(empty),
    }


def _product(client: Any, call: Callable[[], Any]) -> tuple[float, float]:
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


def _forest(sample: int, number: int, num_rows: int) -> Row:
    from gpytorch_partition.distributed import DaskRows

    kernel = RandomForestKernel(*friedman_chunk(-1, sample), M, random_state=0)
    points, targets = friedman_chunk(-2, 10_000)
    with _workers(number) as client:
        before = client.run(_held)
        rows, labels = timed(lambda: DaskRows(kernel, _chunks(num_rows), client))
        model = ClusterSpaceGP(kernel, rows)
        fit = seconds(model.fit)
        means, solve = timed(lambda: model.means(points))
        spent = _spent(client, before)
    error = float((means - targets).square().mean().sqrt())
    return {
        "clusters": rows.num_clusters,
        "labels, s": labels,
        "fit, s": fit,
        "means, s": solve,
        **spent,
        "RMSE": error,
    }
