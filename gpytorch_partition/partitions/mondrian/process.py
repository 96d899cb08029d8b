r"""
Mondrian processes, sampled by hashing: every node of a tree has a key, and its cut is a function of the key.

**Inside the box.** A Mondrian process on a box (Roy & Teh 2009) starts with one cell. A cell waits for an exponential
clock whose rate is the sum of its sides, and is then cut across a side chosen in proportion to its length, at a uniform
place. The two parts go on independently until the lifetime is over (Balog et al. 2016, section 2). Let clock, side and
place be hashes of the cell's key, and the parts' keys as well. Then the cell of a point is found by descending from the
root, nothing is stored, and the key of the cell is its label.

**Outside the box.** Points anywhere must get cells with the right distribution, independent of the other points that
are labelled. Let :math:`B_0 \subset B_1 \subset B_2 \dots` be boxes around the data's box :math:`B_0`, each twice as
wide as the one before. We define trees :math:`T_0, T_1, \dots` on them such that :math:`T_k` restricted to :math:`B_j`
*is* :math:`T_j`. Take a cell C of :math:`T_k`, alive at time t, and let :math:`C_j` be its intersection with
:math:`B_j`, which is a cell of :math:`T_j` if it is not empty. The clock of :math:`C_k = C` runs at rate :math:`|C_k|`,
the sum of its sides. Divide every side into the *gaps* that :math:`C_j` leaves around :math:`C_{j-1}`, level by level.
Then this clock is the first of independent clocks, one per level, of rates :math:`|C_j| - |C_{j-1}|`, each for a
uniform place in its gaps. When the clock of level i rings first,

* :math:`C_i, C_{i+1}, \dots, C_k` are cut in two. Their parts are new cells, whose clocks start now;
* :math:`C_0, \dots, C_{i-1}` lie on one side of the cut and are not touched. On that side they keep their clocks, which
  by memorylessness may run on next to the new ones; on the other side these levels are empty from now on.

So the key of :math:`C_j` changes with cuts of the levels up to j only. If each clock is a hash of *its own level's*
key, :math:`T_j` is equal whether computed alone or as part of a :math:`T_k`. A point is therefore looked up in the
smallest box that holds it. Points of different levels in one cell agree on the innermost :math:`C_j` that is not empty,
whose key is the label.

Boxes are closed: a cut at c leaves the float64 numbers up to c on its lower side and begins the upper side with the
next one. Sides shrink with every cut, so the descent ends for any lifetime. A cut takes :math:`O(D)` for a node, for
any number of points that share it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gpytorch_partition.partitions.hashed_cells import exponentials, hashed, uniforms
from gpytorch_partition.partitions.sites import LARGEST

# Salts: the purposes of the hashes of a key.
_CLOCK_SALT = 0  # time of the cut
_SIDE_SALT = 1  # dimension of the cut
_PLACE_SALT = 2  # place of the cut
_LOWER_SALT = 3  # key of the part below the cut
_UPPER_SALT = 4  # key of the part above the cut
_ROOT_SALT = 5  # key of the root of level 0, from the tree's key; level j has 5 + j

# Sides of boxes (nodes x levels x dimensions) held at a time. Points descend in parts, so memory is bounded.
_BOX_NUMEL = 2**19


class Boxes(NamedTuple):
    """Hold nested boxes, L in all, one per row, each inside the next."""

    lower: Tensor  # (L, D)
    upper: Tensor  # (L, D)

    @classmethod
    def around(cls, walls: Tensor, level: int) -> Boxes:
        lower, upper = walls
        half = upper / 2 - lower / 2
        largest = half.max() if half.max() > 0 else half.new_ones(())
        half = torch.where(half > 0, half, largest)
        center = lower / 2 + upper / 2
        # Level 0 has the scale 0, not 1: the data's box as it is, unrounded and with sides of length 0.
        scales = [0.0, *(2.0**k for k in range(1, level + 1))]
        reach = torch.tensor(scales, dtype=torch.float64, device=half.device).unsqueeze(1) * half
        return cls(
            torch.minimum(center - reach, lower).clamp(min=-LARGEST),
            torch.maximum(center + reach, upper).clamp(max=LARGEST),
        )

    def levels(self, x: Tensor) -> Tensor:
        """Return the number (`n`) of the smallest box that holds each point (`n x D`); the outermost must hold all."""
        levels = torch.zeros(x.shape[0], dtype=torch.int64, device=x.device)
        outside = torch.arange(x.shape[0], device=x.device)
        for lower, upper in zip(self.lower, self.upper):
            points = x[outside]
            outside = outside[((points < lower) | (points > upper)).any(1)]
            if not outside.numel():
                break
            levels[outside] += 1
        return levels


class Nodes(NamedTuple):
    """Hold M nodes on the outermost of L nested boxes: for each level a key and a next cut, if only at infinity."""

    lower: Tensor  # (D, M)
    upper: Tensor  # (D, M)
    keys: Tensor  # (L, M)
    times: Tensor  # (L, M)
    dimensions: Tensor  # (L, M)
    places: Tensor  # (L, M)


class Cuts(NamedTuple):
    """Hold M cuts of Mondrian trees."""

    times: Tensor  # (M,)
    dimensions: Tensor  # (M,) columns that are cut
    places: Tensor  # (M,) values of these columns


class Front(NamedTuple):
    """Hold points that descend some trees on the outermost of nested boxes; points in one node descend together."""

    x: Tensor  # (n, D) or (trees * n, D), float64
    item: Tensor  # (k,) points in trees, `tree * n + row` for n points; every node holds one, or did
    node: Tensor  # (k,) the node of each item
    nodes: Nodes
    boxes: Boxes

    @classmethod
    def at_roots(cls, x: Tensor, num_rows: int, tree_keys: Tensor, boxes: Boxes) -> Front:
        """Place points at the roots, n in each tree: the points of all trees, or those of one tree after another."""
        item = torch.arange(tree_keys.numel() * num_rows, device=x.device)
        return cls(x, item, item // max(1, num_rows), roots(tree_keys, boxes), boxes)

    @property
    def num_nodes(self) -> int:
        return self.nodes.keys.shape[1]

    def next_cuts(self) -> Cuts:
        times, level = self.nodes.times.min(0)
        return Cuts(times, at(self.nodes.dimensions, level), at(self.nodes.places, level))

    def without(self, nodes: Tensor) -> Front:
        stays = ~nodes[self.node]
        return self._replace(item=self.item[stays], node=self.node[stays])

    def below(self, cuts: Cuts) -> tuple[Front, Tensor, Tensor]:
        """Return the points one cut further down, each new node's parent, and whether it is above the cut."""
        entry = self.item % len(self.x) * self.x.shape[1] + cuts.dimensions[self.node]
        is_above = self.x.take(entry) > cuts.places[self.node]
        children, node = renumbered(2 * self.node + is_above, 2 * self.num_nodes)
        parent, above = children // 2, children % 2 == 1
        nodes, boxes = _without_empty_levels(_children(self.nodes, parent, above, self.boxes), self.boxes)
        return Front(self.x, self.item, node, nodes, boxes), parent, above

    def part(self, which: slice) -> Front:
        inside = (which.start <= self.node) & (self.node < which.stop)
        nodes = Nodes(*(values[:, which].contiguous() for values in self.nodes))
        return Front(self.x, self.item[inside], self.node[inside] - which.start, nodes, self.boxes)


def descend(step: Callable[..., tuple[Any, ...]], front: Front, *of_nodes: Tensor) -> None:
    """Call a step on a front and on values of its nodes, then on what it returns, in parts, until no point is left."""
    parts: list[tuple[Any, ...]] = [(front, *of_nodes)]
    while parts:
        front, *known = parts.pop()
        if front.num_nodes > 1 and front.num_nodes * front.boxes.lower.numel() > _BOX_NUMEL:
            middle = front.num_nodes // 2
            for half in (slice(middle, front.num_nodes), slice(0, middle)):
                parts.append((front.part(half), *(values[half] for values in known)))
        elif front.item.numel():
            parts.append(step(front, *known))


def labels_of_items(front: Front, lifetime: float) -> Tensor:
    """Return the keys of the cells at a lifetime that hold the items of a front at the roots."""
    labels = torch.empty_like(front.item)

    def step(front: Front) -> tuple[Front]:
        cuts = front.next_cuts()
        ended = cuts.times > lifetime
        is_last = ended[front.node]
        innermost = _is_empty(front.nodes.lower, front.nodes.upper, front.boxes).sum(0)  # level that is not empty
        labels[front.item[is_last]] = at(front.nodes.keys, innermost)[front.node[is_last]]
        front, _, _ = front.without(ended).below(cuts)
        return (front,)

    descend(step, front)
    return labels


def roots(tree_keys: Tensor, boxes: Boxes) -> Nodes:
    shape = (boxes.lower.shape[1], tree_keys.numel())
    lower, upper = boxes.lower[-1].unsqueeze(1).expand(shape), boxes.upper[-1].unsqueeze(1).expand(shape)
    keys = torch.stack([hashed(tree_keys, _ROOT_SALT + level) for level in range(boxes.lower.shape[0])])
    birth = torch.zeros(tree_keys.numel(), dtype=torch.float64, device=tree_keys.device)
    return Nodes(lower, upper, keys, *_next_cuts(lower, upper, keys, birth, boxes))


def _children(nodes: Nodes, parent: Tensor, above: Tensor, boxes: Boxes) -> Nodes:
    """Parts above or below their parents' next cuts; levels inside that of the cut keep their clocks."""
    nodes = Nodes(*(values[:, parent] for values in nodes))
    time, level = nodes.times.min(0)
    dimension, place = at(nodes.dimensions, level), at(nodes.places, level)
    first_above = torch.nextafter(place, torch.full_like(place, math.inf))
    lower = _replaced(nodes.lower, dimension, first_above, above)
    upper = _replaced(nodes.upper, dimension, place, ~above)
    is_new = torch.arange(nodes.keys.shape[0], device=parent.device).unsqueeze(1) >= level
    new_keys = torch.where(above, hashed(nodes.keys, _UPPER_SALT), hashed(nodes.keys, _LOWER_SALT))
    keys = torch.where(is_new, new_keys, nodes.keys)
    redrawn = _next_cuts(lower, upper, keys, time, boxes)
    times, dimensions, places = (torch.where(is_new, new, old) for new, old in zip(redrawn, nodes[3:]))
    times = times.masked_fill(_is_empty(lower, upper, boxes), math.inf)
    return Nodes(lower, upper, keys, times, dimensions, places)


def _without_empty_levels(nodes: Nodes, boxes: Boxes) -> tuple[Nodes, Boxes]:
    """Drop the innermost levels that are empty in all nodes: far outside the data's box, a few cuts leave one level."""
    if boxes.lower.shape[0] == 1:
        return nodes, boxes
    first = int(_is_empty(nodes.lower, nodes.upper, boxes).all(1).sum())
    levels = (values[first:] for values in nodes[2:])
    return Nodes(nodes.lower, nodes.upper, *levels), Boxes(boxes.lower[first:], boxes.upper[first:])


def _next_cuts(
    lower: Tensor, upper: Tensor, keys: Tensor, birth: Tensor, boxes: Boxes
) -> tuple[Tensor, Tensor, Tensor]:
    """Times, dimensions and places (`L x M` each) of the next cut of every level, with clocks started at birth."""
    cuts, inner = [], None
    for key, outer in zip(keys, [*_inner_boxes(lower, upper, boxes), (lower, upper)]):
        cuts.append(_next_cut(key, birth, *_gaps(outer, inner)))
        inner = outer
    times, gaps, places = (torch.stack(values) for values in zip(*cuts))
    return times, gaps % lower.shape[0], places


def _gaps(outer: tuple[Tensor, Tensor], inner: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor]:
    """Starts and ends (`D x M`, or `2 D x M`: below, above) of the gaps that outer boxes leave around inner ones."""
    if inner is None:
        return outer
    (lower, upper), (inner_lower, inner_upper) = outer, inner
    is_empty = (inner_lower > inner_upper).any(0)
    inner_lower, inner_upper = (torch.where(is_empty, lower, wall) for wall in inner)
    return torch.cat([lower, inner_upper]), torch.cat([inner_lower, upper])


def _next_cut(keys: Tensor, birth: Tensor, starts: Tensor, ends: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Time, gap and place of the first cut in S gaps (`S x M`): exponential clocks, with the gaps' lengths as rates."""
    reach = ends - starts
    # The order of these sums must not depend on the device or the number of nodes; the order of `cumsum` may.
    for sum_before, length in pairwise(reach):
        length.add_(sum_before)
    rate = reach[-1].clone()
    time = birth + exponentials(keys, _CLOCK_SALT) / rate
    # Compared in place: PyTorch counts floats many times as fast as booleans.
    passed = reach.le_(uniforms(keys, _SIDE_SALT) * rate).sum(0).to(torch.int64)
    gap = passed.clamp(max=starts.shape[0] - 1)
    start, end = at(starts, gap), at(ends, gap)
    last = torch.nextafter(end, torch.full_like(end, -math.inf))
    return time, gap, torch.minimum(start + uniforms(keys, _PLACE_SALT) * (end - start), last)


def _is_empty(lower: Tensor, upper: Tensor, boxes: Boxes) -> Tensor:
    """Whether nodes (`D x M`) miss the box of each level (`L x M`); nodes are parts of the outermost box."""
    missed = [(inner_lower > inner_upper).any(0) for inner_lower, inner_upper in _inner_boxes(lower, upper, boxes)]
    return torch.stack([*missed, torch.zeros(lower.shape[1], dtype=torch.bool, device=lower.device)])


def _inner_boxes(lower: Tensor, upper: Tensor, boxes: Boxes) -> list[tuple[Tensor, Tensor]]:
    """Walls (`D x M` each) of the intersections of nodes with all boxes but the outermost."""
    return [
        (torch.maximum(lower, box_lower.unsqueeze(1)), torch.minimum(upper, box_upper.unsqueeze(1)))
        for box_lower, box_upper in zip(boxes.lower[:-1], boxes.upper[:-1])
    ]


def _replaced(walls: Tensor, dimension: Tensor, place: Tensor, where: Tensor) -> Tensor:
    moved = torch.where(where, place, at(walls, dimension))
    return walls.scatter(0, dimension.unsqueeze(0), moved.unsqueeze(0))


def at(values: Tensor, row: Tensor) -> Tensor:
    return values.gather(0, row.unsqueeze(0)).squeeze(0)


def renumbered(numbers: Tensor, bound: int) -> tuple[Tensor, Tensor]:
    """Return the distinct values among numbers below a bound, ascending, and the place of each number among them."""
    occurs = torch.zeros(bound, dtype=torch.bool, device=numbers.device)
    occurs[numbers] = True
    return occurs.nonzero().squeeze(1), (occurs.cumsum(0) - 1)[numbers]
