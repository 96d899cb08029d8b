"""Partitions by a user's function, and by the functions that a program draws from seeds."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.cluster import DBSCAN, KMeans
from sklearn.mixture import GaussianMixture

from gpytorch_partition import PartitionKernel
from gpytorch_partition.partitions import CallablePartition, SampledPartition

X = torch.randn(60, 2, generator=torch.Generator().manual_seed(0))
ARRAY = X.double().numpy()


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
    labels = CallablePartition(function).labels(X.expand(2, 60, 2))
    assert labels.dtype == torch.int64
    assert torch.equal(labels, (X[:, :1] > 0).long().expand(2, 60, 1))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x, r"integer labels.*return labels.long\(\)"),
        (lambda x: x.numpy(), "integer labels"),
        (lambda x: [0] * len(x), "integer labels.*got list"),
        (lambda x: x.long().sum(), "labels of shape"),
        (lambda x: x[:, :0].long(), "at least one partition, got none"),
        (lambda x: np.zeros(3, int), r"labels of shape \(1, 1\)"),
    ],
)
def test_what_are_no_labels(function, message):
    with pytest.raises(ValueError, match=message):
        CallablePartition(function).labels(X)


@pytest.mark.parametrize("labels", [torch.arange(60), np.arange(60)], ids=["tensor", "array"])
def test_labels_of_rows_alone(labels):
    with pytest.raises(TypeError, match=r"do not say where new points belong. Give a fitted clusterer"):
        CallablePartition(labels)


def test_another_number_of_partitions_than_was_given():
    with pytest.raises(ValueError, match="expected the function to return labels"):
        CallablePartition(lambda x: x.long(), num_partitions=3).labels(X)


def test_nan_is_the_functions_business():
    x = X.clone()
    x[0, 0] = torch.nan
    assert CallablePartition(lambda x: torch.isnan(x).long()).labels(x)[0].tolist() == [1, 0]


def halves(seed):
    """The sides of a random line, by NumPy."""
    normal = np.random.RandomState(seed).normal(size=3)
    return lambda x: x.double().numpy() @ normal[:2] > normal[2]


def clusters(seed):
    return KMeans(3, n_init=1, init="random", random_state=seed).fit(ARRAY)


class TestPrograms:
    def test_labels_are_those_of_the_functions_drawn(self):
        partition = SampledPartition(halves, 7, random_state=0)
        assert partition.seeds.unique().numel() == 7
        normals = [np.random.RandomState(seed).normal(size=3) for seed in partition.seeds.tolist()]
        labels = torch.from_numpy(np.stack([ARRAY @ n[:2] > n[2] for n in normals], -1)).long()
        assert torch.equal(partition.labels(X), labels)
        kernel = PartitionKernel.from_sampler(halves, 7, random_state=0)
        assert kernel.num_partitions == 7
        torch.testing.assert_close(kernel(X).to_dense(), (labels[:, None] == labels).float().mean(-1))
        assert "partition.seeds" in kernel.state_dict()

    @pytest.mark.parametrize("draw", [clusters, lambda seed: clusters(seed).predict])
    def test_fitted_clusterers_and_their_methods(self, draw):
        partition = SampledPartition(draw, 3, random_state=0)
        labels = [clusters(seed).predict(ARRAY) for seed in partition.seeds.tolist()]
        assert np.array_equal(partition.labels(X).numpy(), np.stack(labels, -1))

    def test_fitted_clusterers_are_read_as_those_given_to_a_partition_kernel(self):
        """Labels of a Gaussian mixture's own predict depend on the other rows of a call; DBSCAN has no predict."""

        def draw(seed):
            random = np.random.RandomState(seed)
            rows = ARRAY[random.permutation(60)[:40]]
            return (
                DBSCAN(0.5 + random.rand()).fit(rows) if seed % 2 else GaussianMixture(3, random_state=seed).fit(rows)
            )

        partition = SampledPartition(draw, 6, random_state=0)
        assert 0 < (partition.seeds % 2).sum() < 6
        expected = [PartitionKernel(draw(seed)).cluster_ids(X) for seed in partition.seeds.tolist()]
        assert torch.equal(partition.labels(X), torch.cat(expected, -1))

    @pytest.mark.parametrize(
        ("draw", "options", "message"),
        [
            (3, {}, "expected a function from a seed"),
            (halves, {"num_partitions": 0}, "1 or more"),
            (halves, {"random_state": "seed"}, "seed"),
            (lambda seed: seed, {}, "expected draw"),
            (lambda seed: KMeans, {}, "expected draw.*got the class KMeans"),
            (lambda seed: KMeans(3), {}, "not fitted"),
        ],
    )
    def test_errors_before_any_work(self, draw, options, message):
        with pytest.raises((TypeError, ValueError), match=message):
            PartitionKernel.from_sampler(draw, **options)

    def test_labels_of_two_partitions_are_refused(self):
        kernel = PartitionKernel.from_sampler(lambda seed: lambda x: x[:, :2].long(), 3, random_state=0)
        with pytest.raises(ValueError, match="one label for each"):
            kernel.cluster_ids(X)
