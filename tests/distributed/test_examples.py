"""Examples of the docstrings, and the package without Dask."""

from __future__ import annotations

import doctest
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HERE = {**os.environ, "PYTHONPATH": str(ROOT)}
MODULES = ("dask_regressor", "dask_rows")


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_run(name):
    module = importlib.import_module(f"gpytorch_partition.distributed.{name}")
    results = doctest.testmod(module)
    assert results.attempted
    assert not results.failed


@pytest.mark.slow
def test_the_package_needs_no_dask():
    program = (
        "import sys; sys.modules['dask'] = sys.modules['distributed'] = None\n"
        "import gpytorch_partition, gpytorch_partition.models, gpytorch_partition.estimators\n"
        "try:\n    import gpytorch_partition.distributed\n"
        "except ImportError as error:\n    print(error)"
    )
    result = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert 'pip install "gpytorch_partition[dask]"' in result.stdout


@pytest.mark.slow
def test_the_tutorial_fits_and_predicts():
    command = [sys.executable, ROOT / "tutorials" / "dask_cluster.py", "--rows", "4000", "--chunk", "500"]
    command += ["--workers", "1"]
    result = subprocess.run(command, check=True, capture_output=True, text=True, env=HERE)
    assert "4,000 rows, noise" in result.stdout
    share = int(re.findall(r"(\d+)% of the targets", result.stdout)[0])
    assert 80 <= share <= 99


@pytest.mark.slow
def test_the_examples_of_the_page_run_one_after_another():
    section = (ROOT / "docs" / "many_rows.md").read_text().split("## Dask\n")[1]
    blocks = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    assert len(blocks) == 2
    program = "\n".join([*blocks, "assert float(abs(errors).mean()) < 0.2"])
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, env=HERE)
