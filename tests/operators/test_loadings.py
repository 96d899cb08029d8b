"""Rows with loadings: in blocks, in one cluster, and in sums with low-rank operators of linear_operator."""

from __future__ import annotations

import gpytorch
import pytest
import torch
from gpytorch.kernels import InducingPointKernel, LinearKernel, RBFKernel, RFFKernel, ScaleKernel
from linear_operator.operators import (
    ConstantDiagLinearOperator,
    ConstantMulLinearOperator,
    DenseLinearOperator,
    MatmulLinearOperator,
    RootLinearOperator,
)

from gpytorch_partition import FastClusterKernel, IterativeKernel
from gpytorch_partition.clusters.incidence import Incidence, one_cluster
from gpytorch_partition.operators import PartitionLinearOperator, loadings, partition_linear_operator
from gpytorch_partition.operators.algebra import structured_terms
from gpytorch_partition.operators.loadings import LoadedRows
from gpytorch_partition.operators.tasks import on_own_tasks
from tests.operators.operator_zoo import dense, flat_weights, low_rank, one_hot, rows

GENERATOR = torch.Generator().manual_seed(0)
R = torch.randn(30, 7, generator=GENERATOR, dtype=torch.float64)
V = torch.randn(30, 4, generator=GENERATOR, dtype=torch.float64)
X = torch.randn(40, 3, generator=GENERATOR, dtype=torch.float64)


@pytest.mark.parametrize("workspace", [1, 300, 2**25])
@pytest.mark.parametrize("incidence", [rows(1, (30,), (3, 4), False), rows(1, (30,), (3,), False), one_cluster(30)])
def test_sums_and_values_in_blocks_are_those_of_dense_matrices(incidence, workspace, monkeypatch):
    monkeypatch.setattr(loadings, "_WORKSPACE", workspace)
    Z = one_hot(incidence).double()
    sums = torch.cat([Z.T @ (column.unsqueeze(-1) * V) for column in R.T], -1)
    torch.testing.assert_close(LoadedRows(incidence, R).cluster_sums(V), sums)
    blocks = sums.split(4, -1)
    values = sum(column.unsqueeze(-1) * (Z @ block) for column, block in zip(R.T, blocks))
    torch.testing.assert_close(LoadedRows(incidence, R).row_values(sums), values)
    derivative = torch.stack([((Z @ block) * V).sum(-1) for block in blocks], -1)
    torch.testing.assert_close(LoadedRows(incidence, R).loadings_derivative(V, sums), derivative)


def test_several_targets_of_a_low_rank_term_are_matrix_products(monkeypatch):
    """No sum over codes, which took 50 times as long."""
    monkeypatch.setattr(Incidence, "row_values", None)
    monkeypatch.setattr(Incidence, "cluster_sums", None)
    tasks, covariance = (
        torch.arange(30) % 3,
        torch.tensor([[1.0, 0.5, 0.2], [0.5, 2.0, -0.3], [0.2, -0.3, 1.0]]).double(),
    )
    operator = on_own_tasks(low_rank(torch.tensor(2.0).double(), R), covariance, tasks, tasks)
    torch.testing.assert_close(operator @ V, (2.0 * R @ R.mT * covariance[tasks][:, tasks]) @ V)


@pytest.mark.parametrize("shape", [(30,), (2, 30)])
@pytest.mark.parametrize(("sums", "expected"), [(40, [5, 2]), (14, [3, 3, 1])])
def test_a_wide_product_takes_a_few_columns_at_once(shape, sums, expected, monkeypatch):
    monkeypatch.setattr(partition_linear_operator, "_SUMS_AT_ONCE", sums)
    monkeypatch.setattr(partition_linear_operator, "_FEWEST_COLUMNS", 3)
    widths, original = [], PartitionLinearOperator.cluster_sums
    monkeypatch.setattr(
        PartitionLinearOperator,
        "cluster_sums",
        lambda self, values: (widths.append(values.shape[-1]), original(self, values))[1],
    )
    incidence = rows(1, shape, (3, 4), False)
    operator = PartitionLinearOperator(torch.ones(shape[:-1]), flat_weights(7, 2), left=incidence, right=incidence)
    torch.testing.assert_close(operator @ R.float(), dense(operator) @ R.float())
    assert widths == expected


def test_a_diagonal_of_many_loadings_looks_up_few_entries_at_once(monkeypatch):
    monkeypatch.setattr(partition_linear_operator, "_LOOKUPS", 21)
    sizes, original = [], PartitionLinearOperator._entries
    monkeypatch.setattr(
        PartitionLinearOperator,
        "_entries",
        lambda self, *index: (sizes.append(len(index[0])), original(self, *index))[1],
    )
    operator = low_rank(torch.tensor(2.0).double(), R, R.flip(0))
    torch.testing.assert_close(operator.diagonal(), (2 * R @ R.flip(0).T).diagonal())
    assert max(sizes) == 3


class TestLowRankTerms:
    """What linear_operator holds as a product of two factors becomes one cluster with loadings."""

    @pytest.mark.parametrize(
        ("operator", "expected"),
        [
            (RootLinearOperator(R), R @ R.T),
            (ConstantMulLinearOperator(RootLinearOperator(R), torch.tensor(3.0)), 3 * R @ R.T),
            (RootLinearOperator(ConstantMulLinearOperator(DenseLinearOperator(R), torch.tensor(3.0))), 9 * R @ R.T),
            (MatmulLinearOperator(R, R.flip(0).T), R @ R.flip(0).T),
            (MatmulLinearOperator(R[:5], R.T), R[:5] @ R.T),
            (ConstantMulLinearOperator(MatmulLinearOperator(R, R.T), torch.tensor(-2.0)), -2 * R @ R.T),
        ],
    )
    def test_operators(self, operator, expected):
        (term,) = structured_terms(operator)
        assert isinstance(term, PartitionLinearOperator)
        assert term.left_loadings.data_ptr() == R.data_ptr() or term.left_loadings.shape != R.shape
        torch.testing.assert_close(dense(term), expected.to(term.dtype))
        torch.testing.assert_close(term @ torch.eye(term.size(-1), dtype=term.dtype), expected.to(term.dtype))

    def test_roots_that_are_no_matrix_stay(self):
        codes = rows(1, (30,), (3, 4), False)
        root = PartitionLinearOperator(torch.tensor(1.0), flat_weights(7, 2), left=codes, right=codes).sparse_root()
        assert structured_terms(RootLinearOperator(root))[0].root is root

    @pytest.mark.parametrize("batch", [(), (2,)])
    @pytest.mark.parametrize(
        "new_kernel",
        [
            lambda **batch: LinearKernel(ard_num_dims=3, **batch),
            lambda **batch: ScaleKernel(LinearKernel(**batch), **batch),
            lambda **batch: ScaleKernel(RFFKernel(10, num_dims=3)),
            lambda **batch: InducingPointKernel(
                RBFKernel(), X[:5].clone(), gpytorch.likelihoods.GaussianLikelihood()
            ).eval(),
        ],
    )
    def test_kernels_in_sums_keep_values_and_gradients(self, new_kernel, batch):
        torch.manual_seed(0)
        kernel = new_kernel(batch_shape=torch.Size(batch)).double()
        total = IterativeKernel(FastClusterKernel(X, 5, random_state=0).double() + kernel)
        for x1, x2 in ((X[:7], X), (X, X)):
            covariance = total(x1, x2).evaluate_kernel()
            vectors = torch.randn(40, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
            options = {"retain_graph": True, "allow_unused": True, "materialize_grads": True}
            found = torch.autograd.grad((covariance @ vectors).square().sum(), kernel.parameters(), **options)
            plain = sum(part(x1, x2).to_dense() for part in total.base_kernel.kernels)
            expected = torch.autograd.grad((plain @ vectors).square().sum(), kernel.parameters(), **options)
            torch.testing.assert_close(covariance.to_dense(), plain)
            for first, second in zip(found, expected, strict=True):
                torch.testing.assert_close(first, second)
        if not isinstance(kernel, InducingPointKernel):  # its diagonal is corrected in evaluation mode
            assert all(isinstance(term, PartitionLinearOperator) for term in covariance.linear_ops)


class TestWithLoadings:
    def test_the_same_loadings_keep_symmetry_and_others_end_it(self):
        codes = rows(1, (30,), (3, 4), False)
        plain = PartitionLinearOperator(
            torch.tensor(1.0).double(), flat_weights(7, 2).double(), left=codes, right=codes
        )
        assert plain.with_loadings(R, R).is_symmetric
        mixed = plain.with_loadings(R, R.flip(0))
        assert not mixed.is_symmetric
        expected = plain.to_dense() * (R @ R.flip(0).T)
        torch.testing.assert_close(mixed.to_dense(), expected)
        torch.testing.assert_close(mixed.diagonal(), expected.diagonal())
        torch.testing.assert_close(mixed[3:9, 3:9].to_dense(), expected[3:9, 3:9])


def test_an_operator_that_is_no_s_is_refused():
    codes, other = rows(1, (30,), (3, 4), False), ConstantDiagLinearOperator(torch.ones(1), diag_shape=7)
    with pytest.raises(ValueError, match="such as FlatLinearOperator, got ConstantDiagLinearOperator"):
        PartitionLinearOperator(torch.tensor(1.0), other, left=codes, right=codes)


def test_rows_are_the_same_by_value():
    first, codes = LoadedRows(one_cluster(30), R), rows(1, (30,), (3, 4), False)
    assert first.are_same(LoadedRows(one_cluster(30), R.clone()))
    assert not first.are_same(LoadedRows(one_cluster(30), R + 1))
    assert not first.are_same(LoadedRows(one_cluster(30)))
    assert not LoadedRows(codes, R).are_same(first)
    assert LoadedRows(codes).are_same(LoadedRows(Incidence(codes.codes.clone(), 7)))
