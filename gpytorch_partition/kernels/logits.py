"""Trained weights that sum to 1, stored as logits and read through a softmax."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gpytorch_partition.inputs.numbers import tensor_of


class Logits(torch.nn.Module):
    """
    A module of named vectors of logits as parameters, whose softmaxes are the weights.

    It is a submodule of the kernel, since GPyTorch indexes and expands a kernel's own parameters as if they began with
    its batch dimensions. Logits have none; all batch elements share them. Saved logits of any number are loaded.
    """

    def get(self, name: str) -> torch.nn.Parameter | None:
        """Return the logits (`n`) of a name; None if there are none."""
        return self._parameters.get(name)

    def set(self, name: str, values: Tensor) -> None:
        """Register trained logits under a name, or replace them."""
        self.register_parameter(name, torch.nn.Parameter(values.detach().clone()))

    def weights(self, name: str) -> Tensor | None:
        """Return the weights (`n`) of a name, in float64, as gradients sum over many clusters; None without logits."""
        logits = self.get(name)
        return None if logits is None else logits.double().softmax(0)

    def write(self, name: str, weights: Any) -> None:
        """Set the weights of a name in place, to `n` positive numbers in any unit; other values are an error."""
        logits = self.get(name)
        if logits is None:
            raise ValueError(f"expected a kernel that learns {name.removeprefix('raw_')}, got one that does not")
        with torch.no_grad():
            logits.copy_(checked_weights(weights, logits.numel()).log())

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        for name, logits in self._parameters.items():
            saved = state_dict.get(prefix + name)
            if logits is not None and saved is not None and saved.shape != logits.shape:
                logits.data = logits.data.new_empty(saved.shape)
        super()._load_from_state_dict(state_dict, prefix, *args)


def checked_weights(weights: Any, size: int) -> Tensor:
    """Return weights scaled to the sum 1 (`size`, float64); a `ValueError` unless they are `size` positive numbers."""
    checked = tensor_of(weights, f"{size} positive weights").detach()
    checked = checked.new_zeros(0) if checked.is_complex() else checked.double()
    if checked.shape != (size,) or not bool(((checked > 0) & (checked < torch.inf)).all()):
        raise ValueError(f"expected {size} positive weights, got {weights}")
    return checked / checked.sum()
