"""Statistics of rows that were added, removed, saved and merged, against counting them at once."""

from __future__ import annotations

import io
from functools import reduce

import pytest
import torch

from gpytorch_partition import RandomForestKernel
from gpytorch_partition.inference.spaces.statistics import ClusterStatistics, merged_states
from gpytorch_partition.partitions import CallablePartition, MondrianPartition

GENERATOR = torch.Generator().manual_seed(2)
X = torch.cat([torch.randn(80, 3, generator=GENERATOR), 20 * torch.randn(10, 3, generator=GENERATOR)]).double()
Y = torch.randint(-50, 50, (90,), generator=GENERATOR).double()  # whole numbers: sums are exact in any order
TREES = MondrianPartition(X[:60], 5, lifetime=0.6, random_state=0)


def _counted(partition, x=X, y=Y, size=40):
    statistics = ClusterStatistics(partition)
    for rows, targets in zip(x.split(size), y.split(size)):
        statistics.add(rows, targets)
    return statistics


def _added_up():
    return _counted(TREES, X[:70], Y[:70]) + _counted(TREES, X[70:], Y[70:])


def _refilled():
    """All rows taken out of their clusters, and back in."""
    statistics = _counted(TREES)
    statistics.remove(X, Y)
    statistics.add(X, Y)
    return statistics


def _saved():
    torch.save(_counted(TREES, X[:70], Y[:70]).state_dict(), file := io.BytesIO())
    file.seek(0)
    statistics = ClusterStatistics(TREES)
    statistics.load_state_dict(torch.load(file, weights_only=True))
    statistics.add(X[70:], Y[70:])
    return statistics


def _assert_equal(found, expected):
    for name in ("counts", "sums", "squares"):
        assert torch.equal(getattr(found, name), getattr(expected, name))
    assert all(torch.equal(a, b) for a, b in zip(found.index.values, expected.index.values, strict=True))


@pytest.mark.parametrize("way", [_added_up, _refilled, _saved])
def test_every_way_counts_the_same(way):
    _assert_equal(way(), _counted(TREES))


def test_shards_without_rows():
    empty = ClusterStatistics(TREES)
    for total in (empty + _counted(TREES), _counted(TREES) + empty):
        _assert_equal(total, _counted(TREES))
    assert (empty + empty).num_rows == 0


def test_rows_whose_clusters_never_met_are_not_taken_back():
    statistics = ClusterStatistics(CallablePartition(lambda x: x.floor().long()))
    statistics.add(torch.tensor([[0.5, 0.5], [1.5, 1.5]]), torch.tensor([1.0, 2.0]))
    before = statistics.state_dict()
    with pytest.raises(ValueError, match="rows that were added before"):
        statistics.remove(torch.tensor([[0.5, 1.5]]), torch.tensor([1.0]))
    after = statistics.state_dict()
    for name in ("counts", "sums", "squares"):
        assert torch.equal(before[name], after[name])


def test_too_many_clusters_are_refused_before_any_work():
    x = torch.rand(20_000, 2)
    forest = RandomForestKernel(x, x[:, 0], 40, min_samples_leaf=1, max_samples=4_000, random_state=0)
    with pytest.raises(ValueError, match="at most 65,536 clusters in all to count pairs of, got"):
        ClusterStatistics(forest.partition)
    cells = ClusterStatistics(CallablePartition(lambda x: (1e9 * x[..., :1]).floor().long()))
    with pytest.raises(ValueError, match="fewer partitions, or coarser ones"):
        cells.add(torch.rand(70_000, 1, dtype=torch.float64), torch.rand(70_000))
    assert cells.num_rows == 0


@pytest.mark.parametrize("level", [1e3, 1e8])
def test_targets_far_from_zero(level):
    """What is counted is the same, less a reference value near the targets; whole numbers stay exact."""
    near, far = (ClusterStatistics(TREES) for _ in range(2))
    for statistics, shift in ((near, 0.0), (far, level)):
        for x, y in zip(X.split(30), Y.split(30)):
            statistics.add(x, y + shift)
        statistics.remove(X[40:60], Y[40:60] + shift)
    assert abs(far.center - near.center - level) <= 64
    shift = torch.tensor([[1.0, 0.0], [far.center - near.center - level, 1.0]]).double()
    assert torch.equal(far.sums @ shift, near.sums)
    assert torch.equal(shift.mT @ far.squares @ shift, near.squares)


def test_statistics_with_other_reference_values_add_up():
    parts = [ClusterStatistics(TREES) for _ in range(3)]
    for statistics, x, y in zip(parts, X.split(30), (Y + 10_000).split(30)):
        statistics.add(x, y if statistics is not parts[1] else y + 5_000)
    whole = ClusterStatistics(TREES)
    whole.add(X, torch.cat([Y[:30], Y[30:60] + 5_000, Y[60:]]) + 10_000)
    total = parts[0] + parts[1] + parts[2]
    shift = torch.tensor([[1.0, 0.0], [total.center - whole.center, 1.0]]).double()
    torch.testing.assert_close(total.sums @ shift, whole.sums, rtol=0, atol=1e-7)
    torch.testing.assert_close(shift.mT @ total.squares @ shift, whole.squares, rtol=1e-12, atol=0)


@pytest.mark.parametrize("wrong", [lambda y: y + 1_000, lambda y: y.roll(1) * 50, lambda y: 0 * y + 1e12])
def test_wrong_targets_are_not_removed(wrong):
    """What would be left is impossible: less squares than a partition explains, or sums of no rows."""
    statistics = _counted(TREES, X, Y)
    before = statistics.state_dict()
    for rows in (slice(0, 45), slice(0, 90)):
        with pytest.raises(ValueError, match="targets"):
            statistics.remove(X[rows], wrong(Y[rows]))
    after = statistics.state_dict()
    assert all(torch.equal(after[name], before[name]) for name in ("counts", "sums", "squares"))
    statistics.remove(X, Y)
    assert not statistics.sums.any()
    assert not statistics.squares.any()


def test_rows_may_come_back_at_another_level():
    statistics = ClusterStatistics(TREES)
    statistics.add(X, Y)
    statistics.remove(X, Y)
    statistics.add(X, Y + 1e8)
    assert abs(statistics.center - 1e8) < 64


FOREST = RandomForestKernel(X, Y, 5, random_state=0).partition


@pytest.mark.parametrize("partition", [FOREST, TREES], ids=["bounded", "unbounded"])
def test_shards_merge_in_place(partition):
    whole, *shards = (_counted(partition, X[rows], Y[rows]) for rows in (slice(None), slice(40), slice(40, None)))
    merged = shards[0].merge_(shards[1])
    assert merged is shards[0]
    assert torch.equal(merged.counts, whole.counts)
    torch.testing.assert_close(merged.sums[:, 1], whole.sums[:, 1])
    shift = whole.center - merged.center
    torch.testing.assert_close(merged.sums[:, 0] - shift * merged.sums[:, 1], whole.sums[:, 0])


def test_messages_add_up_as_they_are():
    whole = _counted(FOREST)
    states = [
        _counted(FOREST, X[rows], Y[rows] + 1e8).state_dict() for rows in (slice(30), slice(30, 31), slice(31, None))
    ]
    total = ClusterStatistics(FOREST)
    total.load_state_dict(reduce(merged_states, states))
    assert torch.equal(total.counts, whole.counts)
    assert total.num_rows == len(X)
    empty = ClusterStatistics(FOREST).state_dict()
    assert merged_states(empty, states[0])["center"] == states[0]["center"]
    with pytest.raises(ValueError, match="same partitions"):
        merged_states(states[0], states[0] | {"partition": "other"})
    with pytest.raises(ValueError, match="merge the statistics"):
        merged_states(*(2 * [_counted(TREES).state_dict()]))
