"""What a client is: a model built from rows and a kernel, in GPyTorch's spelling, and what is asked of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tests.clients.problems import KernelFactory, Problem

MODES = ("default", "iterative", "fast_pred_var")


@dataclass
class Client:
    """
    A model and the four things that are asked of it.

    :param modules: Everything that has parameters.
    :param objective: The log likelihood (or bound) per datum, in training mode.
    :param predict: The latent posterior at the test points, in evaluation mode.
    :param observe: The posterior of new targets, from the latent one.
    :param settings: GPyTorch's settings that the client is used in.
    :param is_posterior: Whether what is predicted has more than a mean.
    """

    modules: torch.nn.Module
    objective: Callable[[], Tensor] | None
    predict: Callable[[], Any]
    observe: Callable[[Any], Any] | None = None
    settings: Callable[[], Any] = nullcontext
    is_posterior: bool = True


@dataclass
class Values:
    """Numbers made of a posterior, in the place of its mean."""

    mean: Tensor


@dataclass(frozen=True)
class Recipe:
    """
    A named client.

    :param build: From rows and a kernel to the client.
    :param oracle: The same for the dense oracle, where GPyTorch itself computes something else.
    :param is_iterative: Whether GPyTorch itself solves iteratively at any number of rows.
    """

    name: str
    build: Callable[[Problem, KernelFactory], Client]
    oracle: Callable[[Problem, KernelFactory], Client] | None = None
    is_iterative: bool = False


class Registry(dict[str, Recipe]):
    """Clients by name."""

    def client(self, name: str, **options: Any) -> Callable[[Callable], Recipe]:
        """Register the function that builds a client."""

        def register(build: Callable[[Problem, KernelFactory], Client]) -> Recipe:
            self[name] = Recipe(name, build, **options)
            return self[name]

        return register


RECIPES = Registry()
client = RECIPES.client
