"""Partitions from programs with seeds."""

from __future__ import annotations

import pickle
from copy import deepcopy

import numpy as np
import pytest
import torch
from sklearn.cluster import DBSCAN, KMeans
from sklearn.mixture import GaussianMixture

from gpytorch_partition import PartitionKernel
from gpytorch_partition.partitions import SampledPartition

X = torch.randn(60, 2, generator=torch.Generator().manual_seed(0))


def halves(seed):
    """The sides of a random line, by NumPy."""
    normal = np.random.RandomState(seed).normal(size=3)
    return lambda x: x.double().numpy() @ normal[:2] > normal[2]


def clusters(seed):
    return KMeans(3, n_init=1, init="random", random_state=seed).fit(X.double().numpy())


def expected_halves(seeds):
    normals = [np.random.RandomState(seed).normal(size=3) for seed in seeds.tolist()]
    return torch.from_numpy(np.stack([X.double().numpy() @ n[:2] > n[2] for n in normals], -1)).long()


def test_labels_are_those_of_the_functions_drawn():
    partition = SampledPartition(halves, 7, random_state=0)
    assert partition.seeds.unique().numel() == 7
    assert torch.equal(partition.labels(X), expected_halves(partition.seeds))
    kernel = PartitionKernel.from_sampler(halves, 7, random_state=0)
    labels = expected_halves(partition.seeds)
    assert kernel.num_partitions == 7
    torch.testing.assert_close(kernel(X).to_dense(), (labels[:, None] == labels).float().mean(-1))


@pytest.mark.slow
def test_drawn_in_parallel_they_are_the_same():
    expected = SampledPartition(halves, 4, random_state=0)
    for same in (SampledPartition(halves, 4, random_state=np.random.RandomState(0), n_jobs=2),):
        assert torch.equal(same.labels(X), expected.labels(X))
    assert not torch.equal(SampledPartition(halves, 4, random_state=1).labels(X), expected.labels(X))


@pytest.mark.parametrize("draw", [clusters, lambda seed: clusters(seed).predict])
def test_fitted_clusterers_and_their_methods(draw):
    partition = SampledPartition(draw, 3, random_state=0)
    labels = [clusters(seed).predict(X.double().numpy()) for seed in partition.seeds.tolist()]
    assert np.array_equal(partition.labels(X).numpy(), np.stack(labels, -1))


def test_fitted_clusterers_are_read_as_those_given_to_a_partition_kernel():
    """Labels of a Gaussian mixture's own predict depend on the other rows of a call; DBSCAN has no predict."""

    def draw(seed):
        random = np.random.RandomState(seed)
        rows = X.double().numpy()[random.permutation(60)[:40]]
        return DBSCAN(0.5 + random.rand()).fit(rows) if seed % 2 else GaussianMixture(3, random_state=seed).fit(rows)

    partition = SampledPartition(draw, 6, random_state=0)
    assert 0 < (partition.seeds % 2).sum() < 6
    expected = [PartitionKernel(draw(seed)).cluster_ids(X) for seed in partition.seeds.tolist()]
    assert torch.equal(partition.labels(X), torch.cat(expected, -1))


def test_columns_of_active_dims():
    kernel = PartitionKernel.from_sampler(halves, 3, random_state=0, active_dims=(3, 1))
    wide = torch.stack([X[:, 0] + 9, X[:, 1], X[:, 0] - 9, X[:, 0]], -1)
    assert torch.equal(kernel.cluster_ids(wide), PartitionKernel.from_sampler(halves, 3, random_state=0).cluster_ids(X))


def test_state_is_the_seeds():
    kernel, other = (PartitionKernel.from_sampler(halves, m, random_state=m) for m in (5, 3))
    expected = kernel.cluster_ids(X)
    assert {name for name in kernel.state_dict() if "built_on" not in name and "columns" not in name} >= {
        "partition.seeds"
    }
    other(X)
    other.load_state_dict(kernel.state_dict())
    assert other.num_partitions == 5
    for same in (other, deepcopy(kernel), pickle.loads(pickle.dumps(kernel)), deepcopy(kernel).double()):
        assert torch.equal(same.cluster_ids(X), expected)


@pytest.mark.parametrize(
    ("draw", "options", "message"),
    [
        (3, {}, "expected a function from a seed"),
        (halves, {"num_partitions": 0}, "1 or more"),
        (halves, {"random_state": "seed"}, "seed"),
        (lambda seed: seed, {}, "expected draw"),
        (lambda seed: KMeans, {}, "expected draw.*got the class KMeans"),
        (lambda seed: KMeans(3), {}, "not fitted"),
        (halves, {"num_partitions": True}, "1 or more"),
    ],
)
def test_errors_before_any_work(draw, options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        PartitionKernel.from_sampler(draw, **options)


def test_labels_of_two_partitions_are_refused():
    kernel = PartitionKernel.from_sampler(lambda seed: lambda x: x[:, :2].long(), 3, random_state=0)
    with pytest.raises(ValueError, match="one label for each"):
        kernel.cluster_ids(X)
