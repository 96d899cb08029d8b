"""Features of partition kernels for pathwise sampling in BoTorch, registered when this module is imported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from botorch.sampling.pathwise.features.generators import GenKernelFeatures, gen_kernel_features
from botorch.sampling.pathwise.features.maps import FeatureMap
from botorch.sampling.pathwise.prior_samplers import DrawKernelFeaturePaths
from botorch.sampling.pathwise.utils import ChainedTransform
from gpytorch.models import ApproximateGP, ExactGP
from gpytorch.variational import _VariationalStrategy
from linear_operator.operators import LinearOperator
from torch import Tensor

from gpytorch_partition.clusters.incidence import Incidence
from gpytorch_partition.kernels import IterativeKernel, PartitionKernel
from gpytorch_partition.kernels.cluster_kernel import ClusterKernel
from gpytorch_partition.operators.partition_linear_operator import IncidenceLinearOperator, PartitionLinearOperator
from gpytorch_partition.partitions import Partition
from gpytorch_partition.partitions.hashed_cells import hashed

_BUCKETS = 2**10  # clusters of a partition whose labels are unbounded


class PartitionFeatureMap(FeatureMap):
    r"""
    Map points to features of a kernel of this package, :math:`\phi(x)` with :math:`k(x, x') = \phi(x)^\top \phi(x')`.

    BoTorch uses it in its path samplers (`draw_kernel_feature_paths`, `draw_matheron_paths`) for any model whose kernel
    is one of this package or a :class:`gpytorch.kernels.ScaleKernel` around it, once `gpytorch_partition.botorch` is
    imported. Paths at N points cost :math:`O(N m)` each.

    Features are exact where labels are bounded (forests, fast clusters, landmarks, mixtures and local slopes of these).
    Mondrian kernels, grids and functions of users have unboundedly many cells. Their features are hashed into 1,024 for
    each partition, which adds :math:`(1 - k) / 1024` to the covariance of two points on average.

    :param kernel: The kernel, in its state when paths are evaluated; not
        :class:`~gpytorch_partition.GammaMondrianKernel`.
    :param num_inputs: Number D of columns of points.
    :raises NotImplementedError: If the kernel has no such features.

    Example:
        >>> from gpytorch_partition import FastClusterKernel
        >>> x = torch.rand(50, 2, generator=torch.Generator().manual_seed(0))
        >>> kernel = FastClusterKernel(x, 20, random_state=0)
        >>> features = PartitionFeatureMap(kernel, num_inputs=2)(x).to_dense()
        >>> torch.allclose(features @ features.T, kernel(x).to_dense(), atol=1e-6)
        True
    """

    def __init__(self, kernel: ClusterKernel, num_inputs: int) -> None:
        super().__init__()
        self.kernel = kernel
        self.input_transform = None
        self.output_transform = ChainedTransform()  # BoTorch puts the outputscale before it
        self._features = _features_of(kernel)
        origin = torch.zeros(1, num_inputs, dtype=kernel.dtype, device=kernel.device)
        self.num_outputs = self._features(kernel, origin).shape[-1]

    @property
    def batch_shape(self) -> torch.Size:
        return self.kernel.batch_shape

    def forward(self, x: Tensor) -> LinearOperator:
        """Return features (`*batch x N x p`) of `*batch x N x D` points, as an operator."""
        return self._features(self.kernel, x)


def _features_of(kernel: ClusterKernel) -> Callable[[Any, Tensor], LinearOperator]:
    partitions = [module for module in kernel.modules() if isinstance(module, Partition)]
    if all(partition.cluster_counts is not None for partition in partitions):
        return _root
    if isinstance(kernel, PartitionKernel) and kernel.can_be_counted and len(partitions) == 1:
        return _hashed
    raise NotImplementedError(
        f"{type(kernel).__name__} has no finite features, since new points open new clusters: sample from "
        "model.posterior, or use a RandomForestKernel, FastClusterKernel or MondrianKernel"
    )


def _root(kernel: ClusterKernel, x: Tensor) -> LinearOperator:
    """The exact root of K, whose columns are the same for all points."""
    covariance = kernel.forward(x, x)
    if not isinstance(covariance, PartitionLinearOperator):
        raise NotImplementedError(f"expected a kernel with one feature space, got {type(kernel).__name__} of a sum")
    return covariance.sparse_root()


def _hashed(kernel: PartitionKernel, x: Tensor) -> LinearOperator:
    kernel._check_call(x, x, {})
    labels = kernel.cluster_ids(x)
    offsets = torch.arange(labels.shape[-1], device=labels.device) * _BUCKETS
    codes = hashed(labels, salt=0).remainder(_BUCKETS) + offsets
    rows = Incidence(codes, kernel.num_partitions * _BUCKETS)
    scale = kernel.unit.to(torch.promote_types(kernel.dtype, x.dtype))
    batch_shape = torch.broadcast_shapes(scale.shape, x.shape[:-2])
    root = kernel._cluster_operator(rows.num_clusters, scale).root()
    return IncidenceLinearOperator(scale.expand(batch_shape), root, rows=rows)


@GenKernelFeatures.register(ClusterKernel)
def _gen_kernel_features(kernel: ClusterKernel, *, num_inputs: int, num_outputs: int) -> PartitionFeatureMap:
    return PartitionFeatureMap(kernel, num_inputs)


@GenKernelFeatures.register(IterativeKernel)
def _gen_kernel_features_inside(kernel: IterativeKernel, *, num_inputs: int, num_outputs: int) -> FeatureMap:
    return gen_kernel_features(kernel.base_kernel, num_inputs=num_inputs, num_outputs=num_outputs)


def _with_independent_weights(draw: Callable[..., Any]) -> Callable[..., Any]:
    """A sampler of BoTorch with independent weights, since its Sobol sequences end at 21,201 features."""

    def draw_paths(model: Any, *args: Any, **options: Any) -> Any:
        if any(isinstance(module, ClusterKernel) for module in model.covar_module.modules()):
            options.setdefault("weight_generator", lambda shape: torch.randn(shape, dtype=torch.float64))
        return draw(model, *args, **options)

    return draw_paths


for _types in ((ExactGP,), (ApproximateGP, _VariationalStrategy)):
    DrawKernelFeaturePaths.add(_types, _with_independent_weights(DrawKernelFeaturePaths.dispatch(*_types)))
