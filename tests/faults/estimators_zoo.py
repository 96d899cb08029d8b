"""Every estimator on small data: how it is made, fitted and asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from gpytorch.kernels import RBFKernel
from sklearn.ensemble import RandomForestRegressor

from gpytorch_partition.estimators import (
    BaggedStepwiseSelector,
    LAGORanker,
    MondrianClassifier,
    ParallelEvolutionSelector,
    PartitionFeatures,
    PartitionGPClassifier,
    PartitionGPRegressor,
    PartitionKernelPCA,
    PartitionSpectralClustering,
    PartitionSVC,
    PartitionSVR,
)
from gpytorch_partition.tables import TableEncoder
from tests.few_trees import few_trees

FEW_TREES = few_trees(5, num_folds=2, num_variance_samples=8)


class Case(NamedTuple):
    """An estimator, its targets, and what is asked of it."""

    make: Callable[[], Any]
    targets: Callable[[np.ndarray], Any]
    ask: Callable[[Any, np.ndarray], Any]


def rows(seed: int, number: int = 60) -> np.ndarray:
    """Random rows (`N x 3`), in units of the seed: those of two fits differ in mean and scale."""
    return (1 + 3 * seed) * np.random.RandomState(seed).rand(number, 3) + seed


def numbers(X: np.ndarray) -> np.ndarray:
    """Targets in units of their own for each data set."""
    scale = np.ptp(X[:, 0])
    return scale**2 * (np.sin(6 * X[:, 0] / scale) + X[:, 1] / scale + 0.1 * np.random.RandomState(7).randn(len(X)))


def two_targets(X: np.ndarray) -> np.ndarray:
    return np.stack([numbers(X), X[:, 2]], 1)


def classes(X: np.ndarray) -> np.ndarray:
    return np.where(X[:, 0] + X[:, 1] > np.median(X[:, 0] + X[:, 1]), "b", "a")


def rare(X: np.ndarray) -> np.ndarray:
    return X[:, 0] >= np.sort(X[:, 0])[-8]


def _moments(model: Any, X: np.ndarray) -> Any:
    return (*model.predict(X, return_std=True), model.sample_y(X[:3], 2))


def _scores(model: Any, X: np.ndarray) -> Any:
    return model.decision_function(X)


def _probabilities(model: Any, X: np.ndarray) -> Any:
    return model.predict_proba(X)


def _columns(model: Any, X: np.ndarray) -> Any:
    found = model.transform(X)
    return found.toarray() if hasattr(found, "toarray") else found


def _regressor(kernel: Any, **options: Any) -> Case:
    targets = options.pop("targets", numbers)
    return Case(lambda: PartitionGPRegressor(kernel, 10, random_state=0, verbose=0, **options), targets, _moments)


CASES = {
    "regressor, auto": _regressor("auto", options=FEW_TREES),
    "regressor, auto in a budget": _regressor("auto", options=FEW_TREES, budget=1000.0),
    "regressor, forest": _regressor("forest"),
    "regressor, mondrian": _regressor("mondrian", dtype="float32"),
    "regressor, RBF": _regressor(RBFKernel(), max_iterations=5),
    "regressor, ensemble": _regressor(RandomForestRegressor(5, random_state=0), options=FEW_TREES),
    "regressor, two targets": _regressor("fast_cluster", targets=two_targets),
    "classifier, auto": Case(lambda: PartitionGPClassifier(random_state=0, verbose=0), classes, _probabilities),
    "classifier, forest": Case(lambda: PartitionGPClassifier("forest", 10, random_state=0), classes, _probabilities),
    "features": Case(lambda: PartitionFeatures(num_partitions=10, random_state=0), classes, _columns),
    "kernel PCA": Case(lambda: PartitionKernelPCA(num_partitions=10, random_state=0), classes, _columns),
    "spectral clustering": Case(
        lambda: PartitionSpectralClustering(2, num_partitions=10, random_state=0),
        classes,
        lambda model, _: model.labels_,
    ),
    "SVC": Case(lambda: PartitionSVC(num_partitions=10, random_state=0), classes, _scores),
    "SVC, probabilities": Case(
        lambda: PartitionSVC(num_partitions=5, random_state=0, probability=True), classes, _probabilities
    ),
    "SVR": Case(lambda: PartitionSVR(num_partitions=10, random_state=0), numbers, lambda model, X: model.predict(X)),
    "LAGO": Case(LAGORanker, rare, _scores),
    "Mondrian classifier": Case(
        lambda: MondrianClassifier(10, num_lifetimes=3, epochs=2, random_state=0), classes, _scores
    ),
    "parallel evolution": Case(
        lambda: ParallelEvolutionSelector(n_universes=4, random_state=0), numbers, lambda model, _: model.votes_
    ),
    "bagged stepwise": Case(
        lambda: BaggedStepwiseSelector(n_samples=4, random_state=0), numbers, lambda model, _: model.votes_
    ),
    "table encoder": Case(TableEncoder, numbers, _columns),
}


def answers(case: Case, model: Any, X: np.ndarray) -> list[np.ndarray]:
    """What a fitted estimator says, as arrays."""
    found = case.ask(model, X)
    return [np.asarray(part) for part in (found if isinstance(found, tuple) else (found,))]


def same(first: list[np.ndarray], second: list[np.ndarray]) -> bool:
    """Whether answers are the same to the last bit."""
    return len(first) == len(second) and all(
        a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes() for a, b in zip(first, second)
    )
