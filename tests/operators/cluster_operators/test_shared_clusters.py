"""Dense covariances by pairs of rows, against one-hot matrices."""

from __future__ import annotations

import pytest
import torch
from linear_operator.operators import LinearOperator

from gpytorch_partition.clusters.incidence import Incidence
from gpytorch_partition.operators import FlatLinearOperator, PartitionLinearOperator
from gpytorch_partition.operators.cluster_operators import flat_linear_operator as shared_clusters
from gpytorch_partition.operators.cluster_operators.flat_linear_operator import has_few_pairs, shared_weights


def rows_in(sizes, num_rows, seed=0, dtype=torch.int32):
    generator = torch.Generator().manual_seed(seed)
    starts = torch.tensor([0, *sizes[:-1]]).cumsum(0)
    codes = torch.stack([torch.randint(size, (num_rows,), generator=generator) for size in sizes], -1) + starts
    return Incidence(codes.to(dtype), sum(sizes))


def one_hot(rows):
    zeros = torch.zeros(rows.num_rows, rows.num_clusters, dtype=torch.float64)
    return zeros.scatter_(1, rows.codes.long(), 1.0)


@pytest.mark.parametrize("code_dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("entries", [2**22, 700])
@pytest.mark.parametrize(("num_rows", "num_points"), [(40, 40), (100, 7), (1, 30), (0, 5), (5, 0)])
def test_sums_of_weights(monkeypatch, num_rows, num_points, entries, code_dtype):
    monkeypatch.setattr(shared_clusters, "_ENTRIES", entries)
    sizes = (3, 1, 40, 7)
    left, right = (rows_in(sizes, n, seed, code_dtype) for seed, n in enumerate((num_rows, num_points)))
    weights = torch.rand(sum(sizes), generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    expected = one_hot(left) @ torch.diag(weights) @ one_hot(right).mT
    torch.testing.assert_close(shared_weights(left, right, weights), expected)
    torch.testing.assert_close(shared_weights(left, right, weights.float()), expected.float())


def test_pairs_are_few_where_clusters_are_small():
    assert has_few_pairs(rows_in((500, 500), 500), rows_in((500, 500), 500))
    assert not has_few_pairs(rows_in((20, 5), 500), rows_in((20, 5), 500))
    assert not has_few_pairs(rows_in((1,), 500), rows_in((1,), 500))


def test_what_counts_is_the_table_for_the_rows_on_the_right():
    """600 pairs, which count twice, and a table of 1,000 x 1 or 1,000 x 600."""
    one, many = (Incidence(torch.zeros(number, 1).long(), 1_000) for number in (1, 600))
    assert not has_few_pairs(many, one)
    assert has_few_pairs(one, many)


@pytest.mark.parametrize("sizes", [(300, 400), (2, 3)])
def test_batches_and_half_precision_are_products(sizes):
    """Rows of their own in each batch element, and what NumPy and SciPy cannot add."""
    first, second = rows_in(sizes, 60), rows_in(sizes, 60, seed=1)
    both = Incidence(torch.stack([first.codes, second.codes]), sum(sizes))
    weights = torch.rand(sum(sizes), generator=torch.Generator().manual_seed(2))
    operator = FlatLinearOperator(weights, num_clusters=len(weights))
    found = PartitionLinearOperator(torch.ones(2), operator, left=both, right=both).to_dense()
    expected = torch.stack([one_hot(rows) * weights @ one_hot(rows).mT for rows in (first, second)]).float()
    torch.testing.assert_close(found, expected)
    for dtype in (torch.float16, torch.bfloat16):
        half = FlatLinearOperator(weights.to(dtype), num_clusters=len(weights))
        found = PartitionLinearOperator(torch.ones(()), half, left=first, right=first).to_dense()
        torch.testing.assert_close(found, expected[0], rtol=0.02, atol=0.02)


def test_codes_in_any_order_of_memory():
    rows = rows_in((300, 400, 5), 60)
    some = Incidence(rows.codes[:, :2], 705)
    weights = torch.ones(705)
    assert has_few_pairs(some, some)
    torch.testing.assert_close(shared_weights(some, some, weights), (one_hot(some) @ one_hot(some).mT).float())


@pytest.mark.parametrize("sizes", [(300, 400), (2, 3)])
@pytest.mark.parametrize("sum_dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("is_square", [True, False])
def test_an_operator_is_the_same_either_way(monkeypatch, sizes, sum_dtype, is_square):
    left = rows_in(sizes, 60)
    right = left if is_square else rows_in(sizes, 50, seed=1)
    loadings = torch.randn(60, 2, generator=torch.Generator().manual_seed(0)).to(sum_dtype)
    weights = torch.rand(sum(sizes), generator=torch.Generator().manual_seed(2)).to(sum_dtype)
    scale = torch.tensor(3.0, dtype=torch.float64)
    products = []
    monkeypatch.setattr(
        LinearOperator, "to_dense", lambda self: products.append(1) or self._matmul(torch.eye(self.shape[-1]).double())
    )
    for own in (None, loadings):
        others = own if own is None or is_square else own[:50].clone()
        clusters = FlatLinearOperator(weights, num_clusters=len(weights))
        operator = PartitionLinearOperator(
            scale, clusters, left=left, right=right, left_loadings=own, right_loadings=others
        )
        expected = 3 * one_hot(left) @ torch.diag(weights.double()) @ one_hot(right).mT
        if own is not None:
            expected = expected * (own.double() @ others.double().mT)
        found = operator.to_dense()
        assert found.dtype == torch.float64
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert bool(products) == (sizes == (2, 3))


def test_one_weight_for_all_batches_and_gradients():
    rows = rows_in((300, 400), 60)
    weight = torch.tensor([0.5], dtype=torch.float64, requires_grad=True)
    for scale in (torch.tensor(2.0, dtype=torch.float64), torch.tensor([2.0, 3.0], dtype=torch.float64)):
        scale.requires_grad_(True)
        operator = FlatLinearOperator(weight, num_clusters=700)
        dense = PartitionLinearOperator(scale, operator, left=rows, right=rows).to_dense()
        fixed = PartitionLinearOperator(scale, operator.detach(), left=rows, right=rows).to_dense()
        shared = one_hot(rows) @ one_hot(rows).mT
        torch.testing.assert_close(dense, scale[..., None, None] * 0.5 * shared)
        torch.testing.assert_close(fixed, dense)
        for matrix, parameters in ((dense, [scale, weight]), (fixed, [scale])):
            gradients = torch.autograd.grad(matrix.sum(), parameters)
            assert gradients[0].sum() == pytest.approx(0.5 * float(shared.sum()) * scale.numel())
