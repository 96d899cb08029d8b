r"""
Mondrian partitions, drawn by hashing: every node of a tree has a key, and its cut is a function of the key.

**Inside the box.** A Mondrian process on a box (Roy & Teh 2009) starts with one cell. A cell waits for an
exponential clock whose rate is the sum of its sides, is cut across a side chosen in proportion to its length,
at a uniform place, and its two parts go on independently until the lifetime is over (Balog et al. 2016,
section 2). If clock, side and place are hashes of the cell's key, and the parts' keys are hashes of it as
well, then the cell of a point is found by descending from the root, nothing is stored, and the key of the
cell is its label.

**Outside the box.** Points anywhere must be placed with the right law, whichever others are asked about.
Let :math:`B_0 \subset B_1 \subset B_2 \dots` be boxes around the data's box :math:`B_0`, each twice as wide
as the one before. We define trees :math:`T_0, T_1, \dots` on them such that :math:`T_k` restricted to
:math:`B_j` *is* :math:`T_j`. Take a cell C of :math:`T_k`, alive at time t, and let :math:`C_j` be its
intersection with :math:`B_j`: where not empty, a cell of :math:`T_j`. The clock of :math:`C_k = C` runs at
rate :math:`|C_k|`, the sum of its sides. Divide every side into the *gaps* that :math:`C_j` leaves around
:math:`C_{j-1}`, level by level. Then this clock is the first of independent clocks, one per level, of rates
:math:`|C_j| - |C_{j-1}|`, each for a uniform place in its gaps. When the clock of level i rings first,

* :math:`C_i, C_{i+1}, \dots, C_k` are cut in two. Their parts are new cells, whose clocks start now;
* :math:`C_0, \dots, C_{i-1}` lie on one side of the cut and are not touched. On that side they keep their
  clocks, which by memorylessness may run on next to the new ones; on the other side these levels are empty
  from now on.

So the key of :math:`C_j` changes with cuts of the levels up to j only, never with those of wider boxes, and
if each clock is a hash of *its own level's* key then :math:`T_j` is the same whether it is computed alone or
as part of a :math:`T_k`: a point is looked up in the smallest box that holds it. Points of different levels
in one cell agree on the innermost :math:`C_j` that is not empty; its key is the label, and no other cell has
it (but for 64-bit collisions).

Boxes are closed boxes of float64 numbers: a cut at c leaves the numbers up to c on its lower side and begins
the upper side with the next number. Sides shrink with every cut, so the descent ends whatever the lifetime.
"""

from __future__ import annotations

import math
from copy import deepcopy
from itertools import pairwise
from numbers import Integral
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gpytorch_partition.partitions.keyed_random import exponentials, hashed, uniforms
from gpytorch_partition.partitions.parallel import SERIAL_NUMEL, for_each
from gpytorch_partition.partitions.partition import Partition, bits_of, floats_of
from gpytorch_partition.partitions.seeds import random_state_of
from gpytorch_partition.partitions.training_rows import checked_rows, median_distance, warn_of_unequal_scales

# What the hashes of a key are for; the root of level j has the salt _ROOT + j.
_CLOCK, _SIDE, _PLACE, _LOWER, _UPPER, _ROOT = range(6)

# Points beyond the outermost box, 2^60 times as wide as the data, are moved to its wall: so far out, float64
# numbers themselves are further apart than the data's box is wide.
_DOUBLINGS = 60
# Walls stay below this, so that sums of sides do not overflow.
_LARGEST = 1e300

# A (point, tree) pair may be alone in its node and cost L boxes of D sides: this many sides at a time.
_BOX_NUMEL = 2**19
_ACCELERATOR_ITEMS = 2**22


class MondrianPartition(Partition):
    r"""
    Cells of Mondrian trees: with many trees their kernel is :math:`\exp(-\lambda \lVert x - x' \rVert_1)`.

    The Mondrian kernel of Balog et al. 2016 (Algorithm 1, Proposition 1) for a lifetime :math:`\lambda`. The
    law is exact for any finite set of points, inside and outside the box of `x`, up to :math:`2^{60}` times
    its width. Trees are never stored: a label is the 64-bit key of the cell, a hash of the path to it, and
    depends on nothing but the point and the state (a key per tree, the box and the lifetime). With the same
    `random_state`, the cells of a longer lifetime lie inside those of a shorter one.

    All columns share one lifetime, so standardize them: columns whose standard deviations differ by more than
    100 times give a `UserWarning`.

    A label costs :math:`O(1)` per cut above the point's cell and :math:`O(D)` per node that it shares with
    other points. There are :math:`\sum_d [\operatorname{Ein}(\lambda a_d) + \operatorname{Ein}(\lambda b_d)]`
    cuts on average above a point at distances :math:`a_d, b_d` from the walls, where
    :math:`\operatorname{Ein}(z)` is about z below 1 and :math:`.58 + \ln z` above: a handful at the default
    lifetime. k doublings outside the box, nodes cost up to :math:`O(k D)`. The workspace is bounded. Building
    costs :math:`O(N D)`. Held are 8 bytes per tree and 16 per column.

    :param x: `N x D` rows that span the box; `None` makes an unfitted partition that `load_state_dict` fits.
    :param num_trees: Number m of trees. (Default: 200.)
    :param lifetime: The inverse length scale :math:`\lambda`, in units of 1 / x; default: 1 / median of
        :math:`\lVert x - x' \rVert_1` over those of 8192 random pairs of rows that differ.
    :param random_state: Seed or `RandomState`; `None` is a fresh one, never NumPy's global one.
    :raises ValueError: If x is empty, not finite or not a floating point matrix, if the lifetime is not
        positive and finite or must be given because all rows are the same, if there is no tree, or if
        `random_state` is no seed.

    Example:
        >>> x = torch.tensor([[0.0, 0.0], [1.0, 2.0], [1.0, 2.1]])
        >>> trees = MondrianPartition(x, num_trees=10000, lifetime=0.5, random_state=0)
        >>> labels = trees.labels(x)
        >>> (labels[0] == labels[1]).double().mean(), math.exp(-0.5 * 3.0)
        (tensor(0.2257, dtype=torch.float64), 0.22313016014842982)
        >>> (labels[1] == labels[2]).double().mean(), math.exp(-0.5 * 0.1)
        (tensor(0.9479, dtype=torch.float64), 0.951229424500714)
    """

    tree_keys: Tensor  # (m,)
    box: Tensor  # (2, D) bit patterns of the lower and upper walls, float64
    lifetime_bits: Tensor  # (1,) bit pattern of the lifetime, float64

    def __init__(
        self,
        x: Tensor | None = None,
        num_trees: int = 200,
        *,
        lifetime: float | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        super().__init__()
        self.register_buffer("tree_keys", torch.empty(0, dtype=torch.int64))
        self.register_buffer("box", torch.empty(2, 0, dtype=torch.int64))
        self.register_buffer("lifetime_bits", torch.zeros(1, dtype=torch.int64))
        if x is not None:
            rows = checked_rows(x, type(self).__name__)
            _check_sizes(num_trees, lifetime)
            warn_of_unequal_scales(rows, type(self).__name__)
            self._draw(rows, num_trees, lifetime, random_state_of(random_state))

    def _draw(self, x: Tensor, num_trees: int, lifetime: float | None, random: np.random.RandomState) -> None:
        keys = random.randint(-(2**63), 2**63 - 1, size=num_trees, dtype=np.int64)
        lifetime = 1 / median_distance(x, random, "lifetime") if lifetime is None else float(lifetime)
        self.tree_keys = torch.from_numpy(keys).to(x.device)
        self.box = bits_of(torch.stack([x.amin(0), x.amax(0)]).clamp(-_LARGEST, _LARGEST))
        self.lifetime_bits = bits_of(torch.tensor([lifetime], dtype=torch.float64, device=x.device))

    @property
    def num_partitions(self) -> int:
        """Number m of trees."""
        return self.tree_keys.numel()

    @property
    def num_features(self) -> int | None:
        """Number D of columns of the rows that span the box."""
        return self.box.shape[1] if self.is_fitted else None

    @property
    def lifetime(self) -> float:
        r"""
        The lifetime :math:`\lambda`, in units of 1 / x: the limit is :math:`\exp(-\lambda \lVert x - x' \rVert_1)`.
        0 while the partition is not fitted.
        """
        return floats_of(self.lifetime_bits).item()

    def first_cuts(self) -> tuple[Tensor, Tensor, Tensor]:
        """
        The first cut of the box in every tree, whether it falls within the lifetime or not.

        Balog et al. 2016, section 2.2. Costs :math:`O(m D)` time and memory.

        :return: `m` times (float64, infinite for a box of a single point), `m` dimensions (int64) and
            `m` places (float64).
        :raises RuntimeError: If the partition is not fitted.

        Example:
            >>> trees = MondrianPartition(torch.tensor([[0.0, 0.0], [1.0, 2.0]]), num_trees=4000, random_state=0)
            >>> times, dimensions, _ = trees.first_cuts()
            >>> bool((times.mean() - 1 / 3).abs() < 0.02), bool((dimensions.double().mean() - 2 / 3).abs() < 0.02)
            (True, True)
        """
        self._check_fitted()
        roots = _roots(self.tree_keys, self._boxes(0))
        return roots.times[0], roots.dimensions[0], roots.places[0]

    def cut(self, lifetime: float) -> MondrianPartition:
        """
        The same trees with an earlier lifetime: every cell is a union of cells of this partition. Costs nothing.

        :param lifetime: In units of 1 / x, up to this partition's own.
        :return: The cut trees, which share this partition's tensors.
        :raises RuntimeError: If the partition is not fitted.
        :raises ValueError: If the lifetime is not positive, or longer than this partition's.

        Example:
            >>> x = torch.rand(100, 2, generator=torch.Generator().manual_seed(0))
            >>> trees = MondrianPartition(x, num_trees=1, lifetime=8.0, random_state=0)
            >>> [len(trees.cut(lifetime).labels(x).unique()) for lifetime in (1.0, 4.0, 8.0)]
            [4, 17, 44]
        """
        self._check_fitted()
        if not 0 < lifetime <= self.lifetime:
            raise ValueError(f"expected a lifetime in (0, {self.lifetime:g}], the partition's own, got {lifetime}")
        earlier = deepcopy(self)
        earlier._remembered = []
        earlier.lifetime_bits = bits_of(torch.tensor([float(lifetime)], dtype=torch.float64, device=self.box.device))
        return earlier

    def _labels(self, x: Tensor) -> Tensor:
        outermost = self._boxes(_DOUBLINGS)
        x = torch.minimum(torch.maximum(x.to(torch.float64), outermost.lower[-1]), outermost.upper[-1])
        levels = _levels(x, outermost)
        labels = torch.empty(self.num_partitions, x.shape[0], dtype=torch.int64, device=x.device)
        for level in levels.unique().tolist():
            rows = (levels == level).nonzero().squeeze(1)
            labels[:, rows] = self._labels_within(x[rows], level)
        return labels.T

    def _labels_within(self, x: Tensor, level: int) -> Tensor:
        """Labels (`m x n`) of float64 points (`n x D`) inside a level's box, from the trees on that box."""
        boxes, lifetime = self._boxes(level), self.lifetime
        labels = torch.empty(self.num_partitions, x.shape[0], dtype=torch.int64, device=x.device)

        def descend(piece: tuple[slice, slice]) -> None:
            trees, rows = piece
            labels[trees, rows] = _descend(x[rows], self.tree_keys[trees], boxes, lifetime)

        for_each(descend, _pieces(self.num_partitions, x, level))
        return labels

    def _boxes(self, level: int) -> _Boxes:
        """The boxes of levels 0 ... level around the center of the data's box."""
        lower, upper = floats_of(self.box)
        half = upper / 2 - lower / 2
        largest = half.max() if half.max() > 0 else half.new_ones(())
        half = torch.where(half > 0, half, largest)
        center = lower / 2 + upper / 2
        # Level 0 has the scale 0, not 1: the data's box as it is, unrounded and with sides of length 0.
        scales = [0.0, *(2.0**k for k in range(1, level + 1))]
        reach = torch.tensor(scales, dtype=torch.float64, device=half.device).unsqueeze(1) * half
        return _Boxes(
            torch.minimum(center - reach, lower).clamp(min=-_LARGEST),
            torch.maximum(center + reach, upper).clamp(max=_LARGEST),
        )


class _Boxes(NamedTuple):
    """Nested boxes, one per row, each inside the next; L of them."""

    lower: Tensor  # (L, D)
    upper: Tensor  # (L, D)


class _Nodes(NamedTuple):
    """
    M nodes of trees on the outermost of L nested boxes, and what each level knows about them.

    The level j of a node is its box's intersection with box j: its key, and its next cut in the gap around
    the level below. A level whose intersection is empty, or cannot be cut, has an infinite time.
    """

    lower: Tensor  # (D, M)
    upper: Tensor  # (D, M)
    keys: Tensor  # (L, M)
    times: Tensor  # (L, M)
    dimensions: Tensor  # (L, M)
    places: Tensor  # (L, M)


def _descend(x: Tensor, tree_keys: Tensor, boxes: _Boxes, lifetime: float) -> Tensor:
    """Labels (`m x n`) of points (`n x D`) in the outermost box: innermost keys of the cells they end in."""
    num_rows, num_features = x.shape
    labels = torch.empty(tree_keys.numel() * num_rows, dtype=torch.int64, device=x.device)
    item = torch.arange(labels.numel(), device=x.device)
    node = item // num_rows
    nodes = _roots(tree_keys, boxes)
    while item.numel():
        time, level = nodes.times.min(0)
        ended = (time > lifetime)[node]
        labels[item[ended]] = _innermost_keys(nodes, boxes)[node[ended]]
        item, node = item[~ended], node[~ended]
        dimension, place = _at(nodes.dimensions, level), _at(nodes.places, level)
        above = x.take(item % num_rows * num_features + dimension[node]) > place[node]
        children, node = _renumbered(2 * node + above, 2 * time.numel())
        nodes = _children(nodes, children // 2, children % 2 == 1, boxes)
        nodes, boxes = _without_empty_levels(nodes, boxes)
    return labels.view(-1, num_rows)


def _roots(tree_keys: Tensor, boxes: _Boxes) -> _Nodes:
    """One node per tree: the outermost box."""
    shape = (boxes.lower.shape[1], tree_keys.numel())
    lower, upper = boxes.lower[-1].unsqueeze(1).expand(shape), boxes.upper[-1].unsqueeze(1).expand(shape)
    keys = torch.stack([hashed(tree_keys, _ROOT + level) for level in range(boxes.lower.shape[0])])
    birth = torch.zeros(tree_keys.numel(), dtype=torch.float64, device=tree_keys.device)
    return _Nodes(lower, upper, keys, *_next_cuts(lower, upper, keys, birth, boxes))


def _children(nodes: _Nodes, parent: Tensor, above: Tensor, boxes: _Boxes) -> _Nodes:
    """Parts above or below their parents' next cuts; levels inside that of the cut keep their clocks."""
    nodes = _Nodes(*(values[:, parent] for values in nodes))
    time, level = nodes.times.min(0)
    dimension, place = _at(nodes.dimensions, level), _at(nodes.places, level)
    first_above = torch.nextafter(place, torch.full_like(place, math.inf))
    lower = _replaced(nodes.lower, dimension, first_above, above)
    upper = _replaced(nodes.upper, dimension, place, ~above)
    is_new = torch.arange(nodes.keys.shape[0], device=parent.device).unsqueeze(1) >= level
    new_keys = torch.where(above, hashed(nodes.keys, _UPPER), hashed(nodes.keys, _LOWER))
    keys = torch.where(is_new, new_keys, nodes.keys)
    redrawn = _next_cuts(lower, upper, keys, time, boxes)
    times, dimensions, places = (torch.where(is_new, new, old) for new, old in zip(redrawn, nodes[3:]))
    times = times.masked_fill(_is_empty(lower, upper, boxes), math.inf)
    return _Nodes(lower, upper, keys, times, dimensions, places)


def _without_empty_levels(nodes: _Nodes, boxes: _Boxes) -> tuple[_Nodes, _Boxes]:
    """Drop the innermost levels that no node has any more: far outside, a few cuts leave one level."""
    if boxes.lower.shape[0] == 1:
        return nodes, boxes
    first = int(_is_empty(nodes.lower, nodes.upper, boxes).all(1).sum())
    levels = (values[first:] for values in nodes[2:])
    return _Nodes(nodes.lower, nodes.upper, *levels), _Boxes(boxes.lower[first:], boxes.upper[first:])


def _next_cuts(
    lower: Tensor, upper: Tensor, keys: Tensor, birth: Tensor, boxes: _Boxes
) -> tuple[Tensor, Tensor, Tensor]:
    """Times, dimensions and places (`L x M` each) of the next cut of every level, clocks started at birth."""
    cuts, inner = [], None
    for key, outer in zip(keys, [*_inner_boxes(lower, upper, boxes), (lower, upper)]):
        cuts.append(_next_cut(key, birth, *_gaps(outer, inner)))
        inner = outer
    times, gaps, places = (torch.stack(values) for values in zip(*cuts))
    return times, gaps % lower.shape[0], places


def _gaps(outer: tuple[Tensor, Tensor], inner: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor]:
    """Starts and ends (`D x M`, or `2 D x M`: below, above) of what outer boxes leave around inner ones."""
    if inner is None:
        return outer
    (lower, upper), (inner_lower, inner_upper) = outer, inner
    is_empty = (inner_lower > inner_upper).any(0)
    inner_lower, inner_upper = (torch.where(is_empty, lower, wall) for wall in inner)
    return torch.cat([lower, inner_upper]), torch.cat([inner_lower, upper])


def _next_cut(keys: Tensor, birth: Tensor, starts: Tensor, ends: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Time, gap and place of the first cut in S gaps (`S x M`): clocks race at rates of the gaps' lengths."""
    reach = ends - starts
    # The order of these sums must not depend on the device or the number of nodes, as that of `cumsum` may.
    for sum_before, length in pairwise(reach):
        length.add_(sum_before)
    rate = reach[-1].clone()
    time = birth + exponentials(keys, _CLOCK) / rate
    # Compared in place: PyTorch counts floats many times as fast as truth values.
    passed = reach.le_(uniforms(keys, _SIDE) * rate).sum(0).to(torch.int64)
    gap = passed.clamp(max=starts.shape[0] - 1)
    start, end = _at(starts, gap), _at(ends, gap)
    last = torch.nextafter(end, torch.full_like(end, -math.inf))
    return time, gap, torch.minimum(start + uniforms(keys, _PLACE) * (end - start), last)


def _innermost_keys(nodes: _Nodes, boxes: _Boxes) -> Tensor:
    """The key of each node's innermost level that is not empty (`M`)."""
    innermost = _is_empty(nodes.lower, nodes.upper, boxes).sum(0)
    return _at(nodes.keys, innermost)


def _is_empty(lower: Tensor, upper: Tensor, boxes: _Boxes) -> Tensor:
    """Whether nodes (`D x M`) miss the box of each level (`L x M`); they are parts of the outermost."""
    missed = [(inner_lower > inner_upper).any(0) for inner_lower, inner_upper in _inner_boxes(lower, upper, boxes)]
    return torch.stack([*missed, torch.zeros(lower.shape[1], dtype=torch.bool, device=lower.device)])


def _inner_boxes(lower: Tensor, upper: Tensor, boxes: _Boxes) -> list[tuple[Tensor, Tensor]]:
    """Walls (`D x M` each) of the intersections of nodes with all boxes but the outermost."""
    return [
        (torch.maximum(lower, box_lower.unsqueeze(1)), torch.minimum(upper, box_upper.unsqueeze(1)))
        for box_lower, box_upper in zip(boxes.lower[:-1], boxes.upper[:-1])
    ]


def _replaced(walls: Tensor, dimension: Tensor, place: Tensor, where: Tensor) -> Tensor:
    """Walls (`D x M`) with a place put in one dimension of some nodes."""
    moved = torch.where(where, place, _at(walls, dimension))
    return walls.scatter(0, dimension.unsqueeze(0), moved.unsqueeze(0))


def _at(values: Tensor, row: Tensor) -> Tensor:
    """The value at one row of each column: `values[row[i], i]`."""
    return values.gather(0, row.unsqueeze(0)).squeeze(0)


def _renumbered(numbers: Tensor, bound: int) -> tuple[Tensor, Tensor]:
    """The distinct values among numbers below a bound, ascending, and where each number is among them."""
    occurs = torch.zeros(bound, dtype=torch.bool, device=numbers.device)
    occurs[numbers] = True
    return occurs.nonzero().squeeze(1), (occurs.cumsum(0) - 1)[numbers]


def _levels(x: Tensor, boxes: _Boxes) -> Tensor:
    """The number of the smallest box that holds each point (`n`); the outermost must."""
    levels = torch.zeros(x.shape[0], dtype=torch.int64, device=x.device)
    outside = torch.arange(x.shape[0], device=x.device)
    for lower, upper in zip(*boxes):
        points = x[outside]
        outside = outside[((points < lower) | (points > upper)).any(1)]
        if not outside.numel():
            break
        levels[outside] += 1
    return levels


def _pieces(num_trees: int, x: Tensor, level: int) -> list[tuple[slice, slice]]:
    """Trees and rows that descend together: as many rows as possible, as these share a tree's nodes."""
    most = _ACCELERATOR_ITEMS
    if x.device.type == "cpu":
        most = min(SERIAL_NUMEL, _BOX_NUMEL // (x.shape[1] * (level + 1)))
    size = max(1, min(most, x.shape[0]))
    group = max(1, min(most // size, num_trees))
    return [
        (slice(tree, tree + group), slice(row, row + size))
        for tree in range(0, num_trees, group)
        for row in range(0, x.shape[0], size)
    ]


def _check_sizes(num_trees: int, lifetime: float | None) -> None:
    if not isinstance(num_trees, Integral) or num_trees < 1:
        raise ValueError(f"expected a number of trees, 1 or more, got num_trees={num_trees}")
    if lifetime is not None and not 0 < lifetime < math.inf:
        raise ValueError(f"expected a positive, finite lifetime, got {lifetime}")
