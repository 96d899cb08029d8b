"""Examples of the docstrings, and the package without Dask."""

from __future__ import annotations

import doctest
import importlib
import subprocess
import sys

import pytest

MODULES = ("counting", "regressor", "rows")


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_run(name):
    module = importlib.import_module(f"gpytorch_partition.distributed.{name}")
    results = doctest.testmod(module)
    assert results.attempted
    assert not results.failed


def test_the_package_needs_no_dask():
    program = (
        "import sys; sys.modules['dask'] = sys.modules['distributed'] = None\n"
        "import gpytorch_partition, gpytorch_partition.models, gpytorch_partition.estimators\n"
        "try:\n    import gpytorch_partition.distributed\n"
        "except ImportError as error:\n    print(error)"
    )
    result = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert 'pip install "gpytorch_partition[dask]"' in result.stdout
