"""Variances of forests from few draws, beside exact predictions from the nearest rows, against dense algebra."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from gpytorch_partition import IterativeKernel, LocalLinearKernel, RandomForestKernel, settings
from gpytorch_partition.inference.prediction import cluster_posterior, local_conditioning
from gpytorch_partition.inference.prediction.cluster_posterior import ClusterPosterior
from gpytorch_partition.inference.prediction.local_conditioning import local_predictors, nearest_rows
from tests.inference.prediction_problems import NEW, NOISES, N, X, Y, exact, model_of, scaled, weighted
from tests.limits import many_rows

SAMPLES = settings.predictive_variances("samples")


def many_trees(**options):
    return RandomForestKernel(X, Y, 60, random_state=0, **options)


FORESTS = {
    "all heights": lambda: scaled(many_trees()),
    "learned heights": lambda: scaled(weighted("learned")),
    "impurity": lambda: scaled(weighted("impurity")),
    "two forests": lambda: IterativeKernel(scaled(many_trees()) + scaled(weighted("all"), 0.5)),
    "slopes": lambda: scaled(LocalLinearKernel(many_trees(), 3), 0.4),
    "grown elsewhere": lambda: scaled(RandomForestKernel(NEW, NEW[:, 0], 40, min_samples_leaf=1, random_state=0)),
}


def posterior_of(kernel, noise, dtype=torch.float64):
    model = model_of(kernel, noise, dtype=dtype).eval()
    with many_rows(), torch.no_grad():
        return model, model(NEW.to(dtype)).lazy_covariance_matrix._posterior


@pytest.mark.parametrize("noise", [1e-4, 0.1, 1.0, NOISES], ids=str)
@pytest.mark.parametrize("name", FORESTS)
def test_predictors_are_exact_conditioning_on_their_rows(name, noise, monkeypatch):
    monkeypatch.setattr(local_conditioning, "_POINTS", 7)
    _, posterior = posterior_of(FORESTS[name](), noise)
    noises = posterior.noisy._diag_tensor._diagonal()
    with torch.no_grad():
        found = local_predictors(posterior.covariances, posterior.points, noises)
        kernel = FORESTS[name]().double()
        points, rows = NEW.double(), X.double()
        joint = kernel(torch.cat([points, rows])).to_dense()
    for point in range(len(points)):
        of_rows = found.rows[point][found.weights[point] != 0]
        among = joint[len(points) + of_rows][:, len(points) + of_rows] + noises[of_rows].diag()
        cross = joint[point, len(points) + of_rows]
        weights = torch.linalg.solve(among, cross)
        torch.testing.assert_close(found.weights[point][found.weights[point] != 0], weights, rtol=1e-8, atol=1e-9)
        torch.testing.assert_close(found.variances[point], joint[point, point] - cross @ weights, rtol=1e-9, atol=1e-9)


def blocks_drawn(monkeypatch):
    drawn, original = [], ClusterPosterior._targets
    monkeypatch.setattr(ClusterPosterior, "_targets", lambda *args: drawn.append(args) or original(*args))
    return drawn


STANDARD_ERROR = (2 / settings.num_variance_samples.value()) ** 0.5  # of a sampled variance, as a share


@pytest.mark.parametrize("noise", [1.0, NOISES], ids=["1", "of rows"])
@pytest.mark.parametrize("name", FORESTS)
def test_a_few_draws_are_as_exact_as_all_samples(name, noise, monkeypatch):
    drawn, dtype = blocks_drawn(monkeypatch), torch.float64 if name == "slopes" else torch.float32
    model = model_of(FORESTS[name](), noise, dtype=dtype).eval()
    _, covariance, _ = exact(model)
    with many_rows(), torch.no_grad(), SAMPLES:
        error = model(NEW.to(dtype)).variance.double() / covariance.diagonal() - 1
    assert error.abs().max() < 5 * STANDARD_ERROR
    assert error.mean().abs() < 0.5 * STANDARD_ERROR
    assert 1 <= len(drawn) <= 8  # of 16 blocks


@pytest.mark.parametrize("noise", [1e-3, 1.0])
def test_samples_stay_where_the_nearest_rows_tell_little(noise, monkeypatch):
    found = []
    for are_possible in (True, False):
        monkeypatch.setattr(cluster_posterior, "have_local_predictors", lambda _: are_possible)  # noqa: B023
        with many_rows(), torch.no_grad(), SAMPLES, settings.num_variance_samples(64):
            found.append(model_of(FORESTS["all heights"](), noise).eval()(NEW).variance)
    assert torch.equal(*found) == (noise < 1)


def test_draws_are_kept_for_later_calls_and_threads(monkeypatch):
    drawn = blocks_drawn(monkeypatch)
    model = model_of(FORESTS["all heights"](), 1.0).eval()
    with many_rows(), torch.no_grad(), SAMPLES:
        first, number = model(NEW).variance, len(drawn)
        assert torch.equal(model(NEW).variance, first)
        assert len(drawn) == number > 1
        assert torch.equal(copy.deepcopy(model)(NEW).variance, first)
        assert len(drawn) == 2 * number
        with settings.probe_seed(1):
            assert not torch.equal(model(NEW).variance, first)
        with settings.num_variance_samples(2048):
            more, exact_ones = model(NEW).variance, exact(model)[1].diagonal()
        assert (more / exact_ones - 1).square().mean() < (first / exact_ones - 1).square().mean() / 2
        monkeypatch.setattr(cluster_posterior, "_MOST_KEPT", 0)
        assert torch.equal(model(NEW).variance, first)


@pytest.mark.parametrize("block", [0, 1])
def test_an_interrupted_draw_is_drawn_again(block, monkeypatch):
    model, original, number = model_of(FORESTS["all heights"](), 1.0).eval(), ClusterPosterior._solve, iter(range(99))

    def interrupted(*args):
        if next(number) == block:
            raise KeyboardInterrupt
        return original(*args)

    with many_rows(), torch.no_grad(), SAMPLES:
        expected = copy.deepcopy(model)(NEW).variance
        monkeypatch.setattr(ClusterPosterior, "_solve", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model(NEW).variance.sum().item()
        assert torch.equal(model(NEW).variance, expected)


def test_threads_share_the_draws(monkeypatch):
    model, drawn = model_of(FORESTS["all heights"](), 1.0).eval(), blocks_drawn(monkeypatch)

    def variances(_):
        with many_rows(), torch.no_grad(), SAMPLES:
            return model(NEW).variance

    alone = variances(None)
    number = len(drawn)
    model.prediction_strategy._draws._targets = None
    with ThreadPoolExecutor(4) as pool:
        assert all(torch.equal(each, alone) for each in pool.map(variances, range(4)))
    assert len(drawn) == 2 * number


def test_nearest_rows_share_most_of_the_clusters_that_are_searched(monkeypatch):
    monkeypatch.setattr(local_conditioning, "_MEMBERS", N)
    rows, points = many_trees()(X).evaluate_kernel().left, many_trees()(NEW, X).evaluate_kernel().left
    found = nearest_rows(rows, points.codes, 5)
    shared = (points.codes[:, None, ::2] == rows.codes[None, :, ::2]).sum(-1)
    torch.testing.assert_close(shared.gather(1, found), shared.topk(5).values)
    none = nearest_rows(rows.with_codes(rows.codes[:3]), points.codes, 5)
    assert (none == -1).any()
    assert torch.equal((none >= 0).sum(1), (shared[:, :3] > 0).sum(1))
