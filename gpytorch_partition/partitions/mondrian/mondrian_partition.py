"""Mondrian partitions, whose clusters are the cells of Mondrian trees at a lifetime up to the terminal one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial
from numbers import Integral, Real
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gpytorch_partition.clusters.cluster_index import code_dtype
from gpytorch_partition.clusters.incidence import Incidence
from gpytorch_partition.descriptions import counted
from gpytorch_partition.inputs.numbers import bits_of, checked_count, checked_positive, floats_of, random_state_of
from gpytorch_partition.inputs.training_rows import checked_rows, median_distance, warn_about_unequal_scales
from gpytorch_partition.linalg.parallel import SERIAL_NUMEL, for_each
from gpytorch_partition.partitions.mondrian.mondrian_trees import (
    Attachments,
    Cells,
    MondrianTrees,
    attach,
    grown,
    joined,
)
from gpytorch_partition.partitions.mondrian.process import Boxes, Front, descend
from gpytorch_partition.partitions.mondrian.projections import LARGEST, Projections, check_projection
from gpytorch_partition.partitions.partition import Partition, _CodedRows
from gpytorch_partition.progress import progress

# Points beyond the outermost box, 2^60 times as wide as the data's box, are moved to its wall. There neighboring
# float64 numbers are further apart than the data's box is wide.
_NUM_DOUBLINGS = 60

_POINT_NUMEL = 2**22  # coordinates of the points that descend together
_ACCELERATOR_ITEMS = 2**22  # (point, tree) pairs that descend together on an accelerator

# Called with a front of some rows at the roots of some trees, these trees, and the numbers of the rows.
Visitor = Callable[[Front, slice, Tensor], None]


class MondrianPartition(Partition):
    r"""
    A partition into the cells of m Mondrian trees; with many trees its kernel is :math:`\exp(-\lambda \lVert x - x'
    \rVert_1)`.

    :class:`~gpytorch_partition.MondrianKernel` uses it. Construct it yourself for cells without a kernel: those of one
    tree (:meth:`tree`), of a shorter lifetime (:meth:`cut`), or the times at which pairs of points are separated
    (:meth:`separation_times`).

    It gives the Mondrian kernel of Balog et al. 2016 (Algorithm 1, Proposition 1) for a lifetime :math:`\lambda`. The
    distribution is exact for any finite set of points, inside and outside the box of `x`, up to :math:`2^{60}` times
    its width. A label is the 64-bit key of the cell, a hash of the path to the cell. It depends only on the point and
    the state (a key per tree, the box and the lifetime). With the same `random_state`, the cells of a longer lifetime
    lie inside those of a shorter one.

    :attr:`lifetime` can be set to anything up to :attr:`max_lifetime`. Rows cached by :meth:`incidences` keep the trees
    restricted to them, with the time of each cut up to the terminal lifetime. Their codes at another lifetime are
    looked up without another descent (section 4.1).

    All columns share one lifetime, so standardize them, or give each its own lengthscale by `projection`. Without a
    projection, or with rotations, columns whose standard deviations differ by more than 100 times give a `UserWarning`.

    `projection` maps the points before the trees see them (O'Reilly & Tran 2022). A `D x K` matrix U makes the limit
    :math:`\exp(-\lambda \lVert U^\top (x - x') \rVert_1)`, a vector u of D inverse lengthscales :math:`\exp(-\lambda
    \sum_d |u_d (x_d - x'_d)|)`. With `"rotations"` every tree sees its own random rotation of the points, uniform in
    the Haar measure (Osborne & O'Reilly 2025, "The uniformly rotated Mondrian kernel"). The limit is then the average
    over rotations and depends only on the distance :math:`\lVert x - x' \rVert_2`. An `m x D x K` tensor has a matrix
    for every tree. Trees that see different points begin with one box around the mapped points of all trees. Maps are
    applied about the center of the rows' box; they are drawn or given once, and part of the state. Trees cut the
    dimensions of mapped points.

    A label costs :math:`O(1)` per cut above the point's cell and :math:`O(D)` per node that the point shares with
    others. There are :math:`\sum_d [\operatorname{Ein}(\lambda a_d) + \operatorname{Ein}(\lambda b_d)]` cuts on average
    above a point at distances :math:`a_d, b_d` from the walls, where :math:`\operatorname{Ein}(z)` is about z below 1
    and :math:`.58 + \ln z` above: a handful at the default lifetime. For points k doublings outside the box, a node
    costs up to :math:`O(k D)`. The workspace is bounded. Building costs :math:`O(N D)`. Memory: 8 bytes per tree and 16
    per column, and for cached rows 72 bytes per cell that holds any of them at the terminal lifetime. A row that is
    alone in its cell descends no further.

    A thousand columns cost little at the default lifetime, where cells are few. At ten times that lifetime all rows are
    alone in their cells, and a label costs hundreds of times as much.

    With a matrix, K takes the place of D, mapping costs :math:`O(D K)` per point, and `8 D K` bytes are held; with
    rotations :math:`O(D^2)` per point and tree, and `8 m D^2` bytes. Mapped points are held for a few trees at a time.

    :param x: `N x D` rows that span the box; `None` makes an unfitted partition that `load_state_dict` fits.
    :param num_trees: Number m of trees. (Default: 200.)
    :param lifetime: The inverse lengthscale :math:`\lambda`, in units of 1 / x; default: 1 / median of
        :math:`\lVert x - x' \rVert_1` over those of 8192 random pairs of rows that differ, or `max_lifetime` if that is
        less.
    :param max_lifetime: The terminal lifetime. (Default: `lifetime`.)
    :param projection: `D x K` matrix, `m x D x K` matrices of the trees, vector of `D` numbers, or `"rotations"`. The
        default lifetime is computed from distances of mapped rows, as the first tree sees them. (Default: None,
        unchanged columns.)
    :param random_state: Seed or `RandomState`; `None` is a fresh one, never NumPy's global one.
    :raises ValueError: If x is empty, not finite or not a floating point matrix, or if a parameter cannot be used:
        lifetimes that are not positive and finite, a lifetime longer than the terminal one, no lifetime for equal rows,
        no tree, a projection that is none of these, does not fit columns and trees or is not finite, or a
        `random_state` that is no seed.

    Example:
        >>> x = torch.tensor([[0.0, 0.0], [1.0, 2.0], [1.0, 2.1]])
        >>> trees = MondrianPartition(x, num_trees=10000, lifetime=0.5, random_state=0)
        >>> labels = trees.labels(x)
        >>> (labels[0] == labels[1]).double().mean(), math.exp(-0.5 * 3.0)
        (tensor(0.2257, dtype=torch.float64), 0.22313016014842982)
        >>> (labels[1] == labels[2]).double().mean(), math.exp(-0.5 * 0.1)
        (tensor(0.9479, dtype=torch.float64), 0.951229424500714)
        >>> ard = MondrianPartition(x, 10000, lifetime=0.5, projection=torch.tensor([1.0, 0.1]), random_state=0)
        >>> labels = ard.labels(x)
        >>> (labels[0] == labels[1]).double().mean(), math.exp(-0.5 * (1.0 + 0.1 * 2.0))
        (tensor(0.5487, dtype=torch.float64), 0.5488116360940264)
    """

    tree_keys: Tensor  # (m,)
    box: Tensor  # (2, D) bit patterns of the lower and upper walls, float64
    lifetime_bits: Tensor  # (1,) bit pattern of the lifetime, float64
    max_lifetime_bits: Tensor  # (1,) bit pattern of the terminal lifetime, float64
    matrix_bits: Tensor  # (r, D, K) bit patterns of the matrices of `Projections`, float64
    center_bits: Tensor  # (D,) bit patterns of the center of `Projections`, float64

    def __init__(
        self,
        x: Tensor | None = None,
        num_trees: int = 200,
        *,
        lifetime: float | None = None,
        max_lifetime: float | None = None,
        projection: Tensor | str | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        super().__init__()
        self.register_buffer("tree_keys", torch.empty(0, dtype=torch.int64))
        self.register_buffer("box", torch.empty(2, 0, dtype=torch.int64))
        self.register_buffer("lifetime_bits", torch.zeros(1, dtype=torch.int64))
        self.register_buffer("max_lifetime_bits", torch.zeros(1, dtype=torch.int64))
        self.register_buffer("matrix_bits", torch.empty(0, 0, 0, dtype=torch.int64))
        self.register_buffer("center_bits", torch.empty(0, dtype=torch.int64))
        if x is not None:
            rows = checked_rows(x, type(self).__name__)
            _check_sizes(num_trees, lifetime, max_lifetime)
            check_projection(projection, rows.shape[1], num_trees)
            if not torch.is_tensor(projection):
                warn_about_unequal_scales(rows, type(self).__name__)
            self._draw(rows, num_trees, random_state_of(random_state), projection, lifetime, max_lifetime)

    def _draw(
        self,
        x: Tensor,
        num_trees: int,
        random: np.random.RandomState,
        projection: Tensor | str | None,
        lifetime: float | None,
        max_lifetime: float | None,
    ) -> None:
        keys = random.randint(-(2**63), 2**63 - 1, size=num_trees, dtype=np.int64)
        self.tree_keys = torch.from_numpy(keys).to(x.device)
        projections = Projections.of(x, projection, num_trees, random)
        self.matrix_bits, self.center_bits = projections.bits()
        seen = projections.seen(x, slice(0, 1))[0]
        self.box = bits_of(projections.walls(x).clamp(-LARGEST, LARGEST))
        if lifetime is None:
            lifetime = min(1 / median_distance(seen, random, "lifetime"), max_lifetime or math.inf)
        self.lifetime_bits = self._bits(lifetime)
        self.max_lifetime_bits = self._bits(max_lifetime or lifetime)

    def _bits(self, lifetime: float) -> Tensor:
        return bits_of(torch.tensor([float(lifetime)], dtype=torch.float64, device=self.box.device))

    @property
    def num_partitions(self) -> int:
        """Number m of trees."""
        return self.tree_keys.numel()

    @property
    def num_features(self) -> int | None:
        """Number D of columns of the rows that the trees were built on; None if the partition is not fitted."""
        if not self.is_fitted:
            return None
        return self.center_bits.numel() or self.box.shape[1]

    @property
    def _projections(self) -> Projections:
        return Projections.from_bits(self.matrix_bits, self.center_bits)

    @property
    def lifetime(self) -> float:
        r"""
        The lifetime :math:`\lambda`, in units of 1 / x: the limit is :math:`\exp(-\lambda \lVert x - x' \rVert_1)`.
        0 while the partition is not fitted.

        It can be set to any positive value up to :attr:`max_lifetime`; codes of cached rows are updated in :math:`O(N
        m)`.

        :raises RuntimeError: If the partition is not fitted.
        :raises ValueError: If the lifetime is not positive, or longer than the terminal one.
        """
        return floats_of(self.lifetime_bits).item()

    @lifetime.setter
    def lifetime(self, lifetime: float) -> None:
        self._check_fitted()
        if not isinstance(lifetime, Real) or not 0 < lifetime <= self.max_lifetime:
            raise ValueError(
                f"expected a lifetime in (0, {self.max_lifetime:g}], up to the terminal one, got {lifetime}: build "
                "with a longer max_lifetime"
            )
        coded, self._cached_rows = self._cached_rows, []  # an interruption must not leave codes of another lifetime
        self.lifetime_bits = self._bits(lifetime)
        self._cached_rows = [self._recoded(rows.x, rows.cluster_index) for rows in coded]

    @property
    def max_lifetime(self) -> float:
        """
        The terminal lifetime, the time of the latest possible cut, in units of 1 / x; 0 while the partition is not
        fitted.
        """
        return floats_of(self.max_lifetime_bits).item()

    def cut(self, lifetime: float) -> MondrianPartition:
        """
        Return a copy with the same trees and another lifetime, in :math:`O(N m)` for cached rows. Cells of the shorter
        of two lifetimes are unions of cells of the longer.

        :param lifetime: In units of 1 / x, up to :attr:`max_lifetime`.
        :return: The copy, which shares this partition's tensors.
        :raises RuntimeError: If the partition is not fitted.
        :raises ValueError: If the lifetime is not positive, or longer than the terminal one.

        Example:
            >>> x = torch.rand(100, 2, generator=torch.Generator().manual_seed(0))
            >>> trees = MondrianPartition(x, num_trees=1, lifetime=8.0, random_state=0)
            >>> [len(trees.cut(lifetime).labels(x).unique()) for lifetime in (1.0, 4.0, 8.0)]
            [4, 17, 44]
        """
        copy = deepcopy(self)
        copy.lifetime = lifetime
        return copy

    def tree(self, number: int) -> MondrianPartition:
        """
        Return one of the trees as its own partition with the same cells.

        :param number: Its number, from 0.
        :raises ValueError: If there is no such tree.

        Example:
            >>> x = torch.rand(100, 2, generator=torch.Generator().manual_seed(0))
            >>> trees = MondrianPartition(x, num_trees=5, lifetime=2.0, random_state=0)
            >>> bool((trees.tree(3).labels(x)[:, 0] == trees.labels(x)[:, 3]).all())
            True
        """
        if not isinstance(number, Integral) or not -self.num_partitions <= number < self.num_partitions:
            raise ValueError(f"expected the number of a tree below {self.num_partitions}, got {number!r}")
        copy = deepcopy(self)
        place = slice(int(number) % self.num_partitions, int(number) % self.num_partitions + 1)
        copy.tree_keys = self.tree_keys[place].clone()
        if len(self.matrix_bits) > 1:
            copy.matrix_bits = self.matrix_bits[place].clone()
        copy._cached_rows = []
        return copy

    def separation_times(self, x: Tensor, first: Tensor, second: Tensor) -> Tensor:
        r"""
        Return the times at which cuts separate pairs of points in each tree, in units of 1 / x, up to the lifetime.

        :param x: `N x D` points.
        :param first: `P` numbers of points.
        :param second: `P` numbers of the points that they are paired with.
        :return: `m x P` times, in units of 1 / x; infinite for pairs in the same cell.
        :raises RuntimeError: If the partition is not fitted.
        :raises ValueError: If points cannot be used, as in :meth:`labels`.

        Example:
            >>> x = torch.tensor([[0.0], [0.2], [1.0]])
            >>> trees = MondrianPartition(x, num_trees=4000, lifetime=1.0, random_state=1)
            >>> apart = trees.separation_times(x, torch.tensor([0, 0]), torch.tensor([1, 2])) < 1.0
            >>> apart.double().mean(0), 1 - math.exp(-0.2), 1 - math.exp(-1.0)
            (tensor([0.1835, 0.6250], dtype=torch.float64), 0.18126924692201818, 0.6321205588285577)
        """
        self.check_points(x)
        copy = deepcopy(self)
        copy.max_lifetime_bits = self.lifetime_bits
        rows = copy._grown(x.detach())
        layout, leaves = rows.trees.layout, rows.leaf_codes.long() - torch.arange(self.num_partitions)
        start, end = leaves[first].T, leaves[second].T
        node = layout.leaf_nodes[start]
        while bool((outside := (end < layout.node_low[node]) | (end >= layout.node_high[node])).any()):
            node = torch.where(outside, layout.parent[node], node)
        return torch.where(start == end, math.inf, rows.trees.cut_times[node])

    def _described(self) -> str:
        told = f"{counted(self.num_partitions, 'tree')}, lifetime {self.lifetime:.4g}"
        told += f" of {self.max_lifetime:.4g}" if self.lifetime != self.max_lifetime else ""
        matrices, columns, seen = (int(size) for size in self.matrix_bits.shape)
        if matrices:
            told += f", {counted(matrices, 'projection')} to {counted(seen, 'column')}"
        return told

    def _labels(self, x: Tensor) -> Tensor:
        labels = torch.empty(self.num_partitions, x.shape[0], dtype=torch.int64, device=x.device)

        def label(front: Front, trees: slice, rows: Tensor) -> None:
            labels[trees, rows] = _labels_of_items(front, self.lifetime).view(-1, rows.numel())

        self._visit_fronts(x, label)
        return labels.T

    def _visit_fronts(self, x: Tensor, visit: Visitor, level: int = 0) -> None:
        """
        Call `visit(front, trees, rows)` for pieces of points (`n x D`) at the roots of trees, each in its smallest box
        of level `level` or more.
        """
        view_of = self._views(x)
        together = _groups(self.num_partitions, len(x)) if self._projections.differ else [self._all_trees]
        for view in map(view_of, together):
            levels = view.levels.clamp_min(level)
            for level_of_rows in levels.unique().tolist():
                rows = (levels == level_of_rows).nonzero().squeeze(1)
                self._visit_rows(view, rows, self._boxes(level_of_rows), visit)

    def _visit_rows(self, view: View, rows: Tensor, boxes: Boxes, visit: Visitor) -> None:
        def visit_piece(piece: tuple[slice, slice]) -> None:
            trees, some = piece[0], rows[piece[1]]
            # Trees with points of their own are all in one piece: `_groups` are no larger than pieces.
            points = view.points[:, some].flatten(0, 1)
            visit(Front.at_roots(points, some.numel(), self.tree_keys[trees], boxes), trees, some)

        for_each(visit_piece, _pieces(view.trees, rows.numel(), boxes))

    def _views(self, x: Tensor) -> Callable[[slice], View]:
        if self._projections.differ:
            return partial(self._view, x)
        common = self._view(x, self._all_trees)
        return lambda trees: common._replace(trees=trees)

    def _view(self, x: Tensor, trees: slice) -> View:
        outermost, seen = self._boxes(_NUM_DOUBLINGS), self._projections.seen(x, trees)
        points = torch.minimum(torch.maximum(seen, outermost.lower[-1]), outermost.upper[-1])
        levels = outermost.levels(points.flatten(0, 1)).view(len(points), len(x))
        return View(trees, points, levels.amax(0))

    @property
    def _all_trees(self) -> slice:
        return slice(0, self.num_partitions)

    def _code(self, x: Tensor) -> _CodedRows:
        self.check_points(x)
        self._log_forecast(x)
        x = x.detach().clone()
        return self._recoded(x, self._grown(x))

    def _recoded(self, x: Tensor, rows: GrownRows) -> _CodedRows:
        if self.lifetime == self.max_lifetime:
            incidence = Incidence(rows.leaf_codes, rows.terminal.num_clusters)
            return _CodedRows(x, rows._replace(cells=rows.terminal), incidence)
        cells = rows.trees.cells(self.lifetime)
        return _CodedRows(x, rows._replace(cells=cells), Incidence(rows.codes(cells), cells.num_clusters))

    def _grown(self, x: Tensor) -> GrownRows:
        rows = x.reshape(-1, x.shape[-1])
        view_of, groups = self._views(rows), _groups(self.num_partitions, len(rows))
        found: list[tuple[MondrianTrees, Tensor, int] | None] = [None] * len(groups)

        def grow(number: int) -> None:
            view, keys = view_of(groups[number]), self.tree_keys[groups[number]]
            level = int(view.levels.max()) if len(rows) else 0
            front = Front.at_roots(view.points.flatten(0, 1), len(rows), keys, self._boxes(level))
            found[number] = *grown(front, keys.numel(), len(rows), self.max_lifetime), level

        for_each(grow, progress(range(len(groups)), "growing trees"))
        parts, leaves, levels = zip(*(part for part in found if part is not None))
        return GrownRows.of(joined(parts), max(levels), leaves, rows, x.shape[:-1])

    def _coded_like(self, anchor: _CodedRows, x: Tensor) -> Incidence:
        self.check_points(x)
        rows = anchor.cluster_index
        exits, cells = self.attached(rows, x.detach().reshape(-1, x.shape[-1])), rows.cells
        table = exits.cells(rows.trees, cells, self.lifetime)
        codes = table.to(code_dtype(cells.num_clusters, exits.codes.numel()))[exits.codes]
        return Incidence(codes.view(*x.shape[:-1], self.num_partitions), cells.num_clusters)

    def grown(self, x: Tensor) -> GrownRows:
        """Return the trees restricted to rows (`*batch x N x D`), cached with the rows."""
        return self._coded(x).cluster_index

    def attached(self, rows: GrownRows, x: Tensor) -> Attachments:
        """Find the exits of points (`n x D`) from the trees of some rows."""
        lower, upper = (walls[-1] for walls in self._boxes(_NUM_DOUBLINGS))
        codes = torch.empty(len(x), self.num_partitions, dtype=torch.int64, device=x.device)
        parts: list[tuple[slice, Tensor, Attachments]] = []

        def coordinates(row: Tensor, dimension: Tensor, tree: Tensor) -> Tensor:
            values = self._projections.coordinates(rows.x, row, dimension, tree)
            return torch.minimum(torch.maximum(values, lower[dimension]), upper[dimension])

        def follow(front: Front, trees: slice, some: Tensor) -> None:
            numbers = torch.arange(self.num_partitions, device=x.device)[trees]
            exits = attach(front, rows.trees, numbers, coordinates, self.max_lifetime)
            parts.append((trees, some, exits))

        self._visit_fronts(x, follow, rows.level)
        start = 0
        for trees, some, exits in parts:
            codes.mT[trees, some] = exits.codes.view(-1, some.numel()) + start
            start += exits.nodes.numel()
        empty = codes.new_empty(0)
        nodes = torch.cat([empty, *(exits.nodes for *_, exits in parts)])
        return Attachments(codes, nodes, torch.cat([empty.double(), *(exits.times for *_, exits in parts)]))

    def _boxes(self, level: int) -> Boxes:
        lower, upper = floats_of(self.box)
        half = upper / 2 - lower / 2
        largest = half.max() if half.max() > 0 else half.new_ones(())
        half = torch.where(half > 0, half, largest)
        center = lower / 2 + upper / 2
        # Level 0 has the scale 0, not 1: the data's box as it is, unrounded and with sides of length 0.
        scales = [0.0, *(2.0**k for k in range(1, level + 1))]
        reach = torch.tensor(scales, dtype=torch.float64, device=half.device).unsqueeze(1) * half
        return Boxes(
            torch.minimum(center - reach, lower).clamp(min=-LARGEST),
            torch.maximum(center + reach, upper).clamp(max=LARGEST),
        )


class View(NamedTuple):
    """Points as some trees see them: mapped by their projections, and moved into the outermost box."""

    trees: slice
    points: Tensor  # (trees, n, K), or (1, n, K) if all trees see the same points; float64
    levels: Tensor  # (n,) level of the smallest box that holds each point in all of these trees


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


def _labels_of_items(front: Front, lifetime: float) -> Tensor:
    labels = torch.empty_like(front.item)

    def step(front: Front) -> tuple[Front]:
        cuts = front.next_cuts()
        ended = cuts.times > lifetime
        is_last = ended[front.node]
        labels[front.item[is_last]] = front.innermost_keys()[front.node[is_last]]
        front, _, _ = front.without(ended).below(cuts)
        return (front,)

    descend(step, front)
    return labels


def _pieces(trees: slice, num_rows: int, boxes: Boxes) -> list[tuple[slice, slice]]:
    """Trees and rows that descend together: as many rows as possible, since rows share a tree's nodes."""
    most = SERIAL_NUMEL if boxes.lower.device.type == "cpu" else _ACCELERATOR_ITEMS
    size = max(1, min(most, _POINT_NUMEL // boxes.lower.shape[1], num_rows))
    group = max(1, min(most // size, trees.stop - trees.start))
    return [
        (slice(tree, min(tree + group, trees.stop)), slice(row, row + size))
        for tree in range(trees.start, trees.stop, group)
        for row in range(0, num_rows, size)
    ]


def _groups(num_trees: int, num_rows: int) -> list[slice]:
    size = max(1, SERIAL_NUMEL // max(1, num_rows))
    return [slice(tree, min(tree + size, num_trees)) for tree in range(0, num_trees, size)]


def _check_sizes(num_trees: int, lifetime: float | None, max_lifetime: float | None) -> None:
    checked_count(num_trees, "trees", "num_trees")
    for value in (lifetime, max_lifetime):
        if value is not None:
            checked_positive(value, "lifetime")
    if lifetime is not None and max_lifetime is not None and lifetime > max_lifetime:
        raise ValueError(f"expected a lifetime up to max_lifetime={max_lifetime:g}, got {lifetime:g}")


class LeafRows(Incidence):
    """One-hot rows (`N x p`) of the p leaves of the trees restricted to these rows."""

    def __init__(self, codes: Tensor, trees: MondrianTrees) -> None:
        super().__init__(codes, trees.num_leaves)
        self.trees = trees


class AttachedRows(Incidence):
    """
    One-hot rows (`N x E`) of the E exits at which other points leave these trees.

    :param nodes: `E` last node that the points of each exit share with any row.
    :param times: `E` times at which the points leave it; infinite for points that end in a leaf's cell.
    """

    def __init__(self, codes: Tensor, trees: MondrianTrees, nodes: Tensor, times: Tensor) -> None:
        super().__init__(codes, len(nodes))
        self.trees, self.nodes, self.times = trees, nodes, times


class NestedMondrianPartition(MondrianPartition):
    r"""
    A :class:`MondrianPartition` at its terminal lifetime, with all nodes of its trees.

    One of two sets of points grows the trees and is coded by its leaves (:class:`LeafRows`); the other is attached to
    them (:class:`AttachedRows`). Costs and state are those of :class:`MondrianPartition`, and 64 bytes more per cell
    for the layout of the trees. Labels are those of the terminal lifetime.

    Example:
        >>> x = torch.rand(100, 2, generator=torch.Generator().manual_seed(0))
        >>> trees = NestedMondrianPartition(x[:50], num_trees=3, lifetime=8.0, random_state=0)
        >>> attached, rows = trees.incidences(x[50:], x[:50])
        >>> rows.trees.layout.num_leaves == rows.num_clusters, attached.trees is rows.trees
        (True, True)
    """

    def _recoded(self, x: Tensor, rows: GrownRows) -> _CodedRows:
        number = torch.arange(rows.trees.num_trees, dtype=rows.leaf_codes.dtype, device=x.device)
        return _CodedRows(x, rows, LeafRows(rows.leaf_codes - number, rows.trees))

    def _coded_like(self, anchor: _CodedRows, x: Tensor) -> Incidence:
        self.check_points(x)
        trees = anchor.cluster_index.trees
        exits = self.attached(anchor.cluster_index, x.detach().reshape(-1, x.shape[-1]))
        codes = exits.codes.view(*x.shape[:-1], self.num_partitions)
        return AttachedRows(codes, trees, exits.nodes, exits.times)
