"""Eight files of real life through compare, fit and predict, as they are."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from gpytorch_partition.__main__ import main

from .real_life import NUM_ROWS, SMALL

FAST = ["--num-partitions", "20"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def table(name):
    with open(name, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def run_all(case, folder, compare_options, fit_options, predict_options=()):
    """Run the three commands; return the table of `compare`."""
    (folder / case.name).write_bytes(case.content(np.random.default_rng(0)))
    command = [case.name, "--target", case.target, *case.options]
    assert main(["compare", *command, *compare_options]) == 0
    assert main(["fit", *command, *fit_options, "--model", "model.gp"]) == 0
    assert main(["predict", "model.gp", case.name, "--output", "out.csv", *predict_options]) == 0
    rows = table("out.csv")
    assert len(rows) == NUM_ROWS
    assert np.isfinite([[float(row[name]) for name in ("mean", "std") if name in row] for row in rows]).all()
    return {row["model"]: row for row in table("compare/table.csv")}


@pytest.mark.parametrize("case", SMALL, ids=[case.name for case in SMALL])
def test_three_commands(case, folder, capsys):
    scores = run_all(case, folder, ["--kernels", "forest", *FAST], ["--kernel", "forest", *FAST])
    targets = np.array([float(row["target"]) for row in table("compare/predictions.csv")])
    assert float(scores["forest"]["rmse"]) < 0.9 * targets.std()
    printed = capsys.readouterr().err
    for note in case.notes:
        assert note in printed


BY_DEFAULT = [case for case in SMALL if case.name in ("apartments.csv", "orders.zip", "wide.csv")]


@pytest.mark.slow
@pytest.mark.parametrize("case", BY_DEFAULT, ids=[case.name for case in BY_DEFAULT])
def test_three_commands_by_default(case, folder):
    """Of files whose columns differ most: text, dates and holes; sixty customers; sixty columns, some useless."""
    scores = run_all(case, folder, [], [])
    assert list(scores) == ["random_forest", "fast_cluster", "mondrian", "forest", "rbf_ard", "auto"]
    assert float(scores["auto"]["nlpd"]) < float(scores["random_forest"]["nlpd"]) + 0.3  # 30 test rows: noisy
