from __future__ import annotations

import pytest
import torch

from gpytorch_partition.linalg.factors import nystrom_factor


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
