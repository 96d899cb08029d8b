"""Level weights and lifetimes learned from counts: always the dense model of the same rows."""

from __future__ import annotations

import io

import pytest
import torch

from gpytorch_partition import FastClusterKernel, MondrianKernel, PartitionKernel, RandomForestKernel
from gpytorch_partition.inference.evidence.profile_likelihood import Bounds
from gpytorch_partition.models import FeatureSpaceGP

N = 150
GENERATOR = torch.Generator().manual_seed(4)
X = torch.randn(N, 3, generator=GENERATOR).double()
Y = X[:, 0].sin() + X[:, 1].abs() + 0.3 * torch.randn(N, generator=GENERATOR)
TEST = torch.cat([torch.randn(20, 3, generator=GENERATOR).double(), 50 + torch.arange(9).double().view(3, 3)])


def _mondrian(lifetime=0.8, **options):
    return MondrianKernel(X, 12, lifetime=lifetime, random_state=0, **options).double()


def _forest(**options):
    return RandomForestKernel(X, Y, 8, random_state=0, max_samples=0.4, **options).double()


def _counted(kernel, x=X, y=Y):
    model = FeatureSpaceGP(kernel)
    model.add_rows(x, y)
    return model


def _saved_and_loaded(model):
    torch.save(model.state_dict(), file := io.BytesIO())
    file.seek(0)
    loaded = FeatureSpaceGP(model.kernel)
    loaded.load_state_dict(torch.load(file, weights_only=True))
    return loaded


def _assert_same(model, other):
    assert model.log_marginal_likelihood(0.6, 0.2, 0.1) == pytest.approx(other.log_marginal_likelihood(0.6, 0.2, 0.1))
    model.values = other.values
    for found, expected in zip(model.predict(TEST), other.predict(TEST)):
        torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-10)


class TestLifetime:
    @pytest.mark.parametrize("active_dims", [None, (2, 0)])
    def test_a_cut_is_the_model_counted_anew(self, active_dims):
        cut, anew = (
            _counted(_mondrian(active_dims=active_dims)).cut(0.3),
            _counted(_mondrian(0.3, active_dims=active_dims)),
        )
        assert cut.values is None
        assert cut.kernel.lifetime == 0.3
        assert torch.equal(cut.statistics.counts, anew.statistics.counts)
        assert cut.fit().log_likelihood == pytest.approx(anew.fit().log_likelihood)
        _assert_same(cut, anew)

    def test_the_best_lifetime_is_chosen(self):
        lifetimes, model = [0.8, 0.05, 0.4, 0.2], _counted(_mondrian())
        likelihoods = {each: _counted(_mondrian(each)).fit().log_likelihood for each in lifetimes}
        best = model.fit_lifetime(iter(lifetimes))
        assert best.kernel.lifetime == max(likelihoods, key=likelihoods.get) != lifetimes[0]
        assert best.values.log_likelihood == pytest.approx(max(likelihoods.values()), rel=1e-9)
        assert (model.kernel.lifetime, model.values) == (0.8, None)

    def test_rows_can_be_added_later(self):
        learned = _counted(_mondrian(), X[:100], Y[:100]).fit_lifetime([0.2])
        learned.add_rows(X[100:], Y[100:])
        whole = _counted(_mondrian(0.2))
        whole.fit()
        _assert_same(learned, whole)
        _assert_same(_saved_and_loaded(learned), whole)

    def test_of_other_kernels(self):
        for model in (_counted(_forest()), _counted(FastClusterKernel(X, 5, height=3, random_state=0))):
            with pytest.raises(ValueError, match="MondrianKernel"):
                model.cut(0.1)
            with pytest.raises(ValueError, match="MondrianKernel"):
                model.fit_lifetime([0.1])

    def test_that_cannot_be_chosen(self):
        model = _counted(_mondrian())
        with pytest.raises(ValueError, match="at least one lifetime"):
            model.fit_lifetime([])
        with pytest.raises(ValueError, match=r"lifetime in \(0, 0.8\]"):
            model.fit_lifetime([0.1, 0.9])
        with pytest.raises(RuntimeError, match="with rows, got none"):
            FeatureSpaceGP(_mondrian()).fit_lifetime([0.1])


def _dense_posterior(kernel, level_weights, values):
    """Of the average of kernels that compare the labels of the cut trees."""
    x, covariance = torch.cat([X, TEST]), 0.0
    for depth, weight in enumerate(level_weights):
        labels = kernel.partition.cut(torch.full((kernel.num_partitions,), depth)).labels(x)
        covariance += values.outputscale * weight * (labels[:, None] == labels[None]).double().mean(-1)
    noisy = covariance[:N, :N] + values.noise * torch.eye(N, dtype=torch.float64)
    cross = covariance[N:, :N]
    mean = values.mean + cross @ torch.linalg.solve(noisy, Y - values.mean)
    total = torch.distributions.MultivariateNormal(torch.full((N,), values.mean).double(), noisy).log_prob(Y)
    return float(total), mean, covariance[N:, N:] - cross @ torch.linalg.solve(noisy, cross.mT)


@pytest.fixture(scope="module")
def learned():
    model = _counted(_forest())
    model.fit_level_weights()
    return model


class TestLevelWeights:
    def test_beat_the_height_average(self, learned):
        average = _counted(_forest())
        assert learned.values.log_likelihood > average.fit().log_likelihood + 1
        assert average.level_weights is None
        assert learned.log_marginal_likelihood(1.0, 0.1, 0.0) != average.log_marginal_likelihood(1.0, 0.1, 0.0)

    def test_the_posterior_is_the_dense_one(self, learned):
        total, mean, covariance = _dense_posterior(learned.kernel, learned.level_weights, learned.values)
        assert learned.values.log_likelihood == pytest.approx(total, rel=1e-9)
        found_mean, found_variance = learned.predict(TEST)
        torch.testing.assert_close(found_mean, mean, rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(found_variance, covariance.diagonal(), rtol=1e-7, atol=1e-9)
        samples, deviations = (
            learned.sample(TEST, 20_000, torch.Generator().manual_seed(0)),
            covariance.diagonal().sqrt(),
        )
        assert ((samples.mean(0) - mean) / deviations).abs().max() < 5 / 20_000**0.5
        correlation = covariance / deviations / deviations.unsqueeze(-1)
        assert (torch.corrcoef(samples.mT) - correlation).abs().max() < 5 / 20_000**0.5

    @pytest.mark.parametrize("depth", [0, 2])
    def test_of_one_depth_only(self, depth):
        """S is singular then: most leaves are in clusters with others."""
        model = _counted(_forest())
        model.fit()
        model.predict(TEST)
        size = int(model.kernel.partition.layout.heights.max()) + 1
        model.level_weights = torch.eye(size)[depth]
        total, mean, covariance = _dense_posterior(model.kernel, model.level_weights, model.values)
        values = model.values
        assert model.log_marginal_likelihood(values.outputscale, values.noise, values.mean) == pytest.approx(total)
        torch.testing.assert_close(model.predict(TEST)[0], mean, rtol=1e-7, atol=1e-7)
        torch.testing.assert_close(model.predict(TEST)[1], covariance.diagonal(), rtol=1e-7, atol=1e-9)

    def test_stay_when_rows_are_added_and_when_fitted_again(self, learned):
        half = _counted(_forest(), X[:80], Y[:80])
        half.level_weights = learned.level_weights
        half.add_rows(X[80:], Y[80:])
        assert half.fit().log_likelihood == pytest.approx(learned.values.log_likelihood, rel=1e-9)
        _assert_same(half, learned)
        half.level_weights = None
        assert half.fit().log_likelihood == pytest.approx(_counted(_forest()).fit().log_likelihood, rel=1e-9)

    def test_stay_in_a_sum_of_models_that_have_the_same(self, learned):
        other = _counted(learned.kernel)
        other.level_weights = learned.level_weights
        assert torch.equal((learned + other).level_weights, learned.level_weights)
        assert (learned + _counted(learned.kernel)).level_weights is None

    def test_bounds_count(self):
        values = _counted(_forest()).fit_level_weights(Bounds((0.5, 0.5), (0.3, 0.3), mean=0.1))
        assert (values.outputscale, values.noise, values.mean) == pytest.approx((0.5, 0.3, 0.1))

    @pytest.mark.parametrize(
        ("kernel", "got"),
        [
            (lambda: _forest(heights="leaf"), "'leaf'"),
            (lambda: _forest(heights="sampled"), "'sampled'"),
            (_mondrian, "MondrianKernel"),
            (lambda: PartitionKernel(lambda x: x.floor().long()), "PartitionKernel"),
        ],
    )
    def test_of_other_kernels(self, kernel, got):
        model = _counted(kernel())
        with pytest.raises(ValueError, match=got):
            model.fit_level_weights()
        with pytest.raises(ValueError, match=got):
            model.level_weights = torch.ones(1)
