"""Kernels in models of GPyTorch: columns chosen later, constants, samples of hyperparameters, and what is refused."""

from __future__ import annotations

import gpytorch
import linear_operator
import pytest
import torch
import torch._dynamo.testing
from gpytorch.kernels import AdditiveKernel, RBFKernel, ScaleKernel
from gpytorch.priors import GammaPrior
from gpytorch.settings import cg_tolerance, eval_cg_tolerance, num_trace_samples

from gpytorch_partition import IterativeKernel, RandomForestKernel
from gpytorch_partition.settings import iterative
from tests.kernels.zoo import Model, X, Y, kernel_of, rows_of

GENERATOR = torch.Generator().manual_seed(0)

# Columns that are chosen after a kernel was built, as BoTorch's MultiTaskGP does with a kernel it is given.

COLUMNS = (1, 3, 4, 5, 6, 7, 8, 9, 10, 11)
WIDE = torch.rand(120, 12, generator=GENERATOR)
WIDE[:, COLUMNS] = X


@pytest.mark.parametrize("columns", [COLUMNS, torch.tensor(COLUMNS)])
@pytest.mark.parametrize("name", ["forest", "landmark", "mixture", "local_linear"])
def test_columns_assigned_later_are_selected(name, columns):
    kernel, expected = kernel_of(name), kernel_of(name)(X).to_dense()
    kernel.active_dims = columns
    torch.testing.assert_close(kernel(WIDE).to_dense(), expected)
    scaled = ScaleKernel(kernel)
    torch.testing.assert_close(scaled(WIDE).to_dense(), scaled.outputscale * expected)
    product = RBFKernel(active_dims=(0,)) * kernel
    torch.testing.assert_close(product(WIDE).to_dense(), expected * RBFKernel()(WIDE[:, :1]).to_dense())
    with pytest.raises(ValueError, match="columns"):
        kernel(X[:, :1])
    torch.testing.assert_close(kernel(WIDE).to_dense(), expected)
    twin = kernel_of(name)
    twin.load_state_dict(kernel.state_dict())
    torch.testing.assert_close(twin(WIDE).to_dense(), expected)


def test_columns_of_its_own_stay_those_of_all_columns():
    kernel = RandomForestKernel(X, Y, 5, random_state=0, active_dims=(1, 3))
    expected = kernel(X).to_dense()
    kernel.active_dims = torch.tensor([1, 3, 4])  # all but the tasks' column
    torch.testing.assert_close(kernel(X).to_dense(), expected)
    with pytest.raises(ValueError, match=r"\(1, 3\).*\[1, 2\]"):
        kernel.active_dims = [1, 2]


# What carries a kernel's dtype and batch shape is no parameter: it is never trained, indexed wrongly or flipped.

NAMES = ["forest", "fast_cluster", "mondrian", "gamma_mondrian", "landmark", "mixture", "local_linear"]


class _LMC(gpytorch.models.ApproximateGP):
    def __init__(self, kernel):
        points = X[:10].expand(2, -1, -1)
        distribution = gpytorch.variational.CholeskyVariationalDistribution(10, batch_shape=torch.Size([2]))
        strategy = gpytorch.variational.VariationalStrategy(self, points, distribution, learn_inducing_locations=False)
        super().__init__(
            gpytorch.variational.LMCVariationalStrategy(strategy, num_tasks=3, num_latents=2, latent_dim=-1)
        )
        self.mean_module = gpytorch.means.ConstantMean(batch_shape=torch.Size([2]))
        self.covar_module = kernel

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


@pytest.mark.parametrize(
    "wrap", [lambda kernel: kernel, lambda kernel: ScaleKernel(kernel, batch_shape=torch.Size([2]))]
)
@pytest.mark.parametrize("name", NAMES)
def test_a_prediction_of_an_lmc_model_flips_nothing_that_is_no_parameter(name, wrap):
    model = _LMC(wrap(kernel_of(name, batch_shape=torch.Size([2])))).eval()
    constants = {name: value for name, value in model.state_dict(keep_vars=True).items() if name.endswith("unit")}
    with torch.no_grad():
        model(X[:20]).variance  # noqa: B018
    assert not [name for name, value in constants.items() if value.requires_grad]
    assert all(bool((value == 1).all()) for value in constants.values())


@pytest.mark.parametrize("most_dense", [800, 10])
def test_a_sum_without_parameters_trains_and_predicts_in_float64(most_dense):
    """GPyTorch takes its dtype for float32."""
    kernel = AdditiveKernel(kernel_of("fast_cluster"), kernel_of("forest")).double()
    x, y = X.double(), Y.double()
    model = Model(x, y, kernel, gpytorch.likelihoods.GaussianLikelihood().double(), gpytorch.means.ZeroMean())
    with iterative(), linear_operator.settings.max_cholesky_size(most_dense), eval_cg_tolerance(1e-10):
        loss = -gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)(model(x), y)
        loss.backward()
        assert model.likelihood.raw_noise.grad.abs() > 0
        predicted = model.eval()(x[:9] + 0.1)
        mean, variance = predicted.mean, predicted.variance
    noisy = kernel(x).to_dense() + model.likelihood.noise * torch.eye(120)
    cross = kernel(x[:9] + 0.1, x).to_dense()
    torch.testing.assert_close(mean, cross @ torch.linalg.solve(noisy, y))
    expected = kernel(x[:9] + 0.1).to_dense() - cross @ torch.linalg.solve(noisy, cross.mT)
    torch.testing.assert_close(variance, expected.diagonal(), rtol=2e-2, atol=1e-6)
    assert mean.dtype == variance.dtype == torch.float64


@pytest.mark.parametrize("most_dense", [800, 100])
@pytest.mark.parametrize("name", ["group", "membership", "gamma_mondrian", "local_linear"])
def test_models_of_gpytorch_are_those_of_dense_matrices(name, most_dense):
    """At its own settings, where few groups and sets are solved for exactly, and above its limit of dense algebra."""
    x, new = rows_of(name).double().repeat(3, 1), rows_of(name)[:50].double().flip(-1)
    y = x[:, 0].sin() + torch.randn(360, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    kernel = ScaleKernel(kernel_of(name)).double()
    model = Model(x, y, kernel).double()
    model.likelihood.noise = 0.2
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    with linear_operator.settings.max_cholesky_size(most_dense), num_trace_samples(300), cg_tolerance(1e-8):
        found = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)(model(x), y)
        gradients = torch.autograd.grad(found, parameters)
        with torch.no_grad():
            latent = model.eval()(new)
            mean, variance = latent.mean, latent.variance
    noisy = kernel(x).to_dense() + model.likelihood.noise * torch.eye(360)
    expected = torch.distributions.MultivariateNormal(model.mean_module(x), noisy).log_prob(y) / 360
    tolerance = {"rtol": 1e-6, "atol": 1e-8} if most_dense == 800 else {"rtol": 0.01, "atol": 4e-3}
    torch.testing.assert_close(found, expected, **tolerance)
    for ours, theirs in zip(gradients, torch.autograd.grad(expected, parameters, retain_graph=True)):
        torch.testing.assert_close(ours, theirs, **tolerance)
    cross, constant = kernel(new, x).to_dense(), model.mean_module.constant
    torch.testing.assert_close(mean, constant + cross @ torch.linalg.solve(noisy, y - constant), rtol=1e-3, atol=1e-3)
    explained = (cross.mT * torch.linalg.solve(noisy, cross.mT)).sum(0)
    torch.testing.assert_close(variance, kernel(new, diag=True) - explained, rtol=0.011, atol=1e-9)


# Models whose hyperparameters are MCMC samples, one per batch element, saved and loaded again.

NEW = torch.rand(5, 10, generator=GENERATOR)


NUM_SAMPLES = 4


SAMPLES = {
    "likelihood.noise_covar.noise_prior": 0.05 + torch.rand(NUM_SAMPLES, 1, generator=GENERATOR),
    "scale": 0.5 + torch.rand(NUM_SAMPLES, generator=GENERATOR),
}


def model_of(kernel, wrap):
    likelihood = gpytorch.likelihoods.GaussianLikelihood(noise_prior=GammaPrior(2.0, 2.0))
    scaled = ScaleKernel(kernel, outputscale_prior=GammaPrior(2.0, 2.0))
    return Model(X, Y, wrap(scaled), likelihood, gpytorch.means.ZeroMean())


@pytest.mark.parametrize("name", ["forest", "landmark", "mixture", "local_linear"])
@pytest.mark.parametrize(
    ("wrap", "prefix"),
    [(lambda kernel: kernel, "covar_module"), (IterativeKernel, "covar_module.base_kernel")],
    ids=["plain", "iterative"],
)
def test_a_model_of_samples_predicts_the_same_after_a_reload(name, wrap, prefix):
    model, twin = model_of(kernel_of(name), wrap), model_of(kernel_of(name), wrap)
    model.pyro_load_from_samples(
        {f"{prefix}.outputscale_prior" if key == "scale" else key: value for key, value in SAMPLES.items()}
    )
    with pytest.raises(RuntimeError, match=r"load_strict_shapes\(False\)"):
        twin.load_state_dict(model.state_dict())
    twin.load_strict_shapes(False)
    twin.load_state_dict(model.state_dict())
    with torch.no_grad():
        predicted, again = (each.eval()(NEW.expand(NUM_SAMPLES, -1, -1)) for each in (model, twin))
        torch.testing.assert_close(again.mean, predicted.mean)
        torch.testing.assert_close(again.variance, predicted.variance)
        kernel = kernel_of(name)(X).to_dense()
        cross = kernel_of(name)(NEW, X).to_dense()
        for i in range(NUM_SAMPLES):
            noise = SAMPLES["likelihood.noise_covar.noise_prior"][i] / SAMPLES["scale"][i]
            mean = cross @ torch.linalg.solve(kernel + noise * torch.eye(120), Y)
            torch.testing.assert_close(predicted.mean[i], mean, rtol=1e-3, atol=1e-4)
        if name not in ("local_linear", "mixture"):  # parts that GPyTorch does not index, as no sample expanded them
            torch.testing.assert_close(twin.covar_module[2](X).to_dense(), SAMPLES["scale"][2] * kernel)


# What a kernel that is piecewise constant cannot do is refused with what to do instead.

INSTEAD_OF_LENGTHSCALE = {
    "forest": "min_samples_leaf",
    "fast_cluster": "height",
    "mondrian": "lifetime",
    "gamma_mondrian": "lifetime",
    "landmark": "base_kernel.lengthscale",
    "mixture": "mixture_weights",
    "local_linear": "variance",
}


@pytest.mark.parametrize("name", INSTEAD_OF_LENGTHSCALE)
def test_a_lengthscale_that_is_none_names_what_there_is(name):
    kernel, instead = kernel_of(name), INSTEAD_OF_LENGTHSCALE[name]
    with pytest.raises(AttributeError, match=f"{type(kernel).__name__} has no lengthscale.*{instead}"):
        kernel.lengthscale  # noqa: B018
    with pytest.raises(AttributeError, match=f"has no lengthscale.*{instead}"):
        kernel.lengthscale = 1.0
    with pytest.raises(AttributeError, match="lengthscale"):
        kernel.initialize(lengthscale=1.0)
    assert not kernel.has_lengthscale
    assert not kernel.is_stationary
    assert not hasattr(kernel, "lengthscale")
    assert getattr(ScaleKernel(kernel).base_kernel, "lengthscale", None) is None


def test_the_lengthscales_of_grids_are_read_only():
    kernel = kernel_of("random_binning")
    assert kernel.lengthscale.shape == (1, 10)
    with pytest.raises(AttributeError, match="new RandomBinningKernel"):
        kernel.lengthscale = 1.0
    with pytest.raises(AttributeError, match="no attribute 'other'"):
        kernel.other  # noqa: B018


@pytest.mark.parametrize("name", ["forest", "scaled", "iterative", "landmark"])
def test_traces_are_refused_with_what_to_save_instead(name):
    class Covariance(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.kernel = kernel_of(name)

        def forward(self, x):
            return self.kernel(x, X).to_dense()

    with torch.no_grad(), pytest.raises(RuntimeError, match="TorchScript.*state_dict"):
        torch.jit.trace(Covariance(), X[:5], check_trace=False)


class _Warped(Model):
    """A model of warped points, as of BoTorch's Warp or a network."""

    def __init__(self):
        super().__init__(X, Y, kernel_of("forest"), gpytorch.likelihoods.GaussianLikelihood())
        self.exponent = torch.nn.Parameter(torch.tensor(1.2))

    def forward(self, x):
        return super().forward(x.abs() ** self.exponent)


@pytest.mark.parametrize("most_dense", [800, 10])
def test_points_with_gradients_by_parameters_alone_are_predicted(most_dense):
    model, new = _Warped(), X[:5] + 0.1
    with pytest.raises(RuntimeError, match="piecewise constant in x"):
        model(X)
    model.eval()
    with iterative(), linear_operator.settings.max_cholesky_size(most_dense):
        predicted = model(new)
        mean, variance = predicted.mean, predicted.variance
        with torch.no_grad():
            expected = Model(X.abs() ** 1.2, Y, kernel_of("forest"), model.likelihood).eval()(new.abs() ** 1.2)
            torch.testing.assert_close(mean, expected.mean, rtol=1e-3, atol=1e-3)
            torch.testing.assert_close(variance, expected.variance, rtol=2e-2, atol=0)
        with pytest.raises(RuntimeError, match="piecewise constant in x"):
            model(new.requires_grad_())


@pytest.mark.parametrize("name", NAMES)
def test_transforms_of_functions_are_refused_and_leave_nothing_behind(name):
    """Labels of rows that were computed inside a transform are no plain tensors, and were kept for later calls."""
    model = Model(X, Y, ScaleKernel(kernel_of(name)), gpytorch.likelihoods.GaussianLikelihood())
    model.eval()
    points, expected = X[:5] + 0.1, ScaleKernel(kernel_of(name))(X[:5] + 0.1, X).to_dense()

    def mean(x):
        return model(x).mean.sum()

    def covariance(parameters):
        return torch.func.functional_call(model.covar_module, parameters, (points, X)).to_dense().sum()

    for transformed in (
        lambda: torch.func.grad(mean)(points),
        lambda: torch.func.grad(covariance)(dict(model.covar_module.named_parameters())),
        lambda: torch.func.vmap(lambda x: model.covar_module(x, X).to_dense())(points.unsqueeze(1)),
        lambda: torch.func.jvp(mean, (points,), (points,)),
    ):
        with pytest.raises(RuntimeError, match=r"torch\.func.*batch.*torch\.autograd\.grad"):
            transformed()
    torch.testing.assert_close(model.covar_module(points, X).to_dense(), expected)
    assert model(points).mean.isfinite().all()


def test_compilers_run_kernels_as_they_are():
    """They took a minute to look at the code of a kernel, found dozens of graphs, and filled pages of logs."""
    kernel, counter = kernel_of("mondrian"), torch._dynamo.testing.CompileCounter()
    compiled = torch.compile(lambda x: 2 * kernel(x, X).to_dense(), backend=counter)
    assert torch.equal(compiled(X[:5]), 2 * kernel(X[:5], X).to_dense())
    assert counter.frame_count <= 2  # they were 219
