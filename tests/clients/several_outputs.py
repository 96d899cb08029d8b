"""Clients with several outputs, or several models at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gpytorch
import torch
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from gpytorch.kernels import Kernel, LCMKernel, MultitaskKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import DirichletClassificationLikelihood, LikelihoodList, MultitaskGaussianLikelihood
from gpytorch.mlls import SumMarginalLogLikelihood
from gpytorch.models import ExactGP, IndependentModelList
from torch import Tensor

from tests.clients.client import Client, client
from tests.clients.problems import KernelFactory, Problem
from tests.clients.regression import Regression, exact, gaussian

TWO = torch.Size([2])


class _Multitask(ExactGP):
    def __init__(self, rows: Problem, kernel: Kernel, **noise: Any) -> None:
        likelihood = MultitaskGaussianLikelihood(num_tasks=2, **noise)
        likelihood.noise = 0.1
        super().__init__(rows.train_x, rows.two_tasks, likelihood)
        self.mean_module = gpytorch.means.MultitaskMean(gpytorch.means.ConstantMean(), num_tasks=2)
        self.covar_module = kernel

    def forward(self, x: Tensor) -> MultitaskMultivariateNormal:
        return MultitaskMultivariateNormal(self.mean_module(x), self.covar_module(x))


_MULTITASK: dict[str, Callable[[Problem, KernelFactory], ExactGP]] = {
    "multitask": lambda rows, kernel: _Multitask(rows, MultitaskKernel(kernel(), num_tasks=2, rank=1)),
    "multitask, ScaleKernel": lambda rows, kernel: _Multitask(
        rows, MultitaskKernel(ScaleKernel(kernel()), num_tasks=2, rank=1)
    ),
    "multitask, correlated noise": lambda rows, kernel: _Multitask(
        rows, MultitaskKernel(kernel(), num_tasks=2, rank=1), rank=1
    ),
    "multitask, one noise": lambda rows, kernel: _Multitask(
        rows, MultitaskKernel(kernel(), num_tasks=2, rank=1), has_task_noise=False
    ),
    "LCM": lambda rows, kernel: _Multitask(rows, LCMKernel([kernel(), RBFKernel()], num_tasks=2, rank=1)),
    "LCM of two such kernels": lambda rows, kernel: _Multitask(
        rows, LCMKernel([kernel(), kernel()], num_tasks=2, rank=1)
    ),
}
for _name, _build in _MULTITASK.items():
    client(_name)(lambda rows, kernel, build=_build: exact(rows, build(rows, kernel)))


class _IndependentOutputs(ExactGP):
    def __init__(self, rows: Problem, kernel: Kernel) -> None:
        likelihood = MultitaskGaussianLikelihood(num_tasks=2)
        likelihood.noise = 0.1
        super().__init__(rows.train_x, rows.two_tasks, likelihood)
        self.mean_module = gpytorch.means.ConstantMean(batch_shape=TWO)
        self.covar_module = kernel

    def forward(self, x: Tensor) -> MultitaskMultivariateNormal:
        return MultitaskMultivariateNormal.from_batch_mvn(MultivariateNormal(self.mean_module(x), self.covar_module(x)))


@client("batch independent outputs")
def independent_outputs(rows: Problem, kernel: KernelFactory) -> Client:
    return exact(rows, _IndependentOutputs(rows, ScaleKernel(kernel(batch_shape=TWO), batch_shape=TWO)))


@client("batch independent outputs, one kernel")
def outputs_of_one_kernel(rows: Problem, kernel: KernelFactory) -> Client:
    return exact(rows, _IndependentOutputs(rows, ScaleKernel(kernel(), batch_shape=TWO)))


def _averaged(found: Client) -> Client:
    """The objective of a batch of models is their mean."""
    objective = found.objective
    found.objective = lambda: objective().mean()
    return found


@client("batch of models")
def batch(rows: Problem, kernel: KernelFactory) -> Client:
    train_x = torch.stack([rows.train_x, rows.train_x.flip(0) + 0.1])
    train_y = torch.stack([rows.train_y, rows.train_y.flip(0).square()])
    scaled = ScaleKernel(kernel(batch_shape=TWO), batch_shape=TWO)
    found = exact(rows, model := Regression(train_x, train_y, gaussian(TWO), scaled, TWO))
    found.predict = lambda: model(torch.stack([rows.test_x, rows.test_x + 0.1]))
    return _averaged(found)


@client("batch of models on the same rows")
def batch_of_targets(rows: Problem, kernel: KernelFactory) -> Client:
    scaled = ScaleKernel(kernel(batch_shape=TWO), batch_shape=TWO)
    train_x = rows.train_x.expand(2, -1, -1)
    found = exact(rows, model := Regression(train_x, rows.two_tasks.mT.contiguous(), gaussian(TWO), scaled, TWO))
    found.predict = lambda: model(rows.test_x.expand(2, -1, -1))
    return _averaged(found)


@client("Dirichlet classification")
def dirichlet(rows: Problem, kernel: KernelFactory) -> Client:
    labels = (rows.train_y > 0.5).long()
    likelihood = DirichletClassificationLikelihood(labels, learn_additional_noise=True, dtype=torch.float64)
    classes = torch.Size([likelihood.num_classes])
    scaled = ScaleKernel(kernel(batch_shape=classes), batch_shape=classes)
    model = Regression(rows.train_x, likelihood.transformed_targets, likelihood, scaled, classes)
    found = exact(rows, model)
    found.observe = None
    return _averaged(found)


@client("model list")
def model_list(rows: Problem, kernel: KernelFactory) -> Client:
    models = [Regression(rows.train_x, rows.two_tasks[:, i], gaussian(), ScaleKernel(kernel())) for i in range(2)]
    model = IndependentModelList(*models).double()
    likelihood = LikelihoodList(*[each.likelihood for each in models])
    mll = SumMarginalLogLikelihood(likelihood, model)
    return Client(
        modules=torch.nn.ModuleList([model, likelihood]),
        objective=lambda: mll(model(*model.train_inputs), model.train_targets),
        predict=lambda: MultitaskMultivariateNormal.from_independent_mvns(model(rows.test_x, rows.test_x)),
    )
