"""
The figures of "Kernels and Ensembles" (Zhu 2008), made again, and its two methods beside others.

With `--data`, spambase is the tutorial's set; without, scikit-learn's breast cancer set takes its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import torch
from scipy.stats import spearmanr
from sklearn.decomposition import PCA, KernelPCA
from sklearn.ensemble import AdaBoostClassifier, RandomForestClassifier
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from gpytorch_partition import FastClusterKernel, MondrianKernel
from gpytorch_partition.estimators import (
    BaggedStepwiseSelector,
    LAGORanker,
    ParallelEvolutionSelector,
    PartitionKernelPCA,
)
from gpytorch_partition.estimators.column_selection import LinearCriterion, stepwise
from gpytorch_partition.models.spectral import spectral_truncation

from .datasets import classes
from .plots import COLORS, finish, panels, styles
from .rare_rankings import by_parameters, clumps, rankings
from .report import Options, Row, Table, grid, measured, timed

GAUSSIAN, PLAIN, CENTRED = "Gaussian, h = 1", "as it is", "centred"
BEST = {"votes": "best", "n_generations": 6, "population_size": 10}  # the tutorial's
Problem = tuple[np.ndarray, np.ndarray, np.ndarray]  # rows, targets and which columns are true


def kernels_and_ensembles(options: Options) -> Iterator[Table]:
    """Make figures 2, 3, 5 and 6; compare selections of columns and rankings of a rare class; measure seconds."""
    for figures in (
        _round_data,
        _sensitivity,
        _criterion_gap,
        _universes,
        _selections,
        rankings,
        by_parameters,
        _decoupling,
        _speed,
    ):
        yield from figures(options)


# Figure 2: whether the first component of spherical data orders them by their distance from the origin.


def _round_data(options: Options) -> Iterator[Table]:
    draws, num_rows = options.pick((20, 300), (2, 60))
    data = [np.random.default_rng(seed).standard_normal((num_rows, 2)) for seed in range(draws)]
    found = [_first_three(x, seed) for seed, x in enumerate(data)]

    def ordered(kernel: str, matrix: str) -> Row:
        orders = [
            [abs(spearmanr(values, np.linalg.norm(x, axis=1)).statistic) for values in scores[kernel, matrix].T]
            for x, scores in zip(data, found)
        ]
        return {f"component {i}": float(value) for i, value in enumerate(np.median(orders, axis=0), 1)}

    title = (
        "Figure 2 of Zhu 2008: rank correlation of components with the distance from the origin, medians of "
        f"{draws} draws of {num_rows} spherical Gaussian rows in the plane"
    )
    jobs = [{"kernel": kernel, "matrix": matrix} for kernel, matrix in found[0]]
    draw = lambda rows: _draw_components(data[0], found[0])  # noqa: E731
    yield from measured(options, "kernels_and_ensembles_figure_2", title, jobs, ordered, draw)


def _first_three(x: np.ndarray, seed: int) -> dict[tuple[str, str], np.ndarray]:
    rows = torch.from_numpy(x)
    found = {
        (GAUSSIAN, PLAIN): np.linalg.eigh(rbf_kernel(x, gamma=1.0))[1][:, :-4:-1],
        ("none (PCA)", CENTRED): PCA(2).fit_transform(x),
        (GAUSSIAN, CENTRED): KernelPCA(3, kernel="rbf", gamma=1.0).fit_transform(x),
    }
    kernels = {
        "fast cluster": FastClusterKernel(rows, 200, random_state=seed),
        "Mondrian, lifetime 1": MondrianKernel(rows, 200, lifetime=1.0, random_state=seed),
    }
    for name, kernel in kernels.items():
        found[name, PLAIN] = spectral_truncation(kernel, rows, 3, random_state=seed).eigenvectors.numpy()
        found[name, CENTRED] = PartitionKernelPCA(3, kernel, random_state=seed).fit_transform(x)
    return dict(sorted(found.items(), key=lambda item: item[0][1]))


def _draw_components(x: np.ndarray, scores: dict[tuple[str, str], np.ndarray]) -> Any:
    figure, drawn = panels(1 + len(scores), 3.2, 3.4, most=4)
    named = {"original data": x} | {", ".join(name): values for name, values in scores.items()}
    for panel, (name, values) in zip(drawn, named.items()):
        dots = panel.scatter(*values[:, :2].T, c=np.linalg.norm(x, axis=1), cmap="viridis", s=14, lw=0)
        finish(panel, name)
    figure.colorbar(dots, ax=drawn, label="distance from the origin", shrink=0.8)
    return figure


# Figure 3: test errors over the tuning parameters of a support vector machine, a forest and AdaBoost.


def _sensitivity(options: Options) -> Iterator[Table]:
    X, y, name = classes(options, "spambase")
    num_train = options.pick(1_536 if options.data else 190, 190)
    scaler = StandardScaler().fit(X[:num_train])
    parts = scaler.transform(X[:num_train]), y[:num_train], scaler.transform(X[num_train:]), y[num_train:]
    costs, widths = options.pick([0.1, 1.0, 10.0, 100.0, 1e3], [1.0]), [1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0]
    trees, depths = options.pick([5, 10, 25, 50, 100, 250, 500], [2, 4]), options.pick([1, 2, 3, 5, 8], [1])
    columns = [size for size in options.pick([1, 2, 3, 5, 7, 10, 15, 25, 40, 57], [1, 5]) if size <= X.shape[1]]
    maps = {
        "SVM": (_svm_errors, "cost of errors", costs, "h", options.pick(widths, [0.1])),
        "random forest": (_forest_errors, "B, trees", trees, "m, columns tried at a split", columns),
        "AdaBoost": (_boosting_errors, "B, trees", trees, "depth of the trees", depths),
    }
    grids = {learner: 100 * errors(*parts, down, across) for learner, (errors, _, down, _, across) in maps.items()}
    rows = [
        {"learner": learner, "first": f"{maps[learner][1]} = {maps[learner][2][i]:g}"}
        | {"second": f"{maps[learner][3]} = {maps[learner][4][j]:g}", "test error (%)": float(errors[i, j])}
        for learner, errors in grids.items()
        for i, j in np.ndindex(*errors.shape)
    ]
    title = f"Figure 3 of Zhu 2008: test errors in percent on {name}, {num_train:,} random training rows, as there"
    yield Table("kernels_and_ensembles_figure_3", title, rows, draw=partial(_draw_maps, grids, maps, name))


def _svm_errors(x: Any, y: Any, test_x: Any, test_y: Any, costs: list[float], widths: list[float]) -> np.ndarray:
    return np.array(
        [[np.mean(SVC(C=cost, gamma=h).fit(x, y).predict(test_x) != test_y) for h in widths] for cost in costs]
    )


def _forest_errors(x: Any, y: Any, test_x: Any, test_y: Any, trees: list[int], sizes: list[int]) -> np.ndarray:
    columns = []
    for size in sizes:
        forest = RandomForestClassifier(max(trees), max_features=size, random_state=0).fit(x, y)
        votes = np.cumsum([tree.predict_proba(test_x)[:, 1] > 0.5 for tree in forest.estimators_], axis=0)
        columns.append([np.mean((votes[number - 1] > number / 2) != test_y) for number in trees])
    return np.array(columns).T


def _boosting_errors(x: Any, y: Any, test_x: Any, test_y: Any, trees: list[int], depths: list[int]) -> np.ndarray:
    columns = []
    for depth in depths:
        tree = DecisionTreeClassifier(max_depth=depth, random_state=0)
        model = AdaBoostClassifier(tree, n_estimators=max(trees), random_state=0).fit(x, y)
        errors = [np.mean(predicted != test_y) for predicted in model.staged_predict(test_x)]
        columns.append([errors[min(number, len(errors)) - 1] for number in trees])
    return np.array(columns).T


def _draw_maps(grids: dict[str, np.ndarray], maps: dict[str, tuple], name: str) -> Any:
    from matplotlib.colors import LogNorm

    figure, drawn = panels(len(grids), 4.6, 4.8)
    values = np.concatenate([errors.ravel() for errors in grids.values()])
    low, high = values.min(), values.max()
    for panel, (learner, errors) in zip(drawn, grids.items()):
        _, down, down_values, across, across_values = maps[learner]
        image = panel.imshow(errors, cmap="viridis_r", norm=LogNorm(low, high), aspect="auto", origin="lower")
        for (i, j), value in np.ndenumerate(errors):
            color = "white" if np.log(value / low) > 0.5 * np.log(high / low) else "black"
            panel.text(j, i, f"{value:.1f}", ha="center", va="center", fontsize=7, color=color)
        panel.set_xticks(range(len(across_values)), [f"{value:g}" for value in across_values], rotation=45)
        panel.set_yticks(range(len(down_values)), [f"{value:g}" for value in down_values])
        panel.set(xlabel=across, ylabel=down)
        panel.set_title(learner, loc="left", fontsize=11)
    figure.colorbar(image, ax=drawn, label=f"test error (%), {name}", shrink=0.8)
    return figure


# Figures 5 and 6, and selections of columns.

TRUE = np.isin(np.arange(1, 11), (2, 5, 8))
SUBSETS = np.array(list(product([False, True], repeat=10)))
SHOWN = 1  # the draw in the pictures, like three in four: the least AIC has false columns too


def _toy(seed: int) -> Problem:
    """Make the tutorial's problem (section 4.3.3): 50 rows, of whose 10 columns the 2nd, 5th and 8th are true."""
    random = np.random.default_rng(seed)
    X = random.standard_normal((50, 10))
    return X, X[:, TRUE].sum(1) + random.standard_normal(50), TRUE


def _weighted(seed: int, correlation: float = 0.0) -> Problem:
    """Make 20 columns, equally correlated, and 40 rows of x5 + 2 x10 + 3 x15 and noise."""
    random = np.random.default_rng(seed)
    common = random.standard_normal((40, 1))
    X = np.sqrt(1 - correlation) * random.standard_normal((40, 20)) + np.sqrt(correlation) * common
    effects = np.zeros(20)
    effects[[4, 9, 14]] = 1, 2, 3
    return X, X @ effects + random.standard_normal(40), effects > 0


def _wide(seed: int) -> Problem:
    """Make 60 columns, 100 rows, six true columns."""
    random = np.random.default_rng(seed)
    X = random.standard_normal((100, 60)) + 0.7 * random.standard_normal((100, 1))
    true = np.arange(60) % 10 == 0
    return X, X[:, true].sum(1) + random.standard_normal(100), true


def _criterion_gap(options: Options) -> Iterator[Table]:
    found = [_gap(seed) for seed in range(options.pick(200, 5))]
    too_large = np.mean([row["true columns in the best"] == 3 and row["columns of the best"] > 3 for row in found])
    separated = np.mean([row["AIC: best without all - best with all"] > 2 for row in found])
    title = (
        f"Figure 5 of Zhu 2008: the AIC of all subsets of the toy problem; first 10 of {len(found)} draws. The best "
        f"subset has the true columns and others too in {100 * too_large:.0f} % of them, and there is a gap of "
        f"more than 2 between subsets with all true columns and the others in {100 * separated:.0f} %"
    )
    yield Table("kernels_and_ensembles_figure_5", title, found[:10], draw=_draw_criterion)


def _gap(seed: int) -> Row:
    X, y, _ = _toy(seed)
    values, has_all = LinearCriterion(X, y, "aic")(SUBSETS), SUBSETS[:, TRUE].all(1)
    best = SUBSETS[np.argmin(values)]
    return {
        "draw": seed,
        "columns of the best": int(best.sum()),
        "true columns in the best": int(best[TRUE].sum()),
        "AIC: best without all - best with all": float(values[~has_all].min() - values[has_all].min()),
    }


def _draw_criterion() -> Any:
    X, y, _ = _toy(SHOWN)
    values, sizes, num_true = LinearCriterion(X, y, "aic")(SUBSETS), SUBSETS.sum(1), SUBSETS[:, TRUE].sum(1)
    figure, (panel,) = panels(1, 4.4, 8.2)
    shift = np.random.default_rng(0).uniform(-0.18, 0.18, len(sizes))
    words = {3: "all three true columns", 2: "two of them", 1: "one", 0: "none"}
    for (number, label), color, marker in zip(words.items(), COLORS, "ox+1"):
        some = num_true == number
        panel.scatter(sizes[some] + shift[some], values[some], s=22, lw=1, marker=marker, color=color, label=label)
    finish(panel, "All 1,024 subsets of the toy problem", xlabel="columns of the subset", ylabel="AIC")
    panel.legend(frameon=False, fontsize=9, bbox_to_anchor=(1, 1), loc="upper left", title="subsets with")
    return figure


def _universes(options: Options) -> Iterator[Table]:
    numbers = options.pick((1, 10, 100), (1, 2))
    X, y, _ = _toy(SHOWN)
    kinds: dict[str, Row] = {"the tutorial's: best subsets, 6 generations": BEST, "this package's defaults": {}}
    votes = {
        kind: ParallelEvolutionSelector(n_universes=max(numbers), random_state=0, **values).fit(X, y).votes_
        for kind, values in kinds.items()
    }
    shares = {(kind, number): votes[kind][:number].mean(0) for kind in kinds for number in numbers}
    rows = [
        {"votes": kind, "universes": number, **{f"x{column}": float(s) for column, s in enumerate(share, 1)}}
        for (kind, number), share in shares.items()
    ]
    title = "Figure 6 of Zhu 2008: shares of the votes on the toy problem (true: x2, x5, x8)"
    yield Table("kernels_and_ensembles_figure_6", title, rows, draw=partial(_draw_votes, shares, len(numbers)))


def _draw_votes(shares: dict[tuple[str, int], np.ndarray], across: int) -> Any:
    figure, drawn = panels(len(shares), 2.9, 3.2, most=across, sharey=True)
    for panel, ((kind, number), values) in zip(drawn, shares.items()):
        panel.bar(range(1, 11), values, color=[COLORS[0] if true else "#BDBDBD" for true in TRUE])
        finish(panel, f"B = {number}", xticks=range(1, 11), ylim=(0, 1.05), xlabel="column (blue: true)")
        if number == next(iter(shares))[1]:
            panel.set_ylabel(f"share of the votes,\n{kind}", fontsize=8)
    return figure


RATE = "exactly the true columns (%)"
SELECTIONS: dict[str, Callable[[np.ndarray, np.ndarray, int], np.ndarray]] = {
    "stepwise, AIC": lambda X, y, seed: stepwise(LinearCriterion(X, y, "aic"), X.shape[1]),
    "stepwise, BIC": lambda X, y, seed: stepwise(LinearCriterion(X, y, "bic"), X.shape[1]),
    "bagged stepwise, AIC": lambda X, y, seed: (
        BaggedStepwiseSelector(n_samples=25, random_state=seed).fit(X, y).support_
    ),
    "parallel evolution, best subsets": lambda X, y, seed: (
        ParallelEvolutionSelector(n_universes=25, random_state=seed, **BEST).fit(X, y).support_
    ),
    "parallel evolution, this package's defaults": lambda X, y, seed: (
        ParallelEvolutionSelector(n_universes=25, random_state=seed).fit(X, y).support_
    ),
}


def _selections(options: Options) -> Iterator[Table]:
    draws = options.pick(60, 2)
    problems: dict[str, tuple[Callable[[int], Problem], int]] = {
        "toy (50 x 10)": (_toy, draws),
        "weighted (40 x 20)": (_weighted, draws),
        "weighted, correlation .7": (partial(_weighted, correlation=0.7), draws),
        "wide (100 x 60)": (_wide, options.pick(20, 1)),
    }

    def counted(problem: str, selection: str) -> Row:
        make, number = problems[problem]
        found = [(SELECTIONS[selection](X, y, seed), true) for seed in range(number) for X, y, true in [make(seed)]]
        return {
            "draws": number,
            RATE: 100 * float(np.mean([np.array_equal(*pair) for pair in found])),
            "false columns, mean": float(np.mean([(own & ~true).sum() for own, true in found])),
            "missed columns, mean": float(np.mean([(true & ~own).sum() for own, true in found])),
        }

    jobs = grid(problem=problems, selection=SELECTIONS)
    title = "Selections of columns with a known truth (section 4.3.4 of Zhu 2008)"
    yield from measured(options, "kernels_and_ensembles_selection", title, jobs, counted, _draw_rates)


def _draw_rates(rows: list[Row]) -> Any:
    figure, (panel,) = panels(1, 3.6, 9)
    problems = list(dict.fromkeys(row["problem"] for row in rows))
    for name, look in styles(SELECTIONS).items():
        line = [row[RATE] for row in rows if row["selection"] == name]
        panel.plot(line, range(len(problems)), ls="", ms=8, alpha=0.85, label=name, **look)
    panel.set_yticks(range(len(problems)), problems)
    finish(panel, "Selections of columns", xlabel=RATE, xlim=(-3, 103), ylim=(len(problems) - 0.5, -0.5))
    panel.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def _decoupling(options: Options) -> Iterator[Table]:
    """Section 3.4: the weights of AdaBoost leave the tree that they were computed from an error of one half."""
    x, y, _ = classes(options, "spambase")
    rounds = options.pick(50, 5)

    def errors(depth: int) -> Row:
        trees = AdaBoostClassifier(DecisionTreeClassifier(max_depth=depth), n_estimators=rounds, random_state=0).fit(
            x, y
        )
        weights, found = np.full(len(y), 1 / len(y)), []
        for tree, strength in zip(trees.estimators_, trees.estimator_weights_):
            is_wrong = tree.predict(x) != y
            before = weights[is_wrong].sum()
            weights = weights * np.exp(strength * is_wrong)
            weights /= weights.sum()
            found.append((before, weights[is_wrong].sum()))
        before, after = np.array(found).T
        return {"weighted error, mean": before.mean(), "largest distance from 1/2 after": np.abs(after - 0.5).max()}

    title = f"AdaBoost: the weighted error of each of {rounds} trees, before and after the rows are weighted anew"
    yield from measured(options, "kernels_and_ensembles_decoupling", title, grid(depth=(1, 2, 4)), errors)


def _speed(options: Options) -> Iterator[Table]:
    num_rows = options.pick(1_000_000, 500)
    selectors = (ParallelEvolutionSelector, BaggedStepwiseSelector)

    def taken(what: str) -> Row:
        if "LAGO" in what:
            problem = clumps(num_rows, max(4, num_rows * 3 // 10_000))
            model, seconds = timed(lambda: LAGORanker(what.split(", ")[1]).fit(*problem))
            return {"fit, s": seconds, "scores of as many rows, s": timed(lambda: model.score_samples(problem.X))[1]}
        X = np.random.default_rng(0).standard_normal((num_rows, 20))
        y = X[:, :3].sum(1) + np.random.default_rng(1).standard_normal(num_rows)
        selector = next(each for each in selectors if each.__name__ == what)(random_state=0)
        return {"fit, s": timed(lambda: selector.fit(X, y))[1]}

    names = ("LAGORanker, spherical", "LAGORanker, elliptical", *(each.__name__ for each in selectors))
    title = f"LAGO (6 columns, 3 of 10,000 rows are rare) and selectors of columns (of 20): {num_rows:,} rows"
    yield from measured(options, "kernels_and_ensembles_speed", title, grid(what=names), taken)
