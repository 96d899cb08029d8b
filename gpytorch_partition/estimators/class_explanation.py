"""What a fitted classifier says of itself: summary, importance of columns, rows like new ones."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from gpytorch_partition.descriptions import counted
from gpytorch_partition.estimators.explanation import NamesColumns, shown_kernel
from gpytorch_partition.explain.dependence import PartialDependence, table_of, tables_on_grid
from gpytorch_partition.explain.importance import Importance, column_shares
from gpytorch_partition.explain.kernel_parts import Expansion, covariance_shares, kernel_parts
from gpytorch_partition.explain.nearest_rows import nearest_rows
from gpytorch_partition.explain.permutation import permutations
from gpytorch_partition.explain.summary import (
    PartSummary,
    described,
    facts_of_parts,
    some_of,
    summary_html,
    summary_text,
)
from gpytorch_partition.inputs.counts import checked_count
from gpytorch_partition.inputs.missing import encode_missing
from gpytorch_partition.settings import iterative

_MOST_CLASSES = 8  # whose frequencies are shown


@dataclass(frozen=True)
class ClassSummary:
    """
    What a fitted :class:`~gpytorch_partition.estimators.PartitionGPClassifier` consists of; readable when printed.

    :param title: The estimator.
    :param num_rows: Number N of training rows.
    :param num_columns: Number of columns that were given.
    :param parts: The parts of the kernel. Shares are those of the variance over the training rows: what the prior
        expects, and that of the posterior means of the indicators of all classes together.
    :param frequencies: The share of each class among the training rows, as they weigh.
    :param log_loss: Mean log loss of held-out rows, in nats; infinite where none chose.
    :param width: Of the link that makes probabilities of means, which is the identity where it is narrow.
    :param power: Of the link: above 1, probabilities are farther from the frequencies than the means are.
    :param seconds: Seconds of the stages of the fit, by name.
    :param constant_columns: Names of columns that are the same in all training rows, or empty.
    """

    title: str
    num_rows: int
    num_columns: int
    parts: tuple[PartSummary, ...]
    frequencies: dict[Any, float]
    log_loss: float
    width: float
    power: float
    seconds: dict[str, float]
    constant_columns: tuple[str, ...] = ()

    def facts(self) -> dict[str, str]:
        """What there is to say beside the parts, by what it is about."""
        shown = sorted(self.frequencies.items(), key=lambda item: -item[1])
        told = ", ".join(f"{name} {100 * share:.1f} %" for name, share in shown[:_MOST_CLASSES])
        more = f", ... {len(shown) - _MOST_CLASSES} rarer" if len(shown) > _MOST_CLASSES else ""
        usual = -sum(share * math.log(share) for share in self.frequencies.values() if share > 0)
        found = {"classes": told + more}
        if math.isfinite(self.log_loss):
            found["held out"] = f"log loss {self.log_loss:.3f} nats a row (of the classes' shares alone: {usual:.3f})"
        found["link"] = f"width {self.width:.3g}, power {self.power:.3g}"
        found |= facts_of_parts(self.parts, self.constant_columns)
        if self.seconds:
            found["seconds"] = ", ".join(f"{name} {seconds:.1f}" for name, seconds in self.seconds.items())
        return found

    @property
    def _size(self) -> str:
        return f"{counted(self.num_rows, 'row')}, {counted(self.num_columns, 'column')}"

    def __str__(self) -> str:
        return summary_text(f"{self.title}: {self._size}", self.parts, self.facts())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """A table of the parts and one of the facts, for notebooks."""
        return summary_html(f"Fitted to {self._size}", self.parts, self.facts())


class ClassExplanation(NamesColumns):
    """Methods of a fitted :class:`~gpytorch_partition.estimators.PartitionGPClassifier` that explain its model."""

    kernel: Any
    kernel_: Kernel
    classes_: np.ndarray
    link_: Any
    log_loss_: float
    outputscales_: dict[str, float]
    seconds_: dict[str, float]
    _constant_columns: tuple[str, ...]
    _counted_rows: np.ndarray | None = None  # numbers of the rows that count; None for all
    _train_x: Tensor
    _weights: Tensor
    _telling_once: Any  # of ToldOfRange

    @torch.no_grad()
    def summary(self) -> ClassSummary:
        """
        What the model consists of: the parts of its kernel with their shares of the prior and of what is explained, the
        classes, the log loss of held-out rows, and seconds of the fit's stages.

        Costs a product with each part for the classes, at 5,000 rows at most.

        :return: The numbers, readable when printed, and a table in notebooks.
        :raises sklearn.exceptions.NotFittedError: Before `fit`.

        Example:
            >>> from gpytorch_partition.estimators import PartitionGPClassifier
            >>> X = np.linspace(0, 1, 40)[:, None]
            >>> model = PartitionGPClassifier("mondrian", num_partitions=20, random_state=0).fit(X, X[:, 0] > 0.3)
            >>> model.summary().frequencies
            {False: 0.3, True: 0.7}
        """
        check_is_fitted(self, "kernel_")
        x, some, parts = self._train_x, some_of(self._train_x), kernel_parts(self.kernel_)
        with iterative():
            priors = [part.prior_variance(some) for part in parts]
            means = torch.stack([torch.stack([part.mean(some, x, own) for part in parts]) for own in self._weights.mT])
        # Rows of all classes one after another, each centred: shares are those of their common variance.
        centred = (means - means.mean(-1, keepdim=True)).transpose(0, 1).flatten(1)
        shares = (round(float(share), 12) for share in self.link_.frequencies)
        return ClassSummary(
            title=f"{type(self).__name__} with kernel={shown_kernel(self.kernel)}",
            num_rows=len(x),
            num_columns=self.n_features_in_,
            parts=described(
                parts, self._part_names(), priors, covariance_shares(centred), self._model_column_names(), some
            ),
            frequencies=dict(zip(self.classes_.tolist(), shares)),
            log_loss=self.log_loss_,
            width=float(self.link_.width),
            power=float(self.link_.power),
            seconds=self.seconds_,
            constant_columns=self._constant_columns,
        )

    def importance(
        self, X: Any = None, y: Any = None, *, n_repeats: int = 5, random_state: Any = 0, n_jobs: int | None = None
    ) -> Importance:
        """
        Which columns matter, by the structure of the model's parts, and by permutation as a check.

        By structure it is how much of the variance of the posterior means of the classes' indicators over the training
        rows each column explains, of all classes together
        (:func:`gpytorch_partition.explain.importance.column_shares`). By permutation it is how much the log loss
        rises where a column's values are exchanged between rows (:func:`sklearn.inspection.permutation_importance`).

        :param X: `N x D` rows for the check, best those that the model has not seen. (Default: no check.)
        :param y: Their `N` classes.
        :param n_repeats: How often each column is permuted. (Default: 5.)
        :param random_state: Seed of the permutations. (Default: 0.)
        :param n_jobs: Columns permuted at once, as joblib counts them. (Default: None, one.)
        :return: The numbers, readable when printed; `plot()` draws them.
        :raises ValueError: If only one of X and y is given, they cannot be used, or `n_repeats` is no number from 1.
        :raises sklearn.exceptions.NotFittedError: Before `fit`.

        Example:
            >>> from gpytorch_partition.estimators import PartitionGPClassifier
            >>> X = np.random.RandomState(0).rand(200, 2)
            >>> model = PartitionGPClassifier("forest", num_partitions=50, random_state=0).fit(X, X[:, 1] > 0.4)
            >>> model.importance().order()
            array([1, 0])
        """
        check_is_fitted(self, "kernel_")
        if (X is None) != (y is None):
            raise ValueError("expected both rows and classes to check importances by, or neither, got one of them")
        checked_count(n_repeats, "repeats", "n_repeats")
        shares = self._by_input_columns(self._shares_of_model_columns(random_state))
        found = Importance(
            tuple(self._column_names()),
            shares.sum(0),
            shares,
            tuple(self._part_names()),
            measure="rise of the log loss",
        )
        if X is None:
            return found
        options: dict[str, Any] = {"n_repeats": n_repeats, "random_state": random_state, "n_jobs": n_jobs}
        X = table_of(X, self._column_names())
        return replace(found, **permutations(self._telling_once(), X, y, "neg_log_loss", **options))

    def nearest_rows(self, X: Any, k: int = 5) -> tuple[np.ndarray, np.ndarray]:
        """
        The training rows that the model holds for most like new ones, by its own kernel, as
        :meth:`PartitionGPRegressor.nearest_rows <gpytorch_partition.estimators.PartitionGPRegressor.nearest_rows>`.

        :param X: `N2 x D` rows.
        :param k: Number of training rows for each, at most N. (Default: 5.)
        :return: Numbers of training rows, from 0, as `fit` was given them, and their correlations under the prior,
            `N2 x k` each, the nearest first.
        :raises ValueError: If k or X cannot be used.
        :raises sklearn.exceptions.NotFittedError: Before `fit`.
        """
        check_is_fitted(self, "kernel_")
        k = checked_count(k, "rows", "k")
        if k > len(self._train_x):
            raise ValueError(f"expected k up to {len(self._train_x)}, the number of training rows, got {k}")
        points = encode_missing(self._complete(self._new_rows(X)))
        numbers, values = nearest_rows(self.kernel_, points, self._train_x, k)
        return (numbers if self._counted_rows is None else self._counted_rows[numbers]), values

    def partial_dependence(
        self, X: Any, column: int | str, *, grid: Any = None, grid_resolution: int = 30, target: Any = None
    ) -> PartialDependence:
        """
        How the probability of a class depends on one column, averaged over the other columns of some rows.

        As :meth:`PartitionGPRegressor.partial_dependence
        <gpytorch_partition.estimators.PartitionGPRegressor.partial_dependence>` of a regressor, without intervals: a
        probability has no posterior variance here. `plot()` draws it. Rows with missing cells, categories and dates are
        taken as they are. A prediction of all rows for each value of the grid.

        :param X: `N x D` rows that are averaged over: a few hundred are enough, if they are a random sample.
        :param column: Number of the column, from 0 or, if it is negative, from the end; or its name.
        :param grid: Values of the column. (Default: as those of a regressor.)
        :param grid_resolution: How many, at most, if no grid is given. (Default: 30.)
        :param target: The class. (Default: None, the second of two.)
        :raises ValueError: If there is no such column or class, there are more than two and none is given, or rows or
            grid cannot be used.
        :raises sklearn.exceptions.NotFittedError: Before `fit`.

        Example:
            >>> from gpytorch_partition.estimators import PartitionGPClassifier
            >>> X = np.random.RandomState(0).rand(200, 2)
            >>> model = PartitionGPClassifier("forest", num_partitions=50, random_state=0).fit(X, X[:, 1] > 0.4)
            >>> low, high = model.partial_dependence(X, 1, grid=[0.2, 0.8]).mean
            >>> bool(low < 0.1 and high > 0.9)
            True
        """
        check_is_fitted(self, "kernel_")
        number = self._number_of_class(target)
        name, chosen, values, tables = tables_on_grid(self, X, column, grid, grid_resolution)
        teller = self._telling_once()
        means = np.array([teller.predict_proba(table)[:, number].mean() for table in tables])
        return PartialDependence(name, chosen, means, None, values, f"probability of {self.classes_[number]}")

    def _number_of_class(self, target: Any) -> int:
        classes = self.classes_.tolist()
        if target is None and len(classes) == 2:
            return 1
        if target not in classes:
            shown = ", ".join(map(repr, classes[:_MOST_CLASSES])) + (", ..." if len(classes) > _MOST_CLASSES else "")
            raise ValueError(f"expected the class whose probability it is, one of {shown}, got target={target!r}")
        return classes.index(target)

    def _shares_of_model_columns(self, random_state: Any) -> np.ndarray:
        """Shares of the model's columns in parts (`parts x D'`), of classes by the variances of their means."""
        functions = [Expansion(self.kernel_, self._train_x, own) for own in self._weights.mT]
        shares = [column_shares(function, random_state) for function in functions]
        variances = self._excess(self._train_x).var(0).double().numpy()
        return np.average(shares, axis=0, weights=variances if variances.sum() > 0 else None)

    def _part_names(self) -> list[str]:
        """The names of the parts: those of the weights, unless a kernel that was given has several."""
        parts = kernel_parts(self.kernel_)
        names = list(self.outputscales_)
        return names if len(names) == len(parts) > 1 else [type(part.kernel).__name__ for part in parts]

    def _complete(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def _new_rows(self, X: Any) -> Tensor:
        raise NotImplementedError

    def _excess(self, x: Tensor) -> Tensor:
        raise NotImplementedError
