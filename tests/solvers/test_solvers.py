"""Every solver, on every covariance and noise that it applies to, against dense algebra in float64."""

from __future__ import annotations

import pytest
import torch
from linear_operator import settings as linear_settings

from gpytorch_partition import settings
from gpytorch_partition.operators import FlatLinearOperator, PartitionLinearOperator
from gpytorch_partition.operators.tasks import on_every_task
from gpytorch_partition.solvers import choose_solver, direct
from gpytorch_partition.solvers.direct import direct_solver
from gpytorch_partition.solvers.factorizations import FewClusters, IndependentTasks, few_clusters
from gpytorch_partition.solvers.iterative_solvers import ConjugateGradients, InDouble
from gpytorch_partition.solvers.noisy_clusters import noisy_clusters
from gpytorch_partition.solvers.solver import Dense, Factorized
from tests.operators.operator_zoo import low_rank, mixture, rows, task_covariance

N = 60
GENERATOR = torch.Generator().manual_seed(0)
LOADINGS = torch.randn(N, 3, generator=GENERATOR, dtype=torch.float64)
RHS = torch.randn(N, 2, generator=GENERATOR, dtype=torch.float64)


def flat(counts=(4, 6, 3), num_rows=N, is_trained=False):
    incidence = rows(1, (num_rows,), counts, singletons=False)
    weights = torch.rand(sum(counts), generator=torch.Generator().manual_seed(3), dtype=torch.float64) + 0.2
    inner = FlatLinearOperator(weights.requires_grad_(is_trained), num_clusters=sum(counts))
    return PartitionLinearOperator(torch.tensor(1.5).double(), inner, left=incidence, right=incidence)


def trees():
    operator, codes = mixture(torch.tensor([0.5, 0.2, 0.8]))
    every = codes.select(torch.arange(N) % 5)
    return PartitionLinearOperator(torch.tensor(1.5).double(), operator.detach().double(), left=every, right=every)


COVARIANCES = {
    "flat": flat,
    "trained": lambda: flat(is_trained=True),
    "trees": trees,
    "loadings": lambda: flat((2, 3)).with_loadings(LOADINGS, LOADINGS),
    "sum": lambda: flat() + low_rank(torch.tensor(10.0).double(), LOADINGS),
    "with a dense term": lambda: flat() + torch.exp(-(torch.cdist(LOADINGS, LOADINGS) ** 2)),
    "tasks": lambda: on_every_task(flat(num_rows=N // 2), task_covariance().detach().double()),
}
NOISES = {
    "constant": torch.tensor([0.1]).double(),
    "of each row": torch.linspace(0.1, 0.3, N).double(),
    "small": torch.tensor([1e-3]).double(),
}


def factor(noisy, most_rows):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(direct, "MOST_ROWS", most_rows)
        patch.setattr(direct, "_ENTRY_ROWS", 7)
        patch.setattr(direct, "KEPT_ROWS", 5)
        found = direct_solver(noisy._linear_op, noisy._diag_tensor._diagonal())
    assert found is None or (found.roots is None) == (most_rows == N)
    return found and Factorized(noisy, found)


def of_clusters(noisy):
    found = few_clusters(noisy._linear_op, noisy._diag_tensor)
    return found and Factorized(noisy, found)


def of_tasks(noisy):
    return noisy.independent_tasks and Factorized(noisy, noisy.independent_tasks)


def of_span(noisy):
    found = noisy_clusters(noisy)
    return found and Factorized(noisy, found[0])


UNIFORM, ROOTS = {"constant", "small"}, {*COVARIANCES} - {"with a dense term"}
# Each solver, the covariances and the noises that it applies to, and whether its log determinant has gradients.
SOLVERS = {
    "few clusters": (of_clusters, {"trained"}, UNIFORM, True),
    "noisy clusters": (of_span, {"flat", "trained", "trees"}, UNIFORM, True),
    "independent tasks": (of_tasks, {"tasks"}, UNIFORM, True),
    "a factor of A": (lambda noisy: factor(noisy, N), set(COVARIANCES), set(NOISES), False),
    "a factor of a root": (lambda noisy: factor(noisy, N - 1), ROOTS, set(NOISES), False),
    "dense": (Dense, set(COVARIANCES), set(NOISES), True),
    "in double": (InDouble, set(COVARIANCES), set(NOISES), True),
    "preconditioned iterations": (ConjugateGradients, set(COVARIANCES), set(NOISES), True),
    "plain iterations": (ConjugateGradients, set(COVARIANCES), set(NOISES), True),
}


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("covariance", COVARIANCES)
@pytest.mark.parametrize("name", SOLVERS)
def test_solves_and_log_determinants(name, covariance, noise):
    make, covariances, noises, has_gradients = SOLVERS[name]
    level, scale = NOISES[noise].clone().requires_grad_(True), torch.tensor(1.3).double().requires_grad_(True)
    noisy = (COVARIANCES[covariance]() * scale).add_diagonal(level)
    is_iterative = "iterations" in name
    with (
        linear_settings.max_cholesky_size(30 if is_iterative or name == "independent tasks" else 800),
        linear_settings.cg_tolerance(1e-10),
        linear_settings.num_trace_samples(300),
        linear_settings.min_preconditioning_size(10**6 if name == "plain iterations" else 10),
        settings.preconditioner_rank(30),
    ):
        solver = make(noisy)
        if covariance not in covariances or noise not in noises:
            assert solver is None
            return
        solution = solver.solve(RHS).detach()
        form, determinant = solver.inv_quad_logdet(RHS, True, True)
    matrix = COVARIANCES[covariance]().to_dense() * scale + level.expand(N).diag()
    torch.testing.assert_close(solution, torch.linalg.solve(matrix, RHS).detach(), rtol=1e-5, atol=1e-6)
    expected = (RHS * torch.linalg.solve(matrix, RHS)).sum(), torch.logdet(matrix)
    torch.testing.assert_close(form, expected[0], rtol=1e-5, atol=0)
    spread = {"plain iterations": 6.0, "preconditioned iterations": 1.5}.get(name, 1e-7)  # of 300 probe vectors
    torch.testing.assert_close(determinant, expected[1], rtol=1e-7, atol=spread)
    for found, true in ((form, expected[0]), (determinant, expected[1])):
        if found is form or has_gradients:
            gradients = [torch.autograd.grad(value, (level, scale), retain_graph=True) for value in (found, true)]
            tolerance = 0.2 if is_iterative and found is determinant else 1e-4
            assert all((ours - theirs).norm() <= tolerance * theirs.norm() + 1e-6 for ours, theirs in zip(*gradients))


def chosen(covariance, noise, task, **options):
    solver = choose_solver(COVARIANCES[covariance]().to(**options).add_diagonal(NOISES[noise].to(**options)), task)
    return type(solver.parts) if isinstance(solver, Factorized) else type(solver)


def test_the_choice_for_few_rows():
    for task in ("likelihood", "determinant", "form", "prediction"):
        assert chosen("sum", "small", task) is Dense
        assert chosen("sum", "small", task, dtype=torch.float32) is InDouble
    assert chosen("trained", "constant", "likelihood") is FewClusters
    assert chosen("trained", "constant", "determinant") is Dense
    assert chosen("tasks", "constant", "likelihood") is Dense


def test_the_choice_for_many_rows(monkeypatch):
    with linear_settings.max_cholesky_size(30):
        assert chosen("trained", "constant", "likelihood") is FewClusters
        for task in ("solve", "likelihood"):
            assert chosen("tasks", "constant", task) is IndependentTasks
        for task in ("solve", "likelihood", "determinant", "form", "prediction"):
            assert chosen("flat", "constant", task) is ConjugateGradients
        assert chosen("tasks", "constant", "prediction") is ConjugateGradients
        noisy = flat().add_diagonal(torch.tensor(1e-7).double())  # thousands of iterations
        assert isinstance(choose_solver(noisy, "solve"), InDouble)
        assert isinstance(choose_solver(noisy, "form"), ConjugateGradients)
        monkeypatch.setattr(direct, "MOST_ROWS", 5)
        assert isinstance(choose_solver(noisy, "solve"), ConjugateGradients)  # a root has a factor where they fail
        monkeypatch.setattr(direct, "MOST_COLUMNS", 5)
        noisy = flat().add_diagonal(torch.tensor(1e-7).double())
        assert isinstance(choose_solver(noisy, "prediction"), InDouble)
        assert isinstance(choose_solver(noisy, "likelihood"), ConjugateGradients)


def test_dense_algebra_may_be_asked_for_whatever_the_size():
    noisy = flat().add_diagonal(NOISES["constant"])
    with linear_settings.max_cholesky_size(30):
        assert isinstance(choose_solver(noisy, "prediction", is_dense=True), Dense)
        with linear_settings.fast_computations(log_prob=False), settings.preconditioner("none"):
            assert isinstance(choose_solver(noisy, "likelihood"), Dense)
