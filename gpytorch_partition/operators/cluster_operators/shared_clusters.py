r"""Dense covariances of flat partitions, :math:`Z \mathrm{diag}(w) Z'^\top`, from pairs of rows in the same cluster."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor

from gpytorch_partition.clusters.incidence import Incidence

_ENTRIES = 2**22  # entries of the sparse product held at a time, at most, of 12 bytes each
_COST_OF_PAIR = 2  # time for a pair, in entries of the table of clusters by rows that a product with the identity fills


def has_few_pairs(left: Incidence, right: Incidence) -> bool:
    r"""
    Return whether few enough rows share clusters for a sum over pairs to beat a product with the identity.

    That product fills a table of `p x N'`, and took 2 to 16 times as long on one core where clusters had two rows.

    :param left: `N` rows Z.
    :param right: `N'` rows Z', with the same clusters.
    """
    num_pairs = float(_sizes(left) @ _sizes(right))
    return _COST_OF_PAIR * num_pairs < right.num_rows * right.num_clusters


def shared_weights(left: Incidence, right: Incidence, weights: Tensor) -> Tensor:
    r"""
    Return :math:`Z \mathrm{diag}(w) Z'^\top`: for each pair of rows the total weight of the clusters that both are in.

    This costs an operation for each such pair and partition, and :math:`O(N N')` to fill the matrix.

    :param left: `N` rows Z, without batch dimensions, on the CPU.
    :param right: `N'` rows Z', with the same clusters.
    :param weights: `p` w, float32 or float64.
    :return: `N x N'`, in the dtype of the weights.

    Example:
        >>> Z = Incidence(torch.tensor([[0, 2], [0, 3], [1, 3]]), num_clusters=4)
        >>> shared_weights(Z, Z, torch.tensor([1.0, 1.0, 0.5, 0.5]))
        tensor([[1.5000, 1.0000, 0.0000],
                [1.0000, 1.5000, 0.5000],
                [0.0000, 0.5000, 1.5000]])
    """
    values = weights.detach().numpy()
    columns = _sparse(right.codes, np.ones_like(values)).T.tocsr()
    result = np.empty((left.num_rows, right.num_rows), values.dtype)
    size = max(1, _ENTRIES // max(1, right.num_rows))
    for codes, rows in zip(left.codes.split(size), torch.from_numpy(result).split(size)):
        (_sparse(codes, values) @ columns).toarray(out=rows.numpy())
    return torch.from_numpy(result)


def _sizes(incidence: Incidence) -> Tensor:
    return torch.bincount(incidence.codes.reshape(-1), minlength=incidence.num_clusters).double()


def _sparse(codes: Tensor, values: NDArray[np.floating]) -> csr_array:
    columns, starts = codes.reshape(-1).numpy(), np.arange(len(codes) + 1) * codes.shape[1]
    return csr_array((values[columns], columns, starts), shape=(len(codes), len(values)))
