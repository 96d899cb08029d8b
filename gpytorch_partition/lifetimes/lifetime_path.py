"""
Linear models, such as an SVM, on the features of a Mondrian kernel, trained over increasing lifetimes with warm starts.

As the lifetime grows, cells are only cut into parts. A part inherits the weight of its cell, so predictions do not
change, and descent continues from there (Balog et al. 2016, section 4.2.2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Integral
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_matrix
from sklearn.base import clone, is_classifier
from torch import Tensor

from gpytorch_partition.inputs.numbers import random_state_of
from gpytorch_partition.kernels.mondrian_kernels import MondrianKernel
from gpytorch_partition.models.cluster_features import cluster_columns, one_hot
from gpytorch_partition.progress import progress

# Columns of the entries of features (N x m, -1 for none), and how many columns there are.
Columns = tuple[np.ndarray, int]


@dataclass(frozen=True, eq=False)
class LifetimeCells:
    """
    Hold the feature columns of one lifetime: its cells with training rows, then the columns of the previous lifetime.

    A part of a cell without training rows has no column of its own. Points in it keep the column of the whole cell,
    whose weight no training row changes any more, so that their predictions are those before the cut.
    """

    full_kernel: MondrianKernel
    lifetime: float
    train_x: Tensor
    previous: LifetimeCells | None = None

    @cached_property
    def kernel(self) -> MondrianKernel:
        return self.full_kernel.cut(self.lifetime)

    def features(self, x: Tensor) -> csr_matrix:
        """Return features of points (`N2 x p`): one per tree and row, none for unseen cells of the first lifetime."""
        return one_hot(*self.columns(x))

    def columns(self, x: Tensor, before: Columns | None = None) -> Columns:
        """Return columns of features (`N2 x m`, -1 for none) and their number, given those of the lifetime before."""
        columns, num_columns = cluster_columns(self.kernel, x, self.train_x)
        if self.previous is None:
            return columns, num_columns
        unseen = (columns < 0).any(1)
        # Called even if no row is unseen, for the number of columns.
        earlier, num_earlier = self.previous.columns(x[torch.from_numpy(unseen)]) if before is None else before
        earlier = np.where(earlier >= 0, earlier + num_columns, -1)
        earlier = earlier if before is None else earlier[unseen]
        columns[unseen] = np.where(columns[unseen] >= 0, columns[unseen], earlier)
        return columns, num_columns + num_earlier


@dataclass(frozen=True, eq=False)
class LifetimeModel:
    """
    Hold the linear model of one lifetime: its cells, the fitted estimator, and its score on validation rows, or None.

    Use it to predict at one lifetime: a :class:`LifetimePath` has one for each, and says which is the best.
    """

    cells: LifetimeCells = field(repr=False)
    estimator: Any
    score: float | None

    @property
    def lifetime(self) -> float:
        return self.cells.lifetime

    def features(self, x: Tensor) -> csr_matrix:
        """Return the features (`N2 x p`) of points (`N2 x D`) for the estimator."""
        return self.cells.features(x)

    def predict(self, x: Tensor) -> np.ndarray:
        """Return predictions (`N2`) at points; the estimator's other methods take :meth:`features`."""
        return self.estimator.predict(self.features(x))


@dataclass(frozen=True, eq=False)
class LifetimePath:
    """
    Hold the models of increasing lifetimes.

    Use it when the width of a machine is to be chosen by its error; :func:`fit_along_lifetimes` makes it.
    """

    models: tuple[LifetimeModel, ...]

    @property
    def lifetimes(self) -> np.ndarray:
        return np.array([model.lifetime for model in self.models])

    @property
    def scores(self) -> np.ndarray:
        """Return the scores on the validation rows: shares of correct classes, or R squared; an error without rows."""
        if any(model.score is None for model in self.models):
            raise RuntimeError("expected models with scores: give fit_along_lifetimes validation=(x, y)")
        return np.array([model.score for model in self.models])

    @property
    def best(self) -> LifetimeModel:
        """Return the model of the largest score; among equal scores, the one of the shortest lifetime."""
        return self.models[int(np.argmax(self.scores))]


def fit_along_lifetimes(
    kernel: MondrianKernel,
    estimator: Any,
    x: Tensor,
    y: Any,
    lifetimes: Iterable[float],
    *,
    epochs: int = 5,
    validation: tuple[Tensor, Any] | None = None,
    random_state: int | np.random.RandomState | None = None,
) -> LifetimePath:
    """
    Train linear models on the cells of the same trees at increasing lifetimes, each from the weights of the last.

    Call it to choose, by error on held-out rows, the width of a machine that has no marginal likelihood, such as a
    support vector machine. For a Gaussian process there is :func:`lifetime_sweep`.

    Each cell begins with the weight of the earlier cell that contains it (Balog et al. 2016, section 4.2.2); `epochs`
    passes over the rows follow, each in a new random order.

    Feature vectors have length 1 at every lifetime, so one penalty and one learning rate serve all. Standardize the
    targets of a regression; with scikit-learn's default learning rate a regression takes many epochs.

    :param kernel: The kernel with the trees, whose `max_lifetime` is at least the longest lifetime.
    :param estimator: A linear model of scikit-learn with `partial_fit`, such as
        :class:`sklearn.linear_model.SGDClassifier` (by default a support vector machine) or
        :class:`sklearn.linear_model.SGDRegressor`. It is cloned.
    :param x: `N x D` training rows.
    :param y: `N` targets or class labels, an array or a tensor.
    :param lifetimes: In units of 1/x, positive and increasing, up to the kernel's `max_lifetime`.
    :param epochs: Passes over the rows at each lifetime. (Default: 5.)
    :param validation: Rows and targets to compute scores on. (Default: None, no scores.)
    :param random_state: Seed of the orders of rows, as in :class:`~gpytorch_partition.PartitionKernel`.
    :raises TypeError: If the kernel has no lifetimes, or the estimator no `partial_fit`.
    :raises ValueError: If lifetimes, rows, targets or a number cannot be used.

    Example:
        >>> from sklearn.linear_model import SGDClassifier
        >>> x = torch.rand(500, 2, generator=torch.Generator().manual_seed(0))
        >>> y = ((4 * x).floor().sum(-1) % 2).long()  # a chessboard
        >>> kernel = MondrianKernel(x, num_trees=50, lifetime=16.0, random_state=0)
        >>> path = fit_along_lifetimes(
        ...     kernel, SGDClassifier(), x[:400], y[:400], [1, 4, 16], validation=(x[400:], y[400:]), random_state=0
        ... )
        >>> [model.lifetime for model in path.models], bool(path.scores[0] < 0.7), bool(path.scores[-1] > 0.8)
        ([1.0, 4.0, 16.0], True, True)
        >>> path.best.predict(torch.tensor([[0.1, 0.1], [0.1, 0.4]]))
        array([0, 1])
    """
    lifetimes = _checked_lifetimes(kernel, x, lifetimes)
    _check_training(estimator, epochs)
    y = _checked_targets(x, y, "x")
    if validation is not None:
        kernel.partition.check_points(kernel.columns.select(validation[0]))
        validation = validation[0], _checked_targets(*validation, "validation rows")
    random, learner = random_state_of(random_state), _unfitted_copy(estimator)
    models: list[LifetimeModel] = []
    cells: LifetimeCells | None = None
    before: csr_matrix | None = None
    held_out: Columns | None = None
    for lifetime in progress(lifetimes, "lifetimes"):
        cells = LifetimeCells(kernel, lifetime, x, cells)
        features = cells.features(x)
        if before is not None:
            inherit_weights(learner, before, features)
        _train(learner, features, y, epochs, random)
        score = None
        if validation is not None:
            held_out = cells.columns(validation[0], held_out)
            score = float(learner.score(one_hot(*held_out), validation[1]))
        models.append(LifetimeModel(cells, deepcopy(learner), score))
        before = features
    return LifetimePath(tuple(models))


def inherit_weights(estimator: Any, features: csr_matrix, later_features: csr_matrix) -> None:
    """Give each later cell the weight of the earlier cell that contains it, located by any of its training rows."""
    num_new = later_features.shape[1] - features.shape[1]
    parent = np.concatenate([np.empty(num_new, dtype=np.int64), np.arange(features.shape[1])])
    parent[later_features.indices] = features.indices
    _replace_weights(estimator, lambda weights: np.take(weights, parent, axis=-1), len(parent))


def pad_weights(estimator: Any, num_columns: int) -> None:
    """Give new, last columns the weight 0, which changes no prediction (Balog et al. 2016, section 5)."""

    def padded(weights: np.ndarray) -> np.ndarray:
        missing = num_columns - weights.shape[-1]
        return np.pad(weights, [(0, 0)] * (weights.ndim - 1) + [(0, missing)])

    _replace_weights(estimator, padded, num_columns)


def _replace_weights(estimator: Any, replaced: Callable[[np.ndarray], np.ndarray], num_columns: int) -> None:
    for name, value in list(vars(estimator).items()):
        if "coef" in name and isinstance(value, np.ndarray):
            setattr(estimator, name, replaced(value))
    estimator.n_features_in_ = num_columns


def _unfitted_copy(estimator: Any) -> Any:
    """A copy that does not shuffle rows and draws nothing from NumPy's global random state."""
    copied = clone(estimator)
    ours = {"shuffle": False, "random_state": 0}
    return copied.set_params(**{name: value for name, value in ours.items() if name in copied.get_params(deep=False)})


def _train(estimator: Any, features: csr_matrix, y: np.ndarray, epochs: int, random: np.random.RandomState) -> None:
    options = {"classes": np.unique(y)} if is_classifier(estimator) else {}
    for _ in range(epochs):
        order = random.permutation(len(y))
        estimator.partial_fit(features[order], y[order], **options)


def _checked_lifetimes(kernel: Any, x: Tensor, given: Any) -> list[float]:
    try:
        lifetimes = [float(lifetime) for lifetime in given]
    except (TypeError, ValueError):
        raise ValueError(f"expected lifetimes as several numbers, got {given!r}") from None
    if not isinstance(kernel, MondrianKernel):
        raise TypeError(f"expected a MondrianKernel, whose trees have lifetimes, got a {type(kernel).__name__}")
    kernel.partition.check_points(kernel.columns.select(x))
    rising = all(a < b for a, b in zip([0.0, *lifetimes], lifetimes))
    if not lifetimes or not rising or lifetimes[-1] > kernel.max_lifetime:
        raise ValueError(
            f"expected lifetimes that are positive, increasing and at most {kernel.max_lifetime:g}, the kernel's "
            f"max_lifetime, got {lifetimes}: sort them, or give the kernel a longer max_lifetime"
        )
    return lifetimes


def _check_training(estimator: Any, epochs: int) -> None:
    if not hasattr(estimator, "partial_fit"):
        raise TypeError(
            "expected an estimator with partial_fit, such as scikit-learn's SGDClassifier or SGDRegressor, got a "
            f"{type(estimator).__name__}"
        )
    if not isinstance(epochs, Integral) or epochs < 1:
        raise ValueError(f"expected epochs, passes over the rows, as a whole number, 1 or more, got {epochs!r}")


def _checked_targets(x: Tensor, y: Any, name: str) -> np.ndarray:
    if x.dim() != 2:
        raise ValueError(f"expected {name} as a matrix (N x D), got shape {tuple(x.shape)}")
    targets = y.detach().cpu().numpy() if torch.is_tensor(y) else np.asarray(y)
    if targets.shape != (len(x),):
        raise ValueError(f"expected one target for each of the {len(x)} {name}, got targets of shape {targets.shape}")
    return targets
