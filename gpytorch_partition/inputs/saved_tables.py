"""
Checks of saved tables before they are used, each in time linear in their size.

A table that was changed, or made by another program, may have a cycle where a tree is expected, or numbers of rows that
are not there: it would be read beyond its end, or without an end. Each class checks its own tables by these functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from gpytorch_partition.inputs.bits import floats_of

_BOUNDS = (".lower_bound", ".upper_bound")  # of GPyTorch's constraints, which may be infinite


def check_saved(holds: bool | Tensor, owner: object, expected: str) -> None:
    """
    Refuse a saved state that cannot be one.

    :param holds: Whether it is as it should be.
    :param owner: Whose state it is.
    :param expected: What it should be.
    :raises RuntimeError: If it is not, as `load_state_dict` does.
    """
    if not bool(holds):
        raise RuntimeError(
            f"{type(owner).__name__} expected {expected} in its saved state, got others: the state is damaged, or "
            "was not made by this class"
        )


def has_shape(table: Any, *shape: int) -> bool:
    """Whether a table is a tensor of this shape."""
    return torch.is_tensor(table) and tuple(table.shape) == shape


def is_empty_or(table: Tensor, *shape: int) -> bool:
    """Whether a table has this shape, or is not used: it is then empty."""
    return not table.numel() or tuple(table.shape) == shape


def lies_in(numbers: Tensor, low: int, high: int) -> bool:
    """
    Whether all numbers are at least `low`, and below `high`.

    Example:
        >>> lies_in(torch.tensor([0, 2]), 0, 3), lies_in(torch.tensor([0, 3]), 0, 3), lies_in(torch.tensor([]), 0, 0)
        (True, False, True)
    """
    return not numbers.numel() or bool((numbers.min() >= low) & (numbers.max() < high))


def are_starts(starts: Tensor, end: int) -> bool:
    """
    Whether numbers say where parts begin, one after another: from 0, never falling, the last of them being the end.

    Example:
        >>> are_starts(torch.tensor([0, 2, 2, 5]), 5), are_starts(torch.tensor([0, 3, 2, 5]), 5)
        (True, False)
    """
    if starts.dim() != 1 or not starts.numel() or int(starts[0]) != 0 or int(starts[-1]) != end:
        return False
    return bool((starts[1:] >= starts[:-1]).all())


def are_finite(bits: Tensor) -> bool:
    """Whether the floats of bit patterns are finite."""
    return bits.dtype in (torch.int32, torch.int64) and bool(floats_of(bits.contiguous()).isfinite().all())


def are_positive(bits: Tensor) -> bool:
    """Whether the floats of bit patterns are finite, and above 0."""
    return are_finite(bits) and bool((floats_of(bits.contiguous()) > 0).all())


def check_floats(owner: torch.nn.Module, state: Mapping[str, Any], prefix: str = "") -> None:
    """
    Check the parameters and buffers of a module and all below it that are floats: that saved ones are, too, and finite.

    Only bounds of constraints may be infinite, the lower one is below the upper one, and neither lets a value be
    negative, or larger, than the module's own do. Integers stay integers.

    :param owner: The module, fitted or not.
    :param state: What is to be loaded; what is missing is not looked at.
    :param prefix: What its names begin with there.
    :raises RuntimeError: If it is anything else.
    """
    for name, own in owner.state_dict(keep_vars=True).items():
        saved = state.get(prefix + name)
        if saved is None or not torch.is_tensor(own):
            continue
        check_saved(torch.is_tensor(saved), owner, f"a tensor {name}")
        if own.is_floating_point():
            check_saved(saved.is_floating_point(), owner, f"floating point numbers {name}")
            if name.endswith(_BOUNDS):
                fits = (own < 0).all() or (saved >= 0).all() if name.endswith(_BOUNDS[0]) else (saved <= own).all()
                check_saved(fits, owner, f"a {name} within the class's own")
        else:
            check_saved(saved.dtype in (own.dtype, torch.int32, torch.int64), owner, f"{own.dtype} numbers {name}")
    for name, saved in state.items():
        if name.startswith(prefix) and torch.is_tensor(saved) and saved.is_floating_point():
            finite = ~saved.isnan() if name.endswith(_BOUNDS) else saved.isfinite()
            check_saved(finite.all(), owner, f"finite numbers {name}")
            if name.endswith(_BOUNDS[0]):
                upper = state.get(name.removesuffix(_BOUNDS[0]) + _BOUNDS[1])
                is_below = torch.is_tensor(upper) and upper.shape == saved.shape and bool((saved < upper).all())
                check_saved(is_below, owner, f"a {name} below the upper one")
