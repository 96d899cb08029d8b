"""A check whether a Gaussian process is trained on targets that the trees of its kernel have fitted closely."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.ensemble import BaggingClassifier, BaggingRegressor, IsolationForest, RandomTreesEmbedding
from sklearn.ensemble._forest import BaseForest
from sklearn.ensemble._weight_boosting import BaseWeightBoosting
from sklearn.tree import BaseDecisionTree
from torch import Tensor

from gpytorch_partition.partitions.ensembles import Trees
from gpytorch_partition.partitions.forest import ForestPartition

_SIDE_BY_SIDE = (BaseForest, BaggingClassifier, BaggingRegressor, BaseWeightBoosting, BaseDecisionTree)
# Leaves per row above which 90 % intervals covered less than 85 % on noisy data (five sets, 20 ensembles): of each tree
# where trees are grown side by side, or are split at random among few columns; of all trees together in boosting.
_MOST_LEAVES_OF_A_TREE = 1 / 15
_MOST_LEAVES_AT_RANDOM = 0.5
_MOST_LEAVES_OF_ALL = 0.5
_ROUNDING = 0.01  # of the number of rows
_FEW = 0.02  # share of leaves that may hold fewer rows than in the ensemble
OVERCONFIDENT = (
    "the trees of this kernel have closely fitted the targets that a Gaussian process is being trained on: if these "
    "are noisy, the marginal likelihood takes noise for signal, and 90 % intervals cover 40 to 85 %. Give the ensemble "
    "to PartitionGPRegressor(kernel=ensemble), or to ensemble_model of gpytorch_partition.presets, which choose scale "
    "and noise by clones of it in folds; train on rows that the ensemble has not seen; or use "
    "RandomForestKernel(train_x, train_y), whose trees see small subsamples."
)


class OverconfidenceWarning(UserWarning):
    """
    Warn that intervals of a Gaussian process with this kernel are too narrow if the targets are noisy.

    For a tree ensemble: give it to `PartitionGPRegressor(kernel=ensemble)`, or train on rows that it has not seen. For
    fast clusters of a single column: give the smaller `height` of largest marginal likelihood.
    """


class SeenTargets(NamedTuple):
    """Hold facts by which to recognize the rows that an ensemble was fitted to, if its trees fit targets closely."""

    num_rows: int | None  # None if the ensemble does not record it
    leaf_counts: Tensor | None  # (p,) distinct rows in the leaves, at least; None if not recorded
    leaves: float  # of a tree, or of all
    most_leaves: float  # per row, above which the trees fit closely

    @classmethod
    def of(cls, ensemble: Any, trees: Trees, partition: ForestPartition) -> SeenTargets | None:
        """Read the facts from a fitted ensemble; None for trees grown without targets, or known only as arrays."""
        if isinstance(ensemble, Trees) or is_unsupervised(ensemble):
            return None
        counts = partition.cluster_counts
        is_boosted, share = not isinstance(ensemble, _SIDE_BY_SIDE), 1.0
        most, leaves = _MOST_LEAVES_OF_A_TREE, float(counts.double().mean())
        if is_boosted:
            share = float(getattr(ensemble, "subsample", None) or 1.0)
            most, leaves = _MOST_LEAVES_OF_ALL, float(counts.sum()) * share
        elif _hardly_looks(ensemble):
            most = _MOST_LEAVES_AT_RANDOM
        nodes = np.repeat(trees.tree_nodes[:-1], counts.numpy()) + partition.leaf_ids.numpy()
        leaf_counts = None if trees.num_rows is None else torch.from_numpy(trees.num_rows[nodes].astype(np.int64))
        num_rows = getattr(ensemble, "_n_samples", None)
        if num_rows is None and trees.num_rows is not None:
            num_rows = round(int(trees.num_rows[trees.tree_nodes[:-1]].max()) / share)
        return cls(num_rows, leaf_counts, leaves, most)

    def are_those_of(self, x: Tensor, partition: ForestPartition) -> bool:
        """Return whether trees were fitted, closely, to these rows (`N x D`), by which leaves are then as full."""
        if self.num_rows is not None and abs(len(x) - self.num_rows) > _ROUNDING * self.num_rows + 1:
            return False
        if self.leaves <= self.most_leaves * len(x):
            return False
        labels, sizes = partition.labels(x), partition.cluster_counts
        starts = torch.cumsum(sizes, 0) - sizes
        found = torch.bincount((labels + starts.to(labels)).flatten(), minlength=int(sizes.sum())).cpu()
        least = torch.ones_like(found) if self.leaf_counts is None else self.leaf_counts
        return bool((found < least).double().mean() <= _FEW)


def is_unsupervised(ensemble: Any) -> bool:
    return isinstance(ensemble, (IsolationForest, RandomTreesEmbedding))


def _hardly_looks(ensemble: Any) -> bool:
    members = getattr(ensemble, "estimators_", None)
    member = ensemble if members is None else np.asarray(members, dtype=object).ravel()[0]
    is_random = getattr(member, "splitter", None) == "random"
    return is_random and 2 * getattr(member, "max_features_", np.inf) <= member.n_features_in_
