"""Kernels of flat partitions that are drawn from rows without targets: clusterings, fast clusters, random grids."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from linear_operator.operators import LinearOperator
from torch import Tensor

from gpytorch_partition.callers import level_of_caller
from gpytorch_partition.kernels.partition_kernel import PartitionKernel, training_points
from gpytorch_partition.kernels.seen_targets import OverconfidenceWarning
from gpytorch_partition.partitions.clustering import ClusteringPartition
from gpytorch_partition.partitions.fast_cluster import FastClusterPartition
from gpytorch_partition.partitions.hashed_cells import RandomBinningPartition

# Training rows for each center of the finest partitions of a single column. With fewer, 90 % intervals of noisy targets
# covered 34 to 87 %, with more 87 to 91 % (100, 200 and 1,000 rows of a sine). The height that the warning recommends
# leaves each center the second number.
_FEWEST_ROWS, _USUAL_ROWS = 4, 8


class ClusteringKernel(PartitionKernel):
    r"""
    Compare points by clusters of a randomised clusterer of scikit-learn (Davies & Ghahramani 2014, section 4.1.1).

    Use it if the shape of the data's clusters is known: round (K-means), Gaussian (mixtures, with their number chosen
    by a Dirichlet process: `BayesianGaussianMixture`, section 2.3), dense (DBSCAN, HDBSCAN), or merged bottom up
    (agglomerative). It is unsupervised, and may be built on more rows than have targets. Standardize columns.

    All parameters, their errors and costs are those of :class:`~gpytorch_partition.partitions.ClusteringPartition`,
    except `batch_shape` and `active_dims`, which are those of :class:`~gpytorch_partition.PartitionKernel`.

    Example:
        >>> from sklearn.cluster import DBSCAN
        >>> x = torch.cat([torch.linspace(0, 1, 20), torch.linspace(3, 4, 20)]).unsqueeze(-1)
        >>> radii = {"eps": (0.06, 3.0)}
        >>> kernel = ClusteringKernel(x, DBSCAN(min_samples=2), 100, param_distributions=radii, random_state=0)
        >>> kernel(torch.tensor([[0.1]]), torch.tensor([[0.9], [3.1], [3.9]])).to_dense()
        tensor([[1.0000, 0.0900, 0.0900]])
    """

    widens_far_away = False
    _instead_of_lengthscale = "how far points look alike is set by the clusterer, such as by its number of clusters"

    def __init__(
        self,
        train_x: Tensor | None = None,
        clusterer: Any = None,
        num_partitions: int = 200,
        *,
        param_distributions: Mapping[str, Any] | None = None,
        rows: int | float | None = None,
        columns: int | float | None = None,
        projection: int | None = None,
        noise: str = "alone",
        random_state: Any = None,
        n_jobs: int | None = None,
        batch_shape: torch.Size | tuple[int, ...] = (),
        active_dims: tuple[int, ...] | None = None,
    ) -> None:
        partition = ClusteringPartition(
            training_points(train_x, active_dims),
            clusterer,
            num_partitions,
            param_distributions=param_distributions,
            rows=rows,
            columns=columns,
            projection=projection,
            noise=noise,
            random_state=random_state,
            n_jobs=n_jobs,
        )
        super().__init__(partition, batch_shape=batch_shape, active_dims=active_dims)
        self._remember(train_x)


class FastClusterKernel(PartitionKernel):
    """
    Compare points by their nearest random training rows (Davies & Ghahramani 2014, section 4.3.2 and algorithm 2).

    Use it without targets to grow trees on, for a million rows in seconds, or for a smoother posterior than a forest's.
    It may be built on more rows than have targets. Standardize columns.

    All parameters, their errors and costs are those of :class:`~gpytorch_partition.partitions.FastClusterPartition`,
    except `batch_shape` and `active_dims`, which are those of :class:`~gpytorch_partition.PartitionKernel`.

    In a single column the default `height` is too large if targets are noisy and there are fewer than four training
    rows for each of :math:`2^h` centers, as an :class:`~gpytorch_partition.kernels.OverconfidenceWarning` says: give
    the smaller height of largest marginal likelihood.

    Example:
        >>> x = torch.linspace(0, 1, 50).unsqueeze(-1)
        >>> kernel = FastClusterKernel(x, num_partitions=100, random_state=0)
        >>> kernel(x).to_dense()[0, [0, 10, 40]].tolist() == sorted(kernel(x).to_dense()[0, [0, 10, 40]].tolist())[::-1]
        True
        >>> isolation = FastClusterKernel(x, num_partitions=100, num_centers=4, columns="all", random_state=0)
        >>> isolation.partition.cluster_counts.unique()
        tensor([4])
    """

    partition: FastClusterPartition
    widens_far_away = False
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
        partition = FastClusterPartition(
            training_points(train_x, active_dims),
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
        most = int(self.partition.cluster_counts.max())
        if self.partition.num_features != 1 or most * _FEWEST_ROWS <= num_rows:
            return
        height = max(1, (num_rows // _USUAL_ROWS).bit_length() - 1)
        told = (
            f"FastClusterKernel of one column is trained on {num_rows:,} rows with partitions of up to {most:,} "
            "clusters: all of them isolate the same rows, so that the noise of targets is taken for the function, and "
            f"90 % intervals cover 34 to 87 %, unless there is none. Give height={height}, or less where the marginal "
            f"likelihood is larger; to an estimator kernel=lambda x, y: FastClusterKernel(x, height={height})."
        )
        warnings.warn(told, OverconfidenceWarning, stacklevel=level_of_caller())


class RandomBinningKernel(PartitionKernel):
    r"""
    Compare points by the share of random grids in which they share a bin (Rahimi & Recht 2007, section 4).

    Use it for a lengthscale per column at linear cost, with the Laplace kernel as the limit: :math:`\exp(-\sum_d |x_d -
    x'_d| / \ell_d)`, anywhere in space. :class:`~gpytorch_partition.MondrianKernel` has this limit too (with
    :math:`\ell = 1 / \lambda` for all columns), and the cells of every shorter lifetime.

    All parameters, their errors and costs are those of :class:`~gpytorch_partition.partitions.RandomBinningPartition`,
    except `batch_shape` and `active_dims`, which are those of :class:`~gpytorch_partition.PartitionKernel`.

    Example:
        >>> x = torch.linspace(0, 1, 50).unsqueeze(-1)
        >>> kernel = RandomBinningKernel(x, num_partitions=2000, lengthscale=0.5, random_state=0)
        >>> bool((kernel(x).to_dense()[0, 20] - torch.exp(-2.0 * x[20])).abs() < 0.05)
        True
    """

    partition: RandomBinningPartition
    vanishes_far_away = True

    def __init__(
        self,
        train_x: Tensor | None = None,
        num_partitions: int = 200,
        *,
        lengthscale: float | Sequence[float] | Tensor | None = None,
        random_state: Any = None,
        batch_shape: torch.Size | tuple[int, ...] = (),
        active_dims: tuple[int, ...] | None = None,
    ) -> None:
        points = training_points(train_x, active_dims)
        partition = RandomBinningPartition(points, num_partitions, lengthscale=lengthscale, random_state=random_state)
        super().__init__(partition, batch_shape=batch_shape, active_dims=active_dims)
        self._remember(train_x)
        self.has_usual_width = train_x is not None and lengthscale is None

    @property
    def lengthscale(self) -> Tensor:
        r"""Return the lengthscales :math:`\ell` (`1 x D`), in units of x, which are fixed with the grids."""
        return self.partition.lengthscale.unsqueeze(0)

    @lengthscale.setter
    def lengthscale(self, value: Any) -> None:
        raise AttributeError("the lengthscales are those that grids were drawn with: build a new RandomBinningKernel")

    @property
    def other_widths(self) -> str:
        return (
            "the lengthscale of a RandomBinningKernel (by the median distance of its rows) stays as it is: give "
            "another; or take a GammaMondrianKernel, which trains it, or a MondrianKernel, for lifetime_sweep"
        )
