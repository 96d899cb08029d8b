"""Feature-space models of kernels with weights of levels, trees and mixtures, against dense algebra."""

from __future__ import annotations

import pytest
import torch
from sklearn.ensemble import AdaBoostRegressor
from sklearn.tree import DecisionTreeRegressor

from gpytorch_partition import FastClusterKernel, MondrianKernel, PartitionMixtureKernel, RandomForestKernel
from gpytorch_partition.models import FeatureSpaceGP

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(150, 3, generator=GENERATOR, dtype=torch.float64)
Y = X[:, 0].sin() + X[:, 1].abs() + 0.3 * torch.randn(150, generator=GENERATOR, dtype=torch.float64)
NEW = 2 * torch.randn(25, 3, generator=GENERATOR, dtype=torch.float64)


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
    "learned": lambda: forest("learned"),
    "impurity": lambda: forest("impurity"),
    "learned of weighted trees": lambda: boosting("learned"),
    "leaf of weighted trees": lambda: boosting("leaf"),
    "mixture": mixture,
    "mixture of mixtures": lambda: PartitionMixtureKernel([mixture(), forest("leaf")], [3, 1]).double(),
}


@pytest.mark.parametrize("name", KERNELS)
def test_evidence_and_predictions(name):
    kernel = KERNELS[name]()
    model = FeatureSpaceGP(kernel)
    model.add_chunks(zip(X.split(60), Y.split(60)))
    values = model.fit()
    covariance = values.outputscale * kernel(X).to_dense().detach() + values.noise * torch.eye(150)
    mean = torch.full((150,), values.mean, dtype=torch.float64)
    expected = torch.distributions.MultivariateNormal(mean, covariance).log_prob(Y).item()
    assert values.log_likelihood == pytest.approx(expected, rel=1e-8)
    cross = values.outputscale * kernel(NEW, X).to_dense().detach()
    prior = values.outputscale * kernel(NEW).to_dense().detach()
    found, variance = model.predict(NEW)
    torch.testing.assert_close(found, values.mean + cross @ torch.linalg.solve(covariance, Y - mean))
    posterior = prior - cross @ torch.linalg.solve(covariance, cross.mT)
    torch.testing.assert_close(variance, posterior.diagonal(), rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(model.covariance(NEW), posterior, rtol=1e-6, atol=1e-8)


def test_shards_are_of_one_mixture():
    kernel, parts = mixture(), []
    for rows in (slice(0, 80), slice(80, 150)):
        parts.append(FeatureSpaceGP(kernel))
        parts[-1].add_rows(X[rows], Y[rows])
    whole = FeatureSpaceGP(kernel)
    whole.add_rows(X, Y)
    assert (parts[0] + parts[1]).fit().log_likelihood == pytest.approx(whole.fit().log_likelihood, rel=1e-10)
    other = mixture()
    other.kernels[1].load_state_dict(FastClusterKernel(X, 6, height=4, active_dims=(2, 0), random_state=5).state_dict())
    with pytest.raises(ValueError, match="other partitions"):
        parts[0] + FeatureSpaceGP(other)


def test_mixtures_with_unbounded_labels_are_refused():
    with pytest.raises(ValueError, match="numbers of clusters are known"):
        FeatureSpaceGP(PartitionMixtureKernel([forest(), MondrianKernel(X, 5, random_state=0)]))


@pytest.mark.parametrize("kernel", [forest("learned"), forest("impurity"), mixture()])
def test_level_weights_are_for_kernels_of_all_heights(kernel):
    model = FeatureSpaceGP(kernel)
    model.add_rows(X, Y)
    with pytest.raises(ValueError, match="heights='all'"):
        model.fit_level_weights()


def test_level_weights_are_for_trees_that_weigh_the_same():
    model = FeatureSpaceGP(boosting())
    model.add_rows(X, Y)
    with pytest.raises(ValueError, match="trees that weigh the same"):
        model.fit_level_weights()
