"""The choice of a solver for a covariance plus noise."""

from __future__ import annotations

from typing import Literal

from linear_operator import settings
from linear_operator.operators import AddedDiagLinearOperator

from gpytorch_partition.solvers.factorizations import few_clusters
from gpytorch_partition.solvers.iterative_solvers import ConjugateGradients, InDouble, is_delicate, is_hard
from gpytorch_partition.solvers.solver import Dense, Factorized, Solver, has_few_rows

Task = Literal["solve", "likelihood", "determinant", "form", "prediction"]


def choose_solver(noisy: AddedDiagLinearOperator, task: Task, is_dense: bool | None = None) -> Solver:
    """
    Return the solver of a covariance plus noise for a task: the first of this table that applies.

    Call it to see how a model of yours will be solved. A `"likelihood"` is a quadratic form with a log determinant; a
    `"determinant"` or a `"form"` is one of them alone. A `"prediction"` stops its solves where a mean or a variance is
    accurate enough. A `"solve"` is any other, of many rows (few are solved by linear_operator).

    ==============================  ====================  ==============================================================
    solver                          tasks                 where
    ==============================  ====================  ==============================================================
    :class:`.FewClusters`           likelihood            flat partitions with trained weights have few clusters, and
                                                          all rows the same noise
    :class:`.InDouble`              all but solve         there are at most `max_cholesky_size` rows, in float32, and
                                                          the noise is below 1 % of the prior variance
    :class:`.Dense`                 all but solve         there are at most `max_cholesky_size` rows
    :class:`.IndependentTasks`      solve, likelihood     all points are on all tasks, with one noise at every point
    :class:`.InDouble`              all but form          conjugate gradients have failed, or are expected to take more
                                                          than 300 iterations where A has a factor (up to 10,000 rows)
    :class:`.InDouble`              solve, prediction     all is float64 already, and neither A nor a root has a factor
                                                          (6,000 columns at most): no other solver is left
    :class:`.ConjugateGradients`    all                   else; what does not converge is solved in float64
    ==============================  ====================  ==============================================================

    Two more are asked for by name: predictions take a :class:`.FeatureFactor` where it takes less time than solves
    (:mod:`.method_costs`), and divergences between distributions take :mod:`.noisy_clusters`.

    :param noisy: `*batch x N x N`.
    :param task: `"solve"`, `"likelihood"`, `"determinant"`, `"form"` or `"prediction"`.
    :param is_dense: Whether there are few rows. (Default: None, as `max_cholesky_size` says; for likelihoods also if
        linear_operator's `fast_computations` are off.)

    Example:
        >>> import torch
        >>> from gpytorch_partition import PartitionKernel
        >>> K = PartitionKernel(lambda x: x.floor().long())(torch.rand(5, 1)).evaluate_kernel()
        >>> type(choose_solver(K.add_diagonal(torch.tensor(0.1)), "prediction")).__name__
        'Dense'
    """
    if task == "likelihood" and (clusters := few_clusters(noisy._linear_op, noisy._diag_tensor)) is not None:
        return Factorized(noisy, clusters)
    if is_dense is None:
        is_dense = has_few_rows(noisy) or (task != "prediction" and settings.fast_computations.log_prob.off())
    if task != "solve" and is_dense:
        return InDouble(noisy) if is_delicate(noisy) else Dense(noisy)
    if task in ("solve", "likelihood") and (tasks := noisy.independent_tasks) is not None:
        return Factorized(noisy, tasks)
    is_last = task in ("solve", "prediction") and noisy.is_double and not noisy.has_direct
    in_double = task != "form" and (is_last or is_hard(noisy))
    return InDouble(noisy) if in_double else ConjugateGradients(noisy)
