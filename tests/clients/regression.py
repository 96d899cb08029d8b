"""Clients with exact inference of one output, as in GPyTorch's examples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gpytorch
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import (
    ConstantKernel,
    IndexKernel,
    InducingPointKernel,
    Kernel,
    LinearKernel,
    RBFKernel,
    ScaleKernel,
)
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from gpytorch.likelihoods.gaussian_likelihood import _GaussianLikelihoodBase
from gpytorch.likelihoods.noise_models import HeteroskedasticNoise
from gpytorch.mlls import ExactMarginalLogLikelihood, LeaveOneOutPseudoLikelihood
from gpytorch.models import ExactGP
from linear_operator import to_linear_operator
from torch import Tensor

from tests.clients.client import RECIPES, Client, Values, client
from tests.clients.problems import KernelFactory, Problem


class Regression(ExactGP):
    """A constant mean and one kernel; `forward` may be given a function of the inputs instead."""

    def __init__(self, train_x: Any, train_y: Tensor, likelihood: Any, kernel: Kernel, batch_shape: Any = ()) -> None:
        super().__init__(train_x, train_y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean(batch_shape=torch.Size(batch_shape))
        self.covar_module = kernel

    def forward(self, x: Tensor) -> MultivariateNormal:
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


def gaussian(batch_shape: Any = ()) -> GaussianLikelihood:
    """A noise of .1, which is not the best, so that gradients are not 0."""
    likelihood = GaussianLikelihood(batch_shape=torch.Size(batch_shape))
    likelihood.noise = 0.1
    return likelihood


def exact(rows: Problem, model: ExactGP, objective: Callable = ExactMarginalLogLikelihood, **noise: Any) -> Client:
    """The client of an exact GP: one log likelihood in training mode, one call in evaluation mode."""
    model.double()
    mll = objective(model.likelihood, model)
    return Client(
        modules=torch.nn.ModuleList([model, model.likelihood]),
        objective=lambda: mll(model(*model.train_inputs), model.train_targets),
        predict=lambda: model(rows.test_x),
        observe=lambda latent: model.likelihood(latent, **noise),
    )


def regression(rows: Problem, kernel: Kernel) -> Regression:
    """A model of the targets with Gaussian noise."""
    return Regression(rows.train_x, rows.train_y, gaussian(), kernel)


def _of_kernels(**kernels: Callable[[KernelFactory], Kernel]) -> None:
    """Register an exact GP for each kernel, by the name of the client."""
    for name, build in kernels.items():
        client(name)(lambda rows, kernel, build=build: exact(rows, regression(rows, build(kernel))))


_of_kernels(**{"exact GP": lambda kernel: ScaleKernel(kernel()), "no ScaleKernel": lambda kernel: kernel()})
simple = RECIPES["exact GP"]


@client("fixed noise")
def fixed_noise(rows: Problem, kernel: KernelFactory) -> Client:
    noise = 0.05 + 0.1 * rows.train_x[:, 0].abs()
    likelihood = FixedNoiseGaussianLikelihood(noise, learn_additional_noise=True)
    model = Regression(rows.train_x, rows.train_y, likelihood, ScaleKernel(kernel()))
    return exact(rows, model, noise=0.05 + 0.1 * rows.test_x[:, 0].abs())


@client("heteroscedastic noise")
def heteroscedastic(rows: Problem, kernel: KernelFactory) -> Client:
    residuals = (0.04 + 0.02 * rows.train_x[:, 0].abs()).log()
    noise_model = Regression(rows.train_x, residuals, gaussian(), ScaleKernel(kernel()))
    noise_model.double().requires_grad_(False)
    likelihood = _GaussianLikelihoodBase(noise_covar=HeteroskedasticNoise(noise_model))
    model = Regression(rows.train_x, rows.train_y, likelihood, ScaleKernel(kernel()))
    found = exact(rows, model)
    mll = ExactMarginalLogLikelihood(likelihood, model)
    found.objective = lambda: mll(model(rows.train_x), rows.train_y, rows.train_x)
    found.observe = lambda latent: likelihood(latent, rows.test_x)
    return found


_of_kernels(
    **{
        "kernel + RBF": lambda kernel: ScaleKernel(kernel()) + ScaleKernel(RBFKernel()),
        "RBF + kernel": lambda kernel: ScaleKernel(RBFKernel()) + ScaleKernel(kernel()),
        "kernel + constant": lambda kernel: ScaleKernel(kernel()) + ConstantKernel(),
        "constant + kernel": lambda kernel: ConstantKernel() + ScaleKernel(kernel()),
        "kernel + linear": lambda kernel: ScaleKernel(kernel()) + LinearKernel(),
        "linear + kernel": lambda kernel: LinearKernel() + ScaleKernel(kernel()),
        "scaled sum": lambda kernel: ScaleKernel(RBFKernel() + kernel()),
    }
)


class _SumInForward(Regression):
    """`k1(x) + k2(x)`, as models of several kernels are written by hand."""

    def __init__(self, rows: Problem, *kernels: Kernel) -> None:
        super().__init__(rows.train_x, rows.train_y, gaussian(), kernels[0])
        self.second_covar_module = kernels[1]

    def forward(self, x: Tensor) -> MultivariateNormal:
        return MultivariateNormal(self.mean_module(x), self.covar_module(x) + self.second_covar_module(x))


@client("kernel(x) + RBF(x) in forward")
def sum_in_forward(rows: Problem, kernel: KernelFactory) -> Client:
    return exact(rows, _SumInForward(rows, ScaleKernel(kernel()), ScaleKernel(RBFKernel())))


@client("RBF(x) + kernel(x) in forward")
def turned_sum_in_forward(rows: Problem, kernel: KernelFactory) -> Client:
    return exact(rows, _SumInForward(rows, ScaleKernel(RBFKernel()), ScaleKernel(kernel())))


class _OverBatch(Regression):
    """A batch of covariances reduced to one, as in GPyTorch's kernels with additive and product structure."""

    def __init__(self, rows: Problem, kernel: Kernel, reduction: str) -> None:
        super().__init__(rows.train_x, rows.train_y, gaussian(), kernel)
        self.reduction = reduction

    def forward(self, x: Tensor) -> MultivariateNormal:
        covariance = getattr(self.covar_module(x), self.reduction)(-3)
        return MultivariateNormal(self.mean_module(x), covariance)


def _batch_of_two(kernel: KernelFactory) -> ScaleKernel:
    scaled = ScaleKernel(kernel(batch_shape=torch.Size([2])), batch_shape=torch.Size([2]))
    scaled.outputscale = torch.tensor([0.5, 1.2])
    return scaled


@client("sum(-3) over a batch of kernels")
def sum_over_batch(rows: Problem, kernel: KernelFactory) -> Client:
    return exact(rows, _OverBatch(rows, _batch_of_two(kernel), "sum"))


class _DenseProduct(_OverBatch):
    """The product written out: GPyTorch's own is one of roots, which takes minutes at 1,500 rows."""

    def forward(self, x: Tensor) -> MultivariateNormal:
        product = to_linear_operator(self.covar_module(x).to_dense().prod(-3))
        return MultivariateNormal(self.mean_module(x), product)


def _product_written_out(rows: Problem, kernel: KernelFactory) -> Client:
    return exact(rows, _DenseProduct(rows, _batch_of_two(kernel), "prod"))


@client("prod(-3) over a batch of kernels", oracle=_product_written_out)
def product_over_batch(rows: Problem, kernel: KernelFactory) -> Client:
    return exact(rows, _OverBatch(rows, _batch_of_two(kernel), "prod"))


_of_kernels(
    **{
        "kernel * RBF": lambda kernel: ScaleKernel(kernel() * RBFKernel()),
        "RBF * kernel": lambda kernel: ScaleKernel(RBFKernel() * kernel()),
    }
)


class _Hadamard(Regression):
    """Every row has one of two tasks: `covar_x.mul(covar_i)`."""

    def __init__(self, train: tuple[Tensor, Tensor], train_y: Tensor, kernel: Kernel) -> None:
        super().__init__(train, train_y, gaussian(), kernel)
        self.task_covar_module = IndexKernel(num_tasks=2, rank=1)

    def forward(self, x: Tensor, i: Tensor) -> MultivariateNormal:
        covariance = self.covar_module(x).mul(self.task_covar_module(i))
        return MultivariateNormal(self.mean_module(x), covariance)


def _task_of(x: Tensor) -> Tensor:
    return (torch.arange(len(x)) % 2).unsqueeze(-1)


@client("Hadamard multitask")
def hadamard(rows: Problem, kernel: KernelFactory) -> Client:
    tasks = _task_of(rows.train_x)
    targets = rows.two_tasks.gather(-1, tasks).squeeze(-1)
    model = _Hadamard((rows.train_x, tasks), targets, ScaleKernel(kernel()))
    found = exact(rows, model)
    found.predict = lambda: model(rows.test_x, _task_of(rows.test_x))
    return found


def _inducing(rows: Problem, kernel: KernelFactory) -> ExactGP:
    likelihood = gaussian()
    covariance = InducingPointKernel(ScaleKernel(kernel()), inducing_points=rows.train_x[:30], likelihood=likelihood)
    return Regression(rows.train_x, rows.train_y, likelihood, covariance)


@client("SGPR")
def sgpr(rows: Problem, kernel: KernelFactory) -> Client:
    return exact(rows, _inducing(rows, kernel))


@client("SGPR, inducing points fixed")
def fixed_sgpr(rows: Problem, kernel: KernelFactory) -> Client:
    model = _inducing(rows, kernel)
    model.covar_module.inducing_points.requires_grad_(False)
    return exact(rows, model)


@client("leave-one-out")
def leave_one_out(rows: Problem, kernel: KernelFactory) -> Client:
    model = regression(rows, ScaleKernel(kernel()))
    return exact(rows, model, LeaveOneOutPseudoLikelihood)


@client("deep kernel")
def deep_kernel(rows: Problem, kernel: KernelFactory) -> Client:
    class _Deep(Regression):
        def __init__(self) -> None:
            super().__init__(rows.train_x, rows.train_y, gaussian(), ScaleKernel(kernel()))
            self.features = torch.nn.Linear(3, 3)

        def forward(self, x: Tensor) -> MultivariateNormal:
            return MultivariateNormal(self.mean_module(x), self.covar_module(self.features(x)))

    return exact(rows, _Deep())


def _with_fantasies(rows: Problem, kernel: KernelFactory, new_y: Tensor) -> Client:
    model = regression(rows, ScaleKernel(kernel()))
    found = exact(rows, model)

    def predict() -> MultivariateNormal:
        model(rows.test_x)
        return model.get_fantasy_model(rows.test_x[:5] + 0.01, new_y)(rows.test_x)

    found.predict = predict
    return found


@client("fantasies")
def fantasies(rows: Problem, kernel: KernelFactory) -> Client:
    return _with_fantasies(rows, kernel, rows.train_y[:5])


@client("batch of fantasies")
def batch_of_fantasies(rows: Problem, kernel: KernelFactory) -> Client:
    return _with_fantasies(rows, kernel, torch.stack([rows.train_y[:5], rows.train_y[5:10]]))


@client("checkpointing")
def checkpointing(rows: Problem, kernel: KernelFactory) -> Client:
    found = simple.build(rows, kernel)
    objective = found.objective

    def in_pieces() -> Tensor:
        with gpytorch.beta_features.checkpoint_kernel(100):
            return objective()

    found.objective = in_pieces
    return found


_EVERY_SEVENTH = 7


def _without_missing(rows: Problem, kernel: KernelFactory) -> Client:
    """What predictions are to be the same as: those without such rows (GPyTorch's own variances count them)."""
    kept = torch.arange(len(rows.train_x)) % _EVERY_SEVENTH > 0
    found = exact(rows, Regression(rows.train_x[kept], rows.train_y[kept], gaussian(), ScaleKernel(kernel())))
    found.modules.eval()
    masked = _with_missing(rows, kernel, "mask")
    return Client(masked.modules, masked.objective, found.predict, found.observe, masked.settings)


def _with_missing(rows: Problem, kernel: KernelFactory, policy: str) -> Client:
    targets = rows.train_y.clone()
    targets[::_EVERY_SEVENTH] = torch.nan
    found = exact(rows, Regression(rows.train_x, targets, gaussian(), ScaleKernel(kernel())))
    found.settings = lambda: gpytorch.settings.observation_nan_policy(policy)
    return found


@client("missing targets, mask", oracle=_without_missing)
def masked(rows: Problem, kernel: KernelFactory) -> Client:
    return _with_missing(rows, kernel, "mask")


@client("missing targets, fill", oracle=_without_missing)
def filled(rows: Problem, kernel: KernelFactory) -> Client:
    found = _with_missing(rows, kernel, "fill")
    found.objective = None  # GPyTorch's marginal likelihood does not support "fill"
    return found


@client("test points in batches")
def batched_test(rows: Problem, kernel: KernelFactory) -> Client:
    model = regression(rows, ScaleKernel(kernel()))
    found = exact(rows, model)
    found.predict = lambda: model(rows.test_x.view(4, 10, -1))
    return found


@client("one of several batches of test points")
def one_batch(rows: Problem, kernel: KernelFactory) -> Client:
    found = batched_test.build(rows, kernel)
    batches = found.predict
    found.predict = lambda: batches()[1]
    return found


@client("some of the test points")
def some_points(rows: Problem, kernel: KernelFactory) -> Client:
    found = simple.build(rows, kernel)
    points = found.predict
    found.predict = lambda: points()[5:25]
    return found


@client("training rows predicted first")
def training_rows_first(rows: Problem, kernel: KernelFactory) -> Client:
    """What the first prediction keeps serves the second."""
    model = regression(rows, ScaleKernel(kernel()))
    found = exact(rows, model)

    def predict() -> MultivariateNormal:
        assert model(rows.train_x).mean.isfinite().all()
        return model(rows.test_x)

    found.predict = predict
    return found


@client("gradients of predictions by outputscale and noise")
def through_predictions(rows: Problem, kernel: KernelFactory) -> Client:
    """An objective of predictions, as of held-out rows."""
    found = simple.build(rows, kernel)
    predict = found.predict

    def objective() -> Tensor:
        found.modules.eval()
        with gpytorch.settings.detach_test_caches(False):
            latent = predict()
            return latent.mean.square().mean() + 10 * latent.variance.mean()

    found.objective = objective
    return found


@client("gradients of predictions by x")
def by_points(rows: Problem, kernel: KernelFactory) -> Client:
    found = simple.build(rows, kernel)
    model = found.modules[0]

    def predict() -> Values:
        points = rows.test_x.clone().requires_grad_()
        with torch.enable_grad():
            latent = model(points)
            (latent.mean + 10 * latent.variance).sum().backward()
        return Values(torch.zeros_like(points) if points.grad is None else points.grad)

    found.predict, found.objective, found.observe, found.is_posterior = predict, None, None, False
    return found


@client("prior")
def prior(rows: Problem, kernel: KernelFactory) -> Client:
    found = simple.build(rows, kernel)
    found.settings = gpytorch.settings.prior_mode
    found.objective = None
    return found


@client("fully Bayesian")
def fully_bayesian(rows: Problem, kernel: KernelFactory) -> Client:
    scaled = ScaleKernel(kernel())
    prior = gpytorch.priors.GammaPrior(2.0, 1.0)
    scaled.register_prior("outputscale_prior", prior, lambda m: m.outputscale, lambda m, v: m._set_outputscale(v))
    likelihood = GaussianLikelihood(noise_prior=gpytorch.priors.GammaPrior(1.0, 10.0))
    model = Regression(rows.train_x, rows.train_y, likelihood, scaled)
    found = exact(rows, model)
    samples = {
        "likelihood.noise_covar.noise_prior": torch.tensor([[0.1], [0.2]], dtype=torch.float64),
        "covar_module.outputscale_prior": torch.tensor([0.7, 1.5], dtype=torch.float64),
    }
    model.pyro_load_from_samples(samples)
    found.predict = lambda: model(rows.test_x.expand(2, -1, -1))
    objective = found.objective
    found.objective = lambda: objective().mean()
    return found
