"""`python -m tests.tutorials NAME ...` executes notebooks of tutorials/ and stores what they print and draw.

Cells run in this process: there is no kernel of Jupyter beside it whose answer could stay away for ever.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import nbformat
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import CapturedIO, capture_output
from nbformat import NotebookNode

TUTORIALS = Path(__file__).parents[2] / "tutorials"


def execute(path: Path) -> NotebookNode:
    """Return the notebook with what its cells print and draw, run from its own folder."""
    notebook, shell = nbformat.read(path, as_version=4), InteractiveShell.instance()
    os.chdir(path.parent)
    shell.reset()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for number, cell in enumerate(cells, start=1):
        with capture_output() as captured:
            result = shell.run_cell(cell.source)
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
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
    folder = arguments.to.resolve()
    for name in arguments.names or [path.stem for path in sorted(TUTORIALS.glob("*.ipynb"))]:
        begin = time.perf_counter()
        nbformat.write(execute(TUTORIALS / f"{name}.ipynb"), folder / f"{name}.ipynb")
        print(f"{name}.ipynb: {time.perf_counter() - begin:.0f} seconds")


if __name__ == "__main__":
    main()
