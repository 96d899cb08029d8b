"""The random forest kernel: how often two points share a leaf, or a node, of an ensemble's trees."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any, cast

import torch
from torch import Tensor

from gpytorch_partition.clusters.cluster_index import ClusterSizes
from gpytorch_partition.clusters.tree_layout import (
    height_average_weights,
    impurity_decrease_weights,
    softmax_node_weights,
)
from gpytorch_partition.descriptions import listed
from gpytorch_partition.kernels.partition_kernel import Logits, PartitionKernel, training_points
from gpytorch_partition.kernels.seen_targets import OVERCONFIDENT, OverconfidenceWarning, SeenTargets, is_unsupervised
from gpytorch_partition.operators.cluster_operators.cluster_operator import ClusterOperator, FlatLinearOperator
from gpytorch_partition.operators.cluster_operators.path_sum_linear_operator import PathSumLinearOperator
from gpytorch_partition.partitions.ensembles import array_trees, trees_of
from gpytorch_partition.partitions.forest import ForestPartition, TreeCutPartition
from gpytorch_partition.partitions.grown_forest import grow_forest

HEIGHTS = ("all", "sampled", "leaf", "learned", "impurity")
_MOST_HEIGHTS = 2**31  # no tree is as high

# The weight of a node whose split removed no impurity, as a share of its tree's impurity. On four regression sets
# (1,200 rows, 100 trees of grow_forest) floors of 0 to .03 gave mean predictive densities within .007 nats.
_IMPURITY_FLOOR = 0.01


class _Heights(torch.nn.Module):
    """Hold a name of `HEIGHTS` as its number there, or a depth as what follows."""

    def __init__(self, heights: str | int) -> None:
        super().__init__()
        is_depth = isinstance(heights, Integral) and not isinstance(heights, bool) and 0 <= heights < _MOST_HEIGHTS
        if not is_depth and not (isinstance(heights, str) and heights in HEIGHTS):
            raise ValueError(f"expected heights to be one of {HEIGHTS}, or a depth from 0 on, got {heights!r}")
        self.code: Tensor
        code = len(HEIGHTS) + int(heights) if is_depth else HEIGHTS.index(cast(str, heights))
        self.register_buffer("code", torch.tensor(code))


def _heights_of(code: Tensor) -> str | int:
    depth = int(code) - len(HEIGHTS)
    return depth if depth >= 0 else HEIGHTS[depth]


class RandomForestKernel(PartitionKernel):
    r"""
    Compare points by the share of tree nodes that they have in common (Davies & Ghahramani 2014, section 4.3.1).

    Use it first if rows have targets, columns have any units, and it is unknown which columns matter.

    A tree is a nested partition; `heights` selects the levels at which points are compared:

    - `"all"`: the exact average of algorithm 1 over :math:`d \sim U\{0 \ldots h\}`, h the depth of the tree: :math:`k =
      (\mathrm{depth}(\text{last common node}) + 1) / (h + 1)`, 1 within a leaf.
    - `"sampled"`: algorithm 1 itself, one height drawn per tree.
    - `"leaf"`: the leaves only.
    - A number d: the nodes of depth d, from 0, and leaves above; the root has depth 0 (section 4.1.2).
    - `"learned"`: as `"all"` with a trained distribution of d, :attr:`level_weights`, uniform at first: :math:`u_d
      \propto e^{l_d}` for the heights :math:`0 \ldots h` of each tree.
    - `"impurity"`: a node has the weight :math:`\max(i_{\text{parent}} - i, 0) / i_{\text{root}} + .01`, with the
      impurity i that the ensemble keeps: for regression trees the variance of the targets in the node. k(x, x) is then
      about the share of the variance that the trees explain.

    All elements of a `batch_shape` share trained weights. An ordinary bootstrap forest, fitted on the targets of the
    Gaussian process, would make it overconfident (docs/papers.md), so trees see few targets by default:
    :func:`~gpytorch_partition.partitions.grow_forest` has the parameters not listed here, with errors and costs.

    :param train_x: `N x D` rows to grow the forest on. (Default: None; `load_state_dict` takes over `heights` too.)
    :param train_y: `N` (or `N x k`) targets.
    :param num_trees: Number m of trees. (Default: 200.)
    :param heights: `"all"`, `"sampled"`, `"leaf"`, `"learned"`, `"impurity"` or a depth. (Default: `"all"`.)
    :param categories: Numbers of columns (of those in `active_dims`, if given, counted among them) that hold codes 0
        ... C - 1 of categories, as :class:`~gpytorch_partition.tables.TableEncoder` makes them. (Default: none.)
    :param sample_weight: `N` weights of the rows in the choice of splits; the kernel itself has none, but noise may
        (:class:`~gpytorch_partition.likelihoods.WeightedGaussianLikelihood`). (Default: None.)
    :param random_state: As in :class:`~gpytorch_partition.PartitionKernel`, and so are `batch_shape` and `active_dims`.
    :raises ValueError: If `heights` is unknown, only one of rows and targets is given, or a value cannot be used.

    Example:
        >>> x = torch.linspace(0, 1, 200).unsqueeze(-1)
        >>> kernel = RandomForestKernel(x, (x[:, 0] > 0.5).float(), num_trees=50, random_state=0)
        >>> similarity = kernel(x).to_dense()
        >>> bool(similarity[90, 99] > similarity[99, 110])  # a step of the targets between them
        True
    """

    partition: ForestPartition | TreeCutPartition
    has_seen_targets, widens_far_away = True, False
    _instead_of_lengthscale = (
        "how far points look alike is set by the size of leaves, min_samples_leaf, and by how much each level of the "
        'trees counts, heights="learned"'
    )

    def __init__(
        self,
        train_x: Tensor | None = None,
        train_y: Tensor | None = None,
        num_trees: int = 200,
        heights: str | int = "all",
        *,
        max_samples: float | int | None = None,
        min_samples_leaf: int = 3,
        max_features: float | int = 1 / 3,
        categories: Sequence[int] = (),
        sample_weight: Tensor | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        batch_shape: torch.Size | tuple[int, ...] = (),
        active_dims: tuple[int, ...] | None = None,
    ) -> None:
        heights_state = _Heights(heights)
        if (train_x is None) != (train_y is None):
            raise ValueError("expected both train_x and train_y, or neither for an unfitted kernel, got one of them")
        points, forest = training_points(train_x, active_dims), None
        if points is not None and train_y is not None:
            forest = grow_forest(
                points,
                train_y,
                num_trees=num_trees,
                max_samples=max_samples,
                min_samples_leaf=min_samples_leaf,
                max_features=max_features,
                categories=categories,
                sample_weight=sample_weight,
                random_state=random_state,
                n_jobs=n_jobs,
            )
        partition = _partition_of(forest, heights, random_state)
        super().__init__(partition, batch_shape=batch_shape, active_dims=active_dims)
        self._heights = heights_state
        self._seen: SeenTargets | None = None  # until the rows of a training are compared with it; not saved
        self._set_logits()
        self._remember(train_x)

    @classmethod
    def from_forest(
        cls,
        forest: Any,
        heights: str | int = "all",
        *,
        random_state: Any = None,
        batch_shape: torch.Size | tuple[int, ...] = (),
        active_dims: tuple[int, ...] | None = None,
    ) -> RandomForestKernel:
        """
        Build the kernel of a fitted tree ensemble. Costs :math:`O(V)` for the V nodes of its trees.

        A Gaussian process that is trained by marginal likelihood on the targets of the trees takes noise for signal,
        unless trees are shallow; an :class:`OverconfidenceWarning` says so.
        :func:`gpytorch_partition.presets.ensemble_model` chooses by held-out rows instead. Weights of trees (AdaBoost,
        and DART of XGBoost) are those of the kernel; k(x, x) stays 1.

        :param forest: A fitted ensemble, as :class:`~gpytorch_partition.partitions.ForestPartition` reads it. With
            `active_dims` it must have been fitted on these columns only.
        :param heights: As for the class, and so are `random_state`, `batch_shape` and `active_dims`.
        :raises ValueError: As :class:`~gpytorch_partition.partitions.ForestPartition`, and if `heights` is `"impurity"`
            and the ensemble keeps no impurities (only scikit-learn's decision trees do).

        Example:
            >>> from sklearn.tree import DecisionTreeRegressor
            >>> tree = DecisionTreeRegressor(max_leaf_nodes=2).fit([[0.0], [1.0], [2.0]], [0.0, 0.0, 1.0])
            >>> RandomForestKernel.from_forest(tree, "leaf")(torch.tensor([[0.5], [1.0], [1.6]])).to_dense()[0]
            tensor([1., 1., 0.])
        """
        kernel = cls(heights=heights, batch_shape=batch_shape, active_dims=active_dims)
        trees = trees_of(forest)
        kernel.partition = _partition_of(trees, heights, random_state, type(forest).__name__)
        kernel.has_seen_targets = not is_unsupervised(forest)
        kernel._seen = SeenTargets.of(forest, trees, kernel._forest)
        kernel._set_logits()
        return kernel

    @classmethod
    def from_arrays(
        cls,
        trees: Iterable[tuple[Any, Any, Any]],
        num_columns: int,
        heights: str | int = "all",
        *,
        weights: Sequence[float] | None = None,
        **options: Any,
    ) -> RandomForestKernel:
        """
        Build the kernel of trees of any program from arrays, in :math:`O(V)` for V nodes.

        The arrays, and splits of two children or more, are those of
        :func:`~gpytorch_partition.partitions.ensembles.array_trees`. All children of a node are one level below it.
        Nothing warns if the trees have seen the targets, which is not known.

        :param heights: As for the class, except `"impurity"`.
        :param options: `random_state`, `batch_shape` and `active_dims`, as for the class.

        Example:
            >>> children = [[1, 2, 3], [-1, -1, -1], [-1, -1, -1], [-1, -1, -1]]  # a root with three leaves
            >>> tree = children, [0, 0, 0, 0], [[0.5, 1.5], [0, 0], [0, 0], [0, 0]]
            >>> kernel = RandomForestKernel.from_arrays([tree], num_columns=1)
            >>> kernel(torch.tensor([[0.0], [1.0], [1.2], [2.0]])).to_dense()[1]
            tensor([0.5000, 1.0000, 1.0000, 0.5000])
        """
        return cls.from_forest(array_trees(trees, num_columns, weights=weights), heights, **options)

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Any:
        covariance = super().forward(x1, x2, diag=diag, **params)
        # Gradients are enabled in a training; code that only compares rows may call in training mode as well.
        if self._seen is not None and self.training and torch.is_grad_enabled() and x1.shape == x2.shape:
            seen, self._seen, x = self._seen, None, self._active(x1.detach())
            if x.dim() == 2 and torch.equal(x1, x2) and seen.are_those_of(x, self._forest):
                warnings.warn(OVERCONFIDENT, OverconfidenceWarning, stacklevel=2)
        return covariance

    def _set_logits(self) -> None:
        self.logits, forest = Logits(), self._forest
        if self.heights == "learned":
            num_levels = int(forest.layout.heights.max()) + 1 if forest.is_fitted else 0
            self.logits.set("raw_level_weights", self.unit.new_zeros(num_levels))

    @property
    def heights(self) -> str | int:
        return _heights_of(self._heights.code)

    @property
    def raw_level_weights(self) -> torch.nn.Parameter | None:
        return self.logits.get("raw_level_weights")

    @property
    def level_weights(self) -> Tensor | None:
        """Return trained weights of heights 0 ... H (`H + 1`, float64), rescaled in lower trees; None if untrained."""
        return self.logits.weights("raw_level_weights")

    @level_weights.setter
    def level_weights(self, weights: Any) -> None:
        self.logits.write("raw_level_weights", weights)

    @property
    def tree_weights(self) -> Tensor:
        """Return the weight that the ensemble gives each tree (`m`, float64), 1 on average."""
        return self._forest.weights

    def _described(self) -> str:
        told, levels = f"{super()._described()}, heights={self.heights!r}", self.level_weights
        return told if levels is None else f"{told}, level weights {listed(levels.tolist())}"

    def _cluster_operator(self, sizes: ClusterSizes, like: Tensor) -> ClusterOperator:
        """S: path sums of the weights of nodes, or the trees' shares for flat partitions."""
        forest, shares, nodes = self._forest, self.tree_weights / self.num_partitions, self._node_weights()
        if nodes is not None:
            return PathSumLinearOperator((nodes * forest.layout.of_node(shares)).to(like), layout=forest.layout)
        if (shares == shares[0]).all():
            return super()._cluster_operator(sizes, like)
        weights = shares.repeat_interleave(self.partition.cluster_counts).to(like)
        return FlatLinearOperator(weights, num_clusters=len(weights))

    def _node_weights(self) -> Tensor | None:
        """Weights of the nodes of each tree (`V`, float64); None for flat partitions."""
        forest, logits = self._forest, self.raw_level_weights
        if logits is not None:
            return softmax_node_weights(forest.layout, logits.double())
        if self.heights == "impurity":
            impurities = cast(Tensor, forest.impurities).double()
            return impurity_decrease_weights(forest.layout, impurities, _IMPURITY_FLOOR)
        return height_average_weights(forest.layout) if self.heights == "all" else None

    @property
    def _forest(self) -> ForestPartition:
        partition = self.partition
        return partition.forest if isinstance(partition, TreeCutPartition) else partition

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        code = state_dict.get(prefix + "_heights.code")
        if code is not None and not self._prepare(RandomForestKernel(heights=_heights_of(code)), state_dict, prefix):
            del state_dict[prefix + "_heights.code"]  # incomplete, and reported as such
        super()._load_from_state_dict(state_dict, prefix, *args)

    def _prepare(self, twin: RandomForestKernel, state_dict: dict[str, Any], prefix: str) -> bool:
        """Make room for the state of a kernel of the same kind as an unfitted twin, if that state is complete."""
        if not twin._is_whole(state_dict, prefix):
            return False
        if type(twin.partition) is not type(self.partition):
            self.partition = twin.partition.to(self.unit.device)
        if twin.logits.state_dict().keys() != self.logits.state_dict().keys():
            self.logits = twin.logits.to(self.unit)
        return True


def _partition_of(
    forest: Any, heights: str | int, random_state: Any, name: str = "forest"
) -> ForestPartition | TreeCutPartition:
    partition = ForestPartition(forest)
    if heights == "sampled":
        return partition.sample_cut(random_state) if partition.is_fitted else TreeCutPartition()
    if not isinstance(heights, str):
        depths = torch.full((partition.num_partitions,), heights)
        return partition.cut(depths) if partition.is_fitted else TreeCutPartition()
    if heights == "impurity" and partition.is_fitted and partition.impurities is None:
        raise ValueError(
            f'heights="impurity" expected an ensemble that keeps the impurity of its nodes, which {name} does not: '
            'use "all", or "learned", or a forest, extra-trees or gradient boosting of scikit-learn'
        )
    return partition
