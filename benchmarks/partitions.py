"""Partitions: clusterings as kernels, strength and correlation, and weights of a sum by cross-validation."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial, reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from gpytorch.kernels import Kernel, LinearKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from sklearn.base import clone
from sklearn.cluster import DBSCAN, HDBSCAN, AgglomerativeClustering, Birch, KMeans, MiniBatchKMeans
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.metrics import average_precision_score
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture
from sklearn.model_selection import train_test_split
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import LabelSpreading
from sklearn.svm import SVC
from torch import Tensor

from gpytorch_partition import (
    ClusteringKernel,
    FastClusterKernel,
    LandmarkKernel,
    MondrianKernel,
    PartitionKernel,
    RandomForestKernel,
    fit_exact_gp,
    fit_weights_by_cross_validation,
    settings,
)
from gpytorch_partition.estimators import LAGORanker, PartitionGPClassifier, PartitionGPRegressor, PartitionSVC
from gpytorch_partition.models import PartitionGP
from gpytorch_partition.partitions import PitmanYorMixture

from .datasets import classes, friedman, means_of, read_data, scores, split_of
from .processes import moments_of
from .report import Options, Row, Table, cpu_timed, grid, measured, peak_gib, timed

M = 10
COUNTS, RADII = {"n_clusters": (4, 64)}, (1.5, 3.5)
COMPONENTS = {"n_components": (2, 16)}


class Source(NamedTuple):
    """A clusterer, what is drawn of it, and how many rows each clustering sees."""

    clusterer: Any
    drawn: dict[str, Any]
    rows: int


SOURCES = {
    "K-means": Source(KMeans(), COUNTS, 10_000),
    "mini-batch K-means": Source(MiniBatchKMeans(), COUNTS, 100_000),
    "Gaussian mixture": Source(GaussianMixture(), COMPONENTS, 10_000),
    "Dirichlet process mixture": Source(
        BayesianGaussianMixture(n_components=16, init_params="random_from_data"),
        {"weight_concentration_prior": (0.01, 100.0)},
        1_000,
    ),
    "Birch": Source(Birch(threshold=1.5), COUNTS, 10_000),
    "DBSCAN": Source(DBSCAN(min_samples=3), {"eps": RADII}, 300),
    "HDBSCAN": Source(HDBSCAN(min_cluster_size=3, copy=True), {"cut_distance": RADII}, 300),
    "agglomerative": Source(AgglomerativeClustering(), COUNTS, 300),
    "Pitman-Yor mixture": Source(PitmanYorMixture(), {"concentration": (0.1, 10.0)}, 300),
}
FAST, ISOLATION = "fast cluster (h = 8)", "isolation (16 centers)"


def clusterings(options: Options) -> Iterator[Table]:
    sizes = options.pick((100_000, 1_000_000), (300,))
    title = f"{M} clusterings of 10 columns, on a random half of the columns (CPU seconds)"
    jobs = grid(rows=sizes, partitions=(*SOURCES, FAST, ISOLATION))
    yield from measured(options, "clusterings", title, jobs, partial(options.apart, _built))


def _built(num_rows: int, name: str) -> Row:
    x, y = friedman(num_rows)
    kernel, building = cpu_timed(lambda: _kernel(name, x))
    (incidence, _), labelling = cpu_timed(lambda: kernel.partition.incidences(x, x))
    covariance, values = kernel(x).evaluate_kernel(), y.unsqueeze(-1)
    covariance @ values  # rows are sorted by cluster once
    times = {"building": building, "labelling": labelling, "a product": cpu_timed(lambda: covariance @ values)[1]}
    return {**times, "clusters": incidence.num_clusters, "peak GiB": peak_gib()}


def _kernel(name: str, x: Tensor) -> PartitionKernel:
    if name == FAST:
        return FastClusterKernel(x, M, height=8, random_state=0)
    if name == ISOLATION:
        return FastClusterKernel(x, M, num_centers=16, columns="all", random_state=0)
    source = SOURCES[name]
    options = {"param_distributions": source.drawn, "rows": min(source.rows, len(x)), "columns": 0.5}
    return ClusteringKernel(x, clone(source.clusterer), M, random_state=0, **options)


# Predictions.

SETS = ("autompg", "housing", "concrete", "cpu", "california")
WIDE = {"eps": (0.5, 3.0), "cut_distance": (0.5, 3.0)}  # in standard deviations
PLACES = (ISOLATION, "fast cluster", *SOURCES)


def clustering_scores(options: Options) -> Iterator[Table]:
    most, m = options.pick(500, 100), options.pick(50, 3)
    names = SETS if options.data else ("diabetes",)
    splits = {name: split_of(read_data(options, name), 0, most) for name in names}

    def scored(kernel: str) -> Row:
        row: Row = {}
        for name, split in splits.items():
            model = PartitionGPRegressor(lambda x, y: _fitted_kernel(kernel, x, y, m), random_state=0)
            found = scores(split.test_y, *model.fit(split.x, split.y).predict(split.test_x, return_std=True))
            row |= {f"{name}: {score}": found[score] for score in ("RMSE", "NLPD")}
        return row

    title = f"GPs of {m} clusterings of a random half of the columns, at most {most:,} training rows, one split each"
    jobs = grid(kernel=("forest", *PLACES))
    yield from measured(options, "clustering_scores", title, jobs, scored)


def _fitted_kernel(name: str, x: Tensor, y: Tensor | None, m: int) -> PartitionKernel:
    if name == "forest":
        return RandomForestKernel(x, y, m, random_state=0)
    if name not in SOURCES:
        options = {} if name == "fast cluster" else {"num_centers": 16, "columns": "all"}
        return FastClusterKernel(x, m, random_state=0, **options)
    source = SOURCES[name]
    drawn = {key: WIDE.get(key, values) for key, values in source.drawn.items()}
    options = {"param_distributions": drawn, "rows": min(source.rows, 1_000, len(x) // 2), "columns": 0.5}
    return ClusteringKernel(x, clone(source.clusterer), m, random_state=0, **options)


# Rows without targets.

UNLABELLED, TEST_ROWS = 1_000, 500
WITH_OTHERS = ("autompg", "housing", "energy", "concrete", "cpu", "elevators", "bike", "california")
BUILDERS: dict[str, Any] = {
    "fast cluster": "fast_cluster",  # of the height of the labelled rows
    "fast cluster, height by all rows": lambda x, y: FastClusterKernel(x, 100, random_state=0),
    "isolation, 16 centers": lambda x, y: FastClusterKernel(
        x, 100, num_centers=min(16, len(y) // 2), columns="all", random_state=0
    ),
    "k-means, 2 to n / 2 clusters": lambda x, y: ClusteringKernel(
        x, KMeans(), 50, param_distributions={"n_clusters": (2, len(y) // 2)}, rows=min(500, len(x)), random_state=0
    ),
}


def semi_supervised(options: Options) -> Iterator[Table]:
    """Score kernels built on few labelled rows, and on those and many others."""
    splits, sizes = options.pick(8, 1), options.pick((30, 100), (30,))
    names = WITH_OTHERS if options.data else ("diabetes",)
    title = f"Few labels, with up to {UNLABELLED:,} unlabelled rows and without, standardized, means of {splits} splits"
    jobs = grid(data=names, labelled=sizes, kernel=options.pick(list(BUILDERS), list(BUILDERS)[:2]))

    def scored(name: str, size: int, kernel: str) -> Row:
        data = read_data(options, name)
        return _changes([_with_and_without(data, kernel, size, number) for number in range(splits)])

    rows = yield from measured(options, "semi_supervised", title, jobs, scored)
    frame = pd.DataFrame(rows)
    summary = frame.groupby("kernel", sort=False).size().to_frame("of")
    for score in ("RMSE", "NLPD"):
        change, bound = frame[f"{score} change"], 2 * frame[f"{score} standard error"]
        summary[f"{score} better"] = (change < -bound).groupby(frame["kernel"]).sum()
        summary[f"{score} worse"] = (change > bound).groupby(frame["kernel"]).sum()
        summary[f"{score} median change"] = change.groupby(frame["kernel"]).median()
    title = "Whether unlabelled rows help, by two standard errors: sets of so many, by kernel"
    yield Table("semi_supervised_summary", title, summary.reset_index().to_dict("records"))


def _with_and_without(data: Any, kernel: str, size: int, number: int) -> dict[str, float]:
    order = np.random.default_rng(number).permutation(len(data.y))
    test, labelled, others = np.split(order, np.cumsum([min(TEST_ROWS, len(order) // 4), size]))
    y, row = (data.y - data.y.mean()) / data.y.std(), {}
    for name, unlabelled in (("without", None), ("with", data.X[others[:UNLABELLED]])):
        model = PartitionGPRegressor(BUILDERS[kernel], 100, random_state=0)
        model.fit(data.X[labelled], y[labelled], unlabelled=unlabelled)
        found = scores(y[test], *model.predict(data.X[test], return_std=True))
        row |= {f"{score} {name}": found[score] for score in ("RMSE", "NLPD")}
    return row | {f"{score} change": row[f"{score} with"] - row[f"{score} without"] for score in ("RMSE", "NLPD")}


def _changes(rows: list[Row]) -> Row:
    row = means_of(rows)
    for score in ("RMSE", "NLPD"):
        changes = [each[f"{score} change"] for each in rows]
        row[f"{score} standard error"] = float(np.std(changes, ddof=1) / len(rows) ** 0.5) if len(rows) > 1 else 0.0
    return row


CLASS_SETS = {"digits": load_digits, "wine": load_wine, "breast cancer": load_breast_cancer}


def _ward(x: Tensor, y: Tensor) -> ClusteringKernel:
    drawn = {"n_clusters": (2, min(100, len(x) // 2))}
    rows = 4 * len(x) // 5
    return ClusteringKernel(x, AgglomerativeClustering(), 50, param_distributions=drawn, rows=rows, random_state=0)


CLASSIFIERS = {
    "SVC, Ward's clusters": PartitionSVC(10.0, _ward, random_state=0),
    "GP, Ward's clusters": PartitionGPClassifier(_ward, random_state=0),
    "SVC, fast clusters": PartitionSVC(10.0, "fast_cluster", random_state=0),
    "GP, fast clusters": PartitionGPClassifier("fast_cluster", random_state=0),
    "SVC, RBF": make_pipeline(StandardScaler(), SVC(C=10.0)),
    "label spreading, 7 neighbors": make_pipeline(StandardScaler(), LabelSpreading("knn")),
}


def semi_supervised_classes(options: Options) -> Iterator[Table]:
    """Score classifiers with few labels, with many other rows and without."""
    splits = options.pick(8, 1)

    def scored(name: str, size: int, method: str) -> Row:
        found = [_accuracies(name, size, method, number) for number in range(splits)]
        change = [row["with"] - row["without"] for row in found]
        error = np.std(change) / max(1, splits - 1) ** 0.5
        return means_of(found) | {"change": np.mean(change), "standard error": error}

    title = f"Accuracy of classifiers with few labels, without and with up to {UNLABELLED:,} unlabelled rows"
    names, sizes = options.pick(list(CLASS_SETS), ["wine"]), options.pick((20, 50), (20,))
    jobs = grid(data=names, labelled=sizes, method=CLASSIFIERS)
    yield from measured(options, "semi_supervised_classes", title, jobs, scored)
    yield from _semi_supervised_rankings(options)


def _accuracies(name: str, size: int, method: str, number: int) -> Row:
    X, y = CLASS_SETS[name](return_X_y=True)
    X, new, y, new_y = train_test_split(X, y, test_size=1 / 3, random_state=number)
    labelled, others = np.split(np.random.default_rng(number).permutation(len(y)), [size])
    more, model = X[others[:UNLABELLED]], clone(CLASSIFIERS[method])
    without = model.fit(X[labelled], y[labelled]).score(new, new_y)
    if isinstance(model, Pipeline):
        knows_more = isinstance(model[-1], LabelSpreading)
        rows, labels = np.concatenate([X[labelled], more]), np.append(y[labelled], np.full(len(more), -1))
        return {"without": without, "with": model.fit(rows, labels).score(new, new_y) if knows_more else without}
    return {"without": without, "with": model.fit(X[labelled], y[labelled], unlabelled=more).score(new, new_y)}


RARE_CLASSES = {"digits, 1": (load_digits, 1), "digits, 8": (load_digits, 8), "breast cancer": (load_breast_cancer, 0)}


def _semi_supervised_rankings(options: Options) -> Iterator[Table]:
    splits = options.pick(20, 1)

    def scored(problem: str) -> Row:
        found = [_average_precisions(*RARE_CLASSES[problem], number) for number in range(splits)]
        change = [row["with"] - row["without"] for row in found]
        return means_of(found) | {
            "change": np.mean(change),
            "standard error": np.std(change) / max(1, splits - 1) ** 0.5,
        }

    title = (
        "Average precision of LAGO for 6 % of rare rows, a fifth labelled, without and with the others as background"
    )
    jobs = grid(problem=options.pick(list(RARE_CLASSES), ["digits, 8"]))
    yield from measured(options, "semi_supervised_rankings", title, jobs, scored)


def _parts(X: np.ndarray, is_rare: np.ndarray, share: float, number: int) -> list[np.ndarray]:
    return train_test_split(X, is_rare, train_size=share, stratify=is_rare, random_state=number)


def _average_precisions(load: Any, rare_class: int, number: int) -> Row:
    X, y = load(return_X_y=True)
    is_rare = y == rare_class
    rare, others = map(np.random.default_rng(number).permutation, (np.flatnonzero(is_rare), np.flatnonzero(~is_rare)))
    kept = np.concatenate([others, rare[: 6 * len(others) // 94]])
    X, new, is_rare, truth = _parts(X[kept], is_rare[kept], 0.5, number)
    labelled, more, labels, _ = _parts(X, is_rare, 0.2, number)
    background = np.concatenate([labelled, more]), np.append(labels, np.zeros(len(more), bool))
    without, with_more = (LAGORanker().fit(*data).score_samples(new) for data in ((labelled, labels), background))
    precisions = (average_precision_score(truth, scores) for scores in (without, with_more))
    return {
        "rare": int(labels.sum()),
        "labelled": len(labels),
        "others": len(more),
        **dict(zip(("without", "with"), precisions)),
    }


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
        with settings.iterative():
            found = scores(split.test_y, *moments_of(model, split.tensors[2]))
        return {"seconds": seconds, **found, **dict(zip(parts, weights))}

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
