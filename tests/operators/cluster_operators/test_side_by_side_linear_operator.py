"""Blocks in feature space against the dense block-diagonal matrix."""

from __future__ import annotations

import torch

from gpytorch_partition.operators.cluster_operators.composed_operators import SideBySideLinearOperator
from tests.operators.operator_zoo import cluster_matrix, mixture

WEIGHTS = torch.tensor([0.5, 0.2, 0.8])


def test_the_root_is_exact():
    operator, _ = mixture(WEIGHTS.clone())
    root = operator.root()
    assert root.shape[0] < root.shape[1]
    torch.testing.assert_close(root.to_dense() @ root.to_dense().mT, operator.to_dense())
    rhs = torch.randn(len(operator.to_dense()), 2, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(root.mT @ rhs, root.to_dense().mT @ rhs)


def test_gradients_where_only_some_tensors_are_trained():
    operator, _ = mixture(WEIGHTS.clone())
    left, right = torch.randn(2, operator.shape[-1], 3, generator=torch.Generator().manual_seed(0))
    for trained in ([0], [1], [2], [0, 2], []):
        tensors = [t.detach().requires_grad_(place in trained) for place, t in enumerate(operator.representation())]
        found = operator.representation_tree()(*tensors)
        loss = (left * (cluster_matrix(found) @ right)).sum()
        expected = torch.autograd.grad(loss, [tensors[place] for place in trained]) if trained else []
        gradients = found._bilinear_derivative(left, right)
        assert [place for place, gradient in enumerate(gradients) if gradient is not None] == trained
        for place, gradient in zip(trained, expected):
            torch.testing.assert_close(gradients[place], gradient)


def test_blocks_of_blocks():
    inner, _ = mixture(WEIGHTS.clone())
    outer = SideBySideLinearOperator(torch.tensor([0.25, 0.75]), inner, inner.blocks[1])
    expected = cluster_matrix(outer)
    torch.testing.assert_close(outer.to_dense(), expected)
    root = outer.root().to_dense()
    torch.testing.assert_close(root @ root.mT, expected)
    layout, sizes = inner.blocks[0].layout, [block.shape[0] for block in inner.blocks]
    is_flat = [False] * sizes[0] + [True] * (sizes[1] + sizes[2] + sizes[1])
    assert outer.independent_clusters.tolist() == is_flat
    assert outer.num_nodes == layout.num_nodes
