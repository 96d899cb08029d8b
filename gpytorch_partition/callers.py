"""Callers of this package: the line that warnings point to, and `torch.compile`, which runs methods as they are."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import torch

Method = TypeVar("Method", bound=Callable[..., Any])

# This package, and those that call it on behalf of a user.
_OF_LIBRARIES = {"gpytorch_partition", "sklearn", "joblib", "numpy", "torch", "gpytorch", "linear_operator", "botorch"}


def level_of_caller() -> int:
    """Return the `stacklevel` by which :func:`warnings.warn` points to the first line outside this package."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _OF_LIBRARIES:
        level, frame = level + 1, frame.f_back
    return level


def not_compiled(method: Method) -> Method:
    """Return a method that `torch.compile` runs as it is: its steps depend on values, and took minutes to compile."""
    as_it_is = torch._disable_dynamo(method)

    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        is_in_use = "torch._dynamo" in sys.modules  # its import takes seconds
        return (as_it_is if is_in_use else method)(*args, **kwargs)

    call.__code__ = call.__code__.replace()  # type: ignore[attr-defined]  # each is compiled on its own
    return cast(Method, call)
