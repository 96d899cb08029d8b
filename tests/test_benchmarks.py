"""Every benchmark runs at its smallest size; ranks, scores, formulas and searches are right. No figure is asserted."""

import csv
import json
import subprocess
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import multivariate_normal, norm
from sklearn.ensemble import AdaBoostClassifier
from sklearn.metrics.pairwise import laplacian_kernel
from sklearn.tree import DecisionTreeClassifier

from benchmarks import evidence, honest
from benchmarks.__main__ import main
from benchmarks.datasets import classes, table_sets
from benchmarks.kernels_and_ensembles import _decoupling
from benchmarks.mondrian_figures import fourier_features, searched
from benchmarks.papers import against_standard, inverses
from benchmarks.processes import ALONE, JOINT, density_scores
from benchmarks.report import Options, measured
from gpytorch_partition.estimators import PartitionGPClassifier, PartitionGPRegressor

ROOT = Path(__file__).parents[1]
PICTURES = [
    *(f"mondrian_figure_{number}" for number in (1, *range(5, 11))),
    *(f"paper_figure_{number}" for number in range(1, 7)),
    *(f"kernels_and_ensembles_{name}" for name in ("figure_2", "figure_3", "figure_5", "figure_6", "selection")),
    *("rare_class", "rare_class_parameters", "sizes", "evidence_ranks"),
    *("mondrian_classification", "mondrian_figure_7_trees", *(["botorch_optimizers"] if find_spec("botorch") else [])),
]
OTHERS = [
    *("product", "scaling", "labelling", "threads", "training", "one_pass", "whole_jobs", "multitask"),
    *("preconditioners", "nystrom_rank", "cluster_space", "cluster_space_determinant", "cluster_space_predictions"),
    *("groups", "memberships", "clusterings", "clustering_scores", "semi_supervised", "semi_supervised_summary"),
    *("semi_supervised_classes", "semi_supervised_rankings", "width_starts", "mondrian_figure_4"),
    *("evidence", "evidence_sets", "evidence_ingredients", "honest", "honest_classes", "honest_summary"),
    *("default_cost", "default_rows", "sizes_growth", "sizes_streamed", "out_of_core", "out_of_core_quality"),
    *(
        "paper_equation_9",
        "paper_equation_10",
        "paper_noise",
        "paper_sets",
        "kernels_and_ensembles_speed",
        "kernels_and_ensembles_decoupling",
    ),
    *("machines", "gp_classification", "gp_classification_mean", "diagnosis"),
    *("weights_by_folds", "noise_at_bound", "function_intervals", "fitted_ensembles", "categories"),
    *(["category_statistics"] if find_spec("catboost") else []),
    *("several_targets", "devices"),
    *(("botorch_runs", "botorch_searches") if find_spec("botorch") else ()),
    *(("dask_counts", "dask_messages", "dask_products", "dask_forest") if find_spec("distributed") else ()),
]


def run(*arguments):
    command = [sys.executable, "-m", "benchmarks", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_adaboost_leaves_its_last_tree_a_coin_toss():
    """Kernels and Ensembles, section 3.4; the errors before are those that scikit-learn has stored."""
    *_, table = _decoupling(Options(is_smoke=True))
    x, y, _ = classes(Options(is_smoke=True), "spambase")
    for row in table.rows:
        tree = DecisionTreeClassifier(max_depth=row["depth"])
        boosting = AdaBoostClassifier(tree, n_estimators=5, random_state=0).fit(x, y)
        assert row["weighted error, mean"] == pytest.approx(boosting.estimator_errors_.mean(), rel=1e-12)
        assert row["largest distance from 1/2 after"] < 1e-12


@pytest.mark.slow
def test_all_benchmarks_run(tmp_path):
    result = run("--smoke", "--output", tmp_path)
    assert result.returncode == 0, result.stderr
    assert sorted(path.stem for path in tmp_path.glob("*.md")) == sorted(PICTURES + OTHERS)
    for name in PICTURES + OTHERS:
        heading = (tmp_path / f"{name}.md").read_text().splitlines()[0]
        assert heading.startswith("### ")
        assert heading in result.stdout
        with (tmp_path / f"{name}.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert rows
        assert "error" not in rows[0], (name, [row["error"] for row in rows])
        assert not {"nan", "inf", "-inf"} & {value for row in rows for value in row.values()}, name
    for name in PICTURES:
        assert (tmp_path / f"{name}.png").stat().st_size > 0


def test_a_run_goes_on_with_what_failed_or_is_missing(tmp_path):
    (tmp_path / "squares.csv").write_text("n,square,error\n1,100,\n2,,MemoryError\n")
    (tmp_path / "squares.md").write_text("Full size.")
    jobs = [{"n": n} for n in (1, 2, 0)]
    *_, last = measured(Options(resumed=tmp_path), "squares", "", jobs, lambda n: {"square": n * n // n})
    assert last.rows[:2] == [{"n": 1, "square": 100}, {"n": 2, "square": 2}]
    assert last.rows[2]["error"].startswith("ZeroDivisionError")


# The default on tables, with a fast model in its place.

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


def test_sets_come_by_size_or_name(folder):
    def names(**options):
        return [data.name for data in table_sets(Options(data=folder, **options))]

    assert names() == ["towns", "rooms", "numbers"]
    assert names(small=True) == ["towns", "rooms"]
    assert names(sets=("numbers",)) == ["numbers"]
    with pytest.raises(ValueError, match=r"got \['streets'\]"):
        names(sets=("streets", "rooms"))


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
    assert found["90 % by quantiles"] == found["90 % by deviation"] == np.mean(np.abs(error / std) < 1.645)
    assert found["bias"] == pytest.approx(error.mean() / unit)
    assert found["bias (standard errors)"] == pytest.approx(np.sqrt(20) * error.mean() / error.std())
    assert found["CRPS"] < found["RMSE"] < found["interval score"]
    assert found["NLPD stated"] is None  # the fast model states nothing


def test_the_command_writes_tables_and_figures(folder, capsys):
    command = ["honest", "--data", str(folder), "--output", str(folder / "results"), "--small", "--store"]
    assert main([*command, str(folder / "figures.json")]) == 0
    figures = json.loads((folder / "figures.json").read_text())
    assert {name: set(scores) for name, scores in figures.items()} == {
        "towns": {"log loss"},
        "rooms": {"NLPD", "90 % by quantiles"},
    }
    assert "| rooms | 40 | 20 |" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main([*command, "--sets", "rooms"])
    assert "give --small, and no --sets" in capsys.readouterr().err


def test_a_summary_counts_sets_that_are_as_stated():
    def row(stated, nlpd, errors, num_rows, square):
        errors = dict(zip(("NLPD stated, standard error", "NLPD, standard error"), errors))
        losses = {"NLPD stated": stated, "NLPD": nlpd, honest.SQUARES: square}
        return {"N": num_rows, "test rows": 100, "90 % by quantiles": nlpd} | losses | errors

    rows = [
        row(0.5, 0.59, (None, 0.01), 400, 1.2),
        row(0.5, 0.89, (0.16, 0.12), 900, 0.8),
        row(0.5, 0.8, (0.01, 0.14), 100, 9.0),
    ]
    found = honest._summary(rows, *honest._KINDS[0])
    assert found["share as stated"] == pytest.approx(2 / 3)
    assert found["mean optimism"] == pytest.approx((0.09 + 0.39 + 0.3) / 3)
    assert (found["mean square, least"], found["mean square, most"]) == (0.8, 1.2)
    assert found["coverage, least"] == 0.59


def test_the_default_is_set_beside_the_best_of_others_on_each_set():
    rows = [
        {"data": name, "RMSE": rmse, honest.GAUSSIAN: nlpd} for name, rmse, nlpd in (("a", 1.0, 0.5), ("b", 2.0, 0.0))
    ]
    others = {
        "a": {"forest": {"rmse": 0.8, "nlpd": 0.6}, "ridge": {"rmse": 0.9}},
        "b": {"ridge": {"rmse": 2, "nlpd": -1}},
    }
    table = honest._beside_others([*rows, {"data": "unknown"}], others)
    assert [(row["data"], row[honest.RATIO], row["least RMSE"], row[honest.LOSS]) for row in table.rows] == [
        ("a", 1.25, "forest", pytest.approx(-0.1)),
        ("b", 1.0, "ridge", 1.0),
    ]
    assert "within 1 % on 50.0% of 2 sets" in table.title
    assert table.title.endswith("within .02 nats on 50.0%")


# Ranks over sets, worked out by hand.

FOREST, BOOSTING = "random forest", "histogram boosting"


def row(data, split, method, density, error=1.0, coverage=0.9):
    return {"data": data, "split": split, "method": method, "NLPD": density, "RMSE": error, "coverage": coverage}


ROWS = [
    row("a", 0, "default", 0.0),
    row("a", 0, FOREST, 0.1),
    row("a", 0, BOOSTING, 0.2, error=0.9),
    row("a", 1, "default", 0.2),  # the others have not done this split
    row("b", 0, "default", 0.5, coverage=0.8),
    row("b", 0, FOREST, 0.49),
    row("b", 0, BOOSTING, 0.7),
    row("a", 0, "default without trees", 0.3),
    row("b", 0, "default without trees", 0.4),
    {"data": "b", "split": 1, "method": "default without trees", "error": "MemoryError"},
]


def ranked(rows=ROWS):
    tables = {table.name: table.rows for table in evidence.ranked(rows, "default", [FOREST, BOOSTING])}
    return tables, {row["method"]: row for row in tables.get("evidence_ranks", [])}


def test_ranks_and_means_are_over_common_splits_only():
    tables, found = ranked()
    assert tables["evidence_sets"][0] == {"data": "a", "default": 0.0, FOREST: 0.1, BOOSTING: 0.2}
    mean_ranks = {method: row["mean rank of the NLPD"] for method, row in found.items()}
    assert mean_ranks == {"default": 1.5, FOREST: 1.5, BOOSTING: 3.0}
    close = {method: row["within 0.02 of the best NLPD"] for method, row in found.items()}
    assert close == {"default": 2, FOREST: 1, BOOSTING: 0}
    assert found["default"]["RMSE at most 1 % above forest and boosting"] == 1
    assert (found["default"]["mean coverage"], found["default"]["least coverage"]) == (pytest.approx(0.85), 0.8)


def test_a_method_without_a_figure_comes_last():
    missing = [row for row in ROWS if (row["data"], row["method"]) != ("b", FOREST)]
    found = ranked(missing)[1][FOREST]
    assert (found["mean rank of the NLPD"], found["sets"]) == (2.5, 1)
    nan = [row("c", 0, method, float("nan") if method == FOREST else 1.0) for method in ["default", FOREST, BOOSTING]]
    found = ranked(ROWS + nan)[1]
    assert (found[FOREST]["sets"], found["default"]["sets"]) == (2, 3)
    assert not ranked(nan[1:])[0]


def test_what_an_ingredient_is_worth():
    (loss,) = ranked()[0]["evidence_ingredients"]
    assert loss["sets and splits"] == 2
    assert [loss[name] for name in ("mean", "least", "most")] == pytest.approx([0.1, -0.1, 0.3])
    assert (loss["worse by more than 0.02"], loss["better by more than 0.02"]) == (1, 1)


def test_the_critical_difference_is_that_of_demsar():
    """Demsar 2006, section 3.2.2: four methods on fourteen sets."""
    assert evidence.critical_difference(4, 14) == pytest.approx(1.25, abs=0.005)


# Formulas of the papers.


def test_joint_and_pointwise_densities():
    random = np.random.default_rng(0)
    root, mean, y = random.standard_normal((3, 3)), random.standard_normal(3), random.standard_normal(3)
    covariance = root @ root.T + np.eye(3)
    found = torch.distributions.MultivariateNormal(torch.from_numpy(mean), torch.from_numpy(covariance))
    scores = density_scores(found, y)
    assert scores[JOINT] == pytest.approx(multivariate_normal(mean, covariance).logpdf(y) / 3)
    assert scores[ALONE] == pytest.approx(norm.logpdf(y, mean, np.sqrt(np.diag(covariance))).mean())


@pytest.mark.parametrize("sigma", [0.1, 1.0, 3.0])
def test_equation_10_lacks_a_factor(sigma):
    labels = np.random.default_rng(0).integers(3, size=(5, 40))
    found = inverses((labels[:, :, None] == labels[:, None, :]).astype(float), sigma)
    assert found["with 1 / sigma"] < 1e-10
    assert found["least eigenvalue, with 1 / sigma"] > 0
    assert (found["largest error as printed"] < 1e-10) == (sigma == 1)
    assert (found["least eigenvalue of eq. 9 as printed"] < 0) == (sigma > 1)


def test_a_method_is_better_by_two_standard_errors_only():
    standard = {
        (name, other): np.array([1.0, 1.1, 0.9, 1.0]) for name in "ab" for other in ("linear", "RBF", "RBF-ARD")
    }
    scores = standard | {("a", "own"): np.array([2.0, 2.1, 1.9, 2.0]), ("b", "own"): np.array([3.0, -1.0, 2.0, 0.5])}
    assert against_standard(scores, "own", sign=1) == (1, 0, 2)
    assert against_standard(scores, "own", sign=-1) == (0, 1, 2)


@pytest.mark.parametrize("lifetime", [0.5, 4.0])
def test_products_of_fourier_features_are_the_laplace_kernel_on_average(lifetime):
    """Every product is a mean of M terms of at most 2: its standard error is at most sqrt(3 / 2 / M) < .004."""
    features = fourier_features(X[:30], 100_000, lifetime, seed=0)
    np.testing.assert_allclose(features @ features.T, laplacian_kernel(X[:30], gamma=lifetime), atol=0.018)


@pytest.mark.parametrize("best", [0.003, 0.7, 300.0])
def test_the_search_finds_the_least_error(best):
    lifetimes = [lifetime for _, lifetime, _ in searched(lambda lifetime: abs(np.log(lifetime / best)), 1.0, 40)]
    assert min(abs(np.log(lifetime / best)) for lifetime in lifetimes) < 1e-3
    assert lifetimes[1] in (0.5, 2.0)
    assert len(set(lifetimes)) == 40
