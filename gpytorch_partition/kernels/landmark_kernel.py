"""A smooth kernel through inducing points (landmarks, chosen among the training rows), at linear cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel, MaternKernel
from linear_operator import to_dense
from torch import Tensor

from gpytorch_partition.clusters.cache import Key
from gpytorch_partition.clusters.incidence import Incidence
from gpytorch_partition.descriptions import counted, listed
from gpytorch_partition.inference.evidence.lengthscales import learn_lengthscales
from gpytorch_partition.inputs.numbers import bits_of, checked_count, floats_of, random_state_of
from gpytorch_partition.inputs.training_rows import checked_rows
from gpytorch_partition.kernels.cluster_kernel import ClusterKernel
from gpytorch_partition.kernels.partition_kernel import training_points
from gpytorch_partition.linalg.factors import stable_cholesky
from gpytorch_partition.operators.cluster_operators.cluster_operator import FlatLinearOperator
from gpytorch_partition.operators.partition_linear_operator import PartitionLinearOperator
from gpytorch_partition.partitions.partition import Partition
from gpytorch_partition.settings import eager_kernels

_DEFAULT_NUM_LANDMARKS = 500


class LandmarkPartition(Partition):
    """Put all points in one cluster, and hold the inducing points (`k x D`) of a low-rank kernel."""

    num_partitions = 1

    bits: Tensor  # (k, D) bit patterns of the inducing points, float64

    def __init__(self, landmarks: Tensor | None = None) -> None:
        super().__init__()
        points = torch.empty(0, 0) if landmarks is None else checked_rows(landmarks, type(self).__name__)
        self.register_buffer("bits", bits_of(points.to(torch.float64)))

    @property
    def landmarks(self) -> Tensor:
        return floats_of(self.bits)

    @property
    def is_fitted(self) -> bool:
        return self.bits.numel() > 0

    @property
    def num_features(self) -> int | None:
        return self.bits.shape[1] if self.is_fitted else None

    @property
    def cluster_counts(self) -> Tensor:
        return torch.ones(1, dtype=torch.int64, device=self.bits.device)

    def _described(self) -> str:
        return counted(len(self.bits), "inducing point")

    def _labels(self, x: Tensor) -> Tensor:
        return torch.zeros(x.shape[0], 1, dtype=torch.int64, device=x.device)


def choose_landmarks(x: Tensor, num_landmarks: int | None, random: np.random.RandomState) -> Tensor:
    """Draw inducing points (`k x D`) among distinct rows: K-means or greedy choices were not better from 500 on."""
    wanted = _DEFAULT_NUM_LANDMARKS if num_landmarks is None else num_landmarks
    wanted = checked_count(wanted, "inducing points", "num_landmarks")
    order = random.permutation(x.shape[0])
    size = min(2 * wanted, x.shape[0])
    while True:
        drawn = x[torch.from_numpy(order[:size]).to(x.device)]
        _, first = np.unique(drawn.cpu().numpy(), axis=0, return_index=True)
        is_all = size == x.shape[0]
        if first.size >= wanted or (is_all and num_landmarks is None):
            return drawn[torch.from_numpy(np.sort(first)[:wanted]).to(x.device)]
        if is_all:
            raise ValueError(
                f"expected at most as many inducing points as there are different rows, {first.size}, got "
                f"num_landmarks={num_landmarks}"
            )
        size = min(2 * size, x.shape[0])


# Added to the diagonal of the inducing points' covariance, relative to its mean: its factor stays accurate in float64.
_RELATIVE_JITTER = 1e-8
_ENTRIES = 2**22  # largest number of covariances between rows and inducing points that are held at once
_ROOT: Key[Tensor] = Key("root")  # cache key of the Cholesky factor of the covariance of inducing points
# Attributes that PyTorch's modules have, whose tensors are compared as a state, and whether the kernel is trained.
_STATE = {*vars(torch.nn.Module()), "distance_module"}
_LOADINGS: Key[Tensor] = Key("loadings")  # cache key of the loadings of a set of rows


class LandmarkKernel(ClusterKernel):
    r"""
    Compare points by a smooth kernel :math:`\kappa` through k inducing points Z (Nystrom; Williams & Seeger 2001):

    .. math:: k(x, x') = \kappa(x, Z)\, \kappa(Z, Z)^{-1}\, \kappa(Z, x')

    Use it for a smooth part at linear cost, beside a forest or alone: `ScaleKernel(RandomForestKernel(x, y)) +
    ScaleKernel(LandmarkKernel(x, y))`.

    The inducing points, called landmarks in arguments and attributes, are chosen among the training rows; a product
    costs :math:`O(N k)`. By default :math:`\kappa` is a Matern-3/2 kernel with a lengthscale per column, learned once
    from a subsample (:func:`~gpytorch_partition.inference.evidence.lengthscales.learn_lengthscales`) and then frozen.

    The prior lacks the variance that the inducing points do not span (all of it, many lengthscales away from them), so
    intervals there are too narrow. :class:`~gpytorch_partition.likelihoods.FITCGaussianLikelihood` adds the missing
    diagonal, for a scale and a noise chosen with it.

    Learning costs some seconds, loadings :math:`O(N k^2)` time and k numbers per row; they are kept for later calls,
    unless lengthscales are trained (`kernel.base_kernel.requires_grad_(True)`). The kernel has gradients by x.

    **Use float64**: float32 represents N outputscales plus the noise only up to a ratio of some :math:`10^6`.

    :param train_x: `N x D` rows, in any units. (Default: None, an unfitted kernel for `load_state_dict`.)
    :param train_y: `N` targets.
    :param num_landmarks: Number k of inducing points. (Default: 500, or the number of distinct rows if that is less.)
    :param num_rows: Rows of the subsample that lengthscales are learned on, at most N. (Default: 1,000.)
    :param random_state: Seed of inducing points and subsample, as in :class:`~gpytorch_partition.PartitionKernel`, and
        so are `batch_shape`, whose elements share inducing points and lengthscales, and `active_dims`.
    :raises ValueError: If rows, targets or an option cannot be used; in calls, if points cannot.

    Example:
        >>> x = torch.linspace(0, 1, 200).unsqueeze(-1)
        >>> kernel = LandmarkKernel(x, (6 * x[:, 0]).sin(), num_landmarks=30, random_state=0)
        >>> exact = kernel.base_kernel(x).to_dense()
        >>> bool((kernel(x).to_dense() - exact).abs().max() < 0.02)
        True
    """

    widens_far_away = False
    _instead_of_lengthscale = "kernel.base_kernel.lengthscale is that of the kernel through its inducing points"

    def __init__(
        self,
        train_x: Tensor | None = None,
        train_y: Tensor | None = None,
        num_landmarks: int | None = None,
        *,
        num_rows: int = 1000,
        random_state: Any = None,
        batch_shape: torch.Size | tuple[int, ...] = (),
        active_dims: tuple[int, ...] | None = None,
    ) -> None:
        super().__init__(batch_shape=batch_shape, active_dims=active_dims)
        self.register_buffer("unit", torch.ones(self.batch_shape))
        self.base_kernel: Kernel = _frozen_matern(1)
        self.landmarks = LandmarkPartition()
        if (train_x is None) != (train_y is None):
            raise ValueError("expected both train_x and train_y, or neither for an unfitted kernel, got one of them")
        points = training_points(train_x, active_dims)
        if points is not None:
            points = checked_rows(points, type(self).__name__)
            targets = _checked_targets(train_y, points)
            self._remember(train_x)
            self.has_seen_targets = True
            if checked_count(num_rows, "rows to learn lengthscales on", "num_rows") < 2:
                raise ValueError(f"expected two rows or more to learn lengthscales on, got num_rows={num_rows}")
            random = random_state_of(random_state)
            self.landmarks = LandmarkPartition(choose_landmarks(points, num_landmarks, random))
            subsample = torch.from_numpy(random.permutation(points.shape[0])[:num_rows]).to(points.device)
            self.base_kernel = _frozen_matern(points.shape[1])
            self.base_kernel.lengthscale = learn_lengthscales(points[subsample], targets[subsample])

    @classmethod
    def from_kernel(
        cls,
        base_kernel: Kernel,
        landmarks: Tensor | None,
        *,
        batch_shape: torch.Size | tuple[int, ...] = (),
        active_dims: tuple[int, ...] | None = None,
    ) -> LandmarkKernel:
        """
        Build the low-rank version of any kernel of GPyTorch through given inducing points.

        :param base_kernel: The kernel, which is kept, not copied. Its parameters are trained if they require gradients,
            with new loadings in every step; `base_kernel.requires_grad_(False)` freezes them.
        :param landmarks: `k x D` inducing points, all columns; None for an unfitted kernel for `load_state_dict`.
        :param batch_shape: As in the constructor, and so are `active_dims`.

        Example:
            >>> from gpytorch.kernels import RBFKernel
            >>> z = torch.tensor([[0.0], [1.0]])
            >>> kernel = LandmarkKernel.from_kernel(RBFKernel(), z)
            >>> torch.allclose(kernel(z).to_dense(), RBFKernel()(z).to_dense())
            True
        """
        if base_kernel.batch_shape:
            raise ValueError(
                "expected a base kernel that all elements of a batch share, got one of batch shape "
                f"{tuple(base_kernel.batch_shape)}: use one landmark kernel for each"
            )
        kernel = cls(batch_shape=batch_shape, active_dims=active_dims)
        kernel.base_kernel = base_kernel
        if (points := training_points(landmarks, active_dims)) is not None:
            kernel.landmarks = LandmarkPartition(points)
        return kernel

    @property
    def num_landmarks(self) -> int:
        """Return the number k of inducing points; 0 while the kernel is unfitted."""
        return self.landmarks.bits.shape[0]

    def _described(self) -> str:
        told, lengthscale = self.landmarks.extra_repr(), getattr(self.base_kernel, "lengthscale", None)
        return told if lengthscale is None else f"{told}, lengthscales {listed(lengthscale.flatten().tolist())}"

    def _check_points(self, x: Tensor) -> None:
        self.landmarks.check_points(self._active(x))

    def _covariance(self, x1: Tensor, x2: Tensor) -> PartitionLinearOperator:
        x1, x2 = self.columns.select(x1), self.columns.select(x2)
        dtype = torch.promote_types(self.unit.dtype, torch.promote_types(x1.dtype, x2.dtype))
        left, right = self.landmarks.incidences(x1, x2)
        left_loadings = self._loadings(x1, left, dtype)
        batch_shape = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2], self.batch_shape)
        scale = self.unit.to(dtype)
        return PartitionLinearOperator(
            scale.expand(batch_shape),
            FlatLinearOperator(scale.new_ones(1), num_clusters=1),
            left=left,
            right=right,
            left_loadings=left_loadings,
            right_loadings=left_loadings if left is right else self._loadings(x2, right, dtype),
        )

    def _loadings(self, x: Tensor, rows: Incidence, dtype: torch.dtype) -> Tensor:
        x = x if rows.batch_shape else x[(0,) * (x.dim() - 2)]
        return self._cached_unless_trained(_LOADINGS, x, rows, lambda: self._new_loadings(x, dtype), dtype)

    def _cached_unless_trained(
        self, key: Key[Tensor], x: Tensor, rows: Incidence, compute: Callable[[], Tensor], *options: Any
    ) -> Tensor:
        is_trained = x.requires_grad or any(parameter.requires_grad for parameter in self.base_kernel.parameters())
        if is_trained and torch.is_grad_enabled():
            return compute()
        return rows.cache.get(key, self, compute, _settings(self.base_kernel), *options)

    def _new_loadings(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        r"""The loadings :math:`\kappa(x, Z) L^{-\top}` (`*batch x N x k`), computed in float64 and then converted."""
        landmarks, size = self.landmarks.landmarks, max(1, _ENTRIES // self.num_landmarks)
        points = self.landmarks.incidences(landmarks, landmarks)[0]
        root = self._cached_unless_trained(_ROOT, landmarks, points, self._new_root)
        blocks = [
            torch.linalg.solve_triangular(root.mT, cross, upper=True, left=False).to(dtype)
            for cross in (self._dense(block, landmarks) for block in x.double().split(size, -2))
        ]
        return torch.cat(blocks, -2)

    def _new_root(self) -> Tensor:
        """The Cholesky factor L of the covariance of inducing points (`*batch x k x k`)."""
        landmarks = self.landmarks.landmarks
        within = self._dense(landmarks, landmarks)
        jitter = _RELATIVE_JITTER * within.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
        return stable_cholesky(within + jitter * torch.eye(self.num_landmarks).to(within))

    def _dense(self, x1: Tensor, x2: Tensor) -> Tensor:
        with eager_kernels():
            return to_dense(self.base_kernel(x1, x2))

    def named_sub_kernels(self) -> Iterator[tuple[str, Kernel]]:
        """Yield nothing: all elements of a batch share the base kernel, which must not be indexed or expanded."""
        return iter(())

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        if self._is_whole(state_dict, prefix) and type(self.base_kernel) is MaternKernel:
            saved, own = state_dict[prefix + "base_kernel.raw_lengthscale"], self.base_kernel.raw_lengthscale
            if saved.shape != own.shape:
                self.base_kernel = _frozen_matern(saved.shape[-1]).to(own)
        super()._load_from_state_dict(state_dict, prefix, *args)


def _settings(kernel: Kernel) -> list[tuple[type, dict[str, Any]]]:
    """Return the class of each module of a kernel, with its values other than parameters, such as Matern's `nu`."""
    return [
        (type(module), {name: _comparable(value) for name, value in vars(module).items() if name not in _STATE})
        for module in kernel.modules()
    ]


def _comparable(value: Any) -> Any:
    if isinstance(value, Tensor | np.ndarray):
        return value.tolist()
    return value if isinstance(value, int | float | str | tuple) else id(value)


def _frozen_matern(num_columns: int) -> MaternKernel:
    return MaternKernel(nu=1.5, ard_num_dims=num_columns).requires_grad_(False)


def _checked_targets(y: Any, points: Tensor) -> Tensor:
    if not torch.is_tensor(y) or y.shape != points.shape[:1] or not torch.isfinite(y).all():
        got = f"shape {tuple(y.shape)}" if torch.is_tensor(y) else type(y).__name__
        raise ValueError(f"expected {points.shape[0]} finite training targets, one per row, got {got}: drop such rows")
    for name, values in (("rows", points), ("targets", y)):
        if (values == values[:1]).all():
            raise ValueError(f"expected training {name} that vary, got {len(values)} times the same")
    return y.detach().to(points.device, torch.float64)
