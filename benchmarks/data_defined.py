"""Partitions that the data define: groups of categories, and items in sets, at the largest sizes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial, reduce
from operator import add
from pathlib import Path

import numpy as np
import torch
from gpytorch.kernels import Kernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from scipy.sparse import csr_array
from torch import Tensor

from gpytorch_partition import GroupKernel, MembershipKernel, RandomForestKernel, fit_exact_gp, settings
from gpytorch_partition.models import PartitionGP

from .measure import held_gib, in_own_process, medians, peak_gib, timed
from .problems import read_arrays
from .report import Options, Row, Table

POINTS, VARIANCES = 1_000, 16
LEVELS = 50, 10, 5  # regions, towns of a region, shops of a town


def groups(options: Options) -> Iterator[Table]:
    """Seconds of a product, a fit in one pass and predictions with a hierarchy of three levels."""
    sizes = options.pick([100_000, 1_000_000], [50_000], [2_500])
    if options.data:
        title = "Flight delays (nycflights13, standardized) by date and route, beside a forest of all columns"
        yield Table("groups_flights", title, _flights(options.data, options.pick(1_500, 1_500, 900)))
    rows = [in_own_process(_groups, num_rows) for num_rows in sizes]
    yield Table("groups", "GroupKernel of 50 regions, 500 towns and 2,500 shops, nested (float64, seconds)", rows)


def memberships(options: Options) -> Iterator[Table]:
    """The same with items in 50 sets on average, sets of very different sizes."""
    sizes = options.pick([(200_000, 20_000)], [(20_000, 2_000)], [(2_500, 300)])
    if options.data:
        words = "Spam (spambase, standardized) by which of 54 words a mail has"
        yield Table("memberships_words", words, _words(options.data, options.pick(1_500, 1_500, 900)))
    title = "MembershipKernel: items in 50 sets on average, a row for each item (float64, seconds)"
    rows = [in_own_process(_memberships, *size, only) for size in sizes for only in (False, True)]
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


def _flights(folder: Path, num_rows: int) -> list[Row]:
    """Delays of flights by date and route (the distance tells it), beside a forest of all columns."""
    x, y = _sample(folder / "nycflights13.npz", num_rows)
    train_x, train_y = x[num_rows // 3 :], y[num_rows // 3 :]
    dates, routes, forest = (
        lambda: ScaleKernel(GroupKernel((0, 1), nested=True)),  # month, day
        lambda: ScaleKernel(GroupKernel((6,))),
        lambda: ScaleKernel(RandomForestKernel(train_x, train_y, random_state=0)),
    )
    parts = {
        "forest": (forest,),
        "dates": (dates,),
        "dates + routes": (dates, routes),
        "forest + dates": (forest, dates),
        "forest + dates + routes": (forest, dates, routes),
    }
    kernels = {name: reduce(add, [make() for make in makes]) for name, makes in parts.items()}
    return [_scores(name, kernel, x, y, num_rows // 3) for name, kernel in kernels.items()]


def _words(folder: Path, num_rows: int) -> list[Row]:
    """Spam (1) or not (0) by which of 54 words and characters a mail has: each splits the mails in two."""
    x, y = _sample(folder / "spambase.npz", num_rows)
    has, items = (x[:, :54] > 0).numpy(), torch.arange(num_rows).double().unsqueeze(-1)
    rarity = 1 / np.maximum(has.sum(0), 1)
    kernels = {
        "members and others": MembershipKernel(has),
        "members only": MembershipKernel(has, members_only=True),
        "members and others, 1 / size": MembershipKernel(has, set_weights=rarity),
        "members only, 1 / size": MembershipKernel(has, members_only=True, set_weights=rarity),
    }
    rows = [_scores(name, ScaleKernel(kernel), items, y, num_rows // 3) for name, kernel in kernels.items()]
    ones = torch.from_numpy(has).double()
    return [*rows, _scores("RBF of the same zeros and ones", ScaleKernel(RBFKernel()), ones, y, num_rows // 3)]


def _sample(path: Path, num_rows: int) -> tuple[Tensor, Tensor]:
    """Random rows as they are, and targets of mean 0 and standard deviation 1 (float64)."""
    X, targets = read_arrays(path)
    chosen = np.random.default_rng(0).permutation(len(targets))[:num_rows]
    x, y = torch.from_numpy(X[chosen]), torch.from_numpy(targets[chosen])
    return x, (y - y.mean()) / y.std()


def _scores(name: str, kernel: Kernel, x: Tensor, y: Tensor, num_points: int) -> Row:
    """How well the first rows are predicted from the others."""
    model = PartitionGP(x[num_points:], y[num_points:], GaussianLikelihood(), kernel)
    model.covar_module = kernel.double()
    with settings.iterative():
        fit_exact_gp(model, model.likelihood)
        with torch.no_grad():
            prediction = model.likelihood(model.eval()(x[:num_points]))
            mean, variance = prediction.mean, prediction.variance
    error = (y[:num_points] - mean).square()
    density = -0.5 * (error / variance + (2 * torch.pi * variance).log())
    return {
        "kernel": name,
        "training rows": len(x) - num_points,
        "RMSE": float(error.mean().sqrt()),
        "NLPD": -float(density.mean()),
        "cover of 90 % intervals": float((error.sqrt() < 1.645 * variance.sqrt()).double().mean()),
    }
