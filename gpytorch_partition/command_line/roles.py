"""What the columns of a table are for: the target, an id, features; which are left out, and what cannot be learned."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from gpytorch_partition.command_line.blocks import block_column, wrong_blocks
from gpytorch_partition.command_line.columns import (
    CATEGORY,
    DATE,
    NUMBER,
    TEXT,
    Column,
    Kind,
    cells_of,
    default_mark,
    missing_cells,
    notation_notes,
    typed_column,
)
from gpytorch_partition.command_line.errors import listed, raise_problems
from gpytorch_partition.command_line.numbers import FLAGS, hint_of_numbers
from gpytorch_partition.command_line.raw_table import RawTable
from gpytorch_partition.command_line.spellings import spelling_notes
from gpytorch_partition.command_line.tables import read_table
from gpytorch_partition.command_line.weights import counted_rows, weight_column, weight_notes, wrong_weights
from gpytorch_partition.estimators.machine import check_magnitudes
from gpytorch_partition.inputs.copies import rows_without_copies, told_of_copies
from gpytorch_partition.inputs.text_targets import Remedies, told_of_odd
from gpytorch_partition.progress import ticking
from gpytorch_partition.tables.date_texts import hint_of_dates
from gpytorch_partition.tables.ids import are_ids

FEWEST_TRAINING_ROWS = 20
# Names of columns that count the rows, if they do, as pandas writes its index.
_COUNTERS = re.compile(r"column 1|unnamed: 0|index|row|nr\.?|no\.?|.*id", re.IGNORECASE)

_REMEDIES = Remedies(
    words="leave these cells empty, whose rows are left out then",
    commas="write decimal points or decimal commas, not both",
)

Table = dict[str, np.ndarray]  # columns by name, N values each, as in `columns.Column`


class Roles(NamedTuple):
    """Columns by name as a user assigns them."""

    target: str
    id: str | None = None
    dropped: Sequence[str] = ()
    categorical: Sequence[str] = ()
    weight: str | None = None
    groups: str | None = None
    time: str | None = None

    @classmethod
    def of_options(cls, options: Namespace) -> Roles:
        """
        Roles as options of a command say them.

        :param options: The command line.
        """
        blocks = options.groups, options.time
        return cls(options.target, options.id, options.drop, options.categorical, options.weight, *blocks)


class TrainingData(NamedTuple):
    """Rows to learn from; those without a target are left out."""

    table: Table  # of features
    y: np.ndarray  # N
    kinds: dict[str, Kind]  # of the features
    target: str
    id: str | None
    ids: list[str] | None  # N texts of the column that names rows
    rows: np.ndarray  # N: their numbers in the file, from 0
    notes: list[str]
    weights: np.ndarray | None = None  # N, above 0
    declared: frozenset[str] = frozenset()  # columns that the file calls categories
    target_kind: Kind = Kind(NUMBER)
    blocks: Mapping[str, np.ndarray] = MappingProxyType({})  # N groups or times, as `fit` takes them

    @property
    def categorical(self) -> list[str] | None:
        """Names of the columns that the user or the file calls categories, whatever their texts look like, or None."""
        return [name for name, kind in self.kinds.items() if kind.name == CATEGORY or name in self.declared] or None

    def chosen(self, rows: np.ndarray) -> Table:
        """
        Features of some rows.

        :param rows: Their numbers.
        """
        return {name: values[rows] for name, values in self.table.items()}


def read_training_data(path: Path, roles: Roles) -> TrainingData:
    """
    A table with its target apart.

    All other columns are features but those that are dropped, the id, the weight, the groups, columns of as many
    distinct texts as rows, such that count the rows, and constant ones; each is noted.

    :param path: The file, as for :func:`~gpytorch_partition.command_line.tables.read_table`.
    :param roles: What the columns are for.
    :raises CommandError: If the file cannot be read; or with all that is wrong: names that are not there, a target that
        is not of numbers or constant, fewer than 20 rows, infinite numbers, weights that are none, lines that do not
        fit the header.
    """
    with ticking(f"reading {path}"):
        raw = read_table(path)
        mark = default_mark(raw)
        columns = _typed(raw, roles, mark)
        target = typed_column(roles.target, raw.columns.get(roles.target, []), mark)
        weights = weight_column(raw, roles.weight, mark)
        blocks = block_column(raw, roles.groups, roles.time, mark)
    has_target = ~target.missing if roles.target in raw.columns else np.ones(len(raw.lines), dtype=bool)
    problems = _problems(raw, roles, columns, target)
    wrong = wrong_weights(raw, roles.weight, weights, has_target)
    counts = has_target if wrong else has_target & counted_rows(weights, len(has_target))
    raise_problems(path, wrong + wrong_blocks(raw, blocks, counts) + problems)
    rows = np.flatnonzero(counts)
    if len(rows) < FEWEST_TRAINING_ROWS:
        raise_problems(path, [f"{len(rows)} rows have a weight above 0, but learning takes {FEWEST_TRAINING_ROWS}"])
    num_rows, rows = len(rows), _without_copies(rows, columns, target)
    reasons = {name: reason for name in columns if (reason := _reason_against(name, columns, rows))}
    features = {name: column for name, column in columns.items() if name not in reasons}
    if not features:
        raise_problems(path, ["; ".join(["no column is left to learn from", *reasons.values()])])
    rows = _without_copies(rows, features, target)  # of which a counter may have told apart
    ids = raw.texts(roles.id) if roles.id is not None else None
    return TrainingData(
        {name: column.values[rows] for name, column in features.items()},
        target.values[rows],
        {name: column.kind for name, column in features.items()},
        roles.target,
        roles.id,
        None if ids is None else [ids[row] for row in rows],
        rows,
        [*raw.notes, *_rows_left_out(raw, roles.target, target), *_copies_left_out(rows, num_rows), *reasons.values()]
        + weight_notes(raw, roles.weight, weights, has_target)
        + _notes({roles.target: target, **features}),
        None if weights is None else weights.values[rows],
        raw.categories,
        target.kind,
        {} if blocks is None else blocks.of_rows(rows),
    )


def missing_names(names: Sequence[str], raw: RawTable, told: str = "") -> str:
    """
    What is wrong with names that a file does not have, and which of its own are nearly the same.

    :param names: The names.
    :param raw: The file's columns.
    :param told: What is to be said of the names. (Default: nothing.)
    """
    own = {name.casefold(): name for name in raw.columns}
    close = [match for name in names for match in get_close_matches(name.casefold(), own, n=1)]
    meant = f"; did you mean {listed(own[match] for match in dict.fromkeys(close))}? Its" if close else "; its"
    return f"no column is called {listed(names)}{told}{meant} columns are {listed(raw.columns)}"


def infinite_cells(raw: RawTable, name: str, column: Column) -> list[str]:
    """
    What is wrong with a column that has infinite or huge numbers.

    :param raw: The table.
    :param name: The column's name.
    :param column: Its values.
    """
    if column.kind.name != NUMBER:
        return []
    if (infinite := np.isinf(column.values)).any():
        return [f"column {name!r} is infinite in {raw.places(infinite)}: leave these cells empty, or drop the rows"]
    try:
        check_magnitudes(column.values[:, None], f"column {name!r}")
    except ValueError as error:
        return [str(error)]
    return []


def _problems(raw: RawTable, roles: Roles, columns: dict[str, Column], target: Column) -> list[str]:
    """What is wrong; lines that do not fit the header, which may be many, come last."""
    infinite = [problem for name, column in columns.items() for problem in infinite_cells(raw, name, column)]
    used = {*columns, roles.target, roles.weight, roles.groups}
    unreadable = [told for name, told in raw.unreadable.items() if name in used]
    is_there = roles.target in raw.columns and roles.target not in raw.unreadable
    wrong = _wrong_target(raw, roles.target, target) if is_there else []
    return _wrong_names(raw, roles) + unreadable + infinite + wrong + raw.problems


def _wrong_names(raw: RawTable, roles: Roles) -> list[str]:
    given = {
        "--target": [roles.target],
        "--id": [] if roles.id is None else [roles.id],
        "--weight": [] if roles.weight is None else [roles.weight],
        "--groups": [] if roles.groups is None else [roles.groups],
        "--time": [] if roles.time is None else [roles.time],
        "--drop": roles.dropped,
        "--categorical": roles.categorical,
    }
    problems = [
        f"{option}: {missing_names(missing, raw)}"
        for option, names in given.items()
        if (missing := [name for name in names if name not in raw.columns])
    ]
    for option in ("--id", "--weight", "--groups", "--time", "--drop", "--categorical"):
        if roles.target in given[option]:
            problems.append(f"{option}: {roles.target!r} is the target already; name other columns")
    others = {*roles.dropped, roles.id}
    if twice := [name for name in roles.categorical if name in others]:
        problems.append(f"--categorical: {listed(twice)} is left out by --drop or --id; name other columns")
    if roles.weight is not None and roles.weight in (*roles.dropped, roles.id, *roles.categorical):
        problems.append(f"--weight: {roles.weight!r} is named by --drop, --id or --categorical too; it is no feature")
    return problems


def _typed(raw: RawTable, roles: Roles, mark: str) -> dict[str, Column]:
    """The columns that may be features."""
    others = {roles.target, roles.id, roles.weight, roles.groups, *roles.dropped}
    kinds = dict.fromkeys(raw.categories, Kind(TEXT)) | dict.fromkeys(roles.categorical, Kind(CATEGORY))
    return {
        name: typed_column(name, cells_of(raw, name, kinds.get(name)), mark, kinds.get(name))
        for name in raw.columns
        if name not in others
    }


def _wrong_target(raw: RawTable, name: str, target: Column) -> list[str]:
    """What is wrong with a target: nothing is learned from it then."""
    if target.kind.notation == FLAGS:
        texts = typed_column(name, raw.columns[name], kind=Kind(TEXT)).values
        cell = repr(texts[~target.missing][0])
        return [f"the target {name!r} holds {FLAGS} ({cell}): {_REMEDIES.classes}; or write 1 and 0"]
    if target.kind.name == TEXT:
        return [f"the target {name!r} holds text: {_told_of_texts(raw, name, target)}"]
    if target.kind.name != NUMBER:
        return [f"the target {name!r} holds dates: give a number, such as days since one of them"]
    values = target.values[~target.missing]
    if not len(values):
        return [f"the target {name!r} is empty in all rows: name the column to predict by --target"]
    problems = infinite_cells(raw, name, target)
    if len(values) < FEWEST_TRAINING_ROWS:
        has = f"{len(values):,} rows" + " with a target" * (len(values) < len(target.values))
        problems.append(f"it has {has}, but learning takes at least {FEWEST_TRAINING_ROWS}")
    elif np.ptp(values) == 0:
        problems.append(f"the target {name!r} is always {values[0]:g}: there is nothing to learn")
    return problems


def _told_of_texts(raw: RawTable, name: str, target: Column) -> str:
    """Which cells are no numbers, in the notation of most, and what to do."""
    as_number = typed_column(name, raw.columns[name], default_mark(raw), Kind(NUMBER))
    odd = np.flatnonzero(as_number.missing & ~target.missing)
    odd = odd if len(odd) else np.flatnonzero(~target.missing)  # such as (1), which are negative beside others only
    cells = [(target.values[row], raw.places(np.array([row]))) for row in odd]
    return told_of_odd(cells, int((~target.missing).sum()), _REMEDIES)


def _rows_left_out(raw: RawTable, name: str, target: Column) -> list[str]:
    missing = target.missing
    if not missing.any():
        return []
    number = int(missing.sum())
    return [f"{number:,} row{'s' * (number > 1)} without a target ({name!r}) left out: {raw.places(missing)}"]


def _without_copies(rows: np.ndarray, columns: dict[str, Column], target: Column) -> np.ndarray:
    """Those of some rows that are no copies of others, where copies matter."""
    if not columns:
        return rows
    cells = np.column_stack([_codes(column.values[rows]) for column in columns.values()])
    kept = rows_without_copies(cells, target.values[rows])
    return rows if kept is None else rows[kept]


def _codes(values: np.ndarray) -> np.ndarray:
    """A number for each cell, the same for the same cells, and NaN where one is missing (`N`)."""
    if values.dtype != object:
        return np.where(missing_cells(values), np.nan, values.astype(np.float64))
    codes: dict[str | None, float] = {None: np.nan}
    return np.array([codes.setdefault(value, float(len(codes))) for value in values.tolist()])


def _copies_left_out(rows: np.ndarray, num_rows: int) -> list[str]:
    return [told_of_copies(num_rows - len(rows), num_rows)] if len(rows) < num_rows else []


def _notes(columns: dict[str, Column]) -> list[str]:
    notes = [note for column in columns.values() for note in column.notes] + notation_notes(columns)
    levels = {
        name: len(set(column.values) - {None})
        for name, column in columns.items()
        if column.kind.name in (TEXT, CATEGORY)
    }
    if levels:
        notes.append("categories: " + ", ".join(f"{name!r} ({number:,})" for name, number in levels.items()))
    for name, number in levels.items():
        texts = [] if columns[name].kind.name == CATEGORY else sorted(set(columns[name].values) - {None})
        if hint := hint_of_numbers(texts) or hint_of_dates(texts):
            notes.append(f"column {name!r} is text of {number:,} categories{hint}")
        notes += spelling_notes(name, columns[name].values.tolist())
    if flags := [name for name, column in columns.items() if column.kind.notation == FLAGS]:
        notes.append(f"{FLAGS} (or yes and no), taken as 1 and 0: {listed(flags)}")
    if dates := [name for name, column in columns.items() if column.kind.name == DATE]:
        notes.append(f"dates, taken as days and parts of the calendar: {listed(dates)}")
    return notes


def _reason_against(name: str, columns: dict[str, Column], rows: np.ndarray) -> str:
    """Why a column tells nothing about other rows, if so."""
    column = columns[name]
    values, is_text = column.values[rows], column.kind.name == TEXT
    present = values[~column.missing[rows]]
    if not len(present):
        return f"column {name!r} is empty: left out"
    if len(present) < len(values):
        return ""
    if (present == present[0]).all():
        always = repr(present[0]) if is_text else str(present[0])
        return f"column {name!r} is always {always}: left out"
    if is_text and are_ids(present, [each.values[rows] for each in columns.values()]):
        return (
            f"column {name!r} has as many distinct texts as rows, as an id has: left out (--id passes it through to "
            "predictions)" + (hint_of_numbers(present.tolist()) or hint_of_dates(present.tolist()))
        )
    if column.kind.name == NUMBER and _COUNTERS.fullmatch(name) and _counts(column.values):
        return f"column {name!r} counts the rows: left out (rename it to keep it)"
    return ""


def _counts(values: np.ndarray) -> bool:
    return values[0] in (0, 1) and bool((np.diff(values) == 1).all())
