"""Partitions as an ensemble (strength and correlation), and weights of a sum of kernels by cross-validation."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from operator import add
from typing import Any

import torch
from gpytorch.kernels import Kernel, LinearKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from torch import Tensor

from gpytorch_partition import (
    FastClusterKernel,
    LandmarkKernel,
    MondrianKernel,
    RandomForestKernel,
    fit_exact_gp,
    fit_weights_by_cross_validation,
    settings,
)
from gpytorch_partition.models import PartitionGP

from .clock import timed
from .datasets import Split, classes, read_data, scores, split_of
from .report import Options, Row, Table, grid, measured

MEMBERS = {
    "forest": lambda x, y, m: RandomForestKernel(x, y.double(), m, random_state=0),
    "forest leaves": lambda x, y, m: RandomForestKernel(x, y.double(), m, "leaf", random_state=0),
    "fast cluster": lambda x, y, m: FastClusterKernel(x, m, random_state=0),
    "Mondrian": lambda x, y, m: MondrianKernel(x, m, random_state=0),
}


def diagnosis(options: Options) -> Iterator[Table]:
    """Judge kernels on spambase by their own rows and by new ones."""
    X, y, _ = classes(options, "spambase")
    X, y = (values[: options.pick(None, 300)] for values in (X, y))
    number = 7 * len(y) // 10
    x = (torch.from_numpy(X) - X[:number].mean(0)) / (X[:number].std(0) + 1e-12)

    def judged(name: str, m: int, judged_by: str) -> Row:
        kernel: Any = MEMBERS[name](x[:number], torch.from_numpy(y[:number]), m)
        points = (x[number:], y[number:]) if judged_by == "new rows" else None
        found = kernel.diagnose(x[:number], y[:number], points=points)
        return {
            "strength": found.strength,
            "correlation": found.correlation,
            "error of one (%)": 100 * found.member_error,
            "of all (%)": 100 * found.ensemble_error,
            "standard error, mean": found.mean_standard_error,
            "largest": found.max_standard_error,
            "partitions for .01": found.num_partitions_for(0.01),
        }

    jobs = grid(
        kernel=MEMBERS,
        partitions=options.pick((25, 100, 400), (5,)),
        judged_by=("its rows, without their own", "new rows"),
    )
    yield from measured(options, "diagnosis", "Spam: partitions as an ensemble", jobs, judged)


def weights_by_folds(options: Options) -> Iterator[Table]:
    """Compare weights by folds with those of the marginal likelihood, on 300 training rows."""
    names = ("autompg", "concrete", "kin40k") if options.data else ("diabetes",)
    title = "A forest, clusters, a smooth and a linear kernel: weights by folds or likelihood"

    def weighted(name: str, by: str) -> Row:
        split = split_of(read_data(options, name), 0, options.pick(300, 60))
        model, weights, seconds = (_by_folds if by == "folds" else _by_likelihood)(*split.tensors[:2])
        parts = ("forest", "clusters", "smooth", "linear", "noise")
        return {"seconds": seconds, **_scored(model, split), **dict(zip(parts, weights))}

    jobs = grid(set=names, weights_by=("folds", "likelihood"))
    yield from measured(options, "weights_by_folds", title, jobs, weighted)


def _forest(x: Tensor, y: Tensor) -> Kernel:
    return RandomForestKernel(x, y, 100, random_state=0)


def _smooth(x: Tensor, y: Tensor) -> Kernel:
    return LandmarkKernel(x, y, min(500, len(x) // 2), random_state=0)


def _by_folds(x: Tensor, y: Tensor) -> tuple[PartitionGP, list[float], float]:
    kernels = [_forest, FastClusterKernel(x, 100, random_state=0), _smooth, LinearKernel()]
    found, seconds = timed(lambda: fit_weights_by_cross_validation(kernels, x, y, random_state=0))
    model = PartitionGP(x, y, GaussianLikelihood(), found.kernel).double()
    model.likelihood.noise, model.covar_module.outputscale = found.noise, 1.0
    model.mean_module.constant = torch.tensor(found.mean, dtype=torch.float64)
    return model, [*found.outputscales.tolist(), found.noise], seconds


def _by_likelihood(x: Tensor, y: Tensor) -> tuple[PartitionGP, list[float], float]:
    kernels = [_forest(x, y), FastClusterKernel(x, 100, random_state=0), _smooth(x, y), LinearKernel()]
    scaled = [ScaleKernel(kernel) for kernel in kernels]
    model = PartitionGP(x, y, GaussianLikelihood(), reduce(add, scaled)).double()
    _, seconds = timed(lambda: fit_exact_gp(model, model.likelihood))
    scale = model.covar_module.outputscale.item()
    return model, [*(scale * each.outputscale.item() for each in scaled), model.likelihood.noise.item()], seconds


def _scored(model: PartitionGP, split: Split) -> Row:
    with torch.no_grad(), settings.iterative():
        found = model.likelihood(model.eval()(split.tensors[2]))
        return scores(split.test_y, found.mean.numpy(), found.stddev.numpy())
