"""What may not change: the global random states of Python, NumPy and PyTorch."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


@contextmanager
def untouched_random_states() -> Iterator[None]:
    """A block that neither draws from the global random states nor seeds them."""
    before = _states()
    yield
    assert _states() == before


def _states() -> tuple[Any, ...]:
    """Keys alone would not tell: NumPy's change once in 624 draws, its position with each."""
    _, keys, *position = np.random.get_state()  # noqa: NPY002 (the global state is what is tested)
    return keys.tolist(), position, torch.get_rng_state().tolist(), random.getstate()
