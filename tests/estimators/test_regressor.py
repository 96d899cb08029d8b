"""The regressor: scikit-learn's own checks, dense algebra in the user's units, seeds, states and samples."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from gpytorch.kernels import RBFKernel
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from gpytorch_partition.estimators import PartitionGPRegressor, fitted_regressor
from tests.estimators.copies import stored
from tests.limits import many_rows

KERNELS = ("forest", "fast_cluster", "mondrian")
RANDOM = np.random.RandomState(0)
X = RANDOM.randn(150, 3) * [1.0, 20.0, 0.01] + [5.0, 0.0, 1.0]
Y = 40 * np.sin(X[:, 0]) + 2 * X[:, 1] + 10 * RANDOM.randn(150) + 300
NEW = X[:20] + 0.1 * RANDOM.randn(20, 3) * X.std(0)


def small(kernel="forest", **options):
    return PartitionGPRegressor(kernel, num_partitions=10, **{"random_state": 0, **options})


AS_GIVEN = {
    "array": np.asarray,
    "list": list,
    "index": pd.Index,
    "series": pd.Series,
    "a column": lambda times: times[:, None],
    "frame of one": lambda times: pd.DataFrame({"a": times}),
    "several": lambda times: np.stack([times, times], 1),
    "frame of several": lambda times: pd.DataFrame({"a": times, "b": times}),
}


def rbf(x, y):
    return RBFKernel(ard_num_dims=x.shape[1])


FITTED = {kernel: small(kernel).fit(X, Y) for kernel in (*KERNELS, rbf)}


class TestPredictions:
    @pytest.mark.parametrize("kernel", FITTED)
    def test_they_are_those_of_dense_algebra_in_the_users_units(self, kernel):
        model = FITTED[kernel]
        center, spread = X.mean(0), X.std(0)
        points = torch.from_numpy((np.concatenate([X, NEW]) - center) / spread)
        gram = model.outputscale_ * model.kernel_(points).to_dense().detach().numpy()
        noisy = gram[:150, :150] + model.noise_ * np.eye(150)
        constant = Y.mean() + Y.std() * model.model_.mean_module.constant.item()
        mean = constant + gram[150:, :150] @ np.linalg.solve(noisy, Y - constant)
        covariance = gram[150:, 150:] - gram[150:, :150] @ np.linalg.solve(noisy, gram[:150, 150:])
        covariance += model.noise_ * np.eye(20)
        np.testing.assert_allclose(model.predict(NEW), mean, rtol=1e-7)
        np.testing.assert_allclose(model.predict(NEW, return_std=True)[1], covariance.diagonal() ** 0.5, rtol=1e-6)
        np.testing.assert_allclose(model.predict(NEW, return_cov=True)[1], covariance, atol=1e-6)

    def test_blocks_of_rows_do_not_change_them(self, monkeypatch):
        whole = FITTED["forest"].predict(X, return_std=True)
        monkeypatch.setattr(fitted_regressor, "_CODES_AT_ONCE", 7 * FITTED["forest"].num_partitions)
        for block, reference in zip(FITTED["forest"].predict(X, return_std=True), whole):
            np.testing.assert_allclose(block, reference, rtol=1e-9)

    @pytest.mark.parametrize("kernel", KERNELS)
    def test_units_of_the_data_do_not_matter(self, kernel):
        other = small(kernel).fit(X * 1024 - 4096, Y / 64)
        np.testing.assert_allclose(other.predict(NEW * 1024 - 4096), FITTED[kernel].predict(NEW) / 64, rtol=1e-4)

    def test_at_most_one_measure_of_uncertainty(self):
        with pytest.raises(ValueError, match="at most one"):
            FITTED["forest"].predict(NEW, return_std=True, return_cov=True)

    @pytest.mark.parametrize("flag", ["no", 0, None], ids=repr)
    def test_noise_is_included_or_not(self, flag):
        for method in (FITTED["forest"].predict, FITTED["forest"].sample_y):
            with pytest.raises(ValueError, match=f"include_noise to be True or False, got {flag!r}"):
                method(NEW, include_noise=flag)
        method(NEW, include_noise=np.False_)

    def test_above_2000_rows_in_float32(self):
        random = np.random.RandomState(1)
        x = random.randn(2050, 2)
        y = np.sin(x[:, 0]) + 0.2 * random.randn(2050)
        model = small("fast_cluster").fit(x, y)
        mean, std = model.predict(x[:50] + 0.01, return_std=True)
        assert model.model_.train_inputs[0].dtype == torch.float32
        assert mean.dtype == std.dtype == np.float64
        assert np.sqrt(np.mean((mean - np.sin(x[:50, 0])) ** 2)) < 0.2
        assert model.noise_ == pytest.approx(0.04, rel=0.6)


@pytest.mark.slow
def test_the_number_of_jobs_changes_nothing():
    other = small(n_jobs=2).fit(X, Y)
    np.testing.assert_array_equal(other.predict(NEW), FITTED["forest"].predict(NEW))


class TestSamples:
    @pytest.mark.parametrize("include_noise", [True, False])
    def test_they_have_the_predictive_mean_and_covariance(self, include_noise):
        model = FITTED["fast_cluster"]
        mean, covariance = model.predict(NEW[:5], return_cov=True, include_noise=include_noise)
        samples = model.sample_y(NEW[:5], n_samples=20_000, random_state=0, include_noise=include_noise)
        assert samples.shape == (5, 20_000)
        np.testing.assert_allclose(samples.mean(1), mean, atol=5 * np.sqrt(covariance.max() / 20_000))
        np.testing.assert_allclose(np.cov(samples), covariance, atol=0.05 * covariance.max())

    def test_many_rows_have_the_same_law(self):
        model = FITTED["forest"]
        mean, covariance = model.predict(NEW[:5], return_cov=True)
        many = np.concatenate([NEW[:5], check_random_state(0).rand(300, NEW.shape[1])])
        with many_rows(200):
            samples = model.sample_y(many, n_samples=4_000, random_state=0)[:5]
        deviation = np.sqrt(covariance.max())
        np.testing.assert_allclose(samples.mean(1), mean, atol=5 * deviation / np.sqrt(4_000))
        np.testing.assert_allclose(np.cov(samples), covariance, atol=0.1 * covariance.max())

    def test_many_rows_are_fixed_by_a_seed_and_leave_the_global_state_alone(self):
        many, before = check_random_state(0).rand(301, NEW.shape[1]), torch.get_rng_state()
        with many_rows(300):
            draws = [FITTED["mondrian"].sample_y(many, 2, random_state=seed) for seed in (3, 3, 4)]
        np.testing.assert_array_equal(draws[0], draws[1])
        assert not np.allclose(draws[0], draws[2])
        assert torch.equal(torch.get_rng_state(), before)


class TestData:
    @pytest.mark.parametrize("kernel", KERNELS)
    @pytest.mark.parametrize("num_rows", [2, 3])
    @pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
    def test_a_few_rows_are_enough(self, kernel, num_rows):
        mean, std = small(kernel).fit(X[:num_rows], Y[:num_rows]).predict(NEW, return_std=True)
        assert np.isfinite(mean).all()
        assert (std > 0).all()

    @pytest.mark.parametrize("kernel", KERNELS)
    @pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
    def test_equal_rows(self, kernel):
        model = small(kernel).fit(np.ones((30, 2)), RANDOM.randn(30) + 7)
        assert model.predict(np.ones((1, 2))) == pytest.approx(7, abs=1)

    def test_a_constant_column_changes_nothing(self):
        wide = np.column_stack([X, np.full(150, 1e8)])
        model = small("mondrian").fit(wide, Y)
        expected = FITTED["mondrian"].predict(NEW)
        np.testing.assert_allclose(model.predict(np.column_stack([NEW, np.full(20, 1e8)])), expected, rtol=1e-9)

    @pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
    def test_targets_that_differ_by_rounding_are_a_constant(self):
        y = 1e15 + np.arange(len(X)) % 4
        with pytest.warns(UserWarning, match="float64 hardly tells apart"):
            mean = PartitionGPRegressor(random_state=0).fit(X, y).predict(X)
        np.testing.assert_allclose(mean, 1e15, rtol=1e-14)

    def test_whole_numbers_that_float64_rounds(self):
        columns = np.column_stack([2**53 + np.arange(len(X)), np.arange(len(X)) % 7])
        with pytest.warns(UserWarning, match="numbers of a column of X differ by 148.*hardly tells apart"):
            small("mondrian").fit(columns, Y)
        columns[:, 0] = 10**18 + np.arange(len(X)) % 50
        with pytest.warns(UserWarning, match="numbers of a column of X differ by 0.*hardly tells apart"):
            small("mondrian").fit(columns, Y)

    def test_parameters_set_after_the_fit_are_not_saved(self):
        model = small("mondrian").fit(X, Y)
        expected = model.predict(NEW)
        model.set_params(kernel="forest", num_partitions=3, dtype="float64")
        np.testing.assert_array_equal(stored(model).predict(NEW), expected)
        assert stored(stored(model)).kernel == "mondrian"

    def test_a_constant_target_is_reported(self):
        with pytest.warns(ConvergenceWarning, match="at a bound"):
            model = small().fit(X, np.full(150, 3.0))
        np.testing.assert_allclose(model.predict(NEW), 3.0)
        assert model.at_bounds_

    @pytest.mark.parametrize("is_since", [False, True], ids=["dates", "durations"])
    @pytest.mark.parametrize("as_given", AS_GIVEN)
    def test_dates_and_durations_are_no_targets(self, as_given, is_since):
        days = np.datetime64("2024-03-01") + np.arange(150).astype("timedelta64[D]")
        times = AS_GIVEN[as_given](days - days[0] if is_since else days)
        with pytest.raises(ValueError, match=f"real numbers, got {'timedelta64' if is_since else 'datetime64'}.* days"):
            small("mondrian").fit(X, times)

    @pytest.mark.parametrize("texts", [np.ndarray.tolist, np.asarray], ids=["list", "array"])
    def test_numbers_that_are_text_are_targets(self, texts):
        model, y = small("mondrian"), texts(Y.astype(str))
        expected = model.fit(X, Y).predict(NEW)
        np.testing.assert_array_equal(model.fit(X, y).predict(NEW), expected)
        assert model.score(X, y) == model.score(X, Y)

    @pytest.mark.parametrize("kernel", KERNELS)
    def test_a_huge_number_is_an_error_in_prediction_too(self, kernel):
        with pytest.raises(ValueError, match=r"up to 1e\+100, got 1e\+200"):
            FITTED[kernel].predict([[0.0, 1.0, 0.0], [0.0, -1e200, 0.0]], return_std=True)


def test_a_function_gets_the_standardized_data():
    seen = []

    def new_kernel(x, y):
        seen.append((x, y))
        return RBFKernel()

    PartitionGPRegressor(new_kernel, max_iterations=30).fit(X, Y)
    ((x, y),) = seen
    np.testing.assert_allclose(x.numpy(), (X - X.mean(0)) / X.std(0))
    np.testing.assert_allclose(y.numpy(), (Y - Y.mean()) / Y.std())
