"""Arguments and data that no estimator can use: each is refused by its name, with what was expected."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression

from gpytorch_partition import LocalLinearKernel, PartitionKernel
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
from tests.faults.estimators_zoo import CASES, answers, classes, numbers, rows

X = rows(0)
Y, CLASSES, RARE = numbers(X), classes(X), np.arange(60) % 10 == 0
TARGETS = {LAGORanker: RARE, PartitionGPClassifier: CLASSES, PartitionSVC: CLASSES, MondrianClassifier: CLASSES}
HOLES = np.where(np.arange(180).reshape(60, 3) % 7 == 0, np.nan, X)
STEEP = LocalLinearKernel(PartitionKernel(lambda x: torch.zeros(len(x), 1, dtype=torch.int64)), 3)
STEEP.variance = 1e4


class Lazy:
    """A LazyFrame of Polars, which has no rows yet."""

    columns = ("a", "b", "c")

    def collect(self):
        raise AssertionError


ARGUMENTS = [
    *[(each, {"num_partitions": 2**31}, "1,048,576 at most") for each in (PartitionGPRegressor, PartitionGPClassifier)],
    *[
        (MondrianClassifier, {name: 2**31}, f"{name} to be 1,048,576 at most")
        for name in ("num_trees", "num_lifetimes")
    ],
    (PartitionGPRegressor, {"dtype": "float16"}, "dtype to be one of"),
    (PartitionGPRegressor, {"n_jobs": 0}, "n_jobs to be None"),
    (PartitionGPRegressor, {"verbose": -1}, "verbose to be None"),
    (PartitionGPRegressor, {"options": 3}, r"options to be None or gpytorch_partition\.presets\.Options, got 3"),
    (PartitionGPRegressor, {"kernel": "forest", "max_iterations": 1.5}, "max_iterations to be a whole number"),
    *[(PartitionGPRegressor, {"budget": each}, "positive number of seconds") for each in (0, np.nan, "60", True)],
    (PartitionGPRegressor, {"kernel": "forest", "budget": 10}, "with other kernels than 'auto'"),
    (PartitionGPClassifier, {"kernel": "rbf"}, "'auto', 'forest', 'fast_cluster', 'mondrian'.* got 'rbf'"),
    (PartitionSVC, {"C": 0.0}, "C to be a positive number, got 0.0"),
    (PartitionSVC, {"class_weight": {"a": 0.0}}, "class_weight to be positive"),
    (PartitionSVR, {"epsilon": -1}, "epsilon to be 0 or a positive number, got -1"),
    (PartitionKernelPCA, {"n_components": 0}, "n_components to be a whole number, 1 or more, got 0"),
    (PartitionKernelPCA, {"n_components": 61}, "from 1 to the number of rows, 60, got 61"),
    (PartitionKernelPCA, {"tol": "small"}, "tol to be a positive number, got 'small'"),
    (PartitionSpectralClustering, {"n_clusters": 61}, "expected 61 rows or more"),
    (MondrianClassifier, {"loss": "squared"}, "loss to be one of"),
    (MondrianClassifier, {"validation_fraction": 1.0}, "validation_fraction between"),
    (MondrianClassifier, {"validation_fraction": 0.0}, "validation_fraction to be a positive number"),
    (MondrianClassifier, {"validation_fraction": 0.999}, "2 rows or more to train on.*makes 0 and 60 of 60 rows"),
    (MondrianClassifier, {"validation_fraction": 1e-9}, "2 rows or more to choose by.*makes 59 and 1"),
    (MondrianClassifier, {"validation_fraction": 0.96, "max_choosing_rows": 40}, "makes 1 and 39 of 40 rows"),
    *[(LAGORanker, {"shape": each}, "expected shape") for each in ("round", None)],
    (LAGORanker, {"kernel": "rbf"}, "expected kernel"),
    *[(LAGORanker, {"n_neighbors": each}, "expected n_neighbors") for each in (0, 2.5, [], "many", None, "5")],
    *[(LAGORanker, {"alpha": each}, "expected alpha") for each in (-1.0, [1.0, np.nan], "best", 1e-200, [[1.0]])],
    *[(LAGORanker, {"rare_class": each}, "expected rare_class") for each in (2, [0])],
    (ParallelEvolutionSelector, {"criterion": "cp"}, "expected criterion"),
    (ParallelEvolutionSelector, {"n_universes": 0}, "expected n_universes"),
    (ParallelEvolutionSelector, {"population_size": 3}, "population_size to be a whole number, 4 or more"),
    (ParallelEvolutionSelector, {"mutation_rate": 1.5}, "mutation_rate to be a number from 0 to 1"),
    (ParallelEvolutionSelector, {"votes": "all"}, "expected votes"),
    (ParallelEvolutionSelector, {"threshold": "median"}, "expected threshold"),
]
MASKED = np.ma.masked_greater(X, np.median(X))
DATA = [
    *[(each(), MASKED, TARGETS.get(each, Y), "X without a mask") for each in (PartitionGPRegressor, LAGORanker)],
    (PartitionGPRegressor(), X, np.ma.masked_greater(Y, np.median(Y)), "y without a mask"),
    (PartitionGPRegressor(), X, np.ma.masked_greater(X, np.median(X)), "y without a mask"),
    (PartitionGPClassifier("forest"), X[:4], np.array([None, "a", "b", None], dtype=object), "4 targets 2 are missing"),
    (PartitionGPClassifier(), X, np.array([1, "a"] * 30, dtype=object), "classes of one kind, got some that are text"),
    (PartitionGPRegressor(), X.view([(name, float) for name in "abc"])[:, 0], Y, r"structured array: give pandas"),
    (PartitionGPRegressor(), torch.empty(60, 3, device="meta"), Y, "a tensor of the meta device"),
    (PartitionGPRegressor(), Lazy(), Y, r"a lazy frame: give X\.collect\(\)"),
    (PartitionGPRegressor(), pd.DataFrame(X, columns=[*"aba"]), Y, "two columns called 'a': rename one"),
    (PartitionGPClassifier(), X, ["yes"] * 60, r"two classes or more, got 1 class: \['yes'\]"),
    (MondrianClassifier(), X, np.ones(60, dtype=int), "1 class"),
    *[(each(), X, Y, "Unknown label type") for each in (PartitionGPClassifier, PartitionSVC, MondrianClassifier)],
    (PartitionGPClassifier(), X, CLASSES[:40], "inconsistent numbers of samples"),
    (PartitionSVR(), X, CLASSES, "expected targets that are numbers: 60 of 60 are no numbers"),
    (PartitionKernelPCA(kernel="forest"), X, None, r"call fit\(X, y\)"),
    (PartitionFeatures("forest"), X, Y[:3], r"one target for each of 60 rows, got targets of shape \(3,\)"),
    (PartitionFeatures("forest"), X, np.where(np.arange(60) > 9, np.nan, Y), "finite targets"),
    (PartitionSpectralClustering(2, "forest"), X, "targets", r"for each of 60 rows, got targets of shape \(\)"),
    (PartitionSpectralClustering(2, "forest"), X, [None] * 60, "labels of classes, got None or NaN"),
    (PartitionSpectralClustering(2, STEEP), X - X.mean(0), None, "affinities that are not negative"),
    (LAGORanker(), X, np.zeros(60), "two classes, got one"),
    (LAGORanker(), X, np.arange(60) % 3, "Only binary"),
    (LAGORanker(), X, np.arange(60) == 4, "2 rows of the rare class"),
    (LAGORanker(rare_class=False), X, np.arange(60) == 4, "2 rows of the background class"),
    (LAGORanker(), X * 1e120, RARE, "units"),
    (LAGORanker(), HOLES, RARE, "NaN"),
    (MondrianClassifier(), HOLES, CLASSES, "NaN"),
    (ParallelEvolutionSelector(), HOLES, Y, "NaN"),
    (ParallelEvolutionSelector(), X, CLASSES, "encode two classes as 0 and 1"),
    (ParallelEvolutionSelector(), X[:2], Y[:2], "minimum of 3"),
    *[
        (selector, X, y, "expected targets that vary, got one value only")
        for selector in (ParallelEvolutionSelector(n_universes=2), BaggedStepwiseSelector())
        for y in (np.full(60, 0.1), 0.1 + 1e-17 * Y, np.ones(60, int))
    ],
    (ParallelEvolutionSelector(estimator=LogisticRegression(), cv=3), X, np.full(60, "yes"), "got one value only, yes"),
]


@pytest.mark.parametrize(("kind", "options", "message"), ARGUMENTS)
def test_arguments(kind, options, message):
    with pytest.raises(ValueError, match=message):
        kind(**options).fit(X, TARGETS.get(kind, Y))


@pytest.mark.parametrize(("machine", "rows", "targets", "message"), DATA)
def test_data(machine, rows, targets, message):
    with pytest.raises(ValueError, match=message):
        machine.fit(rows, targets)


def test_masked_weights():
    with pytest.raises(ValueError, match="sample_weight without a mask"):
        PartitionGPRegressor("mondrian").fit(X, Y, np.ma.masked_greater(np.abs(Y), 1.0))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("rows", "targets", "weights", "message"),
    [
        (1.7e308 * np.sign(X), Y, None, "choose another unit"),
        (X, 1.7e308 * np.sign(Y), None, "choose another unit"),
        (X, Y, 10.0 ** np.linspace(-20, 20, 60), "within a factor of 1e"),
    ],
)
def test_huge_numbers_are_refused_without_a_warning_of_numpy(rows, targets, weights, message):
    with pytest.raises(ValueError, match=message):
        PartitionGPRegressor("mondrian").fit(rows, targets, weights)


@pytest.mark.parametrize("names", [[10, 20, 30], pd.MultiIndex.from_product([["a"], [1, 2, 3]])])
def test_columns_in_another_order(names):
    table = pd.DataFrame(X, columns=names)
    model = PartitionGPRegressor("mondrian", num_partitions=5, random_state=0).fit(table, Y)
    with pytest.raises(ValueError, match="columns in the order of fit"):
        model.predict(table[table.columns[::-1]])


@pytest.mark.parametrize("name", ["regressor, forest", "classifier, forest", "features", "kernel PCA", "SVC", "LAGO"])
def test_new_rows(name):
    case = CASES[name]
    with pytest.raises(NotFittedError):
        answers(case, case.make(), X)
    machine = case.make().fit(X, case.targets(X))
    for wrong, message in ((X[:, :2], "3 features"), (X[0], "array"), (np.char.add(X.astype(str), "x"), "convert")):
        with pytest.raises(ValueError, match=message):
            answers(case, machine, wrong)
    if name in ("features", "kernel PCA", "LAGO"):  # which compare numbers
        with pytest.raises(ValueError, match="NaN"):
            answers(case, machine, HOLES)
