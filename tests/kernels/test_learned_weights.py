"""Weights of levels, trained or from impurities, and of trees, against sums over the nodes of scikit-learn's trees."""

from __future__ import annotations

import pytest
import torch
from gpytorch.kernels import ScaleKernel
from gpytorch.priors import NormalPrior
from sklearn.ensemble import (
    AdaBoostRegressor,
    ExtraTreesClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.tree import DecisionTreeRegressor

from gpytorch_partition import RandomForestKernel
from gpytorch_partition.inputs.numbers import bits_of
from gpytorch_partition.kernels.random_forest_kernel import _IMPURITY_FLOOR, HEIGHTS

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(150, 3, generator=GENERATOR)
Y = X[:, 0].sin() + X[:, 1].abs()
NEW = torch.randn(20, 3, generator=GENERATOR)
FOREST = RandomForestRegressor(6, min_samples_leaf=5, random_state=0).fit(X.numpy(), Y.numpy())
TREES = torch.tensor([0.5, 2.0, 1.0, 0.25, 1.25, 1.0], dtype=torch.float64)


def kernel_of(heights, tree_weights=TREES, **options):
    """A kernel whose ensemble weighs its trees, with trained weights somewhere."""
    kernel = RandomForestKernel.from_forest(FOREST, heights, random_state=0, **options).double()
    kernel._forest.tree_weights = bits_of(tree_weights)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in kernel.logits.parameters():
            parameter += torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
    return kernel


def paths(tree, x):
    """Which nodes each row passes."""
    return torch.from_numpy(tree.decision_path(x.numpy()).toarray()).double()


def depths(tree):
    depth = [0] * tree.tree_.node_count
    for node in range(tree.tree_.node_count):
        for child in (tree.tree_.children_left[node], tree.tree_.children_right[node]):
            if child >= 0:
                depth[child] = depth[node] + 1
    return torch.tensor(depth)


def similarity(forest, node_weights, tree_weights, x1, x2):
    """Sums over the nodes that two points share."""
    trees = forest.estimators_.ravel() if hasattr(forest.estimators_, "ravel") else forest.estimators_
    parts = [
        weight * (paths(tree, x1) * node_weights(tree)) @ paths(tree, x2).mT
        for tree, weight in zip(trees, tree_weights / tree_weights.sum())
    ]
    return sum(parts)


def by_levels(level_weights):
    def node_weights(tree):
        depth, is_leaf = depths(tree), torch.from_numpy(tree.tree_.children_left < 0)
        own = level_weights[: int(depth.max()) + 1] / level_weights[: int(depth.max()) + 1].sum()
        tails = own.flip(0).cumsum(0).flip(0)
        return torch.where(is_leaf, tails[depth], own[depth])

    return node_weights


def by_impurity(tree):
    impurity, weights = torch.from_numpy(tree.tree_.impurity), torch.full((tree.tree_.node_count,), _IMPURITY_FLOOR)
    weights = weights.double()
    for node in range(tree.tree_.node_count):
        for child in (tree.tree_.children_left[node], tree.tree_.children_right[node]):
            if child >= 0:
                weights[child] += (impurity[node] - impurity[child]).clamp_min(0) / impurity[0]
    return weights


@pytest.mark.parametrize("tree_weights", [torch.ones_like(TREES), TREES])
def test_learned_levels(tree_weights):
    kernel = kernel_of("learned", tree_weights)
    heights = {tree.get_depth() for tree in FOREST.estimators_}
    assert len(heights) > 1
    assert kernel.level_weights.shape == (max(heights) + 1,)
    assert float(kernel.level_weights.detach().max() / kernel.level_weights.detach().min()) > 3
    expected = similarity(FOREST, by_levels(kernel.level_weights.detach()), tree_weights, X, NEW)
    torch.testing.assert_close(kernel(X.double(), NEW.double()).to_dense().detach(), expected)
    torch.testing.assert_close(kernel(X.double(), diag=True).detach(), torch.ones(150, dtype=torch.float64))


@pytest.mark.parametrize("name", ["forest", "boosting", "classes"])
def test_impurity(name):
    if name == "forest":
        forest = FOREST
    elif name == "boosting":
        forest = GradientBoostingRegressor(n_estimators=5, random_state=0).fit(X.numpy(), Y.numpy())
    else:
        forest = ExtraTreesClassifier(5, max_depth=4, random_state=0).fit(X.numpy(), (Y > 0.5).numpy())
    kernel = RandomForestKernel.from_forest(forest, "impurity").double()
    weights = torch.ones(kernel.num_partitions, dtype=torch.float64)
    expected = similarity(forest, by_impurity, weights, X, NEW)
    torch.testing.assert_close(kernel(X.double(), NEW.double()).to_dense(), expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(kernel(X.double(), diag=True), kernel(X.double()).to_dense().diagonal())
    assert bool((kernel(X, diag=True) < 1.2).all())


@pytest.mark.parametrize("heights", [*HEIGHTS, 2])
def test_tree_weights(heights):
    expected, one_tree = torch.zeros(150, 150, dtype=torch.float64), len(TREES) * torch.eye(len(TREES)).double()
    for weights, weight in zip(one_tree, TREES / TREES.sum()):
        expected += weight * kernel_of(heights, weights)(X.double()).to_dense().detach()
    torch.testing.assert_close(kernel_of(heights)(X.double()).to_dense().detach(), expected)


def test_trees_have_the_ensembles_weights():
    boosting = AdaBoostRegressor(DecisionTreeRegressor(max_depth=3), n_estimators=5, random_state=0)
    boosting.fit(X.numpy(), Y.numpy())
    weights = torch.from_numpy(boosting.estimator_weights_[: len(boosting.estimators_)])
    assert float(weights.max() - weights.min()) > 0.1
    found = RandomForestKernel.from_forest(boosting).tree_weights
    torch.testing.assert_close(found, weights / weights.mean())
    boosting.estimator_weights_[1] = 0.0
    assert RandomForestKernel.from_forest(boosting).tree_weights[1] == 0


def test_gradients_of_entries():
    kernel = kernel_of("learned")
    weights = torch.randn(12, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x, rows = X[:12].double(), torch.arange(12)

    def entries():
        operator = kernel(x).evaluate_kernel()
        one_by_one = operator._get_indices(rows[:, None], rows)
        return torch.stack(
            [(weights * operator.to_dense()).sum(), (weights * one_by_one).sum(), operator.diagonal()[3]]
        )

    parameter = kernel.raw_level_weights

    def moved(value):
        kernel.logits._parameters["raw_level_weights"] = value
        result = entries()
        kernel.logits._parameters["raw_level_weights"] = parameter
        return result

    assert torch.autograd.gradcheck(moved, parameter.detach().clone().requires_grad_())


@pytest.mark.parametrize("heights", [*HEIGHTS, 2])
def test_state(heights):
    kernel = kernel_of(heights).float()
    expected = kernel(X, NEW).to_dense()
    twins = [
        RandomForestKernel(),
        RandomForestKernel(heights="sampled"),
        RandomForestKernel(heights="learned"),
        RandomForestKernel(X, Y, 3, "learned", random_state=5),
    ]
    for twin in twins:
        twin.load_state_dict(kernel.state_dict())
        assert twin.heights == heights
        assert torch.equal(twin(X, NEW).to_dense(), expected)
        assert [name for name, _ in twin.named_parameters()] == [name for name, _ in kernel.named_parameters()]


def test_a_loaded_parameter_remains_the_same_object():
    kernel = RandomForestKernel(X, Y, 3, "learned", random_state=0)
    parameter = kernel.raw_level_weights
    kernel.load_state_dict(kernel_of("learned").float().state_dict())
    assert kernel.raw_level_weights is parameter


def test_batch_elements_share_weights():
    kernel = ScaleKernel(kernel_of("learned", batch_shape=(2,)), batch_shape=torch.Size([2]))
    kernel = kernel.double()
    kernel.outputscale = torch.tensor([1.0, 3.0])
    kernel(X.double()).evaluate_kernel()[1].to_dense().sum().backward()  # GPyTorch's own index copies the kernel
    batched = [parameter.grad for parameter in kernel.base_kernel.logits.parameters()]
    alone = kernel_of("learned")
    (3 * alone(X.double()).to_dense().sum()).backward()
    for gradient, parameter in zip(batched, alone.logits.parameters()):
        torch.testing.assert_close(gradient, parameter.grad)


def test_priors_and_initialize_reach_the_weights():
    kernel = RandomForestKernel(X, Y, 3, "learned", min_samples_leaf=20, max_samples=0.5, random_state=0)
    size = len(kernel.raw_level_weights)
    kernel.register_prior("level_prior", NormalPrior(1.0, 0.5), "level_weights")
    ((_, module, prior, closure, _),) = kernel.named_priors()
    torch.testing.assert_close(closure(module).detach(), torch.full((size,), 1 / size, dtype=torch.float64))
    kernel.initialize(level_weights=torch.arange(1.0, size + 1))
    expected = torch.arange(1, size + 1, dtype=torch.float64) / (size * (size + 1) / 2)
    torch.testing.assert_close(kernel.level_weights.detach(), expected)


class TestErrors:
    def test_an_ensemble_without_impurities(self):
        boosting = HistGradientBoostingRegressor(max_iter=3).fit(X.numpy(), Y.numpy())
        with pytest.raises(ValueError, match='HistGradientBoostingRegressor does not: use "all"'):
            RandomForestKernel.from_forest(boosting, "impurity")

    @pytest.mark.parametrize("weights", [[1.0, 2.0], [1.0, 0.0, 1.0], [1.0, float("nan"), 1.0], [1.0, -1.0, 3.0]])
    def test_weights_that_are_none(self, weights):
        kernel = RandomForestKernel.from_forest(DecisionTreeRegressor(max_depth=2).fit(X, Y), "learned")
        with pytest.raises(ValueError, match="expected 3 positive weights"):
            kernel.level_weights = weights

    def test_weights_that_are_not_learned(self):
        kernel = RandomForestKernel(X, Y, 3, random_state=0)
        assert kernel.level_weights is None
        with pytest.raises(ValueError, match="a kernel that learns level_weights"):
            kernel.level_weights = [1.0]
