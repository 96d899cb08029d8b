"""The notebook runs and holds its pictures; the training script trains, resumes and refuses bad input."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import numpy as np
import pytest
import torch
from nbclient import NotebookClient

AT_HOME = {"metadata": {"path": str(Path(__file__).parents[2] / "tutorials")}}
TUTORIALS = Path(__file__).parents[2] / "tutorials"
NOTEBOOKS = sorted(TUTORIALS.glob("*.ipynb"))
SCRIPT = TUTORIALS / "train_exact_gp.py"


@pytest.fixture
def this_interpreter_as_kernel(tmp_path, monkeypatch):
    """The kernel `python3` is the interpreter of the tests, whatever else is registered on the machine."""
    folder = tmp_path / "kernels" / "python3"
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (folder / "kernel.json").write_text(json.dumps({"argv": command, "display_name": "tests", "language": "python"}))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


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
    def test_runs_and_draws_what_is_stored(self, path, this_interpreter_as_kernel):
        notebook = nbformat.read(path, as_version=4)
        stored = [len(pictures(cell)) for cell in code_cells(notebook)]
        executed = NotebookClient(notebook, timeout=300, kernel_name="python3", resources=AT_HOME).execute()
        assert [len(pictures(cell)) for cell in code_cells(executed)] == stored
        assert "".join(map(errors, code_cells(executed))) == ""


class TestTrainingScript:
    ARGUMENTS = ("--num-rows", "1100", "--num-partitions", "20", "--steps", "12")

    @pytest.fixture
    def run_here(self, monkeypatch, capsys):
        """The script's `main` in this process: exit status, standard output and standard error."""
        spec = importlib.util.spec_from_file_location("train_exact_gp", SCRIPT)
        script = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(script)

        def run(*arguments):
            monkeypatch.setattr(sys, "argv", [str(SCRIPT), *map(str, arguments)])
            status = script.main()
            return status, *capsys.readouterr()

        return run

    @staticmethod
    def steps(output):
        """The lines of the steps, by number."""
        lines = [line for line in output.splitlines() if line.startswith("step ")]
        return {int(re.match(r"step (\d+)", line)[1]): line for line in lines}

    @staticmethod
    def results(output):
        return [line for line in output.splitlines() if line.startswith(("held-out", "coverage"))]

    @pytest.mark.parametrize("kernel", ["forest", "fast_cluster", "mondrian"])
    def test_training_improves_the_likelihood(self, run_here, kernel):
        status, output, _ = run_here("--kernel", kernel, "--num-rows", 200, "--num-partitions", 50, "--steps", 8)
        assert status == 0
        losses = [float(re.search(r"loss (\S+)", line)[1]) for line in self.steps(output).values()]
        assert losses[-1] < losses[0] - 0.05
        assert len(self.results(output)) == 3

    @pytest.mark.slow
    def test_interrupted_run_goes_on_exactly(self, run_here, tmp_path, monkeypatch):
        monkeypatch.setenv("OMP_NUM_THREADS", "1")  # as in this process: the order of sums depends on it
        checkpoint = tmp_path / "run.pt"
        _, uninterrupted, _ = run_here(*self.ARGUMENTS)
        command = [sys.executable, "-u", SCRIPT, *self.ARGUMENTS, "--checkpoint", checkpoint, "--save-every", "2"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            for line in process.stdout:
                if line.startswith("step 5/"):
                    process.kill()
                    break
        assert process.returncode != 0
        status, resumed, _ = run_here(*self.ARGUMENTS, "--checkpoint", checkpoint)
        assert status == 0
        again, expected = self.steps(resumed), self.steps(uninterrupted)
        assert 4 < min(again) <= max(again) == 12
        assert again == {number: expected[number] for number in again}
        assert self.results(resumed) == self.results(uninterrupted)

    def test_checkpoint_is_tensors_and_plain_values(self, run_here, tmp_path):
        checkpoint = tmp_path / "run.pt"
        run_here("--num-rows", 50, "--num-partitions", 5, "--steps", 1, "--checkpoint", checkpoint)
        saved = torch.load(checkpoint, weights_only=True)
        assert saved["step"] == 1
        assert set(saved) == {"model", "optimizer", "step", "run"}

    def test_checkpoint_of_another_run_is_refused(self, run_here, tmp_path):
        arguments = ("--num-rows", 50, "--num-partitions", 5, "--steps", 1, "--checkpoint", tmp_path / "run.pt")
        run_here(*arguments)
        status, _, error = run_here(*arguments, "--learning-rate", 0.5)
        assert status == 2
        assert "learning_rate" in error

    def test_files_of_both_kinds_give_the_same_model(self, run_here, tmp_path):
        table = np.random.RandomState(0).randn(60, 4).round(3)
        header = 'price,area,"rooms, in all",age'
        np.savetxt(tmp_path / "houses.csv", table, delimiter=",", header=header, comments="", fmt="%.3f")
        np.savez(tmp_path / "houses.npz", X=table[:, [0, 2, 3]], y=table[:, 1])
        small = ("--num-partitions", 5, "--steps", 1)
        status, from_csv, _ = run_here("--data", tmp_path / "houses.csv", "--target", "area", *small)
        assert status == 0
        assert run_here("--data", tmp_path / "houses.npz", *small) == (0, from_csv, "")

    @pytest.mark.parametrize(
        ("content", "target", "message"),
        [
            (None, "y", "No such file"),
            ("", "y", "no column 'y'"),
            ("a,y\n" + "1,2\n" * 30, "price", "no column 'price'"),
            ("a,y\n" + "1,2\n" * 30 + "blue,3\n", "y", "blue"),
            ("a,y\n" + "1,2\n" * 30 + "nan,3\n", "y", "NaN"),
            ("a,y\n" + "1,2\n" * 5, "y", "20 rows"),
        ],
    )
    def test_bad_data_is_one_line_and_status_2(self, run_here, tmp_path, content, target, message):
        path = tmp_path / "data.csv"
        if content is not None:
            path.write_text(content)
        status, output, error = run_here("--data", path, "--target", target)
        assert (status, output) == (2, "")
        assert message in error
        assert len(error.splitlines()) == 1

    @pytest.mark.parametrize("name", ["notes.txt", "missing/run.pt"])
    def test_bad_checkpoint_is_one_line_and_status_2(self, run_here, tmp_path, name):
        (tmp_path / "notes.txt").write_text("buy milk")
        status, _, error = run_here("--num-rows", 50, "--checkpoint", tmp_path / name)
        assert status == 2
        assert len(error.splitlines()) == 1

    @pytest.mark.slow
    def test_exit_status_of_the_command_itself(self):
        done = subprocess.run([sys.executable, SCRIPT, "--data", "nowhere.csv"], capture_output=True, text=True)
        assert done.returncode == 2
        assert done.stderr.startswith("error: ")
