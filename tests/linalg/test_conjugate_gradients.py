from __future__ import annotations

import pytest
import torch
from linear_operator.utils.warnings import NumericalWarning

from gpytorch_partition.linalg.conjugate_gradients import conjugate_gradients, relative_residual


def _spd(size: int, condition: float, dtype=torch.float64) -> torch.Tensor:
    basis, _ = torch.linalg.qr(torch.randn(size, size, generator=torch.Generator().manual_seed(0), dtype=torch.float64))
    return ((basis * torch.logspace(0, float(torch.tensor(condition).log10()), size)) @ basis.mT).to(dtype)


def _rhs(size: int, columns: int, dtype=torch.float64) -> torch.Tensor:
    return torch.randn(size, columns, generator=torch.Generator().manual_seed(1), dtype=dtype)


def test_reaches_1e_8_in_textbook_iterations():
    # GPyTorch's own stalls near 1e-5: its beta is zero once r^T r < 1e-10.
    matrix, rhs = _spd(300, 100.0), _rhs(300, 3)
    result = conjugate_gradients(matrix.matmul, rhs, relative_residual(1e-8), max_iterations=500)
    bound = 0.5 * 100.0**0.5 * torch.tensor(2 / 1e-8).log() * 1.3
    assert result.converged
    assert result.iterations < bound
    relative = (rhs - matrix @ result.solution).norm(dim=0) / rhs.norm(dim=0)
    assert relative.max() <= 1.01e-8


@pytest.mark.parametrize("factor", [1e-12, 1e12])
def test_scale_of_anything_changes_nothing(factor):
    matrix, rhs = _spd(100, 50.0), _rhs(100, 2)
    reference = conjugate_gradients(matrix.matmul, rhs, relative_residual(1e-7))
    scaled = conjugate_gradients(
        matrix.mul(factor).matmul,
        rhs * factor,
        relative_residual(1e-7),
        preconditioner=lambda v: v * factor,
    )
    assert scaled.iterations == reference.iterations
    torch.testing.assert_close(scaled.solution, reference.solution)


def test_every_column_stops_by_itself():
    matrix = torch.diag(torch.cat([torch.ones(50), torch.linspace(1, 1e4, 50)]).double())
    easy, hard = torch.zeros(100, 9).double(), _rhs(100, 1)
    easy[:50] = 1.0
    result = conjugate_gradients(matrix.matmul, torch.cat([easy, hard], -1), relative_residual(1e-6))
    residual = (torch.cat([easy, hard], -1) - matrix @ result.solution).norm(dim=0)
    assert residual[-1] <= 1e-6 * hard.norm()
    assert residual[:9].max() <= 1e-6 * easy[:, 0].norm()


def test_a_residual_that_float32_cannot_reach_is_reported():
    # The recursive residual falls below any tolerance; the true one has a floor near eps * condition.
    matrix, rhs = _spd(300, 1e4, torch.float32), _rhs(300, 1, torch.float32)
    with pytest.warns(NumericalWarning, match="unfinished"):
        result = conjugate_gradients(matrix.matmul, rhs, relative_residual(1e-6), max_iterations=3000)
    assert not result.converged
    reachable = conjugate_gradients(matrix.matmul, rhs, relative_residual(1e-3), max_iterations=3000)
    true = (rhs.double() - matrix.double() @ reachable.solution.double()).norm() / rhs.double().norm()
    assert reachable.converged
    assert true < 2.1e-3


def test_quadratic_form_is_a_lower_bound_that_becomes_exact():
    matrix, rhs = _spd(100, 100.0), _rhs(100, 2)
    exact = (rhs * torch.linalg.solve(matrix, rhs)).sum(0)
    early = conjugate_gradients(matrix.matmul, rhs, relative_residual(1e-1)).quadratic_form.squeeze()
    late = conjugate_gradients(matrix.matmul, rhs, relative_residual(1e-9)).quadratic_form.squeeze()
    assert (early < exact).all()
    assert (early > 0.5 * exact).all()
    torch.testing.assert_close(late, exact)


def test_warm_start_keeps_the_quadratic_form_and_saves_iterations():
    matrix, rhs = _spd(200, 1e3), _rhs(200, 1)
    exact = torch.linalg.solve(matrix, rhs)
    cold = conjugate_gradients(matrix.matmul, rhs, relative_residual(1e-6))
    guess = exact + 1e-4 * _rhs(200, 1)
    warm = conjugate_gradients(matrix.matmul, rhs, relative_residual(1e-6), initial_guess=guess)
    assert warm.iterations < cold.iterations
    torch.testing.assert_close(warm.solution, exact, rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(warm.quadratic_form.squeeze(), (rhs * exact).sum(), rtol=1e-6, atol=0)


def test_lanczos_matrices_have_the_eigenvalues_of_the_preconditioned_matrix():
    matrix, scales = _spd(6, 20.0), torch.linspace(0.5, 2.0, 6).double()
    result = conjugate_gradients(
        matrix.matmul,
        _rhs(6, 3),
        relative_residual(1e-14),
        preconditioner=lambda v: v / scales.unsqueeze(-1),
        num_tridiag=2,
        max_tridiag_iterations=6,
    )
    expected = torch.linalg.eigvalsh(matrix / scales.sqrt().outer(scales.sqrt()))
    assert result.tridiagonal.shape == (2, 6, 6)
    for tridiagonal in result.tridiagonal:
        torch.testing.assert_close(torch.linalg.eigvalsh(tridiagonal), expected, rtol=1e-6, atol=1e-8)


def test_batches():
    matrices = torch.stack([_spd(50, 10.0), _spd(50, 1000.0)])
    rhs = _rhs(50, 2).expand(2, 50, 2)
    result = conjugate_gradients(matrices.matmul, rhs, relative_residual(1e-8))
    torch.testing.assert_close(result.solution, torch.linalg.solve(matrices, rhs), rtol=1e-5, atol=1e-6)


def test_zero_right_hand_side():
    result = conjugate_gradients(torch.eye(3).matmul, torch.zeros(3, 1), relative_residual(1e-8))
    assert result.iterations == 0
    assert torch.equal(result.solution, torch.zeros(3, 1))


def test_warns_with_the_residual_reached():
    with pytest.warns(NumericalWarning, match=r"after 3 iterations .* relative residual"):
        result = conjugate_gradients(_spd(100, 1e4).matmul, _rhs(100, 1), relative_residual(1e-8), max_iterations=3)
    assert not result.converged


def test_gives_up_where_all_iterations_would_not_suffice():
    options = {"max_iterations": 300, "gives_up": True, "warn": False}
    rule, rhs = relative_residual(1e-8), _rhs(1000, 2)
    slow, fast = (conjugate_gradients(_spd(1000, each).matmul, rhs, rule, **options) for each in (1e6, 5e2))
    assert (slow.iterations, slow.converged) == (100, False)
    assert fast.converged
    assert 100 < fast.iterations < 300


def test_refuses_what_is_not_finite():
    with pytest.raises(ValueError, match="finite"):
        conjugate_gradients(torch.eye(2).matmul, torch.tensor([[1.0], [float("nan")]]), relative_residual(1e-8))
