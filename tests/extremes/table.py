"""The page with the grid's outcomes: docs/extremes.md."""

from __future__ import annotations

from tests.extremes.measure import Outcome
from tests.extremes.problems import Cell


def page(found: dict[Cell, dict[str, Outcome]]) -> str:
    """The whole page."""
    return ""
