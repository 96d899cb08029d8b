r"""Sparse features of partition kernels, :math:`K = \Phi \Phi^\top`, for linear models of other libraries."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from gpytorch.kernels import Kernel
from linear_operator import to_linear_operator
from scipy.sparse import csr_matrix, diags, hstack
from torch import Tensor

from gpytorch_partition.kernels.partition_kernel import PartitionKernel
from gpytorch_partition.kernels.wrapper_kernels import checked_kernel
from gpytorch_partition.operators.algebra import structured_terms
from gpytorch_partition.operators.partition_linear_operator import PartitionLinearOperator


class ClusterFeatures:
    r"""
    Map points to sparse features of a kernel, :math:`\phi(x)^\top \phi(x') = k(x, x')`, by training rows.

    Use it to give another library the kernel as sparse columns: a linear model of them is a kernel machine.

    There is a column for each cluster that holds a training row, and an entry :math:`\sqrt{w}` in each cluster that a
    point is in: m entries of :math:`1 / \sqrt m` for flat partitions of equal weight (Balog et al. 2016, equation 2).
    For trees whose levels all count, a column is a node with the weight w, as in
    :class:`~gpytorch_partition.operators.PathSumLinearOperator`. Slopes and inducing points have a column per loading.

    Products of features equal the kernel, except between two points that share a cluster without training rows.

    Costs the labels of the rows, and 12 bytes for each entry: m in each row, or m times the mean depth of a leaf for
    all heights, or one for each set of a :class:`~gpytorch_partition.MembershipKernel`.

    :param kernel: A kernel of this package, or a sum or a :class:`gpytorch.kernels.ScaleKernel` of such kernels.
    :param train_x: `N x D` training rows.
    :raises TypeError: If the kernel is of another kind.
    :raises RuntimeError: If the kernel is unfitted.
    :raises ValueError: Here and in calls, if there are no rows, or they are not a floating point matrix of the right
        width, or hold values that the partitions cannot place.

    Example:
        >>> from gpytorch_partition import PartitionKernel
        >>> kernel = PartitionKernel(lambda x: torch.cat([x.floor(), x.round()], -1).long())
        >>> features = ClusterFeatures(kernel, torch.tensor([[0.2], [0.7], [1.1]]))
        >>> (features(torch.tensor([[0.7], [1.6]])) * 2**0.5).toarray().round(3)  # no training row rounds to 2
        array([[1., 0., 0., 1.],
               [0., 1., 0., 0.]])
    """

    def __init__(self, kernel: Kernel, train_x: Tensor) -> None:
        _check(train_x, "train_x")
        if not len(train_x):
            raise ValueError("expected training rows, whose clusters are the columns, got none")
        self.kernel, self.train_x = kernel, train_x.detach()
        self._columns = [_Columns.of(term) for term in self._terms(self.train_x)]

    @property
    def num_columns(self) -> int:
        """Return the number of columns."""
        return sum(columns.number for columns in self._columns)

    @property
    def partitions(self) -> np.ndarray:
        """Return the number of each column's partition, counted over all terms of a sum."""
        widths = np.cumsum([0, *(columns.num_partitions for columns in self._columns)])
        parts = [start + np.tile(own.partitions, own.num_loadings) for start, own in zip(widths, self._columns)]
        return np.concatenate(parts)

    def names(self) -> list[str]:
        """Return a name for each column: its partition, and the number of the cluster or node among those with rows."""
        names = []
        for number, columns in enumerate(self._columns):
            term = f"term{number}_" if len(self._columns) > 1 else ""
            first = np.searchsorted(columns.partitions, np.arange(columns.num_partitions))
            for loading in range(columns.num_loadings):
                suffix = f"_loading{loading}" if columns.num_loadings > 1 else ""
                for column, partition in enumerate(columns.partitions):
                    names.append(f"{term}partition{partition}_cluster{column - first[partition]}{suffix}")
        return names

    def __call__(self, x: Tensor) -> csr_matrix:
        """Return features (`N2 x p`, float64) of points (`N2 x D`), with columns ascending in each row."""
        _check(x, "x")
        # Coded first, so that the training rows define the feature space even if there are fewer of them.
        self._terms(self.train_x)
        terms = zip(self._columns, self._terms(x.detach()))
        blocks = [block for columns, term in terms for block in columns.blocks(term)]
        return blocks[0] if len(blocks) == 1 else hstack(blocks, format="csr")

    @torch.no_grad()
    def _terms(self, x: Tensor) -> list[PartitionLinearOperator]:
        terms = structured_terms(to_linear_operator(checked_kernel(self.kernel)(x, self.train_x)).evaluate_kernel())
        for term in terms:
            if not isinstance(term, PartitionLinearOperator):
                got = type(self.kernel).__name__
                raise TypeError(f"expected a kernel of this package or a sum, whose points have clusters, got a {got}")
        return terms


class _Columns(NamedTuple):
    """The columns of a term: which columns of the root hold training rows, and their partitions."""

    places: np.ndarray  # for each column of the root its number among those with training rows, or -1
    partitions: np.ndarray  # partition of each column with training rows
    num_partitions: int
    num_loadings: int

    @classmethod
    def of(cls, term: PartitionLinearOperator) -> _Columns:
        clusters, root = _present_root(term)
        of_cluster = np.empty(term.left.num_clusters, dtype=np.int64)
        for partition, codes in enumerate(term.left.codes.T.cpu().numpy()):
            of_cluster[codes] = partition
        of_column = np.full(root.shape[1], -1)
        of_column[root.indices] = np.repeat(of_cluster[clusters], np.diff(root.indptr))
        is_kept = of_column >= 0
        num_loadings = 1 if term.left_loadings is None else term.left_loadings.shape[-1]
        places = np.where(is_kept, np.cumsum(is_kept) - 1, -1)
        return cls(places, of_column[is_kept], term.left.num_partitions, num_loadings)

    @property
    def number(self) -> int:
        return len(self.partitions) * self.num_loadings

    def blocks(self, term: PartitionLinearOperator) -> list[csr_matrix]:
        """The features of the left points of a term, a block for each loading."""
        clusters, root = _present_root(term)
        root = float(term.scale) ** 0.5 * self._kept(root)
        place = np.empty(term.left.num_clusters, dtype=np.int32)
        place[clusters] = np.arange(len(clusters))
        places = place[term.left.codes.cpu().numpy()]
        number = int(np.bincount(places.ravel(), minlength=root.shape[0]) @ np.diff(root.indptr).astype(np.int64))
        if number >= 2**31:
            told = f"expected features with fewer than 2^31 entries, got {len(places):,} rows with"
            remedy = 'use fewer partitions, or trees cut at one height, RandomForestKernel(x, y, heights="sampled")'
            raise ValueError(f"{told} {number / len(places):.0f} each: {remedy}")
        # Columns of partitions are separate and in order, so that a row is its clusters' rows concatenated.
        rows = root[places.ravel()]
        starts = rows.indptr[:: places.shape[1]].copy()
        features = csr_matrix((rows.data, rows.indices, starts), shape=(len(places), root.shape[1]))
        if term.left_loadings is None:
            return [features]
        loadings = term.left_loadings.double().cpu().numpy()
        return [(diags(column) @ features).tocsr() for column in loadings.T]

    def _kept(self, root: csr_matrix) -> csr_matrix:
        columns = self.places[root.indices]
        kept = columns >= 0
        starts = np.concatenate([[0], np.cumsum(kept)])[root.indptr]
        return csr_matrix((root.data[kept], columns[kept], starts), shape=(root.shape[0], len(self.partitions)))


def cluster_features(kernel: Kernel, x: Tensor, train_x: Tensor) -> csr_matrix:
    """
    Return sparse features (`N x p`, float64) of points, whose products are the kernel.

    Call it once for all points; :class:`ClusterFeatures` keeps the columns for later ones.

    :param kernel: As of :class:`ClusterFeatures`, with the same errors.
    :param x: `N x D` points, all columns (`active_dims` is applied here).
    :param train_x: `N2 x D` training rows, whose clusters are the columns; they may be x itself.

    Example:
        >>> x = torch.tensor([[0.2], [0.7], [1.1]])
        >>> cluster_features(PartitionKernel(lambda x: x.floor().long()), x, x).toarray()
        array([[1., 0.],
               [1., 0.],
               [0., 1.]])
    """
    return ClusterFeatures(kernel, train_x)(x)


def cluster_columns(kernel: PartitionKernel, x: Tensor, train_x: Tensor) -> tuple[np.ndarray, int]:
    """Return the columns (`N x m`) of the clusters of points, -1 for those without training rows, and their number."""
    x, train_x = kernel.columns.select(x), kernel.columns.select(train_x)
    # Coded first, so that the training rows define the feature space even if there are fewer of them.
    trained, _ = kernel.partition.incidences(train_x, train_x)
    rows, _ = kernel.partition.incidences(x, train_x)
    counts = np.bincount(trained.codes.cpu().numpy().ravel(), minlength=trained.num_clusters)
    columns = np.where(counts > 0, np.cumsum(counts > 0) - 1, -1)
    return columns[rows.codes.cpu().numpy()], int((counts > 0).sum())


def one_hot(columns: np.ndarray, num_columns: int) -> csr_matrix:
    r"""Return features (`N x p`, sparse) of :math:`1 / \sqrt m` in given columns (`N x m`, -1 for none)."""
    kept = columns >= 0
    starts = np.concatenate([[0], np.cumsum(kept.sum(1))])
    values = np.full(starts[-1], (1 / columns.shape[1]) ** 0.5)  # equal to the root of S to the last digit
    return csr_matrix((values, columns[kept], starts), shape=(len(columns), num_columns))


class GrowingFeatures:
    r"""
    Map points to features :math:`1 / \sqrt m` in the columns of their m clusters, for rows that arrive in batches.

    A cluster gets a column with its first row, after all columns so far, and keeps it: learned weights stay in place,
    and are padded with zeros for new columns (Balog et al. 2016, section 5). Clusters without rows have none. The
    kernel's partitions have equal weight.

    Example:
        >>> features = GrowingFeatures(PartitionKernel(lambda x: torch.cat([x.floor(), x.round()], -1).long()))
        >>> features.grow(torch.tensor([[0.2], [0.7]]))
        array([[0, 1],
               [0, 2]])
        >>> features.columns(torch.tensor([[5.0]]))  # -1: none yet
        array([[-1, -1]])
    """

    def __init__(self, kernel: PartitionKernel) -> None:
        self.kernel = kernel
        self.num_columns = 0
        self._labels: list[np.ndarray] = []  # of each partition, sorted
        self._columns: list[np.ndarray] = []

    def grow(self, x: Tensor) -> np.ndarray:
        """Add columns for new clusters of rows (`N x D`), and return the columns of all their clusters (`N x m`)."""
        labels = self._labels_of(x)
        if not self._labels:
            self._labels, self._columns = ([np.empty(0, dtype=np.int64)] * labels.shape[1] for _ in range(2))
        for tree, column in enumerate(labels.T):
            known, first = np.unique(column, return_index=True)
            is_new = ~np.isin(known, self._labels[tree], assume_unique=True)
            new = known[is_new][np.argsort(first[is_new])]  # in order of appearance
            self._insert(tree, new)
        return self._found(labels)

    def columns(self, x: Tensor) -> np.ndarray:
        """Return the columns (`N x m`) of the clusters of points (`N x D`), -1 for those without one; none is added."""
        return self._found(self._labels_of(x))

    def features(self, x: Tensor) -> csr_matrix:
        """Return the features (`N x p`) of points; clusters without a column have no entry."""
        return one_hot(self.columns(x), self.num_columns)

    def _insert(self, tree: int, labels: np.ndarray) -> None:
        columns = np.arange(self.num_columns, self.num_columns + len(labels))
        both = np.concatenate([self._labels[tree], labels])
        order = np.argsort(both, kind="stable")
        self._labels[tree] = both[order]
        self._columns[tree] = np.concatenate([self._columns[tree], columns])[order]
        self.num_columns += len(labels)

    def _found(self, labels: np.ndarray) -> np.ndarray:
        found = np.full(labels.shape, -1, dtype=np.int64)
        for tree, (known, columns) in enumerate(zip(self._labels, self._columns)):
            if len(known):
                place = np.searchsorted(known, labels[:, tree]).clip(max=len(known) - 1)
                found[:, tree] = np.where(known[place] == labels[:, tree], columns[place], -1)
        return found

    def _labels_of(self, x: Tensor) -> np.ndarray:
        return self.kernel.cluster_ids(x).cpu().numpy()


def _present_root(term: PartitionLinearOperator) -> tuple[np.ndarray, csr_matrix]:
    """Return the clusters of the left points, ascending, and their rows of the root."""
    codes = term.left.codes
    present = torch.bincount(codes.reshape(-1), minlength=term.left.num_clusters).nonzero().squeeze(-1)
    return present.cpu().numpy(), term.cluster_operator.root_rows(present)


def _check(points: Tensor, name: str) -> None:
    if not torch.is_tensor(points) or points.dim() != 2 or not points.is_floating_point():
        got = f"{points.dtype} of shape {tuple(points.shape)}" if torch.is_tensor(points) else type(points).__name__
        raise ValueError(f"expected {name} as a floating point matrix (N x D), got {got}")
