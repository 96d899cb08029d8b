"""The rows of a folder of parquet files, in batches with the columns and types of all files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gpytorch_partition.tables.cells import names_of

_ONE_TYPE = "give the column one type in all files, for example by pandas' astype before to_parquet"


def parquet_batches(path: Path, target: str | None, num_rows: int) -> tuple[Callable[[], Iterator[Any]], int]:
    """
    Return a reader of a parquet file, or of a folder's files in the order of their names, and the number of its
    batches.

    Each batch has the columns of all files, with missing cells where its own file lacks one, in a type that holds those
    of all files: floats for integers and floats. Indexes of pandas are left out. Folders `key=value/` are a column of
    text.

    :param path: A file or folder.
    :param target: The name of the column of targets, which each file has.
    :param num_rows: Rows of a batch, at most.
    :return: A function that returns an iterator of pairs of a DataFrame and its targets, and the number of pairs.
    :raises FileNotFoundError: If there is no such path.
    :raises ImportError: Without pandas and pyarrow.
    :raises ValueError: If there is no parquet file, or a damaged one, the target is no column, or the types of a column
        have none in common. The iterator raises it where a value does not fit the common type.
    """
    if find_spec("pandas") is None or find_spec("pyarrow") is None:
        raise ImportError('parquet files are read by pyarrow and pandas: pip install "gpytorch_partition[tables]"')
    if not path.exists():
        raise FileNotFoundError(f"expected a parquet file or a folder of such, got {path}, which does not exist")
    keys = _keys(_files(path, None))
    files = _files(path, keys)
    schema = _schema_of_all(files, keys)
    target = _checked_target(files, schema, target, keys)
    groups = [file.metadata.row_group(i).num_rows for file in files for i in range(file.metadata.num_row_groups)]
    return partial(_batches, files, schema, target, num_rows), sum(-(-size // num_rows) for size in groups)


def _files(path: Path, keys: list[str] | None) -> list[Any]:
    """Files in the order of their names, with the keys of folders as text; None finds the keys."""
    import pyarrow
    from pyarrow import dataset

    schema = None if keys is None else pyarrow.schema([(key, pyarrow.string()) for key in keys])
    try:
        found = dataset.dataset(path, format="parquet", partitioning=dataset.partitioning(schema, flavor="hive"))
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"expected a parquet file or a folder of such, got {path}: {error}") from error
    if not (files := sorted(found.get_fragments(), key=lambda file: file.path)):
        raise ValueError(f"expected a folder of parquet files, got {path}, which has none")
    return files


def _keys(files: list[Any]) -> list[str]:
    from pyarrow import dataset

    return list({key: None for file in files for key in dataset.get_partition_keys(file.partition_expression)})


def _schema(file: Any) -> Any:
    import pyarrow

    try:
        return file.physical_schema
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"{file.path} is damaged, or no parquet file: {error}") from error


def _schema_of_all(files: list[Any], keys: list[str]) -> Any:
    """Columns of all files, each in a type that holds those of all, and the keys of folders."""
    import pyarrow

    schema = _columns(files[0])
    for file in files[1:]:
        try:
            schema = pyarrow.unify_schemas([schema, _columns(file)], promote_options="permissive")
        except pyarrow.ArrowException as error:
            raise ValueError(
                f"{file.path} and files before it have no types in common: {error}: {_ONE_TYPE}"
            ) from error
    return pyarrow.schema([*schema, *(pyarrow.field(key, pyarrow.string()) for key in keys if key not in schema.names)])


def _columns(file: Any) -> Any:
    """Columns of a file, without pandas' metadata, whose types may differ from those of all files."""
    import pyarrow

    schema = _schema(file)
    indexes = (schema.pandas_metadata or {}).get("index_columns", ())
    return pyarrow.schema([column for column in schema if column.name not in indexes])


def _checked_target(files: list[Any], schema: Any, target: str | None, keys: list[str]) -> str:
    if target is None or target not in schema.names:
        raise ValueError(
            f"expected target as the name of the column of targets, one of {names_of(schema.names)}, got {target!r}: "
            "fit_chunks(path, 'name')"
        )
    for file in files:
        if target not in [*_schema(file).names, *keys]:
            raise ValueError(f"expected the target {target!r} in every file, {file.path} has no such column")
    return target


def _batches(files: list[Any], schema: Any, target: str, num_rows: int) -> Iterator[tuple[Any, Any]]:
    for file in files:
        for frame in _frames(file, schema, num_rows):
            yield frame.drop(columns=target), frame[target]


def _frames(file: Any, schema: Any, num_rows: int) -> Iterator[Any]:
    import pyarrow

    try:
        for batch in file.to_batches(schema=schema, batch_size=num_rows, batch_readahead=1, fragment_readahead=1):
            yield batch.to_pandas()
    except OSError as error:
        raise ValueError(f"{file.path} is damaged, or cannot be read: {error}") from error
    except pyarrow.ArrowException as error:
        raise ValueError(f"{file.path} cannot be read in the types of all files: {error}: {_ONE_TYPE}") from error
