"""What else there is for the same task, in the same three stages as the partition kernels."""

from __future__ import annotations

from contextlib import ExitStack
from time import perf_counter

import gpytorch
import numpy as np
import torch
from gpytorch.kernels import Kernel, RBFKernel
from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy
from scipy.linalg import cholesky, solve_triangular
from scipy.sparse import csr_array
from sklearn.ensemble import RandomForestRegressor
from torch import Tensor

from gpytorch_partition import FastClusterKernel
from gpytorch_partition.clusters.incidence import Incidence

from .methods import Method, PartitionMethod, Prediction
from .problems import ExactModel, adam, ard_kernel

# Points predicted at once, where a prediction costs a dense row for each.
_BLOCK = 1_000


class ScikitLearnForest(Method):
    """A forest with scikit-learn's defaults, which predicts means only; on one core, as the default is, or on all."""

    def __init__(self, num_trees: int, n_jobs: int | None = None) -> None:
        self.name = f"scikit-learn's RandomForestRegressor({num_trees}{'' if n_jobs is None else f', {n_jobs=}'})"
        self.forest = RandomForestRegressor(num_trees, random_state=0, n_jobs=n_jobs)

    def train(self, x: Tensor, y: Tensor) -> None:
        """All of the trees."""
        self.forest.fit(x.numpy(), y.numpy())

    def predict(self, x: Tensor) -> Prediction:
        """The means of the trees."""
        return Prediction(torch.from_numpy(self.forest.predict(x.numpy())))


class ExactRBF(Method):
    """GPyTorch's exact GP with an RBF kernel, trained by Adam with learning rate 0.1."""

    model: ExactModel

    def __init__(self, solver: str, steps: int, most_seconds: float) -> None:
        self.solver, self.steps, self.most_seconds = solver, steps, most_seconds
        self.name = f"GPyTorch's RBF exact GP, {solver}"

    def train(self, x: Tensor, y: Tensor) -> None:
        """
        The first step tells how long the others will take.

        :raises TimeoutError: If a step takes too long.
        """
        self.model = ExactModel(x, y, ard_kernel(RBFKernel, x.shape[1]))
        with self._settings():
            start = perf_counter()
            adam(self.model, 1)
            if (each := perf_counter() - start) > self.most_seconds:
                raise TimeoutError(f"a step takes {each:.0f} s, {self.steps} were to be taken")
            adam(self.model, self.steps - 1)

    def predict(self, x: Tensor) -> Prediction:
        """Block by block."""
        with self._settings():
            return _in_blocks(self.model, x)

    def _settings(self) -> ExitStack:
        """Cholesky factors only; or GPyTorch's own settings, with its fast variances."""
        stack = ExitStack()
        if self.solver == "Cholesky":
            stack.enter_context(gpytorch.settings.fast_computations(False, False, False))
        else:
            stack.enter_context(gpytorch.settings.fast_pred_var())
        return stack


class SVGP(Method):
    """A variational GP with an RBF kernel, or the one given, trained by Adam on minibatches."""

    model: _VariationalModel

    def __init__(
        self, num_inducing: int, steps: int, batch: int, kernel: Kernel | None = None, learning_rate: float = 0.01
    ) -> None:
        self.num_inducing, self.steps, self.batch = num_inducing, steps, batch
        self.kernel, self.learning_rate = kernel, learning_rate
        self.name = f"GPyTorch's SVGP, {num_inducing} inducing points"

    def train(self, x: Tensor, y: Tensor) -> None:
        """Inducing points begin as random rows; batches are drawn with replacement."""
        generator = torch.Generator().manual_seed(0)
        inducing = x[torch.randperm(len(x), generator=generator)[: self.num_inducing]]
        self.model = _VariationalModel(inducing, self.kernel or ard_kernel(RBFKernel, x.shape[1]))
        objective = gpytorch.mlls.VariationalELBO(self.model.likelihood, self.model, num_data=len(x))
        optimizer = torch.optim.Adam(self.model.parameters(), lr=self.learning_rate)
        for _ in range(self.steps):
            rows = torch.randint(len(x), (self.batch,), generator=generator)
            optimizer.zero_grad()
            (-objective(self.model(x[rows]), y[rows])).backward()
            optimizer.step()

    def predict(self, x: Tensor) -> Prediction:
        """Block by block."""
        return _in_blocks(self.model, x)


class _VariationalModel(gpytorch.models.ApproximateGP):
    """It has the mean of the exact GP."""

    def __init__(self, inducing: Tensor, kernel: Kernel) -> None:
        distribution = CholeskyVariationalDistribution(len(inducing))
        super().__init__(VariationalStrategy(self, inducing, distribution, learn_inducing_locations=True))
        self.likelihood = gpytorch.likelihoods.GaussianLikelihood()
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = kernel

    def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


class SparseRidge(PartitionMethod):
    """
    The same fast cluster partitions as scipy.sparse features, and a dense solve for the effects of the clusters.

    The posterior is that of the GP with outputscale 1 and noise 0.1, which are not fitted: the precision of the
    effects is Z^T Z / noise + m I.
    """

    name = "scipy.sparse features, dense ridge solve"
    noise = 0.1

    def __init__(self, num_partitions: int) -> None:
        self.num_partitions = num_partitions

    def partition(self, x: Tensor, y: Tensor) -> None:
        """Codes by this package."""
        self.kernel = FastClusterKernel(x, self.num_partitions, height=8, random_state=0)
        self.features = self._one_hot(x)

    def train(self, x: Tensor, y: Tensor) -> None:
        """One Cholesky factor of Z^T Z + m noise I."""
        inner = (self.features.T @ self.features).toarray()
        inner[np.diag_indices_from(inner)] += self.num_partitions * self.noise
        self.root = cholesky(inner, lower=True, overwrite_a=True)
        self.center = y.mean().item()
        sums = self.features.T @ (y.double().numpy() - self.center)
        self.half = solve_triangular(self.root, sums, lower=True)

    def predict(self, x: Tensor) -> Prediction:
        """With L the factor and z a point's features, L^-1 z gives both the mean and the variance."""
        rows = self._one_hot(x)
        means, deviations = [], []
        for start in range(0, len(x), _BLOCK):
            block = solve_triangular(self.root, rows[start : start + _BLOCK].toarray().T, lower=True)
            means.append(self.center + block.T @ self.half)
            deviations.append(np.sqrt(self.noise * (1 + np.square(block).sum(0))))
        return Prediction(*(torch.from_numpy(np.concatenate(parts)) for parts in (means, deviations)))

    def _one_hot(self, x: Tensor) -> csr_array:
        rows: Incidence = self.kernel(x).evaluate_kernel().left
        starts = np.arange(0, rows.codes.numel() + 1, self.num_partitions)
        ones = np.ones(rows.codes.numel())
        return csr_array((ones, rows.codes.numpy().ravel(), starts), shape=(rows.num_rows, rows.num_clusters))


def _in_blocks(model: gpytorch.models.GP, x: Tensor) -> Prediction:
    """New targets' means and standard deviations."""
    model.eval()
    with torch.no_grad():
        parts = [model.likelihood(model(block)) for block in x.split(_BLOCK)]
        return Prediction(torch.cat([part.mean for part in parts]), torch.cat([part.stddev for part in parts]))
