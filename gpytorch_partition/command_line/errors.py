"""Errors that the user of a command can mend: one line on standard error and exit status 2."""

from __future__ import annotations

import os
from pathlib import Path


class CommandError(Exception):
    """What is wrong, and with which file."""


def check_writable(path: Path) -> None:
    """
    Refuse a place where no file can be written, before any work is done for it.

    :param path: The file to write.
    :raises CommandError: If the folder is missing or closed, or the path is a folder.
    """
    if path.is_dir():
        raise CommandError(f"cannot write {path}: it is a folder")
    if not path.parent.is_dir():
        raise CommandError(f"cannot write {path}: there is no folder {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise CommandError(f"cannot write {path}: permission denied")


def check_folder(path: Path) -> None:
    """
    Make a folder for output, unless it is there.

    :param path: The folder.
    :raises CommandError: If that is impossible, or nothing can be written there.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(f"cannot make the folder {path}: {error.strerror}") from error
    if not os.access(path, os.W_OK):
        raise CommandError(f"cannot write to the folder {path}: permission denied")
