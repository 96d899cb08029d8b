"""Fits to chunks: exact GPs of all rows, the same wherever chunks end, with all that other fits have."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.exceptions import NotFittedError

from gpytorch_partition import FastClusterKernel, MondrianKernel, RandomForestKernel
from gpytorch_partition.estimators import OutsideRangeWarning, PartitionGPRegressor, chunked_fit
from gpytorch_partition.presets import Options

NUM_ROWS = 600
random = np.random.RandomState(0)
X = random.rand(NUM_ROWS, 3)
Y = 5 + np.sin(6 * X[:, 0]) + X[:, 1] + 0.2 * random.randn(NUM_ROWS)
KERNELS = ["auto", "forest", "fast_cluster"]
MANY_LEAVES = RandomForestKernel(torch.from_numpy(X), torch.from_numpy(Y), 200, min_samples_leaf=1, random_state=0)


@pytest.fixture(autouse=True)
def few_clusters(monkeypatch):
    """Small models, which are fitted in milliseconds."""
    monkeypatch.setattr(chunked_fit, "MOST_CLUSTERS", 160)
    monkeypatch.setattr(chunked_fit, "_NUM_TREES", 10)
    monkeypatch.setattr(chunked_fit, "_NUM_LEAVES", 8)
    monkeypatch.setattr(chunked_fit, "_ROWS_PER_LEAF", 20)


def split(*ends, x=X, y=Y):
    cuts = [0, *ends, len(y)]
    return [(x[a:b], y[a:b]) for a, b in zip(cuts, cuts[1:])]


def fitted(kernel="auto", chunks=None, **options):
    model = PartitionGPRegressor(kernel, num_partitions=10, random_state=0, **options)
    return model.fit_chunks(split(200, 400) if chunks is None else chunks, sample_rows=250)


def dense(model, rows):
    """Covariance, mean and noise of the model's own kernel and values, in units of the targets."""
    x = model._fitted.columns.apply_array(rows)
    level = model._fitted.unit.undo(model.model_.mean_module.constant.detach()).item()
    return model.outputscale_ * model.kernel_(x, x).to_dense().double().numpy(), level, model.noise_


class TestIsAnExactGP:
    @pytest.mark.parametrize("kernel", KERNELS)
    def test_predictions_are_those_of_all_rows(self, kernel):
        model, new = fitted(kernel), np.random.RandomState(1).rand(15, 3)
        covariance, level, noise = dense(model, np.concatenate([new, X]))
        gain = covariance[:15, 15:] @ np.linalg.inv(covariance[15:, 15:] + noise * np.eye(NUM_ROWS))
        expected = covariance[:15, :15] - gain @ covariance[15:, :15]
        mean, found = model.predict(new, return_cov=True, include_noise=False)
        np.testing.assert_allclose(mean, level + gain @ (Y - level), atol=1e-8)
        np.testing.assert_allclose(found, expected, atol=1e-8)
        _, std = model.predict(new, return_std=True)
        np.testing.assert_allclose(std**2, expected.diagonal() + noise, atol=1e-8)

    @pytest.mark.parametrize("kernel", KERNELS)
    def test_values_are_the_likeliest_of_rows_that_no_tree_has_seen(self, kernel):
        model = fitted(kernel)
        others = np.setdiff1d(np.arange(NUM_ROWS), model._counted_rows)
        covariance, level, noise = dense(model, X[others])

        def log_likelihood(scale=1.0, noise_factor=1.0, shift=0.0):
            total = scale * covariance + noise_factor * noise * np.eye(len(others))
            return multivariate_normal(np.full(len(others), level + shift), total).logpdf(Y[others])

        best = log_likelihood()
        of_standardized = best + len(others) * np.log(model._fitted.unit.scale.item())
        assert model.log_marginal_likelihood_value_ == pytest.approx(of_standardized, abs=1e-5)
        changes = [{"scale": 1.05}, {"scale": 0.95}, {"noise_factor": 1.05}, {"noise_factor": 0.95}]
        assert all(log_likelihood(**change) < best for change in [*changes, {"shift": 0.02}, {"shift": -0.02}])

    def test_samples_have_the_moments(self):
        model, new = fitted(), X[:5]
        samples = model.sample_y(new, 20_000, random_state=0)
        mean, covariance = model.predict(new, return_cov=True)
        np.testing.assert_allclose(samples.mean(1), mean, atol=0.01)
        np.testing.assert_allclose(np.cov(samples), covariance, atol=0.003)

    def test_intervals_are_honest(self):
        """Trees that have seen the targets take noise for signal: with all rows for both, a third would be outside."""
        x = np.random.RandomState(2).rand(3_000, 5)
        y = np.sin(6 * x[:, 0]) + np.random.RandomState(3).randn(3_000)
        model = PartitionGPRegressor(random_state=0).fit_chunks(split(250, x=x[:1_000], y=y[:1_000]))
        assert 0.87 < model.judge(x[1_000:], y[1_000:]).coverage(0.9) < 0.93


class TestChunks:
    @pytest.mark.parametrize("kernel", KERNELS)
    def test_ends_change_nothing(self, kernel):
        whole = fitted(kernel, split()).model_
        for ends in ((1, 2, 300), (599,), range(50, 600, 50)):
            found = fitted(kernel, split(*ends)).model_
            assert torch.equal(found.space.statistics.counts, whole.space.statistics.counts)
            assert torch.equal(found.space.statistics.sums, whole.space.statistics.sums)
            assert found.space.values == whole.space.values

    def test_blocks_change_no_count(self, monkeypatch):
        whole = fitted().model_.space.statistics
        monkeypatch.setattr("gpytorch_partition.estimators.chunked_fit._ROWS_COUNTED_AT_ONCE", 7)
        found = fitted().model_.space.statistics
        assert torch.equal(found.counts, whole.counts)
        torch.testing.assert_close(found.sums, whole.sums, rtol=0, atol=1e-10)

    def test_all_sources_are_one(self, tmp_path):
        np.save(tmp_path / "x.npy", X)
        np.save(tmp_path / "y.npy", Y)
        on_disk = tuple(np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in "xy")
        expected = fitted(chunks=split()).predict(X)
        for chunks in (on_disk, lambda: iter(split(10)), split(300)):
            np.testing.assert_array_equal(fitted(chunks=chunks).predict(X), expected)

    def test_tables_with_text_dates_and_holes(self, tmp_path):
        pandas = pytest.importorskip("pandas")
        pytest.importorskip("pyarrow")
        names = np.array(["red", "green", None])[random.randint(3, size=NUM_ROWS)]
        days = pandas.Timestamp("2020-01-01") + pandas.to_timedelta(random.randint(0, 500, NUM_ROWS), "D")
        holes = np.where(X[:, 1] < 0.1, np.nan, X[:, 1])
        frame = pandas.DataFrame({"a": X[:, 0], "name": names, "day": days, "hole": holes})
        target = np.sin(6 * X[:, 0]) + (names == "red") + 0.05 * random.randn(NUM_ROWS)
        for number in range(3):
            rows = slice(200 * number, 200 * (number + 1))
            frame[rows].assign(y=target[rows]).to_parquet(tmp_path / f"{number}.parquet")
        model = PartitionGPRegressor(random_state=0).fit_chunks(tmp_path, "y")
        assert model.score(frame, target) > 0.9
        assert [*model.encoder_.kinds_.values()] == ["numbers", "text", "dates", "numbers"]

    def test_progress_has_a_bar_for_each_pass(self, monkeypatch):
        seen = []
        monkeypatch.setattr(
            "gpytorch_partition.estimators.chunked_fit.progress",
            lambda items, name, total=None: seen.append((name, total)) or items,
        )
        fitted()
        assert seen == [("sampling rows", 3), ("counting rows", 3)]


class TestKernels:
    def test_forest_is_cut_and_says_so(self):
        model = fitted("forest")
        assert int(model.kernel_.partition.cluster_counts.sum()) <= 160
        assert "levels of trees below" in model.left_out_[0]
        assert model.left_out_[0] in str(model.summary())

    def test_cut_forest_knows_holes(self, tmp_path):
        holes = X.copy()
        holes[random.rand(NUM_ROWS) < 0.1, 0] = np.nan
        model = fitted("forest", split(200, x=holes))
        assert "levels of trees below" in model.left_out_[0]
        whole = PartitionGPRegressor("forest", num_partitions=10, random_state=0).fit(holes, Y)
        assert model.score(holes, Y) > whole.score(holes, Y) - 0.1 > 0.5
        model.save(tmp_path / "model.gp")
        np.testing.assert_array_equal(
            PartitionGPRegressor.load(tmp_path / "model.gp").predict(holes), model.predict(holes)
        )

    def test_ensembles_see_columns_as_they_are(self):
        ensemble = ExtraTreesRegressor(5, max_leaf_nodes=8, random_state=0)
        grown, given = fitted(ensemble), fitted(ensemble.fit(X[:100], Y[:100]))
        assert grown.kernel_.num_partitions == given.kernel_.num_partitions == 5
        assert grown.score(X, Y) > 0.5 < given.score(X, Y)

    def test_functions(self):
        assert fitted(lambda x, y: RandomForestKernel(x, y, 9, max_samples=40, random_state=0)).score(X, Y) > 0.4

    def test_given_kernels(self):
        x = torch.from_numpy(X)
        for kernel in (FastClusterKernel(x, 10, height=3, random_state=0), MondrianKernel(x, 5, lifetime=1.0)):
            model = fitted(kernel)
            assert model.score(X, Y) > 0.2
            assert model.predict(X[:3], return_cov=True)[1].shape == (3, 3)

    def test_categories_of_many_levels_are_said(self):
        table = {"id": np.array([f"n{row % 270}" for row in range(5 * NUM_ROWS)]), "a": np.tile(X[:, 0], 5)}
        model = PartitionGPRegressor(random_state=0).fit_chunks([(table, np.tile(Y, 5))])
        assert model.left_out_ == ("sets of levels of 1 column with more than 255 (split by their order)",)

    @pytest.mark.parametrize(
        ("kernel", "message"),
        [
            ("mondrian", "kernel of few clusters"),
            (MANY_LEAVES, "expected a kernel with at most 8,192 clusters"),
        ],
    )
    def test_refused_before_anything_is_read(self, kernel, message):
        def never():
            raise AssertionError("read")

        with pytest.raises(ValueError, match=message):
            PartitionGPRegressor(kernel).fit_chunks(never)

    def test_kernels_without_partitions_are_refused(self):
        from gpytorch.kernels import RBFKernel

        for kernel in (RBFKernel(), RBFKernel() + FastClusterKernel(torch.from_numpy(X), 5)):
            with pytest.raises(ValueError, match="expected a kernel of partitions, whose rows can be counted"):
                fitted(kernel)

    @pytest.mark.parametrize("kernel", ["forest", "fast_cluster"])
    def test_partitions_of_one_cluster_are_refused(self, kernel):
        with pytest.raises(ValueError, match="expected at most 80 trees or partitions on chunks.*got 100: give fewer"):
            PartitionGPRegressor(kernel, num_partitions=100, random_state=0).fit_chunks(split())

    def test_holes_are_refused_by_name(self):
        with pytest.raises(ValueError, match="expected no missing cells .give 'auto' or 'forest'"):
            fitted("fast_cluster", [({"a": X[:, 0], "b": np.where(X[:, 1] < 0.5, np.nan, 1.0)}, Y)])


class TestIsARegressor:
    def test_summary_is_of_all_rows(self):
        found = fitted().summary()
        assert found.num_rows == NUM_ROWS
        assert found.target_std == pytest.approx(Y.std())
        assert found.noise_std == pytest.approx(0.2, rel=0.2)
        assert found.function_std == pytest.approx((np.sin(6 * X[:, 0]) + X[:, 1]).std(), rel=0.15)

    def test_fit_and_fit_chunks_follow_one_another(self):
        model = PartitionGPRegressor("forest", num_partitions=10, random_state=0)
        expected = model.fit(X, Y).predict(X)
        model.fit_chunks(split(300))
        assert not np.array_equal(model.predict(X), expected)
        np.testing.assert_array_equal(model.fit(X, Y).predict(X), expected)
        assert len(model.importance().columns) == 3

    def test_rows_like_new_ones_are_of_the_sample(self):
        model = fitted("fast_cluster")
        sampled = model._counted_rows
        numbers, _ = model.nearest_rows(X[sampled[:4]], k=1)
        np.testing.assert_allclose(X[numbers[:, 0]], X[sampled[:4]], atol=0.5)
        assert set(numbers[:, 0]) <= set(sampled)

    @pytest.mark.parametrize("ask", [lambda m: m.importance(), lambda m: m.partial_dependence(X, 0)])
    def test_what_needs_the_rows_is_refused_by_name(self, ask):
        with pytest.raises(
            ValueError, match="needs the training rows, which fit_chunks has counted.*sklearn.inspection"
        ):
            ask(fitted())

    def test_range_is_that_of_all_rows(self):
        x = X.copy()
        x[[3, 5], 2] = [-9.0, 9.0]  # which are in no sample together
        model = fitted(chunks=split(x=x))
        with pytest.warns(OutsideRangeWarning):
            model.predict([[0.5, 0.5, 40.0]])
        assert model.predict([[0.5, 0.5, 8.9], [0.5, 0.5, -8.9]]).shape == (2,)


class TestFailures:
    def test_bad_chunks_lose_nothing(self):
        model = fitted()
        expected = model.predict(X)
        bad = X.copy()
        bad[500, 1] = np.inf
        with pytest.raises(ValueError, match=r"chunk 2 \(rows 400 to 599\).*got inf in"):
            model.fit_chunks(split(200, 400, x=bad), sample_rows=1)
        np.testing.assert_array_equal(model.predict(X), expected)
        with pytest.raises(NotFittedError):
            PartitionGPRegressor().predict(X)

    @pytest.mark.parametrize("table", [False, True])
    @pytest.mark.parametrize("sample_rows", [1, 600])
    @pytest.mark.parametrize(("value", "kernel"), [(np.inf, "auto"), (1e200, "auto"), (np.nan, "fast_cluster")])
    def test_bad_numbers_are_named_in_the_sample_or_not(self, table, sample_rows, value, kernel):
        bad = X.copy()
        bad[420:, 1] = value
        chunks = [({"x0": x[:, 0], "x1": x[:, 1]} if table else x, y) for x, y in split(200, 400, x=bad)]
        got = re.escape(f"{value:g} in column 'x1', row 20 of the chunk")
        message = rf"chunk 2 \(rows 400 to 599\): .*expected .* got {got}"
        with pytest.raises(ValueError, match=message):
            PartitionGPRegressor(kernel, random_state=0).fit_chunks(chunks, sample_rows=sample_rows)

    def test_holes_that_no_row_of_the_sample_has(self):
        holes = {"a": X[:5, 0], "b": np.array([0.5, 0.5, np.nan, 0.5, 0.5])}
        chunks = [({"a": X[:, 0], "b": X[:, 1]}, Y), (holes, Y[:5])]
        with pytest.raises(ValueError, match=r"chunk 1 \(rows 600 to 604\): .*expected no missing cells .give 'auto'"):
            PartitionGPRegressor("fast_cluster", 10, random_state=0).fit_chunks(chunks, sample_rows=20)
        assert fitted("auto", chunks).model_.num_rows == 605

    def test_few_rows(self):
        with pytest.raises(ValueError, match=r"expected 500 rows or more in chunks.*got 499: give fit\(X, y\)"):
            fitted(chunks=[(X[:499], Y[:499])])

    @pytest.mark.parametrize("when", [1, 2])
    def test_interruptions_leave_the_old_model(self, when):
        model, passes = fitted(), []
        expected = model.predict(X)

        def chunks():
            passes.append(0)
            yield from split(300)[:1]
            if len(passes) == when:
                raise KeyboardInterrupt
            yield from split(300)[1:]

        with pytest.raises(KeyboardInterrupt):
            model.fit_chunks(chunks)
        np.testing.assert_array_equal(model.predict(X), expected)

    def test_other_rows_in_the_second_pass(self):
        passes = []

        def chunks():
            passes.append(0)
            return iter(split(300)[: 3 - len(passes)])

        with pytest.raises(RuntimeError, match="expected the same rows in all passes, got 600 first and"):
            fitted(chunks=chunks)

    def test_rows_that_are_shuffled_anew(self):
        source = np.random.RandomState(0)

        def chunks():
            order = source.permutation(NUM_ROWS)
            return iter(split(300, x=X[order], y=Y[order]))

        model = fitted()
        expected = model.predict(X)
        with pytest.raises(RuntimeError, match="got 600 first and 600 then, or with other numbers or in another order"):
            model.fit_chunks(chunks)
        np.testing.assert_array_equal(model.predict(X), expected)

    @pytest.mark.parametrize(
        ("parameters", "message"),
        [
            ({"budget": 3.0}, "expected budget=None with chunks"),
            ({"options": Options()}, "expected options=None with chunks"),
            ({"dtype": "float32"}, "expected dtype='auto' or 'float64' with chunks"),
        ],
    )
    def test_parameters_without_a_meaning(self, parameters, message):
        with pytest.raises(ValueError, match=message):
            fitted(**parameters)

    def test_fit_names_the_method_for_paths(self, tmp_path):
        for path in (tmp_path, str(tmp_path)):
            with pytest.raises(ValueError, match=r"rows, got the path .*fit_chunks\(path, 'target'\)"):
                PartitionGPRegressor().fit(path, Y)

    def test_sample_rows(self):
        with pytest.raises(ValueError, match="expected sample_rows to be a whole number"):
            PartitionGPRegressor().fit_chunks(split(), sample_rows=0)
