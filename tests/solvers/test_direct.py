"""Solves and log determinants by a factor in float64, against dense matrices, and when they are taken."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from linear_operator import settings as linear_settings
from linear_operator.operators import DiagLinearOperator, RootLinearOperator
from linear_operator.utils.warnings import NumericalWarning

from gpytorch_partition.linalg.conjugate_gradients import UnconvergedError, relative_residual
from gpytorch_partition.operators import FlatLinearOperator, PartitionLinearOperator, guards
from gpytorch_partition.operators.algebra import low_rank_operator
from gpytorch_partition.solvers import PartitionAddedDiagLinearOperator, direct
from gpytorch_partition.solvers.direct import DirectSolver
from gpytorch_partition.solvers.iterative_solvers import ConjugateGradients, InDouble, is_hard
from tests.operators.operator_zoo import rows

N = 60
GENERATOR = torch.Generator().manual_seed(0)
LOADINGS = torch.randn(N, 3, generator=GENERATOR, dtype=torch.float64)
RHS = torch.randn(N, 2, generator=GENERATOR, dtype=torch.float64)
LANDMARKS = 1e4 * low_rank_operator(torch.tensor(1.0, dtype=torch.float64), LOADINGS, LOADINGS)


def flat(counts=(4, 6, 3)):
    incidence = rows(1, (N,), counts, singletons=False)
    weights = torch.full((1,), 1 / len(counts), dtype=torch.float64)
    inner = FlatLinearOperator(weights, num_clusters=sum(counts))
    return PartitionLinearOperator(torch.tensor(1.0, dtype=torch.float64), inner, left=incidence, right=incidence)


COVARIANCES = {
    "flat": flat(),
    "loadings": flat((2, 3)).with_loadings(LOADINGS, LOADINGS),
    "sum": flat() + LANDMARKS,
    "with a dense term": flat() + torch.exp(-(torch.cdist(LOADINGS, LOADINGS) ** 2)),
}


def test_a_matrix_without_a_cholesky_factor_is_solved_nevertheless():
    """A noise that rounding loses: the solution has a small residual, and a warning tells of the noise."""
    covariance = COVARIANCES["sum"]
    operator, columns = covariance.add_diagonal(torch.tensor(1e-30).double()), covariance.to_dense()[:, :2]
    with pytest.warns(NumericalWarning, match="too little|resolve"):
        found = InDouble(operator).within(columns, relative_residual(1e-10))
    assert (covariance.matmul(found.solution) - columns).norm() < 1e-6 * columns.norm()


def test_eigenvalues_that_are_the_noise_alone_are_exact(monkeypatch):
    """Fifty of sixty eigenvalues, of ten clusters: the log determinant at a noise far below the roundoff of float64."""
    monkeypatch.setattr(direct, "MOST_ROWS", N - 1)
    covariance, noise = flat((10,)), 1e-25
    counts = covariance.left.cluster_sums(torch.ones(N, 1).double()).squeeze(-1)
    expected = (N - 10) * torch.tensor(noise).double().log() + (counts + noise).log().sum()
    solver = DirectSolver(covariance, torch.full((N,), noise).double())
    torch.testing.assert_close(solver.log_determinant(), expected)


def noisy(noise, dtype=torch.float64):
    return COVARIANCES["sum"].to(dtype=dtype).add_diagonal(torch.tensor(noise, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_solves_that_conjugate_gradients_do_not_finish_are_right(dtype):
    operator = noisy(1e-4, dtype)
    expected = noisy(float(operator._diag_tensor.diag_values.double())).direct.solve(RHS)
    with linear_settings.max_cholesky_size(10), linear_settings.max_cg_iterations(3):
        solved = operator.solve(RHS.to(dtype)).double()
    torch.testing.assert_close(solved, expected, rtol=1e-3, atol=1e-3 * float(expected.abs().max()))


def test_without_a_factor_there_is_a_warning(monkeypatch):
    monkeypatch.setattr(direct, "MOST_ROWS", 5)
    monkeypatch.setattr(direct, "MOST_COLUMNS", 5)
    with (
        linear_settings.max_cholesky_size(10),
        linear_settings.max_cg_iterations(3),
        pytest.warns(NumericalWarning, match="unfinished"),
    ):
        noisy(1e-4).solve(RHS)


def test_conjugate_gradients_that_fail_are_not_tried_again():
    operator = noisy(1e-4)
    with linear_settings.max_cg_iterations(3):
        for _ in range(2):
            with pytest.raises(UnconvergedError):
                ConjugateGradients(operator).within(RHS, relative_residual(1e-10))
    assert operator.has_failed
    assert is_hard(operator)


@pytest.mark.parametrize("most", [N - 1, N], ids=["by probe vectors", "exact"])
def test_likelihoods_at_a_tiny_noise(most, monkeypatch):
    """Value and gradient by the scale, against dense autograd."""
    monkeypatch.setattr(direct, "MOST_ROWS", most)
    found = []
    for size, probes in ((10, 2000), (1000, 10)):
        scale = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
        with (
            linear_settings.max_cholesky_size(size),
            linear_settings.max_cg_iterations(5),
            linear_settings.num_trace_samples(probes),
        ):
            operator = (flat() * scale + LANDMARKS).add_diagonal(torch.tensor(1e-5).double())
            form, determinant = operator.inv_quad_logdet(RHS[:, :1], logdet=True)
            (form * 1e-6 + determinant).backward()
        found.append((form.detach(), determinant.detach(), scale.grad))
    for value, expected in zip(*found):
        torch.testing.assert_close(value, expected, rtol=0.02, atol=0)


def lanczos_matrix(values, steps):
    """That of a vector with equal parts in all eigenvectors."""
    vector = torch.ones_like(values) / len(values) ** 0.5
    basis = torch.linalg.qr(torch.stack([values**power * vector for power in range(steps)], -1)).Q
    projected = basis.mT @ torch.diag(values) @ basis
    near = torch.arange(steps)
    return torch.where((near - near.unsqueeze(-1)).abs() <= 1, projected, 0)


@pytest.mark.parametrize("steps", [2, 4, 6])
@pytest.mark.parametrize("padding", [0, 3])
def test_the_bias_of_a_quadrature_is_bounded(steps, padding):
    values = torch.cat([torch.full((50,), 1e-4), torch.linspace(0.5, 30, 10)]).double()
    matrix = lanczos_matrix(values, steps)
    nodes, vectors = torch.linalg.eigh(matrix)
    error = (vectors[0].square() * nodes.log()).sum() - values.log().mean()
    padded = torch.block_diag(matrix, torch.eye(padding).double())
    bias = guards.log_bias(padded.unsqueeze(0), 1e-4)
    assert 0 < error <= float(bias) * (1 + 1e-6)
    assert float(guards.log_bias(padded.unsqueeze(0), float(values.min()) / 2)) >= float(bias)


def test_a_quadrature_that_is_far_off_is_warned_of_where_nothing_is_better(monkeypatch):
    monkeypatch.setattr(direct, "MOST_ROWS", 5)
    monkeypatch.setattr(direct, "MOST_COLUMNS", 5)
    operator = COVARIANCES["flat"].add_diagonal(torch.tensor(1e-7).double())
    with (
        linear_settings.max_cholesky_size(10),
        linear_settings.max_cg_iterations(3),
        linear_settings.min_preconditioning_size(10**6),
        pytest.warns(NumericalWarning, match="nats per datum"),
    ):
        operator.inv_quad_logdet(RHS, logdet=True)


def _left_of_variances(noise):
    r""":math:`K - K A^{-1} K` of clusters, from a singular value decomposition: without differences."""
    root = flat().sparse_root()._matmul(torch.eye(13, dtype=torch.float64))
    left, values, _ = torch.linalg.svd(root, full_matrices=False)
    return left * (values**2 * noise / (values**2 + noise)) @ left.mT


@pytest.mark.parametrize("noise", [1e-6, 1e-8, 1e-10])
def test_clusters_are_solved_for_until_the_residual_is_rounding(noise, monkeypatch):
    """What is left of a variance is a difference of ones: a relative residual of 1e-9 was 18 % of it off."""
    monkeypatch.setattr(direct, "MOST_ROWS", N - 1)
    covariance = flat().to_dense()
    found = covariance - covariance @ flat().add_diagonal(torch.tensor(noise).double()).direct.solve(covariance)
    expected = _left_of_variances(noise)
    assert (found - expected).abs().max() < 1e-15 + 1e-3 * expected.abs().max()


def test_a_factor_of_clusters_tells_what_it_cannot_do(monkeypatch):
    monkeypatch.setattr(direct, "MOST_ROWS", N - 1)
    columns, rule = flat().to_dense(), relative_residual(1e-10)
    assert InDouble(flat().add_diagonal(torch.tensor(1e-6).double())).within(columns, rule).converged
    unresolved = flat().add_diagonal(torch.tensor(1e-10).double())
    with pytest.warns(NumericalWarning, match="too little for a factor in float64"):
        assert not InDouble(unresolved).within(columns, relative_residual(1e-18)).converged
    with pytest.raises(UnconvergedError, match="Raise the noise"):
        InDouble(flat().add_diagonal(torch.tensor(1e-15).double())).within(columns, rule)


def test_around_another_librarys_operator_what_does_not_converge_is_solved_in_float64():
    generator = torch.Generator().manual_seed(0)
    root, noise = torch.randn(2_500, 5, generator=generator), torch.full((2_500,), 1e-6)
    operator = PartitionAddedDiagLinearOperator(RootLinearOperator(root), DiagLinearOperator(noise))
    right = torch.randn(2_500, 1, generator=generator)
    found = operator.solve(right)
    exact = torch.linalg.solve(root.double() @ root.double().T + 1e-6 * torch.eye(2_500).double(), right.double())
    assert operator.in_double.__class__ is PartitionAddedDiagLinearOperator
    assert (found - exact).norm() < 1e-3 * exact.norm()


def test_a_factor_is_freed_with_the_operator_that_holds_it():
    gc.disable()
    try:
        operator = flat().add_diagonal(torch.tensor(1e-3).double())
        factor = weakref.ref(operator.in_double.direct)
        del operator
        assert factor() is None
    finally:
        gc.enable()
