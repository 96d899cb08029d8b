"""Readers of training data: the roles of a file's columns, and columns and rows that are left out."""

from __future__ import annotations

import re
import warnings
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, cast

import numpy as np

from gpytorch_partition.command_line.outputs import listed
from gpytorch_partition.command_line.table_files import Dialect, file_named_in_errors, read_frame, texts_of
from gpytorch_partition.estimators.checks import check_magnitudes
from gpytorch_partition.inputs.row_choice import rows_without_copies, told_of_copies
from gpytorch_partition.inputs.row_weights import checked_weights
from gpytorch_partition.inputs.text_targets import composed, told_of_odd
from gpytorch_partition.presets.data import Blocks
from gpytorch_partition.progress import doing
from gpytorch_partition.tables import TableEncoder
from gpytorch_partition.tables.cells import DATES, LEFT_OUT, LEVELS, NUMBERS

_FEWEST_TRAINING_ROWS = 20
_COUNTERS = re.compile(r"index|row|nr\.?|no\.?|.*id", re.IGNORECASE)  # names of columns that may count the rows
_OF_OUTPUTS = re.compile(r"row|target|(.*_)?(mean|std|(lower|upper)_[\d.]+)")  # columns that predictions have
Table = dict[str, np.ndarray]  # columns by name, N numbers, dates or levels (None is missing) each


class Roles(NamedTuple):
    """Hold the columns that a user assigns to roles by options of these names."""

    target: str
    id: str | None = None
    drop: Sequence[str] = ()
    categorical: Sequence[str] = ()
    weight: str | None = None
    groups: str | None = None
    time: str | None = None

    @classmethod
    def of_options(cls, options: Namespace) -> Roles:
        return cls(*(getattr(options, name) for name in cls._fields))


class TrainingData(NamedTuple):
    """Hold the training rows of a file, without rows that lack a target, and the roles of their columns."""

    table: Table | np.ndarray  # of features
    y: np.ndarray  # N
    target: str
    reader: TableEncoder  # of the features, the target, the weight and the time
    rows: np.ndarray  # N: their numbers in the file, from 0
    id: str | None = None
    ids: np.ndarray | None = None  # N texts of the column that names rows
    notes: Sequence[str] = ()
    weights: np.ndarray | None = None  # N, above 0
    blocks: Mapping[str, np.ndarray] = MappingProxyType({})  # N groups or times, as `fit` takes them
    categorical: Sequence[str] | None = None  # names of the features that are categories

    @property
    def num_columns(self) -> int:
        return self.table.shape[1] if isinstance(self.table, np.ndarray) else len(self.table)

    def at(self, rows: np.ndarray) -> TrainingData:
        table = self.table
        return self._replace(
            table=table[rows] if isinstance(table, np.ndarray) else {name: table[name][rows] for name in table},
            y=self.y[rows],
            rows=self.rows[rows],
            ids=None if self.ids is None else self.ids[rows],
            weights=None if self.weights is None else self.weights[rows],
            blocks={role: values[rows] for role, values in self.blocks.items()},
        )


def read_training_data(path: Path, roles: Roles, dialect: Dialect = Dialect()) -> TrainingData:  # noqa: B008 (a tuple)
    """Return the training rows of a file; a :class:`CommandError` if it, or the role of a column, cannot be used."""
    with doing(f"reading {path}"):
        frame, notes = read_frame(path, dialect, roles.id)
        with file_named_in_errors(path):
            _check_names(frame, roles)
            data = _Columns(frame, roles, dialect).training_data()
            return data._replace(notes=[*notes, *data.notes])


class _Columns:
    def __init__(self, frame: Any, roles: Roles, dialect: Dialect) -> None:
        self.frame = frame.assign(**{name: texts_of(frame[name]) for name in roles.categorical})
        self.roles, self.dialect = roles, dialect
        self.reader = TableEncoder(list(roles.categorical), dialect.decimal, dialect.thousands, dialect.missing)
        apart = {*roles.drop, roles.id, roles.groups} - {roles.time}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the table of columns reports it
            self.values = self.reader.fit_read(self.frame[[name for name in frame if name not in apart]])
        self.kinds = self.reader.kinds_
        self.known = ~_missing(self.values[roles.target])
        self.candidates = [name for name in self.values if name not in {roles.target, roles.weight, *roles.drop}]

    def training_data(self) -> TrainingData:
        roles, counted = self.roles, self._rows_that_count()
        kept = self._without_copies(counted)
        columns = self if len(kept) == len(self.frame) else _Columns(self.frame.iloc[kept], roles, self.dialect)
        reasons = columns._reasons()
        features = {name: columns.values[name] for name in columns.candidates if name not in reasons}
        if not features:
            told = [f"column {name!r}: {reason}" for name, reason in reasons.items()]
            raise ValueError("; ".join(["no column is left to learn from", *told]))
        ids = None if roles.id is None else _texts(columns.frame[roles.id], "")
        notes = [*self._notes_of_rows(counted, kept), columns._readings(reasons)]
        weights = None if roles.weight is None else columns.values[roles.weight]
        categorical = [name for name in features if columns.kinds[name] in LEVELS] or None
        needed = features, columns.values[roles.target], roles.target, columns.reader, kept
        return TrainingData(*needed, roles.id, ids, notes, weights, columns._blocks(), categorical)

    def _rows_that_count(self) -> np.ndarray:
        """Return the numbers of the rows with a target and a weight above 0; refuse what cannot be learned from."""
        self._check_target()
        for role, values in self._blocks().items():
            given = {"groups": None, "time": None, role: np.where(self.known, values, values[self.known][0])}
            cast(Blocks, Blocks.of(**given, num_rows=len(values))).of_rows(self.known).check()
        for name, values in self.values.items():
            if self.kinds[name] == NUMBERS:
                check_magnitudes(values[:, None], f"column {name!r}")
        counts, what = self.known, "a target"
        if (weight := self.roles.weight) is not None:
            weights = checked_weights(np.where(self.known, self.values[weight], 0.0), len(counts))
            counts, what = counts if weights is None else weights > 0, "a target and a weight above 0"
        if counts.sum() < _FEWEST_TRAINING_ROWS:
            raise ValueError(f"expected {_FEWEST_TRAINING_ROWS} rows or more with {what}, got {counts.sum()}")
        return np.flatnonzero(counts)

    def _without_copies(self, rows: np.ndarray) -> np.ndarray:
        from pandas import factorize

        reasons, y = self._reasons(rows), self.values[self.roles.target]
        cells = [self.values[name][rows] for name in self.candidates if name not in reasons]
        codes = [np.where(_missing(values), np.nan, factorize(values)[0]) for values in cells]
        kept = rows_without_copies(np.column_stack(codes), y[rows]) if cells else None
        return rows if kept is None else rows[kept]

    def _reasons(self, rows: Any = slice(None)) -> dict[str, str]:
        reasons = ((name, self._reason_against(name, rows)) for name in self.candidates)
        return {name: reason for name, reason in reasons if reason}

    def _reason_against(self, name: str, rows: Any) -> str:
        if (reason := LEFT_OUT.get(self.kinds[name], "")) or _missing(values := self.values[name][rows]).any():
            return reason
        if (values == values[0]).all():
            return f"left out: always {values[:1].tolist()[0]!r:.40}"
        counts = values.dtype == np.float64 and values[0] in (0, 1) and bool((np.diff(values) == 1).all())
        return "left out: it counts the rows (rename it to keep it)" if counts and _COUNTERS.fullmatch(name) else ""

    def _blocks(self) -> dict[str, np.ndarray]:
        """Return the groups (as texts) or times for `fit`, by the name of its parameter."""
        if self.roles.groups is not None:
            return {"groups": composed(_texts(self.frame[self.roles.groups]))}
        return {} if self.roles.time is None else {"time": self.values[self.roles.time]}

    def _notes_of_rows(self, counted: np.ndarray, kept: np.ndarray) -> list[str]:
        without, weightless = np.flatnonzero(~self.known), np.setdiff1d(np.flatnonzero(self.known), counted)
        reasons = (("without a target", self.roles.target, without), ("of weight 0", self.roles.weight, weightless))
        notes = []
        for what, name, rows in reasons:
            if len(rows):
                notes.append(f"{len(rows):,} rows {what} ({name!r}) left out: {listed(rows.tolist())} (from 0)")
        num_copies = len(counted) - len(kept)
        return notes + [told_of_copies(num_copies, len(counted))] * (num_copies > 0)

    def _readings(self, reasons: dict[str, str]) -> str:
        told = {**dict.fromkeys(self.frame, "left out: dropped"), **self.reader.readings_, **reasons}
        for role in ("target", "weight", "time", "id", "groups"):
            if (name := getattr(self.roles, role)) is not None:
                told[name] = f"{told[name]} (the {role})" if name in self.values else f"the {role}"
        width = max(map(len, told))
        return "\n  ".join(["columns were read as", *(f"{name:{width}}  {what}" for name, what in told.items())])

    def _check_target(self) -> None:
        name, kind = self.roles.target, self.kinds[self.roles.target]
        values = self.values[name][self.known]
        if not len(values):
            raise ValueError(f"the target {name!r} is empty in all rows: name the column to predict by --target")
        if kind == DATES:
            raise ValueError(f"the target {name!r} holds dates: give a number, such as days since one of them")
        if kind != NUMBERS:
            odd = told_of_odd(_texts(self.frame[name])) or "its numbers have other marks than --decimal and --thousands"
            raise ValueError(f"the target {name!r} holds text: {odd}")
        if np.ptp(values) == 0:
            raise ValueError(f"the target {name!r} is always {values[0]:g}: name a column that varies by --target")


def check_columns(names: Iterable[str], frame: Any, told: str, remedy: str = "") -> None:
    """Raise a :class:`ValueError` if a file lacks some columns; the message lists its own similar names."""
    if missing := [name for name in names if name not in frame]:
        own = {name.casefold(): name for name in frame}
        close = [own[match] for name in missing for match in get_close_matches(name.casefold(), own, n=1)]
        meant = f"; did you mean {listed(dict.fromkeys(close))}? Its" if close else "; its"
        remedy += "; --header says which line has the names, and --sep what is between them" * (len(frame.columns) == 1)
        raise ValueError(f"{told}no column is called {listed(missing)}{meant} columns are {listed(frame)}{remedy}")


def _check_names(frame: Any, roles: Roles) -> None:
    given = {name: [value] if isinstance(value, str) else value or () for name, value in roles._asdict().items()}
    for option, names in given.items():
        check_columns(names, frame, f"--{option}: ")
    apart = [*given["drop"], *given["id"], *given["groups"]]
    taken = {"target": [], "categorical": apart, "weight": [*apart, *roles.categorical]}
    for option, names in given.items():
        others = [*taken.get(option, []), *([] if option == "target" else [roles.target])]
        if twice := [name for name in names if name in others]:
            raise ValueError(f"--{option}: {listed(twice)} is named by another option too; name other columns")
    if roles.id is not None and _OF_OUTPUTS.fullmatch(roles.id):
        raise ValueError(f"--id: predictions have a column {roles.id!r} of their own; give yours another name")


def _texts(column: Any, missing: str | None = None) -> np.ndarray:
    return texts_of(column).to_numpy(dtype=object, na_value=missing)


def _missing(values: np.ndarray) -> np.ndarray:
    from pandas import isna

    return np.asarray(isna(values))
