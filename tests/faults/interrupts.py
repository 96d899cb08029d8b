"""Interruptions at chosen places of the package's work, and what an interruption may not leave behind."""

from __future__ import annotations

import inspect
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gpytorch
import linear_operator
import numpy as np
import torch

import gpytorch_partition
from gpytorch_partition import progress

PACKAGE = str(Path(gpytorch_partition.__file__).parent)
_NO_FUNCTIONS = inspect.CO_GENERATOR | inspect.CO_COROUTINE  # whose frames are entered in their middle
_LEFT_OUT = {"<module>", "<genexpr>"}


class Stopped(KeyboardInterrupt):
    """An interruption that the tests have made."""


def _is_entry(frame: Any, event: str) -> bool:
    code = frame.f_code
    if event != "call" or code.co_flags & _NO_FUNCTIONS or code.co_name in _LEFT_OUT:
        return False
    return code.co_filename.startswith(PACKAGE) and not _is_deleting(frame)


def _is_deleting(frame: Any) -> bool:
    """Whether a frame is inside `__del__`, whose errors are not raised."""
    while frame is not None and frame.f_code.co_name != "__del__":
        frame = frame.f_back
    return frame is not None


@contextmanager
def _profiled(profile: Callable[[Any, str, Any], None]) -> Iterator[None]:
    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(before)


def num_entries(work: Callable[[], Any]) -> int:
    """How many functions of the package are entered, in this thread, by some work."""
    count = 0

    def profile(frame: Any, event: str, _: Any) -> None:
        nonlocal count
        count += _is_entry(frame, event)

    with _profiled(profile):
        work()
    return count


def stopped_at(entry: int, work: Callable[[], Any]) -> bool:
    """Whether some work was interrupted, as its function number `entry` of the package was entered."""
    left = entry

    def profile(frame: Any, event: str, _: Any) -> None:
        nonlocal left
        if _is_entry(frame, event):
            left -= 1
            if left < 0:
                sys.setprofile(None)
                raise Stopped(f"entry {entry}, {frame.f_code.co_qualname}")

    try:
        with _profiled(profile):
            work()
    except Stopped:
        return True
    return False


def places(count: int, number: int, seed: int = 0) -> list[int]:
    """Some entries of `count`: the first ones, the last ones, and random ones between."""
    random = np.random.RandomState(seed)
    ends = {0, 5, count - 1, count - 4}
    return sorted(entry for entry in {*ends, *random.randint(count, size=number).tolist()} if 0 <= entry < count)


_SETTINGS = [
    setting
    for module in (linear_operator.settings, gpytorch.settings)
    for setting in vars(module).values()
    if isinstance(setting, type) and (hasattr(setting, "value") or hasattr(setting, "on"))
]
_OWN = [
    each
    for each in map(vars(gpytorch_partition.settings).get, gpytorch_partition.settings.__all__)
    if hasattr(each, "value")
]


def _read(setting: Any) -> Any:
    if hasattr(setting, "on"):
        return setting.on()
    try:
        return setting.value()
    except (TypeError, RuntimeError):  # of a dtype
        return tuple(getattr(setting, f"_global_{kind}_value") for kind in ("float", "double", "half"))


def process_state() -> dict[str, Any]:
    """What work may change for others: settings, filters of warnings, random states, modes, threads, what is shown."""
    random = np.random.get_state()  # noqa: NPY002
    return {
        "settings": {setting.__qualname__: _read(setting) for setting in [*_SETTINGS, *_OWN]},
        "filters": list(warnings.filters),
        "show": warnings.showwarning,
        "torch": torch.random.get_rng_state().tolist(),
        "numpy": (random[0], random[1].tolist(), *random[2:]),
        "grad": torch.is_grad_enabled(),
        "dtype": torch.get_default_dtype(),
        "threads": {thread.ident for thread in threading.enumerate()},
        "line": progress._LINE.get(),
        "seconds": progress._SECONDS.get(),
        "verbose": progress._VERBOSE.get(),
    }


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """The names of what has changed."""
    return [name for name in before if before[name] != after[name]]
