"""Fits to more rows than fit in memory: a sample grows a kernel of few clusters, and all rows are counted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from gpytorch_partition.descriptions import counted
from gpytorch_partition.estimators.checks import LARGEST, TrainingRange, check_magnitudes, warn_of_rounding
from gpytorch_partition.estimators.kernel_parameter import name_of, resolved_kernel
from gpytorch_partition.estimators.regression_fit import Found, columns_of, target_unit
from gpytorch_partition.inputs.numbers import random_state_of
from gpytorch_partition.inputs.standardization import Standardization
from gpytorch_partition.kernels import FastClusterKernel, PartitionKernel, RandomForestKernel
from gpytorch_partition.models import FeatureSpaceGP
from gpytorch_partition.models.counted_gp import CountedGP
from gpytorch_partition.partitions.ensembles.libraries import is_ensemble
from gpytorch_partition.partitions.forest import ForestPartition, TreeCutPartition
from gpytorch_partition.progress import progress, stage
from gpytorch_partition.tables.chunks import Chunk, ChunkSource, RowSample, number_columns

_ROWS_COUNTED_AT_ONCE = 2**17
_NUMBERS_COUNTED_AT_ONCE = 2**24
_FEWEST_ROWS = 500
_LEAST_NOISE = 1.001e-4  # of standardized targets; less is at the bound
MOST_CLUSTERS = 3_200  # of kernels that are built here: counts of 82 MB, a fit of some ten seconds
_MOST_GIVEN = 8_192  # of kernels that are given: counts of half a GiB, minutes
# Boosted trees of "auto". With 100,000 rows 50 to 400 trees with 3,200 leaves in all are within .01 nats.
_NUM_TREES, _NUM_LEAVES = 100, 32
# With few rows, more leaves cover less: at 3,000 rows 90 % intervals hold 84 % with 32 leaves, 90 % with 4.
_ROWS_PER_LEAF, _FEWEST_LEAVES = 400, 4
_MOST_LEVELS = 255  # that boosting splits into sets
_REMEDY = "give 'auto', 'forest', 'fast_cluster', a tree ensemble or a PartitionKernel, or fit to rows in memory"

Units: TypeAlias = tuple[Standardization, Standardization]  # of columns and targets


@dataclass(frozen=True, eq=False)
class ChunkedFit:
    """Fit to rows in chunks, in two passes: a sample, from which the kernel is built, and counts of the other rows."""

    reader: Any  # the estimator: its parameters, and tables read as it does

    def run(
        self, source: ChunkSource, sample_rows: int, random: np.random.RandomState
    ) -> tuple[Found, Standardization, Standardization]:
        """
        Build a kernel from a sample of the rows, and count all rows into its clusters.

        :return: The fitted model, and the standardizations of the columns and of the targets.
        """
        with stage("sampling rows"):
            bar = progress(source, "sampling rows", source.num_chunks)
            sample = RowSample(sample_rows, random).of(map(self._with_usable_numbers, bar))
        if sample.num_rows < _FEWEST_ROWS:
            raise ValueError(
                f"expected {_FEWEST_ROWS} rows or more in chunks, a half of which chooses scale and noise, got "
                f"{sample.num_rows}: give fit(X, y) all of them"
            )
        X, y = self.reader._read(sample.x, sample.y, reset=True, y_numeric=True)
        y = _checked(X, y)
        warn_of_rounding(y)
        columns, unit = columns_of(self.reader, X), target_unit(y, None)
        x, targets = columns.apply_array(X), unit.apply_array(y)
        with stage("building the kernel"):
            grown_on = torch.from_numpy(y) if is_ensemble(self.reader.kernel) else targets
            kernel, left_out = counted_kernel(self.reader, x, grown_on, random)
        space = FeatureSpaceGP(kernel)
        with stage("counting rows"):
            extremes = self._count(space, source, sample, (columns, unit))
        with stage("fitting noise and scales"):
            found = space.fit()
            space.add_rows(x, targets)
        model = CountedGP(space, x, targets, _extremes([extremes, x]))
        at_bounds = {"noise": found.noise} if found.noise <= _LEAST_NOISE else {}
        return Found(model, sample.rows, found.log_likelihood, at_bounds, left_out=left_out), columns, unit

    def _with_usable_numbers(self, chunk: Chunk) -> Chunk:
        """Return the chunk if its numbers can be used; errors of the later sample could not name it."""
        for name, values in number_columns(chunk.x):
            expected, are_bad = f"expected numbers up to {LARGEST:g}", np.abs(values) > LARGEST
            if not self.reader._takes_missing_values and not are_bad.any():
                expected, are_bad = self._no_holes, np.isnan(values)
            if are_bad.any():
                row = int(are_bad.argmax())
                raise ValueError(
                    f"{chunk.name}: {expected}, got {values[row]:g} in column {name!r}, row {row} of the chunk"
                )
        return chunk

    @property
    def _no_holes(self) -> str:
        kernel = self.reader.kernel
        kernel = f"kernel={kernel!r}" if isinstance(kernel, str) else "a kernel of numbers"
        return f"{kernel} expected no missing cells (give 'auto' or 'forest', which know them)"

    def _count(self, space: FeatureSpaceGP, source: ChunkSource, sample: RowSample, units: Units) -> Tensor:
        """Count the rows outside the sample; return the least and largest values of each column (`2 x D`)."""
        extremes = torch.empty(0)
        size = min(_ROWS_COUNTED_AT_ONCE, max(1, _NUMBERS_COUNTED_AT_ONCE // len(units[0].mean)))
        for x, y in in_blocks(self._others(source, sample, units), size):
            space.add_rows(x, y)
            extremes = _extremes([extremes, x])
        return extremes

    def _others(self, source: ChunkSource, sample: RowSample, units: Units) -> Iterator[tuple[Tensor, Tensor]]:
        columns, unit = units
        for chunk in progress(source, "counting rows", source.num_chunks):
            rows, (X, y) = sample.others(chunk), self._read(chunk)
            yield columns.apply_array(X)[rows], unit.apply_array(y)[rows]

    def _read(self, chunk: Chunk) -> tuple[np.ndarray, np.ndarray]:
        try:
            X, y = self.reader._read(chunk.x, chunk.y, reset=False, y_numeric=True)
            y = _checked(X, y)
            if not self.reader._takes_missing_values and np.isnan(X).any():
                raise ValueError(self._no_holes)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{chunk.name}: {error}") from error
        return X, y


def _checked(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    check_magnitudes(X, "X")
    y = y.astype(np.float64)
    check_magnitudes(y, "y")
    return y


def in_blocks(chunks: Iterable[tuple[Tensor, Tensor]], size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the rows of chunks in blocks of one size (the last is shorter), so that chunks do not change rounding."""
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
    return torch.stack(TrainingRange.of(torch.cat([block for block in blocks if len(block)])))


def check_for_chunks(kernel: Any, budget: Any, options: Any, dtype: str) -> None:
    """Refuse, before any work, a kernel whose rows cannot be counted, and parameters without a meaning for these."""
    if name_of(kernel) == "mondrian":
        raise ValueError(
            "expected a kernel of few clusters, got kernel='mondrian' with a cell for each row: give 'auto', 'forest' "
            "or 'fast_cluster', or a MondrianKernel of a short lifetime, built on some rows"
        )
    if isinstance(kernel, Kernel):
        _check_countable(kernel)
    for name, value in (("budget", budget), ("options", options)):
        if value is not None:
            raise ValueError(
                f"expected {name}=None with chunks, whose model is not chosen by folds, got {value!r}: leave it out"
            )
    if dtype == "float32":
        raise ValueError("expected dtype='auto' or 'float64' with chunks, whose counts are solved in float64")


def counted_kernel(
    estimator: Any, x: Tensor, y: Tensor, random_state: np.random.RandomState
) -> tuple[PartitionKernel, tuple[str, ...]]:
    """
    Return a kernel with a few thousand clusters, and descriptions of what was left out to keep them few.

    - `"auto"`: the leaves of 100 boosted trees with 32 leaves each, or a leaf for 400 rows, but 4 at least.
    - `"forest"` and tree ensembles: their trees, cut at the depth that leaves at most 3,200 clusters.
    - `"fast_cluster"`: the height that makes at most 3,200 clusters.
    - A :class:`~gpytorch_partition.PartitionKernel`, or a function that builds one: as it is, up to 8,192.

    :param x: `n x D` rows of the sample as the kernel sees them.
    :param y: `n` targets; in their own units for an ensemble.
    """
    kernel, categories, num_partitions = estimator.kernel, estimator._categories, estimator.num_partitions
    name = name_of(kernel)
    if name == "auto":
        return _boosted(x, y, categories, random_state)
    if name == "fast_cluster":
        return _clustered(x, categories, num_partitions, random_state), ()
    options = {"random_state": random_state, "n_jobs": estimator.n_jobs, "categories": categories}
    built = resolved_kernel(kernel, x, y, num_partitions=num_partitions, **options)
    if name == "forest" or is_ensemble(kernel):
        return _cut(built)
    _check_countable(built)
    return deepcopy(built), ()


def _boosted(
    x: Tensor, y: Tensor, categories: Mapping[int, int], random_state: Any
) -> tuple[RandomForestKernel, tuple[str, ...]]:
    from sklearn.ensemble import HistGradientBoostingRegressor

    sets = [column for column, levels in categories.items() if levels <= _MOST_LEVELS]
    ordered = len(categories) - len(sets)
    boosting = HistGradientBoostingRegressor(
        max_iter=_NUM_TREES,
        max_leaf_nodes=min(_NUM_LEAVES, max(_FEWEST_LEAVES, len(x) // _ROWS_PER_LEAF)),
        early_stopping=False,
        categorical_features=sets or None,
        random_state=random_state_of(random_state).randint(2**31),
    )
    boosting.fit(x.numpy(), y.numpy())
    told = f"sets of levels of {counted(ordered, 'column')} with more than {_MOST_LEVELS} (split by their order)"
    return RandomForestKernel.from_forest(boosting, heights="leaf"), (told,) if ordered else ()


def _clustered(x: Tensor, categories: Mapping[int, int], num_partitions: int, random_state: Any) -> FastClusterKernel:
    if categories or bool(x.isnan().any()):
        raise ValueError(
            "kernel='fast_cluster' on chunks expected numbers without missing cells, got categories or NaN: give "
            "'auto' or 'forest', which know both"
        )
    if (per_partition := MOST_CLUSTERS // num_partitions) < 2:
        raise ValueError(_too_many(num_partitions))
    height = min(per_partition.bit_length(), len(x).bit_length()) - 1
    return FastClusterKernel(x, num_partitions, height=height, random_state=random_state)


def _cut(kernel: RandomForestKernel) -> tuple[RandomForestKernel, tuple[str, ...]]:
    forest = kernel.partition
    assert isinstance(forest, ForestPartition)
    if (leaves := int(forest.cluster_counts.sum())) <= MOST_CLUSTERS:
        return kernel, ()
    depth, found = 0, _cut_at(forest, 0)
    while int((deeper := _cut_at(forest, depth + 1)).counts.sum()) <= MOST_CLUSTERS:  # all leaves are more
        depth, found = depth + 1, deeper
    if depth == 0:
        raise ValueError(_too_many(forest.num_partitions))
    shallow = RandomForestKernel(heights="sampled")
    shallow.partition = found
    height, kept = int(forest.layout.heights.max()), int(found.counts.sum())
    return shallow, (f"levels of trees below {depth} (of {height}; {kept:,} of {leaves:,} clusters)",)


def _cut_at(forest: ForestPartition, depth: int) -> TreeCutPartition:
    return forest.cut(torch.full((forest.num_partitions,), depth))


def _too_many(num_partitions: int) -> str:
    told = f"for {MOST_CLUSTERS:,} clusters in all, got {num_partitions:,}: give fewer"
    return f"expected at most {MOST_CLUSTERS // 2:,} trees or partitions on chunks, {told}"


def _check_countable(kernel: Kernel) -> None:
    if not isinstance(kernel, PartitionKernel):
        name = type(kernel).__name__
        raise ValueError(f"expected a kernel of partitions, whose rows can be counted, got a {name}: {_REMEDY}")
    counts = kernel.partition.cluster_counts
    if counts is not None and (size := int(np.sum(counts.tolist()))) > _MOST_GIVEN:
        raise ValueError(
            f"expected a kernel with at most {_MOST_GIVEN:,} clusters in all, all pairs of which are counted, got "
            f"{size:,}: give fewer partitions or coarser ones, or 'auto'"
        )
