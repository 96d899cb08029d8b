"""
Kernel machines with the scikit-learn API: seconds over N, agreement with scikit-learn's, errors and pictures.

With `--data`, real sets are spambase, banana and bodyfat; without, sets of scikit-learn take their place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from sklearn.cluster import SpectralClustering
from sklearn.datasets import load_breast_cancer, load_diabetes, make_moons
from sklearn.decomposition import KernelPCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR
from torch import Tensor

from gpytorch_partition import FastClusterKernel, RandomForestKernel
from gpytorch_partition.estimators import (
    PartitionFeatures,
    PartitionKernelPCA,
    PartitionSpectralClustering,
    PartitionSVC,
    PartitionSVR,
    svm,
)

from .measure import in_own_process, in_this_process, peak_gib, timed
from .problems import friedman, read_arrays
from .report import Options, Row, Table

COSTS = [0.1, 1.0, 10.0, 100.0]


def machines(options: Options) -> Iterator[Table]:
    """Seconds, agreement, errors, and kernel PCA of two sets."""
    yield from _agreement(options)
    yield from _errors(options)
    yield _picture(options)
    yield from _sizes(options)


# Seconds.


def flat_forest(x: Tensor, y: Any) -> Kernel:
    """50 trees cut at random heights: 50 entries in each row of features."""
    return RandomForestKernel(x, y, 50, "sampled", random_state=0)


def clusters(x: Tensor, y: Any) -> Kernel:
    """100 fast clusterings."""
    return FastClusterKernel(x, 100, random_state=0)


MACHINES: dict[str, Callable[[], Any]] = {
    "PartitionKernelPCA(2), 100 fast clusterings": lambda: PartitionKernelPCA(2, clusters, random_state=0),
    "PartitionSpectralClustering(4), 100 fast clusterings": lambda: PartitionSpectralClustering(
        4, clusters, random_state=0
    ),
    "PartitionFeatures, 50 trees cut at random heights": lambda: PartitionFeatures(flat_forest, random_state=0),
    "PartitionSVC, the same trees": lambda: PartitionSVC(kernel=flat_forest, random_state=0),
    "PartitionSVR, the same trees": lambda: PartitionSVR(kernel=flat_forest, random_state=0),
}


def _sizes(options: Options) -> Iterator[Table]:
    sizes = options.pick([10_000, 100_000, 1_000_000], [2_500, 10_000], [300])
    num_new = options.pick(10_000, 10_000, 50)
    run = options.pick(in_own_process, in_own_process, in_this_process)
    title = f"Kernel machines on Friedman's function (10 columns): fit and {num_new:,} new rows"
    rows: list[Row] = []
    for size in sizes:
        for name in MACHINES:
            rows.append(run(_measured, name, size, num_new))
            yield Table("machines", title, rows, complete=False)
    yield Table("machines", title, rows)


def _measured(name: str, num_rows: int, num_new: int) -> Row:
    x, y = (values.double().numpy() for values in friedman(num_rows + num_new))
    targets, machine = (y > 0 if "SVC" in name else y), MACHINES[name]()
    _, seconds = timed(lambda: machine.fit(x[:num_rows], targets[:num_rows]))
    row: Row = {"machine": name, "N": num_rows, "fit, s": seconds}
    if (method := getattr(machine, "predict", None) or getattr(machine, "transform", None)) is not None:
        found, row["new rows, s"] = timed(lambda: method(x[num_rows:]))
        if "SVC" in name:
            row["errors"] = f"{100 * np.mean(found != targets[num_rows:]):.1f} %"
        if "SVR" in name:
            row["errors"] = f"RMSE {np.sqrt(np.mean((found - targets[num_rows:]) ** 2)):.3f}"
    return row | {"passes": _passes(machine), "peak GiB": peak_gib()}


def _passes(machine: Any) -> int | None:
    return int(machine.n_iter_.sum()) if hasattr(machine, "n_iter_") else None


# Agreement with scikit-learn on the dense kernel.


def _agreement(options: Options) -> Iterator[Table]:
    size = options.pick(2_000, 1_000, 200)
    X, y, name = _classes(options, "spambase")
    size = min(size, 2 * len(X) // 3)
    rows = [_compared(kernel, kind, X, y, size) for kernel in (clusters, _whole_forest) for kind in COMPARISONS]
    title = f"Largest difference to scikit-learn on the precomputed kernel, {name}, N = {size:,}"
    yield Table("machines_agreement", title, rows)


def _whole_forest(x: Tensor, y: Any) -> Kernel:
    """50 trees, all heights."""
    return RandomForestKernel(x, y, 50, random_state=0)


def _compared(kernel: Callable[[Tensor, Any], Kernel], kind: str, X: np.ndarray, y: np.ndarray, size: int) -> Row:
    built = kernel(torch.from_numpy(X[:size]), torch.from_numpy(y[:size].astype(float)))
    train, new = torch.from_numpy(X[:size]), torch.from_numpy(X[size:])
    with torch.no_grad():
        grams = [built(x, train).to_dense().numpy() for x in (train, new)]
    row = COMPARISONS[kind](built, grams, X[:size], X[size:], y[:size])
    return {"kernel": kernel.__doc__.strip("."), "machine": kind} | row


def _kernel_pca(kernel: Kernel, grams: list[np.ndarray], X: np.ndarray, new: np.ndarray, y: np.ndarray) -> Row:
    ours, seconds = timed(lambda: PartitionKernelPCA(5, kernel, random_state=0).fit(X))
    theirs, others = timed(lambda: KernelPCA(5, kernel="precomputed", eigen_solver="dense").fit(grams[0]))
    expected = theirs.transform(grams[1])
    difference = np.abs(ours.transform(new) - expected).max() / np.abs(expected).max()
    return {"difference, relative": difference, "s": seconds, "scikit-learn, s": others}


def _classifier(kernel: Kernel, grams: list[np.ndarray], X: np.ndarray, new: np.ndarray, y: np.ndarray) -> Row:
    exact = SVC(kernel="precomputed", tol=1e-9).fit(grams[0], y).decision_function(grams[1])
    usual, others = timed(lambda: SVC(kernel="precomputed").fit(grams[0], y))
    ours, seconds = timed(lambda: _on_sparse_features(PartitionSVC(kernel=kernel, random_state=0), X, y))
    return _off(ours.decision_function(new), usual.decision_function(grams[1]), exact, seconds, others)


def _regressor(kernel: Kernel, grams: list[np.ndarray], X: np.ndarray, new: np.ndarray, y: np.ndarray) -> Row:
    y = y.astype(float)
    exact = SVR(kernel="precomputed", tol=1e-9).fit(grams[0], y).predict(grams[1])
    usual, others = timed(lambda: SVR(kernel="precomputed").fit(grams[0], y))
    ours, seconds = timed(lambda: _on_sparse_features(PartitionSVR(kernel=kernel, random_state=0), X, y))
    return _off(ours.predict(new), usual.predict(grams[1]), exact, seconds, others)


def _on_sparse_features(machine: Any, X: np.ndarray, y: np.ndarray) -> Any:
    """The machine, by the solver for many rows."""
    most, svm._MOST_DENSE_ROWS = svm._MOST_DENSE_ROWS, 0
    try:
        return machine.fit(X, y)
    finally:
        svm._MOST_DENSE_ROWS = most


def _off(ours: np.ndarray, usual: np.ndarray, exact: np.ndarray, seconds: float, others: float) -> Row:
    scale = np.abs(exact).max()
    return {
        "difference, relative": np.abs(ours - exact).max() / scale,
        "that of scikit-learn at its default tolerance": np.abs(usual - exact).max() / scale,
        "s": seconds,
        "scikit-learn, s": others,
    }


def _clustering(kernel: Kernel, grams: list[np.ndarray], X: np.ndarray, new: np.ndarray, y: np.ndarray) -> Row:
    ours, seconds = timed(lambda: PartitionSpectralClustering(3, kernel, random_state=0).fit_predict(X))
    theirs, others = timed(lambda: SpectralClustering(3, affinity="precomputed", random_state=0).fit_predict(grams[0]))
    return {"difference, relative": 1 - adjusted_rand_score(theirs, ours), "s": seconds, "scikit-learn, s": others}


COMPARISONS: dict[str, Callable[..., Row]] = {
    "KernelPCA(5), scores of new rows": _kernel_pca,
    "SVC, decision values (sparse)": _classifier,
    "SVR, predictions (sparse)": _regressor,
    "SpectralClustering(3), 1 - adjusted Rand index": _clustering,
}


# Errors on real sets.


def _errors(options: Options) -> Iterator[Table]:
    rows = [_compared_errors(*_classes(options, name), options) for name in ("spambase", "banana")]
    costs, folds = _choice_of_costs(options)
    title = (
        f"Shares of test rows in the wrong class; C of SVMs among {costs} by {folds} folds; two thirds of the rows "
        "train"
    )
    yield Table("machines_errors", title, rows)


def _compared_errors(X: np.ndarray, y: np.ndarray, name: str, options: Options) -> Row:
    m = options.pick(200, 50, 5)
    costs, folds = _choice_of_costs(options)
    clusters = PartitionSVC(kernel="fast_cluster", num_partitions=m, random_state=0)
    contenders = {
        "SVC, forest kernel": GridSearchCV(PartitionSVC(num_partitions=m, random_state=0), {"C": costs}, cv=folds),
        "SVC, fast cluster kernel": GridSearchCV(clusters, {"C": costs}, cv=folds),
        "SVC, RBF kernel": GridSearchCV(make_pipeline(StandardScaler(), SVC()), {"svc__C": costs}, cv=folds),
        "random forest": RandomForestClassifier(m, random_state=0),
    }
    num_train = 2 * len(y) // 3
    row: Row = {"data": name, "training rows": num_train}
    for contender, machine in contenders.items():
        wrong = machine.fit(X[:num_train], y[:num_train]).predict(X[num_train:]) != y[num_train:]
        row[contender] = f"{100 * wrong.mean():.1f} %"
    return row


def _choice_of_costs(options: Options) -> tuple[list[float], int]:
    """The values of C that are tried, and by how many folds."""
    return options.pick((COSTS, 3), (COSTS, 3), (COSTS[1:3], 2))


def _classes(options: Options, name: str) -> tuple[np.ndarray, np.ndarray, str]:
    """Rows in a random order, their classes, and the name of the set."""
    if options.data is None:
        X, y = load_breast_cancer(return_X_y=True) if name == "spambase" else make_moons(600, noise=0.3, random_state=0)
        name = "breast cancer" if name == "spambase" else "two moons"
    else:
        X, y = read_arrays(options.data / f"{name}.npz")
    order = np.random.default_rng(0).permutation(len(y))
    X = X[order][:, X.std(0) > 0]
    return (X - X.mean(0)) / X.std(0), y[order].astype(int), name


# A picture.


def _picture(options: Options) -> Table:
    """The first two components of two sets, with two kernels each."""
    sets = [_regression(options), _classes(options, "spambase")]
    m = options.pick(200, 50, 5)
    panels, rows = [], []
    for X, y, name in sets:
        for kernel in ("fast_cluster", "forest"):
            machine = PartitionKernelPCA(2, kernel, m, random_state=0)
            scores = machine.fit_transform(X, y.astype(float))
            panels.append((scores, y, f"{name}, {kernel.replace('_', ' ')} kernel", machine.explained_variance_ratio_))
            first, second = machine.explained_variance_ratio_
            rows.append({"data": name, "kernel": kernel, "first": f"{first:.0%}", "second": f"{second:.0%}"})
    title = f"Shares of the variance of the first two kernel principal components, m = {m}"
    return Table("machines_kernel_pca", title, rows, picture=_drawn(panels))


def _regression(options: Options) -> tuple[np.ndarray, np.ndarray, str]:
    if options.data is None:
        return *load_diabetes(return_X_y=True), "diabetes"
    X, y = read_arrays(options.data / "bodyfat.npz")
    return X[:, 1:], y, "bodyfat"  # the first column gives the target away


def _drawn(panels: list[tuple[np.ndarray, np.ndarray, str, np.ndarray]]) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 8), layout="constrained", dpi=150)
    for axes, (scores, y, title, shares) in zip(figure.subplots(2, 2).flat, panels):
        order = np.random.default_rng(0).permutation(len(y))  # no class on top of the other
        points = axes.scatter(*scores[order].T, c=y[order], s=8, cmap="viridis", linewidths=0, alpha=0.8)
        axes.set_title(title, loc="left", fontsize=10)
        axes.set(xlabel=f"first component ({shares[0]:.0%})", ylabel=f"second component ({shares[1]:.0%})")
        axes.spines[["top", "right"]].set_visible(False)
        if len(np.unique(y)) > 2:
            figure.colorbar(points, ax=axes, label="target")
        else:
            axes.legend(*points.legend_elements(), title="class", frameon=False, fontsize=9)
    return figure
