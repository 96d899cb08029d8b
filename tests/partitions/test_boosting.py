"""
Labels of LightGBM, XGBoost and CatBoost against the leaves that the libraries themselves say, bit by bit: with points
on the models' own thresholds and next to them, missing values, zeros, and categories that they have not seen.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys

import numpy as np
import pytest
import torch

from gpytorch_partition import RandomForestKernel
from gpytorch_partition.partitions import ForestPartition
from gpytorch_partition.partitions.ensembles.json_trees import _level_tables
from gpytorch_partition.partitions.ensembles.tree_arrays import Tree

RANDOM = np.random.RandomState(0)
LARGEST = float(np.finfo(np.float32).max)
SMALLEST = float(np.float32(1e-35))  # LightGBM reads what is not larger as zero


def _data(num_rows, num_categories=40):
    x = RANDOM.randn(num_rows, 5)
    x[:, 1] = RANDOM.randint(0, num_categories, num_rows)
    x[:, 2] = RANDOM.randint(-4, 5, num_rows) / 2
    x[:, 3] = np.where(RANDOM.rand(num_rows) < 0.4, 0, x[:, 3])
    return x


def _with_missing(x, share=0.15):
    return np.where(RANDOM.rand(*x.shape) < share, np.nan, x)


X = _data(400)
Y = X[:, 0] + 2 * np.sin(X[:, 1]) + 2 * (X[:, 3] == 0) + X[:, 2] * X[:, 4]
CLASSES = np.digitize(Y, [-0.5, 1.5])
X_MISSING = _with_missing(X)
Y_MISSING = Y + 2 * np.isnan(X_MISSING[:, 0]) - np.isnan(X_MISSING[:, 1])


def _points(thresholds, categories=None):
    """Rows among the data, on thresholds (column -> values) or next to them in float32 or float64, or missing."""
    x = _data(1500)
    for column, values in thresholds.items():
        near = [[0.0, -0.0, SMALLEST, -SMALLEST, SMALLEST / 2, 2 * SMALLEST, 1e-300, -1e30, -LARGEST]]
        with np.errstate(over="ignore"):
            for own in (np.asarray(values, float), np.asarray(values, np.float32)):
                near += [own, *(np.nextafter(own, own.dtype.type(end)) for end in (-np.inf, np.inf))]
            near = np.concatenate(near).astype(float)
            single = near.astype(np.float32)
        near = near[(single >= -LARGEST) & (single < LARGEST)]  # the largest is the code for missing values
        x[:, column] = np.where(RANDOM.rand(len(x)) < 0.8, RANDOM.choice(near, len(x)), x[:, column])
    if categories is not None:
        x[::3, 1] = RANDOM.choice(categories, len(x[::3]))
    return x


def _node_numbers(partition, x):
    codes = partition.labels(torch.from_numpy(x)) + partition.layout.tree_leaves[:-1]
    return partition.leaf_ids[codes].numpy()


def _leaf_numbers(partition, x):
    """Where inner nodes come first."""
    return _node_numbers(partition, x) - (partition.cluster_counts.numpy() - 1)


def _same_partitions(labels, leaves):
    """Whether labels and leaves tell the same points apart, in each tree."""
    pairs = [np.unique(np.stack(pair), axis=1) for pair in zip(labels.T, leaves.T)]
    return all(len(np.unique(pair[0])) == pair.shape[1] == len(np.unique(pair[1])) for pair in pairs)


@pytest.mark.slow
def test_no_library_of_boosting_is_imported():
    libraries = "{'lightgbm', 'xgboost', 'catboost'}"
    code = f"import gpytorch_partition, sys; sys.exit(bool({libraries} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


class Library:
    """The leaves that the models of a library say themselves, and the tests that all libraries share."""

    name = ""

    @pytest.fixture(autouse=True)
    def _library(self):
        self.library = pytest.importorskip(self.name)

    def check(self, model, points, categories=(), by_number=True):
        partition = ForestPartition(model)
        for rows in (points, points.astype(np.float32)):
            own = self.own_leaves(model, rows, categories)
            if by_number:
                assert np.array_equal(self.leaves(partition, rows), own)
            else:
                assert _same_partitions(partition.labels(torch.from_numpy(rows)).numpy(), own)
        return partition

    def check_with_state(self, model, points, categories=(), by_number=True):
        partition, twin = self.check(model, points, categories, by_number), ForestPartition()
        twin.load_state_dict(partition.state_dict())
        labels = partition.labels(torch.from_numpy(points))
        assert torch.equal(twin.labels(torch.from_numpy(points)), labels)
        assert labels.unique().numel() > 5
        assert bool(partition.category_sets.numel()) == bool(categories)
        assert partition.num_features == 5
        return partition

    def test_trees_without_splits(self):
        partition = self.check(self.fit(**self.stumps), _points({}), by_number=self.stumps_are_numbered)
        assert partition.cluster_counts.tolist() == [1] * partition.num_partitions

    def check_frames(self, fit, leaves):
        """Trees of a frame compare codes of its categories; kernels see the levels, also others than the frame had."""
        pandas, y = pytest.importorskip("pandas"), np.where(X[:, 1] % 3 == 1, 3.0, Y)
        for levels in (np.arange(2000, 2040), np.arange(40)[::-1], np.arange(40), np.arange(40) * 7):
            cells = pandas.Categorical(levels[X[:, 1].astype(int)], levels)
            others = pandas.Categorical(levels[::-1][X[:, 1].astype(int)], levels[::-1])
            frame = pandas.DataFrame({"c": cells, "z": X[:, 0], "d": others})
            model = fit(frame, y)
            rows = torch.from_numpy(frame.to_numpy(np.float64))
            found = ForestPartition(model).labels(rows).numpy()
            assert _same_partitions(found, leaves(model, frame))
            if min(levels) > 10:
                with pytest.warns(UserWarning, match="column 0 has only values below .* give the levels themselves"):
                    ForestPartition(model).labels(torch.column_stack([rows[:, 0] % 10, rows[:, 1:]]))
        for levels in (np.array([*map(str, range(40))]), np.arange(40) - 1):
            self.check_refused_levels(fit, levels)

    def check_refused_levels(self, fit, levels):
        pandas = pytest.importorskip("pandas")
        frame = pandas.DataFrame({"c": pandas.Categorical(levels[X[:, 1].astype(int)], levels)})
        with pytest.raises(ValueError, match=r"expected categories that are whole numbers .*array of codes"):
            ForestPartition(fit(frame, Y))

    def test_what_cannot_be_read_is_refused(self):
        for make, error, message in self.unreadable():
            with pytest.raises(error, match=message):
                ForestPartition(make())


class TestLightGBM(Library):
    name, stumps, stumps_are_numbered = "lightgbm", {"min_child_samples": 1000}, True

    def fit(self, x=X, y=Y, kind="LGBMRegressor", categories=(), group=None, **options):
        settings = {"n_estimators": 8, "min_child_samples": 3, "min_data_per_group": 3, "cat_smooth": 1, "n_jobs": 1}
        model = getattr(self.library, kind)(**{**settings, "verbose": -1, **options})
        grouped = {} if group is None else {"group": group}
        return model.fit(x, y, categorical_feature=list(categories), **grouped)

    def thresholds(self, model):
        found, nodes = {}, [tree["tree_structure"] for tree in model.booster_.dump_model()["tree_info"]]
        for node in nodes:
            nodes += [node[side] for side in ("left_child", "right_child") if side in node]
            if node.get("decision_type") == "<=":
                found.setdefault(node["split_feature"], []).append(node["threshold"])
        return found

    def leaves(self, partition, rows):
        return _leaf_numbers(partition, rows)

    def own_leaves(self, model, rows, categories):
        return model.predict(rows, pred_leaf=True)

    def unreadable(self):
        data = self.library.Dataset(X, Y)
        first, second = self.fit(X_MISSING, zero_as_missing=True), self.fit(categories=[1])
        return [
            (self.library.LGBMRegressor, ValueError, r"call fit\(X, y\) of the LGBMRegressor"),
            (lambda: self.library.Booster({"verbose": -1}, data), ValueError, "one tree or more, got none"),
            (lambda: data, TypeError, "LightGBM, XGBoost or CatBoost, got Dataset"),
            (
                lambda: self.continued(X_MISSING, first),
                ValueError,
                "got NaN in some trees and zero in others in column",
            ),
            (
                lambda: self.continued(X, second),
                ValueError,
                "of categories or of numbers, got some of either in column 1",
            ),
        ]

    def test_categories_of_frames(self):
        fit = self.library.LGBMRegressor(min_child_samples=3, verbose=-1).fit
        self.check_frames(fit, lambda model, x: self.own_leaves(model, x, ()))
        self.check_refused_levels(fit, np.arange(40) / 2)

    def test_levels_that_a_frame_did_not_have_are_missing(self):
        pandas = pytest.importorskip("pandas")
        frame = pandas.DataFrame({"z": X[:, 0], "year": pandas.Categorical(2000 + X[:, 1].astype(int) // 2 * 2)})
        model = self.library.LGBMRegressor(min_child_samples=3, verbose=-1).fit(frame, Y)
        new = pandas.DataFrame({"z": X[:, 0], "year": np.where(X[:, 0] < 0.5, np.nan, frame["year"])})
        own = new.assign(year=pandas.Categorical(new["year"], frame["year"].cat.categories))
        points = torch.tensor(new.fillna(2005.0).to_numpy())
        assert _same_partitions(ForestPartition(model).labels(points).numpy(), self.own_leaves(model, own, ()))

    @pytest.mark.parametrize("is_ordered", [False, True])
    @pytest.mark.parametrize("other", [1.0, X[:, 1].astype(int), X[:, 1] > 20], ids=["constant", "integers", "truths"])
    def test_frames_whose_categories_cannot_be_told_from_others_are_refused(self, other, is_ordered):
        pandas = pytest.importorskip("pandas")
        years = pandas.Categorical(2000 + X[:, 1].astype(int), ordered=is_ordered)
        frame = pandas.DataFrame({"year": years, "z": X[:, 0], "other": other})
        for options in ({}, {"categorical_feature": ["other"]}):
            model = self.library.LGBMRegressor(verbose=-1).fit(frame, Y, **options)
            with pytest.raises(ValueError, match="expected a data frame whose categories LightGBM can tell"):
                ForestPartition(model)

    def continued(self, x, first):
        model = self.library.LGBMRegressor(n_estimators=3, min_child_samples=3, verbose=-1, n_jobs=1)
        return model.fit(x, Y, init_model=first)

    @pytest.mark.parametrize("missing", [False, True])
    @pytest.mark.parametrize("categories", [(), (1,), (1, 2)])
    @pytest.mark.parametrize(
        "options",
        [
            {},
            {"zero_as_missing": True},
            {"use_missing": False},
            {"linear_tree": True},
            {"boosting_type": "dart"},
            {"boosting_type": "rf", "subsample": 0.5, "subsample_freq": 1},
            {"max_cat_to_onehot": 100, "extra_trees": True},
        ],
    )
    def test_labels_are_its_own_leaves(self, options, categories, missing):
        x, y = (X_MISSING, Y_MISSING) if missing else (X, Y)
        model = self.fit(x, y, categories=categories, **options)
        unseen = [-3e9, -1, -0.99, -0.5, -1e-40, 0.5, 1e-40, 39.99, 41, 1e6, 3e9, 1e30]
        points = _with_missing(_points(self.thresholds(model), unseen))
        partition = self.check_with_state(model, points, categories)
        assert bool(partition.zero_is_missing.numel()) == ("zero_as_missing" in options)

    def test_values_that_float32_cannot_hold(self):
        model = self.fit(1 + 1e-12 * np.arange(400.0)[:, None])
        self.check(model, 1 + 1e-12 * RANDOM.randint(-5, 405, 500)[:, None].astype(float))
        points = np.array([[1e300], [-1e300]])
        assert np.array_equal(self.leaves(ForestPartition(model), points), self.own_leaves(model, points, ()))

    def test_many_categories(self):
        x = _data(3000, 1500)
        model = self.fit(x, np.sin(x[:, 1] ** 2), categories=[1], max_bin=2000, max_cat_threshold=500)
        assert self.check(model, _data(3000, 1600)).category_sets.shape[1] > 8

    def test_missing_categories_of_a_training_without_them(self):
        """All categories are common, so that LightGBM knows no missing ones."""
        x = _data(400, 3)
        self.check(self.fit(x, Y + x[:, 1] % 2, categories=[1]), _with_missing(_data(400, 5)))

    def test_classes_and_groups(self):
        points = _points({})
        assert self.check(self.fit(y=CLASSES, kind="LGBMClassifier"), points).num_partitions == 3 * 8
        self.check(self.fit(y=CLASSES, kind="LGBMRanker", group=[200, 200]), points)

    @pytest.mark.filterwarnings("ignore:.*eval_set.*")
    def test_early_stopping_and_boosters(self):
        early = self.library.early_stopping(2, verbose=False)
        model = self.library.LGBMRegressor(n_estimators=200, learning_rate=0.5, verbose=-1, n_jobs=1)
        model.fit(X[:200], Y[:200], eval_set=[(X[200:], RANDOM.permutation(Y[200:]))], callbacks=[early])
        assert self.check(model, _points({})).num_partitions == model.best_iteration_ < 200
        loaded = self.library.Booster(model_str=model.booster_.model_to_string())
        assert self.check(loaded, _points({})).num_partitions == model.best_iteration_

    def test_a_training_that_goes_on_without_missing_values(self):
        both = self.continued(X, self.fit(X, zero_as_missing=True))  # without NaN, zeros are zeros
        self.check(both, _with_missing(_points(self.thresholds(both))))


class TestXGBoost(Library):
    name, stumps, stumps_are_numbered = "xgboost", {"min_child_weight": 1e9}, True

    def fit(self, x=X, y=Y, kind="XGBRegressor", categories=False, **options):
        types = {"enable_categorical": True, "feature_types": ["q", "c", "q", "q", "q"]} if categories else {}
        group = {"group": options.pop("group")} if "group" in options else {}
        return getattr(self.library, kind)(**{"n_estimators": 8, "n_jobs": 1, **types, **options}).fit(x, y, **group)

    def thresholds(self, model):
        found, nodes = {}, [json.loads(tree) for tree in model.get_booster().get_dump(dump_format="json")]
        for node in nodes:
            nodes += node.get("children", [])
            if isinstance(node.get("split_condition"), (int, float)):
                found.setdefault(int(node["split"].removeprefix("f")), []).append(node["split_condition"])
        return found

    def leaves(self, partition, rows):
        return _node_numbers(partition, rows)

    def own_leaves(self, model, rows, categories):
        return model.apply(rows).reshape(len(rows), -1).astype(int)

    def unreadable(self):
        matrix = self.library.DMatrix(X, Y)
        return [
            (self.library.XGBRegressor, ValueError, r"call fit\(X, y\) of the XGBRegressor"),
            (lambda: self.fit(booster="gblinear"), ValueError, "model of trees, got gblinear: .* booster='gbtree'"),
            (lambda: self.fit(missing=0), ValueError, "expected missing=nan, got missing=0"),
            (lambda: matrix, TypeError, "LightGBM, XGBoost or CatBoost, got DMatrix"),
            (lambda: self.library.train({}, matrix, 0), ValueError, "one tree or more, got none"),
        ]

    @pytest.mark.parametrize("missing", [False, True])
    @pytest.mark.parametrize("categories", [False, True])
    @pytest.mark.parametrize(
        "options",
        [
            {},
            {"max_cat_to_onehot": 100},
            {"booster": "dart", "rate_drop": 0.4},
            {"grow_policy": "lossguide", "max_leaves": 20, "max_depth": 0},
            {"num_parallel_tree": 3, "subsample": 0.5},
        ],
    )
    def test_labels_are_its_own_leaves(self, options, categories, missing):
        model = self.fit(*((X_MISSING, Y_MISSING) if missing else (X, Y)), categories=categories, **options)
        unseen = [-1, -0.5, 0.5, 39.99, 38.9999999999, 41, 1e6, 1e30]
        self.check_with_state(model, _with_missing(_points(self.thresholds(model), unseen)), categories)

    def test_categories_of_frames(self):
        def fit(x, y):
            return self.fit(x, y, enable_categorical=True)

        self.check_frames(fit, lambda model, x: model.apply(x))
        self.check_refused_levels(fit, 20_240_100 + np.arange(40))  # float32 does not tell them apart

    def test_frames_of_versions_without_tables_are_refused(self):
        tree = Tree(np.array([[1, 2], [-1, -1], [-1, -1]]), *[np.zeros(3)] * 3, {0: np.array([1])})
        learner = {"gradient_booster": {"model": {}}, "feature_names": []}
        assert _level_tables(learner, [tree]) == {}
        with pytest.raises(ValueError, match="which XGBoost 3.1 and later keeps"):
            _level_tables(learner | {"feature_names": ["year"]}, [tree])

    def test_pruned_trees(self):
        model, grown = self.fit(tree_method="exact", gamma=2.0), self.fit(tree_method="exact")
        partition = self.check(model, _points(self.thresholds(model)), by_number=False)
        assert partition.cluster_counts.sum() < ForestPartition(grown).cluster_counts.sum()

    def test_values_beyond_float32(self):
        """They stay beyond all thresholds; the library refuses them."""
        points = torch.tensor([[1e300], [-1e300], [1e30], [-1e30]], dtype=torch.float64).expand(4, 5)
        labels = ForestPartition(self.fit()).labels(points)
        assert torch.equal(labels[:2], labels[2:])

    def test_many_categories(self):
        x = _data(3000, 1500)
        model = self.fit(x, np.sin(x[:, 1] ** 2), categories=True)
        assert self.check(model, _data(3000, 1600)).category_sets.shape[1] > 8

    def test_kinds_of_models(self):
        points, two = _points({}), np.stack([Y, np.cos(X[:, 0])], 1)
        vectors = {"multi_strategy": "multi_output_tree", "tree_method": "hist"}
        for options, number in (
            ({"y": CLASSES, "kind": "XGBClassifier"}, 3 * 8),
            ({"y": CLASSES, "kind": "XGBRanker", "group": [200, 200]}, 8),
            ({"kind": "XGBRFRegressor", "n_estimators": 5}, 5),
            ({"y": CLASSES, "kind": "XGBRFClassifier", "n_estimators": 5}, 3 * 5),
            ({"y": two}, 2 * 8),
            ({"y": two, **vectors}, 8),
        ):
            assert self.check(self.fit(**options), points).num_partitions == number

    def test_early_stopping_and_boosters(self):
        model = self.library.XGBRegressor(n_estimators=200, early_stopping_rounds=2, n_jobs=1)
        model.fit(X[:200], Y[:200], eval_set=[(X[200:], RANDOM.permutation(Y[200:]))], verbose=False)
        points = _points({})
        assert self.check(model, points).num_partitions == model.best_iteration + 1
        booster = model.get_booster()
        own = booster.predict(self.library.DMatrix(points), pred_leaf=True).astype(int)
        assert own.shape[1] == model.best_iteration + 3  # all of them
        assert np.array_equal(_node_numbers(ForestPartition(booster), points), own)

    def test_weights_of_dart(self):
        model = self.fit(booster="dart", rate_drop=0.4, skip_drop=0.0, learning_rate=0.5)
        partition, points = ForestPartition(model), _data(40)
        dump = model.get_booster().get_dump()
        values = [{int(node): float(leaf) for node, leaf in re.findall(r"(\d+):leaf=(\S+)", tree)} for tree in dump]
        leaves = model.apply(points).astype(int)
        summands = np.array([[values[tree][leaf] for tree, leaf in enumerate(row)] + [1] for row in leaves])
        weights = np.linalg.lstsq(summands, model.predict(points).astype(float))[0][:-1]
        assert np.ptp(weights / weights.mean()) > 0.1
        np.testing.assert_allclose(partition.weights, weights / weights.mean(), rtol=1e-3)
        kernel = RandomForestKernel.from_forest(model, "leaf").double()
        same = leaves[:, None] == leaves[None]
        similarity = kernel(torch.from_numpy(points)).to_dense()
        np.testing.assert_allclose(similarity, same @ partition.weights.numpy() / 8, rtol=1e-6)


class TestCatBoost(Library):
    name, stumps_are_numbered = "catboost", False
    stumps = {"grow_policy": "Depthwise", "min_data_in_leaf": 10_000}

    def fit(self, x=X, y=Y, kind="CatBoostRegressor", categories=(), **options):
        settings = {"iterations": 8, "depth": 5, "one_hot_max_size": 100, "thread_count": 1, "verbose": 0}
        model = getattr(self.library, kind)()
        model.set_params(**settings, allow_writing_files=False)
        model.set_params(**options)
        return model.fit(self.pool(x, categories, y))

    def pool(self, x, categories=(), y=None):
        """Categories have to be integers."""
        rows = x.astype(object)
        for column in categories:
            rows[:, column] = x[:, column].astype(int)
        return self.library.Pool(rows, y, cat_features=list(categories))

    def leaves(self, partition, rows):
        return _leaf_numbers(partition, rows)

    def own_leaves(self, model, rows, categories):
        return model.calc_leaf_indexes(self.pool(rows, categories))

    def unreadable(self):
        rows = np.array([[f"{value:.0f}th"] for value in X[:, 1]], object)
        names = self.library.Pool(rows, Y, cat_features=[0])
        few = {"iterations": 3, "one_hot_max_size": 100, "verbose": 0, "allow_writing_files": False}
        whole = "whole numbers from -1024 to 65535, got others in column 0"
        return [
            (self.library.CatBoostRegressor, ValueError, r"call fit\(X, y\) of the CatBoostRegressor"),
            (lambda: self.fit(categories=[1], one_hot_max_size=2), ValueError, "got OnlineCtr.*one_hot_max_size"),
            (lambda: self.library.CatBoostRegressor(**few).fit(names), ValueError, whole),
            (lambda: names, TypeError, "LightGBM, XGBoost or CatBoost, got Pool"),
        ]

    @pytest.mark.parametrize("missing", [False, True])
    @pytest.mark.parametrize("categories", [(), (1,)])
    @pytest.mark.parametrize(
        "options",
        [
            {},
            {"nan_mode": "Max"},
            {"boosting_type": "Ordered"},
            {"grow_policy": "Depthwise"},
            {"grow_policy": "Lossguide", "max_leaves": 12},
            {"grow_policy": "Lossguide", "nan_mode": "Max"},
        ],
    )
    def test_labels_are_its_own_leaves(self, options, categories, missing):
        x, y = (X_MISSING.copy(), Y_MISSING) if missing else (X.copy(), Y)
        x[:, 1] = X[:, 1] - 3
        model = self.fit(x, y, categories=categories, **options)
        points = _with_missing(_points(model.get_borders()))
        if categories:
            points[:, 1] = RANDOM.randint(-6, 45, len(points))
            points[:3, 1] = [-2000, 70_000, 10**7]
        self.check_with_state(model, points, categories, by_number="grow_policy" not in options)

    def test_categories_of_a_saved_model(self, tmp_path):
        model = self.fit(categories=[1, 2])
        model.save_model(str(tmp_path / "model.cbm"))
        partition = ForestPartition(self.library.CatBoost().load_model(str(tmp_path / "model.cbm")))
        points = _data(200)
        points[:, 2] = RANDOM.randint(-6, 7, 200)
        own = model.calc_leaf_indexes(self.pool(points, [1, 2]))
        assert np.array_equal(_leaf_numbers(partition, points), own)
        unseen, missing = points.copy(), points.copy()
        unseen[:, 1], missing[:, 1] = 1000, np.nan  # CatBoost refuses NaN there
        assert np.array_equal(_node_numbers(partition, missing), _node_numbers(partition, unseen))

    def test_missing_values_are_forbidden_in_training_only(self):
        self.check(self.fit(nan_mode="Forbidden"), X_MISSING)

    def test_levels_are_in_the_order_of_the_splits(self):
        """The first split is the one that all cuts but the shallowest keep."""
        model = self.fit(depth=3, iterations=1)
        partition = ForestPartition(model)
        points = torch.from_numpy(_data(300))
        own = model.calc_leaf_indexes(points.numpy())[:, 0]
        for depth in range(4):
            cut = partition.cut(torch.tensor([depth])).labels(points).numpy()
            assert _same_partitions(cut, (own % 2**depth)[:, None])

    def test_values_beyond_float32(self):
        model = self.fit()
        points = 1e300 * RANDOM.choice([-1.0, 0.0, 1.0], (200, 5))
        assert np.array_equal(self.leaves(ForestPartition(model), points), self.own_leaves(model, points, ()))

    def test_kinds_of_models(self):
        points = _points({})
        self.check(self.fit(y=CLASSES, kind="CatBoostClassifier"), points)
        assert self.check(self.fit(y=CLASSES > 0, kind="CatBoostClassifier"), points).num_partitions == 8
        self.check(self.fit(kind="CatBoost"), points)

    def test_early_stopping_and_saved_models(self, tmp_path):
        model = self.library.CatBoostRegressor(iterations=200, verbose=0, allow_writing_files=False, thread_count=1)
        model.fit(X[:200], Y[:200], eval_set=(X[200:], RANDOM.permutation(Y[200:])), early_stopping_rounds=2)
        assert self.check(model, _points({})).num_partitions == model.tree_count_ < 200
        model.save_model(str(tmp_path / "model.cbm"))
        loaded = self.library.CatBoost().load_model(str(tmp_path / "model.cbm"))
        assert self.check(loaded, _points({})).num_features == 5

    def test_ignored_columns(self):
        assert self.check(self.fit(ignored_features=[0, 4]), _points({})).num_features == 5
