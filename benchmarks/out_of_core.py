"""Rows on disk that are never held at once: seconds and memory of a fit to chunks, and how well it predicts."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any

import numpy as np

from gpytorch_partition.estimators import PartitionGPRegressor

from .measure import in_own_process, peak_gib
from .problems import friedman_chunk
from .report import Bar, Options, Row, Table

FILE_ROWS, TEST_ROWS, MOST_GIB = 500_000, 10_000, 8.0


def out_of_core(options: Options) -> Iterator[Table]:
    """A fit to a parquet folder and to memory maps, each in its own process; then the same rows in memory and not."""
    num_rows = options.pick(10_000_000, 200_000, 500)
    rows = []
    for kind in ("parquet folder", "memory maps"):
        if kind == "memory maps" or find_spec("pyarrow"):
            with TemporaryDirectory() as folder:
                in_own_process(_write, folder, kind, num_rows)
                rows.append(in_own_process(_fitted, folder, kind, num_rows))
            yield Table("out_of_core", f"fit_chunks on {num_rows:,} rows of 10 columns", rows, complete=False)
    yield Table("out_of_core", f"fit_chunks on {num_rows:,} rows of 10 columns", rows)
    num_rows, rows = options.pick(100_000, 10_000, 500), []
    title = f"The same {num_rows:,} rows, in chunks and in memory"
    budget = options.pick(600.0, 20.0, 3.0)
    for kernel, in_memory in (
        *(("auto", False), ("forest", False), ("fast_cluster", False)),
        *(("forest", True), ("fast_cluster", True), ("auto", True)),
    ):
        rows.append(in_own_process(_compared, kernel, in_memory, num_rows, budget))
        yield Table("out_of_core_quality", title, rows, complete=False)
    yield Table("out_of_core_quality", title, rows)


def _write(folder: str, kind: str, num_rows: int) -> None:
    """The rows, a file of at most 500,000 at a time."""
    sizes = [min(FILE_ROWS, num_rows - start) for start in range(0, num_rows, FILE_ROWS)]
    if kind == "parquet folder":
        import pandas

        for number, size in enumerate(sizes):
            x, y = _chunk(number, size)
            frame = pandas.DataFrame(x, columns=[f"x{column}" for column in range(x.shape[1])]).assign(y=y)
            frame.to_parquet(Path(folder) / f"part-{number:04}.parquet")
        return
    options: Any = {"mode": "w+", "dtype": np.float64}
    xs = np.lib.format.open_memmap(Path(folder) / "x.npy", shape=(num_rows, 10), **options)
    ys = np.lib.format.open_memmap(Path(folder) / "y.npy", shape=(num_rows,), **options)
    for number, size in enumerate(sizes):
        rows = slice(number * FILE_ROWS, number * FILE_ROWS + size)
        xs[rows], ys[rows] = _chunk(number, size)
    xs.flush(), ys.flush()


def _fitted(folder: str, kind: str, num_rows: int) -> Row:
    start, model = perf_counter(), PartitionGPRegressor(random_state=0)
    on_disk = sum(path.stat().st_size for path in Path(folder).iterdir()) / 2**30
    if kind == "parquet folder":
        model.fit_chunks(folder, "y")
    else:
        x, y = (np.load(Path(folder) / f"{name}.npy", mmap_mode="r") for name in "xy")
        model.fit_chunks((x, y))
    seconds, peak = perf_counter() - start, peak_gib()
    return {
        "rows from": kind,
        "N": num_rows,
        "GiB on disk": on_disk,
        "seconds": seconds,
        "of which": ", ".join(f"{name} {value:.0f}" for name, value in model.seconds_.items()),
        "GiB at most": peak,
        "bar": Bar("GiB of a fit to rows on disk", peak, at_most=MOST_GIB),
        **_quality(model, kind == "parquet folder"),
    }


def _compared(kernel: str, in_memory: bool, num_rows: int, budget: float) -> Row:
    limit = budget if in_memory and kernel == "auto" else None
    (x, y), model = _chunk(0, num_rows), PartitionGPRegressor(kernel, random_state=0, budget=limit)
    start = process_time()
    _ = model.fit(x, y) if in_memory else model.fit_chunks([(x, y)])
    return {
        "fit": ("fit" if in_memory else "fit_chunks") + f", {kernel}" + (f", {limit:g} s" if limit else ""),
        "N": num_rows,
        "CPU seconds": process_time() - start,
        **_quality(model),
        "left out": "; ".join(model.left_out_),
    }


def _quality(model: PartitionGPRegressor, named: bool = False) -> Row:
    """Of new rows; the noise has a standard deviation of 0.2, and log(.2) + 1.419 is the best mean NLPD, -.19."""
    x, y = _chunk(-1, TEST_ROWS)
    found = model.judge({f"x{column}": x[:, column] for column in range(x.shape[1])} if named else x, y)
    return {
        "RMSE": float(np.sqrt(np.mean((y - found.mean) ** 2))),
        "NLPD": -float(found.log_density.mean()),
        "coverage of 90 %": float(found.coverage(0.9)),
    }


def _chunk(number: int, num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    x, y = friedman_chunk(number, num_rows)
    return x.double().numpy(), y.double().numpy()
