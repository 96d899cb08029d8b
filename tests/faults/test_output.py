"""What was there stays until what replaces it is whole: full disks, interruptions, killed processes, inputs."""

from __future__ import annotations

import io
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from tqdm import tqdm

from gpytorch_partition.__main__ import main
from gpytorch_partition.command_line.model_file import load_model
from gpytorch_partition.estimators import PartitionGPRegressor

RANDOM = np.random.RandomState(0)
X = RANDOM.randn(400, 3)
NUM_KILLS = 5


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = [f"{a!r},{b!r},{a + b!r}" for a, b, _ in X[:60].tolist()]
    Path("data.csv").write_text("\n".join(["a,b,y", *lines, ""]))
    return tmp_path


@contextmanager
def full_disk(num_bytes):
    """No file of this process may become larger."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def fit(*options):
    command = ["fit", "data.csv", "--target", "y", "--kernel", "mondrian", "--num-partitions", "5", "--quiet"]
    return main([*command, "--model", "model.gp", *options])


def names():
    return sorted(os.listdir())


class TestFullDisk:
    def test_of_a_model_file(self, folder, capsys):
        assert fit() == 0
        before, listed = Path("model.gp").read_bytes(), names()
        capsys.readouterr()
        for size in (0, 100, 3000, len(before) - 1):
            with full_disk(size):
                assert fit("--seed", "1") == 2
            out, err = capsys.readouterr()
            told = "make it writable or give another name; a file that is there is unchanged"
            assert err == f"gpytorch_partition: error: cannot write model.gp: File too large; {told}\n"
            assert Path("model.gp").read_bytes() == before
            assert names() == listed

    @pytest.mark.parametrize("name", ["out.parquet", "out.csv.gz", "OUT.XLSX"])
    def test_predictions_of_another_format_are_refused(self, folder, capsys, name):
        assert fit() == 0
        assert main(["predict", "model.gp", "data.csv", "--output", name]) == 2
        assert f"expected a name such as predictions.csv, got {name}" in capsys.readouterr().err
        assert not Path(name).exists()

    def test_of_predictions(self, folder, capsys):
        assert fit() == 0
        Path("out.csv").write_text("old")
        listed = names()
        with full_disk(100):
            assert main(["predict", "model.gp", "data.csv", "--output", "out.csv"]) == 2
        assert "error: cannot write out.csv: File too large" in capsys.readouterr().err
        assert Path("out.csv").read_text() == "old"
        assert names() == listed

    @pytest.mark.slow
    @pytest.mark.filterwarnings("ignore")
    def test_of_a_comparison(self, folder, capsys):
        command = ["compare", "data.csv", "--target", "y", "--kernels", "mondrian", "--num-partitions", "5", "--quiet"]
        command += ["--output", "results"]
        assert main(command) == 0
        before = {path.name: path.read_bytes() for path in Path("results").iterdir()}
        assert len(before) == 3
        with full_disk(150):
            assert main(command) == 2
        assert "error: cannot write results" in capsys.readouterr().err
        assert {path.name: path.read_bytes() for path in Path("results").iterdir()} == before

    @pytest.mark.slow
    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
    def test_of_standard_output(self, folder):
        assert fit() == 0
        command = [sys.executable, "-m", "gpytorch_partition", "predict", "model.gp", "data.csv"]
        with open("/dev/full", "w") as full:
            run = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert run.returncode == 2
        assert run.stderr == "gpytorch_partition: error: [Errno 28] No space left on device\n"


class TestInputs:
    @pytest.mark.parametrize("name", ["data.csv", "./data.csv", "sub/../data.csv", "link.csv", "hard.csv"])
    def test_they_are_not_written(self, folder, name, capsys):
        Path("sub").mkdir()
        Path("link.csv").symlink_to("data.csv")
        os.link("data.csv", "hard.csv")
        assert fit() == 0
        before = Path("data.csv").read_bytes()
        capsys.readouterr()
        assert main(["fit", "data.csv", "--target", "y", "--kernel", "mondrian", "--model", name]) == 2
        assert main(["predict", "model.gp", "data.csv", "--output", name]) == 2
        err = capsys.readouterr().err
        assert err.count("it is data.csv, which this command reads; give another name") == err.count("\n") == 2
        assert Path("data.csv").read_bytes() == before

    def test_data_are_not_written_by_a_comparison(self, folder, capsys):
        Path("results").mkdir()
        os.rename("data.csv", "results/predictions.csv")
        command = ["compare", "results/predictions.csv", "--target", "y", "--output", "results"]
        assert main(command) == 2
        assert "which this command reads; give another name" in capsys.readouterr().err


def _fit_again_and_again():
    tqdm.set_lock(threading.RLock())  # the usual one is shared with this process, and a killed one keeps it
    while True:
        for seed in "12":
            fit("--seed", seed)


def _killed(target, *args, seconds):
    """Run a function in another process for some seconds, and kill that."""
    torch.set_num_threads(1)  # threads do not survive a fork
    process = multiprocessing.get_context("fork").Process(target=target, args=args)
    process.start()
    time.sleep(seconds)
    os.kill(process.pid, signal.SIGKILL)
    process.join()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
class TestKilledProcesses:
    """What is there is an old file or a new one, whole."""

    def test_that_fit(self, folder):
        assert fit() == 0
        random = np.random.RandomState(0)
        for _ in range(NUM_KILLS):
            _killed(_fit_again_and_again, seconds=random.uniform(0.05, 0.3))
            assert load_model(Path("model.gp")).target == "y"


@pytest.mark.parametrize("is_closed", [False, True])
def test_without_a_standard_error_models_are_fitted(is_closed, monkeypatch):
    stream = None
    if is_closed:
        stream = io.StringIO()
        stream.close()
    monkeypatch.setattr(sys, "stderr", stream)
    model = PartitionGPRegressor("mondrian", num_partitions=5, random_state=0, verbose=2).fit(X, X[:, 0])
    assert np.isfinite(model.predict(X)).all()
