"""Mondrian partitions, whose clusters are the cells of Mondrian trees at a lifetime up to the terminal one."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from itertools import product
from numbers import Real

import numpy as np
import torch
from torch import Tensor

from gpytorch_partition.clusters.cluster_index import code_dtype
from gpytorch_partition.clusters.incidence import Incidence
from gpytorch_partition.descriptions import counted
from gpytorch_partition.inputs.numbers import (
    MOST_PARTITIONS,
    bits_of,
    check_positive,
    checked_count,
    floats_of,
    is_whole,
    random_state_of,
)
from gpytorch_partition.inputs.training_rows import checked_rows, median_distance, warn_about_unequal_scales
from gpytorch_partition.linalg.parallel import SERIAL_NUMEL, for_each, slices
from gpytorch_partition.partitions.mondrian.mondrian_trees import (
    Attachments,
    GrownRows,
    MondrianTrees,
    attach,
    grown,
    joined,
)
from gpytorch_partition.partitions.mondrian.process import Boxes, Front, labels_of_items
from gpytorch_partition.partitions.mondrian.projections import Projections, check_projection
from gpytorch_partition.partitions.partition import Partition, _CodedRows
from gpytorch_partition.partitions.sites import LARGEST
from gpytorch_partition.progress import progress

# Points beyond the outermost box, 2^60 times as wide as the data's box, are moved to its wall. There neighboring
# float64 numbers are further apart than the data's box is wide.
_NUM_DOUBLINGS = 60

_BUFFERS = {"tree_keys": (0,), "box": (2, 0), "lifetime_bits": (1,), "max_lifetime_bits": (1,)}  # of an unfitted one
_BUFFERS |= {"matrix_bits": (0, 0, 0), "center_bits": (0,)}
_POINT_NUMEL = 2**22  # coordinates of the points that descend together
_ACCELERATOR_ITEMS = 2**22  # (point, tree) pairs that descend together on an accelerator

# Called with a front of some rows at the roots of some trees, these trees, and the numbers of the rows.
Visitor = Callable[[Front, slice, Tensor], None]


class MondrianPartition(Partition):
    r"""
    Divide points by the cells of m Mondrian trees; their kernel tends to :math:`\exp(-\lambda \lVert x - x' \rVert_1)`.

    :class:`~gpytorch_partition.MondrianKernel` uses it. Construct it yourself for cells without a kernel: of one
    :meth:`tree`, of a shorter lifetime (:meth:`cut`), or the :meth:`separation_times` of pairs of points.

    The distribution (Balog et al. 2016, Algorithm 1) is exact for any finite set of points, up to :math:`2^{60}` times
    as far out as the box of `x`. A label is the 64-bit key of the cell. With the same `random_state`, the cells of a
    longer lifetime lie inside those of a shorter one.

    `projection` maps the points about the center of the rows' box (O'Reilly & Tran 2022). With `"rotations"` every tree
    sees its own rotation, uniform in the Haar measure (Osborne & O'Reilly 2025, "The uniformly rotated Mondrian
    kernel"); the limit then depends only on :math:`\lVert x - x' \rVert_2`.

    A label costs :math:`O(1)` per cut above the point's cell and :math:`O(D)` per node that the point shares with
    others; a matrix :math:`O(D K)` per point, rotations :math:`O(D^2)` per point and tree.

    :param x: `N x D` rows whose bounding box the trees begin with. (Default: None, for `load_state_dict`.)
    :param num_trees: Number m of trees. (Default: 200.)
    :param lifetime: :math:`\lambda`, in units of 1/x. (Default: 1 / the median L1 distance of the rows that trees see.)
    :param max_lifetime: The terminal lifetime, up to which :attr:`lifetime` can be set. (Default: `lifetime`.)
    :param projection: A number for each column, a `D x K` matrix, one for each tree (`m x D x K`), or `"rotations"`.
    :param random_state: Seed or `RandomState`; `None` is a fresh one, never NumPy's global one.
    :raises ValueError: If the rows or a parameter cannot be used.

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
        for name, shape in _BUFFERS.items():
            self.register_buffer(name, torch.zeros(shape, dtype=torch.int64))
        if x is not None:
            rows = checked_rows(x, type(self).__name__)
            checked_count(num_trees, "trees", "num_trees", MOST_PARTITIONS)
            check_positive(optional=True, lifetime=lifetime, max_lifetime=max_lifetime)
            if lifetime is not None and max_lifetime is not None and lifetime > max_lifetime:
                raise ValueError(f"expected a lifetime up to max_lifetime={max_lifetime:g}, got {lifetime:g}")
            check_projection(projection, rows.shape[1], num_trees)
            if not torch.is_tensor(projection):
                warn_about_unequal_scales(rows, type(self).__name__)
            random = random_state_of(random_state)
            keys = random.randint(-(2**63), 2**63 - 1, size=num_trees, dtype=np.int64)
            self.tree_keys = torch.from_numpy(keys).to(rows.device)
            projections = Projections.of(rows, projection, num_trees, random)
            self.matrix_bits, self.center_bits = map(bits_of, projections)
            self.box = bits_of(projections.walls(rows).clamp(-LARGEST, LARGEST))
            if lifetime is None:
                seen = projections.seen(rows, slice(0, 1))[0]
                lifetime = min(1 / median_distance(seen, random, "lifetime"), max_lifetime or math.inf)
            self.lifetime_bits = self._bits(lifetime)
            self.max_lifetime_bits = self._bits(max_lifetime or lifetime)

    def _bits(self, lifetime: float) -> Tensor:
        return bits_of(torch.tensor([float(lifetime)], dtype=torch.float64, device=self.box.device))

    @property
    def num_partitions(self) -> int:
        return self.tree_keys.numel()

    @property
    def num_features(self) -> int | None:
        if not self.is_fitted:
            return None
        return self.center_bits.numel() or self.box.shape[1]

    @property
    def _projections(self) -> Projections:
        return Projections(floats_of(self.matrix_bits), floats_of(self.center_bits))

    @property
    def lifetime(self) -> float:
        """Return the lifetime, in units of 1 / x, 0 while unfitted; it can be set, up to :attr:`max_lifetime`."""
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
        """Return the terminal lifetime, the time of the latest possible cut; 0 while the partition is not fitted."""
        return floats_of(self.max_lifetime_bits).item()

    def cut(self, lifetime: float) -> MondrianPartition:
        """
        Return a copy with the same trees and another lifetime; cells of a shorter lifetime are unions of these cells.

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
        """Return one of the trees, counted from 0, as a partition of its own with the same cells."""
        if not is_whole(number, -self.num_partitions, self.num_partitions - 1):
            raise ValueError(f"expected the number of a tree below {self.num_partitions}, got {number!r}")
        copy = deepcopy(self)
        place = slice(int(number) % self.num_partitions, int(number) % self.num_partitions + 1)
        copy.tree_keys = self.tree_keys[place].clone()
        if len(self.matrix_bits) > 1:
            copy.matrix_bits = self.matrix_bits[place].clone()
        copy._cached_rows = []
        return copy

    def separation_times(self, x: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """
        Return the times (`m x P`), in units of 1 / x, at which trees separate P pairs of rows of x (`N x D`).

        Pairs that are in the same cell at the lifetime have an infinite time. Errors are those of :meth:`labels`.

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
        leaves = rows.leaf_codes.long() - torch.arange(self.num_partitions)
        return rows.trees.cut_times[rows.trees.layout.shared_nodes(leaves[first].T, leaves[second].T)]

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
            labels[trees, rows] = labels_of_items(front, self.lifetime).view(-1, rows.numel())

        self._visit_fronts(x, label)
        return labels.T

    def _visit_fronts(self, x: Tensor, visit: Visitor, level: int = 0) -> None:
        """Visit pieces of points at the roots of trees, each in its smallest box from `level` on."""
        seen_by, all_trees = self._seen_by(x), slice(0, self.num_partitions)
        for trees in _groups(self.num_partitions, len(x)) if self._projections.differ else [all_trees]:
            points, levels = seen_by(trees)
            levels = levels.clamp_min(level)
            for level_of_rows in levels.unique().tolist():
                rows = (levels == level_of_rows).nonzero().squeeze(1)
                self._visit_rows(points, rows, trees, self._boxes(level_of_rows), visit)

    def _visit_rows(self, points: Tensor, rows: Tensor, trees: slice, boxes: Boxes, visit: Visitor) -> None:
        def visit_piece(piece: tuple[slice, slice]) -> None:
            some_trees, some = piece[0], rows[piece[1]]
            # Trees with points of their own are all in one piece: `_groups` are no larger than pieces.
            own = points[:, some].flatten(0, 1)
            visit(Front.at_roots(own, some.numel(), self.tree_keys[some_trees], boxes), some_trees, some)

        for_each(visit_piece, _pieces(trees, rows.numel(), boxes))

    def _seen_by(self, x: Tensor) -> Callable[[slice], tuple[Tensor, Tensor]]:
        """A function from trees to their :meth:`_seen`, computed once if all trees see the same points."""
        if self._projections.differ:
            return partial(self._seen, x)
        common = self._seen(x, slice(0, self.num_partitions))
        return lambda trees: common

    def _seen(self, x: Tensor, trees: slice) -> tuple[Tensor, Tensor]:
        """Points (`trees x n x K`, or `1 x n x K`) as trees see them, and levels of the smallest boxes with them."""
        outermost, seen = self._boxes(_NUM_DOUBLINGS), self._projections.seen(x, trees)
        points = torch.minimum(torch.maximum(seen, outermost.lower[-1]), outermost.upper[-1])
        levels = outermost.levels(points.flatten(0, 1)).view(len(points), len(x))
        return points, levels.amax(0)

    def _code(self, x: Tensor) -> _CodedRows:
        self.check_points(x)
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
        seen_by, groups = self._seen_by(rows), _groups(self.num_partitions, len(rows))
        found: list[tuple[MondrianTrees, Tensor, int] | None] = [None] * len(groups)

        def grow(number: int) -> None:
            (points, levels), keys = seen_by(groups[number]), self.tree_keys[groups[number]]
            level = int(levels.max()) if len(rows) else 0
            front = Front.at_roots(points.flatten(0, 1), len(rows), keys, self._boxes(level))
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
        """Return the trees restricted to rows (`*batch x N x D`)."""
        return self._coded(x).cluster_index

    def attached(self, rows: GrownRows, x: Tensor) -> Attachments:
        """Return the exits of points (`n x D`) from the trees of some rows."""
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
        return Boxes.around(floats_of(self.box), level)


def _pieces(trees: slice, num_rows: int, boxes: Boxes) -> list[tuple[slice, slice]]:
    """Trees and rows that descend together: as many rows as possible, since rows share a tree's nodes."""
    most = SERIAL_NUMEL if boxes.lower.device.type == "cpu" else _ACCELERATOR_ITEMS
    size = max(1, min(most, _POINT_NUMEL // boxes.lower.shape[1], num_rows))
    num_trees = trees.stop - trees.start
    together = slices(num_trees, max(1, min(most // size, num_trees)))
    groups = [slice(trees.start + group.start, trees.start + group.stop) for group in together]
    return list(product(groups, slices(num_rows, size)))


def _groups(num_trees: int, num_rows: int) -> list[slice]:
    return slices(num_trees, max(1, SERIAL_NUMEL // max(1, num_rows)))


class LeafRows(Incidence):
    """Hold one-hot rows (`N x p`) of the p leaves of the trees restricted to these rows."""

    def __init__(self, codes: Tensor, trees: MondrianTrees) -> None:
        super().__init__(codes, trees.num_leaves)
        self.trees = trees


class AttachedRows(Incidence):
    """Hold one-hot rows (`N x E`) of the E exits where other points leave these trees, as in :class:`Attachments`."""

    def __init__(self, codes: Tensor, trees: MondrianTrees, nodes: Tensor, times: Tensor) -> None:
        super().__init__(codes, len(nodes))
        self.trees, self.nodes, self.times = trees, nodes, times


class NestedMondrianPartition(MondrianPartition):
    """A :class:`MondrianPartition` with all nodes: one set of points grows trees, the other is attached to them."""

    def _recoded(self, x: Tensor, rows: GrownRows) -> _CodedRows:
        number = torch.arange(rows.trees.num_trees, dtype=rows.leaf_codes.dtype, device=x.device)
        return _CodedRows(x, rows, LeafRows(rows.leaf_codes - number, rows.trees))

    def _coded_like(self, anchor: _CodedRows, x: Tensor) -> Incidence:
        self.check_points(x)
        trees = anchor.cluster_index.trees
        exits = self.attached(anchor.cluster_index, x.detach().reshape(-1, x.shape[-1]))
        codes = exits.codes.view(*x.shape[:-1], self.num_partitions)
        return AttachedRows(codes, trees, exits.nodes, exits.times)
