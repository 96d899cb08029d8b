"""Time and memory: of training and predicting by numbers of rows beside others, and of every estimator."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from time import perf_counter
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel, RBFKernel
from scipy.linalg import cholesky, solve_triangular
from sklearn.datasets import make_friedman1
from sklearn.ensemble import RandomForestRegressor
from torch import Tensor

from gpytorch_partition import (
    FastClusterKernel,
    MondrianKernel,
    RandomForestKernel,
    default_kernel,
    fit_exact_gp,
    settings,
)
from gpytorch_partition.estimators import (
    PartitionGPRegressor,
    PartitionKernelPCA,
    PartitionSpectralClustering,
    PartitionSVC,
    PartitionSVR,
)
from gpytorch_partition.models import ClusterFeatures, FeatureSpaceGP

from .datasets import friedman, friedman_chunk, read_data, scores, split_of
from .plots import totals
from .processes import ard_kernel, model_of, moments_of, rbf_settings, train_rbf, train_svgp
from .report import Options, Row, Table, grid, growth, held_gib, measured, peak_gib, seconds, timed

KERNELS = {
    "fast cluster": lambda x, y, m: FastClusterKernel(x, m, height=8, random_state=0),
    "Mondrian": lambda x, y, m: MondrianKernel(x, m, random_state=0),
    "forest": lambda x, y, m: RandomForestKernel(x, y, m, random_state=0),
}
STREAM, RIDGE = "FeatureSpaceGP, rows in chunks", "scipy.sparse features, dense ridge solve"
SVGP, EXACT = "GPyTorch's SVGP, 512 inducing points", "GPyTorch's RBF exact GP"
FOREST = "scikit-learn's RandomForestRegressor(100"
CHUNK, MOST_SECONDS_OF_A_STEP, MOST_ROWS_OF_EXACT_RBF = 2**18, 30.0, 10_000


def sizes(options: Options) -> Iterator[Table]:
    """Measure rows that are generated in chunks, all methods, and how they grow."""
    few, many = options.pick((100, 200), (5, 10))
    num_points, steps = options.pick(10_000, 50), options.pick((30, 2_000), (2, 2))
    streamed = list(_streamed(options, num_points))
    yield from streamed
    numbers = options.pick([1_000, 10_000, 100_000, 1_000_000], [300, 2_100])
    title = (
        f"Whole jobs, 10 columns, {num_points:,} points predicted (exact RBF: {steps[0]:,} Adam steps; SVGP: "
        f"{steps[1]:,} steps of 1,024 rows; scipy.sparse: hyperparameters not fitted)"
    )
    jobs = [
        {"method": method, "N": num_rows, "m": m}
        for num_rows in numbers
        for method, m in _methods(few, many)
        if num_rows <= MOST_ROWS_OF_EXACT_RBF or not method.startswith(EXACT)
    ]
    picture = partial(_picture, streamed[-1].rows, few, num_points)
    measure = partial(options.apart, _whole, num_points, steps)
    rows = yield from measured(options, "sizes", title, jobs, measure, picture)
    first, last = options.pick(10_000, 300), numbers[-1]
    grown = [_growth(rows, method, m, first, last) for method, m in _methods(few, many) if method.startswith("GP, ")]
    yield Table("sizes_growth", f"Exponents of seconds from N = {first:,} to {last:,}", grown)


def _methods(few: int, many: int) -> list[tuple[str, int | None]]:
    fast = [(f"GP, {kernel} kernel", m) for kernel, m in product(("fast cluster", "Mondrian"), (few, many))]
    others = [(SVGP, None), (f"{FOREST})", None), (f"{FOREST}, n_jobs=-1)", None)]
    exact = [(f"{EXACT}, {solver}", None) for solver in ("CG", "Cholesky")]
    return [*fast, (RIDGE, few), *others, *exact, *(("GP, forest kernel", m) for m in (few, many))]


def _whole(num_points: int, steps: tuple[int, int], method: str, num_rows: int, m: int | None) -> Row:
    warnings.simplefilter("ignore")
    x, y = friedman(num_rows + num_points)
    before, clock = held_gib(), _Clock()
    mean, std = _predictions(clock, method, m, steps, x[:num_rows], y[:num_rows], x[num_rows:])
    return {**clock.finished(), "GiB beyond the data": peak_gib() - before, **_quality(y[num_rows:], mean, std)}


class _Clock:
    """Seconds of the parts of a job, in a row."""

    def __init__(self) -> None:
        self.start = self.last = perf_counter()
        self.row: Row = {}

    def ends(self, part: str) -> None:
        now = perf_counter()
        self.row[f"seconds, {part}"], self.last = now - self.last, now

    def finished(self) -> Row:
        self.ends("prediction")
        return self.row | {"seconds, total": self.last - self.start}


def _predictions(
    clock: _Clock, method: str, m: int | None, steps: tuple[int, int], x: Tensor, y: Tensor, points: Tensor
) -> tuple[Any, Any]:
    if method == RIDGE:
        return _ridge(clock, m, x, y, points)
    if method.startswith("GP, "):
        return _process(clock, KERNELS[method.split(", ")[1].removesuffix(" kernel")](x, y, m), x, y, points)
    if method.startswith(FOREST):
        forest = RandomForestRegressor(100, random_state=0, n_jobs=-1 if "n_jobs" in method else None)
        forest.fit(x.numpy(), y.numpy())
        clock.ends("training")
        return forest.predict(points.numpy()), None
    if method == SVGP:
        model = train_svgp(x, y, ard_kernel(RBFKernel, x.shape[1]), min(512, len(x)), steps[1], batch=1_024, rate=0.01)
        clock.ends("training")
        return moments_of(model, points)
    solver = method.split(", ")[1]
    model = train_rbf(x, y, solver, steps[0], MOST_SECONDS_OF_A_STEP)
    clock.ends("training")
    with rbf_settings(solver):
        return moments_of(model, points)


def _process(clock: _Clock, kernel: Kernel, x: Tensor, y: Tensor, points: Tensor) -> tuple[Any, Any]:
    model = model_of(x, y, kernel)
    model.covar_module(x).evaluate_kernel() @ y  # sorts the rows by cluster
    clock.ends("partitions")
    fit_exact_gp(model, model.likelihood)
    clock.ends("training")
    model.eval()
    with torch.no_grad(), settings.iterative():
        posterior = model(points)
        return posterior.mean, (posterior.variance + model.likelihood.noise).sqrt()


def _ridge(clock: _Clock, m: int, x: Tensor, y: Tensor, points: Tensor, noise: float = 0.1) -> tuple[Any, Any]:
    features_of = ClusterFeatures(FastClusterKernel(x, m, height=8, random_state=0), x)
    features = features_of(x)
    clock.ends("partitions")
    inner = (features.T @ features).toarray()
    inner[np.diag_indices_from(inner)] += noise
    root, center = cholesky(inner, lower=True, overwrite_a=True), y.mean().item()
    half = solve_triangular(root, features.T @ (y.double().numpy() - center), lower=True)
    clock.ends("training")
    rows, means, deviations = features_of(points), [], []
    for start in range(0, len(points), 1_000):  # L^-1 z of a point's features gives both the mean and the variance
        block = solve_triangular(root, rows[start : start + 1_000].toarray().T, lower=True)
        means.append(center + block.T @ half)
        deviations.append(np.sqrt(noise * (1 + np.square(block).sum(0))))
    return np.concatenate(means), np.concatenate(deviations)


def _quality(y: Tensor, mean: Any, std: Any) -> Row:
    y, mean = (np.asarray(values, dtype=float) for values in (y, mean))
    found = scores(y, mean, np.ones_like(mean) if std is None else np.asarray(std, dtype=float))
    return {"RMSE": found["RMSE"], "NLPD": None if std is None else found["NLPD"]}


def _growth(rows: list[Row], method: str, m: int | None, first: int, last: int) -> Row:
    ends = [row for row in rows if (row["method"], row["m"]) == (method, m) and row["N"] in (first, last)]
    if any("error" in row for row in ends):
        return {"method": method, "m": m}
    exponents = {
        part: growth([first, last], [row[f"seconds, {part}"] for row in ends]) for part in ("training", "total")
    }
    return {"method": method, "m": m, **{f"exponent of {part}": value for part, value in exponents.items()}}


def _streamed(options: Options, num_points: int) -> Iterator[Table]:
    m, num_centers = options.pick((50, 64), (5, 8))
    numbers = options.pick([10_000, 100_000, 1_000_000, 10_000_000], [2_500, 3_000])
    jobs = [{"method": STREAM, "N": num_rows, "m": m} for num_rows in numbers]
    title = f"FeatureSpaceGP, rows generated in chunks and forgotten, m = {m}, {num_centers} clusters a partition"
    measure = partial(options.apart, _counted, num_centers, num_points)
    yield from measured(options, "sizes_streamed", title, jobs, measure)


def _counted(num_centers: int, num_points: int, method: str, num_rows: int, m: int) -> Row:
    x, _ = friedman_chunk(0, min(num_rows, CHUNK))
    points, targets = friedman_chunk(-1, num_points)
    before = held_gib()
    model = FeatureSpaceGP(FastClusterKernel(x, m, num_centers=num_centers, random_state=0))
    chunks = [(i, min(CHUNK, num_rows - first)) for i, first in enumerate(range(0, num_rows, CHUNK))]
    clock = _Clock()
    model.add_chunks((friedman_chunk(*each) for each in chunks), len(chunks))
    clock.ends("counting")
    values = model.fit()
    clock.ends("fit")
    mean, variance = model.predict(points)
    std = (variance + values.noise).sqrt()
    return {**clock.finished(), "GiB beyond the data": peak_gib() - before, **_quality(targets, mean, std)}


def _picture(streamed: list[Row], num_partitions: int, num_points: int, rows: list[Row]) -> Any:
    ours: dict[str, list[tuple[int, float]]] = {}
    others: dict[str, list[tuple[int, float]]] = {}
    for row in [*streamed, *rows]:
        if "error" not in row and (row["m"] or 0) <= num_partitions:
            lines = ours if row["method"].startswith(("GP, ", STREAM)) else others
            name = f"{row['method']}, m = {row['m']}" if row["m"] else row["method"]
            lines.setdefault(name, []).append((row["N"], row["seconds, total"]))
    return totals(ours, others, f"Time to train and to predict {num_points:,} points, 10 columns")


# Random training rows of sets. Those with two columns are the hard ones: a forest of them takes tenths of a second.
ROWS = {
    "yacht": (250,),
    "concrete": (900,),
    "satellite_temps": (1_100, 1_450, 2_500, 10_000),
    "california": (1_100, 5_000),
    "elevators": (1_100, 5_000),
    "kin40k": (2_500, 10_000),
}


def default_cost(options: Options) -> Iterator[Table]:
    """Compare `default_kernel` with ten random forests of 200 trees and ten seconds."""
    sizes = ROWS if options.data else {"diabetes": (390,), "friedman1": (1_350,)}
    sizes = options.pick(sizes, {"diabetes": (100,)})
    jobs = [{"data": name, "N": number} for name, numbers in sizes.items() for number in numbers]

    def compared(name: str, number: int) -> Row:
        split = split_of(read_data(options, name), 1, number)
        forest = seconds(lambda: RandomForestRegressor(200, random_state=0).fit(split.x, split.y))
        default = seconds(lambda: default_kernel(*split.tensors[:2], random_state=0))
        most = 10 * forest + 10
        return {"random forest (s)": forest, "default kernel (s)": default, "share of the most": default / most}

    title = "`default_kernel` beside ten random forests of 200 trees and ten seconds"
    yield from measured(options, "default_cost", title, jobs, compared)


def default_rows(options: Options) -> Iterator[Table]:
    """Measure a fit and 1,000 predictions from a thousand to a million rows, each size in a process of its own."""
    jobs = grid(N=options.pick((1_000, 10_000, 100_000, 1_000_000), (150,)))
    title = "The default model by number of rows of Friedman's function (10 columns, noise 1)"
    yield from measured(options, "default_rows", title, jobs, partial(options.apart, _taken))


def _taken(num_rows: int) -> Row:
    x, y = make_friedman1(num_rows, n_features=10, noise=1.0, random_state=0)
    new_x, new_y = make_friedman1(1_000, n_features=10, noise=1.0, random_state=1)
    model, fit = timed(lambda: PartitionGPRegressor(random_state=0).fit(x, y))
    row = {"fit, s": fit, "GiB at most": peak_gib()}
    moments, taken = timed(lambda: model.predict(new_x, return_std=True))
    return row | {"1,000 predictions, s": taken, "GiB with them": peak_gib(), **scores(new_y, *moments)}


def several_targets(options: Options) -> Iterator[Table]:
    """Measure fits and predictions of five targets with missing entries."""
    title = "Rows of 10 columns, 5 targets, 30 % of the entries missing, 200 trees"
    jobs = grid(rows=options.pick([1_000, 5_000, 20_000], [200]))
    yield from measured(options, "several_targets", title, jobs, partial(options.apart, _five_targets))


def _five_targets(num_rows: int) -> Row:
    random = np.random.RandomState(0)
    x = random.rand(num_rows + 1_000, 10)
    functions = np.stack([10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2, 10 * x[:, 3]], 1)
    signal = functions @ random.randn(2, 5)
    y = signal + random.randn(*signal.shape)
    y[:num_rows][random.rand(num_rows, 5) < 0.3] = np.nan
    rows = np.flatnonzero(~np.isnan(y[:num_rows]).all(1))
    model, fitting = timed(lambda: PartitionGPRegressor("forest", random_state=0).fit(x[rows], y[rows]))
    moments, predicting = timed(lambda: model.predict(x[num_rows:], return_std=True))
    return {"fit, s": fitting, "predictions, s": predicting, **scores(y[num_rows:], *moments), "peak GiB": peak_gib()}


def _flat_forest(x: Tensor, y: Any) -> Kernel:
    return RandomForestKernel(x, y, 50, "sampled", random_state=0)


def _clusters(x: Tensor, y: Any) -> Kernel:
    return FastClusterKernel(x, 100, random_state=0)


MACHINES: dict[str, Callable[[], Any]] = {
    "PartitionKernelPCA(2), 100 fast clusterings": lambda: PartitionKernelPCA(2, _clusters, random_state=0),
    "PartitionSpectralClustering(4), the same": lambda: PartitionSpectralClustering(4, _clusters, random_state=0),
    "PartitionSVC, 50 trees cut at random heights": lambda: PartitionSVC(kernel=_flat_forest, random_state=0),
    "PartitionSVR, the same trees": lambda: PartitionSVR(kernel=_flat_forest, random_state=0),
}


def machines(options: Options) -> Iterator[Table]:
    jobs = grid(machine=MACHINES, N=options.pick([10_000, 100_000, 1_000_000], [300]))
    title = "Kernel machines on Friedman's function (10 columns): fit, labels included"
    yield from measured(options, "machines", title, jobs, partial(options.apart, _fitted))


def _fitted(name: str, num_rows: int) -> Row:
    x, y = (values.double().numpy() for values in friedman(num_rows))
    return {"fit, s": seconds(lambda: MACHINES[name]().fit(x, y > 0 if "SVC" in name else y)), "peak GiB": peak_gib()}
