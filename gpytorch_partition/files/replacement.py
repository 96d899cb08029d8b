"""Files that replace others only once they are complete."""

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
    Open a file to write, which replaces another at the end of the block, or not at all after an error.

    Use it for output that nobody must find incomplete. The data reach the disk in a hidden file in the same folder,
    which is then renamed; a process that is killed leaves the hidden file. Links and access rights stay. Paths that are
    no files, such as a pipe, are written directly.

    :param path: The file.
    :param mode: As for :func:`open`. (Default: `"wb"`.)
    :param options: As for :func:`open`.
    :raises OSError: If it cannot be written, for example because its folder does not exist; nothing has changed then.

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
    """A new hidden file; errors name the path that was asked for."""
    try:
        return open(beside, mode, **options)
    except OSError as error:
        error.filename = os.fspath(path)
        if isinstance(error, FileNotFoundError):
            error.strerror = f"the folder {beside.parent} does not exist: make it, or give another path"
        raise
