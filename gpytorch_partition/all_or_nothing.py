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

    The method is called on another object of the class with the same attributes. When it returns, its attributes become
    those of the object in one assignment. It must assign attributes, not change their values in place: copy a value
    that changes (an index that grows, weights that are trained further) first.

    :param method: The method; if it returns its object, the caller gets the original object.

    Example:
        >>> class Mean:
        ...     @all_or_nothing
        ...     def fit(self, numbers):
        ...         self.count = len(numbers)
        ...         self.mean = sum(numbers) / self.count
        ...         return self
        >>> mean = Mean().fit([1.0, 3.0])
        >>> mean.fit([])
        Traceback (most recent call last):
        ZeroDivisionError: division by zero
        >>> mean.count, mean.mean
        (2, 2.0)
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

    :param method: The method.
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
    Restore the parameters of modules, and whether PyTorch records gradients, if an error is raised inside.

    An interruption (Ctrl-C) counts as an error. It may come before :func:`torch.no_grad` has turned gradients on again.

    :param modules: Modules of PyTorch, whose parameters are copied at the beginning.

    Example:
        >>> module = torch.nn.Linear(1, 1)
        >>> before = module.weight.item()
        >>> with unchanged_by_errors(module):
        ...     _ = module.weight.data.fill_(7.0)
        ...     raise RuntimeError("stopped")
        Traceback (most recent call last):
        RuntimeError: stopped
        >>> module.weight.item() == before
        True
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
