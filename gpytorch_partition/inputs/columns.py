"""Selection of a kernel's input columns, kept in its state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gpytorch_partition.descriptions import listed
from gpytorch_partition.files.buffers import take_shapes
from gpytorch_partition.inputs.numbers import tensor_of


class Columns(torch.nn.Module):
    r"""
    The columns that `active_dims` names, which the kernel itself selects.

    GPyTorch's own buffer `active_dims` stays None: a wrapper kernel copies it, sets it to None while it evaluates and
    does not restore it after an error, so that later calls would see the wrong columns.

    :param dims: Column indices, from 0. (Default: None, all columns.)
    :raises ValueError: If they are none, or not distinct integers from 0.

    Example:
        >>> Columns((2, 0)).select(torch.tensor([[1.0, 2.0, 3.0]]))
        tensor([[3., 1.]])
    """

    def __init__(self, dims: Sequence[int] | Tensor | None = None) -> None:
        super().__init__()
        # An empty tensor stands for all columns.
        self.numbers: Tensor
        self.register_buffer("numbers", torch.empty(0, dtype=torch.int64) if dims is None else _checked(dims))

    def extra_repr(self) -> str:
        """Return the numbers of the columns."""
        return listed(self.numbers.tolist()) if self.numbers.numel() else "all"

    def select(self, x: Tensor) -> Tensor:
        """
        Return the columns `*batch x N x k` of points `*batch x N x D` (`N` stands for `N x 1`): a copy, or x itself for
        all columns.

        :raises TypeError: If x is no tensor.
        :raises ValueError: If x has too few columns.
        """
        if not torch.is_tensor(x):
            raise TypeError(
                f"expected points as a tensor, got {type(x).__name__}: torch.from_numpy makes one of an array"
            )
        x = x.unsqueeze(-1) if x.dim() == 1 else x
        if not self.numbers.numel() or not x.dim():
            return x
        if x.shape[-1] <= int(self.numbers.max()):
            raise ValueError(
                f"active_dims = {tuple(self.numbers.tolist())} expected points with at least "
                f"{int(self.numbers.max()) + 1} columns, got {x.shape[-1]}: give all columns, not the active ones only."
            )
        return x.index_select(-1, self.numbers)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        take_shapes(self, state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, *args)


def _checked(dims: Sequence[int] | Tensor) -> Tensor:
    numbers = tensor_of(dims, "active_dims to be distinct numbers of columns, counted from 0")
    valid = (
        not (numbers.is_floating_point() or numbers.is_complex() or numbers.dtype == torch.bool)
        and numbers.dim() == 1
        and numbers.numel() > 0
    )
    if not valid or int(numbers.min()) < 0 or numbers.unique().numel() < numbers.numel():
        raise ValueError(f"expected active_dims to be distinct numbers of columns, counted from 0, got {dims!r}")
    return numbers.to(torch.int64)
