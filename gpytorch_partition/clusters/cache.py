"""A cache for values derived from rows, each valid while the tensors that it was computed from are unchanged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar, cast

import torch
from linear_operator.operators import LinearOperator
from torch import Tensor

Value = TypeVar("Value")
Source: TypeAlias = LinearOperator | torch.nn.Module


@dataclass(frozen=True, eq=False)
class Key(Generic[Value]):
    """The key of one kind of values in caches, declared once by the module that owns them; compared by identity."""

    name: str


class _Entry(NamedTuple):
    options: tuple[Any, ...]
    tensors: list[Tensor]
    value: Any


class Cache:
    """A cache of values derived from the same rows, the latest for each key."""

    def __init__(self) -> None:
        self._entries: dict[Key[Any], _Entry] = {}

    def get(self, key: Key[Value], source: Source | None, compute: Callable[[], Value], *options: Any) -> Value:
        """
        Return the value of a key: the cached one if options and tensors are equal, else a new one, without gradients.

        :param source: The operator or module that the value is computed from, besides the rows; a copy of its tensors
            is kept as well. None if the value depends only on the rows.
        :param options: Other dependencies of the value, compared by `==`, so no tensors.
        """
        tensors = [] if source is None else [tensor.detach() for tensor in _tensors(source)]
        found = self._entries.get(key)
        if found is None or found.options != options or not _all_equal(found.tensors, tensors):
            with torch.inference_mode(False), torch.no_grad():  # training may use what a prediction has computed
                found = self._entries[key] = _Entry(options, [tensor.clone() for tensor in tensors], compute())
        return cast(Value, found.value)

    def peek(self, key: Key[Value]) -> Value | None:
        """Return the value of a key that was computed last, from any source; None if there is none."""
        found = self._entries.get(key)
        return None if found is None else cast(Value, found.value)


def without_computed(owner: object) -> dict[str, Any]:
    """Return an object's state for its pickle, without the values of cached properties, which are computed again."""
    kept = (name for name in owner.__dict__ if not isinstance(getattr(type(owner), name, None), cached_property))
    return {name: owner.__dict__[name] for name in kept}


def _tensors(source: Source) -> list[Tensor]:
    return list(source.state_dict().values() if isinstance(source, torch.nn.Module) else source.representation())


def _all_equal(first: list[Tensor], second: list[Tensor]) -> bool:
    kinds = [[(tensor.dtype, tensor.shape, tensor.device) for tensor in tensors] for tensors in (first, second)]
    return kinds[0] == kinds[1] and all(map(torch.equal, first, second))
