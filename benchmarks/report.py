"""Options of a run, jobs with their seconds and memory, and tables, written as Markdown, CSV and pictures."""

from __future__ import annotations

import csv
import math
import os
import platform
import sys
from collections.abc import Callable, Generator, Hashable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any, TypeVar

import torch

Value = TypeVar("Value")
Row = dict[str, Any]


@dataclass(frozen=True)
class Options:
    is_smoke: bool = False  # the smallest sizes, for the tests
    data: Path | None = None
    resumed: Path | None = None  # folder of an earlier run, whose rows are not measured again
    sets: tuple[str, ...] = ()  # of `honest`; none: all
    small: bool = False  # of `honest`: small sets alone
    stored: Path | None = None  # file of `honest` for its figures

    def pick(self, full: Value, smoke: Value) -> Value:
        """Return the value for the size that is measured."""
        return smoke if self.is_smoke else full

    def apart(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return the result of a module's function in a process of its own, whose memory is measured."""
        if self.is_smoke:
            return function(*arguments)
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            return pool.submit(function, *arguments).result()

    @property
    def described(self) -> str:
        """The size in words."""
        return self.pick("Full size.", "Smallest size, for the tests.")

    def finished(self, name: str) -> list[Row]:
        """Return the rows without errors that an earlier run of this size wrote into NAME.csv."""
        path = self.resumed and self.resumed / f"{name}.csv"
        if not path or not path.exists() or self.described not in path.with_suffix(".md").read_text():
            return []
        with path.open(newline="") as file:
            rows = [{column: _number(text) for column, text in row.items() if text} for row in csv.DictReader(file)]
        return [row for row in rows if "error" not in row]


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


@dataclass(frozen=True)
class Table:
    """
    Rows, which may lack columns, with a title.

    The last row of a table that is not complete is new, and the table comes again. `draw` makes its picture.
    """

    name: str
    title: str
    rows: list[Row]
    is_complete: bool = True
    draw: Callable[[], Any] | None = None


def grid(**columns: Iterable[Any]) -> list[Row]:
    """Return a job for each combination of values; underscores in the names of columns stand for spaces."""
    names = [name.replace("_", " ") for name in columns]
    return [dict(zip(names, values)) for values in product(*columns.values())]


def measured(
    options: Options,
    name: str,
    title: str | Callable[[list[Row]], str],
    jobs: Iterable[Row],
    measure: Callable[..., Row],
    draw: Callable[[list[Row]], Any] | None = None,
) -> Generator[Table, None, list[Row]]:
    """
    Yield a table with a row for each job, after each of them; return the rows.

    :param title: May be a function of the rows.
    :param jobs: First columns of the rows.
    :param measure: Function of the values of a job, which returns the other columns. A failure becomes a column, and
        rows of an earlier run are taken over.
    :param draw: Function of the rows, which returns a figure.
    """
    finished, rows = options.finished(name), []
    told = title if callable(title) else lambda rows: title
    for job in jobs:
        known = (job | row for row in finished if all(row.get(column) == value for column, value in job.items()))
        rows.append(next(known, None) or _attempted(job, measure))
        yield Table(name, told(rows) if "error" not in rows[-1] else "", rows, is_complete=False)
    yield Table(name, told(rows), rows, draw=draw and partial(draw, rows))
    return rows


def _attempted(job: Row, measure: Callable[..., Row]) -> Row:
    try:
        return job | measure(*job.values())
    except Exception as error:  # of memory, a solver, a process that was killed: the next job begins all the same
        return job | {"error": f"{type(error).__name__}: {error}".splitlines()[0]}


def markdown(table: Table) -> str:
    """Return the table in Markdown, its title as a heading."""
    columns = _columns(table.rows)
    lines = [columns, ["---"] * len(columns)]
    lines += [[_text(row.get(column)) for column in columns] for row in table.rows]
    return "\n".join([f"### {table.title}", "", *(f"| {' | '.join(line)} |" for line in lines), ""])


def _columns(rows: list[Row]) -> list[str]:
    return list(dict.fromkeys(column for row in rows for column in row))


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


class Report:
    """A folder that tables are written into as NAME.md, NAME.csv and NAME.png; they are printed too."""

    def __init__(self, folder: Path, options: Options) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.origin = (
            f"Python {platform.python_version()}, torch {torch.__version__} on {torch.get_num_threads()} threads, "
            f"{os.cpu_count()} cores ({_processor()}). {options.described}"
        )
        print(self.origin + "\n")

    def write(self, table: Table) -> None:
        """Print the table, or the row that is new, and write its files over those of an earlier run."""
        text = markdown(table)
        if table.is_complete:
            print(text, flush=True)
        else:
            print(", ".join(f"{name}: {_text(value)}" for name, value in table.rows[-1].items()), file=sys.stderr)
        if table.draw is not None:
            self._draw(table)
        (self.folder / f"{table.name}.md").write_text(f"{text}\n{self.origin}\n")
        with (self.folder / f"{table.name}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, _columns(table.rows))
            writer.writeheader()
            writer.writerows(table.rows)

    def _draw(self, table: Table) -> None:
        if find_spec("matplotlib"):
            table.draw().savefig(self.folder / f"{table.name}.png")
        else:
            print('[no picture: matplotlib is missing, pip install "gpytorch_partition[plot]"]', file=sys.stderr)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()


Name = TypeVar("Name", bound=Hashable)
Result = TypeVar("Result")


def timed(call: Callable[[], Result], clock: Callable[[], float] = perf_counter) -> tuple[Result, float]:
    start = clock()
    result = call()
    return result, clock() - start


def seconds(call: Callable[[], Any]) -> float:
    return timed(call)[1]


def cpu_timed(call: Callable[[], Result]) -> tuple[Result, float]:
    """Return the result of a call, and the CPU seconds of all its threads."""
    return timed(call, process_time)


def medians(contenders: Mapping[Name, Callable[[], Any]], repetitions: int) -> dict[Name, float]:
    """Return the median seconds of each contender; they take turns, so that a busy moment hits all alike."""
    for call in contenders.values():
        call()  # what is built once and kept is not measured
    times: dict[Name, list[float]] = {name: [] for name in contenders}
    for _ in range(repetitions):
        for name, call in contenders.items():
            times[name].append(seconds(call))
    return {name: median(values) for name, values in times.items()}


def growth(sizes: list[int], times: list[float]) -> float:
    """Return the exponent e of time ~ size^e between the first and the last size."""
    return math.log(times[-1] / times[0]) / math.log(sizes[-1] / sizes[0])


def peak_gib() -> float:
    """Return the most GiB that this process has held, imports (a third of a GiB) included."""
    import resource

    unit = 2**30 if sys.platform == "darwin" else 2**20
    # On Linux `ru_maxrss` would begin with the parent's.
    return _status_gib("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def held_gib() -> float:
    """Return the GiB that this process holds; the most so far, where the system does not tell."""
    return _status_gib("VmRSS") or peak_gib()


def _status_gib(name: str) -> float | None:
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    line = next(line for line in status.read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) / 2**20
