"""Random generators of the solvers and of samples, independent of the global random state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

# Users' seeds are small numbers, and data drawn after torch.manual_seed(0) is common: probe vectors from the same
# stream would equal the data, and a sketch from the same stream as the probes would not be independent of them.
_STREAMS = {
    "probes": 0x5DEECE66D1B54A35,
    "sketch": 0x2545F4914F6CDD1D,
    "samples": 0x369DEA0F31A53F85,
    "rows": 0x1B873593CC9E2D51,
}

_DRAWN_FROM: ContextVar[torch.Generator | None] = ContextVar("the generator of samples", default=None)
_DRAW = {
    *(torch.randn, torch.rand, torch.randn_like, torch.normal, torch.bernoulli, torch._standard_gamma),
    *(torch.Tensor.normal_, torch.Tensor.uniform_, torch.Tensor.exponential_),
}


def solver_generator(seed: int, stream: str, device: torch.device) -> torch.Generator:
    """Return the generator of one of the solvers' streams, independent of the global one and of other streams."""
    return torch.Generator(device).manual_seed((_STREAMS[stream] + seed) % 2**63)


@contextmanager
def drawn_from(seed: int) -> Iterator[None]:
    """
    Draw Gaussian, uniform, exponential, gamma and Bernoulli numbers of PyTorch from a seed, in this thread only.

    Use it for samples on the CPU of distributions, which take no generator. Other draws come from the global state as
    before. Numbers are those of `torch.manual_seed`, with which threads would draw from each other's seeds.
    """
    token = _DRAWN_FROM.set(torch.Generator().manual_seed(seed))
    try:
        with _Drawing():
            yield
    finally:
        _DRAWN_FROM.reset(token)


class _Drawing(TorchFunctionMode):
    """Gives draws the generator of the thread; without one it does nothing."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _DRAW and kwargs.get("generator") is None and (generator := _DRAWN_FROM.get()) is not None:
            kwargs = {**kwargs, "generator": generator}
        return func(*args, **kwargs)
