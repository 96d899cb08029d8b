"""Partition operators of every kind against their dense matrices, by linear_operator's own suite."""

from __future__ import annotations

import unittest
from collections.abc import Callable
from unittest import mock

import linear_operator
import pytest
import torch
from linear_operator.operators import DenseLinearOperator, DiagLinearOperator
from linear_operator.test.linear_operator_test_case import (
    LinearOperatorTestCase,
    RectangularLinearOperatorTestCase,
)

from gpytorch_partition.clusters.incidence import Incidence
from gpytorch_partition.operators import MembershipLinearOperator, PartitionLinearOperator, guards
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
    tree_sums,
    weighted,
)


class _Suite(LinearOperatorTestCase):
    seed = 4
    should_call_cg = False  # but the package's own solver
    should_call_lanczos = False
    should_call_lanczos_diagonalization = True

    def setUp(self):
        super().setUp()
        # The suite asks for 1e-4, and linear_operator's solver makes ten iterations all the same; this one stops.
        self.enterContext(mock.patch.object(guards, "LARGEST_RESIDUAL", 1e-6))

    def test_diagonalization(self, symeig=True):
        super().test_diagonalization(symeig=True)
        with linear_operator.settings.max_cholesky_size(1), self.assertRaisesRegex(RuntimeError, "max_cholesky_size"):
            self.create_linear_op().diagonalization()

    def evaluate_linear_op(self, linear_op):
        return dense(linear_op)


class _RectangularSuite(RectangularLinearOperatorTestCase):
    def evaluate_linear_op(self, linear_op):
        return dense(linear_op)


def of(scale, clusters, left, right=None, loadings=None) -> PartitionLinearOperator:
    """An operator whose scale has a gradient, with the same loadings on both sides, or a pair."""
    left_loadings, right_loadings = loadings if isinstance(loadings, tuple) else (loadings, loadings)
    return PartitionLinearOperator(
        torch.as_tensor(scale).requires_grad_(True),
        clusters,
        left=left,
        right=left if right is None else right,
        left_loadings=left_loadings,
        right_loadings=right_loadings,
    )


def random(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def trained(clusters):
    clusters.weights.requires_grad_(True)
    return clusters


def members(item_scales=None):
    """Five rows of seven items, one of which is in no set."""
    items = Incidence(torch.tensor([[1], [0], [4], [2], [5]]), num_clusters=7)
    weights = torch.tensor([0.5, 0.2, 0.8, 0.1, 0.4, 0.3, 0.6, 0.7, 0.2], requires_grad=True)
    return of(1.5, MembershipLinearOperator(weights, memberships=memberships(), item_scales=item_scales), items)


def of_mixture(scale):
    return of(scale, *mixture(torch.tensor([0.5, 0.2, 0.8])))


def loaded_trees():
    loadings = random(2, 5, 3, seed=1).requires_grad_(True)
    return of(1.5, *tree_sums()).with_loadings(loadings, loadings)


def one_cluster(scale, *batch):
    loadings = random(*batch, 5, 6) + torch.eye(5, 6)
    return low_rank(torch.as_tensor(scale).requires_grad_(True), loadings.requires_grad_(True))


def on_own():
    tasks = torch.tensor([0, 2, 1, 2, 0])
    return on_own_tasks(of(2.5, flat_weights(12, 4), rows(11, (5,), (2, 3, 2))), task_covariance(3), tasks, tasks)


def noisy(noise, scale, codes):
    return of(scale, weighted(codes.num_clusters), codes) + DiagLinearOperator(noise.requires_grad_(True))


def sum_with_a_dense_term():
    vector = torch.tensor([1.0, 0.4, 0.1, 0.3, 0.8])
    first, second = of(2.5, weighted(10), rows(0, (5,), (2, 3))), of(0.5, weighted(8), rows(9, (5,), (3,)))
    return first + second + DenseLinearOperator(vector.outer(vector).requires_grad_(True))


SQUARE: dict[str, Callable[[], PartitionLinearOperator]] = {
    "Flat": lambda: of(2.5, flat_weights(12, 4), rows(11, (5,), (2, 3, 2))),
    "Weighted": lambda: of(1.5, trained(weighted(10)), rows(1, (5,), (2, 3))),
    "Tree": lambda: of(1.5, *tree_sums()),
    "TreeBatch": lambda: of([1.5, 0.7], *tree_sums()),
    "Memberships": members,
    "CommonMembers": lambda: members(torch.tensor([1.0, 0.7, 0.5, 2.0, 1.5, 1.2, 0.0])),
    "Mixture": lambda: of_mixture(1.5),
    "MixtureBatch": lambda: of_mixture([1.5, 0.7]),
    "Loaded": lambda: of(2.0, weighted(7), rows(2, (5,), (2,)), loadings=(random(5, 2) + 0.5).requires_grad_(True)),
    "LoadedTree": loaded_trees,
    "LowRank": lambda: one_cluster(2.0),
    "LowRankBatch": lambda: one_cluster([2.0, 0.7], 2),
    "EveryTask": lambda: on_every_task(of(1.5, *tree_sums()), task_covariance()),
    "EveryTaskBatch": lambda: on_every_task(of([1.5, 3.0], weighted(8), rows(4, (2, 3), (2, 3))), task_covariance()),
    "OwnTask": on_own,
    "BatchSharedRows": lambda: of([1.5, 3.0], flat_weights(10, 3), rows(3, (5,), (2, 3))),
    "BatchOwnRows": lambda: of([1.5, 3.0], weighted(10), rows(4, (2, 5), (2, 3))),
    "PlusNoise": lambda: noisy(torch.tensor([0.5, 1.0, 2.0, 0.7, 1.2]), 2.5, rows(0, (5,), (2, 3))),
    "PlusNoiseBatch": lambda: noisy(random(2, 5) + 0.5, [1.5, 3.0], rows(4, (2, 5), (2, 3))),
    "MultiBatch": lambda: of(random(3, 2) + 1, weighted(10), rows(5, (2, 5), (2, 3))),
}


def points(*batch):
    return rows(6, (*batch, 5), (2, 3), False), rows(7, (6,), (2, 3), False)


def of_attached(scale):
    operator, exits, leaves = attached()
    return of(scale, operator, exits, leaves)


def attached_transposed():
    operator, exits, leaves = attached()
    return of(2.5, operator._transpose_nonbatch(), leaves, exits)


def attached_tasks():
    plain = of_attached(2.5)
    numbers = (torch.arange(plain.shape[-2]) % 2, torch.arange(plain.shape[-1]) % 3 % 2)
    return on_own_tasks(plain, task_covariance(), *numbers)


RECTANGULAR: dict[str, Callable[[], PartitionLinearOperator]] = {
    "Plain": lambda: of(2.5, weighted(5), *points()),
    "Batch": lambda: of([2.5, 0.5], weighted(5), *points(2)),
    "Loaded": lambda: of(
        2.5,
        weighted(5),
        *points(),
        loadings=(random(5, 2).requires_grad_(True), random(6, 2, seed=1).requires_grad_(True)),
    ),
    "Attached": lambda: of_attached(2.5),
    "AttachedBatch": lambda: of_attached([2.5, 0.5]),
    "AttachedTransposed": attached_transposed,
    "Tasks": attached_tasks,
    "LowRank": lambda: low_rank(
        torch.tensor(2.5, requires_grad=True),
        random(5, 3).requires_grad_(True),
        random(6, 3, seed=1).requires_grad_(True),
    ),
}


def _cases(suite, operators):
    for name, create in operators.items():
        options = {"create_linear_op": staticmethod(create), "skip_slq_tests": name == "MultiBatch"}
        yield f"Test{suite.__name__}{name}", type(name, (suite, unittest.TestCase), options)


class _SumSuite(_Suite):
    def test_root_decomposition(self, **options):
        """Of a sum with a dense term none is known but a dense one."""
        if options:
            super().test_root_decomposition(**options)
            return
        with linear_operator.settings.max_cholesky_size(0), self.assertRaisesRegex(RuntimeError, "a root .*dense"):
            self.create_linear_op().root_decomposition()


globals().update(_cases(_Suite, SQUARE))
globals().update(_cases(_SumSuite, {"DenseTerm": sum_with_a_dense_term}))
globals().update(_cases(_RectangularSuite, RECTANGULAR))


@pytest.mark.parametrize("num_points", [1, 3])
@pytest.mark.parametrize(("kind", "with_others"), [("mixture", True), ("mixture", False), ("attached", True)])
def test_batches_of_points(kind, num_points, with_others):
    """What BoTorch asks for: each batch element has points of its own, and the other rows are shared."""
    if kind == "attached":
        effects, exits, others = attached()
    else:
        effects, others = mixture(torch.tensor([0.5, 0.2, 0.8]))
        exits = Incidence(others.codes.flip(0)[[0, 1, 2, 3, 4, 1]], others.num_clusters)
    left = Incidence(exits.codes.view(6 // num_points, num_points, -1), exits.num_clusters)
    operator = of(torch.linspace(0.5, 2.0, 6 // num_points), effects.detach(), left, others if with_others else left)
    torch.testing.assert_close(operator.to_dense(), dense(operator))
