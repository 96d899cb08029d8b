"""Gaussian process regression with the scikit-learn API: `PartitionGPRegressor`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from gpytorch.kernels import Kernel
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.validation import _num_samples, check_consistent_length, check_is_fitted

from gpytorch_partition import files
from gpytorch_partition.all_or_nothing import all_or_nothing, on_one_fit
from gpytorch_partition.callers import level_of_caller
from gpytorch_partition.estimators import checks, fitted_regressor, reading, regression_fit
from gpytorch_partition.estimators.chunked_fit import ChunkedFit, check_for_chunks
from gpytorch_partition.estimators.fitted_regressor import FittedRegressor
from gpytorch_partition.estimators.kernel_parameter import NAMES, check_given, state_name
from gpytorch_partition.estimators.reading import CountedRows, ReadsTables
from gpytorch_partition.estimators.regression_fit import Found, RegressionFit
from gpytorch_partition.estimators.scores import Judgement
from gpytorch_partition.explain import Importance, ModelSummary, PartialDependence
from gpytorch_partition.explain.dependence import average_function, rows_on_grid
from gpytorch_partition.explain.given_columns import model_column_names
from gpytorch_partition.explain.importance import importance
from gpytorch_partition.explain.kernel_parts import KernelExpansion, nearest_rows
from gpytorch_partition.explain.summary import model_summary
from gpytorch_partition.inputs.numbers import MOST_PARTITIONS, like_holes, random_state_of
from gpytorch_partition.inputs.row_weights import checked_weights
from gpytorch_partition.inputs.standardization import Standardization
from gpytorch_partition.linalg.parallel import threads_for
from gpytorch_partition.partitions.ensembles.libraries import is_ensemble
from gpytorch_partition.presets import Options
from gpytorch_partition.presets.assembly import description_of
from gpytorch_partition.presets.data import Blocks
from gpytorch_partition.progress import doing, recorded_stages, verbosity
from gpytorch_partition.tables.cells import as_pandas
from gpytorch_partition.tables.chunks import ChunkSource

_WIDENS = "kernel='auto' has a smooth part, whose intervals widen there; or leave these rows out, or fit to some there"
_FIT_THERE = "Leave these rows out, or fit to some from there"
_ENDS, _LEAST_OF_COPIES = np.array([0.05, 0.95]), 0.8  # of intervals, and the share of copies that they must hold
_PARAMETERS = ("kernel", "categorical_features", "num_partitions", "max_iterations", "dtype")  # of a state
_RESULTS = ("log_marginal_likelihood_value_", "at_bounds_", "n_iter_", "seconds_", "left_out_")  # of a state
_LEARNED = ("_constant_columns", "_constants", "_counted_rows")  # of a state


@dataclass(eq=False, repr=False)
class PartitionGPRegressor(ReadsTables, RegressorMixin, BaseEstimator):
    """
    Predict targets with intervals by an exact Gaussian process with random partition kernels, in linear time.

    Use it as the first model of a table of numbers, text, dates and missing cells (docs/estimator.md).

    Columns of X and the targets are standardized inside; a value beyond some ten standard deviations of the middle 98 %
    of its column counts by its logarithm. For most kernels noise, outputscale and constant mean maximize the marginal
    likelihood; for `"auto"` and tree ensembles, whose trees have seen the targets, the predictive density of held-out
    rows. A value at its bound gives a :class:`~sklearn.exceptions.ConvergenceWarning`. Several targets (Y of T columns)
    are one model (docs/classes_and_targets.md). A mean costs O(m) per row; the model holds 8 bytes per (row,
    partition), and above 2,000 rows 100 to 400 numbers per row.

    :param kernel: `"auto"`, `"forest"` (supervised; above some thousand rows slower than the next two),
        `"fast_cluster"`, `"mondrian"`, or an object of docs/own_kernels.md: a tree ensemble, a kernel of this package
        or of GPyTorch, or a function from standardized tensors `(x, y)` to a kernel. `"auto"` is the best and the
        slowest (:func:`gpytorch_partition.presets.default_model`). Fewer than 10 rows and constant targets get
        `"forest"`. (Default: `"auto"`.)
    :param num_partitions: Number m of trees or clusterings. `"auto"` and a function's kernel have their own. (Default:
        200.)
    :param max_iterations: L-BFGS iterations at most, where the kernel has parameters of its own. (Default: 100.)
    :param dtype: `"float32"`, `"float64"` or `"auto"`: float64 up to 2,000 rows, where solves are dense, float32 above.
        The kernel `"auto"` computes in float64.
    :param random_state: Seed of the partitions; with the same integer, predictions are the same to the last bit. It
        does not seed a function that is given as the kernel.
    :param n_jobs: Trees grown at once, as scikit-learn counts them. (Default: None, one.)
    :param options: Sizes and limits of `"auto"`, :class:`gpytorch_partition.presets.Options`. (Default: None.)
    :param categorical_features: Names (or numbers, counted from 0) of columns of numbers that are categories. Columns
        of text and pandas categories always are. (Default: None.)
    :param verbose: None shows progress on a terminal, after two seconds; 0 or False nothing. Elsewhere 1 or True
        reports the seconds of each stage, by logging if that is set up for INFO, else on standard error; 2 also those
        of steps. (Default: None.)
    :param budget: Seconds that a fit of `"auto"` may take: models are fitted from the smallest to the largest while
        time is left. `options=model.options_` without a budget fits the last one again. (Default: None, no limit.)

    Fitted attributes, beside the properties below and those of scikit-learn:

    - `log_marginal_likelihood_value_`: in nats, of the standardized targets; None for `"auto"` and ensembles.
    - `at_bounds_`: hyperparameters of the standardized model that sit at a bound, by name.
    - `seconds_`: seconds of each stage of the fit, by name; with a budget, of all models that were fitted.
    - `options_`, `left_out_`: options of `"auto"` or an ensemble (None for others); parts that the budget left out.

    Example:
        >>> from sklearn.datasets import load_diabetes
        >>> X, y = load_diabetes(return_X_y=True)
        >>> model = PartitionGPRegressor("forest", num_partitions=50, random_state=0).fit(X[:300], y[:300])
        >>> mean, std = model.predict(X[300:], return_std=True)
        >>> inside = abs(y[300:] - mean) <= 1.645 * std
        >>> bool(0.8 < inside.mean() < 1.0)
        True
    """

    kernel: Any = "auto"
    num_partitions: int = 200
    _: KW_ONLY
    max_iterations: int = 100
    dtype: str = "auto"
    random_state: int | np.random.RandomState | None = None
    n_jobs: int | None = None
    options: Options | None = None
    categorical_features: Sequence[str | int] | None = None
    verbose: bool | int | None = None
    budget: float | None = None

    @all_or_nothing
    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, groups: Any = None, time: Any = None, unlabelled: Any = None
    ) -> PartitionGPRegressor:
        r"""
        Build the kernel and choose the hyperparameters.

        Rows that are copies of others, target included, are left out, with a warning, where they would count as rows
        without noise. If 90 % intervals of the noise then hold less than 80 % of them, all rows are fitted again.

        :param X: `N x D` rows: an array of finite numbers (`"auto"` and `"forest"` take NaN for a missing value), or a
            table (docs/tables.md).
        :param y: `N` targets, or `N x T` of T targets, an array or a data frame, where NaN is a missing entry; rows
            without any target are left out, with a warning.
        :param sample_weight: `N` weights of the rows from 0, or one for all: the variance of the noise at a training
            row is :math:`\sigma^2 / w`, as of a mean of w measurements. Rows of weight 0 are left out. Trees weight
            squared errors by them, capped at their 90 % quantile; functions, and clones of an ensemble, ignore them.
            For one target only. (Default: None, 1.)
        :param groups: `N` labels of groups (patients, shops), for new rows of *new* groups: folds hold out groups as a
            whole (docs/repeated_measurements.md). (Default: None, single rows.)
        :param time: `N` numbers or dates, for new rows of *later* times: rows are predicted from earlier ones only.
            Only one of `groups` and `time` can be given. (Default: None.)
        :param unlabelled: `M x D` more rows, without targets: columns are standardized, and the kernel built, on all `N
            + M` rows (Davies & Ghahramani 2014, section 4.3.2; it seldom helps). For `"fast_cluster"`, `"mondrian"`,
            and functions, which get the labelled rows first. (Default: None.)
        :raises FloatingPointError: If the marginal likelihood is not a number.
        :raises ValueError: If the data or a parameter cannot be used, or there is one row only.
        :raises TypeError: If X is sparse, or `kernel` cannot be used, with the reason.
        """
        _check_parameters(self)
        blocks = None if groups is None and time is None else Blocks.of(groups, time, _num_samples(y))
        if blocks is not None and not regression_fit.chooses_by_folds(self.kernel):
            raise ValueError(
                "expected groups=None and time=None with a kernel that is not chosen by folds, got "
                f"kernel={self.kernel!r}: give kernel='auto' or a tree ensemble"
            )
        data = self._training_rows(X, y, sample_weight)
        if len(data.y) < 2:
            raise ValueError("expected two rows or more, since a single target does not vary, got 1 sample")
        checks.check_magnitudes(data.X, "X")
        checks.check_magnitudes(data.y, "y")
        checks.warn_of_rounding(data.y)
        checks.warn_of_rounding(data.X, "numbers of a column of X")
        others = self._read_unlabelled(unlabelled)
        distinct = data.without_copies()
        with verbosity(self.verbose), recorded_stages() as self.seconds_, threads_for(len(distinct.y)):
            self._fit_rows(distinct, blocks, others)
            if _misses_copies(self._known, data.besides(distinct)):
                self._fit_rows(data, blocks, others)
        if self._known.has_several:
            self.at_bounds_ = regression_fit.noises_at_bound(self.model_, self.target_names_.tolist())
        return self

    def _fit_rows(self, data: CountedRows, blocks: Blocks | None, unlabelled: np.ndarray | None) -> None:
        rows = data.X if unlabelled is None else np.concatenate([data.X, unlabelled])
        columns, unit = regression_fit.columns_of(self, rows), regression_fit.target_unit(data.y, data.weights)
        x, points, targets = columns.apply_array(data.X), columns.apply_array(rows), unit.apply_array(data.y)
        counted = data.numbers, data.weights, data.blocks(blocks)
        with doing(f"fitting {len(targets):,} rows"):
            found = RegressionFit(self, x, targets, unit, *counted).run(data.y, points)
        self._learn(found, columns, unit)

    @all_or_nothing
    def fit_chunks(self, chunks: Any, target: str | None = None, *, sample_rows: int = 100_000) -> Any:
        """
        Fit to more rows than fit in memory, such as a parquet folder or memory-mapped arrays (docs/many_rows.md).

        Rows are read twice: a sample determines the columns and the kernel, all others are counted by cluster
        (:class:`~gpytorch_partition.models.FeatureSpaceGP`). Means and deviations are those of an exact GP on all rows;
        the ends of chunks change no bit of them. `"auto"` is another model than that of :meth:`fit`: the leaves of 100
        boosted trees of 32 leaves. `"mondrian"`, kernels of GPyTorch, weights, several targets and budgets are refused,
        and then `importance` and `partial_dependence`.

        Costs two readings, the labels and :math:`O(N m^2)` for m partitions, and :math:`O(p^3)` for p clusters. Memory
        is the sample, a chunk, 131,072 rows (fewer wide ones) and some :math:`12 p^2` numbers (a GiB for 3,200
        clusters).

        :param chunks: A path of a parquet file or of a folder of such; a pair of arrays, such as `(np.load("x.npy",
            mmap_mode="r"), np.load("y.npy", mmap_mode="r"))`; an iterable, to be iterated over twice, of pairs (X, y)
            as in :meth:`fit`; or a function without arguments that returns an iterator of such pairs.
        :param target: The column of parquet files that is the target, by name. (Default: None, for all other chunks.)
        :param sample_rows: Rows of the sample, half of all rows at most; they stay in the model. (Default: 100,000.)
        :raises RuntimeError: If the second pass reads other rows than the first.
        :raises TypeError: If chunks are none of these, or the target is no name.
        :raises ValueError: If a chunk (named by its number) or a parameter cannot be used, or there are under 500 rows.
        :raises ImportError: If pandas or pyarrow, which read parquet files, are not installed.

        Example:
            >>> X = np.random.RandomState(0).rand(600, 2)
            >>> y = np.sin(6 * X[:, 0]) + 0.1 * np.random.RandomState(1).randn(600)
            >>> chunks = [(X[i : i + 200], y[i : i + 200]) for i in range(0, 600, 200)]
            >>> mean, std = PartitionGPRegressor(random_state=0).fit_chunks(chunks).predict(X, return_std=True)
            >>> bool(abs(mean - np.sin(6 * X[:, 0])).mean() < 0.1), bool(0.09 < std.mean() < 0.13)
            (True, True)
        """
        _check_parameters(self)
        check_for_chunks(self.kernel, self.budget, self.options, self.dtype)
        checks.check_count(sample_rows, "sample_rows")
        source, random = ChunkSource(chunks, target), random_state_of(self.random_state)
        with verbosity(self.verbose), doing("fitting chunks"), recorded_stages() as self.seconds_:
            self._learn(*ChunkedFit(self).run(source, sample_rows, random))
        self._target_names = None if target is None else [target]
        return self

    def _learn(self, found: Found, columns: Standardization, unit: Standardization) -> None:
        self._fitted = FittedRegressor(found.model.eval(), columns, unit, self._categories, self.num_partitions)
        self._counted_rows, self.n_iter_ = found.numbers, found.num_iterations
        self.log_marginal_likelihood_value_, self.at_bounds_ = found.log_marginal_likelihood, dict(found.at_bounds)
        self.options_, self.left_out_ = found.options, found.left_out
        self._parameters = tuple(getattr(self, name) for name in _PARAMETERS)  # a later `set_params` is of the next fit

    @on_one_fit
    def predict(
        self,
        X: Any,
        return_std: bool = False,
        return_cov: bool = False,
        *,
        quantiles: Sequence[float] | np.ndarray | None = None,
        include_noise: bool = True,
    ) -> Any:
        """
        Return the means of new observations, with standard deviations, covariances or quantiles if asked for.

        Rows with missing cells, or levels that `fit` has not seen, are averages over ten completions by similar
        training rows. An :class:`~gpytorch_partition.estimators.OutsideRangeWarning` reports rows outside the range of
        the training rows, for kernels that are as sure there as inside, such as forests and ensembles.

        :param X: `N x D` rows.
        :param return_std: Also return `N` (or `N x T`) standard deviations in units of the targets. (Default: no.)
        :param return_cov: In its place, return the `N x N` covariance, in squared units (`N x N x T`, one for each
            target), at a solve per row. (Default: no.)
        :param quantiles: Also return these quantiles of each row (`N x q`, or `N x T x q`): `(0.05, 0.95)` are the ends
            of intervals of 90 %. The distribution is Gaussian; where `"auto"` has found outliers, it is the sum of a
            Gaussian function and Student-t noise. (Default: none.)
        :param include_noise: Whether uncertainty is that of new observations, not of the function. (Default: yes.)
        :return: `N` (or `N x T`) means, or a tuple of the means, the deviations or the covariance, and the quantiles.
        :raises ValueError: If `return_std` and `return_cov` are both asked for, or X or a parameter cannot be used.
        :raises TypeError: If X is sparse.

        Example:
            >>> X = np.linspace(0, 1, 60)[:, None]
            >>> y = X[:, 0] + 0.1 * np.random.RandomState(0).randn(60)
            >>> model = PartitionGPRegressor("mondrian", num_partitions=20, random_state=0).fit(X, y)
            >>> mean, ends = model.predict(X, quantiles=(0.05, 0.95))
            >>> ends.shape
            (60, 2)
        """
        if return_std and return_cov:
            raise ValueError("expected at most one of return_std and return_cov, got both: leave one out")
        checks.check_flag(include_noise, "include_noise")
        probabilities = None if quantiles is None else fitted_regressor.checked_quantiles(quantiles)
        rows, known = self._checked_rows(X), self._known
        with verbosity(self.verbose):
            if return_cov:
                mean, covariance = known.joint_moments(rows, include_noise)
                found, std = [mean, covariance], np.sqrt(covariance.diagonal().T.clip(0))
            else:
                mean, std = known.moments(rows, return_std or probabilities is not None, include_noise)
                found = [mean, std] if return_std else [mean]
        found += [] if probabilities is None else [known.quantiles(rows, mean, std, probabilities, include_noise)]
        return tuple(found) if len(found) > 1 else mean

    @on_one_fit
    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0, *, include_noise: bool = True) -> np.ndarray:
        """
        Return joint samples of new observations, or of the function, in units of the targets.

        Use it for sums, differences or maxima over rows. A sample costs a solve and O(N m). For more samples than rows,
        or at most 2,000 training and new rows, they come from the dense covariance, at a solve per row and O(N^3).

        :param X: `N x D` rows.
        :param n_samples: Number of samples. (Default: 1.)
        :param random_state: Seed; `None` is a fresh one. (Default: 0.)
        :param include_noise: Whether each sample has noise of its own at every row. (Default: yes.)
        :return: `N x n_samples`, or `N x T x n_samples`.
        :raises RuntimeError: For more than 2,000 rows, if the kernel has no pathwise samples, as a sum with
            `RBFKernel`.
        :raises ValueError: If X cannot be used.

        Example:
            >>> X = np.linspace(0, 1, 40)[:, None]
            >>> model = PartitionGPRegressor("mondrian", 20, random_state=0).fit(X, X[:, 0])
            >>> model.sample_y(X[:3], n_samples=5).shape
            (3, 5)
        """
        checks.check_count(n_samples, "n_samples")
        checks.check_flag(include_noise, "include_noise")
        rows, seed = self._checked_rows(X), random_state_of(random_state).randint(2**31)
        return self._known.samples(rows, n_samples, seed, include_noise)

    @on_one_fit
    def judge(self, X: Any, y: Any, sample_weight: Any = None, *, joint: bool = False) -> Judgement:
        """
        Return the predictive distributions of new observations, with scores of the observations.

        :param X: `N x D` rows, best those that the model has not seen.
        :param y: `N` targets.
        :param sample_weight: `N` weights of these rows above 0, or one for all, which divide the variance of the noise.
            To average scores by weights, give them to `coverage()` and `numpy.average`. (Default: None, 1.)
        :param joint: Whether to compute the log density of all targets together too, which judges the covariances
            between rows. Above 2,000 training rows it was off by up to .01 nats for 300 rows. Costs a solve per row,
            and :math:`O(N^3)` time and some :math:`24 N^2` bytes for the N rows judged. (Default: no.)
        :raises ValueError: If the model has several targets, the data cannot be used, or `joint` is asked of a model
            with Student-t noise.

        Example:
            >>> X = np.random.RandomState(0).rand(200, 2)
            >>> y = X[:, 0] + 0.1 * np.random.RandomState(1).randn(200)
            >>> found = PartitionGPRegressor("forest", 50, random_state=0).fit(X[:150], y[:150]).judge(X[150:], y[150:])
            >>> bool(0.8 < found.coverage(0.9) <= 1.0)
            True
        """
        y = _checked_observations(self, X, y)
        weights = checked_weights(sample_weight, len(y))
        if weights is not None and not weights.all():
            row = int((weights == 0).argmax())
            raise ValueError(f"expected weights above 0 of rows to judge, got 0 for row {row}: leave such rows out")
        checks.check_flag(joint, "joint")
        rows, known = self._checked_rows(X), self._known
        with verbosity(self.verbose):
            density = known.joint_log_density(rows, y, weights) if joint else None
            return known.judgement(rows, y, weights)._replace(joint_log_density=density)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """
        Return :math:`R^2` of the means; for several targets their average, each over the rows where it is known.

        :raises ValueError: If a single target is missing in a row, or one of several is known in fewer than two rows.
        """
        if self._known.has_several:
            return _known_score(y, self.predict(X), self.target_names_.tolist(), sample_weight)
        reading.check_targets(y, are_numbers=True)
        return float(super().score(X, as_pandas(y), sample_weight))

    @on_one_fit
    def summary(self) -> ModelSummary:
        """
        Return the parts of the kernel with their shares of the prior and of the explained variance, and other numbers.

        Costs two products with each part at 5,000 rows at most, and the solve of the first prediction.

        Example:
            >>> X = np.linspace(0, 1, 40)[:, None]
            >>> model = PartitionGPRegressor("mondrian", num_partitions=20, random_state=0).fit(X, X[:, 0])
            >>> found = model.summary()
            >>> found.num_rows, [part.name for part in found.parts]
            (40, ['MondrianKernel'])
        """
        return model_summary(self, self._known.unit)

    @on_one_fit
    def importance(
        self, X: Any = None, y: Any = None, *, n_repeats: int = 5, random_state: Any = 0, n_jobs: int | None = None
    ) -> Importance:
        """
        Return the importance of each column, by the structure of the model's parts, and by permutation as a check.

        Importance by structure is the share of the variance of the posterior mean over the training rows that a column
        explains (:func:`gpytorch_partition.explain.importance.column_shares`). Importance by permutation is the fall of
        R squared when a column's values are exchanged between rows; on training rows it is too large.

        :param X: `N x D` rows for the check, best those that the model has not seen, with targets `y`. (Default:
            none.)
        :param n_repeats: How often each column is permuted. (Default: 5.)
        :param random_state: Seed of the permutations. (Default: 0.)
        :param n_jobs: Columns permuted at once, as joblib counts them. (Default: None, one.)
        :return: The numbers, readable when printed; `plot()` draws them.
        :raises ValueError: If only one of X and y is given, they cannot be used, or `n_repeats` is no number from 1.

        Example:
            >>> X = np.random.RandomState(0).rand(200, 2)
            >>> model = PartitionGPRegressor("forest", num_partitions=50, random_state=0).fit(X, X[:, 1] ** 2)
            >>> print(model.importance())
            column  share of the explained variance
            x1                                1.000
            x0                                0.000
        """
        _refuse_counted(self._known, "importance", "permutation_importance(model, X, y)")
        options: dict[str, Any] = {"n_repeats": n_repeats, "random_state": random_state, "n_jobs": n_jobs}
        return importance(checks.telling_once(self), KernelExpansion.of_model(self.model_), X, y, **options)

    @on_one_fit
    def partial_dependence(
        self, X: Any, column: int | str, *, grid: Any = None, grid_resolution: int = 30, target: int | str | None = None
    ) -> PartialDependence:
        """
        Return the function of one column, averaged over the other columns of some rows, with intervals.

        Intervals are those of the average over these rows
        (:func:`gpytorch_partition.explain.dependence.average_function`), not of single rows. Costs one solve for each
        value of the grid.

        :param X: `N x D` rows that are averaged over: a few hundred are enough, if they are a random sample.
        :param column: Number (from 0, or from the end: -1) or name of the column.
        :param grid: Values of the column. (Default: its own values, if there are at most `grid_resolution`; else that
            many from the 5 % to the 95 % quantile; for whole numbers some of the column's own, for categories the most
            frequent.)
        :param grid_resolution: Number of values in a default grid, at most. (Default: 30.)
        :param target: Number or name of the target, where the model has several. (Default: None.)
        :return: The averages, which `plot()` draws.
        :raises ValueError: If there is no such column, or rows or grid cannot be used.

        Example:
            >>> X = np.random.RandomState(0).rand(80, 2)
            >>> model = PartitionGPRegressor("mondrian", num_partitions=50, random_state=0).fit(X, 3 * X[:, 0])
            >>> low, high = model.partial_dependence(X, 0, grid=[0.2, 0.8]).mean
            >>> bool(high > low + 1)
            True
        """
        known = self._known
        _refuse_counted(known, "partial_dependence", "partial_dependence(model, X, [column])")
        rows, teller = rows_on_grid(self, X, column, grid, grid_resolution), checks.telling_once(self)
        return average_function(self, rows, lambda x: known.points(teller._checked_rows(x)), known.unit, target)

    @on_one_fit
    def nearest_rows(self, X: Any, k: int = 5) -> tuple[np.ndarray, np.ndarray]:
        """
        Return the training rows most similar to new ones: those that share clusters, or nodes of trees.

        :param X: `N2 x D` rows.
        :param k: Number of training rows for each, at most N. (Default: 5.)
        :return: Numbers of training rows as given to `fit`, from 0, and their correlations under the prior
            (:func:`gpytorch_partition.explain.kernel_parts.nearest_rows`), `N2 x k` each, nearest first.
        :raises ValueError: If k or X cannot be used.

        Example:
            >>> X = np.linspace(0, 1, 40)[:, None]
            >>> model = PartitionGPRegressor("mondrian", num_partitions=200, random_state=0).fit(X, X[:, 0])
            >>> rows, values = model.nearest_rows([[0.5]], k=2)
            >>> sorted(rows[0].tolist())
            [19, 20]
        """
        points, known = self._known.points(self._checked_rows(X)), self._known
        return nearest_rows(known.model.covar_module, points, known.train_x, k, self._counted_rows)

    def save(self, path: str | os.PathLike[str]) -> None:
        """
        Write the fitted regressor, training rows included, to a file; :meth:`load` has an example.

        :raises TypeError: If the kernel came from a function, which has no plain value.
        :raises OSError: If it cannot be written. An existing file is replaced only once the new one is complete.
        """
        files.save(path, fitted_regressor.KIND, self.to_state())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """
        Return the regressor that :meth:`save` has written, to the last bit, without running code of the file.

        :raises gpytorch_partition.files.DamagedFileError: If it is no such file, of another format, or damaged.
        :raises OSError: If it cannot be read.

        Example:
            >>> from tempfile import TemporaryDirectory
            >>> X = np.linspace(0, 1, 30)[:, None]
            >>> model = PartitionGPRegressor("mondrian", num_partitions=10, random_state=0).fit(X, X[:, 0] ** 2)
            >>> with TemporaryDirectory() as folder:
            ...     model.save(f"{folder}/model.gp")
            ...     copy = PartitionGPRegressor.load(f"{folder}/model.gp")
            >>> bool((copy.predict(X) == model.predict(X)).all())
            True
        """
        return cls.from_state(files.load(path, fitted_regressor.KIND))

    @on_one_fit
    def to_state(self) -> dict[str, Any]:
        """
        Return the fitted regressor as plain values and its own tensors, for storage of your own.

        :raises TypeError: If the kernel came from a function, which has no plain value.
        """
        known, names = self._known, getattr(self, "feature_names_in_", None)
        kernel, chosen, *others = self._parameters
        return {
            "parameters": {
                **dict(zip(_PARAMETERS[2:], map(fitted_regressor.plain, others))),
                "kernel": state_name(kernel),
                "categorical_features": None if chosen is None else list(map(fitted_regressor.plain, chosen)),
            },
            "results": {name: fitted_regressor.plain(getattr(self, name)) for name in (*_RESULTS, *_LEARNED)},
            "feature_names": None if names is None else list(map(str, names)),
            "target_names": self._target_names,
            **fitted_regressor.state_of(known, self.encoder_),
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """
        Return the regressor of a state; a refit uses the default options and draws new partitions.

        :raises ValueError: If a part is missing or wrong, or, with up to 2,000 training rows, predictions not finite.
        """
        with files.reading_state(fitted_regressor.KIND):
            parameters, results, names = state["parameters"], state["results"], state["feature_names"]
            regressor, encoder = cls().set_params(**parameters), state["encoder"]
            _check_parameters(cls(**{**parameters, "kernel": "auto"}))
            regressor._parameters = tuple(parameters[name] for name in _PARAMETERS)
            regressor._fitted, regressor.encoder_ = fitted_regressor.fitted_of(state)
            regressor.__dict__ |= {name: fitted_regressor.restored(results[name]) for name in (*_RESULTS, *_LEARNED)}
            regressor.options_, regressor._target_names = None, state["target_names"]
            regressor.n_features_in_ = state["train_x"].shape[1] if encoder is None else len(encoder["columns"])
            if names is not None:
                regressor.feature_names_in_ = np.array(names, dtype=object)
                if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
                    raise ValueError(f"expected names of columns as a list of texts, got {names!r:.60}: fit again")
            constants = regressor._constants
            if constants is not None and np.isnan(constants).shape != state["train_x"].shape[1:]:
                raise ValueError("expected a number for each column that is constant, got others: fit again")
        return regressor

    @property
    def _known(self) -> FittedRegressor:
        check_is_fitted(self, "_fitted")
        return self._fitted

    @property
    def model_(self) -> Any:
        """Return the GPyTorch model of standardized rows and targets; a CoregionalizedGP for several targets."""
        return self._known.model

    @property
    def likelihood_(self) -> Any:
        """Return the likelihood of the model, or None for several targets."""
        return self._known.likelihood

    @property
    def kernel_(self) -> Kernel:
        """Return the kernel, without its outputscale, for standardized rows such as `model_.train_inputs[0]`."""
        covariance = self.model_.covar_module
        return covariance if self._known.has_several else covariance.base_kernel

    @property
    def log_predictive_density_(self) -> float | None:
        """Return the mean log density of held-out rows, in nats, for standardized targets; None unless folds choose."""
        return description_of(self.model_)["log_predictive_density"]

    @property
    def noise_(self) -> Any:
        """Return the variance of the noise (where it varies, its level), in squared units of the targets (`T` or 1)."""
        known = self._known
        return (known.model.noise.numpy() if known.has_several else known.likelihood.noise.item()) * known.scale**2

    @property
    def outputscale_(self) -> Any:
        """Return the variance of the function (for `"auto"` of the targets), in their squared units (`T` or 1)."""
        if self._known.has_several:
            return self.target_covariance_.diagonal()
        return self.model_.covar_module.outputscale.item() * self._known.scale**2

    @property
    def target_covariance_(self) -> NDArray[np.float64]:
        """Return the covariance of the functions of several targets (`T x T`), in units of the targets."""
        return _of_several(self._known).in_units(self.model_.task_covariance)

    @property
    def noise_covariance_(self) -> NDArray[np.float64]:
        """Return the covariance of a row's errors (`T x T`), in units of the targets; diagonal where none was found."""
        return _of_several(self._known).in_units(self.model_.noise_covariance)

    @property
    def target_names_(self) -> NDArray[np.object_]:
        """Return the names of several targets (`T`): those of the data frame, or y0, y1 and so on."""
        names = self._target_names or [f"y{number}" for number in range(_of_several(self._known).model.num_targets)]
        return np.array(names, dtype=object)

    @property
    def target_name_(self) -> str | None:
        """Return the name of the target: that of the Series, or of the column of parquet files; None if it has none."""
        return None if self._known.has_several or self._target_names is None else self._target_names[0]

    _for_new_holes = "predictions are averaged over the values of similar training rows, and as uncertain as these vary"

    def _training_rows(self, X: Any, y: Any, sample_weight: Any) -> CountedRows:
        weights = None if sample_weight is None else checked_weights(sample_weight, _num_samples(y))
        if reading.has_several(y):
            regression_fit.check_for_several(self.kernel, self.budget, weights)
            values, self._target_names = reading.read_targets(X, y)
            rows = self._read(X, np.zeros(len(values)), reset=True, y_numeric=True)[0]
            names = self._target_names or range(values.shape[1])
            told = {f"target {name!r}": like_holes(column) for name, column in zip(names, values.T)}
            reading.warn_of_holes(told, "make them NaN: unknown targets of a row are left out")
            known = reading.known_rows(values)
            return CountedRows(rows[known], values[known], None, None if known.all() else np.flatnonzero(known))
        given = reading.counted_rows(X, y, weights)
        self._target_names = reading.name_of_target(given.y)
        rows, targets = self._read(given.X, given.y, reset=True, y_numeric=True)
        return given._replace(X=rows, y=targets.astype(np.float64))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _checked_rows(self, X: Any) -> np.ndarray:
        """Read new rows, and warn of those outside the training range and of cells that only they miss."""
        known = self._known
        rows = self._read(X, reset=False)
        if (largest := np.nanmax(np.abs(rows), initial=0.0)) > checks.LARGEST:
            raise ValueError(f"expected X of numbers up to {checks.LARGEST:g}, got {largest:.3g}: drop such rows")
        x = known.columns.apply_array(rows)
        if checks.is_blind(known.model.covar_module, known.likelihood):
            remedy = _FIT_THERE if known.is_chosen and not is_ensemble(self.kernel) else _WIDENS
            in_full, names = known.columns.in_full(x), model_column_names(self)
            known.range.warn_of_rows_outside(in_full, names, tuple(self._categories), remedy, self._told)
        self._warn_of_new_holes(x, known.train_x)
        return rows


def _check_parameters(model: PartitionGPRegressor) -> None:
    check_given(model.kernel, NAMES)
    regression_fit.check_budget(model.budget, model.kernel)
    checks.check_count(model.num_partitions, "num_partitions", most=MOST_PARTITIONS)
    checks.check_count(model.max_iterations, "max_iterations")
    checks.check_n_jobs(model.n_jobs)
    checks.check_verbose(model.verbose)
    if model.options is not None and not isinstance(model.options, Options):
        raise ValueError(f"expected options to be None or gpytorch_partition.presets.Options, got {model.options!r}")
    checks.check_word(model.dtype, "dtype", tuple(regression_fit.DTYPES))


def _misses_copies(known: FittedRegressor, copies: CountedRows) -> bool:
    """Return whether intervals of the noise around the means hold too few of the copies, and warn then."""
    if not len(copies.y) or known.has_several:
        return False
    mean, _ = known.moments(copies.X, with_std=False, include_noise=False)
    deviation = np.sqrt(known.noise_of(known.points(copies.X)))
    low, high = known.quantiles(copies.X, mean, deviation, _ENDS, include_noise=True).T
    share = float(((low <= copies.y) & (copies.y <= high)).mean())
    if share < _LEAST_OF_COPIES:
        told = f"90 % intervals of the noise held {share:.0%} of the copies that were left out, so these rows recur"
        warnings.warn(f"{told}, as new rows do: the model is fitted again, to all rows", stacklevel=level_of_caller())
    return share < _LEAST_OF_COPIES


def _of_several(known: FittedRegressor) -> FittedRegressor:
    if not known.has_several:
        raise AttributeError("expected a fit to several targets, got one target: use noise_ and outputscale_")
    return known


def _refuse_counted(known: FittedRegressor, name: str, instead: str) -> None:
    if known.is_counted:
        raise ValueError(f"{name} needs the training rows, which fit_chunks has counted: sklearn.inspection.{instead}")


def _checked_observations(model: PartitionGPRegressor, X: Any, y: Any) -> np.ndarray:
    if model._known.has_several:
        raise ValueError(
            f"expected a model of one target, got one of {len(model.target_names_)}: target number t has the log "
            "densities scipy.stats.norm.logpdf(y[:, t], mean[:, t], std[:, t])"
        )
    y = np.asarray(y, dtype=np.float64)
    num_rows = len(next(iter(X.values())) if isinstance(X, Mapping) else X)
    if y.shape == (num_rows, 1):  # as `fit` takes it
        y = y[:, 0]
    if y.shape != (num_rows,) or not np.isfinite(y).all():
        raise ValueError(
            f"expected a known target for each of the {num_rows} rows of X, got targets of shape {y.shape} with "
            f"{int((~np.isfinite(y)).sum())} missing"
        )
    return y


def _known_score(y: Any, mean: NDArray[np.float64], names: Sequence[str], sample_weight: Any) -> float:
    """Return the mean of R squared over targets, each over the rows where it is known."""
    values = reading.target_values(y)
    if values.shape != mean.shape:
        raise ValueError(f"expected targets of shape {mean.shape}, one column for each target, got {values.shape}")
    known = ~np.isnan(values)
    reading.check_entries(known, names, "give more rows where it is known, or score the others by sklearn.metrics")
    weights = np.ones(len(values)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    check_consistent_length(values, weights)
    targets = zip(values.T, mean.T, known.T)
    return float(np.mean([r2_score(y[rows], own[rows], sample_weight=weights[rows]) for y, own, rows in targets]))
