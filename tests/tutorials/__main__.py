"""`python -m tests.tutorials NAME ...` executes notebooks of tutorials/ and stores what they print and draw.

Cells run in this process: there is no kernel of Jupyter beside it whose answer could stay away for ever.
"""

from __future__ import annotations

import argparse
import os
import time
from functools import reduce
from pathlib import Path

import nbformat
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import CapturedIO, capture_output
from nbformat import NotebookNode

TUTORIALS = Path(__file__).parents[2] / "tutorials"

# By notebook: sizes, and those with which the tests see in less time that all cells run.
SMALLER = {
    "bayesian_optimization": {"range(10)": "range(3)", "NUM_MORE = 3, 10, 20": "NUM_MORE = 2, 10, 4"},
    "classes_and_targets": {
        "make_classification(2300,": "make_classification(800,",
        "F[:300], targets[:300]": "F[:150], targets[:150]",
    },
    "every_width": {
        "square, num_trees=200": "square, num_trees=20",
        "num_trees=100, max_lifetime=60": "num_trees=20, max_lifetime=60",
        "narrow = MondrianKernel(few_x, ": "narrow = MondrianKernel(few_x, 20, ",
        "make_friedman1(1600": "make_friedman1(400",
        ":600]": ":200]",
        "slice(0, 600), slice(600": "slice(0, 200), slice(200",
        "X[train], 100": "X[train], 20",
        "moons, num_trees=100": "moons, num_trees=20",
        "num_trees=30": "num_trees=10",
    },
    "for_kernel_authors": {"[500, 1000, 2000, 4000, 8000]": "[500, 1000, 2000]", "(3000": "(1000"},
    "kernel_machines": {"(2500, 10_000)": "(2500, 3000)"},
    "many_rows": {
        "(3_000, 10_000, 30_000, 100_000)": "(1_000, 2_000, 3_000)",
        "1_000_000, seed": "60_000, seed",
        "200_000": "40_000",
        "50_000)": "10_000)",
    },
    "messy_table": {"N, TRAIN = 800, 400": "N, TRAIN = 240, 120"},
    "one_line_swap": {"steps=60": "steps=10", "range(3)]": "range(1)]", "12_000": "5_000", "10_000]": "3_000]"},
}


def execute(path: Path, smaller: dict[str, str]) -> NotebookNode:
    """Return the notebook with what its cells print and draw, run from its own folder."""
    notebook, shell = nbformat.read(path, as_version=4), InteractiveShell.instance()
    os.chdir(path.parent)
    shell.reset()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    unknown = [text for text in smaller if not any(text in cell.source for cell in cells)]
    assert not unknown, f"expected these sizes in {path.name}: {unknown}"
    for number, cell in enumerate(cells, start=1):
        with capture_output() as captured:
            result = shell.run_cell(reduce(lambda source, sizes: source.replace(*sizes), smaller.items(), cell.source))
        result.raise_error()
        cell.execution_count, cell.outputs = number, _outputs(captured)
    return notebook


def _outputs(captured: CapturedIO) -> list[NotebookNode]:
    texts = {"stdout": captured.stdout, "stderr": captured.stderr}
    streams = [nbformat.v4.new_output("stream", name=name, text=text) for name, text in texts.items() if text]
    shown = [
        nbformat.v4.new_output("display_data", data=each.data, metadata=each.metadata) for each in captured.outputs
    ]
    return streams + shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="notebooks without .ipynb [all]")
    parser.add_argument("--to", type=Path, default=TUTORIALS, help="folder for the executed notebooks [tutorials/]")
    parser.add_argument("--smaller", action="store_true", help="with fewer rows and trees, to see that all cells run")
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
    folder = arguments.to.resolve()
    for name in arguments.names or [path.stem for path in sorted(TUTORIALS.glob("*.ipynb"))]:
        begin = time.perf_counter()
        smaller = SMALLER.get(name, {}) if arguments.smaller else {}
        nbformat.write(execute(TUTORIALS / f"{name}.ipynb", smaller), folder / f"{name}.ipynb")
        print(f"{name}.ipynb: {time.perf_counter() - begin:.0f} seconds")


if __name__ == "__main__":
    main()
