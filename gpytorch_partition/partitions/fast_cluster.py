"""Fast cluster partitions: every point joins the nearest of some random rows, on a random subset of the columns."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.utils.random import sample_without_replacement
from torch import Tensor

from gpytorch_partition.descriptions import ranged
from gpytorch_partition.inputs.numbers import (
    MOST_PARTITIONS,
    bits_of,
    checked_count,
    floats_of,
    is_whole,
    random_state_of,
)
from gpytorch_partition.inputs.training_rows import checked_rows, warn_about_unequal_scales
from gpytorch_partition.linalg.parallel import for_each
from gpytorch_partition.partitions.partition import Partition
from gpytorch_partition.partitions.sites import checked_projection, label_nearest, projected

_DEFAULT_HEIGHT = 10  # binary logarithm of the largest number of centers
COLUMNS = ("random", "all")


class FastClusterPartition(Partition):
    """
    Divide points by the nearest of random rows, m times (Davies & Ghahramani 2014, section 4.3.2, Algorithm 2).

    :class:`~gpytorch_partition.FastClusterKernel` uses it. Construct it yourself for clusters without a kernel.

    Each partition keeps every dimension with probability 1/2 (drawn again if none is kept), draws s uniformly from 0
    ... h and :math:`2^s` distinct rows of `x` as centers. The label of a point is the number of the center nearest to
    it on the dimensions kept, the lower number in a tie. With `num_centers` and `columns="all"` clusters are the
    Voronoi cells of the isolation kernel (Qin, Ting, Zhu & Lee 2019).

    :param x: `N x D` rows to draw centers from. (Default: None, an unfitted partition for `load_state_dict`.)
    :param num_partitions: Number m of partitions. (Default: 200.)
    :param height: h. (Default: the largest for the number of rows, 10 at most.)
    :param num_centers: A fixed number of centers, in place of `height`.
    :param columns: The dimensions that a partition keeps, `"random"` or `"all"` ones. (Default: `"random"`.)
    :param projection: Number of dimensions of a Gaussian random projection for each partition. (Default: None.)
    :param random_state: Seed or `RandomState`; `None` is a fresh one, never NumPy's global one.
    :raises ValueError: If the rows or an option cannot be used.

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
    random_projections: Tensor  # (m, D, K) bit patterns of float64, registered only if used

    def __init__(
        self,
        x: Tensor | None = None,
        num_partitions: int = 200,
        *,
        height: int | None = None,
        num_centers: int | None = None,
        columns: str = "random",
        projection: int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        super().__init__()
        self.register_buffer("centers", torch.empty(0, 0, dtype=torch.int64))
        self.register_buffer("kept", torch.empty(0, 0, dtype=torch.bool))
        self.register_buffer("sizes", torch.empty(0, dtype=torch.int64))
        if x is not None:
            rows = checked_rows(x, type(self).__name__)
            _check_options(rows.shape[0], height, num_centers, columns)
            projection = checked_projection(projection)
            height = _checked_height(height, rows.shape[0])
            num_partitions = checked_count(num_partitions, "partitions", "num_partitions", MOST_PARTITIONS)
            warn_about_unequal_scales(rows, type(self).__name__)
            random = random_state_of(random_state)
            (num_rows, num_columns), kept, sizes, chosen = rows.shape, [], [], []
            for _ in range(num_partitions):
                kept.append(np.ones(num_columns, bool) if columns == "all" else _dimension_subset(num_columns, random))
                sizes.append(2 ** random.randint(height + 1) if num_centers is None else int(num_centers))
                chosen.append(sample_without_replacement(num_rows, sizes[-1], random_state=random))
            self.centers = bits_of(rows[torch.from_numpy(np.concatenate(chosen).astype(np.int64)).to(rows.device)])
            self.kept = torch.from_numpy(np.stack(kept)).to(rows.device)
            self.sizes = torch.tensor(sizes, device=rows.device)
            if projection is not None:
                matrices = random.normal(size=(num_partitions, num_columns, projection)) / projection**0.5
                self.register_buffer("random_projections", bits_of(torch.from_numpy(matrices).to(rows.device)))

    @property
    def num_partitions(self) -> int:
        return self.sizes.numel()

    @property
    def num_features(self) -> int | None:
        return self.kept.shape[1] if self.is_fitted else None

    @property
    def cluster_counts(self) -> Tensor:
        return self.sizes

    def _labels(self, x: Tensor) -> Tensor:
        labels = torch.zeros(self.num_partitions, x.shape[0], dtype=torch.int64, device=x.device)
        centers = floats_of(self.centers).split(self.sizes.tolist())

        def label(partition: int) -> None:
            if centers[partition].shape[0] > 1:
                seen = partial(self._seen, partition)
                label_nearest(x, seen(centers[partition]), labels[partition], seen)

        for_each(label, range(self.num_partitions))
        return labels.T

    def _seen(self, partition: int, x: Tensor) -> Tensor:
        kept = self.kept[partition]
        if not self.is_projected:
            return x[:, kept]
        return projected(x[:, kept], floats_of(self.random_projections[partition])[kept])

    def _described(self) -> str:
        told = f"{super()._described()}, each on {ranged(self.kept.sum(1).tolist())} columns"
        return told + (f" in {self.random_projections.shape[-1]} random projections" if self.is_projected else "")

    @property
    def is_projected(self) -> bool:
        return "random_projections" in self._buffers

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        if all(prefix + name in state_dict for name in ("centers", "kept", "sizes")):
            self._buffers.pop("random_projections", None)
            if prefix + "random_projections" in state_dict:
                empty = torch.empty(0, 0, 0, dtype=torch.int64, device=self.sizes.device)
                self.register_buffer("random_projections", empty)
        super()._load_from_state_dict(state_dict, prefix, *args)


def _dimension_subset(num_features: int, random: np.random.RandomState) -> np.ndarray:
    while True:
        kept = random.randint(2, size=num_features).astype(bool)
        if kept.any():
            return kept


def default_height(num_rows: int) -> int:
    """Return the default height for a number of rows: at most as many centers as rows, and at most 1,024."""
    return min(_DEFAULT_HEIGHT, num_rows.bit_length() - 1)


def _checked_height(height: int | None, num_rows: int) -> int:
    largest = num_rows.bit_length() - 1
    if height is None:
        return default_height(num_rows)
    if not is_whole(height, 0, largest):
        raise ValueError(
            f"expected height to be a whole number between 0 and {largest}, got {height!r}: 2^height different rows "
            f"are drawn, and there are only {num_rows}"
        )
    return int(height)


def _check_options(num_rows: int, height: int | None, num_centers: Any, columns: str) -> None:
    if columns not in COLUMNS:
        raise ValueError(f"expected columns to be one of {COLUMNS}, got {columns!r}")
    if num_centers is not None:
        if height is not None:
            raise ValueError("expected height, for random numbers of centers, or num_centers, a fixed one, got both")
        if not is_whole(num_centers, 1, num_rows):
            raise ValueError(f"expected num_centers from 1 to the number of rows, {num_rows}, got {num_centers!r}")
