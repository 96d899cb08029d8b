"""
The figures and claims of "The Random Forest Kernel" (Davies & Ghahramani 2014), made again.

`docs/papers.md` has what was found, and where the other documents are. With `--data`, the paper's sets; without,
scikit-learn's. The text of the paper names two of its six sets, bodyfat and autompg; the others are sets of its time.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.decomposition import PCA, KernelPCA
from sklearn.metrics import r2_score
from sklearn.model_selection import LeaveOneOut, cross_val_predict
from sklearn.neighbors import KNeighborsRegressor

from gpytorch_partition import settings
from gpytorch_partition.estimators import PartitionKernelPCA

from . import processes as gps
from .datasets import Split, friedman, means_of, read_data, split_of
from .plots import finish, panels, totals
from .processes import paper_forest
from .report import Options, Row, Table, cpu_timed, grid, growth, measured, timed
from .solves import equation_9

SETS = ("machine", "bodyfat", "yacht", "autompg", "housing", "concrete")


def papers(options: Options) -> Iterator[Table]:
    """Make figures 1 to 6, equations 9 and 10, and property 4."""
    parts = (_posterior, _components, _numbers, equation_9, _equation_10, _noise_only, _sets, _seconds_of_components)
    for part in parts:
        yield from part(options)


# Figure 1: the posterior on a line.

_LAG, _NOISE = 0.1, 0.15


def _posterior(options: Options) -> Iterator[Table]:
    m, num_points = options.pick(gps.NUM_PARTITIONS, 10), options.pick(20_001, 201)
    (x, y), line, found = _toy(), np.linspace(-0.1, 1.1, num_points), {}

    def on_a_line(method: str) -> Row:
        mean, std, lagged, noise = _on_grid(gps.KERNELS[method], x, y, line, m)
        found[method] = mean, std
        return {
            "values that the mean takes": len(np.unique(mean.round(9))),
            "largest step of the standard deviation": float(np.abs(np.diff(std)).max() / np.ptp(std)),
            "correlation at a lag of .1, least": float(lagged.min()),
            "correlation at a lag of .1, largest": float(lagged.max()),
            f"fitted noise, std (true: {_NOISE})": noise,
        }

    title = f"Figure 1: posterior of {len(x)} rows on a line, {m} partitions, {num_points:,} points"
    jobs = grid(kernel=gps.KERNELS)
    draw = lambda rows: _draw_posteriors(x, y, line, found)  # noqa: E731
    yield from measured(options, "paper_figure_1", title, jobs, on_a_line, draw)


def _toy() -> tuple[np.ndarray, np.ndarray]:
    """Make a wave, a step, and a gap without rows."""
    random = np.random.default_rng(0)
    x = np.sort(np.concatenate([random.uniform(0, 0.55, 35), random.uniform(0.75, 1, 25)]))
    return x, np.sin(9 * x) + (x > 0.35) + _NOISE * random.standard_normal(len(x))


def _on_grid(build: gps.Build, x: np.ndarray, y: np.ndarray, line: np.ndarray, m: int) -> tuple[Any, ...]:
    points = torch.from_numpy(line)[:, None]
    model = gps.partition_model(torch.from_numpy(x)[:, None], torch.from_numpy(y), build, m)
    kernel, inside = model.covar_module.base_kernel, points[(line >= 0) & (line <= 1 - _LAG)]
    with torch.no_grad(), settings.iterative():
        function = model(points)
        lagged = torch.cat([kernel(some, some + _LAG).diagonal(dim1=-1, dim2=-2) for some in inside.split(500)])
        return function.mean.numpy(), function.stddev.numpy(), lagged.numpy(), model.likelihood.noise.sqrt().item()


def _draw_posteriors(x: np.ndarray, y: np.ndarray, line: np.ndarray, found: dict[str, Any]) -> Any:
    figure, drawn = panels(2 * len(found), 2.8, 4.1, most=len(found), sharex=True, sharey="row")
    for upper, lower, (method, (mean, std)) in zip(drawn, drawn[len(found) :], found.items()):
        color = gps.LOOKS[method]["color"]
        upper.fill_between(line, mean - 2 * std, mean + 2 * std, color=color, alpha=0.25, lw=0, step="mid")
        upper.plot(line, mean, color=color, lw=1.3, drawstyle="steps-mid", label="mean and 95 % band")
        upper.plot(x, y, "o", color="black", ms=3.2, label="data")
        lower.plot(line, std, color=color, lw=1.1, drawstyle="steps-mid")
        finish(upper, method)
        finish(lower, "standard deviation", xlabel="x", ylim=(0, None))
    drawn[0].legend(frameon=False, fontsize=9)
    return figure


# Figures 2 and 6: kernel principal components.

_NEIGHBOURS = 10


def _components(options: Options) -> Iterator[Table]:
    name, m = "bodyfat" if options.data else "diabetes", options.pick(gps.NUM_PARTITIONS, 5)
    data = read_data(options, name)
    splits = [split_of(data, number, options.pick(None, 60)) for number in range(options.pick(10, 1))]
    found = {}

    def told(method: str) -> Row:
        """How well the nearest training rows in the plane tell the target of others."""
        planes = [_plane(split, gps.KERNELS.get(method), m) for split in splits]
        found[method] = planes[0]
        return means_of([_explained(*plane, split) for plane, split in zip(planes, splits)])

    title = f"Figure 2: two components of {name}, {len(splits)} splits, {m} partitions"
    jobs = grid(components=("PCA", *gps.KERNELS))
    yield from measured(options, "paper_figure_2", title, jobs, told, lambda rows: _draw_planes(found, splits[0]))


def _plane(split: Split, build: gps.Build | None, m: int) -> tuple[np.ndarray, np.ndarray]:
    if build is None:
        components = PCA(2)
    else:
        components = PartitionKernelPCA(2, kernel=build(*split.tensors[:2], m, 0), random_state=0)
    components.fit(split.x)
    return components.transform(split.x), components.transform(split.test_x)


def _explained(rows: np.ndarray, points: np.ndarray, split: Split) -> Row:
    nearest = KNeighborsRegressor(_NEIGHBOURS)
    left_out = cross_val_predict(nearest, rows, split.y, cv=LeaveOneOut())
    return {
        "R^2 of held-out rows": float(r2_score(split.test_y, nearest.fit(rows, split.y).predict(points))),
        "R^2 of training rows, each left out": float(r2_score(split.y, left_out)),
    }


def _draw_planes(found: dict[str, tuple[np.ndarray, np.ndarray]], split: Split) -> Any:
    figure, drawn = panels(len(found), 3.9, 3.7)
    span = dict(zip(("vmin", "vmax"), np.quantile(split.y, [0.02, 0.98]))) | {"cmap": "viridis"}
    for panel, (method, (rows, points)) in zip(drawn, found.items()):
        shade = panel.scatter(*rows.T, c=split.y, s=12, lw=0, **span)
        panel.scatter(*points.T, c=split.test_y, s=46, marker="D", edgecolors="black", linewidths=1.1, **span)
        finish(panel, method, xlabel="first component", xticks=[], yticks=[])
    drawn[0].set_ylabel("second component")
    figure.colorbar(shade, ax=drawn[-1], label="standardized target", extend="both")
    figure.suptitle("Small points: training rows. Diamonds: held-out rows.", fontsize=9, x=0.01, ha="left")
    return figure


ARPACK, DENSE = "RBF, scikit-learn (Arnoldi)", "RBF, scikit-learn (dense)"
_EXPECTED = {ARPACK: 2.0, DENSE: 3.0}  # exponents of the dense ones, which are given 10,000 rows at most


def _seconds_of_components(options: Options) -> Iterator[Table]:
    sizes = options.pick([300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000], [300, 600])
    m, limit, last = options.pick(100, 5), options.pick(400.0, 20.0), {}

    def jobs() -> Iterator[Row]:
        """Yield sizes up to those that are expected to take too long."""
        for method in (gps.CLUSTERS, gps.OURS, gps.PRINTED, ARPACK, DENSE):
            _run(method, m, 200)  # what is loaded once is not measured
            for size in sizes:
                before, taken = last.get(method, (size, 0.0))
                expected = taken * (size / before) ** _EXPECTED.get(method, 1.2)
                if expected <= limit and (method not in _EXPECTED or size <= 10_000):
                    yield {"kernel": method, "N": size}

    def taken(method: str, size: int) -> Row:
        last[method] = size, cpu_timed(lambda: _run(method, m, size))[1]
        return {"seconds": last[method][1]}

    def title(rows: list[Row]) -> str:
        grown = ", ".join(
            f"{method} N^{growth(*zip(*line[-3:])):.2f}" for method, line in _lines(rows).items() if line[1:]
        )
        what = f"two kernel principal components, {m} partitions, 10 columns"
        return f"Figure 6: CPU seconds of {what}: {grown}"

    yield from measured(options, "paper_figure_6", title, jobs(), taken, _draw_seconds)


def _run(method: str, m: int, num_rows: int) -> None:
    x, y = friedman(num_rows, torch.float64)
    if method in _EXPECTED:
        solver = "arpack" if method == ARPACK else "dense"
        KernelPCA(2, kernel="rbf", eigen_solver=solver).fit_transform(x.numpy())
    else:
        PartitionKernelPCA(2, kernel=gps.KERNELS[method](x, y, m, 0), random_state=0).fit_transform(x.numpy())


def _lines(rows: list[Row]) -> dict[str, list[tuple[int, float]]]:
    lines: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        lines.setdefault(row["kernel"], []).append((row["N"], row["seconds"]))
    return lines


def _draw_seconds(rows: list[Row]) -> Any:
    lines = _lines(rows)
    kernels = (gps.OURS, gps.PRINTED, gps.CLUSTERS), (ARPACK, DENSE)
    ours, others = ({name: lines[name] for name in names} for names in kernels)
    return totals(ours, others, "Two kernel principal components, processor time")


# Figures 3 and 4: six sets.


def _sets(options: Options) -> Iterator[Table]:
    names = options.pick(SETS if options.data else ("diabetes", "friedman1"), ("diabetes",))
    kernels = gps.methods(*options.pick((20, 100, 200), (1, 2, 5)))
    jobs = [
        {"data": name, "split": number, "method": method}
        for number in range(options.pick(5, 1))
        for name in names
        for method in kernels
    ]

    def scored(name: str, number: int, method: str) -> Row:
        split = split_of(read_data(options, name), number, options.pick(None, 60))
        prediction, seconds = timed(lambda: kernels[method](split))
        return {"N": len(split.y), **gps.density_scores(prediction, split.test_y), "seconds": seconds}

    rows = yield from measured(options, "paper_sets", "Figures 3 and 4: all splits, standardized targets", jobs, scored)
    rows = [row for row in rows if "error" not in row]
    joint, alone, error = (_by_set(rows, what) for what in (gps.JOINT, gps.ALONE, gps.ERROR))
    title = f"Figure 3: log density per test target, together / each alone. By the joint one, {_better(joint, 1)}"
    yield Table("paper_figure_3", title, _cells(joint, alone), draw=partial(_draw_sets, "symlog", joint, alone))
    title = f"Figure 4: squared error of standardized targets; {_better(error, -1)}"
    yield Table("paper_figure_4", title, _cells(error), draw=partial(_draw_sets, "linear", error))


Scores = dict[tuple[str, str], np.ndarray]  # of each split, by set and method


def _by_set(rows: list[Row], what: str) -> Scores:
    keys = dict.fromkeys((row["data"], row["method"]) for row in rows)
    return {key: np.array([row[what] for row in rows if (row["data"], row["method"]) == key]) for key in keys}


def _cells(*scores: Scores) -> list[Row]:
    names, kernels = (list(dict.fromkeys(column)) for column in zip(*scores[0]))
    return [
        {"data": name} | {method: " / ".join(_mean(each[name, method]) for each in scores) for method in kernels}
        for name in names
    ]


def _mean(values: np.ndarray) -> str:
    return f"{values.mean():.3f} ± {_standard_error(values):.3f}"


def _standard_error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / len(values) ** 0.5) if len(values) > 1 else 0.0


def _better(scores: Scores, sign: int) -> str:
    counts = {method: against_standard(scores, method, sign) for method in gps.KERNELS}
    words = "; ".join(f"{method} {better} and {worse}" for method, (better, worse, _) in counts.items())
    return (
        f"better and worse than the best of {', '.join(gps.STANDARD)} by two standard errors on so many sets: {words}"
    )


def against_standard(scores: Scores, method: str, sign: int) -> tuple[int, int, int]:
    """Return on how many sets a method is better and worse than the best standard kernel, and the number of sets."""
    gains = []
    for name in dict.fromkeys(name for name, _ in scores):
        best = max(gps.STANDARD, key=lambda other: sign * scores[name, other].mean())
        difference = sign * (scores[name, method] - scores[name, best])
        gains.append(difference.mean() / max(_standard_error(difference), 1e-12))
    return sum(gain > 2 for gain in gains), sum(gain < -2 for gain in gains), len(gains)


def _draw_sets(scale: str, *scores: Scores) -> Any:
    figure, drawn = panels(len(scores), 4.6, 6.0, sharey=True)
    names, kernels = (list(dict.fromkeys(column)) for column in zip(*scores[0]))
    for panel, values, title in zip(drawn, scores, ("all targets together", "each target alone")):
        for place, method in enumerate(kernels):
            of_sets = [values[name, method] for name in names]
            reach = [2 * _standard_error(each) for each in of_sets]
            heights = [height + 0.11 * (place - 3) for height in range(len(names))]
            means = [each.mean() for each in of_sets]
            panel.errorbar(means, heights, xerr=reach, ls="", ms=6, lw=1.2, label=method, **gps.LOOKS[method])
        panel.set_yticks(range(len(names)), names)
        panel.set_xscale(scale, **({"linthresh": 1} if scale == "symlog" else {}))
        panel.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        finish(panel, f"log density per test target, {title}" if scale == "symlog" else "mean squared error")
    drawn[0].invert_yaxis()
    figure.legend(*drawn[0].get_legend_handles_labels(), loc="outside right upper", frameon=False, fontsize=9)
    return figure


# Figure 5: how many partitions are enough.


def _numbers(options: Options) -> Iterator[Table]:
    sizes = options.pick([1, 2, 5, 10, 20, 50, 100, 200, 400], [1, 3])
    name = "autompg" if options.data is not None else "diabetes"
    data = read_data(options, name)
    splits = [split_of(data, number, options.pick(None, 60)) for number in range(options.pick(10, 2))]

    def averaged(method: str, m: int) -> Row:
        """Means over splits, each with partitions of its own, and standard errors."""
        found = [
            gps.density_scores(gps.partition_gp(split, build=gps.KERNELS[method], m=m, seed=number), split.test_y)
            for number, split in enumerate(splits)
        ]
        errors = {f"{score}: error": _standard_error(np.array([row[score] for row in found])) for score in found[0]}
        return means_of(found) | errors | {"variance of an entry, mean": _variance(splits[0], method, m)}

    title = f"Figure 5: {name}, {len(splits)} splits, by the number of partitions"
    jobs = grid(kernel=gps.KERNELS, m=sizes)
    yield from measured(options, "paper_figure_5", title, jobs, averaged, _draw_numbers)


def _variance(split: Split, method: str, m: int) -> float:
    """Return the mean of k (1 - k) / m, the variance of an entry of the kernel matrix (lemma 3.2)."""
    x, y, _ = split.tensors
    with torch.no_grad(), settings.iterative():
        entries = gps.KERNELS[method](x, y, m, 0)(x).to_dense()
    return float((entries * (1 - entries) / m).mean())


def _draw_numbers(rows: list[Row]) -> Any:
    figure, drawn = panels(3, 4.4, 5.0)
    numbers = sorted({row["m"] for row in rows})
    for panel, column in zip(drawn, (gps.JOINT, gps.ALONE, gps.ERROR)):
        for method in gps.KERNELS:
            line = [row for row in rows if row["kernel"] == method]
            mean, error = (np.array([row[key] for row in line]) for key in (column, f"{column}: error"))
            panel.errorbar(
                numbers, mean, yerr=2 * error, label=method, ms=5, lw=1.6, elinewidth=0.8, **gps.LOOKS[method]
            )
        finish(panel, f"{column}, standardized targets", xscale="log", xlabel="partitions, m")
        panel.set_xticks(numbers, numbers)
        if column != gps.ERROR:
            panel.set_yscale("symlog", linthresh=1)
            panel.yaxis.set_major_formatter(lambda value, _: f"{value:.2g}")
    drawn[0].legend(frameon=False, fontsize=9)
    return figure


# Equation 10, and property 4: does a kernel that was fitted on the same targets overfit?


def _equation_10(options: Options) -> Iterator[Table]:
    num_rows, m = options.pick(300, 40), options.pick(20, 3)
    labels = np.random.default_rng(0).integers(8, size=(m, num_rows))
    same = (labels[:, :, None] == labels[:, None, :]).astype(float)
    title = f"Equation 10 on {num_rows} rows in 8 random clusters, and equation 9 made of it ({m} partitions)"
    jobs = grid(sigma=(0.1, 0.5, 1.0, 3.0))
    yield from measured(options, "paper_equation_10", title, jobs, partial(inverses, same))


def inverses(same: np.ndarray, sigma: float) -> Row:
    """Return largest errors of one partition's inverse, and the least eigenvalue of the mean over partitions."""
    identity, sizes = np.eye(same.shape[1]), same.sum(-1, keepdims=True)
    printed = identity / sigma - same / (sizes + sigma)
    corrected = (identity - same / (sizes + sigma)) / sigma
    exact = np.linalg.inv(same[0] + sigma * identity)
    return {
        "largest error as printed": float(np.abs(printed[0] - exact).max()),
        "with 1 / sigma": float(np.abs(corrected[0] - exact).max()),
        "least eigenvalue of eq. 9 as printed": float(np.linalg.eigvalsh(printed.mean(0))[0]),
        "least eigenvalue, with 1 / sigma": float(np.linalg.eigvalsh(corrected.mean(0))[0]),
    }


def _noise_only(options: Options) -> Iterator[Table]:
    draws, m = options.pick(10, 1), options.pick(gps.NUM_PARTITIONS, 5)
    kernels: dict[str, gps.Build] = {
        gps.PRINTED: gps.KERNELS[gps.PRINTED],
        f"{gps.PRINTED}, 5 rows a leaf at least": partial(paper_forest, min_samples_leaf=5),
        gps.OURS: gps.KERNELS[gps.OURS],
        gps.CLUSTERS: gps.KERNELS[gps.CLUSTERS],
    }
    title = f"Property 4: targets that are noise of variance 1, 5 columns, {draws} draws, 500 test rows each"
    jobs = grid(N=options.pick([200, 1_000], [40]), kernel=kernels)
    drawn = lambda size, name: means_of([_noise(kernels[name], size, m, seed) for seed in range(draws)])  # noqa: E731
    yield from measured(options, "paper_noise", title, jobs, drawn)


def _noise(build: gps.Build, num_rows: int, m: int, seed: int) -> Row:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(num_rows + 500, 5, generator=generator, dtype=torch.float64)
    y = torch.randn(num_rows + 500, generator=generator, dtype=torch.float64)
    model = gps.partition_model(x[:num_rows], y[:num_rows], build, m, seed)
    targets = y[num_rows:]
    found = gps.density_scores(gps.predicted(model, x[num_rows:]), targets.numpy())
    lost = torch.distributions.Normal(0.0, 1.0).log_prob(targets).mean().item() - found[gps.ALONE]
    noise = model.likelihood.noise.item()
    return {gps.COVERAGE: found[gps.COVERAGE], "fitted noise (true: 1)": noise, "nats lost per target": lost}
