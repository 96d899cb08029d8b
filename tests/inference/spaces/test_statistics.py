"""Statistics under coarser partitions, against counting the rows under these."""

from __future__ import annotations

import io
from functools import reduce

import pytest
import torch

from gpytorch_partition import RandomForestKernel
from gpytorch_partition.inference.spaces.statistics import ClusterStatistics, merged_states
from gpytorch_partition.partitions import CallablePartition, MondrianPartition, SampledPartition

GENERATOR = torch.Generator().manual_seed(2)
X = torch.cat([torch.randn(80, 3, generator=GENERATOR), 20 * torch.randn(10, 3, generator=GENERATOR)]).double()
Y = torch.randint(-50, 50, (90,), generator=GENERATOR).double()  # whole numbers: sums are exact in any order
TREES = MondrianPartition(X[:60], 5, lifetime=0.6, random_state=0)
LIFETIMES = (1e-4, 0.1, 0.3, 0.6)


def _counted(partition, x=X, y=Y, size=40):
    statistics = ClusterStatistics(partition)
    for rows, targets in zip(x.split(size), y.split(size)):
        statistics.add(rows, targets)
    return statistics


def _added_up():
    return _counted(TREES, X[:70], Y[:70]) + _counted(TREES, X[70:], Y[70:])


def _with_rows_removed():
    statistics = _counted(TREES, torch.cat([X, 3 * X]), torch.cat([Y, Y]))
    statistics.remove(3 * X, Y)
    return statistics


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


def _cut_twice():
    return _counted(TREES.cut(0.6)).coarsened(TREES.cut(0.59))


WAYS = {each.__name__: each for each in (_counted, _added_up, _refilled, _saved, _cut_twice)}


def _assert_equal(found, expected):
    for name in ("counts", "sums", "squares"):
        assert torch.equal(getattr(found, name), getattr(expected, name))
    assert all(torch.equal(a, b) for a, b in zip(found.index.values, expected.index.values, strict=True))


CUTS = [(way, lifetime) for way in WAYS for lifetime in (LIFETIMES if way == "_counted" else (0.1,))]


@pytest.mark.parametrize(("way", "lifetime"), CUTS)
def test_a_cut_has_the_counts_of_the_rows(way, lifetime):
    fine = WAYS[way](TREES) if way == "_counted" else WAYS[way]()
    _assert_equal(fine.coarsened(TREES.cut(lifetime)), _counted(TREES.cut(lifetime)))


@pytest.mark.parametrize("lifetime", LIFETIMES[:2])
def test_a_cut_after_rows_were_removed(lifetime):
    """Their clusters stay, empty."""
    direct = _counted(TREES.cut(lifetime), torch.cat([X, 3 * X]), torch.cat([Y, Y]))
    direct.remove(3 * X, Y)
    _assert_equal(_with_rows_removed().coarsened(TREES.cut(lifetime)), direct)


def test_a_cut_counts_on():
    cut = TREES.cut(0.2)
    statistics = _counted(TREES, X[:70], Y[:70]).coarsened(cut)
    statistics.add(X[70:], Y[70:])
    _assert_equal(statistics, _counted(cut))
    _assert_equal(statistics.coarsened(TREES.cut(0.1)), _counted(TREES.cut(0.1)))
    statistics.remove(X[70:], Y[70:])
    assert statistics.num_rows == 70


@pytest.mark.parametrize("way", [_added_up, _with_rows_removed, _refilled, _saved])
def test_examples_lie_in_their_clusters(way):
    statistics = way()
    codes, null = statistics.codes(TREES.labels(statistics.examples)), statistics.null_clusters
    is_own = torch.ones(len(codes), dtype=torch.bool).index_fill_(0, null, False)
    assert (codes == torch.arange(len(codes)).unsqueeze(-1)).any(-1)[is_own].all()
    assert not statistics.examples[null].any()
    assert statistics.examples.shape == (len(statistics.counts), 3)


def test_examples_are_the_first_rows():
    first, whole = _counted(TREES, X[:70], Y[:70]), _counted(TREES)
    places = whole.index.codes_of(first.index.values)
    assert torch.equal(whole.examples[places], first.examples)
    assert torch.equal(first.examples[first.codes(TREES.labels(X[:1])).long()], X[:1].expand(5, -1).unsqueeze(0))


def test_any_nested_function():
    fine = CallablePartition(lambda x: torch.stack([(4 * x[..., 0]).floor(), (8 * x[..., 1]).floor()], -1).long())
    coarse = CallablePartition(lambda x: torch.stack([(2 * x[..., 0]).floor(), x[..., 1].floor()], -1).long())
    _assert_equal(_counted(fine).coarsened(coarse), _counted(coarse))


def test_shards_without_rows():
    empty = ClusterStatistics(TREES)
    for total in (empty + _counted(TREES), _counted(TREES) + empty):
        _assert_equal(total.coarsened(TREES.cut(0.2)), _counted(TREES.cut(0.2)))
    assert empty.coarsened(TREES.cut(0.2)).num_rows == (empty + empty).num_rows == 0


def test_bounded_clusters_have_no_examples():
    forest = RandomForestKernel(X, Y, 5, random_state=0).partition
    statistics = _counted(forest)
    assert statistics.examples.numel() == 0
    with pytest.raises(ValueError, match="unbounded labels"):
        statistics.coarsened(forest.cut(torch.ones(5, dtype=torch.int64)))


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


@pytest.mark.parametrize(
    "wrong",
    [lambda y: y + 1_000, lambda y: y * -1e3, lambda y: y.roll(1) * 50, lambda y: torch.zeros_like(y) + 1e12],
)
def test_wrong_targets_are_not_removed(wrong):
    """What would be left is impossible: less squares than a partition explains, or sums of no rows."""
    statistics = ClusterStatistics(TREES)
    statistics.add(X, Y)
    before = statistics.state_dict()
    for rows in (slice(0, 45), slice(0, 90)):
        with pytest.raises(ValueError, match="with the targets that they were added with"):
            statistics.remove(X[rows], wrong(Y[rows]))
    for name, value in statistics.state_dict().items():
        assert not torch.is_tensor(value) or torch.equal(value, before[name])
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


def _floors(x):
    return x.floor().long()


@pytest.mark.parametrize(
    "make",
    [
        lambda version: CallablePartition(_floors, version=version),
        lambda version: SampledPartition(
            lambda seed: lambda x: x[:, :1].floor().long(), 2, random_state=0, version=version
        ),
    ],
    ids=["a function", "a program"],
)
def test_functions_are_told_apart_by_their_versions(make):
    first, same, other = (ClusterStatistics(make(version)) for version in ("floors 1", "floors 1", "floors 2"))
    rows = torch.tensor([[0.5], [1.5]])
    for each in (first, same, other):
        each.add(rows, torch.tensor([1.0, 2.0]))
    assert (first + same).num_rows == 4
    with pytest.raises(ValueError, match="those of other partitions"):
        first.merge_(other)
    with pytest.raises(ValueError, match="those of other partitions"):
        other.load_state_dict(first.state_dict())
    with pytest.raises(TypeError, match="a version as a text"):
        make(2)
