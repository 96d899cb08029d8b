"""
GPyTorch's models with a partition kernel in them, at its default tolerances and without a Cholesky factor, against the
same models with the kernel as a dense matrix.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import cache

import gpytorch
import linear_operator
import pytest
import torch
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from gpytorch.kernels import (
    ConstantKernel,
    IndexKernel,
    InducingPointKernel,
    Kernel,
    LinearKernel,
    MultitaskKernel,
    RBFKernel,
    ScaleKernel,
)
from gpytorch.likelihoods import GaussianLikelihood, MultitaskGaussianLikelihood
from linear_operator.operators import DenseLinearOperator, MaskedLinearOperator

from gpytorch_partition import FastClusterKernel, PartitionKernel, RandomForestKernel
from gpytorch_partition.operators import algebra

NUM_TASKS = 3
BATCH = torch.Size([NUM_TASKS])
_generator = torch.Generator().manual_seed(0)
X = torch.rand(90, 3, generator=_generator, dtype=torch.float64)
TEST_X = torch.rand(7, 3, generator=_generator, dtype=torch.float64)
NOISE = 0.1 * torch.randn(90, generator=_generator, dtype=torch.float64)
Y = torch.sin(6 * X[:, 0]) + X[:, 1] + NOISE
TASK_Y = torch.stack([Y, 0.5 * Y + X[:, 2], X[:, 0] - Y], -1)
TASKS = torch.randint(0, NUM_TASKS, (90, 1), generator=_generator)
TEST_TASKS = torch.randint(0, NUM_TASKS, (7, 1), generator=_generator)
WITH_TASKS, TEST_WITH_TASKS = torch.cat([X, TASKS.double()], -1), torch.cat([TEST_X, TEST_TASKS.double()], -1)


class Dense(Kernel):
    """The kernel's matrix, dense; the kernel is hidden from `modules()`, so that GPyTorch's own algebra is used."""

    def __init__(self, kernel):
        super().__init__(batch_shape=kernel.batch_shape)
        self._hidden = [kernel]

    def forward(self, x1, x2, diag=False, **params):
        matrix = self._hidden[0](x1, x2).to_dense()
        return matrix.diagonal(dim1=-1, dim2=-2) if diag else matrix


def clusters(**options):
    return FastClusterKernel(X, 15, random_state=0, **options)


def forest(active_dims=None):
    rows = X if active_dims is None else WITH_TASKS
    return RandomForestKernel(rows, Y, num_trees=10, random_state=0, active_dims=active_dims)


class Model(gpytorch.models.ExactGP):
    """An exact GP: `covariance` is a function of the kernels and the inputs, as written in a `forward`."""

    def __init__(self, x, y, likelihood, kernels, covariance, mean=None):
        super().__init__(x, y, likelihood)
        self.mean_module = mean or gpytorch.means.ConstantMean()
        self.kernels = torch.nn.ModuleList(kernels)
        self.covariance = covariance

    def forward(self, *inputs):
        mean, covariance = self.mean_module(inputs[0]), self.covariance(self.kernels, *inputs)
        if mean.shape[:-1] == BATCH:
            return MultitaskMultivariateNormal.from_batch_mvn(MultivariateNormal(mean, covariance))
        return (MultitaskMultivariateNormal if mean.dim() == 2 else MultivariateNormal)(mean, covariance)


def single(*kernels, covariance=lambda kernels, x: kernels[0](x)):
    return Model(X, Y, GaussianLikelihood(), kernels, covariance)


class Correlated(GaussianLikelihood):
    """Noise of neighbouring rows that goes together, as a dense matrix."""

    def _shaped_noise_covar(self, shape, *args, **kwargs):
        rows = torch.arange(shape[-1], dtype=torch.float64)
        independent = super()._shaped_noise_covar(shape, *args, **kwargs)
        return DenseLinearOperator(independent.to_dense() * 0.5 ** (rows - rows.unsqueeze(-1)).abs())


def with_noise(likelihood, kernel):
    return Model(X, Y, likelihood, [kernel], lambda kernels, x: kernels[0](x))


def multitask(kernel, **noise):
    mean = gpytorch.means.MultitaskMean(gpytorch.means.ConstantMean(), NUM_TASKS)
    likelihood = MultitaskGaussianLikelihood(NUM_TASKS, **noise)
    return Model(X, TASK_Y, likelihood, [kernel], lambda kernels, x: kernels[0](x), mean)


def independent(kernel):
    mean = gpytorch.means.ConstantMean(batch_shape=BATCH)
    likelihood = MultitaskGaussianLikelihood(NUM_TASKS)
    return Model(X, TASK_Y, likelihood, [kernel], lambda kernels, x: kernels[0](x), mean)


def hadamard(covariance):
    return lambda kernel: Model(
        (X, TASKS), Y, GaussianLikelihood(), [ScaleKernel(kernel), IndexKernel(NUM_TASKS, rank=1)], covariance
    )


def indexed(kernel):
    return Model(WITH_TASKS, Y, GaussianLikelihood(), [kernel], lambda kernels, x: kernels[0](x))


def index_kernel():
    return IndexKernel(NUM_TASKS, rank=1, active_dims=[3])


def inducing_points():
    kernel = InducingPointKernel(RBFKernel(), X[:10].clone(), GaussianLikelihood())
    kernel.inducing_points.requires_grad_(False)
    return kernel


def batched(kernel):
    return ScaleKernel(kernel, batch_shape=BATCH)


# Those that tests/clients has not, and some for the tests below, each with the partition kernel to build it around,
# which the function `w` wraps or not.
MODELS = {
    "one kernel": lambda w: single(ScaleKernel(w(clusters()))),
    "smooth kernel first": lambda w: single(RBFKernel() + ScaleKernel(w(forest()))),
    "product with a linear kernel": lambda w: single(w(forest()) * LinearKernel()),
    "linear kernel first": lambda w: single(LinearKernel() * w(forest())),
    "linear kernel times a sum": lambda w: single(LinearKernel() * (RBFKernel() + w(forest()))),
    "product with inducing points": lambda w: single(inducing_points() * w(forest())),
    "product with a smooth kernel": lambda w: single(ScaleKernel(w(forest()) * RBFKernel())),
    "smooth kernel times two": lambda w: single(RBFKernel() * w(clusters()) * w(forest()) + w(forest())),
    "correlated noise": lambda w: with_noise(Correlated(), ScaleKernel(w(forest()))),
    "correlated noise beside a sum": lambda w: with_noise(Correlated(), RBFKernel() + w(clusters())),
    "product with a constant": lambda w: single(ConstantKernel() * w(forest())),
    "tasks": lambda w: multitask(MultitaskKernel(w(forest()), NUM_TASKS)),
    "tasks of a sum": lambda w: multitask(MultitaskKernel(w(clusters()) + RBFKernel(), NUM_TASKS)),
    "scaled tasks": lambda w: multitask(ScaleKernel(MultitaskKernel(w(clusters()), NUM_TASKS))),
    "independent outputs": lambda w: independent(batched(w(clusters(batch_shape=BATCH)))),
    "own tasks": lambda w: hadamard(lambda k, x, i: k[0](x).mul(k[1](i)))(w(forest())),
    "own tasks, tasks first": lambda w: hadamard(lambda k, x, i: k[1](i).mul(k[0](x)))(w(forest())),
    "own tasks, by a star": lambda w: hadamard(lambda k, x, i: k[1](i) * k[0](x))(w(forest())),
    "own tasks in a column": lambda w: indexed(index_kernel() * ScaleKernel(w(forest((0, 1, 2))))),
    "two kinds of tasks": lambda w: indexed(index_kernel() * index_kernel() * w(forest((0, 1, 2)))),
    "own tasks of a sum": lambda w: indexed(
        (w(forest((0, 1, 2))) + ScaleKernel(RBFKernel(active_dims=[0, 1, 2]))) * index_kernel()
    ),
}


def build(name, wrapped=lambda kernel: kernel):
    """The model in float64, with the same hyperparameters in every call."""
    model, generator = MODELS[name](wrapped).double(), torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64) - 0.5
    return model


def points_of(model):
    if len(model.train_inputs) == 2:
        return TEST_X, TEST_TASKS
    return (TEST_X if model.train_inputs[0].shape[-1] == 3 else TEST_WITH_TASKS,)


def figures(model, *contexts):
    """Likelihood, gradient, and what a prediction gives, under some settings."""
    with ExitStack() as stack:
        for context in contexts:
            stack.enter_context(context)
        likelihood = model.likelihood
        mll = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
        value = mll(model(*model.train_inputs), model.train_targets)
        value.backward()
        model.eval()
        prediction = model(*points_of(model))
        joint = model(*points_of(model)).covariance_matrix
        model.prediction_strategy = None
        with torch.no_grad():
            mean_first = model(*points_of(model)).mean
        return {
            "value": value.detach(),
            "gradient": torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]),
            "mean": prediction.mean.detach(),
            "variance": prediction.variance.detach(),
            "covariance": joint.detach(),
            "observed": likelihood(model(*points_of(model))).variance.detach(),
            "mean without variances": mean_first,
        }


@cache
def exact(name):
    settings = linear_operator.settings
    return figures(
        build(name, Dense), settings.max_cholesky_size(10**6), settings.fast_computations(False, False, False)
    )


@pytest.mark.parametrize("fast_pred_var", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_is_exact_without_a_cholesky_factor(name, fast_pred_var):
    expected = exact(name)
    got = figures(
        build(name),
        linear_operator.settings.max_cholesky_size(20),
        gpytorch.settings.max_eager_kernel_size(20),
        gpytorch.settings.num_trace_samples(200),
        gpytorch.settings.fast_pred_var(fast_pred_var),
    )
    assert abs(got["value"] - expected["value"]) < 0.02  # the error of 200 probe vectors
    scale = expected["gradient"].abs().max()
    torch.testing.assert_close(got["gradient"] / scale, expected["gradient"] / scale, rtol=0, atol=0.08)
    for key, tolerance in {"mean": 1e-3, "mean without variances": 1e-3, "covariance": 2e-3}.items():
        torch.testing.assert_close(got[key], expected[key], rtol=0, atol=tolerance * float(expected[key].abs().max()))
    for key in ("variance", "observed"):
        torch.testing.assert_close(got[key], expected[key], rtol=0.01, atol=0)
    rounding = 1e-15 if name.startswith("correlated") else 0.0
    torch.testing.assert_close(got["covariance"], got["covariance"].mT, rtol=0, atol=rounding)


@pytest.mark.parametrize("name", ["one kernel", "smooth kernel first", "tasks"])
def test_a_mask_leaves_out_rows(name):
    """So that this package solves for the rows with a target, and not linear_operator around all of them."""
    model = build(name)
    noisy = model.likelihood(model(*model.train_inputs)).lazy_covariance_matrix
    kept = torch.arange(noisy.size(-1)) % 5 > 0
    masked = MultivariateNormal(torch.zeros(int(kept.sum())).double(), MaskedLinearOperator(noisy, kept, kept))
    assert type(masked.lazy_covariance_matrix) is type(noisy)
    torch.testing.assert_close(masked.covariance_matrix, noisy.to_dense()[kept][:, kept])


@pytest.mark.parametrize("name", MODELS)
def test_is_exact_with_one(name):
    got, expected = figures(build(name)), exact(name)
    for key, value in expected.items():
        torch.testing.assert_close(got[key], value, rtol=1e-6, atol=1e-7, msg=lambda text, key=key: f"{key}: {text}")


@pytest.mark.parametrize(
    "build_kernel",
    [lambda: RBFKernel() * clusters(), lambda: clusters() * RBFKernel(), lambda: forest() * clusters()],
)
def test_a_dense_product_of_many_rows_is_refused_in_any_order(build_kernel, monkeypatch):
    kernel = build_kernel()
    monkeypatch.setattr(algebra, "MOST_ROWS", 80)
    assert kernel(X).to_dense().shape == (90, 90)
    with linear_operator.settings.max_cholesky_size(20), pytest.raises(RuntimeError, match="max_cholesky_size"):
        kernel(X).to_dense()


def test_singular_noise_between_tasks_is_refused():
    model = multitask(MultitaskKernel(clusters(), NUM_TASKS), rank=1, has_global_noise=False).double()
    mll = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    with linear_operator.settings.max_cholesky_size(20), pytest.raises(RuntimeError, match="has_global_noise=True"):
        mll(model(X), TASK_Y)
    model.eval()
    with linear_operator.settings.max_cholesky_size(20), pytest.raises(RuntimeError, match="has_global_noise=True"):
        _ = model(TEST_X).variance


@pytest.mark.parametrize("kernel", [lambda: RBFKernel() + LinearKernel(), lambda: RBFKernel() * LinearKernel()])
def test_models_without_a_partition_kernel_are_left_alone(kernel):
    model = single(kernel()).double().eval()
    assert type(model(TEST_X).lazy_covariance_matrix).__module__.startswith("linear_operator")
    assert type(model.prediction_strategy).__name__ == "DefaultPredictionStrategy"
    assert type(model.kernels[0]).__module__.startswith("gpytorch.")
    assert type(kernel()(X)).__name__ == "LazyEvaluatedKernelTensor"


def test_samples_of_tasks_in_unseen_clusters_covary_as_the_tasks_do():
    """A cluster that no training row is in has an effect on each task: drawn together."""
    torch.manual_seed(0)
    task_kernel = MultitaskKernel(PartitionKernel(lambda x: x[..., :1].round().long()), NUM_TASKS, rank=2)
    model = multitask(task_kernel).double().eval()
    points = torch.tensor([[5.0, 0, 0], [5.2, 0, 0], [7.0, 0, 0]], dtype=torch.float64)
    settings = (linear_operator.settings.max_cholesky_size(5), gpytorch.settings.max_eager_kernel_size(5))
    with settings[0], settings[1], torch.no_grad():
        samples = model(points).sample(torch.Size([4000])).flatten(1)
    expected = task_kernel(points).to_dense().detach()
    torch.testing.assert_close(samples.T.cov() / expected.max(), expected / expected.max(), rtol=0, atol=0.1)


def gradients_of_a_prediction(model, points):
    with gpytorch.settings.detach_test_caches(False):
        prediction, joint = model(*points), model(*points).covariance_matrix
        weights = torch.linspace(0, 1, joint.numel(), dtype=joint.dtype).view_as(joint)
        (prediction.mean.sum() + 10 * prediction.variance.sum() + (weights * joint).sum()).backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


@pytest.mark.parametrize("name", ["one kernel", "smooth kernel first", "tasks", "own tasks", "independent outputs"])
def test_predictions_have_the_exact_gradients_by_hyperparameters(name):
    model = build(name, Dense).eval()
    with linear_operator.settings.max_cholesky_size(10**6):
        expected = gradients_of_a_prediction(model, points_of(model))
    model = build(name).eval()
    with linear_operator.settings.max_cholesky_size(20), gpytorch.settings.max_eager_kernel_size(20):
        got = gradients_of_a_prediction(model, points_of(model))
    scale = expected.abs().max()
    torch.testing.assert_close(got / scale, expected / scale, rtol=0, atol=2e-3)


def test_equal_covariances_of_tasks_in_a_batch_keep_their_own_gradients():
    index = IndexKernel(2, rank=1, batch_shape=torch.Size([2])).double()
    index.initialize(covar_factor=torch.ones(2, 2, 1, dtype=torch.float64))
    tasks = (torch.arange(90) % 2).view(-1, 1)
    vector = torch.linspace(-1, 1, 90, dtype=torch.float64) * torch.tensor([[1.0], [2.0]], dtype=torch.float64)

    def gradient(matrix):
        form = (vector.unsqueeze(-2) @ matrix @ vector.unsqueeze(-1)).sum()
        return torch.autograd.grad(form, index.covar_factor)[0]

    kernel = clusters().double()
    got = gradient(kernel(X.expand(2, 90, 3)).mul(index(tasks.expand(2, 90, 1))).to_dense())
    expected = gradient(kernel(X).to_dense() * index(tasks.expand(2, 90, 1)).to_dense())
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("shift", [1, -1])
def test_task_numbers_out_of_range_are_refused(shift):
    with pytest.raises(IndexError, match="task numbers from 0 to 2"):
        clusters()(X).mul(IndexKernel(NUM_TASKS)(TASKS + shift))


def test_a_gradient_that_variances_leave_out_is_an_error():
    model = build("one kernel").eval()
    with linear_operator.settings.max_cholesky_size(20), gpytorch.settings.max_eager_kernel_size(20):
        variance, joint = model(TEST_X).variance, model(TEST_X).covariance_matrix
        for value in (variance, joint):
            with pytest.raises(RuntimeError, match="detach_test_caches"):
                value.sum().backward()


def test_noise_added_by_hand_is_preconditioned():
    """From 2,000 rows on: the covariance is evaluated first."""
    kernel, vector = PartitionKernel(lambda x: (9 * x).long()), torch.ones(2000, 1)
    covariance = kernel(torch.linspace(0, 1, 2000).unsqueeze(-1)).add_diagonal(torch.tensor(0.5))
    form, logdet = covariance.inv_quad_logdet(vector, logdet=True)
    dense = covariance.to_dense().double()
    torch.testing.assert_close(
        form, (vector.double() * torch.linalg.solve(dense, vector.double())).sum().float(), rtol=1e-3, atol=0
    )
    assert abs(logdet - dense.logdet()) < 0.01 * 2000
