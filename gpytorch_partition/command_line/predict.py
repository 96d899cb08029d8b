"""The command `predict`: predictions of a saved model for the rows of a CSV file."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

from scipy.stats import norm

from gpytorch_partition.command_line.errors import check_writable
from gpytorch_partition.command_line.model_file import load_model
from gpytorch_partition.command_line.tables import read_table, write_table

COLUMNS = ("mean", "std", "lower_90", "upper_90")


def predict(options: Namespace) -> None:
    """
    Load, predict and write, as `python -m gpytorch_partition predict --help` describes.

    :param options: The command line, parsed by :func:`~gpytorch_partition.command_line.parser.new_parser`.
    :raises CommandError: If the model or the rows cannot be used, or the output cannot be written.
    """
    if options.output is not None:
        check_writable(Path(options.output))
    model = load_model(Path(options.model))
    _, rows = read_table(Path(options.data), model.columns)
    mean, std = model.regressor.predict(rows, return_std=True)
    lines = zip(mean, std, *norm.interval(0.9, mean, std))
    if options.output is None:
        write_table(sys.stdout, COLUMNS, lines)
        return
    with open(options.output, "w", newline="") as file:
        write_table(file, COLUMNS, lines)
    print(f"Predicted {model.target} for {len(rows):,} rows.\nWritten: {options.output}")
