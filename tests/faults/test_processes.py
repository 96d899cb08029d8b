"""Estimators and kernels in processes that are forked and spawned, and fits that real signals interrupt."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

from gpytorch_partition import MondrianKernel
from gpytorch_partition.estimators import PartitionGPRegressor
from tests.faults.child import answer, asked
from tests.faults.estimators_zoo import numbers, rows

_SECONDS = 120  # after which a process is taken to hang

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that fork")


def _in_process(method: str, *args: Any) -> Any:
    context = multiprocessing.get_context(method)
    ours, its = context.Pipe(duplex=False)
    process = context.Process(target=answer, args=(its, *args))
    process.start()
    its.close()
    try:
        assert ours.poll(_SECONDS), f"the {method}ed process hangs"
        return ours.recv()
    finally:
        process.kill()
        process.join()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_child_process_answers_with_the_same_bits(method):
    X = rows(0, 80)
    kernel = MondrianKernel(torch.from_numpy(X), 10, random_state=0)
    model = PartitionGPRegressor("forest", 10, random_state=0, verbose=0).fit(X, numbers(X))
    expected = asked(model, kernel, X)
    found = _in_process(method, model, kernel, X)
    assert all(np.array_equal(a, b) for a, b in zip(expected, found, strict=True))


_AFTER_THREADS = """
import os, signal, sys, threading
import torch
from gpytorch_partition import MondrianKernel
torch.set_num_threads(2)
x = torch.rand(2**20, 1, dtype=torch.float64)
work = lambda: float((x * x).sum())  # on several threads
expected, kernel = work(), MondrianKernel(x[:100], 5, random_state=0)
busy = threading.Thread(target=work)
busy.start()
child = os.fork()
if child == 0:
    signal.alarm(60)
    found = work()
    kernel(x[:50]).to_dense()
    os._exit(0 if abs(found - expected) < 1e-6 * expected and torch.get_num_threads() == 1 else 3)
busy.join()
_, status = os.waitpid(child, 0)
sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.slow
def test_a_fork_after_threads_does_not_hang():
    environment = {**os.environ, "OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive"}
    run = subprocess.run(
        [sys.executable, "-c", _AFTER_THREADS], env=environment, timeout=_SECONDS, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr


_INTERRUPTED = """
import os, random, signal, sys, threading, time
import numpy as np, torch, warnings
import gpytorch
torch.set_num_threads(1)
warnings.simplefilter("ignore")
from tests.faults.estimators_zoo import numbers, rows
from tests.faults.interrupts import differences, process_state
from gpytorch_partition.estimators import PartitionGPRegressor
signal.signal(signal.SIGINT, signal.default_int_handler)  # which background jobs of a shell ignore
kind, random = sys.argv[1], random.Random(int(sys.argv[2]))
X, Z = rows(0, 150), rows(1, 150)
make = lambda: PartitionGPRegressor(kind, 20, random_state=0, verbose=0)
model = make().fit(X, numbers(X))
before = model.predict(X, return_std=True)
start = time.monotonic()
make().fit(Z, numbers(Z))
seconds, stopped = time.monotonic() - start, 0
state = process_state()
for trial in range(12):
    fresh = make()
    for each in (fresh, model):
        signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
        try:
            signal.setitimer(signal.ITIMER_REAL, max(1e-4, random.random() * seconds))
            each.fit(Z, numbers(Z))
            signal.setitimer(signal.ITIMER_REAL, 0)
            is_stopped = False
        except KeyboardInterrupt:
            is_stopped = True
            stopped += 1
        if each is model:
            after = model.predict(X, return_std=True)
            assert not is_stopped or all(np.array_equal(a, b) for a, b in zip(before, after)), "another model"
            model = model if is_stopped else make().fit(X, numbers(X))
        elif is_stopped:
            assert vars(fresh) == vars(make()), "a fit in part"
    assert differences(state, process_state()) == [], differences(state, process_state())
assert stopped > 5, stopped
"""


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "seed"), [("forest", 0), ("mondrian", 1)])
def test_real_signals_leave_the_old_model_or_none(kind, seed):
    command = [sys.executable, "-c", _INTERRUPTED, kind, str(seed)]
    run = subprocess.run(command, timeout=_SECONDS, capture_output=True, text=True, env={**os.environ})
    assert run.returncode == 0, run.stderr
