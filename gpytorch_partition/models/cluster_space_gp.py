"""A Gaussian process for rows in other places, which are asked for sums over clusters only."""

from __future__ import annotations

import warnings
from functools import cached_property
from typing import Any

import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from gpytorch_partition.all_or_nothing import all_or_nothing
from gpytorch_partition.callers import level_of_caller
from gpytorch_partition.clusters.incidence import Incidence
from gpytorch_partition.inference.evidence.profile_likelihood import Bounds, Maximum, settled_maxima
from gpytorch_partition.inference.spaces.cluster_rows import LocalRows, Rows
from gpytorch_partition.inference.spaces.cluster_space import SpacePosterior, space_measures
from gpytorch_partition.inference.spaces.feature_space import EffectsPosterior, summed_variances
from gpytorch_partition.inputs.numbers import checked_count, random_state_of
from gpytorch_partition.kernels.partition_kernel import PartitionKernel
from gpytorch_partition.models.counted_rows import (
    BOUNDS,
    CountedModel,
    check_has_partitions,
    check_points,
    check_rows,
    warn_of_least_noise,
)
from gpytorch_partition.progress import doing
from gpytorch_partition.settings import num_variance_samples, predictive_variances, probe_seed


def local_rows(kernel: PartitionKernel, x: Tensor, y: Tensor) -> LocalRows:
    """
    Return rows in memory, coded by a kernel, for a :class:`ClusterSpaceGP` or as one of many shards.

    Costs the labels; 8 bytes are held for each row and partition. :class:`ClusterSpaceGP` has an example.

    :param kernel: A kernel with a known number of clusters: forests, fast clusters, clusterings.
    :param x: `n x D` points.
    :param y: `n` finite targets.
    :raises TypeError: If x or y is no tensor, or the kernel is none of this package's.
    :raises ValueError: If x and y do not match, hold NaN or infinity, or the kernel's labels are unbounded.
    """
    _check_kernel(kernel)
    check_rows(x, y)
    points = kernel.columns.select(x)
    return LocalRows(kernel.partition.incidences(points, points)[0], y.unsqueeze(-1))


class ClusterSpaceGP(CountedModel):
    r"""
    Fit :math:`y \sim N(c, s K + \sigma^2 I)` by iterations in cluster space, to rows in any place.

    Use it where the rows do not fit on one machine (shards on the workers of a cluster), and there are too many
    clusters to count pairs. A :class:`FeatureSpaceGP` is exact and faster up to a few thousand clusters; for rows in
    memory, a :class:`PartitionGP` has cheaper variances. Vectors have q numbers, one for each cluster or tree node.

    Costs are counted in products of the rows with about four columns. A fit takes 20 to 300 products, once. Means take
    some 100, once, and then O(m) per point. Variances take some 100 for every 32 points; for more than 512 points,
    1,600 for 512 samples, once. The model holds up to `200 q` numbers meanwhile, and 512 p for the samples. Results are
    the same to the last bit for the same rows and settings (:class:`~gpytorch_partition.settings.probe_seed`).

    :param kernel: The kernel, with a known number of clusters: forests, fast clusters, clusterings, mixtures of these.
        The model uses the weights that the kernel has when the model is fitted.
    :param rows: The rows, coded by this kernel, with one target: from :func:`local_rows`, or shards.
    :raises TypeError: If the kernel is none of this package's, or rows cannot be asked for sums.
    :raises ValueError: If the kernel's labels are unbounded, as those of Mondrian trees, groups and users' functions;
        or there are no rows, rows are not coded by this kernel, or targets are several or not finite.

    Example:
        >>> from gpytorch_partition import FastClusterKernel
        >>> generator = torch.Generator().manual_seed(0)
        >>> x = torch.rand(5_000, 1, generator=generator)
        >>> y = 4 * x.squeeze(-1) + 0.3 * torch.randn(5_000, generator=generator)
        >>> kernel = FastClusterKernel(x, 50, height=5, random_state=0)
        >>> model = ClusterSpaceGP(kernel, local_rows(kernel, x, y))
        >>> maximum = model.fit()
        >>> mean, variance = model.predict(torch.tensor([[0.5]]))
        >>> bool((mean - 2).abs() < 0.1), round(maximum.noise, 2)  # 0.3 squared
        (True, 0.09)
    """

    def __init__(self, kernel: PartitionKernel, rows: Rows) -> None:
        _check_kernel(kernel)
        if not isinstance(rows, Rows):
            raise TypeError(f"expected rows that have sums over clusters, got a {type(rows).__name__}: see local_rows")
        self.kernel, self.rows = kernel, rows
        self._index = kernel.partition.new_cluster_index(1)
        self._tensors = list(kernel.partition.tensors().values())
        self._check_rows()
        moments = rows.moments()
        if not moments.num_rows:
            raise ValueError("expected one row or more, got rows of none: have all chunks been filtered empty?")
        if len(moments.centers) != 1:
            raise ValueError(f"expected rows with one target, got {len(moments.centers)}: make a model for each")
        if not torch.isfinite(moments.squares).all():
            raise ValueError("expected finite targets, got NaN or infinity: drop these rows")
        self.standard_error: float | None = None  #: of the log marginal likelihood, in nats, once fitted

    @property
    def num_rows(self) -> int:
        """Return the number N of rows."""
        return self.rows.num_rows

    @all_or_nothing
    def fit(self, bounds: Bounds | None = None, *, num_probes: int | None = None) -> Maximum:
        """
        Choose outputscale, noise and mean by maximum marginal likelihood, exact or from one Lanczos run.

        :param bounds: Bounds of these values. (Default: noise at least 1e-4, everything else free.)
        :param num_probes: Number of probe vectors of the log determinant. (Default: none, and a standard error of 0,
            for q up to 1,000 with up to 4,000 rows, and for q up to 80 with any number. Else 100 up to 2,000 rows,
            falling to 2 from 100,000 rows on. The standard error is then about 1e-3 nats per row or less.)
        :return: The values, kept in :attr:`values`, and the log marginal likelihood. A
            :class:`~sklearn.exceptions.ConvergenceWarning` says that the noise is at its bound, or that 300 steps did
            not suffice.
        :raises ValueError: If `num_probes` is no whole number from 1.
        """
        checked_count(1 if num_probes is None else num_probes, "probe vectors", "num_probes")
        bounds = bounds or BOUNDS
        with doing("fitting noise and scale"):
            effects = self._kernels_operator(self._index.sizes)
            found = settled_maxima(space_measures(self.rows, effects, num_probes, probe_seed.value()), [bounds])
        warn_of_least_noise(found.maxima[0], bounds)
        if not found.is_settled:
            message = (
                f"the likelihood was still improving after {found.measure.trace_nodes.shape[1]} Lanczos steps, the "
                f"most there are; it may be larger by {found.bias:.2g} nats: keep the noise larger by bounds"
            )
            warnings.warn(message, ConvergenceWarning, stacklevel=level_of_caller())
        for name in ("_posterior", "_sampled"):  # first: an interruption must not leave results of other values
            self.__dict__.pop(name, None)
        self.values, self.standard_error = found.maxima[0], found.standard_error
        return found.maxima[0]

    def predict(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """
        Return the mean and the latent variance of each point (`N_test` each, float64), the variance without the noise.

        A solve for each point gives variances that are never too large and within
        :class:`~gpytorch_partition.settings.variance_tolerance`; for more points than
        :class:`~gpytorch_partition.settings.num_variance_samples`, they are estimated from that number of samples.
        :class:`~gpytorch_partition.settings.predictive_variances` chooses the method, except `"feature_space"`.

        :raises RuntimeError: As of :meth:`means`.
        """
        points = self._points(x)
        method = predictive_variances.value()
        if method == "feature_space":
            told = 'expected predictive_variances of "auto", "conjugate_gradients" or "samples", got "feature_space"'
            raise ValueError(f"{told}, which needs counts of pairs of clusters: use a FeatureSpaceGP")
        if method == "samples" or (method == "auto" and points.num_rows > num_variance_samples.value()):
            return self._means(points), summed_variances(points, self.effects().root)
        return self._means(points), self._posterior.variances(points)

    def sample(self, x: Tensor, num_samples: int, random_state: Any = None) -> Tensor:
        """Return joint posterior samples of the latent function (`num_samples x N_test`), at a solve for each."""
        checked_count(num_samples, "samples", "num_samples")
        seed = int(random_state_of(random_state).randint(2**31))
        points = self._points(x)
        return (self._means(points).unsqueeze(-1) + points.row_values(self._posterior.deviations(num_samples, seed))).mT

    def effects(self) -> EffectsPosterior:
        r"""
        Return the posterior of cluster effects as :meth:`FeatureSpaceGP.effects`, with a root (`p x k`) of k samples.

        Variances are within a relative :math:`\sqrt{2 / k}` (a standard error), k being
        :class:`~gpytorch_partition.settings.num_variance_samples`.
        """
        key = num_variance_samples.value(), probe_seed.value()
        known = self.__dict__.get("_sampled")
        if known is None or known[0] != key:
            known = self.__dict__["_sampled"] = key, self._posterior.deviations(*key) / key[0] ** 0.5
        return EffectsPosterior(self._posterior.mean, known[1])

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_posterior"}

    def _points(self, x: Tensor) -> Incidence:
        _ = self._fitted_values
        check_points(x)
        self._check_rows()
        return Incidence(self._index.codes(self.kernel.cluster_ids(x)), self._index.num_clusters)

    def _check_rows(self) -> None:
        expected, got = self._index.num_clusters, self.rows.num_clusters
        if expected != got:
            raise ValueError(f"expected rows coded by this kernel, of {expected:,} clusters, got rows of {got:,}")
        if not self.kernel.partition.has_tensors(self._tensors):
            raise RuntimeError("the kernel's partitions have changed since rows were coded: code them again")

    @cached_property
    def _posterior(self) -> SpacePosterior:
        return SpacePosterior(self.rows, self._kernels_operator(self._index.sizes), self._fitted_values)


def _check_kernel(kernel: Any) -> None:
    check_has_partitions(kernel)
    if kernel.partition.cluster_counts is None:
        raise ValueError(
            "expected a kernel whose numbers of clusters are known (forests, fast clusters, clusterings), got a "
            f"{type(kernel).__name__}, whose clusters depend on the rows: use a FeatureSpaceGP or a PartitionGP"
        )
