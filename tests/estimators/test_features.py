"""Features of estimators: scikit-learn's checks, products against kernels, linear models against kernel machines."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline

from gpytorch_partition import FastClusterKernel
from gpytorch_partition.estimators import PartitionFeatures
from gpytorch_partition.inputs.standardization import Standardization

RANDOM = np.random.RandomState(0)
X = RANDOM.randn(150, 3) * [1.0, 20.0, 0.01] + [5.0, 0.0, 1.0]
Y = np.sin(X[:, 0]) + 0.1 * X[:, 1]
NEW = X[:20] + 0.1 * RANDOM.randn(20, 3) * X.std(0)


def gram(machine, x1, x2):
    columns = Standardization.of_array(X)
    return machine.kernel_(columns.apply_array(x1), columns.apply_array(x2)).to_dense().detach().numpy()


@pytest.mark.parametrize("kernel", ["forest", "fast_cluster", "mondrian"])
def test_products_are_the_kernel_of_standardized_rows(kernel):
    machine = PartitionFeatures(kernel, 20, random_state=0)
    train = machine.fit_transform(X, Y)
    new = machine.transform(NEW)
    assert train.format == "csr"
    assert train.shape == (150, machine.n_columns_)
    assert len(set(machine.get_feature_names_out())) == machine.n_columns_
    np.testing.assert_allclose((train @ train.T).toarray(), gram(machine, X, X), atol=1e-12)
    np.testing.assert_allclose((new @ train.T).toarray(), gram(machine, NEW, X), atol=1e-12)


@pytest.mark.filterwarnings("ignore:.*Standardize the columns")
def test_a_built_kernel_sees_rows_as_they_are():
    kernel = FastClusterKernel(torch.from_numpy(X), 20, random_state=0)
    features = PartitionFeatures(kernel).fit_transform(X)
    np.testing.assert_allclose((features @ features.T).toarray(), kernel(torch.from_numpy(X)).to_dense(), atol=1e-12)


def test_a_linear_model_on_them_is_a_kernel_machine():
    machine = make_pipeline(PartitionFeatures("forest", 20, random_state=0), Ridge(0.5, fit_intercept=False, tol=1e-12))
    kernel = machine.fit(X, Y)[0]
    exact = KernelRidge(alpha=0.5, kernel="precomputed").fit(gram(kernel, X, X), Y)
    np.testing.assert_allclose(machine.predict(NEW), exact.predict(gram(kernel, NEW, X)), atol=1e-6)
