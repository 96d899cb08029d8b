"""The regressor on Dask collections is the feature space's model of all rows, and predicts lazily."""

from __future__ import annotations

import pickle

import dask.array as da
import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.exceptions import NotFittedError
from sklearn.metrics import r2_score

from gpytorch_partition.distributed import DaskPartitionGPRegressor
from gpytorch_partition.distributed.dask_rows import forest_of_shards, sampled_rows, shards_of
from gpytorch_partition.models import FeatureSpaceGP
from gpytorch_partition.partitions import ForestPartition
from tests.distributed.dask_problems import chunks, fast_clusters, frames, rows, workers

KERNELS = ["fast_cluster", "mondrian", "forest"]


def regressor(**options):
    options = {"num_partitions": 5, "sample_rows": 200, "random_state": 0, **options}
    return DaskPartitionGPRegressor(**options)


def arrays(size=100):
    x, y = (part.numpy() for part in rows())
    return da.from_array(x, chunks=(size, 3)), da.from_array(y, chunks=size)


@pytest.mark.parametrize("kernel", KERNELS)
def test_it_is_the_model_of_all_rows_in_one_process(client, kernel):
    X, y = arrays()
    model = regressor(kernel=kernel, client=client).fit(X, y)
    units, (x, targets) = model._units, rows()
    alone = FeatureSpaceGP(model.kernel_)
    alone.add_rows(units.columns.apply(x), units.target.apply(targets))
    values = alone.fit()
    mean, variance = alone.predict(units.columns.apply(x))
    found, deviation = (part.compute() for part in model.predict(X, return_std=True))
    np.testing.assert_allclose(found, units.target.undo(mean).numpy(), rtol=1e-6)
    expected = (variance + values.noise).sqrt() * units.target.scale
    np.testing.assert_allclose(deviation, expected.numpy(), rtol=1e-5)
    assert model.noise_ == pytest.approx(values.noise * float(units.target.scale) ** 2, rel=1e-5)
    assert model.outputscale_ == pytest.approx(values.outputscale * float(units.target.scale) ** 2, rel=1e-5)


def test_frames_arrays_and_rows_in_memory_have_the_same_predictions(client):
    X, y = frames()
    model = regressor(client=client).fit(X, y)
    mean, deviation = model.predict(X, return_std=True)
    assert mean.npartitions == deviation.npartitions == X.npartitions
    assert mean.compute().index.equals(X.compute().index)
    for points in (arrays()[0], arrays(33)[0].rechunk((33, 2)), X.to_dask_array(), rows()[0], X.compute()):
        others = model.predict(points, return_std=True)
        np.testing.assert_array_equal(np.asarray(others[0]), mean.compute().to_numpy())
        np.testing.assert_array_equal(np.asarray(others[1]), deviation.compute().to_numpy())
    np.testing.assert_array_equal(model.predict(X).compute(), mean.compute())


@pytest.mark.parametrize("kind", ["polars", "pyarrow"])
def test_other_frames_are_predicted_by_their_names(client, kind):
    frame_of = pytest.importorskip(kind).table if kind == "pyarrow" else pytest.importorskip(kind).DataFrame
    model, points = regressor(client=client).fit(*frames()), rows()[0][:20].numpy()
    columns = dict(zip("abc", points.T))
    np.testing.assert_array_equal(model.predict(frame_of(columns)), model.predict(points))
    with pytest.raises(ValueError, match=r"got columns \['b', 'a', 'c'\]"):
        model.predict(frame_of({name: columns[name] for name in "bac"}))


@pytest.mark.parametrize("options", [{}, {"kernel": "forest", "grown_on": "shards"}])
def test_the_same_bits_for_any_number_of_workers(options):
    found = []
    for number in (1, 2, 3):
        with workers(number) as client:
            found.append(regressor(client=client, **options).fit(*arrays()).predict(rows()[0], return_std=True))
    for others in found[1:]:
        np.testing.assert_array_equal(others, found[0])


def test_the_score_is_that_of_scikit_learn(client):
    X, y = arrays()
    model = regressor(client=client).fit(X, y)
    expected = r2_score(y.compute(), model.predict(rows()[0]))
    for own in ((X, y), frames(), rows(), (rows()[0].tolist(), rows()[1].tolist())):
        assert model.score(*own) == pytest.approx(expected, rel=1e-6)
    far = y.astype(np.float64) + 1e6
    assert regressor(client=client).fit(X, far).score(X, far) == pytest.approx(expected, abs=1e-3)
    assert model.score(X, 0 * y + 1) == 0  # constant targets, as scikit-learn
    with pytest.raises(ValueError, match="expected one row or more"):
        model.score(rows()[0][:0], rows()[1][:0])
    with pytest.raises(RuntimeError, match=r"chunk \d of 7 .*expected finite targets"):
        model.score(X, y / 0)
    with pytest.raises(TypeError, match="both as Dask collections, or both in memory"):
        model.score(X, rows()[1])
    with pytest.raises(ValueError, match="expected the 3 columns of fit"):
        model.score(X[:, :2], y)


def test_the_score_skips_chunks_without_rows(client):
    X, y = frames()
    model = regressor(client=client).fit(X, y)
    kept = X["a"].map_partitions(lambda part: (part.index >= 200) & (part.index < 600), meta=("kept", bool))
    expected = r2_score(y[kept].compute(), model.predict(X[kept]).compute())
    assert model.score(X[kept], y[kept]) == pytest.approx(expected, rel=1e-6)


def test_a_sample_is_of_distinct_rows_of_all_shards(client):
    shards = shards_of(chunks())
    _, x, y, sizes = sampled_rows(client, shards, 300, 1)
    assert sizes.tolist() == [100] * 7
    all_rows = {tuple(row) for row in torch.cat([rows()[0], rows()[1].unsqueeze(-1)], -1).tolist()}
    drawn = [tuple(row) for row in torch.cat([x, y.unsqueeze(-1)], -1).tolist()]
    assert len(set(drawn)) == 300
    assert set(drawn) <= all_rows
    per_shard = [sum(tuple(row) in set(drawn) for row in torch.cat([x, y[:, None]], -1).tolist()) for x, y in chunks()]
    assert all(20 < number < 70 for number in per_shard)  # 43 expected
    whole = sampled_rows(client, shards, 10_000, 1)
    assert len(whole.y) == len(rows()[1])


def test_every_tree_sees_the_rows_of_one_shard(client):
    generator = torch.Generator().manual_seed(0)
    shards = shards_of(
        (torch.rand(100, 1, generator=generator) + 10 * i, torch.rand(100, generator=generator)) for i in range(3)
    )
    forest = forest_of_shards(client, shards, torch.tensor([100, 100, 100]), 5, 0)
    trees = [ForestPartition(tree).thresholds(0) for tree in forest.estimators_]
    assert [int(each.mean() // 10) for each in trees] == [0, 0, 1, 1, 2]
    assert all(int(each.min() // 10) == int(each.max() // 10) for each in trees)
    assert len({tuple(each.tolist()) for each in trees}) == 5


def test_shards_without_rows_grow_no_trees(client):
    X, y = frames()
    kept = X["a"].map_partitions(lambda part: (part.index >= 200) & (part.index < 600), meta=("kept", bool))
    model = regressor(kernel="forest", grown_on="shards", client=client).fit(X[kept], y[kept])
    assert model.kernel_.num_partitions == 5
    dense = regressor(kernel="forest", client=client).fit(X[kept], y[kept]).predict(rows()[0])
    assert np.corrcoef(model.predict(rows()[0]), dense)[0, 1] > 0.8


def test_a_failed_fit_leaves_the_old_model(client):
    X, y = arrays()
    model = regressor(client=client).fit(X, y)
    before = model.predict(rows()[0])
    with pytest.raises(RuntimeError, match=r"chunk \d of 7 .*expected finite targets"):
        model.fit(X, y / 0)
    np.testing.assert_array_equal(model.predict(rows()[0]), before)


def test_a_fitted_regressor_is_pickled_and_cloned(client):
    model = regressor().fit(*arrays())
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(rows()[0]), model.predict(rows()[0]))
    with pytest.raises(NotFittedError):
        clone(model).predict(rows()[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sample_rows": 0}, "sample_rows"),
        ({"num_partitions": 0}, "num_partitions"),
        ({"grown_on": "driver"}, "expected grown_on to be one of"),
        ({"kernel": "mondrian", "grown_on": "shards"}, "only the trees of kernel='forest' are grown on shards"),
        ({"kernel": "auto"}, "expected kernel to be one of"),
    ],
)
def test_other_parameters_are_refused(client, options, message):
    with pytest.raises(ValueError, match=message):
        regressor(client=client, **options).fit(*arrays())


def test_rows_in_memory_are_refused_with_the_remedy(client):
    X, y = (part.numpy() for part in rows())
    for own in ((X, y), (arrays()[0], y), (X.tolist(), y), (chunks(), None)):
        with pytest.raises(TypeError, match=r"expected X and y as Dask dataframes or arrays, got a .*from_array"):
            regressor(client=client).fit(*own)
    with pytest.raises(TypeError, match=r"got a Tensor: give \[\(X, y\)\] for one chunk"):
        shards_of(rows())


def _with_holes(column=1, first=0):
    X, y = (part.numpy().copy() for part in rows())
    X[first::7, column] = np.nan
    return da.from_array(X, chunks=(100, 3)), da.from_array(y, chunks=100)


@pytest.mark.parametrize("kernel", ["fast_cluster", "mondrian", fast_clusters])
def test_missing_cells_are_refused_with_the_remedy(client, kernel):
    with pytest.raises(ValueError, match=r"no missing cells, got NaN in columns \[1\]: .*kernel='forest'"):
        regressor(kernel=kernel, client=client).fit(*_with_holes())


def test_missing_cells_outside_of_the_sample_name_their_chunk(client):
    with pytest.raises(RuntimeError, match=r"chunk 6 of 7 .* expected finite points, got NaN"):
        regressor(kernel="fast_cluster", client=client, sample_rows=20).fit(*_with_holes(first=699))


@pytest.mark.parametrize("options", [{}, {"grown_on": "shards"}])
def test_forests_know_missing_cells(client, options):
    X, y = _with_holes()
    model = regressor(client=client, num_partitions=20, **options).fit(X, y)
    assert np.corrcoef(model.predict(X).compute(), y.compute())[0, 1] > 0.7


def test_other_columns_are_refused(client):
    X, y = frames()
    model = regressor(client=client).fit(X, y)
    for other in (X[["b", "a", "c"]], X.compute()[["b", "a", "c"]], X[["a", "b"]], rows()[0][:, :2], rows()[1]):
        with pytest.raises(
            ValueError, match=r"expected the 3 columns of fit \(\['a', 'b', 'c'\]\), got (columns|shape)"
        ):
            model.predict(other)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (lambda: fast_clusters(*rows()), "expected kernel as a name or a function, got a FastClusterKernel"),
        (ExtraTreesRegressor, "got a ExtraTreesRegressor"),
        (lambda: _sum_of_kernels, "expected a kernel of this package with partitions, got a AdditiveKernel"),
    ],
)
def test_kernels_that_cannot_be_counted_are_refused(client, kernel, message):
    with pytest.raises(TypeError, match=message):
        regressor(kernel=kernel(), client=client).fit(*arrays())


def _sum_of_kernels(x, y):
    return fast_clusters(x, y) + fast_clusters(x, y)
