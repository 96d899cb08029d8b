"""Notes for the user on standard error, beside the results on standard output."""

from __future__ import annotations

import sys
from collections.abc import Iterable


def say(notes: Iterable[str], quiet: bool) -> None:
    """
    Print notes, a line each.

    :param notes: What was read how, and what was left out.
    :param quiet: Print nothing.
    """
    for note in () if quiet else notes:
        print(f"gpytorch_partition: note: {note}", file=sys.stderr)
