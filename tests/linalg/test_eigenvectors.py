"""Eigenvectors of matrices whose first decomposition does not converge."""

from __future__ import annotations

import pytest
import torch

from gpytorch_partition.linalg.factors import stable_eigh


@pytest.fixture
def never_converging(monkeypatch):
    def fail(matrix):
        raise torch.linalg.LinAlgError("linalg.eigh: The algorithm failed to converge")

    monkeypatch.setattr(torch.linalg, "eigh", fail)


def matrices(*batch_shape):
    root = torch.randn(*batch_shape, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return root @ root.mT


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("batch_shape", [(), (3,), (2, 3)])
def test_the_second_algorithm_finds_the_same(batch_shape, dtype, request):
    matrix = matrices(*batch_shape).to(dtype)
    expected = torch.linalg.eigvalsh(matrix)
    request.getfixturevalue("never_converging")
    values, vectors = stable_eigh(matrix.tril())
    assert values.dtype == vectors.dtype == dtype
    assert values == pytest.approx(expected, rel=1e-4)
    assert matrix @ vectors == pytest.approx(vectors * values.unsqueeze(-2), abs=1e-5)


@pytest.mark.usefixtures("never_converging")
def test_eigenvalues_keep_their_gradients():
    assert torch.autograd.gradcheck(lambda a: stable_eigh(a + a.mT)[0], matrices().requires_grad_())


@pytest.mark.usefixtures("never_converging")
def test_a_number_that_is_none_stays_an_error():
    with pytest.raises(torch.linalg.LinAlgError):
        stable_eigh(torch.tensor([[1.0, 0.0], [torch.nan, 1.0]]))
