"""Dense covariances of trees, against the nodes that rows are in."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from linear_operator.operators import LinearOperator

from gpytorch_partition import RandomForestKernel
from gpytorch_partition.clusters.incidence import Incidence
from gpytorch_partition.clusters.tree_layout import lay_out_trees
from gpytorch_partition.operators import PartitionLinearOperator, PathSumLinearOperator
from gpytorch_partition.operators.cluster_operators import shared_paths
from gpytorch_partition.operators.cluster_operators.shared_paths import is_cheaper_than_product, shared_path_sums


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


def rows_in(layout, num_rows, seed=0, dtype=torch.int32):
    generator = torch.Generator().manual_seed(seed)
    sizes = layout.tree_leaves.diff().tolist()
    codes = torch.stack([torch.randint(size, (num_rows,), generator=generator) for size in sizes], -1)
    return Incidence((codes + layout.tree_leaves[:-1]).to(dtype), layout.num_leaves)


def nodes_of(rows, layout):
    """`N x V`, 1 for each node that a row is in."""
    codes = rows.codes.repeat_interleave(layout.tree_nodes.diff(), dim=1)
    return ((layout.node_low <= codes) & (codes < layout.node_high)).double()


def weights_of(layout):
    return torch.randn(layout.num_nodes, generator=torch.Generator().manual_seed(7), dtype=torch.float64)


@pytest.mark.parametrize("few", [0, 50, 2**62])
@pytest.mark.parametrize(("visits", "table"), [(2**20, 2**22), (80, 100), (1, 1)])
@pytest.mark.parametrize(("num_rows", "num_points"), [(60, 60), (60, 11), (1, 40), (0, 5), (5, 0)])
def test_sums_over_shared_nodes(monkeypatch, num_rows, num_points, visits, table, few):
    for name, value in {"_FEW_PAIRS": few, "_VISITS": visits, "_TABLE": table}.items():
        monkeypatch.setattr(shared_paths, name, value)
    layout = random_trees((30, 1, 2, 7, 50))
    left, right = (rows_in(layout, number, seed) for seed, number in enumerate((num_rows, num_points)))
    weights = weights_of(layout)
    for others in (left, right):
        expected = nodes_of(left, layout) * weights @ nodes_of(others, layout).mT
        torch.testing.assert_close(shared_path_sums(left, others, layout, weights), expected)
    single = shared_path_sums(left, right, layout, weights.float())
    torch.testing.assert_close(single, expected.float(), rtol=1e-5, atol=1e-5)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=5), st.integers(0, 30), st.integers(0, 500), st.integers(0, 9))
def test_any_trees_and_any_threshold(leaves, num_rows, few, seed):
    layout = random_trees(leaves, seed)
    rows, weights = rows_in(layout, num_rows, seed, torch.int64), weights_of(layout)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_paths, "_FEW_PAIRS", few)
        found = shared_path_sums(rows, rows, layout, weights)
    expected = nodes_of(rows, layout) * weights @ nodes_of(rows, layout).mT
    torch.testing.assert_close(found, expected)


def test_rows_with_themselves_are_exactly_symmetric():
    layout = random_trees((200, 150))
    rows = rows_in(layout, 120)
    same = Incidence(rows.codes.clone(), rows.num_clusters)
    for others in (rows, same):
        found = shared_path_sums(rows, others, layout, weights_of(layout).float())
        assert torch.equal(found, found.mT)


def test_where_they_are_worth_it():
    """Many leaves, not as many levels, and many rows, not many more of them on the left than on the right."""
    layout, few_leaves, chain = random_trees((150, 60)), random_trees((150, 40)), random_trees((400,), is_chain=True)
    rows = {number: rows_in(layout, number) for number in (199, 200, 400, 401, 5_000)}
    assert is_cheaper_than_product(rows[200], rows[200], layout)
    assert is_cheaper_than_product(rows[200], rows[5_000], layout)
    assert is_cheaper_than_product(rows[400], rows[200], layout)
    assert not is_cheaper_than_product(rows[401], rows[200], layout)
    assert not is_cheaper_than_product(rows[199], rows[199], layout)
    assert not is_cheaper_than_product(rows[200], rows[200], few_leaves)
    assert not is_cheaper_than_product(rows[200], rows[200], chain)


@pytest.mark.filterwarnings("ignore:.*overconfident")
@pytest.mark.parametrize("leaf", [1, 20])
def test_operators_of_deep_trees_are_the_same_either_way(monkeypatch, leaf):
    x = torch.rand(300, 3, generator=torch.Generator().manual_seed(0))
    kernel = RandomForestKernel(x, x[:, 0], 20, max_samples=1.0, min_samples_leaf=leaf, random_state=0)
    products, original = [], LinearOperator.to_dense
    monkeypatch.setattr(LinearOperator, "to_dense", lambda self: products.append(1) or original(self))
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-12)):
        kernel = kernel.to(dtype)
        with torch.no_grad():
            covariance, cross = kernel(x).evaluate_kernel(), kernel(x, x[:250]).evaluate_kernel()
            for operator in (2.5 * covariance, cross):
                expected = operator._matmul(torch.eye(operator.shape[-1], dtype=dtype))
                products.clear()
                torch.testing.assert_close(operator.to_dense(), expected, rtol=tolerance, atol=tolerance)
                assert bool(products) == (leaf == 20)


@pytest.mark.filterwarnings("ignore:.*overconfident")
def test_batches_and_half_precision_are_products():
    """Rows of their own in each batch element, and what NumPy and SciPy cannot add."""
    x = torch.rand(2, 250, 3, generator=torch.Generator().manual_seed(0))
    kernel = RandomForestKernel(x[0], x[0, :, 0], 5, max_samples=1.0, min_samples_leaf=1, random_state=0)
    with torch.no_grad():
        single = [kernel(rows).to_dense() for rows in x]
        torch.testing.assert_close(kernel(x).to_dense(), torch.stack(single))
        half = kernel.half()(x[0].half()).evaluate_kernel()
        torch.testing.assert_close(half.to_dense(), half._matmul(torch.eye(250).half()))


def test_a_dense_matrix_of_other_trees_is_not_taken_from_the_cache():
    """The same rows and weights: the cache must tell layouts apart, which are no tensors of the operator."""
    rows = Incidence(torch.tensor([[0], [1], [2]]), num_clusters=3)
    children = [([1, 1, 3, 3, 4], [2, 1, 4, 3, 4]), ([1, 2, 2, 3, 4], [4, 3, 2, 3, 4])]
    layouts = [lay_out_trees(*map(torch.tensor, pair), torch.tensor([0, 5])) for pair in children]
    for layout in layouts:
        operator = PathSumLinearOperator(torch.arange(1.0, 6.0), layout=layout)
        covariance = PartitionLinearOperator(torch.ones(()), operator, left=rows, right=rows)
        torch.testing.assert_close(covariance.to_dense(), operator.to_dense())
