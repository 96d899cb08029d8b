"""Files as text: decompressed, and decoded from UTF-8, UTF-16 or Latin-1."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import re
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from gpytorch_partition.command_line.errors import CommandError

_UTF16 = ("utf-16-le", "utf-16-be")
_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",  # before UTF-16, whose mark it begins with
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_SAMPLE = 20_000  # bytes by which an encoding without a mark is recognized
_LEAST_ZEROS = 0.3  # share of zero bytes in every second place of UTF-16 that is mostly ASCII
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x19\x1b-\x1f]")
_SAVE_AS_CSV = "save the sheet as a CSV file (File, Save as) and give that"


class Text(NamedTuple):
    """The text of a file, and what there is to say about how it was read."""

    text: str
    notes: list[str]


def read_text(path: Path, content: bytes) -> Text:
    """
    The text of a file, which may be compressed (gz, bz2, xz, or a zip of one file).

    Encodings are recognized by their byte order mark; without one it is UTF-16 where every second byte is zero, else
    UTF-8, and what is not UTF-8 is read as Windows-1252 (or Latin-1), which is noted.

    :param path: The file, for messages.
    :param content: What is in it.
    :raises CommandError: If it is damaged, a spreadsheet or otherwise no text.
    """
    content = _decompressed(path, content)
    encoding = _encoding(content)
    try:
        text = Text(content.decode(encoding), [])
    except UnicodeDecodeError as error:
        if encoding != "utf-8":
            raise CommandError(f"{path} is damaged: {error.reason} (as {encoding})") from error
        text = _western(content)
    if _CONTROL.search(text.text[:_SAMPLE]) or "\x00" in text.text:
        raise CommandError(f"{path} is not a text file: give a CSV file (text, a row per line) or a parquet file")
    return text


def read_bytes(path: Path) -> bytes:
    """
    The content of a file.

    :param path: The file.
    :raises CommandError: If it cannot be read.
    """
    if path.is_dir():
        raise CommandError(f"cannot read {path}: it is a folder; give one file of it")
    try:
        return path.read_bytes()
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}") from error


def _decompressed(path: Path, content: bytes) -> bytes:
    if content.startswith(b"\xd0\xcf\x11\xe0"):
        raise CommandError(f"{path} is an Excel workbook: {_SAVE_AS_CSV}")
    for magic, decompress in _DECOMPRESSORS.items():
        if content.startswith(magic):
            try:
                return decompress(content)
            except (OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, RuntimeError) as error:
                raise CommandError(f"{path} is damaged: {error}") from error
            except ValueError as error:
                raise CommandError(f"{path} {error}") from error
    return content


def _unzipped(content: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/") and not name.startswith("__MACOSX")]
        if any(name.startswith("xl/") for name in names):
            raise ValueError(f"is an Excel workbook: {_SAVE_AS_CSV}")
        if len(names) != 1:
            raise ValueError(f"is a zip archive of {len(names)} files: unpack it and give one of them")
        return archive.read(names[0])


_DECOMPRESSORS: dict[bytes, Callable[[bytes], bytes]] = {
    b"\x1f\x8b": gzip.decompress,
    b"BZh": bz2.decompress,
    b"\xfd7zXZ\x00": lzma.decompress,
    b"PK\x03\x04": _unzipped,
}


def _encoding(content: bytes) -> str:
    for mark, encoding in _MARKS.items():
        if content.startswith(mark):
            return encoding
    sample = content[:_SAMPLE]
    for encoding, zeros in zip(_UTF16, (sample[1::2], sample[::2])):
        others = sample[::2] if encoding == _UTF16[0] else sample[1::2]
        if zeros.count(0) > _LEAST_ZEROS * len(zeros) and not others.count(0):
            return encoding
    return "utf-8"


def _western(content: bytes) -> Text:
    """The only encodings of one byte per character that no text can be told from: most often the right ones."""
    try:
        return Text(content.decode("cp1252"), ["it is not UTF-8: read as Windows-1252 (Latin-1)"])
    except UnicodeDecodeError:
        return Text(content.decode("latin-1"), ["it is not UTF-8: read as Latin-1"])
