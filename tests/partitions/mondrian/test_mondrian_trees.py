"""The part of Mondrian trees that rows see, against the labels of the same trees at every lifetime."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
import torch

from gpytorch_partition.partitions import MondrianPartition
from gpytorch_partition.partitions.mondrian import mondrian_trees
from gpytorch_partition.partitions.mondrian import process as mondrian_process


def uniform(n, d, seed=0):
    return torch.from_numpy(np.random.RandomState(seed).rand(n, d))


def share(codes1, codes2):
    """Which pairs share a cell, `n1 x n2 x m`."""
    return codes1[:, None] == codes2[None]


def around(x, n=30, seed=1):
    """Points inside the box of rows, among them some of the rows, beside it, and far outside."""
    random = np.random.RandomState(seed)
    d = x.shape[1]
    wide, far = 3 * random.rand(n, d) - 1, 40 * random.randn(4, d)
    return torch.cat([torch.from_numpy(wide), torch.from_numpy(far), x[:3]])


def partition_of(x, lifetime=3.0, num_trees=20, seed=0):
    return MondrianPartition(x, num_trees, lifetime=lifetime, random_state=seed)


@pytest.mark.parametrize("d", [1, 3])
@pytest.mark.parametrize("lifetime", [3.0, 1.0, 0.2, 0.003])
class TestCodesAgreeWithLabels:
    def test_of_new_points_and_rows(self, d, lifetime):
        x = uniform(80, d)
        trees, points = partition_of(x), around(x)
        trees.incidences(x, x)
        trees.lifetime = lifetime
        new, old = trees.incidences(points, x)
        labels = trees.labels(x)
        assert torch.equal(share(old.codes, old.codes), share(labels, labels))
        assert torch.equal(share(new.codes, old.codes), share(trees.labels(points), labels))

    def test_of_rows_that_lie_far_apart(self, d, lifetime):
        """Rows outside the box span trees on wider boxes, which points inside are then led down."""
        x = uniform(80, d)
        trees, points = partition_of(x), around(x)
        trees.incidences(points, points)
        trees.lifetime = lifetime
        inside, outside = trees.incidences(x[:20], points)
        labels = trees.labels(points)
        assert torch.equal(share(outside.codes, outside.codes), share(labels, labels))
        assert torch.equal(share(inside.codes, outside.codes), share(trees.labels(x[:20]), labels))


def test_unseen_cells_have_codes_that_no_row_has_and_no_other_tree():
    x = uniform(50, 2)
    trees = partition_of(x, lifetime=30.0)
    new, old = trees.incidences(around(x), x)
    counts = torch.bincount(old.codes.flatten().long(), minlength=old.num_clusters)
    null = counts[new.codes.long()] == 0
    assert 0.3 < null.double().mean() < 1
    for tree in range(20):
        assert new.codes[:, tree][null[:, tree]].unique().numel() <= 1
        assert ((new.codes[:, tree] > old.codes[:, tree].max()) == null[:, tree]).all()
    assert (counts == 0).sum() == 20


def test_points_that_leave_at_the_very_lifetime_are_apart():
    """A cut at the lifetime counts, for new points as for rows."""
    x = uniform(30, 2)
    trees = partition_of(x, num_trees=3)
    points = around(x)
    events = trees.attached(trees.grown(x), points)
    for time in events.times[events.times < torch.inf][:6].tolist():
        trees.lifetime = time
        new, old = trees.incidences(points, x)
        assert torch.equal(share(new.codes, old.codes), share(trees.labels(points), trees.labels(x)))


class TestLifetimes:
    def test_rows_are_led_down_once(self, monkeypatch):
        x = uniform(50, 2)
        trees = partition_of(x)
        trees.incidences(x, x)
        monkeypatch.setattr(mondrian_trees.Front, "below", lambda *_: pytest.fail("a row was led down again"))
        for lifetime in (2.0, 0.1, 3.0):
            trees.lifetime = lifetime
            trees.incidences(x, x)

    def test_the_longest_is_that_of_the_trees(self):
        trees = MondrianPartition(uniform(20, 2), 3, lifetime=1.0, max_lifetime=4.0, random_state=0)
        assert (trees.lifetime, trees.max_lifetime) == (1.0, 4.0)
        trees.lifetime = 4.0
        for wrong in (4.1, 0.0, -1.0, float("nan"), float("inf"), None, "long"):
            with pytest.raises(ValueError, match="terminal"):
                trees.lifetime = wrong
        assert trees.lifetime == 4.0

    def test_a_copy_has_its_own(self):
        x = uniform(40, 2)
        trees = partition_of(x)
        before = trees.incidences(x, x)[0].codes.clone()
        copy = deepcopy(trees)
        copy.lifetime = 0.1
        assert trees.lifetime == 3.0
        assert torch.equal(trees.incidences(x, x)[0].codes, before)
        assert copy.incidences(x, x)[0].num_clusters < trees.incidences(x, x)[0].num_clusters

    def test_bad_ones(self):
        x = uniform(10, 1)
        with pytest.raises(ValueError, match="up to max_lifetime=1"):
            MondrianPartition(x, 3, lifetime=2.0, max_lifetime=1.0)
        with pytest.raises(ValueError, match="positive, finite max_lifetime"):
            MondrianPartition(x, 3, max_lifetime=float("inf"))
        with pytest.raises(RuntimeError, match="not fitted"):
            MondrianPartition().lifetime = 1.0

    def test_the_default_is_no_longer_than_the_longest(self):
        trees = MondrianPartition(uniform(50, 2), 3, max_lifetime=0.01, random_state=0)
        assert trees.lifetime == trees.max_lifetime == 0.01


class TestTrees:
    def test_times_of_cuts_are_those_of_separation(self):
        """The first lifetime at which labels of two rows differ lies at the cut between their leaves."""
        x = uniform(12, 2)
        trees = partition_of(x, lifetime=20.0, num_trees=4)
        rows = trees.grown(x)
        for time in rows.trees.cut_times[rows.trees.cut_times < torch.inf].tolist():
            trees.lifetime = time
            at = trees.labels(x)
            trees.lifetime = time * (1 - 1e-12)
            before = trees.labels(x)
            assert (share(at, at) != share(before, before)).any((0, 1)).sum() == 1

    def test_nodes_are_born_when_their_parents_are_cut(self):
        rows = partition_of(uniform(60, 2)).grown(uniform(60, 2))
        trees, layout = rows.trees, rows.trees.layout
        inner = trees.cut_times < torch.inf
        assert torch.equal(trees.births[trees.left[inner]], trees.cut_times[inner])
        assert torch.equal(trees.births[trees.right[inner]], trees.cut_times[inner])
        assert (trees.births < trees.cut_times).all()
        assert (trees.births[trees.tree_nodes[:-1]] == 0).all()
        assert torch.equal(layout.node_low, trees.node_low)

    def test_one_row_and_equal_rows_are_one_leaf(self):
        x = uniform(20, 2)
        trees = partition_of(x)
        for rows in (x[:1], x[:1].expand(7, 2)):
            assert trees.incidences(rows, rows)[0].codes.unique().numel() == 20
            assert trees.grown(rows.clone()).trees.num_leaves == 20

    def test_many_nodes_are_grown_in_parts(self, monkeypatch):
        x = uniform(60, 3)
        whole = partition_of(x, 20.0).incidences(x, x)[0].codes
        monkeypatch.setattr(mondrian_process, "_BOX_NUMEL", 16)
        parts = partition_of(x, 20.0).incidences(x, x)[0].codes
        assert torch.equal(whole, parts)

    def test_batches_share_the_trees(self):
        x = uniform(20, 2)
        trees = partition_of(x)
        batch = torch.stack([x, uniform(20, 2, seed=9)])
        codes, labels = trees.incidences(batch, batch)[0].codes.flatten(0, 1), trees.labels(batch).flatten(0, 1)
        assert torch.equal(share(codes, codes), share(labels, labels))
