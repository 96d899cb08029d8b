"""Rows, their chunks, kernels, and workers in this process."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
import torch
from distributed import Client

from gpytorch_partition import FastClusterKernel, MondrianKernel, RandomForestKernel

NUM_ROWS, NUM_CHUNKS = 700, 7


def rows(num_rows=NUM_ROWS):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(num_rows, 3, generator=generator)
    return x, x.sin().sum(-1) + 0.3 * torch.randn(num_rows, generator=generator) + 5


def chunks(num_rows=NUM_ROWS):
    return list(zip(*(part.chunk(NUM_CHUNKS) for part in rows(num_rows))))


def frames():
    dd, pd = pytest.importorskip("dask.dataframe"), pytest.importorskip("pandas")
    x, y = (part.numpy() for part in rows())
    frame = dd.from_pandas(pd.DataFrame(x, columns=list("abc")).assign(y=y), npartitions=7)
    return frame[list("abc")], frame["y"]


def fast_clusters(x, y):
    return FastClusterKernel(x, 10, height=4, random_state=0)


def forest(x, y):
    return RandomForestKernel(x, y, 10, random_state=0)


def mondrian_trees(x, y):
    return MondrianKernel(x, 10, lifetime=0.5, random_state=0)


@contextmanager
def workers(number):
    with Client(processes=False, n_workers=number, threads_per_worker=1, dashboard_address=":0") as client:
        yield client
