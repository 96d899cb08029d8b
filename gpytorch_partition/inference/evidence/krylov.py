"""Lanczos approximation of the quadratic forms and traces of the marginal likelihood, from one run."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from linear_operator.operators import LinearOperator
from torch import Tensor

from gpytorch_partition.inference.evidence.spectral_likelihood import SpectralMeasure, with_level
from gpytorch_partition.linalg.lanczos import LanczosRun
from gpytorch_partition.linalg.random import solver_generator

# Lanczos steps after which a measure is returned, at the cost of an eigendecomposition per probe.
CHECKPOINTS = (20, 30, 40, 55, 75, 100, 130, 165, 200, 250, 300)

# The error of the log determinant is about sqrt(N / probes) nats: this many probes leave 1e-3 nats per datum at most.
_ROWS_TIMES_PROBES = 200_000
_FEWEST_PROBES = 2
_MOST_PROBES = 100
BIAS_PROBES = 10  # of these, the ones that measure how far quadratures have converged


def default_num_probes(num_rows: int) -> int:
    r"""
    Return the number of probe vectors for a number of rows: fewer for more rows, from 100 down to 2.

    At a noise of a tenth of the outputscale the standard error of the log marginal likelihood is then about 1e-3 nats
    per datum up to 100,000 rows. It falls as :math:`0.3 / \sqrt N` from there on (3e-4 at 1,000,000). At a noise of a
    ten-thousandth it is three times as large.
    """
    return min(_MOST_PROBES, max(_FEWEST_PROBES, -(-_ROWS_TIMES_PROBES // num_rows)))


def krylov_measures(
    covariance: LinearOperator, targets: Tensor, num_probes: int, seed: int, level: Tensor | None = None
) -> Iterator[SpectralMeasure]:
    r"""
    Yield measures of increasing accuracy from one Lanczos run, after 20, 30, 40, ... and at most 300 steps.

    Each step is one product with `t + 1 + num_probes` columns. About `64 + 4 (t + 1 + num_probes)` numbers per row are
    held, in float64 for any dtype of the covariance: rounding moves eigenvalues by about the largest one times the unit
    roundoff, and the largest grows with N. In float32 that is about 2e-3 at 100,000 rows, and a fit there ended at a
    noise of 2e-5 outputscales, with a standard error of .26 nats per datum.

    :param covariance: `N x N` K, of unit scale.
    :param targets: `N x t` targets.
    :param num_probes: Number of probe vectors for the traces.
    :param seed: Seed of the probe vectors.
    :param level: `N` effects of a mean of 1 on the targets. (Default: ones.)
    """
    num_rows, covariance = targets.shape[0], covariance.to(dtype=torch.float64)
    generator = solver_generator(seed, "probes", covariance.device)
    probes = torch.randn(num_rows, num_probes, generator=generator, dtype=covariance.dtype, device=covariance.device)
    run = LanczosRun(covariance._matmul, with_level(targets, level), probes, generator)
    for num_steps in CHECKPOINTS:
        run.extend(num_steps - run.num_steps)
        yield _measure(run, num_rows)


def _measure(run: LanczosRun, num_rows: int) -> SpectralMeasure:
    nodes, coefficients = run.block_quadrature()
    trace_nodes, trace_weights = run.probe_quadratures()
    lower_nodes, lower_weights = run.lower_probe_quadratures(BIAS_PROBES)
    lower_form_nodes, lower_form_coefficients = run.lower_block_quadrature()
    # Rounding can push the smallest eigenvalues of a positive semidefinite matrix just below zero.
    return SpectralMeasure(
        nodes.cpu().numpy(),
        coefficients.cpu().numpy(),
        trace_nodes.clamp_min(0).cpu().numpy(),
        num_rows * trace_weights.cpu().numpy(),
        num_rows,
        len(trace_nodes),
        lower_nodes.cpu().numpy(),
        num_rows * lower_weights.cpu().numpy(),
        lower_form_nodes.cpu().numpy(),
        lower_form_coefficients.cpu().numpy(),
    )
