"""
Whole models on every path that GPyTorch takes: are the numbers right, who solves, and does anything become dense?

N = 600 is above `max_cholesky_size` and `min_preconditioning_size`, which are 500 inside `many_rows()`.
"""

from __future__ import annotations

from unittest.mock import patch

import gpytorch
import linear_operator
import pytest
import torch
from gpytorch.kernels import ConstantKernel, LinearKernel, RBFKernel, ScaleKernel
from linear_operator.operators import BlockDiagLinearOperator, LinearOperator

from gpytorch_partition import (
    FastClusterKernel,
    IterativeKernel,
    LandmarkKernel,
    LocalLinearKernel,
    PartitionKernel,
    RandomForestKernel,
    settings,
)
from gpytorch_partition.inference.prediction.predictive_covariance import PredictiveCovarianceLinearOperator
from gpytorch_partition.inference.prediction.strategy import PartitionPredictionStrategy
from gpytorch_partition.operators import guards, loadings
from gpytorch_partition.solvers import preconditioners
from tests.limits import many_rows

N, N_TEST = 600, 40
GENERATOR = torch.Generator().manual_seed(11)
X = torch.randn(N, 3, generator=GENERATOR)
Y = X[:, 0].sin() + X[:, 1].abs() + 0.3 * torch.randn(N, generator=GENERATOR)
TEST = torch.randn(N_TEST, 3, generator=GENERATOR)
NOISES = 0.1 + 0.2 * torch.rand(N, generator=GENERATOR)


class Model(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood, covar_module, batch_shape=()):
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean(batch_shape=torch.Size(batch_shape))
        self.covar_module = covar_module

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def _cluster(**kwargs):
    return FastClusterKernel(X, 20, height=6, random_state=0, **kwargs)


def _forest(**kwargs):
    return RandomForestKernel(X, Y, 15, random_state=0, **kwargs)


def _landmarks():
    return LandmarkKernel(X, Y, 60, num_rows=200, random_state=0)


def _scaled(kernel, scale=1.5):
    kernel = ScaleKernel(kernel)
    kernel.outputscale = scale
    return kernel


COVARIANCES = {
    "alone": _cluster,
    "scaled": lambda: _scaled(_cluster()),
    "forest": lambda: _scaled(_forest()),
    "own + own": lambda: IterativeKernel(_scaled(_cluster()) + _scaled(_forest())),
    "own + RBF": lambda: IterativeKernel(_scaled(_cluster()) + _scaled(RBFKernel(), 0.3)),
    "RBF + own": lambda: IterativeKernel(_scaled(RBFKernel(), 0.3) + _scaled(_cluster())),
    "own + linear": lambda: IterativeKernel(_scaled(_forest()) + LinearKernel()),
    "linear + own": lambda: IterativeKernel(LinearKernel() + _scaled(_forest())),
    "own + constant": lambda: IterativeKernel(_scaled(_cluster()) + ConstantKernel()),
    "constant + own": lambda: IterativeKernel(ConstantKernel() + _scaled(_cluster())),
    "local linear": lambda: _scaled(LocalLinearKernel(_cluster(), 3)),
    "landmarks": lambda: _scaled(_landmarks()),
    "all parts": lambda: IterativeKernel(
        _scaled(_forest()) + _scaled(LocalLinearKernel(_cluster(), 3), 0.4) + LinearKernel() + _scaled(_landmarks())
    ),
}


def _model(name, fixed_noise=False):
    likelihood = (
        gpytorch.likelihoods.FixedNoiseGaussianLikelihood(NOISES)
        if fixed_noise
        else gpytorch.likelihoods.GaussianLikelihood()
    )
    if not fixed_noise:
        likelihood.noise = 0.2
    return Model(X, Y, likelihood, COVARIANCES[name]())


def _dense_posterior(model, test=TEST):
    """The textbook, in float64."""
    with torch.no_grad():
        joint = torch.cat([X, test])
        prior = model.covar_module(joint).to_dense().double()
        noise = (
            NOISES
            if isinstance(model.likelihood.noise, torch.Tensor) and model.likelihood.noise.numel() == N
            else model.likelihood.noise
        )
        train = prior[:N, :N] + torch.diag_embed(noise.double().expand(N))
        cross = prior[N:, :N]
        mean = model.mean_module(joint).double()
        weights = torch.linalg.solve(train, torch.cat([(Y - mean[:N]).double().unsqueeze(-1), cross.mT], -1))
        covariance = prior[N:, N:] - cross @ weights[:, 1:]
        log_prob = torch.distributions.MultivariateNormal(mean[:N], train).log_prob(Y.double()) / N
        return mean[N:] + cross @ weights[:, 0], covariance, log_prob


@pytest.fixture(autouse=True)
def solved_for():
    """Variances by conjugate gradients, whatever would be faster at this size."""
    with settings.predictive_variances("conjugate_gradients"):
        yield


@pytest.fixture
def counted():
    """Counts how often the Nystrom preconditioner of this package is applied."""
    counts = {"applied": 0}
    original = preconditioners.NystromPreconditioner.inverse_closure

    def counting(self):
        closure = original(self)

        def apply(vectors):
            counts["applied"] += 1
            return closure(vectors)

        return apply

    with patch.object(preconditioners.NystromPreconditioner, "inverse_closure", counting):
        yield counts


def _gradients(model):
    return [(name, p.grad.double()) for name, p in model.named_parameters() if p.requires_grad]


def _exact_gradients(name):
    """By GPyTorch's dense Cholesky in float64."""
    model = _model(name).double()
    with linear_operator.settings.max_cholesky_size(N + 1):
        mll = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
        (-mll(model(X.double()), Y.double())).backward()
    return _gradients(model)


@pytest.mark.parametrize("name", COVARIANCES)
def test_every_path_is_exact_and_ours(name, counted):
    """The table of internals 2.3: training, mean and variance, each with this package's preconditioner."""
    model = _model(name)
    with many_rows():
        mll = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
        value = mll(model(X), Y)
        (-value).backward()
        trained = counted["applied"]
        model.eval()
        with torch.no_grad():
            posterior = model(TEST)
            mean = posterior.mean
            predicted = counted["applied"]
            variance = posterior.variance
    assert 0 < trained < predicted < counted["applied"]
    assert isinstance(model.prediction_strategy, PartitionPredictionStrategy)
    exact_mean, exact_covariance, exact_value = _dense_posterior(model)
    torch.testing.assert_close(mean.double(), exact_mean, rtol=0.0, atol=2e-3)
    torch.testing.assert_close(variance.double(), exact_covariance.diagonal(), rtol=0.01, atol=1e-5)
    assert (variance.double() > exact_covariance.diagonal() * (1 - 1e-3)).all()
    assert abs(float(value) - float(exact_value)) < 0.02
    for (_, gradient), (_, exact) in zip(_gradients(model), _exact_gradients(name), strict=True):
        # Ten probes; GPyTorch's default settings are off by .05 here.
        torch.testing.assert_close(gradient, exact, rtol=0.0, atol=0.01)


def test_fixed_noise(counted):
    model = _model("scaled", fixed_noise=True)
    with many_rows():
        mll = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
        (-mll(model(X), Y)).backward()
        assert counted["applied"] > 0
        model.eval()
        with torch.no_grad():
            posterior = model(TEST)
    mean, covariance, _ = _dense_posterior(model)
    torch.testing.assert_close(posterior.mean.double(), mean, rtol=0.0, atol=2e-3)
    torch.testing.assert_close(posterior.variance.double(), covariance.diagonal(), rtol=0.01, atol=1e-5)


class Dense(Exception):  # noqa: N818
    """Something of size N x N or N x p was formed."""


@pytest.fixture
def tripwire():
    """Fails when an operator with over 500 rows and columns becomes dense, or a dense factorization is that large."""
    to_dense = LinearOperator.to_dense

    def checked_to_dense(self):
        if min(self.matrix_shape) > 500:
            raise Dense(f"{type(self).__name__} of shape {tuple(self.shape)}")
        return to_dense(self)

    def checked(function):
        def call(matrix, *args, **kwargs):
            if torch.is_tensor(matrix) and min(matrix.shape[-2:]) > 500:
                raise Dense(f"{function.__name__} of shape {tuple(matrix.shape)}")
            return function(matrix, *args, **kwargs)

        return call

    with (
        patch.object(LinearOperator, "to_dense", checked_to_dense),
        patch("torch.linalg.eigh", checked(torch.linalg.eigh)),
        patch("torch.linalg.cholesky_ex", checked(torch.linalg.cholesky_ex)),
        patch("torch.linalg.svd", checked(torch.linalg.svd)),
        patch("torch.linalg.qr", checked(torch.linalg.qr)),
    ):
        yield


@pytest.mark.parametrize("name", [name for name in COVARIANCES if "RBF" not in name])
def test_nothing_becomes_dense(name, tripwire):
    model = _model(name)
    with many_rows():
        mll = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
        (-mll(model(X), Y)).backward()
        model.eval()
        with torch.no_grad():
            model(TEST).variance.sum().item()
            model(torch.cat([TEST] * 60)).mean.sum().item()  # 2,400 test points
        fantasy = model.get_fantasy_model(TEST[:3], torch.zeros(3))
        with torch.no_grad():
            fantasy(TEST[3:]).variance.sum().item()


def test_the_tripwire_trips(tripwire):
    with pytest.raises(Dense):
        _cluster()(X).evaluate_kernel().to_dense()


def test_no_tensor_is_larger_than_the_codes():
    """The largest tensor of training and prediction is the table of codes (or a block of right-hand sides)."""
    largest = []

    class Watch(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor):
                largest.append(result.numel() if result.layout == torch.strided else result._nnz())
            return result

    model = _model("scaled")
    with many_rows(), Watch():
        mll = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
        (-mll(model(X), Y)).backward()
        model.eval()
        with torch.no_grad():
            model(TEST).variance.sum().item()
    assert max(largest) <= max(100 * N, 2**16)  # the Nystrom factor's 100 columns, a block; N x N would be 600 columns


def test_mean_alone_solves_for_no_variance(counted):
    model = _model("scaled").eval()
    with many_rows(), torch.no_grad():
        model(TEST).mean.sum().item()
        once = counted["applied"]
        model(TEST + 0.1).mean.sum().item()
        assert counted["applied"] == once


def test_means_and_variances_do_not_depend_on_the_other_rows():
    model = _model("forest").eval()
    with many_rows(), torch.no_grad():
        together = model(TEST)
        alone = [model(TEST[i : i + 1]) for i in range(3)]
    for i in range(3):
        assert torch.equal(alone[i].mean, together.mean[i : i + 1])
        torch.testing.assert_close(alone[i].variance, together.variance[i : i + 1], rtol=0.011, atol=0.0)


def test_fast_pred_var_is_not_trusted():
    model = _model("scaled").eval()
    with many_rows(), torch.no_grad(), gpytorch.settings.fast_pred_var():
        variance = model(TEST).variance
    _, covariance, _ = _dense_posterior(model)
    torch.testing.assert_close(variance.double(), covariance.diagonal(), rtol=0.01, atol=1e-5)


def test_skip_posterior_variances():
    model = _model("scaled").eval()
    with many_rows(), torch.no_grad(), gpytorch.settings.skip_posterior_variances():
        posterior = model(TEST)
    assert posterior.variance.abs().max() < 1e-5


def test_covariance_samples_and_likelihood_of_the_posterior():
    model = _model("scaled").eval()
    _, exact, _ = _dense_posterior(model)
    with many_rows(), torch.no_grad():
        posterior = model(TEST)
        assert isinstance(posterior.lazy_covariance_matrix, PredictiveCovarianceLinearOperator)
        torch.testing.assert_close(posterior.covariance_matrix.double(), exact, rtol=0.0, atol=1e-3)
        samples = posterior.rsample(torch.Size([2000]))
        noisy = model.likelihood(posterior)
    assert samples.shape == (2000, N_TEST)
    assert (torch.cov(samples.mT).double() - exact).abs().max() < 0.15 * exact.diagonal().max()
    torch.testing.assert_close(noisy.variance.double(), exact.diagonal() + 0.2, rtol=0.01, atol=0.0)


def test_parts_of_the_predictive_covariance():
    model = _model("scaled").eval()
    _, exact, _ = _dense_posterior(model)
    with many_rows(), torch.no_grad():
        covariance = model(TEST).lazy_covariance_matrix
        vectors = torch.randn(N_TEST, 2, generator=torch.Generator().manual_seed(0))
        for actual, expected in [
            (covariance[2:5, 7:9].to_dense(), exact[2:5, 7:9]),
            (covariance[2:5].to_dense(), exact[2:5]),
            (covariance.mT[:4].to_dense(), exact[:4]),
            (covariance[3:6, 3:6].diagonal(), exact.diagonal()[3:6]),
            (covariance[torch.tensor([1, 2]), torch.tensor([3, 2])], exact[[1, 2], [3, 2]]),
            (covariance @ vectors, exact @ vectors.double()),
            (covariance.expand(2, N_TEST, N_TEST)[1, :3, :3].to_dense(), exact[:3, :3]),
        ]:
            torch.testing.assert_close(actual.double(), expected, rtol=1e-2, atol=3e-3)


def test_a_small_training_set_is_gpytorchs_dense_algebra():
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = Model(X[:200], Y[:200], likelihood, _scaled(_cluster())).eval()
    reference = Model(X[:200], Y[:200], likelihood, _DenseKernel(model.covar_module)).eval()
    for context in (gpytorch.settings.fast_pred_var(False), gpytorch.settings.fast_pred_var(True)):
        with torch.no_grad(), context:
            ours, dense = model(TEST), reference(TEST)
            torch.testing.assert_close(ours.mean, dense.mean, rtol=1e-3, atol=1e-4)
            torch.testing.assert_close(ours.variance, dense.variance, rtol=1e-3, atol=1e-4)
        model.prediction_strategy = reference.prediction_strategy = None


class _DenseKernel(gpytorch.kernels.Kernel):
    def __init__(self, base):
        super().__init__()
        self.base = base

    def forward(self, x1, x2, diag=False, **params):
        covariance = self.base(x1, x2).to_dense()
        return covariance.diagonal(dim1=-2, dim2=-1) if diag else covariance


class TestFantasies:
    def test_equal_to_a_model_on_all_rows(self):
        model = _model("scaled").eval()
        x, y = TEST[:5], torch.linspace(-1, 1, 5)
        with many_rows(), torch.no_grad():
            model(TEST).mean.sum().item()
            fantasy = model.get_fantasy_model(x, y)
            posterior = fantasy(TEST[5:])
            direct = Model(torch.cat([X, x]), torch.cat([Y, y]), model.likelihood, model.covar_module).eval()
            direct.mean_module = model.mean_module
            expected = direct(TEST[5:])
            torch.testing.assert_close(posterior.mean, expected.mean, rtol=0.0, atol=1e-3)
            torch.testing.assert_close(posterior.variance, expected.variance, rtol=0.011, atol=0.0)

    def test_starts_from_the_old_solution(self):
        model = _model("scaled").eval()
        with many_rows(), torch.no_grad():
            model(TEST).mean.sum().item()
            with patch.object(guards, "conjugate_gradients", wraps=guards.conjugate_gradients) as solver:
                model.get_fantasy_model(TEST[:1], torch.zeros(1))
            assert solver.call_count == 1
            assert solver.call_args.kwargs["initial_guess"].abs().max() > 0

    @pytest.mark.parametrize("batch", [(), (4,)])
    def test_batches_of_targets(self, batch):
        model = _model("scaled").eval()
        with many_rows(), torch.no_grad():
            model(TEST).mean.sum().item()
            y = torch.randn(*batch, 2, generator=torch.Generator().manual_seed(0))
            fantasy = model.get_fantasy_model(TEST[:2], y)
            posterior = fantasy(TEST[2:6])
            assert posterior.mean.shape == posterior.variance.shape == (*batch, 4)
            for i, targets in enumerate(y.view(-1, 2)):
                alone = model.get_fantasy_model(TEST[:2], targets)(TEST[2:6])
                torch.testing.assert_close(posterior.mean.view(-1, 4)[i], alone.mean, rtol=0.0, atol=1e-3)
                torch.testing.assert_close(posterior.variance.view(-1, 4)[i], alone.variance, rtol=0.011, atol=0.0)


class TestBatches:
    def test_batched_kernel_and_targets(self, counted):
        targets = torch.stack([Y, 2 * Y])
        likelihood = gpytorch.likelihoods.GaussianLikelihood(batch_shape=torch.Size([2]))
        kernel = ScaleKernel(_cluster(batch_shape=torch.Size([2])), batch_shape=torch.Size([2]))
        model = Model(X.expand(2, N, 3), targets, likelihood, kernel, (2,))
        with many_rows():
            mll = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
            mll(model(X.expand(2, N, 3)), targets).sum().backward()
            assert counted["applied"] > 0
            model.eval()
            with torch.no_grad():
                posterior = model(TEST.expand(2, N_TEST, 3))
        assert posterior.mean.shape == (2, N_TEST)
        for i in range(2):
            alone = Model(
                X,
                targets[i],
                gpytorch.likelihoods.GaussianLikelihood(),
                _scaled(_cluster(), float(kernel.outputscale[i].detach())),
            ).eval()
            alone.likelihood.noise = likelihood.noise[i].detach()
            with many_rows(), torch.no_grad():
                expected = alone(TEST)
            torch.testing.assert_close(posterior.mean[i], expected.mean, rtol=0.0, atol=2e-3)
            torch.testing.assert_close(posterior.variance[i], expected.variance, rtol=0.011, atol=0.0)

    def test_batched_scale_of_an_unbatched_kernel(self):
        kernel = ScaleKernel(_cluster(), batch_shape=torch.Size([2]))
        kernel.outputscale = torch.tensor([0.5, 3.0])
        operator, vector = kernel(X).evaluate_kernel(), X[:, :1]
        assert type(operator).__name__ == "PartitionLinearOperator"
        single = _cluster()(X).evaluate_kernel() @ vector
        torch.testing.assert_close(operator @ vector, torch.stack([0.5 * single, 3 * single]))

    def test_botorch_shaped_test_batches(self):
        """b x q x d test points: the training rows arrive b times, and are coded once."""
        model = _model("scaled").eval()
        queries = TEST[:12].view(4, 3, 3)
        with many_rows(), torch.no_grad():
            expected = model(TEST[:12])
            labels = type(model.covar_module.base_kernel.partition)._labels
            calls = []
            with patch.object(
                type(model.covar_module.base_kernel.partition),
                "_labels",
                lambda self, x: (calls.append(x.shape[0]), labels(self, x))[1],
            ):
                posterior = model(queries)
                assert posterior.mean.shape == (4, 3)
                assert max(calls) <= 12
                torch.testing.assert_close(posterior.mean.view(-1), expected.mean)
                torch.testing.assert_close(posterior.variance.view(-1), expected.variance, rtol=0.011, atol=0.0)
                assert posterior.covariance_matrix.shape == (4, 3, 3)


@pytest.mark.parametrize("optimizer", ["adam", "lbfgs"])
def test_training_improves_the_likelihood(optimizer):
    model = _model("scaled")
    mll = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    parameters = [p for p in model.parameters() if p.requires_grad]
    if optimizer == "adam":
        optimizer = torch.optim.Adam(parameters, lr=0.1)
    else:
        optimizer = torch.optim.LBFGS(parameters, max_iter=4, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = -mll(model(X), Y)
        loss.backward()
        return loss

    with many_rows():
        first = float(closure())
        for _ in range(1 if isinstance(optimizer, torch.optim.LBFGS) else 5):
            optimizer.step(closure)
        assert float(closure()) < first - 0.01


def test_in_training_rows_prediction_is_the_joint_answer():
    """Predicting at training rows and mixing them with new rows gives the same answers."""
    model = _model("scaled").eval()
    mixed = torch.cat([X[:3], TEST[:3]])
    exact = _dense_posterior(model, mixed)[0]
    with many_rows(), torch.no_grad():
        torch.testing.assert_close(model(mixed).mean.double(), exact, rtol=0.0, atol=2e-3)


@pytest.mark.parametrize("name", ["local linear", "landmarks", "all parts"])
def test_a_mean_makes_no_pass_over_training_rows(name, monkeypatch):
    """After the first one: the tables of clusters and effects are kept, whoever computes the loadings."""
    model = _model(name).eval()
    with many_rows(), torch.no_grad():
        expected = model(TEST).mean
        sizes, original = [], loadings.cluster_sums
        for module in ("operators.partition_linear_operator", "operators.loadings"):
            monkeypatch.setattr(
                f"gpytorch_partition.{module}.cluster_sums",
                lambda rows, loads, values: (sizes.append(rows.num_rows), original(rows, loads, values))[1],
            )
        torch.testing.assert_close(model(TEST).mean, expected)
        torch.testing.assert_close(model(TEST[:3]).mean, expected[:3])
        assert sizes == []
        for parameter_name, parameter in model.named_parameters():
            if parameter_name.endswith(("raw_lengthscale", "raw_variance")):
                parameter += 0.1  # other loadings, other tables
        assert not torch.allclose(model(TEST[:3]).mean, expected[:3])
        assert N in sizes


@pytest.mark.parametrize("name", ["local linear", "own + linear"])
def test_gradients_of_means_with_respect_to_loadings(name):
    """As GPyTorch's own, with weights of the training rows that are held fixed."""
    model = _model(name).eval()
    (raw_variance,) = (p for parameter_name, p in model.named_parameters() if "raw_variance" in parameter_name)
    with many_rows():
        model(TEST[:3]).mean.sum().item()
        (found,) = torch.autograd.grad(model(TEST).mean.square().sum(), raw_variance)
        weights = model.prediction_strategy.mean_cache.detach()
        mean = model.mean_module(TEST) + model.covar_module(TEST, X).to_dense() @ weights
        (expected,) = torch.autograd.grad(mean.square().sum(), raw_variance)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
    assert expected.abs().max() > 0.1


def test_two_kernels_that_share_a_partition():
    forest = _forest()
    shared = PartitionKernel(forest.partition)
    for first, second in ((forest, shared), (shared, forest)):
        likelihood = gpytorch.likelihoods.GaussianLikelihood()
        model = Model(X, Y, likelihood, IterativeKernel(first + second)).eval()
        exact = _dense_posterior(model)[0]
        with many_rows(), torch.no_grad():
            torch.testing.assert_close(model(TEST).mean.double(), exact, rtol=0.0, atol=2e-3)


def test_joint_samples_of_many_points_are_refused_for_sums_with_other_kernels():
    model = _model("own + RBF").eval()
    many = torch.randn(700, 3, generator=torch.Generator().manual_seed(0))
    with many_rows(), torch.no_grad():
        posterior = model(many)
        for distribution in (posterior, model.likelihood(posterior)):
            with pytest.raises(RuntimeError, match="joint samples"):
                distribution.rsample()


def test_no_test_points():
    model = _model("scaled").eval()
    with many_rows(), torch.no_grad():
        posterior = model(TEST[:0])
        assert posterior.mean.shape == (0,)
        assert posterior.lazy_covariance_matrix.diagonal(dim1=-2, dim2=-1).shape == (0,)


def test_training_rows_are_labelled_once_even_for_larger_test_sets():
    calls = []
    kernel = PartitionKernel(lambda x: (calls.append(x.shape[0]), (2 * x).floor().long())[1])
    model = Model(X, Y, gpytorch.likelihoods.GaussianLikelihood(), kernel).eval()
    with many_rows(), torch.no_grad():
        for shift in (0.1, 0.2):
            model(torch.cat([X, X]) + shift).mean.sum().item()
    assert calls.count(N) == 1


def test_a_constant_kernel_has_no_gradient_of_n_by_n():
    constant = ConstantKernel()
    operator = IterativeKernel(_scaled(_cluster()) + constant)(X).evaluate_kernel()
    scale = operator.linear_ops[1].scale
    assert scale.numel() == 1
    seen, node = [], scale.grad_fn
    while node is not None:
        seen.append(type(node).__name__)
        node = node.next_functions[0][0] if node.next_functions else None
    assert not any("Select" in name or "Expand" in name for name in seen), seen


@pytest.mark.parametrize("dense_limit", [50, 500])
@pytest.mark.parametrize("policy", ["mask", "fill"])
@pytest.mark.parametrize("name", ["forest", "own + RBF"])
def test_rows_without_targets_are_held_out(name, policy, dense_limit):
    """The answer is that of a model that never had these rows; GPyTorch's own variances count them as observed."""
    x, y, noises, has_target = X[:300], Y[:300].clone(), NOISES[:300], torch.arange(300) % 3 > 0
    y[~has_target] = float("nan")
    fixed = gpytorch.likelihoods.FixedNoiseGaussianLikelihood
    whole = Model(x, y, fixed(noises), COVARIANCES[name]()).double().eval()
    without = Model(x[has_target], y[has_target], fixed(noises[has_target]), whole.covar_module).double().eval()
    limit = linear_operator.settings.max_cholesky_size(dense_limit)
    with torch.no_grad(), many_rows(), limit, settings.variance_tolerance(1e-5):
        expected = without(TEST.double())
        with gpytorch.settings.observation_nan_policy(policy):
            posterior = whole(TEST.double())
        torch.testing.assert_close(posterior.mean, expected.mean, rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(posterior.variance, expected.variance, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(posterior.covariance_matrix, expected.covariance_matrix, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("covariance", "num_points"),
    [(COVARIANCES["forest"], 400), (COVARIANCES["forest"], 700), (lambda: _cluster() + RBFKernel(), 400)],
)
def test_samples_of_models_with_few_training_rows_have_the_predictive_covariance(covariance, num_points):
    """A prior less what the data explain is no sum of covariances: sampled term by term it would be twice as wide."""
    model = Model(X[:300], Y[:300], gpytorch.likelihoods.GaussianLikelihood(), covariance()).double().eval()
    model.likelihood.noise = 0.2
    x = torch.cat([TEST[:5], torch.randn(num_points - 5, 3, generator=torch.Generator().manual_seed(0))]).double()
    with torch.no_grad(), many_rows(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        posterior = model(x)
        samples = posterior.sample(torch.Size([4000]))[:, :5]
        expected = model(x[:5]).covariance_matrix
    deviation = expected.diagonal().max().sqrt()
    torch.testing.assert_close(samples.mean(0), posterior.mean[:5], rtol=0, atol=float(5 * deviation / 4000**0.5))
    torch.testing.assert_close(samples.T.cov(), expected, rtol=0, atol=float(0.1 * deviation**2))


def _few_rows_model():
    model = Model(X[:300], Y[:300], gpytorch.likelihoods.GaussianLikelihood(), COVARIANCES["forest"]()).double().eval()
    model.likelihood.noise = 0.2
    return model


def _variance_gradients(model, points, with_noise):
    """By dense algebra; GPyTorch detaches the training covariance unless it is told not to."""
    x = model.train_inputs[0]
    noisy = model.covar_module(x).to_dense() + model.likelihood.noise * torch.eye(len(x), dtype=x.dtype)
    cross = model.covar_module(points, x).to_dense()
    prior = model.covar_module(points).diagonal(dim1=-2, dim2=-1)
    (prior.sum() - (cross * torch.linalg.solve(noisy if with_noise else noisy.detach(), cross.mT).mT).sum()).backward()


@pytest.mark.parametrize("detached", [True, False])
@pytest.mark.parametrize("num_points", [40, 400])
def test_variances_with_few_training_rows_have_gradients(num_points, detached):
    points = torch.randn(num_points, 3, generator=torch.Generator().manual_seed(0)).double()
    model, reference = _few_rows_model(), _few_rows_model()
    for _ in range(2 if detached else 1):  # the second time through the same caches
        model.zero_grad()
        with many_rows(), gpytorch.settings.detach_test_caches(detached):
            model(points).variance.sum().backward()
    _variance_gradients(reference, points, with_noise=not detached)
    for (name, found), expected in zip(model.named_parameters(), reference.parameters()):
        if expected.grad is not None and expected.grad.any():
            torch.testing.assert_close(found.grad, expected.grad, rtol=1e-6, atol=0, msg=name)


def test_variances_read_outside_the_settings_they_were_asked_in():
    model, points = _few_rows_model(), torch.randn(400, 3, dtype=torch.float64)
    with torch.no_grad(), many_rows():
        posterior, expected = model(points), model(points).variance
    with torch.no_grad(), linear_operator.settings.max_cholesky_size(100):
        torch.testing.assert_close(posterior.variance, expected)


def test_one_factor_of_few_training_rows_serves_all_points(monkeypatch):
    factored = []
    original = torch.linalg.cholesky_ex
    monkeypatch.setattr(torch.linalg, "cholesky_ex", lambda a, **k: (factored.append(len(a)), original(a, **k))[1])
    monkeypatch.setattr("gpytorch_partition.inference.prediction.predictive_covariance._BLOCK_ENTRIES", 2**14)
    model = _few_rows_model()
    with torch.no_grad(), many_rows():
        posterior = model(torch.randn(400, 3, dtype=torch.float64))
        posterior.mean.sum().item()
        factored.clear()
        posterior.variance.sum().item()
    assert factored == [300]


def test_a_joint_sample_is_a_solve_however_many_points(monkeypatch):
    columns = []
    original = guards.conjugate_gradients

    def counted(matmul, rhs, *args, **kwargs):
        columns.append(rhs.shape[-1])
        return original(matmul, rhs, *args, **kwargs)

    monkeypatch.setattr(guards, "conjugate_gradients", counted)
    model = _model("forest").eval()
    with torch.no_grad(), many_rows():
        assert model(torch.randn(500, 3)).sample(torch.Size([3])).shape == (3, 500)
    assert columns == [1, 3]  # the mean, and the samples


def test_more_samples_than_points_are_right_where_little_is_left_of_the_variance():
    """Errors of solves in float32 make the covariance of 60 training rows indefinite: it is sampled all the same."""
    model = _model("forest").eval()
    model.likelihood.noise = 1e-3
    with torch.no_grad(), many_rows(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        posterior = model(X[:60])
        ratio = posterior.sample(torch.Size([2_000])).var(0) / posterior.variance
    assert abs(float(ratio.mean()) - 1) < 0.05


def test_filling_targets_that_are_missing_differently_is_refused():
    y = Y[:300].repeat(2, 1)
    y[0, 3] = y[1, 4] = float("nan")
    likelihood = gpytorch.likelihoods.GaussianLikelihood(batch_shape=torch.Size([2]))
    model = Model(X[:300].expand(2, 300, 3), y, likelihood, _cluster(), batch_shape=(2,)).eval()
    with gpytorch.settings.observation_nan_policy("fill"), pytest.raises(NotImplementedError, match="mask"):
        model(TEST.expand(2, N_TEST, 3))
    with gpytorch.settings.observation_nan_policy("mask"):
        posterior = model(TEST.expand(2, N_TEST, 3))
    kept = torch.ones(300, dtype=torch.bool)
    kept[3:5] = False
    without = Model(X[:300][kept], y[0, kept], gpytorch.likelihoods.GaussianLikelihood(), _cluster()).eval()(TEST)
    torch.testing.assert_close(posterior.mean[0], without.mean, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(posterior.variance[0], without.variance, rtol=1e-4, atol=1e-4)


def test_covariances_are_right_where_little_is_left_of_the_variance():
    """In units of standard deviations, which are a thirtieth of the prior's; products and sums solve as well."""
    x = torch.rand(300, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    kernel = LandmarkKernel(x, x.sum(-1), num_landmarks=30, random_state=0)
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = 0.01
    covariances = {}
    for size in (10_000, 20):
        model = Model(x, x.sum(-1), likelihood, kernel).double().eval()
        with torch.no_grad(), linear_operator.settings.max_cholesky_size(size):
            covariance = model(x[:40] + 0.01).lazy_covariance_matrix
            whole = covariance.to_dense()
            covariances[size] = [whole, covariance @ torch.eye(40).double(), (covariance + covariance).to_dense() / 2]
            covariances[size].append(
                BlockDiagLinearOperator(covariance.unsqueeze(0).repeat(2, 1, 1)).to_dense()[:40, :40]
            )
    exact = covariances[10_000][0]
    deviations = exact.diagonal().sqrt()
    assert deviations.max() < 0.1
    for found in covariances[20]:
        assert ((found - exact) / torch.outer(deviations, deviations)).abs().max() < 0.01


def test_parts_off_the_diagonal_of_the_predictive_covariance():
    model = _model("scaled").eval()
    _, exact, _ = _dense_posterior(model)
    with many_rows(), torch.no_grad():
        covariance = model(TEST).lazy_covariance_matrix
        torch.testing.assert_close(
            covariance[:10, 10:20].diagonal().double(), exact[:10, 10:20].diagonal(), rtol=0.0, atol=1e-4
        )
        torch.testing.assert_close(
            covariance[3:9, 3:9].diagonal().double(), exact[3:9, 3:9].diagonal(), rtol=0.01, atol=1e-5
        )


def test_the_variance_guarantee_goes_by_the_smallest_noise():
    noises = torch.logspace(-3, 1, N)
    model = Model(X, Y, gpytorch.likelihoods.FixedNoiseGaussianLikelihood(noises), _scaled(_cluster())).eval()
    prior = model.covar_module(torch.cat([X, TEST])).to_dense().detach().double()
    cross = prior[N:, :N]
    noisy = prior[:N, :N] + torch.diag_embed(noises.double())
    exact = (prior[N:, N:] - cross @ torch.linalg.solve(noisy, cross.mT)).diagonal()
    with many_rows(), torch.no_grad(), settings.variance_tolerance(0.05):
        ratio = model(TEST).variance.double() / exact
    assert ratio.max() < 1.05
    assert ratio.min() > 0.999


def test_means_after_the_training_rows_were_coded_anew():
    """In another feature space the old table of cluster weights means nothing."""
    kernel = PartitionKernel(lambda x: torch.stack([(3 * x[..., 0]).floor(), x[..., 1].floor() * 7], -1).long())
    x, y, large = X[:300], Y[:300], torch.randn(900, 3, generator=torch.Generator().manual_seed(1))
    model = Model(x, y, gpytorch.likelihoods.GaussianLikelihood(), _scaled(kernel)).eval()
    with torch.no_grad():
        first = model(large).mean
        kernel.partition._cached_rows.clear()
        kernel.partition.incidences(torch.cat([10 + large, x]), large)
        torch.testing.assert_close(model(TEST).mean, model(TEST[:20]).mean.new_tensor(_plain_mean(model, TEST)))
        kernel.partition._cached_rows.clear()
        torch.testing.assert_close(model(large).mean, first)


def _plain_mean(model, test):
    x, y = model.train_inputs[0], model.train_targets
    noisy = model.covar_module(x).to_dense() + model.likelihood.noise * torch.eye(len(x))
    mean = model.mean_module.constant
    return (mean + model.covar_module(test, x).to_dense() @ torch.linalg.solve(noisy, y - mean)).tolist()
