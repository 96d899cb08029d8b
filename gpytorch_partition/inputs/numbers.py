"""Checks of numbers that callers give."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import torch
from torch import Tensor


def is_real(value: Any) -> bool:
    """
    Return whether a value is one real number of Python, NumPy or a tensor with one entry, and not `True` or `False`.

    Example:
        >>> is_real(2.5), is_real(torch.tensor(2)), is_real("2.5"), is_real(True)
        (True, True, False, False)
    """
    if torch.is_tensor(value):
        return value.numel() == 1 and not value.is_complex() and value.dtype != torch.bool
    return isinstance(value, Real) and not isinstance(value, bool)


def is_positive(value: Any) -> bool:
    """
    Return whether a value is a positive, finite number.

    Example:
        >>> is_positive(1e-300), is_positive(0), is_positive(float("nan")), is_positive("1")
        (True, False, False, False)
    """
    return is_real(value) and 0 < float(value) < math.inf


def checked_positive(value: Any, name: str) -> float:
    """
    Return a value after checking that it is a positive, finite number.

    :param value: Value of the parameter.
    :param name: The parameter's name, for the error.
    :raises ValueError: If it is anything else.

    Example:
        >>> checked_positive(2.5, "lifetime")
        2.5
    """
    if not is_positive(value):
        raise ValueError(f"expected a positive, finite {name}, got {value!r}")
    return value


def tensor_of(values: Any, expected: str) -> Tensor:
    """
    Return numbers as a tensor.

    :param values: A number, numbers, or a tensor.
    :param expected: Description of the values expected, for the error.
    :raises ValueError: If they cannot be a tensor.

    Example:
        >>> tensor_of([1, 2], "two weights")
        tensor([1, 2])
    """
    try:
        return torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"expected {expected}, got {values!r}") from error


def check_tensors(**tensors: Any) -> None:
    """
    Raise an error unless values are tensors of real numbers with a row or more.

    :param tensors: The values, by their names.
    :raises TypeError: If one is no tensor, or complex.
    :raises ValueError: If one has no rows.

    Example:
        >>> check_tensors(x=torch.zeros(3, 2), y=torch.zeros(3))
    """
    for name, value in tensors.items():
        if not torch.is_tensor(value) or value.is_complex():
            got = "complex numbers" if torch.is_tensor(value) else type(value).__name__
            raise TypeError(f"expected {name} as a tensor of real numbers, got {got}: torch.as_tensor(...) makes one")
        if not value.dim() or not value.numel():
            raise ValueError(f"expected {name} with rows, one or more, got shape {tuple(value.shape)}")
