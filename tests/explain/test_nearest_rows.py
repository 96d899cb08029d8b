"""Rows like new ones, against kernels counted by hand and all correlations sorted."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gpytorch_partition import FastClusterKernel
from gpytorch_partition.explain import kernel_parts as module
from gpytorch_partition.explain.kernel_parts import nearest_rows
from tests.explain.explained import NEW, X, dense, fitted, mondrian_and_clusters, total


@pytest.mark.parametrize("kernel", ["forest", "auto", total, mondrian_and_clusters])
def test_they_are_the_largest_correlations(kernel, monkeypatch):
    monkeypatch.setattr(module, "_ENTRIES", 500)  # some blocks
    model = fitted(kernel)
    rows, values = model.nearest_rows(NEW, k=7)
    own, others = (np.sqrt(np.diag(dense(model, points))) for points in (NEW, X))
    correlations = dense(model, NEW, X) / own[:, None] / others
    np.testing.assert_allclose(values, -np.sort(-correlations, 1)[:, :7], rtol=1e-4)
    np.testing.assert_allclose(np.take_along_axis(correlations, rows, 1), values, rtol=1e-4)


def test_values_are_shares_of_clusterings():
    x = torch.from_numpy((X - X.mean(0)) / X.std(0))
    kernel = FastClusterKernel(x, 30, random_state=0)
    labels = kernel.cluster_ids(x).numpy()
    shares = (labels[:4, None] == labels[None]).mean(-1)
    rows, values = nearest_rows(kernel, x[:4], x, 5)
    np.testing.assert_allclose(values, -np.sort(-shares, 1)[:, :5])
    expected = np.argsort(-shares, axis=1, kind="stable")[:, :5]
    np.testing.assert_array_equal(rows, expected)  # rows as near as each other in their order


def test_a_row_is_most_like_itself():
    rows, values = fitted("auto").nearest_rows(X[:9], k=1)
    np.testing.assert_array_equal(rows[:, 0], np.arange(9))
    np.testing.assert_allclose(values, 1, atol=1e-5)
    assert values.max() <= 1


@pytest.mark.parametrize(
    ("k", "message"), [(0, "1 or more"), (121, "k up to 120"), (1.5, "1 or more"), (True, "1 or more")]
)
def test_wrong_numbers_are_refused(k, message):
    with pytest.raises(ValueError, match=message):
        fitted().nearest_rows(NEW, k=k)
