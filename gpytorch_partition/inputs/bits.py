"""Floating point tensors as integer bit patterns: `.float()` and `.double()` do not round them, and NaN equals NaN."""

from __future__ import annotations

import torch
from torch import Tensor


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Return whether two tensors have the same shape, dtype, device and bits, NaN included."""
    if a.shape != b.shape or a.dtype != b.dtype or a.device != b.device:
        return False
    if a.data_ptr() == b.data_ptr() and a.stride() == b.stride():
        return True
    bits = {8: torch.int64, 4: torch.int32, 2: torch.int16}[a.element_size()]
    return bool(torch.equal(a.detach().contiguous().view(bits), b.detach().contiguous().view(bits)))


def bits_of(values: Tensor) -> Tensor:
    """
    Return floats as the integers of their bit patterns, for buffers that no change of dtype may round.

    :param values: `*shape` float32 or float64.
    :return: `*shape` int32 or int64.

    Example:
        >>> bits_of(torch.tensor([1.0, -0.0])), floats_of(bits_of(torch.tensor([1.0, -0.0])))
        (tensor([ 1065353216, -2147483648], dtype=torch.int32), tensor([1., -0.]))
    """
    return values.contiguous().view(torch.int64 if values.dtype == torch.float64 else torch.int32)


def floats_of(bits: Tensor) -> Tensor:
    """Return floats (`*shape`) from bit patterns (`*shape` int32 or int64), the inverse of :func:`bits_of`."""
    return bits.view(torch.float64 if bits.dtype == torch.int64 else torch.float32)
