"""Classification sets in a user's folder, or made ones."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_breast_cancer, make_moons

from .problems import read_arrays
from .report import Options

Split = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # training rows and classes, test rows and classes


def classification(options: Options, name: str, most: int | None = None) -> Split:
    """Seven tenths of NAME.npz (arrays X and y) and the rest; without a folder, moons or a set of scikit-learn."""
    if options.data is not None:
        X, y = read_arrays(options.data / f"{name}.npz")
    elif name == "banana":
        X, y = make_moons(5_000, noise=0.4, random_state=0)
    else:
        X, y = load_breast_cancer(return_X_y=True)
    rows = np.random.default_rng(0).permutation(len(y))[:most]
    train, test = np.split(rows, [7 * len(rows) // 10])
    return X[train], y[train].astype(int), X[test], y[test].astype(int)
