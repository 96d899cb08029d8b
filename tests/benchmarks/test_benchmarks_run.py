"""Every benchmark runs, at its smallest size, and writes what it should. No figure is asserted."""

from __future__ import annotations

import csv
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TABLES = [
    "product",
    "scaling",
    "training",
    "preconditioners",
    "nystrom_rank",
    "labelling",
    "prediction",
    "issue_bars",
    "one_pass",
    "one_pass_jobs",
    "cluster_space",
    "cluster_space_determinant",
    "cluster_space_predictions",
    "evidence",
    "evidence_sets",
    "evidence_ranks",
    "evidence_bars",
    "evidence_ingredients",
    *("honest", "honest_classes", "honest_summary"),
    "default_cost",
    "default_rows",
    "budgets",
    "sizes",
    "sizes_growth",
    "sizes_streamed",
    *(f"mondrian_figure_{number}" for number in range(5, 11)),
    "mondrian_figure_7_trees",
    "mondrian_speed",
    *(f"paper_figure_{number}" for number in range(1, 7)),
    *("paper_equation_9", "paper_equation_10", "paper_noise", "paper_sets"),
    *(("botorch_runs", "botorch_optimizers", "botorch_searches") if find_spec("botorch") else ()),
    *(("dask_counts", "dask_messages", "dask_products", "dask_forest") if find_spec("distributed") else ()),
    *("gp_classification", "gp_classification_mean", "gp_classification_speed"),
    "tasks",
    "clusterings",
    "clusterings_all_rows",
    "categories",
    *("fitted_ensembles", "several_targets", "several_targets_cost"),
    "clustering_maps",
    "semi_supervised",
    "semi_supervised_summary",
    "groups",
    "memberships",
    *(f"kernels_and_ensembles_{name}" for name in ("figure_2", "figure_3", "figure_5", "figure_6", "selection")),
    *("rare_class", "rare_class_parameters", "kernels_and_ensembles_speed"),
    "diagnosis",
    "diagnosis_speed",
    "weights_by_folds",
    "outliers",
    "noise_at_bound",
    "function_intervals",
    "out_of_core",
    "out_of_core_quality",
    "mondrian_classification",
    "mondrian_classification_speed",
    *("machines", "machines_agreement", "machines_errors", "machines_kernel_pca"),
    "summary",
]


def run(*arguments):
    command = [sys.executable, "-m", "benchmarks", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


@pytest.mark.slow
def test_all_benchmarks_run(tmp_path):
    result = run("--smoke", "--output", tmp_path)
    assert result.returncode == 0, result.stderr
    assert sorted(path.stem for path in tmp_path.glob("*.md")) == sorted(TABLES)
    for name in TABLES:
        heading = (tmp_path / f"{name}.md").read_text().splitlines()[0]
        assert heading.startswith("### ")
        assert heading in result.stdout
        with (tmp_path / f"{name}.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert rows
        assert "error" not in rows[0], name
        assert not {"nan", "inf", "-inf"} & {value for row in rows for value in row.values()}, name
    figures = [f"mondrian_figure_{number}" for number in range(5, 11)]
    figures += [f"paper_figure_{number}" for number in range(1, 7)]
    zhu = [name for name in TABLES if name.startswith(("kernels_and_ensembles_", "rare_class")) and "speed" not in name]
    maps = ("clustering_maps", "machines_kernel_pca", "mondrian_classification", "mondrian_figure_7_trees")
    for name in ("sizes", "evidence_ranks", *maps, *figures, *zhu):
        assert (tmp_path / f"{name}.png").stat().st_size > 0


@pytest.mark.slow
def test_an_unknown_name_is_refused(tmp_path):
    result = run("nothing", "--output", tmp_path)
    assert result.returncode == 2
    assert "no benchmark is called nothing" in result.stderr
    assert not list(tmp_path.iterdir())
