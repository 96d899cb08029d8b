"""Short texts for the reprs of kernels and partitions, and for summaries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from textwrap import indent
from typing import Any

from torch.nn import Module

_MOST_LISTED = 6


def counted(number: int, name: str) -> str:
    """Return a number of things as text."""
    plural = name.removesuffix("f") + "ves" if name.endswith("f") else name + "s"
    return f"{number:,} {name if number == 1 else plural}"


def written(number: float, digits: int = 4) -> str:
    """Return a number without exponent where it is readable."""
    return f"{number:,.0f}" if 1e4 <= abs(number) < 1e8 else f"{number:.{digits}g}"


def ranged(values: Iterable[Any]) -> str:
    """Return the range of one or more numbers as text."""
    values = [float(value) for value in values]
    low, high = (f"{end:,.4g}" if end < 1e4 else f"{end:,.0f}" for end in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def listed(values: Sequence[Any]) -> str:
    """Return the first six numbers in brackets, and the number of others."""
    shown = [f"{float(value):.3g}" for value in values[:_MOST_LISTED]]
    more = len(values) - len(shown)
    return f"[{', '.join(shown)}{f', ... {more} more' if more else ''}]"


def without_values(module: Module) -> str:
    """Return the description of a module on the meta device, whose numbers are not there; nothing for others."""
    return "on the meta device, without values" if any(tensor.is_meta for tensor in module.buffers()) else ""


def module_repr(name: str, extra: str, children: Iterator[tuple[str, Any]]) -> str:
    """Return the repr of a module in PyTorch's form, from its name, its description and its inner modules by name."""
    lines = [f"({key}): {child!r}" for key, child in children]
    if not lines:
        return f"{name}({extra})"
    return "\n".join([f"{name}(", indent("\n".join([*([extra] if extra else []), *lines]), "  "), ")"])
