"""`python -m tests.extremes` measures the grid and writes docs/extremes.md to standard output; see `--help`."""

from __future__ import annotations

import argparse
import sys
import time

from tests.extremes.measure import outcomes
from tests.extremes.problems import FEW_SIZES, KERNELS, MEASURED, PATHS, SIZES, cells
from tests.extremes.table import page


def main() -> None:
    """Measure the cells chosen, one line each to standard error, and print the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help=f"all of {SIZES}, rather than {FEW_SIZES}")
    parser.add_argument("--kernels", nargs="+", default=list(KERNELS), choices=KERNELS)
    parser.add_argument("--paths", nargs="+", default=list(MEASURED), choices=list(PATHS))
    parser.add_argument("--sizes", nargs="+", type=float)
    options = parser.parse_args()
    sizes = options.sizes or (SIZES if options.all else FEW_SIZES)
    found = {}
    for cell in cells(sizes, tuple(options.kernels), paths=tuple(options.paths)):
        begin = time.process_time()
        found[cell] = outcomes(cell)
        words = "; ".join(f"{name} {each.kind} {each.error:.2g}" for name, each in found[cell].items())
        print(f"{cell.name}: {words} ({time.process_time() - begin:.1f} s)", file=sys.stderr, flush=True)
        for message in dict.fromkeys(each.message for each in found[cell].values() if each.message):
            print("   ", message[:200], file=sys.stderr, flush=True)
    print(page(found), end="")


if __name__ == "__main__":
    main()
