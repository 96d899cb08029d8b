"""Gaussian processes, those of Davies & Ghahramani (2014, section 5.1), and other regressors as users have them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from copy import deepcopy
from functools import partial
from typing import Any

import gpytorch
import numpy as np
import torch
from gpytorch.kernels import Kernel, LinearKernel, MaternKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.models import ExactGP
from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy
from linear_operator.settings import max_cholesky_size
from linear_operator.utils.errors import NanError, NotPSDError
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.model_selection import KFold, cross_val_predict
from torch import Tensor
from torch.distributions import MultivariateNormal

from gpytorch_partition import FastClusterKernel, RandomForestKernel, fit_exact_gp, settings
from gpytorch_partition.clusters.incidence import Incidence
from gpytorch_partition.explain import proximities
from gpytorch_partition.models import PartitionGP
from gpytorch_partition.operators import FlatLinearOperator, PartitionLinearOperator
from gpytorch_partition.training.marginal_likelihood import maximize_marginal_likelihood

from .datasets import HALF, Split
from .plots import styles
from .report import Row, seconds


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


LINEAR, RBF, ARD, NOISELESS = "linear", "RBF", "RBF-ARD", "RBF-ARD, noise fixed at 1e-4"
PRINTED, OURS, CLUSTERS = "random forest, as printed", "random forest, ours", "fast cluster"
STANDARD = (LINEAR, RBF, ARD)
LOOKS = styles((OURS, ARD, CLUSTERS, NOISELESS, RBF, PRINTED, LINEAR))
NUM_PARTITIONS = 200
JOINT, ALONE, ERROR = "log density, joint", "log density, pointwise", "squared error"
COVERAGE = "coverage of 90 % intervals"
_FIRST_STEPS, _KEPT = 5, 2  # random starts of a smooth kernel climb a few steps; the most likely go on
_LEAST_NOISE = 1.001e-4  # a little above the least that GPyTorch's likelihood allows


def density_scores(found: MultivariateNormal, y: np.ndarray) -> Row:
    """Return log densities per target, of all of them together and of each alone, and squared errors."""
    targets = torch.from_numpy(y)
    error = targets - found.mean
    return {
        JOINT: found.log_prob(targets).item() / len(y),
        ALONE: torch.distributions.Normal(found.mean, found.stddev).log_prob(targets).mean().item(),
        ERROR: error.square().mean().item(),
        COVERAGE: (error.abs() <= HALF * found.stddev).double().mean().item(),
    }


Predict = Callable[[Split], MultivariateNormal]  # of new targets, noise included
Build = Callable[[Tensor, Tensor, int, int], Kernel]  # of rows, targets, the number of partitions and a seed

# Algorithm 1 with scikit-learn's forest, this package's forest, and algorithm 2.
KERNELS: dict[str, Build] = {
    PRINTED: paper_forest,
    OURS: lambda x, y, m, seed: RandomForestKernel(x, y, m, random_state=seed),
    CLUSTERS: lambda x, y, m, seed: FastClusterKernel(x, m, random_state=seed),
}


def partition_model(x: Tensor, y: Tensor, build: Build, m: int, seed: int = 0) -> PartitionGP:
    """Return a process with the most likely outputscale, noise and mean; the kernel has nothing to train."""
    model = PartitionGP(x, y, GaussianLikelihood(), build(x, y, m, seed))
    fit_exact_gp(model, model.likelihood)
    return model.eval()


def partition_gp(split: Split, *, build: Build, m: int = NUM_PARTITIONS, seed: int = 0) -> MultivariateNormal:
    x, y, points = split.tensors
    return predicted(partition_model(x, y, build, m, seed), points)


def predicted(model: ExactGP, points: Tensor) -> MultivariateNormal:
    model.eval()
    with torch.no_grad(), settings.iterative():
        targets = model.likelihood(model(points))
        return MultivariateNormal(targets.mean, targets.covariance_matrix)


def smooth_gp(
    split: Split, *, kernel: Callable[[int], Kernel], restarts: int, steps: int, noise: float | None = None
) -> MultivariateNormal:
    """Predict by the most likely hyperparameters of several random starts; the noise too unless it is given."""
    x, y, points = split.tensors
    model = ExactModel(x, y, kernel(x.shape[1]))
    model.likelihood.noise = 0.1 if noise is None else noise
    model.likelihood.raw_noise.requires_grad_(noise is None)
    first, generator = deepcopy(model.state_dict()), torch.Generator().manual_seed(0)
    tried = []
    for _ in range(restarts):
        model.load_state_dict(first)
        _shake(model, generator)
        tried.append(_climbed(model, _FIRST_STEPS))
    finished = []
    for _, state in sorted(tried, key=lambda end: end[0])[-_KEPT:]:
        model.load_state_dict(state)
        finished.append(_climbed(model, steps))
    model.load_state_dict(max(finished, key=lambda end: end[0])[1])
    return predicted(model, points)


def _shake(model: ExactGP, generator: torch.Generator) -> None:
    for _, parameter, constraint in model.named_parameters_and_constraints():
        if constraint is not None and parameter.requires_grad:
            factor = torch.randn(parameter.shape, generator=generator, dtype=torch.float64).exp()
            parameter.data = constraint.inverse_transform(constraint.transform(parameter.data) * factor)


def _climbed(model: ExactGP, steps: int) -> tuple[float, dict[str, Tensor]]:
    try:
        found = maximize_marginal_likelihood(model, model.likelihood, max_iterations=steps).log_marginal_likelihood
    except (FloatingPointError, NanError, NotPSDError):
        found = -np.inf
    return found, deepcopy(model.state_dict())


def methods(restarts: int, steps: int, m: int) -> dict[str, Predict]:
    climb = partial(smooth_gp, restarts=restarts, steps=steps)
    ard = partial(ard_kernel, RBFKernel)
    smooth: dict[str, Predict] = {
        LINEAR: partial(climb, kernel=lambda num_columns: LinearKernel()),
        RBF: partial(climb, kernel=partial(ard, ard=False)),
        ARD: partial(climb, kernel=ard),
        NOISELESS: partial(climb, kernel=ard, noise=_LEAST_NOISE),
    }
    return smooth | {name: partial(partition_gp, build=build, m=m) for name, build in KERNELS.items()}


Moments = tuple[np.ndarray, np.ndarray]  # means and standard deviations, noise included
PredictMoments = Callable[[Split], Moments]
_BLOCK = 1_000  # points predicted at once, where a prediction costs a dense row for each


def random_forest(split: Split, *, num_trees: int) -> Moments:
    """Take the standard deviation of the out-of-bag residuals."""
    forest = RandomForestRegressor(num_trees, oob_score=True, random_state=0).fit(split.x, split.y)
    return _with_one_std(forest.predict(split.test_x), split.y - forest.oob_prediction_)


def histogram_boosting(split: Split) -> Moments:
    """Take the standard deviation of the residuals of a cross-validation."""
    boosting = HistGradientBoostingRegressor(random_state=0)
    folds = KFold(5, shuffle=True, random_state=0)
    residuals = split.y - cross_val_predict(boosting, split.x, split.y, cv=folds)
    return _with_one_std(boosting.fit(split.x, split.y).predict(split.test_x), residuals)


def neighbors_of_boosting(split: Split) -> Moments:
    """
    Take the standard deviation of the targets of the nearest training rows by shared leaves (IBUG, Brophy & Lowd 2022).

    Their number and a factor are those with the largest density of a fifth of the rows, which a first fit leaves out.
    """
    order = np.random.default_rng(0).permutation(len(split.y))
    held, rows = np.split(order, [len(order) // 5])
    judged = Split(split.x[rows], split.y[rows], split.x[held], split.y[held])
    numbers = [k for k in _NUMBERS_OF_NEIGHBORS if k < len(rows)]
    mean, spreads = _boosted(judged, numbers)
    factors = np.sqrt(np.mean(((judged.test_y - mean) / spreads) ** 2, 1))
    best = int(np.argmin(np.log(spreads).mean(1) + np.log(factors)))  # negative log density, but for a constant
    mean, spreads = _boosted(split, numbers[best : best + 1])
    return mean, factors[best] * spreads[0]


_NUMBERS_OF_NEIGHBORS = (8, 16, 32, 64, 128, 256)
_LEAST_SPREAD = 0.01  # standard deviations of all targets: those of the nearest rows may be equal


def _boosted(split: Split, numbers: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Return predictions, and the deviations of the targets of so many nearest rows (`numbers x points`)."""
    boosting = HistGradientBoostingRegressor(random_state=0).fit(split.x, split.y)
    near, _ = proximities(boosting, split.x, split.test_x).nearest(numbers[-1])
    spreads = np.stack([split.y[near[:, :number]].std(1) for number in numbers])
    return boosting.predict(split.test_x), np.maximum(spreads, _LEAST_SPREAD * split.y.std())


def _with_one_std(mean: np.ndarray, residuals: np.ndarray) -> Moments:
    return mean, np.full_like(mean, np.sqrt(np.mean(residuals**2)))


def catboost(split: Split) -> Moments:
    """Boost mean and log variance, with CatBoost's defaults."""
    from catboost import CatBoostRegressor

    options = {"random_seed": 0, "verbose": False, "allow_writing_files": False}
    model = CatBoostRegressor(loss_function="RMSEWithUncertainty", **options)
    mean, variance = model.fit(split.x, split.y).predict(split.test_x).T
    return mean, np.sqrt(variance)


def exact_gp(split: Split, *, most: int, steps: int) -> Moments:
    """Train a Matern-3/2-ARD kernel by L-BFGS with Cholesky factors, on so many random rows at most."""
    rows = np.random.default_rng(0).permutation(len(split.y))[:most]
    x, y, points = split.tensors
    model = ExactModel(x[rows], y[rows], _matern(x.shape[1]))
    with max_cholesky_size(most + 1):
        maximize_marginal_likelihood(model, model.likelihood, max_iterations=steps)
        return moments_of(model, points)


def svgp(split: Split, *, num_inducing: int, steps: int) -> Moments:
    """Train a variational GP with a Matern-3/2-ARD kernel and learned inducing points."""
    x, y, points = (values.float() for values in split.tensors)
    model = train_svgp(x, y, _matern(x.shape[1]), min(num_inducing, len(x)), steps, batch=512, rate=0.02)
    return moments_of(model, points)


def _matern(num_columns: int) -> Kernel:
    return ard_kernel(partial(MaternKernel, 1.5), num_columns)


def moments_of(model: Any, x: Tensor) -> Moments:
    """Return means and standard deviations of new targets of a GPyTorch model."""
    model.eval()
    with torch.no_grad():
        parts = [model.likelihood(model(block)) for block in x.split(_BLOCK)]
        mean, std = (torch.cat([getattr(part, name) for part in parts]) for name in ("mean", "stddev"))
        return mean.double().numpy(), std.double().numpy()


def train_svgp(x: Tensor, y: Tensor, kernel: Kernel, num_inducing: int, steps: int, batch: int, rate: float) -> Any:
    """Return a variational GP trained by Adam; inducing points begin as random rows."""
    generator = torch.Generator().manual_seed(0)
    model = _VariationalModel(x[torch.randperm(len(x), generator=generator)[:num_inducing]], kernel)
    objective = gpytorch.mlls.VariationalELBO(model.likelihood, model, num_data=len(x))
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    for _ in range(steps):
        rows = torch.randint(len(x), (batch,), generator=generator)
        optimizer.zero_grad()
        (-objective(model(x[rows]), y[rows])).backward()
        optimizer.step()
    return model


class _VariationalModel(gpytorch.models.ApproximateGP):
    def __init__(self, inducing: Tensor, kernel: Kernel) -> None:
        distribution = CholeskyVariationalDistribution(len(inducing))
        super().__init__(VariationalStrategy(self, inducing, distribution, learn_inducing_locations=True))
        self.likelihood = gpytorch.likelihoods.GaussianLikelihood()
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = kernel

    forward = ExactModel.forward


def rbf_settings(solver: str) -> AbstractContextManager:
    """Return a context of Cholesky factors only, or of GPyTorch's own settings with its fast variances."""
    if solver == "Cholesky":
        return gpytorch.settings.fast_computations(False, False, False)
    return gpytorch.settings.fast_pred_var()


def train_rbf(x: Tensor, y: Tensor, solver: str, steps: int, most_seconds: float) -> ExactModel:
    """Return GPyTorch's exact GP with an RBF kernel, trained by Adam; raise TimeoutError if a step takes too long."""
    model = ExactModel(x, y, ard_kernel(RBFKernel, x.shape[1]))
    with rbf_settings(solver):
        if (each := seconds(lambda: adam(model, 1))) > most_seconds:
            raise TimeoutError(f"a step takes {each:.0f} s, {steps} were to be taken")
        adam(model, steps - 1)
    return model
