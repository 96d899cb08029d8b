"""Dense covariances from pairs of rows that share clusters or nodes, against one-hot matrices and products."""

from __future__ import annotations

import pytest
import torch

from gpytorch_partition.clusters.incidence import Incidence
from gpytorch_partition.clusters.tree_layout import lay_out_trees
from gpytorch_partition.operators import FlatLinearOperator, PartitionLinearOperator, PathSumLinearOperator
from gpytorch_partition.operators.cluster_operators import cluster_operator, shared_paths
from gpytorch_partition.operators.cluster_operators.cluster_operator import shared_weights
from gpytorch_partition.operators.cluster_operators.shared_paths import is_cheaper_than_product, shared_path_sums
from tests.operators.operator_zoo import below, dense, one_hot


def rows_in(sizes, num_rows, seed=0, dtype=torch.int32):
    """Rows in one of so many clusters of each partition, or of so many leaves of each tree."""
    generator = torch.Generator().manual_seed(seed)
    starts = torch.tensor([0, *sizes[:-1]]).cumsum(0)
    codes = torch.stack([torch.randint(size, (num_rows,), generator=generator) for size in sizes], -1) + starts
    return Incidence(codes.to(dtype), sum(sizes))


def random_trees(leaves, seed=0, is_chain=False):
    """Trees of so many leaves each, random leaves (or always the last one) divided one after another."""
    generator = torch.Generator().manual_seed(seed)
    left, right, starts = [], [], [0]
    for number in leaves:
        start, ends = len(left), [len(left)]
        left.append(start)
        right.append(start)
        for _ in range(number - 1):
            node = ends.pop(-1 if is_chain else int(torch.randint(len(ends), (1,), generator=generator)))
            left[node], right[node] = len(left), len(left) + 1
            for child in (left[node], right[node]):
                ends.append(child)
                left.append(child)
                right.append(child)
        starts.append(len(left))
    return lay_out_trees(torch.tensor(left), torch.tensor(right), torch.tensor(starts))


def weights_of(number, dtype=torch.float64):
    return torch.rand(number, generator=torch.Generator().manual_seed(2), dtype=torch.float64).to(dtype) - 0.3


def nodes_of(rows, layout):
    """`N x V`, 1 for each node that a row is in."""
    return (one_hot(rows) @ below(layout).mT.float()).double()


def shared(left, right, weights):
    return one_hot(left).double() * weights @ one_hot(right).double().mT


@pytest.mark.parametrize("code_dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("entries", [2**22, 700])
@pytest.mark.parametrize(("num_rows", "num_points"), [(40, 40), (100, 7), (1, 30), (0, 5), (5, 0)])
def test_sums_of_weights(monkeypatch, num_rows, num_points, entries, code_dtype):
    monkeypatch.setattr(cluster_operator, "_ENTRIES", entries)
    sizes = (3, 1, 40, 7)
    left, right = (rows_in(sizes, n, seed, code_dtype) for seed, n in enumerate((num_rows, num_points)))
    expected = shared(left, right, weights_of(51))
    torch.testing.assert_close(shared_weights(left, right, weights_of(51)), expected)
    torch.testing.assert_close(shared_weights(left, right, weights_of(51).float()), expected.float())


@pytest.mark.parametrize("few", [0, 50, 2**62])
@pytest.mark.parametrize(("visits", "table"), [(2**20, 2**22), (80, 100), (1, 1)])
@pytest.mark.parametrize(("num_rows", "num_points"), [(60, 60), (60, 11), (1, 40), (0, 5), (5, 0)])
def test_sums_over_shared_nodes(monkeypatch, num_rows, num_points, visits, table, few):
    for name, value in {"_FEW_PAIRS": few, "_VISITS": visits, "_TABLE": table}.items():
        monkeypatch.setattr(shared_paths, name, value)
    sizes = (30, 1, 2, 7, 50)
    layout = random_trees(sizes)
    left, right = (rows_in(sizes, number, seed) for seed, number in enumerate((num_rows, num_points)))
    weights = weights_of(layout.num_nodes)
    for others in (left, right):
        expected = nodes_of(left, layout) * weights @ nodes_of(others, layout).mT
        torch.testing.assert_close(shared_path_sums(left, others, layout, weights), expected, rtol=0, atol=1e-12)
    single = shared_path_sums(left, right, layout, weights.float())
    torch.testing.assert_close(single, expected.float(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("unit", [1e-300, 1.0, 1e300])
def test_sums_of_float64_are_exact_though_their_parts_are_of_float32(unit):
    sizes = (60,) * 40
    layout, rows = random_trees(sizes), rows_in(sizes, 300)
    magnitudes = 10.0 ** -torch.arange(layout.num_nodes, dtype=torch.float64).remainder(8)
    weights = unit * magnitudes * weights_of(layout.num_nodes).abs()
    expected = nodes_of(rows, layout) * (weights / unit) @ nodes_of(rows, layout).mT
    found = shared_path_sums(rows, rows, layout, weights) / unit
    torch.testing.assert_close(found, expected, rtol=0, atol=4e-15 * float(expected.max()))


@pytest.mark.parametrize(("num_rows", "is_cheaper"), [(1, False), (30, False), (300, True)])
def test_few_rows_take_a_product(num_rows, is_cheaper):
    layout, others = random_trees((250, 200)), rows_in((250, 200), 300)
    assert is_cheaper_than_product(rows_in((250, 200), num_rows), others, layout) == is_cheaper


def test_rows_with_themselves_are_exactly_symmetric():
    layout, rows = random_trees((200, 150)), rows_in((200, 150), 120)
    for others in (rows, Incidence(rows.codes.clone(), rows.num_clusters)):
        found = shared_path_sums(rows, others, layout, weights_of(layout.num_nodes).float())
        assert torch.equal(found, found.mT)


CASES = {  # sizes of partitions or trees, and whether there are few pairs
    "flat": ((300, 400), False, True),
    "flat, many pairs": ((2, 3), False, False),
    "trees": ((250, 200), True, True),
    "trees, few leaves": ((20, 5), True, False),
}


def operator_of(case, dtype, left, right, loadings=(None, None), scale=3.0):
    sizes, is_tree, _ = CASES[case]
    if is_tree:
        layout = random_trees(sizes)
        clusters = PathSumLinearOperator(weights_of(layout.num_nodes, dtype), layout=layout)
    else:
        clusters = FlatLinearOperator(weights_of(sum(sizes), dtype), num_clusters=sum(sizes))
    own, others = loadings
    scale = torch.as_tensor(scale, dtype=torch.float64 if dtype == torch.float64 else torch.float32)
    return PartitionLinearOperator(scale, clusters, left=left, right=right, left_loadings=own, right_loadings=others)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("is_square", [True, False])
def test_an_operator_is_the_same_either_way(monkeypatch, case, dtype, is_square):
    sizes, _, has_few = CASES[case]
    left = rows_in(sizes, 300)
    right = left if is_square else rows_in(sizes, 250, seed=1)
    loadings = torch.randn(300, 2, generator=torch.Generator().manual_seed(0)).to(dtype)
    products, original = [], PartitionLinearOperator._dense_by_columns
    monkeypatch.setattr(PartitionLinearOperator, "_dense_by_columns", lambda self: products.append(1) or original(self))
    for pair in ((None, None), (loadings, loadings if is_square else loadings[:250].clone())):
        operator = operator_of(case, dtype, left, right, pair)
        found = operator.to_dense()
        torch.testing.assert_close(found, dense(operator), rtol=1e-5, atol=1e-4 if dtype == torch.float32 else 1e-9)
    assert bool(products) == (not has_few)


@pytest.mark.parametrize("case", CASES)
def test_batches_and_half_precision_are_products(case):
    """Rows of their own in each batch element, and what NumPy and SciPy cannot add."""
    first, second = rows_in(CASES[case][0], 220), rows_in(CASES[case][0], 220, seed=1)
    both = Incidence(torch.stack([first.codes, second.codes]), first.num_clusters)
    operator = operator_of(case, torch.float32, both, both, scale=[1.0, 2.0])
    torch.testing.assert_close(operator.to_dense(), dense(operator), rtol=1e-4, atol=1e-4)
    expected = dense(operator_of(case, torch.float32, first, first, scale=1.0))
    for dtype in (torch.float16, torch.bfloat16):
        half = operator_of(case, dtype, first, first, scale=1.0).to_dense()
        torch.testing.assert_close(half.float(), expected, rtol=0.05, atol=0.05)


def test_one_weight_for_all_batches_and_gradients():
    rows = rows_in((300, 400), 60)
    weight = torch.tensor([0.5], dtype=torch.float64, requires_grad=True)
    total = 0.5 * float(shared(rows, rows, 1.0).sum())
    for scale in (torch.tensor(2.0, dtype=torch.float64), torch.tensor([2.0, 3.0], dtype=torch.float64)):
        scale.requires_grad_(True)
        operator = FlatLinearOperator(weight, num_clusters=700)
        trained = PartitionLinearOperator(scale, operator, left=rows, right=rows).to_dense()
        fixed = PartitionLinearOperator(scale, operator.detach(), left=rows, right=rows).to_dense()
        torch.testing.assert_close(trained, scale[..., None, None] * 0.5 * shared(rows, rows, 1.0))
        torch.testing.assert_close(fixed, trained)
        for matrix, parameters in ((trained, [scale, weight]), (fixed, [scale])):
            gradients = torch.autograd.grad(matrix.sum(), parameters)
            assert gradients[0].sum() == pytest.approx(total * scale.numel())


def test_a_dense_matrix_of_other_trees_is_not_taken_from_the_cache():
    """The same rows and weights: the cache must tell layouts apart, which are no tensors of the operator."""
    rows = Incidence(torch.tensor([[0], [1], [2]]), num_clusters=3)
    children = [([1, 1, 3, 3, 4], [2, 1, 4, 3, 4]), ([1, 2, 2, 3, 4], [4, 3, 2, 3, 4])]
    for layout in [lay_out_trees(*map(torch.tensor, pair), torch.tensor([0, 5])) for pair in children]:
        operator = PathSumLinearOperator(torch.arange(1.0, 6.0), layout=layout)
        covariance = PartitionLinearOperator(torch.ones(()), operator, left=rows, right=rows)
        torch.testing.assert_close(covariance.to_dense(), operator.to_dense())
