"""Model files: a fitted regressor as tensors and plain values, a format version, and what its columns are."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, NamedTuple, cast

from gpytorch_partition.command_line.columns import NUMBER, Kind, check_kind
from gpytorch_partition.command_line.errors import CommandError, cannot_write
from gpytorch_partition.command_line.new_rows import NewRows, read_new_rows
from gpytorch_partition.estimators import PartitionGPRegressor
from gpytorch_partition.files import DamagedFileError, FileFormat
from gpytorch_partition.tables import TableEncoder

logger = logging.getLogger(__name__)

# Version 1 had columns of numbers only, and version 2 no digest.
FORMAT = FileFormat("gpytorch_partition model", "model file", version=3, sealed_since=3)


class SavedModel(NamedTuple):
    """
    A fitted regressor, and what its columns were called and held.

    Use it to go on in Python with a model of the command line: :func:`load_model` returns it, :meth:`read` reads rows
    for its regressor.

    :param regressor: The regressor, as :class:`~gpytorch_partition.estimators.PartitionGPRegressor` describes it.
    :param kinds: What its columns held, by name, in the order in which it takes them.
    :param target: Name of the column that it predicts.
    :param id: Name of the column that names rows; None if none was given.
    :param target_kind: How the target was written, to be read again where its predictions are judged.
    """

    regressor: PartitionGPRegressor
    kinds: dict[str, Kind]  # of its columns
    target: str
    id: str | None = None  # the column that names rows
    target_kind: Kind = Kind(NUMBER)

    @property
    def columns(self) -> list[str]:
        """Names of its columns."""
        return list(self.kinds)

    @property
    def levels(self) -> dict[str, list[str]]:
        """The categories that were seen, by column."""
        encoder = cast(TableEncoder, self.regressor.encoder_)
        names = encoder.get_feature_names_out()
        return {names[place]: [str(level) for level in levels] for place, levels in encoder.categories_.items()}

    def read(self, path: str | Path) -> Any:
        """
        The rows of a file as the regressor takes them: columns found by name, and read as those that it was fitted to,
        as the command `predict` does. What was read how goes to the log (level INFO).

        :param path: A CSV or parquet file, in which the target need not be.
        :return: Columns by name.
        :raises CommandError: If the file cannot be read; or with all that is wrong in it.
        """
        rows = read_new_rows(Path(path), self.kinds, None, is_required=False)
        for note in rows.notes:
            logger.info("%s", note)
        return self.as_fitted(rows)

    def as_fitted(self, rows: NewRows) -> Any:
        """
        Rows as the regressor takes them.

        :param rows: What was read of a file.
        """
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
        "columns": model.columns,
        "kinds": [tuple(kind) for kind in model.kinds.values()],
        "target": model.target,
        "target_kind": tuple(model.target_kind),
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
        return _model(FORMAT.load(path))
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
    names, kinds = content["columns"], [Kind(*kind) for kind in content["kinds"]]
    if not isinstance(names, list) or len(set(map(str, names))) < len(names):
        raise ValueError("expected columns of different names")
    texts = (*names, content["target"], "" if content["id"] is None else content["id"])
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("expected names of columns that are texts")
    target_kind = Kind(*content["target_kind"])
    for kind in (*kinds, target_kind):
        check_kind(kind)
    if target_kind.name != NUMBER:
        raise ValueError("expected a target of numbers")
    state = content["regressor"]
    target_names = state["target_names"] or [content["target"]]
    regressor = PartitionGPRegressor.from_state(state | {"target_names": target_names})
    if regressor.n_features_in_ != len(names):
        raise ValueError(f"expected names of {regressor.n_features_in_} columns, got {len(names)}")
    return SavedModel(regressor, dict(zip(names, kinds, strict=True)), content["target"], content["id"], target_kind)
