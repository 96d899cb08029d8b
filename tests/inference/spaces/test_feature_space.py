"""Evidence, means and variances from cluster counts, against dense algebra in float64."""

from __future__ import annotations

import pytest
import torch

from gpytorch_partition import FastClusterKernel, MondrianKernel, RandomForestKernel
from gpytorch_partition.clusters.co_occurrence import coarsened, count_co_occurrences, streamed_cluster_sums
from gpytorch_partition.inference.evidence.spectral_likelihood import SpectralLikelihood, dense_measure
from gpytorch_partition.inference.spaces.feature_space import feature_space_of, measure_of

N = 300
GENERATOR = torch.Generator().manual_seed(3)
X = torch.randn(N, 4, generator=GENERATOR)
Y = X[:, 0].sin() + X[:, 1].abs() + 0.3 * torch.randn(N, generator=GENERATOR)
TEST = torch.randn(25, 4, generator=GENERATOR)
SCALE, NOISE, MEAN = 0.7, 0.05, 0.4

KERNELS = {
    "forest": lambda: RandomForestKernel(X, Y, 12, random_state=0),
    "cut forest": lambda: RandomForestKernel(X, Y, 12, heights="sampled", random_state=0),
    "fast cluster": lambda: FastClusterKernel(X, 20, height=5, random_state=0),
    "more clusters than rows": lambda: FastClusterKernel(X, 40, height=8, random_state=0),
    "Mondrian": lambda: MondrianKernel(X, 20, random_state=0),
    "one cluster": lambda: FastClusterKernel(X, 1, height=0, random_state=0),
}


@pytest.fixture(params=KERNELS)
def kernel(request):
    return KERNELS[request.param]().double()


def _dense(kernel):
    return kernel(X.double()).to_dense()


@pytest.mark.parametrize("way", ["factor", "eigenpairs"])
def test_means_and_covariances_are_the_dense_ones(kernel, way):
    covariance = kernel(X.double()).evaluate_kernel()
    space = feature_space_of(covariance)
    assert not space.has_root(SCALE, NOISE)
    if way == "eigenpairs":
        assert (space.values >= 0).all()
    rows = kernel.partition.incidences(TEST.double(), X.double())[0]
    offset = (Y - MEAN).double().unsqueeze(-1)
    noisy = SCALE * _dense(kernel) + NOISE * torch.eye(N, dtype=torch.float64)
    cross, prior = SCALE * kernel(TEST.double(), X.double()).to_dense(), SCALE * kernel(TEST.double()).to_dense()
    sums = streamed_cluster_sums(covariance.left.codes, offset, rows.num_clusters)
    mean = rows.row_values(space.mean_weights(sums, SCALE, NOISE))
    torch.testing.assert_close(mean, cross @ torch.linalg.solve(noisy, offset), rtol=1e-8, atol=1e-8)
    root = rows.row_values(space.covariance_root(SCALE, NOISE))
    expected = prior - cross @ torch.linalg.solve(noisy, cross.mT)
    torch.testing.assert_close(root.square().sum(-1), expected.diagonal(), rtol=1e-8, atol=1e-10)
    assert space.is_decomposed == (way == "eigenpairs")
    assert (space.has_root(SCALE, NOISE), space.has_root(SCALE, 2 * NOISE)) == (True, space.is_decomposed)


def test_a_factor_is_computed_anew_for_other_values():
    covariance = KERNELS["fast cluster"]()(X).evaluate_kernel()
    space, fresh = feature_space_of(covariance), feature_space_of(KERNELS["fast cluster"]()(X).evaluate_kernel())
    space.covariance_root(SCALE, NOISE)
    assert torch.equal(space.covariance_root(SCALE, 2 * NOISE), fresh.covariance_root(SCALE, 2 * NOISE))


def test_coarser_partitions_are_sums_of_counts():
    """A cut of the same trees needs no row: its counts are sums over those of the leaves."""
    forest = RandomForestKernel(X, Y, 12, random_state=0)
    cut = forest.partition.cut(torch.full((12,), 2))
    fine, coarse = forest(X).evaluate_kernel().left, cut.incidences(X, X)[0]
    count = {name: _counts(rows) for name, rows in (("fine", fine), ("coarse", coarse))}
    offsets = cut.counts.cumsum(0) - cut.counts
    mapping = cut.clusters + forest.partition.layout.of_leaf(offsets)
    assert torch.equal(coarsened(count["fine"], mapping.long(), len(count["coarse"])), count["coarse"])


def _counts(rows):
    counts = torch.zeros(rows.num_clusters, rows.num_clusters, dtype=torch.float64)
    count_co_occurrences(counts, rows.codes)
    return counts


@pytest.mark.parametrize("name", ["forest", "more clusters than rows"])
def test_noise_too_little_for_a_factor(name):
    """Rounding leaves no Cholesky factor; eigenpairs know which directions the rows say nothing about."""
    covariance = KERNELS[name]().double()(X.double()).evaluate_kernel()
    space = feature_space_of(covariance)
    assert space._factored_root(1.0, 1e-18) is None
    root = space.covariance_root(1.0, 1e-18)
    rows = covariance.left.row_values(root).square().sum(-1)
    assert torch.isfinite(root).all()
    assert rows.max() < 1e-12  # the rows are interpolated
    torch.testing.assert_close(space.covariance_root(1.0, NOISE), space.basis * (NOISE / (space.values + NOISE)).sqrt())


@pytest.mark.parametrize("offset", [0.0, 1e4, 1e7])
def test_targets_far_from_zero_and_of_different_sizes(offset, kernel):
    """A constant mean takes up the offset; one target's size does not blur another's likelihood."""
    y = Y.double()
    targets = torch.stack([y + offset, 1e6 * y, 1e-6 * y, torch.full_like(y, 3.0)], -1)
    measure = measure_of(kernel(X.double()).evaluate_kernel(), targets)
    exact = dense_measure(_dense(kernel), torch.stack([y, 1e6 * y, 1e-6 * y, torch.zeros_like(y)], -1))
    for target, (unit, mean) in enumerate([(1.0, offset), (1e6, 0.0), (1e-6, 0.0), (1.0, 3.0)]):
        values = SCALE * unit**2, NOISE * unit**2
        expected = SpectralLikelihood(exact, target).value(*values, 0.0)
        assert SpectralLikelihood(measure, target).value(*values, mean) == pytest.approx(expected, rel=1e-6, abs=1e-4)
