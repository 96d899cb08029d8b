"""Notebooks run and hold their pictures; training scripts train, resume and refuse bad input."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import make_friedman1

TUTORIALS = Path(__file__).parents[2] / "tutorials"
NOTEBOOKS = sorted(TUTORIALS.glob("*.ipynb"))


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def pictures(cell):
    return [output.data["image/png"] for output in cell.outputs if "image/png" in output.get("data", {})]


def errors(cell):
    return "".join(output.text for output in cell.outputs if output.get("name") == "stderr")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
class TestNotebooks:
    def test_begins_with_a_question_and_ends_with_what_to_read_next(self, path):
        texts = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "markdown"]
        assert texts[0].startswith("# ")
        assert "?" in texts[0]
        assert "## What to read next" in texts[-1]

    def test_links_resolve(self, path):
        for cell in nbformat.read(path, as_version=4).cells:
            for link in re.findall(r"\]\(([^)\s#]+)", cell.source) if cell.cell_type == "markdown" else ():
                assert link.startswith("http") or (TUTORIALS / link).exists(), link

    def test_is_stored_as_executed_with_its_pictures(self, path):
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
        cells = code_cells(notebook)
        assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
        found = [picture for cell in cells for picture in pictures(cell)]
        assert found
        assert max(len(picture) * 3 / 4 for picture in found) < 90_000
        assert "error" not in {output.output_type for cell in cells for output in cell.outputs}
        assert "".join(map(errors, cells)) == ""

    @pytest.mark.slow
    def test_runs_and_draws_what_is_stored(self, path, tmp_path):
        if path.stem == "bayesian_optimization":
            pytest.importorskip("botorch")
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "tests.tutorials", path.stem, "--smaller", "--to", str(tmp_path)]
        subprocess.run(command, check=True, env=environment, cwd=TUTORIALS.parent, timeout=600)
        stored, executed = (code_cells(nbformat.read(each, as_version=4)) for each in (path, tmp_path / path.name))
        assert [len(pictures(cell)) for cell in executed] == [len(pictures(cell)) for cell in stored]
        assert "".join(map(errors, executed)) == ""


def run(name, *arguments):
    """A script in a process of its own: exit status, standard output and standard error."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(TUTORIALS.parent)}
    command = [sys.executable, str(TUTORIALS / f"{name}.py"), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def houses(tmp_path_factory):
    """A file as people have them: text, a date, holes, and a target."""
    random, folder = np.random.RandomState(0), tmp_path_factory.mktemp("houses")
    area, kind = random.rand(200) * 100, random.choice(["flat", "house"], 200)
    price = 3 * area + 50 * (kind == "house") + random.randn(200)
    table = pd.DataFrame({"area": area, "kind": kind, "price": price, "rent": 2 * area}).round(2)
    table.loc[::9, "area"] = None
    table["sold"] = [f"2024-0{1 + row % 9}-11" for row in range(200)]
    table.to_csv(folder / "houses.csv", sep=";", index=False)
    return folder / "houses.csv"


@pytest.fixture
def train_exact_gp(monkeypatch, caplog):
    """The main function of the script in this process, and the lines that it logs."""
    spec = importlib.util.spec_from_file_location("train_exact_gp", TUTORIALS / "train_exact_gp.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    monkeypatch.setattr(script.logging, "basicConfig", lambda **_: None)
    caplog.set_level("INFO")

    def run_here(*arguments):
        caplog.clear()
        monkeypatch.setattr(sys, "argv", ["train_exact_gp.py", *map(str, arguments)])
        script.main(script.parse_arguments())
        return [record.getMessage() for record in caplog.records]

    return run_here


class TestTrainExactGP:
    SMALL = ("--num-partitions", 20)

    @pytest.mark.parametrize("kernel", ["forest", "fast_cluster", "mondrian"])
    @pytest.mark.parametrize("method", ["auto", "l-bfgs", "adam"])
    def test_every_kernel_and_method(self, train_exact_gp, houses, kernel, method):
        lines = train_exact_gp(houses, "price", "--kernel", kernel, "--method", method, "--steps", 5, *self.SMALL)
        assert "kind   category of 2 levels" in lines[0]
        found = re.fullmatch(r"held-out RMSE (\S+), 90 % intervals cover (\S+)", lines[-1])
        assert float(found[1]) < 90  # the targets' standard deviation
        assert float(found[2]) > 0.5

    def test_adam_goes_on_exactly(self, train_exact_gp, houses, tmp_path):
        options = (houses, "price", "--method", "adam", *self.SMALL, "--checkpoint")
        whole = train_exact_gp(*options, tmp_path / "whole.pt", "--steps", 6)
        first = train_exact_gp(*options, tmp_path / "parts.pt", "--steps", 3)
        rest = train_exact_gp(*options, tmp_path / "parts.pt", "--steps", 6)
        assert rest[1] == "going on after step 3"
        assert [*first[1:4], *rest[2:]] == whole[1:]

    def test_checkpoints_that_are_of_nothing_or_of_another_run(self, train_exact_gp, houses, tmp_path):
        (tmp_path / "notes.txt").write_text("buy milk")
        options = (houses, "price", "--method", "adam", "--steps", 1, *self.SMALL, "--checkpoint")
        train_exact_gp(*options, tmp_path / "run.pt")
        for checkpoint, more in ((tmp_path / "notes.txt", ()), (tmp_path / "run.pt", ("--kernel", "mondrian"))):
            before = checkpoint.read_bytes()
            with pytest.raises(SystemExit, match="is not of the run"):
                train_exact_gp(*options, checkpoint, *more)
            assert checkpoint.read_bytes() == before

    def test_changed_data_is_another_run(self, train_exact_gp, houses, tmp_path):
        table, options = pd.read_csv(houses, sep=";"), ("price", "--method", "adam", "--steps", 1, *self.SMALL)
        for change in (0, 1):
            table.assign(price=table["price"] + change * (table.index == 3)).to_csv(tmp_path / "rows.csv", index=False)
            if change:
                with pytest.raises(SystemExit, match="is not of the run"):
                    train_exact_gp(tmp_path / "rows.csv", *options, "--checkpoint", tmp_path / "run.pt")
            else:
                train_exact_gp(tmp_path / "rows.csv", *options, "--checkpoint", tmp_path / "run.pt")

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (("--device", "nowhere"), "^error: .*nowhere.*$"),
            (("--checkpoint", "run.pt"), "--checkpoint is for --method adam"),
            (("--lifetime", 2), "--lifetime for --kernel mondrian"),
            (("--method", "adam", "--steps", 0), "--steps from 1 on"),
        ],
    )
    def test_options_that_cannot_be_used(self, train_exact_gp, houses, options, message):
        with pytest.raises(SystemExit, match=message):
            train_exact_gp(houses, "price", *options)

    def test_the_width_can_be_given(self, train_exact_gp, houses, recwarn):
        with pytest.warns(UserWarning, match="lifetime"):
            usual = train_exact_gp(houses, "price", "--kernel", "mondrian", *self.SMALL)
        recwarn.clear()
        given = train_exact_gp(houses, "price", "--kernel", "mondrian", "--lifetime", 0.01, *self.SMALL)
        assert re.search(r"log marginal likelihood \S+ nats", given[-2])
        assert usual[-1] != given[-1]
        assert not [each for each in recwarn if "lifetime" in str(each.message)]

    @pytest.mark.slow
    def test_bad_data_is_one_line(self, houses, tmp_path):
        for arguments, message in (
            ((houses, "cost"), "no column is called 'cost'"),
            ((tmp_path / "no.csv", "y"), "No such"),
        ):
            status, output, error = run("train_exact_gp", *arguments)
            assert status == 1
            assert output == ""
            assert message in error
            assert error.startswith("error: ")
            assert "Traceback" not in error
            assert "--" not in error


@pytest.mark.slow
def test_several_targets(houses, tmp_path):
    """Of a file as people have them, in which entries of either target are missing."""
    table = pd.read_csv(houses, sep=";")
    table.loc[::5, "rent"], table.loc[::7, "price"] = None, None
    table.to_csv(tmp_path / "houses.csv", index=False, sep=";", decimal=",")
    status, output, error = run("train_multitask", tmp_path / "houses.csv", "price", "rent")
    assert (status, error) == (0, "")
    assert output.startswith(
        "features: area (numbers as 1.234,5), kind (category of 2 levels), sold (dates as YYYY-MM-DD ("
    )
    correlation = float(re.search(r"price +1\.00 +(\S+)", output)[1])
    assert correlation > 0.8
    rmse, count = re.search(r"price: held-out RMSE (\S+), .* of (\d+)\n", output).groups()
    assert float(rmse) < 90  # the targets' standard deviation
    assert 25 < int(count) < 40
    assert "rent: held-out RMSE" in output
    status, _, error = run("train_multitask", houses, "price")
    assert status == 1
    assert error.startswith("error: ")


class TestTrainInChunks:
    @staticmethod
    def write(folder, number):
        x, y = make_friedman1(500, noise=1.0, random_state=number)
        pd.DataFrame(x).rename(columns=str).assign(y=y).to_parquet(folder / f"{number}.parquet")

    @pytest.mark.slow
    def test_goes_on_where_it_was(self, tmp_path):
        pytest.importorskip("pyarrow")
        for number in range(3):
            self.write(tmp_path, number)
        whole = run("train_in_chunks", tmp_path, "y", "--counts", tmp_path / "whole.gp")
        assert whole[0] == 0, whole[2]
        (tmp_path / "2.parquet").unlink()
        first = run("train_in_chunks", tmp_path, "y", "--counts", tmp_path / "parts.gp")
        self.write(tmp_path, 2)
        rest = run("train_in_chunks", tmp_path, "y", "--counts", tmp_path / "parts.gp")
        assert "2.parquet: 1,350 rows" in rest[1]
        assert "1.parquet" not in rest[1]
        assert "1.parquet: 900 rows" in first[1]
        assert rest[1].splitlines()[-2:] == whole[1].splitlines()[-2:]
        rmse, covered = re.search(r"held-out RMSE (\S+), 90 % intervals cover (\S+)", whole[1]).groups()
        assert 1 < float(rmse) < 4  # the noise, and the targets' standard deviation less a bit
        assert 0.75 < float(covered) <= 1

    @pytest.fixture
    def train(self, monkeypatch):
        """The main function of the script in this process."""
        pytest.importorskip("pyarrow")
        spec = importlib.util.spec_from_file_location("train_in_chunks", TUTORIALS / "train_in_chunks.py")
        script = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(script)
        monkeypatch.setattr(script, "TREES", 5)

        def run_here(*arguments):
            monkeypatch.setattr(sys, "argv", ["train_in_chunks.py", *map(str, arguments)])
            script.main()

        return run_here

    def test_counts_of_something_else_are_refused(self, train, tmp_path):
        folder, other, counts = tmp_path / "rows", tmp_path / "other", tmp_path / "counts.gp"
        for each in (folder, other):
            each.mkdir()
            self.write(each, 0)
        with pytest.raises(SystemExit, match=r"no column is called \['nope'\]; its columns are \['0', "):
            train(folder, "nope", "--counts", counts)
        train(folder, "y", "--counts", counts)
        before = counts.read_bytes()
        for arguments, message in (((folder, "0"), "target y, not 0"), ((other, "y"), "folder .*rows, not .*other")):
            with pytest.raises(SystemExit, match=message):
                train(*arguments, "--counts", counts)
        table = pd.read_parquet(folder / "0.parquet")
        for changed, message in (
            (pd.concat([table, table]), "another 0.parquet"),
            (table.assign(y=100 * table["y"]), "another 0.parquet"),
            (table.rename(columns={"3": "three"}), "columns"),
        ):
            changed.to_parquet(folder / "0.parquet", index=False)
            with pytest.raises(SystemExit, match=message):
                train(folder, "y", "--counts", counts)
        assert counts.read_bytes() == before

    def test_what_cannot_be_read_is_named(self, train, tmp_path):
        folder, counts = tmp_path / "rows", tmp_path / "counts.gp"
        folder.mkdir()
        self.write(folder, 0)
        table = pd.read_parquet(folder / "0.parquet")
        table.head(3).to_parquet(folder / "1.parquet")  # from which none is held out
        train(folder, "y", "--counts", counts)
        Path(f"{counts}.json").write_text("")
        with pytest.raises(SystemExit, match="counts.gp.json says what .*counts.gp has counted, and cannot be read"):
            train(folder, "y", "--counts", counts)
        counts.unlink()
        pd.read_parquet(folder / "1.parquet").assign(**{"2": "x"}).to_parquet(folder / "1.parquet")
        with pytest.raises(SystemExit, match=r"1.parquet: expected numbers, got others in \['2'\]"):
            train(folder, "y", "--counts", counts)
        pd.read_parquet(folder / "0.parquet").replace({"y": {table["y"][3]: None}}).to_parquet(folder / "0.parquet")
        with pytest.raises(SystemExit, match="0.parquet: 1 of 500 targets are missing"):
            train(folder, "y", "--counts", counts)
        (folder / "0.parquet").unlink()
        with pytest.raises(SystemExit, match="one of them of 20 rows or more, got 1 files"):
            train(folder, "y", "--counts", counts)

    def test_columns_are_taken_by_name(self, train, tmp_path, capsys):
        folders, found = [tmp_path / "same", tmp_path / "mixed"], []
        for folder in folders:
            folder.mkdir()
            for number in range(2):
                self.write(folder, number)
        table = pd.read_parquet(folders[1] / "1.parquet")
        table[list(table)[::-1]].to_parquet(folders[1] / "1.parquet")
        for folder in folders:
            train(folder, "y", "--counts", folder / "counts.gp")
            found.append(capsys.readouterr().out)
        assert found[0] == found[1]
