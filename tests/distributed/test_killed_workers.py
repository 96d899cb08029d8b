"""Workers that are killed cost time and change no bit."""

from __future__ import annotations

import os
import signal
import time

import pytest
import torch
from distributed import Client, LocalCluster

from gpytorch_partition.distributed import DaskRows, count_chunks
from gpytorch_partition.linalg.conjugate_gradients import conjugate_gradients, relative_residual
from gpytorch_partition.models import FeatureSpaceGP
from tests.distributed.dask_problems import chunks, fast_clusters, rows

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def processes():
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        yield client


def _slowly(pair, log):
    with open(log, "a") as file:
        file.write(f"{os.getpid()}\n")
    time.sleep(0.4)
    return pair


def _kill_one(client):
    pid = next(iter(client.run(os.getpid).values()))
    os.kill(pid, signal.SIGKILL)
    return pid


def test_killed_while_counting(tmp_path, processes):
    import threading

    import dask

    log, kernel = tmp_path / "log", fast_clusters(*rows())
    expected, model = FeatureSpaceGP(kernel), FeatureSpaceGP(kernel)
    expected.add_chunks(chunks())
    killed = []

    def killer():
        while not (log.exists() and len(log.read_text().split()) >= 3):
            time.sleep(0.05)
        killed.append(_kill_one(processes))

    thread = threading.Thread(target=killer)
    thread.start()
    count_chunks(model, [dask.delayed(_slowly)(pair, str(log)) for pair in chunks()], processes)
    thread.join()
    starts = log.read_text().split()
    assert str(killed[0]) in starts
    assert len(starts) > len(chunks())  # some shards were read again
    assert torch.equal(model.statistics.counts, expected.statistics.counts)
    assert torch.equal(model.statistics.sums, expected.statistics.sums)


def test_killed_in_the_middle_of_conjugate_gradients(processes):
    kernel = fast_clusters(*rows())

    def solved(shards, after=lambda number: None):
        numbers = iter(range(1_000))

        def product(effects):
            after(next(numbers))
            return shards.gram(effects) + 0.1 * effects

        sums = shards.moments().sums[:, :1]
        return conjugate_gradients(product, sums, relative_residual(1e-8), max_iterations=200)

    shards = DaskRows(kernel, chunks(), processes)
    undisturbed = solved(shards)
    killed = solved(shards, lambda number: _kill_one(processes) if number == 5 else None)
    assert undisturbed.iterations > 10
    assert torch.equal(killed.solution, undisturbed.solution)
