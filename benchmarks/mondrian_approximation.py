"""How well the Mondrian kernel approximates the Laplace kernel (Balog et al. 2016, section 8.1, figures 5 and 6)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import numpy as np
import torch

from gpytorch_partition import MondrianKernel, RandomBinningKernel
from gpytorch_partition.models import cluster_features
from gpytorch_partition.progress import progress

from .laplace_features import Features, FourierFeatures, laplace_kernel, ridge
from .mondrian_pictures import BINNING, EXACT, FOURIER, MONDRIAN, approximation
from .mondrian_problems import DELTA, Problem, cpu, relative_error
from .report import Options, Row, Table

Draw = Callable[[np.ndarray, np.ndarray, int, float, int], tuple[Features, Features]]

LIFETIME = 10.0


def mondrian(
    x: np.ndarray, points: np.ndarray, num_features: int, lifetime: float, seed: int
) -> tuple[Features, Features]:
    """Features of training rows and of points, with so many nonzeros in a row."""
    kernel = MondrianKernel(torch.from_numpy(x), num_features, lifetime=lifetime, random_state=seed)
    return _clusters(kernel, x, points)


def binning(
    x: np.ndarray, points: np.ndarray, num_features: int, lifetime: float, seed: int
) -> tuple[Features, Features]:
    """Features of random binning."""
    kernel = RandomBinningKernel(torch.from_numpy(x), num_features, lengthscale=1 / lifetime, random_state=seed)
    return _clusters(kernel, x, points)


def fourier(
    x: np.ndarray, points: np.ndarray, num_features: int, lifetime: float, seed: int
) -> tuple[Features, Features]:
    """Random Fourier features."""
    features = FourierFeatures(x.shape[1], num_features, lifetime, seed)
    return features(x), features(points)


def _clusters(
    kernel: MondrianKernel | RandomBinningKernel, x: np.ndarray, points: np.ndarray
) -> tuple[Features, Features]:
    rows, others = torch.from_numpy(x), torch.from_numpy(points)
    return cluster_features(kernel, rows, rows), cluster_features(kernel, others, rows)


DRAWS: dict[str, Draw] = {MONDRIAN: mondrian, BINNING: binning, FOURIER: fourier}


def kernel_error(options: Options) -> Iterator[Table]:
    """Figure 5."""
    sizes = options.pick([1, 2, 3, 5, 7, 10, 15, 20, 30, 40, 50], [1, 5, 20, 50], [1, 3])
    repetitions, num_points = options.pick(20, 5, 2), options.pick(100, 100, 20)

    def error(method: str, num_features: int, seed: int) -> float:
        x = np.random.RandomState(seed).uniform(size=(num_points, 2))
        features, _ = DRAWS[method](x, x, num_features, LIFETIME, seed)
        return float(np.abs(features @ features.T - laplace_kernel(x, x, LIFETIME)).max())

    rows = _repeated(error, sizes, repetitions)
    last = {row["features"]: row["mean error"] for row in rows if row["M"] == sizes[-1]}
    held = max(last[MONDRIAN], last[BINNING]) < last[FOURIER]
    finding = (
        f"The paper's finding {_verdict(held)}: with M = {sizes[-1]} nonzero features per point the largest error is "
        f"{last[MONDRIAN]:.2f} for the Mondrian kernel, {last[BINNING]:.2f} for random binning and "
        f"{last[FOURIER]:.2f} for random Fourier features."
    )
    title = (
        f"Figure 5: largest error of the kernel, {num_points} points of the unit square, {repetitions} draws. {finding}"
    )
    picture = approximation(rows, "largest absolute error of the kernel", f"{num_points} uniform points, lifetime 10")
    yield Table("mondrian_figure_5", title, rows, picture=picture)


def prediction_error(options: Options) -> Iterator[Table]:
    """Figure 6."""
    problem = cpu(options)
    train, test = problem.train, problem.test
    sizes = options.pick([1, 2, 3, 5, 7, 10, 15, 20, 30, 40, 50], [1, 5, 20, 50], [1, 3])
    repetitions, mean = options.pick(10, 3, 2), train.y.mean()

    def error(method: str, num_features: int, seed: int) -> float:
        features, points = DRAWS[method](train.x, test.x, num_features, problem.lifetime, seed)
        return relative_error(points @ ridge(features, train.y - mean, DELTA).weights + mean, test.y)

    rows = _repeated(error, sizes, repetitions)
    exact = exact_error(problem)
    better = _better_than_fourier(rows)
    finding = (
        f"The paper's finding {_verdict(bool(better) and sizes[-1] not in better)}: both partition kernels are better "
        f"than Fourier features for M in {better or 'none'}, and the exact kernel's error is {exact:.2f} % (on CPU "
        "3.12 % in the paper)."
    )
    title = (
        f"Figure 6: test error in % on {problem.name}, lifetime {problem.lifetime:g}, {repetitions} draws. {finding}"
    )
    rows.append({"features": EXACT, "M": None, "mean error": exact, "standard deviation": None})
    picture = approximation(rows, "test error (%)", f"{problem.name}, lifetime {problem.lifetime:g}")
    yield Table("mondrian_figure_6", title, rows, picture=picture)


def exact_error(problem: Problem) -> float:
    """The test error of the exact Laplace kernel."""
    train, test, mean = problem.train, problem.test, problem.train.y.mean()
    covariance = laplace_kernel(train.x, train.x, problem.lifetime)
    covariance.flat[:: len(covariance) + 1] += DELTA
    weights = np.linalg.solve(covariance, train.y - mean)
    return relative_error(laplace_kernel(test.x, train.x, problem.lifetime) @ weights + mean, test.y)


def _repeated(error: Callable[[str, int, int], float], sizes: list[int], repetitions: int) -> list[Row]:
    rows = []
    for method, size in progress(list(product(DRAWS, sizes)), "draws of features"):
        errors = [error(method, size, seed) for seed in range(repetitions)]
        spread = float(np.std(errors, ddof=1))
        rows.append({"features": method, "M": size, "mean error": float(np.mean(errors)), "standard deviation": spread})
    return rows


def _better_than_fourier(rows: list[Row]) -> list[int]:
    """Numbers of features with which both partition kernels have the smaller mean."""
    errors = {(row["features"], row["M"]): row["mean error"] for row in rows}
    sizes = dict.fromkeys(row["M"] for row in rows)
    return [m for m in sizes if max(errors[MONDRIAN, m], errors[BINNING, m]) < errors[FOURIER, m]]


def _verdict(held: bool) -> str:
    return "holds" if held else "does not hold"
