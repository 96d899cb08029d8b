"""Partitions drawn by a program from seeds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from joblib import Parallel, delayed
from sklearn.base import BaseEstimator
from torch import Tensor

from gpytorch_partition.descriptions import counted
from gpytorch_partition.inputs.counts import checked_count
from gpytorch_partition.inputs.seeds import random_state_of
from gpytorch_partition.partitions.callable import CallablePartition, checked_version, partition_of
from gpytorch_partition.partitions.partition import Partition


class SampledPartition(Partition):
    r"""
    A partition whose m partitions a program draws from seeds; the program defines their distribution (Davies &
    Ghahramani 2014, 2.4).

    :meth:`~gpytorch_partition.PartitionKernel.from_sampler` uses it. Construct it yourself to inspect draws before
    building a kernel, by labels or by :func:`~gpytorch_partition.explain.plots.plot_cells`.

    The state, in `state_dict` and in pickles, is the m seeds, 8 bytes each. After a load, functions are drawn again by
    `draw` at the first labels. The caller must ensure that `draw` is the same program on the same data; only then is a
    loaded partition the saved one.

    :param draw: Maps a seed, an int, to a function, or to a fitted clusterer of scikit-learn or its `predict`. A
        function maps points (`n x D` torch tensor) to integer labels, torch or NumPy, of shape `n` or `n x 1`. A known
        rule for new points is read, as by :class:`~gpytorch_partition.PartitionKernel`; other clusterers get float64
        NumPy arrays. All randomness must come from the seed. For pickles `draw` must be a module-level function, or an
        instance of a class that can be pickled. The buffers of a :class:`torch.nn.Module` are saved as well.
    :param num_partitions: Number m of seeds. (Default: 200.)
    :param random_state: Seed or `RandomState` that the seeds are drawn from; `None` is a fresh one.
    :param n_jobs: Functions drawn at once, as joblib counts them; functions from other processes must be picklable by
        cloudpickle. (Default: None, one.)
    :param version: The name and version of the program, as in
        :class:`~gpytorch_partition.partitions.CallablePartition`. (Default: None, not checked.)
    :raises TypeError: If `draw` is not callable, or the version is not a string.
    :raises ValueError: If `num_partitions` is less than 1, or `random_state` is no seed.

    Example:
        >>> def draw(seed):
        ...     threshold = np.random.RandomState(seed).normal()
        ...     return lambda x: x[:, 0] > threshold
        >>> signs = SampledPartition(draw, 4, random_state=0)
        >>> signs.labels(torch.tensor([[-3.0], [0.0], [3.0]]))
        tensor([[0, 0, 0, 0],
                [0, 0, 0, 1],
                [1, 1, 1, 1]])
    """

    draw: Callable[[int], Any]
    n_jobs: int | None
    seeds: Tensor  # (m,)

    def __init__(
        self,
        draw: Callable[[int], Any],
        num_partitions: int = 200,
        *,
        random_state: int | np.random.RandomState | None = None,
        n_jobs: int | None = None,
        version: str | None = None,
    ) -> None:
        super().__init__()
        self.version = checked_version(version)
        if not callable(draw):
            raise TypeError(f"expected a function from a seed to a function of points, got {type(draw).__name__}")
        num_partitions = checked_count(num_partitions, "partitions", "num_partitions")
        self.draw, self.n_jobs = draw, n_jobs
        seeds = random_state_of(random_state).randint(2**31 - 1, size=num_partitions)
        self.register_buffer("seeds", torch.from_numpy(seeds.astype(np.int64)))
        self._drawn: tuple[list[int], list[Partition]] = ([], [])
        self._partitions()

    @property
    def num_partitions(self) -> int:
        """Number m of seeds."""
        return self.seeds.numel()

    def _partitions(self) -> list[Partition]:
        seeds = self.seeds.tolist()
        if self._drawn[0] != seeds:
            drawn = Parallel(n_jobs=self.n_jobs)(delayed(self.draw)(seed) for seed in seeds)
            self._drawn = (seeds, [_partition(each) for each in drawn])
        return self._drawn[1]

    def _described(self) -> str:
        return f"{counted(self.num_partitions, 'partition')} drawn by {getattr(self.draw, '__name__', 'a program')}"

    def _labels(self, x: Tensor) -> Tensor:
        return torch.cat([partition.to(x.device).labels(x) for partition in self._partitions()], -1)

    def _check_values(self, x: Tensor) -> None:
        """Accept all values: the functions handle NaN."""

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_drawn": ([], [])}


def _partition(drawn: Any) -> Partition:
    try:
        is_other = not isinstance(drawn, (type, BaseEstimator)) and callable(getattr(drawn, "predict", None))
        partition = partition_of(drawn.predict if is_other else drawn)
    except TypeError as error:
        raise TypeError(
            "expected draw(seed) to return a function from points to labels, or a fitted clusterer whose rule for new "
            f"points is known: {error}"
        ) from error
    return CallablePartition(partition.function, 1) if isinstance(partition, CallablePartition) else partition
