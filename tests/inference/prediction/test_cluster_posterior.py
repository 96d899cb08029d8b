"""Predictive variances by every method, against dense algebra; and which method is taken."""

from __future__ import annotations

import gpytorch
import linear_operator
import pytest
import torch
from gpytorch.kernels import ConstantKernel, LinearKernel, RBFKernel, ScaleKernel

from gpytorch_partition import (
    FastClusterKernel,
    IterativeKernel,
    LandmarkKernel,
    LocalLinearKernel,
    MondrianKernel,
    PartitionKernel,
    RandomForestKernel,
    settings,
)
from gpytorch_partition.inference.feature_space.feature_space import feature_space_of
from gpytorch_partition.inference.prediction import work
from gpytorch_partition.inference.prediction.cluster_posterior import ClusterPosterior, cluster_posterior
from gpytorch_partition.inference.prediction.predictive_covariance import PredictiveCovarianceLinearOperator
from gpytorch_partition.models import PartitionGP
from gpytorch_partition.operators.loadings import LoadedRows
from tests.limits import many_rows

N, N_TEST = 500, 60
GENERATOR = torch.Generator().manual_seed(8)
X = torch.randn(N, 3, generator=GENERATOR)
Y = X[:, 0].sin() + 0.3 * torch.randn(N, generator=GENERATOR)
TEST = torch.cat([torch.randn(N_TEST - 6, 3, generator=GENERATOR), 30 + torch.arange(18.0).view(6, 3)])

KERNELS = {
    "forest": lambda: RandomForestKernel(X, Y, 15, random_state=0),
    "fast cluster": lambda: FastClusterKernel(X, 20, height=5, random_state=0),
    "Mondrian": lambda: MondrianKernel(X, 20, random_state=0),
}


def _model(kernel, likelihood=None):
    likelihood = likelihood or gpytorch.likelihoods.GaussianLikelihood()
    model = PartitionGP(X, Y, likelihood, kernel).eval()
    model.covar_module.outputscale = 0.8
    if isinstance(likelihood, gpytorch.likelihoods.GaussianLikelihood):
        likelihood.noise = 0.1
    return model


def _variances(model, method):
    with (
        torch.no_grad(),
        settings.iterative(),
        linear_operator.settings.max_cholesky_size(50),
        settings.predictive_variances(method),
        settings.variance_tolerance(1e-4),
    ):
        return model(TEST).variance.double()


def _exact(model):
    return _exact_covariance(model).diagonal()


def _exact_covariance(model):
    joint = torch.cat([X, TEST])
    prior = model.covar_module(joint).to_dense().detach().double()
    cross = prior[N:, :N]
    noisy = prior[:N, :N] + 0.1 * torch.eye(N, dtype=torch.float64)
    return prior[N:, N:] - cross @ torch.linalg.solve(noisy, cross.mT)


@pytest.mark.parametrize("name", KERNELS)
def test_feature_space_and_conjugate_gradients_are_exact(name):
    model = _model(KERNELS[name]())
    exact = _exact(model)
    torch.testing.assert_close(_variances(model, "feature_space"), exact, rtol=2e-4, atol=1e-6)
    torch.testing.assert_close(_variances(model, "conjugate_gradients"), exact, rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize("name", KERNELS)
def test_means_come_from_a_feature_space_that_is_there(name, monkeypatch):
    model = _model(KERNELS[name]())
    joint = torch.cat([X, TEST])
    prior = model.covar_module(joint).to_dense().detach().double()
    noisy, mean = prior[:N, :N] + 0.1 * torch.eye(N, dtype=torch.float64), model.mean_module.constant.detach()
    exact = mean + prior[N:, :N] @ torch.linalg.solve(noisy, (Y - mean).double())
    _variances(model, "feature_space")
    monkeypatch.setattr(
        "gpytorch_partition.inference.prediction.strategy.structured_terms", None
    )  # sums over terms are not used
    with torch.no_grad(), settings.iterative(), linear_operator.settings.max_cholesky_size(50):
        torch.testing.assert_close(model(TEST).mean.double(), exact, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(model(TEST[:1]).mean.double(), exact[:1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", KERNELS)
def test_samples_are_unbiased_and_as_noisy_as_they_say(name):
    model = _model(KERNELS[name]())
    ratio = _variances(model, "samples") / _exact(model)
    standard_error = (2 / settings.num_variance_samples.value()) ** 0.5
    assert (ratio - 1).abs().max() < 5 * standard_error
    # Points share samples and clusters, so that their errors are not independent.
    assert (ratio.mean() - 1).abs() < 3 * standard_error
    assert (ratio - ratio.mean()).square().mean().sqrt() < 1.5 * standard_error


@pytest.mark.parametrize(
    "name", [pytest.param(k, marks=pytest.mark.slow) if k != "fast cluster" else k for k in KERNELS]
)
def test_samples_are_unbiased_where_little_noise_leaves_little_variance(name):
    """The data explain all but a thousandth: solves that are right to a percent would leave ten times as much."""
    model = _model(KERNELS[name]())
    model.likelihood.noise = 1e-3
    with torch.no_grad(), settings.iterative(), linear_operator.settings.max_cholesky_size(50):
        with settings.predictive_variances("samples"):
            sampled = model(X[:100]).variance
        with settings.predictive_variances("feature_space"):
            exact = model(X[:100]).variance
    assert exact.mean() < 2e-3
    assert abs(float((sampled / exact).mean()) - 1) < 0.03


@pytest.mark.parametrize("noise", [[1.0], [0.1], [1e-3], [1e6, 0.01, 0.01, 0.01] * (N // 4), [0.01] * 50 + [0.1] * 450])
@pytest.mark.parametrize("name", KERNELS)
def test_errors_of_samples_are_within_the_tolerance(name, noise):
    """
    The same draws solved densely: what iterations add to the variance is at most the tolerance, and not nothing.

    Also for quiet rows among some that a loud noise all but leaves out.
    """
    covariance = KERNELS[name]()(X).double().evaluate_kernel() * 0.8
    posterior = ClusterPosterior(covariance.add_diagonal(torch.tensor(noise).double()), (LoadedRows(covariance.left),))
    is_quiet = posterior.noisy._diag_tensor._diagonal() < 2

    def draw():
        return posterior._deviations(64, torch.Generator().manual_seed(0))[is_quiet]

    with torch.no_grad(), settings.iterative():
        exact = draw()
        for tolerance in (0.01, 0.1):
            with linear_operator.settings.max_cholesky_size(50), settings.variance_tolerance(tolerance):
                error = (draw() - exact).square().mean() / exact.square().mean()
            assert 1e-8 < error < tolerance


def test_many_samples_come_from_ordered_rows_and_a_larger_rank():
    covariance = KERNELS["forest"]()(X).evaluate_kernel()
    posterior = ClusterPosterior(covariance.add_diagonal(torch.tensor([0.1])), (LoadedRows(covariance.left),))
    assert posterior._prepared(512) is posterior  # dense
    sizes = linear_operator.settings.max_cholesky_size(50), linear_operator.settings.min_preconditioning_size(50)
    with settings.iterative(), sizes[0], sizes[1], settings.preconditioner_rank(20):
        assert posterior._prepared(127) is posterior
        prepared = posterior._prepared(512)
    codes = covariance.left.codes
    column = codes[:, int((codes.amax(0) - codes.amin(0)).argmax())]
    assert not (column.diff() >= 0).all()
    order = column.argsort(stable=True)
    torch.testing.assert_close(prepared.noisy.to_dense(), posterior.noisy.to_dense()[order][:, order])
    assert prepared._noise == pytest.approx(0.1)
    assert (posterior._block_sizes(50), prepared._block_sizes(70)) == ([16, 16, 16, 2], [32, 32, 6])
    assert prepared.noisy._nystrom_preconditioner.factor.root.shape == (N, 80)


def test_the_larger_rank_is_bounded_by_memory(monkeypatch):
    covariance = KERNELS["forest"]()(X).evaluate_kernel()
    posterior = ClusterPosterior(covariance.add_diagonal(torch.tensor([0.1])), (LoadedRows(covariance.left),))
    sizes = linear_operator.settings.max_cholesky_size(50), linear_operator.settings.min_preconditioning_size(50)
    for numbers, rank in ((30 * N, 30), (5 * N, 20)):
        monkeypatch.setattr("gpytorch_partition.inference.prediction.cluster_posterior._MOST_BYTES", 4 * numbers)
        with settings.iterative(), sizes[0], sizes[1], settings.preconditioner_rank(20):
            assert posterior._prepared(512).noisy._nystrom_preconditioner.factor.root.shape == (N, rank)


@pytest.mark.parametrize("name", ["forest", "local linear"])
def test_rows_are_not_copied_where_memory_is_short(name, monkeypatch):
    forest = KERNELS["forest"]()
    kernel = forest if name == "forest" else LocalLinearKernel(forest, 3)
    covariance = kernel(X).evaluate_kernel()
    rows = LoadedRows(covariance.left, covariance.left_loadings)
    posterior = ClusterPosterior(covariance.add_diagonal(torch.tensor([0.1])), (rows,))
    num_loadings = 0 if name == "forest" else covariance.left_loadings.shape[-1]
    size = N * (8 * 15 + 4 * num_loadings)
    with settings.iterative(), linear_operator.settings.max_cholesky_size(50):
        for most in (size, size - 1):
            monkeypatch.setattr("gpytorch_partition.inference.prediction.cluster_posterior._MOST_COPIED", most)
            assert (posterior._prepared(512) is posterior) == (most < size)


@pytest.mark.parametrize(
    "name", [pytest.param(k, marks=pytest.mark.slow) if k != "fast cluster" else k for k in KERNELS]
)
def test_joint_samples_of_more_points_than_are_factorized(name):
    model, num_samples = _model(KERNELS[name]()), 4_000
    expected = _exact_covariance(model)
    torch.manual_seed(0)
    with torch.no_grad(), settings.iterative(), linear_operator.settings.max_cholesky_size(50):
        posterior = model(TEST)
        samples = (posterior.rsample(torch.Size([num_samples])) - posterior.mean).double()
    deviations = expected.diagonal().sqrt()
    assert samples.shape == (num_samples, N_TEST)
    assert (samples.mean(0) / deviations).abs().max() < 5 / num_samples**0.5
    correlation = expected / deviations / deviations.unsqueeze(-1)
    assert (torch.corrcoef(samples.mT) - correlation).abs().max() < 5 / num_samples**0.5
    assert (samples.var(0) / expected.diagonal() - 1).abs().max() < 5 * (2 / num_samples) ** 0.5


@pytest.mark.parametrize("name", KERNELS)
def test_two_models_that_share_a_kernel(name):
    kernel = KERNELS[name]()
    first, second = _model(kernel), PartitionGP(X[:480], Y[:480], gpytorch.likelihoods.GaussianLikelihood(), kernel)
    expected = _variances(first, "feature_space")
    for shift in range(5):  # more sets of rows than a partition remembers
        kernel.partition.incidences(X + shift, X + shift)
    _variances(second.eval(), "feature_space")
    torch.testing.assert_close(_variances(first, "feature_space"), expected)


def test_samples_repeat_and_read_no_global_state():
    model = _model(KERNELS["fast cluster"]())
    torch.manual_seed(0)
    state, first = torch.get_rng_state(), _variances(model, "samples")
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(1)
    assert torch.equal(_variances(model, "samples"), first)


def test_samples_with_a_noise_per_row():
    noises = 0.05 + 0.2 * torch.rand(N, generator=torch.Generator().manual_seed(0))
    model = _model(KERNELS["forest"](), gpytorch.likelihoods.FixedNoiseGaussianLikelihood(noises))
    ratio = _variances(model, "samples") / _variances(model, "conjugate_gradients")
    assert (ratio - 1).abs().max() < 5 * (2 / settings.num_variance_samples.value()) ** 0.5


def _many_rows(noise, dtype=torch.float32, name="forest"):
    """A posterior of 600 rows; noise per row or not."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(600, 3, generator=generator, dtype=dtype)
    makers = {
        "forest": lambda: RandomForestKernel(x, x[:, 0].sin(), 15, random_state=0),
        "fast cluster": lambda: FastClusterKernel(x, 20, height=5, random_state=0),
        "Mondrian": lambda: MondrianKernel(x, 20, random_state=0),
    }
    covariance = makers[name]()(x).evaluate_kernel()
    return ClusterPosterior(
        covariance.add_diagonal(torch.as_tensor(noise, dtype=dtype)), (LoadedRows(covariance.left),)
    )


def _exact_variances_at_rows(posterior):
    noisy = posterior.noisy.double().to_dense()
    prior = posterior.covariance.double().to_dense()
    return prior.diagonal() - (prior * torch.linalg.solve(noisy, prior)).sum(0)


def test_a_variance_takes_two_samples():
    with pytest.raises(ValueError, match="at least 2, got 1"):
        settings.num_variance_samples(1)


LOUD = torch.where(torch.arange(600) % 5 == 0, 1e6, 0.01)


@pytest.mark.parametrize(
    ("noise", "dtype", "name", "preconditioner"),
    [
        ([1.0], torch.float32, "forest", "nystrom"),
        pytest.param([1e-3], torch.float32, "forest", "nystrom", marks=pytest.mark.slow),
        pytest.param([0.1], torch.float32, "fast cluster", "partition", marks=pytest.mark.slow),
        pytest.param([0.1], torch.float32, "fast cluster", "none", marks=pytest.mark.slow),
        ([0.01], torch.float64, "Mondrian", "nystrom"),
        pytest.param(LOUD, torch.float32, "forest", "nystrom", marks=pytest.mark.slow),
        pytest.param(LOUD, torch.float32, "Mondrian", "none", marks=pytest.mark.slow),
    ],
)
@torch.no_grad()
def test_sampled_variances_with_default_settings(noise, dtype, name, preconditioner):
    """Rows that are all but left out by a loud noise of their own must not decide when a solve ends."""
    posterior = _many_rows(noise, dtype, name)
    exact = _exact_variances_at_rows(posterior)
    prior = posterior.covariance
    accuracy = {"tolerance": settings.variance_tolerance.value(), "residual": 1e-4, "is_dense": False}
    predictive = PredictiveCovarianceLinearOperator(prior, prior, prior, posterior.noisy, **accuracy)
    with many_rows(), settings.preconditioner(preconditioner), settings.predictive_variances("samples"):
        ratio = predictive.diagonal().double() / exact
    standard_error = (2 / settings.num_variance_samples.value()) ** 0.5
    assert (ratio - 1).abs().max() < 6 * standard_error
    quiet = posterior.noisy._diag_tensor._diagonal() < 2
    assert (ratio[quiet].mean() - 1).abs() < 0.012 + standard_error / 2


@torch.no_grad()
def test_samples_without_outputscale_are_zero():
    posterior = _many_rows([0.1])
    silent = ClusterPosterior((posterior.covariance * 0.0).add_diagonal(torch.tensor([0.1])), posterior.points)
    with many_rows():
        assert not silent.sampled_variances().any()


@pytest.mark.slow
@torch.no_grad()
def test_no_samples_and_many():
    posterior = _many_rows([0.1])
    exact = _exact_variances_at_rows(posterior)
    with many_rows():
        assert posterior.samples(0, [posterior.points[0].rows]).shape == (0, 600)
        variances = posterior.samples(1_000, [posterior.points[0].rows]).double().var(0)
    assert (variances / exact - 1).abs().max() < 6 * (2 / 1_000) ** 0.5


def test_rows_are_ordered_by_the_finest_partition():
    x = torch.randn(600, 3, generator=torch.Generator().manual_seed(3))
    kernel = PartitionKernel(lambda x: torch.stack([0 * x[:, 0], (3 * x[:, 1]).floor()], -1).long())
    covariance = kernel(x).evaluate_kernel()
    posterior = ClusterPosterior(covariance.add_diagonal(torch.tensor([0.1])), (LoadedRows(covariance.left),))
    with many_rows():
        codes = posterior._prepared(512).covariance.left.codes
    assert (codes[:, 0] == codes[0, 0]).all()
    assert (codes[:, 1].diff() >= 0).all()


@pytest.mark.parametrize("value", [0, 1, -1, 2.0, float("nan")])
def test_tolerances_are_checked(value):
    with pytest.raises(ValueError, match="variance_tolerance above 0 and below 1"):
        settings.variance_tolerance(value)


def test_what_a_method_cannot_do_is_refused():
    noises = gpytorch.likelihoods.FixedNoiseGaussianLikelihood(torch.full((N,), 0.1))
    with pytest.raises(ValueError, match="one level of noise"):
        _variances(_model(KERNELS["forest"](), noises), "feature_space")
    total = KERNELS["forest"]() + ScaleKernel(RBFKernel())
    for method in ("feature_space", "samples"):
        with pytest.raises(ValueError, match="partition kernel"):
            _variances(_model(total), method)
    with pytest.raises(ValueError, match="one partition kernel"):
        _variances(_model(KERNELS["forest"]() + KERNELS["Mondrian"]()), "feature_space")
    with pytest.raises(ValueError, match="one partition kernel"):
        _variances(_model(LocalLinearKernel(KERNELS["forest"](), 3)), "feature_space")
    assert _variances(_model(total), "auto").shape == (N_TEST,)
    with pytest.raises(ValueError, match="predictive_variances to be one of"):
        settings.predictive_variances("fast")


class TestChoice:
    """The expected costs decide; what has been computed already costs nothing."""

    @pytest.fixture
    def posterior(self):
        covariance = KERNELS["fast cluster"]()(X).evaluate_kernel()
        return ClusterPosterior(covariance.add_diagonal(torch.tensor([0.1])), (LoadedRows(covariance.left),))

    def _cheapest(self, posterior, monkeypatch, num_points, of_feature_space):
        monkeypatch.setattr(work, "of_feature_space", lambda *values: of_feature_space)
        monkeypatch.setattr(ClusterPosterior, "num_points", num_points)
        return posterior.cheapest_method()

    def test_few_points_are_solved_for(self, posterior, monkeypatch):
        assert self._cheapest(posterior, monkeypatch, 3, 1e9) == "conjugate_gradients"

    def test_many_points_are_sampled(self, posterior, monkeypatch):
        assert self._cheapest(posterior, monkeypatch, 10**6, 1e9) == "samples"

    def test_a_small_feature_space_wins(self, posterior, monkeypatch):
        assert self._cheapest(posterior, monkeypatch, 10**6, 1e-9) == "feature_space"

    def test_too_many_clusters_are_never_chosen(self, posterior, monkeypatch):
        rows = posterior.covariance.left
        monkeypatch.setattr(work, "_memory", lambda: 80 * rows.num_clusters**2)
        assert self._exact_methods(posterior) == [True] * 4
        monkeypatch.setattr(work, "_memory", lambda: 80 * (rows.num_clusters - 1) ** 2)
        assert self._exact_methods(posterior) == [False] * 4
        monkeypatch.setattr(work, "_memory", lambda: 2**40)
        monkeypatch.setattr(work, "_MOST_CLUSTERS", 10)
        assert self._exact_methods(posterior) == [False] * 4

    def _exact_methods(self, posterior):
        rows = posterior.covariance.left
        is_finite = work.of_feature_space(posterior.noisy, rows, 1.0) < float("inf")
        cholesky = work.takes_cholesky(rows.num_clusters, rows.num_rows)
        return [is_finite, work.takes_eigenvectors(rows), work.may_take_eigenvectors(rows), cholesky]

    def test_cubes_of_clusters_are_compared_with_rows(self, posterior, monkeypatch):
        rows = posterior.covariance.left
        ratio = rows.num_clusters**3 / rows.num_rows
        for name in ("_EIGENVECTORS", "_CHOLESKY"):
            monkeypatch.setattr(work, name, 0.99 * ratio)
        assert self._exact_methods(posterior) == [True, False, True, False]
        for name in ("_EIGENVECTORS", "_CHOLESKY"):
            monkeypatch.setattr(work, name, 1.01 * ratio)
        assert self._exact_methods(posterior) == [True] * 4

    def test_memory_is_that_of_this_machine(self):
        assert 2**28 < work._memory() < 2**48

    def test_factors_in_float64_are_more_products_of_float32(self, posterior):
        double = KERNELS["fast cluster"]().double()(X.double()).evaluate_kernel()
        double = double.add_diagonal(torch.tensor([0.1], dtype=torch.float64))
        rows = posterior.covariance.left
        assert work.of_direct(double, 7) == pytest.approx(N / 3 + 14)
        for found, expected in (
            (work.of_direct(posterior.noisy, 7), work.of_direct(double, 7)),
            (work.of_feature_space(posterior.noisy, rows, 1.0), work.of_feature_space(double, rows, 1.0)),
        ):
            assert found == pytest.approx(5 * expected)
        assert work.of_samples(posterior.noisy, 512) == pytest.approx(work.of_samples(double, 512), rel=1e-5)

    def test_a_factor_that_is_there_takes_no_work_for_its_values(self, posterior):
        scale, rows = float(posterior.covariance.scale), posterior.covariance.left
        assert work.of_feature_space(posterior.noisy, rows, scale) == pytest.approx(
            5 * rows.num_clusters**3 / 5_000 / rows.num_rows
        )
        posterior.exact_variances()
        assert work.of_feature_space(posterior.noisy, rows, scale) == 0
        assert work.of_feature_space(posterior.noisy, rows, 2 * scale) > 0
        assert not work.is_decomposed(rows)
        assert posterior.has_covariance

    def test_eigenvectors_that_are_there_take_no_work_for_all_values(self, posterior, monkeypatch):
        rows = posterior.covariance.left
        assert feature_space_of(posterior.covariance).values.numel() == rows.num_clusters
        monkeypatch.setattr(work, "_MOST_CLUSTERS", 10)
        assert work.of_feature_space(posterior.noisy, rows, 3.0) == 0
        assert work.takes_eigenvectors(rows)
        assert work.may_take_eigenvectors(rows)

    def test_expected_iterations_follow_rows_noise_and_outputscale(self, posterior):
        noisy = posterior.noisy
        assert work.noise_ratio(noisy) == pytest.approx(0.1)
        louder = posterior.covariance.add_diagonal(torch.tensor([0.4]))
        assert work.of_conjugate_gradients(noisy, 9) == pytest.approx(2 * work.of_conjugate_gradients(louder, 9))
        assert work.of_samples(noisy, 512) > work.of_samples(louder, 512) > 0
        silent = ClusterPosterior((posterior.covariance * 0.0).add_diagonal(torch.tensor([0.0])), posterior.points)
        assert work.of_samples(silent.noisy, 512) > 0


def _all_parts():
    return IterativeKernel(
        ScaleKernel(RandomForestKernel(X, Y, 15, random_state=0))
        + ScaleKernel(LocalLinearKernel(MondrianKernel(X, 20, random_state=0), 3))
        + LinearKernel()
        + ConstantKernel()
        + ScaleKernel(LandmarkKernel(X, Y, 30, num_rows=100, random_state=0))
    )


class TestSums:
    """Every term has clusters, and effects of its own: several where rows have loadings."""

    PARTS = {
        "all": _all_parts,
        "local linear": lambda: LocalLinearKernel(RandomForestKernel(X, Y, 15, random_state=0), 3),
        "landmarks": lambda: LandmarkKernel(X, Y, 30, num_rows=100, random_state=0),
        "linear": lambda: IterativeKernel(LinearKernel(ard_num_dims=3)),
    }

    @pytest.mark.parametrize("name", PARTS)
    def test_samples_are_unbiased_and_conjugate_gradients_exact(self, name):
        torch.manual_seed(0)
        model = _model(self.PARTS[name]())
        exact = _exact(model)
        torch.testing.assert_close(_variances(model, "conjugate_gradients"), exact, rtol=2e-3, atol=1e-4)
        ratio = _variances(model, "samples")[:-6] / exact[:-6]  # the last points are far from all others
        standard_error = (2 / settings.num_variance_samples.value()) ** 0.5
        assert (ratio - 1).abs().max() < 5 * standard_error
        assert (ratio.mean() - 1).abs() < 3 * standard_error

    @pytest.mark.parametrize("name", PARTS)
    def test_joint_samples_have_the_predictive_covariance(self, name):
        """Also of points in clusters that no training row is in, a few of which share one."""
        test = torch.cat([TEST[:5], 0.01 * TEST[:2] + 6.0, TEST[:1] - 6.0])
        model, limit = _model(self.PARTS[name]()).double(), linear_operator.settings.max_cholesky_size(50)
        with torch.no_grad(), torch.random.fork_rng(devices=[]), settings.iterative(), limit:
            torch.manual_seed(0)
            points = torch.cat([test, torch.randn(52, 3)]).double()
            posterior = model(points)
            samples = torch.cat([posterior.sample(torch.Size([60])) for _ in range(3)])[:, :8]
        with torch.no_grad():
            exact = model(test.double())
        expected, deviation = exact.covariance_matrix, exact.stddev
        error = (samples.T.cov() - expected) / torch.outer(deviation, deviation)
        assert error.abs().max() < 5 * (2 / len(samples)) ** 0.5
        means = (samples.mean(0) - exact.mean) / deviation
        assert means.abs().max() < 5 / len(samples) ** 0.5

    def test_a_sum_of_one_partition_kernel_has_its_feature_space(self):
        kernel = KERNELS["forest"]()
        expected = _variances(_model(kernel), "feature_space")
        torch.testing.assert_close(_variances(_model(IterativeKernel(kernel)), "feature_space"), expected)

    def test_many_samples_come_from_ordered_rows_with_their_loadings(self):
        covariance = _all_parts()(X).evaluate_kernel()
        points = tuple(LoadedRows(term.left, term.left_loadings) for term in covariance.linear_ops)
        posterior = ClusterPosterior(covariance.add_diagonal(torch.tensor([0.1])), points)
        with settings.iterative(), linear_operator.settings.max_cholesky_size(50):
            prepared = posterior._prepared(512)
        assert all(term.is_symmetric for term in prepared.covariances)
        assert all(term.left_loadings is term.right_loadings for term in prepared.covariances)
        order = posterior._finest_codes().argsort(stable=True)
        torch.testing.assert_close(prepared.noisy.to_dense(), posterior.noisy.to_dense()[order][:, order])

    def test_expected_iterations_go_by_the_terms_with_several_clusters(self):
        forest, landmarks = KERNELS["forest"]()(X).evaluate_kernel(), self.PARTS["landmarks"]()(X).evaluate_kernel()
        noise = torch.tensor([0.1])
        ratio = work.noise_ratio((forest * 0.5 + landmarks * 40.0).add_diagonal(noise))
        assert ratio == pytest.approx(0.2)
        varying = torch.linspace(0.1, 9, N)
        harmonic = 1 / float(varying.reciprocal().mean())
        assert work.noise_ratio((forest * 0.5).add_diagonal(varying)) == pytest.approx(harmonic / 0.5)
        explained = float(landmarks.diagonal().mean())
        assert work.noise_ratio((landmarks * 2.0).add_diagonal(noise)) == pytest.approx(0.1 / (2 * explained))

    def test_terms_of_other_points_or_loadings_do_not_fit(self):
        total = IterativeKernel(KERNELS["forest"]() + LinearKernel())
        noisy = total(X).evaluate_kernel().add_diagonal(torch.tensor([0.1]))
        assert cluster_posterior(noisy, total(TEST, X).evaluate_kernel()) is not None
        assert cluster_posterior(noisy, total(TEST, X[:9]).evaluate_kernel()) is None
        assert cluster_posterior(noisy, KERNELS["forest"]()(TEST, X).evaluate_kernel()) is None
        narrow = IterativeKernel(KERNELS["forest"]() + LinearKernel(active_dims=(0, 1)))
        assert cluster_posterior(noisy, narrow(TEST, X).evaluate_kernel()) is None
