"""The command `fit`, which fits a model to one column of a table, and writes it to a file."""

from __future__ import annotations

import time
from argparse import Namespace
from pathlib import Path

from gpytorch_partition.command_line.errors import CommandError, say
from gpytorch_partition.command_line.model_file import SavedModel, save_model
from gpytorch_partition.command_line.outputs import check_writable
from gpytorch_partition.command_line.table_files import Dialect
from gpytorch_partition.command_line.training_data import Roles, read_training_data
from gpytorch_partition.estimators import PartitionGPRegressor


def fit(options: Namespace) -> None:
    """
    Fit a model and save it, as in `python -m gpytorch_partition fit --help`.

    :param options: The command line, parsed by :func:`~gpytorch_partition.command_line.parser.new_parser`.
    :raises CommandError: If the data cannot be used, or the model file cannot be written.
    """
    path = Path(options.model)
    check_writable(path, options.data)
    data = read_training_data(Path(options.data), Roles.of_options(options), Dialect.of_options(options))
    say(data.notes, options.quiet)
    if options.budget is not None and options.kernel != "auto":
        raise CommandError(f"--budget is for --kernel auto, which knows what it can leave out, not {options.kernel}")
    if data.blocks and options.kernel != "auto":
        raise CommandError(f"--groups and --time are for --kernel auto, chosen by folds, not {options.kernel}")
    regressor = PartitionGPRegressor(
        options.kernel,
        options.num_partitions,
        random_state=options.seed,
        budget=options.budget,
        categorical_features=data.categorical,
    )
    from pandas import Series  # its name appears in plots and summaries

    start = time.perf_counter()
    regressor.fit(data.table, Series(data.y, name=data.target), data.weights, **data.blocks)
    seconds = time.perf_counter() - start
    say(left_out(regressor), options.quiet)
    save_model(path, SavedModel(regressor, data.reader, list(data.table), data.target, data.id))
    print(
        f"Fitted {data.target} on {len(data.y):,} rows and {len(data.table)} columns in {seconds:.1f} seconds.\n"
        f"Written: {path}"
    )
    if not options.quiet:
        print(f"\n{regressor.summary()}")


def left_out(regressor: PartitionGPRegressor) -> list[str]:
    """
    Return a note of the steps and parts that a model leaves out for its budget; no note if there are none.

    :param regressor: The model.
    """
    told = "; ".join(regressor.left_out_)
    return [f"left out for the budget of {regressor.budget:g} seconds: {told}"] if told else []
