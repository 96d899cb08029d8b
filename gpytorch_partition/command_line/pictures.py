"""Pictures that commands write."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gpytorch_partition.command_line.errors import cannot_write
from gpytorch_partition.files import replacing

INSTALL = 'pip install "gpytorch_partition[plot]"'


def has_matplotlib() -> bool:
    """Whether pictures can be drawn."""
    return find_spec("matplotlib") is not None


def save_figure(path: Path, figure: Any) -> None:
    """
    Write a picture, which replaces another when it is whole.

    :param path: A PNG file.
    :param figure: A matplotlib `Figure`.
    :raises CommandError: If it cannot be written; then what was there stays.
    """
    with cannot_write(path), replacing(path) as file:
        figure.savefig(file, format="png")
