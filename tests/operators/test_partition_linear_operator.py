from __future__ import annotations

import unittest
from unittest import mock

import linear_operator
import pytest
import torch
from linear_operator.test.linear_operator_test_case import (
    LinearOperatorTestCase,
    RectangularLinearOperatorTestCase,
)

from gpytorch_partition.clusters.incidence import Incidence
from gpytorch_partition.operators import (
    MembershipLinearOperator,
    PartitionLinearOperator,
    PathSumLinearOperator,
    accuracy,
)
from gpytorch_partition.operators.tasks import on_every_task, on_own_tasks
from tests.operators.operator_zoo import (
    attached,
    dense,
    flat_weights,
    low_rank,
    memberships,
    mixture,
    rows,
    task_covariance,
    two_trees,
    weighted,
)


class _PartitionSuite(LinearOperatorTestCase):
    seed = 4
    should_call_cg = False  # but the package's own solver
    should_call_lanczos = False
    should_call_lanczos_diagonalization = True

    def setUp(self):
        super().setUp()
        # The suite asks for 1e-4, and linear_operator's solver makes ten iterations all the same; this one stops.
        self.enterContext(mock.patch.object(accuracy, "LARGEST_RESIDUAL", 1e-6))

    def test_diagonalization(self, symeig=True):
        super().test_diagonalization(symeig=True)
        with linear_operator.settings.max_cholesky_size(1), self.assertRaisesRegex(RuntimeError, "max_cholesky_size"):
            self.create_linear_op().diagonalization()

    def evaluate_linear_op(self, linear_op):
        return dense(linear_op)


class TestFlat(_PartitionSuite, unittest.TestCase):
    def create_linear_op(self):
        codes = rows(11, (5,), (2, 3, 2))
        scale = torch.tensor(2.5, requires_grad=True)
        return PartitionLinearOperator(scale, flat_weights(codes.num_clusters, 4), left=codes, right=codes)


class TestWeighted(_PartitionSuite, unittest.TestCase):
    def create_linear_op(self):
        codes = rows(1, (5,), (2, 3))
        weights = weighted(codes.num_clusters)
        weights.requires_grad_(True)
        return PartitionLinearOperator(torch.tensor(1.5, requires_grad=True), weights, left=codes, right=codes)


class TestTree(_PartitionSuite, unittest.TestCase):
    def create_linear_op(self):
        layout, codes = two_trees()
        weights = torch.rand(layout.num_nodes, generator=torch.Generator().manual_seed(0)) + 0.2
        trees = PathSumLinearOperator(weights.requires_grad_(True), layout=layout)
        return PartitionLinearOperator(torch.tensor(1.5, requires_grad=True), trees, left=codes, right=codes)


class TestTreeBatch(_PartitionSuite, unittest.TestCase):
    def create_linear_op(self):
        layout, codes = two_trees()
        weights = torch.rand(layout.num_nodes, generator=torch.Generator().manual_seed(0)) + 0.2
        trees = PathSumLinearOperator(weights.requires_grad_(True), layout=layout)
        scale = torch.tensor([1.5, 0.7], requires_grad=True)
        return PartitionLinearOperator(scale, trees, left=codes, right=codes)


class TestMemberships(_PartitionSuite, unittest.TestCase):
    """Five rows of seven items, one of which is in no set."""

    item_scales: torch.Tensor | None = None

    def create_linear_op(self):
        items = Incidence(torch.tensor([[1], [0], [4], [2], [5]]), num_clusters=7)
        weights = torch.tensor([0.5, 0.2, 0.8, 0.1, 0.4, 0.3, 0.6, 0.7, 0.2], requires_grad=True)
        inner = MembershipLinearOperator(weights, memberships=memberships(), item_scales=self.item_scales)
        return PartitionLinearOperator(torch.tensor(1.5, requires_grad=True), inner, left=items, right=items)


class TestCommonMembers(TestMemberships):
    item_scales = torch.tensor([1.0, 0.7, 0.5, 2.0, 1.5, 1.2, 0.0])


class TestMixture(_PartitionSuite, unittest.TestCase):
    def create_linear_op(self):
        blocks, codes = mixture(torch.tensor([0.5, 0.2, 0.8]))
        return PartitionLinearOperator(torch.tensor(1.5, requires_grad=True), blocks, left=codes, right=codes)


class TestMixtureBatch(_PartitionSuite, unittest.TestCase):
    def create_linear_op(self):
        blocks, codes = mixture(torch.tensor([0.5, 0.2, 0.8]))
        scale = torch.tensor([1.5, 0.7], requires_grad=True)
        return PartitionLinearOperator(scale, blocks, left=codes, right=codes)


class TestLoaded(_PartitionSuite, unittest.TestCase):
    def create_linear_op(self):
        codes = rows(2, (5,), (2,))
        loadings = torch.rand(5, 2, generator=torch.Generator().manual_seed(0)) + 0.5
        loadings.requires_grad_(True)
        return PartitionLinearOperator(
            torch.tensor(2.0, requires_grad=True),
            weighted(codes.num_clusters),
            left=codes,
            right=codes,
            left_loadings=loadings,
            right_loadings=loadings,
        )

    def evaluate_linear_op(self, linear_op):
        return dense(linear_op)


class TestLowRank(_PartitionSuite, unittest.TestCase):
    """One cluster with loadings."""

    def create_linear_op(self):
        loadings = torch.rand(5, 6, generator=torch.Generator().manual_seed(0)) + torch.eye(5, 6)
        return low_rank(torch.tensor(2.0, requires_grad=True), loadings.requires_grad_(True))


class TestLowRankBatch(_PartitionSuite, unittest.TestCase):
    def create_linear_op(self):
        loadings = torch.rand(2, 5, 6, generator=torch.Generator().manual_seed(0)) + torch.eye(5, 6)
        return low_rank(torch.tensor([2.0, 0.7], requires_grad=True), loadings.requires_grad_(True))


class TestLoadedTree(_PartitionSuite, unittest.TestCase):
    def create_linear_op(self):
        layout, codes = two_trees()
        generator = torch.Generator().manual_seed(0)
        weights = torch.rand(layout.num_nodes, generator=generator) + 0.2
        trees = PathSumLinearOperator(weights.requires_grad_(True), layout=layout)
        loadings = torch.rand(2, 5, 3, generator=generator).requires_grad_(True)
        plain = PartitionLinearOperator(torch.tensor(1.5, requires_grad=True), trees, left=codes, right=codes)
        return plain.with_loadings(loadings, loadings)


class TestEveryTask(_PartitionSuite, unittest.TestCase):
    def create_linear_op(self):
        layout, codes = two_trees()
        weights = torch.rand(layout.num_nodes, generator=torch.Generator().manual_seed(0)) + 0.2
        trees = PathSumLinearOperator(weights.requires_grad_(True), layout=layout)
        scale = torch.tensor(1.5, requires_grad=True)
        return on_every_task(PartitionLinearOperator(scale, trees, left=codes, right=codes), task_covariance())


class TestEveryTaskBatch(_PartitionSuite, unittest.TestCase):
    def create_linear_op(self):
        codes = rows(4, (2, 3), (2, 3))
        scale = torch.tensor([1.5, 3.0], requires_grad=True)
        plain = PartitionLinearOperator(scale, weighted(codes.num_clusters), left=codes, right=codes)
        return on_every_task(plain, task_covariance())


class TestOwnTask(_PartitionSuite, unittest.TestCase):
    def create_linear_op(self):
        codes = rows(11, (5,), (2, 3, 2))
        scale = torch.tensor(2.5, requires_grad=True)
        plain = PartitionLinearOperator(scale, flat_weights(codes.num_clusters, 4), left=codes, right=codes)
        tasks = torch.tensor([0, 2, 1, 2, 0])
        return on_own_tasks(plain, task_covariance(3), tasks, tasks)


class TestBatchSharedRows(_PartitionSuite, unittest.TestCase):
    def create_linear_op(self):
        codes = rows(3, (5,), (2, 3))
        scale = torch.tensor([1.5, 3.0], requires_grad=True)
        return PartitionLinearOperator(scale, flat_weights(codes.num_clusters, 3), left=codes, right=codes)


class TestBatchOwnRows(_PartitionSuite, unittest.TestCase):
    def create_linear_op(self):
        codes = rows(4, (2, 5), (2, 3))
        scale = torch.tensor([1.5, 3.0], requires_grad=True)
        return PartitionLinearOperator(scale, weighted(codes.num_clusters), left=codes, right=codes)


class TestMultiBatch(_PartitionSuite, unittest.TestCase):
    skip_slq_tests = True

    def create_linear_op(self):
        codes = rows(5, (2, 5), (2, 3))
        scale = torch.rand(3, 2, generator=torch.Generator().manual_seed(0)) + 1
        scale.requires_grad_(True)
        return PartitionLinearOperator(scale, weighted(codes.num_clusters), left=codes, right=codes)


class TestRectangular(RectangularLinearOperatorTestCase, unittest.TestCase):
    def create_linear_op(self):
        left, right = rows(6, (5,), (2, 3), False), rows(7, (6,), (2, 3), False)
        scale = torch.tensor(2.5, requires_grad=True)
        return PartitionLinearOperator(scale, weighted(5), left=left, right=right)

    def evaluate_linear_op(self, linear_op):
        return dense(linear_op)


class TestRectangularBatch(TestRectangular):
    def create_linear_op(self):
        left, right = rows(6, (2, 5), (2, 3), False), rows(7, (6,), (2, 3), False)
        scale = torch.tensor([2.5, 0.5], requires_grad=True)
        return PartitionLinearOperator(scale, weighted(5), left=left, right=right)


class TestRectangularLoaded(TestRectangular):
    def create_linear_op(self):
        left, right = rows(6, (5,), (2, 3), False), rows(7, (6,), (2, 3), False)
        generator = torch.Generator().manual_seed(0)
        return PartitionLinearOperator(
            torch.tensor(2.5, requires_grad=True),
            weighted(5),
            left=left,
            right=right,
            left_loadings=torch.rand(5, 2, generator=generator).requires_grad_(True),
            right_loadings=torch.rand(6, 2, generator=generator).requires_grad_(True),
        )


class TestRectangularAttached(TestRectangular):
    def create_linear_op(self):
        operator, points, leaves = attached()
        return PartitionLinearOperator(torch.tensor(2.5, requires_grad=True), operator, left=points, right=leaves)


class TestRectangularTasks(TestRectangular):
    def create_linear_op(self):
        operator, points, leaves = attached()
        scale = torch.tensor(2.5, requires_grad=True)
        plain = PartitionLinearOperator(scale, operator, left=points, right=leaves)
        numbers = (torch.arange(plain.shape[-2]) % 2, torch.arange(plain.shape[-1]) % 3 % 2)
        return on_own_tasks(plain, task_covariance(), *numbers)


class TestRectangularAttachedBatch(TestRectangular):
    def create_linear_op(self):
        operator, points, leaves = attached()
        scale = torch.tensor([2.5, 0.5], requires_grad=True)
        return PartitionLinearOperator(scale, operator, left=points, right=leaves)


class TestRectangularAttachedTransposed(TestRectangular):
    def create_linear_op(self):
        operator, points, leaves = attached()
        scale = torch.tensor(2.5, requires_grad=True)
        return PartitionLinearOperator(scale, operator._transpose_nonbatch(), left=leaves, right=points)


class TestRectangularLowRank(TestRectangular):
    def create_linear_op(self):
        generator = torch.Generator().manual_seed(0)
        left, right = (torch.rand(size, 3, generator=generator).requires_grad_(True) for size in (5, 6))
        return low_rank(torch.tensor(2.5, requires_grad=True), left, right)


class TestBatchesOfPoints:
    """What BoTorch asks for: each batch element has points of its own, and the other rows are shared."""

    @staticmethod
    def operator(kind, num_points, with_others):
        if kind == "attached":
            effects, points, others = attached()
        else:
            effects, others = mixture(torch.tensor([0.5, 0.2, 0.8]))
            points = Incidence(others.codes.flip(0)[[0, 1, 2, 3, 4, 1]], others.num_clusters)
        codes = points.codes.view(6 // num_points, num_points, -1)
        left = Incidence(codes, points.num_clusters)
        scale = torch.linspace(0.5, 2.0, 6 // num_points)
        right = others if with_others else left
        return PartitionLinearOperator(scale, effects.detach(), left=left, right=right)

    @pytest.mark.parametrize("num_points", [1, 3])
    @pytest.mark.parametrize(("kind", "with_others"), [("mixture", True), ("mixture", False), ("attached", True)])
    def test_the_dense_matrix(self, kind, num_points, with_others):
        operator = self.operator(kind, num_points, with_others)
        torch.testing.assert_close(operator.to_dense(), dense(operator))
