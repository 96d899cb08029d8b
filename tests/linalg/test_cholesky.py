"""Cholesky factors of matrices that rounding has left without one."""

from __future__ import annotations

import pytest
import torch

from gpytorch_partition.linalg.factors import stable_cholesky


def matrix_with(*eigenvalues):
    torch.manual_seed(0)
    vectors = torch.linalg.qr(torch.randn(len(eigenvalues), len(eigenvalues), dtype=torch.float64)).Q
    return (vectors * torch.tensor(eigenvalues, dtype=torch.float64)) @ vectors.mT


def test_a_positive_definite_matrix_has_its_own_factor():
    matrix = matrix_with(3.0, 2.0, 1e-8)
    before = matrix.clone()
    assert torch.equal(stable_cholesky(matrix), torch.linalg.cholesky(matrix))
    assert torch.equal(matrix, before)
    factor = stable_cholesky(matrix.float())
    assert factor.dtype == torch.float64
    assert factor @ factor.mT == pytest.approx(matrix, abs=1e-5)


@pytest.mark.parametrize(("negative", "error"), [(-1e-11, 1e-9), (-1e-9, 1e-7), (-1e-5, 1e-3), (-0.5, 0.51)])
def test_a_matrix_without_one_gets_the_factor_of_a_matrix_beside_it(negative, error):
    matrix = matrix_with(3.0, 1.0, negative)
    factor = stable_cholesky(matrix)
    assert torch.equal(factor, factor.tril())
    assert bool((factor.diagonal() > 0).all())
    assert torch.linalg.matrix_norm(factor @ factor.mT - matrix, ord=2) <= error


def test_only_the_matrices_of_a_batch_that_have_none_are_changed():
    good, slightly, badly = matrix_with(3.0, 1.0, 0.1), matrix_with(3.0, 1.0, -1e-9), matrix_with(3.0, 1.0, -0.5)
    factors = stable_cholesky(torch.stack([good, slightly, badly]))
    assert torch.equal(factors[0], torch.linalg.cholesky(good))
    assert factors[1] == pytest.approx(stable_cholesky(slightly))
    assert factors[2] == pytest.approx(stable_cholesky(badly))


def test_a_matrix_of_zeros_has_a_factor():
    assert stable_cholesky(torch.zeros(2, 2)) == pytest.approx(1e-5 * torch.eye(2, dtype=torch.float64))


def test_gradients_are_those_of_cholesky():
    assert torch.autograd.gradcheck(
        lambda a: stable_cholesky(a @ a.mT + torch.eye(3)), matrix_with(1.0, 2.0, 0.5).requires_grad_()
    )


def test_a_cholesky_that_always_fails_leaves_the_eigenvectors(monkeypatch):
    matrix = matrix_with(3.0, 2.0, 0.5)
    expected = torch.linalg.cholesky(matrix)
    monkeypatch.setattr(torch.linalg, "cholesky_ex", lambda a: (a, torch.ones(a.shape[:-2], dtype=torch.int32)))
    assert stable_cholesky(matrix) == pytest.approx(expected)


def test_a_number_that_is_none_is_named():
    with pytest.raises(ValueError, match="got 1 that are infinite or NaN"):
        stable_cholesky(torch.tensor([[1.0, 0.0], [torch.nan, 1.0]]))
