"""Saved tables of a forest: that nodes are binary trees, and that what is looked up at a node is there."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from gpytorch_partition.clusters.tree_layout import lay_out_trees
from gpytorch_partition.inputs.bits import floats_of
from gpytorch_partition.inputs.saved_tables import are_finite, are_starts, check_saved, has_shape, is_empty_or, lies_in

_OF_NODES = ("missing_left", "category_set", "impurity", "is_auxiliary")  # empty where a forest has none


def check_trees(owner: object, tables: Mapping[str, Tensor]) -> None:
    """
    Check the tables of a :class:`~gpytorch_partition.partitions.ForestPartition`: :math:`O(V)` for V nodes.

    :param owner: The partition.
    :param tables: Its buffers, by name.
    :raises RuntimeError: If nodes are not binary trees, or a table is not as long as it should be, or refers to what is
        not there.
    """
    _check_nodes(owner, tables)
    _check_links(owner, tables["child_nodes"].to(torch.int64), tables["tree_nodes"], tables["is_auxiliary"])
    _check_categories(owner, tables)
    _check_levels(owner, tables)


def _check_nodes(owner: object, tables: Mapping[str, Tensor]) -> None:
    size, num_trees = len(tables["feature"]), len(tables["tree_nodes"]) - 1
    check_saved(are_starts(tables["tree_nodes"], size), owner, "the first nodes of its trees")
    check_saved((tables["tree_nodes"].diff() % 2 == 1).all(), owner, "trees with one leaf more than inner nodes")
    check_saved(has_shape(tables["num_columns"], 1), owner, "a number of columns")
    check_saved(lies_in(tables["feature"], 0, int(tables["num_columns"])), owner, "columns that it has")
    check_saved(has_shape(tables["threshold"], size), owner, "a threshold for each node")
    check_saved(~floats_of(tables["threshold"].contiguous()).isnan().any(), owner, "thresholds that are numbers")
    check_saved(has_shape(tables["child_nodes"], size, 2), owner, "two children for each node")
    for name in _OF_NODES:
        check_saved(is_empty_or(tables[name], size), owner, f"{name} for each node or for none")
    check_saved(are_finite(tables["impurity"]), owner, "finite impurities")
    weights = floats_of(tables["tree_weights"].contiguous())
    is_right = has_shape(weights, num_trees) and bool(weights.isfinite().all() & (weights >= 0).all())
    check_saved(is_right, owner, "a weight of 0 or more for each tree")
    check_saved(is_empty_or(tables["zero_is_missing"], int(tables["num_columns"])), owner, "a flag for each column")


def _check_links(owner: object, children: Tensor, tree_nodes: Tensor, is_auxiliary: Tensor) -> None:
    """
    Each node but the roots is the child of one inner node of its tree, and each leaf is reached from a root.

    No node is then reached twice, so that going down ends; and a cycle, which has leaves below it, is not reached.
    """
    size, expected = len(children), "nodes that are binary trees"
    check_saved(lies_in(children, 0, size), owner, expected)
    nodes, (left, right) = torch.arange(size, device=children.device), children.unbind(1)
    is_leaf = left == nodes
    check_saved((is_leaf == (right == nodes)).all(), owner, expected)
    below = children[~is_leaf]
    tree = torch.arange(len(tree_nodes) - 1, device=children.device).repeat_interleave(tree_nodes.diff())
    check_saved((tree[below] == tree[~is_leaf].unsqueeze(-1)).all(), owner, "children in the trees of their parents")
    is_child = torch.bincount(below.reshape(-1), minlength=size)
    is_child[tree_nodes[:-1]] += 1
    check_saved((is_child == 1).all(), owner, expected)
    num_reached = int(lay_out_trees(left, right, tree_nodes).tree_leaves[-1])
    check_saved(num_reached == int(is_leaf.sum()), owner, expected)
    if is_auxiliary.numel():
        check_saved(
            ~(is_auxiliary & is_leaf).any() & ~is_auxiliary[tree_nodes[:-1]].any(), owner, "inner auxiliary nodes"
        )


def _check_categories(owner: object, tables: Mapping[str, Tensor]) -> None:
    sets, starts, bounds = (tables[f"category_{name}"] for name in ("sets", "starts", "bounds"))
    check_saved(lies_in(tables["category_set"], -1, len(sets)), owner, "sets of categories that it has")
    if not sets.numel():
        return
    check_saved(has_shape(starts, int(tables["num_columns"]) + 1), owner, "ranges of categories for each column")
    check_saved(are_starts(starts, len(bounds)), owner, "ranges of categories for each column")
    values = floats_of(bounds.contiguous())
    rises = values[1:] > values[:-1]
    begins = starts[(starts > 0) & (starts < len(bounds))]
    check_saved(
        ~values.isnan().any() and (rises.index_fill(0, begins - 1, True)).all(), owner, "rising bounds of categories"
    )


def _check_levels(owner: object, tables: Mapping[str, Tensor]) -> None:
    places, starts = tables["level_places"], tables["level_starts"]
    if starts.numel():
        num_trees = len(tables["tree_nodes"]) - 1
        check_saved(has_shape(starts, int(tables["num_columns"]) + 1), owner, "levels of each column")
        check_saved(
            are_starts(starts, places.shape[1]) and len(places) == num_trees, owner, "places of levels in each tree"
        )
        check_saved(lies_in(places, 0, max(1, places.shape[1])), owner, "places of levels")
    else:
        check_saved(not places.numel(), owner, "places of levels with their starts")
