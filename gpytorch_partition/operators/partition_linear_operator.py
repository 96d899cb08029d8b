"""The covariance of a partition kernel, with products by sums over clusters: eq. 8 of Davies & Ghahramani 2014."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import add
from typing import Any

import torch
from linear_operator import settings as linear_settings
from linear_operator.operators import LinearOperator
from linear_operator.utils.memoize import cached
from torch import Tensor

from gpytorch_partition.callers import not_compiled
from gpytorch_partition.clusters.cache import Key
from gpytorch_partition.clusters.incidence import Incidence
from gpytorch_partition.operators.cluster_operators.cluster_operator import (
    ClusterOperator,
    TransposedLinearOperator,
    as_columns,
    of_columns,
)
from gpytorch_partition.operators.guards import CovarianceOperator, check_dense
from gpytorch_partition.operators.loadings import LoadedRows
from gpytorch_partition.operators.sums_and_roots import ExactRootLinearOperator

_LOOKUPS = 2**22  # entries looked up at once by index
# Wide products take a block of columns at a time: where its table of sums stays in the cache, several times as fast.
_SUMS_AT_ONCE = 2**21  # sums over clusters of a block
_FEWEST_COLUMNS = 32  # columns of a block, even if their sums are more
KEPT_ROWS = 1_500  # rows of dense matrices that are kept: 18 MB in float64

_DENSE: Key[Tensor] = Key("dense")  # the dense matrix of unit scale, kept with the rows


class PartitionLinearOperator(CovarianceOperator):
    r"""
    Multiply by a covariance :math:`K = s \sum_r \mathrm{diag}(R_r)\, Z S Z'^\top\, \mathrm{diag}(R'_r)`, never formed.

    Use it as the covariance of a kernel class of your own, with an :class:`~gpytorch_partition.IterativeKernel` around
    that kernel; a subclass of :class:`~gpytorch_partition.PartitionKernel` need only give S (`_cluster_operator`).

    Z and Z' are the one-hot rows of two sets of points in feature space, S is an operator there, and R and R' are
    optional loadings of the rows (absent: 1). With :math:`S = I/m` this is the random partition kernel (Davies &
    Ghahramani 2014, definition 2), and a product is the mean of their eq. 8 over the partitions.

    A product costs :math:`O((N + N') m t)` for t columns, k times that with k loadings, plus the product with S. K is
    symmetric when both sides are the *same* :class:`Incidence` object.

    :param scale: `*batch`, the factor s, whose dtype is that of K.
    :param cluster_operator: `p x p'` S, with no batch dimensions; its own transpose where both sides have the same
        clusters. Sums over clusters are computed in its dtype, which loadings must have.
    :param left: Rows Z (`N x p`); its batch shape must broadcast to that of the scale.
    :param right: Rows Z' (`N' x p'`).
    :param left_loadings: `*batch x N x k` R. (Default: none.)
    :param right_loadings: `*batch x N' x k` R'. (Default: none.)
    :raises ValueError: If the scale is not a floating point tensor, S is no operator or does not fit the rows, or only
        one side has loadings (unless `linear_operator.settings.debug` is off).

    Example:
        >>> from gpytorch_partition.operators import FlatLinearOperator
        >>> Z = Incidence(torch.tensor([[0, 2], [0, 3], [1, 3]]), num_clusters=4)
        >>> S = FlatLinearOperator(torch.tensor([0.5]), num_clusters=4)
        >>> PartitionLinearOperator(torch.tensor(2.0), S, left=Z, right=Z).to_dense()
        tensor([[2., 1., 0.],
                [1., 2., 1.],
                [0., 1., 2.]])
    """

    def __init__(
        self,
        scale: Tensor,
        cluster_operator: ClusterOperator,
        *,
        left: Incidence,
        right: Incidence,
        left_loadings: Tensor | None = None,
        right_loadings: Tensor | None = None,
    ) -> None:
        sides = {"left": left, "right": right, "left_loadings": left_loadings, "right_loadings": right_loadings}
        super().__init__(scale, cluster_operator, **sides)
        self.scale = scale
        self.cluster_operator = cluster_operator
        self.left, self.right = left, right
        self.left_loadings, self.right_loadings = left_loadings, right_loadings

    def _check_args(self, scale: Tensor, cluster_operator: ClusterOperator, **sides: Any) -> str | None:
        if not torch.is_tensor(scale) or not scale.is_floating_point():
            return f"expected the scale to be a floating point tensor, got {scale!r}"
        if not isinstance(cluster_operator, ClusterOperator):
            return f"expected S as a ClusterOperator, such as FlatLinearOperator, got {type(cluster_operator).__name__}"
        sizes = [sides["left"].num_clusters, sides["right"].num_clusters]
        if list(cluster_operator.matrix_shape) != sizes:
            shape = tuple(cluster_operator.matrix_shape)
            return f"expected S to be of the rows' clusters, got {shape} for {sizes[0]} left and {sizes[1]} right ones"
        if (sides["left_loadings"] is None) != (sides["right_loadings"] is None):
            return "expected loadings on both sides or on neither"
        return None

    @property
    def is_symmetric(self) -> bool:
        return self.left is self.right

    @property
    def has_same_clusters(self) -> bool:
        return self.cluster_operator.has_same_clusters

    def _size(self) -> torch.Size:
        return torch.Size((*self.scale.shape, self.left.num_rows, self.right.num_rows))

    def _with(self, **changes: Any) -> PartitionLinearOperator:
        scale = changes.pop("scale", self.scale)
        cluster_operator = changes.pop("cluster_operator", self.cluster_operator)
        return PartitionLinearOperator(scale, cluster_operator, **{**self._kwargs, **changes})

    # Products: Z S Z'^T V, from right to left.

    @of_columns
    def _matmul(self, rhs: Tensor) -> Tensor:
        size = max(_FEWEST_COLUMNS, _SUMS_AT_ONCE // max(1, self.right.num_clusters))
        products = [self.row_values(self.cluster_product(self.cluster_sums(block))) for block in rhs.split(size, -1)]
        return products[0] if len(products) == 1 else torch.cat(products, -1)

    def cluster_sums(self, values: Tensor) -> Tensor:
        r"""Return :math:`Z'^\top \mathrm{diag}(R') V` (`*batch x p x kt`), cluster sums of V (`*batch x N' x t`)."""
        return LoadedRows(self.right, self.right_loadings).cluster_sums(values.to(self.cluster_operator.dtype))

    def cluster_product(self, sums: Tensor) -> Tensor:
        r"""Return :math:`S C` for a table of clusters `*batch x p x t`."""
        return _over_columns(self.cluster_operator._matmul, sums)

    def row_values(self, table: Tensor) -> Tensor:
        r"""Return :math:`s\, \mathrm{diag}(R) Z C` (`*batch x N x t`), values of rows from C (`*batch x p x kt`)."""
        return self.scale[..., None, None] * LoadedRows(self.left, self.left_loadings).row_values(table)

    def _transpose_nonbatch(self) -> PartitionLinearOperator:
        return self._with(
            cluster_operator=self.cluster_operator._transpose_nonbatch(),
            left=self.right,
            right=self.left,
            left_loadings=self.right_loadings,
            right_loadings=self.left_loadings,
        )

    def _bilinear_derivative(self, left_vecs: Tensor, right_vecs: Tensor) -> tuple[Tensor | None, ...]:
        r"""Derivatives of :math:`\mathrm{tr}(U^\top K V)`: inner products of the cluster sums of U and V."""
        left_vecs, right_vecs = (as_columns(vecs).to(self.cluster_operator.dtype) for vecs in (left_vecs, right_vecs))
        right_sums = self.cluster_sums(right_vecs)
        left_sums = self.mT.cluster_sums(left_vecs)
        spread = self.cluster_product(right_sums)
        scale_grad = (left_sums * spread).sum((-1, -2)).sum_to_size(self.scale.shape)
        gradients: list[Tensor | None] = [scale_grad, *self._cluster_derivative(left_sums, right_sums)]
        if self.left_loadings is not None:
            gradients += [
                self._loadings_derivative(left_vecs, spread),
                self.mT._loadings_derivative(right_vecs, self.mT.cluster_product(left_sums)),
            ]
        return tuple(gradients)

    def _cluster_derivative(self, left_sums: Tensor, right_sums: Tensor) -> tuple[Tensor | None, ...]:
        if not self.cluster_operator.requires_grad:
            return (None,) * len(self.cluster_operator.representation())
        left_sums = self.scale[..., None, None] * left_sums
        batch_shape = torch.broadcast_shapes(left_sums.shape[:-2], right_sums.shape[:-2])
        tables = [sums.expand(*batch_shape, *sums.shape[-2:]) for sums in (left_sums, right_sums)]
        columns = [sums.movedim(-2, 0).reshape(sums.shape[-2], -1) for sums in tables]
        return self.cluster_operator._bilinear_derivative(*columns)

    def _loadings_derivative(self, left_vecs: Tensor, spread: Tensor) -> Tensor | None:
        loadings = self.left_loadings
        if loadings is None or not loadings.requires_grad:
            return None
        gradient = LoadedRows(self.left, loadings).loadings_derivative(left_vecs, spread)
        return (self.scale[..., None, None] * gradient).sum_to_size(loadings.shape)

    @not_compiled
    @cached
    def to_dense(self) -> Tensor:
        """Return the dense matrix; up to 1,500 rows the part without the scale is computed once and kept."""
        if self.left_loadings is not None and self.right_loadings is not None:
            unloaded = self._with(left_loadings=None, right_loadings=None)
            return unloaded.to_dense() * (self.left_loadings @ self.right_loadings.mT)
        if self.cluster_operator.requires_grad:
            return super().to_dense()
        unit = self.without_scale()
        if not self.is_symmetric or self.size(-1) > max(KEPT_ROWS, linear_settings.max_cholesky_size.value()):
            with torch.no_grad():
                matrix = unit._dense_of_unit_scale()
            if not self.scale.requires_grad and self.scale.dim() == 0:
                return matrix.mul_(self.scale)  # a new matrix, unlike one that is kept
        else:
            matrix = self.left.cache.get(_DENSE, unit, unit._dense_of_unit_scale, self.cluster_operator.structure)
        return self.scale[..., None, None] * matrix

    def add_dense_to(self, total: Tensor) -> None:
        """Add the dense matrix to another (`N x N'`), in place and without a graph; loadings in one product."""
        if self.left_loadings is None or self.right_loadings is None or self.left.num_clusters > 1:
            total += self.to_dense()
        else:
            weight = self.scale * self.cluster_operator.to_dense().squeeze()
            total.addmm_(self.left_loadings, self.right_loadings.mT, alpha=float(weight))

    def _dense_of_unit_scale(self) -> Tensor:
        if self.left.batch_shape and not self.right.batch_shape:
            return self._dense_of_all_rows()
        if self.batch_shape and self.is_symmetric and self.size(-1) == 1:
            return self._diagonal().unsqueeze(-1)
        inner = self.cluster_operator
        if self.device.type != "cpu" or self.batch_shape or inner.dtype not in (torch.float32, torch.float64):
            return LinearOperator.to_dense(self)
        block = inner.dense_block(self.left, self.right)
        return self._dense_by_columns() if block is None else block.to(self.dtype)

    def _dense_by_columns(self) -> Tensor:
        """Return Z times blocks of columns of S Z'^T, without the sums over clusters of a product with the identity."""
        if self.left.num_rows < self.right.num_rows:
            return self._transpose_nonbatch()._dense_by_columns().mT
        inner, dense = self.cluster_operator, torch.empty(self.shape, dtype=self.dtype)
        size = max(_FEWEST_COLUMNS, _SUMS_AT_ONCE // max(1, self.right.num_clusters))
        for codes, columns in zip(self.right.codes.split(size), dense.split(size, -1)):
            ones = torch.zeros(self.right.num_clusters, len(codes), dtype=inner.dtype)
            ones[codes.T.long(), torch.arange(len(codes))] = 1
            columns.copy_(self.row_values(self.cluster_product(ones)))
        return dense

    def _dense_of_all_rows(self) -> Tensor:
        """All batch elements as one matrix: BoTorch's batches of single points take a tenth of the time."""
        rows = Incidence(self.left.codes.reshape(-1, self.left.num_partitions), self.left.num_clusters)
        matrix = self._with(scale=self.scale.new_ones(()), left=rows)._dense_of_unit_scale()
        return matrix.view(*self.left.batch_shape, *self.shape[-2:])

    def without_scale(self) -> PartitionLinearOperator:
        """Return K / s (`N x N'`), with only the batch dimensions of the rows."""
        own_shape = torch.broadcast_shapes(self.left.batch_shape, self.right.batch_shape)
        return self._with(scale=torch.ones(own_shape, dtype=self.dtype, device=self.device))

    # Entries.

    @not_compiled
    def _diagonal(self) -> Tensor:
        if not self.is_symmetric:
            ranges = (torch.arange(size, device=self.device) for size in (*self.batch_shape, self.size(-1)))
            *batch, rows = torch.meshgrid(*ranges, indexing="ij")
            return self._get_indices(rows, rows, *batch)
        table = self.cluster_operator._diagonal().unsqueeze(-1)
        own = self.left.row_values(table).squeeze(-1)
        if self.left_loadings is not None:
            own = own * torch.einsum("...nk,...nk->...n", self.left_loadings, self.left_loadings)
        return (self.scale.unsqueeze(-1) * own).expand(*self.batch_shape, self.size(-1))

    def _get_indices(self, row_index: Tensor, col_index: Tensor, *batch_indices: Tensor) -> Tensor:
        row_index, col_index, *batch_indices = torch.broadcast_tensors(row_index, col_index, *batch_indices)
        flat = [index.reshape(-1) for index in (row_index, col_index, *batch_indices)]
        num_loadings = 1 if self.left_loadings is None else self.left_loadings.shape[-1]
        size = max(1, _LOOKUPS // max(1, self.left.num_partitions, num_loadings))
        chunks = [self._entries(*chunk) for chunk in zip(*(index.split(size) for index in flat))]
        entries = torch.cat(chunks) if chunks else self.scale.new_zeros(0)
        return entries.view(row_index.shape)

    def _entries(self, rows: Tensor, columns: Tensor, *batch: Tensor) -> Tensor:
        """Entries at as many rows, columns and batch indices: S at the two clusters, summed over partitions."""
        left_codes = _at(self.left.codes, batch, rows)
        right_codes = _at(self.right.codes, batch, columns)
        entries = self.cluster_operator._get_indices(left_codes.long(), right_codes.long()).sum(-1)
        if self.left_loadings is not None and self.right_loadings is not None:
            loadings = _at(self.left_loadings, batch, rows) * _at(self.right_loadings, batch, columns)
            entries = entries * loadings.sum(-1)
        return self.scale[batch] * entries.to(self.dtype)

    def _getitem(self, row_index: Any, col_index: Any, *batch_indices: Any) -> PartitionLinearOperator:
        left = self.left.select(row_index, batch_indices, self.batch_shape)
        right = self.right.select(col_index, batch_indices, self.batch_shape)
        loadings = self._select_loadings(self.left_loadings, row_index, batch_indices)
        others = loadings if left is right else self._select_loadings(self.right_loadings, col_index, batch_indices)
        scale = self.scale[batch_indices] if batch_indices else self.scale
        return self._with(scale=scale, left=left, right=right, left_loadings=loadings, right_loadings=others)

    def _select_loadings(self, loadings: Tensor | None, rows: Any, batch_indices: tuple[Any, ...]) -> Tensor | None:
        if loadings is None or loadings.dim() == 2:
            return loadings if loadings is None else loadings[rows]
        loadings = loadings.expand(*self.batch_shape, *loadings.shape[-2:])
        return loadings[batch_indices][..., rows, :] if batch_indices else loadings[..., rows, :]

    # Batches: only the scale carries the whole batch shape; rows that all elements share are not repeated.

    def _expand_batch(self, batch_shape: torch.Size | list[int]) -> PartitionLinearOperator:
        return self._with(scale=self.scale.expand(torch.Size(batch_shape)))

    def _unsqueeze_batch(self, dim: int) -> PartitionLinearOperator:
        return self._over_batch_dims(lambda tensor: tensor.unsqueeze(dim))

    def _permute_batch(self, *dims: int) -> PartitionLinearOperator:
        return self._over_batch_dims(lambda tensor: tensor.permute(*dims, *range(len(dims), tensor.dim())))

    def _over_batch_dims(self, change: Callable[[Tensor], Tensor]) -> PartitionLinearOperator:
        num_dims = len(self.batch_shape)

        def changed(tensor: Tensor) -> Tensor:
            return tensor if tensor.dim() == 2 else change(tensor[(None,) * (num_dims + 2 - tensor.dim())])

        return self._on_both_sides(lambda rows: rows.with_codes(changed(rows.codes)), changed, scale=change(self.scale))

    def _on_both_sides(
        self, of_rows: Callable[[Incidence], Incidence], of_loadings: Callable[[Tensor], Tensor], **changes: Any
    ) -> PartitionLinearOperator:
        """The operator with other rows and loadings, which stay the same object where both sides have the same."""
        left = of_rows(self.left)
        loadings = None if self.left_loadings is None else of_loadings(self.left_loadings)
        if self.is_symmetric:
            return self._with(left=left, right=left, left_loadings=loadings, right_loadings=loadings, **changes)
        others = None if self.right_loadings is None else of_loadings(self.right_loadings)
        right = of_rows(self.right)
        return self._with(left=left, right=right, left_loadings=loadings, right_loadings=others, **changes)

    def _sum_batch(self, dim: int) -> LinearOperator:
        has_own_rows = bool(self.left.batch_shape or self.right.batch_shape)
        if self.left_loadings is None and not has_own_rows:
            return self._with(scale=self.scale.sum(dim))
        elements = [self[(slice(None),) * dim + (element,)] for element in range(self.shape[dim])]
        return reduce(add, elements)

    # Algebra.

    def with_loadings(self, left: Tensor, right: Tensor) -> PartitionLinearOperator:
        r"""Return the entrywise product of K and :math:`R R'^\top`; R' is R itself for points with themselves."""
        if self.left_loadings is not None:
            raise RuntimeError("expected a covariance without loadings, got one that has them already")
        batch_shape = torch.broadcast_shapes(self.batch_shape, left.shape[:-2], right.shape[:-2])
        # A constant kernel has the same Z for different points: whether they are the same is seen from the loadings.
        is_mixed = self.is_symmetric and left is not right
        converted = left.to(self.cluster_operator.dtype)
        return self._with(
            scale=self.scale.expand(batch_shape),
            right=Incidence(self.right.codes, self.right.num_clusters) if is_mixed else self.right,
            left_loadings=converted,
            right_loadings=converted if left is right else right.to(converted.dtype),
        )

    def _mul_constant(self, other: float | Tensor) -> PartitionLinearOperator:
        return self._with(scale=self.scale * other)

    def to(self, *args: Any, **kwargs: Any) -> PartitionLinearOperator:
        """Return the operator on another device (or its name) or in another floating point type; codes stay integer."""
        device, dtype, *_ = torch._C._nn._parse_to(*args, **kwargs)
        device, sum_dtype = device or self.device, dtype or self.cluster_operator.dtype
        return self._on_both_sides(
            lambda rows: rows.to(device),
            lambda loadings: loadings.to(device, sum_dtype),
            scale=self.scale.to(device, dtype or self.dtype),
            cluster_operator=self.cluster_operator.to(device, sum_dtype),
        )

    # Roots and samples: K = (sqrt(s) diag(R) Z F)(...)^T with S = F F^T.

    def sparse_root(self) -> IncidenceLinearOperator:
        """Return the exact root of a square K as an operator: `*batch x N x kq` with q clusters or nodes."""
        if not self.is_symmetric:
            raise RuntimeError("only the covariance of points with themselves has a root")
        root = self.cluster_operator.root()
        return IncidenceLinearOperator(self.scale.sqrt(), root, rows=self.left, loadings=self.left_loadings)

    @cached(name="root_decomposition")
    def root_decomposition(self, method: str | None = None) -> LinearOperator:
        """Return the exact sparse root, unless another method is asked for by name."""
        if method is not None:
            return super().root_decomposition(method=method)
        return ExactRootLinearOperator(self)

    def zero_mean_mvn_samples(self, num_samples: int) -> Tensor:
        """Draw exact samples from N(0, K) (`num_samples x *batch x N`) by the root and the global random state."""
        root = self.sparse_root()
        shape, dtype = (*root.batch_shape, root.size(-1), num_samples), self.cluster_operator.dtype
        return root._matmul(torch.randn(*shape, dtype=dtype, device=self.device)).movedim(-1, 0)


class IncidenceLinearOperator(LinearOperator):
    r"""
    Multiply by the exact root :math:`\sqrt{s}\, [\mathrm{diag}(R_1) Z F, \ldots]` (`*batch x N x kq`) of a covariance.

    Use it for features of rows (:meth:`PartitionLinearOperator.sparse_root`) or other points of the same feature space.

    :param scale: `*batch`, the factor :math:`\sqrt{s}`.
    :param factor: `p x q` operator F in feature space.
    :param rows: One-hot rows Z (`N x p`).
    :param loadings: `*batch x N x k` R. (Default: none.)

    Example:
        >>> from gpytorch_partition.operators import FlatLinearOperator
        >>> Z = Incidence(torch.tensor([[0, 2], [0, 3], [1, 3]]), num_clusters=4)
        >>> F = FlatLinearOperator(torch.tensor([0.5]), num_clusters=4)
        >>> IncidenceLinearOperator(torch.tensor(2.0), F, rows=Z).to_dense()
        tensor([[1., 0., 1., 0.],
                [1., 0., 0., 1.],
                [0., 1., 0., 1.]])
    """

    def __init__(
        self, scale: Tensor, factor: LinearOperator, *, rows: Incidence, loadings: Tensor | None = None
    ) -> None:
        super().__init__(scale, factor, rows=rows, loadings=loadings)
        self.scale, self.factor, self.rows, self.loadings = scale, factor, rows, loadings

    @property
    def _num_loadings(self) -> int:
        return 1 if self.loadings is None else self.loadings.shape[-1]

    def _size(self) -> torch.Size:
        return torch.Size((*self.scale.shape, self.rows.num_rows, self._num_loadings * self.factor.shape[-1]))

    @of_columns
    def _matmul(self, rhs: Tensor) -> Tensor:
        effects = rhs.to(self.factor.dtype)
        if self.loadings is not None:
            effects = torch.cat(effects.chunk(self._num_loadings, -2), -1)
        table = _over_columns(self.factor._matmul, effects)
        return self.scale[..., None, None] * LoadedRows(self.rows, self.loadings).row_values(table)

    @of_columns
    def _t_matmul(self, rhs: Tensor) -> Tensor:
        values = (self.scale[..., None, None] * rhs).to(self.factor.dtype)
        sums = _over_columns(self.factor._t_matmul, LoadedRows(self.rows, self.loadings).cluster_sums(values))
        if self.loadings is not None:
            sums = torch.cat(sums.chunk(self._num_loadings, -1), -2)
        return sums.to(self.dtype)

    def _transpose_nonbatch(self) -> LinearOperator:
        return TransposedLinearOperator(self)

    def _expand_batch(self, batch_shape: torch.Size | list[int]) -> IncidenceLinearOperator:
        scale = self.scale.expand(torch.Size(batch_shape))
        return IncidenceLinearOperator(scale, self.factor, rows=self.rows, loadings=self.loadings)

    def to_dense(self) -> Tensor:
        """Return the dense root, for few rows: linear_operator uses it for products of kernels."""
        check_dense(self, "the root")
        return super().to_dense()


def _over_columns(function: Any, table: Tensor) -> Tensor:
    """Apply a function of `n x t` tables to a batch of tables, joined along the columns."""
    if table.dim() == 2:
        return function(table)
    columns = table.movedim(-2, 0)
    result = function(columns.reshape(columns.shape[0], -1))
    return result.view(-1, *columns.shape[1:]).movedim(0, -2)


def _at(rows: Tensor, batch: tuple[Tensor, ...], index: Tensor) -> Tensor:
    """Rows of `*batch x N x c` at batch indices and row numbers; missing or single batch dimensions broadcast."""
    own = rows.shape[:-2]
    aligned = batch[len(batch) - len(own) :]
    indices = [torch.zeros_like(i) if size == 1 else i for i, size in zip(aligned, own)]
    return rows[(*indices, index)]
