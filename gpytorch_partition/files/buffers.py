"""Buffers that take the shapes of saved ones."""

from collections.abc import Mapping
from typing import Any

import torch


def take_shapes(module: torch.nn.Module, state: Mapping[str, Any], prefix: str) -> None:
    """
    Give a module's own buffers the shapes of saved ones, so that `load_state_dict` copies them unchanged.

    Buffers hold bit patterns, codes and flags, which a cast to floats would change. A state that was cast, or has other
    dimensions, raises a RuntimeError, and nothing has changed.
    """
    found = {name: state[prefix + name] for name in module._buffers if prefix + name in state}
    for name, saved in found.items():
        own, integers = module.get_buffer(name), (torch.int32, torch.int64)
        if saved.dim() != own.dim() or saved.dtype not in (integers if own.dtype in integers else (own.dtype,)):
            raise RuntimeError(
                f"{type(module).__name__} expected the state {prefix}{name} to be a {own.dim()}-dimensional "
                f"{own.dtype} tensor, got {saved.dim()} dimensions of {saved.dtype}: give a state that was not cast"
            )
    for name, saved in found.items():
        module._buffers[name] = torch.empty_like(saved, device=module.get_buffer(name).device)
