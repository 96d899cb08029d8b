"""Rows on disk that are never held at once: seconds and memory of a fit to chunks, and how well it predicts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from gpytorch_partition.estimators import PartitionGPRegressor

from .clock import cpu_timed, peak_gib, timed
from .datasets import friedman_chunk
from .report import Options, Row, Table, grid, measured

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
    compared = partial(options.apart, _compared, few, options.pick(600.0, 3.0))
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
        **_quality(model, kind == PARQUET),
    }


def _compared(num_rows: int, budget: float, fit: str, kernel: str) -> Row:
    limit = budget if (fit, kernel) == ("fit", "auto") else None
    (x, y), model = _chunk(0, num_rows), PartitionGPRegressor(kernel, random_state=0, budget=limit)
    _, seconds = cpu_timed(lambda: model.fit(x, y) if fit == "fit" else model.fit_chunks([(x, y)]))
    return {"CPU seconds": seconds, **_quality(model), "left out": "; ".join(model.left_out_)}


def _quality(model: PartitionGPRegressor, named: bool = False) -> Row:
    x, y = _chunk(-1, 10_000)
    found = model.judge({f"x{column}": x[:, column] for column in range(x.shape[1])} if named else x, y)
    error = float(np.sqrt(np.mean((y - found.mean) ** 2)))
    return {"RMSE": error, "NLPD": -float(found.log_density.mean()), "coverage of 90 %": float(found.coverage(0.9))}


def _chunk(number: int, num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    x, y = friedman_chunk(number, num_rows)
    return x.double().numpy(), y.double().numpy()
