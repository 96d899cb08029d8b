"""Fast cluster partitions: every point joins the nearest of some random rows, on a random subset of the columns."""

from __future__ import annotations

from numbers import Integral

import numpy as np
import torch
from sklearn.utils.random import sample_without_replacement
from torch import Tensor

from gpytorch_partition.inputs.bits import bits_of, floats_of
from gpytorch_partition.inputs.seeds import random_state_of
from gpytorch_partition.inputs.training_rows import checked_rows, warn_about_unequal_scales
from gpytorch_partition.linalg.parallel import SERIAL_NUMEL, for_each
from gpytorch_partition.partitions.partition import Partition

_DEFAULT_HEIGHT = 10  # binary logarithm of the largest number of centers
_ACCELERATOR_NUMEL = 2**24  # distances held at a time, enough to keep an accelerator busy


class FastClusterPartition(Partition):
    r"""
    Random clusterings around random rows (Davies & Ghahramani 2014, section 4.3.2, Algorithm 2).

    Each partition keeps every dimension with probability 1/2 (drawn again if none is kept), draws s uniformly
    from 0 ... h and :math:`2^s` distinct rows of `x` as centers. The label of a point is the number of the
    center nearest to it on the dimensions kept, the lower number in a tie.

    Distances are sums of squares in float64, one dimension after another, whatever the dtype of the points: a
    label never depends on the other rows of a call, on threads, or on `.float()` and `.double()`. Distances
    weigh columns against each other, so standardize them: columns whose standard deviations differ by more
    than 100 times give a `UserWarning`.

    Building costs at most :math:`O(N (D + m))`; labels cost :math:`O(D)` per (point, center), of which there are
    about :math:`2^{h+1} / (h + 1)` a partition, with bounded workspace. Memory: :math:`8 D` bytes per center and D per
    partition.

    :param x: `N x D` rows to draw centers from, possibly more than the training rows (the semi-supervised use
        of the paper); `None` makes an unfitted partition that `load_state_dict` fits.
    :param num_partitions: Number m of partitions. (Default: 200.)
    :param height: The largest s, called h in the paper; default: :math:`\min(10, \lfloor \log_2 N \rfloor)`.
    :param random_state: Seed or `RandomState`; `None` is a fresh one, never NumPy's global one.
    :raises ValueError: If x is empty, not finite or not a floating point matrix, if there are fewer than
        :math:`2^h` rows, if `num_partitions` or `height` is out of range, or if `random_state` is no seed.

    Example:
        >>> x = torch.linspace(0, 1, 16, dtype=torch.float64).unsqueeze(-1)
        >>> clusters = FastClusterPartition(x, num_partitions=4, height=2, random_state=0)
        >>> clusters.cluster_counts
        tensor([2, 4, 2, 2])
        >>> clusters.labels(x[::5])
        tensor([[1, 3, 0, 1],
                [1, 0, 0, 0],
                [0, 2, 1, 0],
                [0, 1, 1, 0]])
    """

    centers: Tensor  # (p, D) bit patterns of float64, partition by partition
    kept: Tensor  # (m, D) the dimensions that each partition measures on
    sizes: Tensor  # (m,) numbers of centers

    def __init__(
        self,
        x: Tensor | None = None,
        num_partitions: int = 200,
        *,
        height: int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        super().__init__()
        self.register_buffer("centers", torch.empty(0, 0, dtype=torch.int64))
        self.register_buffer("kept", torch.empty(0, 0, dtype=torch.bool))
        self.register_buffer("sizes", torch.empty(0, dtype=torch.int64))
        if x is not None:
            rows = checked_rows(x, type(self).__name__)
            height = _checked_height(height, rows.shape[0])
            if not isinstance(num_partitions, Integral) or num_partitions < 1:
                raise ValueError(f"expected a number of partitions, 1 or more, got num_partitions={num_partitions}")
            warn_about_unequal_scales(rows, type(self).__name__)
            self._draw(rows, num_partitions, height, random_state_of(random_state))

    def _draw(self, x: Tensor, num_partitions: int, height: int, random: np.random.RandomState) -> None:
        """Algorithm 2's three draws, for each partition."""
        kept, sizes, rows = [], [], []
        for _ in range(num_partitions):
            kept.append(_dimension_subset(x.shape[1], random))
            sizes.append(2 ** random.randint(height + 1))
            rows.append(sample_without_replacement(x.shape[0], sizes[-1], random_state=random))
        chosen = torch.from_numpy(np.concatenate(rows).astype(np.int64)).to(x.device)
        self.centers = bits_of(x[chosen])
        self.kept = torch.from_numpy(np.stack(kept)).to(x.device)
        self.sizes = torch.tensor(sizes, device=x.device)

    @property
    def num_partitions(self) -> int:
        """Number m of partitions."""
        return self.sizes.numel()

    @property
    def num_features(self) -> int | None:
        """Number D of columns of the rows that centers were drawn from."""
        return self.kept.shape[1] if self.is_fitted else None

    @property
    def cluster_counts(self) -> Tensor:
        """`m` numbers of centers, :math:`2^s` each."""
        return self.sizes

    def _labels(self, x: Tensor) -> Tensor:
        labels = torch.zeros(self.num_partitions, x.shape[0], dtype=torch.int64, device=x.device)
        centers = floats_of(self.centers).split(self.sizes.tolist())

        def label(partition: int) -> None:
            if centers[partition].shape[0] > 1:
                _label_nearest(x, centers[partition], self.kept[partition], out=labels[partition])

        for_each(label, range(self.num_partitions))
        return labels.T


def _label_nearest(x: Tensor, centers: Tensor, kept: Tensor, out: Tensor) -> None:
    """Write, for each row of x (`n x D`), which of C centers (`C x D`) is nearest on the dimensions kept."""
    columns = centers.T[kept].contiguous()
    unit = _power_of_two(columns)
    columns = columns / unit
    numel = SERIAL_NUMEL if x.device.type == "cpu" else _ACCELERATOR_NUMEL
    size = max(1, numel // centers.shape[0])
    for rows, nearest in zip(x.split(size), out.split(size)):
        nearest.copy_(_squared_distances(rows[:, kept].to(torch.float64) / unit, columns).argmin(1))


def _power_of_two(values: Tensor) -> Tensor:
    """The power of two below the largest magnitude: division by it is exact, and squares stay in range."""
    exponent = torch.frexp(values.abs().amax()).exponent
    return torch.ldexp(values.new_ones(()), exponent - 1)


def _squared_distances(rows: Tensor, columns: Tensor) -> Tensor:
    """
    Squared distances (`n x C`) between rows (`n x d`) and centers (`d x C`).

    Each step is one correctly rounded operation per pair. A matrix product, `torch.cdist` or a fused
    multiply-add would round differently with the shape of the block, and so break ties differently.
    """
    total = torch.zeros(rows.shape[0], columns.shape[1], dtype=torch.float64, device=rows.device)
    for values, centers in zip(rows.T, columns):
        differences = values.unsqueeze(1) - centers
        total.add_(differences.mul_(differences))
    return total


def _dimension_subset(num_features: int, random: np.random.RandomState) -> np.ndarray:
    """A Bernoulli(1/2) subset of the dimensions, drawn again while it is empty."""
    while True:
        kept = random.randint(2, size=num_features).astype(bool)
        if kept.any():
            return kept


def _checked_height(height: int | None, num_rows: int) -> int:
    largest = num_rows.bit_length() - 1
    if height is None:
        return min(_DEFAULT_HEIGHT, largest)
    if not 0 <= height <= largest:
        raise ValueError(
            f"expected height between 0 and {largest}, got {height}: "
            f"2^height different rows are drawn, and there are only {num_rows}"
        )
    return height
