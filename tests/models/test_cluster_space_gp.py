"""A GP whose rows are anywhere, against the exact one in feature space, from rows in one piece and in shards."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cache, reduce

import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from gpytorch_partition import FastClusterKernel, MondrianKernel, RandomForestKernel, settings
from gpytorch_partition.inference.evidence.profile_likelihood import Bounds
from gpytorch_partition.inference.spaces import cluster_space
from gpytorch_partition.inference.spaces.cluster_rows import LocalRows, Moments
from gpytorch_partition.models import ClusterSpaceGP, FeatureSpaceGP, local_rows

ROWS = 3_000


@cache
def problem():
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(ROWS, 3, generator=generator, dtype=torch.float64)
    noise = torch.randn(ROWS, generator=generator, dtype=torch.float64)
    return x, 20 + (5 * x[:, 0]).sin() + x[:, 1] + 0.3 * noise


@cache
def kernel(kind="clusters"):
    x, y = problem()
    if kind == "clusters":
        return FastClusterKernel(x, 20, height=4, random_state=0)
    return RandomForestKernel(x, y, 5, min_samples_leaf=50, random_state=0)


@cache
def fitted(kind="clusters"):
    model = ClusterSpaceGP(kernel(kind), local_rows(kernel(kind), *problem()))
    model.fit()
    return model


@cache
def exact(kind="clusters"):
    model = FeatureSpaceGP(kernel(kind))
    model.add_rows(*problem())
    model.fit()
    return model


def points(num_points=200):
    return torch.rand(num_points, 3, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


@dataclass
class Shards:
    """Rows in pieces, whose sums are added up in order."""

    parts: list[LocalRows]

    @property
    def num_rows(self):
        return sum(part.num_rows for part in self.parts)

    @property
    def num_clusters(self):
        return self.parts[0].num_clusters

    def gram(self, effects):
        return sum(part.gram(effects) for part in self.parts)

    def moments(self):
        return reduce(Moments.merged, (part.moments() for part in self.parts))

    def normal_sums(self, num_columns, seed):
        return sum(part.normal_sums(num_columns, len(self.parts) * seed + k) for k, part in enumerate(self.parts))


def sharded(sizes=(1_000, 0, 1_500, 500)):
    x, y = problem()
    return Shards([local_rows(kernel(), *part) for part in zip(x.split(sizes), y.split(sizes))])


@pytest.mark.parametrize("kind", ["clusters", "forest"])
def test_few_clusters_have_exact_fits(kind):
    values, expected = fitted(kind).values, exact(kind).values
    assert fitted(kind).standard_error == 0
    assert values.log_likelihood == pytest.approx(expected.log_likelihood, rel=1e-8)
    assert [values.outputscale, values.noise, values.mean] == pytest.approx(
        [expected.outputscale, expected.noise, expected.mean], rel=1e-4
    )


@pytest.mark.parametrize("kind", ["clusters", "forest"])
def test_fits_by_probes_are_those_of_the_feature_space(kind):
    model = ClusterSpaceGP(kernel(kind), fitted(kind).rows)
    values, expected, error = model.fit(num_probes=100), exact(kind).values, model.standard_error
    assert 0 < error < 1e-3 * ROWS
    assert values.log_likelihood == pytest.approx(expected.log_likelihood, abs=4 * error)
    assert exact(kind).log_marginal_likelihood(values.outputscale, values.noise, values.mean) == pytest.approx(
        expected.log_likelihood, abs=0.5
    )


@pytest.mark.parametrize("kind", ["clusters", "forest"])
def test_predictions_are_those_of_the_feature_space(kind):
    reference = FeatureSpaceGP(kernel(kind))
    reference.add_rows(*problem())
    reference.values = fitted(kind).values
    (mean, variance), (expected, exact_variance) = fitted(kind).predict(points()), reference.predict(points())
    torch.testing.assert_close(mean, expected, rtol=0, atol=0.002)
    torch.testing.assert_close(variance, exact_variance, rtol=0.01, atol=0)
    assert torch.equal(fitted(kind).means(points()), mean)
    with settings.num_variance_samples(199):
        sampled = fitted(kind).predict(points())[1]
        root = fitted(kind).effects().root
    assert root.shape == (fitted(kind).rows.num_clusters, 199)
    assert (sampled / exact_variance - 1).square().mean().sqrt() == pytest.approx((2 / 199) ** 0.5, rel=0.3)


def test_samples_are_around_the_means():
    samples = fitted().sample(points(20), 300, random_state=3)
    mean, variance = fitted().predict(points(20))
    assert samples.shape == (300, 20)
    assert ((samples.mean(0) - mean).abs() < 5 * (variance / 300).sqrt()).all()
    assert torch.equal(samples, fitted().sample(points(20), 300, random_state=3))
    assert not torch.equal(samples[:10], fitted().sample(points(20), 10))


def test_shards_are_the_model_of_all_rows():
    model = ClusterSpaceGP(kernel(), sharded())
    values, expected = model.fit(), fitted().values
    assert [values.outputscale, values.noise, values.mean] == pytest.approx(
        [expected.outputscale, expected.noise, expected.mean], rel=1e-4
    )
    for one, other in zip(model.predict(points(20)), fitted().predict(points(20))):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=0)
    assert model.fit() == values
    with settings.num_variance_samples(5):
        assert torch.equal(model.effects().root, copy.deepcopy(model).effects().root)


def test_what_is_refused():
    rows = fitted().rows
    x, y = problem()
    with pytest.raises(ValueError, match="a MondrianKernel, whose clusters depend on the rows"):
        ClusterSpaceGP(MondrianKernel(x, 5, random_state=0), rows)
    with pytest.raises(TypeError, match="got a RBFKernel"):
        local_rows(__import__("gpytorch").kernels.RBFKernel(), x, y)
    with pytest.raises(TypeError, match="see local_rows"):
        ClusterSpaceGP(kernel(), x)
    with pytest.raises(ValueError, match="coded by this kernel"):
        ClusterSpaceGP(kernel("forest"), rows)
    with pytest.raises(ValueError, match="expected one row or more, got rows of none"):
        ClusterSpaceGP(kernel(), local_rows(kernel(), x[:0], y[:0]))
    with pytest.raises(ValueError, match="one target, got 2"):
        ClusterSpaceGP(kernel(), LocalRows(rows.incidence, torch.stack([y, y], -1)))
    with pytest.raises(ValueError, match="finite targets"):
        ClusterSpaceGP(kernel(), LocalRows(rows.incidence, (y / 0).unsqueeze(-1)))
    with pytest.raises(ValueError, match="finite targets"):
        local_rows(kernel(), x, y / 0)
    with pytest.raises(RuntimeError, match="call fit"):
        ClusterSpaceGP(kernel(), rows).predict(x)
    with pytest.raises(ValueError, match="num_probes=0"):
        ClusterSpaceGP(kernel(), rows).fit(num_probes=0)
    with pytest.raises(ValueError, match="use a FeatureSpaceGP"), settings.predictive_variances("feature_space"):
        fitted().predict(x)
    with pytest.raises(TypeError, match="points as a tensor"):
        fitted().means(x.numpy())


def test_partitions_that_have_changed_are_told():
    x, y = problem()
    own = FastClusterKernel(x, 20, height=4, random_state=0)
    model = ClusterSpaceGP(own, local_rows(own, x, y))
    model.fit()
    own.load_state_dict(FastClusterKernel(x + 0.01, 20, height=4, random_state=0).state_dict())
    with pytest.raises(RuntimeError, match="code them again"):
        model.means(points(5))


def test_what_is_told(monkeypatch):
    model = ClusterSpaceGP(kernel(), fitted().rows)
    with pytest.warns(ConvergenceWarning, match="at its lower bound"):
        model.fit(Bounds((0.0, 10.0), (2.0, 9.0)))
    monkeypatch.setattr(cluster_space, "CHECKPOINTS", (2, 3))
    with pytest.warns(ConvergenceWarning, match="after 3 Lanczos steps"):
        model.fit(num_probes=50)
