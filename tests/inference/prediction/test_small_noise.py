"""Predictions at a noise tiny beside the prior variance: variances, covariances and samples agree, and are right."""

from __future__ import annotations

import gpytorch
import pytest
import torch
from linear_operator import settings as linear_settings

from gpytorch_partition import settings
from gpytorch_partition.inference.prediction import cluster_posterior, work
from gpytorch_partition.linalg.conjugate_gradients import UnconvergedError
from gpytorch_partition.solvers import direct
from tests.extremes.problems import Cell, exact, model_of, rows


@pytest.fixture(autouse=True)
def _above_the_cholesky_limit():
    with settings.iterative(), linear_settings.max_cholesky_size(400), gpytorch.settings.debug(False), torch.no_grad():
        yield


def posterior(cell):
    return model_of(cell).eval()(rows(cell.num_rows)[1].to(cell.dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("kernel", "outputscale", "noise"),
    [("landmark sum", 200.0, 0.05), ("landmark sum", 1e4, 0.05), ("forest", 1.0, 1e-4)],
)
def test_variances_covariances_and_samples_agree_to_a_percent(kernel, outputscale, noise, dtype):
    cell = Cell(kernel, dtype, "few rows", outputscale, noise)
    covariance = posterior(cell).lazy_covariance_matrix
    true = exact(cell).covariance()
    root = covariance.root_decomposition().root.to_dense()
    for variances in (covariance.diagonal(), covariance.to_dense().diagonal(), root.square().sum(-1)):
        torch.testing.assert_close(variances.double(), true.diagonal(), rtol=0.01, atol=0)
    deviations = true.diagonal().sqrt()
    difference = (covariance.to_dense().double() - true) / deviations / deviations.unsqueeze(-1)
    assert float(difference.abs().max()) < 0.01


def test_products_and_parts_are_those_of_the_whole_matrix():
    cell = Cell("landmark sum", torch.float32, "few rows", 1e4, 0.05)
    covariance, vector = posterior(cell).lazy_covariance_matrix, torch.ones(40, 1)
    true = exact(cell).covariance().float()
    torch.testing.assert_close(covariance.matmul(vector), true @ vector, rtol=1e-2, atol=1e-3)
    torch.testing.assert_close(covariance[:5, 5:9].to_dense(), true[:5, 5:9], rtol=0.05, atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kernel", ["landmark sum", "forest"])
def test_a_factor_is_taken_where_it_costs_less_than_iterations(kernel, dtype, monkeypatch):
    """At a noise that iterations would reach as well; all that follows is by the same factor."""
    monkeypatch.setattr(work, "of_direct", lambda *_: 0.0)
    monkeypatch.setattr(work, "of_feature_space", lambda *_: 1.0)
    monkeypatch.setattr(work, "of_feature_factor", lambda *_: 1.0)
    cell = Cell(kernel, dtype, "few rows", 1.0, 0.1)
    covariance, true = posterior(cell).lazy_covariance_matrix, exact(cell).covariance()
    accuracy = {"rtol": 1e-5, "atol": 1e-6}
    torch.testing.assert_close(covariance.diagonal().double(), true.diagonal(), **accuracy)
    assert covariance.noisy.knows_direct
    torch.testing.assert_close(covariance.to_dense().double(), true, **accuracy)
    torch.testing.assert_close(posterior(cell).mean.double(), exact(cell).mean(), rtol=0, atol=0.01)
    samples = covariance.zero_mean_mvn_samples(2000).double()
    torch.testing.assert_close(samples.var(0), true.diagonal(), rtol=0.2, atol=0)


def test_a_factor_is_not_made_where_iterations_cost_less(monkeypatch):
    monkeypatch.setattr(work, "of_direct", lambda *_: 1e9)
    covariance = posterior(Cell("landmark sum", torch.float64, "few rows", 1.0, 0.1)).lazy_covariance_matrix
    assert bool((covariance.diagonal() > 0).all())
    assert covariance.to_dense().shape == (40, 40)
    assert not covariance.noisy.knows_direct


def test_very_many_points_are_sampled_by_the_factor(monkeypatch):
    monkeypatch.setattr(cluster_posterior, "MOST_ROWS", 20)
    cell = Cell("landmark sum", torch.float64, "few rows", 1.0, 1e-6)
    with settings.num_variance_samples(8):
        covariance = posterior(cell).lazy_covariance_matrix
        of_samples = covariance.diagonal()
    assert covariance.noisy.knows_direct
    assert (of_samples / exact(cell).covariance().diagonal() - 1).abs().max() > 0.05


@pytest.mark.parametrize("method", ["samples", "feature_space", "conjugate_gradients"])
def test_every_method_for_variances(method):
    cell = Cell("forest", torch.float32, "few rows", 1.0, 1e-7)
    with settings.predictive_variances(method), settings.num_variance_samples(256):
        found = posterior(cell).lazy_covariance_matrix.diagonal().double()  # `variance` is at least 1e-6 in GPyTorch
    torch.testing.assert_close(
        found, exact(cell).covariance().diagonal(), rtol=0.5 if method == "samples" else 0.01, atol=0
    )


def test_means_of_missing_targets():
    """The policy for missing targets keeps weights in float64 as well."""
    cell = Cell("forest", torch.float32, "few rows", 1.0, 1e-7)
    model = model_of(cell)
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


def test_means_that_would_be_wrong_are_refused(monkeypatch):
    monkeypatch.setattr(direct, "MOST_ROWS", 5)
    monkeypatch.setattr(direct, "MOST_COLUMNS", 5)
    cell = Cell("forest", torch.float64, "few rows", 1.0, 1e-8)
    with (
        linear_settings.max_cg_iterations(20),
        pytest.warns(match="unfinished"),
        pytest.raises(UnconvergedError, match="Raise the noise"),
    ):
        posterior(cell)


def test_fewer_clusters_than_rows():
    """Variances far below what is left of a difference of two prior variances."""
    cell = Cell("mondrian", torch.float64, "few rows", 1.0, 1e-8)
    true = exact(cell).covariance().diagonal()
    assert float(true.min()) < 1e-8
    torch.testing.assert_close(posterior(cell).lazy_covariance_matrix.diagonal(), true, rtol=0.01, atol=0)
