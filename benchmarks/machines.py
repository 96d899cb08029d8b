"""Kernel machines: seconds over N, agreement with scikit-learn's, and a picture of kernel PCA."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from gpytorch.kernels import Kernel
from sklearn.cluster import SpectralClustering
from sklearn.decomposition import KernelPCA
from sklearn.metrics import adjusted_rand_score
from sklearn.svm import SVC, SVR
from torch import Tensor

from gpytorch_partition import FastClusterKernel, RandomForestKernel
from gpytorch_partition.estimators import (
    PartitionKernelPCA,
    PartitionSpectralClustering,
    PartitionSVC,
    PartitionSVR,
    svm,
)

from .clock import peak_gib, timed
from .datasets import classes, friedman, read_data
from .plots import finish, panels
from .report import Options, Row, Table, measured


def machines(options: Options) -> Iterator[Table]:
    """Measure seconds and agreement, and draw components of two sets."""
    yield from _agreement(options)
    yield from _components(options)
    sizes = options.pick([10_000, 100_000, 1_000_000], [300])
    num_new = options.pick(10_000, 50)
    jobs = [{"machine": name, "N": size} for size in sizes for name in MACHINES]
    title = f"Kernel machines on Friedman's function (10 columns): fit and {num_new:,} new rows"
    yield from measured(options, "machines", title, jobs, partial(options.apart, _fitted, num_new))


def flat_forest(x: Tensor, y: Any) -> Kernel:
    """Return 50 trees cut at random heights: 50 entries in each row of features."""
    return RandomForestKernel(x, y, 50, "sampled", random_state=0)


def clusters(x: Tensor, y: Any) -> Kernel:
    """Return 100 fast clusterings."""
    return FastClusterKernel(x, 100, random_state=0)


MACHINES: dict[str, Callable[[], Any]] = {
    "PartitionKernelPCA(2), fast clusters": lambda: PartitionKernelPCA(2, clusters, random_state=0),
    "PartitionSpectralClustering(4), fast clusters": lambda: PartitionSpectralClustering(4, clusters, random_state=0),
    "PartitionSVC, 50 trees cut at random heights": lambda: PartitionSVC(kernel=flat_forest, random_state=0),
    "PartitionSVR, the same trees": lambda: PartitionSVR(kernel=flat_forest, random_state=0),
}


def _fitted(num_new: int, name: str, num_rows: int) -> Row:
    x, y = (values.double().numpy() for values in friedman(num_rows + num_new))
    targets, machine = (y > 0 if "SVC" in name else y), MACHINES[name]()
    row = {"fit, s": timed(lambda: machine.fit(x[:num_rows], targets[:num_rows]))[1]}
    if (method := getattr(machine, "predict", None) or getattr(machine, "transform", None)) is not None:
        row["new rows, s"] = timed(lambda: method(x[num_rows:]))[1]
    return row | {"peak GiB": peak_gib()}


def _agreement(options: Options) -> Iterator[Table]:
    """Compare with scikit-learn on the precomputed kernel."""
    X, y, name = _standardized(options)
    size = min(options.pick(2_000, 200), 2 * len(X) // 3)
    kernels = {
        "100 fast clusterings": clusters,
        "50 trees, all heights": lambda x, y: RandomForestKernel(x, y, 50, random_state=0),
    }

    def compared(kernel: str, machine: str) -> Row:
        train, new = torch.from_numpy(X[:size]), torch.from_numpy(X[size:])
        built = kernels[kernel](train, torch.from_numpy(y[:size].astype(float)))
        with torch.no_grad():
            grams = [built(x, train).to_dense().numpy() for x in (train, new)]
        (ours, seconds), (theirs, others), exact = _COMPARISONS[machine](built, *grams, X[:size], X[size:], y[:size])
        return {
            "difference, relative": float(np.abs(ours - exact).max() / np.abs(exact).max()),
            "that of scikit-learn at its default tolerance": float(np.abs(theirs - exact).max() / np.abs(exact).max()),
            "s": seconds,
            "scikit-learn, s": others,
        }

    jobs = [{"kernel": kernel, "machine": machine} for kernel in kernels for machine in _COMPARISONS]
    title = f"Largest difference to scikit-learn on the precomputed kernel, {name}, N = {size:,}"
    yield from measured(options, "machines_agreement", title, jobs, compared)


Compared = tuple[tuple[np.ndarray, float], tuple[np.ndarray, float], np.ndarray]  # ours, theirs, exact


def _kernel_pca(kernel: Kernel, gram: Any, cross: Any, X: Any, new: Any, y: Any) -> Compared:
    ours, seconds = timed(lambda: PartitionKernelPCA(5, kernel, random_state=0).fit(X))
    theirs, others = timed(lambda: KernelPCA(5, kernel="precomputed", eigen_solver="dense").fit(gram))
    expected = theirs.transform(cross)
    return (ours.transform(new), seconds), (expected, others), expected


def _vectors(
    own: Any, other: Any, method: str, kernel: Kernel, gram: Any, cross: Any, X: Any, new: Any, y: Any
) -> Compared:
    y = y.astype(float) if other is SVR else y
    exact = getattr(other(kernel="precomputed", tol=1e-9).fit(gram, y), method)(cross)
    usual, others = timed(lambda: other(kernel="precomputed").fit(gram, y))
    with patch.object(svm, "_MOST_DENSE_ROWS", 0):  # the solver for many rows
        ours, seconds = timed(lambda: own(kernel=kernel, random_state=0).fit(X, y))
    return (getattr(ours, method)(new), seconds), (getattr(usual, method)(cross), others), exact


def _clustering(kernel: Kernel, gram: Any, cross: Any, X: Any, new: Any, y: Any) -> Compared:
    ours, seconds = timed(lambda: PartitionSpectralClustering(3, kernel, random_state=0).fit_predict(X))
    theirs, others = timed(lambda: SpectralClustering(3, affinity="precomputed", random_state=0).fit_predict(gram))
    return (np.array([adjusted_rand_score(theirs, ours)]), seconds), (np.ones(1), others), np.ones(1)


_COMPARISONS: dict[str, Callable[..., Compared]] = {
    "KernelPCA(5), scores of new rows": _kernel_pca,
    "SVC, decision values (sparse)": partial(_vectors, PartitionSVC, SVC, "decision_function"),
    "SVR, predictions (sparse)": partial(_vectors, PartitionSVR, SVR, "predict"),
    "SpectralClustering(3), adjusted Rand index": _clustering,
}


def _standardized(options: Options) -> tuple[np.ndarray, np.ndarray, str]:
    X, y, name = classes(options, "spambase")
    X = X[:, X.std(0) > 0]
    return (X - X.mean(0)) / X.std(0), y, name


def _components(options: Options) -> Iterator[Table]:
    """Draw the first two components of two sets, with two kernels each."""
    data = read_data(options, "bodyfat")
    sets = {"bodyfat" if options.data else "diabetes": (data.X, data.y)}
    X, y, name = _standardized(options)
    sets[name] = X, y
    m, found = options.pick(200, 5), {}

    def projected(name: str, kernel: str) -> Row:
        X, y = sets[name]
        machine = PartitionKernelPCA(2, kernel, m, random_state=0)
        found[name, kernel] = machine.fit_transform(X, y.astype(float))
        return dict(zip(("first", "second"), machine.explained_variance_ratio_.tolist()))

    def draw(rows: list[Row]) -> Any:
        figure, drawn = panels(len(rows), 4, 4, most=2)
        for panel, row in zip(drawn, rows):
            y, title = sets[row["data"]][1], f"{row['data']}, {row['kernel'].replace('_', ' ')} kernel"
            order = np.random.default_rng(0).permutation(len(y))  # no class on top of the other
            scores = found[row["data"], row["kernel"]][order]
            points = panel.scatter(*scores.T, c=y[order], s=8, cmap="viridis", linewidths=0, alpha=0.8)
            shares = {
                f"{axis}label": f"{each} component ({row[each]:.0%})" for axis, each in zip("xy", ("first", "second"))
            }
            finish(panel, title, **shares)
            figure.colorbar(points, ax=panel, label="target or class")
        return figure

    jobs = [{"data": name, "kernel": kernel} for name in sets for kernel in ("fast_cluster", "forest")]
    title = f"Shares of the variance of the first two kernel principal components, m = {m}"
    yield from measured(options, "machines_kernel_pca", title, jobs, projected, draw)
