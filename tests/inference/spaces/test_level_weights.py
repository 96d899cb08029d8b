"""The evidence of level weights from counts, against dense covariances of the cut trees."""

from __future__ import annotations

import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from torch.distributions import MultivariateNormal

from gpytorch_partition import RandomForestKernel
from gpytorch_partition.inference.evidence.profile_likelihood import Bounds, Maximum
from gpytorch_partition.inference.spaces.level_weights import (
    LevelEvidence,
    checked_level_weights,
    level_operator,
    maximize_level_weights,
)
from gpytorch_partition.inference.spaces.statistics import ClusterStatistics

N = 150
GENERATOR = torch.Generator().manual_seed(1)
X = torch.randn(N, 3, generator=GENERATOR).double()
Y = X[:, 0].sin() + X[:, 1].abs() + 0.3 * torch.randn(N, generator=GENERATOR) - 0.8
FOREST = RandomForestKernel(X, Y, 8, random_state=0, max_samples=0.4).partition
LAYOUT = FOREST.layout
SIZE = int(LAYOUT.heights.max()) + 1
FREE = Bounds((0.0, float("inf")), (1e-4, float("inf")))


def _weights(seed=0):
    return torch.rand(SIZE, generator=torch.Generator().manual_seed(seed)).double().log().neg().softmax(0)


@pytest.fixture(scope="module")
def evidence():
    statistics = ClusterStatistics(FOREST)
    statistics.add(X, Y)
    assert statistics.center == 0  # so that means are those of the targets themselves
    return LevelEvidence(statistics.counts, statistics.sums, statistics.squares, LAYOUT)


@pytest.fixture(scope="module")
def cuts():
    """K_d for each depth, from the labels of the trees cut there."""
    depths = [torch.full((FOREST.num_partitions,), depth) for depth in range(SIZE)]
    labels = [FOREST.cut(depth).labels(X) for depth in depths]
    return torch.stack([(each[:, None] == each[None]).double().mean(-1) for each in labels])


def _dense(cuts, weights, outputscale, noise, mean):
    covariance = outputscale * torch.einsum("d,dij->ij", weights, cuts) + noise * torch.eye(N, dtype=torch.float64)
    return MultivariateNormal(mean.expand(N), covariance).log_prob(Y.double())


def _best_mean(cuts, weights, outputscale, noise):
    covariance = outputscale * torch.einsum("d,dij->ij", weights, cuts) + noise * torch.eye(N, dtype=torch.float64)
    solved = torch.linalg.solve(covariance, torch.stack([Y.double(), torch.ones(N).double()], -1)).sum(0)
    return solved[0] / solved[1]


@pytest.mark.parametrize("mean", [0.4, None])
@pytest.mark.parametrize("noise", [1e-3, 0.1, 5.0])
@pytest.mark.parametrize("weights", [_weights(), torch.eye(SIZE).double()[1], torch.eye(SIZE).double()[-1]])
def test_is_the_dense_one_with_its_gradient(evidence, cuts, weights, noise, mean):
    values = [weights.clone(), *torch.tensor([0.7, noise], dtype=torch.float64)]
    leaves = [value.requires_grad_() for value in values]
    exact_mean = _best_mean(cuts, *leaves) if mean is None else torch.tensor(mean, dtype=torch.float64)
    exact, found = _dense(cuts, *leaves, exact_mean), evidence(*leaves, mean)
    assert found.item() == pytest.approx(exact.item(), rel=1e-9)
    for a, b in zip(torch.autograd.grad(found, leaves), torch.autograd.grad(exact, leaves)):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)


def test_the_operator_is_the_average_of_the_cuts(cuts):
    rows, weights = FOREST.incidences(X, X)[0], _weights()
    features = torch.zeros(N, LAYOUT.num_leaves).double().scatter_(1, rows.codes.long(), 1.0)
    covariance = features @ level_operator(LAYOUT, weights).to_dense() @ features.mT
    torch.testing.assert_close(covariance, torch.einsum("d,dij->ij", weights, cuts))


class TestMaximum:
    START = Maximum(1.0, 0.1, 0.0, float("nan"))

    def _learned(self, evidence, bounds=FREE, **options):
        weights = _weights()
        at = [weights, torch.tensor(1.0).double(), torch.tensor(0.1).double()]
        start = Maximum(1.0, 0.1, 0.0, float(evidence(*at, bounds.mean)))
        return start, maximize_level_weights(evidence, start, weights, bounds, **options)

    def test_is_stationary_in_the_dense_likelihood(self, evidence, cuts):
        """Values are searched densely for the weights found; no shift of weight then gains more than a hair."""
        start, weights = self._learned(evidence)
        assert weights.min() >= 0
        assert float(weights.sum()) == pytest.approx(1)
        scales, total = _dense_search(cuts, weights)
        assert total > start.log_likelihood + 1
        mean = _best_mean(cuts, weights, *scales)
        assert _slopes(lambda at: _dense(cuts, at, *scales, mean), weights).abs().max() < 0.05

    def test_bounds_of_the_values_count(self, evidence, cuts):
        _, weights = self._learned(evidence, Bounds((1.0, 1.0), (0.1, 0.1), mean=3.0))
        fixed, mean = torch.tensor([1.0, 0.1]).double(), torch.tensor(3.0).double()
        assert _slopes(lambda at: _dense(cuts, at, *fixed, mean), weights).abs().max() < 0.1

    def test_too_few_iterations(self, evidence):
        with pytest.warns(ConvergenceWarning, match="raise max_iterations"):
            self._learned(evidence, max_iterations=1)


def _slopes(function, weights):
    """The gradient in softmax coordinates."""
    point = weights.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(function(point), point)
    return weights * (gradient - weights @ gradient)


def _dense_search(cuts, weights):
    """The best outputscale and noise for some weights, by brute force, and the log likelihood there."""
    center, width = torch.tensor([0.0, -1.0]).double(), 3.0
    for _ in range(8):
        grid = center + width * torch.cartesian_prod(*[torch.linspace(-1, 1, 5).double()] * 2)
        totals = []
        for outputscale, noise in grid.exp():
            mean = _best_mean(cuts, weights, outputscale, noise)
            totals.append(float(_dense(cuts, weights, outputscale, noise, mean)))
        best = max(range(len(grid)), key=totals.__getitem__)
        center, width = grid[best], width / 2
    return center.exp(), totals[best]


@pytest.mark.parametrize(
    "weights", [torch.ones(SIZE + 1) / (SIZE + 1), torch.ones(SIZE), torch.eye(SIZE)[0] * 2 - torch.eye(SIZE)[1]]
)
def test_what_are_no_level_weights(weights):
    with pytest.raises(ValueError, match="0 or more, that sum to 1"):
        checked_level_weights(weights, LAYOUT)
