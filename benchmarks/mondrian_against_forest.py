"""The Mondrian kernel and the Mondrian forest of the same trees (Balog et al. 2016, section 8.3, figures 9 and 10)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gpytorch_partition import MondrianKernel
from gpytorch_partition.lifetimes import MondrianForest
from gpytorch_partition.models import cluster_features
from gpytorch_partition.progress import progress

from .laplace_features import descent, ridge
from .mondrian_pictures import against_forest, histograms
from .mondrian_problems import DELTA, EPOCHS, Problem, cpu, relative_error
from .report import Options, Row, Table

# How peaked around 0 weights are.
_NEAR = "share within a tenth of the targets' standard deviation"


class Fit(NamedTuple):
    """Predictions of training and test rows, and the weights of the cells, of which a prediction is the mean."""

    train: np.ndarray
    test: np.ndarray
    weights: np.ndarray


def kernel_against_forest(options: Options) -> Iterator[Table]:
    """Figures 9 and 10."""
    problem, num_trees = cpu(options), options.pick(50, 50, 5)
    lifetimes = (problem.lifetime * np.geomspace(0.05, 8, options.pick(16, 6, 3))).tolist()
    kernel = MondrianKernel(problem.train.points, num_trees, lifetime=lifetimes[-1], random_state=0)
    fits = [_fits(kernel.cut(lifetime), problem) for lifetime in progress(lifetimes, "kernels and forests")]
    rows = [{"lifetime": lifetime} | _errors(pair, problem) for lifetime, pair in zip(lifetimes, fits)]
    title = f"Figure 9: errors in % on {problem.name}, {num_trees} trees, by lifetime. {_errors_found(rows)}"
    yield Table("mondrian_figure_9", title, rows, picture=against_forest(rows, problem.name, num_trees))
    chosen = int(np.argmin([row["test error of the kernel (%)"] for row in rows]))
    yield _weights(kernel.cut(lifetimes[chosen]), problem, fits[chosen])


def _fits(kernel: MondrianKernel, problem: Problem) -> tuple[Fit, Fit]:
    """Of the kernel and of the forest, to centred targets."""
    x, points, y = problem.train.points, problem.test.points, problem.train.y
    return _kernel(kernel, x, y - y.mean(), points), _forest(kernel, x, y - y.mean(), points)


def _kernel(kernel: MondrianKernel, x: Tensor, y: np.ndarray, points: Tensor) -> Fit:
    """All weights jointly: equation 3."""
    features = cluster_features(kernel, x, x)
    weights = ridge(features, y, DELTA).weights
    predicted = cluster_features(kernel, points, x) @ weights
    return Fit(features @ weights, predicted, weights * kernel.num_partitions**0.5)


def _forest(kernel: MondrianKernel, x: Tensor, y: np.ndarray, points: Tensor) -> Fit:
    """Each tree by itself: equation 4. Cells without training rows predict the mean, 0."""
    forest = MondrianForest(kernel, x, torch.from_numpy(y), outputscale=1.0, noise=DELTA)
    weights = forest.weights.numpy()
    return Fit(forest.predict(x).numpy(), forest.predict(points).numpy(), weights[weights != 0])


def _errors(fits: tuple[Fit, Fit], problem: Problem) -> Row:
    row: Row = {"cells": len(fits[0].weights)}
    mean = problem.train.y.mean()
    for name, fit in zip(("kernel", "forest"), fits):
        row[f"training error of the {name} (%)"] = relative_error(fit.train + mean, problem.train.y)
        row[f"test error of the {name} (%)"] = relative_error(fit.test + mean, problem.test.y)
    return row


def _errors_found(rows: list[Row]) -> str:
    errors = {name: [row[f"test error of the {name} (%)"] for row in rows] for name in ("kernel", "forest")}
    (kernel, early), (forest, late) = ((min(line), rows[int(np.argmin(line))]["lifetime"]) for line in errors.values())
    held = kernel <= forest and early < late
    return (
        f"The paper's finding {'holds' if held else 'does not hold'}: the kernel's least test error is {kernel:.2f} % "
        f"at a lifetime of {early:.2g}, the forest's {forest:.2f} % at {late:.2g}."
    )


def _weights(kernel: MondrianKernel, problem: Problem, fits: tuple[Fit, Fit]) -> Table:
    """Figure 10, where the kernel is best. The paper's weights are those of stochastic gradient descent."""
    x, y, scale, name = problem.train.points, problem.train.y, problem.train.y.std(), problem.name
    learner = descent(len(y), DELTA, EPOCHS).fit(cluster_features(kernel, x, x), (y - y.mean()) / scale)
    descended = kernel.num_partitions**0.5 * scale * learner.coef_
    found = (fits[0].weights, descended, fits[1].weights)
    named = dict(zip(("Mondrian kernel, exact", "Mondrian kernel, descent", "Mondrian forest"), found))
    rows = [_described(model, weights, scale) for model, weights in named.items()]
    shares = [row[_NEAR] for row in rows]
    held = [share > shares[2] for share in shares[:2]]
    verdict = "holds" if all(held) else "does not hold" if not any(held) else "holds for one way to find the weights"
    finding = (
        f"The paper's finding, weights of the kernel are more peaked around 0, {verdict}: within a tenth of the "
        f"targets' standard deviation are {shares[0]:.0%} of its exact weights, {shares[1]:.0%} of those after "
        f"{EPOCHS} epochs of stochastic gradient descent, and {shares[2]:.0%} of the forest's."
    )
    where = f"{name}, lifetime {kernel.lifetime:.2g}"
    return Table(
        "mondrian_figure_10", f"Figure 10: weights of cells, {where}. {finding}", rows, picture=histograms(named, where)
    )


def _described(model: str, weights: np.ndarray, scale: float) -> Row:
    return {
        "model": model,
        "cells": len(weights),
        "least": float(weights.min()),
        "most": float(weights.max()),
        "standard deviation": float(weights.std()),
        _NEAR: float(np.mean(np.abs(weights) <= 0.1 * scale)),
    }
