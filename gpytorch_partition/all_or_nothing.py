"""
Work that succeeds whole or changes nothing: what errors and interruptions (Ctrl-C, a time limit) may leave behind.

The rule, for every method that learns and every function that trains a model in place:

- **Estimators and models that are fitted**: a fit works on a copy of the object's attributes, which takes their place
  in one step when it is done (:func:`all_or_nothing`). Until then the object is what it was: not fitted, or fitted with
  its old model, with the units, classes and columns of that model.
- **Modules of PyTorch that are trained in place**: parameters go back to their values from before
  (:func:`unchanged_by_errors`).
- What is set for the time of the work (settings, the line on a terminal, a limit of time, PyTorch's gradient mode) ends
  with it, wherever it was interrupted: the work has a :mod:`contextvars` context of its own.

What the work was given is not restored: a `RandomState` has been drawn from.
"""

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
    Decorate a method that learns: the object has all of what it has learned, or none of it.

    The method is called on another object of the class with the same attributes, whose attributes are taken over when
    it returns. It must assign attributes, not change their values in place; a value that it changes (an index that
    grows, weights that go on learning) is to be copied first.

    :param method: The method; if it returns its object, the caller is given the one that it knows.

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
        result = _in_own_context(method, work, *args, **kwargs)
        # One assignment, so that neither an interruption nor another thread finds a part of it.
        self.__dict__ = vars(work)
        return self if result is work else result  # type: ignore[return-value]

    return whole


def in_own_context(work: Callable[P, T]) -> Callable[P, T]:
    """
    Decorate work that enters settings and the like: they end with it, also where their own ends are interrupted.

    An interruption may come as a context manager begins to leave, which then never does.

    :param work: A function or a method. Context variables that it sets are those of a copy.

    Example:
        >>> from contextvars import ContextVar
        >>> number = ContextVar("number", default=1)
        >>> in_own_context(number.set)(2).var is number, number.get()
        (True, 1)
    """

    @wraps(work)
    def inside(*args: P.args, **kwargs: P.kwargs) -> T:
        return _in_own_context(work, *args, **kwargs)

    return inside


def _in_own_context(work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    has_gradients = torch.is_grad_enabled()
    try:
        return copy_context().run(work, *args, **kwargs)
    except BaseException:
        torch.set_grad_enabled(has_gradients)
        raise


@contextmanager
def unchanged_by_errors(*modules: torch.nn.Module) -> Iterator[None]:
    """
    Restore the parameters of modules if an error is raised inside, or the work is interrupted.

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
    before = [parameter.detach().clone() for parameter in parameters]
    try:
        yield
    except BaseException:
        for parameter, value in zip(parameters, before):
            parameter.data.copy_(value)
        raise
