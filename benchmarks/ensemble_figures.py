"""Figures 2 and 3 of Zhu 2008: components of round data by kernels, and test errors over tuning parameters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from scipy.stats import spearmanr
from sklearn.datasets import load_breast_cancer
from sklearn.decomposition import PCA, KernelPCA
from sklearn.ensemble import AdaBoostClassifier, RandomForestClassifier
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from gpytorch_partition import FastClusterKernel, MondrianKernel
from gpytorch_partition.estimators import PartitionKernelPCA
from gpytorch_partition.models.spectral import spectral_truncation

from . import ensemble_pictures as pictures
from .problems import read_arrays
from .report import Options, Row, Table

GAUSSIAN, PLAIN, CENTRED = "Gaussian, h = 1", "as it is", "centred"
_PENALTIES = [0.1, 1.0, 10.0, 100.0, 1000.0]
_WIDTHS = [1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0]
_SUBSET_SIZES = [1, 2, 3, 5, 7, 10, 15, 25, 40, 57]
_DEPTHS = [1, 2, 3, 5, 8]
_TREES = [5, 10, 25, 50, 100, 250, 500]


def kernel_components(options: Options) -> Iterator[Table]:
    """Figure 2: whether the first component of spherical data orders them by their distance from the origin."""
    draws, num_rows = options.pick((20, 300), (5, 200), (2, 60))
    orders: dict[tuple[str, str], list[list[float]]] = {}
    for seed in range(draws):
        x = np.random.default_rng(seed).standard_normal((num_rows, 2))
        radii = np.linalg.norm(x, axis=1)
        found = _components(x, seed)
        for name, scores in found.items():
            orders.setdefault(name, []).append([abs(spearmanr(values, radii).statistic) for values in scores.T])
        if seed == 0:
            picture = pictures.components(x, {f"{kernel}, {kind}": scores for (kernel, kind), scores in found.items()})
    medians = {name: np.median(values, axis=0) for name, values in orders.items()}
    rows: list[Row] = [
        {"kernel": kernel, "matrix": kind, **{f"component {i}": float(value) for i, value in enumerate(values, 1)}}
        for (kernel, kind), values in medians.items()
    ]
    plain, centred = (medians[GAUSSIAN, kind][0] > 0.8 for kind in (PLAIN, CENTRED))
    title = (
        f"Figure 2 of Zhu 2008: rank correlation of components with the distance from the origin, medians of {draws} "
        f"draws of {num_rows} spherical Gaussian rows in the plane. That the first one gives this order "
        f"{_verdict(plain)} for the matrix as it is, which the tutorial's equation 17 takes, and {_verdict(centred)} "
        "for the centred one of kernel PCA proper, whose third component does: the first eigenvector of a positive "
        "matrix is large in the middle, and centring takes it away"
    )
    yield Table("kernels_and_ensembles_figure_2", title, rows, picture=picture)


def _components(x: np.ndarray, seed: int) -> dict[tuple[str, str], np.ndarray]:
    """The first three components of kernels, `N x 3`, of matrices as they are and centred."""
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
        plain = spectral_truncation(kernel, rows, 3, random_state=seed)
        found[name, PLAIN] = plain.eigenvectors.numpy()
        found[name, CENTRED] = PartitionKernelPCA(3, kernel, random_state=seed).fit_transform(x)
    return dict(sorted(found.items(), key=lambda item: item[0][1]))


def sensitivity(options: Options) -> Iterator[Table]:
    """Figure 3: test errors over the tuning parameters of a support vector machine, a forest and AdaBoost."""
    name, X, y, num_train = spam(options)
    trees = options.pick(_TREES, [5, 25, 100], [2, 4])
    sizes = [size for size in options.pick(_SUBSET_SIZES, [1, 5, 20], [1, 5]) if size <= X.shape[1]]
    depths = options.pick(_DEPTHS, [1, 5], [1])
    maps = {
        "SVM": (("cost of errors", _PENALTIES[:: options.pick(1, 2, 4)]), ("h", _WIDTHS[:: options.pick(1, 2, 4)])),
        "random forest": (("B, trees", trees), ("m, columns tried at a split", sizes)),
        "AdaBoost": (("B, trees", trees), ("depth of the trees", depths)),
    }
    learners = {"SVM": _svm_errors, "random forest": _forest_errors, "AdaBoost": _boosting_errors}
    split = split_of(X, y, num_train)
    errors = {learner: 100 * learners[learner](*split, down[1], across[1]) for learner, (down, across) in maps.items()}
    rows = [row for learner, grid in errors.items() for row in _cells(learner, grid, *maps[learner])]
    title = (
        f"Figure 3 of Zhu 2008: test errors in percent on {name}, {num_train:,} random training rows, as "
        f"there. {_findings(errors, sizes, trees)}"
    )
    yield Table("kernels_and_ensembles_figure_3", title, rows, picture=pictures.maps(errors, maps, name))


def spam(options: Options) -> tuple[str, np.ndarray, np.ndarray, int]:
    """The tutorial's set with its number of training rows, or another where there is no folder."""
    if options.data is None:
        X, y = load_breast_cancer(return_X_y=True)
        return "scikit-learn's breast cancer set (no --data)", X, y.astype(int), 190
    X, y = read_arrays(options.data / "spambase.npz")
    return "spambase", X, y.astype(int), 1536


def split_of(X: np.ndarray, y: np.ndarray, num_train: int) -> tuple[np.ndarray, ...]:
    """Standardized training rows and the others: X and y of both."""
    order = np.random.default_rng(0).permutation(len(y))
    rows, points = order[:num_train], order[num_train:]
    scaler = StandardScaler().fit(X[rows])
    return scaler.transform(X[rows]), y[rows], scaler.transform(X[points]), y[points]


def _svm_errors(
    x: np.ndarray, y: np.ndarray, test_x: np.ndarray, test_y: np.ndarray, penalties: list[float], widths: list[float]
) -> np.ndarray:
    """Shares of errors, `penalties x widths`."""
    return np.array(
        [[np.mean(SVC(C=cost, gamma=h).fit(x, y).predict(test_x) != test_y) for h in widths] for cost in penalties]
    )


def _forest_errors(
    x: np.ndarray, y: np.ndarray, test_x: np.ndarray, test_y: np.ndarray, trees: list[int], sizes: list[int]
) -> np.ndarray:
    """Shares of errors, `trees x sizes`: the first trees of one forest are a smaller forest."""
    columns = []
    for size in sizes:
        forest = RandomForestClassifier(max(trees), max_features=size, random_state=0).fit(x, y)
        votes = np.cumsum([tree.predict_proba(test_x)[:, 1] > 0.5 for tree in forest.estimators_], axis=0)
        columns.append([np.mean((votes[number - 1] > number / 2) != test_y) for number in trees])
    return np.array(columns).T


def _boosting_errors(
    x: np.ndarray, y: np.ndarray, test_x: np.ndarray, test_y: np.ndarray, trees: list[int], depths: list[int]
) -> np.ndarray:
    """Shares of errors, `trees x depths`; boosting may end early, where a tree has no error."""
    columns = []
    for depth in depths:
        tree = DecisionTreeClassifier(max_depth=depth, random_state=0)
        model = AdaBoostClassifier(tree, n_estimators=max(trees), random_state=0).fit(x, y)
        errors = [np.mean(predicted != test_y) for predicted in model.staged_predict(test_x)]
        columns.append([errors[min(number, len(errors)) - 1] for number in trees])
    return np.array(columns).T


def _cells(
    learner: str, grid: np.ndarray, down: tuple[str, Sequence[float]], across: tuple[str, Sequence[float]]
) -> Iterator[Row]:
    for i, j in np.ndindex(*grid.shape):
        yield {
            "learner": learner,
            "first parameter": f"{down[0]} = {down[1][i]:g}",
            "second parameter": f"{across[0]} = {across[1][j]:g}",
            "test error (%)": float(grid[i, j]),
        }


def _findings(errors: dict[str, np.ndarray], sizes: list[int], trees: list[int]) -> str:
    """The tutorial's claims, each with its numbers: ranges are those of the best row or column of a map."""
    svm, forest = errors["SVM"], errors["random forest"]
    by_width, by_cost = np.ptp(svm.min(0)), np.ptp(svm.min(1))
    by_size, by_number = np.ptp(forest[-1]), np.ptp(forest[[n >= 100 for n in trees]].min(1)) if max(trees) > 100 else 0
    small, middle, large = (
        min((error for size, error in zip(sizes, forest[-1]) if low < size < high), default=np.inf)
        for low, high in ((0, 4), (3, 10), (9, np.inf))
    )
    return (
        f"That the SVM is far more sensitive to h than to the cost {_verdict(by_width > 2 * by_cost)} (the best error "
        f"for an h varies by {by_width:.1f} points, for a cost by {by_cost:.1f}); that m matters less to a forest than "
        f"h to the SVM {_verdict(by_size < by_width)} ({by_size:.1f} points; {by_number:.1f} over B >= 100); "
        f"that 3 < m < 10 is best {_verdict(middle < min(small, large))} (m <= 3: {small:.1f} %, between: {middle:.1f} "
        f"%, m >= 10: {large:.1f} %); that the tuned SVM ({svm.min():.1f} %) is no match for the forest "
        f"({forest.min():.1f} %) {_verdict(svm.min() > forest.min())}; AdaBoost at its best has "
        f"{errors['AdaBoost'].min():.1f} %"
    )


def _verdict(holds: bool | np.bool_) -> str:
    return "holds" if holds else "does not hold"
