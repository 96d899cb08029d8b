"""Function samples of BoTorch's pathwise sampler, against the exact prior and posterior."""

from __future__ import annotations

import pytest
import torch
from botorch.models import SingleTaskGP
from botorch.sampling.pathwise import draw_kernel_feature_paths, draw_matheron_paths
from botorch.sampling.pathwise.features.generators import gen_kernel_features
from gpytorch.kernels import RBFKernel, ScaleKernel
from linear_operator.settings import max_cholesky_size

import gpytorch_partition.botorch  # noqa: F401 (registers the features)
from gpytorch_partition import (
    FastClusterKernel,
    GammaMondrianKernel,
    IterativeKernel,
    LandmarkKernel,
    LocalLinearKernel,
    MondrianKernel,
    PartitionMixtureKernel,
    RandomBinningKernel,
    RandomForestKernel,
)

GENERATOR = torch.Generator().manual_seed(0)
X = torch.rand(60, 3, generator=GENERATOR, dtype=torch.float64)
Y = X[:, :1].sin()
NEW = torch.rand(7, 3, generator=GENERATOR, dtype=torch.float64)
FOREST = RandomForestKernel(X, Y[:, 0], 50, random_state=0)
EXACT = {
    "forest": FOREST,
    "scaled": ScaleKernel(FOREST),
    "some columns": ScaleKernel(FastClusterKernel(X, 50, random_state=0, active_dims=(0, 2))),
    "landmark": ScaleKernel(LandmarkKernel(X, Y[:, 0], 10, random_state=0)),
    "local linear": ScaleKernel(LocalLinearKernel(FOREST, 3)),
    "mixture": ScaleKernel(PartitionMixtureKernel([FOREST, FastClusterKernel(X, 50, random_state=0)])),
    "iterative": IterativeKernel(ScaleKernel(FOREST)),
}
HASHED = {
    "mondrian": MondrianKernel(X, 50, random_state=0),
    "binning": ScaleKernel(RandomBinningKernel(X, 50, random_state=0)),
}
KERNELS = {**EXACT, **HASHED}
NUM_SAMPLES = 4000


@pytest.fixture(autouse=True)
def _seed():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def _features(kernel):
    return gen_kernel_features(kernel.double(), num_inputs=3, num_outputs=8)


@pytest.mark.parametrize("name", KERNELS)
def test_features_are_a_root_of_the_covariance(name):
    features = _features(KERNELS[name])
    left, right = features(X).to_dense(), features(NEW).to_dense()
    assert left.shape[-1] == features.num_outputs
    tolerance = {"rtol": 0, "atol": 0.05} if name in HASHED else {"rtol": 1e-10, "atol": 1e-10}
    torch.testing.assert_close(left @ left.mT, KERNELS[name](X).to_dense(), **tolerance)
    torch.testing.assert_close(left @ right.mT, KERNELS[name](X, NEW).to_dense(), **tolerance)


def test_hashed_features_are_right_on_average():
    kernel = MondrianKernel(X, 200, lifetime=20.0, random_state=0)  # most rows have a cell of their own
    features = _features(kernel)(X).to_dense()
    bias = (features @ features.mT - kernel(X).to_dense()).mean()
    assert 0.5 / 1024 < bias < 1.5 / 1024


@pytest.mark.parametrize("name", ["forest", "scaled", pytest.param("mondrian", marks=pytest.mark.slow)])
def test_posterior_paths_have_the_exact_mean_and_variance(name):
    model = SingleTaskGP(X, Y, covar_module=KERNELS[name])
    with torch.no_grad():
        values = draw_matheron_paths(model, torch.Size([NUM_SAMPLES]))(NEW)
        posterior = model.posterior(NEW)
    mean, variance = posterior.mean[:, 0], posterior.variance[:, 0]
    assert values.shape == (NUM_SAMPLES, 7)
    assert ((values.mean(0) - mean).abs() < 5 * (variance / NUM_SAMPLES).sqrt()).all()
    assert ((values.var(0) / variance - 1).abs() < 5 * (2 / NUM_SAMPLES) ** 0.5).all()


@pytest.mark.parametrize("name", ["scaled", "mondrian"])
def test_features_are_never_dense(name):
    features, x = _features(KERNELS[name]), torch.rand(500, 3, generator=GENERATOR, dtype=torch.float64)
    weights = torch.randn(features.num_outputs, 2, dtype=torch.float64, generator=GENERATOR)
    with torch.no_grad(), max_cholesky_size(10):  # above which dense roots are refused
        values = features(x) @ weights
        with pytest.raises(RuntimeError, match="dense"):
            features(x).to_dense()
    torch.testing.assert_close(values, features(x).to_dense() @ weights)


def test_more_features_than_sobol_sequences_have_dimensions():
    """21,201, where BoTorch's own weights end."""
    kernel = MondrianKernel(X, 50, random_state=0)
    assert _features(kernel).num_outputs > 21_201
    assert draw_kernel_feature_paths(SingleTaskGP(X, Y, covar_module=kernel), torch.Size([2]))(NEW).shape == (2, 7)


def test_other_kernels_keep_the_samplers_of_botorch():
    torch.manual_seed(0)
    paths = draw_kernel_feature_paths(SingleTaskGP(X, Y, covar_module=ScaleKernel(RBFKernel())), torch.Size([4]))
    assert paths.weight.std() > 0
    assert paths.feature_map.num_outputs == 1024


@pytest.mark.parametrize(
    "kernel",
    [GammaMondrianKernel(X, 5, random_state=0), PartitionMixtureKernel([MondrianKernel(X, 5, random_state=0), FOREST])],
)
def test_kernels_without_finite_features_are_refused(kernel):
    with pytest.raises(NotImplementedError, match="model.posterior"):
        _features(kernel)
