"""Gaussian process regression with the scikit-learn API: `PartitionGPRegressor`."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from copy import deepcopy
from functools import partial
from math import inf
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import _num_samples, check_is_fitted
from torch import Tensor

from gpytorch_partition import settings
from gpytorch_partition.all_or_nothing import all_or_nothing
from gpytorch_partition.callers import level_of_caller
from gpytorch_partition.estimators.budget import check_budget, fit_in_time
from gpytorch_partition.estimators.chunked_fit import FitsChunks
from gpytorch_partition.estimators.copies import LeavesOutCopies
from gpytorch_partition.estimators.given_kernels import (
    check_columns,
    check_dense_size,
    check_given,
    kernel_of_ensemble,
    name_of,
    name_or_function,
    sees_raw_columns,
)
from gpytorch_partition.estimators.kernels import KERNELS, kernel_and_rows
from gpytorch_partition.estimators.machine import (
    LARGEST,
    check_count,
    check_flag,
    check_magnitudes,
    check_n_jobs,
    check_verbose,
    warn_of_rounding,
)
from gpytorch_partition.estimators.moments import Moments
from gpytorch_partition.estimators.sample_weight import counted_rows, new_likelihood, target_unit
from gpytorch_partition.estimators.saved_regressor import SavedRegressor
from gpytorch_partition.estimators.scores import Judgement
from gpytorch_partition.estimators.several_targets import SeveralTargets
from gpytorch_partition.estimators.tables import ReadsTables
from gpytorch_partition.estimators.targets import has_several, name_of_target
from gpytorch_partition.estimators.training_range import ToldOfRange, TrainingRange, is_blind
from gpytorch_partition.estimators.uncertainty import checked_quantiles, judged, sampled
from gpytorch_partition.explain import Importance, ModelSummary, PartialDependence
from gpytorch_partition.explain.dependence import average_function, rows_on_grid
from gpytorch_partition.explain.given_columns import model_column_names
from gpytorch_partition.explain.importance import importance
from gpytorch_partition.explain.kernel_parts import KernelExpansion
from gpytorch_partition.explain.nearest_rows import nearest_rows
from gpytorch_partition.explain.summarize import model_summary, title_of
from gpytorch_partition.inputs.numbers import random_state_of
from gpytorch_partition.inputs.row_weights import RowWeights, checked_weights
from gpytorch_partition.inputs.standardization import Standardization
from gpytorch_partition.linalg.random import drawn_from
from gpytorch_partition.models import PartitionGP
from gpytorch_partition.partitions.ensembles.libraries import is_ensemble
from gpytorch_partition.presets import Options, default_model, ensemble_model
from gpytorch_partition.presets.assembly import description_of
from gpytorch_partition.presets.default import FEWEST_ROWS
from gpytorch_partition.presets.folds import Blocks
from gpytorch_partition.presets.options import some_rows
from gpytorch_partition.progress import doing, recorded_stages, stage, verbosity
from gpytorch_partition.tables import needs_view
from gpytorch_partition.training.one_pass import fit_exact_gp

NAMES = ("auto", *KERNELS)
DTYPES = {"auto": None, "float32": torch.float32, "float64": torch.float64}

_MOST_DENSE_ROWS = 2_000  # up to here solves are dense and cheap in float64
_LEAST_DEVIATION = 1e-3  # of standardized targets; constant ones have 1e-15 by rounding
_WIDENS = (
    "kernel='auto' has a smooth part, whose intervals widen there; or leave these rows out, or fit to some from there"
)
_FIT_THERE = "Leave these rows out, or fit to some from there"


class PartitionGPRegressor(
    FitsChunks,
    Moments,
    SeveralTargets,
    SavedRegressor,
    LeavesOutCopies,
    ToldOfRange,
    ReadsTables,
    RegressorMixin,
    BaseEstimator,
):
    r"""
    A scikit-learn regressor by exact Gaussian processes with random partition kernels, at a cost linear in the rows.

    Use it first: when a table, of numbers or with text, dates and missing cells, is to be predicted with intervals.

    Columns of X and the targets are standardized inside (a constant column stays as it is); the kernel is built on
    the standardized rows. Noise, outputscale and constant mean maximize the marginal likelihood. `"auto"` and tree
    ensembles, whose trees have seen the targets, maximize the predictive density of held-out rows instead. A value at
    its bound gives a :class:`~sklearn.exceptions.ConvergenceWarning` and is listed in `at_bounds_`.

    Uncertainty is that of *new observations*: standard deviations, covariances, quantiles and samples include the
    noise, as intervals for new targets need, and as those of scikit-learn's `GaussianProcessRegressor` with a
    `WhiteKernel` do. With `include_noise=False` they are those of the function alone, which more rows reduce.

    :func:`gpytorch_partition.fit_exact_gp` lists the costs of training, and
    :class:`gpytorch_partition.settings.predictive_variances` those of standard deviations; a mean costs O(m) per row.
    The model holds 8 bytes per (row, partition). Above 2,000 rows it also holds 100 numbers per row, or 400 where
    deviations come from samples (:class:`gpytorch_partition.settings.preconditioner_rank`). :meth:`fit_chunks` fits to
    more rows than fit in memory.

    The kernels are those of Davies & Ghahramani 2014 and Balog et al. 2016: see the classes of
    :mod:`gpytorch_partition.kernels`.

    Several targets (Y of T columns) are one model, with covariances :math:`k(x, x') B_{tt'}` of the functions and a
    noise for each target. The model costs as much as T models with one kernel. Entries of Y may be missing: it then
    costs as much as one model with a row for each entry. No matrix is as large as `NT x NT`, or `N x N`. Standard
    deviations cost far more than means.

    :param kernel: `"auto"`, `"forest"` (supervised; above some thousand rows slower than the next two),
        `"fast_cluster"`, `"mondrian"`, or one of the objects listed below. `"auto"` is the best and the slowest
        (:func:`gpytorch_partition.presets.default_model`): a sum of forests, boosted trees, local slopes, a smooth and
        a linear part, or of rough parts and a linear one where the targets vary on all scales. Its noise may vary with
        x; predictions of held-out rows choose all weights. Fewer than 10 rows and constant targets get `"forest"`.
        (Default: `"auto"`.)
    :param num_partitions: Number m of trees or clusterings. `"auto"` and a function's kernel have their own.
        (Default: 200.)
    :param max_iterations: L-BFGS iterations at most, where the kernel has parameters of its own to train and
        :func:`~gpytorch_partition.fit_exact_gp` does not apply. (Default: 100.)
    :param dtype: Type of the model's numbers: `"float32"`, `"float64"` or `"auto"`, which is float64 up to 2,000 rows,
        where solves are dense, and float32 above, where its products are faster and take less memory. The kernel
        `"auto"` computes in float64.
    :param random_state: Seed of the partitions, as in scikit-learn. With the same integer, predictions are the same to
        the last bit. It does not seed a function that is given as the kernel.
    :param n_jobs: Trees grown at once, as scikit-learn counts them. (Default: None, one.)
    :param options: Sizes and limits of the parts of `"auto"`. (Default: None, the defaults of
        :class:`gpytorch_partition.presets.Options`.)
    :param categorical_features: Names (or numbers, counted from 0) of columns that are categories although they hold
        numbers, as in scikit-learn's histogram gradient boosting. Columns of text and pandas categories always are.
        (Default: None.)
    :param verbose: None shows the progress of :meth:`fit` and :meth:`predict` on a terminal, after two seconds; 0 or
        False shows nothing. 1 or True also reports the seconds of each stage where standard error is no terminal (batch
        jobs, notebooks), through logging if that is set up for INFO, else on standard error. 2 also reports the
        seconds of the stages' steps. (Default: None.)
    :param budget: Seconds that a fit of `"auto"` may take. Models are fitted from the smallest to the largest, as long
        as five times the seconds of the last one are left for the next. `left_out_` lists what the last one leaves out:
        rough parts, trees, rows that choose, and at the smallest most of the rows
        (:mod:`gpytorch_partition.presets.budget`). It depends on the speed of the machine, even with the same
        `random_state`; `options=model.options_` without a budget fits the same model to the last bit. A fit of more
        than 1.2 budgets gives a :class:`~sklearn.exceptions.ConvergenceWarning`. The solve of the first prediction is
        not counted. (Default: None, nothing is left out.)

    Parameters are checked by :meth:`fit`, not here, as in scikit-learn.

    Kernels in detail:

    - **`"mondrian"`** has the median distance of the rows as its width, whatever the targets are. To choose the width,
        give a function that builds a :class:`~gpytorch_partition.MondrianKernel` with a longer `max_lifetime`, and
        calls :func:`~gpytorch_partition.lifetime_sweep` on the rows and targets.
    - **A tree ensemble** of scikit-learn, LightGBM, XGBoost or CatBoost, `kernel=LGBMRegressor().fit(X, y)` (or one
        that is not fitted), sees columns as they are; tables must hold numbers. Its trees have seen the targets, so
        clones of it in folds choose scale and noise: 90 % intervals of seven ensembles with default settings cover 89
        to 90 % on diabetes (:func:`gpytorch_partition.presets.ensemble_model`, which also lists costs). With an
        ensemble that was fitted to other rows than X, intervals are rather too wide.
    - **A kernel of this package** that is built already sees columns as they are. A copy is used. Parameters of its
        own that can be trained are, with scale and noise, by marginal likelihood.
    - **A kernel of GPyTorch** alone, such as `RBFKernel()`, sees standardized columns. A copy is trained by L-BFGS on
        the marginal likelihood; above 2,000 rows those that would need an N x N matrix are refused.
    - **A class of kernels**: see :func:`~gpytorch_partition.estimators.given_kernels.name_or_function`.
    - **A function** from the standardized training data `(x, y)` (tensors `N x D` and `N`) to a
        :class:`gpytorch.kernels.Kernel`, which will be scaled by an outputscale; it must be a module-level function for
        the estimator to be pickled.

    Fitted attributes:

    - `model_`, `likelihood_`, `kernel_`: the GPyTorch model of standardized data, its likelihood and its kernel, which
        takes rows as `model_.train_inputs[0]` has them (not standardized for a kernel that was built already). The
        model of several targets is a :class:`~gpytorch_partition.models.CoregionalizedGP`, without a likelihood.
    - `noise_`, `outputscale_`: variances of the noise and of the function, in squared units of the targets; `T` of each
        for several targets. A noise that varies (`"auto"`) has its level here. `"auto"` has its outputscales in
        `kernel_`, and here the variance of the targets.
    - `target_covariance_`: for several targets the `T x T` covariance B of their functions, in their units.
    - `target_name_`: for one target the name of its Series, for the axes of plots; None without a name.
    - `target_names_`: for several targets the names of the data frame, or y0, y1 and so on.
    - `log_marginal_likelihood_value_`: in nats, of the standardized targets; None for `"auto"` and ensembles.
    - `log_predictive_density_`: for `"auto"` and ensembles, the mean log density of held-out rows, in nats, of
        standardized targets; where rough parts were taken, of random rows and neighbors, which are easier to predict.
        None for others.
    - `at_bounds_`: hyperparameters of the standardized model that sit at a bound, by name.
    - `seconds_`: seconds of each stage of the fit, by name; with a budget those of all models that were fitted.
    - `options_`, `left_out_`: the options of `"auto"` or an ensemble (None for others), and the list of steps and parts
        that the budget left out.
    - `n_iter_`, `n_features_in_`, `feature_names_in_`: as in scikit-learn.

    Example:
        >>> from sklearn.datasets import load_diabetes
        >>> X, y = load_diabetes(return_X_y=True)
        >>> model = PartitionGPRegressor("forest", num_partitions=50, random_state=0).fit(X[:300], y[:300])
        >>> mean, std = model.predict(X[300:], return_std=True)
        >>> inside = abs(y[300:] - mean) <= 1.645 * std
        >>> bool(0.8 < inside.mean() < 1.0)
        True
    """

    def __init__(
        self,
        kernel: Any = "auto",
        num_partitions: int = 200,
        *,
        max_iterations: int = 100,
        dtype: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        n_jobs: int | None = None,
        options: Options | None = None,
        categorical_features: Sequence[str | int] | None = None,
        verbose: bool | int | None = None,
        budget: float | None = None,
    ) -> None:
        self.kernel = kernel
        self.num_partitions = num_partitions
        self.max_iterations = max_iterations
        self.dtype = dtype
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.options = options
        self.categorical_features = categorical_features
        self.verbose = verbose
        self.budget = budget

    @all_or_nothing
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        groups: Any = None,
        time: Any = None,
        unlabelled: Any = None,
    ) -> PartitionGPRegressor:
        r"""
        Build the kernel and choose the hyperparameters.

        Rows that are copies of others, target included, are left out with a warning where that matters
        (:func:`~gpytorch_partition.inputs.row_choice.rows_without_copies`).

        :param X: `N x D` rows: an array of finite numbers (`"auto"` and `"forest"` take NaN for a missing value), or a
            table. A table is a DataFrame or a mapping from names to columns, with numbers, booleans, text, categories,
            dates and missing cells, which :class:`~gpytorch_partition.tables.TableEncoder` reads. Forests split on sets
            of levels and on missing cells. Other kernels see one-hot columns (up to 10 levels), mean targets (above; in
            training, of other folds) and medians (:class:`~gpytorch_partition.tables.NumberView`).
        :param y: `N` targets, or `N x T` of T targets, an array or a data frame. T targets share one model: one kernel
            for all, a covariance between them and a noise of each. NaN is then a missing entry; a row without any
            target is left out, with a warning. (`N x 1` is one target, with scikit-learn's warning.)
        :param sample_weight: `N` weights of the rows from 0, or one for all: the variance of the noise at a training
            row is :math:`\sigma^2 / w`, as of a mean of w measurements. Weights are not normalized: the noise of new
            observations, and `noise_`, are those of weight 1. Twice the weights give the same means, and twice that
            noise. Rows of weight 0 are left out. Trees that learn from targets weight squared errors. Mean targets and
            medians of tables count a row of weight w as w rows. Both cap weights at their 90 % quantile. Kernels of
            functions, and clones of an ensemble, ignore weights. For one target only; with several, all weights must
            be 1. (Default: None, 1.)
        :param groups: `N` labels, such as texts or numbers, of groups (patients, shops), for new rows of *new* groups:
            rows of a group are held out together, so that intervals are those of new groups
            (docs/repeated_measurements.md). For kernels that are chosen by folds, `"auto"` and ensembles. The labels
            are no feature. (Default: None, single rows are held out.)
        :param time: `N` numbers or dates, for new rows of *later* times: rows are predicted from earlier ones only, in
            blocks as those of scikit-learn's `TimeSeriesSplit`; rows of one time stay together. For the same kernels as
            `groups`; at most one of both is given. (Default: None.)
        :param unlabelled: `M x D` more rows, without targets, such as those to be predicted: columns are standardized,
            and the kernel built, on all `N + M` rows (the semi-supervised use of Davies & Ghahramani 2014, section
            4.3.2). For kernels that use X only, `"fast_cluster"` and `"mondrian"`; a function gets all rows, the
            labelled ones first, beside the N targets. Fast clusters keep the height of N rows. Whether it helps
            depends on the data: see docs/papers.md. (Default: None.)
        :return: The regressor itself.
        :raises ValueError: If the data or a parameter cannot be used; if weights are negative, NaN, all 0 or not one
            for each row; if there are unlabelled rows for a kernel that learns from targets (`"forest"`, `"auto"`); if
            groups or times are missing, fewer than two, or given for a kernel that is not chosen by folds.
        :raises TypeError: If X is sparse, or `kernel` cannot be used, with the reason.
        :raises FloatingPointError: If the marginal likelihood is not a number.
        """
        self._check_parameters()
        blocks = self._checked_blocks(y, groups, time)
        X, y, weights = self._rows_and_targets(X, y, sample_weight)
        blocks = self._counted_blocks(blocks)
        rows = X if unlabelled is None else np.concatenate([X, self._checked_unlabelled(unlabelled)])
        self._columns, self._unit = self._standardization(rows), target_unit(y, weights)
        self.options_, self.left_out_ = None, ()
        with verbosity(self.verbose), doing(f"fitting {len(y):,} rows"), recorded_stages() as self.seconds_:
            if y.ndim == 1 and self._chooses_by_folds and len(y) >= FEWEST_ROWS and self._vary(y):
                self._fit_by_folds(X, y, weights, blocks)
            else:
                self._warn_of_few_rows(y)
                self._fit_kernel(X, y, rows, weights, blocks)
        return self

    def _vary(self, y: np.ndarray) -> bool:
        return float(self._unit.apply_array(y).std()) > _LEAST_DEVIATION

    def _warn_of_few_rows(self, y: np.ndarray) -> None:
        if self._chooses_by_folds and y.ndim == 1 and 1 < len(y) < FEWEST_ROWS:
            warnings.warn(
                f"expected {FEWEST_ROWS} rows or more to choose a model by, got {len(y)}: the kernel is a plain "
                "forest, or that of the ensemble, and its intervals are too narrow (of 90 % they held 76 with 5 rows)",
                UserWarning,
                stacklevel=level_of_caller(),
            )

    def _rows_and_targets(self, X: Any, y: Any, sample_weight: Any) -> tuple[np.ndarray, np.ndarray, RowWeights | None]:
        weights, row_weights = None if sample_weight is None else checked_weights(sample_weight, _num_samples(y)), None
        if has_several(y):
            self._check_one_target_only(weights)
            X, y, self._counted_rows = self._read_targets(X, y)
        else:
            X, y, row_weights, self._counted_rows = counted_rows(X, y, weights)
            X, y = self._read_target(X, y)
        check_magnitudes(X, "X")
        check_magnitudes(y, "y")
        warn_of_rounding(y)
        return self._without_copies(X, y, row_weights)

    def _checked_blocks(self, y: Any, groups: Any, time: Any) -> Blocks | None:
        if groups is None and time is None:
            return None
        blocks = Blocks.of(groups, time, _num_samples(y))
        if blocks is not None and not self._chooses_by_folds:
            raise ValueError(
                "expected groups=None and time=None with a kernel that is not chosen by folds, got "
                f"kernel={self.kernel!r}: give kernel='auto' or a tree ensemble"
            )
        return blocks

    def _fit_by_folds(self, X: np.ndarray, y: np.ndarray, weights: RowWeights | None, blocks: Blocks | None) -> None:
        x, targets = self._columns.apply_array(X), self._unit.apply_array(y)
        fit = partial(self._fit_some_rows, x, targets, torch.from_numpy(y), weights, blocks, self._counted_rows)
        num_columns = inf if needs_view(x, self._categories) else x.shape[1]
        fit_in_time(self, fit, (len(y), num_columns), self.options or Options())

    def _fit_kernel(
        self, X: np.ndarray, y: np.ndarray, rows: np.ndarray, weights: RowWeights | None, blocks: Blocks | None
    ) -> None:
        """Fit one kernel, built on `rows`, which may include unlabelled ones."""
        is_exact = len(y) <= _MOST_DENSE_ROWS or sees_raw_columns(self.kernel)
        dtype = DTYPES[self.dtype] or (torch.float64 if is_exact else torch.float32)
        x, points = (self._columns.apply_array(each).to(dtype) for each in (X, rows))
        targets = self._unit.apply_array(y).to(dtype)
        if y.ndim == 2:
            self._fit_targets(x, targets, points, blocks)
        else:
            self._fit_model(x, targets, points, weights)

    def _read_target(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        self._target_names = name_of_target(y)
        X, y = self._read(X, y, reset=True, y_numeric=True, ensure_all_finite=self._finiteness)
        return X, y.astype(np.float64)

    def _checked_unlabelled(self, unlabelled: Any) -> np.ndarray:
        if sees_raw_columns(self.kernel):
            raise ValueError(f"expected no unlabelled rows with a {type(self.kernel).__name__}, which is built already")
        if name_of(self.kernel) in ("auto", "forest"):
            raise ValueError(
                f"kernel={self.kernel!r} learns its partitions from targets, which unlabelled rows lack: give "
                "kernel='fast_cluster' or 'mondrian', or a function that builds a kernel on rows alone"
            )
        rows = self._read(unlabelled, reset=False)
        check_magnitudes(rows, "unlabelled")
        return rows

    def _fit_model(self, x: Tensor, targets: Tensor, points: Tensor, weights: RowWeights | None) -> None:
        """Fit by marginal likelihood, with a kernel built on points, which may include unlabelled ones."""
        with stage("building the kernel"):
            kernel, rows = self._kernel_and_rows(x, targets, points, weights)
            self._set_model(PartitionGP(rows, targets, new_likelihood(weights), kernel))
            check_dense_size(self.kernel_, x)
        with stage("fitting noise and scales"):
            found = fit_exact_gp(self.model_, self.likelihood_, max_iterations=self.max_iterations)
        self.log_marginal_likelihood_value_ = found.log_marginal_likelihood
        self.at_bounds_ = found.at_bounds
        self.n_iter_ = found.num_iterations

    def _fit_some_rows(
        self,
        x: Tensor,
        targets: Tensor,
        original: Tensor,
        weights: RowWeights | None,
        blocks: Blocks | None,
        counted: np.ndarray | None,
        options: Options,
    ) -> None:
        """Fit to the rows that the options keep."""
        rows = some_rows(len(x), options, self.random_state)
        numbers = np.arange(len(x)) if counted is None else counted
        self._counted_rows = counted if isinstance(rows, slice) else numbers[rows]
        own_weights = None if weights is None else weights.values[rows]
        own_blocks = None if blocks is None else blocks.of_rows(rows)
        self._choose_model(x[rows], targets[rows], original[rows], own_weights, own_blocks, options)

    def _choose_model(
        self,
        x: Tensor,
        targets: Tensor,
        original: Tensor,
        weights: Tensor | None,
        blocks: Blocks | None,
        options: Options,
    ) -> None:
        """Fit by predictions of held-out rows; an ensemble takes the targets in their own units."""
        others: dict[str, Any] = {"random_state": self.random_state, "n_jobs": self.n_jobs, "options": options}
        others |= {"weights": weights, "blocks": blocks}
        if is_ensemble(self.kernel):
            self._set_model(ensemble_model(x, targets, self.kernel, original=original, **others))
        else:
            self._set_model(default_model(x, targets, categories=self._categories, **others))
        self.log_marginal_likelihood_value_, self.at_bounds_, self.n_iter_ = None, {}, 0

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

        Rows with missing cells, or levels that `fit` has not seen, are predicted from ten completions by similar
        training rows (:class:`~gpytorch_partition.inference.prediction.unknown_cells.UnknownCells`), which widens their
        intervals. Each such row costs ten means.

        :param X: `N x D` rows.
        :param return_std: Also return `N` (or `N x T`) standard deviations in units of the targets. (Default: no.)
        :param return_cov: Also return the `N x N` covariance, in squared units; it is dense and costs a solve per row.
            For T targets it is `N x N x T`, one for each, as that of scikit-learn's `GaussianProcessRegressor`;
            :meth:`sample_y` is joint in rows and targets. (Default: no.)
        :param quantiles: Also return these quantiles of each row, a column each, in the order given (`N x q`, or
            `N x T x q`), in units of the targets: `(0.05, 0.95)` are the ends of intervals of 90 %. The distribution is
            Gaussian, with the noise of each row; where `"auto"` has found outliers, it is the sum of a Gaussian
            function and Student-t noise. (Default: none.)
        :param include_noise: Whether uncertainty is that of new observations, not of the function alone. The means are
            the same. (Default: yes.)
        :return: `N` (or `N x T`) means, or a tuple of the means, the deviations or the covariance, and the quantiles.

        An :class:`~gpytorch_partition.estimators.OutsideRangeWarning` reports rows outside the range of the training
        rows: one of a hundred by more than a quarter of the range, or any by more than all of it. It comes with
        kernels that are as sure there as inside, such as forests and ensembles, not with `"auto"` and `"mondrian"`.

        :raises ValueError: If `return_std` and `return_cov` are both asked for, quantiles are not strictly between 0
            and 1 or none, `include_noise` is neither True nor False, or X cannot be used.
        :raises TypeError: If X is sparse.
        :raises sklearn.exceptions.NotFittedError: Before :meth:`fit`.

        Example:
            >>> X = np.linspace(0, 1, 60)[:, None]
            >>> y = X[:, 0] + 0.1 * np.random.RandomState(0).randn(60)
            >>> model = PartitionGPRegressor("mondrian", num_partitions=20, random_state=0).fit(X, y)
            >>> mean, ends = model.predict(X, quantiles=(0.05, 0.95))
            >>> _, ends_of_function = model.predict(X, quantiles=(0.05, 0.95), include_noise=False)
            >>> bool((ends_of_function[:, 1] < ends[:, 1]).all())
            True
        """
        if return_std and return_cov:
            raise ValueError("expected at most one of return_std and return_cov")
        check_flag(include_noise, "include_noise")
        probabilities = None if quantiles is None else checked_quantiles(quantiles)
        rows = self._checked_rows(X)
        if return_cov:
            mean, covariance = self._joint_moments(rows, include_noise)
            found, std = [mean, covariance], np.sqrt(covariance.diagonal().T.clip(0))
        else:
            mean, std = self._moments(rows, return_std or probabilities is not None, include_noise)
            found = [mean, std] if return_std else [mean]
        found += [] if probabilities is None else [self._quantiles(rows, mean, std, probabilities, include_noise)]
        return tuple(found) if len(found) > 1 else mean

    @torch.no_grad()
    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0, *, include_noise: bool = True) -> np.ndarray:
        r"""
        Return joint samples of new observations, or of the function, in units of the targets.

        A sample costs a solve and O(N m). For more samples than rows, or at most 2,000 training and new rows, they come
        from the dense covariance, at a solve per row and :math:`O(N^3)`.

        :param X: `N x D` rows.
        :param n_samples: Number of samples. (Default: 1.)
        :param random_state: Seed; `None` is a fresh one. (Default: 0.)
        :param include_noise: Whether each sample has noise of its own at every row. (Default: yes.)
        :return: `N x n_samples`, or `N x T x n_samples`.
        :raises ValueError: If X cannot be used, `n_samples` is no whole number from 1, `include_noise` is neither True
            nor False, or `random_state` is no seed.
        :raises RuntimeError: For more than 2,000 rows, if the kernel is one of another kind (a sum, for example).
        :raises TypeError: If X is sparse.
        :raises sklearn.exceptions.NotFittedError: Before :meth:`fit`.
        """
        check_count(n_samples, "n_samples")
        check_flag(include_noise, "include_noise")
        rows, seed = self._checked_rows(X), random_state_of(random_state).randint(2**31)
        with settings.iterative(), settings.no_debug(), drawn_from(seed):
            if self._has_several:
                return self._samples_of_targets(rows, n_samples, include_noise)
            samples = sampled(self.model_, self._points(rows), n_samples, include_noise=include_noise)
        found, unknown = self._unit.undo(samples.T).numpy(), self._unknown_cells(rows, True, include_noise)
        return found if unknown is None else unknown.samples(found, np.random.RandomState(seed))

    def judge(self, X: Any, y: Any, sample_weight: Any = None) -> Judgement:
        """
        Return the predictive distributions of new observations, with scores of the observations.

        The distributions are Gaussian. Where `"auto"` has found outliers, they are those of a Gaussian function with
        Student-t noise, and log densities differ from those of a Gaussian of the same standard deviation.

        :param X: `N x D` rows, best those that the model has not seen.
        :param y: `N` targets.
        :param sample_weight: `N` weights of these rows above 0, or one for all: as in `fit`, the variance of the noise
            of an observation is divided by its weight. To average scores by weights, give them to `coverage()` and
            `numpy.average`. (Default: None, 1.)
        :return: Means, standard deviations, ends of 90 % intervals, log densities in nats, and the levels of central
            intervals, by which `coverage()` counts; CRPS and interval scores in the unit of the targets, 0 at best.
            (Log densities of targets with few values have no best.) The NLPD in the unit of the targets is
            `-log_density.mean()`. `summary()` and `compare` print the NLPD of targets in standard deviations of the
            training targets, `-log_density.mean() - log(y_train.std())`.
        :raises ValueError: If the model has several targets, or X, y or weights cannot be used.
        :raises sklearn.exceptions.NotFittedError: Before `fit`.

        Example:
            >>> X = np.random.RandomState(0).rand(200, 2)
            >>> y = X[:, 0] + 0.1 * np.random.RandomState(1).randn(200)
            >>> found = PartitionGPRegressor("forest", 50, random_state=0).fit(X[:150], y[:150]).judge(X[150:], y[150:])
            >>> bool(0.8 < found.coverage(0.9) <= 1.0)
            True
        """
        check_is_fitted(self, "model_")
        return judged(self, X, y, sample_weight)

    def summary(self) -> ModelSummary:
        """
        Return the parts of the kernel with their shares of the prior and of the explained variance, and other numbers.

        These are noise, scales, trees, and seconds of the fit's stages. Costs two products with each part at 5,000 rows
        at most, and the solve of the first prediction.

        :return: The numbers, readable when printed.
        :raises sklearn.exceptions.NotFittedError: Before `fit`.

        Example:
            >>> X = np.linspace(0, 1, 40)[:, None]
            >>> model = PartitionGPRegressor("mondrian", num_partitions=20, random_state=0).fit(X, X[:, 0])
            >>> found = model.summary()
            >>> found.num_rows, [part.name for part in found.parts]
            (40, ['MondrianKernel'])
        """
        check_is_fitted(self, "model_")
        return model_summary(
            self.model_,
            self._unit,
            model_column_names(self),
            self.target_names_.tolist() if self._has_several else [],
            num_columns=self.n_features_in_,
            title=title_of(self),
            log_marginal_likelihood=self.log_marginal_likelihood_value_,
            log_predictive_density=self.log_predictive_density_,
            at_bounds=self.at_bounds_,
            seconds=self.seconds_,
            left_out=self.left_out_,
            constant_columns=self._constant_columns,
            has_usual_width=name_of(self.kernel) == "mondrian",
        )

    def importance(
        self, X: Any = None, y: Any = None, *, n_repeats: int = 5, random_state: Any = 0, n_jobs: int | None = None
    ) -> Importance:
        """
        Return the importance of each column, by the structure of the model's parts, and by permutation as a check.

        Importance by structure is the share of the variance of the posterior mean over the training rows that a column
        explains (:func:`gpytorch_partition.explain.importance.column_shares`); trees divide it between columns that
        carry the same information. Importance by permutation is the fall of R squared when a column's values are
        exchanged between rows (:func:`sklearn.inspection.permutation_importance`); on training rows it is too large.

        :param X: `N x D` rows for the check, best those that the model has not seen. (Default: no check.)
        :param y: Their `N` targets.
        :param n_repeats: How often each column is permuted. (Default: 5.)
        :param random_state: Seed of the permutations. (Default: 0.)
        :param n_jobs: Columns permuted at once, as joblib counts them. (Default: None, one.)
        :return: The numbers, readable when printed; `plot()` draws them.
        :raises ValueError: If only one of X and y is given, they cannot be used, or `n_repeats` is no number from 1.
        :raises sklearn.exceptions.NotFittedError: Before `fit`.

        Example:
            >>> X = np.random.RandomState(0).rand(200, 2)
            >>> model = PartitionGPRegressor("forest", num_partitions=50, random_state=0).fit(X, X[:, 1] ** 2)
            >>> print(model.importance())
            column  share of the explained variance
            x1                                1.000
            x0                                0.000
        """
        check_is_fitted(self, "model_")
        self._refuse_counted("importance", "sklearn.inspection.permutation_importance(model, X, y)")
        options: dict[str, Any] = {"n_repeats": n_repeats, "random_state": random_state, "n_jobs": n_jobs}
        return importance(self._telling_once(), KernelExpansion.of_model(self.model_), X, y, **options)

    def partial_dependence(
        self,
        X: Any,
        column: int | str,
        *,
        grid: Any = None,
        grid_resolution: int = 30,
        target: int | str | None = None,
    ) -> PartialDependence:
        """
        Return the function of one column, averaged over the other columns of some rows, with intervals.

        Intervals are those of the average over these rows
        (:func:`gpytorch_partition.explain.dependence.average_function`), not of single rows. Values that do not go with
        the rows' other columns are extrapolations, as in every partial dependence. Costs one solve for each value of
        the grid.

        :param X: `N x D` rows that are averaged over: a few hundred are enough, if they are a random sample.
        :param column: Number of the column, from 0 or, if it is negative, from the end (-1 is the last one); or its
            name.
        :param grid: Values of the column. (Default: its own values, if there are at most `grid_resolution`; else that
            many from the 5 % to the 95 % quantile, as in scikit-learn; for whole numbers some of the column's own, for
            categories the most frequent.)
        :param grid_resolution: Number of values in a default grid, at most. (Default: 30.)
        :param target: Number (as of columns) or name of the target, where the model has several. (Default: None.)
        :return: The averages, which `plot()` draws.
        :raises ValueError: If there is no such column, or rows or grid cannot be used.
        :raises sklearn.exceptions.NotFittedError: Before `fit`.

        Example:
            >>> X = np.random.RandomState(0).rand(80, 2)
            >>> model = PartitionGPRegressor("mondrian", num_partitions=50, random_state=0).fit(X, 3 * X[:, 0])
            >>> found = model.partial_dependence(X, 0, grid=[0.2, 0.8])
            >>> bool(found.mean[1] > found.mean[0] + 1)
            True
        """
        check_is_fitted(self, "model_")
        self._refuse_counted("partial_dependence", "sklearn.inspection.partial_dependence(model, X, [column])")
        rows, teller = rows_on_grid(self, X, column, grid, grid_resolution), self._telling_once()
        return average_function(self, rows, lambda table: self._points(teller._checked_rows(table)), self._unit, target)

    def nearest_rows(self, X: Any, k: int = 5) -> tuple[np.ndarray, np.ndarray]:
        r"""
        Return the training rows that are most similar to new ones by the kernel of the model.

        Similar rows share clusters, or nodes of trees. Similarities are correlations under the prior,
        :math:`k(x, x') / \sqrt{k(x, x)\, k(x', x')}`, 1 for the same row. Costs :math:`O(N m)` for each new row, with
        bounded memory.

        :param X: `N2 x D` rows.
        :param k: Number of training rows for each, at most N. (Default: 5.)
        :return: Numbers of training rows as given to `fit`, from 0, and their correlations, `N2 x k` each, nearest
            first.
        :raises ValueError: If k or X cannot be used.
        :raises sklearn.exceptions.NotFittedError: Before `fit`.

        Example:
            >>> X = np.linspace(0, 1, 40)[:, None]
            >>> model = PartitionGPRegressor("mondrian", num_partitions=200, random_state=0).fit(X, X[:, 0])
            >>> rows, values = model.nearest_rows([[0.5]], k=2)
            >>> sorted(rows[0].tolist())
            [19, 20]
        """
        points = self._points(self._checked_rows(X))
        return nearest_rows(self.model_.covar_module, points, self.model_.train_inputs[0], k, self._counted_rows)

    @property
    def noise_(self) -> Any:
        """Variance of the noise, in squared units of the targets; its level where `"auto"` chose a varying noise."""
        check_is_fitted(self, "model_")
        return (self.model_.noise.numpy() if self._has_several else self.likelihood_.noise.item()) * self._y_scale**2

    @property
    def outputscale_(self) -> Any:
        """Variance of the function, in squared units of the targets."""
        check_is_fitted(self, "model_")
        if self._has_several:
            return self.target_covariance_.diagonal()
        return self.model_.covar_module.outputscale.item() * self._y_scale**2

    @property
    def kernel_(self) -> Kernel:
        """The kernel, without its outputscale, of rows such as `model_.train_inputs[0]`."""
        check_is_fitted(self, "model_")
        return self.model_.covar_module if self._has_several else self.model_.covar_module.base_kernel

    # Inside.

    _for_new_holes = "predictions are averaged over the values of similar training rows, and as uncertain as these vary"
    log_marginal_likelihood_value_: float | None

    def _check_parameters(self) -> None:
        check_given(self.kernel, NAMES)
        check_budget(self.budget, self.kernel)
        check_count(self.num_partitions, "num_partitions")
        check_count(self.max_iterations, "max_iterations")
        check_n_jobs(self.n_jobs)
        check_verbose(self.verbose)
        if self.options is not None and not isinstance(self.options, Options):
            raise ValueError(f"expected options to be None or gpytorch_partition.presets.Options, got {self.options!r}")
        if not isinstance(self.dtype, str) or self.dtype not in DTYPES:
            raise ValueError(f"expected dtype to be one of {tuple(DTYPES)}, got {self.dtype!r}")

    def _kernel_and_rows(
        self, x: Tensor, y: Tensor, points: Tensor, weights: RowWeights | None
    ) -> tuple[Kernel, Tensor]:
        if is_ensemble(self.kernel):
            return kernel_of_ensemble(self.kernel, x, self._unit.undo(y), self.random_state), x
        if sees_raw_columns(self.kernel):
            return deepcopy(self.kernel), x
        return kernel_and_rows(
            "forest" if self.kernel == "auto" else name_or_function(self.kernel, **self._building),
            x,
            y,
            points,
            categories=self._categories,
            sample_weight=None if weights is None else weights.capped,
            **self._building,
        )

    @property
    def _building(self) -> dict[str, Any]:
        return {"num_partitions": self.num_partitions, "random_state": self.random_state, "n_jobs": self.n_jobs}

    @property
    def _chooses_by_folds(self) -> bool:
        return name_of(self.kernel) == "auto" or is_ensemble(self.kernel)

    def _standardization(self, rows: np.ndarray) -> Standardization:
        """Return the standardization of columns other than codes; of none for kernels that see columns as they are."""
        columns = Standardization.of_array(rows)
        if sees_raw_columns(self.kernel):
            check_columns(self.kernel, self)
        return columns.without(range(rows.shape[1]) if sees_raw_columns(self.kernel) else self._categories)

    def _set_model(self, model: Any) -> None:
        self.model_ = model.eval()
        self._range = TrainingRange.of(model.extremes if self._is_counted else model.train_inputs[0])
        self.likelihood_: Any = getattr(model, "likelihood", None)  # of several targets none
        self.log_predictive_density_ = description_of(model)["log_predictive_density"]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.input_tags.allow_nan = name_of(self.kernel) in ("auto", "forest", "ensemble") or sees_raw_columns(
            self.kernel
        )
        return tags

    def _checked_rows(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "model_")
        rows = self._read(X, reset=False, ensure_all_finite=self._finiteness)
        if (largest := np.nanmax(np.abs(rows), initial=0.0)) > LARGEST:
            raise ValueError(f"expected X of numbers up to {LARGEST:g}, got {largest:.3g}: drop such rows")
        model = self.model_
        remedy = _FIT_THERE if self._is_chosen and not is_ensemble(self.kernel) else _WIDENS
        if is_blind(model.covar_module, self.likelihood_):
            self._warn_of_rows_outside(self._columns.apply_array(rows), remedy)
        return rows

    @property
    def _finiteness(self) -> bool | str:
        """The `ensure_all_finite` of scikit-learn: trees take missing values."""
        return "allow-nan" if self.__sklearn_tags__().input_tags.allow_nan else True
