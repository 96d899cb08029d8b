"""Rows in chunks, shards and reverse: always the dense posterior of the rows that are in."""

from __future__ import annotations

import io

import pytest
import torch
from sklearn.ensemble import AdaBoostRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.tree import DecisionTreeRegressor

from gpytorch_partition import (
    FastClusterKernel,
    MondrianKernel,
    PartitionKernel,
    PartitionMixtureKernel,
    RandomForestKernel,
)
from gpytorch_partition.inference.evidence.profile_likelihood import Bounds, maximize
from gpytorch_partition.inference.evidence.spectral_likelihood import SpectralLikelihood, dense_measure
from gpytorch_partition.models import FeatureSpaceGP, array_chunks

N = 400
GENERATOR = torch.Generator().manual_seed(5)
X = torch.randn(N, 3, generator=GENERATOR).double()
Y = X[:, 0].sin() + X[:, 1].abs() + 0.3 * torch.randn(N, generator=GENERATOR)
TEST = torch.cat([torch.randn(20, 3, generator=GENERATOR).double(), 50 + torch.arange(9).double().view(3, 3)])


def _callable(x):
    return torch.stack([(3 * x[..., 0]).floor(), (2 * x[..., 1]).floor() * 1000], -1).long()


def forest(heights="all", **options):
    kernel = RandomForestKernel(X, Y, 6, heights, min_samples_leaf=5, random_state=0, **options).double()
    with torch.no_grad():
        for parameter in kernel.logits.parameters():
            parameter += torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
    return kernel


def boosting(heights="all"):
    """Its trees weigh differently."""
    trees = AdaBoostRegressor(DecisionTreeRegressor(max_depth=3), n_estimators=4, random_state=0)
    return RandomForestKernel.from_forest(trees.fit(X.numpy(), Y.numpy()), heights).double()


def mixture(**options):
    clusters = FastClusterKernel(X, 6, height=4, active_dims=(2, 0), random_state=0)
    return PartitionMixtureKernel([forest("learned"), clusters, forest("impurity")], [1, 2, 3], **options).double()


KERNELS = {
    "forest": lambda: RandomForestKernel(X, Y, 10, random_state=0),
    "fast cluster": lambda: FastClusterKernel(X, 20, height=5, random_state=0),
    "Mondrian": lambda: MondrianKernel(X, 20, random_state=0),
    "callable": lambda: PartitionKernel(_callable),
    "active dims": lambda: FastClusterKernel(X, 20, height=4, random_state=0, active_dims=(2, 0)),
    "learned": lambda: forest("learned"),
    "impurity": lambda: forest("impurity"),
    "learned of weighted trees": lambda: boosting("learned"),
    "leaf of weighted trees": lambda: boosting("leaf"),
    "mixture of mixtures": lambda: PartitionMixtureKernel([mixture(), forest("leaf")], [3, 1]).double(),
}


@pytest.fixture(params=KERNELS)
def kernel(request):
    return KERNELS[request.param]().double().requires_grad_(False)


def _fitted(kernel, x=X, y=Y, size=90):
    model = FeatureSpaceGP(kernel)
    model.add_chunks(zip(x.split(size), y.split(size)))
    model.fit()
    return model


def _dense_posterior(kernel, values, x=X, y=Y):
    noisy = values.outputscale * kernel(x).to_dense() + values.noise * torch.eye(len(x), dtype=torch.float64)
    cross, prior = values.outputscale * kernel(TEST, x).to_dense(), values.outputscale * kernel(TEST).to_dense()
    mean = values.mean + cross @ torch.linalg.solve(noisy, y - values.mean)
    return mean, prior - cross @ torch.linalg.solve(noisy, cross.mT)


def test_the_values_maximize_the_exact_likelihood(kernel):
    model = _fitted(kernel)
    likelihood = SpectralLikelihood(dense_measure(kernel(X).to_dense(), Y[:, None]))
    best = maximize(likelihood, Bounds((0, float("inf")), (1e-4, float("inf"))))
    for name in ("outputscale", "noise", "mean", "log_likelihood"):
        assert getattr(model.values, name) == pytest.approx(getattr(best, name), rel=1e-4)
    assert model.log_marginal_likelihood(0.5, 0.2, 0.1) == pytest.approx(likelihood.value(0.5, 0.2, 0.1), rel=1e-9)


def test_means_and_variances_also_where_no_row_was(kernel):
    model = _fitted(kernel)
    mean, covariance = _dense_posterior(kernel, model.values)
    predicted, variance = model.predict(TEST)
    torch.testing.assert_close(predicted, mean, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(variance, covariance.diagonal(), rtol=1e-8, atol=1e-10)


def test_joint_covariances(kernel):
    """Far points share clusters that no row was in, or have one each."""
    model, points = _fitted(kernel), torch.cat([TEST, TEST[-2:]])
    noisy = model.values.outputscale * kernel(X).to_dense() + model.values.noise * torch.eye(N, dtype=torch.float64)
    cross = model.values.outputscale * kernel(points, X).to_dense()
    expected = model.values.outputscale * kernel(points).to_dense() - cross @ torch.linalg.solve(noisy, cross.mT)
    torch.testing.assert_close(model.covariance(points), expected, rtol=1e-8, atol=1e-9)


def test_samples_have_the_joint_covariance(kernel):
    model = _fitted(kernel)
    mean, covariance = _dense_posterior(kernel, model.values)
    samples = model.sample(TEST, 20_000, torch.Generator().manual_seed(0))
    assert samples.shape == (20_000, len(TEST))
    deviations = covariance.diagonal().sqrt()
    assert ((samples.mean(0) - mean) / deviations).abs().max() < 5 / 20_000**0.5
    correlation = covariance / deviations / deviations.unsqueeze(-1)
    assert (torch.corrcoef(samples.mT) - correlation).abs().max() < 5 / 20_000**0.5


def test_chunks_shards_and_removed_rows_give_the_same(kernel):
    whole = _fitted(kernel, size=N)
    first, second = FeatureSpaceGP(kernel), FeatureSpaceGP(kernel)
    first.add_rows(X[:150], Y[:150])
    second.add_rows(X[150:], Y[150:])
    joined = first + second
    first.add_rows(X[150:], Y[150:])
    more = _fitted(kernel, torch.cat([X, 7 * X[:50]]), torch.cat([Y, Y[:50]]))
    more.remove_rows(7 * X[:50], Y[:50])
    likelihood = whole.log_marginal_likelihood(0.5, 0.2, 0.1)
    for model in (_fitted(kernel, size=33), joined, first, more):
        assert model.num_rows == N
        assert model.log_marginal_likelihood(0.5, 0.2, 0.1) == pytest.approx(likelihood, rel=1e-10)
        model.fit()
        for found, expected in zip(model.predict(TEST), whole.predict(TEST)):
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert (more.statistics.counts == more.statistics.counts.round()).all()


def test_is_saved_and_resumed(kernel):
    half, buffer = FeatureSpaceGP(kernel), io.BytesIO()
    half.add_rows(X[:200], Y[:200])
    torch.save(half.state_dict(), buffer)
    buffer.seek(0)
    resumed = FeatureSpaceGP(kernel)
    resumed.load_state_dict(torch.load(buffer, weights_only=True))
    assert resumed.num_rows == 200
    resumed.add_chunks(array_chunks(X.numpy(), Y.numpy(), 70, start=resumed.num_rows))
    resumed.fit()
    torch.save(resumed.state_dict(), buffer := io.BytesIO())
    buffer.seek(0)
    again = FeatureSpaceGP(kernel)
    again.load_state_dict(torch.load(buffer, weights_only=True))
    whole = _fitted(kernel)
    for model in (resumed, again):
        torch.testing.assert_close(model.predict(TEST)[0], whole.predict(TEST)[0], rtol=1e-6, atol=1e-6)


def test_noise_at_its_bound_is_told(kernel):
    model = FeatureSpaceGP(kernel)
    model.add_rows(X, 1e-4 * Y)
    with pytest.warns(ConvergenceWarning, match="noise is at its lower bound, 0.0001"):
        model.fit()


class TestErrors:
    @pytest.mark.parametrize("method", ["add_rows", "remove_rows"])
    @pytest.mark.parametrize("pair", [(X.numpy(), Y), (X, Y.numpy()), (X.tolist(), Y)], ids=["x", "y", "list"])
    def test_rows_that_are_no_tensors(self, method, pair):
        model = FeatureSpaceGP(KERNELS["Mondrian"]())
        said = r"as a tensor of real numbers, got (ndarray|list): torch\.as_tensor.*array_chunks"
        with pytest.raises(TypeError, match=said):
            getattr(model, method)(*pair)
        with pytest.raises(TypeError, match="chunks of two parts, points and targets, got a Tensor"):
            model.add_chunks([X])

    def test_not_fitted(self):
        model = FeatureSpaceGP(KERNELS["forest"]())
        model.add_rows(X, Y)
        with pytest.raises(RuntimeError, match="call fit"):
            model.predict(TEST)

    def test_rows_that_were_not_added(self, kernel):
        model = FeatureSpaceGP(kernel)
        model.add_rows(X[:50], Y[:50])
        before = model.statistics.counts.clone()
        with pytest.raises(ValueError, match="added before"):
            model.remove_rows(X[50:90], Y[50:90])
        assert torch.equal(model.statistics.counts, before)

    def test_the_same_kind_of_partitions_with_another_seed(self):
        model = _fitted(MondrianKernel(X, 5, random_state=0))
        for other in (MondrianKernel(X, 5, random_state=1), FastClusterKernel(X, 5, height=3, random_state=0)):
            with pytest.raises(ValueError, match="other partitions"):
                FeatureSpaceGP(other).load_state_dict(model.state_dict())
            with pytest.raises(ValueError, match="other partitions"):
                model + FeatureSpaceGP(other)


@pytest.mark.parametrize("level", [1e6, 1e8])
@pytest.mark.parametrize("make", ["clusters", "cells", "forest"])
def test_targets_far_from_zero(make, level):
    """Shifting the targets shifts means, and changes nothing else up to rounding; the noise was 10.3 for .09."""
    generator = torch.Generator().manual_seed(3)
    x = torch.rand(400, 2, generator=generator, dtype=torch.float64)
    y = 4 * x[:, 0] + 0.3 * torch.randn(400, generator=generator, dtype=torch.float64)
    kernels = {
        "clusters": lambda: FastClusterKernel(x, 6, height=4, random_state=0),
        "cells": lambda: MondrianKernel(x, 5, lifetime=2.0, random_state=0),
        "forest": lambda: RandomForestKernel(x, y, 4, min_samples_leaf=20, random_state=0),
    }

    def results(shift):
        model = FeatureSpaceGP(kernels[make]())
        model.add_chunks(zip(x.split(150), (y + shift).split(150)))
        values = model.fit()
        model.add_rows(x[:3] + 0.01, y[:3] + shift)  # updates the solution
        model.remove_rows(x[7:9], y[7:9] + shift)
        mean, variance = model.predict(x[:9])
        numbers = [values.outputscale, values.noise, values.mean - shift, values.log_likelihood]
        numbers.append(model.log_marginal_likelihood(1.0, 0.1, shift + 2.0))
        return torch.cat([torch.tensor(numbers).double(), mean - shift, variance])

    torch.testing.assert_close(results(level), results(0.0), rtol=1e-5, atol=level * 1e-14 + 1e-6)


def test_mixtures_with_unbounded_labels_are_refused():
    with pytest.raises(ValueError, match="numbers of clusters are known"):
        FeatureSpaceGP(PartitionMixtureKernel([forest(), MondrianKernel(X, 5, random_state=0)]))
