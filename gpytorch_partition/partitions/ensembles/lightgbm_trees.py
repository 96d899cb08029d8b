"""The reader of LightGBM's trees, which compare in float64, from its text format."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpytorch_partition.partitions.ensembles.tree_arrays import (
    ENCODE,
    ZERO,
    Tree,
    Trees,
    check_fitted,
    joined,
    testing_levels,
    whole_number_categories,
)

# Bits of a node's `decision_type`.
_CATEGORY_BIT = 1  # mask: the node tests categories
_DEFAULT_LEFT_BIT = 2  # mask: missing values go left
_MISSING_SHIFT = 2  # number of the first of the two bits that hold the kind of missing values
_ZERO_IS_MISSING = 1  # a kind of missing values
_NAN_IS_MISSING = 2  # a kind of missing values


def lightgbm_trees(model: Any) -> Trees:
    """
    Read the trees that the `predict` of a LightGBM model uses: those up to the best iteration, if it stopped early.

    Leaf j of a tree with L leaves has the node number L - 1 + j. Shrinkage and the weights of DART are in the values of
    the leaves, so all trees have equal weights. Missing values go where LightGBM sends them, and so do zeros with
    `zero_as_missing`. Categories are numbers truncated to integers; unknown, negative or missing ones go right.
    """
    if hasattr(model, "get_params"):
        check_fitted(model, hasattr(model, "booster_"))
        model = model.booster_
    header, *texts = re.split(r"^Tree=\d+\n", model.model_to_string(), flags=re.MULTILINE)
    num_columns = int(_fields(header)["max_feature_idx"]) + 1
    fields = [_fields(text) for text in texts]
    trees = [_tree(tree) for tree in fields]
    trees = testing_levels(trees, _level_tables(model.pandas_categorical, _fields(header)))
    found = joined(
        trees,
        num_columns,
        # LightGBM truncates toward zero, so that numbers above -1 are category 0.
        categories=whole_number_categories(trees, num_columns, on_left=True, zero_begins=np.nextafter(-1.0, 0.0)),
        zero_is_missing=_zero_is_missing(fields, num_columns),
    )
    # Of inner nodes, then of leaves, as the nodes are numbered.
    counts = [_numbers(tree, name) for tree in fields for name in ("internal_count", "leaf_count")]
    count = np.concatenate(counts)
    return found._replace(num_rows=count) if len(count) == len(found.column) else found


def _fields(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.split("\n\n", 1)[0].splitlines() if "=" in line)


def _numbers(fields: dict[str, str], name: str, kind: type = int) -> NDArray[Any]:
    return np.array([*map(kind, fields.get(name, "").split())], np.int64 if kind is int else np.float64)


def _tree(fields: dict[str, str]) -> Tree:
    """Inner nodes first, then the leaves: child -1 is leaf 0, -2 is leaf 1, ..."""
    num_leaves = int(fields["num_leaves"])
    num_inner = num_leaves - 1
    kind = _numbers(fields, "decision_type")[:num_inner]
    children = np.stack([_numbers(fields, name)[:num_inner] for name in ("left_child", "right_child")], 1)
    children = np.where(children < 0, num_inner + ~children, children)
    written = _numbers(fields, "threshold", float)[:num_inner]
    is_category, threshold = kind & _CATEGORY_BIT > 0, _around_zero(written)
    # In columns without missing values LightGBM takes NaN for 0.
    missing_left = np.where(kind >> _MISSING_SHIFT > 0, kind & _DEFAULT_LEFT_BIT > 0, threshold >= 0) & ~is_category
    return Tree(
        np.concatenate([children, np.full((num_leaves, 2), -1)]),
        _padded(_numbers(fields, "split_feature")[:num_inner], num_leaves),
        _padded(threshold, num_leaves),
        _padded(missing_left, num_leaves),
        _categories(fields, np.flatnonzero(is_category), written),
    )


def level_tables(booster: Any) -> dict[int, list[Any]]:
    """Return the levels of each column of categories of the data frame that a LightGBM booster was fitted to."""
    return _level_tables(booster.pandas_categorical, _fields(booster.model_to_string(num_iteration=1)))


def _level_tables(tables: list[list[Any]] | None, header: dict[str, str]) -> dict[int, list[Any]]:
    """Return the levels of columns of categories, which LightGBM keeps without columns; an error if unclear whose."""
    if all(list(table) == [*range(len(table))] for table in tables or []):
        return {}
    infos = header["feature_infos"].split()
    columns = [column for column, info in enumerate(infos) if info[0] not in "[n"]
    most_codes = max(map(len, tables or []))
    if len(columns) != len(tables or []) or any(_may_be_codes(info, most_codes) for info in infos):
        raise ValueError(
            "expected a data frame whose categories LightGBM can tell from its other columns, got constant or ordered "
            f"ones, or whole numbers from 0: {ENCODE}"
        )
    return dict(zip(columns, tables or []))


def _may_be_codes(info: str, most_codes: int) -> bool:
    """Return whether a column, by LightGBM's text, may have been ordered categories, numbers for LightGBM."""
    if not info.startswith("["):
        return info == "none"
    low, high = map(float, info[1:-1].split(":"))
    return low >= -1 and high < most_codes and low.is_integer() and high.is_integer()


def _padded(values: NDArray[Any], num_leaves: int) -> NDArray[Any]:
    return np.concatenate([values, np.zeros(num_leaves, values.dtype)])


def _around_zero(threshold: NDArray[np.float64]) -> NDArray[np.float64]:
    """Thresholds that treat values from -`ZERO` to `ZERO` as 0, to which LightGBM rounds them before it compares."""
    threshold = np.where((threshold >= -ZERO) & (threshold < 0), np.nextafter(-ZERO, -np.inf), threshold)
    return np.where((threshold >= 0) & (threshold < ZERO), ZERO, threshold)


def _categories(
    fields: dict[str, str], nodes: NDArray[np.int64], threshold: NDArray[np.float64]
) -> dict[int, NDArray[np.int64]]:
    """Categories that go left, by node; the "threshold" of these nodes is the number of a set of bits."""
    starts, words = _numbers(fields, "cat_boundaries"), _numbers(fields, "cat_threshold").astype(np.uint32)
    sets = {int(node): words[starts[int(threshold[node])] : starts[int(threshold[node]) + 1]] for node in nodes}
    return {node: np.flatnonzero(np.unpackbits(bits.view(np.uint8), bitorder="little")) for node, bits in sets.items()}


def _zero_is_missing(trees: list[dict[str, str]], num_columns: int) -> NDArray[np.bool_]:
    found = np.zeros((3, num_columns), bool)
    for fields in trees:
        kind = _numbers(fields, "decision_type")
        found[kind >> _MISSING_SHIFT, _numbers(fields, "split_feature")] |= kind & _CATEGORY_BIT == 0
    both = np.flatnonzero(found[_ZERO_IS_MISSING] & found[_NAN_IS_MISSING])
    if len(both):
        raise ValueError(
            "expected one kind of missing values per column, got NaN in some trees and zero in others in column "
            f"{both[0]}: train all with the same zero_as_missing"
        )
    return found[_ZERO_IS_MISSING]
