"""Model files: a fitted regressor as tensors and plain values, a format version, and what its columns are."""

from __future__ import annotations

import logging
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, NamedTuple
from zipfile import is_zipfile

import torch

from gpytorch_partition.command_line.columns import NUMBER, Kind
from gpytorch_partition.command_line.errors import CommandError
from gpytorch_partition.command_line.new_rows import matrix_of, read_new_rows
from gpytorch_partition.estimators import PartitionGPRegressor

logger = logging.getLogger(__name__)

FORMAT = "gpytorch_partition model"
VERSION = 2  # 1 had columns of numbers only

_NOT_A_MODEL_FILE = "{} is not a model file of gpytorch_partition, or it is damaged"


class SavedModel(NamedTuple):
    """
    A fitted regressor, and what its columns were called and held.

    :param regressor: The regressor, as :class:`~gpytorch_partition.estimators.PartitionGPRegressor` describes it.
    :param kinds: What its columns held, by name, in the order in which it takes them.
    :param target: Name of the column that it predicts.
    :param id: Name of the column that names rows; None if none was given.
    """

    regressor: PartitionGPRegressor
    kinds: dict[str, Kind]  # of its columns
    target: str
    id: str | None = None  # the column that names rows

    @property
    def columns(self) -> list[str]:
        """Names of its columns."""
        return list(self.kinds)

    def read(self, path: str | Path) -> Any:
        """
        The rows of a file as the regressor takes them: columns found by name, and read as those that it was fitted to,
        as the command `predict` does. What was read how goes to the log (level INFO).

        :param path: A CSV or parquet file, in which the target need not be.
        :return: Columns by name (a matrix, for models that the first release wrote).
        :raises CommandError: If the file cannot be read; or with all that is wrong in it.
        """
        rows = read_new_rows(Path(path), self.kinds, None, is_required=False)
        for note in rows.notes:
            logger.info("%s", note)
        return rows.table if self.regressor.encoder_ is not None else matrix_of(rows.table, rows.num_rows)


def save_model(path: Path, model: SavedModel) -> None:
    """
    Write a model file: the training rows, and the state of the partitions and the model.

    :param path: The file, which is replaced if it exists.
    :param model: What to write.
    :raises TypeError: If the kernel of the regressor came from a function.
    """
    content = {
        "format": FORMAT,
        "format_version": VERSION,
        "columns": model.columns,
        "kinds": [tuple(kind) for kind in model.kinds.values()],
        "target": model.target,
        "id": model.id,
        "regressor": model.regressor.to_state(),
    }
    torch.save(content, path)


def load_model(path: str | Path) -> SavedModel:
    """
    Read a model file that the command `fit` wrote, without executing code from it.

    :param path: The file.
    :return: The model, on the CPU.
    :raises CommandError: If there is no such file, it is of another format or version, or it is damaged.
    """
    content = _content(path)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CommandError(_NOT_A_MODEL_FILE.format(path))
    version = content.get("format_version")
    if not isinstance(version, int) or not 1 <= version <= VERSION:
        raise CommandError(
            f"{path} is a model file of version {version}, and this gpytorch_partition reads versions 1 to {VERSION}: "
            "use the release that wrote it, or fit again"
        )
    try:
        return _model(content if version > 1 else _as_version_2(content))
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise CommandError(f"{path} is damaged: its content is incomplete") from error


def _as_version_2(content: dict[str, Any]) -> dict[str, Any]:
    return content | {"kinds": [(NUMBER, "")] * len(content["columns"]), "id": None}


def _model(content: dict[str, Any]) -> SavedModel:
    kinds = {name: Kind(*kind) for name, kind in zip(content["columns"], content["kinds"], strict=True)}
    regressor = PartitionGPRegressor.from_state(content["regressor"])
    return SavedModel(regressor, kinds, content["target"], content["id"])


def _content(path: str | Path) -> object:
    try:
        with open(path, "rb") as file:
            if is_zipfile(file):  # what torch.save writes
                file.seek(0)
                return torch.load(file, map_location="cpu", weights_only=True)
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror or error}") from error
    except (UnpicklingError, RuntimeError, EOFError, ValueError, LookupError) as error:
        raise CommandError(_NOT_A_MODEL_FILE.format(path)) from error
    raise CommandError(_NOT_A_MODEL_FILE.format(path))
