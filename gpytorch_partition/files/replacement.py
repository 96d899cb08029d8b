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
    A file to write, which takes the place of another at the end of the block: whole, or after an error not at all.

    What is written goes to a file beside it, hidden and with a name of its own, which reaches the disk before it is
    renamed. So at any time, after a full disk, an interruption or a power cut too, there is either what was there or
    the new file. After an error the file beside it is removed; a process that is killed leaves it. A link stays one,
    and the file that it leads to is replaced; access rights stay. What is no file, such as a pipe, is written directly.

    :param path: The file.
    :param mode: As for :func:`open`. (Default: `"wb"`.)
    :param options: As for :func:`open`.
    :raises OSError: If it cannot be written, as where its folder does not exist; then all is as it was.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder) / "numbers.txt"
        ...     with replacing(path, "w") as file:
        ...         _ = file.write("1")
        ...     try:
        ...         with replacing(path, "w") as file:
        ...             _ = file.write("2")
        ...             raise KeyboardInterrupt
        ...     except KeyboardInterrupt:
        ...         print(path.read_text(), len(os.listdir(folder)))
        1 1
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
    _sync_folder(target.parent)


def _opened(beside: Path, path: str | os.PathLike[str], mode: str, **options: Any) -> IO[Any]:
    """A new file beside one that was asked for, and errors about the latter."""
    try:
        return open(beside, mode, **options)
    except OSError as error:
        error.filename = os.fspath(path)
        if isinstance(error, FileNotFoundError):
            error.strerror = f"the folder {beside.parent} does not exist: make it, or give another path"
        raise


def _sync_folder(folder: Path) -> None:
    """Have the new name reach the disk, where folders can be opened."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
