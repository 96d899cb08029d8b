"""Linear classifiers on the cells of Mondrian trees, with the width chosen by error: `MondrianClassifier`."""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from gpytorch_partition.all_or_nothing import all_or_nothing, on_one_fit
from gpytorch_partition.estimators.checks import check_count, check_positive, check_word
from gpytorch_partition.estimators.machines import class_indicators
from gpytorch_partition.estimators.reading import ReadsNumbers
from gpytorch_partition.inputs.numbers import MOST_PARTITIONS, random_state_of
from gpytorch_partition.inputs.standardization import Standardization
from gpytorch_partition.inputs.text_targets import composed
from gpytorch_partition.kernels.mondrian_kernels import MondrianKernel
from gpytorch_partition.lifetimes.lifetime_path import pad_weights
from gpytorch_partition.models.cluster_features import GrowingFeatures, one_hot
from gpytorch_partition.progress import progress

LOSSES = ("log_loss", "hinge")

# The lifetimes tried, in units of 1 / the median L1 distance of two rows.
_SHORTEST, _LONGEST = 0.25, 16.0
_FEWEST_ROWS = 20  # rows with which a width is chosen by error; with fewer it is _USUAL
_FEWEST_HELD_OUT = 2  # one row alone is right or wrong by chance
_USUAL = 4.0  # lifetime with fewer rows
_ROWS_AT_ONCE = 10_000  # rows whose features are held at a time


def _gives_probabilities(classifier: MondrianClassifier) -> bool:
    if classifier.loss == "log_loss":
        return True
    raise AttributeError(f'probabilities need loss="log_loss", got loss={classifier.loss!r}: use decision_function')


@dataclass(eq=False, repr=False)
class MondrianClassifier(ReadsNumbers, ClassifierMixin, BaseEstimator):
    r"""
    Classify rows by a linear machine on the sparse features of a Mondrian kernel, whose width is chosen by error.

    Use it above all where rows arrive in batches. It suits classes with boundaries along and across columns, and many
    rows; on dozens of columns of which few matter, supervised trees are better. For columns with heavy tails give ranks
    (:class:`sklearn.preprocessing.QuantileTransformer` in a pipeline).

    With many trees it is the kernel machine of the Laplace kernel :math:`\exp(-\lambda \lVert x - x' \rVert_1)` of
    standardized columns. The lifetime :math:`\lambda` minimizes the error of held-out rows, with one set of trees and a
    model for each lifetime (Balog et al. 2016, section 4). The best model is trained on all rows, and trained further
    as rows arrive (:meth:`partial_fit`, section 5).

    Fitting costs `num_lifetimes` times `epochs` passes over at most `max_choosing_rows` rows, and `epochs` over all,
    each :math:`O(N m C)` for C classes. Memory is 8 bytes per (row, tree) in :meth:`fit`, and per cell and class.

    :param num_trees: Number m of trees. (Default: 100.)
    :param loss: `"log_loss"` (logistic regression) or `"hinge"` (a support vector machine, without probabilities).
        (Default: `"log_loss"`.)
    :param alpha: Penalty of the squared weights, as in :class:`sklearn.linear_model.SGDClassifier`. (Default: 1e-4.)
    :param lifetime: The lifetime, in units of 1 / standard deviations of the columns. (Default: None, chosen.)
    :param num_lifetimes: Number of lifetimes tried, evenly in the logarithm, from a quarter to 16 over the median L1
        distance of two rows. (Default: 10.)
    :param validation_fraction: Share of the choosing rows that is held out, two rows at least. (Default: 0.2.)
    :param max_choosing_rows: Rows that the lifetime is chosen by, held-out ones included. (Default: 10,000.)
    :param epochs: Passes over the rows. (Default: 10.)
    :param random_state: Seed of trees, held-out rows and the order of rows, as in scikit-learn.

    Fitted attributes, beside those of scikit-learn: `lifetime_`; `lifetimes_` and `validation_errors_`, the lifetimes
    tried and their error rates on held-out rows (None if nothing was chosen); `kernel_`, `num_cells_`.

    Example:
        >>> random = np.random.RandomState(0)
        >>> X = random.rand(600, 2)
        >>> y = np.where((4 * X).astype(int).sum(1) % 2, "black", "white")  # a chessboard
        >>> model = MondrianClassifier(num_trees=50, random_state=0).fit(X[:400], y[:400])
        >>> before, cells = model.score(X[500:], y[500:]), model.num_cells_
        >>> bool(before > 0.75)
        True
        >>> _ = model.partial_fit(X[400:500], y[400:500])  # goes on; new rows open new cells
        >>> model.num_cells_ > cells
        True
    """

    num_trees: int = 100
    _: KW_ONLY
    loss: str = "log_loss"
    alpha: float = 1e-4
    lifetime: float | None = None
    num_lifetimes: int = 10
    validation_fraction: float = 0.2
    max_choosing_rows: int = 10_000
    epochs: int = 10
    random_state: int | np.random.RandomState | None = None

    @all_or_nothing
    def fit(self, X: Any, y: Any) -> MondrianClassifier:
        """
        Choose the lifetime by held-out rows, and train the classifier on all rows.

        :param X: `N x D` finite rows, or a table.
        :param y: `N` classes, two or more different ones.
        :raises ValueError: If the data or a parameter cannot be used.
        """
        self._check_parameters()
        X, y = self._read_numbers(X, y, reset=True)
        return self._begin(X, y, np.unique(y))

    @all_or_nothing
    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> MondrianClassifier:
        """
        Train on more rows: one pass over them, in a random order. New cells begin with the weight 0.

        A pass over each batch learns less than ten passes over all rows: give few rows repeatedly. The first call is a
        :meth:`fit`, if that was not called: give some hundred rows, similar to later ones.

        :param classes: In the first call, all classes to come. (Default: None, those in y.)
        :raises ValueError: If the data cannot be used, or y has a class that was not announced.
        """
        self._check_parameters()
        is_first = not hasattr(self, "features_")
        (X, y), classes = self._read_numbers(X, y, reset=is_first), composed(classes)
        if is_first:
            return self._begin(X, y, np.unique(y if classes is None else classes))
        if classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise ValueError(f"expected the classes of the first call, {self.classes_}, got {np.unique(classes)}")
        x, numbers = self._columns.apply_array(X), self._numbers(y)
        for name in ("features_", "_learner", "_random"):  # which training changes in place
            setattr(self, name, deepcopy(getattr(self, name)))
        self._train(self.features_, self._learner, x, numbers, 1)
        return self

    @on_one_fit
    def decision_function(self, X: Any) -> np.ndarray:
        """Return the logits or margins of the classes (`N x C`; `N`, those of the second class, if there are two)."""
        return np.concatenate([self._learner.decision_function(features) for features in self._features_of(X)])

    @on_one_fit
    def predict(self, X: Any) -> np.ndarray:
        """Return the classes (`N`) of rows (`N x D`)."""
        scores = self.decision_function(X)
        return self.classes_[scores.argmax(1) if scores.ndim == 2 else (scores > 0).astype(int)]

    @available_if(_gives_probabilities)
    @on_one_fit
    def predict_proba(self, X: Any) -> np.ndarray:
        """Return probabilities of the classes (`N x C`), for `loss="log_loss"`: one against the rest, normalized."""
        return np.concatenate([self._learner.predict_proba(features) for features in self._features_of(X)])

    @property
    def kernel_(self) -> MondrianKernel:
        """Return the kernel of standardized rows, with the lifetime that was chosen."""
        check_is_fitted(self, "features_")
        return self.features_.kernel

    @property
    def num_cells_(self) -> int:
        """Return the number of cells in which a row has fallen; each has a weight for each class."""
        check_is_fitted(self, "features_")
        return self.features_.num_columns

    def _begin(self, X: np.ndarray, y: np.ndarray, classes: np.ndarray) -> MondrianClassifier:
        check_classification_targets(y)
        if len(classes) < 2:
            raise ValueError(f"expected two classes or more, got {len(classes)} class")
        self._check_shares(len(y), len(np.unique(y)))
        self.classes_ = classes
        X = self._fit_view(X, class_indicators(self._numbers(y)))
        self._columns = Standardization.of_columns(X)
        self._random = np.random.RandomState(random_state_of(self.random_state).randint(2**31))
        x, numbers = self._columns.apply_array(X), self._numbers(y)
        kernel = self._new_kernel(x)
        self.lifetimes_: np.ndarray | None = None
        self.validation_errors_: np.ndarray | None = None
        if self.lifetime is None:
            kernel = kernel.cut(self._chosen_lifetime(kernel, x, numbers))
        self.lifetime_, self.features_ = kernel.lifetime, GrowingFeatures(kernel)
        self._learner = self._new_learner()
        self._train(self.features_, self._learner, x, numbers, self.epochs)
        return self

    def _check_shares(self, num_rows: int, num_classes: int) -> None:
        rows = min(num_rows, self.max_choosing_rows)
        held_out = math.ceil(self.validation_fraction * rows)
        is_split = self.lifetime is None and rows >= _FEWEST_ROWS
        if is_split and (held_out < _FEWEST_HELD_OUT or rows - held_out < num_classes):
            raise ValueError(
                f"expected a validation_fraction that leaves {num_classes} rows or more to train on and "
                f"{_FEWEST_HELD_OUT} rows or more to choose by, got {self.validation_fraction!r}, which makes "
                f"{rows - held_out} and {held_out} of {rows} rows"
            )

    def _new_kernel(self, x: Tensor) -> MondrianKernel:
        seed = self._random.randint(2**31)
        if self.lifetime is not None or bool((x == x[0]).all()):  # without distances there is no scale to go by
            lifetime = 1.0 if self.lifetime is None else self.lifetime
            return MondrianKernel(x, self.num_trees, lifetime=lifetime, random_state=seed)
        usual = MondrianKernel(x, 1, random_state=seed).lifetime
        return MondrianKernel(x, self.num_trees, max_lifetime=_LONGEST * usual, lifetime=usual, random_state=seed)

    def _chosen_lifetime(self, kernel: MondrianKernel, x: Tensor, numbers: np.ndarray) -> float:
        split = self._held_out_rows(numbers)
        if split is None:
            return min(_USUAL * kernel.lifetime, kernel.max_lifetime)
        train, held_out = split
        lifetimes = np.geomspace(_SHORTEST / _LONGEST, 1.0, self.num_lifetimes) * kernel.max_lifetime
        lifetimes[-1] = kernel.max_lifetime
        errors = []
        for lifetime in progress(lifetimes.tolist(), "lifetimes"):
            features, learner = GrowingFeatures(kernel.cut(lifetime)), self._new_learner()
            self._train(features, learner, x[train], numbers[train], self.epochs)
            errors.append(1 - learner.score(features.features(x[held_out]), numbers[held_out]))
        self.lifetimes_, self.validation_errors_ = lifetimes, np.array(errors)
        return float(lifetimes[np.argmin(errors)])

    def _held_out_rows(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        rows = self._random.permutation(len(numbers))[: self.max_choosing_rows]
        counts = np.bincount(numbers[rows])
        if len(rows) < _FEWEST_ROWS or counts[counts > 0].min() < 2 or (counts > 0).sum() < 2:
            return None
        options = {"test_size": self.validation_fraction, "random_state": self._random}
        try:
            train, held_out = train_test_split(rows, stratify=numbers[rows], **options)
        except ValueError:  # too few held-out rows for one of each class
            train, held_out = train_test_split(rows, **options)
        return (train, held_out) if len(np.unique(numbers[train])) > 1 else None

    def _new_learner(self) -> SGDClassifier:
        seed = self._random.randint(2**31)
        return SGDClassifier(self.loss, alpha=self.alpha, average=True, shuffle=False, random_state=seed)

    def _train(
        self, features: GrowingFeatures, learner: SGDClassifier, x: Tensor, numbers: np.ndarray, epochs: int
    ) -> None:
        columns = features.grow(x)
        if hasattr(learner, "coef_"):
            pad_weights(learner, features.num_columns)
        for _ in range(epochs):
            order = self._random.permutation(len(x))
            for rows in np.split(order, range(_ROWS_AT_ONCE, len(x), _ROWS_AT_ONCE)):
                block = one_hot(columns[rows], features.num_columns)
                try:
                    learner.partial_fit(block, numbers[rows], classes=np.arange(len(self.classes_)))
                except ValueError as error:
                    raise ValueError(
                        f"expected an alpha with which descent stays finite, got {self.alpha!r}: {error}"
                    ) from error

    def _features_of(self, X: Any) -> Any:
        check_is_fitted(self, "features_")
        x = self._columns.apply_array(self._read_numbers(X, reset=False))
        return map(self.features_.features, x.split(_ROWS_AT_ONCE))

    def _numbers(self, y: np.ndarray) -> np.ndarray:
        numbers = np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1)
        unknown = np.unique(y[self.classes_[numbers] != y])
        if len(unknown):
            raise ValueError(
                f"expected the classes {self.classes_}, got {unknown} too: name all classes in the first partial_fit"
            )
        return numbers

    def _check_parameters(self) -> None:
        check_word(self.loss, "loss", LOSSES)
        for name in ("num_trees", "num_lifetimes", "max_choosing_rows", "epochs"):
            check_count(getattr(self, name), name, most=MOST_PARTITIONS)
        check_positive(self.alpha, "alpha")
        check_positive(self.validation_fraction, "validation_fraction")
        if self.validation_fraction >= 1:
            raise ValueError(f"expected a validation_fraction between 0 and 1, got {self.validation_fraction!r}")
        if self.lifetime is not None:
            check_positive(self.lifetime, "lifetime")
