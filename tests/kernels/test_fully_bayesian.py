"""Models whose hyperparameters are MCMC samples, one per batch element, saved and loaded again."""

from __future__ import annotations

import gpytorch
import pytest
import torch
from gpytorch.kernels import ScaleKernel
from gpytorch.priors import GammaPrior

from gpytorch_partition import (
    FastClusterKernel,
    GammaMondrianKernel,
    IterativeKernel,
    LandmarkKernel,
    LocalLinearKernel,
    PartitionMixtureKernel,
    RandomForestKernel,
)

GENERATOR = torch.Generator().manual_seed(0)
X = torch.rand(60, 3, generator=GENERATOR)
Y = X[:, 0].sin()
NEW = torch.rand(5, 3, generator=GENERATOR)
NUM_SAMPLES = 4
SAMPLES = {
    "likelihood.noise_covar.noise_prior": 0.05 + torch.rand(NUM_SAMPLES, 1, generator=GENERATOR),
    "scale": 0.5 + torch.rand(NUM_SAMPLES, generator=GENERATOR),
}
BUILD = {
    "forest": lambda: RandomForestKernel(X, Y, 5, random_state=0),
    "landmark": lambda: LandmarkKernel(X, Y, 10, random_state=0),
    "gamma_mondrian": lambda: GammaMondrianKernel(X, 5, random_state=0),
    "mixture": lambda: PartitionMixtureKernel([BUILD["forest"](), FastClusterKernel(X, 5, random_state=0)]),
    "local_linear": lambda: LocalLinearKernel(BUILD["forest"](), 3),
}


class _Model(gpytorch.models.ExactGP):
    def __init__(self, kernel, wrap):
        super().__init__(X, Y, gpytorch.likelihoods.GaussianLikelihood(noise_prior=GammaPrior(2.0, 2.0)))
        scaled = ScaleKernel(kernel, outputscale_prior=GammaPrior(2.0, 2.0))
        self.mean_module, self.covar_module = gpytorch.means.ZeroMean(), wrap(scaled)

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


@pytest.mark.parametrize("name", BUILD)
@pytest.mark.parametrize(
    ("wrap", "prefix"),
    [(lambda kernel: kernel, "covar_module"), (IterativeKernel, "covar_module.base_kernel")],
    ids=["plain", "iterative"],
)
def test_a_model_of_samples_predicts_the_same_after_a_reload(name, wrap, prefix):
    model, twin = _Model(BUILD[name](), wrap), _Model(BUILD[name](), wrap)
    model.pyro_load_from_samples(
        {f"{prefix}.outputscale_prior" if key == "scale" else key: value for key, value in SAMPLES.items()}
    )
    twin.load_strict_shapes(False)
    twin.load_state_dict(model.state_dict())
    with torch.no_grad():
        predicted, again = (each.eval()(NEW.expand(NUM_SAMPLES, -1, -1)) for each in (model, twin))
        torch.testing.assert_close(again.mean, predicted.mean)
        torch.testing.assert_close(again.variance, predicted.variance)
        kernel = BUILD[name]()(X).to_dense()
        cross = BUILD[name]()(NEW, X).to_dense()
        for i in range(NUM_SAMPLES):
            noise = SAMPLES["likelihood.noise_covar.noise_prior"][i] / SAMPLES["scale"][i]
            mean = cross @ torch.linalg.solve(kernel + noise * torch.eye(60), Y)
            torch.testing.assert_close(predicted.mean[i], mean, rtol=1e-3, atol=1e-4)
        if name not in (
            "local_linear",
            "mixture",
        ):  # parts of which GPyTorch does not index, as no sample expanded them
            torch.testing.assert_close(twin.covar_module[2](X).to_dense(), SAMPLES["scale"][2] * kernel)


def test_a_reload_without_loose_shapes_is_refused():
    model = _Model(BUILD["forest"](), lambda kernel: kernel)
    model.pyro_load_from_samples(
        {"covar_module.outputscale_prior" if key == "scale" else key: value for key, value in SAMPLES.items()}
    )
    with pytest.raises(RuntimeError, match=r"load_strict_shapes\(False\)"):
        BUILD["forest"]().load_state_dict(model.covar_module.base_kernel.state_dict())
