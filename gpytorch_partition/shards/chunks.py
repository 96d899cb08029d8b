"""Points and targets of a chunk, as tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor


def tensors_of(chunk: Any) -> tuple[Tensor, Tensor]:
    """
    Convert a pair of arrays, tensors or dataframes to points (`n x D`) and targets (`n`).

    :raises TypeError: If the chunk is no pair, or a column holds anything but numbers.
    :raises ValueError: If shapes do not match, or targets are not finite.
    """
    if not isinstance(chunk, tuple | list) or len(chunk) != 2:
        got = f"{len(chunk)} parts" if isinstance(chunk, tuple | list) else f"a {type(chunk).__name__}"
        raise TypeError(f"expected chunks of two parts, points and targets, got {got}")
    x, y = map(numbers_of, chunk)
    y = y.squeeze(-1) if y.dim() == 2 and y.shape[1] == 1 else y
    if x.dim() != 2 or y.shape != x.shape[:1]:
        raise ValueError(f"expected rows (n x D) and as many targets (n), got {tuple(x.shape)} and {tuple(y.shape)}")
    if not y.isfinite().all():
        raise ValueError("expected finite targets, got NaN or infinity: drop these rows")
    return x, y


def numbers_of(part: Any) -> Tensor:
    """Convert an array or a dataframe to a tensor of floats."""
    if torch.is_tensor(part):
        return part
    array = np.asarray(part)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"expected columns of numbers, got {array.dtype}: encode text and categories first")
    return torch.tensor(array if array.dtype.kind == "f" else array.astype(np.float64))
