"""
Settings of GPyTorch that hold in one thread: how this package gives them values, and what GPyTorch enters by itself.

GPyTorch's settings are attributes of classes, and so of the process: `with cg_tolerance(0.01)` saves the value when it
is made and restores it when it is left. GPyTorch does this itself, in every prediction (`cg_tolerance`) and every
evaluation of a kernel (`lazily_evaluate_kernels`): of two threads each sees the other's values, and one may restore
what the other has set, for ever. Here a few of these classes learn to look first at what their thread holds.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from contextvars import ContextVar
from functools import wraps
from types import FrameType
from typing import Any, NamedTuple

import gpytorch
import linear_operator

_SETTINGS = ("linear_operator.settings", "gpytorch.settings")
_LIBRARIES = {"gpytorch", "linear_operator", "gpytorch_partition"}


class _Entry(NamedTuple):
    """Values by setting, which hold while the entry is the last one, and the kind of context that brought them."""

    mark: object
    kind: type
    values: dict[Any, Any]


# What this thread has entered, the last of which is read instead of the settings of the process; and what all threads
# have, for those of PyTorch's that compute gradients on a GPU, of which Python knows nothing: they read the newest.
_HELD: ContextVar[tuple[_Entry, ...]] = ContextVar("settings of GPyTorch in this thread", default=())
_OF_ALL: dict[object, _Entry] = {}


def hold(values: Mapping[Any, Any], kind: type) -> object:
    """
    Give settings values that hold in this thread (or asyncio task), until they are released.

    :param values: By setting; others stay.
    :param kind: The class of the context that gives them, for :func:`is_inside`.
    :return: The mark to release them by.

    Example:
        >>> mark = hold({gpytorch.settings.debug: False}, object)
        >>> gpytorch.settings.debug.on()
        False
        >>> release(mark)
        >>> gpytorch.settings.debug.on()
        True
    """
    entry = _Entry(object(), kind, {**_held(), **values})
    _OF_ALL[entry.mark] = entry
    _HELD.set((*_HELD.get(), entry))
    return entry.mark


def release(mark: object) -> None:
    """Take back what :func:`hold` gave, in any order."""
    _HELD.set(tuple(entry for entry in _HELD.get() if entry.mark is not mark))
    _OF_ALL.pop(mark, None)


def is_held(mark: object) -> bool:
    """Whether this thread holds what was given under a mark."""
    return any(entry.mark is mark for entry in _HELD.get())


def is_inside(kind: type) -> bool:
    """Whether this thread is inside a kind of context."""
    return any(entry.kind is kind for entry in _HELD.get())


def _held() -> dict[Any, Any]:
    """The settings that hold in this thread only."""
    if entries := _HELD.get():
        return entries[-1].values
    if _OF_ALL and isinstance(threading.current_thread(), threading._DummyThread):
        return next((entry.values for entry in reversed(tuple(_OF_ALL.values()))), {})
    return {}


def localized(setting: Any) -> Any:
    """
    A setting of GPyTorch which, from now on, is asked for what its thread holds before what the process has.

    Where the thread holds nothing it does what it did, but for contexts that are entered by GPyTorch's own modules,
    linear_operator's and this package's: these are held.

    :param setting: A class of `gpytorch.settings` or `linear_operator.settings` with a value, or that is on or off.
    :return: The class itself.
    """
    if not hasattr(setting, "_is_localized"):
        setting._is_localized = True
        is_flag = hasattr(setting, "on")
        _read_own(setting, "on" if is_flag else "value")
        _change_own(setting, "_set_state" if is_flag else "_set_value")
        _enter_own(setting, "state" if is_flag else "_instance_value", "prev" if is_flag else "_orig_value")
    return setting


def _read_own(setting: Any, name: str) -> None:
    read = getattr(setting, name)

    def read_own(cls: type) -> Any:
        held = _held()
        return held[setting] if setting in held else read()

    setattr(setting, name, classmethod(wraps(read)(read_own)))


def _change_own(setting: Any, name: str) -> None:
    change = getattr(setting, name)

    def change_own(cls: type, value: Any) -> None:
        entries = _HELD.get()
        if entries and setting in entries[-1].values:
            entry = entries[-1]._replace(values={**entries[-1].values, setting: value})
            _OF_ALL[entry.mark] = entry
            _HELD.set((*entries[:-1], entry))
        else:
            change(value)

    setattr(setting, name, classmethod(wraps(change)(change_own)))


def _enter_own(setting: Any, value_name: str, before_name: str) -> None:
    begin, enter, leave = setting.__init__, setting.__enter__, setting.__exit__

    @wraps(begin)
    def begin_own(self: Any, *args: Any, **kwargs: Any) -> None:
        begin(self, *args, **kwargs)
        if setting in (held := _held()):
            setattr(self, before_name, held[setting])
        self._mark, self._is_of_library = None, _is_of_library(sys._getframe(1))

    @wraps(enter)
    def enter_own(self: Any) -> None:
        if self._is_of_library:
            self._mark = hold({setting: getattr(self, value_name)}, setting)
        else:
            enter(self)

    @wraps(leave)
    def leave_own(self: Any, *args: Any) -> Any:
        if self._mark is None:
            return leave(self, *args)
        release(self._mark)
        self._mark = None
        return False

    setting.__init__, setting.__enter__, setting.__exit__ = begin_own, enter_own, leave_own


def _is_of_library(frame: FrameType | None) -> bool:
    """Whether a context is made by GPyTorch, linear_operator or this package, not by users of these."""
    module = _SETTINGS[0]
    while module in _SETTINGS and frame is not None:  # where users' `fast_computations` makes contexts
        module, frame = frame.f_globals.get("__name__", ""), frame.f_back
    return module.partition(".")[0] in _LIBRARIES


for _setting in (
    linear_operator.settings.cg_tolerance,
    linear_operator.settings.max_preconditioner_size,
    gpytorch.settings.debug,
    gpytorch.settings.detach_test_caches,
    gpytorch.settings.lazily_evaluate_kernels,
    gpytorch.settings.num_likelihood_samples,
):
    localized(_setting)
