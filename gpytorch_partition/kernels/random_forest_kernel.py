"""The random forest kernel."""

from __future__ import annotations

from typing import Any, cast

import torch
from linear_operator.operators import DiagLinearOperator
from torch import Tensor

from gpytorch_partition.kernels.partition_kernel import PartitionKernel, training_points
from gpytorch_partition.operators.partition_linear_operator import ClusterOperator
from gpytorch_partition.operators.path_sum_linear_operator import PathSumLinearOperator
from gpytorch_partition.partitions.forest import ForestPartition, TreeCutPartition, grow_forest
from gpytorch_partition.partitions.levels import height_average_weights

HEIGHTS = ("all", "sampled", "leaf")


class _Heights(torch.nn.Module):
    """Which heights of the trees a kernel averages over, as state."""

    def __init__(self, heights: str) -> None:
        super().__init__()
        if heights not in HEIGHTS:
            raise ValueError(f"expected heights to be one of {HEIGHTS}, got {heights!r}")
        self.code: Tensor
        self.register_buffer("code", torch.tensor(HEIGHTS.index(heights)))

    @property
    def name(self) -> str:
        return HEIGHTS[int(self.code)]


class RandomForestKernel(PartitionKernel):
    r"""
    The random forest kernel (Davies & Ghahramani 2014, section 4.3.1): how often two points share a node of a tree.

    A tree is a nested partition; `heights` says at which of its levels points are compared:

    - `"all"`: the exact average of algorithm 1 over :math:`d \sim U\{0 \ldots h\}`, h the depth of the tree:
      :math:`k = (\mathrm{depth}(\text{last common node}) + 1) / (h + 1)`, 1 within a leaf. It has several times less
      variance per tree than one sampled height.
    - `"sampled"`: algorithm 1 itself, one height drawn per tree.
    - `"leaf"`: the leaves only.

    The kernel is fitted on the targets that the Gaussian process is then trained on. With an ordinary bootstrap forest
    that makes the process overconfident (90 % intervals that cover 70 to 85 % on noisy data); the defaults are
    therefore extremely randomized trees, each grown on a small subsample of the rows drawn without replacement,
    with leaves of a few rows.

    Growing costs what :func:`~gpytorch_partition.partitions.grow_forest` says, labelling N rows :math:`O(N m h)`. Held
    are some 50 to 70 bytes per node of the trees and 8 per (row, tree).

    :param train_x: `N x D` rows to grow the forest on. (Default: None, an unfitted kernel for `load_state_dict`,
        which also takes over `heights`.)
    :param train_y: `N` (or `N x k`) targets.
    :param num_trees: Number m of trees. (Default: 200.)
    :param heights: `"all"`, `"sampled"` or `"leaf"`. (Default: `"all"`.)
    :param max_samples: Rows of each tree, as in :func:`~gpytorch_partition.partitions.grow_forest`.
        (Default: None, 20 % of N, but at most 20,000.)
    :param min_samples_leaf: Fewest rows of a tree's subsample in a leaf. (Default: 3.)
    :param max_features: Columns tried at each split, as in :func:`~gpytorch_partition.partitions.grow_forest`.
        (Default: 1/3.)
    :param random_state: Seed (int, :class:`numpy.random.RandomState` or None) of the trees and the sampled heights.
    :param n_jobs: Trees grown at once, as scikit-learn counts them. (Default: None, one.)
    :param batch_shape: Batch shape of the kernel. (Default: none.)
    :param active_dims: Columns of x that the trees see. (Default: all.)
    :raises ValueError: If `heights` is unknown, only one of rows and targets is given, they do not match, are empty or
        not finite, or another option cannot be used.

    Example:
        >>> x = torch.linspace(0, 1, 200).unsqueeze(-1)
        >>> kernel = RandomForestKernel(x, (x[:, 0] > 0.5).float(), num_trees=50, random_state=0)
        >>> similarity = kernel(x).to_dense()
        >>> bool(similarity[90, 99] > similarity[99, 110])  # a step of the targets between them
        True
    """

    def __init__(
        self,
        train_x: Tensor | None = None,
        train_y: Tensor | None = None,
        num_trees: int = 200,
        heights: str = "all",
        *,
        max_samples: float | int | None = None,
        min_samples_leaf: int = 3,
        max_features: float | int = 1 / 3,
        random_state: Any = None,
        n_jobs: int | None = None,
        batch_shape: torch.Size | tuple[int, ...] = (),
        active_dims: tuple[int, ...] | None = None,
    ) -> None:
        heights_state = _Heights(heights)
        if (train_x is None) != (train_y is None):
            raise ValueError("expected both training inputs and targets, or neither for an unfitted kernel")
        forest = None
        if train_x is not None and train_y is not None:
            points = training_points(train_x, active_dims)
            forest = grow_forest(
                points,
                train_y,
                num_trees=num_trees,
                max_samples=max_samples,
                min_samples_leaf=min_samples_leaf,
                max_features=max_features,
                random_state=random_state,
                n_jobs=n_jobs,
            )
        partition = _partition_of(forest, heights, random_state)
        super().__init__(partition, batch_shape=batch_shape, active_dims=active_dims)
        self._heights = heights_state

    @classmethod
    def from_forest(
        cls,
        forest: Any,
        heights: str = "all",
        *,
        random_state: Any = None,
        batch_shape: torch.Size | tuple[int, ...] = (),
        active_dims: tuple[int, ...] | None = None,
    ) -> RandomForestKernel:
        r"""
        The kernel of a fitted tree ensemble. Costs :math:`O(V)` for the V nodes of its trees.

        Where the ensemble weighs its trees (AdaBoost, and DART of XGBoost), so does the kernel; k(x, x) stays 1.

        :param forest: A fitted random forest, extra-trees, gradient boosting, histogram gradient boosting, AdaBoost or
            bagging of trees, isolation forest, random trees embedding, or single tree of scikit-learn; a `Booster` or
            estimator of LightGBM or XGBoost; a `CatBoost` or estimator of CatBoost
            (:class:`~gpytorch_partition.partitions.ForestPartition` says how each is read). With `active_dims` it must
            have been fitted on these columns only.
        :param heights: `"all"`, `"sampled"` or `"leaf"`. (Default: `"all"`.)
        :param random_state: Seed of the sampled heights, as above.
        :param batch_shape: Batch shape of the kernel. (Default: none.)
        :param active_dims: Columns of x that the trees see. (Default: all.)
        :raises TypeError: If it is anything else, or an ensemble of other things than trees.
        :raises ValueError: If it is not fitted or cannot be read, its categories are not numbers, or an option cannot
            be used.

        Example:
            >>> from sklearn.ensemble import ExtraTreesRegressor
            >>> forest = ExtraTreesRegressor(10, random_state=0).fit([[0.0], [1.0], [2.0]], [5.0, 5.0, 8.0])
            >>> RandomForestKernel.from_forest(forest, heights="leaf").num_partitions
            10
        """
        kernel = cls(heights=heights, batch_shape=batch_shape, active_dims=active_dims)
        kernel.partition = _partition_of(forest, heights, random_state)
        return kernel

    @property
    def heights(self) -> str:
        """Which heights are averaged over: `"all"`, `"sampled"` or `"leaf"`."""
        return self._heights.name

    def _cluster_operator(self, num_clusters: int, like: Tensor) -> ClusterOperator:
        """S: path sums of the height average's node weights, or the trees' shares for flat partitions."""
        forest = self._forest
        shares = forest.weights / self.num_partitions
        if self.heights == "all":
            weights = height_average_weights(forest.layout) * forest.layout.of_node(shares)
            return PathSumLinearOperator(weights.to(like), layout=forest.layout)
        if (shares == shares[0]).all():
            return super()._cluster_operator(num_clusters, like)
        counts = cast(Tensor, self.partition.cluster_counts)
        return DiagLinearOperator(shares.repeat_interleave(counts).to(like))

    @property
    def _forest(self) -> ForestPartition:
        """The whole trees."""
        partition = self.partition
        return partition.forest if isinstance(partition, TreeCutPartition) else cast(ForestPartition, partition)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Take over the saved kernel's heights, whose partitions are cut trees or whole ones."""
        code = state_dict.get(prefix + "_heights.code")
        if code is not None:
            is_cut = HEIGHTS[int(code)] == "sampled"
            if is_cut != isinstance(self.partition, TreeCutPartition):
                self._prepare(HEIGHTS[int(code)], state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def _prepare(self, heights: str, state_dict: dict[str, Any], prefix: str) -> None:
        """Make room for partitions of the other kind, if the state to be loaded has them whole."""
        partition = _partition_of(None, heights, None).to(self.unit.device)
        others = [name for name in self.state_dict() if not name.startswith("partition.")]
        expected = [*others, *(f"partition.{name}" for name in partition.state_dict())]
        if all(prefix + name in state_dict for name in expected):
            self.partition = partition


def _partition_of(forest: Any, heights: str, random_state: Any) -> ForestPartition | TreeCutPartition:
    """Whole or cut trees; unfitted ones without a forest."""
    if heights != "sampled":
        return ForestPartition(forest)
    return TreeCutPartition() if forest is None else ForestPartition(forest).sample_cut(random_state)
