"""Models whose hyperparameters are MCMC samples, one per batch element, saved and loaded again."""

from __future__ import annotations

import gpytorch
import pytest
import torch
from gpytorch.kernels import ScaleKernel
from gpytorch.priors import GammaPrior

from gpytorch_partition import IterativeKernel
from tests.kernels.zoo import Model, X, Y, kernel_of

GENERATOR = torch.Generator().manual_seed(0)
NEW = torch.rand(5, 10, generator=GENERATOR)
NUM_SAMPLES = 4
SAMPLES = {
    "likelihood.noise_covar.noise_prior": 0.05 + torch.rand(NUM_SAMPLES, 1, generator=GENERATOR),
    "scale": 0.5 + torch.rand(NUM_SAMPLES, generator=GENERATOR),
}


def model_of(kernel, wrap):
    likelihood = gpytorch.likelihoods.GaussianLikelihood(noise_prior=GammaPrior(2.0, 2.0))
    scaled = ScaleKernel(kernel, outputscale_prior=GammaPrior(2.0, 2.0))
    return Model(X, Y, wrap(scaled), likelihood, gpytorch.means.ZeroMean())


@pytest.mark.parametrize("name", ["forest", "landmark", "gamma_mondrian", "mixture", "local_linear"])
@pytest.mark.parametrize(
    ("wrap", "prefix"),
    [(lambda kernel: kernel, "covar_module"), (IterativeKernel, "covar_module.base_kernel")],
    ids=["plain", "iterative"],
)
def test_a_model_of_samples_predicts_the_same_after_a_reload(name, wrap, prefix):
    model, twin = model_of(kernel_of(name), wrap), model_of(kernel_of(name), wrap)
    model.pyro_load_from_samples(
        {f"{prefix}.outputscale_prior" if key == "scale" else key: value for key, value in SAMPLES.items()}
    )
    with pytest.raises(RuntimeError, match=r"load_strict_shapes\(False\)"):
        twin.load_state_dict(model.state_dict())
    twin.load_strict_shapes(False)
    twin.load_state_dict(model.state_dict())
    with torch.no_grad():
        predicted, again = (each.eval()(NEW.expand(NUM_SAMPLES, -1, -1)) for each in (model, twin))
        torch.testing.assert_close(again.mean, predicted.mean)
        torch.testing.assert_close(again.variance, predicted.variance)
        kernel = kernel_of(name)(X).to_dense()
        cross = kernel_of(name)(NEW, X).to_dense()
        for i in range(NUM_SAMPLES):
            noise = SAMPLES["likelihood.noise_covar.noise_prior"][i] / SAMPLES["scale"][i]
            mean = cross @ torch.linalg.solve(kernel + noise * torch.eye(120), Y)
            torch.testing.assert_close(predicted.mean[i], mean, rtol=1e-3, atol=1e-4)
        if name not in (
            "local_linear",
            "mixture",
        ):  # parts of which GPyTorch does not index, as no sample expanded them
            torch.testing.assert_close(twin.covar_module[2](X).to_dense(), SAMPLES["scale"][2] * kernel)
