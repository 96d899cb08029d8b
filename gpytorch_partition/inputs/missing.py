"""
Missing values: NaN, or the number that encodes NaN where GPyTorch does not accept it.

NaN is not equal to itself, so GPyTorch does not recognize training inputs that hold it ("You must train on the training
inputs!").
"""

from __future__ import annotations

import torch
from torch import Tensor

# The largest float32, which float64 holds as well, so that no change of dtype moves it.
MISSING = torch.finfo(torch.float32).max


def encode_missing(x: Tensor) -> Tensor:
    r"""
    Return points with the largest float32 (3.4e38) instead of NaN, which tree kernels read as a missing value.

    A :class:`gpytorch.models.ExactGP` of your own cannot be trained on inputs that hold NaN: give it the encoded
    inputs, in training and in prediction. :class:`~gpytorch_partition.models.PartitionGP` and the estimators encode
    themselves. Costs a copy of x.

    :param x: `*batch x N x D` float32 or float64 points.
    :return: The points without NaN; infinities stay.
    :raises TypeError: If x is anything else: narrower dtypes cannot hold the code.

    Example:
        >>> x = torch.tensor([[0.5, torch.nan], [0.1, 2.0]])
        >>> encode_missing(x)
        tensor([[5.0000e-01, 3.4028e+38],
                [1.0000e-01, 2.0000e+00]])
    """
    if not torch.is_tensor(x) or x.dtype not in (torch.float32, torch.float64):
        kind = x.dtype if torch.is_tensor(x) else type(x).__name__
        raise TypeError(f"expected points in a float32 or float64 tensor, got {kind}")
    return x.masked_fill(x.isnan(), MISSING)


def decode_missing(x: Tensor) -> Tensor:
    """Return points (`*shape`) with NaN where :func:`encode_missing` wrote its code."""
    return x.masked_fill(x == MISSING, torch.nan) if bool((x == MISSING).any()) else x
