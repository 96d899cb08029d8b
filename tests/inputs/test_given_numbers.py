"""Numbers of partitions and seeds: every kernel and estimator refuses the same ones, before any work."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans

from gpytorch_partition import (
    ClusteringKernel,
    FastClusterKernel,
    GammaMondrianKernel,
    MondrianKernel,
    PartitionKernel,
    RandomBinningKernel,
    RandomForestKernel,
)
from gpytorch_partition.estimators import (
    MondrianClassifier,
    PartitionFeatures,
    PartitionGPClassifier,
    PartitionGPRegressor,
    PartitionKernelPCA,
    PartitionSpectralClustering,
    PartitionSVC,
    PartitionSVR,
)
from gpytorch_partition.inputs.numbers import random_state_of
from tests.random_states import untouched_random_states

X = torch.rand(40, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = X[:, 0].sin()
CLASSES = (Y.median() < Y).long()
KERNELS = {
    "forest": lambda m: RandomForestKernel(X, Y, m),
    "fast_cluster": lambda m: FastClusterKernel(X, m),
    "mondrian": lambda m: MondrianKernel(X, m),
    "gamma_mondrian": lambda m: GammaMondrianKernel(X, m),
    "binning": lambda m: RandomBinningKernel(X, m),
    "clustering": lambda m: ClusteringKernel(X, KMeans(2), m),
    "sampler": lambda m: PartitionKernel.from_sampler(lambda seed: lambda x: x[:, 0] > 0.5, m),
}
ESTIMATORS = {
    **{
        f"regressor, {kernel}": lambda m, kernel=kernel: PartitionGPRegressor(kernel, m).fit(X, Y)
        for kernel in ("auto", "forest", "fast_cluster", "mondrian")
    },
    "regressor, function": lambda m: PartitionGPRegressor(lambda x, y: FastClusterKernel(x, 3), m).fit(X, Y),
    "classifier": lambda m: PartitionGPClassifier("mondrian", m).fit(X, CLASSES),
    "support vector classifier": lambda m: PartitionSVC(num_partitions=m).fit(X, CLASSES),
    "support vector regressor": lambda m: PartitionSVR(num_partitions=m).fit(X, Y),
    "kernel PCA": lambda m: PartitionKernelPCA(num_partitions=m).fit(X),
    "spectral clustering": lambda m: PartitionSpectralClustering(2, num_partitions=m).fit(X),
    "features": lambda m: PartitionFeatures("forest", m).fit(X, Y),
    "Mondrian classifier": lambda m: MondrianClassifier(m).fit(X, CLASSES),
}
BAD = [0, -1, 2.5, "10", True, None]


@pytest.mark.parametrize("number", BAD)
@pytest.mark.parametrize("name", KERNELS)
def test_kernels_refuse(name, number):
    with pytest.raises(ValueError, match=rf"^expected a number of \w+, 1 or more, got \w+={number!r}$"):
        KERNELS[name](number)


@pytest.mark.parametrize("number", BAD)
@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimators_refuse_by_the_name_of_their_parameter(name, number):
    parameter = "num_trees" if name == "Mondrian classifier" else "num_partitions"
    with pytest.raises(ValueError, match=rf"^expected {parameter} to be a whole number, 1 or more, got {number!r}$"):
        ESTIMATORS[name](number)


@pytest.mark.parametrize("name", KERNELS)
def test_more_than_anything_could_hold(name):
    with pytest.raises(ValueError, match="expected 1,048,576 .* at most, got num_.*=2,147,483,648"):
        KERNELS[name](2**31)


@pytest.mark.parametrize("name", KERNELS)
def test_numpys_whole_numbers_are_numbers_and_global_random_states_are_left_alone(name):
    with untouched_random_states():
        assert KERNELS[name](np.int64(3)).num_partitions == 3


def test_none_neither_reads_nor_moves_the_global_state():
    np.random.seed(0)  # noqa: NPY002
    with untouched_random_states():
        first = random_state_of(None).randint(2**31, size=4)
        assert not np.array_equal(first, random_state_of(None).randint(2**31, size=4))


def test_nonsense_is_refused():
    with pytest.raises(ValueError, match="cannot be used to seed"):
        random_state_of("three")
