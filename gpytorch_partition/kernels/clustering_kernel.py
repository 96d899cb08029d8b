"""The clustering kernel: how often randomised clusterings put two points in one cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from gpytorch_partition.kernels.partition_kernel import PartitionKernel, training_points
from gpytorch_partition.partitions.clustering import ClusteringPartition


class ClusteringKernel(PartitionKernel):
    r"""
    The kernel of a stochastic clustering algorithm, any of scikit-learn's (Davies & Ghahramani 2014, section 4.1.1).

    Use it if the shape of the data's clusters is known: round (K-means), Gaussian (mixtures, with their number chosen
    by a Dirichlet process: `BayesianGaussianMixture`, section 2.4), dense (DBSCAN, HDBSCAN), or merged bottom up
    (agglomerative). It is unsupervised, and may be built on more rows than have targets. Standardize columns.

    Building costs m fits; :class:`~gpytorch_partition.partitions.ClusteringPartition` documents labels, memory and
    randomness. State holds centers or clustered rows, no clusterer.

    :param train_x: `N x D` rows. (Default: None, an unfitted kernel for `load_state_dict`.)
    :param clusterer: An unfitted clusterer, with `fit_predict`.
    :param num_partitions: Number m of clusterings. (Default: 200.)
    :param param_distributions: Parameters of the clusterer to draw, by name: a range `(low, high)`, drawn uniformly in
        the logarithm, a list, or a distribution of SciPy. (Default: none.)
    :param rows: Rows that each clustering sees, a number or a share. (Default: all.)
    :param columns: Columns that each clustering sees, a number or a share. (Default: all.)
    :param projection: Number of dimensions of a random projection of these columns. (Default: None.)
    :param noise: The clusters of noise points: `"alone"`, `"together"`, or the `"nearest"` cluster. (Default:
        `"alone"`.)
    :param random_state: Seed of the clusterings, as in :class:`~gpytorch_partition.PartitionKernel`.
    :param n_jobs: Clusterings at once, as joblib counts them. (Default: None, one.)
    :param batch_shape: As in :class:`~gpytorch_partition.PartitionKernel`.
    :param active_dims: As in :class:`~gpytorch_partition.PartitionKernel`.
    :raises TypeError: If `clusterer` is not a clusterer.
    :raises ValueError: If the rows or a parameter cannot be used, or nothing is random.

    Example:
        >>> from sklearn.cluster import DBSCAN
        >>> x = torch.cat([torch.linspace(0, 1, 20), torch.linspace(3, 4, 20)]).unsqueeze(-1)
        >>> radii = {"eps": (0.06, 3.0)}
        >>> kernel = ClusteringKernel(x, DBSCAN(min_samples=2), 100, param_distributions=radii, random_state=0)
        >>> kernel(torch.tensor([[0.1]]), torch.tensor([[0.9], [3.1], [3.9]])).to_dense()
        tensor([[1.0000, 0.0900, 0.0900]])
    """

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
        partition = ClusteringPartition()
        if train_x is not None:
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
