"""Small operators of every kind, each with its dense matrix built from the operator's own tensors."""

from __future__ import annotations

import torch
from linear_operator.operators import SumLinearOperator

from gpytorch_partition.clusters.incidence import Incidence, Memberships
from gpytorch_partition.clusters.tree_layout import TreeLayout, lay_out_trees
from gpytorch_partition.operators import (
    FlatLinearOperator,
    MembershipLinearOperator,
    PartitionLinearOperator,
    PathSumLinearOperator,
    SideBySideLinearOperator,
    TaskLinearOperator,
)
from gpytorch_partition.operators.algebra import low_rank_operator
from gpytorch_partition.operators.cluster_operators.path_sum_linear_operator import (
    AttachedPathsLinearOperator,
    TreeExits,
)


def one_hot(incidence: Incidence) -> torch.Tensor:
    """Z as a dense matrix, by brute force."""
    dense = torch.zeros(*incidence.codes.shape[:-1], incidence.num_clusters)
    return dense.scatter_add_(-1, incidence.codes.long(), torch.ones(incidence.codes.shape))


def rows(seed: int, shape: tuple[int, ...], counts: tuple[int, ...], singletons: bool = True) -> Incidence:
    """Random codes of `len(counts)` partitions; the last partition may have every row alone."""
    generator = torch.Generator().manual_seed(seed)
    columns = [torch.randint(count, shape, generator=generator) for count in counts]
    if singletons:
        columns.append(torch.arange(shape[-1]).expand(shape))
        counts = (*counts, shape[-1])
    offsets = torch.tensor([0, *counts[:-1]]).cumsum(0)
    return Incidence((torch.stack(columns, -1) + offsets).int(), sum(counts))


def dense(operator) -> torch.Tensor:
    """s sum_r diag(R_r) Z S Z'^T diag(R'_r), and sums of it, with autograd through the operator's own tensors."""
    if isinstance(operator, SumLinearOperator):
        return sum(map(dense, operator.linear_ops))
    if not isinstance(operator, PartitionLinearOperator):
        return operator.to_dense()
    dtype = operator.dtype
    left, right = one_hot(operator.left).to(dtype), one_hot(operator.right).to(dtype)
    middle = left @ cluster_matrix(operator.cluster_operator) @ right.mT
    if operator.left_loadings is not None:
        middle = middle * (operator.left_loadings @ operator.right_loadings.mT)
    return operator.scale[..., None, None] * middle.expand(*operator.shape)


def cluster_matrix(cluster_operator) -> torch.Tensor:
    if isinstance(cluster_operator, TaskLinearOperator):
        return torch.kron(cluster_matrix(cluster_operator.base), cluster_operator.task_covariance)
    if isinstance(cluster_operator, SideBySideLinearOperator):
        blocks = zip(cluster_operator.weights, cluster_operator.blocks)
        return torch.block_diag(*(weight * cluster_matrix(block) for weight, block in blocks))
    if isinstance(cluster_operator, FlatLinearOperator):
        return torch.diag_embed(cluster_operator.weights.expand(cluster_operator.num_clusters))
    if isinstance(cluster_operator, AttachedPathsLinearOperator):
        return attached_matrix(cluster_operator)
    if isinstance(cluster_operator, MembershipLinearOperator):
        return membership_matrix(cluster_operator)
    if cluster_operator._transpose_nonbatch() is not cluster_operator:
        return attached_matrix(cluster_operator.base).mT
    weights, indicators = cluster_operator.node_weights, below(cluster_operator.layout).to(cluster_operator.dtype)
    return indicators.mT @ (weights[:, None] * indicators)


def membership_matrix(operator: MembershipLinearOperator) -> torch.Tensor:
    """By the sets that both items are in, and those that both are not in."""
    members = operator.memberships.rows(torch.arange(operator.memberships.num_items)).toarray()
    inside = torch.from_numpy(members).to(operator.dtype)
    common = (inside * operator.weights) @ inside.mT
    if operator.item_scales is not None:
        return operator.item_scales[:, None] * common * operator.item_scales
    return common + ((1 - inside) * operator.weights) @ (1 - inside).mT


def memberships(num_items: int = 7, num_sets: int = 9, seed: int = 0) -> Memberships:
    """Items in random sets, the last item in none, the last set without any."""
    inside = torch.rand(num_items, num_sets, generator=torch.Generator().manual_seed(seed)) < 0.5
    inside[-1], inside[:, -1] = False, False
    starts = torch.cat([torch.zeros(1, dtype=torch.int64), inside.sum(1).cumsum(0)])
    return Memberships(starts, inside.nonzero()[:, 1], num_sets)


def below(layout: TreeLayout) -> torch.Tensor:
    """Which leaves lie below each node, `V x p`."""
    leaves = torch.arange(layout.num_leaves)
    return (layout.node_low[:, None] <= leaves) & (leaves < layout.node_high[:, None])


def attached_matrix(operator: AttachedPathsLinearOperator) -> torch.Tensor:
    """For each exit the weights of the nodes above its last one, by brute force, and of this one its share."""
    layout, nodes = operator.exits.layout, operator.exits.nodes
    holds = below(layout)
    is_inside = (holds[:, None] >= holds[None]).all(-1).mT  # [v, u]: v lies in u
    is_above = is_inside[nodes] & (torch.arange(layout.num_nodes) != nodes[:, None])
    indicators = holds.to(operator.dtype)
    shared = (is_above.to(operator.dtype) * operator.node_weights) @ indicators
    return shared + operator.shares[:, None] * indicators[nodes]


def attached(seed: int = 0) -> tuple[AttachedPathsLinearOperator, Incidence, Incidence]:
    """Six points that leave two trees at eight exits, two of them at the same node, and five rows in the leaves."""
    layout, trees = two_trees()
    generator = torch.Generator().manual_seed(seed)
    weights = torch.rand(layout.num_nodes, generator=generator) + 0.2
    nodes = torch.tensor([0, 2, 3, 2, 5, 7, 11, 13])
    shares = weights[nodes] * torch.rand(8, generator=generator)
    codes = torch.tensor([[0, 4], [1, 5], [2, 6], [3, 7], [3, 4], [1, 7]])
    operator = AttachedPathsLinearOperator(
        weights.requires_grad_(True), shares.requires_grad_(True), exits=TreeExits(layout, nodes)
    )
    return operator, Incidence(codes, 8), trees


def low_rank(scale: torch.Tensor, left: torch.Tensor, right: torch.Tensor | None = None) -> PartitionLinearOperator:
    """s L R^T as one cluster with loadings; R is L if it is not given."""
    return low_rank_operator(scale, left, left if right is None else right)


def flat_weights(num_clusters: int, num_partitions: int) -> FlatLinearOperator:
    return FlatLinearOperator(torch.tensor([1.0 / num_partitions]), num_clusters=num_clusters)


def weighted(num_clusters: int, seed: int = 3) -> FlatLinearOperator:
    generator = torch.Generator().manual_seed(seed)
    return FlatLinearOperator(torch.rand(num_clusters, generator=generator) + 0.3, num_clusters=num_clusters)


def two_trees() -> tuple[TreeLayout, Incidence]:
    """A tree with three leaves and a tree with five, and five rows: alone in the leaves of the second."""
    left = torch.tensor([1, 1, 3, 3, 4, 6, 8, 7, 8, 10, 10, 12, 12, 13])
    right = torch.tensor([2, 1, 4, 3, 4, 7, 9, 7, 8, 11, 10, 13, 12, 13])
    layout = lay_out_trees(left, right, torch.tensor([0, 5, 14]))
    codes = torch.tensor([[0, 3], [1, 4], [2, 5], [2, 6], [0, 7]], dtype=torch.int32)
    return layout, Incidence(codes, layout.num_leaves)


def tree_sums() -> tuple[PathSumLinearOperator, Incidence]:
    """Two trees with random weights that have gradients, and five rows."""
    layout, trees = two_trees()
    weights = torch.rand(layout.num_nodes, generator=torch.Generator().manual_seed(0)) + 0.2
    return PathSumLinearOperator(weights.requires_grad_(True), layout=layout), trees


def mixture(weights: torch.Tensor) -> tuple[SideBySideLinearOperator, Incidence]:
    """Two trees, and beside them flat partitions with weights of their own and with a common one: five rows."""
    paths, trees = tree_sums()
    fine, coarse = rows(4, (5,), (3,)), rows(5, (5,), (2, 2), singletons=False)
    blocks = [
        paths,
        FlatLinearOperator(weighted(fine.num_clusters).weights.requires_grad_(True), num_clusters=fine.num_clusters),
        flat_weights(coarse.num_clusters, 2),
    ]
    starts = [0, trees.num_clusters, trees.num_clusters + fine.num_clusters]
    codes = [part.codes + start for part, start in zip((trees, fine, coarse), starts)]
    operator = SideBySideLinearOperator(weights.requires_grad_(True), *blocks)
    return operator, Incidence(torch.cat(codes, -1).int(), operator.shape[-1])


def task_covariance(num_tasks: int = 2, seed: int = 2) -> torch.Tensor:
    """A random covariance of tasks, with a gradient."""
    factor = torch.randn(num_tasks, num_tasks, generator=torch.Generator().manual_seed(seed))
    return (factor @ factor.mT + 0.5 * torch.eye(num_tasks)).requires_grad_(True)
