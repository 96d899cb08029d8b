"""Rankings of a rare class: LAGO beside machines with partition kernels, a forest, an SVM and logistic regression."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import QuantileTransformer, StandardScaler
from sklearn.svm import SVC

from gpytorch_partition.estimators import LAGORanker, PartitionGPRegressor, PartitionSVC, hit_curve
from gpytorch_partition.estimators.lago import ALPHAS

from .datasets import read_arrays
from .plots import COLORS, finish, legend_below, panels
from .report import Options, Row, Table, grid, measured, timed


class Problem(NamedTuple):
    X: np.ndarray
    is_rare: np.ndarray


def rankings(options: Options) -> Iterator[Table]:
    """Measure average precision and hits of every method on every problem, means of random halves."""
    problems, curves = _problems(options), {}

    def ranked(name: str, method: str) -> Row:
        problem = problems[name]
        found = [_half(problem, method, seed, options) for seed in range(options.pick(3, 1))]
        precisions, hits, times = zip(*found)
        curves[name, method] = np.mean(hits, axis=0)
        budget = int(problem.is_rare.sum() / 2)
        return {
            "rows": len(problem.is_rare),
            "rare": int(problem.is_rare.sum()),
            "average precision": float(np.mean(precisions)),
            "standard error": float(np.std(precisions) / len(found) ** 0.5),
            "hits (%) among as many rows as are rare": 100 * float(curves[name, method][budget - 1] / budget),
            "seconds to train": float(np.mean(times)),
        }

    jobs = grid(problem=problems, method=_methods(0, options))
    title = "Rankings of a rare class, means of random halves"
    yield from measured(options, "rare_class", title, jobs, ranked, lambda rows: _draw_hits(list(problems), curves))


def _half(problem: Problem, name: str, seed: int, options: Options) -> tuple[float, np.ndarray, float]:
    x, points, y, truth = train_test_split(*problem, test_size=0.5, stratify=problem.is_rare, random_state=seed)
    model, seconds = timed(lambda: _methods(seed, options)[name].fit(x, y.astype(int)))
    if hasattr(model, "decision_function"):
        scores = model.decision_function(points)
    else:
        scores = model.predict_proba(points)[:, 1] if hasattr(model, "predict_proba") else model.predict(points)
    return average_precision_score(truth, scores), hit_curve(truth, scores), seconds


def _methods(seed: int, options: Options) -> dict[str, Any]:
    grid = {"svc__C": [1.0, 10.0, 100.0], "svc__gamma": options.pick([0.01, 0.1, 1.0], [0.1])}
    machine = make_pipeline(StandardScaler(), SVC(class_weight="balanced"))
    ranks = QuantileTransformer(n_quantiles=200, output_distribution="normal", subsample=None)
    return {
        "sLAGO": LAGORanker(),
        "eLAGO": LAGORanker("elliptical"),
        "sLAGO, triangular": LAGORanker(kernel="triangular"),
        "sLAGO on normal scores": make_pipeline(ranks, LAGORanker()),
        "partition GP": PartitionGPRegressor("forest", random_state=seed),
        "partition SVM": PartitionSVC(random_state=seed),
        "forest": RandomForestClassifier(options.pick(300, 10), random_state=seed),
        "SVM": GridSearchCV(machine, grid, scoring="average_precision", cv=3),
        "logistic regression": make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
    }


def _draw_hits(names: list[str], curves: dict[tuple[str, str], np.ndarray]) -> Any:
    figure, drawn = panels(len(names), 3.3, 3.5, most=3)
    for panel, name in zip(drawn, names):
        lines = {method: curve for (own, method), curve in curves.items() if own == name}
        number = round(next(iter(lines.values()))[-1])
        most = min(5 * number, len(next(iter(lines.values()))))
        panel.plot([0, number, most], [0, 100, 100], color="#BDBDBD", lw=1, label="perfect")
        for (method, curve), color in zip(lines.items(), COLORS):
            style = "-" if "LAGO" in method else "-." if "partition" in method else "--"
            values = 100 * np.append(0, curve[:most]) / number
            panel.plot(range(most + 1), values, style, color=color, lw=1.5, label=method)
        finish(panel, name, xlabel="rows looked at (test half)", ylim=(0, 103), xlim=(0, most))
    drawn[0].set_ylabel("rare rows found (%)")
    legend_below(figure, drawn[0], 5)
    return figure


def by_parameters(options: Options) -> Iterator[Table]:
    """Measure what Zhu 2008 says of K and alpha (4.2.4), by cross-validated average precision."""
    numbers, problems, grids = options.pick([1, 2, 3, 5, 10, 20], [1, 5]), _problems(options), {}

    def searched(name: str) -> Row:
        model = LAGORanker(n_neighbors=numbers).fit(*problems[name])
        grids[name] = model.average_precisions_
        return {
            "best K": model.n_neighbors_,
            "best alpha": model.alpha_,
            "average precision at the best": model.average_precision_,
            "least of the best for each K": float(model.average_precisions_.max(1).min()),
            "least of the best for each alpha": float(model.average_precisions_.max(0).min()),
        }

    title = f"Cross-validated average precision of sLAGO over K (1 to {numbers[-1]}) and alpha (1/16 to 32)"
    jobs, draw = grid(problem=problems), lambda rows: _draw_precisions(grids, numbers)
    yield from measured(options, "rare_class_parameters", title, jobs, searched, draw)


def _draw_precisions(grids: dict[str, np.ndarray], numbers: list[int]) -> Any:
    from matplotlib import colormaps

    figure, drawn = panels(len(grids), 3.1, 3.3, most=3)
    shades = colormaps["viridis"](np.linspace(0, 0.9, len(numbers)))
    for panel, (name, precisions) in zip(drawn, grids.items()):
        for number, line, shade in zip(numbers, precisions, shades):
            panel.plot(ALPHAS, line, color=shade, lw=1.4, label=f"K = {number}")
        finish(panel, name, xscale="log", xlabel="alpha", ylim=(0, None))
    drawn[0].set_ylabel("average precision")
    legend_below(figure, drawn[0], 8)
    return figure


# Problems.


def _problems(options: Options) -> dict[str, Problem]:
    num_rows = options.pick(10_000, 400)
    problems = {
        "active compounds, simulated": _compounds(num_rows, num_rows // 50),
        "two clumps, simulated": clumps(num_rows, num_rows // 100),
    }
    if options.data is None:
        return problems
    california, protein = (read_arrays(options.data / f"{name}.npz") for name in ("california", "protein"))
    real = {
        "spambase, 100 spam mails": _few(options, "spambase", 100),
        "banana, 80 of a class": _few(options, "banana", 80),
        "california, values at the cap": Problem(california[0], california[1] >= 500_000),
        "protein, lowest 1 %": Problem(protein[0], protein[1] <= np.quantile(protein[1], 0.01)),
    }
    return problems | {name: _most(problem) for name, problem in real.items()}


def _compounds(num_rows: int, num_rare: int) -> Problem:
    """
    Make six skewed, correlated descriptors; the active rows lie in eight small regions, one in ten anywhere.

    Of the kind of the drug discovery set of Zhu, Su & Chipman 2006 (29,812 compounds, 608 active), which is not public.
    """
    random = np.random.default_rng(0)
    mixing = random.standard_normal((6, 6)) / 2 + np.eye(6)
    X = random.standard_normal((num_rows, 6)) @ mixing
    rare = random.choice(num_rows, num_rare, replace=False)
    middles = X[random.choice(num_rows, 8, replace=False)]
    widths = random.uniform(0.1, 0.5, (8, 6))
    mechanism = random.integers(8, size=num_rare)
    active = middles[mechanism] + widths[mechanism] * random.standard_normal((num_rare, 6))
    X[rare] = np.where(random.random((num_rare, 1)) < 0.1, X[rare], active)
    return Problem(np.sinh(X / 2), np.isin(np.arange(num_rows), rare))


def clumps(num_rows: int, num_rare: int) -> Problem:
    """Make six standard normal columns; the rare rows lie in two clumps at opposite corners."""
    random = np.random.default_rng(0)
    X = random.standard_normal((num_rows, 6))
    corners = 1.2 * random.choice([-1.0, 1.0], (num_rare, 1))
    X[:num_rare] = corners + 0.5 * random.standard_normal((num_rare, 6))
    return Problem(X, np.arange(num_rows) < num_rare)


def _few(options: Options, name: str, number: int) -> Problem:
    """Read a set of two classes with so few rows of the second."""
    X, y = read_arrays(options.data / f"{name}.npz")
    kept = np.random.default_rng(0).permutation(np.flatnonzero(y == 1))[:number]
    rows = np.sort(np.concatenate([np.flatnonzero(y == 0), kept]))
    return Problem(X[rows], y[rows] == 1)


def _most(problem: Problem) -> Problem:
    rows = np.random.default_rng(0).permutation(len(problem.is_rare))[:12_000]
    return Problem(problem.X[rows], problem.is_rare[rows])
