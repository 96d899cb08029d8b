"""Checks of numbers that callers give, random states of seeds, floats as bit patterns, and buffers that hold them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_random_state
from torch import Tensor

# Numbers and dates that may stand for missing cells.
_LIKE_HOLES = re.compile(r"-?(9+|8+|7+)|.*e\+([2-9]\d|\d{3})")
_DATES_LIKE_HOLES = re.compile(r"9999-.*|2[1-9]99-12-31|2099-12-31|1[89]00-01-01|1970-01-01|0001-01-01")
_ALONE = 10  # ranges of the others by which a number is far from them
_FEWEST_OTHERS = 20
MOST_PARTITIONS = 2**20  # a row holds a code of each


def like_holes(values: np.ndarray, are_days: bool = False) -> list[str]:
    """
    Return how many cells are -999, 1e30 or such (of days since 1970: 9999-12-31), far from all others, as texts.

    A single number that is ten times as far from the others as these are from each other counts too.
    """
    values = values[np.isfinite(values)].astype(np.float64)  # no booleans, which have no differences
    for extreme in (np.max, np.min) if len(values) else ():
        end = extreme(values)
        shown = str(np.datetime64(int(end), "D")) if are_days else f"{end:.12g}"
        others = values[values != end]
        count, spread = len(values) - len(others), np.ptp(others) if len(others) else 0.0
        is_mark = (_DATES_LIKE_HOLES if are_days else _LIKE_HOLES).fullmatch(shown) and (count > 1 or len(shown) > 2)
        is_alone = count == 1 and len(others) >= _FEWEST_OTHERS
        distance = abs(end - extreme(others)) if spread else 0.0
        if distance > (spread / 2 if is_mark else _ALONE * spread if is_alone else np.inf):
            return [f"{count:,} cells are {shown}", *like_holes(others, are_days)]
    return []


def is_real(value: Any) -> bool:
    if torch.is_tensor(value):
        return value.numel() == 1 and not value.is_complex() and value.dtype != torch.bool
    return isinstance(value, Real) and not isinstance(value, bool)


def is_whole(value: Any, least: float, most: float = math.inf) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and least <= int(value) <= most


def is_positive(value: Any) -> bool:
    return is_real(value) and 0 < float(value) < math.inf


def check_positive(optional: bool = False, **numbers: Any) -> None:
    """Raise a `ValueError` unless the named values are positive, finite numbers; or None, if they are optional."""
    for name, value in numbers.items():
        if not is_positive(value) and not (optional and value is None):
            raise ValueError(f"expected a positive, finite {name}, got {value!r}")


def refuse_mask(values: Any, name: str, remedy: str) -> None:
    """Raise a `ValueError` with a remedy for a masked array, whose masked numbers would be read as known ones."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise ValueError(f"expected {name} without a mask, got {np.ma.count_masked(values)} masked numbers: {remedy}")


def tensor_of(values: Any, expected: str) -> Tensor:
    """Return numbers as a tensor; a `ValueError` with the expected values for anything else."""
    try:
        return torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"expected {expected}, got {values!r}") from error


def weights_of(values: Any, size: int, things: str = "") -> Tensor:
    """Return weights (`size`, float64), above 0, or from 0 if they are of `things`; a `ValueError` for others."""
    expected = f"{size} weights of {things}, 0 or more and not all 0" if things else f"{size} positive weights"
    weights = tensor_of(values, expected).detach()
    weights = torch.zeros(0) if weights.is_complex() else weights.double()
    fit = ((weights >= 0) if things else (weights > 0)) & (weights < torch.inf)
    if weights.shape != (size,) or not bool(fit.all()) or not bool(weights.any()):
        raise ValueError(f"expected {expected}, got {values}")
    return weights


def check_tensors(**tensors: Any) -> None:
    """Raise a `TypeError` or `ValueError` unless values are tensors of real numbers with a row or more."""
    for name, value in tensors.items():
        if not torch.is_tensor(value) or value.is_complex():
            got = "complex numbers" if torch.is_tensor(value) else type(value).__name__
            raise TypeError(f"expected {name} as a tensor of real numbers, got {got}: torch.as_tensor(...) makes one")
        if not value.dim() or not value.numel():
            raise ValueError(f"expected {name} with rows, one or more, got shape {tuple(value.shape)}")


def checked_count(number: Any, things: str, name: str, most: float = math.inf) -> int:
    """Return a whole number from 1 as an int; for anything else, a `ValueError` that says what it counts."""
    if is_whole(number, 1) and number > most:
        raise ValueError(f"expected {most:,} {things} at most, got {name}={number:,}")
    if not is_whole(number, 1):
        given = repr(number)
        if getattr(number, "ndim", 0):
            given = f"an array of shape {tuple(number.shape)} (a kernel that is built on rows alone takes no targets)"
        raise ValueError(f"expected a number of {things}, 1 or more, got {name}={given}")
    return int(number)


def largest_exact(dtype: torch.dtype) -> float:
    """Return the number up to which a floating point type holds all whole numbers exactly."""
    return 2 / torch.finfo(dtype).eps


def random_state_of(seed: int | np.random.RandomState | None) -> np.random.RandomState:
    """Return the random state of a seed, of a `RandomState` (itself) or of None (a fresh one); never NumPy's own."""
    try:
        return np.random.RandomState() if seed is None else check_random_state(seed)
    except ValueError as error:
        raise ValueError(
            f"expected a random_state from 0 to 2**32 - 1, a RandomState or None: {seed!r} cannot be used to seed"
        ) from error


def same_bits(a: Tensor, b: Tensor) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype or a.device != b.device:
        return False
    if a.data_ptr() == b.data_ptr() and a.stride() == b.stride():
        return True
    bits = {8: torch.int64, 4: torch.int32, 2: torch.int16}[a.element_size()]
    return bool(torch.equal(a.detach().contiguous().view(bits), b.detach().contiguous().view(bits)))


def bits_of(values: Tensor) -> Tensor:
    """Return floats as the integers of their bit patterns, for buffers that no change of dtype may round."""
    return values.contiguous().view(torch.int64 if values.dtype == torch.float64 else torch.int32)


def floats_of(bits: Tensor) -> Tensor:
    """Return floats from bit patterns, the inverse of :func:`bits_of`."""
    return bits.view(torch.float64 if bits.dtype == torch.int64 else torch.float32)


def take_shapes(module: torch.nn.Module, state: Mapping[str, Any], prefix: str) -> None:
    """
    Give a module's own buffers the shapes of saved ones, so that `load_state_dict` copies them unchanged.

    A state that was cast, or has other dimensions, raises a RuntimeError, and nothing has changed.
    """
    found = {name: state[prefix + name] for name in module._buffers if prefix + name in state}
    for name, saved in found.items():
        own, integers = module.get_buffer(name), (torch.int32, torch.int64)
        if saved.dim() != own.dim() or saved.dtype not in (integers if own.dtype in integers else (own.dtype,)):
            raise RuntimeError(
                f"{type(module).__name__} expected the state {prefix}{name} to be a {own.dim()}-dimensional "
                f"{own.dtype} tensor, got {saved.dim()} dimensions of {saved.dtype}: give a state that was not cast"
            )
    for name, saved in found.items():
        module._buffers[name] = torch.empty_like(saved, device=module.get_buffer(name).device)


class ShapedBuffers(torch.nn.Module):
    """The base class of modules whose buffers take the shapes of saved ones."""

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        take_shapes(self, state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, *args)
