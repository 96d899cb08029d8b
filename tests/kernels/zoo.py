"""Every kernel of the package, by name: how it is built on rows, and an unfitted one that takes its state."""

from __future__ import annotations

import gpytorch
import torch
from gpytorch.kernels import ScaleKernel
from scipy.sparse import csr_array
from sklearn.cluster import KMeans
from sklearn.mixture import GaussianMixture

from gpytorch_partition import (
    ClusteringKernel,
    FastClusterKernel,
    GammaMondrianKernel,
    GroupKernel,
    IterativeKernel,
    LandmarkKernel,
    LocalLinearKernel,
    MembershipKernel,
    MondrianKernel,
    PartitionKernel,
    PartitionMixtureKernel,
    RandomBinningKernel,
    RandomForestKernel,
)
from gpytorch_partition.inputs.numbers import bits_of
from gpytorch_partition.kernels import StandardizedKernel

X = torch.randn(120, 10, generator=torch.Generator().manual_seed(0))
Y = X[:, 0].sin() + X[:, 1].abs()
SETS = csr_array(torch.rand(20, 30, generator=torch.Generator().manual_seed(1)).numpy() > 0.7)
# Rows of kernels that cannot be evaluated at X.
ROWS = {
    "group": torch.randint(4, (120, 10), generator=torch.Generator().manual_seed(2)).float(),
    "membership": torch.randint(20, (120, 1), generator=torch.Generator().manual_seed(3)).float(),
}


class Model(gpytorch.models.ExactGP):
    """A constant mean and a kernel, as a user writes it."""

    def __init__(self, x, y, kernel, likelihood=None, mean=None):
        super().__init__(x, y, likelihood or gpytorch.likelihoods.GaussianLikelihood())
        self.mean_module, self.covar_module = mean or gpytorch.means.ConstantMean(), kernel

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def signs(x):
    return (x > 0).long()


def random_floors(seed):
    shift = torch.rand((), generator=torch.Generator().manual_seed(seed))
    return lambda x: (x.sum(-1) + shift).floor().long()


def forest(heights):
    return lambda x, **options: RandomForestKernel(x, Y, 10, heights, random_state=0, **options)


def weighted_trees(x, **options):
    kernel = forest("leaf")(x, **options)
    kernel.partition.tree_weights = bits_of(torch.arange(1, 11).double() / 5.5)  # as of an ensemble that has them
    return kernel


def mixture(x, active_dims=None, **options):
    mondrian = MondrianKernel(x, 20, lifetime=0.3, random_state=0, active_dims=active_dims)
    return PartitionMixtureKernel([forest("learned")(x, active_dims=active_dims), mondrian], [1, 2], **options)


def scaled(build):
    def scaled_kernel(x, batch_shape=(), **options):
        return ScaleKernel(build(x, batch_shape=batch_shape, **options), batch_shape=torch.Size(batch_shape))

    return scaled_kernel


def local_linear(x, **options):
    return LocalLinearKernel(forest("all")(x, **options), len(options.get("active_dims") or x[0]), **options)


BUILD = {
    "partition": lambda x, **options: PartitionKernel(signs, **options),
    "sampled": lambda x, **options: PartitionKernel.from_sampler(random_floors, 5, random_state=0, **options),
    "fast_cluster": lambda x, **options: FastClusterKernel(x, 20, random_state=0, **options),
    "isolation": lambda x, **options: FastClusterKernel(
        x, 20, num_centers=8, columns="all", projection=3, random_state=0, **options
    ),
    "clustering": lambda x, **options: ClusteringKernel(
        x, KMeans(5), 5, rows=0.5, projection=2, random_state=0, **options
    ),
    "gaussians": lambda x, **options: ClusteringKernel(
        x, GaussianMixture(3, reg_covar=0.1), 5, columns=0.5, random_state=0, **options
    ),
    "mondrian": lambda x, **options: MondrianKernel(x, 20, lifetime=0.3, random_state=0, **options),
    "gamma_mondrian": lambda x, **options: GammaMondrianKernel(
        x, 20, lifetime=0.3, max_lifetime=2.0, random_state=0, **options
    ),
    "random_binning": lambda x, **options: RandomBinningKernel(x, 20, random_state=0, **options),
    "forest": forest("all"),
    "sampled_heights": forest("sampled"),
    "depth": forest(2),
    "leaf": forest("leaf"),
    "learned": forest("learned"),
    "impurity": forest("impurity"),
    "tree_weights": weighted_trees,
    "mixture": mixture,
    "landmark": lambda x, **options: LandmarkKernel(x, Y, 20, num_rows=60, random_state=0, **options),
    "local_linear": local_linear,
    "group": lambda x, **options: GroupKernel((1, 2, 3), nested=True, weights=(5.0, 2.0, 1.0), **options),
    "membership": lambda x, **options: MembershipKernel(SETS, members_only=True, set_weights=range(1, 31), **options),
    "scaled": scaled(mixture),
    "iterative": lambda x, **options: IterativeKernel(scaled(forest("all"))(x, **options)),
    "standardized": lambda x, **options: StandardizedKernel(scaled(forest("all"))(x, **options), x),
}
OUTER = ("scaled", "iterative", "standardized")  # wrappers
UNFITTED = {
    "fast_cluster": FastClusterKernel,
    "isolation": FastClusterKernel,
    "clustering": ClusteringKernel,
    "gaussians": ClusteringKernel,
    "mondrian": MondrianKernel,
    "gamma_mondrian": GammaMondrianKernel,
    "random_binning": RandomBinningKernel,
    **dict.fromkeys(
        ("forest", "sampled_heights", "depth", "leaf", "learned", "impurity", "tree_weights"), RandomForestKernel
    ),
    "mixture": lambda: PartitionMixtureKernel([RandomForestKernel(), MondrianKernel()]),
    "landmark": LandmarkKernel,
    "local_linear": lambda: LocalLinearKernel(RandomForestKernel(), 10),
    "membership": MembershipKernel,
    "scaled": lambda: ScaleKernel(UNFITTED["mixture"]()),
    "iterative": lambda: IterativeKernel(ScaleKernel(RandomForestKernel())),
    "standardized": lambda: StandardizedKernel(ScaleKernel(RandomForestKernel())),
}


def rows_of(name):
    return ROWS.get(name, X)


def kernel_of(name, **options):
    return BUILD[name](rows_of(name), **options)
