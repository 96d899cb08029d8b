"""Models of every kind of covariance, and their predictions by dense algebra in float64."""

from __future__ import annotations

from functools import cache

import gpytorch
import torch
from gpytorch.kernels import ConstantKernel, LinearKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from sklearn.ensemble import RandomForestRegressor

from gpytorch_partition import (
    FastClusterKernel,
    GroupKernel,
    IterativeKernel,
    LandmarkKernel,
    LocalLinearKernel,
    MondrianKernel,
    PartitionKernel,
    PartitionMixtureKernel,
    RandomForestKernel,
)

N, N_TEST = 600, 40  # above `max_cholesky_size` and `min_preconditioning_size`, which are 500 inside `many_rows()`
GENERATOR = torch.Generator().manual_seed(11)
X = torch.randn(N, 3, generator=GENERATOR)
X[:, 2] = (2 * X[:, 2]).floor()
Y = X[:, 0].sin() + X[:, 1].abs() + 0.3 * torch.randn(N, generator=GENERATOR)
NEW = torch.randn(N_TEST, 3, generator=GENERATOR)
NEW[:, 2] = (2 * NEW[:, 2]).floor()
NEW[:3] = X[:3]
FAR = torch.cat([NEW[:5], 0.01 * NEW[5:7] + 6.0, NEW[:1] - 6.0])  # a few share clusters that no training row is in
NOISES = 0.1 + 0.2 * torch.rand(N, generator=GENERATOR)


def clusters(**options):
    return FastClusterKernel(X, 20, height=6, random_state=0, **options)


def coarse():
    return FastClusterKernel(X, 4, height=3, random_state=0, active_dims=(0, 1))


def forest():
    return RandomForestKernel(X, Y, 15, random_state=0)


@cache
def trees():
    return RandomForestRegressor(6, min_samples_leaf=5, random_state=0).fit(X.numpy(), Y.numpy())


def weighted(heights):
    return RandomForestKernel.from_forest(trees(), heights, random_state=0)


def landmarks():
    return LandmarkKernel(X, Y, 60, num_rows=200, random_state=0)


def scaled(kernel, scale=1.5):
    kernel = ScaleKernel(kernel)
    kernel.outputscale = scale
    return kernel


def mixture():
    floors = PartitionKernel(lambda x: x.floor().long(), active_dims=(1,))
    mondrian = MondrianKernel(X, 5, lifetime=1.0, random_state=0)
    return PartitionMixtureKernel([weighted("learned"), mondrian, floors], [1, 2, 3])


def grown_elsewhere():
    """Some leaves hold no training row, but nodes above them do; beside cells of which that is true as well."""
    trees = RandomForestKernel(NEW, NEW[:, 0], 5, max_samples=1.0, min_samples_leaf=1, random_state=0)
    return PartitionMixtureKernel([trees, MondrianKernel(X, 5, lifetime=1.0, random_state=0)])


def shared():
    first = forest()
    return first, PartitionKernel(first.partition)


SINGLE = {  # which have a feature space
    "clusters": lambda: scaled(clusters()),
    "forest": lambda: scaled(forest()),
    "mondrian": lambda: scaled(MondrianKernel(X, 20, random_state=0)),
    "learned": lambda: scaled(weighted("learned")),
    "impurity": lambda: scaled(weighted("impurity")),
    "mixture": lambda: scaled(mixture()),
    "elsewhere": lambda: scaled(grown_elsewhere()),
}
FEW_COLUMNS = {  # whose roots have a factor
    "landmarks": lambda: scaled(landmarks()),
    "slopes": lambda: scaled(LocalLinearKernel(coarse(), 3)),
    "landmarks + linear": lambda: IterativeKernel(landmarks() + LinearKernel()),
    "landmarks + clusters": lambda: IterativeKernel(scaled(landmarks()) + scaled(coarse())),
    "slopes + groups": lambda: IterativeKernel(LocalLinearKernel(coarse(), 3) + GroupKernel((2,)) + LinearKernel()),
}
WITH_CLUSTERS = {  # in every term
    **SINGLE,
    **FEW_COLUMNS,
    "own + own": lambda: IterativeKernel(scaled(clusters()) + scaled(forest())),
    "shared": lambda: IterativeKernel(shared()[0] + shared()[1]),
    "linear": lambda: IterativeKernel(LinearKernel(ard_num_dims=3)),
    "own + linear": lambda: IterativeKernel(scaled(forest()) + LinearKernel()),
    "constant + own": lambda: IterativeKernel(ConstantKernel() + scaled(clusters())),
    "local linear": lambda: scaled(LocalLinearKernel(clusters(), 3)),
    "all parts": lambda: IterativeKernel(
        scaled(forest()) + scaled(LocalLinearKernel(clusters(), 3), 0.4) + LinearKernel() + scaled(landmarks())
    ),
}
KERNELS = {
    **WITH_CLUSTERS,
    "own + RBF": lambda: IterativeKernel(scaled(clusters()) + scaled(RBFKernel(), 0.3)),
    "RBF + own": lambda: IterativeKernel(scaled(RBFKernel(), 0.3) + scaled(clusters())),
}


class Model(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood, covariance, batch_shape=()):
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean(batch_shape=torch.Size(batch_shape))
        self.covar_module = covariance

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def model_of(kernel, noise=0.2, num_rows=N, dtype=torch.float32):
    """A model of a kernel or its name; noise is a level, or one for each row."""
    if torch.is_tensor(noise):
        likelihood = FixedNoiseGaussianLikelihood(noise[:num_rows])
    else:
        likelihood = GaussianLikelihood()
        likelihood.noise_covar.raw_noise_constraint.lower_bound.fill_(0)
        likelihood.noise = noise
    covariance = KERNELS[kernel]() if isinstance(kernel, str) else kernel
    return Model(X[:num_rows].to(dtype), Y[:num_rows].to(dtype), likelihood, covariance).to(dtype)


@torch.no_grad()
def exact(model, points=NEW, noise=None):
    """Mean, covariance, and the log likelihood per row, by the textbook in float64."""
    x, y = model.train_inputs[0], model.train_targets.double()
    joint, n = torch.cat([x, points.to(x)]), len(x)
    prior = model.covar_module(joint).to_dense().double()
    noise = (model.likelihood.noise if noise is None else noise).double().expand(n)
    train, cross, mean = prior[:n, :n] + noise.diag(), prior[n:, :n], model.mean_module(joint).double()
    weights = torch.linalg.solve(train, torch.cat([(y - mean[:n]).unsqueeze(-1), cross.mT], -1))
    value = torch.distributions.MultivariateNormal(mean[:n], train).log_prob(y) / n
    return mean[n:] + cross @ weights[:, 0], prior[n:, n:] - cross @ weights[:, 1:], value
