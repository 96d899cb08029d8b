"""Shares of columns: they sum to the parts', are scikit-learn's for a single tree, and closed forms for lines."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from gpytorch.kernels import Kernel, LinearKernel, RBFKernel, ScaleKernel
from sklearn.inspection import permutation_importance
from sklearn.tree import DecisionTreeRegressor

from gpytorch_partition import PartitionMixtureKernel, RandomForestKernel
from gpytorch_partition.estimators import PartitionGPRegressor
from gpytorch_partition.explain.importance import column_shares
from gpytorch_partition.explain.kernel_parts import KernelExpansion, kernel_parts
from gpytorch_partition.models import PartitionGP
from tests.explain.explained import X, Y, fitted, forest, mondrian_and_clusters, total

TABLE = {"a": X[:, 0], "size": np.where(X[:, 1] > 0, "s", "l")}

HEIGHTS = ("all", "sampled", "leaf", "learned", "impurity")


@pytest.mark.parametrize("kernel", ["forest", "auto", "averaged", total, mondrian_and_clusters])
def test_columns_share_what_parts_explain(kernel):
    model = fitted(kernel)
    found, parts = model.importance(), model.summary().parts
    np.testing.assert_allclose(found.by_part.sum(1), [part.explained for part in parts], atol=1e-5)
    np.testing.assert_allclose(found.by_structure.sum(), 1, atol=1e-5)
    if kernel != mondrian_and_clusters:  # which have not seen that targets know nothing of it
        assert found.order()[-1] == 2


@pytest.mark.parametrize("heights", HEIGHTS)
def test_trees_of_all_kinds_sum_to_one(heights):
    model = PartitionGPRegressor(forest(heights)).fit(X, Y)
    shares = column_shares(KernelExpansion.of_model(model.model_))
    np.testing.assert_allclose(shares.sum(), 1, atol=1e-6)
    assert shares[0, 2] < 0.1


def tree_kernel(x, y):
    tree = DecisionTreeRegressor(max_leaf_nodes=12, random_state=0).fit(x.numpy(), y.numpy())
    return RandomForestKernel.from_forest(tree, "leaf")


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_single_tree_without_noise_has_the_decrease_of_impurity():
    model = PartitionGPRegressor(tree_kernel).fit(X, Y)
    with torch.no_grad():  # so that leaves predict the means of their rows
        model.model_.covar_module.outputscale = 1e6
        model.model_.mean_module.constant.fill_(0)
    model.model_.train().eval()  # forgets its predictions
    tree = DecisionTreeRegressor(max_leaf_nodes=12, random_state=0).fit(X, Y)
    np.testing.assert_allclose(
        column_shares(KernelExpansion.of_model(model.model_))[0], tree.feature_importances_, atol=1e-4
    )


def line(x, y):
    return LinearKernel()


def test_lines_share_by_their_weights():
    model = PartitionGPRegressor(line).fit(X, Y)
    standard = (X - X.mean(0)) / X.std(0)
    prediction = model.predict(X)
    weights = np.linalg.lstsq(standard, prediction - prediction.mean(), rcond=None)[0]
    expected = [np.cov(weights[d] * standard[:, d], prediction, ddof=0)[0, 1] for d in range(3)] / prediction.var()
    np.testing.assert_allclose(column_shares(KernelExpansion.of_model(model.model_))[0], expected, atol=1e-5)


def rbf(x, y):
    kernel = RBFKernel(ard_num_dims=3)
    kernel.lengthscale = torch.tensor([1.0, 2.0, 1000.0])
    return kernel.requires_grad_(False)


def test_scaled_parts_of_some_columns_are_those_of_dense_matrices():
    """A ScaleKernel has the columns of the kernel inside, and calls it without selecting them again."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(60, 4, generator=generator, dtype=torch.float64)
    first, second = ScaleKernel(LinearKernel(active_dims=(2, 3))), ScaleKernel(RBFKernel(active_dims=(3, 1)))
    kernel = (first + second).double()
    weights = torch.randn(60, generator=generator, dtype=torch.float64)
    (means,) = KernelExpansion(kernel, x, weights.unsqueeze(-1)).part_means(x)
    dense = [each(x).to_dense() @ weights for each in (first, second)]
    torch.testing.assert_close(means, torch.stack(dense).detach())
    line = KernelExpansion(first, x, weights.unsqueeze(-1))
    alone = (x[:, [2, 3]] * (x[:, [2, 3]].T @ weights)) * first.outputscale * first.base_kernel.variance
    total = alone.sum(1) - alone.sum(1).mean()
    expected = (alone.T @ total / (total @ total)).squeeze(-1).detach()
    np.testing.assert_allclose(column_shares(line)[0], [0, 0, *expected], atol=1e-12)


def test_smooth_parts_share_by_lengthscales():
    """Of an RBF kernel and Gaussian rows, E[1 - k] = 1 - (1 + 2 / l^2)^(-1/2) for column by column."""
    rows = np.random.RandomState(1).randn(300, 3)
    model = PartitionGPRegressor(rbf).fit(rows, rows[:, 0])
    lost = 1 - (1 + 2 / np.array([1.0, 2.0, 1000.0]) ** 2) ** -0.5
    np.testing.assert_allclose(column_shares(KernelExpansion.of_model(model.model_))[0], lost / lost.sum(), atol=0.05)


def mixture(x, y):
    return PartitionMixtureKernel([forest("all")(x, y), forest("leaf")(x, y)], learn_weights=False)


def test_kernels_of_mixtures_are_looked_into():
    model = PartitionGPRegressor(mixture).fit(X, Y)
    shares = column_shares(KernelExpansion.of_model(model.model_))
    np.testing.assert_allclose(shares.sum(), 1, atol=1e-6)
    assert shares.shape == (1, 3)


def test_permutations_are_scikit_learns():
    model = fitted()
    found = model.importance(X, Y, n_repeats=2, random_state=3)
    expected = permutation_importance(model, X, Y, n_repeats=2, random_state=3)
    np.testing.assert_array_equal(found.permutation, expected.importances_mean)
    assert str(found).splitlines()[0].endswith("fall of R squared")
    with pytest.raises(ValueError, match="or neither"):
        model.importance(X)
    with pytest.raises(ValueError, match="expected a number of repeats, 1 or more, got n_repeats=0"):
        model.importance(X, Y, n_repeats=0)


def test_a_function_that_does_not_vary_has_no_shares():
    model = PartitionGPRegressor("mondrian", num_partitions=5, random_state=0).fit(X, np.full(120, 3.0))
    assert (np.abs(model.importance().by_structure) <= 1).all()


class SecondColumnOnly(Kernel):
    """A kernel of a view of the points, as tables have it."""

    def __init__(self):
        super().__init__()
        self.base_kernel, self.view = LinearKernel(), lambda x: x[..., 1:2]

    def forward(self, x1, x2, diag=False, **params):
        return self.base_kernel(self.view(x1), self.view(x2), diag=diag, **params)


def viewed(x, y):
    return SecondColumnOnly()


def test_views_are_looked_through():
    model = PartitionGPRegressor(viewed).fit(X, Y)
    np.testing.assert_allclose(model.importance().by_structure, [0, 1, 0], atol=1e-6)
    assert model.summary().parts[0].name == "LinearKernel"
    model.encoder_ = SimpleNamespace(sources_=[0, 0, 2])
    np.testing.assert_allclose(model.importance().by_structure, [1, 0, 0], atol=1e-6)


def test_rows_of_lists_and_of_mappings_are_permuted():
    rows = list(zip(TABLE["a"].tolist(), TABLE["size"].tolist()))
    model = PartitionGPRegressor("forest", num_partitions=5, random_state=0).fit(rows, Y)
    found = model.importance(rows, Y, n_repeats=2).permutation
    np.testing.assert_array_equal(found, model.importance(np.array(rows, dtype=object), Y, n_repeats=2).permutation)
    frame = pd.DataFrame(TABLE).assign(day=pd.date_range("2024-01-01", periods=len(Y), tz="UTC"))
    model.fit(frame, Y)
    expected = model.importance(frame, Y, n_repeats=2).permutation
    for columns in ({name: frame[name].to_list() for name in frame}, {name: frame[name] for name in frame}):
        found = model.importance(dict(reversed(columns.items())), Y, n_repeats=2).permutation
        np.testing.assert_allclose(found, expected)


def table_of(num_rows):
    random = np.random.RandomState(2)
    size, rooms = random.rand(num_rows), random.randint(1, 6, num_rows).astype(float)
    side, shop = random.randint(3, size=num_rows), random.randint(20, size=num_rows)
    target = 5 * size + 2 * (side == 1) + shop / 20 + 0.1 * random.randn(num_rows)
    rooms[::7] = np.nan
    table = {"size": size, "side": np.array(list("abc"))[side], "rooms": rooms, "shop": shop.astype(str)}
    return table, target


def test_lines_of_a_table_share_by_their_weights():
    """What one-hot columns and means of targets explain is their category's (closed form, by least squares)."""
    table, target = table_of(150)
    model = PartitionGPRegressor(line).fit(table, target)
    (part,) = kernel_parts(model.kernel_)
    seen = part.points(model.model_.train_inputs[0]).numpy()
    assert seen.shape[1] == 1 + 3 + 1 + 1
    with torch.no_grad():  # of the training rows, whose means of targets are those of other folds
        prediction = model.model_(model.model_.train_inputs[0]).mean.numpy()
    weights = np.linalg.lstsq(np.c_[seen, np.ones(150)], prediction, rcond=None)[0][:-1]
    terms = seen * weights @ np.eye(4)[[0, 1, 1, 1, 2, 3]]
    expected = (terms - terms.mean(0)).T @ (prediction - prediction.mean()) / len(terms) / prediction.var()
    np.testing.assert_allclose(model.importance().by_structure, expected, atol=1e-5)


@pytest.mark.parametrize("heights", ["leaf", "all"])
def test_trees_on_a_view_of_a_table_share_by_their_splits(heights):
    """The shares of a model on the columns of the view itself, with the same trees, are added by category."""
    table, target = table_of(150)
    model = PartitionGPRegressor(forest(heights)).fit(table, target)
    x, kernel = model.model_.train_inputs[0], model.model_.covar_module
    seen = kernel.base_kernel.view(x)
    on_view = PartitionGP(seen, model.model_.train_targets, model.likelihood_, kernel.base_kernel.base_kernel).eval()
    on_view.covar_module.outputscale, on_view.mean_module = kernel.outputscale, model.model_.mean_module
    expected = column_shares(KernelExpansion.of_model(on_view))[0] @ np.eye(4)[[0, 1, 1, 1, 2, 3]]
    np.testing.assert_allclose(model.importance().by_structure, expected, atol=1e-6)
    assert expected[0] > 0.5 > expected[2] + 0.4
