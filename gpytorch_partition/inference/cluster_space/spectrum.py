r"""
The spectral measure of the marginal likelihood from Lanczos steps in cluster space.

The nonzero eigenvalues of :math:`K = \Phi \Phi^\top` (`N x N`) are those of :math:`M = \Phi^\top \Phi` (`q x q`), and
the Krylov space of M from :math:`\Phi^\top v` is that of K from v without v itself. After as many steps, quadratic
forms are the same numbers. Traces are better: K has at least N - q zeros among its eigenvalues, which probe vectors of
N numbers estimate, while those of q numbers leave them out. With q a twentieth of N, 4 probes leave a third of the
standard error. Every vector of the recurrences has q numbers. If q is at most the number of columns that the first
steps would multiply, M itself costs no more products, and everything is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from linear_operator.operators import LinearOperator
from torch import Tensor

from gpytorch_partition.inference.cluster_space.rows import Moments, Rows
from gpytorch_partition.inference.evidence.krylov import BIAS_PROBES, CHECKPOINTS, default_num_probes
from gpytorch_partition.inference.evidence.spectral_likelihood import SpectralMeasure
from gpytorch_partition.linalg.factors import stable_eigh
from gpytorch_partition.linalg.lanczos import LanczosRun
from gpytorch_partition.linalg.random import solver_generator
from gpytorch_partition.operators.cluster_operators.cluster_operator import ClusterOperator

_MOST_EXACT = 1_000  # features whose matrix M is decomposed: half a second of one core
_COLUMNS = 32  # of M that are multiplied at once
_ROUNDING = 1e-12  # of eigenvalues, over the largest: coefficients below belong to the eigenvalue 0


def space_product(rows: Rows, root: LinearOperator) -> Callable[[Tensor], Tensor]:
    r"""Return the function :math:`C \mapsto M C = F^\top Z^\top Z F C` (`q x t`), one product of the rows."""
    return lambda effects: root._t_matmul(rows.gram(root._matmul(effects)))


def space_root(cluster_operator: ClusterOperator) -> LinearOperator:
    """Return the root F (`p x q`) of S in float64."""
    return cluster_operator.detach().to(dtype=torch.float64).root()


def space_width(cluster_operator: ClusterOperator) -> int:
    """Return the length q of a vector in cluster space: clusters of flat partitions, nodes of trees."""
    return cluster_operator.root().shape[-1]


def space_measures(
    rows: Rows, cluster_operator: ClusterOperator, num_probes: int | None, seed: int
) -> Iterator[SpectralMeasure]:
    r"""
    Yield measures of increasing accuracy from one Lanczos run on M, after 20, 30, 40, ... and at most 300 steps.

    Without a given number of probe vectors, yield the exact measure for up to 1,000 features, if these are no more than
    the columns of 20 steps.

    Each step is one product of the rows with `t + 1 + num_probes` columns. About `64 + 4 (t + 1 + num_probes)` numbers
    are held for each of the q columns of F. Use it where q < N; above, N - q is negative, and probe vectors of rows are
    better. The exact measure takes :math:`O(q^3)`, holds `3 q` numbers for each column, and may have any N.

    :param rows: The rows and their targets.
    :param cluster_operator: `p x p` S, of unit scale.
    :param num_probes: Number of probe vectors for the traces. (None: as many as among rows, for a smaller error, or
        exact traces.)
    :param seed: Seed of the probe vectors.
    """
    root, moments = space_root(cluster_operator), rows.moments()
    num_features, device, is_free = root.shape[-1], moments.sums.device, num_probes is None
    num_probes = num_probes or default_num_probes(rows.num_rows)
    columns_of_lanczos = CHECKPOINTS[0] * (moments.sums.shape[1] + num_probes)
    if is_free and num_features <= min(_MOST_EXACT, columns_of_lanczos):
        yield _exact_measure(rows, root)
        return
    generator = solver_generator(seed, "probes", device)
    probes = torch.randn(num_features, num_probes, generator=generator, dtype=torch.float64, device=device)
    sizes = _sizes(moments)
    run = LanczosRun(space_product(rows, root), root._t_matmul(moments.sums / sizes), probes, generator)
    for num_steps in CHECKPOINTS:
        run.extend(num_steps - run.num_steps)
        yield _measure(run, moments, sizes)


def _exact_measure(rows: Rows, root: LinearOperator) -> SpectralMeasure:
    moments = rows.moments()
    sizes, product = _sizes(moments), space_product(rows, root)
    identity = torch.eye(root.shape[-1], dtype=torch.float64, device=moments.sums.device)
    matrix = torch.cat([product(columns.contiguous()) for columns in identity.split(_COLUMNS, -1)], -1)
    values, vectors = stable_eigh(0.5 * (matrix + matrix.mT))
    targets = vectors.mT @ root._t_matmul(moments.sums / sizes)
    nodes, inside = _of_rows(values, targets, moments.squares / sizes / sizes.unsqueeze(-1))
    traces = torch.where(values > _ROUNDING * values[-1], values, 0).cpu().numpy()
    return SpectralMeasure(
        nodes.cpu().numpy(),
        (inside @ _of_targets(sizes, moments.centers)).cpu().numpy(),
        traces[None],
        np.ones((1, len(traces))),
        moments.num_rows,
        num_zeros=moments.num_rows - len(traces),
    )


def _sizes(moments: Moments) -> Tensor:
    """Norms of the centred targets and of the level (`t + 1`): columns of very different sizes would lose digits."""
    sizes = moments.squares.diagonal().clamp_min(0).sqrt()
    return torch.where(sizes > 0, sizes, 1)


def _measure(run: LanczosRun, moments: Moments, sizes: Tensor) -> SpectralMeasure:
    num_rows, num_features = moments.num_rows, run.basis.shape[1]
    nodes, inside = _of_rows(*run.lower_block_quadrature(), moments.squares / sizes / sizes.unsqueeze(-1))
    lower_form_nodes, lower_form_inside = _lower_form(nodes, inside, len(run.diagonal), run.generator)
    trace_nodes, trace_weights = run.probe_quadratures()
    lower_nodes, lower_weights = run.lower_probe_quadratures(BIAS_PROBES)
    back = _of_targets(sizes, moments.centers)
    return SpectralMeasure(
        nodes.cpu().numpy(),
        (inside @ back).cpu().numpy(),
        trace_nodes.clamp_min(0).cpu().numpy(),
        num_features * trace_weights.cpu().numpy(),
        num_rows,
        len(trace_nodes),
        lower_nodes.cpu().numpy(),
        num_features * lower_weights.cpu().numpy(),
        lower_form_nodes.cpu().numpy(),
        (lower_form_inside @ back).cpu().numpy(),
        num_zeros=num_rows - num_features,
    )


def _of_rows(nodes: Tensor, coefficients: Tensor, squares: Tensor) -> tuple[Tensor, Tensor]:
    r"""
    The quadrature of :math:`V^\top f(K) V` from that of :math:`(\Phi^\top V)^\top f(M)\, \Phi^\top V`.

    Coefficients are divided by the roots of their nodes; the rest of :math:`V^\top V`, outside of the span of the
    features, belongs to the eigenvalue 0. This is the Gauss-Radau quadrature of as many steps among the rows, an upper
    bound of forms in the inverse.
    """
    kept = nodes > _ROUNDING * nodes[-1]
    inside = coefficients[kept] / nodes[kept].sqrt().unsqueeze(-1)
    values, vectors = stable_eigh(squares - inside.mT @ inside)
    outside = (vectors * values.clamp_min(0).sqrt()).mT
    return torch.cat([nodes[kept], nodes.new_zeros(len(outside))]), torch.cat([inside, outside])


def _lower_form(
    nodes: Tensor, coefficients: Tensor, num_steps: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """A lower bound, the Gauss quadrature of a measure after that many steps: Lanczos on its own nodes."""
    no_probes = coefficients.new_zeros(len(nodes), 0)
    run = LanczosRun(lambda vectors: nodes.unsqueeze(-1) * vectors, coefficients, no_probes, generator)
    run.extend(num_steps)
    return run.lower_block_quadrature()


def _of_targets(sizes: Tensor, centers: Tensor) -> Tensor:
    """The matrix from coefficients of centred columns of length 1 to those of the targets and the level."""
    back = torch.diag(sizes)
    back[-1, :-1] = sizes[-1] * centers
    return back
