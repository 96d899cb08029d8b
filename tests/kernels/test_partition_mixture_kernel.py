"""Mixtures against weighted sums of their kernels' dense matrices."""

from __future__ import annotations

import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel

from gpytorch_partition import (
    FastClusterKernel,
    MondrianKernel,
    PartitionKernel,
    PartitionMixtureKernel,
    RandomForestKernel,
    encode_missing,
)
from gpytorch_partition.operators import PartitionLinearOperator

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(80, 4, generator=GENERATOR)
Y = X[:, 0].sin() + X[:, 1].abs()
NEW = 2 * torch.randn(30, 4, generator=GENERATOR)


def floors(x):
    return x.floor().long()


def parts():
    """Trees of every kind, clusters, cells and a function."""
    return [
        RandomForestKernel(X, Y, 5, "learned", random_state=0),
        PartitionKernel(floors, active_dims=(3,)),
        FastClusterKernel(X, 6, active_dims=(2, 0), random_state=0),
        RandomForestKernel(X, Y, 4, "impurity", random_state=1),
        MondrianKernel(X, 7, random_state=0),
        RandomForestKernel(X, Y, 3, "sampled", random_state=2),
    ]


def flat_parts():
    return [parts()[place] for place in (1, 2, 4, 5)]


def bounded_parts():
    return [parts()[place] for place in (0, 2, 3, 5)]


def by_hand(mixture, x1, x2):
    weights = mixture.mixture_weights.detach()
    dense = [kernel(x1, x2).to_dense().detach().double() for kernel in mixture.kernels]
    return sum(weight * part for weight, part in zip(weights, dense, strict=True)).to(x1)


@pytest.fixture(params=[parts, flat_parts, bounded_parts])
def mixture(request):
    kernels = request.param()
    return PartitionMixtureKernel(kernels, weights=range(1, len(kernels) + 1))


@pytest.mark.parametrize(("x1", "x2"), [(X, X), (NEW, X), (X, NEW), (NEW, NEW)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_weighted_sum(mixture, x1, x2, dtype):
    x1, x2 = x1.to(dtype), x2.to(dtype)
    operator, expected = mixture.to(dtype)(x1, x2).evaluate_kernel(), by_hand(mixture, x1, x2)
    assert isinstance(operator, PartitionLinearOperator)
    rhs = torch.randn(len(x2), 2, dtype=dtype)
    tolerance = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {}
    torch.testing.assert_close(operator.to_dense().detach(), expected, **tolerance)
    torch.testing.assert_close((operator @ rhs).detach(), expected @ rhs, **tolerance)
    torch.testing.assert_close(operator[2:7, 1:5].to_dense().detach(), expected[2:7, 1:5], **tolerance)
    pairs = torch.arange(20)
    found = mixture(x1[:20], x2[:20], diag=True).detach()
    torch.testing.assert_close(found, expected[pairs, pairs], **tolerance)


def test_weights_are_equal_at_first_and_can_be_set():
    mixture = PartitionMixtureKernel(parts())
    torch.testing.assert_close(mixture.mixture_weights.detach(), torch.full((6,), 1 / 6, dtype=torch.float64))
    mixture.initialize(mixture_weights=torch.tensor([1.0, 1.0, 1.0, 1.0, 1.0, 5.0]))
    torch.testing.assert_close(mixture.mixture_weights[-1].detach(), torch.tensor(0.5, dtype=torch.float64))


def test_labels_of_all_kernels_side_by_side(mixture):
    expected = torch.cat([kernel.cluster_ids(NEW) for kernel in mixture.kernels], -1)
    assert torch.equal(mixture.cluster_ids(NEW), expected)
    assert mixture.num_partitions == expected.shape[-1] == sum(kernel.num_partitions for kernel in mixture.kernels)


def test_training_rows_are_coded_once_and_only_here(mixture):
    rows = mixture(X).evaluate_kernel().left
    assert mixture(X).evaluate_kernel().left is rows
    assert mixture(NEW, X).evaluate_kernel().right is rows
    assert not any(kernel.partition._cached_rows for kernel in mixture.kernels)


def test_mixtures_of_mixtures():
    inner = PartitionMixtureKernel(parts(), [1, 2, 3, 4, 5, 6])
    outer = PartitionMixtureKernel([inner, PartitionMixtureKernel(flat_parts()), parts()[0]], [2, 1, 1])
    for x1, x2 in ((X, X), (NEW, X), (NEW, NEW)):
        torch.testing.assert_close(outer(x1, x2).to_dense().detach(), by_hand(outer, x1, x2), rtol=1e-5, atol=1e-5)
    names = [name for name, parameter in outer.named_parameters() if parameter.requires_grad]
    (outer(X).to_dense() * torch.randn(80, 80)).sum().backward()
    gradients = [parameter.grad for name, parameter in outer.named_parameters() if name in names]
    assert len(names) == 5
    assert all(gradient is not None and bool(gradient.abs().max() > 0) for gradient in gradients)


def unfitted():
    """Of other heights than the kernels whose state they take over."""
    return [
        RandomForestKernel(),
        PartitionKernel(floors),
        FastClusterKernel(),
        RandomForestKernel(heights="sampled"),
        MondrianKernel(),
        RandomForestKernel(heights="learned"),
    ]


def test_weights_of_other_kernels_are_refused():
    """Of three kernels' weights two would be taken, which do not sum to 1."""
    few, many = (PartitionMixtureKernel([FastClusterKernel() for _ in range(number)]) for number in (2, 3))
    with pytest.raises(RuntimeError, match="expected the state of a mixture of 2 kernels"):
        few.load_state_dict(many.state_dict(), strict=False)


def test_loading_forgets_the_old_labels():
    mixture, other = PartitionMixtureKernel(parts()), PartitionMixtureKernel(parts()[:-1] + [unfitted()[0]])
    mixture(X).to_dense()
    other.kernels[-1].load_state_dict(RandomForestKernel(X, -Y, 3, "leaf", random_state=9).state_dict())
    mixture.load_state_dict(other.state_dict())
    assert torch.equal(mixture(X).to_dense(), other(X).to_dense())
    mixture.kernels[0].load_state_dict(RandomForestKernel(X, -Y, 9, "all", random_state=7).state_dict())
    torch.testing.assert_close(mixture(X).to_dense().detach(), by_hand(mixture, X, X), rtol=1e-5, atol=1e-5)


def test_missing_values_where_all_kernels_take_them():
    x = X.clone()
    x[::3, 1] = torch.nan
    forest = RandomForestKernel(x, Y, 5, random_state=0)
    clusters = FastClusterKernel(X, 6, active_dims=(2, 0), random_state=0)
    mixture = PartitionMixtureKernel([forest, clusters])
    torch.testing.assert_close(mixture(x).to_dense().detach(), by_hand(mixture, x, x))
    torch.testing.assert_close(mixture(encode_missing(x)).to_dense(), mixture(x).to_dense())
    with pytest.raises(ValueError, match="FastClusterPartition"):
        PartitionMixtureKernel([forest, FastClusterKernel(X, 6, random_state=0)])(x)


class TestErrors:
    def test_no_kernels(self):
        with pytest.raises(ValueError, match="at least one kernel"):
            PartitionMixtureKernel([])

    @pytest.mark.parametrize("kernel", [RBFKernel(), ScaleKernel(parts()[1])])
    def test_other_kernels(self, kernel):
        with pytest.raises(TypeError, match=f"expected partition kernels, got a {type(kernel).__name__}"):
            PartitionMixtureKernel([parts()[0], kernel])

    def test_batches_of_the_parts(self):
        with pytest.raises(ValueError, match="give it to the mixture"):
            PartitionMixtureKernel([FastClusterKernel(X, 3, random_state=0, batch_shape=(2,))])

    @pytest.mark.parametrize("weights", [[1.0], [1.0, 0.0], [1.0, -1.0], [1.0, float("inf")]])
    def test_weights(self, weights):
        with pytest.raises(ValueError, match="expected 2 positive weights"):
            PartitionMixtureKernel(parts()[:2], weights)

    def test_columns(self):
        with pytest.raises(ValueError, match="4 columns, got points with 3"):
            PartitionMixtureKernel(parts()[:1])(X[:, :3])


def test_a_kernel_is_no_list_of_kernels():
    with pytest.raises(TypeError, match="list of partition kernels"):
        PartitionMixtureKernel(FastClusterKernel(X, 5, random_state=0))
