"""Errors and notes for the user of a command, and the files that it writes, which replace others once complete."""

from __future__ import annotations

import csv
import os
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TextIO, cast

from gpytorch_partition.files import replacing

INSTALL = 'pip install "gpytorch_partition[plot]"'
_MOST_LISTED = 20
_LONGEST = 200  # characters of a text that is listed
OTHER_FORMATS = (".gz", ".bz2", ".xz", ".zip", ".zst", ".parquet", ".xlsx", ".xls", ".json", ".feather")


class CommandError(Exception):
    """Report an error of the user's input, with its file and reason as the message: exit status 2."""


def listed(things: Iterable[object]) -> str:
    """Return at most 20 things as text, separated by commas, with the number of others."""
    things = list(things)
    shown = ", ".join(f"{thing!r:.{_LONGEST}}" for thing in things[:_MOST_LISTED])
    return shown + (f" and {len(things) - _MOST_LISTED:,} more" if len(things) > _MOST_LISTED else "")


def say(text: object, kind: str = "note") -> None:
    """Print a note, warning or error on standard error."""
    show(f"gpytorch_partition: {kind}: {text}", file=sys.stderr)


def say_all(notes: Iterable[str], options: Namespace) -> None:
    for note in () if options.quiet else notes:
        say(note)


def show(text: object, end: str = "\n", file: TextIO | None = None) -> None:
    """Print text without delay, with control characters as their codes (:func:`plain`)."""
    print(plain(text), end=end, file=file, flush=True)


def plain(text: object) -> str:
    """Return text in which control characters are replaced by their codes, so that they cannot steer a terminal."""
    return "".join(each if each.isprintable() or each in "\n\t" else ascii(each)[1:-1] for each in str(text))


def has_matplotlib() -> bool:
    return find_spec("matplotlib") is not None


def save_figure(path: Path, figure: Any) -> None:
    with cannot_write(path), replacing(path) as file:
        figure.savefig(file, format="png")


def save_table(path: Path, columns: Mapping[str, Sequence[Any]]) -> None:
    with cannot_write(path), replacing(path, "w", newline="", encoding="utf-8") as file:
        write_table(cast(TextIO, file), columns)


def write_table(file: TextIO, columns: Mapping[str, Sequence[Any]]) -> None:
    """Write columns as comma-separated text, floats with enough digits to be read back exactly."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*(getattr(values, "tolist", lambda own=values: own)() for values in columns.values())))


@contextmanager
def cannot_write(path: Path) -> Iterator[None]:
    """Turn an :class:`OSError` while a file is written, a full disk for example, into a :class:`CommandError`."""
    try:
        yield
    except BrokenPipeError:
        raise
    except (OSError, RuntimeError) as error:  # the latter of a link to itself, in Python before 3.13
        raise CommandError(
            f"cannot write {path}: {getattr(error, 'strerror', None) or error}; make it writable or give another name; "
            "a file that is there is unchanged"
        ) from error


def check_writable(path: Path, *inputs: str | None) -> None:
    """Refuse a file that cannot be written, or that is one of the inputs, before any work is done for it."""
    read = [each for each in inputs if each is not None and path.exists() and Path(each).exists()]
    if same := [each for each in read if path.samefile(each)]:
        raise CommandError(f"cannot write {path}: it is {same[0]}, which this command reads; give another name")
    if path.exists() and not os.access(path, os.W_OK):
        raise CommandError(f"cannot write {path}: permission denied; make it writable or give another name")
    if path.is_dir() or path.is_file() or not path.exists():  # neither a pipe nor a device
        with suppress(_TriedError), cannot_write(path), replacing(path):
            raise _TriedError


class _TriedError(Exception):
    """Ends the try to write a file, which leaves what is there."""


def check_folder(path: Path, option: str, is_named: bool, files: Sequence[str], *inputs: str | None) -> None:
    """Refuse a folder for output that cannot be written or made, or holds files and was not named by its option."""
    place = next(place for place in (path, *path.absolute().parents) if os.path.lexists(place))
    if not place.is_dir():
        raise CommandError(f"cannot make the folder {path}: {place} is not a folder; give another name")
    if not os.access(place, os.W_OK):
        raise CommandError(f"cannot write to the folder {place}: permission denied; make it writable or give another")
    if not is_named and (present := sorted(file.name for file in path.iterdir()) if path.is_dir() else []):
        raise CommandError(
            f"the folder {path} holds {listed(present)} already: name another one by {option}, or this one ({option} "
            f"{path}) to replace the results in it"
        )
    for name in files if path.is_dir() else ():
        check_writable(path / name, *inputs)
