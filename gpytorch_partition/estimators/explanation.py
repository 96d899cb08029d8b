"""What a fitted regressor says of itself: summary, importance of columns, partial dependence, rows like new ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from gpytorch_partition.estimators.given_kernels import name_of
from gpytorch_partition.estimators.scores import Judgement
from gpytorch_partition.estimators.uncertainty import judged
from gpytorch_partition.explain.dependence import PartialDependence, partial_dependence, table_of
from gpytorch_partition.explain.importance import Importance, column_shares, column_shares_of_targets
from gpytorch_partition.explain.nearest_rows import nearest_rows
from gpytorch_partition.explain.permutation import permutations
from gpytorch_partition.explain.summary import ModelSummary, summary_of, summary_of_counts, summary_of_targets
from gpytorch_partition.inputs.counts import checked_count
from gpytorch_partition.inputs.missing import encode_missing
from gpytorch_partition.inputs.row_weights import checked_weights
from gpytorch_partition.models.counted_gp import CountedGP


class NamesColumns:
    """Mixin for estimators that speak of columns: those that were given, and those that the model has."""

    n_features_in_: int

    def _column_names(self) -> list[str]:
        """The names of the columns as fitted, or x0, x1 and so on, as scikit-learn calls them."""
        names = getattr(self, "feature_names_in_", None)
        return [f"x{number}" for number in range(self.n_features_in_)] if names is None else list(map(str, names))

    def _model_column_names(self) -> list[str]:
        """The names of the columns that the model has, of which a date of a table makes several."""
        encoder = getattr(self, "encoder_", None)
        return self._column_names() if encoder is None else list(encoder.get_feature_names_out())

    def _by_input_columns(self, shares: np.ndarray) -> np.ndarray:
        """Shares of the model's columns (`parts x D'`) as those of the columns that were given (`parts x D`)."""
        encoder = getattr(self, "encoder_", None)  # of tables, which makes several columns of a date
        if encoder is None:
            return shares
        found = np.zeros((len(shares), self.n_features_in_))
        np.add.at(found.T, encoder.sources_, shares.T)
        return found


class Explanation(NamesColumns, BaseEstimator):
    """
    Methods of a fitted :class:`~gpytorch_partition.estimators.PartitionGPRegressor` that explain its model, and its
    HTML.
    """

    kernel: Any
    model_: Any
    log_marginal_likelihood_value_: float | None
    log_predictive_density_: float | None
    at_bounds_: dict[str, Any]
    seconds_: dict[str, float]
    left_out_: tuple[str, ...]
    _constant_columns: tuple[str, ...]
    _unit: Any
    _counted_rows: np.ndarray | None
    _has_several: bool
    target_names_: Any
    _summary: ModelSummary | None = None
    _telling_once: Any  # of ToldOfRange

    def summary(self) -> ModelSummary:
        """
        What the model consists of: the parts of its kernel with their shares of the prior and of the explained
        variance, noise, scales, trees, and seconds of the fit's stages.

        Costs two products with each part at 5,000 rows at most, and the solve of the first prediction; it is kept.

        :return: The numbers, readable when printed, and a table in notebooks.
        :raises sklearn.exceptions.NotFittedError: Before `fit`.

        Example:
            >>> from gpytorch_partition.estimators import PartitionGPRegressor
            >>> X = np.linspace(0, 1, 40)[:, None]
            >>> model = PartitionGPRegressor("mondrian", num_partitions=20, random_state=0).fit(X, X[:, 0])
            >>> found = model.summary()
            >>> found.num_rows, [part.name for part in found.parts]
            (40, ['MondrianKernel'])
        """
        check_is_fitted(self, "model_")
        if self._summary is None:
            several = [self.target_names_.tolist()] if self._has_several else []
            of_one = summary_of_counts if self._is_counted else summary_of
            self._summary = (summary_of_targets if several else of_one)(
                self.model_,
                self._unit,
                self._model_column_names(),
                *several,
                num_columns=self.n_features_in_,
                title=f"{type(self).__name__} with kernel={shown_kernel(self.kernel)}",
                log_marginal_likelihood=self.log_marginal_likelihood_value_,
                log_predictive_density=self.log_predictive_density_,
                at_bounds=self.at_bounds_,
                seconds=self.seconds_,
                left_out=self.left_out_,
                constant_columns=self._constant_columns,
                has_usual_width=name_of(self.kernel) == "mondrian",
            )
        return self._summary

    def importance(
        self, X: Any = None, y: Any = None, *, n_repeats: int = 5, random_state: Any = 0, n_jobs: int | None = None
    ) -> Importance:
        """
        Which columns matter, by the structure of the model's parts, and by permutation as a check.

        By structure it is how much of the variance of the posterior mean over the training rows each column explains
        (:func:`gpytorch_partition.explain.importance.column_shares`); of columns that tell the same, trees share it
        out. By permutation it is how much R squared falls where a column's values are exchanged between rows
        (:func:`sklearn.inspection.permutation_importance`), which is about new rows if X and y are: with the training
        rows it is too good, as every score is.

        :param X: `N x D` rows for the check, best those that the model has not seen. (Default: no check.)
        :param y: Their `N` targets.
        :param n_repeats: How often each column is permuted. (Default: 5.)
        :param random_state: Seed of the permutations. (Default: 0.)
        :param n_jobs: Columns permuted at once, as joblib counts them. (Default: None, one.)
        :return: The numbers, readable when printed; `plot()` draws them.
        :raises ValueError: If only one of X and y is given, they cannot be used, or `n_repeats` is no number from 1.
        :raises sklearn.exceptions.NotFittedError: Before `fit`.

        Example:
            >>> from gpytorch_partition.estimators import PartitionGPRegressor
            >>> X = np.random.RandomState(0).rand(200, 2)
            >>> model = PartitionGPRegressor("forest", num_partitions=50, random_state=0).fit(X, X[:, 1] ** 2)
            >>> print(model.importance())
            column  share of the explained variance
            x1                                1.000
            x0                                0.000
        """
        check_is_fitted(self, "model_")
        self._refuse_counted("importance", "sklearn.inspection.permutation_importance(model, X, y)")
        if (X is None) != (y is None):
            raise ValueError("expected both rows and targets to check importances by, or neither, got one of them")
        checked_count(n_repeats, "repeats", "n_repeats")
        of_model = column_shares_of_targets if self._has_several else column_shares
        shares, checked = self._by_input_columns(of_model(self.model_, random_state)), {}
        if X is not None:
            options: dict[str, Any] = {"n_repeats": n_repeats, "random_state": random_state, "n_jobs": n_jobs}
            checked = permutations(self._telling_once(), table_of(X, self._column_names()), y, **options)
        parts = tuple(part.name for part in self.summary().parts)
        return Importance(tuple(self._column_names()), shares.sum(0), shares, parts, **checked)

    def partial_dependence(self, X: Any, column: int | str, **options: Any) -> PartialDependence:
        """
        How the function depends on one column, with intervals: :func:`partial_dependence` of this model.

        :param X: `N x D` rows that are averaged over.
        :param column: Number or name of the column.
        :param options: `grid`, `grid_resolution` and, of several targets, `target`.
        """
        self._refuse_counted("partial_dependence", "sklearn.inspection.partial_dependence(model, X, [column])")
        return partial_dependence(self, X, column, **options)

    def judge(self, X: Any, y: Any, sample_weight: Any = None) -> Judgement:
        """
        Predictive distributions of new observations beside the observations: what scores are computed from.

        They are Gaussian, or where `"auto"` has found outliers those of a Gaussian function with Student-t noise, whose
        log density no Gaussian of the same standard deviation has.

        :param X: `N x D` rows, best those that the model has not seen.
        :param y: `N` targets.
        :param sample_weight: `N` weights of these rows above 0, or one for all: as in `fit`, the variance of the noise
            of an observation is divided by its weight. Scores are not averaged by them: `coverage()` and
            `numpy.average` take weights. (Default: None, 1.)
        :return: Means, standard deviations, ends of 90 % intervals, log densities in nats, and the levels of central
            intervals, by which `coverage()` counts; CRPS and interval scores in the unit of the targets, 0 at best (log
            densities of targets with few values have no best). The mean log density with the sign changed is the NLPD
            in the unit of the targets; `summary()` and `compare` print that of targets in standard deviations (of the
            training targets), which is less by the log of that deviation: `-log_density.mean() - log(y_train.std())`.
        :raises ValueError: If the model has several targets, or X, y or weights cannot be used.
        :raises sklearn.exceptions.NotFittedError: Before `fit`.

        Example:
            >>> from gpytorch_partition.estimators import PartitionGPRegressor
            >>> X = np.random.RandomState(0).rand(200, 2)
            >>> y = X[:, 0] + 0.1 * np.random.RandomState(1).randn(200)
            >>> found = PartitionGPRegressor("forest", 50, random_state=0).fit(X[:150], y[:150]).judge(X[150:], y[150:])
            >>> bool(0.8 < found.coverage(0.9) <= 1.0)
            True
        """
        check_is_fitted(self, "model_")
        if self._has_several:
            names = self.target_names_.tolist()
            raise ValueError(
                f"expected a model of one target, got one of {len(names)}: their predictions are Gaussian, so that the "
                "log densities of target number t are scipy.stats.norm.logpdf(y[:, t], mean[:, t], std[:, t]), and its "
                "ends are predict(X, quantiles=(0.05, 0.95))"
            )
        y = np.asarray(y, dtype=np.float64)
        num_rows = len(next(iter(X.values())) if isinstance(X, Mapping) else X)
        if y.shape != (num_rows,) or not np.isfinite(y).all():
            raise ValueError(
                f"expected a known target for each of the {num_rows} rows of X, got targets of shape {y.shape} with "
                f"{int((~np.isfinite(y)).sum())} missing"
            )
        return judged(self, X, y, _weights_above_0(sample_weight, num_rows))

    def nearest_rows(self, X: Any, k: int = 5) -> tuple[np.ndarray, np.ndarray]:
        r"""
        The training rows that the model holds for most like new ones, by its own kernel.

        Alike is what the kernel says: rows that share clusters, or nodes of trees, with the new one. Values are
        correlations under the prior, :math:`k(x, x') / \sqrt{k(x, x)\, k(x', x')}`: 1 for the same row, and for kernels
        that are 1 there the values of the kernel. :math:`O(N m)` for each new row, with bounded memory.

        :param X: `N2 x D` rows.
        :param k: Number of training rows for each, at most N. (Default: 5.)
        :return: Numbers of training rows, from 0, as `fit` was given them, and their correlations, `N2 x k` each, the
            nearest first.
        :raises ValueError: If k or X cannot be used.
        :raises sklearn.exceptions.NotFittedError: Before `fit`.

        Example:
            >>> from gpytorch_partition.estimators import PartitionGPRegressor
            >>> X = np.linspace(0, 1, 40)[:, None]
            >>> model = PartitionGPRegressor("mondrian", num_partitions=200, random_state=0).fit(X, X[:, 0])
            >>> rows, values = model.nearest_rows([[0.5]], k=2)
            >>> sorted(rows[0].tolist())
            [19, 20]
        """
        check_is_fitted(self, "model_")
        train_x = self.model_.train_inputs[0]
        k = checked_count(k, "rows", "k")
        if k > len(train_x):
            raise ValueError(f"expected k up to {len(train_x)}, the number of training rows, got {k}")
        points = encode_missing(self._points(self._checked_rows(X)))
        numbers, values = nearest_rows(self.model_.covar_module, points, train_x, k)
        counted = self._counted_rows
        return (numbers if counted is None else counted[numbers]), values

    @property
    def _is_counted(self) -> bool:
        """Whether the model is one of rows in chunks, which were counted and not kept."""
        return isinstance(getattr(self, "model_", None), CountedGP)

    def _refuse_counted(self, name: str, instead: str) -> None:
        if self._is_counted:
            raise ValueError(f"{name} needs the training rows, which fit_chunks has counted and not kept: {instead}")

    def _points(self, rows: np.ndarray) -> torch.Tensor:
        raise NotImplementedError

    def _checked_rows(self, X: Any) -> np.ndarray:
        raise NotImplementedError

    # In notebooks: scikit-learn's diagram, and the summary below it once the estimator is fitted.

    def _repr_html_inner(self) -> str:
        return super()._repr_html_inner() + self._html_of_summary()

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle = super()._repr_mimebundle_(**kwargs)
        if "text/html" in bundle:
            bundle["text/html"] += self._html_of_summary()
        return bundle

    def _html_of_summary(self) -> str:
        return self.summary()._repr_html_() if hasattr(self, "model_") else ""


def _weights_above_0(sample_weight: Any, num_rows: int) -> np.ndarray | None:
    """Weights of observations (`N`), whose noise is divided by them; None where all are 1."""
    weights = checked_weights(sample_weight, num_rows)
    if weights is not None and not weights.all():
        first = int((weights == 0).argmax())
        raise ValueError(
            f"expected weights above 0 of rows to judge, got 0 for row {first}: an observation without weight may be "
            "anything; leave such rows out"
        )
    return weights


def shown_kernel(kernel: Any) -> str:
    """A parameter `kernel` in a word."""
    return repr(kernel) if isinstance(kernel, str) else getattr(kernel, "__name__", type(kernel).__name__)
