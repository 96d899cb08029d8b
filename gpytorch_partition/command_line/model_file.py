"""Model files of the command line: a fitted regressor, and what its columns were called and held."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, NamedTuple

from gpytorch_partition import files
from gpytorch_partition.command_line.columns import NUMBER, Kind
from gpytorch_partition.command_line.errors import CommandError, cannot_write
from gpytorch_partition.command_line.new_rows import NewRows, read_new_rows
from gpytorch_partition.estimators import PartitionGPRegressor

logger, _KIND = logging.getLogger(__name__), "model file"


class SavedModel(NamedTuple):
    """
    A fitted regressor, and what its columns were called and held.

    Use it to go on in Python with a model of the command line: :func:`load_model` returns it, :meth:`read` reads rows.

    :param regressor: The :class:`~gpytorch_partition.estimators.PartitionGPRegressor`.
    :param kinds: What its columns held, by name, in the order in which it takes them.
    :param target: Name of the column that it predicts.
    :param id: Name of the column that names rows; None if none was given.
    :param target_kind: How the target was written, to be read again where its predictions are judged.
    """

    regressor: PartitionGPRegressor
    kinds: dict[str, Kind]
    target: str
    id: str | None = None
    target_kind: Kind = Kind(NUMBER)

    @property
    def columns(self) -> list[str]:
        """Names of its columns."""
        return list(self.kinds)

    @property
    def levels(self) -> dict[str, list[str]]:
        """The categories that were seen, by column."""
        encoder: Any = self.regressor.encoder_
        names = encoder.get_feature_names_out()
        return {names[place]: [str(level) for level in levels] for place, levels in encoder.categories_.items()}

    def read(self, path: str | Path) -> Any:
        """
        Return the columns of a file by name, as `predict` reads them; how goes to the log (level INFO).

        :param path: A CSV or parquet file, in which the target need not be.
        :raises CommandError: If the file cannot be read; or with all that is wrong in it.
        """
        rows = read_new_rows(Path(path), self.kinds, None, is_required=False)
        for note in rows.notes:
            logger.info("%s", note)
        return self.as_fitted(rows)

    def as_fitted(self, rows: NewRows) -> Any:
        """Return what was read of a file as the regressor takes it."""
        return rows.table


def save_model(path: Path, model: SavedModel) -> None:
    """
    Write a model file, which replaces another when it is whole.

    :param path: The file.
    :param model: What to write.
    :raises CommandError: If it cannot be written; then what was there stays.
    :raises TypeError: If the kernel of the regressor came from a function.
    """
    kinds, state = [[name, *kind] for name, kind in model.kinds.items()], model.regressor.to_state()
    state["target_names"] = state["target_names"] or [model.target]
    with cannot_write(path):
        files.save(path, _KIND, {**model._asdict(), "regressor": state, "kinds": kinds})


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
    kinds = {name: Kind(*kind) for name, *kind in content["kinds"]}
    regressor, target_kind = PartitionGPRegressor.from_state(content["regressor"]), Kind(*content["target_kind"])
    return SavedModel(**{**content, "regressor": regressor, "kinds": kinds, "target_kind": target_kind})
