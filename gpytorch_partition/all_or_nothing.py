"""Fits that succeed completely or change nothing, whatever fails or interrupts them, and predictions by one fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

import torch

P = ParamSpec("P")
T = TypeVar("T")
Self = TypeVar("Self")


def all_or_nothing(method: Callable[Concatenate[Self, P], T]) -> Callable[Concatenate[Self, P], T]:
    """
    Decorate a method that learns, so that it changes its object completely or not at all.

    It is called on another object with the same attributes, which become those of the object in one assignment when it
    returns. It must assign attributes, not change their values in place.
    """

    @wraps(method)
    def whole(self: Self, *args: P.args, **kwargs: P.kwargs) -> T:
        work = object.__new__(type(self))
        vars(work).update(vars(self))
        with unchanged_by_errors():
            result = copy_context().run(method, work, *args, **kwargs)  # context variables end with their context
        self.__dict__ = vars(work)
        return self if result is work else result  # type: ignore[return-value]

    return whole


def on_one_fit(method: Callable[Concatenate[Self, P], T]) -> Callable[Concatenate[Self, P], T]:
    """
    Decorate a method that reads what was learned, so that another thread that fits meanwhile does not change it.

    The method is called on another object of the class with the attributes of one moment. It must assign none.
    """

    @wraps(method)
    def unmixed(self: Self, *args: P.args, **kwargs: P.kwargs) -> T:
        work = object.__new__(type(self))
        vars(work).update(vars(self))
        return method(work, *args, **kwargs)

    return unmixed


@contextmanager
def unchanged_by_errors(*modules: torch.nn.Module) -> Iterator[None]:
    """
    Restore the parameters of modules, and whether PyTorch records gradients, after an error (or Ctrl-C) inside.

    An interruption may come before :func:`torch.no_grad` has turned gradients on again.
    """
    parameters = [parameter for module in modules for parameter in module.parameters()]
    before, has_gradients = [parameter.detach().clone() for parameter in parameters], torch.is_grad_enabled()
    try:
        yield
    except BaseException:
        for parameter, value in zip(parameters, before):
            parameter.data.copy_(value)
        torch.set_grad_enabled(has_gradients)
        raise
