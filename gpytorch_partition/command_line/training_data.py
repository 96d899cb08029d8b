"""Readers of training data: the roles of a file's columns, and columns and rows that are left out."""

from __future__ import annotations

import re
import warnings
from argparse import Namespace
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from gpytorch_partition.command_line.errors import CommandError, listed, raise_problems
from gpytorch_partition.command_line.table_files import Dialect, read_frame, texts_of
from gpytorch_partition.estimators.machine import check_magnitudes
from gpytorch_partition.inputs.row_choice import rows_without_copies, told_of_copies
from gpytorch_partition.inputs.text_targets import Remedies, odd_targets, told_of_odd
from gpytorch_partition.progress import doing
from gpytorch_partition.tables import TableEncoder
from gpytorch_partition.tables.cells import DATES, LEFT_OUT, LEVELS, NUMBERS

FEWEST_TRAINING_ROWS = 20
# Names of columns that may count the rows, such as the index of pandas.
_COUNTERS = re.compile(r"unnamed: 0|index|row|nr\.?|no\.?|.*id", re.IGNORECASE)
_REMEDIES = Remedies(
    words="leave these cells empty, whose rows are left out then",
    commas="write decimal points or decimal commas, not both",
)

Table = dict[str, np.ndarray]  # columns by name, N numbers, dates or levels (None is missing) each


class Roles(NamedTuple):
    """The columns that a user assigns to roles, by name."""

    target: str
    id: str | None = None
    dropped: Sequence[str] = ()
    categorical: Sequence[str] = ()
    weight: str | None = None
    groups: str | None = None
    time: str | None = None

    @classmethod
    def of_options(cls, options: Namespace) -> Roles:
        """Return the roles in the options of a command."""
        blocks = options.groups, options.time
        return cls(options.target, options.id, options.drop, options.categorical, options.weight, *blocks)


class TrainingData(NamedTuple):
    """Training rows, without those that lack a target."""

    table: Table  # of features
    y: np.ndarray  # N
    target: str
    reader: TableEncoder  # of the features, the target, the weight and the time
    rows: np.ndarray  # N: their numbers in the file, from 0
    id: str | None = None
    ids: list[str] | None = None  # N texts of the column that names rows
    notes: Sequence[str] = ()
    weights: np.ndarray | None = None  # N, above 0
    blocks: Mapping[str, np.ndarray] = MappingProxyType({})  # N groups or times, as `fit` takes them
    categorical: Sequence[str] | None = None  # names of the features that are categories

    def at(self, rows: np.ndarray) -> TrainingData:
        """Return the rows of these numbers."""
        return self._replace(
            table={name: values[rows] for name, values in self.table.items()},
            y=self.y[rows],
            rows=self.rows[rows],
            ids=None if self.ids is None else [self.ids[row] for row in rows],
            weights=None if self.weights is None else self.weights[rows],
            blocks={role: values[rows] for role, values in self.blocks.items()},
        )


def read_training_data(path: Path, roles: Roles, dialect: Dialect = Dialect()) -> TrainingData:  # noqa: B008 (a tuple)
    """
    Return the training rows of a file, with features and targets apart.

    All other columns are features, except the dropped ones, id, weight, groups, columns of as many distinct texts as
    rows, columns that count the rows, and constant ones. Notes report the reading of each column.

    :param path: The file, as for :func:`~gpytorch_partition.command_line.table_files.read_frame`.
    :param roles: Roles of the columns.
    :param dialect: Notation of the file.
    :raises CommandError: If the file cannot be read; or with all problems: unknown names, a target that is not numeric
        or is constant, fewer than 20 rows, infinite numbers, unusable weights.
    """
    with doing(f"reading {path}"):
        frame = read_frame(path, dialect, roles.id)
        raise_problems(path, _wrong_names(frame, roles))
        for name in roles.categorical:
            frame[name] = texts_of(frame[name])
        everything = _Columns(path, frame, roles, dialect)
        counted = everything.rows_that_count(path)
        kept = everything.without_copies(counted)
        columns = everything if len(kept) == len(frame) else _Columns(path, frame.iloc[kept], roles, dialect)
    features = columns.features(path)
    return TrainingData(
        features,
        columns.values[roles.target],
        roles.target,
        columns.reader,
        kept,
        roles.id,
        None if roles.id is None else texts_of(frame[roles.id]).fillna("").iloc[kept].tolist(),
        [*everything.notes_of_rows(counted, kept), columns.told()],
        None if roles.weight is None else columns.values[roles.weight],
        columns.blocks(),
        [name for name in features if columns.kinds[name] in LEVELS] or None,
    )


class _Columns:
    """The columns of a file as they are read, with their roles."""

    def __init__(self, path: Path, frame: Any, roles: Roles, dialect: Dialect) -> None:
        self.frame, self.roles = frame, roles
        self.reader = TableEncoder(list(roles.categorical), dialect.decimal, dialect.thousands)
        apart = {*roles.dropped, roles.id, roles.groups} - {roles.time}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the table of columns reports it
                self.values = self.reader.fit_read(frame[[name for name in frame if name not in apart]])
        except (TypeError, ValueError) as error:
            raise CommandError(f"{path}: {error}") from error
        self.kinds = self.reader.kinds_
        others = {roles.target, roles.weight, *roles.dropped}
        self.candidates = [name for name in self.values if name not in others]

    def rows_that_count(self, path: Path) -> np.ndarray:
        """Return the numbers of the rows with a target and a weight above 0; raise one error for all problems."""
        known, weight = ~_missing(self.values[self.roles.target]), self.roles.weight
        problems = [*self._wrong_target(known), *self._wrong_weights(known)]
        if weight is not None and not problems:
            known = known & (self.values[weight] > 0)
        huge = [_huge(name, values) for name, values in self.values.items() if self.kinds[name] == NUMBERS]
        raise_problems(path, [*problems, *self._wrong_blocks(known), *filter(None, huge)])
        if known.sum() < FEWEST_TRAINING_ROWS:
            what = "a target" + " and a weight above 0" * (weight is not None)
            raise CommandError(f"{path}: {known.sum()} rows have {what}, but learning takes {FEWEST_TRAINING_ROWS}")
        return np.flatnonzero(known)

    def without_copies(self, rows: np.ndarray) -> np.ndarray:
        """Return the rows that are no copies of others, where copies matter."""
        reasons, y = self.reasons(rows), self.values[self.roles.target]
        cells = [_codes(self.values[name][rows]) for name in self.candidates if name not in reasons]
        kept = rows_without_copies(np.column_stack(cells), y[rows]) if cells else None
        return rows if kept is None else rows[kept]

    def reasons(self, rows: Any = slice(None)) -> dict[str, str]:
        """Return the reasons against columns that tell nothing about other rows, by name."""
        readings, is_left_out = self.reader.readings_, {name: self.kinds[name] in LEFT_OUT for name in self.candidates}
        found = {
            name: readings[name] if is_left_out[name] else _reason_against(name, self.values[name][rows])
            for name in self.candidates
        }
        return {name: reason for name, reason in found.items() if reason}

    def features(self, path: Path) -> Table:
        reasons = self.reasons()
        if not (found := {name: self.values[name] for name in self.candidates if name not in reasons}):
            told = [f"column {name!r}: {reason}" for name, reason in reasons.items()]
            raise CommandError(f"{path}: {'; '.join(['no column is left to learn from', *told])}")
        return found

    def blocks(self) -> dict[str, np.ndarray]:
        """Return the groups (as texts) or times for `fit`, by the name of its parameter."""
        if self.roles.groups is not None:
            return {"groups": texts_of(self.frame[self.roles.groups]).to_numpy(dtype=object)}
        return {} if self.roles.time is None else {"time": self.values[self.roles.time]}

    def notes_of_rows(self, counted: np.ndarray, kept: np.ndarray) -> list[str]:
        known, is_light = ~_missing(self.values[self.roles.target]), np.ones(len(self.frame), dtype=bool)
        is_light[counted] = False
        told = {
            f"without a target ({self.roles.target!r})": ~known,
            f"of weight 0 ({self.roles.weight!r})": known & is_light,
        }
        notes = [f"{each.sum():,} rows {what} left out: {_rows(each)}" for what, each in told.items() if each.any()]
        num_copies = len(counted) - len(kept)
        return [*notes, *([told_of_copies(num_copies, len(counted))] if num_copies else [])]

    def told(self) -> str:
        """Return a table of the readings of all columns."""
        roles = self.roles
        told = {**dict.fromkeys(self.frame, "left out: dropped"), **self.reader.readings_, **self.reasons()}
        uses = {roles.target: "the target", roles.weight: "the weight", roles.time: "the time", roles.id: "the id"}
        for name, use in {**uses, roles.groups: "the groups"}.items():
            if name is not None:
                told[name] = f"{told[name]} ({use})" if name in self.values else use
        width = max(map(len, told))
        return "\n  ".join(["columns were read as", *(f"{name:{width}}  {what}" for name, what in told.items())])

    def _wrong_target(self, known: np.ndarray) -> list[str]:
        name, kind = self.roles.target, self.kinds[self.roles.target]
        values = self.values[name][known]
        if not len(values):
            return [f"the target {name!r} is empty in all rows: name the column to predict by --target"]
        if kind == DATES:
            return [f"the target {name!r} holds dates: give a number, such as days since one of them"]
        if kind != NUMBERS:
            odd = odd_targets(texts_of(self.frame[name]).to_numpy(dtype=object))
            return [f"the target {name!r} holds text: {told_of_odd(odd, len(values), _REMEDIES)}"]
        return [f"the target {name!r} is always {values[0]:g}: there is nothing to learn"] * int(np.ptp(values) == 0)

    def _wrong_weights(self, known: np.ndarray) -> list[str]:
        if (name := self.roles.weight) is None:
            return []
        if (kind := self.kinds[name]) != NUMBERS:
            return [f"--weight: column {name!r} holds {kind}, and weights are numbers from 0"]
        values, remedy = self.values[name], "give a weight above 0, or 0 to leave the row out"
        wrong = {"is empty": np.isnan(values) & known, "is negative": (values < 0) & known}
        told = [f"{what} in {_rows(each)}: {remedy}" for what, each in wrong.items() if each.any()]
        if not told and not (values[known] > 0).any():
            told = ["is 0 in all rows with a target: no row is left to learn from"]
        return [f"--weight: column {name!r} {what}" for what in told]

    def _wrong_blocks(self, known: np.ndarray) -> list[str]:
        for role, values in self.blocks().items():
            name = getattr(self.roles, role)
            if role == "time" and self.kinds[name] not in (NUMBERS, DATES):
                return [f"--time: column {name!r} holds {self.kinds[name]}, and times are numbers or dates"]
            what = f"--{role}: column {name!r}"
            if (missing := _missing(values) & known).any():
                return [f"{what} is empty in {_rows(missing)}: fill these cells in, or drop the rows"]
            if len(set(values[known].tolist())) < 3:
                return [f"{what} has fewer than three values, too few to hold some out: leave {role} out"]
        return []


def missing_names(names: Sequence[str], frame: Any, told: str = "") -> str:
    """
    Return an error message for names that a file lacks, with its own similar names.

    :param names: The names.
    :param frame: The file's columns.
    :param told: A remark on the names. (Default: none.)
    """
    own = {name.casefold(): name for name in frame}
    close = [own[match] for name in names for match in get_close_matches(name.casefold(), own, n=1)]
    meant = f"; did you mean {listed(dict.fromkeys(close))}? Its" if close else "; its"
    return f"no column is called {listed(names)}{told}{meant} columns are {listed(frame)}"


def _wrong_names(frame: Any, roles: Roles) -> list[str]:
    single = {name: getattr(roles, name) for name in ("target", "id", "weight", "groups", "time")}
    given = {f"--{option}": [name] for option, name in single.items() if name is not None}
    given |= {"--drop": list(roles.dropped), "--categorical": list(roles.categorical)}
    problems = []
    for option, names in given.items():
        if missing := [name for name in names if name not in frame]:
            problems.append(f"{option}: {missing_names(missing, frame)}")
        if option != "--target" and roles.target in names:
            problems.append(f"{option}: {roles.target!r} is the target already; name other columns")
    others = {*roles.dropped, roles.id, roles.groups}
    if twice := [name for name in roles.categorical if name in others]:
        problems.append(f"--categorical: {listed(twice)} is left out by --drop, --id or --groups; name other columns")
    if roles.weight is not None and roles.weight in (*others, *roles.categorical):
        problems.append(f"--weight: {roles.weight!r} is named by another option too; it is no feature")
    return problems


def _missing(values: np.ndarray) -> np.ndarray:
    if values.dtype == object:
        return np.array([value is None for value in values], dtype=bool)
    return np.isnat(values) if values.dtype.kind == "M" else np.isnan(values)


def _rows(mask: np.ndarray) -> str:
    numbers = np.flatnonzero(mask).tolist()
    return f"row{'s' * (len(numbers) > 1)} {listed(numbers)} (from 0)"


def _huge(name: str, values: np.ndarray) -> str:
    try:
        check_magnitudes(values[:, None], f"column {name!r}")
    except ValueError as error:
        return str(error)
    return ""


def _reason_against(name: str, values: np.ndarray) -> str:
    if _missing(values).any():
        return ""
    if (values == values[0]).all():
        return f"left out: always {values[:1].tolist()[0]!r:.40}"
    counts = values.dtype == np.float64 and values[0] in (0, 1) and bool((np.diff(values) == 1).all())
    return "left out: it counts the rows (rename it to keep it)" if counts and _COUNTERS.fullmatch(name) else ""


def _codes(values: np.ndarray) -> np.ndarray:
    """Return a number for each cell (`N`), equal for equal cells, and NaN for missing ones."""
    if values.dtype != object:
        return np.where(_missing(values), np.nan, values.astype(np.float64))
    codes: dict[Any, float] = {None: np.nan}
    return np.array([codes.setdefault(value, float(len(codes))) for value in values.tolist()])
