"""Errors that the user of a command can correct: a message on standard error and exit status 2; checks of paths."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_MOST_LISTED = 20
_LONGEST = 200  # characters of a text that is listed
_FEW_LISTED = 5


class CommandError(Exception):
    """An error of the user's input; the message says what is wrong, and in which file."""


def raise_problems(path: Path, problems: Sequence[str]) -> None:
    """
    Raise one error for all problems of a file, if there are any.

    :param path: The file.
    :param problems: What is wrong, and what to do about it.
    :raises CommandError: If there is a problem; a single one on one line, more as a list of at most 20.
    """
    if len(problems) == 1:
        raise CommandError(f"{path}: {problems[0]}")
    if problems:
        lines = [f"{path} has {len(problems):,} problems:", *problems[:_MOST_LISTED]]
        if (more := len(problems) - _MOST_LISTED) > 0:
            lines.append(f"and {more:,} more")
        raise CommandError("\n- ".join(lines))


def listed(things: Iterable[object]) -> str:
    """
    At most 20 things, separated by commas, and how many more there are.

    Example:
        >>> listed(["a", "b"]), listed(range(30))[-14:]
        ("'a', 'b'", '19 and 10 more')
    """
    things = list(things)
    shown = ", ".join(
        f"{thing:,}" if isinstance(thing, int) else _shortened(repr(thing)) for thing in things[:_MOST_LISTED]
    )
    more = len(things) - _MOST_LISTED
    return shown + (f" and {more:,} more" if more > 0 else "")


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


@contextmanager
def cannot_write(path: Path) -> Iterator[None]:
    """
    What goes wrong while a file is written, as an error of the user's.

    :param path: The file.
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
    :param inputs: Files that are read, or None: none of them is written.
    :raises CommandError: If the folder is missing or not writable, or the path is a folder, or one of the inputs, by
        another name too.
    """
    if path.is_dir():
        raise CommandError(f"cannot write {path}: it is a folder")
    if not path.parent.is_dir():
        raise CommandError(f"cannot write {path}: there is no folder {path.parent}")
    for each in inputs:
        if each is not None and path.exists() and Path(each).exists() and path.samefile(each):
            raise CommandError(f"cannot write {path}: it is {each}, which is read; give another name")
    is_special = path.exists() and not path.is_file()
    if not os.access(path if is_special else path.resolve().parent, os.W_OK) or (
        path.exists() and not os.access(path, os.W_OK)
    ):
        raise CommandError(f"cannot write {path}: permission denied")


def check_empty(path: Path, option: str) -> None:
    """
    Raise an error for a folder that holds something already, which a user has not named.

    :param path: The folder, which need not be there.
    :param option: The option by which it can be named.
    :raises CommandError: If it is there and not empty.
    """
    files = sorted(file.name for file in path.iterdir()) if path.is_dir() else []
    if files:
        more = ", ..." if len(files) > _FEW_LISTED else ""
        raise CommandError(
            f"the folder {path} holds {listed(files[:_FEW_LISTED])}{more} already: name another one by {option}, or "
            f"this one ({option} {path}) to replace the results in it"
        )


def check_folder(path: Path) -> None:
    """
    Raise an error for a folder for output that can neither be written to nor made, before any work is done for it.

    :param path: The folder.
    :raises CommandError: If that is impossible, or nothing can be written there.
    """
    place = next(place for place in (path, *path.absolute().parents) if place.exists())
    if not place.is_dir():
        raise CommandError(f"cannot make the folder {path}: {place} is a file")
    if not os.access(place, os.W_OK):
        raise CommandError(f"cannot write to the folder {place}: permission denied")
