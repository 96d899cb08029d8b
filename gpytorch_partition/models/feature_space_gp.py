"""A Gaussian process for any number of rows, which keeps counts and sums of clusters instead of the rows."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from copy import copy, deepcopy
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpytorch_partition import files
from gpytorch_partition.all_or_nothing import all_or_nothing
from gpytorch_partition.clusters.cluster_index import SeenClusterIndex
from gpytorch_partition.clusters.co_occurrence import MAX_CLUSTERS
from gpytorch_partition.clusters.incidence import Incidence
from gpytorch_partition.inference.evidence.profile_likelihood import Bounds, Maximum, maximize
from gpytorch_partition.inference.evidence.spectral_likelihood import SpectralLikelihood
from gpytorch_partition.inference.spaces.feature_space import EffectsPosterior, FeatureSpace, summed_variances
from gpytorch_partition.inference.spaces.statistics import ClusterStatistics
from gpytorch_partition.inputs.numbers import checked_count, is_whole
from gpytorch_partition.kernels.partition_kernel import PartitionKernel
from gpytorch_partition.kernels.partition_mixture_kernel import PartitionMixtureKernel
from gpytorch_partition.models.counted_rows import (
    BOUNDS,
    CountedModel,
    check_has_partitions,
    check_points,
    check_rows,
    warn_of_least_noise,
)
from gpytorch_partition.progress import progress

_KIND = "file of a FeatureSpaceGP"
_CLUSTERS_PER_ROW = 4  # clusters for each new row, at least, for an update of the solution instead of a new one


class FeatureSpaceGP(CountedModel):
    r"""
    Fit an exact Gaussian process, :math:`y \sim N(c, s K + \sigma^2 I)`, by counts of clusters instead of rows.

    Use it when rows do not fit in memory or arrive in chunks, and all partitions together have a few thousand clusters.
    Rows can be added and removed later. All results are exact for any number of rows.

    Counting costs the labels and :math:`O(N m^2)`, the first fit or prediction after that :math:`O(p^3)` time and `32
    p^2` bytes for p clusters (`64 p^2` for all heights of a forest), a mean :math:`O(m)` and a variance :math:`O(m p)`.

    The mean of the first targets is subtracted. Scale targets to deviations of about 1: the noise is 1e-4 at least.

    :param kernel: The kernel, best one of partitions with few clusters. The model uses the weights (of levels, of a
        mixture) that the kernel has when the model is fitted. With Mondrian trees each new row may open m new cells.
    :param max_clusters: Largest number of clusters; rows that would open more are an error. (Default: 65,536.)
    :raises ValueError: If the kernel is a mixture with Mondrian trees, groups or a user's function, or a
        :class:`~gpytorch_partition.GammaMondrianKernel`.

    Example:
        >>> from gpytorch_partition import FastClusterKernel
        >>> generator = torch.Generator().manual_seed(0)
        >>> x = torch.rand(10_000, 1, generator=generator)
        >>> y = 4 * x.squeeze(-1) + 0.3 * torch.randn(10_000, generator=generator)
        >>> model = FeatureSpaceGP(FastClusterKernel(x, 50, height=5, random_state=0))
        >>> model.add_chunks(zip(x.split(1_000), y.split(1_000)))
        >>> maximum = model.fit()
        >>> mean, variance = model.predict(torch.tensor([[0.5]]))
        >>> bool((mean - 2).abs() < 0.1), round(maximum.noise, 2)  # 0.3 squared
        (True, 0.09)
    """

    def __init__(self, kernel: PartitionKernel, *, max_clusters: int = MAX_CLUSTERS) -> None:
        if isinstance(kernel, PartitionMixtureKernel) and kernel.partition.cluster_counts is None:
            raise ValueError(
                "expected a mixture of kernels whose numbers of clusters are known (forests, fast clusters), got one "
                "with others: use the kernels one at a time, or a PartitionGP"
            )
        check_has_partitions(kernel)
        if not kernel.can_be_counted:
            got = type(kernel).__name__
            raise ValueError(f"expected a kernel whose rows can be counted, got a {got}: use a PartitionGP")
        checked_count(max_clusters, "clusters", "max_clusters")
        self.kernel = kernel
        self.statistics = ClusterStatistics(kernel.partition, max_clusters)

    @property
    def num_rows(self) -> int:
        """Return the number N of rows counted so far."""
        return self.statistics.num_rows

    def add_rows(self, x: Tensor, y: Tensor) -> None:
        """
        Count more rows, without changing outputscale, noise and mean.

        The solution of a fitted model is updated in :math:`O(n p^2)` for n rows (Balog et al. 2016, section 5 and
        supplement C), and equals that of all rows up to rounding. It is computed anew if n is above p / 4.

        :param x: `n x D` points.
        :param y: `n` targets. A mean that is 10,000 standard deviations from that of the first rows costs digits.
        :raises TypeError: If x or y is no tensor.
        :raises ValueError: If x and y do not match, hold NaN or infinity, or open more than `max_clusters` clusters.
        """
        x, y = self._checked(x, y)
        is_worth_updating = 0 < _CLUSTERS_PER_ROW * len(y) <= len(self.statistics.sums)
        posterior = self._posterior if self.values is not None and is_worth_updating else None
        self._forget()  # first: counting may fail, or be interrupted
        places, codes = self.statistics.add(x, y)
        if posterior is not None:
            values, num_clusters = self._fitted_values, len(self.statistics.sums)
            deviation = (values.outputscale / self.kernel.num_partitions) ** 0.5
            extended = posterior.extended(places, num_clusters, deviation)
            residuals = (y.double() - values.mean).unsqueeze(-1)
            rows = Incidence(codes, num_clusters)
            self.__dict__["_posterior"] = extended.updated(rows, residuals, values.noise)

    def remove_rows(self, x: Tensor, y: Tensor) -> None:
        """
        Remove rows that were added before; parameters and errors are those of :meth:`add_rows`.

        :raises ValueError: If the remaining counts show that these rows were not added; nothing changes then.
        """
        x, y = self._checked(x, y)
        self._forget()
        self.statistics.remove(x, y)

    def add_chunks(self, chunks: Iterable[tuple[Tensor, Tensor]], total: int | None = None) -> None:
        """
        Count the rows of many chunks, with a progress bar.

        A chunk counts whole or not at all. After an error or an interruption, :attr:`num_rows` is where to go on.

        :param chunks: Pairs of points `n x D` and targets `n`, as from :func:`~gpytorch_partition.models.array_chunks`.
        :param total: Number of chunks, for the progress bar, if `chunks` has no length.
        """
        for chunk in progress(chunks, "counting rows", total):
            if not isinstance(chunk, tuple | list) or len(chunk) != 2:
                got = f"{len(chunk)} parts" if isinstance(chunk, tuple | list) else f"a {type(chunk).__name__}"
                raise TypeError(f"expected chunks of two parts, points and targets, got {got}: give zip(xs, ys)")
            self.add_rows(*chunk)

    def add_statistics(self, other: ClusterStatistics) -> None:
        """
        Count rows that were counted elsewhere by the same partitions, such as on other machines, in :math:`O(p^2)`.

        :param other: The `statistics` of another model.
        :raises ValueError: If the partitions are not the same, or there would be too many clusters.
        """
        self._forget()  # first, as in add_rows
        self.statistics.merge_(other)

    def __add__(self, other: FeatureSpaceGP) -> FeatureSpaceGP:
        """Return an unfitted model of the rows of both."""
        total = FeatureSpaceGP(self.kernel)
        total.statistics = self.statistics + other.statistics
        return total

    @all_or_nothing
    def fit(self, bounds: Bounds | None = None) -> Maximum:
        """
        Choose outputscale, noise and mean by maximum marginal likelihood, exactly.

        :param bounds: Where they may lie. (Default: noise at least 1e-4, everything else free.)
        :return: The values, also kept in :attr:`values`, and the log marginal likelihood.
        :raises RuntimeError: If no row was added.

        A :class:`~sklearn.exceptions.ConvergenceWarning` says that the noise is at its lower bound.
        """
        bounds, center = bounds or BOUNDS, self.statistics.center
        centered = bounds if bounds.mean is None else replace(bounds, mean=bounds.mean - center)
        found = maximize(self._likelihood(), centered)
        values = replace(found, mean=found.mean + center)
        warn_of_least_noise(values, bounds)
        self._forget(with_space=False)  # first: an interruption must not leave the old solution
        self.values = values
        return values

    def log_marginal_likelihood(self, outputscale: float, noise: float, mean: float) -> float:
        """Return the exact log marginal likelihood of all rows at given values, in nats."""
        return self._likelihood().value(outputscale, noise, mean - self.statistics.center)

    def predict(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """
        Return the mean and the latent variance of each point (`N_test` each, float64), the variance without the noise.

        :param x: `N_test x D` points.
        :raises RuntimeError: If the model is not fitted.
        """
        rows = self._points(x)
        return self._means(rows), summed_variances(rows, self._posterior.root)

    def covariance(self, x: Tensor) -> Tensor:
        """Return the joint posterior covariance at points (`N_test x N_test`, float64); it holds `N_test p` numbers."""
        root = self._points(x).row_values(self._seen_root)
        covariance, (new, deviations) = root @ root.mT, self._new_clusters(x)
        for clusters in new.codes.unbind(-1):
            covariance += deviations[clusters.long()].square() * (clusters == clusters.unsqueeze(-1))
        return covariance

    def sample(self, x: Tensor, num_samples: int, generator: torch.Generator | None = None) -> Tensor:
        """Return joint posterior samples of the function (`num_samples x N_test`); default generator: PyTorch's."""
        checked_count(num_samples, "samples", "num_samples")
        rows, values, root = self._points(x), self._fitted_values, self._seen_root
        normal = partial(torch.randn, generator=generator, dtype=torch.float64)
        effects = root @ normal(root.shape[1], num_samples)
        new, deviations = self._new_clusters(x)
        news = new.row_values(deviations.unsqueeze(-1) * normal(new.num_clusters, num_samples))
        return (values.mean + rows.row_values(self._posterior.mean + effects) + news).mT

    @property
    def _seen_root(self) -> Tensor:
        """The root of the posterior covariance of the effects of clusters that rows were in."""
        return self._posterior.root.index_fill(0, self.statistics.null_clusters, 0)

    def _new_clusters(self, x: Tensor) -> tuple[Incidence, Tensor]:
        """Incidence of points in clusters without rows, and the deviations of these clusters' effects."""
        labels = self.kernel.cluster_ids(x)
        index = SeenClusterIndex.of(labels)
        is_null = torch.zeros(len(self.statistics.sums), dtype=torch.bool)
        is_null[self.statistics.null_clusters] = True
        is_new = is_null[self.statistics.codes(labels).long()]
        share = self._fitted_values.outputscale / self.kernel.num_partitions
        deviations = torch.full((index.num_clusters + 1,), share**0.5, dtype=torch.float64)
        deviations[-1] = 0  # for all clusters with rows
        return Incidence(torch.where(is_new, index.codes(labels), index.num_clusters), len(deviations)), deviations

    def effects(self) -> EffectsPosterior:
        """
        Return the posterior means of the effects of clusters, and a root of their covariance (`p x 1` and `p x p`).

        The mean of a point is c plus the sum of the mean effects of its clusters. Its variance is the sum of squares of
        the sum of its clusters' rows of the root.
        """
        self._check_counted()
        return self._posterior

    def state_dict(self) -> dict[str, Any]:
        """Return tensors and plain values to save; :meth:`load_state_dict` gives them to a model of the same kernel."""
        values = None if self.values is None else vars(self.values)
        return {"statistics": self.statistics.state_dict(), "values": values}

    @all_or_nothing
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned; a `ValueError` if the counts were made with other partitions."""
        values = None if state["values"] is None else Maximum(**state["values"])
        self.statistics = copy(self.statistics)
        self.statistics.load_state_dict(state["statistics"])
        self.values = values
        self._forget()

    def __getstate__(self) -> dict[str, Any]:
        """The state without the solution and its factors, several times `p^2` numbers, which are computed again."""
        state = {name: value for name, value in self.__dict__.items() if name not in ("_posterior", "_space")}
        return {**state, "_is_decomposed": "_space" in self.__dict__ and self._space.is_decomposed}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a file that :meth:`load` reads; it replaces another once it is complete."""
        content = {"kernel": dict(self.kernel.state_dict()), "model": self.state_dict()}
        files.save(path, _KIND, {**content, "max_clusters": self.statistics.max_clusters})

    @classmethod
    def load(cls, path: str | os.PathLike[str], kernel: PartitionKernel) -> FeatureSpaceGP:
        """
        Read a model from a file that :meth:`save` wrote, without running code of the file.

        :param path: The file.
        :param kernel: An unfitted kernel of the class that was saved, such as `RandomForestKernel()`. The model has a
            copy of it with the saved partitions; the kernel itself stays unfitted.
        :raises gpytorch_partition.files.DamagedFileError: If the file is of another kind or format, or damaged.
        :return: The model, fitted if it was fitted when it was saved.
        :raises ValueError: If the saved kernel is of another kind.
        """
        content, kernel = files.load(path, _KIND), deepcopy(kernel)
        try:
            kernel.load_state_dict(content["kernel"])
        except RuntimeError as error:
            raise ValueError(
                f"expected a kernel of the kind that {path} was saved with, got a {type(kernel).__name__} that cannot "
                "take its partitions: give an unfitted one, built as it"
            ) from error
        with files.reading_state(_KIND):
            model = cls(kernel, max_clusters=content["max_clusters"])
            model.load_state_dict(content["model"])
            return model

    def _checked(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        check_rows(x, y)
        return self.kernel.columns.select(x), y

    def _points(self, x: Tensor) -> Incidence:
        self._check_counted()
        check_points(x)
        self.statistics.check_partition()
        labels = self.kernel.cluster_ids(x)
        return Incidence(self.statistics.codes(labels), len(self.statistics.sums))

    def _check_counted(self) -> None:
        if not self.num_rows:
            raise RuntimeError("expected a model with rows, got none: call add_rows(x, y) or add_chunks(chunks) first")

    @cached_property
    def _space(self) -> FeatureSpace:
        self._check_counted()
        space = FeatureSpace(self.statistics.counts, self._kernels_operator(self.statistics.index.sizes))
        if self.__dict__.pop("_is_decomposed", False):  # as before pickling, since another factor rounds differently
            _ = space.values
        return space

    def _likelihood(self) -> SpectralLikelihood:
        return SpectralLikelihood(self._space.measure(self.statistics.sums, self.statistics.squares))

    @cached_property
    def _posterior(self) -> EffectsPosterior:
        values, sums = self._fitted_values, self.statistics.sums
        residual_sums = sums[:, :1] - (values.mean - self.statistics.center) * sums[:, 1:]
        mean = self._space.mean_weights(residual_sums, values.outputscale, values.noise)
        return EffectsPosterior(mean, self._space.covariance_root(values.outputscale, values.noise))

    def _forget(self, with_space: bool = True) -> None:
        for name in ("_posterior", *(("_space", "_is_decomposed") if with_space else ())):
            self.__dict__.pop(name, None)


def array_chunks(x: Any, y: Any, num_rows: int = 2**17, start: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
    """
    Yield chunks of two arrays, memory-mapped ones too, as tensors, for :meth:`FeatureSpaceGP.add_chunks`.

    :param x: `N x D` points, anything that can be sliced to a floating point NumPy array.
    :param y: `N` targets.
    :param num_rows: Rows of a chunk. (Default: 131,072.)
    :param start: The first row, to go on after an interruption. (Default: 0.)

    Example:
        >>> [len(y) for _, y in array_chunks(np.zeros((5, 2)), np.zeros(5), num_rows=2)]
        [2, 2, 1]
    """
    checked_count(num_rows, "rows of a chunk", "num_rows")
    if not is_whole(start, 0):
        raise ValueError(f"expected start as the number of a row, from 0, got {start!r}")
    for name, array in (("x", x), ("y", y)):
        is_array = hasattr(array, "__len__") and hasattr(array, "__getitem__") and getattr(array, "ndim", 1) > 0
        if not is_array or isinstance(array, str | bytes | dict):
            raise TypeError(f"expected {name} as an array, got {type(array).__name__}")
    for first in range(int(start), len(y), int(num_rows)):
        rows = slice(first, first + int(num_rows))
        yield _numbers(x[rows], "x"), _numbers(y[rows], "y")


def _numbers(array: Any, name: str) -> Tensor:
    try:
        return torch.tensor(np.asarray(array))
    except (TypeError, ValueError) as error:
        raise TypeError(f"expected {name} as an array of numbers, got some that are not: {error}") from error
