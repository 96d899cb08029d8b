"""Files that replace others only when they are whole."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any


@contextmanager
def replacing(path: str | os.PathLike[str], mode: str = "wb", **options: Any) -> Iterator[IO[Any]]:
    """
    Open a file to write, which takes the place of another at the end of the block: whole, or after an error not at all.

    Use it for output of which nobody must find a part. It reaches the disk in a hidden file beside it before that is
    renamed; a process that is killed leaves the hidden file. Links stay links, and access rights stay. What is no file,
    such as a pipe, is written directly.

    :param path: The file.
    :param mode: As for :func:`open`. (Default: `"wb"`.)
    :param options: As for :func:`open`.
    :raises OSError: If it cannot be written, as where its folder does not exist; then all is as it was.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     with replacing(f"{folder}/numbers.txt", "w") as file:
        ...         _ = file.write("1")
        ...     with suppress(KeyboardInterrupt), replacing(f"{folder}/numbers.txt", "w") as file:
        ...         _ = file.write("2")
        ...         raise KeyboardInterrupt
        ...     print(Path(folder, "numbers.txt").read_text(), os.listdir(folder))
        1 ['numbers.txt']
    """
    target = Path(path).resolve()
    if target.exists() and not target.is_file():
        with open(target, mode, **options) as file:
            yield file
        return
    beside = target.parent / f".unfinished-{secrets.token_hex(8)}"
    try:
        with _opened(beside, path, "x" + mode.replace("w", ""), **options) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            shutil.copymode(target, beside)
        os.replace(beside, target)
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise


def _opened(beside: Path, path: str | os.PathLike[str], mode: str, **options: Any) -> IO[Any]:
    """A new file beside one that was asked for, and errors about the latter."""
    try:
        return open(beside, mode, **options)
    except OSError as error:
        error.filename = os.fspath(path)
        if isinstance(error, FileNotFoundError):
            error.strerror = f"the folder {beside.parent} does not exist: make it, or give another path"
        raise
