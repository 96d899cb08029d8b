"""Does a kernel that was fitted on the same targets overfit (Davies & Ghahramani 2014, section 4.3.1, property 4)?"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import torch
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood
from sklearn.ensemble import RandomForestRegressor
from torch import Tensor

from gpytorch_partition import RandomForestKernel, fit_exact_gp
from gpytorch_partition.models import PartitionGP

from .paper_methods import CLUSTERS, KERNELS, NUM_PARTITIONS, OURS, PRINTED, Build, predicted
from .report import Options, Row, Table

_COVERAGE = "coverage of 90 % intervals"


def noise_only(options: Options) -> Iterator[Table]:
    """Targets that are nothing but noise."""
    num_rows, num_draws = options.pick([200, 1_000], [200], [40]), options.pick(10, 3, 1)
    rows = [
        {"N": size, "kernel": name} | _mean(build, size, num_draws, options.pick(NUM_PARTITIONS, 50, 5))
        for size in num_rows
        for name, build in _kernels().items()
    ]
    title = f"Property 4: targets that are noise of variance 1, 5 columns, {num_draws} draws, 500 test rows each."
    yield Table("paper_noise", f"{title} {_finding(rows)}", rows)


def _kernels() -> dict[str, Build]:
    grown = {
        f"{PRINTED}, 5 rows a leaf at least": partial(_forest, heights="sampled"),
        "random forest, 5 rows a leaf at least, all heights": partial(_forest, heights="all"),
    }
    return {PRINTED: KERNELS[PRINTED], **grown, OURS: KERNELS[OURS], CLUSTERS: KERNELS[CLUSTERS]}


def _forest(x: Tensor, y: Tensor, num_partitions: int, seed: int, *, heights: str) -> Kernel:
    forest = RandomForestRegressor(num_partitions, min_samples_leaf=5, random_state=seed).fit(x.numpy(), y.numpy())
    return RandomForestKernel.from_forest(forest, heights=heights, random_state=seed)


def _mean(build: Build, num_rows: int, num_draws: int, num_partitions: int) -> Row:
    scores = [_scored(build, num_rows, num_partitions, seed) for seed in range(num_draws)]
    coverage = np.array([score[_COVERAGE] for score in scores])
    row = {name: float(np.mean([score[name] for score in scores])) for name in scores[0]}
    return row | {"standard error of the coverage": coverage.std() / max(num_draws - 1, 1) ** 0.5}


def _scored(build: Build, num_rows: int, num_partitions: int, seed: int) -> Row:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(num_rows + 500, 5, generator=generator, dtype=torch.float64)
    y = torch.randn(num_rows + 500, generator=generator, dtype=torch.float64)
    (x, points), (y, targets) = (values.split([num_rows, 500]) for values in (x, y))
    model = PartitionGP(x, y, GaussianLikelihood(), build(x, y, num_partitions, seed))
    fit_exact_gp(model, model.likelihood)
    scores = predicted(model, points).scores(targets)
    loss = torch.distributions.Normal(0.0, 1.0).log_prob(targets).mean().item() - scores["log density, pointwise"]
    noise = model.likelihood.noise.item()
    return {_COVERAGE: scores[_COVERAGE], "fitted noise (true: 1)": noise, "nats lost per target": loss}


def _finding(rows: list[Row]) -> str:
    covered = {name: [row[_COVERAGE] for row in rows if row["kernel"] == name] for name in _kernels()}
    words = "; ".join(f"{name} {_range(values)}" for name, values in covered.items())
    return (
        "The paper's finding, no evidence for overfitting by a supervised kernel, "
        f"{'fails' if min(covered[PRINTED]) < 0.85 else 'holds'}: 90 % intervals cover {words}."
    )


def _range(values: list[float]) -> str:
    return " and ".join(f"{100 * value:.0f} %" for value in values)
