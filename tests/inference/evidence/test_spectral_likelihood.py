"""The likelihood surface against dense multivariate normals, generalized least squares, and its own spread."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from torch.distributions import MultivariateNormal

from gpytorch_partition import FastClusterKernel, MondrianKernel
from gpytorch_partition.inference.evidence.spectral_likelihood import (
    SpectralLikelihood,
    default_num_probes,
    dense_measure,
    krylov_measures,
)

ROWS = 60
EYE = torch.eye(ROWS, dtype=torch.float64)
VALUES = [(1.3, 0.2, 0.4), (0.01, 3.0, -1.0), (50.0, 1e-3, 0.0)]


@cache
def operator():
    x = torch.rand(ROWS, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return MondrianKernel(x, num_trees=15, random_state=0)(x).evaluate_kernel().detach()


def targets(rows=ROWS, count=2):
    return 1 + torch.randn(rows, count, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def krylov_measure(seed=0, looks=3):
    """After three looks, 40 steps, the forms of so few rows are exact."""
    measures = krylov_measures(operator(), targets(), num_probes=5, seed=seed)
    return [next(measures) for _ in range(looks)][-1]


def likelihoods():
    """The same likelihood from both kinds of measures, the second target of two."""
    dense = SpectralLikelihood(dense_measure(operator().to_dense(), targets()), 1)
    return {"dense": dense, "krylov": SpectralLikelihood(krylov_measure(), 1)}


def normal(values):
    scale, noise, mean = values
    return MultivariateNormal(mean.expand(ROWS), scale * operator().to_dense() + noise * EYE)


@pytest.mark.parametrize("values", VALUES)
def test_the_value_is_that_of_a_dense_normal(values):
    exact = normal(torch.tensor(values, dtype=torch.float64)).log_prob(targets()[:, 1])
    assert likelihoods()["dense"].value(*values) == pytest.approx(exact.item(), rel=1e-10)


@pytest.mark.parametrize("values", VALUES)
def test_a_krylov_measure_has_exact_forms_and_differs_in_the_log_determinant_only(values):
    dense, krylov = likelihoods().values()
    determinants = [likelihood.log_determinant(*values[:2]) for likelihood in (dense, krylov)]
    difference = krylov.value(*values) - dense.value(*values)
    assert difference == pytest.approx(-0.5 * (determinants[1] - determinants[0]), rel=1e-6)
    assert abs(determinants[1] - determinants[0]) > 1e-3


@pytest.mark.parametrize("kind", ["dense", "krylov"])
@pytest.mark.parametrize("ratio", [1e-3, 0.1, 10.0])
def test_mean_and_form_are_generalized_least_squares(ratio, kind):
    likelihood, y = likelihoods()[kind], targets()[:, 1]
    weights = torch.linalg.inv(operator().to_dense() + ratio * EYE)
    mean = ((weights @ y).sum() / weights.sum()).item()
    assert likelihood.best_mean(ratio) == pytest.approx(mean, rel=1e-8)
    for other in (mean, 0.0, -3.0):
        residual = y - other
        assert likelihood.form(ratio, other) == pytest.approx((residual @ weights @ residual).item(), rel=1e-8)


def test_targets_far_from_zero_are_as_precise_with_a_covariance_in_single_precision():
    y = targets()[:, :1] + 1e6
    measures = krylov_measures(operator().to(torch.float32), y, num_probes=5, seed=0)
    krylov = SpectralLikelihood([next(measures) for _ in range(3)][-1])
    dense = SpectralLikelihood(dense_measure(operator().to_dense(), y))
    mean = dense.best_mean(0.1)
    assert krylov.best_mean(0.1) == pytest.approx(mean, abs=1e-4)
    assert krylov.form(0.1, mean) == pytest.approx(dense.form(0.1, mean), rel=1e-4)


def test_a_singular_covariance_is_fine():
    column = torch.randn(ROWS, 1, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    likelihood = SpectralLikelihood(dense_measure(column @ column.mT, targets()))
    expected = (ROWS - 1) * np.log(1e-8) + np.log(2 * column.square().sum().item())
    assert likelihood.log_determinant(2.0, 1e-8) == pytest.approx(expected, rel=1e-6)
    # Rounding makes some of the zero eigenvalues slightly negative: no logarithms of these.
    assert np.isfinite(likelihood.log_determinant(2.0, 1e-30))


@pytest.mark.parametrize("num_probes", [1, 2])
def test_few_probe_vectors_tell_their_error_too(num_probes):
    """A spread of two numbers would be less than a fifth of the truth for one seed in six, and none of one."""
    measures = [next(krylov_measures(operator(), targets(), num_probes, seed)) for seed in range(40)]
    ends = [SpectralLikelihood(measure) for measure in measures]
    spread = np.std([end.value(0.5, 0.05, 0.0) for end in ends], ddof=1)
    told = np.array([end.standard_error(0.5, 0.05) for end in ends])
    assert told.mean() == pytest.approx(spread, rel=0.35)  # three standard errors of a spread of 40
    assert told.std() < 0.2 * told.mean()


def test_measures_get_better_and_end_after_300_steps():
    x = torch.randn(400, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    covariance = FastClusterKernel(x, 20, random_state=0)(x).evaluate_kernel()
    measures = list(krylov_measures(covariance, targets(400, 1), 2, seed=0))
    steps = [measure.trace_nodes.shape[1] for measure in measures]
    assert steps[:3] == [20, 30, 40]
    assert steps[-1] == 300
    dense = SpectralLikelihood(dense_measure(covariance.to_dense(), targets(400, 1)))
    errors = [abs(SpectralLikelihood(measure).form(1e-2, 0.0) / dense.form(1e-2, 0.0) - 1) for measure in measures]
    assert errors[0] > 1e-4
    assert errors[-1] < 1e-9


def test_fewer_probes_for_more_rows():
    assert [default_num_probes(rows) for rows in (50, 2_000, 4_000, 15_000, 10**6)] == [100, 100, 50, 14, 2]
