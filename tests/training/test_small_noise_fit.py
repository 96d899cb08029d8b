"""Fits in one pass where the noise is tiny: exact if possible, and else they say how far off they may be."""

from __future__ import annotations

import math

import pytest
import torch
from gpytorch.constraints import GreaterThan
from gpytorch.likelihoods import GaussianLikelihood
from linear_operator import settings as linear_settings
from sklearn.exceptions import ConvergenceWarning

from gpytorch_partition import fit_exact_gp, settings
from gpytorch_partition.inference.evidence import spectral_likelihood
from gpytorch_partition.inference.evidence.spectral_likelihood import SpectralLikelihood
from gpytorch_partition.training import one_pass
from tests.extremes import problems
from tests.extremes.problems import Cell, exact, rows

CELL = Cell("forest", torch.float64, "dense", 1.0, 1e-8)  # 300 rows


def fitted(method):
    """The fit with the noise of the targets, and how much its likelihood is above the true one at the values found."""
    kernel = problems._copied(problems._kernel("forest", 300, 1.0))
    likelihood = GaussianLikelihood(noise_constraint=GreaterThan(1e-12)).double()
    likelihood.noise = CELL.noise
    model = problems.Model(rows(300)[0], exact(CELL).targets, likelihood.requires_grad_(False), kernel)
    with settings.iterative(), linear_settings.max_cholesky_size(100):
        fit = fit_exact_gp(model, likelihood, method=method)
    answers = exact(CELL)
    shifted = float(kernel.outputscale.detach()) * answers.values + float(likelihood.noise.detach())
    form = ((answers.vectors.mT @ answers.targets).square() / shifted).sum()
    true = -0.5 * float(form + shifted.log().sum() + 300 * math.log(2 * math.pi))
    return fit, fit.log_marginal_likelihood - true


@pytest.fixture(autouse=True)
def _few_steps(monkeypatch):
    monkeypatch.setattr(spectral_likelihood, "CHECKPOINTS", (20, 30, 40))


@pytest.mark.filterwarnings("ignore:.*bound")
def test_lanczos_steps_that_do_not_suffice():
    with pytest.warns(ConvergenceWarning, match="may be larger by"):
        fit, error = fitted("krylov")
    assert not fit.converged
    assert error < -0.05 * 300  # which was said to have converged, at a standard error of .006 per datum
    assert -1.2 * fit.bias < error
    assert fit.standard_error >= fit.bias


@pytest.mark.filterwarnings("ignore:.*bound")
@pytest.mark.parametrize("takes_eigenvectors", [True, False])
def test_the_fit_is_then_exact(monkeypatch, takes_eigenvectors):
    monkeypatch.setattr(one_pass, "_fastest", lambda _: "krylov")
    monkeypatch.setattr(one_pass.method_costs, "may_take_eigenvectors", lambda _: takes_eigenvectors)
    fit, error = fitted("auto")
    assert (fit.converged, fit.method, fit.bias, fit.standard_error) == (
        True,
        "feature_space" if takes_eigenvectors else "dense",
        0,
        0,
    )
    assert abs(error) < 1e-3 * 300


def test_bounds_of_quadratic_forms_enclose_them():
    answers = exact(CELL)
    covariance = problems._kernel("forest", 300, 1.0)(rows(300)[0]).evaluate_kernel().detach()
    squares = (answers.vectors.mT @ answers.targets).square()
    for measure in spectral_likelihood.krylov_measures(covariance, answers.targets.unsqueeze(-1), 2, seed=0):
        likelihood = SpectralLikelihood(measure)
        for noise in (1e-1, 1e-3, 1e-5, 1e-8):
            error = likelihood.form(noise, 0.0) - float((squares / (answers.values + noise)).sum())
            rounding = 1e-9 * likelihood.form(noise, 0.0)
            assert -rounding <= error <= likelihood._form_bias(1.0, noise, 0.0) + rounding


def test_bounds_of_the_log_determinant_enclose_it():
    """For each outputscale and noise, with as many probe vectors as leave no doubt about the sign."""
    answers = exact(CELL)
    covariance = problems._kernel("forest", 300, 1.0)(rows(300)[0]).evaluate_kernel().detach()
    *_, measure = spectral_likelihood.krylov_measures(covariance, answers.targets.unsqueeze(-1), 10, seed=0)
    likelihood = SpectralLikelihood(measure)
    for noise in (1e-1, 1e-3, 1e-5, 1e-8):
        probes = likelihood.standard_error(1.0, noise)
        error = likelihood.log_determinant(1.0, noise) - float((answers.values + noise).log().sum())
        assert -8 * probes - 1e-6 <= error <= 2 * likelihood.bias(1.0, noise) + 8 * probes
