"""Errors that the user of a command can correct: one line on standard error and exit status 2; checks of paths."""

from __future__ import annotations

import os
from pathlib import Path


class CommandError(Exception):
    """An error of the user's input; the message says what is wrong, and in which file."""


def check_writable(path: Path) -> None:
    """
    Raise an error for a file that cannot be written, before any work is done for it.

    :param path: The file to write.
    :raises CommandError: If the folder is missing or not writable, or the path is a folder.
    """
    if path.is_dir():
        raise CommandError(f"cannot write {path}: it is a folder")
    if not path.parent.is_dir():
        raise CommandError(f"cannot write {path}: there is no folder {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise CommandError(f"cannot write {path}: permission denied")


def check_folder(path: Path) -> None:
    """
    Make a folder for output, unless it exists.

    :param path: The folder.
    :raises CommandError: If that is impossible, or nothing can be written there.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(f"cannot make the folder {path}: {error.strerror}") from error
    if not os.access(path, os.W_OK):
        raise CommandError(f"cannot write to the folder {path}: permission denied")
