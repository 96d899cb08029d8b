"""The command `explain`, which prints the parts of a saved model, and the importance and effect of columns."""

from __future__ import annotations

import warnings
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np

from gpytorch_partition.command_line import outputs
from gpytorch_partition.command_line.model_file import SavedModel, load_model, read_new_rows
from gpytorch_partition.command_line.outputs import CommandError
from gpytorch_partition.command_line.table_files import Dialect
from gpytorch_partition.command_line.training_data import Table
from gpytorch_partition.estimators.checks import OutsideRangeWarning
from gpytorch_partition.explain.importance import Importance
from gpytorch_partition.progress import doing

_MOST_ROWS = 1_000  # of a file, for permutations and averages
_MOST_CURVES = 6
_GRID = 20  # values of a column
_FILES = ("importance.png", "partial_dependence.png")  # that are written

Rows = tuple[Table, np.ndarray | None]  # to explain a model by, with their targets, NaN where missing, if there are any


def explain(options: Namespace) -> None:
    """Print the parts of a saved model and the importance of its columns; with `--plot`, draw their effects."""
    folder = None if options.plot is None else Path(options.plot)
    if folder is not None:
        if not outputs.has_matplotlib():
            raise CommandError(f"--plot needs matplotlib: {outputs.INSTALL}")
        outputs.check_folder(folder, "--plot", True, _FILES, options.data, options.model)
    model = load_model(options.model)
    rows = None if options.data is None else _rows(model, options)
    outputs.show(model.regressor.summary())
    if rows is not None:
        model.regressor.predict(rows[0])  # it warns of holes and of rows outside, of which all copies of rows would
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OutsideRangeWarning)
        warnings.filterwarnings("ignore", message="cells are missing in")
        X, y = rows or ({}, None)
        if y is None or len(known := np.flatnonzero(~np.isnan(y))) < 2:
            importance = model.regressor.importance()
        else:
            importance = model.regressor.importance({name: cells[known] for name, cells in X.items()}, y[known])
        outputs.show(f"\n{importance}")
        if folder is not None:
            _draw(folder, model, rows, importance)


def _rows(model: SavedModel, options: Namespace) -> Rows:
    dialect = Dialect.of_options(options)
    found = read_new_rows(Path(options.data), model.reader, model.columns, dialect, optional=[model.target])
    outputs.say_all(found.notes, options)
    some = np.random.RandomState(0).permutation(found.num_rows)[:_MOST_ROWS]
    if len(some) < found.num_rows:
        outputs.say_all([f"columns are explained by {len(some):,} random rows of {found.num_rows:,}"], options)
    y = found.table.get(model.target)
    return {name: found.table[name][some] for name in model.columns}, None if y is None else y[some]


def _draw(folder: Path, model: SavedModel, rows: Rows | None, importance: Importance) -> None:
    from matplotlib.figure import Figure

    folder.mkdir(parents=True, exist_ok=True)
    figure = Figure(figsize=(7.4, 2.2 + 0.28 * min(15, len(importance.columns))), layout="constrained", dpi=150)
    importance.plot(figure.subplots())
    outputs.save_figure(folder / _FILES[0], figure)
    outputs.show(f"\nWritten to {folder}: {_FILES[0]}", end="")
    if rows is None:
        outputs.show(f"\nPartial dependence is an average over rows: give DATA for {_FILES[1]}")
        return
    outputs.save_figure(folder / _FILES[1], _figure_of_curves(model, rows, importance))
    outputs.show(f", {_FILES[1]}")


def _figure_of_curves(model: SavedModel, rows: Rows, importance: Importance) -> Any:
    from matplotlib.figure import Figure

    chosen = importance.foremost(_MOST_CURVES)
    width = min(3, len(chosen))
    height = -(-len(chosen) // width)
    figure = Figure(figsize=(5.6 * width, 4.4 * height), layout="constrained", dpi=150)
    panels = figure.subplots(height, width, squeeze=False).ravel()
    for panel, number in zip(panels, chosen):
        with doing(f"partial dependence on {importance.columns[number]}"):
            model.regressor.partial_dependence(rows[0], int(number), grid_resolution=_GRID).plot(panel)
    for panel in panels[len(chosen) :]:
        panel.set_axis_off()
    return figure
