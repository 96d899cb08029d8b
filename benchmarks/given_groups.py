"""Partitions that the data define, at the largest sizes: groups of categories, and items in sets."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import torch
from gpytorch.kernels import Kernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from scipy.sparse import csr_array
from torch import Tensor

from gpytorch_partition import GroupKernel, MembershipKernel, fit_exact_gp, settings
from gpytorch_partition.models import PartitionGP

from .clock import held_gib, medians, peak_gib, timed
from .datasets import read_arrays, scores
from .report import Options, Row, Table, grid, measured

POINTS, VARIANCES = 1_000, 16
LEVELS = 50, 10, 5  # regions, towns of a region, shops of a town


def groups(options: Options) -> Iterator[Table]:
    """Measure a product, a fit in one pass and predictions with a hierarchy of three levels."""
    title = "GroupKernel of 50 regions, 500 towns and 2,500 shops, nested (float64, seconds)"
    jobs = grid(N=options.pick([100_000, 1_000_000], [2_500]))
    yield from measured(options, "groups", title, jobs, partial(options.apart, _groups))


def memberships(options: Options) -> Iterator[Table]:
    """Measure the same with items in 50 sets on average; and mails by their words, with `--data`."""
    items, sets = options.pick((200_000, 20_000), (2_500, 300))
    title = "MembershipKernel: items in 50 sets on average, a row for each item (float64, seconds)"
    jobs = [{"items": items, "sets": sets, "members only": only} for only in (False, True)]
    yield from measured(options, "memberships", title, jobs, partial(options.apart, _memberships))
    if options.data:
        words = "Spam (spambase, standardized) by which of 54 words a mail has, 1,000 training rows"
        yield Table("memberships_words", words, _words(options))


def _groups(num_rows: int) -> Row:
    random = np.random.default_rng(0)
    codes = np.stack([random.integers(size, size=num_rows) for size in LEVELS], 1)
    kernel = GroupKernel((0, 1, 2), nested=True, weights=(1.0, 2.0, 1.0), learn_weights=False)
    effects = [random.normal(size=LEVELS[: level + 1]) for level in range(3)]
    y = sum(effect[tuple(codes.T[: level + 1])] for level, effect in enumerate(effects))
    return _job(kernel, torch.from_numpy(codes.astype(float)), torch.from_numpy(y + random.normal(size=num_rows)))


def _memberships(num_items: int, num_sets: int, members_only: bool) -> Row:
    table, random = _items_in_sets(num_items, num_sets), np.random.default_rng(1)
    kernel = MembershipKernel(table, members_only=members_only).double()
    strengths = np.maximum(table.sum(1), 1) ** 0.5
    y = table @ random.normal(size=num_sets) / strengths + 0.5 * random.normal(size=num_items)
    found = _job(kernel, torch.arange(num_items).double().unsqueeze(-1), torch.from_numpy(y))
    return {"memberships": table.nnz, **found}


def _items_in_sets(num_items: int, num_sets: int) -> csr_array:
    random = np.random.default_rng(0)
    shares = np.arange(1, num_sets + 1) ** -0.8
    counts = np.minimum(random.geometric(1 / 50, size=num_items), num_sets // 2)
    items = np.repeat(np.arange(num_items), counts)
    sets = random.choice(num_sets, size=len(items), p=shares / shares.sum())
    return csr_array((np.ones(len(items)), (items, sets)), shape=(num_items, num_sets))


def _job(kernel: Kernel, x: Tensor, y: Tensor) -> Row:
    before, covariance = held_gib(), kernel(x).evaluate_kernel()
    values = torch.randn(len(x), 16, dtype=x.dtype, generator=torch.Generator().manual_seed(0))
    times = medians({c: partial(covariance.matmul, values[:, :c].contiguous()) for c in (1, 16)}, 3)
    is_test = torch.zeros(len(x), dtype=torch.bool).index_fill_(0, torch.arange(0, len(x), len(x) // POINTS), True)
    model = PartitionGP(x[~is_test], y[~is_test], GaussianLikelihood(), kernel)
    fit, fit_seconds = timed(lambda: fit_exact_gp(model, model.likelihood))
    with torch.no_grad(), settings.iterative():
        mean, mean_seconds = timed(lambda: model.eval()(x[is_test]).mean)
        few = x[is_test][:: POINTS // VARIANCES]
        _, variance_seconds = timed(lambda: model(few).variance)
    return {
        **{f"product, {columns} col.": time for columns, time in times.items()},
        f"fit ({fit.method})": fit_seconds,
        f"{POINTS:,} means": mean_seconds,
        f"{VARIANCES} variances": variance_seconds,
        "test error / variance of y": float((y[is_test] - mean).square().mean() / y.var()),
        "GiB beyond the data": peak_gib() - before,
    }


def _words(options: Options) -> list[Row]:
    X, targets = read_arrays(options.data / "spambase.npz")
    rows = np.random.default_rng(0).permutation(len(targets))[:1_500]
    has, y = X[rows, :54] > 0, (targets[rows] - targets[rows].mean()) / targets[rows].std()
    rarity, items = 1 / np.maximum(has.sum(0), 1), torch.arange(len(rows)).double().unsqueeze(-1)
    kernels: dict[str, tuple[Kernel, Tensor]] = {
        "members and others": (MembershipKernel(has), items),
        "members only": (MembershipKernel(has, members_only=True), items),
        "members and others, 1 / size": (MembershipKernel(has, set_weights=rarity), items),
        "members only, 1 / size": (MembershipKernel(has, members_only=True, set_weights=rarity), items),
        "RBF of the same zeros and ones": (RBFKernel(), torch.from_numpy(has).double()),
    }
    return [{"kernel": name, **_predicted(kernel, x, torch.from_numpy(y))} for name, (kernel, x) in kernels.items()]


def _predicted(kernel: Kernel, x: Tensor, y: Tensor) -> Row:
    number = len(y) // 3
    model = PartitionGP(x[number:], y[number:], GaussianLikelihood(), kernel)
    model.covar_module = ScaleKernel(kernel).double()
    with settings.iterative():
        fit_exact_gp(model, model.likelihood)
        with torch.no_grad():
            found = model.likelihood(model.eval()(x[:number]))
            return scores(y[:number].numpy(), found.mean.numpy(), found.stddev.numpy())
