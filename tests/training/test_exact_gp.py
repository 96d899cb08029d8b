"""One call fits a user's model: against dense optimizers, within its own constraints, or with a reason why not."""

from __future__ import annotations

import copy
import warnings
from functools import cache
from unittest.mock import patch

import gpytorch
import numpy as np
import pytest
import scipy.optimize
import torch
from gpytorch.constraints import GreaterThan, Interval, Positive
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from gpytorch.means import ConstantMean, LinearMean, ZeroMean
from gpytorch.priors import GammaPrior
from sklearn.exceptions import ConvergenceWarning
from torch.distributions import MultivariateNormal

from gpytorch_partition import (
    FastClusterKernel,
    IterativeKernel,
    MondrianKernel,
    RandomBinningKernel,
    RandomForestKernel,
    fit_exact_gp,
    settings,
)
from gpytorch_partition.inference.evidence import spectral_likelihood
from gpytorch_partition.inference.prediction import method_costs
from gpytorch_partition.models import PartitionGP
from gpytorch_partition.training.marginal_likelihood import maximize_marginal_likelihood
from tests.random_states import untouched_random_states

NOISE = "likelihood.noise_covar.noise"
OUTPUTSCALE = "covar_module.outputscale"
EXACT = ["dense", "feature_space"]
ONE_PASS = [*EXACT, "cluster_space", "krylov"]


class Model(gpytorch.models.ExactGP):
    """Any mean and any kernel, as a user would write it."""

    def __init__(self, x, y, mean, covariance, likelihood=None, extractor=None):
        super().__init__(x, y, likelihood or GaussianLikelihood())
        self.mean_module, self.covar_module, self.extractor = mean, covariance, extractor
        self.to(x)

    def forward(self, x):
        seen = x if self.extractor is None else self.extractor(x).detach()
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(seen))


@cache
def problem(num_rows=200, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(num_rows, 3, generator=generator, dtype=torch.float64)
    noise = torch.randn(num_rows, generator=generator, dtype=torch.float64)
    y = (6 * x[:, 0]).sin() + 2 * x[:, 1] * x[:, 2] + 0.4 * noise
    return x.to(dtype), ((y - y.mean()) / y.std() + 0.5).to(dtype)


@cache
def mondrian(num_rows=200, dtype=torch.float64, seed=0):
    kernel = MondrianKernel(problem(num_rows, dtype)[0], num_trees=30, random_state=seed)
    kernel.lifetime = kernel.lifetime  # is chosen, so that a fit has nothing to say
    return kernel


def kernel(**options):
    return copy.deepcopy(mondrian(**options))


def plain_model(num_rows=200, dtype=torch.float64, factor=1.0, likelihood=None):
    x, y = problem(num_rows, dtype)
    return PartitionGP(x, factor * y, likelihood or GaussianLikelihood(), kernel(num_rows=num_rows, dtype=dtype))


def fit(model, **options):
    return fit_exact_gp(model, model.likelihood, **options)


def values(model):
    """Outputscale, noise and mean, from where the model keeps them."""
    return model.covar_module.outputscale.item(), model.likelihood.noise.item(), model.mean_module.constant.item()


def dense_log_likelihood(model):
    """Of a model's training targets at its own values, by Cholesky in float64."""
    model = copy.deepcopy(model).double().train()
    prior = model(*model.train_inputs)
    covariance = prior.lazy_covariance_matrix.to_dense()
    noise = model.likelihood.noise.unsqueeze(-1) * torch.eye(covariance.shape[-1], dtype=torch.float64)
    exact = MultivariateNormal(prior.mean, covariance + noise)
    return exact.log_prob(model.train_targets).sum().item()


# Against dense algebra at 2,000 rows.


@cache
def large_kernel(name):
    x, y = problem(2_000, torch.float32)
    return (
        RandomForestKernel(x, y, 50, random_state=0) if name == "forest" else FastClusterKernel(x, 50, random_state=0)
    )


def dense_optimum(covariance, y):
    """The best likelihood, outputscale and noise of dense algebra, by a search in all three values."""
    eigenvalues, vectors = (part.numpy() for part in torch.linalg.eigh(covariance.double()))
    rotated, ones = vectors.T @ y.double().numpy(), vectors.sum(0)

    def objective(position):
        variances = np.exp(position[0]) * eigenvalues + np.exp(position[1])
        return 0.5 * ((rotated - position[2] * ones) ** 2 / variances + np.log(2 * np.pi * variances)).sum()

    found = scipy.optimize.minimize(objective, np.array([-1.0, -1.0, 0.0]), method="BFGS")
    return -found.fun, *np.exp(found.x[:2])


@cache
def large_optimum(name):
    x, y = problem(2_000, torch.float32)
    with torch.no_grad():
        return dense_optimum(large_kernel(name)(x).to_dense(), y)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "method"), [("cluster", "krylov"), ("forest", "cluster_space")])
def test_with_enough_probes_lanczos_steps_are_dense_algebra(name, method):
    x, y = problem(2_000, torch.float32)
    model = PartitionGP(x, y, GaussianLikelihood(), large_kernel(name))
    found = fit(model, method=method, num_probes=1_000)
    best, outputscale, noise = large_optimum(name)
    assert found.method == method
    assert found.converged
    assert found.at_bounds == {}
    assert found.log_marginal_likelihood == pytest.approx(best, abs=1e-3 * 2_000)
    assert found.log_marginal_likelihood == pytest.approx(best, abs=4 * found.standard_error)
    # These clusters are more than the rows: in their space errors are larger.
    assert 0 < found.standard_error < (3.3e-4 if method == "krylov" else 6e-4) * 2_000
    assert values(model)[:2] == pytest.approx((outputscale, noise), rel=0.02)


# What is written, and where.


def test_few_rows_are_dense_and_exact():
    model = plain_model()
    found = fit(model)
    best, outputscale, noise = dense_optimum(kernel()(problem()[0]).to_dense().detach(), problem()[1])
    assert (found.method, found.standard_error, found.num_iterations) == ("dense", 0, 0)
    assert found.converged
    assert found.at_bounds == {}
    assert found.log_marginal_likelihood == pytest.approx(best, abs=1e-6)
    assert values(model)[:2] == pytest.approx((outputscale, noise), rel=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("method", ONE_PASS)
def test_the_values_are_in_the_models_own_modules(method, dtype):
    model = plain_model(dtype=dtype)
    parameters = dict(model.named_parameters())
    found = fit(model, method=method)
    assert all(parameters[name] is parameter for name, parameter in model.named_parameters())
    assert all(parameter.dtype == dtype for parameter in model.parameters())
    slack = 5 * found.standard_error or 1e-3
    assert found.log_marginal_likelihood == pytest.approx(dense_log_likelihood(model), abs=slack)


@pytest.mark.parametrize("mode", [False, True])
@pytest.mark.parametrize("method", ["auto", "krylov", "l-bfgs"])
def test_the_models_mode_stays(method, mode):
    model = plain_model(num_rows=100)
    model.train(mode)
    fit(model, method=method)
    assert model.training == model.likelihood.training == mode


def test_predictions_afterwards_are_those_of_the_new_values():
    model = plain_model()
    points = torch.rand(5, 3, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    model.eval()
    with torch.no_grad():
        before = model(points).mean
        fit(model)
        after = model(points).mean
        outputscale, noise, mean = values(model)
        covariance = outputscale * kernel()(problem()[0]).to_dense() + noise * torch.eye(200, dtype=torch.float64)
        cross = outputscale * kernel()(points, problem()[0]).to_dense()
        expected = mean + cross @ torch.linalg.solve(covariance, problem()[1] - mean)
    assert not torch.allclose(before, after, atol=1e-3)
    torch.testing.assert_close(after, expected)


@pytest.mark.parametrize(("factor", "level"), [(1e-4, 0.0), (1e4, 0.0), (1.0, 1024.0)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("method", ONE_PASS)
def test_the_unit_and_the_level_of_the_targets_do_not_matter(method, dtype, factor, level):
    ends = []
    for unit, shift in ((1.0, 0.0), (factor, level)):
        model = plain_model(dtype=dtype, factor=unit, likelihood=GaussianLikelihood(noise_constraint=Positive()))
        model.set_train_data(targets=model.train_targets + shift, strict=False)
        assert fit(model, method=method).at_bounds == {}
        outputscale, noise, mean = values(model)
        ends.append((outputscale / unit**2, noise / unit**2, (mean - shift) / unit))
    assert ends[0][:2] == pytest.approx(ends[1][:2], rel=2e-3)
    assert ends[0][2] == pytest.approx(ends[1][2], rel=2e-3, abs=1e-3 if level else 0)


# Constraints, priors, fixed values, other means.


@pytest.mark.parametrize("method", ONE_PASS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_constraints_are_kept_and_values_at_a_bound_told(method, dtype):
    free = plain_model(dtype=dtype)
    fit(free)
    outputscale, noise, _ = values(free)
    model = plain_model(dtype=dtype)
    model.covar_module.register_constraint("raw_outputscale", Interval(outputscale / 50, outputscale / 4))
    model.likelihood.noise_covar.register_constraint("raw_noise", GreaterThan(2 * noise))
    with pytest.warns(ConvergenceWarning) as told:
        found = fit(model, method=method)
    assert sorted(str(warning.message).split(" ")[0] for warning in told) == [OUTPUTSCALE, NOISE]
    assert [("explains nothing" in str(warning.message)) for warning in told] == [False, False]  # the upper bound
    assert set(found.at_bounds) == {OUTPUTSCALE, NOISE}
    assert found.at_bounds[OUTPUTSCALE] == model.covar_module.outputscale.item()
    assert values(model)[:2] == pytest.approx((outputscale / 4, 2 * noise), rel=1e-4)
    assert all(parameter.isfinite().all() for parameter in model.parameters())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("outputscale", "noise"),
    [
        (Interval(1e-4, 300.0), GreaterThan(500.0)),
        (Interval(200.0, 300.0), Interval(1e-8, 1e-6)),
        (GreaterThan(100.0), Interval(300.0, 1e5)),
    ],
)
def test_a_value_at_a_bound_of_any_size_leaves_parameters_that_can_be_trained_on(outputscale, noise, dtype):
    model = plain_model(dtype=dtype)
    model.covar_module.register_constraint("raw_outputscale", outputscale)
    model.likelihood.noise_covar.register_constraint("raw_noise", noise)
    with pytest.warns(ConvergenceWarning, match="at a bound"):
        fit(model)
    (model.covar_module.outputscale + model.likelihood.noise).sum().backward()
    for parameter in (model.covar_module.raw_outputscale, model.likelihood.noise_covar.raw_noise):
        assert parameter.isfinite().all()
        assert parameter.grad.isfinite().all()


@pytest.mark.parametrize(
    "where", ["both", *(pytest.param(k, marks=pytest.mark.slow) for k in ("outputscale", "noise"))]
)
def test_priors_count_as_they_do_for_l_bfgs(where):
    models = [plain_model(num_rows=100) for _ in range(3)]
    for model in models[:2]:
        if where != "noise":
            model.covar_module.register_prior("outputscale_prior", GammaPrior(60.0, 30.0), "outputscale")
        if where != "outputscale":
            model.likelihood.noise_covar.register_prior("noise_prior", GammaPrior(90.0, 100.0), "noise")
    one, other, free = models
    found = fit(one)
    fit(free)
    maximize_marginal_likelihood(other, other.likelihood)
    assert found.method == "dense"
    assert found.log_marginal_likelihood == pytest.approx(dense_log_likelihood(one), abs=1e-6)
    assert values(one)[:2] == pytest.approx(values(other)[:2], rel=0.03)
    assert abs(np.log(values(one)[:2]) - np.log(values(free)[:2])).max() > 0.3


def fix(model, *names):
    """Let the parameters with these in their names not be trained."""
    for name, parameter in model.named_parameters():
        if any(part in name for part in names):
            parameter.requires_grad_(False)
    return model


def fixed(*names):
    model = plain_model()
    model.covar_module.outputscale, model.likelihood.noise, model.mean_module.constant = 3.0, 0.6, 2.0
    return fix(model, *names)


@pytest.mark.parametrize("names", [("outputscale",), ("noise",), ("constant",), ("outputscale", "constant"), ("raw_",)])
def test_what_is_not_trained_stays(names):
    model = fixed(*names)
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    found = fit(model)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, before[name]) == (not parameter.requires_grad), name
    assert found.method == "dense"
    assert found.log_marginal_likelihood == pytest.approx(dense_log_likelihood(model), abs=1e-6)
    if any(parameter.requires_grad for parameter in model.parameters()):
        other = fixed(*names)
        expected = maximize_marginal_likelihood(other, other.likelihood)
        assert found.log_marginal_likelihood == pytest.approx(expected.log_marginal_likelihood, abs=0.02)
        assert found.log_marginal_likelihood > expected.log_marginal_likelihood - 1e-6


def fixed_slope():
    mean = LinearMean(3).double()
    mean.initialize(weights=torch.tensor([[1.0], [-2.0], [0.5]]), bias=0.3)
    return mean.requires_grad_(False)


FORMS = {
    "no ScaleKernel": lambda: (ConstantMean(), kernel()),
    "ZeroMean": lambda: (ZeroMean(), ScaleKernel(kernel())),
    "neither": lambda: (ZeroMean(), kernel()),
    "a fixed slope": lambda: (fixed_slope(), ScaleKernel(kernel())),
}


@pytest.mark.parametrize("method", ONE_PASS)
@pytest.mark.parametrize("form", FORMS)
def test_other_models_of_this_form(form, method):
    one, other = (Model(*problem(), *FORMS[form]()) for _ in range(2))
    found, expected = fit(one, method=method), maximize_marginal_likelihood(other, other.likelihood)
    slack = max(0.02, 4 * found.standard_error)
    assert found.method == method
    assert found.log_marginal_likelihood == pytest.approx(dense_log_likelihood(one), abs=slack)
    assert dense_log_likelihood(one) == pytest.approx(expected.log_marginal_likelihood, abs=0.1)
    assert one.likelihood.noise.item() == pytest.approx(other.likelihood.noise.item(), rel=0.05)


# Several sets of targets on the same rows.


def several(count=3, is_batch=True):
    x, y = problem()
    generator = torch.Generator().manual_seed(3)
    noises = torch.tensor([0.0, 0.5, 1.5]).double().unsqueeze(-1)
    targets = y + noises * torch.randn(3, 200, generator=generator, dtype=torch.float64)
    if not is_batch:
        return [PartitionGP(x, row, GaussianLikelihood(), kernel()) for row in targets]
    batch = torch.Size([count])
    covariance = ScaleKernel(kernel(), batch_shape=batch)
    return Model(x, targets, ConstantMean(batch_shape=batch), covariance, GaussianLikelihood(batch_shape=batch))


@pytest.mark.parametrize("method", ONE_PASS)
def test_several_sets_of_targets_are_fitted_as_each_alone(method):
    together, alone = several(), several(is_batch=False)
    found, fits = fit(together, method=method), [fit(model, method=method) for model in alone]
    tolerance = 1e-6 if method in EXACT else 0.01
    assert found.log_marginal_likelihood == pytest.approx(sum(f.log_marginal_likelihood for f in fits), rel=tolerance)
    assert found.standard_error == pytest.approx(sum(f.standard_error for f in fits), rel=0.01)
    for position, model in enumerate(alone):
        parts = together.covar_module.outputscale, together.likelihood.noise[:, 0], together.mean_module.constant
        assert [part[position].item() for part in parts] == pytest.approx(values(model), rel=tolerance)


def test_fixed_values_of_several_sets_of_targets():
    together, alone = several(), several(is_batch=False)
    noises = torch.tensor([0.05, 0.4, 2.0], dtype=torch.float64)
    for model, noise in ((together, noises.unsqueeze(-1)), *zip(alone, noises)):
        model.likelihood.noise = noise
        model.likelihood.noise_covar.raw_noise.requires_grad_(False)
        fit(model)
    expected = [model.covar_module.outputscale.item() for model in alone]
    assert together.covar_module.outputscale.tolist() == pytest.approx(expected, rel=1e-6)
    torch.testing.assert_close(together.likelihood.noise.squeeze(-1), noises)


# Other models.


def shared_over_a_batch():
    model = several()
    return Model(model.train_inputs[0], model.train_targets, ConstantMean(), ScaleKernel(kernel()))


OTHERS = {
    "its covariance is a": lambda x, y: Model(x, y, ConstantMean(), ScaleKernel(kernel() + kernel(seed=1))),
    "it also trains covar_module": lambda x, y: PartitionGP(x, y, GaussianLikelihood(), kernel() + RBFKernel()),
    "covariance is a PartitionSum": lambda x, y: Model(
        x, y, ConstantMean(), ScaleKernel(IterativeKernel(kernel() + kernel(seed=1)))
    ),
    "likelihood is a FixedNoise": lambda x, y: PartitionGP(
        x, y, FixedNoiseGaussianLikelihood(torch.full_like(y, 0.2)), kernel()
    ),
    "trains mean_module.weights": lambda x, y: Model(x, y, LinearMean(3), ScaleKernel(kernel())),
    "sets of targets share": lambda x, y: shared_over_a_batch(),
    "it also trains extractor": lambda x, y: Model(
        x, y, ConstantMean(), ScaleKernel(kernel()), extractor=torch.nn.Linear(3, 3)
    ),
    "batch elements have different rows": lambda x, y: Model(
        torch.stack([x, x.flip(0)]), torch.stack([y, y.flip(0)]), ConstantMean(), ScaleKernel(kernel())
    ),
    "2 modules of type ScaleKernel": lambda x, y: Model(x, y, ConstantMean(), ScaleKernel(ScaleKernel(kernel()))),
    "is more than an outputscale": lambda x, y: Model(x, y, ConstantMean(), Doubled(ScaleKernel(kernel()))),
    "mean is more than one constant": lambda x, y: Model(x, y, Shifted(), ScaleKernel(kernel())),
    "prior on the mean": lambda x, y: Model(
        x, y, ConstantMean(constant_prior=gpytorch.priors.NormalPrior(0.0, 1.0)), ScaleKernel(kernel())
    ),
}


def test_models_without_partitions_are_trained_by_l_bfgs_without_a_warning():
    x, y = problem()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ConvergenceWarning)
        assert fit(Model(x, y, ConstantMean(), ScaleKernel(RBFKernel()))).method == "l-bfgs"


class Doubled(gpytorch.kernels.Kernel):
    def __init__(self, base):
        super().__init__()
        self.base = base

    def forward(self, x1, x2, **options):
        return 2 * self.base.forward(x1, x2, **options)


class Shifted(ConstantMean):
    def forward(self, x):
        return super().forward(x) + x[..., 0]


@pytest.mark.parametrize("reason", OTHERS)
def test_other_models_are_trained_by_l_bfgs_after_a_warning(reason):
    model = OTHERS[reason](*problem())
    before = copy.deepcopy(model)
    model.eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        with pytest.warns(UserWarning, match=f"by L-BFGS rather than in one pass: .*{reason}") as told:
            found = fit(model)
    assert told[0].filename == __file__
    assert found.method == "l-bfgs"
    assert not model.training
    with settings.iterative():
        mll = [
            gpytorch.mlls.ExactMarginalLogLikelihood(m.likelihood, m)(m.train()(*m.train_inputs), m.train_targets)
            for m in (before, model)
        ]
    assert mll[1].sum() > mll[0].sum() + 0.002


# Bounds.


@pytest.mark.parametrize("method", [*ONE_PASS, "l-bfgs"])
def test_targets_without_noise_put_the_noise_at_its_bound(method):
    x, _ = problem()
    y = kernel()(x).to_dense().detach()[:, :20].sum(-1)
    model = PartitionGP(x, (y - y.mean()) / y.std(), GaussianLikelihood(), kernel())
    with pytest.warns(ConvergenceWarning, match=f"{NOISE} = .* at a bound .*too narrow"):
        found = fit(model, method=method)
    assert found.converged
    assert found.at_bounds == {NOISE: pytest.approx(1e-4, rel=1.0 if method == "l-bfgs" else 0.05)}


@pytest.mark.parametrize("method", ONE_PASS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_targets_that_are_all_noise_put_the_outputscale_at_its_bound(method, dtype):
    x = torch.cat([problem(100, dtype)[0]] * 2)
    y = torch.randn(100, generator=torch.Generator().manual_seed(5), dtype=dtype)
    opposite = torch.cat([y, -y])  # twice every row, with opposite targets
    model = PartitionGP(x, opposite, GaussianLikelihood(), kernel(num_rows=100, dtype=dtype))
    with pytest.warns(ConvergenceWarning, match=f"{OUTPUTSCALE} = .*explains nothing") as told:
        found = fit(model, method=method)
    assert found.converged
    assert len(told) == 1
    assert list(found.at_bounds) == [OUTPUTSCALE]
    assert model.likelihood.noise.item() == pytest.approx(opposite.square().mean().item(), rel=1e-3)


@pytest.mark.parametrize("method", ONE_PASS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("level", [0.0, 3.0, -1e4])
def test_constant_targets_are_their_own_mean(level, dtype, method):
    model = plain_model(num_rows=100, dtype=dtype)
    model.set_train_data(targets=torch.full((100,), level, dtype=dtype), strict=False)
    with pytest.warns(ConvergenceWarning, match="at a bound"):
        found = fit(model, method=method)
    assert np.isfinite(found.log_marginal_likelihood)
    assert {NOISE, OUTPUTSCALE} == set(found.at_bounds)
    assert model.mean_module.constant.item() == pytest.approx(level, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("method", [*ONE_PASS, "l-bfgs"])
def test_an_ordinary_fit_says_nothing(method):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(plain_model(), method=method)


def test_too_few_steps_are_told():
    with patch.object(spectral_likelihood, "CHECKPOINTS", (3, 5)), pytest.warns(ConvergenceWarning) as told:
        found = fit(plain_model(), method="krylov")
    assert any("after 5 Lanczos steps" in str(warning.message) for warning in told)
    assert not found.converged
    assert found.num_iterations == 5


# Errors.


def with_target(value):
    model = plain_model(num_rows=100)
    targets = model.train_targets.clone()
    targets[3] = value
    model.set_train_data(targets=targets, strict=False)
    return model


@pytest.mark.parametrize(
    ("build", "options", "message"),
    [
        (lambda: with_target(torch.nan), {}, "finite training targets.*drop these rows"),
        (lambda: with_target(-torch.inf), {"method": "krylov"}, "finite training targets"),
        (lambda: with_target(torch.nan), {"method": "l-bfgs"}, "finite training targets"),
        (plain_model, {"method": "cholesky"}, "expected a method among .*krylov.*got 'cholesky'"),
        (plain_model, {"num_probes": 0}, "probe vectors, 1 or more, got num_probes=0"),
        (plain_model, {"method": "krylov", "num_probes": -3}, "probe vectors, 1 or more, got num_probes=-3"),
    ],
)
def test_errors_come_before_any_work_and_leave_the_model_alone(build, options, message):
    model = build()
    model.eval()
    before = copy.deepcopy(model.state_dict())
    with (
        patch.object(gpytorch.models.ExactGP, "__call__", side_effect=AssertionError),
        pytest.raises(ValueError, match=message),
    ):
        fit(model, **options)
    assert not model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


# Determinism.


@pytest.mark.parametrize("method", ONE_PASS)
def test_a_second_call_gives_the_same_bits_whatever_the_global_random_state(method):
    model = plain_model(dtype=torch.float32)
    ends = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002 (the global state is what is tested)
        with untouched_random_states():
            found = fit(model, method=method)
        ends.append((found, values(model)))
    assert ends[0] == ends[1]


def test_the_seed_of_the_probes_is_a_setting():
    ends = []
    for seed in (0, 1):
        with settings.probe_seed(seed):
            ends.append(fit(plain_model(), method="krylov", num_probes=5).log_marginal_likelihood)
    assert ends[0] != ends[1]


# Few rows.


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("num_rows", [2, 7])
def test_krylov_by_name_with_few_rows(num_rows, dtype):
    one, other = plain_model(num_rows=num_rows, dtype=dtype), plain_model(num_rows=num_rows, dtype=dtype)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found, dense = fit(one, method="krylov", num_probes=1_000), fit(other, method="dense")
    assert found.method == "krylov"
    assert found.converged
    assert not any("improving" in str(warning.message) for warning in told)
    # The fit to an estimate is better in its own eyes: both estimate and choice are off by a few standard errors.
    slack = 5 * found.standard_error + 1e-3
    assert found.log_marginal_likelihood == pytest.approx(dense.log_marginal_likelihood, abs=slack)
    assert dense_log_likelihood(one) == pytest.approx(dense.log_marginal_likelihood, abs=slack)


class _Unusual(PartitionGP):
    """Its prior at the initial constant 0 is that of the plain model."""

    def forward(self, x):
        mean = self.mean_module(x) * (2.0 if self.doubles else x[..., 0])
        return gpytorch.distributions.MultivariateNormal(mean, self.covar_module(x))


@pytest.mark.parametrize("doubles", [True, False])
def test_a_mean_that_is_the_constant_at_first_only(doubles):
    x = torch.rand(150, 2, generator=torch.Generator().manual_seed(0))
    model = _Unusual(
        x, x[:, 0] + 3, gpytorch.likelihoods.GaussianLikelihood(), FastClusterKernel(x, 20, random_state=0)
    )
    model.doubles = doubles
    with pytest.warns(UserWarning, match="more than one constant"):
        assert fit_exact_gp(model, model.likelihood).method == "l-bfgs"


@pytest.mark.parametrize("noise", [1e-6, 1e-4])
def test_a_small_fixed_noise_leaves_the_outputscale_free(noise):
    x = torch.rand(150, 1, generator=torch.Generator().manual_seed(0)).double()
    likelihood = gpytorch.likelihoods.GaussianLikelihood(noise_constraint=gpytorch.constraints.Positive())
    model = PartitionGP(x, 1e3 * (6 * x[:, 0]).sin(), likelihood, FastClusterKernel(x, 50, random_state=0))
    likelihood.noise = noise
    likelihood.noise_covar.raw_noise.requires_grad_(False)
    found = fit_exact_gp(model, likelihood).log_marginal_likelihood
    model.train()
    best = model.covar_module.outputscale.item()
    for factor in (0.5, 2.0):
        model.covar_module.outputscale = best * factor
        assert likelihood(model(x)).log_prob(model.train_targets).item() < found


@pytest.mark.parametrize(
    ("most_cubes", "num_trees", "expected"),
    [(10**6, 5, "feature_space"), (1, 5, "cluster_space"), (1, 200, "krylov")],  # 200 trees have more cells than rows
)
def test_above_the_dense_limit_what_is_expected_to_be_faster_is_taken(monkeypatch, most_cubes, num_trees, expected):
    x, y = problem(2_100, torch.float32)
    monkeypatch.setattr(method_costs, "_EIGENVECTORS", most_cubes)
    model = PartitionGP(x, y, GaussianLikelihood(), MondrianKernel(x, num_trees, lifetime=3.0, random_state=0))
    assert fit_exact_gp(model, model.likelihood).method == expected


class _Failing(GammaPrior):
    """A prior that cannot be evaluated a third time."""

    calls = 0

    def log_prob(self, x):
        self.calls += 1
        if self.calls > 2:
            raise ArithmeticError("no density here")
        return super().log_prob(x)


def test_an_error_during_the_search_leaves_the_values_as_they_were():
    x, y = problem()
    prior = _Failing(2.0, 1.0)
    model = PartitionGP(x, y, GaussianLikelihood(noise_prior=prior), kernel())
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ArithmeticError):
        fit_exact_gp(model.eval(), model.likelihood)
    assert prior.calls == 3
    assert not model.training
    assert not model.likelihood.training
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name


@pytest.mark.parametrize("train", [fit_exact_gp, maximize_marginal_likelihood])
def test_another_likelihood_than_the_models_own_is_refused(train):
    x = torch.rand(60, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    model = PartitionGP(x, x.sum(-1).sin(), GaussianLikelihood(), FastClusterKernel(x, 10, random_state=0))
    with pytest.raises(ValueError, match="expected the model's own likelihood"):
        train(model, GaussianLikelihood())


class TestWidths:
    """A Mondrian kernel's lifetime is not trained, which is said where nobody has chosen it."""

    X = torch.rand(60, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def fit(self, kernel):
        likelihood = GaussianLikelihood()
        fit_exact_gp(PartitionGP(self.X, self.X.sum(-1).sin(), likelihood, kernel), likelihood)

    def kernel(self, **options):
        return MondrianKernel(self.X, 10, random_state=0, **options)

    def test_never_chosen(self):
        with pytest.warns(UserWarning, match="the lengthscale of a RandomBinningKernel .* GammaMondrianKernel"):
            self.fit(RandomBinningKernel(self.X, 10, random_state=0))
        for kernel, is_cut in ((self.kernel(), False), (self.kernel(max_lifetime=50.0), True)):
            with pytest.warns(UserWarning, match="lifetime_sweep") as caught:
                self.fit(kernel)
            assert __file__ in {each.filename for each in caught}
            assert ("max_lifetime" in str(caught[0].message)) != is_cut  # trees that go on need no others

    def test_chosen(self, recwarn):
        by_hand, by_cut = self.kernel(max_lifetime=9.0), self.kernel(max_lifetime=9.0).cut(2.0)
        by_hand.lifetime = 3.0
        grids = RandomBinningKernel(self.X, 10, lengthscale=0.5, random_state=0)
        for kernel in (self.kernel(lifetime=2.0), by_hand, by_cut, grids):
            self.fit(kernel)
        assert not [each for each in recwarn if "lifetime" in str(each.message) or "lengthscale" in str(each.message)]
