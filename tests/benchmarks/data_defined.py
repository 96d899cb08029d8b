"""Partitions that the data define: groups of categories, and items in sets, at the largest sizes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import torch
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood
from scipy.sparse import csr_array
from torch import Tensor

from gpytorch_partition import GroupKernel, MembershipKernel, fit_exact_gp, settings
from gpytorch_partition.models import PartitionGP

from .measure import held_gib, in_own_process, medians, peak_gib, timed
from .report import Options, Row, Table

POINTS, VARIANCES = 1_000, 50
LEVELS = 50, 20, 20  # regions, towns of a region, shops of a town


def groups(options: Options) -> Iterator[Table]:
    """Seconds of a product, a fit in one pass and predictions with a hierarchy of three levels."""
    sizes = options.pick([100_000, 1_000_000], [50_000], [2_500])
    rows = [in_own_process(_groups, num_rows) for num_rows in sizes]
    yield Table("groups", "GroupKernel of 50 regions, 1,000 towns and 20,000 shops, nested (float64, seconds)", rows)


def memberships(options: Options) -> Iterator[Table]:
    """The same with items in 50 sets on average, sets of very different sizes."""
    sizes = options.pick([(20_000, 2_000), (200_000, 20_000)], [(20_000, 2_000)], [(2_500, 300)])
    rows = [in_own_process(_memberships, *size, only) for size in sizes for only in (False, True)]
    title = "MembershipKernel: items in 50 sets on average, a row for each item (float64, seconds)"
    yield Table("memberships", title, rows)


def _groups(num_rows: int) -> Row:
    random = np.random.default_rng(0)
    codes = np.stack([random.integers(size, size=num_rows) for size in LEVELS], 1)
    x = torch.from_numpy(codes.astype(np.float64))
    kernel = GroupKernel((0, 1, 2), nested=True, weights=(1.0, 2.0, 1.0), learn_weights=False)
    effects = [random.normal(size=LEVELS[: level + 1]) for level in range(3)]
    y = sum(effect[tuple(codes.T[: level + 1])] for level, effect in enumerate(effects))
    return {"N": num_rows, **_job(kernel, x, torch.from_numpy(y + random.normal(size=num_rows)))}


def items_in_sets(num_items: int, num_sets: int, per_item: int = 50) -> csr_array:
    """Items in random sets, whose sizes fall as a power of their rank: views of films, or words of documents."""
    random = np.random.default_rng(0)
    shares = np.arange(1, num_sets + 1) ** -0.8
    counts = np.minimum(random.geometric(1 / per_item, size=num_items), num_sets // 2)
    items = np.repeat(np.arange(num_items), counts)
    sets = random.choice(num_sets, size=len(items), p=shares / shares.sum())
    return csr_array((np.ones(len(items)), (items, sets)), shape=(num_items, num_sets))


def _memberships(num_items: int, num_sets: int, members_only: bool) -> Row:
    table, random = items_in_sets(num_items, num_sets), np.random.default_rng(1)
    kernel = MembershipKernel(table, members_only=members_only).double()
    strengths = np.maximum(table.sum(1), 1) ** 0.5
    y = table @ random.normal(size=num_sets) / strengths + 0.5 * random.normal(size=num_items)
    described = {"items": num_items, "sets": num_sets, "memberships": table.nnz, "members only": members_only}
    return {**described, **_job(kernel, torch.arange(num_items).double().unsqueeze(-1), torch.from_numpy(y))}


def _job(kernel: Kernel, x: Tensor, y: Tensor) -> Row:
    """Seconds of products, of a fit and of predictions, and how good these are."""
    before, covariance = held_gib(), kernel(x).evaluate_kernel()
    values = torch.randn(len(x), 16, dtype=x.dtype, generator=torch.Generator().manual_seed(0))
    products = {columns: partial(covariance.matmul, values[:, :columns].contiguous()) for columns in (1, 16)}
    times = medians(products, 3)
    is_test = torch.zeros(len(x), dtype=torch.bool).index_fill_(0, torch.arange(0, len(x), len(x) // POINTS), True)
    model = PartitionGP(x[~is_test], y[~is_test], GaussianLikelihood(), kernel)
    fit, fit_seconds = timed(lambda: fit_exact_gp(model, model.likelihood))
    with torch.no_grad(), settings.iterative():
        posterior, mean_seconds = timed(lambda: model.eval()(x[is_test]))
        few = x[is_test][:: POINTS // VARIANCES]
        variance, variance_seconds = timed(lambda: model(few).variance)
    error, noise = (y[is_test] - posterior.mean).square(), model.likelihood.noise.item()
    return {
        **{f"product, {columns} col.": time for columns, time in times.items()},
        f"fit ({fit.method})": fit_seconds,
        f"{POINTS:,} means": mean_seconds,
        f"{VARIANCES} variances": variance_seconds,
        "outputscale": model.covar_module.outputscale.item(),
        "noise": noise,
        "test error / variance of y": float(error.mean() / y.var()),
        "test error / predicted": float(error.mean() / (variance.mean() + noise)),
        "GiB beyond the data": peak_gib() - before,
    }
