"""Weights of levels and trees, trained or from impurities, against sums over the nodes of scikit-learn's trees."""

from __future__ import annotations

import copy
import pickle

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
from gpytorch_partition.kernels.random_forest_kernel import _IMPURITY_FLOOR

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(150, 3, generator=GENERATOR)
Y = X[:, 0].sin() + X[:, 1].abs()
NEW = torch.randn(20, 3, generator=GENERATOR)
FOREST = RandomForestRegressor(6, min_samples_leaf=5, random_state=0).fit(X.numpy(), Y.numpy())
TREES = torch.tensor([0.5, 2.0, 1.0, 0.25, 1.25, 1.0], dtype=torch.float64)


def kernel_of(heights, **options):
    kernel = RandomForestKernel.from_forest(FOREST, heights, random_state=0, **options).double()
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


@pytest.mark.parametrize("learn_tree_weights", [False, True])
def test_learned_levels(learn_tree_weights):
    kernel = kernel_of("learned", learn_tree_weights=learn_tree_weights)
    heights = {tree.get_depth() for tree in FOREST.estimators_}
    assert len(heights) > 1
    assert kernel.level_weights.shape == (max(heights) + 1,)
    assert float(kernel.level_weights.detach().max() / kernel.level_weights.detach().min()) > 3
    expected = similarity(FOREST, by_levels(kernel.level_weights.detach()), kernel.tree_weights.detach(), X, NEW)
    torch.testing.assert_close(kernel(X.double(), NEW.double()).to_dense().detach(), expected)
    torch.testing.assert_close(kernel(X.double(), diag=True).detach(), torch.ones(150, dtype=torch.float64))


def test_levels_are_uniform_at_first():
    learned, average = (RandomForestKernel.from_forest(FOREST, heights).double() for heights in ("learned", "all"))
    torch.testing.assert_close(learned(X).to_dense().detach(), average(X).to_dense())


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


@pytest.mark.parametrize("heights", ["all", "leaf", "sampled", "learned", "impurity"])
def test_tree_weights(heights):
    kernel = RandomForestKernel.from_forest(FOREST, heights, learn_tree_weights=True, random_state=0).double()
    kernel.tree_weights = 3 * TREES
    torch.testing.assert_close(kernel.tree_weights.detach(), TREES)
    fixed = [RandomForestKernel.from_forest(FOREST, heights, random_state=0).double() for _ in TREES]
    expected = torch.zeros(150, 150, dtype=torch.float64)
    for number, (each, weight) in enumerate(zip(fixed, TREES / TREES.sum())):
        tree_weights = torch.zeros_like(TREES)
        tree_weights[number] = len(TREES)
        forest = each._forest
        forest.tree_weights = tree_weights.view(torch.int64)  # this tree alone
        expected += weight * each(X.double()).to_dense().detach()
    torch.testing.assert_close(kernel(X.double()).to_dense().detach(), expected)


def test_trees_begin_with_the_ensembles_weights_and_zero_is_little():
    boosting = AdaBoostRegressor(DecisionTreeRegressor(max_depth=3), n_estimators=5, random_state=0)
    boosting.fit(X.numpy(), Y.numpy())
    fixed = RandomForestKernel.from_forest(boosting)
    learned = RandomForestKernel.from_forest(boosting, learn_tree_weights=True)
    torch.testing.assert_close(learned.tree_weights.detach(), fixed.tree_weights, rtol=1e-6, atol=1e-6)
    assert float(fixed.tree_weights.max() - fixed.tree_weights.min()) > 0.1
    boosting.estimator_weights_[1] = 0.0
    assert RandomForestKernel.from_forest(boosting).tree_weights[1] == 0
    weight = RandomForestKernel.from_forest(boosting, learn_tree_weights=True).tree_weights[1].item()
    assert 0 < weight < 0.002


@pytest.mark.parametrize("heights", ["all", "leaf", "sampled", "learned", "impurity"])
def test_gradients_of_entries(heights):
    kernel = kernel_of(heights, learn_tree_weights=True)
    names = list(dict(kernel.logits.named_parameters()))
    weights = torch.randn(12, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x, rows = X[:12].double(), torch.arange(12)

    def entries(*values):
        operator = kernel(x).evaluate_kernel()
        one_by_one = operator._get_indices(rows[:, None], rows)
        return torch.stack(
            [(weights * operator.to_dense()).sum(), (weights * one_by_one).sum(), operator.diagonal()[3]]
        )

    for name in names:
        parameter = kernel.logits.get(name)

        def moved(value, name=name, parameter=parameter):
            kernel.logits._parameters[name] = value
            result = entries()
            kernel.logits._parameters[name] = parameter
            return result

        assert torch.autograd.gradcheck(moved, parameter.detach().clone().requires_grad_())


@pytest.mark.parametrize("heights", ["all", "leaf", "sampled", "learned", "impurity"])
@pytest.mark.parametrize("learn_tree_weights", [False, True])
def test_state(heights, learn_tree_weights):
    kernel = kernel_of(heights, learn_tree_weights=learn_tree_weights).float()
    expected = kernel(X, NEW).to_dense()
    twins = [
        RandomForestKernel(),
        RandomForestKernel(heights="sampled", learn_tree_weights=True),
        RandomForestKernel(heights="learned", learn_tree_weights=not learn_tree_weights),
        RandomForestKernel(X, Y, 3, "learned", learn_tree_weights=True, random_state=5),
    ]
    for twin in twins:
        twin.load_state_dict(kernel.state_dict())
        assert twin.heights == heights
        assert torch.equal(twin(X, NEW).to_dense(), expected)
        assert [name for name, _ in twin.named_parameters()] == [name for name, _ in kernel.named_parameters()]
    for duplicate in (copy.deepcopy(kernel), pickle.loads(pickle.dumps(kernel))):
        assert torch.equal(duplicate(X, NEW).to_dense(), expected)
        with torch.no_grad():
            for parameter in duplicate.logits.parameters():
                parameter += torch.arange(len(parameter))
        assert torch.equal(kernel(X, NEW).to_dense(), expected)


def test_a_loaded_parameter_remains_the_same_object():
    kernel = RandomForestKernel(X, Y, 3, "learned", random_state=0)
    parameter = kernel.raw_level_weights
    kernel.load_state_dict(kernel_of("learned").float().state_dict())
    assert kernel.raw_level_weights is parameter


@pytest.mark.parametrize("heights", ["learned", "leaf"])
def test_batch_elements_share_weights(heights):
    kernel = ScaleKernel(kernel_of(heights, learn_tree_weights=True, batch_shape=(2,)), batch_shape=torch.Size([2]))
    kernel = kernel.double()
    kernel.outputscale = torch.tensor([1.0, 3.0])
    single = kernel_of(heights, learn_tree_weights=True)(X.double()).to_dense()
    torch.testing.assert_close(kernel(X.double()).to_dense(), torch.stack([single, 3 * single]))
    torch.testing.assert_close(kernel[1](X.double()).to_dense(), 3 * single)
    torch.testing.assert_close(kernel.expand_batch(3, 2)(X.double()).to_dense()[2, 1], 3 * single)
    kernel(X.double()).evaluate_kernel()[1].to_dense().sum().backward()  # GPyTorch's own index copies the kernel
    batched = [parameter.grad for parameter in kernel.base_kernel.logits.parameters()]
    alone = kernel_of(heights, learn_tree_weights=True)
    (3 * alone(X.double()).to_dense().sum()).backward()
    for gradient, parameter in zip(batched, alone.logits.parameters()):
        torch.testing.assert_close(gradient, parameter.grad)


def test_priors_and_initialize_reach_the_weights():
    kernel = RandomForestKernel(X, Y, 3, "learned", learn_tree_weights=True, random_state=0)
    kernel.register_prior("tree_prior", NormalPrior(1.0, 0.5), "tree_weights")
    ((_, module, prior, closure, _),) = kernel.named_priors()
    torch.testing.assert_close(closure(module).detach(), torch.ones(3, dtype=torch.float64))
    kernel.initialize(tree_weights=torch.tensor([1.0, 2.0, 3.0]))
    torch.testing.assert_close(kernel.tree_weights.detach(), torch.tensor([0.5, 1.0, 1.5], dtype=torch.float64))


class TestErrors:
    def test_an_ensemble_without_impurities(self):
        boosting = HistGradientBoostingRegressor(max_iter=3).fit(X.numpy(), Y.numpy())
        with pytest.raises(ValueError, match='HistGradientBoostingRegressor does not: use "all"'):
            RandomForestKernel.from_forest(boosting, "impurity")

    @pytest.mark.parametrize("weights", [[1.0, 2.0], [1.0, 0.0, 1.0], [1.0, float("nan"), 1.0], [1.0, -1.0, 3.0]])
    def test_weights_that_are_none(self, weights):
        kernel = RandomForestKernel(X, Y, 3, learn_tree_weights=True, random_state=0)
        with pytest.raises(ValueError, match="expected 3 positive weights"):
            kernel.tree_weights = weights

    def test_weights_that_are_not_learned(self):
        kernel = RandomForestKernel(X, Y, 3, random_state=0)
        assert kernel.level_weights is None
        with pytest.raises(ValueError, match="a kernel that learns level_weights"):
            kernel.level_weights = [1.0]

    def test_unknown_heights(self):
        with pytest.raises(ValueError, match="'learned', 'impurity'"):
            RandomForestKernel(heights="best")
