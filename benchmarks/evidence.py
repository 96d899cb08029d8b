"""
How good the default is: density, error and coverage on regression sets, beside what else there is and without each of
its ingredients.

Splits come first and methods last, and each row is written when it is there: a run that is stopped leaves what it has.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from itertools import product
from typing import Any

import numpy as np

from gpytorch_partition.estimators.scores import Judgement

from .measure import timed
from .methods import attempted
from .predictors import (
    INGREDIENTS,
    Predict,
    Split,
    catboost,
    exact_gp,
    histogram_boosting,
    paper_clusters,
    paper_forest,
    partition_gp,
    random_forest,
    svgp,
)
from .ranks import ranked
from .regression_sets import MOST_TEST_ROWS, SETS, read_data, split_of
from .report import Options, Row, Table, again

DEFAULT = "default"
NUM_SPLITS, NUM_SPLITS_OF_LARGE, LARGE = 5, 2, 20_000


def evidence(options: Options) -> Iterator[Table]:
    """Every method on every split of every set; then how they rank."""
    finished, methods = options.finished("evidence"), _methods(options)
    title = f"Predictions of standardized targets, at most {MOST_TEST_ROWS:,} test rows"
    rows: list[Row] = []
    for name, number in _splits(options):
        split = None
        for method in methods:
            job = {"data": name, "split": number, "method": method}
            row = again(finished, job)
            if row is None:
                split = split or split_of(read_data(options, name), number, options.pick(None, 1_000, 100))
                row = attempted(job, partial(_scored, methods[method], split))
            rows.append(row)
            yield Table("evidence", title, rows, complete=False)
    yield Table("evidence", title, rows)
    yield from ranked(rows, DEFAULT, list(_baselines(options)))


def _splits(options: Options) -> Iterator[tuple[str, int]]:
    """The first split of all sets, then the second: large sets have fewer."""
    names = ["diabetes", "friedman1"] if options.data is None else list(SETS)
    names = options.pick(names, names[:3], names[:1])
    sizes = {name: len(read_data(options, name).y) for name in names}
    for number, name in product(range(options.pick(NUM_SPLITS, 2, 1)), names):
        if number < NUM_SPLITS_OF_LARGE or sizes[name] <= LARGE:
            yield name, number


def _methods(options: Options) -> dict[str, Predict]:
    default = {DEFAULT: partial(partition_gp, kernel="auto")}
    less = {
        f"{DEFAULT} without {ingredient}": partial(partition_gp, kernel="auto", without=ingredient)
        for ingredient in (*INGREDIENTS, "varying noise")
    }
    return _baselines(options) | default | less


def _baselines(options: Options) -> dict[str, Predict]:
    """What else there is; CatBoost where it is installed."""
    trees, most, steps = options.pick(200, 50, 5), options.pick(2_500, 500, 50), options.pick(2_000, 100, 2)
    forest, clusters = partial(paper_forest, num_trees=trees), partial(paper_clusters, num_partitions=trees)
    boosting: dict[str, Predict] = {}
    if find_spec("catboost") is not None:
        boosting = {"CatBoost with uncertainty": partial(catboost, iterations=options.pick(1_000, 100, 10))}
    smooth: dict[str, Any] = {
        f"exact GP, Matern-ARD (at most {most:,} rows)": partial(exact_gp, most=most, steps=options.pick(50, 20, 2)),
        "SVGP, 512 inducing points": partial(svgp, num_inducing=512, steps=steps),
    }
    return {
        "random forest": partial(random_forest, num_trees=trees),
        "histogram boosting": histogram_boosting,
        **boosting,
        **smooth,
        "paper's forest kernel": partial(partition_gp, kernel=forest),
        "paper's fast cluster kernel": partial(partition_gp, kernel=clusters),
    }


def _scored(predict: Predict, split: Split) -> Row:
    (mean, std), seconds = timed(lambda: predict(split))
    found = Judgement.gaussian(split.test_y, mean, std)
    return {
        "N": len(split.y),
        "D": split.x.shape[1],
        "RMSE": float(np.sqrt(np.mean((split.test_y - mean) ** 2))),
        "NLPD": float(-found.log_density.mean()),
        "CRPS": float(found.crps.mean()),
        "interval score": float(found.interval_score.mean()),
        "coverage": float(found.coverage()),
        "seconds": seconds,
    }
