"""The model after a fit to chunks: a GP of counted rows, with a sample of them, in place of an exact GP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from gpytorch.kernels import ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ConstantMean
from linear_operator import to_linear_operator
from linear_operator.operators import LinearOperator
from torch import Tensor

from gpytorch_partition.inputs.training_rows import encode_missing
from gpytorch_partition.kernels import PartitionKernel
from gpytorch_partition.models.feature_space_gp import FeatureSpaceGP


class CountedGP(torch.nn.Module):
    """
    A fitted :class:`~gpytorch_partition.models.FeatureSpaceGP` with a sample of the rows that it has counted.

    It has the modules of a :class:`~gpytorch_partition.models.PartitionGP`, with the fitted values. `train_inputs` and
    `train_targets` are the sample; medians, and training rows similar to new ones, come from it. Called with points, it
    returns their :class:`CountedPosterior`.

    :param space: The fitted model, in float64.
    :param x: `n x D` rows of the sample; NaN is a missing value.
    :param extremes: `2 x D` least and largest values of all rows, NaN where there is none.
    """

    extremes: Tensor  # 2 x D least and largest values of all rows, NaN where there is none

    def __init__(self, space: FeatureSpaceGP, x: Tensor, y: Tensor, extremes: Tensor) -> None:
        super().__init__()
        self.space = space
        self.train_inputs, self.train_targets = (encode_missing(x),), y
        self.likelihood, self.mean_module = GaussianLikelihood().to(x), ConstantMean().to(x)
        self.covar_module = ScaleKernel(space.kernel).to(x)
        if (values := space.values) is not None:
            self.likelihood.noise, self.mean_module.constant = values.noise, torch.tensor(values.mean).to(x)
            self.covar_module.outputscale = values.outputscale
        self.register_buffer("extremes", extremes)
        self.requires_grad_(False).eval()

    @property
    def num_rows(self) -> int:
        return self.space.num_rows

    @property
    def target_variance(self) -> float:
        """Return the variance of all N targets."""
        (total, level), (_, num_rows) = self.space.statistics.squares.tolist()
        return max(0.0, total / num_rows - (level / num_rows) ** 2)

    def forward(self, x: Tensor) -> CountedPosterior:
        """Return the function's posterior at points `N x D`."""
        return self.posterior(x, include_noise=False)

    def posterior(self, x: Tensor, *, include_noise: bool) -> CountedPosterior:
        """Return the posterior of the function at points (`N x D`, NaN is missing), or of new observations."""
        assert self.space.values is not None
        return CountedPosterior(self.space, encode_missing(x), self.space.values.noise if include_noise else 0.0)

    def state(self) -> dict[str, Any]:
        """Return the tensors and values that :func:`rebuilt_counted` needs beside sample and kernel."""
        return {"space": self.space.state_dict(), "extremes": self.extremes}


@dataclass(frozen=True, eq=False)
class CountedPosterior:
    """Hold a posterior at points, with noise of a given variance; quantities are computed when asked for."""

    space: FeatureSpaceGP
    x: Tensor
    noise: float

    @property
    def mean(self) -> Tensor:
        return self.space.means(self.x)

    @property
    def variance(self) -> Tensor:
        return self.space.predict(self.x)[1] + self.noise

    @cached_property
    def lazy_covariance_matrix(self) -> LinearOperator:
        """Return the dense `N x N` covariance."""
        covariance = self.space.covariance(self.x)
        return to_linear_operator(covariance + self.noise * torch.eye(len(covariance), dtype=covariance.dtype))

    def sample(self, size: torch.Size) -> Tensor:
        """Return joint samples (`num_samples x N`); the size is the number of samples."""
        samples = self.space.sample(self.x, size[0])
        return samples + self.noise**0.5 * torch.randn(samples.shape, dtype=samples.dtype)


def rebuilt_counted(state: Mapping[str, Any], x: Tensor, y: Tensor, kernel: PartitionKernel) -> CountedGP:
    """Return the model of a state of :meth:`CountedGP.state`, with the sample (`n x D`, `n`) and the kernel."""
    space = FeatureSpaceGP(kernel)
    space.load_state_dict(state["space"])
    return CountedGP(space, x, y, state["extremes"])
