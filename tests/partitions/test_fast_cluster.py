"""Fast cluster partitions against a brute-force nearest center, and Algorithm 2's draws by statistics."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.spatial.distance import cdist

from gpytorch_partition.inputs.numbers import bits_of, floats_of
from gpytorch_partition.partitions.fast_cluster import FastClusterPartition


def normal(n, d, seed=0):
    return torch.from_numpy(np.random.RandomState(seed).randn(n, d))


def grid(n, d, seed=0):
    """Few integers: many rows are the same, and most nearest centers are tied."""
    return torch.from_numpy(np.random.RandomState(seed).randint(-2, 3, size=(n, d))).double()


def remote(n, d, seed=0):
    """Far from the origin: distances by a matrix product lose all their digits."""
    return 1e8 + normal(n, d, seed)


def around(*centers):
    """One partition with these centers, measured on all dimensions."""
    centers = torch.tensor(centers, dtype=torch.float64)
    state = {
        "centers": bits_of(centers),
        "kept": torch.ones(1, centers.shape[1], dtype=torch.bool),
        "sizes": torch.tensor([centers.shape[0]]),
    }
    clusters = FastClusterPartition()
    clusters.load_state_dict(state)
    return clusters


def nearest_centers(clusters, x):
    """Labels by the definition: one point, one center, one dimension at a time; the first minimum wins."""
    labels = np.zeros((x.shape[0], clusters.num_partitions), dtype=np.int64)
    all_centers = floats_of(clusters.centers).split(clusters.cluster_counts.tolist())
    for r, centers in enumerate(all_centers):
        dimensions = clusters.kept[r].nonzero().flatten().tolist()
        for i, point in enumerate(x.double().tolist()):
            distances = []
            for center in centers.tolist():
                total = 0.0
                for d in dimensions:
                    total += (point[d] - center[d]) * (point[d] - center[d])
                distances.append(total)
            labels[i, r] = min(range(len(distances)), key=distances.__getitem__)
    return labels


class TestLabels:
    @pytest.mark.parametrize("data", [normal, grid, remote])
    @pytest.mark.parametrize("d", [1, 3, 20])
    def test_equal_a_brute_force_search(self, data, d):
        clusters = FastClusterPartition(data(64, d), num_partitions=30, height=6, random_state=1)
        x = torch.cat([data(64, d), data(30, d, seed=1)])
        assert np.array_equal(clusters.labels(x).numpy(), nearest_centers(clusters, x))

    def test_neighbors_of_a_tie_fall_on_their_sides(self):
        x = torch.tensor([[0.5 - 1e-12], [0.5], [0.5 + 1e-12]], dtype=torch.float64)
        assert around([1.0], [0.0]).labels(x).flatten().tolist() == [1, 0, 0]

    def test_squared_distances_decide_where_their_roots_are_tied(self):
        clusters = around([1.0, 2.0**-26], [1.0, 0.0])  # 1 + 2^-52 and 1, from the origin
        assert clusters.labels(torch.zeros(1, 2)).item() == 1

    @pytest.mark.parametrize("exponent", [-1000, -600, 1000])
    def test_do_not_depend_on_the_unit(self, exponent):
        x = normal(200, 3)
        expected = FastClusterPartition(x, 20, height=5, random_state=0).labels(x)
        scaled = torch.ldexp(x, torch.tensor(exponent))
        assert torch.equal(FastClusterPartition(scaled, 20, height=5, random_state=0).labels(scaled), expected)


class TestDraws:
    def test_s_is_uniform(self):
        sizes = FastClusterPartition(normal(64, 2), 4000, height=6, random_state=0).cluster_counts
        counts = [int((sizes == 2**s).sum()) for s in range(7)]
        assert sum(counts) == 4000
        assert stats.chisquare(counts).pvalue > 0.01

    def test_kept_dimensions_are_a_fair_subset_that_is_not_empty(self):
        kept = FastClusterPartition(normal(4, 3), 7000, random_state=0).kept
        subsets = (kept.long() * torch.tensor([1, 2, 4])).sum(1)
        counts = torch.bincount(subsets, minlength=8).tolist()
        assert counts[0] == 0
        assert stats.chisquare(counts[1:]).pvalue > 0.01

    def test_centers_are_different_rows_equally_likely(self):
        x = torch.arange(8.0, dtype=torch.float64).unsqueeze(1)
        clusters = FastClusterPartition(x, 3000, height=2, random_state=0)
        groups = floats_of(clusters.centers).flatten().split(clusters.cluster_counts.tolist())
        assert all(group.unique().numel() == group.numel() for group in groups)
        single = torch.cat([group for group in groups if group.numel() == 1]).long()
        assert stats.chisquare(torch.bincount(single, minlength=8).numpy()).pvalue > 0.01

    @pytest.mark.parametrize(("n", "largest"), [(1, 1), (7, 4), (8, 8), (5000, 1024)])
    def test_default_height(self, n, largest):
        clusters = FastClusterPartition(normal(n, 1), 100, random_state=0)
        assert clusters.cluster_counts.max() == largest


class TestIsolation:
    """A fixed number of centers, all columns, and distances in projections."""

    def test_two_rows_are_cut_apart_as_they_should(self):
        """With two centers among the rows 0, 1, 3: 0 and 1 are together if the centers are 0 and 3, or 1 and 3."""
        x = torch.tensor([[0.0], [1.0], [3.0]])
        labels = FastClusterPartition(x, 6000, num_centers=2, columns="all", random_state=0).labels(x)
        assert abs((labels[0] == labels[1]).double().mean() - 2 / 3) < 0.025
        assert abs((labels[1] == labels[2]).double().mean() - 1 / 3) < 0.025  # 0 and 1: 3 is nearer to 1

    @pytest.mark.parametrize("columns", ["random", "all"])
    def test_distances_in_projections(self, columns):
        clusters = FastClusterPartition(normal(64, 5), 20, columns=columns, projection=2, random_state=0)
        x, matrices = normal(100, 5, seed=1), floats_of(clusters.random_projections).numpy()
        labels = clusters.labels(x)
        all_centers = floats_of(clusters.centers).split(clusters.cluster_counts.tolist())
        for r, centers in enumerate(all_centers):
            matrix = matrices[r] * clusters.kept[r].numpy()[:, None]
            distances = cdist(x.numpy() @ matrix, centers.numpy() @ matrix)
            assert np.array_equal(labels[:, r], distances.argmin(1))
        assert torch.equal(torch.cat([clusters.labels(point[None]) for point in x]), labels)

    def test_projections_are_gaussian(self):
        clusters = FastClusterPartition(normal(4, 5), 2000, projection=4, random_state=0)
        assert stats.kstest(2 * floats_of(clusters.random_projections).flatten(), "norm").pvalue > 0.01

    def test_a_state_with_or_without_projections_is_loaded_over_another(self):
        x = normal(30, 5)
        for a, b in ((None, 2), (2, None), (2, 3)):
            saved, other = (FastClusterPartition(x, 4, projection=k, random_state=k) for k in (a, b))
            other.load_state_dict(saved.state_dict())
            assert torch.equal(other.labels(x), saved.labels(x))
            assert set(other.state_dict()) == set(saved.state_dict())

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"num_centers": 0}, "from 1 to the number of rows, 30"),
            ({"num_centers": 2.5}, "num_centers"),
            ({"num_centers": 2, "height": 2}, "got both"),
            ({"columns": "some"}, "columns to be one of"),
            ({"projection": 0}, "projection to be a number"),
            *(({"height": height}, "between 0 and 4") for height in (-1, 5, 1.5, "2", True)),
        ],
    )
    def test_options_that_cannot_be(self, options, message):
        with pytest.raises(ValueError, match=message):
            FastClusterPartition(normal(30, 2), **options)
