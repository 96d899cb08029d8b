"""What a kernel that is piecewise constant cannot do is refused with what to do instead."""

from __future__ import annotations

import gpytorch
import pytest
import torch
from gpytorch.kernels import InducingPointKernel, ScaleKernel

from tests.kernels.zoo import X, kernel_of

FOREST = kernel_of("forest")
INSTEAD_OF_LENGTHSCALE = {
    "forest": "min_samples_leaf",
    "fast_cluster": "height",
    "mondrian": "lifetime",
    "gamma_mondrian": "lifetime",
    "landmark": "base_kernel.lengthscale",
    "mixture": "mixture_weights",
    "local_linear": "variance",
}


class _Variational(gpytorch.models.ApproximateGP):
    def __init__(self, learn):
        distribution = gpytorch.variational.CholeskyVariationalDistribution(10)
        super().__init__(
            gpytorch.variational.VariationalStrategy(self, X[:10], distribution, learn_inducing_locations=learn)
        )
        self.mean_module, self.covar_module = gpytorch.means.ConstantMean(), ScaleKernel(FOREST)

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def test_learned_inducing_points_name_what_freezes_them():
    with pytest.raises(RuntimeError, match="learn_inducing_locations=False"):
        _Variational(True)(X)
    assert _Variational(False)(X).mean.shape == (120,)


def test_learned_points_of_an_inducing_point_kernel_name_what_freezes_them():
    kernel = InducingPointKernel(FOREST, X[:10].clone(), gpytorch.likelihoods.GaussianLikelihood())
    with pytest.raises(RuntimeError, match=r"inducing_points.requires_grad_\(False\)"):
        kernel(X).to_dense()
    kernel.inducing_points.requires_grad_(False)
    assert kernel(X).to_dense().shape == (120, 120)


def test_gradients_of_acquisition_functions_name_the_optimizers():
    with pytest.raises(RuntimeError, match="optimize_acqf_cells.*optimize_acqf_discrete") as caught:
        FOREST(X.clone().requires_grad_(True)).to_dense()
    assert "with_grad" not in str(caught.value)


@pytest.mark.parametrize("name", INSTEAD_OF_LENGTHSCALE)
def test_a_lengthscale_that_is_none_names_what_there_is(name):
    kernel, instead = kernel_of(name), INSTEAD_OF_LENGTHSCALE[name]
    with pytest.raises(AttributeError, match=f"{type(kernel).__name__} has no lengthscale.*{instead}"):
        kernel.lengthscale  # noqa: B018
    with pytest.raises(AttributeError, match=f"has no lengthscale.*{instead}"):
        kernel.lengthscale = 1.0
    with pytest.raises(AttributeError, match="lengthscale"):
        kernel.initialize(lengthscale=1.0)
    assert not kernel.has_lengthscale
    assert not kernel.is_stationary
    assert not hasattr(kernel, "lengthscale")
    assert getattr(ScaleKernel(kernel).base_kernel, "lengthscale", None) is None


def test_the_lengthscales_of_grids_are_read_only():
    kernel = kernel_of("random_binning")
    assert kernel.lengthscale.shape == (1, 10)
    with pytest.raises(AttributeError, match="new RandomBinningKernel"):
        kernel.lengthscale = 1.0
    with pytest.raises(AttributeError, match="no attribute 'other'"):
        kernel.other  # noqa: B018


@pytest.mark.parametrize("name", ["forest", "scaled", "iterative", "landmark"])
def test_traces_are_refused_with_what_to_save_instead(name):
    class Covariance(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.kernel = kernel_of(name)

        def forward(self, x):
            return self.kernel(x, X).to_dense()

    with torch.no_grad(), pytest.raises(RuntimeError, match="TorchScript.*state_dict"):
        torch.jit.trace(Covariance(), X[:5], check_trace=False)
