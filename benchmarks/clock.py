"""Seconds, medians of interleaved repetitions, growth exponents, and memory of a process."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any, TypeVar

Name = TypeVar("Name", bound=Hashable)
Result = TypeVar("Result")


def timed(call: Callable[[], Result], clock: Callable[[], float] = perf_counter) -> tuple[Result, float]:
    """Return the result of a call, and its seconds."""
    start = clock()
    result = call()
    return result, clock() - start


def seconds(call: Callable[[], Any]) -> float:
    """Return the seconds of a call."""
    return timed(call)[1]


def cpu_timed(call: Callable[[], Result]) -> tuple[Result, float]:
    """Return the result of a call, and the CPU seconds of all its threads."""
    return timed(call, process_time)


def medians(contenders: Mapping[Name, Callable[[], Any]], repetitions: int) -> dict[Name, float]:
    """Return the median seconds of each contender; they take turns, so that a busy moment hits all alike."""
    for call in contenders.values():
        call()  # what is built once and kept is not measured
    times: dict[Name, list[float]] = {name: [] for name in contenders}
    for _ in range(repetitions):
        for name, call in contenders.items():
            times[name].append(seconds(call))
    return {name: median(values) for name, values in times.items()}


def growth(sizes: list[int], times: list[float]) -> float:
    """Return the exponent e of time ~ size^e between the first and the last size."""
    return math.log(times[-1] / times[0]) / math.log(sizes[-1] / sizes[0])


def in_own_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a module's function in a fresh process, which has its own :func:`peak_gib`."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def peak_gib() -> float:
    """Return the most GiB that this process has held, imports (a third of a GiB) included."""
    import resource

    unit = 2**30 if sys.platform == "darwin" else 2**20
    # On Linux `ru_maxrss` would begin with the parent's.
    return _status_gib("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def held_gib() -> float:
    """Return the GiB that this process holds; the most so far, where the system does not tell."""
    return _status_gib("VmRSS") or peak_gib()


def _status_gib(name: str) -> float | None:
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    line = next(line for line in status.read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) / 2**20
