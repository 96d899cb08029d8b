"""Clients with approximate inference: variational GPs and their likelihoods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gpytorch
import torch
from gpytorch import variational
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel, ScaleKernel
from gpytorch.likelihoods import BernoulliLikelihood, MultitaskGaussianLikelihood, StudentTLikelihood
from gpytorch.mlls import PredictiveLogLikelihood, VariationalELBO
from gpytorch.models import ApproximateGP
from torch import Tensor

from tests.clients.client import Client, client
from tests.clients.problems import KernelFactory, Problem
from tests.clients.regression import gaussian

NUM_INDUCING = 50
TWO = torch.Size([2])


class _Variational(ApproximateGP):
    """A variational GP whose distribution is set once, away from the prior."""

    def __init__(self, strategy: Callable[[ApproximateGP], Any], kernel: Kernel, batch_shape: Any = ()) -> None:
        super().__init__(strategy(self))
        self.mean_module = gpytorch.means.ConstantMean(batch_shape=torch.Size(batch_shape))
        self.covar_module = kernel

    def forward(self, x: Tensor) -> MultivariateNormal:
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


def _set_distribution(model: ApproximateGP) -> None:
    """Fixed numbers for the variational distribution, which GPyTorch would draw."""
    strategy = model.variational_strategy
    strategy = getattr(strategy, "base_variational_strategy", strategy)
    strategy.variational_params_initialized.fill_(1)
    parameters = dict(strategy._variational_distribution.named_parameters())
    for name, parameter in parameters.items():
        if name.endswith("mean") or name == "natural_vec":
            parameter.data = 0.3 * torch.linspace(0, 6, parameter.shape[-1]).cos().expand_as(parameter).clone()
        if name == "chol_variational_covar":
            parameter.data = 0.5 * torch.eye(parameter.shape[-1]).expand_as(parameter).clone()
        if name == "_variational_stddev":
            parameter.data = torch.full_like(parameter, 0.5)


def _client(rows: Problem, model: ApproximateGP, likelihood: Any, targets: Tensor, objective: Any) -> Client:
    _set_distribution(model)
    modules = torch.nn.ModuleList([model, likelihood]).double()
    bound = objective(likelihood, model, num_data=len(rows.train_x))
    return Client(
        modules=modules,
        objective=lambda: bound(model(rows.train_x), targets),
        predict=lambda: model(rows.test_x),
        observe=likelihood if isinstance(likelihood, gpytorch.likelihoods.GaussianLikelihood) else None,
    )


def _sparse(
    rows: Problem,
    kernel: Kernel,
    strategy: Callable = variational.VariationalStrategy,
    distribution: Callable = variational.CholeskyVariationalDistribution,
    likelihood: Any = None,
    targets: Tensor | None = None,
    objective: Callable = VariationalELBO,
    **options: Any,
) -> Client:
    points = rows.train_x[:NUM_INDUCING].clone()

    def build(model: ApproximateGP) -> Any:
        return strategy(model, points, distribution(NUM_INDUCING), **{"learn_inducing_locations": False, **options})

    model = _Variational(build, kernel)
    targets = rows.train_y if targets is None else targets
    return _client(rows, model, likelihood or gaussian(), targets, objective)


def _sparse_clients(**options: dict[str, Any]) -> None:
    for name, each in options.items():
        client(name)(lambda rows, kernel, each=each: _sparse(rows, ScaleKernel(kernel()), **each))


_sparse_clients(
    **{
        "SVGP": {"learn_inducing_locations": True},
        "SVGP, inducing points fixed": {},
        "predictive log likelihood": {"objective": PredictiveLogLikelihood},
    }
)


@client("SVGP, RBF + kernel")
def svgp_of_sum(rows: Problem, kernel: KernelFactory) -> Client:
    return _sparse(rows, ScaleKernel(gpytorch.kernels.RBFKernel()) + ScaleKernel(kernel()))


_sparse_clients(
    **{
        "SVGP, unwhitened": {"strategy": variational.UnwhitenedVariationalStrategy},
        "SVGP, mean field": {"distribution": variational.MeanFieldVariationalDistribution},
    }
)


@client("Bernoulli classification")
def bernoulli(rows: Problem, kernel: KernelFactory) -> Client:
    labels = (rows.train_y > 0.5).double()
    return _sparse(rows, ScaleKernel(kernel()), likelihood=BernoulliLikelihood(), targets=labels)


@client("Bernoulli classification at all rows")
def bernoulli_at_rows(rows: Problem, kernel: KernelFactory) -> Client:
    def build(model: ApproximateGP) -> Any:
        distribution = variational.CholeskyVariationalDistribution(len(rows.train_x))
        return variational.UnwhitenedVariationalStrategy(
            model, rows.train_x, distribution, learn_inducing_locations=False
        )

    model = _Variational(build, ScaleKernel(kernel()))
    return _client(rows, model, BernoulliLikelihood(), (rows.train_y > 0.5).double(), VariationalELBO)


@client("Student-t noise")
def student_t(rows: Problem, kernel: KernelFactory) -> Client:
    return _sparse(rows, ScaleKernel(kernel()), likelihood=StudentTLikelihood())


@client("CIQ", is_iterative=True)
def ciq(rows: Problem, kernel: KernelFactory) -> Client:
    return _sparse(
        rows,
        ScaleKernel(kernel()),
        variational.CiqVariationalStrategy,
        variational.NaturalVariationalDistribution,
    )


@client("VNNGP")
def vnngp(rows: Problem, kernel: KernelFactory) -> Client:
    def build(model: ApproximateGP) -> Any:
        distribution = variational.MeanFieldVariationalDistribution(len(rows.train_x))
        return variational.NNVariationalStrategy(
            model, rows.train_x, distribution, k=10, training_batch_size=len(rows.train_x), compute_full_kl=True
        )

    model = _Variational(build, ScaleKernel(kernel()))
    return _client(rows, model, gaussian(), rows.train_y, VariationalELBO)


def _several(rows: Problem, kernel: KernelFactory, around: Callable) -> Client:
    points = rows.train_x[:NUM_INDUCING].clone()

    def build(model: ApproximateGP) -> Any:
        distribution = variational.CholeskyVariationalDistribution(NUM_INDUCING, batch_shape=TWO)
        return around(variational.VariationalStrategy(model, points, distribution, learn_inducing_locations=False))

    model = _Variational(build, ScaleKernel(kernel(batch_shape=TWO), batch_shape=TWO), TWO)
    return _client(rows, model, MultitaskGaussianLikelihood(num_tasks=2), rows.two_tasks, VariationalELBO)


@client("SVGP, independent tasks")
def independent_tasks(rows: Problem, kernel: KernelFactory) -> Client:
    return _several(rows, kernel, lambda base: variational.IndependentMultitaskVariationalStrategy(base, num_tasks=2))


@client("SVGP, LMC")
def lmc(rows: Problem, kernel: KernelFactory) -> Client:
    return _several(rows, kernel, lambda base: variational.LMCVariationalStrategy(base, num_tasks=2, num_latents=2))
