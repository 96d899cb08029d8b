"""The base class of partition kernels, also the kernel of user-defined partitions, and weights that kernels train."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from linear_operator.operators import LinearOperator
from torch import Tensor

from gpytorch_partition.clusters.cluster_index import ClusterSizes
from gpytorch_partition.clusters.incidence import Incidence
from gpytorch_partition.inference.prediction.ensemble import KernelDiagnosis, diagnosis
from gpytorch_partition.inputs.kernel_columns import Columns
from gpytorch_partition.inputs.numbers import random_state_of, weights_of
from gpytorch_partition.kernels.cluster_kernel import ClusterKernel
from gpytorch_partition.operators.cluster_operators.cluster_operator import ClusterOperator, FlatLinearOperator
from gpytorch_partition.operators.partition_linear_operator import PartitionLinearOperator
from gpytorch_partition.partitions.functions import SampledPartition, partition_of
from gpytorch_partition.partitions.partition import Partition


class PartitionKernel(ClusterKernel):
    r"""
    Compare points by the share of m partitions in which they share a cluster (Davies & Ghahramani 2014, definition 2):

    .. math:: k(x, x') = \frac1m \sum_{r=1}^m 1[\varrho_r(x) = \varrho_r(x')]

    Use it when you have a program, labels or fitted clusterers that divide points. A product costs :math:`O(N m)`. The
    kernel has no hyperparameters: wrap it in a :class:`gpytorch.kernels.ScaleKernel` for an outputscale. It is
    piecewise constant, so requesting a gradient with respect to x is an error.

    :attr:`sum_dtype` is the dtype of sums over clusters, by default (None) that of the covariance. With float32, a
    float64 covariance is faster and right to 7 digits of its norm. It is not saved with the state.

    Kernels that draw at random take a `random_state`: an int, a :class:`numpy.random.RandomState` (which is advanced),
    or None for a fresh seed, never NumPy's global state.

    :param partition: A function from points `N x D`, a torch tensor, to integer labels `N x m`, or `N` for one
        partition, torch or NumPy; fitted clusterers of scikit-learn, one or a list, or a `predict`; or a
        :class:`~gpytorch_partition.partitions.Partition`. For a program with a seed see :meth:`from_sampler`.
    :param batch_shape: Batch shape of the kernel; all elements share the partitions. (Default: none.)
    :param active_dims: Numbers of the columns of x that the partitions see. They are kept in :attr:`columns`, and can
        be assigned later if none are given. (Default: all.)
    :raises TypeError: If `partition` is none of these.
    :raises ValueError: If `active_dims` are not distinct numbers from 0; in calls, for points that have no labels.
    :raises RuntimeError: In calls, for inputs that require a gradient, for `last_dim_is_batch` and while unfitted.

    Example:
        >>> kernel = PartitionKernel(lambda x: torch.stack([x[..., 0].round(), x[..., 0].floor()], -1).long())
        >>> kernel(torch.tensor([[0.1], [0.4], [0.7]])).to_dense()
        tensor([[1.0000, 1.0000, 0.5000],
                [1.0000, 1.0000, 0.5000],
                [0.5000, 0.5000, 1.0000]])
        >>> from sklearn.cluster import KMeans
        >>> kmeans = KMeans(2, random_state=0).fit([[0.0], [0.1], [5.0]])
        >>> PartitionKernel(kmeans.predict)(torch.tensor([[0.3], [0.6], [6.0]])).to_dense()[0]
        tensor([1., 1., 0.])
    """

    sum_dtype: torch.dtype | None = None
    can_be_counted = True  #: whether a feature space of counts represents rows
    _instead_of_lengthscale = "the partitions that it was given set how far points look alike"

    def __init__(
        self,
        partition: Any,
        *,
        batch_shape: torch.Size | tuple[int, ...] = (),
        active_dims: tuple[int, ...] | None = None,
    ) -> None:
        super().__init__(batch_shape=batch_shape, active_dims=active_dims)
        self.partition: Partition = partition_of(partition)
        self.register_buffer("unit", torch.ones(self.batch_shape))

    @classmethod
    def from_sampler(
        cls,
        draw: Callable[[int], Any],
        num_partitions: int = 200,
        *,
        batch_shape: torch.Size | tuple[int, ...] = (),
        active_dims: tuple[int, ...] | None = None,
        **options: Any,
    ) -> PartitionKernel:
        """
        Build the kernel of a program that draws partitions from seeds (Davies & Ghahramani 2014, section 2.4).

        The parameters (`random_state` and `n_jobs` among them), errors and costs are those of
        :class:`~gpytorch_partition.partitions.SampledPartition`, except `batch_shape` and `active_dims`.

        Example:
            >>> def draw(seed):
            ...     threshold = torch.rand((), generator=torch.Generator().manual_seed(seed))
            ...     return lambda x: x[:, 0] > threshold
            >>> kernel = PartitionKernel.from_sampler(draw, 1000, random_state=0)
            >>> kernel(torch.tensor([[0.1], [0.4]])).to_dense()[0, 1]  # 1 - |x - x'|, on average
            tensor(0.7170)
        """
        partition = SampledPartition(draw, num_partitions, **options)
        return PartitionKernel(partition, batch_shape=batch_shape, active_dims=active_dims)

    @property
    def num_partitions(self) -> int:
        return self.partition.num_partitions

    def cluster_ids(self, x: Tensor) -> Tensor:
        """Return the label (`*batch x N x m`, int64) of each point's cluster in each partition, computed anew."""
        return self.partition.labels(self._active(x))

    @torch.no_grad()
    def diagnose(
        self,
        x: Tensor,
        y: Any,
        *,
        points: tuple[Tensor, Any] | None = None,
        classes: bool | None = None,
        random_state: Any = 0,
    ) -> KernelDiagnosis:
        r"""
        Measure Breiman's strength and correlation of the partitions, and the standard error of the kernel.

        Use it to choose the number of partitions, or between kernels before a model is fitted. A single partition
        predicts the mean target, or the most frequent class, of a point's cluster. Strong partitions whose errors are
        hardly correlated make a good ensemble (Breiman 2001; Zhu 2008, section 3.3).

        By default each row is predicted without its own target, which is too good for partitions that have seen the
        targets, as those of a :class:`~gpytorch_partition.RandomForestKernel`: give new `points` then. The standard
        error of the kernel, over other draws of the partitions, is at most :math:`1 / (2 \sqrt m)` (Davies & Ghahramani
        2014, lemma 3.2), and estimated for 10,000 random pairs.

        :param x: `N x D` rows.
        :param y: `N` targets, a tensor or an array: numbers, or classes.
        :param points: New points (`N2 x D`) and their targets to judge by. (Default: None, the rows.)
        :param classes: Whether y are classes. (Default: None, classes unless y are floating point numbers.)
        :param random_state: Seed of the points and pairs that are looked at. (Default: 0.)
        :return: The numbers, readable when printed; `num_partitions_for(standard_error)` returns how many are enough.
        :raises TypeError: If the kernel is a mixture, whose partitions are not draws of one kind.
        :raises ValueError: If rows or targets cannot be used, or there is one partition only.

        Example:
            >>> from gpytorch_partition import MondrianKernel
            >>> x = torch.rand(500, 2, generator=torch.Generator().manual_seed(0))
            >>> kernel = MondrianKernel(x, num_trees=50, lifetime=4.0, random_state=0)
            >>> found = kernel.diagnose(x, (x[:, 0] > x[:, 1]).long())
            >>> found.ensemble_error < found.member_error, found.max_standard_error <= 0.5 / 50**0.5
            (True, True)
            >>> str(found).splitlines()[1]
            'strength (mean margin)                       0.665'
        """
        _check_matrix(x, "x")
        if points is not None and (torch.is_tensor(points) or len(points) != 2):
            raise ValueError("expected points as a pair: rows (N2 x D), and their targets to judge by")
        judged, targets = (x, y) if points is None else points
        _check_matrix(judged, "points")
        covariance = self(x) if points is None else self(judged, x)
        return diagnosis(covariance.evaluate_kernel(), y, targets, classes, random_state_of(random_state))

    def _described(self) -> str:
        return self.partition.extra_repr()

    def _covariance(self, x1: Tensor, x2: Tensor) -> LinearOperator:
        dtype = torch.promote_types(self.unit.dtype, torch.promote_types(x1.dtype, x2.dtype))
        scale = self.unit.to(dtype)
        x1, x2 = self.columns.select(x1), self.columns.select(x2)
        left, right = self.partition.incidences(x1, x2)
        batch_shape = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2], self.batch_shape)
        effects = self._effects_between(left, right, scale.to(self.sum_dtype or dtype))
        return PartitionLinearOperator(scale.expand(batch_shape), effects, left=left, right=right)

    def _effects_between(self, left: Incidence, right: Incidence, like: Tensor) -> ClusterOperator:
        """S between the clusters of two sets of rows, in the dtype of `like`."""
        return self._cluster_operator(left.sizes, like)

    def _check_points(self, x: Tensor) -> None:
        self.partition.check_points(self._active(x))
        if torch.is_grad_enabled() and x.requires_grad and (self.training or not _depends_on_parameters_only(x)):
            raise RuntimeError(
                f"expected x without gradients, got x with them: {type(self).__name__} is piecewise constant in x and "
                "has no gradient with respect to the inputs: detach them, fix inducing points (learn_inducing_locations"
                "=False or requires_grad_(False)), or optimize without gradients (optimize_acqf_cells, "
                "optimize_acqf_discrete)"
            )

    def _cluster_operator(self, sizes: ClusterSizes, like: Tensor) -> ClusterOperator:
        """S, the covariance of cluster effects, in the dtype of `like`: I / m for flat partitions."""
        share = like.new_full((1,), 1 / self.num_partitions)
        return FlatLinearOperator(share, num_clusters=cast(int, sizes))


def _depends_on_parameters_only(x: Tensor) -> bool:
    """Whether points have gradients by parameters alone, as of a warp or a network, which predictions do not need."""
    if x.grad_fn is None:
        return isinstance(x, torch.nn.Parameter)
    seen: set[Any] = set()
    nodes = [x.grad_fn]
    while nodes:
        node = nodes.pop()
        if not isinstance(getattr(node, "variable", None), torch.nn.Parameter | None):
            return False
        inner = {each for each, _ in node.next_functions if each is not None} - seen
        seen |= inner
        nodes += inner
    return True


def _check_matrix(x: Any, name: str) -> None:
    if not torch.is_tensor(x) or x.dim() != 2 or len(x) < 2:
        got = tuple(x.shape) if torch.is_tensor(x) else type(x).__name__
        raise ValueError(f"expected {name} as a tensor (N x D) of two rows or more, got {got}")


def training_points(x: Any, active_dims: tuple[int, ...] | None) -> Tensor | None:
    """Select the columns of training inputs (`N x D`, or `N`) that a kernel is built on, detached; None for None."""
    if x is None:
        return None
    if not torch.is_tensor(x) or not x.is_floating_point() or x.dim() not in (1, 2):
        got = f"{x.dtype} of shape {tuple(x.shape)}" if torch.is_tensor(x) else type(x).__name__
        raise ValueError(
            f"expected training inputs as a floating point tensor (N x D), got {got}: a kernel is built on one set of "
            "rows, which all elements of a batch share"
        )
    return Columns(active_dims).select(x.detach())


class Logits(torch.nn.Module):
    """Hold vectors of logits, whose softmaxes are weights; outside the kernel, whose parameters are batched."""

    def get(self, name: str) -> torch.nn.Parameter | None:
        return self._parameters.get(name)

    def set(self, name: str, values: Tensor) -> None:
        self.register_parameter(name, torch.nn.Parameter(values.detach().clone()))

    def weights(self, name: str) -> Tensor | None:
        """Return the weights (`n`, float64) of a name; None without logits. Their gradients sum over many clusters."""
        logits = self.get(name)
        return None if logits is None else logits.double().softmax(0)

    def write(self, name: str, weights: Any) -> None:
        """Set the weights of a name in place to `n` positive numbers, which need not sum to 1; an error for others."""
        logits = self.get(name)
        if logits is None:
            raise ValueError(f"expected a kernel that learns {name.removeprefix('raw_')}, got one that does not")
        with torch.no_grad():
            checked = weights_of(weights, logits.numel())
            logits.copy_((checked / checked.sum()).log())

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        for name, logits in self._parameters.items():
            saved = state_dict.get(prefix + name)
            if logits is not None and saved is not None and saved.shape != logits.shape:
                logits.data = logits.data.new_empty(saved.shape)
        super()._load_from_state_dict(state_dict, prefix, *args)
