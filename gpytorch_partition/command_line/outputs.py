"""Writers of tables and plots, which replace files once they are complete, and checks before any work."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TextIO, cast

import numpy as np

from gpytorch_partition.command_line.errors import CommandError, listed
from gpytorch_partition.files import replacing

INSTALL = 'pip install "gpytorch_partition[plot]"'


def has_matplotlib() -> bool:
    """Return whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def save_figure(path: Path, figure: Any) -> None:
    """
    Write a figure as a PNG file, which replaces an existing one once it is complete.

    :raises CommandError: If it cannot be written; an existing file then stays.
    """
    with cannot_write(path), replacing(path) as file:
        figure.savefig(file, format="png")


def save_table(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """
    Write a CSV file as :func:`write_table`, which replaces an existing one once it is complete.

    :raises CommandError: If it cannot be written; an existing file then stays.
    """
    with cannot_write(path), replacing(path, "w", newline="", encoding="utf-8") as file:
        write_table(cast(TextIO, file), columns, rows)


def write_table(file: TextIO, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """
    Write a header and rows; floats with enough digits to be read back exactly.

    Example:
        >>> import sys
        >>> write_table(sys.stdout, ["row", "value"], [(1, np.float64(0.1))])
        row,value
        1,0.1
    """
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([cell.item() if isinstance(cell, np.generic) else cell for cell in row] for row in rows)


@contextmanager
def cannot_write(path: Path) -> Iterator[None]:
    """
    Turn errors while a file is written into errors for the user.

    :raises CommandError: In place of an :class:`OSError`, a full disk for example.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror or error}; what was there is as it was") from error


def check_writable(path: Path, *inputs: str | None) -> None:
    """
    Raise an error for a file that cannot be written, before any work is done for it.

    :param path: The file to write.
    :param inputs: Files that are read, or None; they must not be overwritten.
    :raises CommandError: If the folder is missing or not writable, or the path is a folder, or one of the inputs, also
        by another name.
    """
    if path.is_dir():
        raise CommandError(f"cannot write {path}: it is a folder")
    if not path.parent.is_dir():
        raise CommandError(f"cannot write {path}: there is no folder {path.parent}")
    for each in inputs:
        if each is not None and path.exists() and Path(each).exists() and path.samefile(each):
            raise CommandError(f"cannot write {path}: it is {each}, which is read; give another name")
    is_special = path.exists() and not path.is_file()
    needed = [path] * path.exists() + [path.resolve().parent] * (not is_special)
    if not all(os.access(each, os.W_OK) for each in needed):
        raise CommandError(f"cannot write {path}: permission denied")


def check_folder(path: Path, option: str, is_named: bool) -> None:
    """
    Raise an error for a folder for output that cannot be used, before any work is done for it.

    :param path: The folder, which need not exist.
    :param option: The option that names it.
    :param is_named: Whether the user has named it; otherwise it must be empty.
    :raises CommandError: If it can neither be written to nor made, or must be empty and is not.
    """
    place = next(place for place in (path, *path.absolute().parents) if place.exists())
    if not place.is_dir():
        raise CommandError(f"cannot make the folder {path}: {place} is a file")
    if not os.access(place, os.W_OK):
        raise CommandError(f"cannot write to the folder {place}: permission denied")
    if not is_named and (files := sorted(file.name for file in path.iterdir()) if path.is_dir() else []):
        raise CommandError(
            f"the folder {path} holds {listed(files)} already: name another one by {option}, or this one ({option} "
            f"{path}) to replace the results in it"
        )
