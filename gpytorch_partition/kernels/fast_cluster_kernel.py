"""The fast cluster kernel, whose clusters are the points nearest to each of a few random training rows."""

from __future__ import annotations

import warnings
from typing import Any, cast

import torch
from linear_operator.operators import LinearOperator
from torch import Tensor

from gpytorch_partition.callers import level_of_caller
from gpytorch_partition.kernels.partition_kernel import PartitionKernel, training_points
from gpytorch_partition.kernels.seen_targets import OverconfidenceWarning
from gpytorch_partition.partitions.fast_cluster import FastClusterPartition

# Training rows for each center of the finest partitions of a single column. With fewer, 90 % intervals of noisy targets
# covered 34 to 87 %, with more 87 to 91 % (100, 200 and 1,000 rows of a sine). The height that the warning recommends
# leaves each center the second number.
_FEWEST_ROWS, _USUAL_ROWS = 4, 8


class FastClusterKernel(PartitionKernel):
    r"""
    The fast cluster kernel (Davies & Ghahramani 2014, section 4.3.2 and algorithm 2): clusters around random training
    rows.

    Use it without targets to grow trees on, for a million rows in seconds, or for a smoother posterior than a forest's.

    Each partition draws a random subset of the columns and :math:`2^s` training rows as centers, :math:`s \sim U\{0
    \ldots h\}`; a point belongs to the nearest center. The kernel is unsupervised, so it can be built on more rows than
    have targets. Standardize columns: standard deviations that differ by more than 100 times give a `UserWarning`.

    Building costs at most :math:`O(N (D + m))` time, labelling N rows :math:`O(N m 2^h D / h)`. Memory: 8 D bytes per
    center, with about :math:`2^{h+1} / (h + 1)` centers per partition, and 8 bytes per (row, partition).

    :param train_x: `N x D` rows to draw centers from. (Default: None, an unfitted kernel for `load_state_dict`.)
    :param num_partitions: Number m of partitions. (Default: 200.)
    :param height: h, the largest number of doublings. (Default: min(10, floor(log2 N)).) In a single column the default
        is too large if targets are noisy and there are fewer than four training rows for each of :math:`2^h` centers.
        All partitions then isolate the same rows, whose noise is taken for the function, and intervals are far too
        narrow. A training on such rows begins with an :class:`~gpytorch_partition.kernels.OverconfidenceWarning`. Give
        the smaller height of largest marginal likelihood.
    :param num_centers: A fixed number of centers of every partition; with `columns="all"` this is the isolation kernel.
        (Default: None, random numbers.)
    :param columns: `"random"`, each column with probability 1/2 in each partition, or `"all"`. (Default: `"random"`.)
    :param projection: Number of dimensions of a random projection of the columns, drawn for each partition, in which
        distances are measured. (Default: None, the columns themselves.)
    :param random_state: Seed of the partitions, as in :class:`~gpytorch_partition.PartitionKernel`.
    :param batch_shape: As in :class:`~gpytorch_partition.PartitionKernel`.
    :param active_dims: As in :class:`~gpytorch_partition.PartitionKernel`.
    :raises ValueError: If the rows are empty, not finite or not a floating point matrix, there are fewer than
        :math:`2^h`, or another parameter cannot be used.

    Example:
        >>> x = torch.linspace(0, 1, 50).unsqueeze(-1)
        >>> kernel = FastClusterKernel(x, num_partitions=100, random_state=0)
        >>> kernel(x).to_dense()[0, [0, 10, 40]].tolist() == sorted(kernel(x).to_dense()[0, [0, 10, 40]].tolist())[::-1]
        True
        >>> isolation = FastClusterKernel(x, num_partitions=100, num_centers=4, columns="all", random_state=0)
        >>> isolation.partition.cluster_counts.unique()
        tensor([4])
    """

    _has_judged_rows = False  # of a training; not saved
    _instead_of_lengthscale = "how far points look alike is set by the number of clusters, height or num_centers"

    def __init__(
        self,
        train_x: Tensor | None = None,
        num_partitions: int = 200,
        *,
        height: int | None = None,
        num_centers: int | None = None,
        columns: str = "random",
        projection: int | None = None,
        random_state: Any = None,
        batch_shape: torch.Size | tuple[int, ...] = (),
        active_dims: tuple[int, ...] | None = None,
    ) -> None:
        if train_x is None:
            partition = FastClusterPartition()
        else:
            points = training_points(train_x, active_dims)
            partition = FastClusterPartition(
                points,
                num_partitions,
                height=height,
                num_centers=num_centers,
                columns=columns,
                projection=projection,
                random_state=random_state,
            )
        super().__init__(partition, batch_shape=batch_shape, active_dims=active_dims)
        self._remember(train_x)

    def _covariance(self, x1: Tensor, x2: Tensor) -> LinearOperator:
        # Gradients are enabled in a training; code that only compares rows may call in training mode as well.
        if self.training and torch.is_grad_enabled() and not self._has_judged_rows and x1.shape == x2.shape:
            self._has_judged_rows = True
            self._warn_of_one_column(x1.shape[-2])
        return super()._covariance(x1, x2)

    def _warn_of_one_column(self, num_rows: int) -> None:
        partition = cast(FastClusterPartition, self.partition)
        most = int(partition.cluster_counts.max())
        if partition.num_features != 1 or most * _FEWEST_ROWS <= num_rows:
            return
        height = max(1, (num_rows // _USUAL_ROWS).bit_length() - 1)
        warnings.warn(
            f"FastClusterKernel of one column is trained on {num_rows:,} rows with partitions of up to {most:,} "
            "clusters: all of them single out the same rows, so that the noise of targets is taken for the function, "
            "and 90 % intervals of a process with this kernel alone cover 34 to 87 %, unless there is no noise. Give "
            f"height={height}, or less where the marginal likelihood is larger; to an estimator "
            f"kernel=lambda x, y: FastClusterKernel(x, height={height}).",
            OverconfidenceWarning,
            stacklevel=level_of_caller(),
        )
