"""What carries a kernel's dtype and batch shape is no parameter: it is never trained, indexed wrongly or flipped."""

from __future__ import annotations

import copy
import pickle

import gpytorch
import linear_operator
import pytest
import torch
from gpytorch.kernels import AdditiveKernel, RBFKernel, ScaleKernel
from gpytorch.settings import eval_cg_tolerance
from linear_operator import to_dense

from gpytorch_partition import (
    FastClusterKernel,
    GammaMondrianKernel,
    IterativeKernel,
    LandmarkKernel,
    LocalLinearKernel,
    MondrianKernel,
    PartitionMixtureKernel,
    RandomForestKernel,
)
from gpytorch_partition.settings import iterative

X = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
Y = X[:, 0].sin()
BUILD = {
    "forest": lambda **options: RandomForestKernel(X, Y, 5, random_state=0, **options),
    "fast_cluster": lambda **options: FastClusterKernel(X, 5, random_state=0, **options),
    "mondrian": lambda **options: MondrianKernel(X, 5, random_state=0, **options),
    "gamma_mondrian": lambda **options: GammaMondrianKernel(X, 5, random_state=0, **options),
    "landmark": lambda **options: LandmarkKernel(X, Y, 10, random_state=0, **options),
    "mixture": lambda **options: PartitionMixtureKernel([FastClusterKernel(X, 5, random_state=0)], **options),
    "local_linear": lambda **options: LocalLinearKernel(BUILD["forest"](**options), 3, **options),
}


class _LMC(gpytorch.models.ApproximateGP):
    def __init__(self, kernel):
        points = X[:10].expand(2, -1, -1)
        distribution = gpytorch.variational.CholeskyVariationalDistribution(10, batch_shape=torch.Size([2]))
        strategy = gpytorch.variational.VariationalStrategy(self, points, distribution, learn_inducing_locations=False)
        super().__init__(
            gpytorch.variational.LMCVariationalStrategy(strategy, num_tasks=3, num_latents=2, latent_dim=-1)
        )
        self.mean_module = gpytorch.means.ConstantMean(batch_shape=torch.Size([2]))
        self.covar_module = kernel

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


@pytest.fixture(params=BUILD)
def build(request):
    return BUILD[request.param]


@pytest.mark.parametrize(
    "wrap", [lambda kernel: kernel, lambda kernel: ScaleKernel(kernel, batch_shape=torch.Size([2]))]
)
def test_a_prediction_of_an_lmc_model_flips_nothing_that_is_no_parameter(build, wrap):
    model = _LMC(wrap(build(batch_shape=torch.Size([2])))).eval()
    constants = {name: value for name, value in model.state_dict(keep_vars=True).items() if name.endswith("unit")}
    with torch.no_grad():
        model(X[:20]).variance  # noqa: B018
    assert not [name for name, value in constants.items() if value.requires_grad]
    assert all(bool((value == 1).all()) for value in constants.values())


def test_no_parameter_is_frozen(build):
    assert not [name for name, _ in build().named_parameters() if name.endswith("unit")]


def test_dtype_and_device(build):
    kernel = build()
    kernel(X).to_dense()
    assert (kernel.dtype, kernel.double().dtype, kernel.to(torch.float32).dtype) == (
        torch.float32,
        torch.float64,
        torch.float32,
    )
    assert kernel.device == torch.device("cpu")
    assert kernel.double()(X.double()).to_dense().dtype == torch.float64


@pytest.mark.parametrize(
    "wrap", [lambda kernel: kernel, copy.deepcopy, lambda kernel: pickle.loads(pickle.dumps(kernel))]
)
def test_batches_are_indexed_and_expanded_at_every_depth(build, wrap):
    single = to_dense(build()(X[:7]).evaluate_kernel()).detach()
    scale = ScaleKernel(build(batch_shape=torch.Size([2])), batch_shape=torch.Size([2]))
    scale.outputscale = torch.tensor([1.0, 3.0])
    smooth = RBFKernel(batch_shape=torch.Size([2]))
    for kernel, rest in ((scale, 0), (IterativeKernel(scale), 0), (AdditiveKernel(scale, smooth), smooth[0](X[:7]))):
        element, expected = wrap(kernel)[1], 3 * single + (rest and rest.to_dense())
        assert element.batch_shape == ()
        torch.testing.assert_close(to_dense(element(X[:7])), expected)
        if not rest:  # GPyTorch expands no sums
            larger = wrap(kernel).expand_batch(4, 2)
            torch.testing.assert_close(to_dense(larger(X[:7]))[3, 1], expected)
            torch.testing.assert_close(to_dense(larger[2, 1](X[:7])), expected)


@pytest.mark.parametrize("most_dense", [800, 10])
def test_a_sum_without_parameters_trains_and_predicts_in_float64(most_dense):
    """GPyTorch takes its dtype for float32."""
    kernel = AdditiveKernel(BUILD["fast_cluster"](), BUILD["forest"]()).double()
    x, y = X.double(), Y.double()
    model = _Exact(x, y, kernel)
    with iterative(), linear_operator.settings.max_cholesky_size(most_dense), eval_cg_tolerance(1e-10):
        loss = -gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)(model(x), y)
        loss.backward()
        assert model.likelihood.raw_noise.grad.abs() > 0
        predicted = model.eval()(x[:9] + 0.1)
        mean, variance = predicted.mean, predicted.variance
    noisy = kernel(x).to_dense() + model.likelihood.noise * torch.eye(60)
    cross = kernel(x[:9] + 0.1, x).to_dense()
    torch.testing.assert_close(mean, cross @ torch.linalg.solve(noisy, y))
    expected = kernel(x[:9] + 0.1).to_dense() - cross @ torch.linalg.solve(noisy, cross.mT)
    torch.testing.assert_close(variance, expected.diagonal(), rtol=2e-2, atol=1e-6)
    assert mean.dtype == variance.dtype == torch.float64


class _Exact(gpytorch.models.ExactGP):
    def __init__(self, x, y, kernel):
        super().__init__(x, y, gpytorch.likelihoods.GaussianLikelihood().double())
        self.mean_module, self.covar_module = gpytorch.means.ZeroMean(), kernel

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))
