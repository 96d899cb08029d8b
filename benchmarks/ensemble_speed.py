"""Seconds of LAGO and of the selectors of columns, at a million rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gpytorch_partition.estimators import BaggedStepwiseSelector, LAGORanker, ParallelEvolutionSelector

from .measure import timed
from .rare_class import clumps
from .report import Options, Row, Table


def speed(options: Options) -> Iterator[Table]:
    """Each of them once, trained and, where it ranks, applied to the same rows."""
    num_rows = options.pick(1_000_000, 50_000, 500)
    rows = [_ranked(shape, num_rows) for shape in ("spherical", "elliptical")]
    title = f"LAGO and selectors of columns: {num_rows:,} rows"
    yield Table("kernels_and_ensembles_speed", title, [*rows, *_selected(num_rows)])


def _ranked(shape: str, num_rows: int) -> Row:
    problem = clumps(num_rows, max(4, num_rows * 3 // 10_000))
    model, seconds = timed(lambda: LAGORanker(shape).fit(*problem))
    _, to_rank = timed(lambda: model.score_samples(problem.X))
    words = f"LAGORanker({shape!r}), {problem.is_rare.sum()} rare"
    return {"what": words, "rows": num_rows, "columns": 6, "fit, s": seconds, "scores of as many rows, s": to_rank}


def _selected(num_rows: int) -> Iterator[Row]:
    X = np.random.default_rng(0).standard_normal((num_rows, 20))
    y = X[:, :3].sum(1) + np.random.default_rng(1).standard_normal(num_rows)
    for selector in (ParallelEvolutionSelector(random_state=0), BaggedStepwiseSelector(random_state=0)):
        _, seconds = timed(lambda selector=selector: selector.fit(X, y))
        yield {"what": type(selector).__name__, "rows": num_rows, "columns": 20, "fit, s": seconds}
