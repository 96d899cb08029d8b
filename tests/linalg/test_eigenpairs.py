"""Eigenpairs by block Lanczos against dense decompositions."""

from __future__ import annotations

import pytest
import torch
from linear_operator.utils.warnings import NumericalWarning

from gpytorch_partition.linalg.factors import largest_eigenpairs


def generator():
    return torch.Generator().manual_seed(3)


def matrix_of(values):
    random = torch.randn(len(values), len(values), generator=generator(), dtype=torch.float64)
    basis = torch.linalg.qr(random).Q
    return basis * values @ basis.mT, basis


SPECTRA = {
    "decaying": 1 / torch.arange(1, 601, dtype=torch.float64),
    "slowly decaying": torch.arange(1, 601, dtype=torch.float64) ** -0.3,
    "of both signs": torch.linspace(1, -2, 600, dtype=torch.float64),
    "of rank 4": torch.cat([torch.tensor([4.0, 3.0, 2.0, 1.0]), torch.zeros(596)]).double(),
}


@pytest.mark.parametrize("name", SPECTRA)
def test_they_are_those_of_a_dense_decomposition(name):
    matrix, basis = matrix_of(SPECTRA[name])
    pairs = largest_eigenpairs(matrix.matmul, 600, 4, generator=generator(), tolerance=1e-10)
    torch.testing.assert_close(pairs.values, SPECTRA[name][:4], rtol=1e-9, atol=1e-9)
    overlaps = (pairs.vectors * basis[:, :4]).sum(0).abs()
    torch.testing.assert_close(overlaps, torch.ones(4, dtype=torch.float64), rtol=0, atol=1e-10)
    largest = pairs.vectors.gather(0, pairs.vectors.abs().argmax(0, keepdim=True))
    assert (largest > 0).all()


def test_repeated_eigenvalues_have_all_their_vectors():
    matrix, basis = matrix_of(torch.cat([torch.ones(3), 0.5 * torch.rand(597, generator=generator())]).double())
    pairs = largest_eigenpairs(matrix.matmul, 600, 3, generator=generator())
    projection = pairs.vectors.mT @ basis[:, :3]
    torch.testing.assert_close(projection @ projection.mT, torch.eye(3).double(), atol=1e-9, rtol=0)


def test_more_than_the_matrix_has_are_all_of_a_small_one():
    matrix, _ = matrix_of(torch.linspace(5, 1, 5).double())
    pairs = largest_eigenpairs(matrix.matmul, 5, 5, generator=generator())
    torch.testing.assert_close(pairs.vectors * pairs.values @ pairs.vectors.mT, matrix)


def test_a_spectrum_without_gaps_is_told():
    matrix, _ = matrix_of(torch.linspace(1, 0.9999, 600).double())
    with pytest.warns(NumericalWarning, match="relative residual of .* after 1 cycles"):
        largest_eigenpairs(matrix.matmul, 600, 4, generator=generator(), max_restarts=1)
