"""`python -m tests.clients table` writes docs/clients.md to standard output; `check` runs every cell, for hours."""

from __future__ import annotations

import argparse

from tests.clients.cases import SIZES
from tests.clients.client import MODES
from tests.clients.everyone import RECIPES
from tests.clients.measure import deviations
from tests.clients.problems import KERNELS
from tests.clients.table import page


def main() -> None:
    """Run one of the two commands."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=["table", "check"])
    parser.add_argument("--clients", nargs="+", default=list(RECIPES), choices=list(RECIPES))
    parser.add_argument("--kernels", nargs="+", default=list(KERNELS), choices=list(KERNELS))
    parser.add_argument("--sizes", nargs="+", type=int, default=list(SIZES), choices=SIZES)
    parser.add_argument("--modes", nargs="+", default=list(MODES), choices=MODES)
    options = parser.parse_args()
    if options.command == "table":
        print(page(), end="")
    else:
        _check(options)


def _check(options: argparse.Namespace) -> None:
    cases = [
        (client, kernel, size, mode)
        for client in options.clients
        for kernel in options.kernels
        for size in options.sizes
        for mode in options.modes
    ]
    for client, kernel, size, mode in cases:
        complaints = deviations(RECIPES[client], kernel, size, mode)
        print(f"{client}, {kernel}, {size:,} rows, {mode}: {'; '.join(complaints) or 'as expected'}", flush=True)


if __name__ == "__main__":
    main()
