"""Groups of equal categories as a partition: a category column, or a prefix of the columns of a hierarchy."""

from __future__ import annotations

import torch
from torch import Tensor

from gpytorch_partition.inputs.bits import bits_of
from gpytorch_partition.inputs.counts import largest_exact
from gpytorch_partition.partitions.keyed_random import hashed
from gpytorch_partition.partitions.partition import Partition


class GroupPartition(Partition):
    r"""
    A partition of the points into groups with equal categories in every column.

    :class:`~gpytorch_partition.GroupKernel` uses it, once for each level. Construct it yourself for a single level,
    which needs no weights: `PartitionKernel(GroupPartition(), active_dims=(0, 1))`.

    Categories are whole numbers. A label is the hash of a point's categories, so no list of categories is needed. Two
    of n groups of several columns share a label with a probability of :math:`n^2 / 2^{65}`, groups of one column never.
    Labels cost :math:`O(D)`; there is no state.

    Points with values that are not whole numbers, or too large to be distinct in their dtype, raise a `ValueError`.

    Example:
        >>> labels = GroupPartition().labels(torch.tensor([[1.0, 0.0], [1.0, 3.0], [1.0, 0.0]])).squeeze(-1)
        >>> labels == labels[0]
        tensor([ True, False,  True])
    """

    num_partitions = 1

    def extra_repr(self) -> str:
        """Describe the groups as combinations of categories."""
        return "a group for each combination of categories"

    def _labels(self, x: Tensor) -> Tensor:
        keys = torch.zeros(x.shape[0], dtype=torch.int64, device=x.device)
        for categories in x.to(torch.float64).unbind(-1):
            keys = hashed(keys ^ bits_of(categories + 0.0), 0)  # adding 0 turns -0 into 0
        return keys.unsqueeze(-1)

    def _check_values(self, x: Tensor) -> None:
        super()._check_values(x)
        self._check_exact(x)
        is_whole = x == x.round()
        if not is_whole.all():
            raise ValueError(
                f"{type(self).__name__} expected whole numbers, the codes of categories, got {float(x[~is_whole][0])}: "
                "give columns of codes that are not standardized, such as scikit-learn's OrdinalEncoder("
                "handle_unknown='use_encoded_value', unknown_value=-1) returns, whose -1 is a new group. "
                "Estimators standardize columns for functions and classes: give them an instance, kernel=GroupKernel("
                "columns)"
            )

    def _check_exact(self, x: Tensor) -> None:
        """Refuse codes so large that neighbouring codes are equal numbers in the dtype."""
        largest = largest_exact(x.dtype)
        if x.numel() and not float(x.abs().max()) < largest:
            raise ValueError(
                f"{type(self).__name__} expected codes of categories below {largest:,.0f}, got {float(x.abs().max())}: "
                f"larger ones are not told apart in {x.dtype}. Number the categories 0, 1, ..., such as OrdinalEncoder "
                "of scikit-learn does, or give float64"
            )
