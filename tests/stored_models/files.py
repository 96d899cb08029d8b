"""Files of stored models: tensors and plain values, compressed."""

from __future__ import annotations

import io
import lzma
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .rows import Rows
from .zoo import Entry

FOLDER = Path(__file__).parent / "files"
# What a fit depends on, beside this package.
_LIBRARIES = ("torch", "gpytorch", "linear_operator", "numpy", "scipy", "scikit-learn", "lightgbm")


def path_of(name: str) -> Path:
    """Where the model of this name is kept."""
    return FOLDER / f"{name}.pt.xz"


def content_of(entry: Entry, written_by: str) -> dict[str, Any]:
    """The model, fitted to rows drawn now, and its numbers."""
    rows = entry.draw()
    model = entry.fitted(rows)
    with entry.context():
        numbers = entry.kind.numbers(model, rows.new)
    return {
        "rows": _copied(rows._asdict()),
        "state": entry.kind.state(model),
        "numbers": _copied(numbers),
        "written_by": written_by,
        "libraries": libraries(),
    }


def _copied(values: dict[str, Tensor]) -> dict[str, Tensor]:
    """Without what the tensors may be views of."""
    return {name: value.clone(memory_format=torch.contiguous_format) for name, value in values.items()}


def libraries() -> dict[str, str]:
    """Versions of the libraries that are installed."""
    return {name: version(name) for name in _LIBRARIES}


def write(name: str, content: dict[str, Any]) -> None:
    """Write a file that is not there yet."""
    buffer = io.BytesIO()
    torch.save(content, buffer)
    FOLDER.mkdir(exist_ok=True)
    with open(path_of(name), "xb") as file:
        file.write(lzma.compress(buffer.getvalue(), preset=9))


def read(name: str) -> dict[str, Any]:
    """What was written, its rows as :class:`Rows`; no code of the file is run."""
    content = torch.load(io.BytesIO(lzma.decompress(path_of(name).read_bytes())), weights_only=True)
    return content | {"rows": Rows(**content["rows"])}
