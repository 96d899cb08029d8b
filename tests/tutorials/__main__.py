"""`python -m tests.tutorials NAME ...` executes notebooks of tutorials/ and stores what they print and draw."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

TUTORIALS = Path(__file__).parents[2] / "tutorials"


def execute(path: Path) -> None:
    """Run a notebook from its own folder, and write it with its outputs and without what differs from run to run."""
    notebook, begin = nbformat.read(path, as_version=4), time.perf_counter()
    home = {"metadata": {"path": str(TUTORIALS)}}
    NotebookClient(notebook, timeout=600, kernel_name="python3", resources=home, record_timing=False).execute()
    nbformat.write(notebook, path)
    print(f"{path.name}: {time.perf_counter() - begin:.0f} seconds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="notebooks without .ipynb [all]")
    names = parser.parse_args().names or [path.stem for path in sorted(TUTORIALS.glob("*.ipynb"))]
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for name in names:
        execute(TUTORIALS / f"{name}.ipynb")


if __name__ == "__main__":
    main()
