"""The methods behind predictions: which is taken, how samples are drawn, factors, and noise tiny beside the prior."""

from __future__ import annotations

from contextlib import nullcontext

import gpytorch
import pytest
import torch
from linear_operator import settings as linear_settings

from gpytorch_partition import settings
from gpytorch_partition.inference.prediction import cluster_posterior as posteriors
from gpytorch_partition.inference.prediction import method_costs
from gpytorch_partition.inference.prediction.cluster_posterior import ClusterPosterior
from gpytorch_partition.linalg.conjugate_gradients import UnconvergedError
from gpytorch_partition.operators.loadings import LoadedRows
from gpytorch_partition.solvers import direct, iterative_solvers
from gpytorch_partition.solvers import direct as factors
from gpytorch_partition.solvers.direct import FeatureFactor, feature_factor
from tests.extremes.problems import Cell, rows
from tests.extremes.problems import exact as exact_of_cell
from tests.extremes.problems import model_of as model_of_cell
from tests.inference.prediction_problems import KERNELS, NEW, N, X, clusters, exact, model_of
from tests.limits import many_rows


def posterior_of(kernel, noise=0.1, dtype=torch.float32):
    covariance = (KERNELS[kernel]() if isinstance(kernel, str) else kernel).to(dtype)(X.to(dtype)).evaluate_kernel()
    terms = getattr(covariance, "linear_ops", [covariance])
    noise = torch.as_tensor(noise, dtype=dtype).expand(N) if torch.is_tensor(noise) else torch.tensor([noise]).to(dtype)
    points = tuple(LoadedRows(term.left, term.left_loadings) for term in terms)
    return ClusterPosterior(covariance.add_diagonal(noise), points)


# Samples.

MANY_QUIET = torch.tensor([1e6, 0.01, 0.01, 0.01] * (N // 4))
FEW_QUIET = torch.tensor([0.01] * 50 + [0.1] * (N - 50))


@pytest.mark.parametrize("noise", [0.1, 1e-3, MANY_QUIET, FEW_QUIET])
@pytest.mark.parametrize("name", ["forest", "mondrian"])
def test_errors_of_samples_are_within_the_tolerance(name, noise, monkeypatch):
    """
    The same draws solved densely: what iterations add to the variance is at most the tolerance, and not nothing.

    Also for quiet rows among some that a loud noise all but leaves out. Iterations go on to the end, as for more rows
    than are factorized.
    """
    monkeypatch.setattr(iterative_solvers, "is_small", lambda _: False)
    posterior = posterior_of(name, noise, torch.float64)
    is_quiet = posterior.noisy._diag_tensor._diagonal() < 2

    def draw():
        tables = posterior._drawn_by_solves(64, torch.Generator().manual_seed(0))
        return posterior._deviations(tables)[is_quiet]

    with torch.no_grad(), settings.iterative():
        exact_draws = draw()
        for tolerance in (0.01, 0.1):
            with linear_settings.max_cholesky_size(50), settings.variance_tolerance(tolerance):
                error = (draw() - exact_draws).square().mean() / exact_draws.square().mean()
            assert 1e-8 < error < tolerance


def block_sizes(posterior, num_samples):
    with torch.no_grad():
        return [tables[0].shape[-1] for tables in posterior._blocks(num_samples, None, "samples")]


@pytest.mark.parametrize("name", ["forest", "all parts"])
def test_many_samples_come_from_ordered_rows_and_a_larger_rank(name, monkeypatch):
    posterior = posterior_of(name)
    assert posterior._prepared(512) is posterior  # dense
    with many_rows(50), settings.preconditioner_rank(20):
        assert posterior._prepared(127) is posterior
        prepared = posterior._prepared(512)
        for numbers, rank in ((30 * N, 30), (5 * N, 20)):
            monkeypatch.setattr(posteriors, "_MOST_BYTES", 4 * numbers)
            assert posterior._prepared(512).noisy._nystrom_preconditioner.factor.root.shape == (N, rank)
    assert prepared.noisy._nystrom_preconditioner.factor.root.shape == (N, 80)
    assert (block_sizes(posterior, 50), block_sizes(prepared, 70)) == ([16, 16, 16, 2], [32, 32, 6])
    codes = torch.cat([each.left.codes for each in posterior.covariances], -1)
    order = codes[:, int((codes.amax(0) - codes.amin(0)).argmax())].argsort(stable=True)
    assert not torch.equal(order, torch.arange(N))
    torch.testing.assert_close(prepared.noisy.to_dense(), posterior.noisy.to_dense()[order][:, order])
    assert all(term.is_symmetric and term.left_loadings is term.right_loadings for term in prepared.covariances)


@torch.no_grad()
def test_no_samples_and_samples_of_nothing():
    posterior = posterior_of("forest")
    silent = ClusterPosterior((posterior.covariance * 0.0).add_diagonal(torch.tensor([0.1])), posterior.points)
    with many_rows():
        assert posterior.samples(0, [posterior.points[0].rows]).shape == (0, N)
        assert not silent.sampled_variances().any()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (lambda: settings.num_variance_samples(1), "at least 2, got 1"),
        (lambda: settings.preconditioner_rank(0), "preconditioner_rank of 1 or more, got 0"),
        (lambda: settings.predictive_variances("fast"), "predictive_variances to be one of"),
        *[
            (lambda value=value: settings.variance_tolerance(value), "variance_tolerance above 0 and below 1")
            for value in (0, 1, -1, 2.0, float("nan"))
        ],
    ],
)
def test_settings_are_checked(setting, message):
    with pytest.raises(ValueError, match=message):
        setting()


# Which method is taken.


class TestChoice:
    """The expected costs decide; what has been computed already costs nothing."""

    @pytest.fixture
    def posterior(self):
        return posterior_of(clusters())

    @pytest.mark.parametrize(
        ("num_points", "of_feature_space", "method"),
        [(3, 1e9, "conjugate_gradients"), (10**6, 1e9, "samples"), (10**6, 1e-9, "feature_space")],
    )
    def test_the_least_work_is_taken(self, posterior, monkeypatch, num_points, of_feature_space, method):
        monkeypatch.setattr(method_costs, "of_feature_space", lambda *_: of_feature_space)
        monkeypatch.setattr(ClusterPosterior, "num_points", num_points)
        assert method_costs.cheapest_method(posterior) == method

    @pytest.mark.parametrize(("iterations", "is_better"), [(1, False), (300, True)])
    def test_the_iterations_of_an_earlier_solve_count(self, posterior, monkeypatch, iterations, is_better):
        """By 300 of them, samples would take longer than a factor of A."""
        monkeypatch.setattr(method_costs, "of_feature_space", lambda *_: float("inf"))
        monkeypatch.setattr(ClusterPosterior, "num_points", 10**3)
        posterior.noisy.iterations = iterations
        with many_rows(), pytest.raises(UnconvergedError) if is_better else nullcontext():
            assert method_costs.cheapest_method(posterior) == "samples"

    def test_a_solve_leaves_its_iterations(self):
        model = model_of("clusters").eval()
        with many_rows(), torch.no_grad():
            noisy = model(NEW).lazy_covariance_matrix.noisy
        assert noisy.iterations > 0

    def _exact_methods(self, posterior):
        rows = posterior.covariance.left
        is_finite = method_costs.of_feature_space(posterior.noisy, rows, 1.0) < float("inf")
        cholesky = method_costs.takes_cholesky(rows.num_clusters, rows.num_rows)
        return [is_finite, method_costs.takes_eigenvectors(rows), method_costs.may_take_eigenvectors(rows), cholesky]

    def test_too_many_clusters_are_never_chosen(self, posterior, monkeypatch):
        assert 2**28 < method_costs._memory() < 2**48
        size = posterior.covariance.left.num_clusters
        for name, value, expected in [
            ("_memory", lambda: 80 * size**2, True),
            ("_memory", lambda: 80 * (size - 1) ** 2, False),
            ("_memory", lambda: 2**40, True),
            ("_MOST_CLUSTERS", 10, False),
        ]:
            monkeypatch.setattr(method_costs, name, value)
            assert self._exact_methods(posterior) == [expected] * 4


# A factor of the coefficients of a root.


@pytest.fixture
def by_factor(monkeypatch):
    monkeypatch.setattr(
        method_costs,
        "of_feature_factor",
        lambda noisy: 0.0 if factors.has_feature_factor(noisy._linear_op.evaluate_kernel()) else 1e9,
    )


def test_points_in_groups_of_their_own(by_factor):
    """Two new groups do not covary, though the rows' clusters do not tell them apart."""
    model, new = model_of("slopes + groups", dtype=torch.float64).eval(), NEW[3:7].double()
    new[:, 2] = torch.tensor([17.0, 17.0, 18.0, 1.0])
    with torch.no_grad(), many_rows():
        predicted = model(new)
        assert predicted.variance.min() > 0
        torch.testing.assert_close(predicted.covariance_matrix, exact(model, new)[1], rtol=1e-2, atol=1e-3)
        assert predicted.lazy_covariance_matrix.zero_mean_mvn_samples(4).shape == (4, 4)


@torch.no_grad()
@pytest.mark.parametrize("outputscale", [1e-8, 1.0, 1e4])
@pytest.mark.parametrize("noise", [1e-8, 1e-4, 1.0])
def test_no_factor_is_used_whose_rounding_is_felt(outputscale, noise):
    """What resolves is right to a thousandth; what does not is left to solves in float64."""
    kernel = gpytorch.kernels.ScaleKernel(KERNELS["landmarks + linear"]())
    kernel.outputscale = outputscale
    model = model_of(kernel, noise, dtype=torch.float64).eval()
    diagonal = torch.full((N,), noise).double()
    factor = feature_factor(model.covar_module(X.double()).evaluate_kernel(), diagonal)
    if factor is None:
        assert noise / outputscale < 1e-4
        return
    with many_rows():
        posterior = model(NEW.double()).lazy_covariance_matrix._posterior
        root = factor.root(posterior.points)
    true = exact(model, noise=diagonal)[1].diagonal()
    torch.testing.assert_close(root.square().sum(-1), true, rtol=2e-3, atol=1e-12 * outputscale)  # of the oracle


@torch.no_grad()
def test_blocks_of_rows_add_up(monkeypatch):
    covariance = KERNELS["slopes + groups"]().double()(X.double()).evaluate_kernel()
    noise = torch.full((N,), 0.05).double()
    whole = FeatureFactor(covariance, noise)
    monkeypatch.setattr(factors, "_BLOCK_ROWS", 150)
    monkeypatch.setattr(factors, "_BLOCK_COLUMNS", 7)
    torch.testing.assert_close(FeatureFactor(covariance, noise)._precision, whole._precision)


def test_a_factor_is_taken_by_itself_for_many_points_unless_a_setting_says_else(monkeypatch):
    """Sixty inducing points and a noise that takes hundreds of iterations."""
    for setting in ("auto", "conjugate_gradients"):
        model = model_of("landmarks + linear", noise=1e-2, dtype=torch.float64).eval()
        with torch.no_grad(), many_rows(), settings.predictive_variances(setting):
            predicted = model(NEW.double())
            torch.testing.assert_close(predicted.variance, exact(model)[1].diagonal(), rtol=1e-2, atol=0)
            assert predicted.covariance_matrix.isfinite().all()
        assert predicted.lazy_covariance_matrix.noisy.knows_feature_factor == (setting == "auto")
    monkeypatch.setattr(factors, "MOST_COLUMNS", 10)
    refused = pytest.raises(ValueError, match="6,000 columns at most")
    with torch.no_grad(), many_rows(), settings.predictive_variances("factor"), refused:
        model_of("landmarks", dtype=torch.float64).eval()(NEW.double()).variance.sum().item()


# Noise tiny beside the prior variance: variances, covariances and samples agree, and are right.


def covariance_of(cell):
    return model_of_cell(cell).eval()(rows(cell.num_rows)[1].to(cell.dtype)).lazy_covariance_matrix


@pytest.fixture
def above_the_limit():
    with settings.iterative(), linear_settings.max_cholesky_size(400), gpytorch.settings.debug(False), torch.no_grad():
        yield


@pytest.mark.usefixtures("above_the_limit")
class TestSmallNoise:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize(
        ("kernel", "outputscale", "noise"),
        [("landmark sum", 200.0, 0.05), ("landmark sum", 1e4, 0.05), ("forest", 1.0, 1e-4)],
    )
    def test_variances_covariances_and_samples_agree_to_a_percent(self, kernel, outputscale, noise, dtype):
        cell = Cell(kernel, dtype, "few rows", outputscale, noise)
        covariance, true = covariance_of(cell), exact_of_cell(cell).covariance()
        dense, root = covariance.to_dense(), covariance.root_decomposition().root.to_dense()
        for variances in (covariance.diagonal(), dense.diagonal(), root.square().sum(-1)):
            torch.testing.assert_close(variances.double(), true.diagonal(), rtol=0.01, atol=0)
        deviations = true.diagonal().sqrt()
        assert ((dense.double() - true) / torch.outer(deviations, deviations)).abs().max() < 0.01

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_products_and_parts_are_those_of_the_whole_matrix(self, dtype):
        """To a ten-thousandth of the least variance, which is .013."""
        cell = Cell("landmark sum", dtype, "few rows", 1e4, 0.05)
        covariance, true = covariance_of(cell), exact_of_cell(cell).covariance().to(dtype)
        ones, first, others = torch.ones(40, 1, dtype=dtype), torch.arange(5), torch.arange(5, 10)
        torch.testing.assert_close(covariance.matmul(ones), true @ ones, rtol=0, atol=1e-5)
        torch.testing.assert_close(covariance[:5, 5:9].to_dense(), true[:5, 5:9], rtol=0, atol=1e-6)
        torch.testing.assert_close(covariance[first, others], true[first, others], rtol=0, atol=1e-6)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("kernel", ["landmark sum", "forest"])
    def test_a_factor_is_taken_where_it_costs_less_than_iterations(self, kernel, dtype, monkeypatch):
        """At a noise that iterations would reach as well; all that follows is by the same factor."""
        for name, products in (("of_direct", 0.0), ("of_feature_space", 1.0), ("of_feature_factor", 1.0)):
            monkeypatch.setattr(method_costs, name, lambda *_, products=products: products)
        cell = Cell(kernel, dtype, "few rows", 1.0, 0.1)
        covariance, true = covariance_of(cell), exact_of_cell(cell).covariance()
        torch.testing.assert_close(covariance.diagonal().double(), true.diagonal(), rtol=1e-5, atol=1e-6)
        assert covariance.noisy.knows_direct
        torch.testing.assert_close(covariance.to_dense().double(), true, rtol=1e-5, atol=1e-6)
        samples = covariance.zero_mean_mvn_samples(2000).double()
        torch.testing.assert_close(samples.var(0), true.diagonal(), rtol=0.2, atol=0)

    def test_very_many_points_are_sampled_by_the_factor(self, monkeypatch):
        monkeypatch.setattr(method_costs, "MOST_ROWS", 20)
        cell = Cell("landmark sum", torch.float64, "few rows", 1.0, 1e-6)
        with settings.num_variance_samples(8):
            covariance = covariance_of(cell)
            of_samples = covariance.diagonal()
        assert covariance.noisy.knows_direct
        assert (of_samples / exact_of_cell(cell).covariance().diagonal() - 1).abs().max() > 0.05

    @pytest.mark.parametrize("method", ["samples", "feature_space", "conjugate_gradients"])
    def test_every_method_for_variances(self, method):
        cell = Cell("forest", torch.float32, "few rows", 1.0, 1e-7)
        with settings.predictive_variances(method), settings.num_variance_samples(256):
            found = covariance_of(cell).diagonal().double()  # `variance` is at least 1e-6 in GPyTorch
        tolerance = 0.5 if method == "samples" else 0.01
        torch.testing.assert_close(found, exact_of_cell(cell).covariance().diagonal(), rtol=tolerance, atol=0)

    def test_means_of_missing_targets(self):
        """The policy for missing targets keeps weights in float64 as well."""
        model = model_of_cell(Cell("forest", torch.float32, "few rows", 1.0, 1e-7))
        targets = model.train_targets.clone()
        targets[7] = torch.nan
        model.set_train_data(targets=targets, strict=False)
        with gpytorch.settings.observation_nan_policy("mask"):
            found = model.eval()(rows(500)[1].float()).mean.double()
        keep = torch.arange(500) != 7
        whole = model.covar_module.double()(torch.cat(rows(500))).to_dense()
        cross, own = whole[500:, :500][:, keep], whole[:500, :500][keep][:, keep] + 1e-7 * torch.eye(499).double()
        expected = cross @ torch.linalg.solve(own, targets[keep].double())
        torch.testing.assert_close(found, expected, rtol=0, atol=3e-5)

    def test_means_that_would_be_wrong_are_refused(self, monkeypatch):
        monkeypatch.setattr(direct, "MOST_ROWS", 5)
        monkeypatch.setattr(direct, "MOST_COLUMNS", 5)
        with (
            linear_settings.max_cg_iterations(20),
            pytest.warns(match="unfinished"),
            pytest.raises(UnconvergedError, match="raise the noise"),
        ):
            covariance_of(Cell("forest", torch.float64, "few rows", 1.0, 1e-8))

    def test_fewer_clusters_than_rows(self):
        """Variances far below what is left of a difference of two prior variances."""
        cell = Cell("mondrian", torch.float64, "few rows", 1.0, 1e-8)
        true = exact_of_cell(cell).covariance().diagonal()
        assert float(true.min()) < 1e-8
        torch.testing.assert_close(covariance_of(cell).diagonal(), true, rtol=0.01, atol=0)
