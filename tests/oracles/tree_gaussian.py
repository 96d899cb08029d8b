r"""
The exact Gaussian process of a single tree, in time linear in rows and nodes, for each tree of a forest on its own.

With one tree's weights :math:`w_v \ge 0` and noise :math:`d_i`, targets are :math:`y_i = t_{c(i)} + e_i` with
:math:`e_i \sim N(0, d_i)`, where the mean :math:`t_v` of a node is its parent's plus an independent step of variance
:math:`w_v`. Their covariance is

.. math:: A = \sum_v w_v 1_v 1_v^\top + \mathrm{diag}(d).

Means are a Markov chain along each path, so that messages up and down the tree solve for everything. A leaf begins with
:math:`a = \sum_i 1 / d_i` and :math:`b = \sum_i y_i / d_i` of its rows, a node gathers both from its children, and of
what v has gathered its step lets the share :math:`1/g_v` through to the parent, :math:`g_v = 1 + w_v a_v`. Then

.. math::

    \log \det A = \sum_i \log d_i + \sum_v \log g_v, \qquad
    \hat t_v = (\hat t_{\text{parent}} + w_v b_v) / g_v, \qquad
    \mathrm{Var}_v = \mathrm{Var}_{\text{parent}} / g_v^2 + w_v / g_v,

with 0 above a root, and :math:`(A^{-1} y)_i = (y_i - \hat t_{c(i)}) / d_i`.

Balog et al. 2016, section 6, set trees that are fitted independently beside a kernel, which fits them jointly; the
hierarchical smoothing that they leave out of the Mondrian forest of Lakshminarayanan et al. 2016 is a model of this
kind.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import accumulate
from operator import truediv

import torch
from torch import Tensor

from gpytorch_partition.clusters.tree_layout import TreeLayout

# What PyTorch can index with.
_INTEGERS = (torch.int32, torch.int64)


class TreeGaussian:
    r"""
    :math:`N(0, A_r)` with :math:`A_r = \sum_{v \in r} w_v 1_v 1_v^\top + \mathrm{diag}(d)`, for each of m trees on its
    own.

    Exact, for weights that may be zero and leaves that may be empty. Everything is computed in float64, and
    differentiable in weights, noise and targets; an object is for one set of values, with one backward pass
    (or `retain_graph`).

    Each method costs :math:`O(N m + V)` time for V nodes; an object sorts the nodes by depth, :math:`O(V \log V)`. Held
    are some 60 bytes per node, beside the codes. The workspace is some 60 bytes per node and 30 per row, several times
    that with gradients; :meth:`solve` and :meth:`sample` need twice the memory of their results.

    :param layout: The trees.
    :param codes: `N x m` leaf of each row in each tree, as :class:`~gpytorch_partition.clusters.incidence.Incidence`
        holds them for a :class:`~gpytorch_partition.partitions.ForestPartition`.
    :param node_weights: `V` prior variances :math:`w_v` of the nodes' steps, 0 or more, the outputscale included, in
        the square of the unit of the targets.
    :param noise: Noise variance d, positive: of all rows (a number), or of each (`N`).
    :raises ValueError: If codes are not leaves of their trees, or weights or noise have the wrong number or sign.

    Example:
        >>> from gpytorch_partition.clusters.tree_layout import height_average_weights
        >>> from gpytorch_partition.clusters.tree_layout import lay_out_trees
        >>> left, right = torch.tensor([1, 1, 3, 3, 4]), torch.tensor([2, 1, 4, 3, 4])
        >>> layout = lay_out_trees(left, right, torch.tensor([0, 5]))
        >>> codes, weights = torch.tensor([[0], [1], [1]]), 3 * height_average_weights(layout)
        >>> tree = TreeGaussian(layout, codes, weights, noise=1.0)  # A = [[4, 1, 1], [1, 4, 3], [1, 3, 4]]
        >>> tree.solve(torch.tensor([6.0, 8.0, 8.0])).T, tree.log_determinant().exp().round()
        (tensor([[1., 1., 1.]], dtype=torch.float64), tensor([26.], dtype=torch.float64))
        >>> tree.posterior_mean(torch.tensor([6.0, 8.0, 8.0]))  # of the three leaves: no row is in the last
        tensor([5., 7., 5.], dtype=torch.float64)
    """

    def __init__(self, layout: TreeLayout, codes: Tensor, node_weights: Tensor, noise: Tensor | float) -> None:
        _check_codes(codes, layout)
        self.layout, self.codes = layout, codes
        self.noise = _checked_noise(noise, codes)
        self._order = order = _DepthOrder(layout)
        self._weights = _checked_weights(node_weights, layout)[order.nodes]
        self._precisions = order.up(self._leaf_sums(1 / self.noise), self._weights, _below_a_step)
        self._divisors = 1 + self._weights * self._precisions  # g

    def posterior_mean(self, y: Tensor) -> Tensor:
        """
        The posterior mean of each leaf (`p`), trees side by side: a row's prediction is that of its leaf.

        :param y: `N` targets.
        :raises ValueError: If there is not one finite target per row.
        """
        return self._means(self._sums(_checked_targets(y, self.codes)))[self._order.leaves]

    def posterior_variance(self) -> Tensor:
        """The posterior variance of each leaf's mean (`p`), without noise, trees side by side."""
        variances = self._order.down(self._divisors**-2, self._weights / self._divisors)
        return variances[self._order.leaves]

    def solve(self, y: Tensor) -> Tensor:
        r"""
        :math:`A_r^{-1} y` for each tree (`N x m`): the residuals from its posterior mean over the noise.

        :param y: `N` targets.
        :raises ValueError: If there is not one finite target per row.
        """
        means = self.posterior_mean(y).index_select(0, self.codes.reshape(-1)).view(self.codes.shape)
        return (y.unsqueeze(-1) - means) / self.noise.unsqueeze(-1)

    def log_determinant(self) -> Tensor:
        r""":math:`\log \det A_r` of each tree (`m`)."""
        return self.noise.log().sum() + self._tree_sums((self._weights * self._precisions).log1p())

    def log_marginal_likelihood(self, y: Tensor) -> Tensor:
        r"""
        :math:`\log N(y; 0, A_r)` of each tree (`m`), of all rows together, in nats.

        The quadratic form is taken as the least value of the ridge regression's objective, squared residuals over the
        noise plus squared steps over their variances: nothing cancels, wherever the targets lie.

        :param y: `N` targets.
        :raises ValueError: If there is not one finite target per row.
        """
        y = _checked_targets(y, self.codes)
        sums = self._sums(y)
        means = self._means(sums)
        above = self._order.above(means)
        # A step over its variance; weights may be zero.
        slopes = (sums - self._precisions * above) / self._divisors
        form = self._squared_residuals(y, means[self._order.leaves]) + self._tree_sums(self._weights * slopes**2)
        return -0.5 * (form + self.log_determinant() + len(y) * math.log(2 * math.pi))

    def sample(self, generator: torch.Generator) -> Tensor:
        r"""
        A draw from :math:`N(0, A_r)` for each tree, independently (`N x m`): steps along the paths, and noise.

        :param generator: Source of random numbers, on the device of the layout.
        """
        steps = self._weights.sqrt() * self._normal(generator, self._weights.shape)
        means = self._order.down(torch.ones_like(steps), steps)[self._order.leaves]
        means = means.index_select(0, self.codes.reshape(-1)).view(self.codes.shape)
        return means + self.noise.sqrt().unsqueeze(-1) * self._normal(generator, self.codes.shape)

    def _normal(self, generator: torch.Generator, shape: torch.Size) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64, device=self.noise.device)

    def _sums(self, y: Tensor) -> Tensor:
        """What each node has gathered from below, b (`V`)."""
        return self._order.up(self._leaf_sums(y / self.noise), self._divisors, truediv)

    def _means(self, sums: Tensor) -> Tensor:
        """The posterior mean of each node (`V`)."""
        return self._order.down(1 / self._divisors, self._weights * sums / self._divisors)

    def _leaf_sums(self, values: Tensor) -> Tensor:
        """For every leaf (`p`) the sum of the values (`N`) of its rows, tree by tree: little is held at a time."""
        sums = values.new_zeros(self.layout.num_leaves)
        for leaves in self.codes.unbind(-1):
            sums.index_add_(0, leaves, values)
        return sums

    def _squared_residuals(self, y: Tensor, leaf_means: Tensor) -> Tensor:
        """Squared residuals over the noise, summed up for each tree (`m`)."""
        columns = (leaf_means.index_select(0, leaves) for leaves in self.codes.unbind(-1))
        return torch.stack([((y - means) ** 2 / self.noise).sum() for means in columns])

    def _tree_sums(self, node_values: Tensor) -> Tensor:
        """For each tree (`m`) the sum over its nodes."""
        return node_values.new_zeros(self.layout.num_trees).index_add(0, self._order.trees, node_values)


class _DepthOrder:
    """
    The nodes of all trees by depth, the roots first, so that the parents of a level lie in the level before.

    :param layout: The trees.
    """

    def __init__(self, layout: TreeLayout) -> None:
        # The sort is stable: a level keeps the order of the layout, and memory is read in order.
        depths, self.nodes = torch.sort(layout.depth, stable=True)
        place = torch.empty_like(self.nodes)
        place[self.nodes] = torch.arange(layout.num_nodes, device=place.device)
        self.leaves = place[layout.leaf_nodes]
        self.trees = layout.of_node(torch.arange(layout.num_trees))[self.nodes]
        self._parents = place[layout.parent[self.nodes]][layout.num_trees :]  # of all nodes but the roots
        self._sizes = torch.bincount(depths).tolist()
        starts = [0, *accumulate(self._sizes)]
        levels = self._parents.split(self._sizes[1:])
        self._parents_in_level = [parents - start for parents, start in zip(levels, starts)]

    def up(self, leaf_values: Tensor, node_values: Tensor, pass_on: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """
        What every node (`V`) gathers: a leaf its own value (`p`), any other what its children pass on.

        :param pass_on: From what nodes have gathered and their `node_values` (`V`), what reaches their parents.
        """
        gathered = leaf_values.new_zeros(len(self.nodes)).index_copy(0, self.leaves, leaf_values)
        levels, values = list(gathered.split(self._sizes)), node_values.split(self._sizes)
        for depth in range(len(levels) - 1, 0, -1):
            passed = pass_on(levels[depth], values[depth])
            levels[depth - 1] = levels[depth - 1].index_add(0, self._parents_in_level[depth - 1], passed)
        return torch.cat(levels)

    def down(self, factors: Tensor, terms: Tensor) -> Tensor:
        """For every node (`V`) its factor times the parent's result, plus its term; above a root there is 0."""
        levels, shares = list(terms.split(self._sizes)), factors.split(self._sizes)
        for depth, parents in enumerate(self._parents_in_level, start=1):
            above = levels[depth - 1].index_select(0, parents)
            levels[depth] = torch.addcmul(levels[depth], shares[depth], above)
        return torch.cat(levels)

    def above(self, node_values: Tensor) -> Tensor:
        """For every node (`V`) the value of its parent; above a root there is 0."""
        roots = node_values.new_zeros(self._sizes[0])
        return torch.cat([roots, node_values.index_select(0, self._parents)])


def _below_a_step(precisions: Tensor, weights: Tensor) -> Tensor:
    """What precisions of nodes' means say about their parents', a step of these variances away."""
    return precisions / (1 + weights * precisions)


def _check_codes(codes: Tensor, layout: TreeLayout) -> None:
    expected = f"expected the leaves of N rows in {layout.num_trees} trees (N x {layout.num_trees}, int32 or int64)"
    if codes.dim() != 2 or codes.shape[1] != layout.num_trees or codes.dtype not in _INTEGERS:
        raise ValueError(f"{expected}, got {codes.dtype} of shape {tuple(codes.shape)}")
    first, end = layout.tree_leaves[:-1], layout.tree_leaves[1:]
    if codes.numel() and not bool(((codes.amin(0) >= first) & (codes.amax(0) < end)).all()):
        raise ValueError(f"{expected}, numbered tree after tree, got leaves of other trees: use those of an Incidence")


def _checked_weights(node_weights: Tensor, layout: TreeLayout) -> Tensor:
    if node_weights.shape != (layout.num_nodes,):
        raise ValueError(f"expected {layout.num_nodes} weights of nodes, got shape {tuple(node_weights.shape)}")
    if not bool((node_weights >= 0).all()):
        raise ValueError(f"expected weights of nodes of 0 or more, got {float(node_weights.detach().min())}")
    return node_weights.double()


def _checked_noise(noise: Tensor | float, codes: Tensor) -> Tensor:
    noise = torch.as_tensor(noise, dtype=torch.float64, device=codes.device)
    if noise.shape not in ((), (1,), codes.shape[:1]):
        raise ValueError(f"expected one noise variance or {len(codes)}, one per row, got shape {tuple(noise.shape)}")
    if not bool((noise > 0).all()):
        raise ValueError(f"expected positive noise variances, got {float(noise.detach().min())}")
    return noise.expand(len(codes))


def _checked_targets(y: Tensor, codes: Tensor) -> Tensor:
    if y.shape != codes.shape[:1]:
        raise ValueError(f"expected {len(codes)} targets, one per row, got shape {tuple(y.shape)}")
    if not bool(torch.isfinite(y).all()):
        raise ValueError("expected finite targets, got NaN or infinity: drop these rows")
    return y.double()
