"""Model files of the command line, with a fitted regressor and the reader of its columns."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import NamedTuple

from gpytorch_partition import files
from gpytorch_partition.command_line.errors import CommandError
from gpytorch_partition.command_line.new_rows import read_new_rows
from gpytorch_partition.command_line.outputs import cannot_write
from gpytorch_partition.command_line.training_data import Table
from gpytorch_partition.estimators import PartitionGPRegressor
from gpytorch_partition.tables import TableEncoder

logger, _KIND = logging.getLogger(__name__), "model file"


class SavedModel(NamedTuple):
    """
    A fitted regressor, with the names and the reader of its columns.

    Use it for a model of the command line in Python: :func:`load_model` returns it, :meth:`read` reads rows.

    :param regressor: The :class:`~gpytorch_partition.estimators.PartitionGPRegressor`.
    :param reader: Kinds and notation of its columns and the target.
    :param columns: Names of its columns, in its order.
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
        Return the rows of a file as the regressor takes them, as the command `predict` does.

        Columns are found by name and read as in the fit. The log (level INFO) reports cells taken for missing.

        :param path: A file, with or without the target.
        :raises CommandError: If the file cannot be read; or with all its problems.
        """
        rows = read_new_rows(Path(path), self.reader, self.columns)
        for note in rows.notes:
            logger.info("%s", note)
        return rows.table


def save_model(path: Path, model: SavedModel) -> None:
    """
    Write a model file, which replaces an existing one once it is complete.

    :param path: The file.
    :param model: The model.
    :raises CommandError: If it cannot be written; an existing file then stays.
    :raises TypeError: If the kernel of the regressor came from a function.
    """
    content = {**model._asdict(), "regressor": model.regressor.to_state(), "reader": model.reader.to_state()}
    content["regressor"]["target_names"] = content["regressor"]["target_names"] or [model.target]
    with cannot_write(path):
        files.save(path, _KIND, content)


def load_model(path: str | Path) -> SavedModel:
    """
    Return the model that the command `fit` wrote, on the CPU, without running code of the file.

    :param path: The file.
    :raises CommandError: If there is no such file, it is of another kind or format, or it is damaged.
    """
    try:
        content = files.load(path, _KIND)
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror or error}") from error
    except files.DamagedFileError as error:
        raise CommandError(str(error)) from error
    regressor, reader = (
        PartitionGPRegressor.from_state(content["regressor"]),
        TableEncoder.from_state(content["reader"]),
    )
    return SavedModel(**{**content, "regressor": regressor, "reader": reader})
