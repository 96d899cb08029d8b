r"""
Co-occurrence counts :math:`G = Z^\top Z` (rows that two clusters share), also packed, and sums :math:`Z^\top V`.

Packed for a message or a file, counts take half of the symmetric matrix, in four bytes if they fit. With :math:`G =
\begin{pmatrix} A & B^\top \\ B & C \end{pmatrix}` in blocks of :math:`h = \lceil p / 2 \rceil`, a rectangle of `2h + 1`
by h holds the lower triangle of A below the upper one of C, and B below both: the rectangular full packed format of
Gustavson et al. 2010. Packed counts of equal clusters can be added without unpacking.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from gpytorch_partition.linalg.parallel import for_each

_ROWS_PER_CHUNK = 2**18  # rows counted at once, whose codes stay in the cache; at least the entries of a table
MAX_CLUSTERS = 2**16  # whose counts take 34 GB; more come from trees with far too many leaves
_LARGEST = 2**31 - 1  # of four bytes


def zero_counts(num_clusters: int, device: torch.device | None = None, most: int = MAX_CLUSTERS) -> Tensor:
    """Return zeros (`p x p`, float64) to add counts to; a `ValueError` for more than `most` clusters."""
    if num_clusters > most:
        raise ValueError(
            f"expected at most {most:,} clusters in all to count pairs of, got {num_clusters:,}, which would take "
            f"{8 * num_clusters**2 / 2**30:,.0f} GiB: use fewer partitions, or coarser ones (a shorter lifetime, "
            'lower height, larger leaves), or a method that counts no pairs (of a PartitionGP all but "feature_space")'
        )
    return torch.zeros(num_clusters, num_clusters, dtype=torch.float64, device=device)


def co_occurrences(codes: Tensor, num_clusters: int, weights: Tensor | None = None) -> Tensor:
    r"""Return :math:`Z^\top Z` (`p x p`, float64) of rows with these codes (`N x m`), or :math:`Z^\top W Z`."""
    counts = zero_counts(num_clusters, codes.device)
    count_co_occurrences(counts, codes, weights=weights)
    return counts


def count_co_occurrences(counts: Tensor, codes: Tensor, sign: int = 1, weights: Tensor | None = None) -> None:
    r"""
    Add :math:`Z^\top Z` of some rows to the counts (`p x p`, float64), in place; with weights W, :math:`Z^\top W Z`.

    This costs :math:`N m^2 / 2` increments. Counts are exact up to 2^53.

    :param codes: `N x m` columns of Z, those of each partition in a range of their own.
    """
    if not codes.numel():
        return
    low, high = codes.amin(0), codes.amax(0)
    blocks = [slice(a, b + 1) for a, b in zip(low.tolist(), high.tolist())]
    largest = max(block.stop - block.start for block in blocks) ** 2
    size = max(_ROWS_PER_CHUNK, largest)
    parts = [None] * -(-len(codes) // size) if weights is None else weights.split(size)
    for chunk, part in zip(codes.split(size), parts):
        local = (chunk - low).T.to(torch.int32 if largest < 2**31 else torch.int64).contiguous()
        for_each(partial(_count_pairs, counts, local, blocks, sign, part), range(len(blocks)))


def _count_pairs(
    counts: Tensor, local: Tensor, blocks: list[slice], sign: int, weights: Tensor | None, first: int
) -> None:
    for second in range(first, len(blocks)):
        here, there = blocks[first], blocks[second]
        size = there.stop - there.start
        pairs = local[first] * size + local[second]
        table = torch.bincount(pairs, weights=weights, minlength=(here.stop - here.start) * size)
        table = sign * table.view(-1, size).to(counts.dtype)
        counts[here, there] += table
        if second != first:
            counts[there, here] += table.T


def coarsened(counts: Tensor, clusters: Tensor, num_clusters: int) -> Tensor:
    """Return the counts (`q x q`) of coarser partitions, given the coarse cluster that holds each fine one (`p`)."""
    rows = counts.new_zeros(num_clusters, counts.shape[1]).index_add_(0, clusters, counts)
    return counts.new_zeros(num_clusters, num_clusters).index_add_(1, clusters, rows)


def streamed_cluster_sums(codes: Tensor, values: Tensor, num_clusters: int) -> Tensor:
    r"""Return the sums :math:`Z^\top V` (`p x t`, float64) over rows in one pass, without sorting the rows."""
    sums = torch.zeros(values.shape[1], num_clusters, dtype=torch.float64, device=values.device)
    weights = values.mT.double().contiguous()
    for column in codes.mT.contiguous():
        for total, weight in zip(sums, weights):
            total += torch.bincount(column, weights=weight, minlength=num_clusters)
    return sums.mT.contiguous()


def packed(counts: Tensor) -> Tensor:
    """Return counts (`p x p`) packed: `2h + 1 x h`, int32, or float64 if a count is too large."""
    half, is_odd = _half(len(counts)), len(counts) % 2
    whole = counts.to(torch.int32 if _largest(counts) <= _LARGEST else torch.float64)  # first: padding makes a copy
    whole = torch.nn.functional.pad(whole, (0, is_odd, 0, is_odd)) if is_odd else whole
    top = whole.new_zeros(half + 1, half)
    top[1:] = whole[:half, :half].tril()
    top[:-1] += whole[half:, half:].triu()
    return torch.cat([top, whole[half:, :half]])


def unpacked(packed: Tensor, num_clusters: int) -> Tensor:
    """Return the counts (`p x p`, float64) of packed ones."""
    half = _half(num_clusters)
    rest = num_clusters - half
    counts = torch.zeros(num_clusters, num_clusters, dtype=torch.float64)
    counts[:half, :half] = _whole(packed[1 : half + 1].tril())
    counts[half:, half:] = _whole(packed[:half].triu()[:rest, :rest])
    counts[half:, :half] = packed[half + 1 :][:rest]
    counts[:half, half:] = packed[half + 1 :][:rest].mT
    return counts


def added(first: Tensor, second: Tensor) -> Tensor:
    """Return the packed counts of two sets of rows of the same clusters together."""
    is_small = first.dtype == second.dtype == torch.int32 and _largest(first) + _largest(second) <= _LARGEST
    return first + second if is_small else first.double() + second.double()


def _largest(counts: Tensor) -> int:
    return int(counts.max()) if counts.numel() else 0


def _half(num_clusters: int) -> int:
    return (num_clusters + 1) // 2


def _whole(triangle: Tensor) -> Tensor:
    return triangle + (triangle.mT - torch.diag(triangle.diagonal()))
