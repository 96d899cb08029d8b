"""Errors that the user of a command can correct, with exit status 2, and notes on standard error."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

_MOST_LISTED = 20
_LONGEST = 200  # characters of a text that is listed


class CommandError(Exception):
    """An error of the user's input, with its file and reason as the message."""


def raise_problems(path: Path, problems: Sequence[str]) -> None:
    """
    Raise one error for all problems of a file, if there are any.

    :param path: The file.
    :param problems: Problems with their remedies.
    :raises CommandError: If there is a problem: a single one on one line, several as a list.
    """
    if len(problems) == 1:
        raise CommandError(f"{path}: {problems[0]}")
    if problems:
        raise CommandError("\n- ".join([f"{path} has {len(problems):,} problems:", *problems]))


def listed(things: Iterable[object]) -> str:
    """
    Return at most 20 things as text, separated by commas, and the number of others.

    Example:
        >>> listed(["a", "b"]), listed(range(30))[-14:]
        ("'a', 'b'", '19 and 10 more')
    """
    things = list(things)
    shown = ", ".join(f"{thing!r:.{_LONGEST}}" for thing in things[:_MOST_LISTED])
    return shown + (f" and {len(things) - _MOST_LISTED:,} more" if len(things) > _MOST_LISTED else "")


def say(notes: Iterable[str], quiet: bool) -> None:
    """
    Print notes on standard error, a line each.

    :param notes: The notes.
    :param quiet: Whether to print nothing.
    """
    for note in () if quiet else notes:
        print(f"gpytorch_partition: note: {note}", file=sys.stderr)
