"""Estimators on data frames: what they see, new levels and holes, names, states, and refusals."""

from __future__ import annotations

import logging
import warnings
from functools import cache

import numpy as np
import pandas as pd
import pytest
from gpytorch.kernels import RBFKernel
from scipy.sparse import csr_matrix
from sklearn.base import clone

from gpytorch_partition.estimators import (
    LAGORanker,
    MondrianClassifier,
    PartitionFeatures,
    PartitionGPClassifier,
    PartitionGPRegressor,
    PartitionKernelPCA,
    PartitionSpectralClustering,
    PartitionSVC,
    PartitionSVR,
)
from gpytorch_partition.tables import TableEncoder
from tests.estimators.copies import stored
from tests.few_trees import few_trees

RANDOM = np.random.RandomState(0)
N = 160
FRAME = pd.DataFrame(
    {
        "size": RANDOM.randn(N),
        "town": RANDOM.choice(list("abcdefghijklmno"), N),
        "kind": pd.Categorical(RANDOM.choice(["x", "y"], N), ["y", "x", "z"]),
        "sold": pd.Timestamp("2024-01-01") + pd.to_timedelta(RANDOM.randint(500, size=N), "D"),
        "new": RANDOM.rand(N) < 0.5,
    }
)
Y = (FRAME["size"] + 2 * (FRAME["town"] < "f") + (FRAME["kind"] == "x")).to_numpy() + 0.1 * RANDOM.randn(N)
FRAME.loc[::9, "size"] = np.nan
FRAME.loc[::11, "town"] = None
NEW = FRAME.iloc[:20].assign(town=["nowhere", *FRAME["town"][1:20]], sold=[pd.NaT, *FRAME["sold"][1:20]])
CLASSES = np.where(Y > 1, "high", "low")
SMALL = few_trees(num_noise_trees=20)


def rbf(x, y):
    assert not x.isnan().any()
    return RBFKernel(ard_num_dims=x.shape[1])


def fitted(kernel, frame=FRAME, **options):
    options = {"num_partitions": 30, "random_state": 0, "options": SMALL, **options}
    return PartitionGPRegressor(kernel, **options).fit(frame, Y)


model_of = cache(fitted)  # when a test asks for it, rather than when tests are collected


@pytest.mark.parametrize(
    "kernel", ["forest", "fast_cluster", "mondrian", pytest.param("auto", marks=pytest.mark.slow), rbf]
)
class TestRegressor:
    def test_it_learns_from_all_columns_and_knows_new_levels_and_holes(self, kernel):
        model = model_of(kernel)
        mean, std = model.predict(NEW, return_std=True)
        assert np.isfinite(std).all()
        assert np.sqrt(np.mean((mean - Y[:20]) ** 2)) < 0.6 * Y.std()
        assert model.n_features_in_ == 5
        assert model.feature_names_in_.tolist() == list(FRAME)

    def test_names_and_kinds_of_columns_are_checked(self, kernel):
        model = model_of(kernel)
        with pytest.raises(ValueError, match="same order"):
            model.predict(NEW[NEW.columns[::-1]])
        with pytest.raises(ValueError, match="now missing"):
            model.predict(NEW.drop(columns="town"))
        with pytest.raises(TypeError, match="expected text in column 'town'"):
            model.predict(NEW.assign(town=1))
        with pytest.raises(ValueError, match="infinity in 20 .* 'size'"):
            model.predict(NEW.assign(size=np.inf))


def test_numbers_and_codes_are_what_the_kernel_is_built_on():
    matrix = TableEncoder().fit_transform(FRAME)
    x = model_of("forest").model_.train_inputs[0].double().numpy()
    codes = [1, 2]
    known = np.nan_to_num(matrix[:, codes], nan=np.finfo(np.float32).max)
    np.testing.assert_array_equal(x[:, codes], known)
    size = (matrix[:, 0] - np.nanmean(matrix[:, 0])) / np.nanstd(matrix[:, 0])
    np.testing.assert_allclose(x[:, 0][~np.isnan(size)], size[~np.isnan(size)])
    assert model_of("forest").kernel_.partition.level_places.shape == (
        30,
        15 + 2,
    )  # up to the last level that rows have
    view = model_of("mondrian").kernel_.view
    assert view.num_columns == matrix.shape[1] + 2  # the kinds are one-hot, and towns their mean targets


def test_a_frame_of_numbers_is_an_array_of_numbers():
    X = RANDOM.randn(60, 3)
    y = X[:, 0] + X[:, 1] ** 2
    model = PartitionGPRegressor("forest", 20, random_state=0)
    array, frame = clone(model).fit(X, y), clone(model).fit(pd.DataFrame(X, columns=list("abc")), y)
    expected = array.predict(X, return_std=True)
    for got in (frame.predict(pd.DataFrame(X, columns=list("abc")), return_std=True),):
        assert np.array_equal(got, expected)
    objects = clone(model).fit(X.astype(object), y)
    assert np.array_equal(objects.predict(X.astype(object), return_std=True), expected)
    by_name = clone(model).fit(dict(zip("abc", X.T)), y)
    assert np.array_equal(by_name.predict(dict(zip("cba", X.T[::-1]))), expected[0])
    assert array.encoder_ is None


def test_numbers_that_are_categories_and_what_is_said(caplog):
    frame = pd.DataFrame({"code": RANDOM.randint(20, size=N) * 100, "name": [f"row {number}" for number in range(N)]})
    with caplog.at_level(logging.INFO, "gpytorch_partition"):
        model = fitted("forest", frame, categorical_features=["code"])
    assert model.encoder_.categories_[0] == sorted(set(frame["code"]))
    assert "column 'name': left out: another text in every row, as an id has" in caplog.text
    with pytest.raises(ValueError, match="categorical_features among"):
        fitted("forest", frame, categorical_features=["number"])


def test_forests_predict_better_with_sets_than_with_codes():
    """Three hundred towns without an order, a few rows of each."""
    random = np.random.RandomState(1)
    towns, effects = random.randint(300, size=3000), random.randn(300)
    y = effects[towns] + 0.3 * random.randn(3000)
    text = pd.DataFrame({"town": [f"town {number}" for number in towns], "size": random.randn(3000)})
    codes = text.assign(town=towns)
    model, train, test = PartitionGPRegressor("forest", 50, random_state=0), slice(1500), slice(1500, None)
    means = [model.fit(x[train], y[train]).predict(x[test]) for x in (text, codes)]
    errors = [np.sqrt(np.mean((mean - y[test]) ** 2)) for mean in means]
    assert errors[0] < 0.6 < 0.8 < errors[1]


@pytest.mark.parametrize(
    "machine",
    [
        PartitionSVC(num_partitions=20, random_state=0),
        PartitionSVC(kernel="forest", num_partitions=20, random_state=0),
        MondrianClassifier(20, random_state=0),
    ],
)
def test_classifiers(machine):
    assert clone(machine).fit(FRAME[20:], CLASSES[20:]).score(NEW, CLASSES[:20]) > 0.65


@pytest.mark.parametrize("kernel", ["forest", "mondrian", "fast_cluster"])
def test_other_machines(kernel):
    options = {"num_partitions": 20, "random_state": 0}
    features = PartitionFeatures(kernel=kernel, **options).fit(FRAME, Y)
    assert features.transform(NEW).shape == (20, len(features.get_feature_names_out(list(FRAME))))
    assert PartitionKernelPCA(kernel=kernel, **options).fit(FRAME, Y).transform(NEW).shape == (20, 2)
    assert len(PartitionSpectralClustering(2, kernel=kernel, **options).fit(FRAME, Y).labels_) == N
    assert PartitionSVR(kernel=kernel, **options).fit(FRAME, Y).score(NEW, Y[:20]) > 0.3


def test_a_ranker_and_a_classifier_that_goes_on():
    ranker = LAGORanker().fit(FRAME[20:], np.where(Y[20:] > 2, "rare", "usual"))
    assert np.isfinite(ranker.score_samples(NEW)).all()
    model = MondrianClassifier(10, random_state=0).partial_fit(FRAME[40:], CLASSES[40:])
    assert model.partial_fit(FRAME[20:40], CLASSES[20:40]).score(NEW, CLASSES[:20]) > 0.6


@pytest.mark.parametrize(
    "machine",
    [
        PartitionGPRegressor("mondrian", 10, random_state=0),
        PartitionGPClassifier("mondrian", 10, random_state=0),
        PartitionKernelPCA(2, "fast_cluster", 10, random_state=0),
        PartitionSpectralClustering(2, "fast_cluster", 10, random_state=0),
        PartitionFeatures("mondrian", 10, random_state=0),
        PartitionSVC(kernel="mondrian", num_partitions=10, random_state=0),
        PartitionSVR(kernel="mondrian", num_partitions=10, random_state=0),
        MondrianClassifier(10, lifetime=1.0, random_state=0),
        LAGORanker(),
    ],
    ids=lambda machine: type(machine).__name__,
)
def test_holes_of_arrays_are_refused_and_those_of_frames_taken(machine):
    rows = np.column_stack([FRAME["size"], FRAME["new"]]).astype(np.float64)
    name = type(machine).__name__
    message = f"{name}( with kernel='.*')? takes missing cells of data frames only, so give"
    with pytest.raises(ValueError, match=f"contains NaN: 18 of 160 rows miss values, .* row 0, in column 0. {message}"):
        machine.fit(rows, Y > 1)
    machine.fit(pd.DataFrame(rows), Y > 1)


def test_sparse_rows_are_refused_with_their_cost():
    with pytest.raises(TypeError, match="dense data is required: with its zeros it takes .* GiB.* the categories"):
        PartitionGPRegressor().fit(csr_matrix((10, 3)), np.arange(10.0))


@pytest.mark.parametrize("chosen", [["x"], np.array([0]), np.array([True, False])])
def test_a_regressor_of_a_state_refits_to_the_same_categories(chosen):
    rows = pd.DataFrame({"x": np.arange(40) % 12, "z": np.linspace(0, 1, 40)})
    options = {"num_partitions": 5, "random_state": 0, "categorical_features": chosen}
    twin = stored(PartitionGPRegressor("forest", **options).fit(rows, np.arange(40.0)))
    assert twin.fit(rows, np.arange(40.0)).encoder_.categories_ == {0: list(range(12))}


@pytest.mark.parametrize("machine", [PartitionGPRegressor, PartitionGPClassifier])
@pytest.mark.parametrize("kernel", ["forest", "mondrian"])
def test_holes_that_no_training_row_has_are_said(machine, kernel):
    rows = pd.DataFrame({"a": np.linspace(0, 1, 30), "b": [None, *range(29)], "c": list("xyz") * 10})
    model = machine(kernel, 5, random_state=0).fit(rows, np.arange(30) % 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(rows.assign(b=np.nan, c="new"))
    with pytest.warns(UserWarning, match="missing in 'a', where no training row missed any"):
        model.predict(rows.assign(a=np.nan, b=np.nan))


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (lambda y: pd.Series(y).where(y > y[3]), r"Input y contains NaN. Of \d+ targets \d+ are missing.*pandas.isna"),
        (lambda y: ["cheap", None] * (N // 2), "missing, the first in row 1"),
        (lambda y: ["cheap", "dear"] * (N // 2), r"'cheap' \(row 0\) and 'dear' .*PartitionGPClassifier learns"),
        (lambda y: [*y[:-1], "6,0"], r"1 of \d+ are no numbers, such as '6,0' \(row \d+\): give numbers"),
        (lambda y: np.array([y, ["n.d.", *y[1:]]], dtype=object).T, r"'n.d.' \(row 0 of y\[:, 1\]\): give numbers"),
    ],
)
def test_targets_that_cannot_be_learned_say_what_to_do(targets, message):
    with pytest.raises(ValueError, match=message):
        PartitionGPRegressor("forest", num_partitions=2).fit(FRAME, targets(np.arange(float(N))))


def test_a_row_is_given_as_a_table():
    model = PartitionGPRegressor("forest", num_partitions=2, random_state=0).fit(FRAME, np.arange(float(N)))
    with pytest.raises(ValueError, match=r"got a Series; give X.iloc\[\[0\]\]"):
        model.predict(FRAME.iloc[0])
