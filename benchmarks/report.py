"""What a benchmark returns, and how it is written down: tables as Markdown and CSV, bars with a verdict."""

from __future__ import annotations

import csv
import os
import platform
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch

Value = TypeVar("Value")
Row = dict[str, Any]


class Size(IntEnum):
    """How much is measured."""

    FULL, QUICK, SMOKE = range(3)


@dataclass(frozen=True)
class Options:
    """What the command line asks for."""

    size: Size = Size.FULL
    data: Path | None = None
    resumed: Path | None = None  # folder of an earlier run, whose rows need not be measured again
    sets: tuple[str, ...] = ()  # of `honest`; none: all
    small: bool = False  # of `honest`: small sets alone
    stored: Path | None = None  # where `honest` writes figures

    def pick(self, full: Value, quick: Value, smoke: Value) -> Value:
        """The value for the size that is measured."""
        return (full, quick, smoke)[self.size]

    @property
    def described(self) -> str:
        """The size in words."""
        return self.pick("Full size.", "Quick size: bars are not meant for it.", "Smallest size, for the tests.")

    def finished(self, name: str) -> list[Row]:
        """The rows that an earlier run of this size wrote into NAME.csv, without its verdicts and what failed."""
        path = self.resumed and self.resumed / f"{name}.csv"
        if not path or not path.exists() or self.described not in path.with_suffix(".md").read_text():
            return []
        with path.open(newline="") as file:
            rows = [{column: _number(text) for column, text in row.items() if text} for row in csv.DictReader(file)]
        return [_without_bars(row) for row in rows if "error" not in row]


def again(finished: list[Row], job: Row) -> Row | None:
    """The row of a job that an earlier run did."""
    return next((job | row for row in finished if all(row.get(name) == value for name, value in job.items())), None)


def _number(text: str) -> int | float | str:
    """What a cell of a CSV file stood for."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def _without_bars(row: Row) -> Row:
    return {column: value for column, value in row.items() if not column.startswith("bar")}


@dataclass(frozen=True)
class Bar:
    """A measured value and what it is held to; bars of the same name are judged together in the summary."""

    what: str
    measured: float
    at_least: float | None = None
    at_most: float | None = None

    @property
    def holds(self) -> bool:
        """Whether the measured value is on the right side."""
        if self.at_least is not None:
            return self.measured >= self.at_least
        return self.at_most is not None and self.measured <= self.at_most

    @property
    def limit(self) -> str:
        """The bar in words."""
        return f"at least {self.at_least:g}" if self.at_least is not None else f"at most {self.at_most:g}"

    def __str__(self) -> str:
        return f"{self.limit}: {'holds' if self.holds else 'missed'}"


class Cost(NamedTuple):
    """What a solve took; one cell in Markdown, three columns in CSV."""

    iterations: int
    seconds: float
    set_up: float  # seconds, included in the above

    def __str__(self) -> str:
        set_up = f" (set-up {_text(self.set_up)})" if self.set_up > 1e-3 else ""
        return f"{self.iterations} in {_text(self.seconds)} s{set_up}"


@dataclass(frozen=True)
class Table:
    """
    Rows of one kind: what is the same in all of them is in the title; a row may lack columns.

    One that is not complete has its last row from just now: it is written, so that nothing is lost if the run ends
    here, and comes again. A picture is a matplotlib figure that goes with the table.
    """

    name: str
    title: str
    rows: list[Row]
    complete: bool = True
    picture: Any = None

    @property
    def bars(self) -> list[Bar]:
        """The bars in any of the rows, once all are there."""
        if not self.complete:
            return []
        return [value for row in self.rows for value in row.values() if isinstance(value, Bar)]


def summary(bars: Iterable[Bar]) -> Table:
    """One row per kind of bar, with the value that is worst for it."""
    kinds: dict[tuple[str, str], list[Bar]] = {}
    for bar in bars:
        kinds.setdefault((bar.what, bar.limit), []).append(bar)
    rows = [_judged(what, limit, same) for (what, limit), same in kinds.items()]
    return Table("summary", "Bars", rows)


def _judged(what: str, limit: str, bars: list[Bar]) -> Row:
    values = sorted((bar.measured for bar in bars), reverse=bars[0].at_least is None)
    held = sum(bar.holds for bar in bars)
    verdict = "holds" if held == len(bars) else f"holds in {held} of {len(bars)} rows" if held else "missed"
    return {"what": what, "worst": values[0], "best": values[-1], "bar": limit, "verdict": verdict}


def markdown(table: Table) -> str:
    """The table in Markdown, its title as a heading."""
    columns = _columns(table.rows)
    lines = [columns, ["---"] * len(columns)]
    lines += [[_text(row.get(column)) for column in columns] for row in table.rows]
    return "\n".join([f"### {table.title}", "", *(f"| {' | '.join(line)} |" for line in lines), ""])


def _columns(rows: list[Row]) -> list[str]:
    """All columns, in the order in which they first occur."""
    return list(dict.fromkeys(column for row in rows for column in row))


def _flat(row: Row) -> Row:
    """The row with a column for each part of a cost."""
    flat: Row = {}
    for column, value in row.items():
        parts = value._asdict() if isinstance(value, Cost) else {}
        flat |= {f"{column}: {part}": number for part, number in parts.items()} or {column: value}
    return flat


def _line(row: Row) -> str:
    """A row in one line, without what it lacks."""
    return ", ".join(f"{column}: {_text(value)}" for column, value in row.items() if value is not None)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def machine() -> str:
    """What the figures were measured on, in one line."""
    return (
        f"Python {platform.python_version()}, torch {torch.__version__} on {torch.get_num_threads()} threads, "
        f"{os.cpu_count()} cores ({_processor()})."
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()


class Report:
    """Prints tables as they come, and writes each as NAME.md and NAME.csv (and NAME.png) into a folder."""

    def __init__(self, folder: Path, options: Options) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.origin = f"{machine()} {options.described}"
        print(self.origin + "\n")

    def write(self, table: Table) -> None:
        """Print the table, or the row that is new, and write its files, over those of an earlier run."""
        text = markdown(table)
        if table.complete:
            print(text, flush=True)
        else:
            print(_line(table.rows[-1]), file=sys.stderr, flush=True)
        if table.picture is not None:
            table.picture.savefig(self.folder / f"{table.name}.png")
        (self.folder / f"{table.name}.md").write_text(f"{text}\n{self.origin}\n")
        with (self.folder / f"{table.name}.csv").open("w", newline="") as file:
            rows = [_flat(row) for row in table.rows]
            writer = csv.DictWriter(file, _columns(rows))
            writer.writeheader()
            writer.writerows(rows)
