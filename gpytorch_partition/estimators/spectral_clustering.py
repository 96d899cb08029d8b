"""Normalized cuts with a partition kernel as affinity, with the scikit-learn API: `PartitionSpectralClustering`."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import ClusterMixin
from sklearn.cluster import KMeans

from gpytorch_partition.all_or_nothing import all_or_nothing
from gpytorch_partition.estimators.kernels import KernelLike
from gpytorch_partition.estimators.machine import KernelMachine, check_count, check_positive, optional_targets
from gpytorch_partition.inputs.numbers import random_state_of
from gpytorch_partition.models.spectral import spectral_embedding
from gpytorch_partition.progress import doing


class PartitionSpectralClustering(ClusterMixin, KernelMachine):
    r"""
    A spectral clustering with a partition kernel as the affinity, at a cost linear in the number of rows.

    Use it for clusters of any shape, where rows are too many for a dense affinity.

    K-means finds clusters among the leading eigenvectors of the normalized affinity (normalized cuts; Shi & Malik 2000,
    von Luxburg 2007), as :class:`sklearn.cluster.SpectralClustering` does on the precomputed kernel, which is never
    formed here. It is a consensus of random partitions: a cluster holds rows that share clusters in most of them. Fine
    partitions find clusters of any shape: two moons are separated with
    `kernel=lambda x, y: MondrianKernel(x, lifetime=10.0)`, not with the default, whose partitions are coarse.

    Costs some tens to hundreds of products with k + 6 columns, :math:`O(N m k)` each
    (:func:`~gpytorch_partition.models.spectral_embedding`), and K-means in k dimensions.

    :param n_clusters: Number k of clusters. (Default: 8.)
    :param kernel: `"fast_cluster"`, `"mondrian"`, `"forest"` (which needs targets: `fit(X, y)`), a function from the
        standardized rows and the targets `(x, y)` to a kernel, or a kernel of this package that is built already, which
        sees X as it is (:func:`~gpytorch_partition.estimators.kernels.resolved_kernel`). (Default: `"fast_cluster"`.)
    :param num_partitions: Number m of partitions of a named kernel. (Default: 200.)
    :param n_components: Number of eigenvectors. (Default: None, as many as clusters.)
    :param n_init: Runs of K-means; the best is kept. (Default: 10.)
    :param tol: Largest residual of an eigenvector, relative to the largest eigenvalue. (Default: 1e-6.)
    :param random_state: Seed of the partitions, the first vectors and K-means.
    :param n_jobs: Trees grown at once, as scikit-learn counts them. (Default: None, one.)

    Fitted attributes:

    - `labels_`: the cluster (`N`) of each row.
    - `embedding_`: the coordinates (`N x n_components`) that K-means sees.
    - `eigenvalues_`: their eigenvalues; 1 for each part of the rows without affinity to others. A gap after the first k
      indicates k clusters.
    - `kernel_`: the kernel. `n_features_in_`, `feature_names_in_`: as in scikit-learn.

    Example:
        >>> from sklearn.datasets import make_blobs
        >>> from sklearn.metrics import adjusted_rand_score
        >>> X, y = make_blobs(300, centers=3, random_state=0, cluster_std=0.5)
        >>> labels = PartitionSpectralClustering(3, random_state=0).fit_predict(X)
        >>> bool(adjusted_rand_score(y, labels) > 0.95)
        True
    """

    def __init__(
        self,
        n_clusters: int = 8,
        kernel: KernelLike = "fast_cluster",
        num_partitions: int = 200,
        *,
        n_components: int | None = None,
        n_init: int = 10,
        tol: float = 1e-6,
        random_state: int | np.random.RandomState | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.kernel = kernel
        self.num_partitions = num_partitions
        self.n_components = n_components
        self.n_init = n_init
        self.tol = tol
        self.random_state = random_state
        self.n_jobs = n_jobs

    @all_or_nothing
    @doing("fitting a PartitionSpectralClustering")
    def fit(self, X: Any, y: Any = None) -> PartitionSpectralClustering:
        """
        Build the kernel, and cluster the rows.

        :param X: `N x D` rows, finite; `"forest"` takes NaN for a missing value.
        :param y: `N` numbers or labels of classes, for a supervised kernel; others ignore it. (Default: None.)
        :return: The machine itself.
        :raises ValueError: If the rows or a parameter cannot be used, there are fewer rows than clusters, or `"forest"`
            is given no targets.
        :raises TypeError: If the kernel is of another kind, or X is sparse.
        """
        number = self.n_clusters if self.n_components is None else self.n_components
        for name, value in {"n_clusters": self.n_clusters, "n_components": number, "n_init": self.n_init}.items():
            check_count(value, name)
        check_positive(self.tol, "tol")
        rows = self._checked(X)
        if len(rows) < max(number, self.n_clusters):
            raise ValueError(
                f"expected {max(number, self.n_clusters)} rows or more, one for each cluster, got {len(rows)}"
            )
        x = self._build(rows, optional_targets(y, len(rows)))
        random = random_state_of(self.random_state)
        found = spectral_embedding(self.kernel_, x, number, tolerance=self.tol, random_state=random)
        self.eigenvalues_, self.embedding_ = found.values.numpy(), found.vectors.numpy()
        self.labels_ = KMeans(self.n_clusters, n_init=self.n_init, random_state=random).fit_predict(self.embedding_)
        return self

    def fit_predict(self, X: Any, y: Any = None) -> np.ndarray:
        """Fit, and return the clusters (`N`) of the rows."""
        return self.fit(X, y).labels_
