"""Summaries: shares against dense matrices, noise, seconds, text, and HTML beside scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel
from scipy.stats import norm
from sklearn.exceptions import NotFittedError

from gpytorch_partition.estimators import PartitionGPRegressor
from tests.explain.explained import X, Y, fitted, mondrian_and_clusters


def test_shares_are_those_of_dense_matrices():
    model = fitted(mondrian_and_clusters)
    x, scale = model.model_.train_inputs[0], float(model.model_.covar_module.outputscale)
    with torch.no_grad():
        parts = [scale * kernel(x).to_dense().numpy() for kernel in model.kernel_.base_kernel.kernels]
    targets = model.model_.train_targets.numpy() - float(model.model_.mean_module.constant)
    alpha = np.linalg.solve(sum(parts) + float(model.likelihood_.noise) * np.eye(120), targets)
    means = [part @ alpha for part in parts]
    explained = [np.cov(mean, sum(means), ddof=0)[0, 1] / sum(means).var() for mean in means]
    priors = np.array([np.trace(part) / 120 - part.mean() for part in parts])
    found = model.summary()
    np.testing.assert_allclose([part.explained for part in found.parts], explained, rtol=1e-3)
    np.testing.assert_allclose([part.prior for part in found.parts], priors / priors.sum(), rtol=1e-4)
    np.testing.assert_allclose(found.prior_std, priors.sum() ** 0.5 * Y.std(), rtol=1e-4)
    np.testing.assert_allclose(found.function_std, model.predict(X).std(), rtol=1e-4)


def test_the_prior_share_is_the_variance_that_samples_have():
    model = fitted("forest")
    x = model.model_.train_inputs[0]
    torch.manual_seed(0)
    with torch.no_grad():
        samples = model.model_.forward(x).sample(torch.Size([4000])).numpy()
    np.testing.assert_allclose(model.summary().prior_std, (samples.var(1).mean()) ** 0.5 * Y.std(), rtol=0.02)


def test_it_says_what_the_model_is_made_of():
    found = fitted("auto").summary()
    assert (found.num_rows, found.num_columns) == (120, 3)
    assert found.noise_range[0] < found.noise_std < found.noise_range[1]
    assert found.log_predictive_density is not None
    assert found.log_marginal_likelihood is None
    stages = ["choosing weights and noise", "boosted trees", "building the model of all rows"]
    assert list(found.seconds) == stages
    assert all(seconds > 0 for seconds in found.seconds.values())
    text = str(found)
    for word in (
        "kernel='auto'",
        "120 rows, 3 columns",
        "varies with x",
        "lengthscales",
        "held out",
        "seconds",
        "at bounds",
    ):
        assert word in text
    assert "tensor" not in text
    without = -norm.logpdf((Y - Y.mean()) / Y.std()).mean()
    expected = f"NLPD {-found.log_predictive_density:.3f} (standard error {found.log_density_error:.3f}) nats a row of "
    assert found.facts()["held out"] == f"{expected}targets in standard deviations (without any column: {without:.3f})"


def test_a_constant_noise_is_the_same_everywhere():
    model = fitted("forest")
    found = model.summary()
    assert found.noise_range is None
    np.testing.assert_allclose(found.noise_std**2, model.noise_, rtol=1e-5)
    assert list(found.seconds) == ["building the kernel", "fitting noise and scales"]
    assert found.parts[0].num_trees == 20
    assert found.log_marginal_likelihood == model.log_marginal_likelihood_value_


def rbf_of_a_view(x, y):
    kernel = RBFKernel(ard_num_dims=4)
    kernel.lengthscale = torch.tensor([1.0, 2.0, 3.0, 4.0])
    return kernel.requires_grad_(False)


def test_lengthscales_of_a_table_have_the_names_of_what_columns_became():
    """A column without values has none, a category the shortest of its columns, a date those of its parts."""
    days = np.datetime64("2023-01-02") + 7 * np.arange(120) % 28  # of one month, all of one weekday
    table = {"empty": np.full(120, np.nan), "side": np.array(["a", "b"])[np.arange(120) % 2], "day": days}
    model = PartitionGPRegressor(rbf_of_a_view).fit(table, Y)
    found = model.summary()
    assert found.parts[0].lengthscales == pytest.approx({"side": 1.0, "day": 3.0, "day_day_of_year": 4.0})
    assert found.num_columns == 3


def test_a_new_fit_has_a_new_summary_and_a_saved_one_its_seconds():
    model = PartitionGPRegressor("mondrian", num_partitions=5, random_state=0).fit(X, Y)
    assert model.summary().num_rows == 120
    copy = PartitionGPRegressor.from_state(model.to_state())
    assert copy.summary().seconds == model.seconds_
    assert model.fit(X[:50], Y[:50]).summary().num_rows == 50
    with pytest.raises(NotFittedError):
        PartitionGPRegressor().summary()


@pytest.mark.parametrize(("change", "said"), [(np.exp, True), (np.square, False), (np.negative, False)])
def test_a_long_tail_above_zero_is_said(change, said):
    random = np.random.RandomState(0)
    x = random.rand(80, 2)
    y = change(np.sin(6 * x[:, 0]) + random.randn(80) * 0.8)
    facts = PartitionGPRegressor("mondrian", 10, random_state=0).fit(x, y).summary().facts()
    assert ("logarithms may fit better" in facts.get("skewed", "")) == said


def test_a_width_that_the_targets_did_not_choose_is_said():
    told = PartitionGPRegressor("mondrian", 5, random_state=0).fit(X[:50], Y[:50]).summary().facts()["width"]
    assert "lifetime_sweep" in told
    assert "width" not in fitted(mondrian_and_clusters).summary().facts()
