"""BoTorch's models as clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from botorch.acquisition import LogExpectedImprovement, qLogNoisyExpectedImprovement
from botorch.models import KroneckerMultiTaskGP, ModelListGP, MultiTaskGP, SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.posteriors import GPyTorchPosterior
from botorch.sampling import SobolQMCNormalSampler
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood, SumMarginalLogLikelihood
from torch import Tensor

from tests.clients.client import Client, Registry, Values
from tests.clients.problems import KernelFactory, Problem

BOTORCH = Registry()
TWO = torch.Size([2])


@dataclass
class _Answers:
    """A posterior with the names of GPyTorch's distributions."""

    posterior: GPyTorchPosterior

    @property
    def mean(self) -> Tensor:
        return self.posterior.mean

    @property
    def variance(self) -> Tensor:
        return self.posterior.variance

    @property
    def covariance_matrix(self) -> Tensor:
        return self.posterior.distribution.covariance_matrix

    def sample(self, shape: torch.Size) -> Tensor:
        return self.posterior.rsample(shape)


def _client(model: Any, test_x: Tensor, objective: Any = ExactMarginalLogLikelihood) -> Client:
    mll = objective(model.likelihood, model)
    return Client(
        modules=torch.nn.ModuleList([model, model.likelihood]),
        objective=lambda: mll(model(*model.train_inputs), model.train_targets).mean(),
        predict=lambda: _Answers(model.posterior(test_x)),
        observe=lambda _: model.posterior(test_x, observation_noise=True),
    )


def _noisy(model: Any) -> Any:
    model.likelihood.noise = 0.1
    return model


def _single(rows: Problem, kernel: Any, **options: Any) -> SingleTaskGP:
    return _noisy(SingleTaskGP(rows.train_x, rows.train_y.unsqueeze(-1), covar_module=kernel, **options))


@BOTORCH.client("SingleTaskGP")
def single_task(rows: Problem, kernel: KernelFactory) -> Client:
    return _client(_single(rows, ScaleKernel(kernel())), rows.test_x)


@BOTORCH.client("SingleTaskGP, b x q points")
def points_in_batches(rows: Problem, kernel: KernelFactory) -> Client:
    return _client(_single(rows, ScaleKernel(kernel())), rows.test_x.view(10, 4, -1))


@BOTORCH.client("SingleTaskGP, RBF + kernel")
def of_sum(rows: Problem, kernel: KernelFactory) -> Client:
    return _client(_single(rows, ScaleKernel(RBFKernel()) + ScaleKernel(kernel())), rows.test_x)


@BOTORCH.client("SingleTaskGP, RBF * kernel")
def of_product(rows: Problem, kernel: KernelFactory) -> Client:
    return _client(_single(rows, ScaleKernel(RBFKernel() * kernel())), rows.test_x)


@BOTORCH.client("SingleTaskGP, known noise")
def known_noise(rows: Problem, kernel: KernelFactory) -> Client:
    noise = (0.05 + 0.1 * rows.train_x[:, :1].abs()).square()
    model = SingleTaskGP(rows.train_x, rows.train_y.unsqueeze(-1), noise, covar_module=ScaleKernel(kernel()))
    return _client(model, rows.test_x)


@BOTORCH.client("SingleTaskGP, two outcomes")
def two_outcomes(rows: Problem, kernel: KernelFactory) -> Client:
    scaled = ScaleKernel(kernel(batch_shape=TWO), batch_shape=TWO)
    return _client(_noisy(SingleTaskGP(rows.train_x, rows.two_tasks, covar_module=scaled)), rows.test_x)


@BOTORCH.client("SingleTaskGP, two outcomes, b x q points")
def two_outcomes_in_batches(rows: Problem, kernel: KernelFactory) -> Client:
    scaled = ScaleKernel(kernel(batch_shape=TWO), batch_shape=TWO)
    model = _noisy(SingleTaskGP(rows.train_x, rows.two_tasks, covar_module=scaled))
    return _client(model, rows.test_x.view(10, 4, -1))


@BOTORCH.client("SingleTaskGP, Normalize")
def normalized(rows: Problem, kernel: KernelFactory) -> Client:
    model = _single(rows, ScaleKernel(kernel()), input_transform=Normalize(3, bounds=_BOUNDS))
    return _client(model, rows.test_x)


_BOUNDS = torch.tensor([[-1.0] * 3, [1.0] * 3], dtype=torch.float64)


def _with_tasks(x: Tensor) -> Tensor:
    return torch.cat([x, (torch.arange(len(x)) % 2).unsqueeze(-1).to(x)], -1)


@BOTORCH.client("MultiTaskGP")
def multi_task(rows: Problem, kernel: KernelFactory) -> Client:
    train_x = _with_tasks(rows.train_x)
    targets = rows.two_tasks.gather(-1, train_x[:, -1:].long())
    model = MultiTaskGP(train_x, targets, task_feature=-1, covar_module=ScaleKernel(kernel()))
    found = _client(_noisy(model), rows.test_x)
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    found.objective = lambda: mll(model(train_x), model.train_targets, [train_x])
    return found


@BOTORCH.client("KroneckerMultiTaskGP")
def kronecker(rows: Problem, kernel: KernelFactory) -> Client:
    model = KroneckerMultiTaskGP(rows.train_x, rows.two_tasks, data_covar_module=kernel())
    return _client(_noisy(model), rows.test_x)


@BOTORCH.client("ModelListGP")
def model_list(rows: Problem, kernel: KernelFactory) -> Client:
    models = [
        _noisy(SingleTaskGP(rows.train_x, rows.two_tasks[:, i : i + 1], covar_module=ScaleKernel(kernel())))
        for i in range(2)
    ]
    return _client(ModelListGP(*models), rows.test_x, SumMarginalLogLikelihood)


def _new(rows: Problem) -> tuple[Tensor, Tensor]:
    return rows.test_x[:5] + 0.01, rows.train_y[:5].unsqueeze(-1)


@BOTORCH.client("condition_on_observations")
def conditioned(rows: Problem, kernel: KernelFactory) -> Client:
    model = _single(rows, ScaleKernel(kernel()), outcome_transform=None)
    found = _client(model, rows.test_x)

    def predict() -> _Answers:
        model.posterior(rows.test_x)
        return _Answers(model.condition_on_observations(*_new(rows)).posterior(rows.test_x))

    found.predict, found.observe = predict, None
    return found


@BOTORCH.client("condition_on_observations, batch")
def conditioned_on_batch(rows: Problem, kernel: KernelFactory) -> Client:
    model = _single(rows, ScaleKernel(kernel()), outcome_transform=None)
    found = _client(model, rows.test_x)

    def predict() -> _Answers:
        x, y = _new(rows)
        model.posterior(rows.test_x)
        fantasies = model.condition_on_observations(x.expand(2, -1, -1), torch.stack([y, y.flip(0)]))
        return _Answers(fantasies.posterior(rows.test_x))

    found.predict, found.observe = predict, None
    return found


@BOTORCH.client("fantasize")
def fantasized(rows: Problem, kernel: KernelFactory) -> Client:
    """One fantasy, the mean: its draws are from whatever root of the covariance there is."""
    model = _single(rows, ScaleKernel(kernel()), outcome_transform=None)
    found = _client(model, rows.test_x)

    class _Middle(SobolQMCNormalSampler):
        def forward(self, posterior: Any) -> Tensor:
            return posterior.mean.unsqueeze(0)

    def predict() -> _Answers:
        fantasies = model.fantasize(rows.test_x[:3] + 0.01, _Middle(torch.Size([1])))
        return _Answers(fantasies.posterior(rows.test_x))

    found.predict, found.observe = predict, None
    return found


def _acquisition(rows: Problem, kernel: KernelFactory, acquisition: Any) -> Client:
    model = _single(rows, ScaleKernel(kernel()))
    found = _client(model, rows.test_x)

    def predict(points: Tensor = rows.test_x) -> Values:
        model.eval()
        return Values(acquisition(model)(points.unsqueeze(-2)))

    found.predict, found.observe, found.is_posterior = predict, None, False
    return found


@BOTORCH.client("LogExpectedImprovement")
def log_ei(rows: Problem, kernel: KernelFactory) -> Client:
    return _acquisition(rows, kernel, lambda model: LogExpectedImprovement(model, best_f=0.5))


@BOTORCH.client("LogExpectedImprovement, gradient by x")
def gradient_of_log_ei(rows: Problem, kernel: KernelFactory) -> Client:
    """What `optimize_acqf` asks for, unless told not to."""
    found = log_ei.build(rows, kernel)
    value = found.predict

    def predict() -> Values:
        points = rows.test_x.clone().requires_grad_()
        with torch.enable_grad():
            value(points).mean.sum().backward()
        return Values(points.grad if points.grad is not None else torch.zeros_like(points))

    found.predict, found.objective = predict, None
    return found


def _log_nei(rows: Problem, model: Any, cache_root: bool) -> Any:
    sampler = SobolQMCNormalSampler(torch.Size([1024]), seed=0)
    return qLogNoisyExpectedImprovement(
        model, rows.train_x[:8], sampler=sampler, prune_baseline=False, cache_root=cache_root
    )


@BOTORCH.client("qLogNEI, cache_root")
def log_nei_of_root(rows: Problem, kernel: KernelFactory) -> Client:
    return _acquisition(rows, kernel, lambda model: _log_nei(rows, model, True))


@BOTORCH.client("qLogNEI")
def log_nei(rows: Problem, kernel: KernelFactory) -> Client:
    return _acquisition(rows, kernel, lambda model: _log_nei(rows, model, False))
