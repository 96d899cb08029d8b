"""A kernel that a machine or a function is given stays as it is, dtype, values, gradients and mode, or is refused."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from sklearn.linear_model import SGDClassifier

from gpytorch_partition import (
    FastClusterKernel,
    GammaMondrianKernel,
    GroupKernel,
    MondrianKernel,
    fit_weights_by_cross_validation,
)
from gpytorch_partition.estimators import (
    PartitionFeatures,
    PartitionKernelPCA,
    PartitionSpectralClustering,
    PartitionSVC,
    PartitionSVR,
)
from gpytorch_partition.estimators.kernel_parameter import resolved_kernel
from gpytorch_partition.lifetimes import fit_along_lifetimes
from gpytorch_partition.models import (
    ClusterFeatures,
    cluster_features,
    kernel_distance,
    spectral_embedding,
    spectral_truncation,
)

X = torch.randint(4, (40, 2), generator=torch.Generator().manual_seed(0)).double()
NEW = X[:5] + 1
Y = X[:, 0].sin() + 0.1 * X[:, 1]
CLASSES = (Y - Y.median() > 0).long()
KERNELS = {
    "gamma": lambda: GammaMondrianKernel(X, 20, random_state=0),
    "groups": lambda: GroupKernel((0, 1), nested=True),
    "sum": lambda: ScaleKernel(GroupKernel((0,))) + ScaleKernel(FastClusterKernel(X, 20, random_state=0)),
}


def mondrian():
    return MondrianKernel(X, 20, max_lifetime=3.0, lifetime=1.0, random_state=0)


USES = {
    "kernel PCA": lambda kernel: PartitionKernelPCA(2, kernel, random_state=0).fit(X).transform(NEW),
    "SVC": lambda kernel: PartitionSVC(kernel=kernel, random_state=0).fit(X, CLASSES).predict(NEW),
    "SVR": lambda kernel: PartitionSVR(kernel=kernel, random_state=0).fit(X, Y).predict(NEW),
    "spectral clustering": lambda kernel: PartitionSpectralClustering(2, kernel, random_state=0).fit(X),
    "features": lambda kernel: PartitionFeatures(kernel, random_state=0).fit(X).transform(NEW),
    "distance": lambda kernel: kernel_distance(kernel, X, NEW),
    "truncation": lambda kernel: spectral_truncation(kernel, X, 3, random_state=0).features(NEW),
    "embedding": lambda kernel: spectral_embedding(kernel, X, 3, random_state=0),
    "sparse features": lambda kernel: (ClusterFeatures(kernel, X)(NEW), cluster_features(kernel, NEW, X)),
}
OF_MONDRIAN_KERNELS = {
    "path": lambda kernel: fit_along_lifetimes(
        kernel, SGDClassifier(), X, CLASSES, [0.5, 1.0], validation=(X, CLASSES)
    ),
    "diagnosis": lambda kernel: kernel.diagnose(X, Y),
}
LISTED = {**KERNELS, "smooth": lambda: ScaleKernel(RBFKernel())}


def prepared(kernel, dtype, is_training):
    """In its dtype and mode, with its first parameter frozen and gradients that were left over."""
    kernel = kernel.to(dtype).train(is_training)
    for number, parameter in enumerate(kernel.parameters()):
        parameter.requires_grad_(number > 0)
        parameter.grad = torch.ones_like(parameter)
    return kernel


def assert_same(kernel, before):
    new, old = (dict([*each.named_parameters(), *each.named_buffers()]) for each in (kernel, before))
    assert new.keys() == old.keys()
    for name, value in new.items():
        torch.testing.assert_close(value, old[name], rtol=0, atol=0, check_dtype=True, msg=name)
        assert value.requires_grad == old[name].requires_grad, name
        assert (value.grad is None) == (old[name].grad is None), name
        assert value.grad is None or torch.equal(value.grad, old[name].grad), name
    assert [module.training for module in kernel.modules()] == [module.training for module in before.modules()]
    assert [type(module) for module in kernel.modules()] == [type(module) for module in before.modules()]


def assert_unchanged(use, kernel):
    before = deepcopy(kernel)
    for parameter, copy in zip(kernel.parameters(), before.parameters()):
        copy.grad = parameter.grad.clone()
    use(kernel)
    assert_same(kernel, before)


@pytest.mark.parametrize(("dtype", "is_training"), [(torch.float32, True), (torch.float64, False)])
class TestAGivenKernel:
    @pytest.mark.parametrize("name", KERNELS)
    @pytest.mark.parametrize("use", USES)
    def test_of_machines_and_functions(self, use, name, dtype, is_training):
        assert_unchanged(USES[use], prepared(KERNELS[name](), dtype, is_training))

    @pytest.mark.parametrize("use", OF_MONDRIAN_KERNELS)
    def test_of_functions_of_mondrian_kernels(self, use, dtype, is_training):
        assert_unchanged(OF_MONDRIAN_KERNELS[use], prepared(mondrian(), dtype, is_training))

    @pytest.mark.parametrize("is_returned", [False, True], ids=["itself", "by a function"])
    @pytest.mark.parametrize("name", LISTED)
    def test_in_a_list_of_cross_validation(self, name, is_returned, dtype, is_training):
        def chosen(kernel):
            source = (lambda x, y: kernel) if is_returned else kernel
            found = fit_weights_by_cross_validation([source], X, Y, folds=2, random_state=0)
            assert {value.dtype for value in found.kernel.parameters()} == {X.dtype}
            with torch.no_grad():
                for parameter in found.kernel.parameters():  # as training would
                    parameter.add_(1.0)

        assert_unchanged(chosen, prepared(LISTED[name](), dtype, is_training))

    def test_of_a_sum_whose_weights_cross_validation_sets(self, dtype, is_training):
        kernel = prepared(KERNELS["sum"](), dtype, is_training)
        weights = [term.raw_outputscale for term in kernel.kernels]
        before = [weight.detach().clone() for weight in weights]

        def chosen(kernel):
            fit_weights_by_cross_validation(kernel, X, Y, folds=2, random_state=0)
            for weight, value in zip(weights, before):
                assert not torch.equal(weight.detach(), value)
                weight.data.copy_(value)

        assert_unchanged(chosen, kernel)


def test_rows_and_targets_stay_as_they_are():
    rows, targets = X.numpy().copy(), Y.numpy().copy()
    for use in USES.values():
        use(mondrian())
    np.testing.assert_array_equal(X.numpy(), rows)
    np.testing.assert_array_equal(Y.numpy(), targets)


CLUSTERS = FastClusterKernel(X, 10, random_state=0)


@pytest.mark.parametrize(
    ("kernel", "error", "message"),
    [
        ("rbf", ValueError, "got 'rbf'"),
        (3, ValueError, "got 3"),
        (None, ValueError, "got None"),
        ("forest", ValueError, r"call fit\(X, y\)"),
        (RBFKernel(), TypeError, "got a RBFKernel.*LandmarkKernel"),
        (ScaleKernel(CLUSTERS) + RBFKernel(), TypeError, "got a RBFKernel"),
        (CLUSTERS * RBFKernel(), TypeError, "got a PartitionProductKernel"),
        (lambda x, y: RBFKernel(), TypeError, "got a RBFKernel"),
        (lambda x, y: x, TypeError, "function to return a gpytorch Kernel, got Tensor"),
        (FastClusterKernel(X, 5, batch_shape=(2,)), ValueError, r"of batch shape \(2,\)"),
    ],
)
def test_what_machines_do_not_take_is_refused(kernel, error, message):
    with pytest.raises(error, match=message):
        resolved_kernel(kernel, X)
