"""Rows on workers answer as rows in memory do, with the same bits for any number of workers."""

from __future__ import annotations

import pickle

import pytest
import torch
from dask.sizeof import sizeof

from gpytorch_partition.distributed import DaskRows
from gpytorch_partition.inference.spaces.cluster_rows import LocalRows, Rows
from tests.distributed.dask_problems import chunks, fast_clusters, forest, mondrian_trees, rows


def here(kernel):
    x, y = rows()
    return LocalRows(kernel.partition.incidences(x, x)[0], y.unsqueeze(-1))


def table(size, num_columns=3):
    return torch.randn(size, num_columns, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def test_dask_knows_that_rows_are_larger_than_effects():
    """Else it moves rows to the worker that has the effects."""
    kernel = fast_clusters(*rows())
    rows_here = here(kernel)
    assert (
        sizeof(rows_here) > 0.9 * rows_here.num_rows * kernel.num_partitions * rows_here.incidence.codes.element_size()
    )


@pytest.mark.parametrize("kind", [fast_clusters, forest])
def test_products_and_moments_are_those_of_the_dense_matrix(client, kind):
    kernel, (x, y) = kind(*rows()), rows()
    shards = DaskRows(kernel, chunks(), client)
    assert isinstance(shards, Rows)
    codes = kernel.partition.incidences(x, x)[0].codes.long()
    dense = torch.zeros(len(x), shards.num_clusters, dtype=torch.float64).scatter_(1, codes, 1.0)
    effects = table(shards.num_clusters)
    torch.testing.assert_close(shards.gram(effects), dense.mT @ (dense @ effects), rtol=1e-12, atol=1e-11)
    moments = shards.moments()
    columns = torch.stack([y.double() - moments.centers, torch.ones(len(y), dtype=torch.float64)], -1)
    assert moments.num_rows == shards.num_rows == len(y)
    torch.testing.assert_close(moments.sums, dense.mT @ columns, rtol=1e-12, atol=1e-11)
    torch.testing.assert_close(moments.squares, columns.mT @ columns, rtol=1e-12, atol=1e-11)


def test_chunks_without_rows_change_nothing(client):
    kernel, (x, y) = fast_clusters(*rows()), rows()
    empty = (x[:0], y[:0])
    shards = DaskRows(kernel, [empty, (x[:300], y[:300]), empty, (x[300:], y[300:])], client)
    effects = table(shards.num_clusters)
    torch.testing.assert_close(shards.gram(effects), here(kernel).gram(effects), rtol=1e-12, atol=1e-11)
    centers = here(kernel).moments().centers
    moved = shards.moments().moved(centers)
    torch.testing.assert_close(moved.sums, here(kernel).moments().sums, rtol=1e-12, atol=1e-11)


def test_a_shard_that_raises_names_its_chunk(client):
    parts = chunks()
    parts[2] = (parts[2][0], parts[2][1] / 0)
    with pytest.raises(RuntimeError, match="chunk 2 of 7 failed: ValueError: expected finite targets"):
        DaskRows(fast_clusters(*rows()), parts, client)


def test_unbounded_labels_are_refused(client):
    with pytest.raises(ValueError, match="got a MondrianKernel: count its rows by count_chunks"):
        DaskRows(mondrian_trees(*rows()), chunks(), client)


@pytest.mark.slow
def test_normal_numbers_are_independent_and_have_the_covariance_of_the_clusters(client):
    kernel = fast_clusters(*rows())
    shards = DaskRows(kernel, chunks(), client)
    sums = shards.normal_sums(2_000, 5)
    assert torch.equal(sums, shards.normal_sums(2_000, 5))
    assert not torch.equal(sums, shards.normal_sums(2_000, 6))
    counts = here(kernel).gram(torch.eye(shards.num_clusters, dtype=torch.float64))  # Z^T Z
    scales = counts.diagonal().clamp_min(1).sqrt()
    errors = (sums @ sums.mT / 2_000 - counts) / scales / scales.unsqueeze(-1)
    assert float(errors.abs().max()) < 5 * (2 / 2_000) ** 0.5  # standard errors are up to (2 / k)^.5


def test_rows_on_workers_are_not_pickled(client):
    with pytest.raises(TypeError, match="rows on workers, which are not saved: save the kernel"):
        pickle.dumps(DaskRows(fast_clusters(*rows()), chunks(), client))
