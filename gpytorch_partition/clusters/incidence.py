"""
The one-hot matrix :math:`Z` (rows by clusters), memberships of items in sets, and products with both matrices.

Every kernel product (eq. 8 of Davies & Ghahramani 2014) is made of the sums with :math:`Z` and its transpose.
"""

from __future__ import annotations

import warnings
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple
from weakref import ref

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor
from torch.nn.functional import embedding_bag

from gpytorch_partition.clusters.cache import Cache
from gpytorch_partition.clusters.cluster_index import ClusterSizes, Movable, code_dtype

# Sums are over blocks of rows and then over blocks: float32 keeps its digits in clusters of millions of rows (error
# ~ eps * block, not eps * N), and threads share big clusters. A block lies in one chunk, which stays in the cache.
_BLOCK = 1024  # rows of a block, at most
_CHUNK = 2**16  # rows of a chunk; more where blocks would become small
_SMALL_BLOCK = 16  # rows of a block, at least, on average
_PIECE = 2**18  # ones in a piece of the sparse matrix, up to a row more or less
_ONES = torch.ones(2 * _PIECE, dtype=torch.float64, device="cpu")  # all pieces share them: PyTorch stores values


class Members(NamedTuple):
    r"""Hold the rows of each cluster (:math:`Z^\top` by rows) in blocks, chunk of rows by chunk, cluster by cluster."""

    rows: Tensor  # (N * m,) row numbers
    block_starts: Tensor  # (num_blocks + 1,) where each block begins in `rows`
    blocks: Tensor  # (num_blocks,) block numbers, sorted by cluster
    cluster_starts: Tensor  # (p,) where each cluster begins in `blocks`


class Incidence(Movable):
    """
    Multiply by the one-hot matrix :math:`Z` (`*batch x N x p`), with a one in each row for each of its m clusters.

    Memory is 8 bytes per (row, partition) with 32-bit codes. Products cost :math:`O(N m t)` for t columns.

    :param codes: `*batch x N x m` columns of :math:`Z`, integers; those of each partition are in a range of their own.
    :param num_clusters: Number p of columns of :math:`Z`.
    :param sizes: Number of clusters in each part of a joint feature space. (Default: one part.)

    Example:
        >>> Z = Incidence(torch.tensor([[0, 2], [0, 3], [1, 3]]), num_clusters=4)
        >>> Z.cluster_sums(torch.ones(3, 1)).squeeze(-1)  # the sizes of the four clusters
        tensor([2., 1., 1., 2.])
        >>> Z.row_values(torch.tensor([[1.0], [10.0], [100.0], [1000.0]])).squeeze(-1)
        tensor([ 101., 1001., 1010.])
    """

    def __init__(self, codes: Tensor, num_clusters: int, sizes: ClusterSizes | None = None) -> None:
        self.codes = codes
        self.num_clusters = num_clusters
        self.sizes = num_clusters if sizes is None else sizes
        # Values derived from these rows (such as a preconditioner's factor), kept as long as the rows.
        self.cache = Cache()

    # The arguments of the last :meth:`select`, and its result, as long as it is in use elsewhere.
    _selected: tuple[tuple[Any, ...], ref[Incidence]] | None = None

    @property
    def batch_shape(self) -> torch.Size:
        return self.codes.shape[:-2]

    @property
    def num_rows(self) -> int:
        return self.codes.shape[-2]

    @property
    def num_partitions(self) -> int:
        return self.codes.shape[-1]

    def row_values(self, table: Tensor) -> Tensor:
        """Return :math:`Z C` (`*batch x N x t`): the sum of C (`*batch x p x t`) over each row's clusters."""
        return self._over_batch(table, _row_values, _cluster_sums)

    def cluster_sums(self, values: Tensor) -> Tensor:
        r"""Return :math:`Z^\top V` (`*batch x p x t`): the sum of V (`*batch x N x t`) over each cluster's rows."""
        return self._over_batch(values, _cluster_sums, _row_values)

    def select(self, rows: Any, batch: tuple[Any, ...] = (), batch_shape: torch.Size | None = None) -> Incidence:
        """
        Return the incidence of some rows; equal rows get the same object in repeated calls, and all rows this object.

        :param batch: Indices of batch dimensions; rows without any are the same for all indices.
        :param batch_shape: Batch shape that the indices refer to. (Default: that of the codes.)
        """
        if not self.batch_shape:
            batch, batch_shape = (), None
        if isinstance(rows, slice):
            rows = slice(*rows.indices(self.num_rows))
        if not batch and rows == slice(0, self.num_rows, 1):
            return self
        indices = (rows, *batch, batch_shape)
        found = self._selected and same_indices(self._selected[0], indices) and self._selected[1]()
        if not found:
            codes = self.expand(batch_shape).codes if batch_shape else self.codes
            found = Incidence((codes[batch] if batch else codes)[..., rows, :].contiguous(), self.num_clusters)
            self._selected = (tuple(i.clone() if torch.is_tensor(i) else i for i in indices), ref(found))
        return found

    def with_codes(self, codes: Tensor) -> Incidence:
        return self if codes is self.codes else Incidence(codes, self.num_clusters)

    def expand(self, batch_shape: torch.Size) -> Incidence:
        """Return the incidence with a batch shape, without copying codes; this object if it has that shape."""
        if batch_shape == self.batch_shape:
            return self
        return Incidence(self.codes.expand(*batch_shape, *self.codes.shape[-2:]), self.num_clusters)

    @property
    def device(self) -> torch.device:
        return self.codes.device

    def _moved(self, device: Any) -> Incidence:
        return Incidence(self.codes.to(device), self.num_clusters)

    def __getstate__(self) -> dict[str, Any]:
        return {"codes": self.codes, "num_clusters": self.num_clusters, "sizes": self.sizes, "cache": Cache()}

    @cached_property
    def members(self) -> Members:
        """Return the rows of every cluster, sorted once in O(N m log N); 4 bytes per (row, partition) are kept."""
        return _members(self.codes.reshape(-1, self.num_partitions), self.num_clusters)

    @cached_property
    def _block_diagonal(self) -> Incidence:
        """All batch elements side by side: the rows of element b use clusters b p ... (b + 1) p - 1."""
        num_blocks = self.batch_shape.numel()
        shift = torch.arange(num_blocks, device=self.codes.device, dtype=self.codes.dtype) * self.num_clusters
        codes = self.codes.reshape(num_blocks, self.num_rows, self.num_partitions) + shift.view(-1, 1, 1)
        return Incidence(codes.view(-1, self.num_partitions), num_blocks * self.num_clusters)

    def _over_batch(self, operand: Tensor, product: Any, transposed: Any) -> Tensor:
        """Apply a two-dimensional product to a batch; batch dimensions that share the rows become columns."""
        if not self.batch_shape and operand.dim() == 2:
            return LinearProduct.apply(self, product, transposed, operand)
        batch_shape = torch.broadcast_shapes(operand.shape[:-2], self.batch_shape)
        own_shape = batch_shape[len(batch_shape) - len(self.batch_shape) :]
        if own_shape != self.batch_shape:
            return self.expand(own_shape)._over_batch(operand, product, transposed)
        shared = len(batch_shape) - len(own_shape)
        operand = operand.expand(*batch_shape, *operand.shape[-2:])
        # (*shared, *own, n, t) -> (*own, n, *shared, t) -> (own * n, shared * t)
        order = [*range(shared, operand.dim() - 1), *range(shared), operand.dim() - 1]
        stacked = operand.permute(order).reshape(own_shape.numel() * operand.shape[-2], -1)
        result = LinearProduct.apply(self._block_diagonal if own_shape else self, product, transposed, stacked)
        result = result.view(*own_shape, -1, *batch_shape[:shared], operand.shape[-1])
        own = len(own_shape)
        back = [*range(own + 1, own + 1 + shared), *range(own + 1), result.dim() - 1]
        return result.permute(back)


def one_cluster(num_rows: int, device: torch.device | None = None) -> Incidence:
    return Incidence(torch.zeros(num_rows, 1, dtype=torch.int32, device=device), num_clusters=1)


def same_codes(first: Incidence, second: Incidence) -> bool:
    if first is second:
        return True
    same_space = first.num_clusters == second.num_clusters and first.codes.shape == second.codes.shape
    return same_space and torch.equal(first.codes, second.codes)


def same_indices(first: tuple[Any, ...], second: tuple[Any, ...]) -> bool:
    def same(a: Any, b: Any) -> bool:
        if torch.is_tensor(a) and torch.is_tensor(b):
            return a.dtype == b.dtype and torch.equal(a, b)
        return not torch.is_tensor(a) and not torch.is_tensor(b) and a == b

    return len(first) == len(second) and all(map(same, first, second))


def _members(codes: Tensor, num_clusters: int) -> Members:
    num_rows, num_partitions = codes.shape
    rows, clusters, sizes = torch.empty_like(codes).view(-1), [], []
    filled = 0
    num_chunks = max(1, min(-(-num_rows // _CHUNK), codes.numel() // (_SMALL_BLOCK * num_clusters)))
    size = max(1, -(-num_rows // num_chunks))
    for start in range(0, num_rows, size):
        for column in codes[start : start + size].unbind(-1):
            ordered, order = torch.sort(column, stable=True)
            rows[filled : filled + order.numel()] = order + start
            filled += order.numel()
            found, counts = torch.unique_consecutive(ordered, return_counts=True)
            clusters.append(found)
            sizes.append(counts)
    return blocked_members(rows, torch.cat(clusters), torch.cat(sizes), num_clusters)


def blocked_members(rows: Tensor, clusters: Tensor, sizes: Tensor, num_clusters: int) -> Members:
    """Cut runs of rows, each of one cluster, into blocks of at most `_BLOCK`, and list the blocks of each cluster."""
    pieces = (sizes + _BLOCK - 1) // _BLOCK
    run = torch.repeat_interleave(torch.arange(sizes.numel(), device=sizes.device), pieces)
    rank = torch.arange(run.numel(), device=sizes.device) - (pieces.cumsum(0) - pieces)[run]
    block_starts = (sizes.cumsum(0) - sizes)[run] + rank * _BLOCK
    block_starts = torch.cat([block_starts, block_starts.new_tensor([rows.numel()])])
    cluster_of_block, blocks = torch.sort(clusters.long()[run], stable=True)
    starts = torch.searchsorted(cluster_of_block, torch.arange(num_clusters, device=sizes.device))
    return Members(rows, *(part.to(rows.dtype) for part in (block_starts, blocks, starts)))


class LinearProduct(torch.autograd.Function):
    """A product `product(owner, operand)` with a constant matrix, and its transpose as the derivative."""

    @staticmethod
    def forward(ctx: Any, owner: Any, product: Any, transposed: Any, operand: Tensor) -> Tensor:
        ctx.owner, ctx.product, ctx.transposed = owner, product, transposed
        return product(owner, operand.contiguous())  # of other strides embedding_bag takes 25 times as long

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, None, None, Tensor]:
        return None, None, None, LinearProduct.apply(ctx.owner, ctx.transposed, ctx.product, gradient)


def _row_values(incidence: Incidence, table: Tensor) -> Tensor:
    codes = incidence.codes.reshape(-1)
    if not codes.numel():
        return table.new_zeros(0, table.shape[-1])
    starts = torch.arange(0, codes.numel() + 1, incidence.num_partitions, dtype=codes.dtype, device=codes.device)
    return sums_at(starts, codes, table)


def _cluster_sums(incidence: Incidence, values: Tensor) -> Tensor:
    if not values.shape[0]:
        return values.new_zeros(incidence.num_clusters, values.shape[-1])
    return sums_over_members(incidence.members, values)


def sums_over_members(members: Members, values: Tensor) -> Tensor:
    """Return the sum (`p x t`) over each cluster's rows, by sums over blocks of rows."""
    block_sums = sums_at(members.block_starts, members.rows, values)
    if _needs_sparse_product(values):
        num_clusters = members.cluster_starts.numel()
        sums = block_sums.new_zeros(num_clusters, values.shape[-1])
        sizes = torch.diff(members.cluster_starts, append=members.cluster_starts.new_tensor([members.blocks.numel()]))
        cluster = torch.repeat_interleave(torch.arange(num_clusters), sizes)
        return sums.index_add_(0, cluster, block_sums.index_select(0, members.blocks))
    return embedding_bag(members.blocks, block_sums, members.cluster_starts, mode="sum")


def sums_at(starts: Tensor, places: Tensor, table: Tensor) -> Tensor:
    """Return for each row the sum (`N x t`) of entries of a table (`p x t`) at its places, which begin at `starts`."""
    if _needs_sparse_product(table):
        return _sparse_product(starts, places, table)
    return embedding_bag(places, table, starts[:-1], mode="sum")


def _needs_sparse_product(operand: Tensor) -> bool:
    """Whether `embedding_bag` is slow for this operand: its CPU kernels are fused for float32 only (float64: 50x)."""
    return operand.device.type == "cpu" and operand.dtype == torch.float64


def _sparse_product(row_starts: Tensor, columns: Tensor, operand: Tensor) -> Tensor:
    num_rows = row_starts.numel() - 1
    begins = torch.arange(0, columns.numel(), _PIECE, dtype=row_starts.dtype)
    cuts = torch.searchsorted(row_starts, begins).unique().tolist()
    result = operand.new_empty(num_rows, operand.shape[1])
    for first, last in pairwise([*cuts, num_rows]):
        starts = row_starts[first : last + 1]
        begin, end = int(starts[0]), int(starts[-1])
        ones = _ONES[: end - begin] if end - begin <= len(_ONES) else operand.new_ones(end - begin)
        shape = (last - first, operand.shape[0])
        piece = torch.sparse_csr_tensor(starts - begin, columns[begin:end], ones, size=shape, check_invariants=False)
        result[first:last] = piece @ operand
    return result


class Memberships(Movable):
    """Hold the matrix B (`n x m`) with a one where an item is in a set, in :math:`O(E)` numbers for E ones."""

    def __init__(self, starts: Tensor, sets: Tensor, num_sets: int) -> None:  # sets are sorted within each item
        dtype = code_dtype(max(starts.numel(), num_sets), sets.numel())
        self.starts, self.sets, self.num_sets = starts.to(dtype), sets.to(dtype), num_sets

    @property
    def num_items(self) -> int:
        return self.starts.numel() - 1

    def item_sums(self, table: Tensor) -> Tensor:
        r"""Return :math:`B C`: for every item (`n x t`) the sum of the table (`m x t`) over the sets of the item."""
        return LinearProduct.apply(self, _item_sums, _set_sums, table)

    def set_sums(self, values: Tensor) -> Tensor:
        r"""Return :math:`B^\top V`: for every set (`m x t`) the sum of the values (`n x t`) of its items."""
        return LinearProduct.apply(self, _set_sums, _item_sums, values)

    @cached_property
    def _members(self) -> Members:
        order = torch.sort(self.sets, stable=True).indices
        counts = torch.bincount(self.sets, minlength=self.num_sets)
        found = counts.nonzero().squeeze(-1)
        items = torch.arange(self.num_items, device=self.sets.device).repeat_interleave(self.starts.diff())
        return blocked_members(items[order].to(self.sets.dtype), found, counts[found], self.num_sets)

    def rows(self, items: Tensor) -> csr_array:
        """Return the rows (`n' x m`, float64) of some items (`n'`), as a sparse matrix of SciPy."""
        items = items.reshape(-1).long()
        counts = self.starts.diff()[items].long()
        starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        places = torch.arange(int(starts[-1]), device=items.device)
        places += (self.starts[items] - starts[:-1]).repeat_interleave(counts)
        sets = self.sets[places].cpu().numpy()
        return csr_array((np.ones(len(sets)), sets, starts.cpu().numpy()), shape=(len(items), self.num_sets))

    @property
    def device(self) -> torch.device:
        return self.sets.device

    def _moved(self, device: Any) -> Memberships:
        return Memberships(self.starts.to(device), self.sets.to(device), self.num_sets)


def _item_sums(memberships: Memberships, table: Tensor) -> Tensor:
    return sums_at(memberships.starts, memberships.sets, table)


def _set_sums(memberships: Memberships, values: Tensor) -> Tensor:
    return sums_over_members(memberships._members, values)


# PyTorch says once of sparse matrices that they are beta and unchecked: no other thread's filters matter here.
with warnings.catch_warnings():
    warnings.filterwarnings("ignore", message="Sparse (CSR tensor support|invariant checks)")
    torch.sparse_csr_tensor(torch.tensor([0, 1]), torch.tensor([0]), torch.ones(1), size=(1, 1), check_invariants=False)
