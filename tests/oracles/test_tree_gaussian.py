"""Single trees, all of a forest at once, against dense matrices of each."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributions import MultivariateNormal

from gpytorch_partition import RandomForestKernel
from gpytorch_partition.clusters.tree_layout import lay_out_trees
from tests.oracles.tree_gaussian import TreeGaussian

any_trees = settings(derandomize=True, deadline=None, max_examples=40)


def _layout(splits, seed):
    """Binary trees in which random leaves were split so many times."""
    chance, children, starts = random.Random(seed), [], [0]
    for count in splits:
        leaves = [len(children)]
        children.append(None)
        for _ in range(count):
            parent = leaves.pop(chance.randrange(len(leaves)))
            children[parent] = (len(children), len(children) + 1)[:: chance.choice([1, -1])]
            leaves += children[parent]
            children += [None, None]
        starts.append(len(children))
    left, right = torch.tensor([pair or (i, i) for i, pair in enumerate(children)]).unbind(1)
    return lay_out_trees(left, right, torch.tensor(starts))


def _problem(splits, seed, num_rows=15):
    """Trees, leaves of rows, weights (some of them zero), noise of each row, and targets."""
    layout, generator = _layout(splits, seed), torch.Generator().manual_seed(seed)
    shares = torch.rand(num_rows, layout.num_trees, generator=generator)
    codes = (layout.tree_leaves[:-1] + (shares * layout.tree_leaves.diff()).floor()).int()
    weights = torch.randn(layout.num_nodes, generator=generator).clamp_min(0).double()
    noise = torch.rand(num_rows, generator=generator).double() + 0.1
    return layout, codes, weights, noise, torch.randn(num_rows, generator=generator).double()


def _tree_covariances(layout, weights):
    """The prior covariances of the leaves of each tree (`p x p` each, zero elsewhere), node by node."""
    leaves = torch.arange(layout.num_leaves)
    under = ((layout.node_low <= leaves[:, None]) & (leaves[:, None] < layout.node_high)).double()
    starts = layout.tree_nodes.tolist()
    return [(under[:, a:b] * weights[a:b]) @ under[:, a:b].mT for a, b in zip(starts, starts[1:])]


def _dense(layout, codes, weights, noise):
    """A of each tree (`m x N x N`)."""
    pairs = zip(_tree_covariances(layout, weights), codes.long().unbind(-1), strict=True)
    return torch.stack([prior[leaves[:, None], leaves] for prior, leaves in pairs]) + noise.expand(len(codes)).diag()


trees_of_any_shape = st.builds(_problem, st.lists(st.integers(0, 12), min_size=1, max_size=4), st.integers(0, 10_000))


@any_trees
@given(trees_of_any_shape)
def test_solves_determinants_and_likelihoods_are_the_dense_ones(problem):
    *model, y = problem
    tree, dense = TreeGaussian(*model), _dense(*model)
    torch.testing.assert_close(tree.solve(y), torch.linalg.solve(dense, y.expand(len(dense), -1)).mT)
    torch.testing.assert_close(tree.log_determinant(), dense.logdet())
    exact = MultivariateNormal(torch.zeros_like(y), dense).log_prob(y)
    torch.testing.assert_close(tree.log_marginal_likelihood(y), exact)


@any_trees
@given(trees_of_any_shape)
def test_posteriors_of_all_leaves_are_the_dense_ones(problem):
    layout, codes, weights, noise, y = problem
    tree = TreeGaussian(layout, codes, weights, noise)
    priors, mean, variance = _tree_covariances(layout, weights), 0, 0
    for prior, leaves, covariance in zip(priors, codes.long().unbind(-1), _dense(layout, codes, weights, noise)):
        cross = prior[:, leaves]
        mean = mean + cross @ torch.linalg.solve(covariance, y)
        variance = variance + prior.diagonal() - (cross * torch.linalg.solve(covariance, cross.mT).mT).sum(-1)
    torch.testing.assert_close(tree.posterior_mean(y), mean)
    torch.testing.assert_close(tree.posterior_variance(), variance)


def test_examples_have_lone_leaves_empty_leaves_and_zero_weights():
    layout, codes, weights, *_ = _problem([0, 12, 3], seed=0)
    assert layout.tree_leaves.diff().tolist() == [1, 13, 4]
    assert codes.unique().numel() < layout.num_leaves
    assert (weights == 0).any()
    assert (weights > 0).any()


def test_gradients_are_those_of_differences():
    layout, codes, weights, noise, y = _problem([0, 5, 3], seed=1, num_rows=6)
    inputs = [(values + offset).requires_grad_() for values, offset in ((weights, 0.01), (noise, 0.0), (y, 0.0))]

    def everything(weights, noise, y):
        tree = TreeGaussian(layout, codes, weights, noise)
        values = tree.log_determinant(), tree.log_marginal_likelihood(y), tree.posterior_variance()
        return *values, tree.posterior_mean(y), tree.solve(y), tree.sample(torch.Generator().manual_seed(0))

    assert torch.autograd.gradcheck(everything, inputs)


def test_likelihoods_have_the_dense_gradients_where_weights_are_zero():
    layout, codes, weights, noise, y = _problem([6, 4], seed=2)
    assert (weights == 0).any()
    inputs = weights.requires_grad_(), noise.requires_grad_()
    found = TreeGaussian(layout, codes, *inputs).log_marginal_likelihood(y).sum()
    exact = MultivariateNormal(torch.zeros_like(y), _dense(layout, codes, *inputs)).log_prob(y).sum()
    for a, b in zip(torch.autograd.grad(found, inputs), torch.autograd.grad(exact, inputs)):
        torch.testing.assert_close(a, b)


def test_samples_have_the_covariance():
    """The same tree 20,000 times, each with a draw of its own."""
    copies = 20_000
    one, codes, weights, noise, _ = _problem([5], seed=3, num_rows=6)
    starts = torch.arange(copies).repeat_interleave(one.num_nodes) * one.num_nodes
    children = torch.arange(one.num_nodes).repeat(2, 1)
    for node in range(1, one.num_nodes):
        parent = one.parent[node]
        children[int(one.node_low[node] != one.node_low[parent]), parent] = node
    layout = lay_out_trees(*(children.repeat(1, copies) + starts), torch.arange(copies + 1) * one.num_nodes)
    many = TreeGaussian(layout, codes + one.num_leaves * torch.arange(copies), weights.repeat(copies), noise)
    draws = many.sample(torch.Generator().manual_seed(0))
    exact = _dense(one, codes, weights, noise)[0]
    # Wick's theorem gives the variance of a product of two Gaussian variables.
    errors = ((exact**2 + exact.diagonal().outer(exact.diagonal())) / copies).sqrt()
    assert ((draws @ draws.mT / copies - exact).abs() < 4 * errors).all()
    assert (draws.mean(-1).abs() < 4 * (exact.diagonal() / copies).sqrt()).all()
    torch.testing.assert_close(draws, many.sample(torch.Generator().manual_seed(0)))


@pytest.mark.parametrize("noise", [0.25, torch.tensor([0.25])])
def test_is_the_process_of_a_forest_kernel_with_one_tree(noise):
    generator = torch.Generator().manual_seed(4)
    x, new = torch.randn(200, 3, generator=generator).double(), torch.randn(20, 3, generator=generator).double()
    y = x[:, 0].sin() + 0.3 * torch.randn(200, generator=generator)
    kernel = RandomForestKernel(x, y, 1, random_state=0).double()
    covariance = 2 * kernel(x).evaluate_kernel()
    noisy = covariance.add_diagonal(torch.tensor(0.25).double())
    rows, news = kernel.partition.incidences(x, new)
    tree = TreeGaussian(kernel.partition.layout, rows.codes, 2 * covariance.cluster_operator.node_weights, noise)
    torch.testing.assert_close(tree.solve(y).squeeze(-1), noisy.solve(y), rtol=1e-6, atol=1e-8)
    assert tree.log_determinant().item() == pytest.approx(noisy.to_dense().logdet().item(), rel=1e-9)
    cross = 2 * kernel(new, x).to_dense()
    mean = tree.posterior_mean(y)[news.codes.long()].squeeze(-1)
    variance = tree.posterior_variance()[news.codes.long()].squeeze(-1)
    torch.testing.assert_close(mean, cross @ torch.linalg.solve(noisy.to_dense(), y))
    torch.testing.assert_close(variance, 2 - (cross * torch.linalg.solve(noisy.to_dense(), cross.mT).mT).sum(-1))


def test_likelihoods_keep_their_digits_far_from_zero():
    """Targets a million noise deviations away, under a root that explains any level."""
    layout, codes, weights, _, y = _problem([8], seed=5, num_rows=40)
    weights[0] = 1e12
    near, far = (TreeGaussian(layout, codes, weights, 1e-4).log_marginal_likelihood(y + shift) for shift in (0.0, 1e4))
    torch.testing.assert_close(near, far, rtol=0, atol=1e-4)


def test_without_rows_it_is_the_prior():
    layout, codes, weights, *_ = _problem([3, 0], seed=6)
    tree = TreeGaussian(layout, codes[:0], weights, 1.0)
    prior = sum(_tree_covariances(layout, weights)).diagonal()
    torch.testing.assert_close(tree.posterior_variance(), prior)
    assert tree.log_marginal_likelihood(torch.empty(0)).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"codes": torch.zeros(15, 1).int()}, "3 trees"),
        ({"codes": torch.tensor([1, 1, 7]).expand(15, 3)}, "leaves of other trees"),
        ({"codes": torch.tensor([0, 0, 7]).expand(15, 3)}, "leaves of other trees"),
        ({"codes": torch.zeros(15, 3)}, "int32 or int64"),
        ({"node_weights": torch.ones(3)}, "weights of nodes"),
        ({"node_weights": -torch.ones(21)}, "0 or more"),
        ({"node_weights": torch.full((21,), torch.nan)}, "0 or more"),
        ({"noise": 0.0}, "positive"),
        ({"noise": torch.ones(3)}, "or 15"),
    ],
)
def test_refuses_what_it_cannot_use(changes, message):
    layout, codes, weights, noise, _ = _problem([0, 5, 4], seed=7)
    arguments = {"codes": codes, "node_weights": weights, "noise": noise, **changes}
    with pytest.raises(ValueError, match=message):
        TreeGaussian(layout, **arguments)


@pytest.mark.parametrize("method", ["solve", "posterior_mean", "log_marginal_likelihood"])
@pytest.mark.parametrize(("y", "message"), [(torch.ones(3), "15 targets"), (torch.full((15,), torch.nan), "finite")])
def test_refuses_targets_that_it_cannot_use(method, y, message):
    layout, codes, weights, noise, _ = _problem([0, 5, 4], seed=7)
    with pytest.raises(ValueError, match=message):
        getattr(TreeGaussian(layout, codes, weights, noise), method)(y)
