"""`DaskPartitionGPRegressor`: Gaussian process regression on Dask dataframes and arrays."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import dask
import numpy as np
import pandas as pd
from dask.base import is_dask_collection
from distributed import Client
from gpytorch.kernels import Kernel
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from gpytorch_partition.all_or_nothing import all_or_nothing
from gpytorch_partition.distributed.dask_rows import (
    DaskRows,
    Shards,
    Task,
    client_of,
    count_chunks,
    forest_of_shards,
    has_partitions,
    map_reduced,
    sampled_rows,
    sent,
    shards_of,
)
from gpytorch_partition.distributed.shards import Columns, Errors, Predictor, Sample, Units, names_of
from gpytorch_partition.estimators.kernel_parameter import resolved_kernel
from gpytorch_partition.inputs.numbers import checked_count, random_state_of
from gpytorch_partition.inputs.standardization import Standardization
from gpytorch_partition.kernels import RandomForestKernel
from gpytorch_partition.kernels.partition_kernel import PartitionKernel
from gpytorch_partition.models.cluster_space_gp import ClusterSpaceGP
from gpytorch_partition.models.feature_space_gp import FeatureSpaceGP
from gpytorch_partition.partitions.ensembles.libraries import is_ensemble

_GROWN_ON = ("sample", "shards")
_MOST_COUNTED = 4_000  # clusters whose pairs are counted: half a minute for the p x p matrix


@dataclass(eq=False, repr=False)
class DaskPartitionGPRegressor(BaseEstimator):
    """
    Predict targets by an exact Gaussian process on Dask dataframes and arrays, with the API of `xgboost.dask`.

    Use it for more rows than one machine holds. For a folder that one machine can read,
    :meth:`PartitionGPRegressor.fit_chunks <gpytorch_partition.estimators.PartitionGPRegressor.fit_chunks>` is simpler.

    Columns and targets are standardized by a sample of the rows, on which the kernel is grown at the driver. Noise,
    outputscale and constant mean maximize the marginal likelihood of all rows. For up to 4,000 clusters, and for
    Mondrian trees, workers count the rows and drop them (:func:`count_chunks`), which is exact; for more the codes stay
    on the workers as long as the model is kept, and solves are iterative (:class:`DaskRows`). The rows are read twice:
    `persist` collections that are costly to compute. :meth:`predict` is lazy.

    :param kernel: `"forest"`, `"fast_cluster"`, `"mondrian"`, or a function `(x, y) -> kernel`, as
        :class:`~gpytorch_partition.estimators.PartitionGPRegressor` takes it. (Default: `"forest"`.)
    :param num_partitions: Number m of trees or clusterings. (Default: 50.)
    :param sample_rows: Rows that the kernel is grown on and columns are standardized by. (Default: 10,000.)
    :param grown_on: `"sample"`, or `"shards"` for a forest whose trees are grown in parallel, each on rows of one
        chunk; chunks should be alike, or empty. (Default: `"sample"`.)
    :param random_state: Seed of the sample and the kernel; results are equal to the last bit with any number of
        workers.
    :param client: The cluster's client. (Default: Dask's current one.)

    Fitted attributes: `model_`, `kernel_`, `noise_` and `outputscale_` (variances, in squared units of the targets),
    `n_features_in_`. `model_` is for standardized rows: a :class:`~gpytorch_partition.models.FeatureSpaceGP`, which
    needs no workers, or a :class:`~gpytorch_partition.models.ClusterSpaceGP`, which needs them and cannot be pickled.

    Example:
        >>> import dask.array as da
        >>> X = da.random.default_rng(0).random((2_000, 3), chunks=(500, 3))
        >>> y = 4 * X[:, 0] + X[:, 1]
        >>> with Client(processes=False, n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
        ...     model = DaskPartitionGPRegressor(num_partitions=10, sample_rows=500, random_state=0).fit(X, y)
        ...     errors = (model.predict(X) - y).compute()
        >>> bool(abs(errors).mean() < 0.1)
        True
    """

    kernel: Any = "forest"
    num_partitions: int = 50
    _: KW_ONLY
    sample_rows: int = 10_000
    grown_on: str = "sample"
    random_state: int | np.random.RandomState | None = None
    client: Client | None = None

    @all_or_nothing
    def fit(self, X: Any, y: Any) -> DaskPartitionGPRegressor:
        """
        Grow the kernel, count the rows on the workers, and choose the hyperparameters.

        :param X: `N x D` Dask dataframe or array of numbers.
        :param y: `N` Dask series or array, with the same partitions.
        :raises ValueError: If a parameter or chunk cannot be used, or cells miss, which only `"forest"` accepts.
        :raises TypeError: If X and y are anything else, or the kernel cannot be counted.
        """
        self._check_parameters()
        if not (has_partitions(X) and has_partitions(y)):
            raise TypeError(
                f"expected X and y as Dask dataframes or arrays, got a {type(X).__name__} and a {type(y).__name__}: "
                "dask.array.from_array(rows, chunks=...) makes them, or fit PartitionGPRegressor"
            )
        client, seed = client_of(self.client), int(random_state_of(self.random_state).randint(2**31))
        shards = shards_of((X, y))
        sample = sampled_rows(client, shards, self.sample_rows, seed)
        self._units = Units(Standardization.of_columns(sample.x), Standardization.of(sample.y, are_targets=True))
        chunks = [dask.delayed(self._units.of, pure=False)(shard) for shard in shards.chunks]
        self._columns = Columns(sample.x.shape[1], names_of(X))
        self.n_features_in_ = self._columns.number
        if self.kernel != "forest":
            self._columns.check_complete(sample.x)
        self.kernel_ = self._grown(client, Shards(chunks, shards.names), sample, seed)
        self.model_ = _model_of(self.kernel_, chunks, client)
        values, variance = self.model_.fit(), float(self._units.target.scale) ** 2
        self.noise_, self.outputscale_ = values.noise * variance, values.outputscale * variance
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """
        Predict the means of new targets and, on request, their standard deviations, noise included.

        :param X: `n x D` Dask dataframe or array, whose partitions are predicted on workers when the result is
            computed; or rows in memory, which are predicted here.
        :param return_std: Whether to return standard deviations too, above 4,000 clusters estimates from
            :class:`~gpytorch_partition.settings.num_variance_samples` samples.
        :return: Series, or arrays, of `n`; lazy ones for Dask collections.
        :raises ValueError: If the columns are not those of :meth:`fit`.
        """
        check_is_fitted(self, "model_")
        self._columns.check(X)
        predictor = self._predictor(return_std)
        if not is_dask_collection(X):
            found = list(predictor(X).T)
        else:
            found = self._lazily(X, predictor, ["mean", "std"] if return_std else ["mean"])
        return tuple(found) if return_std else found[0]

    def score(self, X: Any, y: Any) -> float:
        """
        Return the coefficient of determination R2 of the means, as scikit-learn's regressors do, in one pass.

        :param X: `n x D`, as in :meth:`predict`.
        :param y: `n` targets: a Dask series or array with the partitions of X, or in memory like X.
        """
        check_is_fitted(self, "model_")
        self._columns.check(X)
        if has_partitions(X) != has_partitions(y):
            raise TypeError(
                f"expected X and y both as Dask collections, or both in memory, got a {type(X).__name__} and a "
                f"{type(y).__name__}"
            )
        predictor = self._predictor(return_std=False)
        if not has_partitions(X):
            return Errors.of((X, y), predictor).determination
        client, shards = client_of(self.client), shards_of((X, y))
        judge = Task("sum_errors", Errors.of, (sent(client, "predictor", predictor),))
        return map_reduced(client, shards, "scoring rows", judge, Task("add_errors", Errors.merged)).determination

    def _check_parameters(self) -> None:
        checked_count(self.num_partitions, "partitions", "num_partitions")
        checked_count(self.sample_rows, "rows of the sample", "sample_rows")
        if isinstance(self.kernel, Kernel) or is_ensemble(self.kernel):
            raise TypeError(
                f"expected kernel as a name or a function, got a {type(self.kernel).__name__} that has seen columns in "
                "other units: give a function (x, y) -> kernel of standardized rows, or use count_chunks"
            )
        if self.grown_on not in _GROWN_ON:
            raise ValueError(f"expected grown_on to be one of {_GROWN_ON}, got {self.grown_on!r}")
        if self.grown_on == "shards" and self.kernel != "forest":
            raise ValueError(f"only the trees of kernel='forest' are grown on shards, got kernel={self.kernel!r}")

    def _grown(self, client: Client, shards: Shards, sample: Sample, seed: int) -> PartitionKernel:
        if self.grown_on == "shards":
            forest = forest_of_shards(client, shards, sample.sizes, self.num_partitions, seed)
            return RandomForestKernel.from_forest(forest)
        rows = self._units.of((sample.x, sample.y))
        return resolved_kernel(self.kernel, *rows, num_partitions=self.num_partitions, random_state=seed)

    def _predictor(self, return_std: bool) -> Predictor:
        model, values = self.model_, self.model_._fitted_values
        clusters = model.statistics.index if isinstance(model, FeatureSpaceGP) else model._index
        root = model.effects().root if return_std else None
        return Predictor(model.kernel, clusters, self._units, values.mean, model._posterior.mean, root, values.noise)

    def _lazily(self, X: Any, predictor: Predictor, names: list[str]) -> list[Any]:
        future = dask.delayed(sent(client_of(self.client), "predictor", predictor))
        if hasattr(X, "divisions"):
            meta = pd.DataFrame({name: pd.Series(dtype=float) for name in names})
            frame = X.map_partitions(_framed, future, names, meta=meta)
            return [frame[name] for name in names]
        chunks = X.chunks[0], (len(names),)
        blocks = X.rechunk({1: -1}).map_blocks(_predicted, future, chunks=chunks, meta=np.empty((0, 0)))
        return [blocks[:, i] for i in range(len(names))]


def _model_of(kernel: PartitionKernel, chunks: list[Any], client: Client) -> FeatureSpaceGP | ClusterSpaceGP:
    counts = kernel.partition.cluster_counts if isinstance(kernel, PartitionKernel) else None
    if counts is not None and int(counts.sum()) > _MOST_COUNTED:
        return ClusterSpaceGP(kernel, DaskRows(kernel, chunks, client))
    model = FeatureSpaceGP(kernel)
    count_chunks(model, chunks, client)
    return model


def _predicted(part: Any, predictor: Predictor) -> np.ndarray:
    return predictor(part)


def _framed(part: Any, predictor: Predictor, names: list[str]) -> Any:
    return pd.DataFrame(predictor(part), index=part.index, columns=names)
