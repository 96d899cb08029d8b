"""Checks of numbers of things."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import torch


def checked_count(number: Any, things: str, name: str) -> int:
    """
    Return a whole number from 1 as an int, after checking it.

    :param number: Value of the parameter.
    :param things: Name of the things counted, for the error.
    :param name: The parameter's name, for the error.
    :raises ValueError: If it is anything else, `True` included.

    Example:
        >>> checked_count(3, "trees", "num_trees")
        3
    """
    if isinstance(number, bool) or not isinstance(number, Integral) or int(number) < 1:
        given = repr(number)
        if getattr(number, "ndim", 0):
            given = f"an array of shape {tuple(number.shape)} (a kernel that is built on rows alone takes no targets)"
        raise ValueError(f"expected a number of {things}, 1 or more, got {name}={given}")
    return int(number)


def largest_exact(dtype: torch.dtype) -> float:
    """
    Return the number up to which a floating point type holds all whole numbers exactly.

    Example:
        >>> largest_exact(torch.float32) == 2**24
        True
    """
    return 2 / torch.finfo(dtype).eps
