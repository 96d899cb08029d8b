"""Gaussian process classification with the scikit-learn API: `PartitionGPClassifier`."""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass, replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from linear_operator import to_linear_operator
from linear_operator.operators import LinearOperator
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _num_samples, check_is_fitted
from torch import Tensor

from gpytorch_partition import settings
from gpytorch_partition.all_or_nothing import all_or_nothing, on_one_fit
from gpytorch_partition.callers import level_of_caller
from gpytorch_partition.estimators import checks, kernel_parameter
from gpytorch_partition.estimators.kernel_parameter import kernel_of_ensemble, resolved_kernel, targets_of_ensemble
from gpytorch_partition.estimators.machines import KernelMachine
from gpytorch_partition.estimators.reading import counted_rows
from gpytorch_partition.explain import ClassSummary, Importance, PartialDependence
from gpytorch_partition.explain.dependence import number_of_class, rows_on_grid
from gpytorch_partition.explain.given_columns import model_column_names
from gpytorch_partition.explain.importance import importance
from gpytorch_partition.explain.kernel_parts import KernelExpansion, nearest_rows
from gpytorch_partition.explain.summary import class_summary
from gpytorch_partition.inference.prediction.cluster_posterior import EffectTables
from gpytorch_partition.inputs.numbers import MOST_PARTITIONS, random_state_of
from gpytorch_partition.inputs.row_weights import checked_weights
from gpytorch_partition.kernels import IterativeKernel, PartitionKernel
from gpytorch_partition.kernels.cluster_kernel import ClusterKernel
from gpytorch_partition.kernels.seen_targets import OverconfidenceWarning
from gpytorch_partition.linalg.parallel import threads_for
from gpytorch_partition.operators.algebra import structured_terms
from gpytorch_partition.partitions.ensembles.libraries import check_has_trees, check_refittable, is_ensemble
from gpytorch_partition.presets.assembly import weighted_sum
from gpytorch_partition.presets.data import Blocks, PartInputs, Split, as_new_rows, folds, random_rows
from gpytorch_partition.presets.options import Options, Setup
from gpytorch_partition.presets.parts import class_parts
from gpytorch_partition.progress import doing, progress, recorded_stages, stage, verbosity
from gpytorch_partition.tables import needs_view
from gpytorch_partition.training.log_loss import ClassFit, calibrated, minimize_log_loss
from gpytorch_partition.training.predictive_density import Fold, dense_covariances

_FEWEST_ROWS = 20  # fewer choose nothing
_MOST_CHOOSING_ROWS = 1_000  # rows that choose weights and link
_FOLDS, _FEW_ROWS, _FOLDS_OF_FEW = 3, 300, 5  # more folds up to _FEW_ROWS rows
# Kernels of more rows have finer clusters, and can be trusted more. From 2 * _MOST_CHOOSING_ROWS rows on, the scale of
# the weights, and the link, come from held-out rows of a model of most rows.
_MOST_RESCALING_ROWS, _MOST_HELD_OUT = 20_000, 2_000
_FACTORS = (1.0, 3.0, 9.0, 27.0)  # of the weights, tried until one is worse
_OPTIONS = Options(most_inducing_points=1_000)  # for each of two smooth parts: twice as many take four times as long
_ROWS_AT_ONCE = 2**14  # rows predicted at a time
_FREQUENCIES = "kernel='mondrian' tends to the classes' frequencies there; or leave these rows out"
_ROUNDING = 1e-10  # by which logarithms of equal probabilities may differ


@dataclass(eq=False, repr=False)
class PartitionGPClassifier(ClassifierMixin, KernelMachine):
    r"""
    Predict calibrated probabilities of classes by Gaussian process regression on indicators, in linear time.

    Use it where probabilities matter (docs/classes_and_targets.md has its log losses beside those of others).

    Indicators of the classes, less their frequencies, are the targets of a Gaussian process with covariance
    :math:`\sum_i s_i K_i + I`, solved for all classes at once (Rasmussen & Williams 2006, section 6.5). A link with two
    parameters (docs/explaining.md) turns means into probabilities. The weights :math:`s_i` and the link minimize the
    log loss of held-out rows. Far from all rows, probabilities of `"mondrian"` are the classes' frequencies, forests
    predict as at the nearest rows, and the linear part of `"auto"` extrapolates.

    A fit costs three to five sets of dense covariances of up to 1,000 rows, the kernel of all rows and a solve for C
    columns; a prediction :math:`O(m C)`, with `"auto"` also :math:`O(k^2)` for k inducing points. Memory: 8 bytes for
    each row and tree (200), and for each row and inducing point (2,000).

    :param kernel: `"auto"`, a sum of forests, unsupervised trees, two smooth kernels and a linear one; `"forest"`,
        `"fast_cluster"`, `"mondrian"`; or an object of docs/own_kernels.md. A function gets the standardized rows and
        the classes' indicators `(x, y)` (`N` zeros and ones, or `N x C`), in each fold too; a kernel that is built
        already is only scaled. (Default: `"auto"`.)

    Other parameters are those of :class:`~gpytorch_partition.estimators.PartitionGPRegressor`.

    Fitted attributes, beside those of scikit-learn: `kernel_`, the weighted kernel; `outputscales_`, the weights by
    name, in variances of the noise; `link_`; `log_loss_`, the mean log loss of the held-out rows that chose, in nats
    (infinite for fewer than 20 rows, which choose nothing); `seconds_`, of each stage of the fit, by name.

    Example:
        >>> from sklearn.datasets import load_wine
        >>> X, y = load_wine(return_X_y=True)
        >>> machine = PartitionGPClassifier("forest", num_partitions=50, random_state=0).fit(X[::2], y[::2])
        >>> machine.predict_proba(X[1:4:2]).shape, bool(machine.score(X[1::2], y[1::2]) > 0.9)
        ((2, 3), True)
    """

    kernel: kernel_parameter.KernelLike = "auto"
    num_partitions: int = 200
    _: KW_ONLY
    random_state: int | np.random.RandomState | None = None
    n_jobs: int | None = None
    verbose: bool | int | None = None

    @all_or_nothing
    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, groups: Any = None, time: Any = None, unlabelled: Any = None
    ) -> PartitionGPClassifier:
        """
        Choose the weights of the kernel and the link, and solve for all rows.

        Rows that are copies of others, class included, are left out, with a warning, where they would count as
        noiseless. An :class:`~gpytorch_partition.OverconfidenceWarning` reports that a given kernel has seen targets.

        :param X: As for :meth:`gpytorch_partition.estimators.PartitionGPRegressor.fit`, as are `groups`, `time` and
            `unlabelled`.
        :param y: `N` classes, two or more: numbers, text or booleans.
        :param sample_weight: `N` weights of the rows from 0, of which only ratios matter. Probabilities are those of a
            population in which rows are as common as their weights. (Default: None, 1.)
        :raises ValueError: If the data or a parameter cannot be used, or there is one class only.
        :raises TypeError: If the kernel is of another kind, or X is sparse.
        """
        self._check_parameters()
        weights = None if sample_weight is None else checked_weights(sample_weight, _num_samples(y))
        # Rounded, so that the unit of the weights does not choose between equally good splits of trees.
        weights = None if weights is None else (weights / weights.max()).astype(np.float32).astype(np.float64)
        blocks = None if groups is None and time is None else Blocks.of(groups, time, _num_samples(y))
        given = counted_rows(X, y, weights)
        table, labels = self._read(given.X, given.y, reset=True)
        check_classification_targets(labels)
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        if (num_classes := len(self.classes_)) < 2:
            counted = "" if given.numbers is None else ", in the rows whose sample_weight is above 0"
            raise ValueError(f"expected two classes or more, got 1 class{counted}: {self.classes_.tolist()}")
        data = given._replace(X=table, y=numbers).without_copies(are_classes=True)
        numbers, row_weights, self._counted_rows = data.y, data.weights, data.numbers
        counts = np.bincount(numbers, None if row_weights is None else row_weights.values.numpy())
        indicators = torch.nn.functional.one_hot(torch.from_numpy(numbers)).double()
        indicators = indicators[:, 1:] if num_classes == 2 else indicators
        others = self._read_unlabelled(unlabelled)
        points = self._training_rows(data.X, others)
        x, more = points[: len(numbers)], None if others is None else points[len(numbers) :]
        blocks = data.blocks(blocks)
        new_x = x if is_ensemble(self.kernel) else as_new_rows(x, self._categories, blocks)
        self._has_view = needs_view(x, self._categories)
        setup = Setup(random_state_of(self.random_state), self.n_jobs, _OPTIONS)
        inputs = x, indicators, None, setup, self._categories, self._has_view, row_weights
        rows = PartInputs(*inputs, blocks=blocks, new_x=new_x, unlabelled=more)
        frequencies = torch.from_numpy(counts / counts.sum())
        told = f"fitting {len(numbers):,} rows"
        with verbosity(self.verbose), doing(told), recorded_stages() as self.seconds_, threads_for(len(numbers)):
            self._fit_rows(rows, numbers, frequencies)
        return self

    def _fit_rows(self, rows: PartInputs, numbers: np.ndarray, frequencies: Tensor) -> None:
        with stage("choosing weights and link"):
            chosen = self._chosen(rows, numbers, frequencies)
        if len(numbers) >= 2 * _MOST_CHOOSING_ROWS:
            with stage("rescaling"):
                chosen = self._rescaled(rows, chosen)
        self.log_loss_, self.link_ = chosen.log_loss, chosen.link
        with stage("building the model of all rows"):
            self._build_model(rows, chosen, is_last=True)
        with stage("solving for all classes"):
            self._solve(rows, chosen, 1.0)

    @on_one_fit
    def decision_function(self, X: Any) -> np.ndarray:
        """Return the log odds of the second of two classes (`N2`), or the log probabilities of all (`N2 x C`)."""
        found = self.predict_log_proba(X)
        return found[:, 1] - found[:, 0] if len(self.classes_) == 2 else found

    @on_one_fit
    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable class (`N2`) of each row (`N2 x D`); the first class in a tie, up to rounding."""
        found = self.predict_log_proba(X)
        return self.classes_[(found >= found.max(1, keepdims=True) - _ROUNDING).argmax(1)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probabilities of the classes (`N2 x C`), in the order of `classes_`, of rows (`N2 x D`)."""
        return np.exp(self.predict_log_proba(X))

    @on_one_fit
    @torch.no_grad()
    def predict_log_proba(self, X: Any) -> np.ndarray:
        """
        Return the log probabilities of the classes (`N2 x C`) of rows (`N2 x D`).

        :raises ValueError: If X cannot be used; with `"auto"`, if rows of an array miss values and none of `fit` did.
        """
        x = self._new_rows(X)
        self._warn_of_new_holes(x, self._train_x)
        if not checks.tends_to_frequencies(self.kernel_):
            names, codes = model_column_names(self), tuple(self._categories)
            self._range.warn_of_rows_outside(self._in_full(x), names, codes, _FREQUENCIES, self._told)
        blocks = self._complete(x).split(_ROWS_AT_ONCE)
        with settings.iterative(), threads_for(len(self._train_x)), verbosity(self.verbose):
            found = [self.link_.log_probabilities(self._excess(x)).numpy() for x in progress(blocks, "predicting rows")]
        return np.concatenate(found)

    @on_one_fit
    def summary(self) -> ClassSummary:
        """
        Return the parts of the kernel with their shares of the prior and of the explained variance, and the link.

        Costs a product with each part for the classes, at 5,000 rows at most.

        Example:
            >>> X = np.linspace(0, 1, 40)[:, None]
            >>> model = PartitionGPClassifier("mondrian", num_partitions=20, random_state=0).fit(X, X[:, 0] > 0.3)
            >>> model.summary().frequencies
            {False: 0.3, True: 0.7}
        """
        return class_summary(self, self._functions())

    @on_one_fit
    def importance(
        self, X: Any = None, y: Any = None, *, n_repeats: int = 5, random_state: Any = 0, n_jobs: int | None = None
    ) -> Importance:
        """
        Return the importance of each column, as :meth:`gpytorch_partition.estimators.PartitionGPRegressor.importance`.

        Importance by structure is that of the posterior means of all classes' indicators together, importance by
        permutation the rise of the log loss.

        Example:
            >>> X = np.random.RandomState(0).rand(200, 2)
            >>> model = PartitionGPClassifier("forest", num_partitions=50, random_state=0).fit(X, X[:, 1] > 0.4)
            >>> model.importance().order()
            array([1, 0])
        """
        options: dict[str, Any] = {"n_repeats": n_repeats, "random_state": random_state, "n_jobs": n_jobs}
        options |= {"scoring": "neg_log_loss", "measure": "rise of the log loss"}
        return importance(checks.telling_once(self), self._functions(), X, y, **options)

    @on_one_fit
    def partial_dependence(
        self, X: Any, column: int | str, *, grid: Any = None, grid_resolution: int = 30, target: Any = None
    ) -> PartialDependence:
        """
        Return the probability of a class by values of one column, averaged over the other columns of some rows.

        Parameters are those of :meth:`gpytorch_partition.estimators.PartitionGPRegressor.partial_dependence`. There are
        no intervals. Costs a prediction of all rows for each value of the grid.

        :param target: The class. (Default: None, the second of two.)

        Example:
            >>> X = np.random.RandomState(0).rand(200, 2)
            >>> model = PartitionGPClassifier("forest", num_partitions=50, random_state=0).fit(X, X[:, 1] > 0.4)
            >>> low, high = model.partial_dependence(X, 1, grid=[0.2, 0.8]).mean
            >>> bool(low < 0.1 and high > 0.9)
            True
        """
        check_is_fitted(self, "kernel_")
        number = number_of_class(target, self.classes_.tolist())
        rows, teller = rows_on_grid(self, X, column, grid, grid_resolution), checks.telling_once(self)
        means = np.array([teller.predict_proba(table)[:, number].mean() for table in rows.tables])
        called = f"probability of {self.classes_[number]}"
        return PartialDependence(rows.column, rows.grid, means, None, rows.values, called)

    @on_one_fit
    def nearest_rows(self, X: Any, k: int = 5) -> tuple[np.ndarray, np.ndarray]:
        """Return the training rows most similar to new ones, as `PartitionGPRegressor.nearest_rows` does."""
        points = self._complete(self._new_rows(X))
        return nearest_rows(self.kernel_, points, self._train_x, k, self._counted_rows)

    def _functions(self) -> KernelExpansion:
        """Return the functions of the indicators; parts are named as their weights, if each has one."""
        check_is_fitted(self, "kernel_")
        found, names = KernelExpansion(self.kernel_, self._train_x, self._weights), tuple(self.outputscales_)
        return replace(found, names=names) if len(names) == len(found.parts) > 1 else found

    def _check_parameters(self) -> None:
        checks.check_count(self.num_partitions, "num_partitions", most=MOST_PARTITIONS)
        checks.check_n_jobs(self.n_jobs)
        checks.check_verbose(self.verbose)
        if is_ensemble(self.kernel):
            check_has_trees(self.kernel)
            check_refittable(self.kernel)
        elif not isinstance(self.kernel, Kernel):
            kernel_parameter.check_name(self.kernel, kernel_parameter.NAMES)
        elif any(isinstance(module, ClusterKernel) and module.has_seen_targets for module in self.kernel.modules()):
            told = (
                "the kernel was built on targets: if these are the classes, probabilities will be too sure. Give a "
                f"function, which is called in each fold: kernel=lambda x, y: {type(self.kernel).__name__}(x, y)"
            )
            warnings.warn(told, OverconfidenceWarning, stacklevel=level_of_caller())

    def _complete(self, x: Tensor) -> Tensor:
        if kernel_parameter.name_of(self.kernel) != "auto" or self._has_view or not bool(x.isnan().any()):
            return x
        if self.encoder_ is not None:
            return torch.where(x.isnan(), self._train_x.median(0).values, x)
        remedy = 'impute them, fit to rows that miss some as well, or use kernel="forest"'
        raise ValueError(f"expected rows without missing values (NaN), as those of fit were: {remedy}")

    def _parts(self, rows: PartInputs, *, is_last: bool = False) -> dict[str, Kernel]:
        """Return kernels of unit scale by name; `is_last` keeps an ensemble that is fitted, for the last model."""
        if is_ensemble(self.kernel):
            labels, random = targets_of_ensemble(self.kernel, rows.y, self.classes_), rows.setup.random
            kernel = kernel_of_ensemble(self.kernel, rows.x, labels, random, grows=not is_last)
            kernel.sum_dtype = torch.float32
            return {"kernel": kernel}
        # Targets of supervised kernels: `N` zeros and ones for two classes, else `N x C`.
        targets = rows.y[:, 0] if rows.y.shape[1] == 1 else rows.y
        if kernel_parameter.name_of(self.kernel) == "auto":
            return class_parts(replace(rows, y=targets))
        options = {**rows.setup.growing, "categories": self._categories, "sample_weight": rows.tree_weights}
        kernel = resolved_kernel(self.kernel, rows.points, targets, num_partitions=self.num_partitions, **options)
        if isinstance(self.kernel, str) and isinstance(kernel, PartitionKernel):
            kernel.sum_dtype = torch.float32  # five times as fast; the noise is far above its rounding
        return {"kernel": kernel}

    def _chosen(self, rows: PartInputs, numbers: np.ndarray, frequencies: Tensor) -> ClassFit:
        most, random = len(numbers) if rows.blocks is None else _MOST_CHOOSING_ROWS, rows.setup.random
        order = random_rows(len(numbers), most, random, rows.blocks)
        order = order[np.argsort(numbers[order], kind="stable")]
        size = min(len(order), _MOST_CHOOSING_ROWS)
        if size < _FEWEST_ROWS:
            return ClassFit.usual(len(self._parts(rows)), frequencies, size)
        some = rows.of_rows(torch.from_numpy(order[np.linspace(0, len(order) - 1, size).round().astype(int)]))
        num_folds = _FOLDS_OF_FEW if size <= _FEW_ROWS else _FOLDS
        splits = _in_turns(size, num_folds) if some.blocks is None else folds(size, num_folds, random, some.blocks)
        found = [self._fold(some, split) for split in progress(splits, "folds")]
        return minimize_log_loss(found, some.y, frequencies, row_weights=_shares(some))

    def _fold(self, rows: PartInputs, split: Split) -> Fold:
        kept, held_out = map(torch.from_numpy, split)
        parts = self._parts(rows.of_rows(kept))
        with settings.iterative():
            return Fold.of(dense_covariances(parts.values(), rows.x_without(held_out)), kept, held_out)

    @torch.no_grad()
    def _rescaled(self, rows: PartInputs, chosen: ClassFit) -> ClassFit:
        random = rows.setup.random
        order = torch.from_numpy(random.permutation(len(rows.x))[:_MOST_RESCALING_ROWS])
        size = min(len(order) // 10, _MOST_HELD_OUT)
        held_out, kept = order[:size], order[size:]
        if rows.blocks is not None:
            split = folds(len(order), 10, random, rows.blocks.of_rows(order))[0]
            kept, held_out = order[split[0]], order[split[1][:_MOST_HELD_OUT]]
        learned, judging = rows.of_rows(kept), rows.of_rows(held_out)
        self._build_model(learned, chosen)
        best = chosen
        for factor in progress(_FACTORS, "scale of the weights"):
            self._solve(learned, chosen, 1 / factor)
            with settings.iterative():
                excess = self._excess(rows.x_without(held_out)[held_out])
            scaled = replace(chosen, outputscales=factor * chosen.outputscales)
            found = calibrated(scaled, excess, judging.y, _shares(judging))
            if best is not chosen and found.log_loss >= best.log_loss:
                break
            best = found
        return best

    def _build_model(self, rows: PartInputs, chosen: ClassFit, *, is_last: bool = False) -> None:
        parts = self._parts(rows, is_last=is_last)
        self.outputscales_, self._train_x = dict(zip(parts, chosen.outputscales.tolist())), rows.x
        self._range = checks.TrainingRange.of(self._in_full(rows.x))
        self.kernel_ = IterativeKernel(weighted_sum(parts, self.outputscales_)).requires_grad_(False).eval()

    @torch.no_grad()
    def _solve(self, rows: PartInputs, chosen: ClassFit, noise: float) -> None:
        centred = rows.y - chosen.link.frequencies[-rows.y.shape[1] :]
        with settings.iterative():
            variance, shares = torch.full((1,), noise, dtype=rows.x.dtype), _shares(rows)
            variance = variance if shares is None else variance / shares
            noisy = self._covariance(rows.x).add_diagonal(variance)
            self._weights, self._tables = noisy.solve(centred), EffectTables()

    def _covariance(self, x: Tensor) -> LinearOperator:
        return to_linear_operator(self.kernel_(x, self._train_x)).evaluate_kernel()

    def _excess(self, x: Tensor) -> Tensor:
        """Return the posterior means of the indicators less the classes' frequencies (`N2 x q`)."""
        terms = enumerate(structured_terms(self._covariance(x)))
        return reduce(add, [term.row_values(self._tables.of(place, term, self._weights)) for place, term in terms])


def _shares(rows: PartInputs) -> Tensor | None:
    """Return weights with a mean of 1 (`N`); None where all are 1."""
    return None if rows.weights is None else rows.weights.values / rows.weights.values.mean()


def _in_turns(num_rows: int, num_folds: int) -> list[Split]:
    """Return folds that hold out every `num_folds`-th row: stratified, as rows are sorted by class."""
    numbers = np.arange(num_rows)
    turns = [numbers % num_folds == number for number in range(num_folds)]
    return [(numbers[~is_held_out], numbers[is_held_out]) for is_held_out in turns]
