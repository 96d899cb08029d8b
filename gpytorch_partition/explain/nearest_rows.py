"""The training rows most similar to new ones by a kernel."""

from __future__ import annotations

import numpy as np
import torch
from gpytorch.kernels import Kernel
from linear_operator import to_linear_operator
from torch import Tensor

from gpytorch_partition import settings
from gpytorch_partition.inputs.numbers import checked_count
from gpytorch_partition.inputs.training_rows import encode_missing

_ENTRIES = 2**24  # covariances held at once


@torch.no_grad()
def nearest_rows(
    kernel: Kernel, points: Tensor, train_x: Tensor, k: int, names: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    r"""
    Return for each point the rows with the largest correlations :math:`k(x, x') / \sqrt{k(x, x)\, k(x', x')}`.

    Use it with a kernel alone; a fitted regressor or classifier has a method of this name. For a kernel with k(x, x) =
    1 (a forest, clusters, Mondrian trees) correlations are its values. Ties keep the order of the rows.

    Costs :math:`O(N m)` for each block of points, and sums over the clusters that points share with rows; at most
    :math:`2^{24}` covariances are held.

    :param kernel: Any kernel without a batch shape.
    :param points: `N2 x D` points.
    :param train_x: `N x D` rows.
    :param k: Number of rows for each point.
    :param names: `N` numbers of the rows. (Default: None, from 0.)
    :return: Numbers of rows and their correlations, `N2 x k` each, the nearest first.
    :raises ValueError: If k is no number from 1 to N.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> rows, values = nearest_rows(RBFKernel(), torch.tensor([[0.9]]), torch.tensor([[0.0], [1.0], [2.0]]), 2)
        >>> rows
        array([[1, 0]])
    """
    if checked_count(k, "rows", "k") > len(train_x):
        raise ValueError(f"expected k up to {len(train_x)}, the number of training rows, got {k}")
    with settings.iterative(), settings.no_debug():
        roots = kernel(train_x, diag=True).double().sqrt()
        blocks = encode_missing(points).split(max(1, _ENTRIES // len(train_x)))
        found = [_nearest(kernel, block, train_x, roots, int(k)) for block in blocks]
    numbers, values = (np.concatenate(parts) for parts in zip(*found))
    return (numbers if names is None else names[numbers]), values


def _nearest(kernel: Kernel, points: Tensor, train_x: Tensor, roots: Tensor, k: int) -> tuple[np.ndarray, np.ndarray]:
    covariances = to_linear_operator(kernel(points, train_x)).to_dense().double()
    scales = kernel(points, diag=True).double().sqrt().unsqueeze(-1) * roots
    correlations = (covariances / scales.clamp_min(torch.finfo(torch.float64).tiny)).clamp(-1, 1).numpy()
    chosen = np.stack([_largest(row, k) for row in correlations])
    return chosen, np.take_along_axis(correlations, chosen, 1)


def _largest(values: np.ndarray, k: int) -> np.ndarray:
    """Return the numbers of the k largest values, the largest first; of ties the first ones."""
    least = np.partition(values, len(values) - k)[len(values) - k]
    candidates = np.flatnonzero(values >= least)
    return candidates[np.argsort(-values[candidates], kind="stable")[:k]]
