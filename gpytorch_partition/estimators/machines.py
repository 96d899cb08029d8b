"""Kernel machines with the scikit-learn API: their base class, kernel PCA, spectral clustering and sparse features."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from scipy.sparse import csr_matrix
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.cluster import KMeans
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted
from torch import Tensor

from gpytorch_partition.all_or_nothing import all_or_nothing, on_one_fit
from gpytorch_partition.estimators.checks import check_count, check_magnitudes, check_n_jobs, check_positive
from gpytorch_partition.estimators.kernel_parameter import KernelLike, resolved_kernel, sees_raw_columns
from gpytorch_partition.estimators.reading import ReadsTables
from gpytorch_partition.inputs.numbers import random_state_of
from gpytorch_partition.inputs.standardization import Standardization
from gpytorch_partition.inputs.training_rows import decode_missing
from gpytorch_partition.models.cluster_features import ClusterFeatures
from gpytorch_partition.models.spectral import spectral_embedding, spectral_truncation
from gpytorch_partition.progress import doing
from gpytorch_partition.tables.cells import as_pandas


class KernelMachine(ReadsTables, BaseEstimator):
    """A base of estimators whose `fit` calls :meth:`_read` and :meth:`_build`, and :meth:`_new_rows` reads others."""

    kernel: Any
    num_partitions: int
    random_state: Any
    n_jobs: int | None
    kernel_: Kernel
    _columns: Standardization | None

    def _build(self, rows: np.ndarray, targets: Tensor | None, unlabelled: np.ndarray | None = None) -> Tensor:
        """Build the kernel on checked rows, with targets if any, and on others; return the former as it sees them."""
        check_n_jobs(self.n_jobs)
        points = self._training_rows(rows, unlabelled)
        options = {name: getattr(self, name) for name in ("num_partitions", "random_state", "n_jobs")}
        self.kernel_ = resolved_kernel(self.kernel, points, targets, categories=self._categories, **options)
        return points[: len(rows)]

    def _training_rows(self, rows: np.ndarray, unlabelled: np.ndarray | None = None) -> Tensor:
        check_magnitudes(rows, "X")
        rows = rows if unlabelled is None else np.concatenate([rows, unlabelled])
        is_raw = sees_raw_columns(self.kernel)
        self._columns = None if is_raw else Standardization.of_columns(rows).without(self._categories)
        return self._seen_by_kernel(rows)

    def _new_rows(self, X: Any) -> Tensor:
        check_is_fitted(self)
        return self._seen_by_kernel(self._read(X, reset=False))

    def _seen_by_kernel(self, rows: np.ndarray) -> Tensor:
        if self._columns is None:
            return torch.from_numpy(np.require(rows, requirements=["C", "W"]))
        return self._columns.apply_array(rows)

    def _in_full(self, x: Tensor) -> Tensor:
        return x if self._columns is None else self._columns.in_full(decode_missing(x))


def optional_targets(y: Any, num_rows: int) -> Tensor | None:
    """Return an unsupervised machine's targets for a supervised kernel: `N` numbers, `N x k` indicators or None."""
    if y is None:
        return None
    values = np.asarray(as_pandas(y))
    if values.shape[:1] != (num_rows,):
        raise ValueError(f"expected one target for each of {num_rows} rows, got targets of shape {values.shape}")
    if values.dtype.kind not in "fiub":
        if any(value is None or value != value for value in values.flat):
            raise ValueError("expected labels of classes, got None or NaN: drop such rows")
        return class_indicators(np.unique(values, return_inverse=True)[1])
    if not np.isfinite(values).all():
        raise ValueError("expected finite targets, got NaN or infinity: drop such rows")
    return torch.from_numpy(values.astype(np.float64))


def class_indicators(classes: np.ndarray) -> Tensor:
    """Return the targets for forests of classes: `N` zeros and ones, or `N x k` for k > 2 classes."""
    numbers = torch.from_numpy(classes)
    num_classes = int(numbers.max()) + 1
    return torch.nn.functional.one_hot(numbers).double() if num_classes > 2 else numbers.double()


@dataclass(eq=False, repr=False)
class PartitionKernelPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, KernelMachine):
    r"""
    Find principal components of rows in the feature space of a partition kernel, in time linear in the rows.

    Use it to draw or compress rows by their similarity, supervised (a forest) or not.

    Components are the leading eigenvectors of :math:`H K H`, :math:`H = I - 1 1^\top / N` (Schoelkopf, Smola & Mueller
    1998; Davies & Ghahramani 2014, figures 2 and 6), those of :class:`sklearn.decomposition.KernelPCA` on the
    precomputed kernel, signs included. Costs some tens of products with the kernel, :math:`O(N m k)` each, and 8 (k +
    6) numbers per row. New points cost :math:`O((N + N_2) m k)`.

    :param n_components: Number k of components, at most N. (Default: 2.)
    :param kernel: `"fast_cluster"`, `"mondrian"`, `"forest"` (which needs targets: `fit(X, y)`), or any form of
        :func:`~gpytorch_partition.estimators.kernel_parameter.resolved_kernel`. (Default: `"fast_cluster"`.)
    :param num_partitions: Number m of partitions of a named kernel. (Default: 200.)
    :param tol: Largest residual of an eigenvector, relative to the largest eigenvalue. (Default: 1e-9.)
    :param random_state: Seed of the partitions, and of the first vectors of block Lanczos.
    :param n_jobs: Trees grown at once, as scikit-learn counts them. (Default: None, one.)

    Fitted attributes, beside those of scikit-learn: `eigenvalues_` of the centred kernel matrix (`k`, largest first);
    `eigenvectors_` (`N x k`, each with its largest entry positive); `explained_variance_ratio_`, the shares of the
    rows' variance in feature space (`k`); `kernel_`.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> machine = PartitionKernelPCA(n_components=2, random_state=0)
        >>> scores = machine.fit_transform(X)
        >>> scores.shape, bool(abs(scores - machine.transform(X)).max() < 1e-6)
        ((150, 2), True)
    """

    n_components: int = 2
    kernel: KernelLike = "fast_cluster"
    num_partitions: int = 200
    _: KW_ONLY
    tol: float = 1e-9
    random_state: int | np.random.RandomState | None = None
    n_jobs: int | None = None

    @all_or_nothing
    @doing("fitting a PartitionKernelPCA")
    def fit(self, X: Any, y: Any = None) -> PartitionKernelPCA:
        """
        Build the kernel, and find the principal components of the rows.

        :param X: `N x D` rows, finite; `"forest"` takes NaN for a missing value.
        :param y: `N` numbers or labels of classes, for a supervised kernel; others ignore it. (Default: None.)
        :raises ValueError: If the rows or a parameter cannot be used, or `"forest"` is given no targets.
        :raises TypeError: If the kernel is of another kind, or X is sparse.
        """
        check_count(self.n_components, "n_components")
        check_positive(self.tol, "tol")
        rows = self._read(X, reset=True)
        if self.n_components > len(rows):
            raise ValueError(
                f"expected n_components to be from 1 to the number of rows, {len(rows)}, got {self.n_components}"
            )
        x = self._build(rows, optional_targets(y, len(rows)))
        options: dict[str, Any] = {"tolerance": self.tol, "random_state": self.random_state}
        found = spectral_truncation(self.kernel_, x, self.n_components, is_centred=True, **options)
        self._truncation = found
        self.eigenvalues_, self.eigenvectors_ = found.eigenvalues.numpy(), found.eigenvectors.numpy()
        self.explained_variance_ratio_ = self.eigenvalues_ / found.total if found.total > 0 else 0 * self.eigenvalues_
        return self

    @on_one_fit
    def transform(self, X: Any) -> np.ndarray:
        """Return the scores of rows (`N2 x k`), their coordinates along the components."""
        x = self._new_rows(X)
        return self._truncation.features(x).numpy()

    def fit_transform(self, X: Any, y: Any = None) -> np.ndarray:
        """Fit, and return the scores of the rows (`N x k`), without another product."""
        self.fit(X, y)
        return self.eigenvectors_ * np.sqrt(np.maximum(self.eigenvalues_, 0))

    @property
    def _n_features_out(self) -> int:
        return len(self.eigenvalues_)


@dataclass(eq=False, repr=False)
class PartitionSpectralClustering(ClusterMixin, KernelMachine):
    """
    Cluster rows by the spectrum of a partition kernel as their affinity, in time linear in the rows.

    Use it for clusters of any shape, where rows are too many for a dense affinity.

    K-means finds clusters among the leading eigenvectors of the normalized affinity (normalized cuts; Shi & Malik
    2000), as :class:`sklearn.cluster.SpectralClustering` does on the precomputed kernel, which is never formed here.
    Fine partitions find clusters of any shape: two moons are separated with `kernel=lambda x, y: MondrianKernel(x,
    lifetime=10.0)`, not with the default, whose partitions are coarse.

    Costs some tens to hundreds of products with k + 6 columns, :math:`O(N m k)` each
    (:func:`~gpytorch_partition.models.spectral_embedding`), and K-means in k dimensions.

    Other parameters are those of :class:`PartitionKernelPCA`.

    :param n_clusters: Number k of clusters. (Default: 8.)
    :param n_components: Number of eigenvectors. (Default: None, as many as clusters.)
    :param n_init: Runs of K-means; the best is kept. (Default: 10.)
    :param tol: Largest residual of an eigenvector, relative to the largest eigenvalue. (Default: 1e-6.)
    :param random_state: Seed of the partitions, the first vectors and K-means.

    Fitted attributes, beside those of scikit-learn: `labels_`, the cluster (`N`) of each row; `embedding_`, the
    coordinates (`N x n_components`) that K-means sees; `eigenvalues_`, 1 for each part of the rows without affinity to
    others (a gap after the first k indicates k clusters); `kernel_`.

    Example:
        >>> from sklearn.datasets import make_blobs
        >>> from sklearn.metrics import adjusted_rand_score
        >>> X, y = make_blobs(300, centers=3, random_state=0, cluster_std=0.5)
        >>> labels = PartitionSpectralClustering(3, random_state=0).fit_predict(X)
        >>> bool(adjusted_rand_score(y, labels) > 0.95)
        True
    """

    n_clusters: int = 8
    kernel: KernelLike = "fast_cluster"
    num_partitions: int = 200
    _: KW_ONLY
    n_components: int | None = None
    n_init: int = 10
    tol: float = 1e-6
    random_state: int | np.random.RandomState | None = None
    n_jobs: int | None = None

    @all_or_nothing
    @doing("fitting a PartitionSpectralClustering")
    def fit(self, X: Any, y: Any = None) -> PartitionSpectralClustering:
        """Build the kernel, and cluster the rows; parameters and errors are those of :meth:`PartitionKernelPCA.fit`."""
        number = self.n_clusters if self.n_components is None else self.n_components
        for name, value in {"n_clusters": self.n_clusters, "n_components": number, "n_init": self.n_init}.items():
            check_count(value, name)
        check_positive(self.tol, "tol")
        rows = self._read(X, reset=True)
        if len(rows) < (fewest := max(number, self.n_clusters)):
            raise ValueError(f"expected {fewest} rows or more, one for each cluster, got {len(rows)}")
        x = self._build(rows, optional_targets(y, len(rows)))
        random = random_state_of(self.random_state)
        found = spectral_embedding(self.kernel_, x, number, tolerance=self.tol, random_state=random)
        self.eigenvalues_, self.embedding_ = found.values.numpy(), found.vectors.numpy()
        self.labels_ = KMeans(self.n_clusters, n_init=self.n_init, random_state=random).fit_predict(self.embedding_)
        return self

    def fit_predict(self, X: Any, y: Any = None) -> np.ndarray:
        """Fit, and return the clusters (`N`) of the rows."""
        return self.fit(X, y).labels_


@dataclass(eq=False, repr=False)
class PartitionFeatures(TransformerMixin, KernelMachine):
    r"""
    Transform rows to sparse features whose products are a partition kernel.

    Use it before a linear model of scikit-learn, in a pipeline, which then is a kernel machine at a cost linear in the
    number of rows: `LogisticRegression` is kernel logistic regression.

    A row has an entry of 12 bytes for each of its m clusters, or, for the default forest, for each node on its m paths:
    the square root of its weight in the kernel. :math:`\Phi \Phi^\top` is the kernel exactly among training rows, and
    between these and new rows; for pairs of new rows see :class:`~gpytorch_partition.models.ClusterFeatures`.

    Parameters are those of :class:`PartitionKernelPCA`.

    Fitted attributes, beside those of scikit-learn: `n_columns_`, the number p of clusters with training rows;
    `kernel_`.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.linear_model import LogisticRegression
        >>> from sklearn.pipeline import make_pipeline
        >>> X, y = load_iris(return_X_y=True)
        >>> machine = make_pipeline(PartitionFeatures("forest", 50, random_state=0), LogisticRegression(C=10.0))
        >>> bool(machine.fit(X[::2], y[::2]).score(X[1::2], y[1::2]) > 0.9)
        True
    """

    kernel: KernelLike = "fast_cluster"
    num_partitions: int = 200
    _: KW_ONLY
    random_state: int | np.random.RandomState | None = None
    n_jobs: int | None = None

    @all_or_nothing
    def fit(self, X: Any, y: Any = None) -> PartitionFeatures:
        """Find the clusters that hold rows; parameters and errors are those of :meth:`PartitionKernelPCA.fit`."""
        rows = self._read(X, reset=True)
        x = self._build(rows, optional_targets(y, len(rows)))
        self._features = ClusterFeatures(self.kernel_, x)
        self.n_columns_ = self._features.num_columns
        return self

    @on_one_fit
    def transform(self, X: Any) -> csr_matrix:
        """
        Return the features of rows (`N2 x p`, float64).

        :raises ValueError: If there would be 2^31 entries or more, or the rows cannot be used.
        """
        x = self._new_rows(X)
        return self._features(x)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return a name for each column, as `partition3_cluster7` for cluster (or node) 7 of partition 3, from 0."""
        check_is_fitted(self)
        _check_feature_names_in(self, input_features)
        return np.array(self._features.names(), dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64"]
        return tags
