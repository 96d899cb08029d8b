"""`ensemble_model`, a Gaussian process whose kernel is a user's tree ensemble, with honest intervals."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor

from gpytorch_partition.inputs.numbers import random_state_of
from gpytorch_partition.inputs.row_weights import positive_weights
from gpytorch_partition.inputs.training_rows import decode_missing
from gpytorch_partition.partitions.ensembles.libraries import check_refittable, fitted_clone, is_fitted, num_columns_of
from gpytorch_partition.presets.assembly import DefaultGP, assemble
from gpytorch_partition.presets.data import TrainingData
from gpytorch_partition.presets.default import check_training_data, choice_and_data
from gpytorch_partition.presets.folds import Blocks
from gpytorch_partition.presets.options import DEFAULT, Options, Setup
from gpytorch_partition.progress import stage


def ensemble_model(
    train_x: Tensor,
    train_y: Tensor,
    ensemble: Any,
    *,
    original: Tensor | None = None,
    weights: Tensor | None = None,
    blocks: Blocks | None = None,
    random_state: Any = None,
    n_jobs: int | None = None,
    options: Options = DEFAULT,
) -> DefaultGP:
    r"""
    Return an exact Gaussian process with the kernel of a tree ensemble, and scale and noise from held-out rows.

    The kernel is :class:`~gpytorch_partition.RandomForestKernel` of the ensemble's trees at all heights
    (`heights="all"`, which predicted better than the leaves alone for each of seven ensembles on diabetes and two on
    concrete). Its trees have seen the training targets, so that a marginal likelihood takes noise for signal. Here
    clones of the ensemble, fitted without the held-out rows of a fold, predict these rows. Scale, noise, and whether
    the noise varies with x, maximize the density of those predictions, as in :func:`default_model`. The ensemble itself
    is then the kernel of all rows. An ensemble fitted to other rows has not seen these targets, and intervals tend to
    be too wide rather than too narrow.

    Costs fits of clones: five with up to 500 rows, each to four fifths of the rows; four with up to 1,000; three above,
    to 1,500 rows at most. Above 1,200 rows, one to five more are fitted to four fifths of all rows, until 10,000 rows
    were held out, with a solve for 33 columns each. An unfitted ensemble is fitted once itself. Dense matrices have
    1,500 rows at most.

    :param train_x: `N x D` rows for the ensemble, 10 or more; NaN is a missing value, if the ensemble takes it.
    :param train_y: `N` targets, of a standard deviation between 1e-3 and 1e15.
    :param ensemble: A regressor, fitted or not, that :meth:`RandomForestKernel.from_forest
        <gpytorch_partition.RandomForestKernel.from_forest>` reads, except BART and an XGBoost `Booster`, which cannot
        be fitted again. It does not change. A clone that would stop early has as many trees as the ensemble.
    :param original: `N` targets in the ensemble's units. (Default: None, `train_y`.)
    :param weights: `N` weights of the rows, above 0, by which the noise's variance is divided; clones are fitted
        without them. (Default: None, 1.)
    :param blocks: Groups or times of the rows (:class:`~gpytorch_partition.presets.folds.Blocks`), by which rows are
        held out. (Default: None, single rows.)
    :param random_state: Seed of folds, and of ensembles of scikit-learn that have none.
    :param n_jobs: Trees of the noise's forest grown at a time. (Default: None, one.)
    :param options: Numbers of folds and rows, among others. (Default: those of :func:`default_model`.)
    :return: The model, in evaluation mode, in float64.
    :raises TypeError: If the ensemble cannot be fitted again, or is a classifier.
    :raises ValueError: If rows or targets cannot be used, or the ensemble was fitted to another number of columns.

    Example:
        >>> import torch
        >>> from sklearn.ensemble import RandomForestRegressor
        >>> x = torch.rand(200, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        >>> y = x[:, 0] + 0.3 * torch.randn(200, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        >>> forest = RandomForestRegressor(50, random_state=0).fit(x.numpy(), y.numpy())
        >>> model = ensemble_model(x, y, forest, random_state=0)
        >>> 0.07 < model.likelihood.noise.item() < 0.11  # .3 squared
        True
    """
    check_regression_ensemble(ensemble)
    check_training_data(train_x, train_y)
    rows, random = decode_missing(train_x).double(), random_state_of(random_state)
    _check_columns(ensemble, rows.shape[1])
    units, row_weights = train_y if original is None else original, positive_weights(weights, len(rows))
    data = TrainingData(rows, train_y.double(), weights=row_weights, original=units.double(), blocks=blocks)
    setup = Setup(random, n_jobs, options, refit=partial(fitted_clone, ensemble))
    choice, data = choice_and_data(data, setup)
    if is_fitted(ensemble):
        setup = replace(setup, refit=lambda x, y, random: ensemble)
    with stage("building the model of all rows"):
        return assemble(choice, data, setup).eval()


def check_regression_ensemble(ensemble: Any) -> None:
    """
    Raise an error for an ensemble that cannot be fitted again to numbers.

    :raises TypeError: With the reason.
    """
    from sklearn.base import is_classifier

    check_refittable(ensemble)
    if hasattr(ensemble, "get_params") and is_classifier(ensemble):
        name = type(ensemble).__name__
        raise TypeError(
            f"expected an ensemble of regression trees, got a {name}, whose clones cannot be fitted to numbers: give a "
            f"regressor, or PartitionGPClassifier(kernel=...) for classes"
        )


def _check_columns(ensemble: Any, num_columns: int) -> None:
    wanted = num_columns_of(ensemble)
    if wanted not in (None, num_columns):
        raise ValueError(
            f"expected rows with the {wanted} columns that the {type(ensemble).__name__} was fitted to, got "
            f"{num_columns}"
        )
