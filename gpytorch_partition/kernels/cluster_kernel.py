"""What all kernels whose covariance is a sum over clusters share."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from gpytorch.kernels import Kernel
from linear_operator.operators import LinearOperator
from torch import Tensor

from gpytorch_partition.inference.prediction.strategy import PartitionPredictionStrategy
from gpytorch_partition.inputs.columns import Columns


class ClusterKernel(Kernel):
    """
    A kernel that evaluates to operators of this package, whatever wraps it.

    It implements `_covariance` and says in `_check_points` which points have none.

    :param batch_shape: Batch shape of the kernel. (Default: none.)
    :param active_dims: Columns of x that the kernel sees; kept in :attr:`columns`, while GPyTorch's own buffer of
        this name stays None. (Default: all.)
    :raises ValueError: If `active_dims` are not distinct numbers of columns from 0.
    """

    has_lengthscale = False

    def __init__(
        self, *, batch_shape: torch.Size | tuple[int, ...] = (), active_dims: tuple[int, ...] | None = None
    ) -> None:
        super().__init__(batch_shape=torch.Size(batch_shape))
        self.columns = Columns(active_dims)

    def __call__(self, x1: Tensor, x2: Tensor | None = None, diag: bool = False, **params: Any) -> Any:
        self._check_call(x1, x1 if x2 is None else x2, params)
        return super().__call__(x1, x2, diag=diag, **params)

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Any:
        """The covariance of points `*batch x N1 x D` and `*batch x N2 x D`, or its diagonal."""
        self._check_call(x1, x2, params)
        operator = self._covariance(x1, x2)
        return operator.diagonal(dim1=-2, dim2=-1) if diag else operator

    @abstractmethod
    def _covariance(self, x1: Tensor, x2: Tensor) -> LinearOperator:
        """The covariance (`*batch x N1 x N2`) of points with all their columns."""

    @abstractmethod
    def _check_points(self, x: Tensor) -> None:
        """Refuse points (`*batch x N x D`, all columns) that have no covariance."""

    def _check_call(self, x1: Tensor, x2: Tensor, params: dict[str, Any]) -> None:
        """Refuse what has no answer, before any work and also when a wrapper calls `forward` itself."""
        if params.get("last_dim_is_batch"):
            raise RuntimeError(f"{type(self).__name__} does not support last_dim_is_batch: it sees all columns at once")
        for x in (x1, x2):
            self._check_points(x)

    def prediction_strategy(
        self, train_inputs: Any, train_prior_dist: Any, train_labels: Tensor, likelihood: Any
    ) -> PartitionPredictionStrategy:
        """Predictions by sums over clusters and this package's solver."""
        return PartitionPredictionStrategy(train_inputs, train_prior_dist, train_labels, likelihood)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """All of the state or nothing: an incomplete one is hidden from the modules below, which then report it."""
        if any(prefix + name not in state_dict for name in self.state_dict()):
            for name in [name for name in state_dict if name.startswith(prefix)]:
                del state_dict[name]
        super()._load_from_state_dict(state_dict, prefix, *args)

    def _active(self, x: Any) -> Any:
        """The columns that the kernel sees; anything but a tensor is left for others to refuse."""
        return self.columns.select(x) if torch.is_tensor(x) else x
