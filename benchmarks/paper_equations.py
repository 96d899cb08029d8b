"""The preconditioner (Davies & Ghahramani 2014, section 3.3, equations 9 and 10)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product

import numpy as np
import torch
from gpytorch.kernels import Kernel
from linear_operator.operators import ConstantDiagLinearOperator
from torch import Tensor

from gpytorch_partition import FastClusterKernel, RandomForestKernel

from .paper_methods import CLUSTERS
from .preconditioners import RESIDUALS, Problem, interleaved, solve
from .predictors import paper_forest
from .problems import friedman, read
from .report import Cost, Options, Row, Table

NUM_PARTITIONS = 100


def equation_9(options: Options) -> Iterator[Table]:
    """Iterations and seconds of a solve with the paper's preconditioner over those without one."""
    num_rows, repetitions = options.pick(8_000, 2_000, 300), options.pick(3, 1, 1)
    x, y = friedman(num_rows) if options.data is None else read(options.data, "kin40k", num_rows)
    rows: list[Row] = []
    for (name, kernel), noise in product(_kernels(x, y).items(), options.pick([0.1, 0.01], [0.1], [0.1])):
        covariance = kernel(x).evaluate_kernel().detach()
        diagonal = ConstantDiagLinearOperator(torch.tensor([noise]), diag_shape=len(y))
        problem = Problem(name, covariance, diagonal, y.unsqueeze(-1))
        covariance._matmul(y)  # sorts the rows by cluster, which both need
        rows += _compared(problem, repetitions)
    source = "Friedman's function" if options.data is None else "kin40k"
    title = f"Equation 9: its preconditioner on {source}, {NUM_PARTITIONS} partitions, one right-hand side"
    yield Table("paper_equation_9", f"{title}. {_finding(rows)}", rows)


def _kernels(x: Tensor, y: Tensor) -> dict[str, Kernel]:
    forest = paper_forest(x, y, num_trees=NUM_PARTITIONS)
    leaves = RandomForestKernel(x, y, NUM_PARTITIONS, heights="leaf", random_state=0)
    clusters = FastClusterKernel(x, NUM_PARTITIONS, random_state=0)
    return {"random forest, as printed": forest, "random forest, ours, leaves": leaves, CLUSTERS: clusters}


def _compared(problem: Problem, repetitions: int) -> Iterator[Row]:
    names = {"none": "none", "equation 9": "partition", "Nystrom": "nystrom"}
    solves = interleaved({name: partial(solve, problem, own) for name, own in names.items()}, repetitions)
    for residual in RESIDUALS:
        costs: dict[str, Cost] = {name: found[residual] for name, found in solves.items() if residual in found}
        if {"none", "equation 9"} <= costs.keys():
            plain, paper = costs["none"], costs["equation 9"]
            shares = {"iterations, share": paper.iterations / max(plain.iterations, 1)}
            yield (
                problem.labels
                | {"residual": residual}
                | costs
                | shares
                | {"seconds, share": paper.seconds / plain.seconds}
            )


def _finding(rows: list[Row]) -> str:
    iterations, seconds = ([row[f"{what}, share"] for row in rows] for what in ("iterations", "seconds"))
    pays = sum(share < 1 for share in seconds)
    return (
        "The paper's finding, a small overhead greatly reduces iterations in most cases: iterations are "
        f"{min(iterations):.2f} to {max(iterations):.2f} of those without it (median {np.median(iterations):.2f}), but "
        f"each costs two products, so that it saves time in {pays} of {len(seconds)} cases: seconds are "
        f"{min(seconds):.2f} to {max(seconds):.2f} times those without it."
    )


def equation_10(options: Options) -> Iterator[Table]:
    """The inverse of a partition's matrix plus noise, as printed and corrected, against a dense inverse."""
    num_rows, num_partitions = options.pick(300, 300, 40), options.pick(20, 20, 3)
    random = np.random.default_rng(0)
    labels = random.integers(8, size=(num_partitions, num_rows))
    same = (labels[:, :, None] == labels[:, None, :]).astype(float)
    rows = [{"sigma": sigma} | inverses(same, sigma) for sigma in (0.1, 0.5, 1.0, 3.0)]
    title = (
        f"Equation 10 on {num_rows} rows in 8 random clusters, and equation 9 made of it ({num_partitions} partitions)"
    )
    finding = (
        "As printed it is the inverse for sigma = 1 only, and eq. 9 made of it is not positive definite for larger "
        "sigma: the second term lacks the factor 1 / sigma."
    )
    yield Table("paper_equation_10", f"{title}. {finding}", rows)


def inverses(same: np.ndarray, sigma: float) -> Row:
    """Largest errors of one partition's inverse, and the least eigenvalue of the mean over partitions."""
    identity, sizes = np.eye(same.shape[1]), same.sum(-1, keepdims=True)
    printed = identity / sigma - same / (sizes + sigma)
    corrected = (identity - same / (sizes + sigma)) / sigma
    exact = np.linalg.inv(same[0] + sigma * identity)
    return {
        "largest error as printed": float(np.abs(printed[0] - exact).max()),
        "with 1 / sigma": float(np.abs(corrected[0] - exact).max()),
        "least eigenvalue of eq. 9 as printed": float(np.linalg.eigvalsh(printed.mean(0))[0]),
        "least eigenvalue, with 1 / sigma": float(np.linalg.eigvalsh(corrected.mean(0))[0]),
    }
