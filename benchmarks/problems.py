"""The data, operators and models that are measured."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import gpytorch
import numpy as np
import torch
from gpytorch.kernels import Kernel, ScaleKernel
from sklearn.datasets import make_friedman1
from torch import Tensor

from gpytorch_partition import FastClusterKernel, settings
from gpytorch_partition.clusters.incidence import Incidence
from gpytorch_partition.inputs.bits import bits_of
from gpytorch_partition.models import PartitionGP
from gpytorch_partition.operators import FlatLinearOperator, PartitionLinearOperator


def friedman(num_rows: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Friedman's first function of 10 columns with noise of standard deviation 1, all standardized."""
    X, y = make_friedman1(num_rows, n_features=10, noise=1.0, random_state=0)
    return standardized(X, y, dtype)


def friedman_chunk(number: int, num_rows: int) -> tuple[Tensor, Tensor]:
    """Standardized rows and targets of the same function, a chunk of an endless stream; -1 is kept for testing."""
    generator = torch.Generator().manual_seed(1_000 + number)
    x = torch.rand(num_rows, 10, generator=generator)
    y = 10 * (torch.pi * x[:, 0] * x[:, 1]).sin() + 20 * (x[:, 2] - 0.5).square() + 10 * x[:, 3] + 5 * x[:, 4]
    y = y + torch.randn(num_rows, generator=generator)
    return (x - 0.5) * 12**0.5, (y - 14.4) / 5


def read_arrays(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """X and y of an NPZ file, float64."""
    with np.load(path, allow_pickle=False) as file:
        return file["X"].astype(float), file["y"].astype(float)


def read(folder: Path, name: str, num_rows: int) -> tuple[Tensor, Tensor]:
    """At most so many random rows of NAME.npz (arrays X and y), standardized."""
    X, y = read_arrays(folder / f"{name}.npz")
    chosen = np.random.default_rng(0).permutation(len(y))[:num_rows]
    return standardized(X[chosen], y[chosen])


def standardized(X: np.ndarray, y: np.ndarray, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Inputs without constant columns and targets, all of mean 0 and standard deviation 1."""
    X = X[:, X.std(0) > 0]
    columns = ((values - values.mean(0)) / values.std(0) for values in (X.astype(np.float64), y))
    x, targets = (torch.from_numpy(values).to(dtype) for values in columns)
    return x, targets


def random_clusters(num_rows: int, num_partitions: int, num_clusters: int) -> Incidence:
    """Rows that fall in a random one of so many clusters in each partition: the least orderly memory access."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(num_clusters, (num_rows, num_partitions), generator=generator, dtype=torch.int32)
    offsets = num_clusters * torch.arange(num_partitions, dtype=torch.int32)
    return Incidence(labels.add_(offsets), num_partitions * num_clusters)


def flat_operator(rows: Incidence, dtype: torch.dtype = torch.float32) -> PartitionLinearOperator:
    """The covariance of rows with themselves: in how many partitions they share a cluster, over m."""
    share = torch.full((1,), 1 / rows.num_partitions, dtype=dtype)
    clusters = FlatLinearOperator(share, num_clusters=rows.num_clusters)
    return PartitionLinearOperator(torch.ones((), dtype=dtype), clusters, left=rows, right=rows)


def fast_cluster_model(x: Tensor, y: Tensor) -> PartitionGP:
    """An exact GP with 100 fast cluster partitions of height 8."""
    kernel = FastClusterKernel(x, 100, height=8, random_state=0)
    return model_of(x, y, kernel)


def equal_clusters_kernel(x: Tensor, num_partitions: int, num_clusters: int) -> FastClusterKernel:
    """Every partition with the same number of centers, random rows, on a random half of the columns."""
    generator = torch.Generator().manual_seed(0)
    rows = [torch.randperm(len(x), generator=generator)[:num_clusters] for _ in range(num_partitions)]
    ranks = torch.rand(num_partitions, x.shape[1], generator=generator).argsort(-1)
    kernel = FastClusterKernel()
    drawn = {
        "partition.centers": bits_of(x[torch.cat(rows)].double()),
        "partition.kept": ranks < x.shape[1] // 2,
        "partition.sizes": torch.full((num_partitions,), num_clusters),
    }
    kernel.load_state_dict(kernel.state_dict() | drawn)
    return kernel


def model_of(x: Tensor, y: Tensor, kernel: Kernel) -> PartitionGP:
    """An exact GP with outputscale 1 and noise 0.1."""
    model = PartitionGP(x, y, gpytorch.likelihoods.GaussianLikelihood(), kernel)
    model.likelihood.noise = 0.1
    model.covar_module.outputscale = 1.0
    return model


class ExactModel(gpytorch.models.ExactGP):
    """GPyTorch's exact GP with a constant mean."""

    def __init__(self, x: Tensor, y: Tensor, kernel: Kernel) -> None:
        super().__init__(x, y, gpytorch.likelihoods.GaussianLikelihood())
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = kernel
        self.to(x)

    def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def ard_kernel(kernel: Callable[..., Kernel], num_columns: int) -> ScaleKernel:
    """A scaled kernel with one lengthscale per column, at first what suits standardized columns."""
    scaled = ScaleKernel(kernel(ard_num_dims=num_columns))
    scaled.base_kernel.lengthscale = num_columns**0.5
    return scaled


def adam(model: gpytorch.models.ExactGP, steps: int) -> None:
    """So many steps of learning rate 0.1 on the marginal likelihood, with the solver that is set."""
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    for _ in range(steps):
        optimizer.zero_grad()
        (-objective(model(*model.train_inputs), model.train_targets)).backward()
        optimizer.step()


def likelihood_and_gradient(model: PartitionGP) -> float:
    """One marginal likelihood per row, with its gradient left in the parameters."""
    model.train()
    model.zero_grad()
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    with settings.iterative():
        value = objective(model(*model.train_inputs), model.train_targets)
        value.backward()
    return value.item()
