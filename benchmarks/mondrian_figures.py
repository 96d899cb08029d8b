"""
Figures 5 to 10 of "The Mondrian Kernel" (Balog et al. 2016, section 8), made again.

With `--data`, CPU is the paper's set; without, Friedman's first function takes its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_matrix
from sklearn.datasets import make_friedman1
from sklearn.linear_model import Ridge, SGDRegressor
from sklearn.metrics.pairwise import laplacian_kernel
from torch import Tensor

from gpytorch_partition import MondrianKernel, RandomBinningKernel, lifetime_sweep
from gpytorch_partition.lifetimes import LifetimeSweep, MondrianForest, fit_along_lifetimes
from gpytorch_partition.models import cluster_features

from .plots import COLORS, GRAY, finish, panels, styles
from .report import Options, Row, Table, grid, measured, timed

DELTA = 1e-4  # the ridge constant of all the paper's experiments: |y - F w|^2 + DELTA |w|^2
EPOCHS = 5  # passes over the rows where weights are found by stochastic gradient descent
DESCENT = f"descent: alpha = delta / N, {EPOCHS} passes"
TRUE_LIFETIME = 10.0
LOST = 20.0  # % of error above which a search of figure 8 knows no direction
NATS = 6_000  # below the largest log likelihood a panel reaches: shorter lifetimes are millions below
MONDRIAN, BINNING, FOURIER = "Mondrian kernel", "random binning", "random Fourier features"
EXACT, FOREST = "exact Laplace kernel", "Mondrian forest"
NEAR = "share within a tenth of the targets' standard deviation"
LOOKS = styles((MONDRIAN, FOURIER, BINNING))
Features = np.ndarray | csr_matrix
Trial = tuple[float, float, float]  # seconds since the search began, lifetime, validation error in %


def mondrian_figures(options: Options) -> Iterator[Table]:
    """Make figures 5 to 10."""
    for figures in (_kernel_error, _prediction_error, _recovery, _by_trees, _search, _against_forest):
        yield from figures(options)


class Rows(NamedTuple):
    x: np.ndarray
    y: np.ndarray

    @property
    def points(self) -> Tensor:
        return torch.from_numpy(self.x)

    @property
    def tensors(self) -> tuple[Tensor, Tensor]:
        return torch.from_numpy(self.x), torch.from_numpy(self.y)


class Problem(NamedTuple):
    """A set with centred targets, their mean, and the lifetime at which the exact kernel is good for it."""

    name: str
    train: Rows
    test: Rows
    mean: float
    lifetime: float

    def error(self, predicted: np.ndarray, rows: Rows) -> float:
        """Return 100 |prediction - y| / |y|, as in the paper's figures."""
        return relative_error(predicted + self.mean, rows.y + self.mean)


def relative_error(prediction: np.ndarray, y: np.ndarray) -> float:
    """Return 100 |prediction - y| / |y|."""
    return 100 * float(np.linalg.norm(prediction - y) / np.linalg.norm(y))


def _cpu(options: Options) -> Problem:
    """Read the CPU set, unscaled, with its own split: at 1e-6 the exact kernel has the error in the authors' code."""
    if options.data is None:
        X, y = make_friedman1(options.pick(2_000, 300), noise=1.0, random_state=0)
        is_test, name, lifetime = np.arange(len(y)) % 5 == 0, "Friedman 1", 0.5
    else:
        with np.load(options.data / "cpu.npz", allow_pickle=False) as file:
            X, y, is_test = file["X"], file["y"], file["test_mask"][:, 0]
        name, lifetime = "CPU", 1e-6
    kept = np.random.RandomState(0).permutation(np.flatnonzero(~is_test))[: options.pick(len(y), 200)]
    mean = y[kept].mean()
    return Problem(name, Rows(X[kept], y[kept] - mean), Rows(X[is_test], y[is_test] - mean), mean, lifetime)


def _laplace_process(num_rows: int, seed: int) -> list[Rows]:
    random = np.random.RandomState(seed)
    x = random.uniform(size=(3 * num_rows, 2))
    y = np.linalg.cholesky(_noisy(x, TRUE_LIFETIME)) @ random.standard_normal(len(x))
    return [Rows(*pair) for pair in zip(np.split(x, 3), np.split(y, 3))]


def _noisy(x: np.ndarray, lifetime: float) -> np.ndarray:
    covariance = laplacian_kernel(x, x, lifetime)
    covariance.flat[:: len(x) + 1] += DELTA
    return covariance


def fourier_features(x: np.ndarray, number: int, lifetime: float, seed: int) -> np.ndarray:
    """
    Return random Fourier features of the Laplace kernel (Rahimi & Recht 2007, algorithm 1): `N x number` cosines.

    The kernel is a product over the columns of characteristic functions of Cauchy variables of scale lifetime.
    """
    random = np.random.RandomState(seed)
    frequencies = lifetime * random.standard_cauchy((x.shape[1], number))
    return (2 / number) ** 0.5 * np.cos(x @ frequencies + random.uniform(0, 2 * np.pi, number))


def ridge(features: Features, y: np.ndarray) -> np.ndarray:
    """Return the minimizer of |y - F w|^2 + DELTA |w|^2."""
    return Ridge(DELTA, fit_intercept=False, solver="cholesky").fit(features, y).coef_


def features_of(
    method: str, x: np.ndarray, points: np.ndarray, number: int, lifetime: float, seed: int
) -> tuple[Features, Features]:
    """Return features of training rows and of points, with so many nonzeros in a row."""
    if method == FOURIER:
        return fourier_features(x, number, lifetime, seed), fourier_features(points, number, lifetime, seed)
    rows, others = torch.from_numpy(x), torch.from_numpy(points)
    if method == MONDRIAN:
        kernel: Any = MondrianKernel(rows, number, lifetime=lifetime, random_state=seed)
    else:
        kernel = RandomBinningKernel(rows, number, lengthscale=1 / lifetime, random_state=seed)
    return cluster_features(kernel, rows, rows), cluster_features(kernel, others, rows)


# Figures 5 and 6: how well features approximate the Laplace kernel, and predict.


def _kernel_error(options: Options) -> Iterator[Table]:
    num_points = options.pick(100, 20)

    def error(method: str, number: int, seed: int) -> float:
        x = np.random.RandomState(seed).uniform(size=(num_points, 2))
        features, _ = features_of(method, x, x, number, 10.0, seed)
        return float(np.abs(features @ features.T - laplacian_kernel(x, x, 10.0)).max())

    title = f"Figure 5: largest error of the kernel, {num_points} points of the unit square, lifetime 10"
    yield from _by_number(options, "mondrian_figure_5", title, error, options.pick(20, 2))


def _prediction_error(options: Options) -> Iterator[Table]:
    problem = _cpu(options)
    train, test = problem.train, problem.test

    def error(method: str, number: int, seed: int) -> float:
        features, points = features_of(method, train.x, test.x, number, problem.lifetime, seed)
        return problem.error(points @ ridge(features, train.y), test)

    weights = np.linalg.solve(_noisy(train.x, problem.lifetime), train.y)
    exact = problem.error(laplacian_kernel(test.x, train.x, problem.lifetime) @ weights, test)
    title = f"Figure 6: test error in % on {problem.name}, lifetime {problem.lifetime:g}; {EXACT}: {exact:.2f} %"
    yield from _by_number(options, "mondrian_figure_6", title, error, options.pick(10, 2), exact)


def _by_number(
    options: Options, name: str, title: str, error: Callable[..., float], draws: int, exact: float | None = None
) -> Iterator[Table]:
    numbers = options.pick([1, 2, 3, 5, 7, 10, 15, 20, 30, 40, 50], [1, 3])
    jobs = grid(features=(MONDRIAN, BINNING, FOURIER), M=numbers)

    def repeated(method: str, number: int) -> Row:
        errors = [error(method, number, seed) for seed in range(draws)]
        return {"mean error": float(np.mean(errors)), "standard deviation": float(np.std(errors, ddof=1))}

    def draw(rows: list[Row]) -> Any:
        figure, (panel,) = panels(1, 4.4, 6.6)
        for method, look in LOOKS.items():
            line = [row for row in rows if row["features"] == method]
            m, mean, spread = (
                np.array([row[key] for row in line]) for key in ("M", "mean error", "standard deviation")
            )
            panel.plot(m, mean, label=method, ms=5, lw=1.8, **look)
            panel.fill_between(m, mean - spread, mean + spread, color=look["color"], alpha=0.15, lw=0)
        if exact is not None:
            panel.axhline(exact, color="black", lw=1.2, ls=":", label=f"{EXACT}: {exact:.2f}")
        finish(panel, title, legend=True, xlabel="nonzero features per point, M", yscale="log")
        return figure

    yield from measured(options, name, f"{title}; {draws} draws", jobs, repeated, draw)


# Figure 7: a known lifetime.


def _sweep(kernel: MondrianKernel, train: Rows, validation: Rows, lifetimes: Any, **values: float) -> LifetimeSweep:
    return lifetime_sweep(kernel, *train.tensors, lifetimes=lifetimes, validation=validation.tensors, **values)


GIVEN = {"outputscale": 1.0, "noise": DELTA}


def _errors(found: LifetimeSweep, rows: Rows, mean: float = 0.0) -> np.ndarray:
    return 100 * found.validation_error.numpy() / np.sqrt(np.mean((rows.y + mean) ** 2))


def _lifetimes(options: Options) -> np.ndarray:
    return np.geomspace(0.5, 100, options.pick(30, 4))


def _recovery(options: Options) -> Iterator[Table]:
    num_rows, num_trees, lifetimes = options.pick(1_000, 60), options.pick(50, 5), _lifetimes(options)
    sweeps = {}

    def recovered(seed: int) -> Row:
        train, validation, test = _laplace_process(num_rows, seed)
        kernel = MondrianKernel(train.points, num_trees, lifetime=lifetimes[-1], random_state=seed)
        found = _sweep(kernel, train, validation, lifetimes, **GIVEN)
        sweeps[seed] = _errors(found, validation), found.log_marginal_likelihood.numpy()
        by_error = float(lifetimes[found.validation_error.argmin()])
        exact = laplacian_kernel(test.x, train.x, TRUE_LIFETIME) @ np.linalg.solve(
            _noisy(train.x, TRUE_LIFETIME), train.y
        )
        ways = {"validation error": by_error, "likelihood": found.best_lifetime, "truth": TRUE_LIFETIME}
        return {
            **{f"lifetime by {way}": lifetime for way, lifetime in ways.items()},
            **{f"test error, {way} (%)": _test_error(kernel, lifetime, train, test) for way, lifetime in ways.items()},
            "test error, true Laplace kernel (%)": relative_error(exact, test.y),
        }

    title = f"Figure 7: a lifetime of {TRUE_LIFETIME:g} recovered, {num_rows:,} rows in 2 columns, {num_trees} trees"
    jobs = grid(draw=range(options.pick(5, 1)))
    draw = lambda rows: _draw_recovery(lifetimes, *sweeps[0])  # noqa: E731
    yield from measured(options, "mondrian_figure_7", title, jobs, recovered, draw)


def _test_error(kernel: MondrianKernel, lifetime: float, train: Rows, test: Rows) -> float:
    kernel.lifetime = lifetime
    weights = ridge(cluster_features(kernel, train.points, train.points), train.y)
    return relative_error(cluster_features(kernel, test.points, train.points) @ weights, test.y)


def _draw_recovery(lifetimes: np.ndarray, errors: np.ndarray, likelihoods: np.ndarray) -> Any:
    figure, drawn = panels(2, 4.4, 4.8)
    words = (("validation error (%)", "least", errors.argmin()), ("log likelihood", "largest", likelihoods.argmax()))
    for panel, line, (what, extreme, place) in zip(drawn, (errors, likelihoods), words):
        panel.axvline(TRUE_LIFETIME, color=GRAY, lw=1.2, ls="--", label=f"true lifetime {TRUE_LIFETIME:g}")
        panel.plot(lifetimes, line, color=COLORS[0], marker=".", lw=1.5)
        label = f"{extreme} at {lifetimes[place]:.3g}"
        panel.plot(lifetimes[place], line[place], "o", color=COLORS[1], ms=8, label=label)
        finish(panel, what, legend=True, xscale="log", xlabel="lifetime")
    drawn[1].set_ylim(likelihoods.max() - NATS, likelihoods.max() + 0.1 * NATS)
    return figure


def _by_trees(options: Options) -> Iterator[Table]:
    """By the number of trees: the lifetime found, and the peak of the validation error on the way."""
    num_rows, lifetimes = options.pick(1_000, 60), _lifetimes(options)[:: options.pick(2, 1)]
    train, validation, _ = _laplace_process(num_rows, 0)
    exact = float(lifetimes[np.argmax([_laplace_likelihood(train, each) for each in lifetimes])])
    lines: dict[int, dict[str, np.ndarray]] = {}

    def grown(num_trees: int) -> Row:
        kernel = MondrianKernel(train.points, num_trees, lifetime=lifetimes[-1], random_state=0)
        given, chosen = (_sweep(kernel, train, validation, lifetimes, **values) for values in (GIVEN, {}))
        errors, chosen_errors = _errors(given, validation), _errors(chosen, validation)
        cuts = (kernel.cut(each)(train.points).evaluate_kernel().left.num_clusters for each in lifetimes.tolist())
        cells = np.array(list(cuts)) / num_rows
        lines[num_trees] = {"given": errors, "chosen": chosen_errors, "cells": cells}
        peak = int(errors[: int(errors.argmin()) + 1].argmax())
        return {
            "lifetime by likelihood": given.best_lifetime,
            "lifetime by validation error": float(lifetimes[errors.argmin()]),
            "by likelihood, most likely noise": chosen.best_lifetime,
            "by likelihood of the Laplace kernel": exact,
            "largest error before the least (%)": float(errors[peak]),
            "at lifetime": float(lifetimes[peak]),
            "cells per row there": float(cells[peak]),
            "error there, most likely noise (%)": float(chosen_errors[peak]),
            "least error (%)": float(errors.min()),
        }

    title = f"Figure 7 by the number of trees, {num_rows:,} rows in 2 columns, true lifetime {TRUE_LIFETIME:g}"
    jobs = grid(trees=options.pick((20, 50, 100, 200), (5, 10)))
    draw = partial(_draw_trees, lines, lifetimes)
    yield from measured(options, "mondrian_figure_7_trees", title, jobs, grown, draw)


def _laplace_likelihood(rows: Rows, lifetime: float) -> float:
    root = np.linalg.cholesky(_noisy(rows.x, lifetime))
    return -0.5 * float(np.square(np.linalg.solve(root, rows.y)).sum()) - float(np.log(root.diagonal()).sum())


def _draw_trees(lines: dict[int, dict[str, np.ndarray]], lifetimes: np.ndarray, rows: list[Row]) -> Any:
    figure, (found, errors) = panels(2, 4.4, 5.2)
    found.axhline(TRUE_LIFETIME, color=GRAY, lw=1.2, ls="--", label=f"true lifetime {TRUE_LIFETIME:g}")
    ways = {"lifetime by likelihood": "true noise", "by likelihood, most likely noise": "most likely noise"}
    for (column, words), color, marker in zip(ways.items(), COLORS[1::-1], "os"):
        points = [row["trees"] for row in rows], [row[column] for row in rows]
        found.plot(*points, marker, color=color, alpha=0.6, ms=7, label=words)
    finish(found, "lifetime of the largest likelihood", True, xscale="log", yscale="log", xlabel="trees")
    for (num_trees, line), color in zip(lines.items(), COLORS):
        errors.plot(lifetimes, line["given"], color=color, lw=1.5, label=f"{num_trees} trees")
        errors.plot(lifetimes, line["chosen"], color=color, lw=1.0, ls=":")
        threshold = np.exp(np.interp(0, np.log(line["cells"]), np.log(lifetimes)))
        errors.plot(threshold, np.interp(threshold, lifetimes, line["given"]), "o", mfc="none", color=color, ms=8)
    errors.plot([], [], "o", mfc="none", color=GRAY, label="as many cells as rows")
    errors.plot([], [], ":", color=GRAY, label="most likely noise")
    finish(errors, "validation error (%)", True, xscale="log", xlabel="lifetime")
    return figure


# Figure 8: the search for a lifetime.


def _search(options: Options) -> Iterator[Table]:
    problem, number = _cpu(options), options.pick(350, 10)
    held_out = len(problem.train.y) // 5
    parts = (slice(held_out), slice(held_out, None))
    validation, train = (Rows(problem.train.x[part], problem.train.y[part] + problem.mean) for part in parts)
    mean = train.y.mean()
    train, validation = (Rows(rows.x, rows.y - mean) for rows in (train, validation))
    lifetimes = np.geomspace(1e-2 * problem.lifetime, 2 * problem.lifetime, options.pick(16, 2))
    trials = {
        (MONDRIAN, "exact"): _mondrian_exact(train, validation, mean, number, lifetimes),
        (MONDRIAN, "descent"): _mondrian_descent(train, validation, mean, number, lifetimes),
    }
    for method in (BINNING, FOURIER):
        for learner in ("exact", "descent"):
            error = partial(_rebuilt, method, learner, train, validation, mean, number)
            trials[method, learner] = searched(error, 1.0, options.pick(48, 2))
    rows = [
        {"features": method, "weights": learner, "seconds": time, "lifetime": lifetime, "validation error (%)": error}
        for (method, learner), line in trials.items()
        for time, lifetime, error in line
    ]
    title = f"Figure 8: validation error in % on {problem.name} against seconds, M = {number}"
    yield Table("mondrian_figure_8", title, rows, draw=partial(_draw_searches, trials))


def _mondrian_exact(train: Rows, validation: Rows, mean: float, number: int, lifetimes: np.ndarray) -> list[Trial]:
    trials = []
    for stop in range(len(lifetimes), 0, -4)[::-1]:
        start, tried = perf_counter(), lifetimes[:stop]
        kernel = MondrianKernel(train.points, number, lifetime=tried[-1], random_state=0)
        errors = _errors(_sweep(kernel, train, validation, tried, **GIVEN), validation, mean)
        best = int(errors.argmin())
        trials.append((perf_counter() - start, float(tried[best]), float(errors[best])))
    return trials


def _descent(num_rows: int) -> dict[str, Any]:
    return {"alpha": DELTA / num_rows, "eta0": 0.5, "max_iter": EPOCHS, "tol": None, "random_state": 0}


class _ClockedRegressor(SGDRegressor):
    """Stochastic gradient descent that notes when it is asked for a score."""

    times: list[float] = []

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        self.times.append(perf_counter())
        return -float(np.sqrt(np.mean((self.predict(X) - y) ** 2)))


def _mondrian_descent(train: Rows, validation: Rows, mean: float, number: int, lifetimes: np.ndarray) -> list[Trial]:
    """Inherit weights from one lifetime to the next (section 4.2.2)."""
    scale = train.y.std()
    _ClockedRegressor.times.clear()
    start = perf_counter()
    kernel = MondrianKernel(train.points, number, lifetime=lifetimes[-1], random_state=0)
    options = {"epochs": EPOCHS, "validation": (validation.points, validation.y / scale), "random_state": 0}
    estimator = _ClockedRegressor(**_descent(len(train.y)))
    path = fit_along_lifetimes(kernel, estimator, train.points, train.y / scale, lifetimes, **options)
    errors = -100 * path.scores * scale / np.sqrt(np.mean((validation.y + mean) ** 2))
    return [(time - start, *pair) for time, *pair in zip(_ClockedRegressor.times, lifetimes.tolist(), errors.tolist())]


def _rebuilt(
    method: str, learner: str, train: Rows, validation: Rows, mean: float, number: int, lifetime: float
) -> float:
    features, points = features_of(method, train.x, validation.x, number, lifetime, 0)
    if learner == "exact":
        predicted = points @ ridge(features, train.y)
    else:
        scale = train.y.std()
        predicted = scale * SGDRegressor(**_descent(len(train.y))).fit(features, train.y / scale).predict(points)
    return relative_error(predicted + mean, validation.y + mean)


def searched(error_of: Callable[[float], float], first: float, num_trials: int) -> list[Trial]:
    """
    Search as the paper's authors do: double or halve until the best lifetime lies between others, then halve intervals.

    While no error is below 20 % both are done in turn, as in their code, whose first lifetime is 1.
    """
    seconds, errors, trials = 0.0, {}, []
    lifetime = first
    for number in range(num_trials):
        errors[lifetime], taken = timed(partial(error_of, lifetime))
        seconds += taken
        trials.append((seconds, lifetime, errors[lifetime]))
        lifetime = _next_lifetime(errors, number)
    return trials


def _next_lifetime(errors: dict[float, float], number: int) -> float:
    tried = sorted(errors)
    best = tried.index(min(tried, key=errors.__getitem__))
    is_lost = errors[tried[best]] > LOST
    if best == 0 or (is_lost and number % 2 == 0):
        return tried[0] / 2
    if best == len(tried) - 1 or is_lost:
        return 2 * tried[-1]
    below, above = tried[best] / tried[best - 1], tried[best + 1] / tried[best]
    return tried[best] * (above**0.5 if above >= below else below**-0.5)


def _draw_searches(trials: dict[tuple[str, str], list[Trial]]) -> Any:
    figure, drawn = panels(2, 4.4, 4.8, sharey=True)
    for panel, (learner, words) in zip(drawn, {"exact": "exact weights", "descent": "gradient descent"}.items()):
        for method, look in LOOKS.items():
            times, _, errors = (np.array(values) for values in zip(*sorted(trials[method, learner])))
            panel.step(times, np.minimum.accumulate(errors), where="post", label=method, ms=4, lw=1.8, **look)
        finish(panel, f"least validation error so far (%), {words}", xscale="log", xlabel="seconds")
    drawn[0].legend(frameon=False, fontsize=9, loc="lower left")  # where no line is
    drawn[0].set_ylim(bottom=0)
    return figure


# Figures 9 and 10: kernel and forest of the same trees.


def _against_forest(options: Options) -> Iterator[Table]:
    problem, num_trees = _cpu(options), options.pick(50, 5)
    lifetimes = (problem.lifetime * np.geomspace(0.05, 8, options.pick(16, 3))).tolist()
    whole = MondrianKernel(problem.train.points, num_trees, lifetime=lifetimes[-1], random_state=0)

    def compared(lifetime: float) -> Row:
        fits = _fits(whole.cut(lifetime), problem)
        row: Row = {"cells": len(fits["kernel"][2])}
        for name, (train, test, _) in fits.items():
            row[f"training error of the {name} (%)"] = problem.error(train, problem.train)
            row[f"test error of the {name} (%)"] = problem.error(test, problem.test)
        return row

    title = f"Figure 9: errors in % on {problem.name}, {num_trees} trees, by lifetime"
    jobs = grid(lifetime=lifetimes)
    rows = yield from measured(options, "mondrian_figure_9", title, jobs, compared, _draw_against_forest)
    yield _weights(whole.cut(min(rows, key=lambda row: row["test error of the kernel (%)"])["lifetime"]), problem)


def _fits(kernel: MondrianKernel, problem: Problem) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    x, points = problem.train.points, problem.test.points
    features = cluster_features(kernel, x, x)  # all weights jointly: equation 3
    weights = ridge(features, problem.train.y)
    joint = features @ weights, cluster_features(kernel, points, x) @ weights, weights * kernel.num_partitions**0.5
    forest = MondrianForest(kernel, *problem.train.tensors, **GIVEN)  # each tree by itself: equation 4
    own = forest.weights.numpy()
    return {"kernel": joint, "forest": (forest.predict(x).numpy(), forest.predict(points).numpy(), own[own != 0])}


def _draw_against_forest(rows: list[Row]) -> Any:
    figure, (panel,) = panels(1, 4.4, 6.6)
    for name, model, color in (("kernel", MONDRIAN, COLORS[0]), ("forest", FOREST, COLORS[1])):
        for part, style in (("test", "-"), ("training", "--")):
            line = [row[f"{part} error of the {name} (%)"] for row in rows]
            panel.plot([row["lifetime"] for row in rows], line, style, color=color, lw=1.8, label=f"{model}, {part}")
    finish(panel, "error (%)", True, xscale="log", xlabel="lifetime", ylim=(0, None))
    return figure


def _weights(kernel: MondrianKernel, problem: Problem) -> Table:
    train, fits, scale = problem.train, _fits(kernel, problem), problem.train.y.std()
    learner = SGDRegressor(**_descent(len(train.y)))
    learner.fit(cluster_features(kernel, train.points, train.points), train.y / scale)
    named = {
        "Mondrian kernel, exact": fits["kernel"][2],
        "Mondrian kernel, descent": kernel.num_partitions**0.5 * scale * learner.coef_,
        "Mondrian forest": fits["forest"][2],
    }
    root = kernel.num_partitions**0.5  # the authors plot w of the normalised features, beside means of the forest
    plotted = {model: w if model == FOREST else w / root for model, w in named.items()}
    rows: list[Row] = [
        {
            "model": model,
            "cells": len(w),
            "standard deviation": float(w.std()),
            NEAR: float(np.mean(np.abs(w) <= 0.1 * scale)),
            f"{NEAR}, of w": float(np.mean(np.abs(plotted[model]) <= 0.1 * scale)),
        }
        for model, w in named.items()
    ]
    title = f"Figure 10: weights of cells, sqrt(M) w, {problem.name}, lifetime {kernel.lifetime:.2g}; {DESCENT}"
    return Table("mondrian_figure_10", title, rows, draw=partial(_draw_histograms, named))


def _draw_histograms(named: dict[str, np.ndarray]) -> Any:
    figure, drawn = panels(len(named), 4.4, 3.9, sharex=True, sharey=True)
    reach = max(float(np.quantile(np.abs(values), 0.99)) for values in named.values())
    for panel, (model, values) in zip(drawn, named.items()):
        share, color = np.full(len(values), 100 / len(values)), COLORS[model == "Mondrian forest"]
        panel.hist(values, bins=np.linspace(-reach, reach, 61), weights=share, color=color)
        finish(panel, model, xlabel="weight of a cell, as a deviation\nfrom the mean target")
    drawn[0].set_ylabel("share of the cells (%)")
    return figure
