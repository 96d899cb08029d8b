"""Model files: a fitted regressor and the reader of its columns as tensors and plain values, and a format version."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, NamedTuple

from gpytorch_partition.command_line.errors import CommandError
from gpytorch_partition.command_line.new_rows import read_new_rows
from gpytorch_partition.command_line.outputs import cannot_write
from gpytorch_partition.command_line.training_data import Table
from gpytorch_partition.estimators import PartitionGPRegressor
from gpytorch_partition.files import DamagedFileError, FileFormat
from gpytorch_partition.tables import TableEncoder
from gpytorch_partition.tables.cells import NUMBERS

logger = logging.getLogger(__name__)

FORMAT = FileFormat("gpytorch_partition model", "model file", version=4, sealed_since=3)


class SavedModel(NamedTuple):
    """
    A fitted regressor, and what its columns were called and held.

    Use it to go on in Python with a model of the command line: :func:`load_model` returns it, :meth:`read` reads rows
    for its regressor.

    :param regressor: The regressor, as :class:`~gpytorch_partition.estimators.PartitionGPRegressor` describes it.
    :param reader: What its columns and the target held, and in which notation.
    :param columns: Names of its columns, in the order in which it takes them.
    :param target: Name of the column that it predicts.
    :param id: Name of the column that names rows; None if none was given.
    """

    regressor: PartitionGPRegressor
    reader: TableEncoder
    columns: list[str]
    target: str
    id: str | None = None

    def read(self, path: str | Path) -> Table:
        """
        Return the rows of a file as the regressor takes them: columns found by name, and read as those that it was
        fitted to, as the command `predict` does. What was taken for missing cells goes to the log (level INFO).

        :param path: A file, in which the target need not be.
        :raises CommandError: If the file cannot be read; or with all that is wrong in it.
        """
        rows = read_new_rows(Path(path), self.reader, self.columns)
        for note in rows.notes:
            logger.info("%s", note)
        return rows.table


def save_model(path: Path, model: SavedModel) -> None:
    """
    Write a model file: the training rows, and the state of the partitions and the model.

    :param path: The file, which is replaced if it exists, when the new one is whole.
    :param model: What to write.
    :raises CommandError: If it cannot be written; then what was there stays.
    :raises TypeError: If the kernel of the regressor came from a function.
    """
    content = {
        "reader": model.reader.to_state(),
        "columns": model.columns,
        "target": model.target,
        "id": model.id,
        "regressor": model.regressor.to_state(),
    }
    with cannot_write(path):
        FORMAT.save(path, content)


def load_model(path: str | Path) -> SavedModel:
    """
    Read a model file that the command `fit` wrote, without executing code from it.

    :param path: The file.
    :return: The model, on the CPU.
    :raises CommandError: If there is no such file, it is of another format or version, or it is damaged.
    """
    try:
        content = FORMAT.load(path)
        return _model(content)
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror or error}") from error
    except DamagedFileError as error:
        raise CommandError(str(error)) from error
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise CommandError(f"{path} is damaged: its content is incomplete or wrong ({_told(error)})") from error


def _told(error: Exception) -> str:
    """The first line of an error."""
    first = next(iter(str(error).splitlines()), "")
    return f"{first} is missing" if isinstance(error, KeyError) else first[:300]


def _model(content: dict[str, Any]) -> SavedModel:
    regressor, reader = (
        PartitionGPRegressor.from_state(content["regressor"]),
        TableEncoder.from_state(content["reader"]),
    )
    names, target = content["columns"], content["target"]
    if not isinstance(target, str) or not isinstance(content["id"], str | None) or not isinstance(names, list):
        raise TypeError("expected names of columns that are texts")
    if reader.kinds_.get(target) != NUMBERS or not {*names} <= {*reader.kinds_}:
        raise ValueError("expected a target of numbers, and columns that its reader knows")
    if len(set(names)) != len(names) or len(names) != regressor.n_features_in_:
        raise ValueError(f"expected different names of {regressor.n_features_in_} columns, got {len(names)}")
    return SavedModel(regressor, reader, names, target, content["id"])
