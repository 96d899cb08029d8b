r"""
The one-hot rows :math:`Z` of points in cluster space, and the two sums over clusters that everything is made of.

:math:`Z` is :math:`N \times p` with one 1 per partition in each row: `codes[i, r]` is the column of the cluster
that row i falls in under partition r. Clusters are numbered partition by partition, so that the codes of
partition r lie in a range of their own.
"""

from __future__ import annotations

import warnings
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

# Sums are taken over blocks of this many rows and then over blocks: float32 keeps its digits in clusters of
# millions of rows (error ~ eps * block, not eps * N), and big clusters are shared out between threads.
_BLOCK = 1024


class _Members(NamedTuple):
    r"""The rows of each cluster (:math:`Z^\top` by rows), cut into blocks of at most `_BLOCK` rows."""

    rows: Tensor  # (N * m,) row numbers, sorted by cluster
    cluster_starts: Tensor  # (p + 1,) where each cluster begins in `rows`
    block_starts: Tensor  # (num_blocks,) where each block begins in `rows`
    cluster_blocks: Tensor  # (p,) first block of each cluster


class Incidence:
    r"""
    The one-hot matrix :math:`Z` (`*batch x N x p`, m ones in every row) that says which clusters a row is in.

    Held are the codes and, from the first :meth:`t_matmul` on, the rows of each cluster: 8 bytes per (row,
    partition) with 32-bit codes. Products cost :math:`O(N m t)` for t columns and :math:`O(p t)` workspace; in
    float64 on a CPU they also hold 8 bytes per (row, partition) of ones, which the sparse product there needs.

    :param codes: `*batch x N x m` integer columns of :math:`Z`; the codes of one partition lie in a range of
        their own, and ranges follow one another in the order of the partitions.
    :param num_clusters: Number p of columns of :math:`Z`.

    Example:
        >>> Z = Incidence(torch.tensor([[0, 2], [0, 3], [1, 3]]), num_clusters=4)
        >>> Z.t_matmul(torch.ones(3, 1)).squeeze(-1)  # the sizes of the four clusters
        tensor([2., 1., 1., 2.])
        >>> Z.matmul(torch.tensor([[1.0], [10.0], [100.0], [1000.0]])).squeeze(-1)
        tensor([ 101., 1001., 1010.])
    """

    def __init__(self, codes: Tensor, num_clusters: int) -> None:
        self.codes = codes
        self.num_clusters = num_clusters
        # What others derive from these rows and want to keep as long as the rows live (a preconditioner's factor).
        self.memo: dict[Any, Any] = {}

    @property
    def batch_shape(self) -> torch.Size:
        """Batch shape of the codes: empty when all batch elements share the same rows."""
        return self.codes.shape[:-2]

    @property
    def num_rows(self) -> int:
        """Number N of rows."""
        return self.codes.shape[-2]

    @property
    def num_partitions(self) -> int:
        """Number m of partitions, the number of ones in each row."""
        return self.codes.shape[-1]

    def matmul(self, table: Tensor) -> Tensor:
        r"""
        :math:`Z C`: for every row, the sum of the table's values over the clusters the row is in.

        :param table: `*batch x p x t` values per cluster.
        :return: `*batch x N x t`.
        """
        return self._over_batch(table, _spread)

    def t_matmul(self, values: Tensor) -> Tensor:
        r"""
        :math:`Z^\top V`: for every cluster, the sum of the values of its rows.

        :param values: `*batch x N x t` values per row.
        :return: `*batch x p x t`.
        """
        return self._over_batch(values, _collect)

    def select(self, rows: Any, batch: tuple[Any, ...] = ()) -> Incidence:
        """
        The incidence of some of the rows.

        :param rows: A slice or a tensor of row numbers.
        :param batch: One index per batch dimension of the codes.
        """
        codes = self.codes[batch] if batch else self.codes
        return Incidence(codes[..., rows, :], self.num_clusters)

    def with_codes(self, codes: Tensor) -> Incidence:
        """The incidence with the same codes in another (batch) shape; this object if nothing changes."""
        return self if codes is self.codes else Incidence(codes, self.num_clusters)

    def expand(self, batch_shape: torch.Size) -> Incidence:
        """The incidence with a batch shape, without copying codes; this object if it has that shape."""
        if batch_shape == self.batch_shape:
            return self
        return Incidence(self.codes.expand(*batch_shape, *self.codes.shape[-2:]), self.num_clusters)

    def to(self, device: Any = None, dtype: Any = None) -> Incidence:
        """The incidence on another device; a dtype does not concern codes and is ignored."""
        if device is None or torch.device(device) == self.codes.device:
            return self
        return Incidence(self.codes.to(device), self.num_clusters)

    def cpu(self) -> Incidence:
        """The incidence on the CPU."""
        return self.to("cpu")

    def cuda(self, device_id: Any = None) -> Incidence:
        """The incidence on a CUDA device."""
        return self.to(torch.device("cuda", device_id) if isinstance(device_id, int) else device_id or "cuda")

    def __getstate__(self) -> dict[str, Any]:
        return {"codes": self.codes, "num_clusters": self.num_clusters, "memo": {}}

    @cached_property
    def members(self) -> _Members:
        """The rows of every cluster, sorted once: O(N m log N) time, 4 bytes per (row, partition) held."""
        codes = self.codes
        rows = torch.empty(codes.numel(), dtype=codes.dtype, device=codes.device)
        sizes = torch.zeros(self.num_clusters, dtype=torch.int64, device=codes.device)
        for partition in range(self.num_partitions):
            column = codes[:, partition].contiguous()
            order = torch.sort(column, stable=True).indices
            rows[partition * self.num_rows : (partition + 1) * self.num_rows] = order
            _add_counts(sizes, column)
        return _blocked(rows, sizes)

    @cached_property
    def _block_diagonal(self) -> Incidence:
        """All batch elements side by side: the rows of element b use clusters b p ... (b + 1) p - 1."""
        num_blocks = self.batch_shape.numel()
        shift = torch.arange(num_blocks, device=self.codes.device, dtype=self.codes.dtype) * self.num_clusters
        codes = self.codes.reshape(num_blocks, self.num_rows, self.num_partitions) + shift.view(-1, 1, 1)
        return _BlockDiagonal(codes, num_blocks * self.num_clusters)

    def _over_batch(self, operand: Tensor, product: Any) -> Tensor:
        """Apply a two-dimensional product to a batch: batch dimensions that share the rows become columns."""
        if not self.batch_shape and operand.dim() == 2:
            return product(self, operand)
        batch_shape = torch.broadcast_shapes(operand.shape[:-2], self.batch_shape)
        own_shape = batch_shape[len(batch_shape) - len(self.batch_shape) :]
        if own_shape != self.batch_shape:
            return self.expand(own_shape)._over_batch(operand, product)
        shared = len(batch_shape) - len(own_shape)
        operand = operand.expand(*batch_shape, *operand.shape[-2:])
        # (*shared, *own, n, t) -> (*own, n, *shared, t) -> (own * n, shared * t)
        order = [*range(shared, operand.dim() - 1), *range(shared), operand.dim() - 1]
        stacked = operand.permute(order).reshape(own_shape.numel() * operand.shape[-2], -1)
        result = product(self._block_diagonal if own_shape else self, stacked)
        result = result.view(*own_shape, -1, *batch_shape[:shared], operand.shape[-1])
        own = len(own_shape)
        back = [*range(own + 1, own + 1 + shared), *range(own + 1), result.dim() - 1]
        return result.permute(back)


class _BlockDiagonal(Incidence):
    """Rows of several batch elements, each with its own copy of the cluster space (codes: b x N x m)."""

    @cached_property
    def members(self) -> _Members:
        num_blocks, num_rows, num_partitions = self.codes.shape
        rows = torch.empty_like(self.codes).view(-1)
        sizes = torch.zeros(self.num_clusters, dtype=torch.int64, device=self.codes.device)
        for i, column in enumerate(self.codes.mT.reshape(num_blocks * num_partitions, num_rows)):
            order = torch.sort(column, stable=True).indices
            rows[i * num_rows : (i + 1) * num_rows] = order + (i // num_partitions) * num_rows
            _add_counts(sizes, column)
        return _blocked(rows, sizes)


def _add_counts(sizes: Tensor, column: Tensor) -> None:
    """Add to `sizes` how often each code occurs in the codes of one partition."""
    if column.numel():
        low, high = int(column.min()), int(column.max())
        sizes[low : high + 1] += torch.bincount(column - low, minlength=high - low + 1)


def _blocked(rows: Tensor, sizes: Tensor) -> _Members:
    """Cut each cluster's run of rows into blocks."""
    zero = sizes.new_zeros(1)
    starts = torch.cat([zero, sizes.cumsum(0)])
    num_blocks = (sizes + _BLOCK - 1) // _BLOCK
    first_block = torch.cat([zero, num_blocks.cumsum(0)])
    cluster = torch.repeat_interleave(torch.arange(sizes.numel(), device=sizes.device), num_blocks)
    rank = torch.arange(cluster.numel(), device=sizes.device) - first_block[cluster]
    block_starts = starts[cluster] + rank * _BLOCK
    return _Members(rows, starts.to(rows.dtype), block_starts.to(rows.dtype), first_block[:-1].to(rows.dtype))


def _spread(incidence: Incidence, table: Tensor) -> Tensor:
    """Z C for two-dimensional C."""
    codes = incidence.codes.reshape(-1, incidence.num_partitions)
    if _needs_sparse_product(table):
        row_starts = torch.arange(0, codes.numel() + 1, codes.shape[1], dtype=codes.dtype)
        return _ones_csr(incidence, row_starts, codes.view(-1), table.shape[0]) @ table
    return embedding_bag(codes, table, mode="sum")


def _collect(incidence: Incidence, values: Tensor) -> Tensor:
    """Z^T V for two-dimensional V."""
    members = incidence.members
    if _needs_sparse_product(values):
        return _ones_csr(incidence, members.cluster_starts, members.rows, values.shape[0]) @ values
    block_sums = embedding_bag(members.rows, values, members.block_starts, mode="sum")
    blocks = torch.arange(block_sums.shape[0], dtype=members.rows.dtype, device=values.device)
    return embedding_bag(blocks, block_sums, members.cluster_blocks, mode="sum")


def _needs_sparse_product(operand: Tensor) -> bool:
    """Whether `embedding_bag` is slow for this operand: its CPU kernels are fused for float32 only (50x here)."""
    return operand.device.type == "cpu" and operand.dtype == torch.float64


def _ones_csr(incidence: Incidence, row_starts: Tensor, columns: Tensor, num_columns: int) -> Tensor:
    ones = incidence.memo.get("ones")
    if ones is None:
        ones = incidence.memo["ones"] = torch.ones(columns.numel(), dtype=torch.float64)
    shape = (row_starts.numel() - 1, num_columns)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(row_starts, columns, ones, size=shape, check_invariants=False)
