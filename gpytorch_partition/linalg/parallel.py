"""Threads for work on many items, as many as PyTorch has, one in forked processes; and L-BFGS-B beside them."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import OptimizeResult, minimize
from threadpoolctl import ThreadpoolController

Piece = TypeVar("Piece")

# Numbers in a tensor up to which PyTorch runs an elementwise operation on the calling thread. Pieces of this size stay
# in the cache and need no barriers, which cost more than the work itself where cores are shared.
SERIAL_NUMEL = 2**15
_ACCELERATOR_NUMEL = 2**24  # numbers in a piece of work, large enough to keep an accelerator busy
_MOST_SERIAL_ROWS = 5_000


class _Idle(NamedTuple):
    """The threads that :func:`threads_for` leaves idle, with its own, and what limits each to one of OpenMP."""

    num_threads: int
    openmp: ThreadpoolController  # which a new thread must not make: its search can block an import elsewhere


_IDLE: ContextVar[_Idle | None] = ContextVar("threads that threads_for leaves idle", default=None)


def _compute_on_one_thread() -> None:
    """As in PyTorch's data loaders: a forked process lacks OpenMP's threads, and would wait for them for ever."""
    if torch.get_num_threads() > 1:
        torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_compute_on_one_thread)


@contextmanager
def threads_for(num_rows: int) -> Iterator[None]:
    """
    Compute with one thread of OpenMP where training rows are few (5,000), and with all threads elsewhere.

    OpenMP's threads wait for each other by spinning, in the fit of a small table most of its time. The limit holds in
    the calling thread only; inside another call, nothing changes.
    """
    if num_rows > _MOST_SERIAL_ROWS or _IDLE.get() is not None:
        yield
        return
    idle = _Idle(torch.get_num_threads(), ThreadpoolController().select(user_api="openmp"))
    token = _IDLE.set(idle)
    number = _set_mkl_threads(1)
    try:
        with idle.openmp.limit(limits=1):
            yield
    finally:
        _set_mkl_threads(number)
        _IDLE.reset(token)


def _set_mkl_threads(number: int) -> int:
    """
    Set the threads of PyTorch's own MKL for the calling thread; return their number, 0 for that of OpenMP.

    `torch.set_num_threads` sets it beside that of OpenMP, and threadpoolctl does not see it.
    """
    function = _mkl_function()
    return 0 if function is None else function(number)


@cache
def _mkl_function() -> Callable[[int], int] | None:
    try:
        return ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so")).MKL_Set_Num_Threads_Local
    except (OSError, AttributeError):  # another system, or a PyTorch without MKL
        return None


Submit: TypeAlias = Callable[..., "Future[Any]"]


@contextmanager
def idle_threads() -> Iterator[Submit]:
    """Yield a function like `Executor.submit`, for threads that :func:`threads_for` leaves idle, else for this one."""
    idle = _IDLE.get()
    if idle is None or idle.num_threads == 1:
        yield _done
        return
    pool = ThreadPoolExecutor(idle.num_threads, initializer=_begin_worker, initargs=(idle.openmp,))
    try:
        yield lambda work, *args: pool.submit(copy_context().run, _alone, work, *args)  # must not share memory
        pool.shutdown()
    except BaseException:
        pool.shutdown(cancel_futures=True)  # an interruption waits for calls that have begun only
        raise


def _done(work: Callable[..., Any], *args: Any) -> Future[Any]:
    found: Future[Any] = Future()
    found.set_result(work(*args))
    return found


def _alone(work: Callable[..., Any], *args: Any) -> Any:
    _IDLE.set(None)
    return work(*args)


@cache
def _openmp() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="openmp")


def _begin_worker(openmp: ThreadpoolController) -> None:
    torch.get_num_threads()  # PyTorch sets the number of a new thread when it first reads it
    openmp.limit(limits=1)  # for the life of the thread
    _set_mkl_threads(1)


def piece_numel(device: torch.device) -> int:
    """Return the number of numbers in a piece of elementwise work on a device."""
    return SERIAL_NUMEL if device.type == "cpu" else _ACCELERATOR_NUMEL


def slices(total: int, size: int) -> list[slice]:
    """Return slices of `size` places, the last one of fewer, that cover `total`."""
    return [slice(start, min(start + size, total)) for start in range(0, total, size)]


def for_each(work: Callable[[Piece], None], pieces: Iterable[Piece]) -> None:
    """Call `work` on each piece, several at a time, as PyTorch releases Python's lock; memory must not be shared."""
    num_threads = torch.get_num_threads()
    if num_threads == 1:
        for piece in pieces:
            work(piece)
        return
    with ThreadPoolExecutor(num_threads, initializer=_begin_worker, initargs=(_openmp(),)) as pool:
        for _ in pool.map(work, pieces):
            pass


def minimize_lbfgsb(
    objective: Callable[[NDArray[np.float64]], tuple[float, NDArray[np.float64]]],  # a value and the gradient
    start: Sequence[float] | NDArray[np.float64],
    *,
    bounds: Sequence[tuple[float | None, float | None]] | NDArray[np.float64] | None = None,
    callback: Callable[[Any], Any] | None = None,
    options: Mapping[str, Any] | None = None,
) -> OptimizeResult:
    """Minimize a function by SciPy's L-BFGS-B, with BLAS limited to one thread: others would spin beside PyTorch's."""
    given = {"bounds": bounds, "callback": callback, "options": options}
    with ThreadpoolController().select(prefix="libscipy_openblas").limit(limits=1):
        return minimize(objective, start, jac=True, method="L-BFGS-B", **given)
