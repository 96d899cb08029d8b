"""How things are measured: medians of interleaved repetitions, growth exponents, a process's peak memory."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Hashable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, TypeVar
from unittest.mock import patch

from gpytorch_partition.linalg.conjugate_gradients import CGResult
from gpytorch_partition.operators import guards

Name = TypeVar("Name", bound=Hashable)
Result = TypeVar("Result")


def seconds(call: Callable[[], Any]) -> float:
    """How long one call takes."""
    return timed(call)[1]


def timed(call: Callable[[], Result]) -> tuple[Result, float]:
    """What a call returns, and how long it takes."""
    start = perf_counter()
    result = call()
    return result, perf_counter() - start


def medians(contenders: Mapping[Name, Callable[[], Any]], repetitions: int) -> dict[Name, float]:
    """Median seconds of each contender. They take turns, so that a busy moment of the machine hits all alike."""
    for call in contenders.values():
        call()  # what is built once and kept is not measured here
    times: dict[Name, list[float]] = {name: [] for name in contenders}
    for _ in range(repetitions):
        for name, call in contenders.items():
            times[name].append(seconds(call))
    return {name: median(values) for name, values in times.items()}


def growth(sizes: list[int], times: list[float]) -> float:
    """The exponent e of time ~ size^e between the smallest and the largest size."""
    return math.log(times[-1] / times[0]) / math.log(sizes[-1] / sizes[0])


def in_own_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a module's function in a fresh process, which has its own :func:`peak_gib`."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def in_this_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a function without the seconds that a fresh process takes to begin; its memory means nothing."""
    return function(*arguments)


def peak_gib() -> float:
    """
    The most resident memory that this process has held so far, libraries (a third of a GiB) included.

    `ru_maxrss` alone would begin with the parent's on Linux.
    """
    import resource

    unit = 2**30 if sys.platform == "darwin" else 2**20
    return _status_gib("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def held_gib() -> float:
    """The resident memory that this process holds now; the most so far, where the system does not tell."""
    return _status_gib("VmRSS") or peak_gib()


def _status_gib(name: str) -> float | None:
    """A line of what Linux says of this process."""
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    line = next(line for line in status.read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) / 2**20


@contextmanager
def counted_solves() -> Iterator[list[int]]:
    """Collects the iterations of every solve with covariance plus noise."""
    iterations: list[int] = []
    solve = guards.conjugate_gradients

    def counted(*args: Any, **kwargs: Any) -> CGResult:
        result = solve(*args, **kwargs)
        iterations.append(result.iterations)
        return result

    with patch.object(guards, "conjugate_gradients", counted):
        yield iterations
