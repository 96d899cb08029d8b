"""
Write the stored models: their states, and the numbers that they must give from then on.

It is run by the commit that defines the numbers, and later only for models that are new to the zoo, or of another
format, once that is shown to change no number. It is never run to make a test pass: files that are there stay as they
are. `python -m` looks for packages in the current folder first, so the files of another commit are written from a
folder outside of its checkout:

    mkdir -p SCRATCH/tests && cp -r tests/stored_models SCRATCH/tests && cd SCRATCH
    PYTHONPATH=CHECKOUT python -m tests.stored_models CHECKOUT

SCRATCH is an empty folder, CHECKOUT the checkout of that commit, without changes.
"""

from __future__ import annotations

import argparse
import subprocess
import warnings
from pathlib import Path

import torch

import gpytorch_partition

from .files import content_of, path_of, write
from .zoo import ZOO


def main() -> None:
    """Write the files that are not there yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path, help="checkout of the commit that defines the numbers")
    commit = _commit(parser.parse_args().checkout.resolve())
    torch.set_num_threads(1)  # as in the tests
    for name in (name for name in ZOO if not path_of(name).exists()):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            write(name, content_of(ZOO[name], commit))
        print(f"{name}: {path_of(name).stat().st_size:,} bytes")


def _commit(checkout: Path) -> str:
    """The commit of the package that is imported, if it is the one that is wanted, and unchanged."""
    imported = Path(gpytorch_partition.__file__).resolve().parents[1]
    if imported != checkout:
        raise SystemExit(f"expected gpytorch_partition to be imported from {checkout}, got {imported}")
    if _git(checkout, "status", "--porcelain", "--", "gpytorch_partition"):
        raise SystemExit(f"expected a checkout without changes, got {checkout}")
    return _git(checkout, "rev-parse", "HEAD")


def _git(checkout: Path, *command: str) -> str:
    return subprocess.run(["git", "-C", checkout, *command], check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    main()
