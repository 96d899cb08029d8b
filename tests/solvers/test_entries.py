"""The covariance of some entries of several targets, and its preconditioner: dense Kronecker algebra."""

from __future__ import annotations

import linear_operator
import pytest
import torch

from gpytorch_partition import MondrianKernel, settings
from gpytorch_partition.linalg.factors import nystrom_factor
from gpytorch_partition.linalg.random import solver_generator
from gpytorch_partition.models import CoregionalizedGP
from gpytorch_partition.operators.partition_linear_operator import PartitionLinearOperator
from gpytorch_partition.solvers.entries import EntriesPlusNoise
from gpytorch_partition.training.coregionalization import Coregionalization

GENERATOR = torch.Generator().manual_seed(0)
X = torch.rand(120, 2, generator=GENERATOR, dtype=torch.float64)
Y = torch.randn(120, 3, generator=GENERATOR, dtype=torch.float64)
Y[torch.rand(120, 3, generator=GENERATOR) < 0.4] = torch.nan
MIXING = torch.tensor([[1.0, 0.0], [-0.8, 0.5], [0.1, 0.9]], dtype=torch.float64)
B, NOISE = MIXING @ MIXING.mT, torch.tensor([0.1, 0.02, 0.4], dtype=torch.float64)  # B is singular
C = torch.tensor([[1.0, 0.8, 0.0], [0.8, 1.0, -0.4], [0.0, -0.4, 1.0]], dtype=torch.float64)  # of a row's errors
MODEL, TOGETHER = (
    CoregionalizedGP(
        X,
        Y,
        MondrianKernel(X, num_trees=30, random_state=0),
        Coregionalization(B, NOISE, torch.zeros(3, dtype=torch.float64), 0.0, correlations),
    )
    for correlations in (None, C)
)


@pytest.fixture(autouse=True)
def preconditioned():
    with linear_operator.settings.min_preconditioning_size(1):
        yield


def noisy():
    """The operator, and the matrix that it stands for."""
    rows, targets = (~Y.isnan()).nonzero(as_tuple=True)
    dense = torch.kron(MODEL.covar_module(X).to_dense(), B) + torch.kron(torch.eye(120).double(), NOISE.diag())
    numbers = rows * 3 + targets
    return MODEL._noisy, dense[numbers][:, numbers]


def white():
    """The operator of entries whose errors go together, whitened, and the matrix that it stands for."""
    _, dense = noisy()
    rows, targets = (~Y.isnan()).nonzero(as_tuple=True)
    errors = torch.kron(torch.eye(120).double(), (C - torch.eye(3)) * NOISE.sqrt() * NOISE.sqrt().unsqueeze(-1))
    numbers = rows * 3 + targets
    own = torch.kron(torch.eye(120), torch.ones(3, 3)).double()[numbers][:, numbers]
    errors = errors[numbers][:, numbers] + NOISE[targets].diag()
    root = torch.linalg.inv(torch.linalg.cholesky(errors * own))
    return TOGETHER._noisy, root @ (dense - NOISE[targets].diag() + errors) @ root.mT


def inverse(operator, rank):
    with settings.preconditioner_rank(rank):
        return operator.preconditioner_inverse()(torch.eye(operator.shape[-1], dtype=torch.float64))


def test_no_other_preconditioner_is_made_to_expect_iterations():
    operator = noisy()[0].restricted_to(torch.arange(50))
    assert operator.expected_iterations > 0
    assert operator._nystrom_preconditioner is None


@pytest.mark.parametrize("matrices", [noisy, white])
def test_with_every_direction_the_preconditioner_is_the_inverse(matrices):
    operator, dense = matrices()
    assert isinstance(operator, EntriesPlusNoise)
    torch.testing.assert_close(operator.to_dense(), dense)
    torch.testing.assert_close(inverse(operator, 120), torch.linalg.inv(dense), rtol=1e-6, atol=1e-6)


def test_with_few_it_is_that_of_a_factor_of_the_rows():
    operator, dense = noisy()
    found, entries = inverse(operator, 10), operator.entries
    generator = solver_generator(settings.probe_seed.value(), "sketch", torch.device("cpu"))
    gram = MODEL.covar_module(X).to_dense()
    factor = nystrom_factor(gram.matmul, gram.shape[:1], 10, generator, gram.dtype)
    rows = factor.root @ factor.root.mT + factor.shift * torch.eye(120).double()
    numbers = entries.rows * 3 + entries.tasks
    both = (torch.kron(rows, B) + torch.kron(torch.eye(120).double(), NOISE.diag()))[numbers][:, numbers]
    torch.testing.assert_close(found, torch.linalg.inv(both), rtol=1e-8, atol=1e-8)
    values = torch.linalg.eigvals(found @ dense).real
    assert values.max() / values.min() < 0.2 * torch.linalg.cond(dense)


@pytest.mark.parametrize("matrices", [noisy, white])
def test_its_factor_is_that_of_the_matrix_by_the_dense_covariance_of_rows(matrices, monkeypatch):
    (operator, dense), sizes, to_dense = matrices(), [], PartitionLinearOperator.to_dense

    def watched(self):
        sizes.append(self.size(-1))
        return to_dense(self)

    monkeypatch.setattr(PartitionLinearOperator, "to_dense", watched)
    columns = torch.ones(len(dense), 1, dtype=torch.float64)
    solver = operator.in_double.direct  # codes are small integers, which other solvers take for another dtype
    torch.testing.assert_close(solver.solve(columns), torch.linalg.solve(dense, columns))
    assert sizes == [120]  # that of all entries takes T products with as many columns


@pytest.mark.parametrize("matrices", [noisy, white])
def test_some_entries_in_another_order(matrices):
    operator, dense = matrices()
    order = torch.randperm(len(dense), generator=torch.Generator().manual_seed(1))[:100]
    some, matrix = operator.restricted_to(order), dense[order][:, order]
    torch.testing.assert_close(some.to_dense(), matrix)
    torch.testing.assert_close(inverse(some, 120), torch.linalg.inv(matrix), rtol=1e-6, atol=1e-6)
