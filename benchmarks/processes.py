"""Covariances and Gaussian processes that several benchmarks have in common, and their training."""

from __future__ import annotations

from collections.abc import Callable

import gpytorch
import torch
from gpytorch.kernels import Kernel, ScaleKernel
from sklearn.ensemble import RandomForestRegressor
from torch import Tensor

from gpytorch_partition import FastClusterKernel, RandomForestKernel, settings
from gpytorch_partition.clusters.incidence import Incidence
from gpytorch_partition.models import PartitionGP
from gpytorch_partition.operators import FlatLinearOperator, PartitionLinearOperator


def random_clusters(num_rows: int, num_partitions: int, num_clusters: int) -> Incidence:
    """Return rows that fall in a random cluster of each partition: the least orderly memory access."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(num_clusters, (num_rows, num_partitions), generator=generator, dtype=torch.int32)
    offsets = num_clusters * torch.arange(num_partitions, dtype=torch.int32)
    return Incidence(labels.add_(offsets), num_partitions * num_clusters)


def flat_operator(rows: Incidence, dtype: torch.dtype = torch.float32) -> PartitionLinearOperator:
    """Return the covariance of rows: in how many partitions they share a cluster, over m."""
    share = torch.full((1,), 1 / rows.num_partitions, dtype=dtype)
    clusters = FlatLinearOperator(share, num_clusters=rows.num_clusters)
    return PartitionLinearOperator(torch.ones((), dtype=dtype), clusters, left=rows, right=rows)


def model_of(x: Tensor, y: Tensor, kernel: Kernel) -> PartitionGP:
    """Return an exact GP with outputscale 1 and noise 0.1."""
    model = PartitionGP(x, y, gpytorch.likelihoods.GaussianLikelihood(), kernel)
    model.likelihood.noise = 0.1
    model.covar_module.outputscale = 1.0
    return model


def fast_cluster_model(x: Tensor, y: Tensor) -> PartitionGP:
    """Return an exact GP with 100 fast cluster partitions of height 8."""
    return model_of(x, y, FastClusterKernel(x, 100, height=8, random_state=0))


def paper_forest(x: Tensor, y: Tensor, num_trees: int, seed: int = 0, **options: int) -> Kernel:
    """Return the kernel of Davies & Ghahramani (2014), section 4.3.1: a random forest cut at random heights."""
    forest = RandomForestRegressor(num_trees, random_state=seed, **options).fit(x.numpy(), y.numpy())
    return RandomForestKernel.from_forest(forest, heights="sampled", random_state=seed)


class ExactModel(gpytorch.models.ExactGP):
    """GPyTorch's exact GP with a constant mean."""

    def __init__(self, x: Tensor, y: Tensor, kernel: Kernel) -> None:
        super().__init__(x, y, gpytorch.likelihoods.GaussianLikelihood())
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = kernel
        self.to(x)

    def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def ard_kernel(kernel: Callable[..., Kernel], num_columns: int, ard: bool = True) -> ScaleKernel:
    """Return a scaled kernel with lengthscales that suit standardized columns, one for each or one for all."""
    scaled = ScaleKernel(kernel(ard_num_dims=num_columns if ard else None))
    scaled.base_kernel.lengthscale = num_columns**0.5
    return scaled


def adam(model: gpytorch.models.ExactGP, steps: int) -> None:
    """Take steps of learning rate 0.1 on the marginal likelihood, with the solver that is set."""
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    for _ in range(steps):
        optimizer.zero_grad()
        (-objective(model(*model.train_inputs), model.train_targets)).backward()
        optimizer.step()


def likelihood_and_gradient(model: PartitionGP) -> None:
    """Leave the gradient of one marginal likelihood in the parameters."""
    model.train()
    model.zero_grad()
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    with settings.iterative():
        objective(model(*model.train_inputs), model.train_targets).backward()
