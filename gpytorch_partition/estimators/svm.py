"""Support vector machines with a partition kernel and the scikit-learn API: `PartitionSVC` and `PartitionSVR`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from itertools import combinations
from numbers import Real
from threading import Lock
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from joblib import Parallel, delayed
from scipy.sparse import csr_matrix, hstack, vstack
from sklearn.base import ClassifierMixin, RegressorMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC, SVR, LinearSVC, LinearSVR
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import _ovr_decision_function, check_classification_targets
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from gpytorch_partition.all_or_nothing import all_or_nothing, on_one_fit
from gpytorch_partition.callers import level_of_caller
from gpytorch_partition.estimators.checks import check_count, check_magnitudes, check_positive
from gpytorch_partition.estimators.kernel_parameter import KernelLike
from gpytorch_partition.estimators.machines import KernelMachine, class_indicators
from gpytorch_partition.inputs.numbers import random_state_of
from gpytorch_partition.models.cluster_features import ClusterFeatures
from gpytorch_partition.progress import doing

_ENTRIES = 2**26  # entries of features made at once in predictions: a GiB
_MOST_DENSE_ROWS = 5_000  # up to here libsvm on the dense kernel matrix is faster, above all for large C
_FOLDS = 5  # for held-out decision values, to which sigmoids are fitted
_UNFITTED = "expected a %(name)s that is fitted: call fit(X, y)"
_ROUNDS = 50  # of the search for the intercept, at most; mostly 3 to 5 are needed
_JUMP = 10.0  # longest step of the secant, in steps of the method without it; four times as long after each like it

# liblinear has one random generator in the process, without the interpreter's lock: descents at once would draw from
# each other's seeds. A child process that is forked meanwhile has a lock of its own.
_DESCENT = Lock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_DESCENT._at_fork_reinit)  # type: ignore[attr-defined]


class _Line(NamedTuple):
    coefficients: np.ndarray
    intercept: float
    num_passes: int
    dual: np.ndarray | None = None  # coefficient of each row; descent keeps none


class _Rows(NamedTuple):
    features: csr_matrix  # N x p
    gram: np.ndarray | None  # N x N products of features, the kernel; None for many rows

    def select(self, chosen: np.ndarray) -> _Rows:
        if len(chosen) == self.features.shape[0]:
            return self
        gram = None if self.gram is None else self.gram[np.ix_(chosen, chosen)]
        return _Rows(self.features[chosen], gram)


class _PartitionSVM(KernelMachine):
    C: float
    tol: float
    max_iter: int

    def _check_parameters(self) -> None:
        check_positive(self.C, "C")
        check_positive(self.tol, "tol")
        check_count(self.max_iter, "max_iter")

    @torch.no_grad()
    def _fit_features(self, rows: np.ndarray, targets: Tensor, unlabelled: np.ndarray | None) -> _Rows:
        x = self._build(rows, targets, unlabelled)
        self._features = ClusterFeatures(self.kernel_, x)
        features = self._features(x)
        self._entries_per_row = features.nnz // len(x) + 1
        is_small = len(x) <= _MOST_DENSE_ROWS
        return _Rows(features, self.kernel_(x).to_dense().double().numpy() if is_small else None)

    def _set(self, lines: list[_Line]) -> None:
        self._dual = None if lines[0].dual is None else np.stack([cast(np.ndarray, line.dual) for line in lines])
        self.coef_ = np.stack([line.coefficients for line in lines])
        self.intercept_ = np.array([line.intercept for line in lines])
        self.n_iter_ = np.array([line.num_passes for line in lines])

    @property
    def support_(self) -> np.ndarray:
        """Return the numbers of the `S` rows that are support vectors, up to 5,000 training rows."""
        return np.flatnonzero(self._known_dual.any(0))

    @property
    def dual_coef_(self) -> np.ndarray:
        """Return the coefficients of the support vectors (`1 x S`, or one row for each pair of classes)."""
        return self._known_dual[:, self.support_]

    @property
    def _known_dual(self) -> np.ndarray:
        check_is_fitted(self, "coef_", msg=_UNFITTED)
        if self._dual is None:
            raise AttributeError(
                f"expected {_MOST_DENSE_ROWS:,} training rows or fewer, whose solver knows dual coefficients, got "
                "more: use coef_ and intercept_, or fit to fewer rows"
            )
        return self._dual

    def _values(self, X: Any) -> np.ndarray:
        x = self._new_rows(X)
        size = max(1, _ENTRIES // self._entries_per_row)
        blocks = [self._features(part) @ self.coef_.T + self.intercept_ for part in x.split(size)]
        return np.concatenate(blocks)


def _gives_probabilities(machine: PartitionSVC) -> bool:
    """Return whether `probability` is set, and was in `fit`; raise the reason if not."""
    if not machine.probability:
        raise AttributeError("probabilities need probability=True, got False: use decision_function")
    if hasattr(machine, "kernel_") and not hasattr(machine, "_sigmoids"):
        raise AttributeError("probabilities need probability=True in fit, which had False: fit again")
    return True


@dataclass(eq=False, repr=False)
class PartitionSVC(ClassifierMixin, _PartitionSVM):
    r"""
    Classify rows by support vectors of a partition kernel, in time linear in the rows.

    Use it to separate classes by a margin; for probabilities there is PartitionGPClassifier.

    It agrees with `sklearn.svm.SVC(kernel="precomputed")` on the kernel matrix within that solver's tolerance. Up to
    5,000 rows libsvm runs on the matrix. Above, dual coordinate descent (liblinear; Hsieh et al. 2008) runs on the
    kernel's sparse features (:class:`~gpytorch_partition.models.ClusterFeatures`), some three to five times.

    For k > 2 classes there is a machine for each pair, as in `SVC`, and `decision_function` has a column per class.

    Descent takes tens to hundreds of passes over the rows' features, some 45 bytes each: m in a row for flat
    partitions, m times the depth of a leaf for the default forest. For many rows use flat partitions, such as
    `kernel=lambda x, y: RandomForestKernel(x, y, 100, "sampled")` or `"fast_cluster"`.

    :param C: Cost of a unit of hinge loss. Rows are not scaled by k(x, x), which is 1 for most kernels. (Default: 1.)
    :param kernel: `"forest"` (grown on indicators of the classes), `"fast_cluster"`, `"mondrian"`, or any form of
        :func:`~gpytorch_partition.estimators.kernel_parameter.resolved_kernel`; a function gets indicators, `N` zeros
        and ones, or `N x k`. (Default: `"forest"`.)
    :param num_partitions: As for :class:`~gpytorch_partition.estimators.PartitionKernelPCA`.
    :param random_state: Seed of the partitions, and of the order of rows in descent.
    :param class_weight: Positive factors of C by class, `"balanced"` or None, as in `SVC`. (Default: None.)
    :param probability: Whether to fit sigmoids for `predict_proba` (Platt) to decision values of held-out rows, in five
        more fits (:class:`sklearn.calibration.CalibratedClassifierCV`). (Default: False.)
    :param tol: Largest violation of the optimality conditions, as in `SVC`. (Default: 1e-3.)
    :param max_iter: Passes over the rows of one solve (steps of libsvm for each row), at most; too few give a
        `ConvergenceWarning`. (Default: 10,000.)
    :param n_jobs: Trees grown, or pairs of classes fitted, at once, as scikit-learn counts them. (Default: None, one.)

    Fitted attributes, beside those of scikit-learn: `coef_`, `intercept_`, the linear functions of the features (`1 x
    p` for two classes, positive for the second, or one for each pair of classes in the order of
    :func:`itertools.combinations`); `margin_`, the distances in feature space between their values 0 and 1; `n_iter_`,
    passes or steps for each of them; `kernel_`. Up to 5,000 rows `support_`, the numbers of the `S` support vectors,
    and `dual_coef_` (`1 x S`, or one row for each pair), by which a function is :math:`\sum_i a_i k(x, x_i) + b`.

    Example:
        >>> from sklearn.datasets import load_breast_cancer
        >>> X, y = load_breast_cancer(return_X_y=True)
        >>> machine = PartitionSVC(num_partitions=50, random_state=0).fit(X[::2], y[::2])
        >>> bool(machine.score(X[1::2], y[1::2]) > 0.9)
        True
    """

    C: float = 1.0
    kernel: KernelLike = "forest"
    num_partitions: int = 200
    _: KW_ONLY
    class_weight: dict[Any, float] | str | None = None
    probability: bool = False
    tol: float = 1e-3
    max_iter: int = 10_000
    random_state: int | np.random.RandomState | None = None
    n_jobs: int | None = None

    @property
    def margin_(self) -> np.ndarray:
        """Return the margin of each pair of classes, one over the length of its coefficients."""
        check_is_fitted(self, "coef_", msg=_UNFITTED)
        with np.errstate(divide="ignore"):
            return 1 / np.linalg.norm(self.coef_, axis=1)

    @all_or_nothing
    @doing("fitting a PartitionSVC")
    def fit(self, X: Any, y: Any, *, unlabelled: Any = None) -> PartitionSVC:
        """
        Build the kernel and find the largest margins.

        :param X: `N x D` rows, finite; `"forest"` takes NaN for a missing value.
        :param y: `N` classes, two or more.
        :param unlabelled: As for :meth:`gpytorch_partition.estimators.PartitionGPRegressor.fit`, without `probability`.
        :raises ValueError: If the data or a parameter cannot be used, or features would have 2^31 entries or more.
        :raises TypeError: If the kernel is of another kind, or X is sparse.
        """
        self._check_parameters()
        rows, labels = self._read(X, y, reset=True)
        check_classification_targets(labels)
        classes, numbers, counts = np.unique(labels, return_inverse=True, return_counts=True)
        if len(classes) < 2:
            raise ValueError(f"expected two classes or more, got {len(classes)} class: {classes.tolist()}")
        costs = self.C * compute_class_weight(self.class_weight, classes=classes, y=labels)
        if not np.all((costs > 0) & (costs < np.inf)):
            raise ValueError(f"expected class_weight to be positive, got {self.class_weight}: drop rows to leave out")
        others = self._read_unlabelled(unlabelled)
        if self.probability:
            if counts.min() < 2 or counts.max() < _FOLDS:
                raise ValueError(
                    f"expected two rows of each class or more, and {_FOLDS} of one, for folds, got "
                    f"{dict(zip(classes.tolist(), counts.tolist()))}: give more rows, or probability=False"
                )
            if others is not None:
                raise ValueError(
                    f"expected no rows with probability=True, whose folds do not know them, got {len(others)}: give "
                    "probability=False, or use PartitionGPClassifier"
                )
            return self._fit_with_sigmoids(X, labels)
        self.classes_ = classes
        seen = self._fit_features(rows, class_indicators(numbers), others)
        seed = random_state_of(self.random_state).randint(2**31)
        pairs = combinations(range(len(self.classes_)), 2)
        lines = Parallel(n_jobs=self.n_jobs, prefer="threads")(
            delayed(self._separated)(seen, numbers, costs, pair, seed) for pair in pairs
        )
        self._set(lines)
        return self

    def _separated(
        self, seen: _Rows, numbers: np.ndarray, costs: np.ndarray, pair: tuple[int, int], seed: int
    ) -> _Line:
        chosen = np.flatnonzero(np.isin(numbers, pair))
        signs = np.where(numbers[chosen] == pair[1], 1.0, -1.0)
        line = _classifying_line(seen.select(chosen), signs, costs[numbers[chosen]], self.tol, self.max_iter, seed)
        if line.dual is not None:
            dual = np.zeros(len(numbers))
            dual[chosen] = line.dual
            line = line._replace(dual=dual)
        return line

    def _fit_with_sigmoids(self, X: Any, labels: np.ndarray) -> PartitionSVC:
        plain = clone(self).set_params(probability=False)
        (calibrated,) = CalibratedClassifierCV(plain, cv=_FOLDS, ensemble=False).fit(X, labels).calibrated_classifiers_
        learned = vars(calibrated.estimator).items()
        self.__dict__.update({name: value for name, value in learned if name not in self.get_params()})
        self._sigmoids = calibrated.calibrators
        return self

    @on_one_fit
    def decision_function(self, X: Any) -> np.ndarray:
        """Return margins of rows (`N2`, positive for the second class), or votes and confidences (`N2 x k`, k > 2)."""
        values = self._values(X)
        if len(self.classes_) == 2:
            return values[:, 0]
        return _ovr_decision_function(values > 0, values, len(self.classes_))

    @on_one_fit
    def predict(self, X: Any) -> np.ndarray:
        """Return the classes (`N2`) of rows (`N2 x D`) with the largest :meth:`decision_function`."""
        values = self.decision_function(X)
        return self.classes_[(values > 0).astype(int) if values.ndim == 1 else values.argmax(1)]

    @available_if(_gives_probabilities)
    @on_one_fit
    def predict_proba(self, X: Any) -> np.ndarray:
        """Return probabilities of the classes (`N2 x k`); the most probable one may differ from that of `predict`."""
        values = self.decision_function(X)
        columns = values[:, None] if values.ndim == 1 else values
        found = np.column_stack([sigmoid.predict(column) for sigmoid, column in zip(self._sigmoids, columns.T)])
        if found.shape[1] == 1:
            return np.column_stack([1 - found, found])
        total = found.sum(1, keepdims=True)
        return np.where(total > 0, found / np.where(total > 0, total, 1.0), 1 / found.shape[1])


@dataclass(eq=False, repr=False)
class PartitionSVR(RegressorMixin, _PartitionSVM):
    """
    Predict means by support vectors of a partition kernel, in time linear in the rows.

    Use it for a mean that ignores small errors; for intervals there is PartitionGPRegressor.

    It solves the problem of :class:`sklearn.svm.SVR`, epsilon-insensitive loss and an intercept that is not penalized.
    Other parameters, the method and costs, and attributes (but the margin, which only classes have) are those of
    :class:`PartitionSVC`. Targets keep their units: choose C and epsilon for them, as for `SVR`.

    :param C: Cost of a unit of loss. (Default: 1.)
    :param epsilon: Errors up to it cost nothing, in units of the targets. (Default: 0.1.)
    :param tol: Largest violation of the optimality conditions, relative to the targets' standard deviation where there
        are more than 5,000 rows. (Default: 1e-3.)

    Example:
        >>> from sklearn.datasets import load_diabetes
        >>> X, y = load_diabetes(return_X_y=True)
        >>> machine = PartitionSVR(C=100.0, num_partitions=50, random_state=0).fit(X[:300], y[:300])
        >>> bool(machine.score(X[300:], y[300:]) > 0.4)
        True
    """

    C: float = 1.0
    epsilon: float = 0.1
    kernel: KernelLike = "forest"
    num_partitions: int = 200
    _: KW_ONLY
    tol: float = 1e-3
    max_iter: int = 10_000
    random_state: int | np.random.RandomState | None = None
    n_jobs: int | None = None

    @all_or_nothing
    @doing("fitting a PartitionSVR")
    def fit(self, X: Any, y: Any, *, unlabelled: Any = None) -> PartitionSVR:
        """
        Find the flattest function within epsilon of most targets.

        :param X: `N x D` rows; they, `unlabelled`, and errors are those of :meth:`PartitionSVC.fit`.
        :param y: `N` targets.
        """
        self._check_parameters()
        if not isinstance(self.epsilon, Real) or not 0 <= float(self.epsilon) < np.inf:
            raise ValueError(f"expected epsilon to be 0 or a positive number, got {self.epsilon!r}")
        rows, targets = self._read(X, y, reset=True, y_numeric=True)
        targets = targets.astype(np.float64)
        check_magnitudes(targets, "y")
        seen = self._fit_features(rows, torch.from_numpy(targets), self._read_unlabelled(unlabelled))
        seed = random_state_of(self.random_state).randint(2**31)
        line = _regression_line(seen, targets, self.C, self.epsilon, self.tol, self.max_iter, seed)
        self._set([line])
        return self

    @on_one_fit
    def predict(self, X: Any) -> np.ndarray:
        """Return the values of the function (`N2`) at rows (`N2 x D`), in units of the targets."""
        return self._values(X)[:, 0]


def _classifying_line(seen: _Rows, signs: np.ndarray, costs: np.ndarray, tol: float, max_iter: int, seed: int) -> _Line:
    """Minimize half the squared length of the coefficients plus the rows' costs (`N`) times their hinge losses."""
    features = seen.features
    if seen.gram is not None:
        machine = _dual(SVC, len(signs), max_iter, seed, C=1.0, tol=tol)
        return _line_of_dual(features, machine.fit(seen.gram, signs, costs))
    bias = _typical_length(features)
    # A last row of the bias alone, which is always on the wrong side: its loss is linear, and draws b to the center.
    last = csr_matrix(([1.0], ([0], [features.shape[1]])), shape=(1, features.shape[1] + 1))
    rows, signs = vstack([_with_column(features, bias), last], format="csr"), np.append(signs, 1.0)

    def around(center: float, rough: float) -> _Line:
        reach = 10 * (1 + abs(center))
        rows.data[-1] = np.copysign(bias / reach, center)
        weights = np.append(costs, reach * abs(center) / bias**2)
        machine = LinearSVC(loss="hinge", C=1.0, fit_intercept=False, tol=rough, max_iter=max_iter, random_state=seed)
        with _DESCENT:
            machine.fit(rows, signs, weights)
        return _Line(machine.coef_[0, :-1], bias * machine.coef_[0, -1], int(machine.n_iter_))

    return _with_free_intercept(around, 0.0, tol, 1.0, bias**2 * float(costs.sum()))


def _regression_line(
    seen: _Rows, targets: np.ndarray, C: float, epsilon: float, tol: float, max_iter: int, seed: int
) -> _Line:
    """Minimize half the squared length of the coefficients plus C times the epsilon-insensitive losses."""
    features = seen.features
    if seen.gram is not None:
        machine = _dual(SVR, len(targets), max_iter, seed, C=C, epsilon=epsilon, tol=tol)
        return _line_of_dual(features, machine.fit(seen.gram, targets))
    bias, unit = _typical_length(features), float(targets.std()) or 1.0
    rows = _with_column(features, bias)

    def around(center: float, rough: float) -> _Line:
        # Its tolerance is that of the sum of all violations, relative to the sum at the start.
        options = {"tol": 0.1 * rough, "max_iter": max_iter, "random_state": seed}
        machine = LinearSVR(C=C, epsilon=epsilon, fit_intercept=False, **options)
        with _DESCENT:
            machine.fit(rows, targets - center)
        return _Line(machine.coef_[:-1], center + bias * machine.coef_[-1], int(machine.n_iter_))

    largest_shift = bias**2 * C * len(targets)
    return _with_free_intercept(around, float(np.median(targets)), tol, unit, largest_shift)


def _with_free_intercept(
    around: Callable[[float, float], _Line], start: float, tol: float, unit: float, largest_shift: float
) -> _Line:
    """
    Remove the penalty of the intercept by the proximal point method (Rockafellar 1976), within tol units.

    The penalty is :math:`(b - c)^2 / 2 B^2` for a center c. At the minimum the derivative of the rest is :math:`(c - b)
    / B^2`, whose root lies beyond b: the center moves to where the secant through two of these is zero, within what is
    known of the root. The largest shift bounds b - c.
    """
    center, before, num_passes, low, high, jump = start, None, 0, -np.inf, np.inf, _JUMP
    for number in range(1, _ROUNDS + 1):
        rough = max(tol, 0.1**number)
        line = around(center, rough)
        shift, num_passes = line.intercept - center, num_passes + line.num_passes
        if rough == tol:
            low, high = (line.intercept, high) if shift > 0 else (low, line.intercept)
            if abs(shift) <= tol * min(unit, largest_shift) or high - low <= tol * unit:
                return line._replace(num_passes=num_passes)
        jump = 4 * jump if before is not None and before[1] * shift > 0 else _JUMP
        step = jump * shift
        if before is not None and (fall := (before[1] - shift) * (line.intercept - before[0])) > 0:
            step = float(np.clip(shift * (line.intercept - before[0]) ** 2 / fall, -abs(step), abs(step)))
        before, center = (line.intercept, shift), line.intercept + step
        if np.isfinite(high - low) and not low < center < high:
            center = (low + high) / 2
    message = f"the intercept has not converged in {_ROUNDS} solves: raise C, which is tiny, or tol"
    warnings.warn(message, ConvergenceWarning, stacklevel=level_of_caller())
    return line._replace(num_passes=num_passes)


def _dual(kind: type, num_rows: int, max_iter: int, seed: int, **parameters: Any) -> Any:
    """Return a machine of libsvm; its iterations are limited, as a cost of 1e300 would need endless ones."""
    machine = kind(kernel="precomputed", max_iter=min(max_iter * num_rows, 2**31 - 1), **parameters)
    machine.random_state = seed  # no parameter of SVR, but where it is None NumPy's global random state is drawn from
    return machine


def _line_of_dual(features: csr_matrix, machine: SVC | SVR) -> _Line:
    dual = np.zeros(features.shape[0])
    dual[machine.support_] = machine.dual_coef_[0]
    return _Line(dual @ features, float(machine.intercept_[0]), int(np.max(machine.n_iter_)), dual)


def _typical_length(features: csr_matrix) -> float:
    """Return the root mean square of the rows' lengths: a bias of this size is as easy to learn as the features."""
    return float(np.sqrt(np.mean(np.square(features.data)) * features.nnz / features.shape[0])) or 1.0


def _with_column(features: csr_matrix, value: float) -> csr_matrix:
    return hstack([features, csr_matrix(np.full((features.shape[0], 1), value))], format="csr")
