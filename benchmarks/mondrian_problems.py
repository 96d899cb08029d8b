"""The data of the figures of the Mondrian kernel's paper (Balog et al. 2016, section 8)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from sklearn.datasets import make_friedman1
from torch import Tensor

from .laplace_features import laplace_kernel
from .report import Options

# The ridge constant of all the paper's experiments: |y - F w|^2 + DELTA |w|^2.
DELTA = 1e-4
# Passes over the rows where weights are found by stochastic gradient descent.
EPOCHS = 5


class Rows(NamedTuple):
    """Inputs and targets."""

    x: np.ndarray
    y: np.ndarray

    @property
    def points(self) -> Tensor:
        """The inputs as a tensor."""
        return torch.from_numpy(self.x)


class Problem(NamedTuple):
    """A set, and the lifetime at which the exact kernel is good for it."""

    name: str
    train: Rows
    test: Rows
    lifetime: float


def relative_error(prediction: np.ndarray, y: np.ndarray) -> float:
    """100 |prediction - y| / |y|, as in the paper's figures."""
    return 100 * float(np.linalg.norm(prediction - y) / np.linalg.norm(y))


def cpu(options: Options) -> Problem:
    """
    The CPU set as it is, unscaled, with its own split; without a folder of data, Friedman's first function.

    At a lifetime of 1e-6 the exact kernel K + DELTA I has the error that the paper gives, 3.12 %.
    """
    if options.data is None:
        X, y = make_friedman1(options.pick(2_000, 800, 300), noise=1.0, random_state=0)
        is_test, name, lifetime = np.arange(len(y)) % 5 == 0, "Friedman 1", 0.5
    else:
        with np.load(options.data / "cpu.npz", allow_pickle=False) as file:
            X, y, is_test = file["X"], file["y"], file["test_mask"][:, 0]
        name, lifetime = "CPU", 1e-6
    kept = np.flatnonzero(~is_test)
    kept = np.random.RandomState(0).permutation(kept)[: options.pick(len(kept), 1_500, 200)]
    return Problem(name, Rows(X[kept], y[kept]), Rows(X[is_test], y[is_test]), lifetime)


def laplace_process(num_rows: int, lifetime: float, seed: int) -> tuple[Rows, Rows, Rows]:
    """Training, validation and test rows in the unit square: one draw of the process, and noise of variance DELTA."""
    random = np.random.RandomState(seed)
    x = random.uniform(size=(3 * num_rows, 2))
    covariance = laplace_kernel(x, x, lifetime)
    covariance.flat[:: len(x) + 1] += DELTA
    y = np.linalg.cholesky(covariance) @ random.standard_normal(len(x))
    first, second, third = (Rows(*pair) for pair in zip(np.split(x, 3), np.split(y, 3)))
    return first, second, third
