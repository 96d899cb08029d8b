"""Forest partitions, whose clusters are the leaves of an ensemble's trees, and trees cut at a depth (Algorithm 1)."""

from __future__ import annotations

import warnings
from copy import deepcopy
from functools import cached_property
from itertools import pairwise, product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpytorch_partition.callers import level_of_caller
from gpytorch_partition.clusters.cluster_index import code_dtype
from gpytorch_partition.clusters.tree_layout import TreeLayout, cut_at_depth, lay_out_trees
from gpytorch_partition.descriptions import counted, ranged
from gpytorch_partition.inputs.numbers import bits_of, floats_of, random_state_of
from gpytorch_partition.inputs.training_rows import decode_missing
from gpytorch_partition.linalg.parallel import for_each, piece_numel, slices
from gpytorch_partition.partitions.ensembles import ZERO, Trees, trees_of
from gpytorch_partition.partitions.partition import Partition

_MANY_ROWS = 20  # of which some have a category that the trees know, if these are the ensemble's


class ForestPartition(Partition):
    """
    Divide points by the leaves of an ensemble's m trees (Davies & Ghahramani 2014, section 4.3.1).

    Use it to read the trees of all libraries below in one way: the leaves of points, the thresholds of a column, the
    trees cut at a depth (:meth:`cut`).

    Labels agree with the ensemble's own leaves exactly, also for points on thresholds, missing values
    (:attr:`handles_missing`) and unknown categories. The trees are those that the ensemble's own `predict` uses, up to
    the best iteration of models that stopped early; AdaBoost and DART of XGBoost keep the weights of their trees.

    :param ensemble: A fitted random forest, extra-trees, boosting or bagging of trees, isolation forest, random trees
        embedding, or single tree of scikit-learn (:func:`grow_forest` makes one); a `Booster` or estimator of LightGBM
        or XGBoost; an estimator of CatBoost; a BART model of stochtree; or `Trees` of
        `gpytorch_partition.partitions.ensembles`. `None` makes an unfitted partition for `load_state_dict`.
    :raises TypeError: If `ensemble` is none of these, or an ensemble of other things than trees.
    :raises ValueError: If the ensemble is not fitted, has no trees, or splits by other things than numbers. If LightGBM
        or XGBoost was fitted to a frame whose levels are not whole numbers, or cannot be told from other columns.

    Example:
        >>> from sklearn.ensemble import RandomForestRegressor
        >>> stump = RandomForestRegressor(n_estimators=1, bootstrap=False)
        >>> partition = ForestPartition(stump.fit([[0.0], [1.0], [2.0]], [5.0, 5.0, 8.0]))
        >>> partition.labels(torch.tensor([[0.3], [1.5], [1.6]]))
        tensor([[0],
                [0],
                [1]])
        >>> copy = ForestPartition()
        >>> copy.load_state_dict(partition.state_dict())
        <All keys matched successfully>
        >>> copy.cluster_counts
        tensor([2])
    """

    feature: Tensor  # (V,) column that each node compares
    threshold: Tensor  # (V,) bit patterns of float32 or float64: larger values go right; infinity at leaves
    child_nodes: Tensor  # (V, 2) left and right child; a leaf is its own child
    missing_left: Tensor  # (V,) whether NaN goes left; empty if NaN is not accepted
    category_set: Tensor  # (V,) row of `category_sets`, or -1 for a threshold; empty if there are no categories
    category_sets: Tensor  # (S, W) words of 32 bits: which ranges of numbers go left
    category_bounds: Tensor  # bit patterns of float64: where ranges begin, column by column
    category_starts: Tensor  # (D + 1,) where those of each column begin
    zero_is_missing: Tensor  # (D,) whether zeros are missing values; empty if there are no such columns
    tree_nodes: Tensor  # (m + 1,) where the nodes of each tree begin, with its root
    tree_weights: Tensor  # (m,) bit patterns of float64, 1 on average
    impurity: Tensor  # (V,) bit patterns of float32: shares of the root's; empty if the ensemble keeps none
    is_auxiliary: Tensor  # (V,) whether a node is one half of a split into more than two; empty if there are none
    level_places: Tensor  # (m, L) places that thresholds of a tree compare instead of levels; empty if there are none
    level_starts: Tensor  # (D + 1,) where the levels of each column begin among these; empty if there are none
    num_columns: Tensor  # (1,)

    def __init__(self, ensemble: Any = None) -> None:
        super().__init__()
        for name in ("feature", "threshold", "category_set", "impurity"):
            self.register_buffer(name, torch.empty(0, dtype=torch.int32))
        for name in ("category_bounds", "category_starts", "tree_weights", "level_starts"):
            self.register_buffer(name, torch.empty(0, dtype=torch.int64))
        self.register_buffer("child_nodes", torch.empty(0, 2, dtype=torch.int32))
        self.register_buffer("category_sets", torch.empty(0, 1, dtype=torch.int32))
        self.register_buffer("level_places", torch.empty(0, 1, dtype=torch.int32))
        for name in ("missing_left", "zero_is_missing", "is_auxiliary"):
            self.register_buffer(name, torch.empty(0, dtype=torch.bool))
        self.register_buffer("tree_nodes", torch.zeros(1, dtype=torch.int64))
        self.register_buffer("num_columns", torch.zeros(1, dtype=torch.int64))
        if ensemble is not None:
            self._set_trees(trees_of(ensemble))

    def _set_trees(self, trees: Trees) -> None:
        self.feature, self.child_nodes = torch.from_numpy(trees.column), torch.from_numpy(trees.children)
        self.threshold = bits_of(torch.from_numpy(trees.threshold))
        self.tree_nodes = torch.from_numpy(trees.tree_nodes)
        self.tree_weights = bits_of(torch.from_numpy(trees.weights))
        self.num_columns = torch.tensor([len(trees.category_bounds)])
        if trees.handles_missing:
            self.missing_left = torch.from_numpy(trees.missing_left)
        if trees.impurity is not None:
            roots = np.repeat(trees.impurity[trees.tree_nodes[:-1]], np.diff(trees.tree_nodes))
            shares = np.divide(trees.impurity, roots, out=np.zeros_like(trees.impurity), where=roots > 0)
            self.impurity = bits_of(torch.from_numpy(shares.astype(np.float32)))
        if len(trees.category_sets):
            self.category_set = torch.from_numpy(trees.category_set)
            self.category_sets = torch.from_numpy(trees.category_sets.view(np.int32))
            self.category_bounds = bits_of(torch.from_numpy(np.concatenate(trees.category_bounds)))
            self.category_starts = torch.tensor([0, *np.cumsum([len(bounds) for bounds in trees.category_bounds])])
        if trees.zero_is_missing.any():
            self.zero_is_missing = torch.from_numpy(trees.zero_is_missing)
        if trees.is_auxiliary is not None:
            self.is_auxiliary = torch.from_numpy(trees.is_auxiliary)
        if trees.level_places is not None and trees.level_counts is not None:
            self.level_places = torch.from_numpy(trees.level_places)
            self.level_starts = torch.tensor([0, *np.cumsum(trees.level_counts)])

    @property
    def num_partitions(self) -> int:
        return self.tree_nodes.numel() - 1

    @property
    def cluster_counts(self) -> Tensor:
        return (self.tree_nodes.diff() + 1) // 2

    @property
    def handles_missing(self) -> bool:
        """Return whether the ensemble accepts NaN as a missing value."""
        return self.missing_left.numel() > 0

    @property
    def weights(self) -> Tensor:
        """Return the weight that the ensemble gives each tree (`m`, float64), 1 on average."""
        return floats_of(self.tree_weights)

    @property
    def impurities(self) -> Tensor | None:
        """Return the impurities of the `V` nodes over their root's (float32); None where the ensemble keeps none."""
        return floats_of(self.impurity) if self.impurity.numel() else None

    def thresholds(self, column: int) -> Tensor:
        """
        Return the values that splits compare a column with (float64), sorted and distinct.

        Example:
            >>> from sklearn.tree import DecisionTreeRegressor
            >>> tree = DecisionTreeRegressor().fit([[0.0], [1.0], [2.0]], [5.0, 5.0, 8.0])
            >>> ForestPartition(tree).thresholds(0)
            tensor([1.5000], dtype=torch.float64)
        """
        compares = (self.feature == column) & (self.child_nodes[:, 0] != self.child_nodes[:, 1])
        if self.category_set.numel():
            compares &= self.category_set < 0
        if self.level_starts.numel() and self.level_starts.diff()[column] > 0:
            return torch.empty(0, dtype=torch.float64, device=compares.device)
        return floats_of(self.threshold)[compares].to(torch.float64).unique()

    @cached_property
    def layout(self) -> TreeLayout:
        """Return the trees with their nodes as intervals of leaves, computed once in :math:`O(V)` and kept."""
        left, right = self.child_nodes.to(torch.int64).unbind(1)
        is_auxiliary = self.is_auxiliary if self.is_auxiliary.numel() else None
        return lay_out_trees(left, right, self.tree_nodes, is_auxiliary)

    @property
    def leaf_ids(self) -> Tensor:
        """Return the node numbers of the `p` leaves in their trees, as the `apply` of scikit-learn and XGBoost does."""
        return self.layout.leaf_nodes - self.layout.of_leaf(self.tree_nodes[:-1])

    def cut(self, depths: Tensor) -> TreeCutPartition:
        """Return each tree cut at one of `m` depths, 0 or more (int64), as :class:`TreeCutPartition` explains."""
        return TreeCutPartition(self, depths)

    def sample_cut(self, random_state: int | np.random.RandomState | None = None) -> TreeCutPartition:
        """
        Return each tree cut at a depth uniform on 0 ... h, its own depth (Algorithm 1 of Davies & Ghahramani 2014).

        :param random_state: Seed or `RandomState`; `None` is a fresh one, never NumPy's global one.
        """
        heights = self.layout.heights.cpu().numpy()
        depths = random_state_of(random_state).randint(0, heights + 1, dtype=np.int64)
        return self.cut(torch.from_numpy(depths))

    def _labels(self, x: Tensor) -> Tensor:
        labels = torch.empty(self.num_partitions, x.shape[0], dtype=torch.int64, device=x.device)
        values, layout = self._values(x), self.layout
        first_leaves, heights = layout.tree_leaves[:-1].unsqueeze(1), layout.num_steps.tolist()

        def label(piece: tuple[slice, slice]) -> None:
            trees, rows = piece
            leaves = self._route(values[rows], trees, max(heights[trees]))
            low = layout.node_low.index_select(0, leaves).view(-1, values[rows].shape[0])
            torch.sub(low, first_leaves[trees], out=labels[trees, rows])

        numel = piece_numel(x.device)  # (row, tree) pairs
        size = max(1, min(x.shape[0], numel))
        for_each(label, product(slices(self.num_partitions, numel // size), slices(x.shape[0], size)))
        return labels.T

    def _route(self, x: Tensor, trees: slice, height: int) -> Tensor:
        """Leaves (int32, tree after tree) of the rows in some trees, found level by level."""
        roots = self.tree_nodes[:-1][trees]
        # index_select on 32-bit numbers is three times as fast on a CPU as indexing with int64.
        values, threshold, children = x.reshape(-1), floats_of(self.threshold), self.child_nodes.view(-1)
        row_starts = torch.arange(0, x.numel(), x.shape[1], device=x.device, dtype=code_dtype(x.numel(), 0))
        row_starts = row_starts.repeat(roots.numel())
        node = roots.to(torch.int32).repeat_interleave(x.shape[0])
        may_be_missing = self.handles_missing and bool(values.isnan().any())
        places = self._places_of(trees, x.shape[0])
        for _ in range(height):
            column = self.feature.index_select(0, node)
            value = values.index_select(0, row_starts + column)
            value = value if places is None else self._placed(value, column, places)
            goes_right = value > threshold.index_select(0, node)
            if self.category_sets.numel():
                goes_right = self._routed_by_category(value, node, goes_right)
            if may_be_missing:
                goes_right = torch.where(value.isnan(), ~self.missing_left.index_select(0, node), goes_right)
            node = children.index_select(0, node.mul_(2).add_(goes_right))
        return node

    def _values(self, x: Tensor) -> Tensor:
        """Points in the precision of the ensemble, NaN where missing; categories become the number of their range."""
        x = decode_missing(x)
        values, bounds = x.to(floats_of(self.threshold).dtype), floats_of(self.category_bounds)
        if self.zero_is_missing.numel():
            values = values.masked_fill(self.zero_is_missing & (values.abs() <= ZERO), torch.nan)
        values = values.clone() if bounds.numel() or self.level_starts.numel() else values
        for column, size in enumerate(self.level_starts.diff().tolist()):
            if size:
                level = values[:, column].floor()
                values[:, column] = level.masked_fill((level < 0) | (level >= size), torch.nan)
        for column, (start, end) in enumerate(pairwise(self.category_starts.tolist())):
            if start < end:
                value = values[:, column].double().contiguous()
                rank = torch.searchsorted(bounds[start:end], value, right=True)
                if len(rank) >= _MANY_ROWS and not rank.any():
                    _warn_of_codes(column, value, bounds[start])
                values[:, column] = torch.where(value.isnan(), value, rank)
        return values

    def _places_of(self, trees: slice, num_rows: int) -> Tensor | None:
        """Starts of the places of each tree (int64, tree after tree); None where levels have no places."""
        if not self.level_places.numel():
            return None
        numbers = torch.arange(self.num_partitions, device=self.level_places.device)[trees]
        return (numbers * self.level_places.shape[1]).repeat_interleave(num_rows)

    def _placed(self, value: Tensor, column: Tensor, places: Tensor) -> Tensor:
        start, end = (self.level_starts[i:].index_select(0, column) for i in (0, 1))
        is_level = (end > start) & ~value.isnan()
        position = places + start + torch.where(is_level, value, 0.0).long()
        placed = self.level_places.view(-1).index_select(0, torch.where(is_level, position, 0))
        return torch.where(is_level, placed.to(value.dtype), value)

    def _routed_by_category(self, value: Tensor, node: Tensor, goes_right: Tensor) -> Tensor:
        row = self.category_set.index_select(0, node).long()
        category = value.nan_to_num().clamp(0, 32 * self.category_sets.shape[1] - 1).long()
        word = self.category_sets[row.clamp_min(0), category >> 5]
        return torch.where(row < 0, goes_right, (word >> (category & 31)) & 1 == 0)

    def _check_values(self, x: Tensor) -> None:
        super()._check_values(_with_missing_as_zero(x) if self.handles_missing else x)

    def _described(self) -> str:
        layout, weights = self.layout, self.weights
        told = f"{counted(layout.num_trees, 'tree')} of height {ranged(layout.heights.tolist())}"
        told += f", {counted(layout.num_leaves, 'leaf')}"
        if bool((weights != weights[0]).any()):
            told += f", weights {ranged(weights.tolist())}"
        return told


class TreeCutPartition(Partition):
    """
    Divide points by the nodes of a forest's trees at one depth of each tree.

    :class:`~gpytorch_partition.RandomForestKernel` uses it for `heights="sampled"`. For depths of your own,
    :meth:`ForestPartition.cut` makes it, and :class:`~gpytorch_partition.PartitionKernel` takes it.

    With depths drawn from 0 ... h these are the partitions of Algorithm 1 of Davies & Ghahramani (2014).

    :param forest: The forest; its tensors are shared. `None` makes an unfitted partition that `load_state_dict` fits.
    :param depths: `m` depths, 0 or more (int64); a tree cut at its height or below is cut into its leaves.
    :raises RuntimeError: If the forest is not fitted.
    :raises ValueError: If there is not one depth per tree, or a depth is negative.

    Example:
        >>> from sklearn.ensemble import RandomForestRegressor
        >>> x, y = [[0.0], [1.0], [2.0], [3.0]], [0.0, 1.0, 10.0, 11.0]
        >>> forest = ForestPartition(RandomForestRegressor(n_estimators=1, bootstrap=False).fit(x, y))
        >>> points = torch.tensor(x)
        >>> [forest.cut(torch.tensor([depth])).labels(points).squeeze(-1).tolist() for depth in range(3)]
        [[0, 0, 0, 0], [0, 0, 1, 1], [0, 1, 2, 3]]
    """

    clusters: Tensor  # (p,) cluster of each leaf, numbered within its tree
    counts: Tensor  # (m,) numbers of clusters

    def __init__(self, forest: ForestPartition | None = None, depths: Tensor | None = None) -> None:
        super().__init__()
        self.forest = ForestPartition() if forest is None else deepcopy(forest)
        self.register_buffer("clusters", torch.empty(0, dtype=torch.int32))
        self.register_buffer("counts", torch.empty(0, dtype=torch.int64))
        if forest is not None:
            clusters, self.counts = cut_at_depth(forest.layout, _checked_depths(forest, depths))
            self.clusters = clusters.to(torch.int32)

    @property
    def num_partitions(self) -> int:
        return self.counts.numel()

    @property
    def num_features(self) -> int | None:
        return self.forest.num_features

    @property
    def cluster_counts(self) -> Tensor:
        return self.counts

    def _check_values(self, x: Tensor) -> None:
        super()._check_values(_with_missing_as_zero(x) if self.forest.handles_missing else x)

    def _labels(self, x: Tensor) -> Tensor:
        leaves = self.forest._labels(x) + self.forest.layout.tree_leaves[:-1]
        return self.clusters[leaves].to(torch.int64)

    def _described(self) -> str:
        return f"{counted(self.num_partitions, 'tree')} cut into {ranged(self.counts.tolist())} clusters"

    def __deepcopy__(self, memo: dict[int, Any]) -> Partition:
        new = super().__deepcopy__(memo)
        new._modules = {"forest": deepcopy(self.forest, memo)}
        return new


def _warn_of_codes(column: int, values: Tensor, least: Tensor) -> None:
    if len(values.unique()) > 2:
        warnings.warn(
            f"column {column} has only values below {least:g}, the least category that the trees of this kernel know, "
            "which tell none apart: give the levels themselves if the ensemble was fitted to a frame, not their codes",
            stacklevel=level_of_caller(),
        )


def _with_missing_as_zero(x: Tensor) -> Tensor:
    return decode_missing(x).nan_to_num(posinf=torch.inf, neginf=-torch.inf)


def _checked_depths(forest: ForestPartition, depths: Tensor | None) -> Tensor:
    if not forest.is_fitted:
        raise RuntimeError("TreeCutPartition expected a fitted ForestPartition: load its state first.")
    shape = (forest.num_partitions,)
    if not isinstance(depths, Tensor) or depths.dtype != torch.int64 or depths.shape != shape:
        got = f"{depths.dtype} of shape {tuple(depths.shape)}" if isinstance(depths, Tensor) else depths
        raise ValueError(f"expected one depth per tree (int64 of shape {shape}), got {got}.")
    if depths.min() < 0:
        raise ValueError(f"expected depths of 0 or more, got {int(depths.min())}.")
    return depths
