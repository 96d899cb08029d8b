"""Errors that the user of a command can correct: a message on standard error and exit status 2; and notes there."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

_MOST_LISTED = 20
_LONGEST = 200  # characters of a text that is listed


class CommandError(Exception):
    """An error of the user's input; the message says what is wrong, and in which file."""


def raise_problems(path: Path, problems: Sequence[str]) -> None:
    """
    Raise one error for all problems of a file, if there are any.

    :param path: The file.
    :param problems: What is wrong, and what to do about it.
    :raises CommandError: If there is a problem; a single one on one line, more as a list.
    """
    if len(problems) == 1:
        raise CommandError(f"{path}: {problems[0]}")
    if problems:
        raise CommandError("\n- ".join([f"{path} has {len(problems):,} problems:", *problems]))


def listed(things: Iterable[object]) -> str:
    """
    Return at most 20 things, separated by commas, and how many more there are.

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

    :param notes: What was read how, and what was left out.
    :param quiet: Print nothing.
    """
    for note in () if quiet else notes:
        print(f"gpytorch_partition: note: {note}", file=sys.stderr)
