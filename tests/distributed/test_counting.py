"""Counts of shards are those of one process, whatever the chunks are and however many workers count them."""

from __future__ import annotations

import dask
import numpy as np
import pytest
import torch

from gpytorch_partition.distributed import count_chunks
from gpytorch_partition.models import FeatureSpaceGP
from tests.distributed.dask_problems import NUM_CHUNKS, chunks, fast_clusters, forest, frames, mondrian_trees, rows


def counted_here(kernel, parts=None):
    model = FeatureSpaceGP(kernel)
    model.add_chunks(parts or chunks())
    return model


def assert_same(statistics, others):
    assert torch.equal(statistics.counts, others.counts)
    assert statistics.center == others.center
    torch.testing.assert_close(statistics.sums, others.sums, rtol=1e-12, atol=1e-11)
    torch.testing.assert_close(statistics.squares, others.squares, rtol=1e-12, atol=0)


@pytest.mark.parametrize("kind", [fast_clusters, forest, mondrian_trees])
def test_counts_have_the_bits_of_one_process(client, kind):
    kernel = kind(*rows())
    model = FeatureSpaceGP(kernel)
    count_chunks(model, chunks(), client)
    assert_same(model.statistics, counted_here(kernel).statistics)
    mean, variance = (model.fit(), model.predict(rows()[0][:5]))[1]
    expected = counted_here(kernel)
    expected.fit()
    torch.testing.assert_close(mean, expected.predict(rows()[0][:5])[0])


def test_rows_are_added_to_those_that_are_there(client):
    kernel = fast_clusters(*rows())
    model = counted_here(kernel, chunks()[:3])
    model.fit()
    count_chunks(model, chunks()[3:], client)
    assert_same(model.statistics, counted_here(kernel).statistics)


def _arrays(folder):
    x, y = (part.numpy() for part in rows())
    da = pytest.importorskip("dask.array")
    return da.from_array(x, chunks=(100, 2)), da.from_array(y, chunks=300)


def _parquet(folder):
    dd = pytest.importorskip("dask.dataframe")
    frame = dd.concat(list(frames()), axis=1)
    frame.to_parquet(folder / "rows", write_index=False)
    read = dd.read_parquet(folder / "rows")
    return read[list("abc")], read["y"]


def _zarr(folder):
    zarr, da = pytest.importorskip("zarr"), pytest.importorskip("dask.array")
    group = zarr.open_group(str(folder / "rows.zarr"), mode="w")
    for name, part in zip("xy", rows()):
        group.create_array(name, data=part.numpy(), chunks=(200, *part.shape[1:]))
    return tuple(da.from_zarr(str(folder / "rows.zarr"), component=name) for name in "xy")


def _delayed(folder):
    return [dask.delayed(lambda pair: pair)(pair) for pair in chunks()]


def _delayed_pairs(folder):
    return [tuple(dask.delayed(part.numpy()) for part in pair) for pair in chunks()]


def _with_empty_ones(folder):
    return [pair for x, y in chunks() for pair in ((x[:0], y[:0]), (x, y))]


KINDS = [_arrays, lambda _: frames(), _parquet, _zarr, _delayed, _delayed_pairs, _with_empty_ones]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__.strip("_"))
def test_chunks_of_all_kinds(client, tmp_path, kind):
    kernel = fast_clusters(*rows())
    model = FeatureSpaceGP(kernel)
    count_chunks(model, kind(tmp_path), client)
    expected = counted_here(kernel).statistics
    assert torch.equal(model.statistics.counts, expected.counts)
    torch.testing.assert_close(
        model.statistics.sums[:, 0] + model.statistics.center * model.statistics.sums[:, 1],
        expected.sums[:, 0] + expected.center * expected.sums[:, 1],
        rtol=1e-12,
        atol=1e-10,
    )


def _raise():
    raise OSError("no such disk")


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (lambda x, y: dask.delayed(_raise)(dask_key_name="bad_file"), r"chunk 3 of 7 \(bad_file\).*no such disk"),
        (lambda x, y: (x, y / 0), "chunk 3 of 7 failed: ValueError: expected finite targets"),
        (lambda x, y: (x[1:], y), "chunk 3 of 7 failed: ValueError: expected rows .* and as many targets"),
        (lambda x, y: (x * torch.inf, y), "chunk 3 of 7 failed: ValueError: .* finite points"),
        (lambda x, y: (np.array([["a"]]), y[:1]), "chunk 3 of 7 failed: TypeError: expected columns of numbers"),
        (lambda x, y: dask.delayed(x), "chunk 3 of 7 .*: expected chunks of two parts"),
    ],
)
def test_a_shard_that_raises_names_its_chunk_and_changes_nothing(client, bad, message):
    parts = chunks()
    parts[3] = bad(*parts[3])
    model = counted_here(fast_clusters(*rows()), chunks()[:2])
    before = model.statistics.counts.clone()
    with pytest.raises(RuntimeError, match=message):
        count_chunks(model, parts, client)
    assert torch.equal(model.statistics.counts, before)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ([], ValueError, "one chunk of rows or more"),
        ("folder/", TypeError, "read folders by dask.dataframe.read_parquet"),
        ([1, 2], TypeError, "delayed objects or pairs of points and targets, got a int"),
    ],
)
def test_other_chunks_are_refused(client, given, error, message):
    with pytest.raises(error, match=message):
        count_chunks(FeatureSpaceGP(fast_clusters(*rows())), given, client)


def test_other_partitions_of_targets_are_refused(client):
    x, y = frames()
    with pytest.raises(ValueError, match="same partitions, got 7 and 2"):
        count_chunks(FeatureSpaceGP(fast_clusters(*rows())), (x, y.repartition(npartitions=2)), client)


def test_without_a_client_it_says_how_to_make_one(client):
    with pytest.raises(TypeError, match="expected a dask.distributed.Client, got a str"):
        count_chunks(FeatureSpaceGP(fast_clusters(*rows())), chunks(), "tcp://10.0.0.1:8786")


def test_kernels_larger_than_a_message_arrive_whole(client, monkeypatch):
    monkeypatch.setattr("gpytorch_partition.distributed.dask_rows._PIECE", 1_000)
    kernel = fast_clusters(*rows())
    model = FeatureSpaceGP(kernel)
    count_chunks(model, chunks(), client)
    assert torch.equal(model.statistics.counts, counted_here(kernel).statistics.counts)
    assert len(chunks()) == NUM_CHUNKS


def test_workers_with_several_threads_are_warned_of():
    from distributed import Client

    with (
        Client(processes=False, n_workers=1, threads_per_worker=2, dashboard_address=":0") as client,
        pytest.warns(UserWarning, match="several threads"),
    ):
        count_chunks(FeatureSpaceGP(fast_clusters(*rows())), chunks(), client)


def test_workers_that_trim_are_warned_of(client, monkeypatch):
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "65536")
    with pytest.warns(UserWarning, match="MALLOC_TRIM_THRESHOLD_"):
        count_chunks(FeatureSpaceGP(fast_clusters(*rows())), chunks(), client)
