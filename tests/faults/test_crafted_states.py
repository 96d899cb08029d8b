"""Tables of every kind of kernel, changed one by one: they are refused, or harmless; none is read beyond its end."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.stored_models.files import read
from tests.stored_models.zoo import ZOO

# Of Gamma Mondrian trees and mixtures of them a prediction takes seconds; model files are in the other trials.
NAMES = sorted(ZOO.keys() - {"gamma_mondrian", "nested_mixture", "model_file"})
CLEAR = (RuntimeError, ValueError, TypeError, KeyError)  # an IndexError is not


def _tables(state: dict[str, Any], *path: str) -> Iterator[tuple[tuple[str, ...], Tensor]]:
    for name, value in state.items():
        if isinstance(value, dict):
            yield from _tables(value, *path, name)
        elif torch.is_tensor(value) and not value.is_floating_point():
            yield (*path, name), value


def _changed(table: Tensor) -> Iterator[Tensor]:
    yield table.unsqueeze(0).clone()
    yield table.double()
    if table.dim() and len(table):
        yield table[:-1].clone()
        yield torch.cat([table, table[-1:]])
    if table.numel() and table.dtype != torch.bool:
        for value in (-1, torch.iinfo(table.dtype).max):
            numbers = table.clone()
            numbers.view(-1)[len(numbers.view(-1)) // 2] = value
            yield numbers


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
def test_a_changed_table_is_refused_or_harmless(name):
    entry, stored = ZOO[name], read(name)
    num_refused = 0
    with entry.context():
        for (*path, last), table in _tables(stored["state"]):
            for changed in _changed(table):
                state = deepcopy(stored["state"])
                inner = state
                for part in path:
                    inner = inner[part]
                inner[last] = changed
                try:
                    model = entry.kind.restored(entry.unfitted(stored["rows"]), state)
                    entry.kind.numbers(model, stored["rows"].new)
                except CLEAR:
                    num_refused += 1
    assert num_refused
