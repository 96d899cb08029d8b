"""Learned projections: on functions of known directions they must find these, and predict better with them."""

from __future__ import annotations

import warnings

import gpytorch
import numpy as np
import pytest
import torch

from gpytorch_partition import MondrianKernel, fit_exact_gp
from gpytorch_partition.lifetimes.gradient_projection import expected_gradient_projection
from gpytorch_partition.models import PartitionGP

N, D = 300, 6
# Two orthonormal directions across the first four columns.
DIRECTIONS = torch.tensor([[1.0, 1.0, 1.0, 1.0, 0.0, 0.0], [1.0, -1.0, 1.0, -1.0, 0.0, 0.0]], dtype=torch.float64) / 2


def normal(n, seed):
    return torch.from_numpy(np.random.RandomState(seed).randn(n, D))


def oblique(x):
    first, second = (x @ DIRECTIONS.T).unbind(-1)
    return (1.5 * first).sin() + 0.7 * second.abs()


def aligned(x):
    return (2 * x[:, 1]).sin() + 0.3 * x[:, 4]


X, TEST = normal(N, 0), normal(300, 1)
NOISE = 0.1 * torch.from_numpy(np.random.RandomState(2).randn(N))


def learned(y, x=X, **options):
    return expected_gradient_projection(x, y, num_trees=40, num_iterations=3, random_state=0, **options)


def error(y, test_y, projection):
    """Of predictions of held-out points."""
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    kernel = MondrianKernel(X, 100, projection=projection, random_state=1)
    model = PartitionGP(X, y, likelihood, kernel)
    fit_exact_gp(model, likelihood)
    with torch.no_grad():
        return float((model.eval()(TEST).mean - test_y).square().mean().sqrt())


@pytest.fixture(scope="module")
def matrix():
    return learned(oblique(X) + NOISE)


@pytest.fixture(scope="module")
def weights():
    return learned(aligned(X) + NOISE, diagonal=True)


@pytest.mark.slow
class TestMatrix:
    def test_most_weight_is_on_the_directions(self, matrix):
        outer = matrix @ matrix.T
        # Where nothing is known, two directions have a third of the weight of six.
        assert (DIRECTIONS @ outer @ DIRECTIONS.T).trace() > 0.75 * outer.trace()
        assert outer.shape == (D, D)
        assert matrix.dtype == torch.float64

    def test_predicts_better(self, matrix):
        y, test_y = oblique(X) + NOISE, oblique(TEST)
        assert error(y, test_y, matrix) < 0.75 * error(y, test_y, None)


@pytest.mark.slow
class TestLengthScales:
    def test_most_weight_is_on_the_columns(self, weights):
        assert weights.shape == (D,)
        assert set(weights.topk(2).indices.tolist()) == {1, 4}
        assert weights[1] > 2 * weights[4]


@pytest.mark.slow
class TestUnits:
    def test_of_columns_and_targets_do_not_matter(self, weights):
        units = torch.tensor([1.0, 1e4, 1e-3, 1.0, 0.01, 7.0])
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # nor give a warning
            other = learned(50 * (aligned(X) + NOISE) - 1e3, X * units + 5, diagonal=True)
        torch.testing.assert_close(other * units, weights, rtol=0.05, atol=0.02)


@pytest.mark.slow
class TestSampling:
    def test_repeats_with_the_seed(self):
        first, second, other = (
            expected_gradient_projection(X[:100], aligned(X[:100]), num_trees=5, num_iterations=2, random_state=seed)
            for seed in (0, 0, 1)
        )
        assert torch.equal(first, second)
        assert not torch.equal(first, other)


class TestErrors:
    Y = aligned(X)

    @pytest.mark.parametrize(
        ("x", "y", "message"),
        [
            (X, Y[:-1], "as many targets"),
            (X, Y.unsqueeze(-1), "as many targets"),
            (X, Y / 0, "finite targets"),
            (X, torch.ones(N), "targets that vary"),
            (X[:1].expand(N, D), Y, "rows that vary"),
            (X / 0, Y, "finite rows"),
            (X.long(), Y, "floating point"),
        ],
    )
    def test_of_data(self, x, y, message):
        with pytest.raises(ValueError, match=message):
            expected_gradient_projection(x, y)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"num_iterations": 0}, "1 or more"),
            ({"num_iterations": 1.5}, "1 or more"),
            ({"num_trees": 0}, "1 or more"),
            ({"lifetime": -1.0}, "lifetime"),
            ({"lifetime": 1e-9}, "longer lifetime"),
            ({"random_state": "seed"}, "seed"),
        ],
    )
    def test_of_numbers(self, options, message):
        with pytest.raises(ValueError, match=message):
            expected_gradient_projection(X[:50], self.Y[:50], **{"num_trees": 3, **options})
