"""Other regressors, each as its users have it: of a split, means and standard deviations of the test rows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import gpytorch
import numpy as np
import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel
from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy
from linear_operator.settings import max_cholesky_size
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.model_selection import KFold, cross_val_predict
from torch import Tensor

from gpytorch_partition.training.marginal_likelihood import maximize_marginal_likelihood

from .clock import seconds
from .datasets import Split
from .processes import ExactModel, adam, ard_kernel

Moments = tuple[np.ndarray, np.ndarray]  # means and standard deviations, noise included
Predict = Callable[[Split], Moments]
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
        return _numpy(in_blocks(model, points))


def svgp(split: Split, *, num_inducing: int, steps: int) -> Moments:
    """Train a variational GP with a Matern-3/2-ARD kernel and learned inducing points."""
    x, y, points = (values.float() for values in split.tensors)
    model = train_svgp(x, y, _matern(x.shape[1]), min(num_inducing, len(x)), steps, batch=512, rate=0.02)
    return _numpy(in_blocks(model, points))


def _matern(num_columns: int) -> Kernel:
    return ard_kernel(partial(MaternKernel, 1.5), num_columns)


def _numpy(moments: tuple[Tensor, Tensor]) -> Moments:
    return moments[0].double().numpy(), moments[1].double().numpy()


def in_blocks(model: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return means and standard deviations of new targets of a GPyTorch model."""
    model.eval()
    with torch.no_grad():
        parts = [model.likelihood(model(block)) for block in x.split(_BLOCK)]
        return torch.cat([part.mean for part in parts]), torch.cat([part.stddev for part in parts])


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
    """It has the mean of the exact GP."""

    def __init__(self, inducing: Tensor, kernel: Kernel) -> None:
        distribution = CholeskyVariationalDistribution(len(inducing))
        super().__init__(VariationalStrategy(self, inducing, distribution, learn_inducing_locations=True))
        self.likelihood = gpytorch.likelihoods.GaussianLikelihood()
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = kernel

    def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def rbf_settings(solver: str) -> ExitStack:
    """Enter Cholesky factors only, or GPyTorch's own settings with its fast variances."""
    stack = ExitStack()
    if solver == "Cholesky":
        stack.enter_context(gpytorch.settings.fast_computations(False, False, False))
    else:
        stack.enter_context(gpytorch.settings.fast_pred_var())
    return stack


def train_rbf(x: Tensor, y: Tensor, solver: str, steps: int, most_seconds: float) -> ExactModel:
    """Return GPyTorch's exact GP with an RBF kernel, trained by Adam; raise TimeoutError if a step takes too long."""
    model = ExactModel(x, y, ard_kernel(RBFKernel, x.shape[1]))
    with rbf_settings(solver):
        if (each := seconds(lambda: adam(model, 1))) > most_seconds:
            raise TimeoutError(f"a step takes {each:.0f} s, {steps} were to be taken")
        adam(model, steps - 1)
    return model
