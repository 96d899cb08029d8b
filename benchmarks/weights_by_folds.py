"""Weights of a sum of kernels by cross-validation, beside those of the marginal likelihood."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel, LinearKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from torch import Tensor

from gpytorch_partition import (
    FastClusterKernel,
    LandmarkKernel,
    RandomForestKernel,
    fit_exact_gp,
    fit_weights_by_cross_validation,
    settings,
)
from gpytorch_partition.models import PartitionGP

from .measure import timed
from .predictors import Split
from .regression_sets import read_data, split_of
from .report import Options, Row, Table

_MOST_ROWS = 2_000  # with which the likelihood is trained: by L-BFGS, on four dense matrices


def weights_by_folds(options: Options) -> Iterator[Table]:
    """Predictive densities of test rows with weights by both, small and large sets."""
    few = options.pick(None, 300, 60)
    sets = [("diabetes", few)]
    if options.data is not None:
        large = [("kin40k", few)] if few else [("kin40k", 1_500), ("kin40k", 20_000)]
        sets = [("autompg", few), ("concrete", few), *large]
    rows = []
    for name, most in sets:
        split = split_of(read_data(options, name), 0, most)
        rows += [{"set": name, "rows": len(split.y), **row} for row in _compared(split)]
    yield Table(
        "weights_by_folds", "A forest, clusters, a smooth and a linear kernel: weights by folds or likelihood", rows
    )


def _forest(x: Tensor, y: Tensor) -> Kernel:
    return RandomForestKernel(x, y, 100, random_state=0)


def _smooth(x: Tensor, y: Tensor) -> Kernel:
    return LandmarkKernel(x, y, min(500, len(x) // 2), random_state=0)


def _compared(split: Split) -> Iterator[Row]:
    x, y = torch.from_numpy(split.x), torch.from_numpy(split.y)
    clusters = FastClusterKernel(x, 100, random_state=0)
    found, seconds = timed(
        lambda: fit_weights_by_cross_validation([_forest, clusters, _smooth, LinearKernel()], x, y, random_state=0)
    )
    model = _model(x, y, found.kernel)
    model.likelihood.noise, model.covar_module.outputscale = found.noise, 1.0
    model.mean_module.constant = torch.tensor(found.mean, dtype=torch.float64)
    yield {
        "weights by": "folds",
        "seconds": seconds,
        **_scored(model, split, [*found.outputscales.tolist(), found.noise]),
    }
    if len(y) > _MOST_ROWS:
        return
    kernels = [_forest(x, y), clusters, _smooth(x, y), LinearKernel()]
    scaled = [ScaleKernel(kernel) for kernel in kernels]
    model = _model(x, y, reduce(add, scaled))
    _, seconds = timed(lambda: fit_exact_gp(model, model.likelihood))
    scale = model.covar_module.outputscale.item()
    weights = [scale * each.outputscale.item() for each in scaled]
    yield {
        "weights by": "likelihood",
        "seconds": seconds,
        **_scored(model, split, [*weights, model.likelihood.noise.item()]),
    }


def _model(x: Tensor, y: Tensor, kernel: Any) -> PartitionGP:
    return PartitionGP(x, y, GaussianLikelihood(), kernel).double()


def _scored(model: PartitionGP, split: Split, weights: list[float]) -> Row:
    with torch.no_grad(), settings.iterative():
        predictive = model.likelihood(model.eval()(torch.from_numpy(split.test_x)))
        mean, variance = (values.numpy() for values in (predictive.mean, predictive.variance))
    z = (split.test_y - mean) / np.sqrt(variance)
    parts = ("forest", "clusters", "smooth", "linear", "noise")
    return {
        "RMSE": float(np.sqrt(np.mean((split.test_y - mean) ** 2))),
        "NLPD": float(np.mean(0.5 * (np.log(2 * np.pi * variance) + z**2))),
        "coverage of 90 % (%)": 100 * float(np.mean(np.abs(z) < 1.645)),
        **dict(zip(parts, weights)),
    }
