"""`default_model`, `default_kernel` and `ensemble_model`, the entry points of this folder, and checks of input."""

from __future__ import annotations

import gc
import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from sklearn.base import is_classifier
from torch import Tensor

from gpytorch_partition.inputs.numbers import random_state_of
from gpytorch_partition.inputs.row_weights import RowWeights, positive_weights
from gpytorch_partition.inputs.training_rows import checked_categories, decode_missing
from gpytorch_partition.kernels import IterativeKernel
from gpytorch_partition.partitions.ensembles.libraries import check_refittable, fitted_clone, is_fitted, num_columns_of
from gpytorch_partition.presets.assembly import DefaultGP, assemble
from gpytorch_partition.presets.boosted_mean import with_boosted_mean
from gpytorch_partition.presets.calibrated_noise import Calibration, with_threshold
from gpytorch_partition.presets.data import Blocks, TrainingData
from gpytorch_partition.presets.heavy_tails import discounts_harm, with_heavy_tails, with_shape
from gpytorch_partition.presets.mean_error import centred, with_mean_error
from gpytorch_partition.presets.options import DEFAULT, Options, Setup
from gpytorch_partition.presets.parts import usual_parts
from gpytorch_partition.presets.weights_and_noise import Choice, choose
from gpytorch_partition.presets.wider_intervals import (
    completion_share,
    warn_of_one_value,
    widened_for_blocks,
    widened_to_hold,
)
from gpytorch_partition.progress import stage
from gpytorch_partition.tables import needs_view

FEWEST_ROWS = 10  # fewer rows leave folds too small to choose anything
_LARGEST = torch.finfo(torch.float32).max  # largest number in rows: scikit-learn's trees see them in float32
# Least and largest standard deviation of targets: GPyTorch raises variances to 1e-10, and keeps bounds in float32.
_DEVIATIONS = (1e-3, 1e15)


def default_model(
    train_x: Tensor,
    train_y: Tensor,
    *,
    categories: Mapping[int, int] | None = None,
    weights: Tensor | None = None,
    blocks: Blocks | None = None,
    random_state: Any = None,
    n_jobs: int | None = None,
    options: Options = DEFAULT,
) -> DefaultGP:
    """
    Return an exact Gaussian process whose kernel, weights and noise, which may vary with x, are chosen from the data.

    Call it for the model of `PartitionGPRegressor("auto")` in GPyTorch.

    The kernel is a sum of forests (of most rows; of trees that ignore the targets), boosted trees (leaves of deep ones,
    all heights of shallow ones), forests with a slope in every leaf, a smooth part (Matern-3/2 with a lengthscale per
    column, through up to 3,000 inducing points) and a linear one. Parts that do not help have no weight. Forests split
    on categories and missing values; all other parts see a :class:`~gpytorch_partition.tables.NumberView`. Above 1,200
    rows of at most 20 columns of numbers, a sum of rough kernels is tried too. Columns are standardized, and values
    beyond some ten standard deviations of the middle 98 % count by their logarithms; the linear part sees their excess
    over these as columns of their own.

    Weights and noise maximize the predictive density of held-out rows, by folds whose forests and lengthscales are
    learned without them (Rasmussen & Williams 2006, section 5.3). Weights come from a quarter of the rows, but 700 at
    least and 1,500 at most, and all variances are multiplied by n / (n - p) for these n rows and the p values chosen;
    where there are more than 1.7 times as many, all rows, held out in folds, set the scale anew. Noise varies with x
    where that gains 3 nats (:class:`~gpytorch_partition.likelihoods.ForestNoiseGaussianLikelihood`), and is Student's t
    where that gains 5 (:class:`~gpytorch_partition.likelihoods.StudentTLikelihood`); outliers are discounted where that
    predicts held-out rows better. The variance that inducing points leave out is added where it is larger than at 95 %
    of new rows (:class:`~gpytorch_partition.likelihoods.FITCGaussianLikelihood`). Without `weights` and `blocks`,
    predictions are averaged with those of boosted trees where that gains 3 nats; trees of 15 leaves, or larger ones
    that see categories as codes, whichever gain more.

    Nothing is left to train. The model is chosen on the CPU in float64, and moves to the rows' device. A prediction of
    new targets is `model.likelihood(model(x), x)` for x in float64, above 2,000 rows within
    :class:`~gpytorch_partition.settings.iterative`.

    Costs four sets of dense covariances of 700 rows (five up to 500, three above 1,000) with some 60 Cholesky factors
    each; above 1,200 rows up to 60 more for rough kernels, and one to five models of four fifths of the rows; and up to
    twelve boostings of at most 400 trees of 15 to 63 leaves, half of which grow on to 3,200 at most. Memory: 8 bytes
    for each row and inducing point or tree (600, or 500 to 1,000 rough ones).

    :param train_x: `N x D` rows, 10 or more, in any units; NaN is a missing value.
    :param train_y: `N` targets, of a standard deviation between 1e-3 and 1e15.
    :param categories: The number C of levels of each column of codes 0 ... C - 1, by the column's number, as
        :class:`~gpytorch_partition.tables.TableEncoder` makes them. (Default: None, no such columns.)
    :param weights: `N` weights of the rows, above 0. The noise's variance at a training row is divided by its weight,
        here and in folds; that of a new observation is not. Trees, mean targets and medians count a row by its weight,
        capped at the weights' 90 % quantile. (Default: None, 1.)
    :param blocks: Groups or times of the rows (:class:`~gpytorch_partition.presets.data.Blocks`), by which rows are
        held out; rough parts are not tried then, and variances are larger where blocks are few and differ
        (:func:`~gpytorch_partition.presets.wider_intervals.widened_for_blocks`). (Default: None, single rows are held
        out.)
    :param random_state: Seed or `RandomState`; `None` is a fresh one, never NumPy's global one.
    :param n_jobs: Trees grown at a time, as in scikit-learn. (Default: None, one.)
    :param options: The options of the model. (Default: those described here.)
    :return: The model, in evaluation mode.
    :raises ValueError: If rows or targets are too few, without columns, not matching, infinite or too large for
        float32. If targets do not vary, or their standard deviation is out of bounds. If columns of categories have
        other cells than codes. If no part is left, or an omitted part does not exist.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> x = torch.rand(150, 2, generator=generator)
        >>> y = x[:, 0] + (0.02 + 0.3 * x[:, 1]) * torch.randn(150, generator=generator)
        >>> model = default_model(x, y, random_state=0)
        >>> new = torch.tensor([[0.5, 0.1], [0.5, 0.9]], dtype=torch.float64)
        >>> with torch.no_grad():
        ...     low, high = model.likelihood(model(new), new).stddev
        >>> bool(low < high)
        True
    """
    check_training_data(train_x, train_y)
    rows = decode_missing(train_x).double().cpu()
    categories = checked_categories(categories, rows)
    row_weights = _row_weights(weights, len(rows))
    columns = categories, needs_view(rows, categories)
    data = TrainingData(rows, train_y.double().cpu(), *columns, row_weights, blocks=blocks)
    _check_parts(options)
    setup = Setup(random_state_of(random_state), n_jobs, options)
    choice, data = choice_and_data(data, setup)
    with stage("building the model of all rows"):
        model = assemble(choice, data, setup).eval()
    model.description["noise"]["completion_share"], gain = completion_share(model, choice, data)
    model.description["log_predictive_density"] += gain
    return model.to(train_x.device)


def choice_and_data(data: TrainingData, setup: Setup) -> tuple[Choice, TrainingData]:
    """Return the choice, and the data with the weights of rows that it needs."""
    own, before = data, setup.again()
    with stage("choosing weights and noise"):
        usual = choose(data, setup)
        choice, data = with_heavy_tails(usual, data, before)
    chosen = choice.held_out
    if not choice.is_rough and setup.options.calibrates(len(data.y)):
        with stage("calibrating"):
            choice, data = _calibrated(choice, data, usual, own, setup)
        gc.collect()  # GPyTorch's hooks hold the kernels of folds, with their factors, in cycles
    elif not choice.is_rough:
        choice = with_threshold(with_mean_error(choice) if own.has_equal_rows else choice, data, setup)
    if own.has_equal_rows and setup.refit is None:
        choice = with_boosted_mean(choice, data, setup)
    choice = with_shape(widened_for_blocks(choice, chosen, data, setup), setup.options)
    choice = centred(choice) if own.has_equal_rows else choice
    choice = widened_to_hold(choice) if data.blocks is None else choice
    warn_of_one_value(choice, data.y)
    return choice, data


def _calibrated(
    choice: Choice, data: TrainingData, usual: Choice, own: TrainingData, setup: Setup
) -> tuple[Choice, TrainingData]:
    """Calibrate the choice, or the usual one where models of most rows predict better without discounts."""
    again = setup.again()
    calibration = Calibration(choice, data, setup, own)
    if data is not own:
        other = Calibration(usual, own, again, own)
        if discounts_harm(calibration.errors(), other.errors()):
            calibration, data = other, own
    return calibration.calibrated(), data


def default_kernel(
    train_x: Tensor,
    train_y: Tensor,
    *,
    categories: Mapping[int, int] | None = None,
    weights: Tensor | None = None,
    random_state: Any = None,
    n_jobs: int | None = None,
    options: Options = DEFAULT,
) -> IterativeKernel:
    r"""
    Return the kernel of :func:`default_model`, a sum whose weights were chosen from the data, for a model of your own.

    Call it to add terms, or another likelihood. It is chosen without boosted trees beside it. Its weights, the
    outputscales of :class:`~gpytorch.kernels.ScaleKernel`\ s inside, are in squared units of the targets, and frozen.
    Sums with it, and products with constants, have this package's solver and predictions, as with
    :class:`~gpytorch_partition.kernels.IterativeKernel`. It has no noise; that of :func:`default_model` with
    `Options(least_boosting_gain=float("inf"))` was chosen with it.

    Parameters, errors and cost are those of :func:`default_model`.

    Example:
        >>> x = torch.linspace(0, 1, 100).unsqueeze(-1)
        >>> kernel = default_kernel(x, (6 * x[:, 0]).sin(), random_state=0)
        >>> kernel(x).shape
        torch.Size([100, 100])
    """
    options = replace(options, least_boosting_gain=math.inf)  # the kernel's model has no other predictions
    settings = {"weights": weights, "random_state": random_state, "n_jobs": n_jobs, "options": options}
    model = default_model(train_x, train_y, categories=categories, **settings)
    return model.covar_module.base_kernel


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
    """
    Return an exact Gaussian process with the kernel of a tree ensemble, and scale and noise from held-out rows.

    Call it for the model of `PartitionGPRegressor(ensemble)` in GPyTorch (docs/own_kernels.md has its accuracy). The
    kernel is :class:`~gpytorch_partition.RandomForestKernel` of the ensemble's trees at all heights. Its trees have
    seen the training targets, so clones of the ensemble, fitted without the held-out rows of a fold, predict these
    rows. Scale, noise, and whether the noise varies with x, maximize the density of those predictions, as in
    :func:`default_model`.

    Costs fits of three to five clones to 1,500 rows at most, above 1,200 rows of one to five more to four fifths of all
    rows, with a solve for 33 columns each, and one of an unfitted ensemble. Dense matrices have 1,500 rows at most.

    Parameters not listed are those of :func:`default_model`.

    :param train_x: `N x D` rows for the ensemble, 10 or more; NaN is a missing value, if the ensemble takes it.
    :param ensemble: A regressor, fitted or not, that :meth:`RandomForestKernel.from_forest
        <gpytorch_partition.RandomForestKernel.from_forest>` reads, except BART and an XGBoost `Booster`, which cannot
        be fitted again. It does not change. A clone that would stop early has as many trees as the ensemble.
    :param original: `N` targets in the ensemble's units. (Default: None, `train_y`.)
    :param weights: `N` weights of the rows, above 0, by which the noise's variance is divided; clones are fitted
        without them. (Default: None, 1.)
    :param random_state: Seed of folds, and of ensembles of scikit-learn that have none.
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
    rows, random = decode_missing(train_x).double().cpu(), random_state_of(random_state)
    _check_columns(ensemble, rows.shape[1])
    y, units = (values.double().cpu() for values in (train_y, train_y if original is None else original))
    data = TrainingData(rows, y, weights=_row_weights(weights, len(rows)), original=units, blocks=blocks)
    setup = Setup(random, n_jobs, options, refit=partial(fitted_clone, ensemble))
    choice, data = choice_and_data(data, setup)
    if is_fitted(ensemble):
        setup = replace(setup, refit=lambda x, y, random: ensemble)
    with stage("building the model of all rows"):
        return assemble(choice, data, setup).eval().to(train_x.device)


def _row_weights(weights: Tensor | None, num_rows: int) -> RowWeights | None:
    return positive_weights(weights.cpu() if torch.is_tensor(weights) else weights, num_rows)


def check_regression_ensemble(ensemble: Any) -> None:
    """Raise a `TypeError` for an ensemble that cannot be fitted again to numbers."""
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


def check_training_data(train_x: Tensor, train_y: Tensor) -> None:
    if not torch.is_tensor(train_x) or train_x.dim() != 2 or train_x.dtype not in (torch.float32, torch.float64):
        came = f"{train_x.dtype}, {tuple(train_x.shape)}" if torch.is_tensor(train_x) else type(train_x).__name__
        raise ValueError(f"expected rows as an N x D tensor of float32 or float64, got {came}: convert them first")
    if not torch.is_tensor(train_y) or train_y.shape != train_x.shape[:1] or not train_y.is_floating_point():
        got = tuple(train_y.shape) if torch.is_tensor(train_y) else type(train_y).__name__
        raise ValueError(f"expected one target for each of {len(train_x)} rows, as a floating point tensor, got {got}")
    if len(train_x) < FEWEST_ROWS:
        raise ValueError(f"expected {FEWEST_ROWS} rows or more to choose a model by, got {len(train_x)}")
    if not train_x.shape[1]:
        raise ValueError("expected rows of one column or more, got none")
    _check_size(train_x, train_y)
    _check_variation(train_y)


def _check_parts(options: Options) -> None:
    usual = usual_parts()
    if unknown := sorted(set(options.omitted_parts) - set(usual)):
        raise ValueError(f"expected omitted_parts to be among {usual}, got {unknown}")
    if not set(usual) - set(options.omitted_parts):
        raise ValueError(f"expected a part that is not omitted, got omitted_parts={options.omitted_parts}")


def _check_size(train_x: Tensor, train_y: Tensor) -> None:
    if bool(train_x.isinf().any()) or not bool(train_y.isfinite().all()):
        raise ValueError("expected finite targets and rows without infinity, got others: drop these rows")
    if bool((train_x.abs() > _LARGEST).any()):
        largest = float(train_x.abs().nan_to_num().max())
        raise ValueError(f"expected numbers below {_LARGEST:.2g} (trees see float32), got {largest:.2g}: change units")


def _check_variation(train_y: Tensor) -> None:
    if bool((train_y == train_y[0]).all()):
        raise ValueError("expected targets that vary, got the same number for all rows")
    least, most = _DEVIATIONS
    if not least <= (deviation := float(train_y.double().std())) <= most:
        raise ValueError(
            f"expected targets with a standard deviation between {least:g} and {most:g}, got {deviation:.3g}: GPyTorch "
            'keeps no smaller variances; change their unit, or use PartitionGPRegressor(kernel="auto"), which does'
        )
