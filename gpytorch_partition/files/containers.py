"""
Files of tensors and plain values that tell when they are damaged.

A file is what `torch.save` writes, a zip archive, whose comment is a digest of all bytes before it: so it is still read
by `torch.load`. The archive's own checksums cover the tensors only, and `torch.load` does not compare them.
"""

from __future__ import annotations

import hashlib
import os
import struct
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO

import torch
from torch import Tensor

from gpytorch_partition.files.replacement import replacing

_MARK = b"gpytorch_partition sha256 "
_DIGITS = 2 * hashlib.sha256().digest_size
_SEAL = len(_MARK) + _DIGITS  # bytes of the comment
_PLAIN = (str, int, float, bool, type(None))
_BLOCK = 2**20  # bytes that are read at a time
_MOST_NESTED = 50  # containers within one another
# How pickles of protocols 2 to 5 begin, and those that joblib compresses by zlib.
_PICKLES = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"x\x01", b"x\x5e", b"x\x9c", b"x\xda")


class DamagedFileError(ValueError):
    """
    A file is not of the format that it should be, or its content was changed after it was written.

    One uses it in an `except`, where a damaged file is to be told from one that is not there.
    """


@dataclass(frozen=True)
class FileFormat:
    """
    A kind of files, and its versions.

    Use it to save states of your own as this package saves its models: tensors and plain values, with a digest.

    Writing takes the size of the file in time, reading too, for the digest. No code in a file is run.

    :param name: What the files call their format.
    :param what: What errors call such a file.
    :param version: The version that is written; it and all before it are read.
    :param sealed_since: The first version with a digest: of earlier ones, the archive's checksums are compared.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> numbers = FileFormat("numbers", "file of numbers", version=1)
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder) / "numbers.pt"
        ...     numbers.save(path, {"values": torch.arange(3)})
        ...     print(numbers.load(path)["values"])
        ...     damaged = bytearray(path.read_bytes())
        ...     damaged[200] ^= 1
        ...     _ = path.write_bytes(damaged)
        ...     try:
        ...         numbers.load(path)
        ...     except DamagedFileError as error:
        ...         print(str(error).removeprefix(str(path)))
        tensor([0, 1, 2])
         is damaged: it is not as it was written
    """

    name: str
    what: str
    version: int
    sealed_since: int = 1

    def save(self, path: str | os.PathLike[str], content: dict[str, Any]) -> None:
        """
        Write a file, which replaces another when it is whole.

        :param path: The file.
        :param content: Tensors and plain values by name.
        :raises OSError: If it cannot be written; then what was there stays.
        """
        with replacing(path, "w+b") as file:
            torch.save({"format": self.name, "format_version": self.version, **content}, file)
            _seal(file)

    def load(self, path: str | os.PathLike[str]) -> dict[str, Any]:
        """
        What was written, with tensors on the CPU, and `"format_version"`.

        :param path: The file.
        :raises DamagedFileError: If it is of another format, as a pickle, or a later version, or damaged.
        :raises OSError: If it cannot be read.
        """
        with open(path, "rb") as file:
            self._refuse_pickle(path, file)
            has_digest = _is_sealed(Path(path), file)
            content = self._read(Path(path), file)
        if not isinstance(content, dict) or content.get("format") != self.name:
            raise self._other(path)
        version = content.get("format_version")
        if type(version) is not int or not 1 <= version <= self.version:
            raise DamagedFileError(
                f"{path} is a {self.what} of version {str(version):.50}, and this gpytorch_partition reads versions "
                f"1 to {self.version}: use the release that wrote it, or fit again"
            )
        if version >= self.sealed_since and not has_digest:
            raise _damaged(path, "its digest is missing")
        return content

    def _read(self, path: Path, file: BinaryIO) -> Any:
        """The content of an archive whose checksums are right, without running code from it."""
        try:
            _check_archive(path, file)
            file.seek(0)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of an archive of another kind: the error says it
                content = torch.load(file, map_location="cpu", weights_only=True)
        except (DamagedFileError, OSError):
            raise
        except Exception as error:  # what a damaged archive or pickle may raise is documented nowhere
            raise self._other(path) from error
        _check_plain(path, content)
        return content

    def _refuse_pickle(self, path: Any, file: BinaryIO) -> None:
        """Refuse what pickle and joblib write, which archives do not begin as."""
        if file.read(2) in _PICKLES:
            raise DamagedFileError(
                f"{path} is not a {self.what} of gpytorch_partition, which save writes, but looks like a pickle, as "
                "pickle.dump and joblib.dump write it: read it by pickle.load or joblib.load if you trust whoever "
                "wrote it, as it may run code"
            )

    def _other(self, path: Any) -> DamagedFileError:
        return DamagedFileError(f"{path} is not a {self.what} of gpytorch_partition, or it is damaged")


def _damaged(path: Any, reason: str) -> DamagedFileError:
    return DamagedFileError(f"{path} is damaged: {reason}")


def _seal(file: IO[bytes]) -> None:
    """Write the digest as the comment of the archive."""
    file.seek(-2, os.SEEK_END)  # the length of the comment, 0 so far
    file.write(struct.pack("<H", _SEAL) + _MARK)
    digest = _digest(file, file.seek(0, os.SEEK_END))
    file.write(digest)


def _is_sealed(path: Path, file: BinaryIO) -> bool:
    """Whether a file has a digest, which is then compared."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _SEAL))
    comment = file.read()
    if not comment.startswith(_MARK):
        return False
    if _digest(file, size - _DIGITS) != comment[len(_MARK) :]:
        raise _damaged(path, "it is not as it was written")
    return True


def _digest(file: IO[bytes], size: int) -> bytes:
    """The digest of so many bytes from the beginning, in digits; the file is then read up to there."""
    digest = hashlib.sha256()
    file.seek(0)
    while size and (block := file.read(min(size, _BLOCK))):
        digest.update(block)
        size -= len(block)
    return digest.hexdigest().encode()


def _check_archive(path: Path, file: BinaryIO) -> None:
    """Compare the checksums of an archive; it holds no more than its bytes, as `torch.save` does not compress."""
    size = file.seek(0, os.SEEK_END)
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        is_stored = all(member.compress_type == zipfile.ZIP_STORED for member in members)
        if not is_stored or sum(member.file_size for member in members) > size:
            raise _damaged(path, "its archive is not one that torch.save writes")
        if (name := archive.testzip()) is not None:
            raise _damaged(path, f"the checksum of {name!r:.50} is wrong")


def _check_plain(path: Path, content: object) -> None:
    """Refuse all but tensors that hold what they say and plain values, in containers without cycles."""
    done: set[int] = set()

    def visit(value: object, depth: int) -> None:
        if isinstance(value, Tensor):
            if not _is_dense(value):
                raise _damaged(path, "a tensor in it is larger than what it holds, or of an unknown kind")
        elif isinstance(value, dict | list | tuple):
            if depth > _MOST_NESTED:
                raise _damaged(path, "its content is nested without end")
            if id(value) not in done:
                for part in [*value, *value.values()] if isinstance(value, dict) else value:
                    visit(part, depth + 1)
                done.add(id(value))  # last: what is within itself is found by its depth
        elif type(value) not in _PLAIN:
            raise _damaged(path, f"it holds a {type(value).__name__}")

    visit(content, 0)


def _is_dense(tensor: Tensor) -> bool:
    if type(tensor) is not Tensor or tensor.layout != torch.strided or tensor.device.type != "cpu":
        return False
    if tensor.is_quantized or tensor.is_nested or tensor.requires_grad:
        return False
    return tensor.numel() * tensor.element_size() <= tensor.untyped_storage().nbytes()
