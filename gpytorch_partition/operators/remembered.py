"""What is computed once for rows and looked up as long as nothing that it came from has changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import torch
from linear_operator.operators import LinearOperator

Value = TypeVar("Value")


def remembered(
    memo: dict[Any, Any],
    name: str,
    source: LinearOperator | torch.nn.Module,
    compute: Callable[[], Value],
    *options: Any,
) -> Value:
    """
    A value derived from an operator or a module, computed without a graph and kept until one of the tensors there or
    one of the options differs; only the last value is kept.

    :param memo: Where it is kept.
    :param name: Under which name.
    :param source: Whose tensors are compared, by value; a copy of them is kept as well.
    :param compute: How it is computed.
    :param options: What else the value depends on.
    """
    tensors = [tensor.detach() for tensor in _tensors(source)]
    found = memo.get(name)
    if found is None or found[0] != options or not _all_equal(found[1], tensors):
        with torch.no_grad():
            found = memo[name] = (options, [tensor.clone() for tensor in tensors], compute())
    return found[2]


def _tensors(source: LinearOperator | torch.nn.Module) -> Iterable[torch.Tensor]:
    return source.state_dict().values() if isinstance(source, torch.nn.Module) else source.representation()


def _all_equal(first: list[torch.Tensor], second: list[torch.Tensor]) -> bool:
    return len(first) == len(second) and all(map(_equal, first, second))


def _equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.device == b.device and torch.equal(a, b)
