"""The commands as a user runs them: what they write, print and answer to mistakes."""

from __future__ import annotations

import csv
import logging
import os
import re
import signal
import subprocess
import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from scipy.stats import norm
from sklearn.metrics import root_mean_squared_error

from gpytorch_partition.__main__ import main
from gpytorch_partition.command_line import compare, explain, load_model, outputs, parser
from gpytorch_partition.estimators import PartitionGPRegressor, kernel_parameter
from gpytorch_partition.estimators.scores import Judgement

KERNELS = ("forest", "fast_cluster", "mondrian")
RANDOM = np.random.RandomState(0)
X = RANDOM.randn(60, 3)
Y = 10 * X[:, 0] + RANDOM.randn(60)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write("data.csv", ["a", "b", "c", "y"], np.column_stack([X, Y]))
    return tmp_path


@pytest.fixture
def drawn(monkeypatch):
    """Return the figures that are saved."""
    figures = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, file, **_: figures.append(figure) or file.write(b"picture"))
    return figures


def write(name, columns, values):
    with open(name, "w", newline="") as file:
        csv.writer(file).writerows([columns, *values])


def read(name):
    with open(name, newline="") as file:
        return list(csv.DictReader(file))


def column(table, name):
    return np.array([float(row[name]) for row in table])


def fit(*options, data="data.csv"):
    command = ["fit", data, "--target", "y", "--model", "model.pt", "--num-partitions", "5"]
    return main([*command, *(options if "--kernel" in options else ("--kernel", "forest", *options))])


def predict(*options, data="new.csv"):
    return main(["predict", "model.pt", data, "--output", "out.csv", *options])


def compared(*options, data="data.csv", kernels=("mondrian",), size="5"):
    command = ["compare", data, "--target", "y", "--num-partitions", size, "--kernels", *kernels]
    return main([*command, *options])


def model_numbers(rows, **options):
    model = load_model("model.pt")
    return model.regressor.predict(dict(zip(model.columns, rows.T)), **options)


class TestFitAndPredict:
    @pytest.mark.slow
    @pytest.mark.parametrize("kernel", KERNELS)
    def test_another_process_predicts_the_same_bits(self, folder, kernel):
        assert fit("--kernel", kernel) == 0
        write("new.csv", ["c", "note", "a", "b"], [[c, "text", a, b] for a, b, c in X[:9]])
        command = [sys.executable, "-m", "gpytorch_partition", "predict", "model.pt", "new.csv"]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        assert (done.returncode, done.stderr) == (0, "")
        (folder / "out.csv").write_text(done.stdout)
        mean, std = model_numbers(X[:9], return_std=True)
        table = read("out.csv")
        np.testing.assert_array_equal(column(table, "mean"), mean)
        np.testing.assert_array_equal(column(table, "std"), std)
        np.testing.assert_allclose(column(table, "lower_90"), mean - 1.6448536 * std, rtol=1e-5)
        np.testing.assert_allclose(column(table, "upper_90"), mean + 1.6448536 * std, rtol=1e-5)

    def test_every_kind_of_file_is_read_alike(self, folder, capsys):
        """To fit to and to predict: dates as text, true and false, numbers that are to be categories."""
        pytest.importorskip("pyarrow")
        pytest.importorskip("openpyxl")
        days = pd.Series(np.datetime64("2023-01-01") + np.arange(60) % 30).dt.strftime("%d-%b-%y")
        frame = pd.DataFrame({"day": days, "week": days, "code": np.arange(60) % 7, "flag": X[:, 0] > 0})
        frame["y"] = Y.round(3)  # workbooks have 16 digits
        frame.to_csv("data.csv", index=False)
        frame.to_parquet("data.pq")
        frame.to_excel("data.xlsx", index=False)
        files, predictions = ("data.csv", "data.pq", "data.xlsx"), []
        for data in files:
            assert fit("--categorical", "week", "code", data=data) == 0
            model = load_model("model.pt")
            assert [*model.reader.kinds_.values()] == ["dates", "text", "text", "text", "numbers"]
            assert list(model.regressor.encoder_.categories_.values())[0] == sorted(set(days))
            assert "warning" not in capsys.readouterr().err  # of dates that are to be categories
            for rows in files:
                assert main(["predict", "model.pt", rows, "--mean-only"]) == 0
                predictions.append(capsys.readouterr())
        assert predictions == [predictions[0]] * 9
        assert predictions[0].err == ""

    def test_what_columns_were_read_as_is_one_table(self, folder, capsys):
        rows = [[f"k{i}", i % 3, f"{i},50 €", "x", i + i % 3 + y / 9] for i, y in enumerate(Y)]
        write("data.csv", ["k", "a", "price", "same", "y"], rows)
        assert fit("--categorical", "a", "--id", "k") == 0
        assert capsys.readouterr().err == (
            "gpytorch_partition: note: columns were read as\n"
            "  k      the id\n"
            "  a      category of 3 levels\n"
            "  price  numbers as 1.234,5 €\n"
            "  same   left out: always 'x'\n"
            "  y      numbers (the target)\n"
        )

    def test_numbers_that_stand_for_missing_cells_are_none(self, folder, capsys):
        a, y = np.where(np.arange(60) % 9, X[:, 0], -999), np.where(np.arange(1, 61) % 7, Y, 9999)
        rows = np.column_stack([a, X[:, 1], y])
        write("data.csv", ["a", "b", "y"], rows)
        write("holes.csv", ["a", "b", "y"], [["" if abs(cell) > 900 else cell for cell in row] for row in rows])
        assert fit("--missing", "-999", "9999") == 0
        assert "8 rows without a target" in capsys.readouterr().err
        assert predict(data="data.csv") == 0
        found = read("out.csv")
        assert fit(data="holes.csv") == 0
        assert predict(data="holes.csv") == 0
        assert read("out.csv") == found

    def test_options_say_how_a_file_is_written(self, folder, capsys):
        lines = ["# a title", "ä:b:y", *(f"1.{i:03d}:{i % 7}:{y}" for i, y in enumerate(Y))]
        (folder / "data.txt").write_text("\n".join(lines), "utf-16")
        options = ["--sep", ":", "--header", "1", "--encoding", "utf-16"]
        assert fit(*options, "--thousands", ".", data="data.txt") == 2  # points are decimals of y
        assert "the target 'y' holds text" in capsys.readouterr().err
        assert fit(*options, data="data.txt") == 0
        assert predict(*options, data="data.txt") == 0
        assert load_model("model.pt").columns == ["ä", "b"]
        (folder / "none.txt").write_text("\n".join(lines[2:]))
        assert main(["fit", "none.txt", "--target", "2", "--model", "m", "--sep", ":", "--header", "none"]) == 0

    def test_rows_have_weights(self, folder):
        weights = np.where(np.arange(60) % 3 == 0, 1e-3, 2.0)
        write("weighted.csv", ["a", "b", "w", "c", "y"], np.column_stack([X[:, :2], weights, X[:, 2], Y]))
        assert fit("--weight", "w", data="weighted.csv") == 0
        regressor = PartitionGPRegressor("forest", 5, random_state=0).fit(X, Y, weights)
        np.testing.assert_array_equal(model_numbers(X), regressor.predict(X))
        assert predict(data="data.csv") == 0

    def test_what_is_printed(self, folder, capsys):
        assert fit() == 0
        deviation = f"{load_model('model.pt').regressor.noise_ ** 0.5:.4g}"
        printed = capsys.readouterr().out
        assert re.findall("noise +standard deviation (.*?) in the targets' units", printed) == [deviation]
        assert printed.count("noise") == 1 + printed.count("fitting noise and scales")
        assert fit("--quiet") == 0
        assert capsys.readouterr().out.splitlines()[1:] == ["Written: model.pt"]
        assert predict(data="data.csv") == 0
        assert "Written: out.csv" in capsys.readouterr().out
        assert np.abs(column(read("out.csv"), "mean") - Y).mean() < 4

    def test_the_seed_decides(self, folder):
        predictions = []
        for seed in ("1", "1", "2"):
            assert fit("--seed", seed) == 0
            predictions.append(model_numbers(X))
        np.testing.assert_array_equal(predictions[0], predictions[1])
        assert not np.allclose(predictions[0], predictions[2])

    def test_a_column_without_a_name_is_known_by_its_place_even_if_it_is_empty_now(self, folder):
        write("data.csv", ["", "a", "y"], [["*" if i % 7 else "", x[0], y] for i, (x, y) in enumerate(zip(X, Y))])
        assert fit() == 0
        write("new.csv", ["", "a"], [["", 1]])
        assert predict() == 0

    @pytest.mark.parametrize(
        ("rows", "options", "message"),
        [
            ("a,d\n1,2\n", [], "no column is called 'b', 'c'; its columns are 'a', 'd': rename or add columns"),
            ("a,b,c\n1,1,1\n", ["--id", "k"], "--id: no column is called 'k'"),
            ("a,b,c\n1,x,1\n1,y,2\n", [], "expected numbers (1,234.5) in column 'b', as in fit, got text ('x')"),
        ],
    )
    def test_what_is_wrong_with_rows_is_said_and_nothing_written(self, folder, capsys, rows, options, message):
        assert fit("--quiet") == 0
        (folder / "new.csv").write_text(rows)
        assert predict(*options) == 2
        assert f"error: new.csv: {message}" in capsys.readouterr().err
        assert not (folder / "out.csv").exists()

    def test_intervals_and_means_only(self, folder):
        assert fit() == 0
        assert predict("--interval", "0.5", data="data.csv") == 0
        table = read("out.csv")
        assert list(table[0]) == ["mean", "std", "lower_50", "upper_50"]
        half = norm.ppf(0.75) * column(table, "std")
        np.testing.assert_allclose(column(table, "upper_50") - column(table, "mean"), half)
        assert predict("--mean-only", data="data.csv") == 0
        assert list(read("out.csv")[0]) == ["mean"]
        np.testing.assert_array_equal(column(read("out.csv"), "mean"), column(table, "mean"))

    def test_ids_go_through(self, folder):
        write("data.csv", ["k", "a", "b", "c", "y"], [[f"0{i}", *x, y] for i, (x, y) in enumerate(zip(X, Y))])
        assert fit("--id", "k") == 0
        assert predict(data="data.csv") == 0
        assert [row["k"] for row in read("out.csv")] == [f"0{i}" for i in range(60)]
        assert predict("--id", "a", data="data.csv") == 0
        assert next(iter(read("out.csv")[0])) == "a"
        write("new.csv", ["a", "b", "c"], X)
        assert predict() == 0
        assert next(iter(read("out.csv")[0])) == "mean"

    def test_unseen_categories_and_new_holes_are_said_and_predicted(self, folder, capsys):
        towns = ["Paris", "Lyon", "Nice"]
        write("data.csv", ["a", "town", "y"], [[x[0], towns[i % 3], y] for i, (x, y) in enumerate(zip(X, Y))])
        assert fit() == 0
        write("new.csv", ["town", "a"], [["Lyon", 1], ["Oslo", 1], ["", 1], ["Nice", ""]])
        capsys.readouterr()
        assert predict() == 0
        said = "column 'town': fit did not learn 'Oslo': taken for missing cells (1 in all)\n"
        printed = capsys.readouterr().err
        assert printed.startswith(f"gpytorch_partition: note: {said}gpytorch_partition: warning: cells are missing")
        table = read("out.csv")
        assert table[1] == table[2]
        assert predict("--quiet") == 0
        assert "note" not in capsys.readouterr().err

    def test_a_new_file_with_another_decimal_mark_is_refused_or_said(self, folder, capsys):
        """A model of a file with decimal commas reads thousands where no number of the new file says otherwise."""
        rows = [f"{f'{50 + x[0]:.3f}'.replace('.', ',')};{f'{y:.2f}'.replace('.', ',')}" for x, y in zip(X, Y)]
        (folder / "data.csv").write_text("\n".join(["a;y", *rows]))
        assert fit() == 0
        (folder / "new.csv").write_text("b,a\nx,55.125\nx,61.25\n")
        assert predict() == 2
        assert "written as 1.234,5, as in fit, got '61.25'" in capsys.readouterr().err
        (folder / "new.csv").write_text("b,a\nx,55.125\nx,61.375\n")
        assert predict() == 0
        assert "column 'a': '55.125' is read as 55125" in capsys.readouterr().err

    @pytest.mark.slow
    def test_auto_is_the_default(self, folder):
        command = "fit data.csv --target y --model model.pt --quiet"
        assert parser.new_parser().parse_args(command.split()).kernel == "auto"
        assert parser.new_parser().parse_args(["compare"]).kernels == ["auto", *KERNELS]
        assert main(command.split()) == 0
        assert load_model(folder / "model.pt").regressor.kernel == "auto"

    def test_a_warning_is_one_line(self, folder, capsys):
        write("data.csv", ["a", "y"], [[i % 2, i % 2] for i in range(40)])
        assert fit("--quiet") == 0
        lines = capsys.readouterr().err.splitlines()
        assert lines
        assert all(line.startswith("gpytorch_partition: warning: ") for line in lines)

    def test_a_model_in_python_reads_and_predicts_as_the_command_does(self, folder, caplog):
        """As docs/tables.md says."""
        rows = [
            f"{50 + 9 * x[0]:.2f};{'LN'[i % 2]};{1 + i % 28:02d}.03.2024;{y:.3f}" for i, (x, y) in enumerate(zip(X, Y))
        ]
        (folder / "data.csv").write_text(
            "\n".join(["size;town;sold;y", *rows]).replace(".", ",").replace(",03,", ".03.")
        )
        assert fit("--quiet") == 0
        (folder / "new.csv").write_text("town;note;sold;size\nN;x;2024-03-05;51,25\nOslo;x;2024-03-06;20,5\n;x;;\n")
        assert predict("--quiet") == 0
        saved = load_model("model.pt")
        assert (saved.columns, saved.target, saved.id) == (["size", "town", "sold"], "y", None)
        with caplog.at_level(logging.INFO, "gpytorch_partition"):
            mean, ends = saved.regressor.predict(saved.read("new.csv"), quantiles=(0.05, 0.95))
        expected = [column(read("out.csv"), name) for name in ("mean", "lower_90", "upper_90")]
        np.testing.assert_array_equal([mean, *ends.T], expected)
        assert "column 'town': fit did not learn 'Oslo'" in caplog.text
        assert saved.regressor.summary().num_rows == 60
        frame = pd.read_csv("new.csv", sep=";", decimal=",", parse_dates=["sold"])[saved.columns]
        np.testing.assert_array_equal(saved.regressor.predict(frame), mean)


class TestCompare:
    def test_everything_is_written_and_fits_together(self, folder, capsys):
        options = ["--seed", "3", "--output", "here/there", "--test-size", "0.25"]
        assert compared(*options, kernels=["fast_cluster", "mondrian"], size="20") == 0
        printed = capsys.readouterr().out
        assert "y: 45 training rows, 15 test rows, 3 columns" in printed
        table, predictions = read("here/there/table.csv"), read("here/there/predictions.csv")
        assert [row["model"] for row in table] == ["random_forest", "fast_cluster", "mondrian", "rbf_ard"]
        y, rows = column(predictions, "target"), column(predictions, "row").astype(int)
        np.testing.assert_array_equal(y, Y[rows])
        unit = np.delete(Y, rows).std()
        for row in table:
            mean, std = (column(predictions, f"{row['model']}_{kind}") for kind in ("mean", "std"))
            assert float(row["rmse"]) == root_mean_squared_error(y, mean) < 0.8 * Y.std()
            assert float(row["nlpd"]) == pytest.approx(-norm(mean / unit, std / unit).logpdf(y / unit).mean())
            assert float(row["coverage_90"]) == Judgement.gaussian(y, mean, std).coverage()
            assert f"{float(row['nlpd']):.3f}" in printed
            found = Judgement.gaussian(y, mean, std)
            assert float(row["crps"]) == pytest.approx(found.crps.mean())
            assert float(row["interval_score_90"]) == pytest.approx(found.interval_score.mean())
        assert (folder / "here/there/plot.png").stat().st_size > 10_000

    def test_the_seed_decides_every_line(self, folder):
        """Also that of RBF-ARD, whose categories of many levels become numbers in random folds."""
        rows = [[*row, f"town {i % 12}", y] for i, (row, y) in enumerate(zip(X, Y))]
        write("towns.csv", ["a", "b", "c", "town", "y"], rows)
        for output in ("first", "again"):
            assert compared("--seed", "1", "--output", output, data="towns.csv", size="10") == 0
        assert read("first/predictions.csv") == read("again/predictions.csv")

    def test_rows_have_weights(self, folder, capsys):
        y, weights = 10 * np.sin(2 * X).sum(1), np.where(np.arange(60) % 4 == 0, 1e-6, 1.0)
        y[::4] += 1000 * np.random.RandomState(1).randn(15)
        write("weighted.csv", ["a", "b", "c", "w", "y"], np.column_stack([X, weights, y]))
        assert compared("--weight", "w", data="weighted.csv", size="50") == 0
        assert "averages over test rows by their weights" in capsys.readouterr().out
        for row in read("compare/table.csv"):
            assert float(row["rmse"]) < 20  # by the polluted targets 500

    def test_the_unit_of_weights_changes_nothing(self, folder):
        """A row is judged at its own weight, which divides the noise's variance, by each of the models."""
        weights, kernels = np.where(np.arange(60) % 2, 1.0, 16.0), ["mondrian", "forest"]
        for unit in ("1", "100"):
            write(f"{unit}.csv", ["a", "b", "c", "w", "y"], np.column_stack([X, int(unit) * weights, Y]))
            assert compared("--weight", "w", "--output", unit, data=f"{unit}.csv", kernels=kernels, size="20") == 0
        found, others = read("1/predictions.csv"), read("100/predictions.csv")
        for name in (*kernels, "random_forest", "rbf_ard"):
            for kind in ("mean", "std", "lower_90", "upper_90"):
                one, other = (column(table, f"{name}_{kind}") for table in (found, others))
                np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-3)
        for one, other in zip(read("1/table.csv"), read("100/table.csv")):
            for score in ("rmse", "nlpd", "crps", "interval_score_90", "coverage_90"):
                assert float(one[score]) == pytest.approx(float(other[score]), rel=1e-4)
        own = column(found, "weight")
        np.testing.assert_array_equal(own, weights[column(found, "row").astype(int)])
        deviations = column(found, "random_forest_std") * own**0.5
        np.testing.assert_allclose(deviations, deviations[0])

    @pytest.mark.slow
    def test_outliers_are_judged_by_the_distribution_that_has_them(self, folder, capsys):
        """`auto` takes Student-t noise for them: its intervals are not those of a Gaussian with its deviations."""
        random = np.random.RandomState(1)
        x = random.rand(200, 2)
        y = np.sin(6 * x[:, 0]) + 0.1 * random.randn(200)
        y[random.rand(200) < 0.08] += 5
        write("data.csv", ["a", "b", "y"], np.column_stack([x, y]))
        assert compared(kernels=["auto"], size="20") == 0
        printed = capsys.readouterr().out
        assert max(map(len, printed.splitlines())) <= 80
        assert "default model (auto) " in printed
        found = {name: column(read("compare/predictions.csv"), name) for name in read("compare/predictions.csv")[0]}
        inside = (found["target"] >= found["auto_lower_90"]) & (found["target"] <= found["auto_upper_90"])
        line = read("compare/table.csv")[-1]
        assert float(line["coverage_90"]) == pytest.approx(inside.mean())
        assert (found["auto_upper_90"] - found["auto_mean"] < 1.6 * found["auto_std"]).all()
        self.check_differences(found, read("compare/table.csv"), printed)
        unit = np.delete(y, found["row"].astype(int)).std()
        gaussian = -norm(found["auto_mean"] / unit, found["auto_std"] / unit).logpdf(found["target"] / unit).mean()
        assert float(line["nlpd"]) < gaussian - 0.1

    def check_differences(self, found, table, printed):
        """Those of the reference to `auto`, whose errors are those of pairs, drawn again and again."""
        line, default = table[0], table[-1]
        some = np.random.RandomState(0).randint(len(found["target"]), size=(4000, len(found["target"])))
        squares = {name: (found["target"] - found[f"{name}_mean"])[some] ** 2 for name in ("random_forest", "auto")}
        roots = {name: square.mean(1) ** 0.5 for name, square in squares.items()}
        error = (roots["random_forest"] - roots["auto"]).std()
        assert float(line["rmse_to_auto_error"]) == pytest.approx(error, rel=0.3)  # not that of two: .45
        for score in ("rmse", "nlpd"):
            expected = float(line[score]) - float(default[score])
            assert float(line[f"{score}_to_auto"]) == pytest.approx(expected)
        told = printed[printed.index("less the default model") :]
        assert f"random forest {float(line['rmse_to_auto']):14.2g} +- {float(line['rmse_to_auto_error']):.2g}" in told
        assert f"{expected:.3f} +- {float(line['nlpd_to_auto_error']):.3f}" in told

    def test_the_reference_is_dense_up_to_its_limit(self, folder, monkeypatch):
        """Estimators refuse kernels without a structure from fewer rows on."""
        monkeypatch.setattr(kernel_parameter, "MOST_DENSE_ROWS", 20)
        assert compared() == 0
        assert read("compare/table.csv")[-1]["model"] == "rbf_ard"

    def test_tables_go_to_all_models(self, folder, capsys):
        lines = [
            [
                f"k{i}",
                x[0] if i % 7 else "",
                f"town {i % 12}",
                ["red", "blue", ""][i % 3],
                f"2024-01-{i % 28 + 1:02d}",
                y,
            ]
            for i, (x, y) in enumerate(zip(X, Y))
        ]
        write("data.csv", ["k", "a", "town", "color", "day", "y"], lines)
        assert compared("--id", "k", kernels=KERNELS, size="20") == 0
        in_order = ["random_forest", "fast_cluster", "mondrian", "forest", "rbf_ard"]  # the fastest first
        assert [row["model"] for row in read("compare/table.csv")] == in_order
        assert all(row["k"] == f"k{row['row']}" for row in read("compare/predictions.csv"))
        assert "deprecated" not in capsys.readouterr().err

    @pytest.mark.parametrize("weight", [["--drop", "w"], ["--weight", "w"]])
    def test_scores_have_standard_errors(self, folder, capsys, weight):
        """Against the deviations of means over the rows, drawn again and again from the rows that were predicted."""
        weights = np.where(np.arange(60) % 2, 1.0, 0.25)
        write("weighted.csv", ["a", "b", "c", "w", "y"], np.column_stack([X, weights, Y]))
        assert compared("--test-size", ".5", *weight, data="weighted.csv", size="20") == 0
        predictions = read("compare/predictions.csv")
        y, mean, std, rows = (column(predictions, name) for name in ("target", "mondrian_mean", "mondrian_std", "row"))
        own, judged = weights[rows.astype(int)] ** (weight[0] == "--weight"), Judgement.gaussian(y, mean, std)
        inside, some = np.abs(y - mean) < 1.6448536 * std, np.random.RandomState(0).randint(len(y), size=(3000, len(y)))
        scores = np.stack([(y - mean) ** 2, norm.logpdf(y, mean, std), judged.crps, judged.interval_score, inside])
        found = (scores[:, some] * own[some]).sum(-1) / own[some].sum(-1)
        found[0] **= 0.5
        (_, line, *_) = read("compare/table.csv")
        errors = [float(line[f"{name}_error"]) for name in ("rmse", "nlpd", "crps", "interval_score_90", "coverage_90")]
        np.testing.assert_allclose(errors, found.std(1), rtol=0.1)
        assert f"+- {errors[1]:.3f}" in capsys.readouterr().out

    def test_a_folder_that_was_not_named_is_not_written_over(self, folder, capsys):
        (folder / "compare").mkdir()
        assert compared() == 0
        before = (folder / "compare/table.csv").read_bytes()
        capsys.readouterr()
        assert compared("--seed", "1") == 2
        printed = capsys.readouterr()
        assert printed.err == (
            "gpytorch_partition: error: the folder compare holds 'plot.png', 'predictions.csv', 'table.csv' already: "
            "name another one by --output, or this one (--output compare) to replace the results in it\n"
        )
        assert printed.out == ""
        assert (folder / "compare/table.csv").read_bytes() == before
        assert compared("--seed", "1", "--output", "compare") == 0
        assert (folder / "compare/table.csv").read_bytes() != before

    def test_lines_come_one_by_one_and_a_model_that_fails_loses_no_other(self, folder, capsys, monkeypatch):
        printed_before = []

        def failing(*_, **__):
            printed_before.append(capsys.readouterr().out)
            raise RuntimeError("not positive definite\nin line 7")

        monkeypatch.setattr(compare, "rbf_ard", failing)
        assert compared() == 0
        assert "\nMondrian kernel " in printed_before[0]  # its line was there before the next model began
        warning = "RBF-ARD GP: left out, since it failed: not positive definite (RuntimeError)"
        assert capsys.readouterr().err.endswith(f"gpytorch_partition: warning: {warning}\n")
        assert [row["model"] for row in read("compare/table.csv")] == ["random_forest", "mondrian"]
        assert (folder / "compare/plot.png").exists()
        monkeypatch.setattr(PartitionGPRegressor, "fit", failing)
        monkeypatch.setattr(compare, "random_forest", failing)
        assert compared("--output", "other") == 2
        assert "no model could be fitted" in capsys.readouterr().err
        assert not (folder / "other").exists()

    def test_without_data_and_pandas_it_takes_diabetes(self, folder, capsys, monkeypatch):
        def find_spec(name, *_):
            if name == "pandas":
                raise ImportError(name)

        monkeypatch.delitem(sys.modules, "pandas")
        monkeypatch.setattr(sys, "meta_path", [SimpleNamespace(find_spec=find_spec), *sys.meta_path])
        assert main(["compare", "--kernels", "fast_cluster", "--num-partitions", "5"]) == 0
        assert "353 training rows, 89 test rows, 10 columns" in capsys.readouterr().out

    def test_without_matplotlib_all_but_the_plot(self, folder, capsys, monkeypatch):
        monkeypatch.setattr(outputs, "has_matplotlib", lambda: False)
        assert compared() == 0
        assert 'pip install "gpytorch_partition[plot]"' in capsys.readouterr().out
        assert sorted(os.listdir("compare")) == ["predictions.csv", "table.csv"]

    def test_references_are_left_out_if_that_is_wanted_or_above_their_limit(self, folder, capsys, monkeypatch):
        monkeypatch.setattr(compare, "rbf_ard", lambda *_: pytest.fail("it was run"))
        assert compared("--no-references") == 0
        printed = capsys.readouterr().out
        assert [row["model"] for row in read("compare/table.csv")] == ["mondrian"]
        assert "random forest" not in printed
        assert "RBF" not in printed
        monkeypatch.setattr(compare, "MOST_ROWS_FOR_RBF", 40)
        assert compared("--output", "compare") == 0
        assert "left out above 40 training rows" in capsys.readouterr().out
        assert [row["model"] for row in read("compare/table.csv")] == ["random_forest", "mondrian"]


class TestExplain:
    """The same as the methods of the model say, of a file as people have them."""

    @pytest.fixture
    def model(self, folder, capsys):
        y = 5 * X[:, 0] + np.arange(60) % 3 + 0.1 * np.random.RandomState(1).randn(60)
        rows = [
            ["" if i % 9 == 0 else X[i, 0], "xyz"[i % 3], f"2024-{1 + i % 12:02d}-{1 + i % 28:02d}", y[i]]
            for i in range(60)
        ]
        rows[5][-1] = ""  # a target that is not known
        write("data.csv", ["a", "town", "day", "y"], rows)
        assert fit() == 0
        capsys.readouterr()
        return load_model("model.pt")

    def test_a_model_alone(self, model, capsys):
        assert main(["explain", "model.pt"]) == 0
        expected = f"{model.regressor.summary()}\n\n{model.regressor.importance()}\n"
        assert capsys.readouterr().out == expected

    def test_rows_check_importances_and_are_averaged_over(self, model, capsys, drawn):
        assert main(["explain", "model.pt", "data.csv", "--plot", "here/there"]) == 0
        printed = capsys.readouterr().out
        assert printed.endswith("\nWritten to here/there: importance.png, partial_dependence.png\n")
        assert sorted(os.listdir("here/there")) == ["importance.png", "partial_dependence.png"]
        table, y = model.read("data.csv"), [row["y"] for row in read("data.csv")]
        order = np.random.RandomState(0).permutation(60)
        order = order[order != 5]
        some = {name: values[order] for name, values in table.items()}
        found = model.regressor.importance(some, np.array(y)[order].astype(float))
        assert str(found) in printed
        panels = [panel for panel in drawn[1].axes if panel.axison]
        names = [found.columns[number] for number in found.order()]
        assert [panel.get_title(loc="left") for panel in panels] == [f"Partial dependence on {name}" for name in names]
        assert {panel.get_ylabel() for panel in panels} == {"mean prediction of y"}
        curve = model.regressor.partial_dependence(table, "town")
        points = panels[names.index("town")].containers[0].lines[0].get_ydata()
        np.testing.assert_allclose(points, curve.mean)

    def test_what_is_told_of_rows_is_told_once(self, model, capsys, drawn):
        """Copies of the rows are predicted for permutations and curves."""
        rows = [[9 + x[0], "new", "" if i == 3 else f"2024-05-{1 + i % 28:02d}", 3 * x[0]] for i, x in enumerate(X)]
        write("new.csv", ["a", "town", "day", "y"], rows)
        assert main(["explain", "model.pt", "new.csv", "--plot", "pictures"]) == 0
        told = capsys.readouterr().err
        for sentence in ("rows lie outside", "cells are missing in", "fit did not learn", "has no category that"):
            assert told.count(sentence) == 1
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.regressor.importance(model.read("new.csv"), np.arange(60.0))
        for sentence in ("rows lie outside", "cells are missing in"):
            assert sum(sentence in str(each.message) for each in caught) == 1

    def test_rows_without_a_target_check_nothing(self, model, capsys, monkeypatch):
        monkeypatch.setattr(explain, "_MOST_ROWS", 40)
        write("new.csv", ["town", "a", "day"], [["x", i, "2024-03-01"] for i in range(50)] + [["Oslo", 1, ""]])
        assert main(["explain", "model.pt", "new.csv"]) == 0
        printed = capsys.readouterr()
        assert printed.out.endswith(f"\n\n{model.regressor.importance()}\n")
        assert "did not learn 'Oslo'" in printed.err
        assert "columns are explained by 40 random rows of 51" in printed.err

    def test_targets_are_read_as_the_fit_read_them(self, folder, capsys):
        targets = 1200 + 10 * np.arange(60) + RANDOM.randint(0, 9, 60)
        for name, cents in (("data.csv", ",50"), ("new.csv", "")):  # 1.234 alone could be a bit more than one
            lines = [f"{a};{y // 1000}.{y % 1000:03d}{cents} €" for a, y in enumerate(targets)]
            (folder / name).write_text("\n".join(["a;y", *lines]))
        assert fit() == 0
        assert main(["explain", "model.pt", "new.csv"]) == 0
        order = np.random.RandomState(0).permutation(60)
        found = load_model("model.pt").regressor.importance({"a": order.astype(float)}, targets[order])
        assert str(found) in capsys.readouterr().out

    def test_pictures_without_rows_or_matplotlib(self, model, capsys, monkeypatch):
        assert main(["explain", "model.pt", "--plot", "here"]) == 0
        assert os.listdir("here") == ["importance.png"]
        assert "give DATA for partial_dependence.png" in capsys.readouterr().out
        monkeypatch.setattr(outputs, "has_matplotlib", lambda: False)
        assert main(["explain", "model.pt", "--plot", "there"]) == 2
        assert 'pip install "gpytorch_partition[plot]"' in capsys.readouterr().err


class TestGroupsAndTimes:
    """Rows of new groups, or of later times, are what models are judged by, and the default model chosen by."""

    WHO = np.repeat(list("abcdefghijkl"), 5)

    @pytest.fixture
    def seen(self, folder, monkeypatch):
        """Return what the default model is fitted to; other kernels are fitted as they are."""
        days, holes = np.datetime64("2024-01-30") + np.arange(60) // 2, ["", *range(59)]
        columns = {"a": X[:, 0], "who": self.WHO, "b": X[:, 1], "c": X[:, 2], "day": days, "holes": holes}
        pd.DataFrame({**columns, "same": "p", "y": Y}).to_csv("blocks.csv", index=False)
        fitted, original = [], PartitionGPRegressor.fit

        def fit_forest(self, X, y, sample_weight=None, **blocks):
            fitted.append((X, y, blocks, self.kernel))
            return original(self.set_params(kernel="forest", num_partitions=5), X, y, sample_weight)

        monkeypatch.setattr(PartitionGPRegressor, "fit", fit_forest)
        return fitted

    def compared(self, *options):
        options = ["--no-references", "--drop", "holes", "same", *options]
        return compared(*options, data="blocks.csv", kernels=["auto", "mondrian"])

    def test_whole_groups_are_predicted(self, seen, capsys):
        assert self.compared("--groups", "who") == 0
        assert "test rows of other groups, 4 columns" in capsys.readouterr().out
        (_, _, others, _), (X_auto, y, blocks, kernel) = seen
        assert kernel == "auto"
        assert "who" not in X_auto
        assert others == {}
        tested = self.WHO[column(read("compare/predictions.csv"), "row").astype(int)]
        assert set(tested).isdisjoint(blocks["groups"])
        assert len(set(tested)) == 3
        assert len(blocks["groups"]) == len(y)

    def test_the_latest_rows_are_predicted(self, seen, capsys):
        assert self.compared("--time", "day") == 0
        assert "48 training rows, 12 test rows of later times" in capsys.readouterr().out
        assert column(read("compare/predictions.csv"), "row").tolist() == [*range(48, 60)]
        assert seen[1][2]["time"].max() == np.datetime64("2024-02-22")
        assert "day" in seen[1][0]
        assert self.compared("--time", "day", "--drop", "day", "--output", "other") == 0
        assert "day" not in seen[-1][0]

    def test_fit_holds_groups_out(self, seen):
        assert main(["fit", "blocks.csv", "--target", "y", "--model", "m", "--groups", "who"]) == 0
        assert seen[0][2]["groups"].tolist() == list(self.WHO)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (["--groups", "whom"], "--groups: no column is called 'whom'; did you mean 'who'"),
            (["--groups", "y"], "--groups: 'y' is named by another option too"),
            (["--time", "who"], "expected time as numbers or dates, got .* cells such as 'a'"),
            (["--groups", "holes"], "expected groups of every row, got none for row 0"),
            (["--time", "holes"], "expected time of every row, got none for row 0"),
            (["--groups", "same"], "expected two groups or more"),
        ],
    )
    def test_mistakes(self, seen, capsys, options, message):
        assert compared(*options, data="blocks.csv") == 2
        assert re.search(message, capsys.readouterr().err)


def test_notes_say_what_a_model_leaves_out_for_its_budget(folder, capsys, monkeypatch):
    budgets = []

    def fit_less(self, X, y, sample_weight=None):
        budgets.append(self.budget)
        self.left_out_ = ("half of the trees", "5 of 10 rows") if self.budget else ()
        return self

    monkeypatch.setattr(PartitionGPRegressor, "fit", fit_less)
    distributions = Judgement.gaussian(np.zeros(12), np.zeros(12), np.ones(12))
    monkeypatch.setattr(PartitionGPRegressor, "judge", lambda self, X, y, _: distributions)
    assert compared("--budget", "7", kernels=["auto", "forest"]) == 0
    assert "note: left out for the budget of 7 seconds: half of the trees; 5 of 10 rows" in capsys.readouterr().err
    assert budgets == [None, None, 7.0]


FIT = "fit data.csv --target y --model m --kernel forest"


class TestMistakes:
    @pytest.mark.parametrize(
        ("command", "message"),
        [
            ("compare none.csv --target y", "cannot read none.csv: No such file or directory"),
            ("compare . --target y", "cannot read .: Is a directory"),
            ("compare data.csv --target z", "--target: no column is called 'z'; its columns are 'a', 'b', 'c', 'y'"),
            ("compare data.csv", "expects DATA together with --target"),
            ("compare --target y", "expects DATA together with --target"),
            ("compare --groups a", "--groups and --time name columns of DATA"),
            ("compare data.csv --target y --kernels forest --budget 7", "--budget is for the kernel auto"),
            (
                "compare data.csv --target y --output data.csv",
                "folder data.csv: data.csv is not a folder",
            ),
            ("compare data.csv --target y --test-size 0.9", "leaves 6 of 60 rows to train on"),
            (f"{FIT} --budget 7", "--budget is for --kernel auto"),
            (f"{FIT} --time a", "--time is for --kernel auto"),
            (f"{FIT}/none/model.pt".replace(" --kernel forest", ""), "m/none does not exist: make it"),
            ("fit data.csv --target y --model .", "cannot write .: Is a directory"),
            ("fit data.csv --target y --model circle", "cannot write circle: "),
            ("predict none.pt data.csv", "cannot read none.pt"),
            ("predict data.csv data.csv", "data.csv is not a model file"),
            ("predict none.pt data.csv --output none/out.csv", "none does not exist: make it"),
            ("explain data.csv", "data.csv is not a model file"),
            ("fit circle --target y --model m", "cannot read circle: Too many levels of symbolic links"),
            ("compare data.csv --target y --output circle", "cannot make the folder circle: circle is not a folder"),
            ("explain none.pt --plot circle", "cannot make the folder circle: circle is not a folder"),
            ("predict none\0.pt data.csv", "'none\\x00.pt' holds the character NUL"),
            ("explain none.pt --plot a\0", "'a\\x00' holds the character NUL"),
            ("fit none\33[31m.csv --target y --model m", "cannot read none\\x1b[31m.csv: No such file"),
            ("explain none.pt --plot data.csv", "folder data.csv: data.csv is not a folder"),
        ],
    )
    def test_one_line_and_status_2(self, folder, capsys, command, message):
        (folder / "circle").symlink_to("circle")
        assert main(command.split()) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.startswith("gpytorch_partition: error: ")
        assert message in printed.err
        assert printed.err.count("\n") == 1

    @pytest.mark.parametrize(
        ("command", "message"),
        [
            ("", "arguments are required: COMMAND"),
            ("learn", "invalid choice: 'learn'"),
            ("fit data.csv --target y --model m \33[31m", "unrecognized arguments: \\x1b[31m"),
            ("predict m n --interval .9999999999999999", "expected a number between 0 and 1"),
            ("fit data.csv --target y", "arguments are required: --model"),
            ("compare --kernels tree", "invalid choice: 'tree'"),
            ("compare --test-size 1.5", "--test-size: expected a number between 0 and 1"),
            ("compare --num-partitions 0", "--num-partitions: expected a whole number from 1 to 1,048,576"),
            ("compare --seed -1", "--seed: expected"),
            ("compare --seed 4294967296", "--seed: expected a whole number from 0"),
            ("compare --header x", "--header: expected the number of a line"),
            ("compare data.csv --target y --groups a --time b", "not allowed with argument"),
            ("predict model.pt data.csv --interval 1", "expected a number between 0 and 1, such as 0.9 for 90 %"),
            ("predict model.pt data.csv --interval 90%", "expected a number between 0 and 1, such as 0.9 for 90 %"),
            ("predict model.pt data.csv --interval 0.5 --mean-only", "not allowed with argument"),
            *((f"{FIT} --budget {budget}", "expected a positive number of seconds") for budget in ("0", "inf", "soon")),
        ],
    )
    def test_usage_and_status_2(self, folder, capsys, command, message):
        with pytest.raises(SystemExit) as stop:
            main(command.split())
        assert stop.value.code == 2
        printed = capsys.readouterr().err
        assert "usage: python -m gpytorch_partition" in printed
        assert message in printed

    def test_names_do_not_steer_the_terminal(self, folder, capsys, monkeypatch):
        rows = np.column_stack([X[:, 0], Y, X[:, 1]])
        write("data.csv", ["a\33[31m", "y", "b\x9b2J\u202e"], rows)
        assert fit() == 0
        assert main(["explain", "model.pt", "data.csv"]) == 0
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        assert main(["predict", "model.pt", "data.csv", "--id", "a\33[31m"]) == 0
        assert compared("--output", "\33]0;x", "--no-references", "--target", "a\33[31m") == 0
        printed = "".join(capsys.readouterr())
        assert "a\\x1b[31m" in printed
        assert "b\\x9b2J\\u202e" in printed
        assert all(each.isprintable() or each == "\n" for each in printed)

    def test_under_an_ascii_locale_nothing_is_lost(self, folder):
        columns = [[f"Straße {i}", *row] for i, row in enumerate(np.column_stack([X[:, 0], Y]))]
        write("data.csv", ["größe", "a", "y"], columns)
        ascii_locale = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "OMP_NUM_THREADS": "1"}

        fitting = ["fit", "data.csv", "--target", "y", "--id", "gro\u0308ße", "--model", "m", "--kernel", "forest"]
        predicting = ["predict", "m", "data.csv", "--mean-only"]
        program = f"from gpytorch_partition.__main__ import main; main(sys.argv[1:{len(fitting) + 1}] + ['--quiet'])"
        program = f"import sys; {program}; print('fitted'); main(sys.argv[{len(fitting) + 1}:])"
        command = [sys.executable, "-c", program, *fitting, *predicting]
        done = subprocess.run(command, capture_output=True, env={**os.environ, **ascii_locale})
        assert done.returncode == 0, done.stderr
        printed = done.stdout.decode().partition("fitted\n")[2]
        assert printed.startswith("größe,mean\nStraße 0,")
        assert len(printed.splitlines()) == 61

    def test_ctrl_c_leaves_quietly(self, folder, capsys, monkeypatch):
        monkeypatch.setattr(PartitionGPRegressor, "fit", lambda *_, **__: os.kill(os.getpid(), signal.SIGINT))
        before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where tests run in the background
        try:
            assert fit("--quiet") == 130
        finally:
            signal.signal(signal.SIGINT, before)
        assert capsys.readouterr().err == "\ninterrupted\n"

    def test_a_reader_that_goes_away_ends_it_quietly(self, folder, capsys, monkeypatch):
        """As `head -1` does: nothing is said, and the status is 1."""
        reader, writer = os.pipe()
        os.close(reader)
        with open(writer, "w", buffering=1) as closed:
            monkeypatch.setattr(sys, "stdout", closed)
            assert compared("--quiet") == 1
            monkeypatch.undo()
        assert capsys.readouterr().err == ""

    @pytest.mark.parametrize("is_quiet", [False, True])
    def test_logged_forecasts_are_notes(self, folder, capsys, monkeypatch, is_quiet):
        def long(*_, **__):
            logging.getLogger("gpytorch_partition.progress").warning("posterior samples: up to 9 minutes to go")
            raise KeyboardInterrupt

        monkeypatch.setattr(PartitionGPRegressor, "fit", long)
        assert fit(*["--quiet"] * is_quiet) == 130
        said = "gpytorch_partition: note: posterior samples: up to 9 minutes to go\n"
        assert (said in capsys.readouterr().err) is not is_quiet
        assert not logging.getLogger("gpytorch_partition").handlers

    @pytest.mark.parametrize("command", ["", "compare", "fit", "predict", "explain"])
    def test_help_explains(self, capsys, command):
        with pytest.raises(SystemExit) as stop:
            main([*command.split(), "--help"])
        assert stop.value.code == 0
        assert f"usage: python -m gpytorch_partition {command}".strip() in capsys.readouterr().out
