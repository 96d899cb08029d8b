"""What carries a kernel's dtype and batch shape is no parameter: it is never trained, indexed wrongly or flipped."""

from __future__ import annotations

import gpytorch
import linear_operator
import pytest
import torch
from gpytorch.kernels import AdditiveKernel, ScaleKernel
from gpytorch.settings import eval_cg_tolerance

from gpytorch_partition.settings import iterative
from tests.kernels.zoo import Model, X, Y, kernel_of

NAMES = ["forest", "fast_cluster", "mondrian", "gamma_mondrian", "landmark", "mixture", "local_linear"]


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


@pytest.mark.parametrize(
    "wrap", [lambda kernel: kernel, lambda kernel: ScaleKernel(kernel, batch_shape=torch.Size([2]))]
)
@pytest.mark.parametrize("name", NAMES)
def test_a_prediction_of_an_lmc_model_flips_nothing_that_is_no_parameter(name, wrap):
    model = _LMC(wrap(kernel_of(name, batch_shape=torch.Size([2])))).eval()
    constants = {name: value for name, value in model.state_dict(keep_vars=True).items() if name.endswith("unit")}
    with torch.no_grad():
        model(X[:20]).variance  # noqa: B018
    assert not [name for name, value in constants.items() if value.requires_grad]
    assert all(bool((value == 1).all()) for value in constants.values())


@pytest.mark.parametrize("most_dense", [800, 10])
def test_a_sum_without_parameters_trains_and_predicts_in_float64(most_dense):
    """GPyTorch takes its dtype for float32."""
    kernel = AdditiveKernel(kernel_of("fast_cluster"), kernel_of("forest")).double()
    x, y = X.double(), Y.double()
    model = Model(x, y, kernel, gpytorch.likelihoods.GaussianLikelihood().double(), gpytorch.means.ZeroMean())
    with iterative(), linear_operator.settings.max_cholesky_size(most_dense), eval_cg_tolerance(1e-10):
        loss = -gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)(model(x), y)
        loss.backward()
        assert model.likelihood.raw_noise.grad.abs() > 0
        predicted = model.eval()(x[:9] + 0.1)
        mean, variance = predicted.mean, predicted.variance
    noisy = kernel(x).to_dense() + model.likelihood.noise * torch.eye(120)
    cross = kernel(x[:9] + 0.1, x).to_dense()
    torch.testing.assert_close(mean, cross @ torch.linalg.solve(noisy, y))
    expected = kernel(x[:9] + 0.1).to_dense() - cross @ torch.linalg.solve(noisy, cross.mT)
    torch.testing.assert_close(variance, expected.diagonal(), rtol=2e-2, atol=1e-6)
    assert mean.dtype == variance.dtype == torch.float64
