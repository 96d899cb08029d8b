"""How fast the Mondrian kernel finds a good width (Balog et al. 2016, section 8.2, figures 7 and 8)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import SGDRegressor
from torch import Tensor

from gpytorch_partition import MondrianKernel, lifetime_sweep
from gpytorch_partition.lifetimes import LifetimeSweep, fit_along_lifetimes
from gpytorch_partition.models import cluster_features

from .laplace_features import Features, descent, laplace_kernel, ridge
from .measure import timed
from .mondrian_approximation import DRAWS
from .mondrian_pictures import BINNING, FOURIER, MONDRIAN, recovery, searches, trees_and_widths
from .mondrian_problems import DELTA, EPOCHS, Rows, cpu, laplace_process, relative_error
from .report import Options, Row, Table

TRUE_LIFETIME = 10.0
# Lifetimes relative to the one at which the exact kernel is good: where all searches begin, and where the trees end.
FIRST, LAST = 1e-2, 2.0

_BY_ERROR, _BY_LIKELIHOOD = "lifetime by validation error", "lifetime by likelihood"

Trial = tuple[float, float, float]  # seconds since the search began, lifetime, validation error in %


def sweep(
    kernel: MondrianKernel, x: Tensor, y: Tensor, lifetimes: Any, validation: tuple[Tensor, Tensor]
) -> LifetimeSweep:
    """Exact ridge regression, as a process with outputscale 1 and noise DELTA, at lifetimes of the same trees."""
    return lifetime_sweep(kernel, x, y, outputscale=1.0, noise=DELTA, lifetimes=lifetimes, validation=validation)


def validation_errors(found: LifetimeSweep, targets: np.ndarray) -> np.ndarray:
    """In % of the targets' root mean square."""
    assert found.validation_error is not None
    return 100 * found.validation_error.numpy() / np.sqrt(np.mean(targets**2))


def width_recovery(options: Options) -> Iterator[Table]:
    """Figure 7."""
    num_rows, num_trees = options.pick(1_000, 300, 60), options.pick(50, 50, 5)
    lifetimes = np.geomspace(0.5, 100, options.pick(30, 10, 4))
    rows, pictures = [], []
    for seed in range(options.pick(5, 2, 1)):
        train, validation, test = laplace_process(num_rows, TRUE_LIFETIME, seed)
        kernel = MondrianKernel(train.points, num_trees, lifetime=lifetimes[-1], random_state=seed)
        held_out = validation.points, torch.from_numpy(validation.y)
        found = sweep(kernel, train.points, torch.from_numpy(train.y), lifetimes, held_out)
        errors = validation_errors(found, validation.y)
        pictures.append(recovery(lifetimes, found.log_marginal_likelihood.numpy(), errors, TRUE_LIFETIME))
        rows.append({"draw": seed} | _recovered(kernel, found, train, test))
    title = f"Figure 7: a lifetime recovered, {num_rows:,} rows in 2 columns, {num_trees} trees. {_how_close(rows)}"
    yield Table("mondrian_figure_7", title, rows, picture=pictures[0])
    yield _by_trees(options, num_rows, lifetimes[:: options.pick(2, 1, 1)])


def _by_trees(options: Options, num_rows: int, lifetimes: np.ndarray) -> Table:
    """How the lifetime found, and the peak of the validation error on the way, depend on the number of trees."""
    rows, lines = [], {}
    train, validation, _ = laplace_process(num_rows, TRUE_LIFETIME, 0)
    exact = float(lifetimes[np.argmax([_laplace_likelihood(train, each) for each in lifetimes])])
    for num_trees in options.pick((20, 50, 100, 200), (20, 50, 100), (5, 10)):
        row, lines[num_trees] = _one_forest(train, validation, num_trees, lifetimes)
        rows.append({"trees": num_trees, **row, "by likelihood of the Laplace kernel": exact})
    title = f"Figure 7 by the number of trees, {num_rows:,} rows in 2 columns, true lifetime {TRUE_LIFETIME:g}."
    return Table(
        "mondrian_figure_7_trees", title, rows, picture=trees_and_widths(rows, lines, lifetimes, TRUE_LIFETIME)
    )


def _one_forest(
    train: Rows, validation: Rows, num_trees: int, lifetimes: np.ndarray
) -> tuple[Row, dict[str, np.ndarray]]:
    """The lifetimes found with the true outputscale and noise, and with the most likely ones, by as many trees."""
    kernel = MondrianKernel(train.points, num_trees, lifetime=lifetimes[-1], random_state=0)
    targets, held_out = torch.from_numpy(train.y), (validation.points, torch.from_numpy(validation.y))
    given = sweep(kernel, train.points, targets, lifetimes, held_out)
    chosen = lifetime_sweep(kernel, train.points, targets, lifetimes=lifetimes, validation=held_out)
    errors, chosen_errors = validation_errors(given, validation.y), validation_errors(chosen, validation.y)
    cells = np.array(
        [kernel.cut(each)(train.points).evaluate_kernel().left.num_clusters for each in lifetimes.tolist()]
    )
    peak = int(errors[: int(errors.argmin()) + 1].argmax())
    row: Row = {
        _BY_LIKELIHOOD: given.best_lifetime,
        _BY_ERROR: float(lifetimes[errors.argmin()]),
        "by likelihood, most likely noise": chosen.best_lifetime,
        "that noise": float(chosen.noises[chosen.log_marginal_likelihood.argmax()]),
        "largest error before the least (%)": float(errors[peak]),
        "at lifetime": float(lifetimes[peak]),
        "cells per row there": float(cells[peak] / len(train.y)),
        "error there, most likely noise (%)": float(chosen_errors[peak]),
        "least error (%)": float(errors.min()),
        "least error, most likely noise (%)": float(chosen_errors.min()),
    }
    return row, {"given": errors, "chosen": chosen_errors, "cells": cells / len(train.y)}


def _laplace_likelihood(rows: Rows, lifetime: float) -> float:
    """The log density of the targets under the exact kernel, but for a constant."""
    covariance = laplace_kernel(rows.x, rows.x, lifetime)
    covariance.flat[:: len(covariance) + 1] += DELTA
    root = np.linalg.cholesky(covariance)
    return -0.5 * float(np.square(np.linalg.solve(root, rows.y)).sum()) - float(np.log(root.diagonal()).sum())


def _how_close(rows: list[Row]) -> str:
    by_error, by_likelihood = ([row[column] for row in rows] for column in (_BY_ERROR, _BY_LIKELIHOOD))
    held = all(0.1 <= lifetime / TRUE_LIFETIME <= 10 for lifetime in by_error)
    return (
        f"The paper's finding, the lifetime is right within an order of magnitude, {'holds' if held else 'fails'}: "
        f"the validation error is least at {min(by_error):.3g} to {max(by_error):.3g} where the truth is "
        f"{TRUE_LIFETIME:g}, and the likelihood is largest at {min(by_likelihood):.3g} to {max(by_likelihood):.3g}."
    )


def _recovered(kernel: MondrianKernel, found: LifetimeSweep, train: Rows, test: Rows) -> Row:
    assert found.validation_error is not None
    by_error, by_likelihood = float(found.lifetimes[found.validation_error.argmin()]), found.best_lifetime
    exact = laplace_kernel(train.x, train.x, TRUE_LIFETIME)
    exact.flat[:: len(exact) + 1] += DELTA
    best = laplace_kernel(test.x, train.x, TRUE_LIFETIME) @ np.linalg.solve(exact, train.y)
    return {
        _BY_ERROR: by_error,
        "test error there (%)": _test_error(kernel, by_error, train, test),
        _BY_LIKELIHOOD: by_likelihood,
        "test error there, likelihood (%)": _test_error(kernel, by_likelihood, train, test),
        "test error of the true lifetime (%)": _test_error(kernel, TRUE_LIFETIME, train, test),
        "test error of the true Laplace kernel (%)": relative_error(best, test.y),
    }


def _test_error(kernel: MondrianKernel, lifetime: float, train: Rows, test: Rows) -> float:
    kernel.lifetime = lifetime
    weights = ridge(cluster_features(kernel, train.points, train.points), train.y, DELTA).weights
    return relative_error(cluster_features(kernel, test.points, train.points) @ weights, test.y)


def width_search(options: Options) -> Iterator[Table]:
    """Figure 8."""
    problem, num_features = cpu(options), options.pick(350, 100, 10)
    held_out = len(problem.train.y) // 5
    validation, train = (
        Rows(problem.train.x[part], problem.train.y[part]) for part in (slice(held_out), slice(held_out, None))
    )
    first, last = FIRST * problem.lifetime, LAST * problem.lifetime
    lifetimes, num_trials = np.geomspace(first, last, options.pick(16, 6, 2)), options.pick(12, 5, 2)
    trials = {
        (MONDRIAN, "exact"): _mondrian_exact(train, validation, num_features, lifetimes),
        (MONDRIAN, "descent"): _mondrian_descent(train, validation, num_features, lifetimes),
    }
    for method in (BINNING, FOURIER):
        for learner, fit in LEARNERS.items():
            error = _rebuilt(method, fit, train, validation, num_features)
            trials[method, learner] = _searched(error, first, num_trials)
    rows = [
        {"features": method, "weights": learner, "seconds": time, "lifetime": lifetime, "validation error (%)": error}
        for (method, learner), line in trials.items()
        for time, lifetime, error in line
    ]
    title = f"Figure 8: validation error in % on {problem.name} against seconds, M = {num_features}. {_found(trials)}"
    yield Table("mondrian_figure_8", title, rows, picture=searches(trials, problem.name, num_features))


def _mondrian_exact(train: Rows, validation: Rows, num_trees: int, lifetimes: np.ndarray) -> list[Trial]:
    """Sweeps up to longer and longer lifetimes, each from the beginning: seconds, and the best that it finds."""
    mean, trials = train.y.mean(), []
    targets, held_out = torch.from_numpy(train.y - mean), (validation.points, torch.from_numpy(validation.y - mean))
    for stop in range(len(lifetimes), 0, -4)[::-1]:
        start, tried = perf_counter(), lifetimes[:stop]
        kernel = MondrianKernel(train.points, num_trees, lifetime=tried[-1], random_state=0)
        errors = validation_errors(sweep(kernel, train.points, targets, tried, held_out), validation.y)
        best = int(errors.argmin())
        trials.append((perf_counter() - start, float(tried[best]), float(errors[best])))
    return trials


class _ClockedRegressor(SGDRegressor):
    """Stochastic gradient descent that notes when it is asked for a score."""

    times: list[float] = []

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        self.times.append(perf_counter())
        return -float(np.sqrt(np.mean((self.predict(X) - y) ** 2)))


def _mondrian_descent(train: Rows, validation: Rows, num_trees: int, lifetimes: np.ndarray) -> list[Trial]:
    """Weights that are inherited from one lifetime to the next (section 4.2.2)."""
    mean, scale = train.y.mean(), train.y.std()
    _ClockedRegressor.times.clear()
    start = perf_counter()
    kernel = MondrianKernel(train.points, num_trees, lifetime=lifetimes[-1], random_state=0)
    targets, held_out = (train.y - mean) / scale, (validation.points, (validation.y - mean) / scale)
    estimator = _ClockedRegressor(**descent(len(train.y), DELTA, EPOCHS).get_params())
    options = {"epochs": EPOCHS, "validation": held_out, "random_state": 0}
    path = fit_along_lifetimes(kernel, estimator, train.points, targets, lifetimes, **options)
    errors = -100 * path.scores * scale / np.sqrt(np.mean(validation.y**2))
    return [(time - start, *pair) for time, *pair in zip(_ClockedRegressor.times, lifetimes.tolist(), errors.tolist())]


def _exact(features: Features, y: np.ndarray) -> Callable[[Features], np.ndarray]:
    weights = ridge(features, y, DELTA).weights
    return lambda points: points @ weights


def _descent(features: Features, y: np.ndarray) -> Callable[[Features], np.ndarray]:
    scale = y.std()
    fitted = descent(len(y), DELTA, EPOCHS).fit(features, y / scale)
    return lambda points: scale * fitted.predict(points)


LEARNERS = {"exact": _exact, "descent": _descent}


def _rebuilt(
    method: str, fit: Callable[..., Any], train: Rows, validation: Rows, size: int
) -> Callable[[float], float]:
    """The validation error of a lifetime, whose features are drawn and fitted anew."""
    mean = train.y.mean()

    def error(lifetime: float) -> float:
        features, points = DRAWS[method](train.x, validation.x, size, lifetime, 0)
        return relative_error(fit(features, train.y - mean)(points) + mean, validation.y)

    return error


def _searched(error_of: Callable[[float], float], first: float, num_trials: int) -> list[Trial]:
    """The paper's search: double or halve until the best lifetime lies between others, then halve the intervals."""
    seconds, errors, trials = 0.0, {}, []
    lifetime = first
    for _ in range(num_trials):
        errors[lifetime], taken = timed(lambda: error_of(lifetime))  # noqa: B023
        seconds += taken
        trials.append((seconds, lifetime, errors[lifetime]))
        lifetime = _next_lifetime(errors)
    return trials


def _next_lifetime(errors: dict[float, float]) -> float:
    tried = sorted(errors)
    best = tried.index(min(errors, key=errors.__getitem__))
    if best == len(tried) - 1:
        return 2 * tried[-1]
    if best == 0:
        return tried[0] / 2
    below, above = tried[best] / tried[best - 1], tried[best + 1] / tried[best]
    return tried[best] * (above**0.5 if above >= below else below**-0.5)


def _found(trials: dict[tuple[str, str], list[Trial]]) -> str:
    """When each reached within a twentieth of the Mondrian kernel's least error by the same learner."""
    sentences, faster = [], []
    for learner, words in (("exact", "exact solutions"), ("descent", "stochastic gradient descent")):
        least = 1.05 * min(error for *_, error in trials[MONDRIAN, learner])
        times = {method: _reached(trials[method, learner], least) for method in (MONDRIAN, BINNING, FOURIER)}
        faster.append(all(10 * times[MONDRIAN] <= times[other] for other in (BINNING, FOURIER)))
        reached = ", ".join(f"{method} {_seconds(time)}" for method, time in times.items())
        sentences.append(f"with {words} {least:.2g} % is reached after: {reached}")
    verdict = "holds" if all(faster) else "does not hold"
    return f"The paper's finding, ten times faster or more, {verdict}: {'; '.join(sentences)}."


def _reached(line: list[Trial], error: float) -> float:
    return min((time for time, _, found in line if found <= error), default=float("inf"))


def _seconds(time: float) -> str:
    return f"{time:.1f} s" if np.isfinite(time) else "never"
