"""Principal components in the feature space of a partition kernel, with the scikit-learn API: `PartitionKernelPCA`."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from gpytorch_partition.all_or_nothing import all_or_nothing
from gpytorch_partition.estimators.kernels import KernelLike
from gpytorch_partition.estimators.machine import KernelMachine, check_count, check_positive, optional_targets
from gpytorch_partition.models.spectral import spectral_truncation
from gpytorch_partition.progress import doing


class PartitionKernelPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, KernelMachine):
    r"""
    A kernel principal component analysis with a partition kernel, at a cost linear in the number of rows.

    Use it to draw or compress rows by their similarity, supervised (a forest) or not.

    Principal components of the rows in the kernel's feature space, centred there, are the leading eigenvectors of
    :math:`H K H`, :math:`H = I - 1 1^\top / N` (Schoelkopf, Smola & Mueller 1998). The first two show which rows the
    kernel takes for similar (Davies & Ghahramani 2014, figures 2 and 6); more are features for a linear model.

    It agrees with scikit-learn's :class:`sklearn.decomposition.KernelPCA` on the precomputed kernel, signs included,
    and never forms it: eigenvectors come from block Lanczos on products with the kernel, mostly some tens of them. Each
    product costs :math:`O(N m k)`, and work space is some 8 (k + 6) numbers per row. New points cost a product with the
    kernel between them and the training rows, :math:`O((N + N_2) m k)`.

    :param n_components: Number k of components, at most N. (Default: 2.)
    :param kernel: `"fast_cluster"`, `"mondrian"`, `"forest"` (which needs targets: `fit(X, y)`), a function from the
        standardized rows and the targets `(x, y)` to a kernel, or a kernel of this package that is built already, which
        sees X as it is (:func:`~gpytorch_partition.estimators.kernels.resolved_kernel`). (Default: `"fast_cluster"`.)
    :param num_partitions: Number m of partitions of a named kernel. (Default: 200.)
    :param tol: Largest residual of an eigenvector, relative to the largest eigenvalue. (Default: 1e-9.)
    :param random_state: Seed of the partitions, and of the first vectors of block Lanczos.
    :param n_jobs: Trees grown at once, as scikit-learn counts them. (Default: None, one.)

    Fitted attributes:

    - `eigenvalues_`: `k` eigenvalues of the centred kernel matrix, largest first.
    - `eigenvectors_`: `N x k` eigenvectors, each with its largest entry positive.
    - `explained_variance_ratio_`: `k` shares of the rows' variance in feature space.
    - `kernel_`: the kernel. `n_features_in_`, `feature_names_in_`: as in scikit-learn.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> machine = PartitionKernelPCA(n_components=2, random_state=0)
        >>> scores = machine.fit_transform(X)
        >>> scores.shape, bool(abs(scores - machine.transform(X)).max() < 1e-6)
        ((150, 2), True)
        >>> machine.explained_variance_ratio_.round(2)
        array([0.15, 0.08])
    """

    def __init__(
        self,
        n_components: int = 2,
        kernel: KernelLike = "fast_cluster",
        num_partitions: int = 200,
        *,
        tol: float = 1e-9,
        random_state: int | np.random.RandomState | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.num_partitions = num_partitions
        self.tol = tol
        self.random_state = random_state
        self.n_jobs = n_jobs

    @all_or_nothing
    @doing("fitting a PartitionKernelPCA")
    def fit(self, X: Any, y: Any = None) -> PartitionKernelPCA:
        """
        Build the kernel and find the components.

        :param X: `N x D` rows, finite; `"forest"` takes NaN for a missing value.
        :param y: `N` numbers or labels of classes, for a supervised kernel; others ignore it. (Default: None.)
        :return: The machine itself.
        :raises ValueError: If the rows or a parameter cannot be used, or `"forest"` is given no targets.
        :raises TypeError: If the kernel is of another kind, or X is sparse.
        """
        check_count(self.n_components, "n_components")
        check_positive(self.tol, "tol")
        rows = self._checked(X)
        if self.n_components > len(rows):
            raise ValueError(
                f"expected n_components to be from 1 to the number of rows, {len(rows)}, got {self.n_components}"
            )
        x = self._build(rows, optional_targets(y, len(rows)))
        found = spectral_truncation(
            self.kernel_, x, self.n_components, is_centred=True, tolerance=self.tol, random_state=self.random_state
        )
        self._truncation = found
        self.eigenvalues_, self.eigenvectors_ = found.eigenvalues.numpy(), found.eigenvectors.numpy()
        self.explained_variance_ratio_ = self.eigenvalues_ / found.total if found.total > 0 else 0 * self.eigenvalues_
        return self

    def transform(self, X: Any) -> np.ndarray:
        """
        Return the scores of rows, their coordinates along the components.

        :param X: `N2 x D` rows, as in :meth:`fit`.
        :return: `N2 x k`.
        :raises sklearn.exceptions.NotFittedError: Before :meth:`fit`.
        """
        x = self._new_rows(X)
        return self._truncation.features(x).numpy()

    def fit_transform(self, X: Any, y: Any = None) -> np.ndarray:
        """Fit, and return the scores of the rows (`N x k`), without another product."""
        self.fit(X, y)
        return self.eigenvectors_ * np.sqrt(np.maximum(self.eigenvalues_, 0))

    @property
    def _n_features_out(self) -> int:
        return len(self.eigenvalues_)
