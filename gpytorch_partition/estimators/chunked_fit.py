"""Fits to more rows than fit in memory: a sample grows the kernel, and all rows are counted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpytorch_partition.all_or_nothing import all_or_nothing
from gpytorch_partition.estimators.counted_kernels import check_countable, counted_kernel
from gpytorch_partition.estimators.machine import LARGEST, check_count, check_magnitudes, warn_of_rounding
from gpytorch_partition.estimators.sample_weight import target_unit
from gpytorch_partition.inputs.seeds import random_state_of
from gpytorch_partition.models import FeatureSpaceGP
from gpytorch_partition.models.counted_gp import CountedGP
from gpytorch_partition.partitions.ensembles.refitting import is_ensemble
from gpytorch_partition.progress import doing, progress, recorded_stages, stage, verbosity
from gpytorch_partition.tables.chunks import Chunk, ChunkSource, RowSample, number_columns

_ROWS_COUNTED_AT_ONCE = 2**17
_NUMBERS_COUNTED_AT_ONCE = 2**24
_FEWEST_ROWS = 500
_LEAST_NOISE = 1.001e-4  # of standardized targets; less is at the bound


class FitsChunks:
    """A mixin of :class:`~gpytorch_partition.estimators.PartitionGPRegressor` for rows that are read in chunks."""

    model_: Any
    options_: Any
    _counted_rows: np.ndarray | None

    @all_or_nothing
    def fit_chunks(self: Any, chunks: Any, target: str | None = None, *, sample_rows: int = 100_000) -> Any:
        r"""
        Fit to more rows than fit in memory, such as a parquet folder or memory-mapped arrays.

        Rows are read twice. The first pass draws a uniform sample, which determines the columns (their units, and
        levels of text) and the kernel. The second pass counts all other rows by cluster
        (:class:`~gpytorch_partition.models.FeatureSpaceGP`). Scale, noise and mean maximize the marginal likelihood of
        these other rows, as trees fit the noise of the targets that they are grown on. Finally the sample is counted,
        so that means and deviations are those of an exact GP on all rows. The ends of chunks change no bit of the
        result.

        All pairs of clusters are counted: there must be few, some thousands, not the hundreds of thousands of a forest
        in memory. `"auto"` is therefore another model than that of :meth:`fit`: the leaves of 100 boosted trees of 32
        leaves (with a smaller sample a leaf for 400 of its rows), with effects and uncertainty from all rows.
        `"forest"` and tree ensembles are cut at the depth that leaves at most 3,200 clusters, which `left_out_`
        reports. `"fast_cluster"` gets coarser. A :class:`~gpytorch_partition.PartitionKernel` that is built, or a
        function that builds one, may have up to 8,192 clusters. `"mondrian"`, kernels of GPyTorch, weights, several
        targets and budgets are refused. Where rows fit in memory, :meth:`fit` may predict better (docs/many_rows.md).

        Costs two readings, the labels and :math:`O(N m^2)` for m partitions, and :math:`O(p^3)` for p clusters. Memory
        for any number of rows is the sample, a chunk, 131,072 rows (fewer wide ones) and some :math:`12 p^2` numbers (a
        GiB for 3,200 clusters). It computes in float64.

        :param chunks: A path of a parquet file, or of a folder of such; a pair of arrays, such as
            `(np.load("x.npy", mmap_mode="r"), np.load("y.npy", mmap_mode="r"))`; a list, or another iterable that can
            be iterated over again, of pairs (X, y), X an array or a table as in :meth:`fit`; or a function without
            arguments that returns an iterator of such pairs.
        :param target: The name of the column of parquet files that is the target; the others are the columns of X.
            (Default: None, for all other chunks.)
        :param sample_rows: Rows of the sample, half of all rows at most; they stay in the model. (Default: 100,000.)
        :return: The regressor itself. Its `summary()` describes rows of the sample, and `nearest_rows` finds them;
            `importance` and `partial_dependence` are refused.
        :raises TypeError: If chunks are none of these, such as a generator, which can be read once only, or the target
            is no name, as in `fit_chunks(X, y)`.
        :raises ValueError: If a chunk (the error has its number) or a parameter cannot be used, or there are fewer than
            500 rows.
        :raises ImportError: If parquet files are to be read without pandas and pyarrow.
        :raises RuntimeError: If the second pass reads other rows than the first, by number, targets or order.

        Example:
            >>> from gpytorch_partition.estimators import PartitionGPRegressor
            >>> X = np.random.RandomState(0).rand(600, 2)
            >>> y = np.sin(6 * X[:, 0]) + 0.1 * np.random.RandomState(1).randn(600)
            >>> chunks = [(X[i : i + 200], y[i : i + 200]) for i in range(0, 600, 200)]
            >>> model = PartitionGPRegressor(random_state=0).fit_chunks(chunks)
            >>> mean, std = model.predict(X, return_std=True)
            >>> bool(abs(mean - np.sin(6 * X[:, 0])).mean() < 0.1), bool(0.09 < std.mean() < 0.13)
            (True, True)
        """
        self._check_parameters()
        _check_for_chunks(self)
        check_count(sample_rows, "sample_rows")
        source, random = ChunkSource(chunks, target), random_state_of(self.random_state)
        with verbosity(self.verbose), doing("fitting chunks"), recorded_stages() as self.seconds_:
            with stage("sampling rows"):
                sample = self._sample(source, sample_rows, random)
                _check_enough(sample.num_rows)
            x, y, original = self._learned_columns(sample)
            with stage("building the kernel"):
                kernel, self.left_out_ = counted_kernel(
                    self.kernel,
                    x,
                    original if is_ensemble(self.kernel) else y,
                    num_partitions=self.num_partitions,
                    random_state=random,
                    n_jobs=self.n_jobs,
                    categories=self._categories,
                )
            space = FeatureSpaceGP(kernel)
            with stage("counting rows"):
                extremes = self._count(space, source, sample)
            with stage("fitting noise and scales"):
                found = space.fit()
                space.add_rows(x, y)
            self._keep(found, CountedGP(space, x, y, _extremes([extremes, x])))
        self._counted_rows, self._target_names = sample.rows, None if target is None else [target]
        return self

    @property
    def _is_counted(self) -> bool:
        return isinstance(getattr(self, "model_", None), CountedGP)

    def _refuse_counted(self, name: str, instead: str) -> None:
        if self._is_counted:
            raise ValueError(f"{name} needs the training rows, which fit_chunks has counted and not kept: {instead}")

    def _sample(self: Any, source: ChunkSource, size: int, random: np.random.RandomState) -> RowSample:
        bar = progress(source, "sampling rows", source.num_chunks)
        return RowSample(size, random).of(map(self._with_usable_numbers, bar))

    def _with_usable_numbers(self: Any, chunk: Chunk) -> Chunk:
        """Return the chunk if its numbers can be used; errors of the later sample could not name it."""
        knows_holes = self._finiteness is not True
        for name, values in number_columns(chunk.x):
            expected, are_bad = f"expected numbers up to {LARGEST:g}", np.abs(values) > LARGEST
            if not knows_holes and not are_bad.any():
                expected, are_bad = self._no_holes, np.isnan(values)
            if are_bad.any():
                row = int(are_bad.argmax())
                at = f"in column {name!r}, row {row} of the chunk"
                raise ValueError(f"{chunk.name}: {expected}, got {values[row]:g} {at}")
        return chunk

    @property
    def _no_holes(self: Any) -> str:
        kernel = f"kernel={self.kernel!r}" if isinstance(self.kernel, str) else "a kernel of numbers"
        return f"{kernel} expected no missing cells (give 'auto' or 'forest', which know them)"

    def _learned_columns(self: Any, sample: RowSample) -> tuple[Tensor, Tensor, Tensor]:
        """Set the columns; return the sample's standardized rows and targets, and the targets as they are."""
        X, y = self._read_target(sample.x, sample.y)
        check_magnitudes(X, "X")
        check_magnitudes(y, "y")
        warn_of_rounding(y)
        self._columns, self._unit, self.options_ = self._standardization(X), target_unit(y, None), None
        return self._columns.apply_array(X), self._unit.apply_array(y), torch.from_numpy(y)

    def _count(self: Any, space: FeatureSpaceGP, source: ChunkSource, sample: RowSample) -> Tensor:
        """Count the rows outside the sample; return the least and largest values of each column (`2 x D`)."""
        extremes = torch.empty(0)
        bar = progress(source, "counting rows", source.num_chunks)
        others = (self._others(sample, chunk) for chunk in bar)
        size = min(_ROWS_COUNTED_AT_ONCE, max(1, _NUMBERS_COUNTED_AT_ONCE // len(self._columns.mean)))
        for x, y in in_blocks(others, size):
            space.add_rows(x, y)
            extremes = _extremes([extremes, x])
        return extremes

    def _others(self: Any, sample: RowSample, chunk: Chunk) -> tuple[Tensor, Tensor]:
        rows = sample.others(chunk)
        x, y = self._standardized(chunk)
        return x[rows], y[rows]

    def _standardized(self: Any, chunk: Chunk) -> tuple[Tensor, Tensor]:
        try:
            X, y = self._read(chunk.x, chunk.y, reset=False, y_numeric=True, ensure_all_finite=self._finiteness)
            check_magnitudes(X, "X")
            check_magnitudes(y, "y")
            if self._finiteness is True and np.isnan(X).any():
                raise ValueError(self._no_holes)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{chunk.name}: {error}") from error
        return self._columns.apply_array(X), self._unit.apply_array(y.astype(np.float64))

    def _keep(self: Any, found: Any, model: CountedGP) -> None:
        self._set_model(model)
        self.log_marginal_likelihood_value_, self.n_iter_ = found.log_likelihood, 0
        self.at_bounds_ = {"noise": found.noise} if found.noise <= _LEAST_NOISE else {}


def in_blocks(chunks: Iterable[tuple[Tensor, Tensor]], size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """
    Yield the rows of chunks in blocks of one size, the last one smaller, so that sums round the same for any chunks.

    :param chunks: Rows (`n x D`) and targets (`n`).
    :param size: Rows of a block.

    Example:
        >>> chunks = [(torch.zeros(n, 1), torch.zeros(n)) for n in (1, 5, 1)]
        >>> [len(y) for _, y in in_blocks(chunks, 3)]
        [3, 3, 1]
    """
    waiting: list[tuple[Tensor, Tensor]] = []
    for x, y in chunks:
        while len(y):
            room = size - sum(len(targets) for _, targets in waiting)
            waiting.append((x[:room], y[:room]))
            x, y = x[room:], y[room:]
            if sum(len(targets) for _, targets in waiting) == size:
                yield _joined(waiting)
                waiting = []
    if waiting:
        yield _joined(waiting)


def _joined(parts: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    xs, ys = zip(*parts)
    return torch.cat(xs), torch.cat(ys)


def _extremes(blocks: Iterable[Tensor]) -> Tensor:
    """Return the least and largest values of each column (`2 x D`), NaN where all are missing."""
    x = torch.cat([block for block in blocks if len(block)])
    low, high = x.nan_to_num(nan=torch.inf).amin(0), x.nan_to_num(nan=-torch.inf).amax(0)
    return torch.stack([low, high]).where(low <= high, torch.nan)


def _check_enough(num_rows: int) -> None:
    if num_rows < _FEWEST_ROWS:
        raise ValueError(
            f"expected {_FEWEST_ROWS} rows or more in chunks, a half of which chooses scale and noise, got {num_rows}: "
            "give fit(X, y) all of them"
        )


def _check_for_chunks(regressor: Any) -> None:
    check_countable(regressor.kernel)
    for name, meaningless in (("budget", None), ("options", None)):
        if getattr(regressor, name) is not meaningless:
            raise ValueError(
                f"expected {name}=None with chunks, whose model is not chosen by held-out rows, got another"
            )
    if regressor.dtype == "float32":
        raise ValueError("expected dtype='auto' or 'float64' with chunks, whose counts are solved in float64")
