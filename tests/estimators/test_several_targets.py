"""Several targets: dense Kronecker algebra in the users' units, shapes and missing entries, errors, explanations."""

from __future__ import annotations

import warnings

import numpy as np
import pandas
import pytest
import torch
from gpytorch.kernels import RBFKernel
from sklearn.ensemble import RandomForestRegressor
from sklearn.exceptions import DataConversionWarning
from sklearn.metrics import r2_score
from torch.utils._python_dispatch import TorchDispatchMode

from gpytorch_partition import RandomForestKernel
from gpytorch_partition.estimators import PartitionGPRegressor
from gpytorch_partition.kernels.seen_targets import OverconfidenceWarning
from gpytorch_partition.solvers import direct
from tests.few_trees import few_trees

RANDOM = np.random.RandomState(0)
X = RANDOM.randn(100, 3) * [1.0, 20.0, 0.1] + [5.0, 0.0, 1.0]
SIGNAL = np.sin(X[:, 0])
Y = np.stack([10 * SIGNAL, -300 * SIGNAL + X[:, 1], 0.1 * X[:, 2]], 1) + RANDOM.randn(100, 3) * [2.0, 40.0, 0.01] + 7
MISSING = np.where(RANDOM.rand(100, 3) < 0.3, np.nan, Y)
MISSING[np.isnan(MISSING).all(1)] = Y[np.isnan(MISSING).all(1)]
NEW = X[:9] + 0.1 * RANDOM.randn(9, 3) * X.std(0)
SMALL = few_trees()


def rbf(x, y):
    assert y.shape == (100, 3)
    assert not bool(y.isnan().any())
    return RBFKernel(ard_num_dims=x.shape[1])


def fitted(kernel, y):
    return PartitionGPRegressor(kernel, num_partitions=20, random_state=0, options=SMALL).fit(X, y)


FOREST, HOLES = fitted("forest", Y), fitted("forest", MISSING)
TOGETHER = RANDOM.randn(100, 1) * [2.0, 40.0, 0.01] @ np.diag([1, -1, 1]) + Y  # errors that the three have in common
CORRELATED = [(y, fitted("mondrian", y)) for y in (TOGETHER, np.where(np.isnan(MISSING), np.nan, TOGETHER))]
FORESTS = [(Y, FOREST), (MISSING, HOLES)]
ALL = [*FORESTS, *((y, fitted(kernel, y)) for kernel in ("mondrian", rbf) for y in (Y, MISSING)), *CORRELATED]


def test_rows_may_be_columns_by_name():
    columns = dict(zip("abc", X.T))
    model = PartitionGPRegressor("forest", num_partitions=20, random_state=0).fit(columns, MISSING)
    np.testing.assert_allclose(model.predict(dict(zip("abc", NEW.T))), HOLES.predict(NEW), rtol=1e-6)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.fit(columns, MISSING[:-1])


def dense_moments(model, y):
    """Means (`n x T`) and the covariance (`nT x nT`) of the function in the users' units."""
    points = torch.from_numpy((np.concatenate([X, NEW]) - X.mean(0)) / X.std(0))
    gram = model.kernel_(points).to_dense().detach().numpy()
    both = np.kron(gram, model.target_covariance_)
    known, new = np.flatnonzero(~np.isnan(y).ravel()), np.arange(300, 327)
    noisy = (both[:300, :300] + np.kron(np.eye(100), model.noise_covariance_))[np.ix_(known, known)]
    centre = np.nanmean(y, 0) + np.nanstd(y, 0) * model.model_.constant.numpy()
    cross = both[np.ix_(new, known)]
    mean = cross @ np.linalg.solve(noisy, (y - centre).ravel()[known])
    covariance = both[np.ix_(new, new)] - cross @ np.linalg.solve(noisy, cross.T)
    return centre + mean.reshape(9, 3), covariance


class TestPredictions:
    @pytest.mark.parametrize(("y", "model"), ALL)
    def test_they_are_those_of_dense_algebra_in_the_users_units(self, y, model):
        mean, covariance = dense_moments(model, y)
        found, std = model.predict(NEW, return_std=True, include_noise=False)
        np.testing.assert_allclose(found, mean, rtol=1e-6)
        np.testing.assert_allclose(std, covariance.diagonal().reshape(9, 3) ** 0.5, rtol=1e-4)
        noisy = model.predict(NEW, return_cov=True)[1]
        own = covariance.reshape(9, 3, 9, 3).diagonal(axis1=1, axis2=3) + np.eye(9)[..., None] * model.noise_
        np.testing.assert_allclose(noisy, own, atol=1e-4 * own.max((0, 1)).min(), rtol=1e-4)

    @pytest.mark.parametrize("model", [FOREST, HOLES], ids=["complete", "missing"])
    def test_shapes(self, model):
        mean, std, ends = model.predict(NEW, return_std=True, quantiles=(0.05, 0.5, 0.95))
        assert mean.shape == std.shape == (9, 3)
        assert ends.shape == (9, 3, 3)
        np.testing.assert_allclose(ends[..., 1], mean)
        np.testing.assert_allclose(ends[..., 2] - mean, 1.6449 * std, rtol=1e-4)
        assert model.noise_.shape == model.outputscale_.shape == (3,)
        assert model.target_covariance_.shape == (3, 3)
        ends = model.predict(NEW, return_cov=True, quantiles=(0.95,))[2]
        np.testing.assert_allclose(ends[..., 0] - mean, 1.6449 * std, rtol=1e-3)

    @pytest.mark.parametrize(("y", "model"), [*FORESTS, *CORRELATED])
    def test_samples_are_joint_in_rows_and_targets(self, y, model):
        covariance = dense_moments(model, y)[1]
        noisy = covariance + np.kron(np.eye(9), model.noise_covariance_)
        for include_noise, expected in ((False, covariance), (True, noisy)):
            samples = model.sample_y(NEW, 4000, include_noise=include_noise)
            assert samples.shape == (9, 3, 4000)
            units = np.outer(expected.diagonal(), expected.diagonal()) ** 0.5
            np.testing.assert_allclose(np.cov(samples.reshape(27, -1)) / units, expected / units, atol=0.1)

    def test_units_of_the_targets_do_not_matter(self):
        other = fitted("forest", MISSING * [2.0, 0.5, 64.0] + [0.0, 8.0, -4.0])
        np.testing.assert_allclose(other.predict(NEW), HOLES.predict(NEW) * [2.0, 0.5, 64.0] + [0, 8, -4], rtol=1e-3)

    def test_correlated_targets_have_a_covariance(self):
        scale = FOREST.outputscale_**0.5
        assert (FOREST.target_covariance_ / scale / scale[:, None])[0, 1] < -0.7
        assert FOREST.score(X, Y) > 0.6

    @pytest.mark.parametrize("model", [model for _, model in CORRELATED], ids=["complete", "missing"])
    def test_errors_that_go_together_are_found(self, model):
        """Two thirds of their variance are in common."""
        root = model.noise_**0.5
        correlations = model.noise_covariance_ / root / root[:, None]
        np.testing.assert_allclose(correlations.diagonal(), 1.0)
        assert np.sign(correlations).tolist() == [[1, -1, 1], [-1, 1, -1], [1, -1, 1]]


class TestShapesOfTargets:
    def test_data_frames_name_the_targets(self):
        frame = pandas.DataFrame(MISSING, columns=["a", "b", "c"])
        model = fitted("forest", frame)
        assert model.target_names_.tolist() == ["a", "b", "c"]
        assert HOLES.target_names_.tolist() == ["y0", "y1", "y2"]
        np.testing.assert_array_equal(model.predict(NEW), HOLES.predict(NEW))

    def test_lists_with_none_are_missing_entries(self):
        rows = [[None if np.isnan(value) else value for value in row] for row in MISSING.tolist()]
        np.testing.assert_array_equal(fitted("forest", rows).predict(NEW), HOLES.predict(NEW))

    def test_one_column_is_one_target_as_for_scikit_learns_forests(self):
        with pytest.warns(DataConversionWarning):
            forest = RandomForestRegressor(5).fit(X, Y[:, :1])
        with pytest.warns(DataConversionWarning):
            model = fitted("forest", Y[:, :1])
        assert model.predict(NEW).shape == forest.predict(NEW).shape == (9,)
        np.testing.assert_array_equal(model.predict(NEW), fitted("forest", Y[:, 0]).predict(NEW))
        with pytest.raises(AttributeError, match="one target"):
            model.target_covariance_  # noqa: B018

    def test_rows_without_any_target_are_left_out_and_said(self):
        rows = np.concatenate([X, X[:2] + 1])
        with pytest.warns(UserWarning, match="2 of 102 rows are left out, the first of them row 100"):
            model = PartitionGPRegressor("forest", 20, random_state=0).fit(
                rows, np.concatenate([MISSING, np.full((2, 3), np.nan)])
            )
        np.testing.assert_array_equal(model.predict(NEW), HOLES.predict(NEW))

    @pytest.mark.parametrize(
        ("y", "message"),
        [
            (np.where(np.arange(100)[:, None] > 0, [1.0, np.nan, 2.0], 1.0), r"got 1 of y\[:, 1\]"),
            (np.where(Y > 0, np.inf, Y), "infinity"),
            (Y[:50], "inconsistent numbers of samples"),
            (np.full((100, 2), "red"), "numbers"),
            (Y * 1e200, "unit"),
        ],
    )
    def test_targets_that_cannot_be_used(self, y, message):
        with pytest.raises(ValueError, match=message):
            fitted("forest", y)

    def test_a_refit_to_one_target_forgets_the_others(self):
        model = fitted("forest", Y).fit(X, Y[:, 0])
        assert model.predict(NEW).shape == (9,)
        assert isinstance(model.noise_, float)


class TestExplanations:
    @pytest.mark.parametrize("model", [FOREST, HOLES], ids=["complete", "missing"])
    def test_a_summary_tells_of_every_target(self, model):
        found = model.summary()
        assert [target.name for target in found.targets] == ["y0", "y1", "y2"]
        assert found.targets[0].noise_std == pytest.approx(model.noise_[0] ** 0.5)
        assert found.targets[1].num_entries == (100 if model is FOREST else int((~np.isnan(MISSING[:, 1])).sum()))
        assert found.parts[0].explained == pytest.approx(1.0)
        assert "target y1" in str(found)
        assert "goes with y1 -" in str(found)
        assert "forest" in repr(model)

    def test_importance_is_that_of_all_targets(self):
        found = FOREST.importance(X, Y)
        assert found.by_structure.sum() == pytest.approx(1.0)
        assert found.by_structure.argmax() == 0
        assert found.permutation.argmax() == 0

    @pytest.mark.parametrize("model", [FOREST, HOLES], ids=["complete", "missing"])
    def test_partial_dependence_is_that_of_the_average(self, model):
        rows, grid = X[:9], [4.0, 5.0, 6.0]
        found = model.partial_dependence(rows, 0, grid=grid, target="y1")
        for number, value in enumerate(grid):
            points = rows.copy()
            points[:, 0] = value
            mean, covariance = model.predict(points, return_cov=True, include_noise=False)
            assert found.mean[number] == pytest.approx(mean[:, 1].mean())
            assert found.std[number] == pytest.approx(covariance[..., 1].mean() ** 0.5, rel=1e-4)

    def test_partial_dependence_needs_a_target(self):
        with pytest.raises(ValueError, match="give target=, one of 'y0', 'y1', 'y2'"):
            FOREST.partial_dependence(X, 0)
        with pytest.raises(ValueError, match="target's number"):
            FOREST.partial_dependence(X, 0, target="y7")


class TestAuto:
    @pytest.mark.parametrize("y", [Y, MISSING], ids=["complete", "missing"])
    def test_parts_are_chosen_for_all_targets(self, y):
        model = fitted("auto", y)
        mean, std = model.predict(NEW, return_std=True)
        assert mean.shape == std.shape == (9, 3)
        assert model.score(X, Y) > 0.6
        assert set(model.model_.description["parts"]) == {part.name for part in model.summary().parts}
        assert -3 < model.log_predictive_density_ < 0


class LargestTensor(TorchDispatchMode):
    """The number of entries of the largest tensor that an operation returns."""

    def __init__(self):
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        for value in found if isinstance(found, tuple | list) else [found]:
            if torch.is_tensor(value) and value.layout == torch.strided:
                self.numel = max(self.numel, value.untyped_storage().size() // 8)
        return found


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 0.5], ids=["complete", "missing"])
def test_above_the_dense_limit_nothing_is_as_large_as_the_rows_squared(share, monkeypatch):
    """Also not for solves, which are factorized on purpose up to 10,000 entries if iterations would take longer."""
    monkeypatch.setattr(direct, "MOST_ROWS", 1_000)
    random = np.random.RandomState(1)
    x = random.rand(2_500, 2)
    y = np.stack([np.sin(5 * x[:, 0]), np.sin(5 * x[:, 0]) + x[:, 1]], 1) + 0.1 * random.randn(2_500, 2)
    y[random.rand(*y.shape) < share] = np.nan
    rows = ~np.isnan(y).all(1)
    with LargestTensor() as largest:
        model = PartitionGPRegressor("fast_cluster", 20, random_state=0).fit(x[rows], y[rows])
        mean, std = model.predict(x[:40], return_std=True)
    assert largest.numel < 2_500**2 / 2
    assert np.sqrt(np.mean((mean[:, 0] - np.sin(5 * x[:40, 0])) ** 2)) < 0.1
    assert (std > 0.05).all()
    assert (std < 0.3).all()


class TestScores:
    def test_of_complete_targets_is_scikit_learns(self):
        assert FOREST.score(X, Y) == pytest.approx(r2_score(Y, FOREST.predict(X)), abs=1e-12)

    def test_missing_entries_do_not_count(self):
        known = ~np.isnan(MISSING)
        mean = HOLES.predict(X)
        each = [r2_score(Y[rows, number], mean[rows, number]) for number, rows in enumerate(known.T)]
        assert HOLES.score(X, MISSING) == pytest.approx(np.mean(each), abs=1e-12)
        weights = 1.0 + (np.arange(100) % 2)
        twice = np.repeat(np.arange(100), weights.astype(int))
        assert HOLES.score(X, MISSING, weights) == pytest.approx(HOLES.score(X[twice], MISSING[twice]), abs=1e-12)

    @pytest.mark.parametrize(
        ("y", "message"),
        [
            (
                np.where(np.arange(100)[:, None] > 0, [1.0, np.nan, 2.0], 1.0),
                "known entries or more of every target, got 1 of y1",
            ),
            (Y[:, :2], r"expected targets of shape \(100, 3\)"),
        ],
    )
    def test_refusals(self, y, message):
        with pytest.raises(ValueError, match=message):
            HOLES.score(X, y)

    def test_of_one_target_a_missing_one_is_refused_with_the_remedy(self):
        model = fitted("mondrian", Y[:, 0])
        with pytest.raises(ValueError, match="leave these rows out"):
            model.score(X, np.where(np.arange(100) == 3, np.nan, Y[:, 0]))


class TestRefusals:
    def test_weights_that_are_all_1_are_none(self):
        model = PartitionGPRegressor("mondrian", num_partitions=20, random_state=0)
        found = [model.fit(X, Y, weights).predict(X) for weights in (None, 1, np.ones(100))]
        np.testing.assert_array_equal(found[0], found[1])
        np.testing.assert_array_equal(found[0], found[2])
        with pytest.raises(ValueError, match="sample_weight=None with several targets"):
            model.fit(X, Y, np.full(100, 2.0))

    def test_a_budget(self):
        with pytest.raises(ValueError, match=r"options=Options\(most_rows=2000\)"):
            PartitionGPRegressor(budget=1.0).fit(X, Y)

    def test_an_ensemble(self):
        with pytest.raises(ValueError, match="MultiOutputRegressor"):
            PartitionGPRegressor(RandomForestRegressor(5)).fit(X, Y)


@pytest.mark.parametrize("columns", [0, [0, 1]], ids=["one target", "several"])
def test_trees_that_have_fitted_the_targets_are_told_of(columns):
    random = np.random.RandomState(0)
    x, y = random.rand(300, 3), random.randn(300, 2)[:, columns]
    kernel = RandomForestKernel.from_forest(RandomForestRegressor(20, random_state=0).fit(x, y))
    with pytest.warns(OverconfidenceWarning):
        PartitionGPRegressor(kernel).fit(x, y)
    other = random.rand(300, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error", OverconfidenceWarning)
        PartitionGPRegressor(RandomForestKernel.from_forest(RandomForestRegressor(20).fit(other, y))).fit(x, y)


class TestNewHoles:
    """Cells that are missing at prediction only, in arrays."""

    HOLE = np.where(np.eye(9, 3, -1) > 0, np.nan, NEW)

    @pytest.mark.parametrize("columns", [0, [0, 1]], ids=["one target", "several"])
    @pytest.mark.parametrize("kernel", [pytest.param("auto", marks=pytest.mark.slow), "forest"])
    def test_are_averaged_over_with_a_warning_as_those_of_tables(self, kernel, columns):
        model = fitted(kernel, Y[:, columns])
        with pytest.warns(UserWarning, match="where no training row missed any: predictions are averaged"):
            mean, std = model.predict(self.HOLE, return_std=True)
        np.testing.assert_allclose(mean[4:], model.predict(NEW)[4:], rtol=1e-8)
        assert np.isfinite(std).all()
        table = pandas.DataFrame(X), pandas.DataFrame(self.HOLE)
        other = PartitionGPRegressor(kernel, num_partitions=20, random_state=0, options=SMALL)
        with pytest.warns(UserWarning, match="where no training row missed any"):
            np.testing.assert_allclose(other.fit(table[0], Y[:, columns]).predict(table[1]), mean, rtol=1e-6)

    @pytest.mark.parametrize("columns", [0, [0, 1]], ids=["one target", "several"])
    @pytest.mark.parametrize("kernel", ["fast_cluster", "mondrian", RBFKernel()])
    def test_are_refused_by_kernels_of_numbers_with_the_remedy(self, kernel, columns):
        model = fitted(kernel, Y[:, columns])
        with pytest.raises(ValueError, match=r"NaN: 3 of 9 rows.*row 1, in column 0.*pandas.DataFrame\(X\)"):
            model.predict(self.HOLE)
        with pytest.raises(ValueError, match=r"pandas.DataFrame\(X\)"):
            model.fit(np.where(np.arange(300).reshape(100, 3) == 7, np.nan, X), Y[:, columns])
