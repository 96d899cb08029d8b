"""What is computed once for rows and looked up as long as nothing that it came from has changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from linear_operator.operators import LinearOperator

Value = TypeVar("Value")


def remembered(memo: dict[Any, Any], key: Any, operator: LinearOperator, compute: Callable[[], Value]) -> Value:
    """
    A value derived from an operator, computed without a graph and kept until one of the operator's tensors differs.

    :param memo: Where it is kept.
    :param key: Under which name.
    :param operator: Whose tensors are compared, by value.
    :param compute: How it is computed.
    """
    tensors = [tensor.detach() for tensor in operator.representation()]
    found = memo.get(key)
    if found is None or not all(_equal(a, b) for a, b in zip(found[0], tensors)):
        with torch.no_grad():
            found = memo[key] = ([tensor.clone() for tensor in tensors], compute())
    return found[1]


def _equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.device == b.device and torch.equal(a, b)
