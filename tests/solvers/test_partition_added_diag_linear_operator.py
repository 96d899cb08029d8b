from __future__ import annotations

import unittest

import linear_operator
import torch
from linear_operator.operators import DenseLinearOperator, DiagLinearOperator, RootLinearOperator
from linear_operator.test.linear_operator_test_case import LinearOperatorTestCase

from gpytorch_partition.operators import PartitionLinearOperator
from gpytorch_partition.solvers import PartitionAddedDiagLinearOperator
from tests.operators.operator_zoo import dense, rows, weighted


class _Suite(LinearOperatorTestCase):
    seed = 2
    should_call_cg = False  # ours, not linear_operator.utils.linear_cg: see test_solves_by_our_cg
    should_call_lanczos = False  # roots are exact
    should_call_lanczos_diagonalization = True

    def test_diagonalization(self, symeig=True):
        super().test_diagonalization(symeig=True)
        with linear_operator.settings.max_cholesky_size(1), self.assertRaisesRegex(RuntimeError, "max_cholesky_size"):
            self.create_linear_op().diagonalization()

    def evaluate_linear_op(self, linear_op):
        return dense(linear_op._linear_op) + linear_op._diag_tensor.to_dense()


class TestAddedDiag(_Suite, unittest.TestCase):
    def create_linear_op(self):
        codes = rows(0, (5,), (2, 3))
        scale = torch.tensor(2.5, requires_grad=True)
        covariance = PartitionLinearOperator(scale, weighted(codes.num_clusters), left=codes, right=codes)
        return covariance + DiagLinearOperator(torch.tensor([0.5, 1.0, 2.0, 0.7, 1.2], requires_grad=True))


class TestAddedDiagBatch(_Suite, unittest.TestCase):
    def create_linear_op(self):
        codes = rows(4, (2, 5), (2, 3))
        scale = torch.tensor([1.5, 3.0], requires_grad=True)
        covariance = PartitionLinearOperator(scale, weighted(codes.num_clusters), left=codes, right=codes)
        return covariance + DiagLinearOperator((torch.rand(2, 5) + 0.5).requires_grad_(True))


class TestSum(_Suite, unittest.TestCase):
    def test_root_decomposition(self, **options):
        """Of a sum with a dense term none is known but a dense one."""
        if options:
            super().test_root_decomposition(**options)
            return
        with linear_operator.settings.max_cholesky_size(0), self.assertRaisesRegex(RuntimeError, "a root .*dense"):
            self.create_linear_op().root_decomposition()

    def create_linear_op(self):
        first, second = rows(0, (5,), (2, 3)), rows(9, (5,), (3,))
        dense_term = torch.tensor([1.0, 0.4, 0.1, 0.3, 0.8]).outer(torch.tensor([1.0, 0.4, 0.1, 0.3, 0.8]))
        return (
            PartitionLinearOperator(torch.tensor(2.5, requires_grad=True), weighted(10), left=first, right=first)
            + PartitionLinearOperator(torch.tensor(0.5, requires_grad=True), weighted(8), left=second, right=second)
            + DenseLinearOperator(dense_term.requires_grad_(True))
        )

    def evaluate_linear_op(self, linear_op):
        return dense(linear_op.linear_ops[0]) + dense(linear_op.linear_ops[1]) + linear_op.linear_ops[2].tensor


def test_around_another_librarys_operator_what_does_not_converge_is_solved_in_float64():
    generator = torch.Generator().manual_seed(0)
    root, noise = torch.randn(2_500, 5, generator=generator), torch.full((2_500,), 1e-6)
    operator = PartitionAddedDiagLinearOperator(RootLinearOperator(root), DiagLinearOperator(noise))
    right = torch.randn(2_500, 1, generator=generator)
    found = operator.solve(right)
    exact = torch.linalg.solve(root.double() @ root.double().T + 1e-6 * torch.eye(2_500).double(), right.double())
    assert operator.in_double.__class__ is PartitionAddedDiagLinearOperator
    assert (found - exact).norm() < 1e-3 * exact.norm()
