"""A model that the command line wrote, in Python: as docs/command_line.md says."""

from __future__ import annotations

import csv
import logging

import numpy as np
import pandas as pd
import pytest

from gpytorch_partition.__main__ import main
from gpytorch_partition.command_line import load_model
from gpytorch_partition.command_line.errors import CommandError
from gpytorch_partition.estimators import PartitionGPRegressor


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A file with decimal commas, dates and towns, and a model of it."""
    monkeypatch.chdir(tmp_path)
    random = np.random.RandomState(0)
    lines = ["size;town;sold;price"]
    for row, size in enumerate(random.rand(60)):
        day, price = f"{row % 28 + 1:02d}.{row % 12 + 1:02d}.2024", 5 * size + row % 2
        cells = [
            f"{100 * size:.2f}".replace(".", ","),
            ["Lyon", "Nice"][row % 2],
            day,
            f"{price:.3f}".replace(".", ","),
        ]
        lines.append(";".join(cells))
    (tmp_path / "data.csv").write_text("\n".join(lines))
    command = "fit data.csv --target price --model price.gp --kernel forest --num-partitions 20 --quiet"
    assert main(command.split()) == 0
    return tmp_path


def test_it_predicts_files_as_the_command_does(folder, caplog):
    (folder / "new.csv").write_text("town;note;sold;size\nNice;x;2024-03-05;51,25\nOslo;x;2024-04-06;20,5\n;x;;\n")
    assert main(["predict", "price.gp", "new.csv", "--output", "out.csv", "--quiet"]) == 0
    with open("out.csv", newline="") as file:
        expected = [[float(row[name]) for name in ("mean", "lower_90", "upper_90")] for row in csv.DictReader(file)]
    saved = load_model("price.gp")
    assert isinstance(saved.regressor, PartitionGPRegressor)
    assert (saved.columns, saved.target, saved.id) == (["size", "town", "sold"], "price", None)
    with caplog.at_level(logging.INFO, "gpytorch_partition"):
        mean, ends = saved.regressor.predict(saved.read("new.csv"), quantiles=(0.05, 0.95))
    np.testing.assert_array_equal(np.column_stack([mean, ends]), expected)
    assert "column 'town': fit did not learn 'Oslo'" in caplog.text
    assert saved.regressor.summary().num_rows == 60


def test_frames_of_these_columns_are_the_same_rows(folder):
    (folder / "new.csv").write_text("town;note;sold;size\nNice;x;2024-03-05;51,25\nLyon;x;2024-04-06;20,5\n")
    saved = load_model(folder / "price.gp")
    frame = pd.read_csv("new.csv", sep=";", decimal=",", parse_dates=["sold"])[saved.columns]
    np.testing.assert_array_equal(saved.regressor.predict(frame), saved.regressor.predict(saved.read("new.csv")))


def test_mistakes_are_those_of_the_command(folder):
    (folder / "new.csv").write_text("town,size\nNice,51.25\n")
    with pytest.raises(CommandError, match="no column is called 'sold'"):
        load_model("price.gp").read("new.csv")
