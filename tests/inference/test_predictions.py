"""Predictions of every kind of covariance, by every path and kind of noise, against dense algebra in float64."""

from __future__ import annotations

import copy
from unittest.mock import patch

import gpytorch
import linear_operator
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from linear_operator.operators import BlockDiagLinearOperator

from gpytorch_partition import IterativeKernel, LandmarkKernel, PartitionKernel, settings
from gpytorch_partition.inference.prediction import cluster_posterior as cluster_posteriors
from gpytorch_partition.inference.prediction import method_costs
from gpytorch_partition.inference.prediction.cluster_posterior import ClusterPosterior, cluster_posterior
from gpytorch_partition.inference.prediction.predictive_covariance import PredictiveCovarianceLinearOperator
from gpytorch_partition.inference.prediction.strategy import PartitionPredictionStrategy
from gpytorch_partition.operators import guards
from gpytorch_partition.operators.loadings import LoadedRows
from gpytorch_partition.solvers import preconditioners
from gpytorch_partition.solvers.direct import has_feature_factor
from tests.inference.prediction_problems import (
    FAR,
    FEW_COLUMNS,
    KERNELS,
    N_TEST,
    NEW,
    NOISES,
    SINGLE,
    WITH_CLUSTERS,
    Model,
    N,
    X,
    Y,
    clusters,
    exact,
    forest,
    model_of,
    scaled,
)
from tests.limits import many_rows

STANDARD_ERROR = (2 / settings.num_variance_samples.value()) ** 0.5  # of a sampled variance, as a share
QUIET_AND_LOUD = torch.where(torch.arange(N) % 4 == 0, 1e6, 0.05)
BY_ITERATIONS = settings.predictive_variances("conjugate_gradients")  # whatever would be faster at this size


def many(seed=0, number=400, dtype=torch.float64):
    return torch.randn(number, 3, generator=torch.Generator().manual_seed(seed), dtype=dtype)


PATHS = {"conjugate_gradients": KERNELS, "feature_space": SINGLE, "factor": FEW_COLUMNS, "samples": WITH_CLUSTERS}
CASES = [(path, name, torch.float32) for path, names in PATHS.items() for name in names]
CASES += [(path, name, torch.float64) for path in ("feature_space", "factor") for name in PATHS[path]]


@pytest.mark.parametrize(("path", "name", "dtype"), CASES)
def test_variances_of_every_path(path, name, dtype):
    model = model_of(name, dtype=dtype).eval()
    mean, covariance, _ = exact(model)
    with many_rows(), torch.no_grad(), settings.predictive_variances(path), settings.variance_tolerance(1e-4):
        predicted = model(NEW.to(dtype))
        variance, own_mean = predicted.variance.double(), predicted.mean.double()
    ratio = variance / covariance.diagonal()
    if path == "samples":
        # Points share samples and clusters, so that their errors are not independent.
        assert (ratio - 1).abs().max() < 5 * STANDARD_ERROR
        assert (ratio.mean() - 1).abs() < 3 * STANDARD_ERROR
    else:
        tolerance = 1e-8 if dtype == torch.float64 and path != "conjugate_gradients" else 2e-3
        torch.testing.assert_close(variance, covariance.diagonal(), rtol=tolerance, atol=tolerance * 1e-2)
    torch.testing.assert_close(own_mean, mean, rtol=0, atol=2e-3)


@pytest.mark.parametrize("noise", [NOISES, QUIET_AND_LOUD], ids=["of each row", "quiet and loud"])
@pytest.mark.parametrize(
    ("path", "name"),
    [("samples", "forest"), ("samples", "clusters"), ("conjugate_gradients", "mondrian"), ("factor", "slopes")],
)
def test_noise_of_each_row(path, name, noise):
    """Rows that are all but left out by a loud noise of their own must not decide when a solve ends."""
    model = model_of(name, noise).eval()
    points = torch.cat([X[:80], NEW])
    _, covariance, _ = exact(model, points)
    with many_rows(), torch.no_grad(), settings.predictive_variances(path):
        ratio = model(points).variance.double() / covariance.diagonal()
    assert (ratio - 1).abs().max() < (6 * STANDARD_ERROR if path == "samples" else 0.011)
    assert (ratio.mean() - 1).abs() < 0.012 + STANDARD_ERROR / 2


def has_factor(noisy):
    return has_feature_factor(noisy._linear_op.evaluate_kernel())


@pytest.mark.parametrize("name", FEW_COLUMNS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_covariances_and_samples_by_a_factor(name, dtype, monkeypatch):
    monkeypatch.setattr(method_costs, "of_feature_factor", lambda noisy: 0.0 if has_factor(noisy) else 1e9)
    model = model_of(name, dtype=dtype).eval()
    exact_mean, covariance, _ = exact(model)
    with many_rows(), torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        predicted = model(NEW.to(dtype))
        found = predicted.covariance_matrix.double()
        drawn = predicted.lazy_covariance_matrix.zero_mean_mvn_samples(500).double()
        assert predicted.lazy_covariance_matrix.noisy.knows_feature_factor
    units = covariance.diagonal().sqrt()
    assert ((found - covariance).abs() / units / units[:, None]).max() < (1e-6 if dtype == torch.float64 else 4e-3)
    assert ((drawn.mT @ drawn / 500 - covariance).abs() / units / units[:, None]).max() < 5 * (2 / 500) ** 0.5


@pytest.mark.parametrize("name", ["clusters", "own + linear", "all parts", "landmarks", "elsewhere"])
def test_joint_samples_also_of_points_in_clusters_without_training_rows(name):
    model = model_of(name, dtype=torch.float64).eval()
    points = torch.cat([FAR, many(number=500)[:, :3].float()]).double()
    mean, covariance, _ = exact(model, points[:8])
    with many_rows(), torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        samples = model(points).sample(torch.Size([400]))[:, :8]
    deviation = covariance.diagonal().sqrt()
    error = (samples.mT.cov() - covariance) / torch.outer(deviation, deviation)
    assert error.abs().max() < 5 * (2 / len(samples)) ** 0.5
    assert ((samples.mean(0) - mean) / deviation).abs().max() < 5 / len(samples) ** 0.5


def gradients(model):
    return [p.grad.double() for p in model.parameters() if p.requires_grad]


@pytest.fixture
def applied():
    """Counts how often the Nystrom preconditioner of this package is applied."""
    counts, original = [], preconditioners.NystromPreconditioner.inverse_closure

    def counting(self):
        closure = original(self)
        return lambda vectors: (counts.append(1), closure(vectors))[1]

    with patch.object(preconditioners.NystromPreconditioner, "inverse_closure", counting):
        yield counts


TRAINED = ["clusters", "forest", "own + own", "own + RBF", "RBF + own", "own + linear", "constant + own", "all parts"]


@pytest.mark.parametrize(("name", "noise"), [*((name, 0.2) for name in TRAINED), ("clusters", NOISES)])
def test_training_above_the_limit_is_dense_algebras_and_ours(name, noise, applied):
    model, reference = model_of(name, noise), model_of(name, noise).double()
    with linear_operator.settings.max_cholesky_size(N + 1):
        mll = gpytorch.mlls.ExactMarginalLogLikelihood(reference.likelihood, reference)
        (-mll(reference(X.double()), Y.double())).backward()
    with many_rows(), BY_ITERATIONS:
        mll = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
        value = mll(model(X), Y)
        (-value).backward()
        trained = len(applied)
        model.eval()
        with torch.no_grad():
            posterior = model(NEW)
            _, predicted = posterior.mean, len(applied)
            _ = posterior.variance
    assert 0 < trained < predicted < len(applied)
    assert isinstance(model.prediction_strategy, PartitionPredictionStrategy)
    assert abs(float(value) - float(exact(model)[2])) < 0.02
    for found, expected in zip(gradients(model), gradients(reference), strict=True):
        torch.testing.assert_close(found, expected, rtol=0.0, atol=0.01)  # ten probes; GPyTorch's defaults: .05


class Dense(Exception):  # noqa: N818
    """Something of size N x N or N x p was formed."""


class NoMatrix(torch.overrides.TorchFunctionMode):
    """Refuses results of torch's functions with more than 500 rows and columns, and keeps the largest size."""

    largest = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and result.layout == torch.strided and 0 not in result.stride():
            self.largest = max(self.largest, result.numel())
            if result.dim() > 1 and min(result.shape[-2:]) > 500:
                raise Dense(f"{func} of shape {tuple(result.shape)}")
        return result


@pytest.mark.parametrize("name", TRAINED[:3] + TRAINED[5:])
def test_nothing_becomes_dense(name):
    model = model_of(name)
    with many_rows(), BY_ITERATIONS, NoMatrix() as watch:
        mll = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
        (-mll(model(X), Y)).backward()
        model.eval()
        with torch.no_grad():
            model(NEW).variance.sum().item()
            model(torch.cat([NEW] * 60)).mean.sum().item()  # 2,400 test points
        if name == "clusters":  # the table of codes, the Nystrom factor's 100 columns, a block; N x N is 600 columns
            assert watch.largest <= max(100 * N, 2**16)
        fantasy = model.get_fantasy_model(NEW[:3], torch.zeros(3))
        with torch.no_grad():
            fantasy(NEW[3:]).variance.sum().item()
    with pytest.raises(Dense), NoMatrix():
        clusters()(X).evaluate_kernel().to_dense()


def test_mean_alone_solves_for_no_variance(applied):
    model = model_of("clusters").eval()
    with many_rows(), torch.no_grad():
        model(NEW).mean.sum().item()
        once = len(applied)
        model(NEW + 0.1).mean.sum().item()
    assert len(applied) == once > 0


def test_settings_of_gpytorchs_variances():
    model = model_of("clusters").eval()
    with many_rows(), torch.no_grad(), gpytorch.settings.fast_pred_var():
        fast = model(NEW).variance  # whose Lanczos roots are not trusted
    torch.testing.assert_close(fast.double(), exact(model)[1].diagonal(), rtol=0.01, atol=1e-5)
    with many_rows(), torch.no_grad(), gpytorch.settings.skip_posterior_variances():
        assert model(NEW).variance.abs().max() < 1e-5


def test_parts_of_the_predictive_covariance():
    model = model_of("clusters").eval()
    expected = exact(model)[1]
    with many_rows(), torch.no_grad(), BY_ITERATIONS:
        covariance = model(NEW).lazy_covariance_matrix
        assert isinstance(covariance, PredictiveCovarianceLinearOperator)
        vectors = torch.randn(N_TEST, 2, generator=torch.Generator().manual_seed(0))
        for actual, true in [
            (covariance.to_dense(), expected),
            (covariance[2:5, 7:9].to_dense(), expected[2:5, 7:9]),
            (covariance[2:5].to_dense(), expected[2:5]),
            (covariance.mT[:4].to_dense(), expected[:4]),
            (covariance[3:6, 3:6].diagonal(), expected.diagonal()[3:6]),
            (covariance[:10, 10:20].diagonal(), expected[:10, 10:20].diagonal()),
            (covariance[torch.tensor([1, 2]), torch.tensor([3, 2])], expected[[1, 2], [3, 2]]),
            (covariance @ vectors, expected @ vectors.double()),
            (covariance.expand(2, N_TEST, N_TEST)[1, :3, :3].to_dense(), expected[:3, :3]),
        ]:
            torch.testing.assert_close(actual.double(), true, rtol=1e-2, atol=3e-3)
        noisy = model.likelihood(model(NEW))
    torch.testing.assert_close(noisy.variance.double(), expected.diagonal() + 0.2, rtol=0.01, atol=0.0)


@pytest.mark.parametrize("batch", [(), (4,)])
def test_fantasies_are_models_of_all_rows_from_the_old_solution(batch):
    model, y = model_of("clusters").eval(), many(number=5)[:, 0].float().expand(*batch, 5).clone()
    y += torch.arange(4.0).unsqueeze(-1) if batch else 0
    with many_rows(), torch.no_grad(), BY_ITERATIONS:
        model(NEW).mean.sum().item()
        with patch.object(guards, "conjugate_gradients", wraps=guards.conjugate_gradients) as solver:
            fantasy = model.get_fantasy_model(NEW[:5], y)
        assert solver.call_count == 1
        assert solver.call_args.kwargs["initial_guess"].abs().max() > 0
        posterior = fantasy(NEW[5:])
        assert posterior.mean.shape == posterior.variance.shape == (*batch, N_TEST - 5)
        for i, targets in enumerate(y.view(-1, 5)):
            data = torch.cat([X, NEW[:5]]), torch.cat([Y, targets])
            mean, covariance, _ = exact(Model(*data, model.likelihood, model.covar_module), NEW[5:])
            found = (part.view(-1, N_TEST - 5)[i].double() for part in (posterior.mean, posterior.variance))
            torch.testing.assert_close(next(found), mean, rtol=0.0, atol=1e-3)
            torch.testing.assert_close(next(found), covariance.diagonal(), rtol=0.011, atol=0.0)


def test_a_batch_of_kernels_and_targets(applied):
    targets, shape = torch.stack([Y, 2 * Y]), torch.Size([2])
    kernel = ScaleKernel(clusters(batch_shape=shape), batch_shape=shape)
    model = Model(X.expand(2, N, 3), targets, GaussianLikelihood(batch_shape=shape), kernel, (2,))
    kernel.outputscale = torch.tensor([0.5, 3.0])
    with many_rows(), BY_ITERATIONS:
        mll = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
        mll(model(X.expand(2, N, 3)), targets).sum().backward()
        assert applied
        model.eval()
        with torch.no_grad():
            posterior = model(NEW.expand(2, N_TEST, 3))
    for i in range(2):
        alone = Model(X, targets[i], GaussianLikelihood(), scaled(clusters(), float(kernel.outputscale[i].detach())))
        alone.likelihood.noise = model.likelihood.noise[i].detach()
        mean, covariance, _ = exact(alone)
        torch.testing.assert_close(posterior.mean[i].double(), mean, rtol=0.0, atol=2e-3)
        torch.testing.assert_close(posterior.variance[i].double(), covariance.diagonal(), rtol=0.011, atol=0.0)


def test_batches_of_points_as_botorch_has_them():
    """b x q x d test points: the training rows arrive b times, and are coded once."""
    model, calls = model_of("clusters").eval(), []
    kind = type(model.covar_module.base_kernel.partition)
    labels = kind._labels
    with many_rows(), torch.no_grad(), BY_ITERATIONS:
        expected = model(NEW[:12])
        with patch.object(kind, "_labels", lambda self, x: (calls.append(x.shape[0]), labels(self, x))[1]):
            posterior = model(NEW[:12].view(4, 3, 3))
            torch.testing.assert_close(posterior.mean.view(-1), expected.mean)
            torch.testing.assert_close(posterior.variance.view(-1), expected.variance, rtol=0.011, atol=0.0)
            assert posterior.covariance_matrix.shape == (4, 3, 3)
    assert max(calls) <= 12


CHANGES = {
    "one element": lambda covariance: covariance[2],
    "some rows": lambda covariance: covariance[..., 1:3, :],
    "an element's row": lambda covariance: covariance[(1, *(0,) * (covariance.dim() - 3), slice(0, 1))],
    "unsqueezed": lambda covariance: covariance.unsqueeze(0),
    "permuted": lambda covariance: covariance.unsqueeze(-3).permute(-3, *range(covariance.dim() - 2), -2, -1),
    "expanded": lambda covariance: covariance.expand(2, *covariance.shape),
}


@pytest.mark.parametrize("batch", [torch.Size(), torch.Size([2])])
@pytest.mark.parametrize("is_sum", [False, True])
def test_parts_of_batches_are_those_of_dense_algebra(is_sum, batch):
    x, y = X[:80].double(), Y[:80].double()
    points = many(number=20).view(5, 1, 4, 3)
    kernel = ScaleKernel(clusters() + RBFKernel() if is_sum else clusters(), batch_shape=batch)
    likelihood = GaussianLikelihood(batch_shape=batch)

    def parts(limit):
        model = Model(x.expand(*batch, 80, 3), y.expand(*batch, 80), likelihood, kernel, batch).double().eval()
        with linear_operator.settings.max_cholesky_size(limit), torch.no_grad():
            lazy = model(points.expand(5, 2, 4, 3) if batch else points.squeeze(1)).lazy_covariance_matrix
            return {name: change(lazy).to_dense() for name, change in CHANGES.items()} | {
                "diagonal": lazy[1].diagonal()
            }

    expected = parts(800)
    for name, value in parts(10).items():
        torch.testing.assert_close(value, expected[name], rtol=0.01, atol=1e-3, msg=lambda text, name=name: name + text)


@pytest.mark.parametrize("name", ["local linear", "landmarks", "all parts"])
def test_a_mean_makes_no_pass_over_training_rows(name, monkeypatch):
    """After the first one: the tables of clusters and effects are kept, whoever computes the loadings."""
    model = model_of(name).eval()
    with many_rows(), torch.no_grad():
        expected = model(NEW).mean
        sizes, original = [], LoadedRows.cluster_sums

        def watched(loaded, values):
            sizes.append(loaded.rows.num_rows)
            return original(loaded, values)

        monkeypatch.setattr(LoadedRows, "cluster_sums", watched)
        torch.testing.assert_close(model(NEW).mean, expected)
        torch.testing.assert_close(model(NEW[:3]).mean, expected[:3])
        assert sizes == []
        for parameter_name, parameter in model.named_parameters():
            if parameter_name.endswith(("raw_lengthscale", "raw_variance")):
                parameter += 0.1  # other loadings, other tables
        assert not torch.allclose(model(NEW[:3]).mean, expected[:3])
        assert N in sizes


@pytest.mark.parametrize("name", ["local linear", "own + linear"])
def test_gradients_of_means_with_respect_to_loadings(name):
    """As GPyTorch's own, with weights of the training rows that are held fixed."""
    model = model_of(name).eval()
    (raw_variance,) = (p for parameter_name, p in model.named_parameters() if "raw_variance" in parameter_name)
    with many_rows():
        model(NEW[:3]).mean.sum().item()
        (found,) = torch.autograd.grad(model(NEW).mean.square().sum(), raw_variance)
        weights = model.prediction_strategy.mean_cache.detach()
        mean = model.mean_module(NEW) + model.covar_module(NEW, X).to_dense() @ weights
        (expected,) = torch.autograd.grad(mean.square().sum(), raw_variance)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
    assert expected.abs().max() > 0.1


@pytest.mark.parametrize("detach", [False, True])
def test_gradients_reach_trained_weights_through_means(detach):
    model, results = model_of("mixture", dtype=torch.float64), []
    for largest in (800, 1):
        model.train().eval()
        model.zero_grad()
        with (
            linear_operator.settings.max_cholesky_size(largest),
            linear_operator.settings.cg_tolerance(1e-10),
            gpytorch.settings.eval_cg_tolerance(1e-10),
            gpytorch.settings.detach_test_caches(detach),
        ):
            model(NEW.double()).mean.sum().backward()
        results.append(torch.cat([p.grad.reshape(-1) for p in model.covar_module.parameters() if p.requires_grad]))
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-6)
    assert float(results[0].norm()) > 1e-3


def test_joint_samples_of_many_points_are_refused_for_sums_with_other_kernels():
    model = model_of("own + RBF").eval()
    with many_rows(), torch.no_grad():
        posterior = model(many(number=700, dtype=torch.float32))
        for distribution in (posterior, model.likelihood(posterior)):
            with pytest.raises(RuntimeError, match="joint samples"):
                distribution.rsample()


def test_no_test_points():
    with many_rows(), torch.no_grad():
        posterior = model_of("clusters").eval()(NEW[:0])
        assert posterior.mean.shape == posterior.lazy_covariance_matrix.diagonal(dim1=-2, dim2=-1).shape == (0,)


@pytest.mark.parametrize("limit", [50, 500])
@pytest.mark.parametrize("policy", ["mask", "fill"])
@pytest.mark.parametrize("name", ["forest", "own + RBF"])
def test_rows_without_targets_are_held_out(name, policy, limit):
    """The answer is that of a model that never had these rows; GPyTorch's own variances count them as observed."""
    whole, has_target = model_of(name, NOISES, 300, torch.float64).eval(), torch.arange(300) % 3 > 0
    without = model_of(whole.covar_module, NOISES[:300][has_target], 200, torch.float64).eval()
    without.set_train_data(whole.train_inputs[0][has_target], whole.train_targets[has_target], strict=False)
    expected_mean, expected, _ = exact(without)
    whole.set_train_data(targets=whole.train_targets.masked_fill(~has_target, torch.nan), strict=False)
    with torch.no_grad(), many_rows(limit), settings.variance_tolerance(1e-5):
        with gpytorch.settings.observation_nan_policy(policy):
            posterior = whole(NEW.double())
        torch.testing.assert_close(posterior.mean, expected_mean, rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(posterior.variance, expected.diagonal(), rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(posterior.covariance_matrix, expected, rtol=1e-3, atol=1e-3)


def test_targets_that_are_missing_differently():
    y = Y[:300].repeat(2, 1)
    y[0, 3] = y[1, 4] = torch.nan
    likelihood = GaussianLikelihood(batch_shape=torch.Size([2]))
    model = Model(X[:300].expand(2, 300, 3), y, likelihood, clusters(), batch_shape=(2,)).eval()
    with gpytorch.settings.observation_nan_policy("fill"), pytest.raises(NotImplementedError, match="mask"):
        model(NEW.expand(2, N_TEST, 3))
    with gpytorch.settings.observation_nan_policy("mask"), torch.no_grad():
        posterior = model(NEW.expand(2, N_TEST, 3))
    kept = torch.ones(300, dtype=torch.bool)
    kept[3:5] = False
    mean, covariance, _ = exact(Model(X[:300][kept], y[0, kept], GaussianLikelihood(), clusters()))
    torch.testing.assert_close(posterior.mean[0].double(), mean, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(posterior.variance[0].double(), covariance.diagonal(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("kernel", "num_points"), [("forest", 400), ("forest", 700), (lambda: clusters() + RBFKernel(), 400)]
)
def test_samples_of_models_with_few_training_rows_have_the_predictive_covariance(kernel, num_points):
    """A prior less what the data explain is no sum of covariances: sampled term by term it would be twice as wide."""
    model = model_of(kernel if isinstance(kernel, str) else kernel(), num_rows=300, dtype=torch.float64).eval()
    x = torch.cat([NEW[:5].double(), many(number=num_points - 5)])
    mean, expected, _ = exact(model, x[:5])
    with torch.no_grad(), many_rows(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        samples = model(x).sample(torch.Size([4000]))[:, :5]
    deviation = expected.diagonal().max().sqrt()
    torch.testing.assert_close(samples.mean(0), mean, rtol=0, atol=float(5 * deviation / 4000**0.5))
    torch.testing.assert_close(samples.T.cov(), expected, rtol=0, atol=float(0.1 * deviation**2))


def dense_variances(model, points, with_noise):
    """With a graph; GPyTorch detaches the training covariance unless it is told not to."""
    x = model.train_inputs[0]
    noisy = model.covar_module(x).to_dense() + model.likelihood.noise * torch.eye(len(x), dtype=x.dtype)
    cross = model.covar_module(points, x).to_dense()
    solved = torch.linalg.solve(noisy if with_noise else noisy.detach(), cross.mT)
    return model.covar_module(points).diagonal(dim1=-2, dim2=-1) - (cross * solved.mT).sum(-1)


@pytest.mark.parametrize(
    ("num_rows", "detached"), [(300, True), (300, False), (600, False)], ids=["detached", "few rows", "above the limit"]
)
def test_variances_have_gradients(num_rows, detached):
    points = many()
    model, reference = (model_of("forest", num_rows=num_rows, dtype=torch.float64).eval() for _ in range(2))
    with many_rows(), gpytorch.settings.detach_test_caches(detached), settings.variance_tolerance(1e-8):
        for _ in range(2 if detached else 1):  # the second time through the same caches
            model.zero_grad()
            posterior = model(points[:60] if num_rows > 500 else points)
            posterior.variance.sum().backward()
    dense_variances(reference, points[: len(posterior.mean)], not detached).sum().backward()
    for (name, found), expected in zip(model.named_parameters(), reference.parameters()):
        if expected.grad is not None and expected.grad.any():
            torch.testing.assert_close(
                found.grad, expected.grad, rtol=1e-6 if num_rows < 500 else 1e-3, atol=0, msg=name
            )


def test_covariances_have_gradients_above_the_limit():
    model, points, weights = model_of("forest", dtype=torch.float64).eval(), many(number=6), many(1, 6)[:, :1]
    with many_rows(), gpytorch.settings.detach_test_caches(False), settings.variance_tolerance(1e-8):
        (weights.mT @ model(points).covariance_matrix @ weights).sum().backward()
    reference = model_of("forest", dtype=torch.float64).eval()
    x = reference.train_inputs[0]
    noisy = reference.covar_module(x).to_dense() + reference.likelihood.noise * torch.eye(N, dtype=x.dtype)
    cross = reference.covar_module(points, x).to_dense()
    dense = reference.covar_module(points).to_dense() - cross @ torch.linalg.solve(noisy, cross.mT)
    (weights.mT @ dense @ weights).sum().backward()
    for found, expected in zip(model.parameters(), reference.parameters()):
        if expected.grad is not None:
            torch.testing.assert_close(found.grad, expected.grad, rtol=1e-3, atol=1e-6)


def test_variances_read_outside_the_settings_they_were_asked_in():
    model, points = model_of("forest", num_rows=300, dtype=torch.float64).eval(), many()
    with torch.no_grad(), many_rows():
        posterior, expected = model(points), model(points).variance
    with torch.no_grad(), linear_operator.settings.max_cholesky_size(100):
        torch.testing.assert_close(posterior.variance, expected)


def test_a_joint_sample_is_a_solve_however_many_points():
    model = model_of("forest").eval()
    with (
        torch.no_grad(),
        many_rows(),
        patch.object(guards, "conjugate_gradients", wraps=guards.conjugate_gradients) as cg,
    ):
        assert model(many(number=500).float()).sample(torch.Size([3])).shape == (3, 500)
    assert [call.args[1].shape[-1] for call in cg.call_args_list] == [1, 3]  # the mean, and the samples


def test_covariances_are_right_where_little_is_left_of_the_variance():
    """In units of standard deviations, which are a thirtieth of the prior's; products and sums solve as well."""
    x = torch.rand(300, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    kernel = LandmarkKernel(x, x.sum(-1), num_landmarks=30, random_state=0)
    likelihood = GaussianLikelihood().double()
    likelihood.noise = 0.01
    model = Model(x, x.sum(-1), likelihood, kernel).double().eval()
    true = exact(model, x[:40] + 0.01)[1]
    deviations = true.diagonal().sqrt()
    assert deviations.max() < 0.1
    with torch.no_grad(), linear_operator.settings.max_cholesky_size(20), BY_ITERATIONS:
        covariance = model(x[:40] + 0.01).lazy_covariance_matrix
        blocks = BlockDiagLinearOperator(covariance.unsqueeze(0).repeat(2, 1, 1)).to_dense()[:40, :40]
        whole, product = covariance.to_dense(), covariance @ torch.eye(40).double()
        for found in (whole, product, (covariance + covariance).to_dense() / 2, blocks):
            assert ((found - true) / torch.outer(deviations, deviations)).abs().max() < 0.01


def test_the_variance_guarantee_goes_by_the_smallest_noise():
    model = model_of("clusters", torch.logspace(-3, 1, N)).eval()
    true = exact(model)[1].diagonal()
    with many_rows(), torch.no_grad(), settings.variance_tolerance(0.05), BY_ITERATIONS:
        ratio = model(NEW[3:]).variance.double() / true[3:]
    assert 0.999 < ratio.min() < ratio.max() < 1.05


def test_means_after_the_training_rows_were_coded_anew():
    """In another feature space the old table of cluster weights means nothing."""
    kernel = PartitionKernel(lambda x: torch.stack([(3 * x[..., 0]).floor(), x[..., 1].floor() * 7], -1).long())
    model, large = model_of(scaled(kernel), num_rows=300).eval(), many(1, 900, torch.float32)
    with torch.no_grad():
        first = model(large).mean
        kernel.partition._cached_rows.clear()
        kernel.partition.incidences(torch.cat([10 + large, X[:300]]), large)
        torch.testing.assert_close(model(NEW).mean.double(), exact(model)[0], rtol=1e-4, atol=1e-4)
        kernel.partition._cached_rows.clear()
        torch.testing.assert_close(model(large).mean, first)


def test_two_models_that_share_a_kernel():
    kernel = forest()
    first, second = model_of(kernel).eval(), model_of(kernel, num_rows=580).eval()
    with torch.no_grad(), many_rows(), settings.predictive_variances("feature_space"):
        expected = first(NEW).variance
        for shift in range(5):  # more sets of rows than a partition remembers
            kernel.partition.incidences(X + shift, X + shift)
        second(NEW).variance.sum().item()
        torch.testing.assert_close(first(NEW).variance, expected)


def test_sampled_variances_repeat_and_read_no_global_state():
    model, found = model_of("clusters").eval(), []
    with torch.random.fork_rng(devices=[]), torch.no_grad(), many_rows(), settings.predictive_variances("samples"):
        for seed in (0, 1):
            torch.manual_seed(seed)
            state = torch.get_rng_state()
            found.append(model(NEW).variance)
            assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(*found)


@pytest.mark.parametrize("name", ["clusters", "slopes"])
def test_variances_of_later_calls_take_no_solves(name, monkeypatch):
    """Draws are kept with the model: other points, blocks of them and copies have the variances of the same draws."""
    model, drawn = model_of(name).eval(), []
    original = ClusterPosterior.drawn
    monkeypatch.setattr(ClusterPosterior, "drawn", lambda *args: drawn.append(args) or original(*args))
    with torch.no_grad(), many_rows(), settings.predictive_variances("samples"), settings.num_variance_samples(20):
        first = model(NEW).variance
        assert len(drawn) == 1
        torch.testing.assert_close(torch.cat([model(x).variance for x in NEW.split(N_TEST // 2)]), first)
        assert len(drawn) == 1
        kept = copy.deepcopy(model)
        assert not kept.prediction_strategy._draws._known
        assert torch.equal(kept(NEW).variance, first)
        assert len(drawn) == 2
        with settings.probe_seed(1):
            assert not torch.equal(model(NEW).variance, first)
        assert torch.equal(model(NEW).variance, first)
        assert len(drawn) == 3
        monkeypatch.setattr(cluster_posteriors, "_MOST_KEPT", drawn[0][0].num_bytes(20))
        with settings.num_variance_samples(10):
            assert torch.equal(model(NEW).variance, model(NEW).variance)
        assert len(drawn) == 4
        assert torch.equal(model(NEW).variance, first)  # which the others have replaced
        with settings.num_variance_samples(21):
            assert torch.equal(model(NEW).variance, model(NEW).variance)
        assert len(drawn) == 7
        model.train()
        model.likelihood.noise = 2 * model.likelihood.noise
        assert (model.eval()(NEW).variance > first).double().mean() > 0.9


@pytest.mark.parametrize("path", ["feature_space", "samples"])
def test_what_a_method_cannot_do_is_refused(path):
    cases = [("own + RBF", 0.2)] if path == "samples" else [("own + RBF", 0.2), ("forest", NOISES), ("slopes", 0.2)]
    for name, noise in cases:
        model = model_of(name, noise).eval()
        with many_rows(), torch.no_grad():
            with settings.predictive_variances(path), pytest.raises(ValueError, match="expected the covariance of"):
                model(NEW).variance.sum().item()
            assert model(NEW).variance.shape == (N_TEST,)


def test_terms_of_other_points_or_loadings_do_not_fit():
    total = KERNELS["own + linear"]()
    noisy = total(X).evaluate_kernel().add_diagonal(torch.tensor([0.1]))
    for other, does_fit in (
        (total(NEW, X), True),
        (total(NEW, X[:9]), False),
        (forest()(NEW, X), False),
        (IterativeKernel(scaled(forest()) + gpytorch.kernels.LinearKernel(active_dims=(0, 1)))(NEW, X), False),
    ):
        assert (cluster_posterior(noisy, other.evaluate_kernel()) is not None) == does_fit
