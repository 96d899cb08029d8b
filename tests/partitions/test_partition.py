"""The contract that all sources share, on a user's function (the simplest source) and on all of them."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch

from gpytorch_partition.inputs.numbers import bits_of, floats_of
from gpytorch_partition.partitions import CallablePartition, FastClusterPartition, MondrianPartition
from gpytorch_partition.partitions import partition as module

X = torch.randn(50, 2, generator=torch.Generator().manual_seed(0))


def _floors(x):
    return torch.stack([x[..., 0].floor(), (x[..., 0] + x[..., 1]).floor()], -1).long() * 2**40 - 5


def _count_calls(partition):
    calls = []
    function = partition.function
    partition.function = lambda x: (calls.append(x.shape[0]), function(x))[1]
    return calls


def test_the_same_rows_share_one_object():
    left, right = CallablePartition(_floors).incidences(X, X.clone())
    assert left is right


@pytest.mark.parametrize("row", [0, 63, 64, 4_999])
def test_rows_that_differ_in_one_number_are_coded_apart(row):
    x = torch.zeros(5_000, 2)
    y = x.clone()
    y[row, 1] = 3.0
    partition = CallablePartition(_floors)
    left, right = partition.incidences(x, y)
    assert left is not right
    assert (left.codes != right.codes).any(-1).nonzero().tolist() == [[row]]


def test_remembered_rows_are_not_labelled_again():
    partition = CallablePartition(_floors, num_partitions=2)
    calls = _count_calls(partition)
    for _ in range(3):
        partition.incidences(X, X)
        partition.incidences(X[:4] + 0.5, X)
    assert calls.count(50) == 1


def test_rows_changed_in_place_are_not_mistaken_for_the_old_ones():
    x = X.clone()
    partition = CallablePartition(_floors)
    before = partition.incidences(x, x)[0].codes.clone()
    x.add_(0.7)
    after = partition.incidences(x, x)[0].codes
    assert not torch.equal(before, after)
    assert torch.equal(after, CallablePartition(_floors).incidences(x, x)[0].codes)


def test_many_test_sets_do_not_push_out_the_training_rows():
    partition = CallablePartition(_floors, num_partitions=2)
    calls = _count_calls(partition)
    partition.incidences(X, X)
    for shift in range(10):
        test = X[:3] + shift
        partition.incidences(test, test)
        partition.incidences(test, X)
    assert calls.count(50) == 1


def test_new_rows_that_share_an_unseen_cluster_are_similar_to_each_other_only():
    partition, new = CallablePartition(_floors), torch.tensor([[100.2, 0.0], [100.7, 0.1]])
    left, right = partition.incidences(new, X)
    assert set(left.codes.flatten().tolist()).isdisjoint(right.codes.flatten().tolist())
    together = partition.incidences(new, new)[0].codes
    assert (together[0] == together[1]).all()


def test_labels_do_not_depend_on_blocks(monkeypatch):
    expected = {}
    sources = [
        CallablePartition(_floors),
        FastClusterPartition(X, 7, random_state=0),
        MondrianPartition(X, 7, lifetime=1.0, random_state=0),
    ]
    for source in sources:
        expected[source] = source.labels(X * 3)
    monkeypatch.setattr(module, "_LABELS_PER_CHUNK", 30)
    for source in sources:
        assert torch.equal(source.labels(X * 3), expected[source])
        assert torch.equal(source.labels(X[7:9] * 3), expected[source][7:9])
        assert torch.equal(source.labels((X * 3).view(5, 10, 2)), expected[source].view(5, 10, -1))


def test_what_will_be_held_is_logged_first(caplog):
    with caplog.at_level(logging.DEBUG, logger="gpytorch_partition"):
        CallablePartition(_floors).incidences(X, X)
    assert "50 rows x 2 partitions" in caplog.text
    assert "GiB" in caplog.text


def test_bits_and_floats():
    for dtype in (torch.float32, torch.float64):
        values = torch.tensor([0.1, -3.0, float("inf")], dtype=dtype)
        assert torch.equal(floats_of(bits_of(values)), values)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x[:, 0] > 0).long(),
        lambda x: x[:, :1] > 0,
        lambda x: (x[:, 0] > 0).numpy(),
        lambda x: (x[:, :1] > 0).numpy().astype(np.uint8),
    ],
)
def test_labels_may_be_torch_or_numpy_of_one_or_two_dimensions(function):
    labels = CallablePartition(function).labels(X.expand(2, 50, 2))
    assert labels.dtype == torch.int64
    assert torch.equal(labels, (X[:, :1] > 0).long().expand(2, 50, 1))


class TestCallableErrors:
    @pytest.mark.parametrize("labels", [torch.arange(50), np.arange(50)], ids=["tensor", "array"])
    def test_labels_of_rows_alone(self, labels):
        with pytest.raises(TypeError, match=r"do not say where new points belong. Give a fitted clusterer"):
            CallablePartition(labels)

    def test_floats(self):
        with pytest.raises(ValueError, match=r"integer labels.*return labels.long\(\)"):
            CallablePartition(lambda x: x).labels(X)

    def test_shape(self):
        with pytest.raises(ValueError, match=r"shape \(1, 50\)|shape"):
            CallablePartition(lambda x: x.long().sum()).labels(X)

    def test_number_of_partitions_changes(self):
        with pytest.raises(ValueError, match="expected the function to return labels"):
            CallablePartition(_floors, num_partitions=3).labels(X)

    @pytest.mark.parametrize("function", [lambda x: x.numpy(), lambda x: [0] * len(x), lambda x: np.zeros(3, int)])
    def test_arrays_that_are_no_labels(self, function):
        with pytest.raises(ValueError, match="expected the function to return"):
            CallablePartition(function).labels(X)

    def test_nan_is_the_functions_business(self):
        x = X.clone()
        x[0, 0] = float("nan")
        labels = CallablePartition(lambda x: torch.isnan(x).long()).labels(x)
        assert labels[0].tolist() == [1, 0]
