r"""
Mondrian trees restricted to some rows: the cuts that separate these rows, and their times.

The leaves of these binary trees are the rows' cells at the terminal lifetime. A shorter lifetime omits the later cuts
(Balog et al. 2016, section 4.1): every cell is then an interval of leaves, and codes of rows are looked up in a table.
Other points descend until a cut separates them from all rows, and covary with these by the node and time of this exit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from gpytorch_partition.clusters.cluster_index import code_dtype
from gpytorch_partition.clusters.tree_layout import TreeLayout, lay_out_trees
from gpytorch_partition.partitions.mondrian.process import Cuts, Front, descend, renumbered

# A function from numbers of rows, dimensions and trees (`M` each) to the rows' coordinates (`M`).
Coordinates = Callable[[Tensor, Tensor, Tensor], Tensor]


class Cells(NamedTuple):
    """The cells of trees at some lifetime, with codes: the cells of a tree, then its null cell, which has no rows."""

    of_leaves: Tensor  # (p,) code of the cell of each leaf
    nulls: Tensor  # (m,) code of each tree's null cell
    num_clusters: int  # cells and null cells of all trees

    def place_in(self, coarser: Cells) -> Tensor:
        place = torch.empty(self.num_clusters, dtype=torch.int64, device=self.nulls.device)
        place[self.of_leaves], place[self.nulls] = coarser.of_leaves, coarser.nulls
        return place


@dataclass(frozen=True, eq=False)
class MondrianTrees:
    """Hold Mondrian trees side by side: m trees with V nodes and p leaves, numbered as in :class:`TreeLayout`."""

    left: Tensor  # (V,) lower part of each node; a leaf is its own lower and upper part
    right: Tensor  # (V,) upper part of each node
    cut_times: Tensor  # (V,) times of the cuts that separate the rows of each node; infinite for leaves
    node_low: Tensor  # (V,) first leaf of each node
    tree_nodes: Tensor  # (m + 1,) where the nodes of each tree begin, the root first
    tree_leaves: Tensor  # (m + 1,) where the leaves of each tree begin
    examples: Tensor  # (p,) number of one row in each leaf

    @property
    def num_trees(self) -> int:
        return self.tree_nodes.numel() - 1

    @property
    def num_leaves(self) -> int:
        return self.examples.numel()

    @cached_property
    def layout(self) -> TreeLayout:
        """Return the trees as intervals of leaves; `32 V + 8 p` bytes more, kept from the first use on."""
        return lay_out_trees(self.left, self.right, self.tree_nodes)

    @property
    def births(self) -> Tensor:
        """Return the times at which the `V` nodes begin: 0 for a root, the time of the parent's cut for others."""
        births = self.cut_times[self.layout.parent]
        births[self.tree_nodes[:-1]] = 0
        return births

    def cells(self, lifetime: float) -> Cells:
        """Return the cells at a lifetime (in units of 1 / x), without all later cuts, in :math:`O(V)`."""
        begins = torch.zeros_like(self.examples)
        begins[self.tree_leaves[:-1]] = 1
        begins[self.node_low[self.right[self.cut_times <= lifetime]]] = 1
        ends = torch.cat([begins.new_zeros(1), begins.cumsum(0)])
        number = torch.arange(self.num_trees, device=begins.device)
        nulls = ends[self.tree_leaves[1:]] + number
        codes = ends[1:] - 1 + number.repeat_interleave(self.tree_leaves.diff())
        return Cells(codes, nulls, int(ends[-1]) + self.num_trees)


class Attachments(NamedTuple):
    """Hold the E exits where points leave trees: at the cuts that separate them from all training rows of a node."""

    codes: Tensor  # (n, m) the exit of each point from each tree
    nodes: Tensor  # (E,) the last node that the points shared with any row
    times: Tensor  # (E,) time of the cut that separates them from its rows; infinite for points in a leaf's cell

    def cells(self, trees: MondrianTrees, cells: Cells, lifetime: float) -> Tensor:
        """Return the code of each exit's cell (`E`) at a lifetime: the null cell after the time of the exit."""
        tree = torch.searchsorted(trees.tree_nodes, self.nodes, right=True) - 1
        return torch.where(self.times > lifetime, cells.of_leaves[trees.node_low[self.nodes]], cells.nulls[tree])


class _Growth:
    """Trees under construction: cells in the order in which cuts make them, and the last cell of each item."""

    def __init__(self, num_trees: int, num_items: int, device: torch.device) -> None:
        self.num_cells = num_trees
        self.cell_of = torch.empty(num_items, dtype=torch.int64, device=device)
        self._trees = [torch.arange(num_trees, device=device)]
        self._parents, self._times = [self._trees[0][:0]], [torch.empty(0, dtype=torch.float64, device=device)]

    def children(self, cells: Tensor, is_split: Tensor, times: Tensor, trees: Tensor) -> Tensor:
        """Cells (`M`) of nodes below cuts: two new ones in turn where both parts hold rows, else the parent's."""
        count = int(is_split.sum())
        numbers = torch.arange(self.num_cells, self.num_cells + count, device=cells.device)
        self.num_cells += count
        self._parents.append(cells[is_split][::2])
        self._times.append(times[is_split][::2])
        self._trees.append(trees[is_split])
        return cells.masked_scatter(is_split, numbers)

    def finished(self, num_trees: int, num_rows: int) -> tuple[MondrianTrees, Tensor]:
        parents, tree = torch.cat(self._parents), torch.cat(self._trees)
        numbers = torch.arange(self.num_cells, device=tree.device)
        left, right = numbers.clone(), numbers.clone()
        # Cells were numbered in pairs, in the order of their parents.
        left[parents], right[parents] = numbers[num_trees::2], numbers[num_trees + 1 :: 2]
        cut_times = torch.full_like(numbers, torch.inf, dtype=torch.float64)
        cut_times[parents] = torch.cat(self._times)
        order = torch.sort(tree, stable=True).indices
        place = torch.empty_like(order).index_copy_(0, order, numbers)
        sizes = torch.bincount(tree, minlength=num_trees)
        tree_nodes = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
        left, right, cut_times = place[left[order]], place[right[order]], cut_times[order]
        layout = lay_out_trees(left, right, tree_nodes)
        leaves = layout.node_low[place[self.cell_of]].view(num_trees, num_rows)
        examples = torch.zeros_like(layout.leaf_nodes)  # a tree without rows has one leaf, but no example
        examples[leaves] = torch.arange(num_rows, device=leaves.device).expand_as(leaves)
        trees = MondrianTrees(left, right, cut_times, layout.node_low, tree_nodes, layout.tree_leaves, examples)
        return trees, leaves


def grown(front: Front, num_trees: int, num_rows: int, lifetime: float) -> tuple[MondrianTrees, Tensor]:
    """Grow trees of the cuts that separate a front's points, up to a lifetime; return them and each point's leaf."""
    growth = _Growth(num_trees, front.item.numel(), front.x.device)

    def grow(front: Front, cells: Tensor, trees: Tensor) -> tuple[Front, Tensor, Tensor]:
        cuts = front.next_cuts()
        is_alone = torch.bincount(front.node, minlength=front.num_nodes) == 1
        ended = is_alone | (cuts.times > lifetime)
        is_last = ended[front.node]
        growth.cell_of[front.item[is_last]] = cells[front.node[is_last]]
        front, parent, _ = front.without(ended).below(cuts)
        is_split = torch.bincount(parent, minlength=cells.numel())[parent] == 2
        return front, growth.children(cells[parent], is_split, cuts.times[parent], trees[parent]), trees[parent]

    roots = torch.arange(num_trees, device=front.x.device)
    descend(grow, front, roots, roots)
    return growth.finished(num_trees, num_rows)


def joined(parts: Sequence[MondrianTrees]) -> MondrianTrees:
    by_node = list(zip(parts, accumulate((part.left.numel() for part in parts), initial=0)))
    by_leaf = list(zip(parts, accumulate((part.num_leaves for part in parts), initial=0)))
    return MondrianTrees(
        torch.cat([part.left + start for part, start in by_node]),
        torch.cat([part.right + start for part, start in by_node]),
        torch.cat([part.cut_times for part in parts]),
        torch.cat([part.node_low + start for part, start in by_leaf]),
        torch.cat([parts[0].tree_nodes[:1], *(part.tree_nodes[1:] + start for part, start in by_node)]),
        torch.cat([parts[0].tree_leaves[:1], *(part.tree_leaves[1:] + start for part, start in by_leaf)]),
        torch.cat([part.examples for part in parts]),
    )


def attach(
    front: Front, trees: MondrianTrees, numbers: Tensor, coordinates: Coordinates, lifetime: float
) -> Attachments:
    """Return where points leave trees: the cut that separates each point from all rows of a node."""
    exits = _Exits(front)

    def follow(front: Front, known: Tensor, tree: Tensor) -> tuple[Front, Tensor, Tensor]:
        cuts = front.next_cuts()
        ended = cuts.times > lifetime
        exits.record(front, ended, known, torch.full_like(cuts.times, torch.inf))
        front, parent, above = front.without(ended).below(cuts)
        cuts, tree, before = Cuts(*(each[parent] for each in cuts)), tree[parent], known[parent]
        known, is_apart = _followed(trees, before, cuts, above, tree, coordinates)
        exits.record(front, is_apart, before, cuts.times)
        return front.without(is_apart), known, tree

    descend(follow, front, trees.tree_nodes[numbers], numbers)
    return Attachments(exits.codes, torch.cat(exits.nodes), torch.cat(exits.times))


class _Exits:
    def __init__(self, front: Front) -> None:
        self.codes, self.count = torch.empty_like(front.item), 0
        self.nodes, self.times = [front.item[:0]], [front.x.new_empty(0)]

    def record(self, front: Front, done: Tensor, node: Tensor, time: Tensor) -> None:
        is_last = done[front.node]
        found, exit_number = renumbered(front.node[is_last], front.num_nodes)
        self.codes[front.item[is_last]] = exit_number + self.count
        self.nodes.append(node[found])
        self.times.append(time[found])
        self.count += found.numel()


def _followed(
    trees: MondrianTrees, known: Tensor, cuts: Cuts, above: Tensor, tree: Tensor, coordinates: Coordinates
) -> tuple[Tensor, Tensor]:
    """The nodes of the trees that hold points below a cut, and whether the cut separates them from all rows there."""
    is_split = trees.cut_times[known] <= cuts.times
    part = torch.where(above, trees.right[known], trees.left[known])
    example = trees.examples[trees.node_low[known]]
    is_example_above = coordinates(example, cuts.dimensions, tree) > cuts.places
    return torch.where(is_split, part, known), ~is_split & (is_example_above != above)


class GrownRows(NamedTuple):
    """Rows, the trees restricted to them, and their cells at two lifetimes."""

    trees: MondrianTrees
    level: int  # level of the smallest box that holds them all
    leaf_codes: Tensor  # (*batch, N, m) codes of the rows at the terminal lifetime
    x: Tensor  # (n, D) the rows of all batch elements
    terminal: Cells  # at the terminal lifetime
    cells: Cells  # at the current lifetime

    def codes(self, cells: Cells) -> Tensor:
        """Return the codes of the rows (`*batch x N x m`) at another lifetime, given its cells."""
        table = self.terminal.place_in(cells).to(self.leaf_codes)
        return table.index_select(0, self.leaf_codes.reshape(-1)).view(self.leaf_codes.shape)

    @classmethod
    def of(cls, trees: MondrianTrees, level: int, leaves: Sequence[Tensor], x: Tensor, shape: torch.Size) -> GrownRows:
        """Join the leaves (`trees x n`) of groups of trees, numbered within each group, into codes of all trees."""
        terminal, num_trees = trees.cells(math.inf), trees.num_trees
        dtype = code_dtype(terminal.num_clusters, len(x) * num_trees)
        codes, tree = torch.empty(len(x), num_trees, dtype=dtype, device=x.device), 0
        for part in leaves:
            columns = part + (trees.tree_leaves[tree] + tree)
            stop = tree + len(columns)
            codes[:, tree:stop] = (columns + torch.arange(len(columns), device=x.device).unsqueeze(1)).T
            tree = stop
        return cls(trees, level, codes.view(*shape, num_trees), x, terminal, terminal)
