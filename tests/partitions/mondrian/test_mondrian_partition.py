"""Mondrian trees against their laws: clocks, the Laplace limit, joint probabilities, projectivity."""

from __future__ import annotations

import warnings
from copy import deepcopy

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.spatial.distance import pdist

from gpytorch_partition.partitions.mondrian import mondrian_partition as mondrian
from gpytorch_partition.partitions.mondrian import process as mondrian_process
from gpytorch_partition.partitions.mondrian.mondrian_partition import MondrianPartition
from gpytorch_partition.partitions.mondrian.process import Front, labels_of_items


def normal(n, d, seed=0):
    return torch.from_numpy(np.random.RandomState(seed).randn(n, d))


def box(*sides):
    """Two rows that span a box of these sides at the origin."""
    upper = torch.tensor(sides, dtype=torch.float64)
    return torch.stack([torch.zeros_like(upper), upper])


def around(d):
    """Points inside the unit box, and on several levels outside it, alone and close together."""
    random = np.random.RandomState(d)
    inside = random.rand(5, d)
    beside = inside[:3] + np.eye(d)[0] * 1.2
    beyond = inside[:3] - np.eye(d)[-1] * 4
    far = 40 + random.rand(2, d) / d
    return torch.from_numpy(np.concatenate([inside, beside, beyond, far]))


def trees_on(rows, num_trees, lifetime, seed=0):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return MondrianPartition(rows, num_trees, lifetime=lifetime, random_state=seed)


def sharing(labels):
    """How often pairs of points share a cell, `N x N`."""
    return (labels.unsqueeze(0) == labels.unsqueeze(1)).double().mean(-1)


def assert_limit(labels, exact):
    num_trees = labels.shape[-1]
    deviations = (exact * (1 - exact) / num_trees).clamp_min(0).sqrt()
    assert ((sharing(labels) - exact).abs() <= 4.5 * deviations + 1 / num_trees).all()


def groupings(labels):
    """For each tree, which of the points share cells, as a string such as 0010."""
    first = (labels.unsqueeze(0) == labels.unsqueeze(1)).long().argmax(0).T
    return ["".join(map(str, row)) for row in first.tolist()]


def frequencies(samples, expected_names):
    return np.array([samples.count(name) for name in expected_names])


SIDES = (1.0, 2.0, 5.0)


def first_cuts(trees):
    """Times, dimensions and places of the first cut of the box in every tree, whatever the lifetime."""
    whole = mondrian_process.roots(trees.tree_keys, trees._boxes(0))
    return whole.times[0], whole.dimensions[0], whole.places[0]


@pytest.fixture(scope="module")
def cuts():
    return first_cuts(trees_on(box(*SIDES), 20_000, 1.0))


class TestFirstCuts:
    def test_are_exponential_at_the_rate_of_the_sides_and_uniform_on_one_in_proportion_to_its_length(self, cuts):
        assert stats.kstest(cuts[0].numpy(), stats.expon(scale=1 / sum(SIDES)).cdf).pvalue > 0.01
        counts = torch.bincount(cuts[1], minlength=3).numpy()
        assert stats.chisquare(counts, np.array(SIDES) / sum(SIDES) * counts.sum()).pvalue > 0.01
        for d, side in enumerate(SIDES):
            places = cuts[2][cuts[1] == d].numpy()
            assert stats.kstest(places, stats.uniform(scale=side).cdf).pvalue > 0.01

    def test_time_dimension_and_place_are_independent(self, cuts):
        time, dimension, place = cuts
        early = (time > time.median()).long()
        place = (place / torch.tensor(SIDES)[dimension] * 4).long()
        counts = torch.bincount(early * 12 + dimension * 4 + place, minlength=24).view(2, 3, 4).numpy()
        expected = stats.contingency.expected_freq(counts)
        assert stats.chisquare(counts.ravel(), expected.ravel(), ddof=6).pvalue > 0.01

    def test_a_single_point_is_never_cut(self):
        assert torch.isinf(first_cuts(trees_on(torch.ones(3, 2), 5, 1.0))[0]).all()


class TestLaplaceLimit:
    """Kernel against exp(-lifetime * L1 distance), for pairs inside, across and outside the box."""

    NUM_TREES = 4000

    @pytest.mark.parametrize("d", [1, 2, 5])
    @pytest.mark.parametrize("lifetime", [0.1, 0.7, 2.0])
    def test_of_every_pair(self, d, lifetime):
        points = around(d)
        labels = trees_on(box(*[1.0] * d), self.NUM_TREES, lifetime).labels(points)
        assert_limit(labels, torch.exp(-lifetime * torch.cdist(points, points, p=1)))

    @pytest.mark.parametrize("d", [1, 2, pytest.param(5, marks=pytest.mark.slow)])
    def test_has_no_bias(self, d):
        """The mean signed error over pairs and lifetimes: what a clock or a gap that is wrong moves first."""
        lifetimes, points = [0.2, 0.5, 1.0, 2.0], around(d)
        pairs = torch.triu_indices(len(points), len(points), 1)
        errors = []
        for seed, lifetime in enumerate(lifetimes):
            labels = trees_on(box(*[1.0] * d), self.NUM_TREES, lifetime, seed).labels(points)
            exact = torch.exp(-lifetime * torch.cdist(points, points, p=1))
            shares = (labels[pairs[0]] == labels[pairs[1]]).double()
            errors.append((shares - exact[pairs[0], pairs[1]].unsqueeze(1)).mean(0))
        errors = torch.cat(errors)  # one per tree: trees are independent, pairs are not
        assert abs(errors.mean()) < 3.5 * errors.std() / errors.numel() ** 0.5

    @pytest.mark.parametrize(
        ("rows", "points"),
        [
            ([[0.0, 3.0], [1.0, 3.0]], [[0.1, 3.0], [0.7, 3.0], [0.7, 3.4], [0.7, 2.9], [1.5, 6.0], [1.6, 6.2]]),
            ([[2.0]], [[2.0], [2.3], [0.5], [9.0], [9.1]]),
        ],
        ids=["a side of length zero", "a single row"],
    )
    def test_around_boxes_without_volume(self, rows, points):
        points = torch.tensor(points, dtype=torch.float64)
        shares = sharing(trees_on(torch.tensor(rows), self.NUM_TREES, 0.8).labels(points))
        exact = torch.exp(-0.8 * torch.cdist(points, points, p=1))
        assert (shares - exact).abs().max() < 4.5 * 0.5 / self.NUM_TREES**0.5


class TestJointLaw:
    """What more than two points do together: exact in one dimension, against a box that holds all in two."""

    @pytest.mark.parametrize("points", [[1.5, 2.2, 3.1], [0.5, 1.5, 9.0], [-3.0, 0.5, 1.3], [-0.2, 1.2, 1.9]])
    def test_of_three_points_on_a_line(self, points):
        """Cuts are a Poisson process: the gaps between points are cut independently of each other."""
        lifetime, (a, b, c) = 0.6, points
        x = torch.tensor([[a], [b], [c]], dtype=torch.float64)
        samples = groupings(trees_on(box(1.0), 4000, lifetime).labels(x))
        first, second = np.exp(-lifetime * np.array([b - a, c - b]))
        probabilities = np.outer([first, 1 - first], [second, 1 - second]).ravel()
        counts = frequencies(samples, ["000", "002", "011", "012"])
        assert counts.sum() == 4000
        assert stats.chisquare(counts, 4000 * probabilities).pvalue > 0.005

    @pytest.mark.parametrize(
        ("lower", "upper"),
        [
            ((0.3, 0.3), (0.5, 0.4)),
            ((0.0, 0.0), (0.9, 0.5)),
            ((-2.0, -3.0), (-1.0, -1.0)),
            ((1.0, -9.0), (1.3, 7.0)),
        ],
    )
    def test_of_four_points_does_not_depend_on_the_box(self, lower, upper):
        """Projectivity, inward (a box of the points alone) and outward (boxes that miss some or all)."""
        points = torch.tensor([[0.1, 0.2], [0.8, 0.3], [0.6, 1.1], [1.4, 0.9]], dtype=torch.float64)
        num_trees, lifetime = 6000, 0.8
        tight = groupings(trees_on(points, num_trees, lifetime, seed=1).labels(points))
        other_box = torch.tensor([lower, upper], dtype=torch.float64)
        other = groupings(trees_on(other_box, num_trees, lifetime, seed=2).labels(points))
        names = sorted(set(tight) | set(other))
        counts = np.stack([frequencies(tight, names), frequencies(other, names)])
        common = counts.sum(0) >= 20
        counts = np.column_stack([counts[:, common], counts[:, ~common].sum(1)])
        assert stats.chi2_contingency(counts[:, counts.sum(0) > 0]).pvalue > 0.005


class TestNesting:
    @pytest.mark.parametrize("d", [1, 3])
    def test_wider_trees_hold_the_narrower_ones(self, d):
        """A point gets the same label from the trees on any box that holds it."""
        trees, points = trees_on(box(*[1.0] * d), 30, 1.5), around(d)
        levels = trees._boxes(60).levels(points)
        assert levels.unique().numel() >= 4
        for level in levels.unique().tolist():
            rows = points[levels == level]
            for wider in (1, 3):
                narrow, wide = (
                    labels_of_items(Front.at_roots(rows, len(rows), trees.tree_keys, trees._boxes(k)), trees.lifetime)
                    for k in (level, level + wider)
                )
                assert torch.equal(wide, narrow)

    def test_levels(self):
        trees = trees_on(box(2.0), 1, 1.0)
        points = torch.tensor([[0.0], [2.0], [2.1], [3.0], [3.1], [-3.0], [1e6]], dtype=torch.float64)
        assert trees._boxes(60).levels(points).tolist() == [0, 0, 1, 1, 2, 2, 20]

    def test_pairs_are_separated_from_their_time_on(self):
        x, trees = normal(40, 2), trees_on(normal(40, 2), 3, 2.0)
        times, labels = trees.separation_times(x, torch.arange(39), torch.arange(1, 40)), trees.labels(x)
        assert torch.equal(times.isinf().T, labels[:-1] == labels[1:])
        for tree, pair in (times < 2.0).nonzero()[::7].tolist():
            for factor, share in ((0.999, True), (1.001, False)):
                labels = trees.cut(factor * float(times[tree, pair])).labels(x[pair : pair + 2])
                assert bool(labels[0, tree] == labels[1, tree]) == share


@pytest.fixture(scope="module")
def trees():
    return trees_on(normal(100, 3), 30, 0.8)


class TestLabels:
    POINTS = torch.cat([normal(20, 3, seed=1), 4 * normal(10, 3, seed=2), 1e2 * normal(2, 3, seed=3)])

    def test_of_points_absurdly_far_away(self, trees):
        x = torch.tensor([[1e30, 0, 0], [-1.7e308, 1.7e308, 0], [0, 0, 1e200], [0, 0, 0]], dtype=torch.float64)
        labels = trees.labels(x)
        assert torch.equal(labels, trees.labels(x))
        assert not (labels[:3] == labels[3]).any()
        assert (trees_on(normal(100, 3), 30, 1e-280).labels(x) == labels.new_tensor(0)).sum() == 0

    @pytest.mark.parametrize("lifetime", [1e-300, 1e12, 1e300])
    @pytest.mark.parametrize("scale", [1e-300, 1.0, 1e9])
    def test_of_extreme_lifetimes_and_scales(self, lifetime, scale):
        x = normal(6, 2) * scale
        shares = sharing(trees_on(x, 20, lifetime).labels(x))
        exact = torch.exp(-lifetime * torch.cdist(x, x, p=1))
        assert (shares - exact).abs().max() < 0.5

    def test_hold_few_boxes_at_a_time(self, trees, monkeypatch):
        """Nor do codes, whether of rows or of points beside them."""
        rows, expected = normal(100, 3), trees.labels(self.POINTS)
        codes = [incidence.codes for incidence in deepcopy(trees).incidences(self.POINTS, rows)]
        sizes, next_cuts = [], mondrian_process._next_cuts
        monkeypatch.setattr(
            mondrian_process,
            "_next_cuts",
            lambda lower, upper, keys, *rest: (
                sizes.append(lower.numel() * len(keys)),
                next_cuts(lower, upper, keys, *rest),
            )[1],
        )
        monkeypatch.setattr(mondrian_process, "_BOX_NUMEL", 600)
        monkeypatch.setattr(mondrian, "SERIAL_NUMEL", 64)
        fresh = MondrianPartition()
        fresh.load_state_dict(trees.state_dict())
        assert torch.equal(fresh.labels(self.POINTS), expected)
        assert all(torch.equal(a.codes, b) for a, b in zip(fresh.incidences(self.POINTS, rows), codes))
        assert 600 < max(sizes) <= 2 * 600

    def test_of_neighboring_numbers(self):
        """Single float64 numbers are cells that no cut divides: the descent ends."""
        x = torch.tensor([[1.0], [1.0 + 2**-52], [1.0 + 2**-51]], dtype=torch.float64)
        labels = trees_on(x, 10, 1e30).labels(x)
        assert all(column.unique().numel() == 3 for column in labels.T)


class TestLifetime:
    def test_default_is_the_inverse_median_distance(self):
        x = normal(300, 4)
        lifetime = MondrianPartition(x, 1, random_state=0).lifetime
        assert abs(lifetime * np.median(pdist(x.numpy(), "cityblock")) - 1) < 0.03

    def test_default_ignores_rows_that_are_the_same(self):
        x = torch.zeros(50, 1, dtype=torch.float64)
        x[:5] = 2.0
        assert MondrianPartition(x, 1, random_state=0).lifetime == 0.5

    @pytest.mark.parametrize("lifetime", [0, -1.0, float("inf"), float("nan")])
    def test_that_is_none(self, lifetime):
        with pytest.raises(ValueError, match="positive, finite"):
            MondrianPartition(normal(5, 2), lifetime=lifetime)
        with pytest.raises(ValueError, match="give a lifetime"):
            MondrianPartition(torch.ones(5, 2))


class TestCut:
    POINTS = TestLabels.POINTS

    @pytest.mark.parametrize("lifetime", [1e-3, 0.2, 0.8])
    def test_is_the_partition_drawn_with_that_lifetime(self, trees, lifetime):
        trees.incidences(self.POINTS, self.POINTS)  # remembered codes must not be taken over
        cut, drawn = trees.cut(lifetime), trees_on(normal(100, 3), 30, lifetime)
        assert cut.lifetime == lifetime
        assert torch.equal(cut.labels(self.POINTS), drawn.labels(self.POINTS))
        codes = [each.incidences(self.POINTS, self.POINTS)[0].codes for each in (cut, drawn)]
        assert torch.equal(*codes)
        assert trees.lifetime == 0.8
        assert cut.tree_keys.data_ptr() == trees.tree_keys.data_ptr()

    @pytest.mark.parametrize("lifetime", [0, -1.0, 0.81, float("nan"), float("inf")])
    def test_that_is_no_earlier_lifetime(self, trees, lifetime):
        with pytest.raises(ValueError, match=r"lifetime in \(0, 0.8\]"):
            trees.cut(lifetime)
