"""Sparse features of a partition kernel for any linear model, with the scikit-learn API: `PartitionFeatures`."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.base import TransformerMixin
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from gpytorch_partition.all_or_nothing import all_or_nothing
from gpytorch_partition.estimators.kernels import KernelLike
from gpytorch_partition.estimators.machine import KernelMachine, optional_targets
from gpytorch_partition.models.cluster_features import ClusterFeatures


class PartitionFeatures(TransformerMixin, KernelMachine):
    r"""
    A transformer to sparse features whose products are a partition kernel.

    Use it before a linear model of scikit-learn, in a pipeline. The model then is a kernel machine at a cost linear in
    the number of rows: `LogisticRegression` is kernel logistic regression, and `SGDClassifier` and `Ridge` likewise.

    A row has an entry for each of its clusters, or, for the default forest, whose levels all count, for each node on
    its paths. The entry is the square root of the weight of the cluster or node in the kernel.

    :math:`\Phi \Phi^\top` is the kernel exactly among training rows, and between these and new rows; for pairs of new
    rows see :class:`~gpytorch_partition.models.ClusterFeatures`. A row has m entries for flat partitions, m times the
    depth of a leaf for the default forest, of 12 bytes each.

    :param kernel: `"fast_cluster"`, `"mondrian"`, `"forest"` (which needs targets: `fit(X, y)`), a function from the
        standardized rows and the targets `(x, y)` to a kernel, or a kernel of this package that is built already, which
        sees X as it is (:func:`~gpytorch_partition.estimators.kernels.resolved_kernel`). (Default: `"fast_cluster"`.)
    :param num_partitions: Number m of partitions of a named kernel. (Default: 200.)
    :param random_state: Seed of the partitions.
    :param n_jobs: Trees grown at once, as scikit-learn counts them. (Default: None, one.)

    Fitted attributes:

    - `n_columns_`: the number p of columns, the clusters that hold training rows.
    - `kernel_`: the kernel. `n_features_in_`, `feature_names_in_`: as in scikit-learn.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.linear_model import LogisticRegression
        >>> from sklearn.pipeline import make_pipeline
        >>> X, y = load_iris(return_X_y=True)
        >>> machine = make_pipeline(PartitionFeatures("forest", 50, random_state=0), LogisticRegression(C=10.0))
        >>> bool(machine.fit(X[::2], y[::2]).score(X[1::2], y[1::2]) > 0.9)
        True
    """

    def __init__(
        self,
        kernel: KernelLike = "fast_cluster",
        num_partitions: int = 200,
        *,
        random_state: int | np.random.RandomState | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.kernel = kernel
        self.num_partitions = num_partitions
        self.random_state = random_state
        self.n_jobs = n_jobs

    @all_or_nothing
    def fit(self, X: Any, y: Any = None) -> PartitionFeatures:
        """
        Build the kernel, and find the clusters that hold rows.

        :param X: `N x D` rows, finite; `"forest"` takes NaN for a missing value.
        :param y: `N` numbers or labels of classes, for a supervised kernel; others ignore it. (Default: None.)
        :return: The transformer itself.
        :raises ValueError: If the rows or a parameter cannot be used, or `"forest"` is given no targets.
        :raises TypeError: If the kernel is of another kind, or X is sparse.
        """
        rows = self._checked(X)
        x = self._build(rows, optional_targets(y, len(rows)))
        self._features = ClusterFeatures(self.kernel_, x)
        self.n_columns_ = self._features.num_columns
        return self

    def transform(self, X: Any) -> csr_matrix:
        """
        Return the features of rows.

        :param X: `N2 x D` rows, as in :meth:`fit`.
        :return: `N2 x p`, float64.
        :raises ValueError: If there would be 2^31 entries or more, or the rows cannot be used.
        :raises sklearn.exceptions.NotFittedError: Before :meth:`fit`.
        """
        x = self._new_rows(X)
        return self._features(x)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """
        Return a name for each column, such as `partition3_cluster7`.

        This one is cluster 7, or node 7, of those of partition 3 that hold training rows, both counted from 0. Terms of
        sums and loadings are named too.

        :param input_features: None, or the names of the columns of X, which are checked.
        """
        check_is_fitted(self)
        _check_feature_names_in(self, input_features)
        return np.array(self._features.names(), dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64"]
        return tags
