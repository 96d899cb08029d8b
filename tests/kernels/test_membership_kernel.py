"""Common memberships against dense tables of ones and zeros."""

from __future__ import annotations

import gpytorch
import numpy as np
import pytest
import torch
from gpytorch.kernels import MultitaskKernel, RBFKernel
from scipy.sparse import coo_array, csr_array

from gpytorch_partition import MembershipKernel, PartitionKernel, PartitionMixtureKernel
from gpytorch_partition.models import ClusterFeatures
from gpytorch_partition.operators import PartitionLinearOperator

ITEMS, SETS = 400, 90


def table(num_items=ITEMS, num_sets=SETS, seed=0):
    """Items by sets, of very different sizes; item 0 is in none and set 1 has all others."""
    random = np.random.RandomState(seed)
    dense = random.rand(num_items, num_sets) < random.beta(0.4, 3.0, num_sets)
    dense[:, 1], dense[0] = True, False
    return dense.astype(float)


TABLE = table()
WEIGHTS = np.random.RandomState(1).rand(SETS)


def oracle(members_only, weights=None, dense=TABLE):
    weights = np.ones(dense.shape[1]) if weights is None else weights
    weights = weights / weights.sum()
    common = (dense * weights) @ dense.T
    if not members_only:
        return torch.from_numpy(common + ((1 - dense) * weights) @ (1 - dense).T)
    strengths = common.diagonal()
    with np.errstate(divide="ignore", invalid="ignore"):
        return torch.from_numpy(np.nan_to_num(common / np.sqrt(np.outer(strengths, strengths))))


def rows(num_rows, seed=0, num_items=ITEMS):
    """Some of the items, repeatedly."""
    return torch.from_numpy(np.random.RandomState(seed).randint(num_items, size=(num_rows, 1))).double()


@pytest.mark.parametrize("members_only", [False, True])
@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_common_memberships(members_only, weights, dtype):
    kernel = MembershipKernel(coo_array(TABLE), members_only=members_only, set_weights=weights).to(dtype)
    expected = oracle(members_only, weights).to(dtype)
    tolerance = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {}
    for x1, x2 in ((rows(70), rows(70)), (rows(30, 1), rows(70)), (rows(70), rows(30, 1))):
        i, j = x1.long().squeeze(-1), x2.long().squeeze(-1)
        operator = kernel(x1.to(dtype), x2.to(dtype)).evaluate_kernel()
        assert isinstance(operator, PartitionLinearOperator)
        values = torch.randn(len(j), 3, dtype=dtype)
        torch.testing.assert_close(operator.to_dense(), expected[i][:, j], **tolerance)
        torch.testing.assert_close(operator @ values, expected[i][:, j] @ values, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(operator[3:9, 2:5].to_dense(), expected[i][:, j][3:9, 2:5], **tolerance)
        pairs = torch.arange(20)
        found = kernel(x1[:20].to(dtype), x2[:20].to(dtype), diag=True)
        torch.testing.assert_close(found, expected[i[pairs], j[pairs]], **tolerance)
    root = kernel(x1.to(dtype)).evaluate_kernel().sparse_root()
    torch.testing.assert_close(root.to_dense() @ root.to_dense().mT, expected[i][:, i], rtol=1e-4, atol=1e-5)


def observed(num_rows, members_only):
    """Targets drawn from the model."""
    x, random = rows(num_rows, 2), np.random.RandomState(3)
    items = x.long().squeeze(-1)
    covariance = 4 * oracle(members_only)[items][:, items].numpy()
    f = np.linalg.cholesky(covariance + 1e-8 * np.eye(num_rows)) @ random.randn(num_rows)
    return x, torch.from_numpy(f + 0.3 * random.randn(num_rows)), items


@pytest.mark.parametrize("limit", [800, 10])
def test_in_sums_mixtures_and_tasks(limit):
    """By dense algebra and by iterations."""
    x, y, items = observed(120, False)
    other = PartitionKernel(lambda x: (x / 50).long())
    inner, matrix = MembershipKernel(TABLE), oracle(False)[items][:, items]
    groups = (items[:, None] // 50 == items // 50).double()
    mixed = PartitionMixtureKernel([inner, other], weights=(3.0, 1.0), learn_weights=False)
    cases = {
        inner + other: matrix + groups,
        mixed: 0.75 * matrix + 0.25 * groups,
        RBFKernel() + inner: RBFKernel()(x).to_dense().detach() + matrix,
    }
    with gpytorch.settings.max_cholesky_size(limit), torch.no_grad():
        for kernel, expected in cases.items():
            noisy = kernel.double()(x).add_jitter(0.3)
            solution = torch.linalg.solve(expected + 0.3 * torch.eye(120), y)
            torch.testing.assert_close(noisy.solve(y.unsqueeze(-1)).squeeze(-1), solution, rtol=1e-3, atol=1e-3)
        tasks = MultitaskKernel(inner, num_tasks=2).double()
        expected = torch.kron(matrix, tasks.task_covar_module.covar_matrix.to_dense())
        torch.testing.assert_close(tasks(x) @ torch.eye(240).double(), expected)


@pytest.mark.parametrize("members_only", [False, True])
@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_sparse_features_are_a_root(members_only, weights):
    kernel = MembershipKernel(TABLE, members_only=members_only, set_weights=weights).double()
    x, new = rows(70), rows(30, 1)
    i, j = x.long().squeeze(-1), new.long().squeeze(-1)
    features = ClusterFeatures(kernel, x)
    expected = oracle(members_only, weights).numpy()
    np.testing.assert_allclose((features(x) @ features(x).T).toarray(), expected[i][:, i], atol=1e-12)
    np.testing.assert_allclose((features(new) @ features(x).T).toarray(), expected[j][:, i], atol=1e-12)
    assert features(x).nnz == (TABLE[i].sum() if members_only else 70 * SETS)
    names = features.names()
    assert len(set(names)) == len(names) == features(new).shape[1]


def test_dense_features_of_many_sets_are_refused_before_they_are_made():
    many = csr_array((np.ones(1), ([0], [0])), shape=(60_000, 60_000))
    x = torch.arange(60_000.0).unsqueeze(-1)
    with pytest.raises(ValueError, match=r"fewer than 2\^31 entries.*members_only=True"):
        ClusterFeatures(MembershipKernel(many), x)


def test_the_matrix_that_was_given_stays_as_it_is():
    unsorted = csr_array((np.ones(3), np.array([2, 0, 1]), np.array([0, 2, 3])), shape=(2, 3))
    MembershipKernel(unsorted)
    assert unsorted.indices.tolist() == [2, 0, 1]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MembershipKernel("films"), "expected a matrix of items by sets, a sparse one.*got str"),
        (lambda: MembershipKernel(csr_array((4, 3))), "expected items that are in sets, got none"),
        (lambda: MembershipKernel(np.array([[1.0, np.nan]])), "finite numbers"),
        (lambda: MembershipKernel(np.ones((2, 2, 2))), "items by sets"),
        (lambda: MembershipKernel(TABLE, set_weights=[1.0]), f"expected {SETS} weights of sets"),
        (lambda: MembershipKernel(TABLE, set_weights=-WEIGHTS), "0 or more"),
        (lambda: MembershipKernel(TABLE, set_weights=["rare"] * SETS), f"expected {SETS} weights of sets"),
        (lambda: MembershipKernel(TABLE, set_weights=[None] * SETS), f"expected {SETS} weights of sets"),
        (lambda: MembershipKernel(TABLE)(torch.tensor([[0.5]])), "0 to 399, got 0.5"),
        (lambda: MembershipKernel(TABLE)(torch.tensor([[400.0]])), "0 to 399, got 400"),
        (lambda: MembershipKernel(TABLE)(torch.tensor([[torch.nan]])), "NaN or infinity"),
        (lambda: MembershipKernel(TABLE)(torch.zeros(3, 2)), "built on 1 columns"),
        (lambda: MembershipKernel(np.ones((2100, 1)))(torch.zeros(3, 1).half()), "tells 2,100 items apart.*float64"),
    ],
)
def test_clear_errors(make, message):
    with pytest.raises(ValueError, match=message):
        make().evaluate_kernel()
