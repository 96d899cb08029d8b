"""Factors of symmetric matrices against dense algebra, also of those that rounding has left without one."""

from __future__ import annotations

import pytest
import torch
from linear_operator.utils.warnings import NumericalWarning

from gpytorch_partition.linalg import factors
from gpytorch_partition.linalg.factors import largest_eigenpairs, nystrom_factor, stable_cholesky, stable_eigh


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
    rounding = 8 * torch.finfo(dtype).eps * float(expected.max())  # of eigenvalues, small ones too
    assert values == pytest.approx(expected, rel=0, abs=rounding)
    assert matrix @ vectors == pytest.approx(vectors * values.unsqueeze(-2), abs=1e-5)


@pytest.mark.usefixtures("never_converging")
def test_eigenvalues_keep_their_gradients():
    assert torch.autograd.gradcheck(lambda a: stable_eigh(a + a.mT)[0], matrices().requires_grad_())


@pytest.mark.usefixtures("never_converging")
def test_a_number_that_is_none_stays_an_error():
    with pytest.raises(torch.linalg.LinAlgError):
        stable_eigh(torch.tensor([[1.0, 0.0], [torch.nan, 1.0]]))


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


def test_a_spectrum_without_gaps_is_told(monkeypatch):
    monkeypatch.setattr(factors, "_MOST_CYCLES", 1)
    matrix, _ = matrix_of(torch.linspace(1, 0.9999, 600).double())
    with pytest.warns(NumericalWarning, match="relative residual of .* after 1 cycles"):
        largest_eigenpairs(matrix.matmul, 600, 4, generator=generator())


def _decaying(size: int, dtype=torch.float64) -> tuple[torch.Tensor, torch.Tensor]:
    basis, _ = torch.linalg.qr(torch.randn(size, size, generator=torch.Generator().manual_seed(0), dtype=torch.float64))
    values = 100.0 * 0.7 ** torch.arange(size).double() + 0.02
    return ((basis * values) @ basis.mT).to(dtype), values


def _by_definition(matrix: torch.Tensor, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Root and shift from the eigenpairs of K W (W^T K W)^-1 W^T K, dense and in float64, for the same sketch W."""
    size, dtype = matrix.shape[-1], matrix.dtype
    sketch = torch.randn(size, rank, generator=torch.Generator().manual_seed(0), dtype=dtype).double()
    image = matrix.double() @ sketch
    values, vectors = torch.linalg.eigh(image @ torch.linalg.solve(sketch.mT @ image, image.mT))
    values, vectors = values[-rank:], vectors[:, -rank:]
    return vectors * (values - values[0]).sqrt(), values[0]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-3), (torch.float64, 1e-8)])
def test_is_the_nystrom_approximation_with_its_last_eigenvalue_everywhere(dtype, tolerance):
    matrix, values = _decaying(200, dtype)
    factor = nystrom_factor(matrix.matmul, torch.Size([200]), 60, torch.Generator().manual_seed(0), dtype)
    root, shift = _by_definition(matrix, 60)
    assert (factor.root.double() @ factor.root.double().mT - root @ root.mT).abs().max() < tolerance * values[0]
    torch.testing.assert_close(factor.shift.double(), shift, rtol=max(tolerance, 1e-6), atol=1e-6)
    torch.testing.assert_close(factor.gram, factor.root.mT @ factor.root, rtol=1e-3, atol=1e-3)


def test_rank_is_cut_to_the_size_and_then_exact():
    matrix, _ = _decaying(20)
    factor = nystrom_factor(matrix.matmul, torch.Size([20]), 100, torch.Generator().manual_seed(0), torch.float64)
    approximation = factor.root @ factor.root.mT + factor.shift * torch.eye(20)
    torch.testing.assert_close(approximation, matrix, rtol=1e-4, atol=1e-4)


def test_batches_and_seeds():
    matrix, _ = _decaying(50)
    batch = torch.stack([matrix, 2 * matrix])

    def factor(seed):
        return nystrom_factor(batch.matmul, torch.Size([2, 50]), 10, torch.Generator().manual_seed(seed), torch.float64)

    assert factor(0).root.shape == (2, 50, 10)
    assert torch.equal(factor(0).root, factor(0).root)
    assert not torch.equal(factor(0).root, factor(1).root)
