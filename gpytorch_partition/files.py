"""Files that are written whole or not at all, and files of tensors and plain values that detect damage."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import torch

__all__ = ["DamagedFileError", "load", "reading_state", "replacing", "save"]
_FORMAT = 1
_MARK = "gpytorch_partition format {} sha256 "
_DIGITS = 64  # of the digest
_TENSOR = "tensor number"  # key of the dictionary that stands for a tensor in JSON


@contextmanager
def replacing(path: str | os.PathLike[str], mode: str = "wb", **options: Any) -> Iterator[IO[Any]]:
    """
    Open a file to write, which replaces another at the end of the block, or not at all after an error.

    Use it for output that nobody must find incomplete. The data reach the disk in a hidden file in the same folder,
    which is then renamed; a process that is killed leaves the hidden file. Links and access rights stay. Paths that are
    no files, such as a pipe, are written directly.

    :param path: The file.
    :param mode: As for :func:`open`, as are `options`. (Default: `"wb"`.)
    :raises OSError: If it cannot be written, for example because its folder does not exist; nothing has changed then.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     with replacing(f"{folder}/numbers.txt", "w") as file:
        ...         _ = file.write("1")
        ...     os.listdir(folder)
        ['numbers.txt']
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


class DamagedFileError(ValueError):
    """
    Report a file that is damaged, or of another kind.

    Use it in an `except`, to distinguish such a file from one that does not exist.
    """


def save(path: str | os.PathLike[str], kind: str, content: dict[str, Any]) -> None:
    """
    Write tensors and plain values, such as a state of your own, to a file, which replaces another once it is complete.

    :param path: The file.
    :param kind: Name of such files in errors; :func:`load` expects the same.
    :param content: Tensors and plain values, in lists and in dictionaries with texts as keys; tuples become lists.
    :raises OSError: If it cannot be written; an existing file then stays.
    :raises TypeError: If the content has other values.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     save(f"{folder}/numbers.gp", "file of numbers", {"values": torch.arange(3)})
        ...     load(f"{folder}/numbers.gp", "file of numbers")
        {'values': tensor([0, 1, 2])}
    """
    tensors: list[torch.Tensor] = []

    def numbered(value: Any) -> dict[str, int]:
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"expected tensors and plain values to save, got {value!r:.100}: convert it first")
        tensors.append(value.detach())
        return {_TENSOR: len(tensors) - 1}

    description = json.dumps({"kind": kind, "content": content}, default=numbered)
    with replacing(path, "w+b") as file:
        torch.save((description, tensors), file)
        _seal(file)


def load(path: str | os.PathLike[str], kind: str) -> dict[str, Any]:
    """
    Return the content that :func:`save` wrote, with tensors on the CPU, without running code of the file.

    :param path: The file.
    :param kind: Kind of the file, as given to :func:`save`, which has an example.
    :raises DamagedFileError: If the file is of another kind or format, or damaged.
    :raises OSError: If it cannot be read.
    """
    with open(path, "rb") as file:
        _check_seal(path, file, kind)
        file.seek(0)
        description, tensors = torch.load(file, map_location="cpu", weights_only=True)
    read = json.loads(description, object_hook=lambda part: tensors[part[_TENSOR]] if _TENSOR in part else part)
    if read["kind"] != kind:
        raise DamagedFileError(f"{path} is not a {kind}, but a {read['kind']}: load it by the class that saved it")
    return read["content"]


@contextmanager
def reading_state(kind: str) -> Iterator[None]:
    """
    Turn errors of code that reads a state of wrong values into a :class:`DamagedFileError`.

    :param kind: Kind of the state, as given to :func:`save`.
    """
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError) as error:
        told = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise DamagedFileError(f"expected the state of a {kind}, got wrong values ({told}): fit again") from error


def _seal(file: IO[bytes]) -> None:
    mark = _MARK.format(_FORMAT).encode()
    file.seek(-2, os.SEEK_END)  # the length of the comment, 0 so far
    file.write((len(mark) + _DIGITS).to_bytes(2, "little") + mark)
    file.write(_digest(file, file.tell()))


def _check_seal(path: Any, file: IO[bytes], kind: str) -> None:
    start = max(0, file.seek(0, os.SEEK_END) - _DIGITS - 2 * len(_MARK))
    file.seek(start)
    seal = re.search(_MARK.format(r"(\d+)").encode() + rb"([0-9a-f]{%d})\Z" % _DIGITS, file.read())
    if seal is None:
        raise DamagedFileError(
            f"{path} is not a {kind} of gpytorch_partition, or it is damaged: pickle.load and joblib.load read pickles"
        )
    if _digest(file, start + seal.start(2)) != seal[2]:
        raise DamagedFileError(f"{path} is damaged, its content is not what was written: restore a copy, or fit again")
    if int(seal[1]) != _FORMAT:
        raise DamagedFileError(f"{path} has format {int(seal[1])}, and this version reads format {_FORMAT}: fit again")


def _digest(file: IO[bytes], size: int) -> bytes:
    """Hexadecimal digest of the first `size` bytes; the file is then read up to there."""
    digest = hashlib.sha256()
    file.seek(0)
    while size and (block := file.read(min(size, 2**20))):
        digest.update(block)
        size -= len(block)
    return digest.hexdigest().encode()
