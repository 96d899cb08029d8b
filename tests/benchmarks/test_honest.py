"""Sets of a folder, scores of the default on them and their summary, with a fast model in place of the default."""

import json
from functools import partial

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from benchmarks import honest
from benchmarks.__main__ import main
from benchmarks.report import Options
from benchmarks.table_sets import table_sets
from gpytorch_partition.estimators import PartitionGPClassifier, PartitionGPRegressor

RANDOM = np.random.RandomState(0)
X = RANDOM.rand(60, 2)
Y = 5 + 3 * X[:, 0] + 0.3 * RANDOM.randn(60)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Numbers, a table with text and classes; the smallest is the last."""
    for model in (PartitionGPRegressor, PartitionGPClassifier):
        monkeypatch.setattr(honest, model.__name__, partial(model, "mondrian", 20))
    np.savez(tmp_path / "numbers.npz", X=X, y=Y)
    town = np.where(X[:, 1] > 0.5, "Bonn", "Ulm")
    pd.DataFrame({"a": X[:, 0], "town": town, "y": Y}).to_csv(tmp_path / "rooms.csv", index=False)
    pd.DataFrame({"a": X[:, 0], "town": town, "b": 0.0}).to_csv(tmp_path / "towns.csv", index=False)
    entries = [("numbers", "regression", "npz", "y"), ("rooms", "regression", "csv", "y")]
    entries.append(("towns", "classification", "csv", "town"))
    index = [
        {"name": name, "task": task, "file": f"{name}.{kind}", "target": target, "D": 2}
        | {"kind": "num" if kind == "npz" else "messy", "n_train": {"numbers": 2_000}.get(name, 40 - number)}
        for number, (name, task, kind, target) in enumerate(entries)
    ]
    (tmp_path / "index.json").write_text(json.dumps(index))
    rows = {"train": np.arange(40), "test": np.arange(40, 60)}
    np.savez(tmp_path / "splits.npz", **{f"{name}/{part}": rows[part] for name, *_ in entries for part in rows})
    return tmp_path


def names(folder, **options):
    return [data.name for data in table_sets(Options(data=folder, **options))]


def test_sets_come_by_size_or_name(folder):
    assert names(folder) == ["towns", "rooms", "numbers"]
    assert names(folder, small=True) == ["towns", "rooms"]
    assert names(folder, sets=("numbers",)) == ["numbers"]
    with pytest.raises(ValueError, match=r"got \['streets'\]"):
        names(folder, sets=("streets", "rooms"))


def test_scores_are_in_deviations_of_the_training_targets(folder):
    (data,) = table_sets(Options(data=folder, sets=("numbers",)))
    found = honest.scores(data)
    model = PartitionGPRegressor("mondrian", 20, random_state=0).fit(data.X[:40], Y[:40])
    mean, std = model.predict(data.X[40:], return_std=True)
    unit, error = Y[:40].std(), mean - Y[40:]
    losses = -norm(mean / unit, std / unit).logpdf(Y[40:] / unit)
    assert found["RMSE"] == pytest.approx(np.sqrt(np.mean((error / unit) ** 2)))
    assert found["NLPD"] == pytest.approx(found["NLPD (Gaussian)"]) == pytest.approx(losses.mean())
    assert found["NLPD, standard error"] == pytest.approx(losses.std() / np.sqrt(20))
    assert found["mean z²"] == pytest.approx(np.mean((error / std) ** 2))
    assert found["mean squared normal score"] == pytest.approx(found["mean z²"])  # of a Gaussian they are the same
    assert found["largest z"] == pytest.approx(np.abs(error / std).max())
    assert found["90 % by quantiles"] == found["90 % by deviation"] == np.mean(np.abs(error / std) < 1.645)
    assert found["bias"] == pytest.approx(error.mean() / unit)
    assert found["bias (standard errors)"] == pytest.approx(np.sqrt(20) * error.mean() / error.std())
    assert found["CRPS"] < found["RMSE"] < found["interval score"]
    assert found["NLPD stated"] is None  # the fast model states nothing


def test_the_command_writes_tables_and_figures(folder, capsys):
    command = ["honest", "--data", str(folder), "--output", str(folder / "results"), "--small", "--store"]
    assert main([*command, str(folder / "figures.json")]) == 0
    figures = json.loads((folder / "figures.json").read_text())
    assert {name: list(scores) for name, scores in figures.items()} == {
        "towns": ["log loss"],
        "rooms": ["NLPD", "90 % by quantiles"],
    }
    assert "| rooms | 40 | 20 |" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main([*command, "--sets", "rooms"])
    assert "give --small, and no --sets" in capsys.readouterr().err


def test_failed_sets_are_not_stored(tmp_path):
    with pytest.raises(ValueError, match=r"got none of rooms \(MemoryError\): nothing was stored"):
        honest.store([{"data": "rooms", "error": "MemoryError"}], tmp_path / "figures.json")
    assert not list(tmp_path.iterdir())


def test_a_summary_counts_sets_that_are_as_stated():
    def row(stated, nlpd, error, num_rows, square):
        losses = {"NLPD stated": stated, "NLPD": nlpd, "NLPD, standard error": error, honest.SQUARES: square}
        return {"N": num_rows, "test rows": 100, "90 % by quantiles": nlpd} | losses

    rows = [row(0.5, 0.59, 0.01, 400, 1.2), row(0.5, 0.89, 0.2, 900, 0.8), row(0.5, 0.8, 0.14, 100, 9.0)]
    found = honest._summary(rows, *honest._KINDS[0])
    assert found["share as stated"] == pytest.approx(2 / 3)
    assert found["mean optimism"] == pytest.approx((0.09 + 0.39 + 0.3) / 3)
    assert (found["mean square, least"], found["mean square, most"]) == (0.8, 1.2)
    assert found["coverage, least"] == 0.59
