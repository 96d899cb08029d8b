"""The data, operators and models that are measured."""

from __future__ import annotations

from pathlib import Path

import gpytorch
import numpy as np
import torch
from gpytorch.kernels import Kernel
from linear_operator.operators import ConstantDiagLinearOperator
from sklearn.datasets import make_friedman1
from torch import Tensor

from gpytorch_partition import FastClusterKernel, settings
from gpytorch_partition.models import PartitionGP
from gpytorch_partition.operators import PartitionLinearOperator
from gpytorch_partition.partitions.incidence import Incidence


def friedman(num_rows: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Friedman's first function of 10 columns with noise of standard deviation 1, all standardized."""
    X, y = make_friedman1(num_rows, n_features=10, noise=1.0, random_state=0)
    return standardized(X, y, dtype)


def read(folder: Path, name: str, num_rows: int) -> tuple[Tensor, Tensor]:
    """At most so many random rows of NAME.npz (arrays X and y), standardized."""
    with np.load(folder / f"{name}.npz", allow_pickle=False) as file:
        X, y = file["X"], file["y"]
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
    clusters = ConstantDiagLinearOperator(share, diag_shape=rows.num_clusters)
    return PartitionLinearOperator(torch.ones((), dtype=dtype), clusters, left=rows, right=rows)


def fast_cluster_model(x: Tensor, y: Tensor) -> PartitionGP:
    """An exact GP with 100 fast cluster partitions of height 8."""
    kernel = FastClusterKernel(x, 100, height=8, random_state=0)
    return model_of(x, y, kernel)


def model_of(x: Tensor, y: Tensor, kernel: Kernel) -> PartitionGP:
    """An exact GP with outputscale 1 and noise 0.1."""
    model = PartitionGP(x, y, gpytorch.likelihoods.GaussianLikelihood(), kernel)
    model.likelihood.noise = 0.1
    model.covar_module.outputscale = 1.0
    return model


def likelihood_and_gradient(model: PartitionGP) -> float:
    """One marginal likelihood per row, with its gradient left in the parameters."""
    model.train()
    model.zero_grad()
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    with settings.iterative():
        value = objective(model(*model.train_inputs), model.train_targets)
        value.backward()
    return value.item()
