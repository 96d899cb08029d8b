"""What `kernel=` takes: names, kernels, ensembles and functions, each used or refused with the reason."""

from __future__ import annotations

import pickle
import warnings

import lightgbm
import numpy as np
import pandas as pd
import pytest
import torch
import xgboost
from gpytorch.kernels import (
    CosineKernel,
    IndexKernel,
    InducingPointKernel,
    LinearKernel,
    MaternKernel,
    MultitaskKernel,
    RBFKernel,
    ScaleKernel,
)
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.mlls import ExactMarginalLogLikelihood
from lightgbm import LGBMClassifier, LGBMRegressor
from sklearn.datasets import load_diabetes, load_wine
from sklearn.ensemble import (
    BaggingRegressor,
    HistGradientBoostingRegressor,
    IsolationForest,
    RandomForestClassifier,
    RandomForestRegressor,
    StackingRegressor,
)
from sklearn.gaussian_process.kernels import RBF
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from xgboost import XGBRegressor

from gpytorch_partition import (
    FastClusterKernel,
    GroupKernel,
    MondrianKernel,
    PartitionKernel,
    RandomForestKernel,
)
from gpytorch_partition.estimators import PartitionGPClassifier, PartitionGPRegressor, PartitionKernelPCA, PartitionSVR
from gpytorch_partition.models import PartitionGP
from gpytorch_partition.partitions.ensembles.libraries import fitted_clone
from gpytorch_partition.presets import ensemble_model
from tests.estimators.copies import stored
from tests.random_states import untouched_random_states

RANDOM = np.random.RandomState(0)
X = RANDOM.rand(150, 3) * [1.0, 100.0, 1e-3] + [5.0, 0.0, 0.0]
Y = 50 + 20 * np.sin(X[:, 1] / 20) + 2 * RANDOM.randn(150)
NEW = RANDOM.rand(20, 3) * [1.0, 100.0, 1e-3] + [5.0, 0.0, 0.0]


def regressor(kernel, **options):
    return PartitionGPRegressor(kernel, num_partitions=20, random_state=0, **options)


def small_forest(**options):
    return RandomForestRegressor(15, random_state=0, **options)


def catboost_regressor(**options):
    """That of CatBoost, which need not be installed."""
    library = pytest.importorskip("catboost")
    return library.CatBoostRegressor(verbose=0, allow_writing_files=False, thread_count=1, **options)


class TestEnsembles:
    ENSEMBLES = {
        "forest": lambda: small_forest(),
        "bagging": lambda: BaggingRegressor(n_estimators=10, random_state=0),
        "histograms": lambda: HistGradientBoostingRegressor(max_iter=20),
        "LightGBM": lambda: LGBMRegressor(n_estimators=20, verbose=-1, n_jobs=1),
        "XGBoost": lambda: XGBRegressor(n_estimators=20, n_jobs=1),
        "CatBoost": lambda: catboost_regressor(iterations=20),
    }

    @pytest.mark.parametrize("name", ENSEMBLES)
    def test_a_fitted_one_is_the_kernel_on_raw_columns(self, name):
        ensemble = self.ENSEMBLES[name]().fit(X, Y)
        model = regressor(ensemble).fit(X, Y)
        wanted = RandomForestKernel.from_forest(ensemble)
        points = torch.from_numpy(NEW)
        (tree_kernel,) = (each for each in model.kernel_.modules() if isinstance(each, RandomForestKernel))
        assert torch.equal(tree_kernel.cluster_ids(points), wanted.cluster_ids(points))
        assert np.isfinite(model.log_predictive_density_)
        assert model.log_marginal_likelihood_value_ is None

    def test_one_that_is_not_fitted_stays_so_and_a_clone_is_fitted_to_all_rows(self):
        ensemble = small_forest()
        model = regressor(ensemble).fit(X, Y)
        assert not hasattr(ensemble, "estimators_")
        fitted = regressor(small_forest().fit(X, Y)).fit(X, Y)
        np.testing.assert_array_equal(model.predict(NEW), fitted.predict(NEW))

    def test_predictions_are_those_of_dense_algebra(self):
        model = regressor(small_forest().fit(X, Y)).fit(X, Y)
        points, sigma = torch.from_numpy(np.concatenate([X, NEW])), Y.std()
        kernel = RandomForestKernel.from_forest(model.kernel).double()
        scale = model.model_.covar_module.outputscale.item()
        (weight,) = (each.outputscale.item() for each in model.kernel_.modules() if type(each) is ScaleKernel)
        gram = scale * weight * kernel(points).to_dense().detach().numpy()
        noise = model.likelihood_(model.model_(points[:150]), points[:150]).variance
        noise = (noise - model.model_(points[:150]).variance).detach().numpy()
        targets = (Y - Y.mean()) / sigma
        mean = gram[150:, :150] @ np.linalg.solve(gram[:150, :150] + np.diag(noise), targets)
        np.testing.assert_allclose(model.predict(NEW), Y.mean() + sigma * mean, rtol=1e-4)

    def test_folds_use_clones_of_the_same_parameters_on_other_rows(self):
        calls = []

        class Recorded(RandomForestRegressor):
            def fit(self, X, y, **options):
                calls.append((len(y), self.n_estimators, float(y.min()), float(X[:, 1].max())))
                return super().fit(X, y, **options)

        ensemble = Recorded(7, random_state=0).fit(X, Y)
        calls.clear()
        regressor(ensemble).fit(X, Y)
        assert [size for size, *_ in calls] == [120] * 5
        assert {number for _, number, *_ in calls} == {7}
        assert all(least >= Y.min() - 1e-3 and most > 50 for _, _, least, most in calls)  # in the user's units

    def test_boosters_that_stopped_early_are_cloned_with_as_many_trees(self):
        early = [lightgbm.early_stopping(2, verbose=False)]
        boosted = LGBMRegressor(n_estimators=300, verbose=-1, n_jobs=1)
        boosted.fit(X[:100], Y[:100], eval_set=[(X[100:], Y[100:])], callbacks=early)
        random = np.random.RandomState(0)
        assert 0 < boosted.best_iteration_ < 300
        assert fitted_clone(boosted, X, Y, random).booster_.num_trees() == boosted.best_iteration_
        stopped = XGBRegressor(n_estimators=300, early_stopping_rounds=2, n_jobs=1)
        stopped.fit(X[:100], Y[:100], eval_set=[(X[100:], Y[100:])], verbose=False)
        assert fitted_clone(stopped, X, Y, random).get_booster().num_boosted_rounds() == stopped.best_iteration + 1

    def test_catboost_that_stopped_early_is_cloned_with_as_many_trees(self):
        best = catboost_regressor(iterations=300, early_stopping_rounds=2)
        best.fit(X[:100], Y[:100], eval_set=(X[100:], Y[100:]))
        assert fitted_clone(best, X, Y, np.random.RandomState(0)).tree_count_ == best.tree_count_ < 300

    def test_a_booster_of_lightgbm_is_trained_again(self):
        parameters = {"verbose": -1, "num_leaves": 5, "num_threads": 1}
        booster = lightgbm.train(parameters, lightgbm.Dataset(X, Y), num_boost_round=12)
        again = fitted_clone(booster, X, Y, np.random.RandomState(0))
        np.testing.assert_array_equal(again.predict(NEW), booster.predict(NEW))
        assert np.isfinite(regressor(booster).fit(X, Y).predict(NEW)).all()

    def test_global_random_state_is_not_read(self):
        with untouched_random_states():
            one, other = (regressor(RandomForestRegressor(5)).fit(X, Y).predict(NEW) for _ in range(2))
        np.testing.assert_array_equal(one, other)

    def test_a_state_cannot_be_fitted_again(self):
        model = regressor(small_forest()).fit(X, Y)
        with pytest.raises(ValueError, match="expected the ensemble again"):
            stored(model).fit(X, Y)

    def test_summary_importance_and_cross_validation(self):
        model = regressor(small_forest()).fit(X, Y)
        assert [part.name for part in model.summary().parts] == ["ensemble"]
        assert model.importance().by_structure.argmax() == 1
        assert cross_val_score(regressor(small_forest().fit(X, Y)), X, Y, cv=2).min() > 0.5

    def test_trees_without_targets_are_a_kernel_too(self):
        model = regressor(IsolationForest(n_estimators=50, random_state=0)).fit(X, Y)
        mean, std = model.predict(NEW, return_std=True)
        wanted = 50 + 20 * np.sin(NEW[:, 1] / 20)
        assert np.corrcoef(mean, wanted)[0, 1] > 0.9
        assert np.mean(abs(mean - wanted) < 2 * std) > 0.8

    def test_few_rows_and_constant_targets(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert np.isfinite(regressor(small_forest()).fit(X[:5], Y[:5]).predict(NEW)).all()
            np.testing.assert_allclose(regressor(small_forest()).fit(X, 0 * Y + 3).predict(NEW), 3)

    @pytest.mark.slow
    @pytest.mark.parametrize("name", ["forest", "LightGBM"])
    def test_intervals_hold_on_diabetes(self, name):
        x, y = load_diabetes(return_X_y=True)
        inside = []
        for seed in range(8):
            order = np.random.RandomState(seed).permutation(len(y))
            test, train = order[:110], order[110:]
            ensemble = {"forest": RandomForestRegressor(random_state=seed), "LightGBM": LGBMRegressor(verbose=-1)}[name]
            mean, std = regressor(ensemble.fit(x[train], y[train])).fit(x[train], y[train]).predict(x[test], True)
            inside.append(np.mean(np.abs(y[test] - mean) <= 1.645 * std))
        assert 0.87 < np.mean(inside) < 0.93

    def test_a_model_of_gpytorch(self):
        x, y = torch.from_numpy(X), torch.from_numpy(Y)
        model = ensemble_model(x, y, small_forest().fit(X, Y), random_state=0)
        new = torch.from_numpy(NEW)
        with torch.no_grad():
            mean = model.likelihood(model(new), new).mean
        assert np.corrcoef(mean, 20 * np.sin(NEW[:, 1] / 20))[0, 1] > 0.9


REFUSED = {
    "pipeline": (lambda: make_pipeline(StandardScaler(), small_forest()), "Pipeline.*give its last step"),
    "search": (lambda: GridSearchCV(small_forest(), {}), "GridSearchCV.*best_estimator_"),
    "linear model": (Ridge, "Ridge, which has no trees"),
    "other members": (lambda: BaggingRegressor(Ridge()), "BaggingRegressor"),
    "stack": (lambda: StackingRegressor([("a", Ridge())]), "StackingRegressor"),
    "classes": (LGBMClassifier, "LGBMClassifier, whose clones cannot be fitted to numbers"),
    "booster": (lambda: xgboost.train({}, xgboost.DMatrix(X, Y), 2), "XGBRegressor"),
    "categories": (lambda: catboost_regressor(cat_features=[0]), "cat_features"),
    "class of kernels": (lambda: MaternKernel, "got <class"),
}
REFUSED_BY_ALL = {
    "kernel of arrays": (RBF, r"function \(x, y\) -> kernel, got RBF"),
    "function of rows": (lambda: lambda x: x, r"function \(x, y\) -> kernel, got <function"),
    "pipeline": (lambda: make_pipeline(StandardScaler(), small_forest()), r"make_pipeline\(\.\.\., estimator\)"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_used_is_refused_with_the_reason(name):
    make, message = REFUSED[name]
    with pytest.raises(TypeError, match=message):
        regressor(make()).fit(X, Y)


@pytest.mark.parametrize("name", REFUSED_BY_ALL)
@pytest.mark.parametrize("kind", [PartitionGPRegressor, PartitionGPClassifier, PartitionKernelPCA, PartitionSVR])
def test_what_no_estimator_takes_is_refused_with_the_reason(kind, name):
    make, message = REFUSED_BY_ALL[name]
    with pytest.raises(TypeError, match=message):
        kind(kernel=make()).fit(X, Y > 50)


BATCH = {"batch_shape": torch.Size([2])}


def inducing():
    return InducingPointKernel(RBFKernel(), torch.from_numpy(X[:10]), GaussianLikelihood())


PREDICT_ELSE = {
    "batch": (lambda: RBFKernel() + ScaleKernel(RBFKernel(), **BATCH), r"got a \w+ of batch shape \(2,\)"),
    "of ours": (lambda: FastClusterKernel(torch.from_numpy(X), 5, **BATCH), "FastClusterKernel of batch shape"),
    "function": (lambda: lambda x, y: RBFKernel(**BATCH), "RBFKernel of batch shape"),
    "tasks": (lambda: ScaleKernel(MultitaskKernel(RBFKernel(), 2)), "of one output for each row"),
    "sum without rows": (lambda: RBFKernel() + RandomForestKernel(), "built on rows, got a RandomForestKernel of none"),
    "codes": (lambda: RBFKernel() * IndexKernel(3, active_dims=(0,)), r"an IndexKernel: give GroupKernel\(\[0\]\)"),
    "inducing": (lambda: ScaleKernel(inducing()), r"InducingPointKernel: .* LandmarkKernel.from_kernel"),
    "cosines": (lambda: ScaleKernel(CosineKernel()) + RBFKernel(), "one column for a CosineKernel, .* got 3"),
}


@pytest.mark.parametrize("name", PREDICT_ELSE)
@pytest.mark.parametrize("targets", [Y, np.c_[Y, -Y]], ids=["one target", "two targets"])
def test_what_would_predict_something_else_is_refused(name, targets):
    make, message = PREDICT_ELSE[name]
    with pytest.raises(ValueError, match=message):
        regressor(make()).fit(X, targets)


def test_a_function_of_codes_is_refused_with_a_remedy_that_works():
    rows = np.c_[np.arange(150) % 3, X]
    with pytest.raises(ValueError, match=r"give them an instance, kernel=GroupKernel\(columns\)"):
        regressor(lambda x, y: GroupKernel([0])).fit(rows, Y)
    model = regressor(GroupKernel([0])).fit(rows, Y)
    means = model.predict(rows[:3])
    shares = model.outputscale_ / (model.outputscale_ + model.noise_ / 50)  # of 50 rows each, in closed form
    wanted = [Y.mean() + shares * (Y[first::3].mean() - Y.mean()) for first in range(3)]
    np.testing.assert_allclose(means, wanted, atol=0.05 * Y.std())


@pytest.mark.parametrize(
    "kernel", [None, 5, "rbf", ["forest"], object()], ids=["none", "number", "name", "list", "object"]
)
def test_other_things_are_refused_with_what_is_taken(kernel):
    with pytest.raises(ValueError, match="a tree ensemble, a kernel of GPyTorch"):
        regressor(kernel).fit(X, Y)


class TestTables:
    def test_columns_of_numbers_are_taken_and_others_refused(self):
        frame = pd.DataFrame(X, columns=["a", "b", "c"])
        ensemble = small_forest().fit(frame, Y)
        of_frame = regressor(ensemble).fit(frame, Y)
        np.testing.assert_array_equal(
            of_frame.predict(pd.DataFrame(NEW, columns=["a", "b", "c"])), regressor(ensemble).fit(X, Y).predict(NEW)
        )
        with pytest.raises(ValueError, match="in their order"):
            regressor(ensemble).fit(frame[["b", "a", "c"]], Y)
        with pytest.raises(ValueError, match="give the numbers that it was fitted to"):
            regressor(small_forest()).fit(frame.assign(d=["u", "v"] * 75), Y)

    def test_another_number_of_columns(self):
        with pytest.raises(ValueError, match="the 2 columns"):
            regressor(small_forest().fit(X[:, :2], Y)).fit(X, Y)


class TestInstances:
    def test_of_gpytorch_are_copied_trained_on_standardized_columns_and_as_good_as_gpytorch(self):
        given = RBFKernel(ard_num_dims=3)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model = regressor(given).fit(X, Y)
        assert torch.equal(given.lengthscale, RBFKernel(ard_num_dims=3).lengthscale)
        x, y = torch.from_numpy((X - X.mean(0)) / X.std(0)), torch.from_numpy((Y - Y.mean()) / Y.std())
        plain = PartitionGP(x, y, GaussianLikelihood(), RBFKernel(ard_num_dims=3))
        mll = ExactMarginalLogLikelihood(plain.likelihood, plain)
        optimizer = torch.optim.Adam(plain.parameters(), 0.1)
        for _ in range(200):
            optimizer.zero_grad()
            loss = -mll(plain(x), y)
            loss.backward()
            optimizer.step()
        assert model.log_marginal_likelihood_value_ > -loss.item() * len(y) - 1.0
        assert np.sqrt(np.mean((model.predict(NEW) - 50 - 20 * np.sin(NEW[:, 1] / 20)) ** 2)) < 2

    def test_of_ours_see_columns_as_they_are_and_stay_as_they_are(self):
        given = MondrianKernel(torch.from_numpy(X), 20, random_state=0)
        model = regressor(given).fit(X, Y)
        new = torch.from_numpy(NEW)
        assert model.kernel_ is not given
        assert torch.equal(model.kernel_.cluster_ids(new), given.cluster_ids(new))
        gram = model.outputscale_ * given(torch.from_numpy(np.concatenate([X, NEW]))).to_dense().detach().numpy()
        center = model.model_.mean_module.constant.item() * Y.std() + Y.mean()
        weights = np.linalg.solve(gram[:150, :150] + model.noise_ * np.eye(150), Y - center)
        np.testing.assert_allclose(model.predict(NEW), center + gram[150:, :150] @ weights, rtol=1e-5)

    def test_of_categories_need_no_standardization(self):
        group = PartitionKernel(lambda x: (x[:, 1] / 10).floor().long())
        assert regressor(group).fit(X, Y).score(X, Y) > 0.8

    def test_no_dense_matrices_of_many_rows(self):
        x, y = np.tile(X, (14, 1)), np.tile(Y, 14)
        for kernel in (RBFKernel(), ScaleKernel(RBFKernel()) + LinearKernel()):
            with pytest.raises(ValueError, match="LandmarkKernel.from_kernel"):
                regressor(kernel).fit(x, y)

    def test_linear_kernels_of_many_rows(self):
        x, y = np.tile(X, (14, 1)), np.tile(Y, 14)
        assert np.isfinite(regressor(LinearKernel(), max_iterations=5).fit(x, y).predict(NEW)).all()

    @pytest.mark.parametrize(
        "kernel", [RBFKernel(), MondrianKernel(torch.from_numpy(X), 5, random_state=0)], ids=["GPyTorch", "ours"]
    )
    def test_they_have_no_plain_state_and_can_be_pickled(self, kernel):
        model = regressor(kernel).fit(X, Y)
        with pytest.raises(TypeError, match="pickle"):
            model.to_state()
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(NEW), model.predict(NEW))


class TestOtherEstimators:
    @pytest.mark.parametrize("fits", [True, False])
    def test_classifiers_choose_by_clones(self, fits):
        x, y = load_wine(return_X_y=True)
        y = np.array(["a", "b", "c"])[y]
        forest = RandomForestClassifier(20, random_state=0)
        forest = forest.fit(x[::2], y[::2]) if fits else forest
        machine = PartitionGPClassifier(forest, random_state=0).fit(x[::2], y[::2])
        assert machine.score(x[1::2], y[1::2]) > 0.9

    def test_an_ensemble_of_numbers_tells_two_classes_only(self):
        x, y = load_wine(return_X_y=True)
        assert PartitionGPClassifier(small_forest(), random_state=0).fit(x, y > 0).score(x, y > 0) > 0.9
        with pytest.raises(TypeError, match="RandomForestClassifier or LGBMClassifier"):
            PartitionGPClassifier(small_forest(), random_state=0).fit(x, y)

    def test_machines_take_them_as_they_are(self):
        forest = small_forest().fit(X, Y)
        assert PartitionSVR(kernel=forest, random_state=0).fit(X, Y).score(X, Y) > 0.5
        assert PartitionKernelPCA(2, forest).fit_transform(X).shape == (150, 2)
        assert PartitionKernelPCA(2, small_forest()).fit(X, Y).transform(NEW).shape == (20, 2)
        with pytest.raises(ValueError, match="expected targets, which a clone"):
            PartitionKernelPCA(2, small_forest()).fit(X)
        with pytest.raises(TypeError, match="give its last step"):
            PartitionKernelPCA(2, make_pipeline(StandardScaler(), forest)).fit(X)
