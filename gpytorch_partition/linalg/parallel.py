"""Threads for work on many items, as many as PyTorch has, one in forked processes; and L-BFGS-B beside them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import OptimizeResult, minimize
from threadpoolctl import ThreadpoolController

Piece = TypeVar("Piece")


# Numbers in a tensor up to which PyTorch runs an elementwise operation on the calling thread. Pieces of this size stay
# in the cache and need no barriers, which cost more than the work itself where cores are shared.
SERIAL_NUMEL = 2**15
_MOST_SERIAL_ROWS = 5_000

_IDLE_THREADS: ContextVar[int] = ContextVar("threads that threads_for leaves idle, with its own", default=1)


def _compute_on_one_thread() -> None:
    """As in PyTorch's data loaders: a forked process lacks OpenMP's threads, and would wait for them for ever."""
    if torch.get_num_threads() > 1:
        torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_compute_on_one_thread)


@contextmanager
def threads_for(num_rows: int) -> Iterator[None]:
    """
    Compute with one thread of OpenMP where training rows are few, and with all threads elsewhere.

    OpenMP's threads wait for each other by spinning, thousands of times in the fit of a small table: beside
    other processes most of its time. The limit, 5,000 rows, holds in the calling thread only.
    """
    if num_rows > _MOST_SERIAL_ROWS:
        yield
        return
    token = _IDLE_THREADS.set(torch.get_num_threads())
    try:
        with _one_openmp_thread():
            yield
    finally:
        _IDLE_THREADS.reset(token)


def _one_openmp_thread() -> Any:
    return ThreadpoolController().select(user_api="openmp").limit(limits=1)


Submit: TypeAlias = Callable[..., "Future[Any]"]


@contextmanager
def idle_threads() -> Iterator[Submit]:
    """
    Yield a function like `Executor.submit`, for the threads that :func:`threads_for` leaves idle, else for this one.

    Calls see the settings of their caller, and must not write to the same memory. Each has one thread of OpenMP.
    """
    if (num_threads := _IDLE_THREADS.get()) == 1:
        yield _done
        return
    with ThreadPoolExecutor(num_threads, initializer=_begin_worker) as pool:
        try:
            yield lambda work, *args: pool.submit(copy_context().run, _alone, work, *args)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)  # an interruption waits for what has begun only
            raise


def _done(work: Callable[..., Any], *args: Any) -> Future[Any]:
    found: Future[Any] = Future()
    found.set_result(work(*args))
    return found


def _alone(work: Callable[..., Any], *args: Any) -> Any:
    _IDLE_THREADS.set(1)
    return work(*args)


def _begin_worker() -> None:
    torch.get_num_threads()  # PyTorch sets the number of a new thread when it first reads it
    _one_openmp_thread()  # for the life of the thread


def slices(total: int, size: int) -> list[slice]:
    """Return slices of `size` places, the last one of fewer, that cover `total`."""
    return [slice(start, min(start + size, total)) for start in range(0, total, size)]


def for_each(work: Callable[[Piece], None], pieces: Iterable[Piece]) -> None:
    """
    Call `work` on each piece, several at a time: PyTorch's operations release Python's global interpreter lock.

    Calls must not write to the same memory.
    """
    num_threads = torch.get_num_threads()
    if num_threads == 1:
        for piece in pieces:
            work(piece)
        return
    with ThreadPoolExecutor(num_threads) as pool:
        for _ in pool.map(work, pieces):
            pass


# A value and the gradient.
Objective: TypeAlias = Callable[[NDArray[np.float64]], tuple[float, NDArray[np.float64]]]


def minimize_lbfgsb(
    objective: Objective,
    start: Sequence[float] | NDArray[np.float64],
    *,
    bounds: Sequence[tuple[float | None, float | None]] | NDArray[np.float64] | None = None,
    callback: Callable[[Any], Any] | None = None,
    options: Mapping[str, Any] | None = None,
) -> OptimizeResult:
    """
    Minimize a function by SciPy's L-BFGS-B, with the BLAS of SciPy and NumPy limited to one thread.

    OpenBLAS would wake all its threads for small matrices, which spin on the cores that PyTorch needs: on two cores the
    default model of 1,100 rows took 1.7 times as long.
    """
    with ThreadpoolController().select(prefix="libscipy_openblas").limit(limits=1):
        return minimize(
            objective, start, jac=True, method="L-BFGS-B", bounds=bounds, callback=callback, options=options
        )
