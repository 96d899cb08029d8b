from __future__ import annotations

import pytest
import torch

from gpytorch_partition.linalg.nystrom import nystrom_factor


def _decaying(size: int, dtype=torch.float64) -> tuple[torch.Tensor, torch.Tensor]:
    basis, _ = torch.linalg.qr(torch.randn(size, size, generator=torch.Generator().manual_seed(0), dtype=torch.float64))
    values = 100.0 * 0.7 ** torch.arange(size).double() + 0.02
    return ((basis * values) @ basis.mT).to(dtype), values


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_finds_the_leading_eigenvalues_and_the_floor(dtype):
    matrix, values = _decaying(200, dtype)
    factor = nystrom_factor(matrix.matmul, torch.Size([200]), 60, torch.Generator().manual_seed(0), dtype)
    found = torch.linalg.eigvalsh(factor.root @ factor.root.mT + factor.shift * torch.eye(200, dtype=dtype))
    torch.testing.assert_close(found.double().flip(0)[:8], values[:8], rtol=1e-2, atol=0.0)
    assert 0.005 < float(factor.shift) < 0.03
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
