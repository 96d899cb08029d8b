"""The conventions of scikit-learn, which its own checks and searches ask of every estimator."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, QuantileTransformer
from sklearn.utils.estimator_checks import check_estimator

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
    classifier,
    svm,
)
from gpytorch_partition.presets import Options
from gpytorch_partition.tables import TableEncoder
from tests.faults.estimators_zoo import FEW_TREES, classes, numbers, rare, rows

EQUIVALENCE = "check_sample_weight_equivalence_on_dense_data"
REPEATED_ROWS = "two rows of noise s^2 have another marginal likelihood than one of s^2 / 2, and tell the noise"
FAST = [
    LAGORanker(),
    LAGORanker("elliptical"),
    ParallelEvolutionSelector(n_universes=3),
    BaggedStepwiseSelector(n_samples=3),
]
SLOW = [
    *[PartitionGPRegressor(kernel, 5, options=FEW_TREES) for kernel in ("auto", "forest", "mondrian")],
    *[PartitionGPClassifier(kernel, num_partitions=5) for kernel in ("auto", "forest")],
    PartitionSVC(num_partitions=5),
    PartitionSVR(num_partitions=5),
    PartitionKernelPCA(kernel="mondrian", num_partitions=5),
    PartitionSpectralClustering(num_partitions=5),
    PartitionFeatures("fast_cluster", num_partitions=5),
    MondrianClassifier(5, num_lifetimes=2),
]
X = rows(0, 120)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("most_dense_rows", [pytest.param(0, marks=pytest.mark.slow), 5_000], ids=["sparse", "dense"])
@pytest.mark.parametrize("machine", [*FAST, *(pytest.param(each, marks=pytest.mark.slow) for each in SLOW)], ids=repr)
def test_scikit_learn_accepts_it(machine, most_dense_rows, monkeypatch):
    if most_dense_rows == 0 and not isinstance(machine, PartitionSVC | PartitionSVR):
        pytest.skip("no sparse features")
    monkeypatch.setattr(svm, "_MOST_DENSE_ROWS", most_dense_rows)
    monkeypatch.setattr(classifier, "_OPTIONS", Options(num_trees=10, most_inducing_points=100))
    monkeypatch.setattr(classifier, "_MOST_CHOOSING_ROWS", 150)
    weighs_noise = isinstance(machine, PartitionGPRegressor | PartitionGPClassifier)
    results = check_estimator(machine, expected_failed_checks={EQUIVALENCE: REPEATED_ROWS} if weighs_noise else {})
    assert {result["status"] for result in results} <= {"passed", "skipped", "xfail"}
    assert [each["check_name"] for each in results if each["status"] == "xfail"] in ([], [EQUIVALENCE])
    skipped = [str(result["exception"]) for result in results if result["status"] == "skipped"]
    assert all("pandas" in reason or "array" in reason.lower() for reason in skipped), skipped
    assert len(results) > 30


@pytest.mark.parametrize(
    ("machine", "grid", "targets", "least"),
    [
        (PartitionGPClassifier(num_partitions=5), {"kernel": ["forest", "mondrian"]}, classes, 0.6),
        (PartitionSVC(num_partitions=5), {"C": [0.1, 1.0], "kernel": ["forest", "fast_cluster"]}, classes, 0.6),
        (PartitionSVR(num_partitions=5), {"C": [1.0, 10.0], "kernel": ["forest", "fast_cluster"]}, numbers, 0.2),
        (
            make_pipeline(PartitionKernelPCA(5, num_partitions=50, random_state=0), LogisticRegression()),
            {"partitionkernelpca__kernel": ["fast_cluster", "forest"]},
            classes,
            0.6,
        ),
        (
            make_pipeline(MinMaxScaler(), MondrianClassifier(10, lifetime=2.0, random_state=0)),
            {"mondrianclassifier__loss": ["hinge"]},
            classes,
            0.6,
        ),
        (
            make_pipeline(QuantileTransformer(n_quantiles=20), LAGORanker()),
            {"lagoranker__shape": ["spherical", "elliptical"]},
            rare,
            0.2,
        ),
    ],
    ids=["classifier", "SVC", "SVR", "kernel PCA", "Mondrian", "LAGO"],
)
def test_searches_and_pipelines(machine, grid, targets, least):
    assert GridSearchCV(machine, grid, cv=3).fit(X, targets(X)).best_score_ > least


@pytest.mark.parametrize("new", [TableEncoder, PartitionKernelPCA, partial(ParallelEvolutionSelector, n_universes=2)])
def test_transformers_return_frames_with_their_names(new):
    frame = pd.DataFrame(np.random.RandomState(0).rand(60, 3), columns=["a", "b", "c"])
    transformer = new().set_output(transform="pandas")
    found = transformer.fit(frame, frame["a"] > 0.5).transform(frame)
    assert list(found.columns) == list(transformer.get_feature_names_out())
    assert found.index.equals(frame.index)


def test_sparse_features_have_names_but_no_frames():
    rows = np.random.RandomState(0).rand(60, 3)
    features = PartitionFeatures().fit(rows)
    assert len(features.get_feature_names_out()) == features.transform(rows).shape[1]
    with pytest.raises(ValueError, match="sparse"):
        features.set_output(transform="pandas").transform(rows)
