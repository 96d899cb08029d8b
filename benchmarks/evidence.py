"""
How good the default is on regression sets, beside what else there is and without each of its ingredients.

Splits come first and methods last, and each row is written when it is there: a run that is stopped leaves what it has.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache, partial
from importlib.util import find_spec
from itertools import product
from math import inf, isfinite, sqrt
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import studentized_range

from gpytorch_partition import FastClusterKernel
from gpytorch_partition.estimators import PartitionGPRegressor
from gpytorch_partition.presets import Options as ModelOptions

from .datasets import MOST_TEST_ROWS, SETS, Split, read_data, scores, split_of
from .plots import COLORS, finish, panels, styles
from .processes import (
    Moments,
    PredictMoments,
    catboost,
    exact_gp,
    histogram_boosting,
    neighbors_of_boosting,
    paper_forest,
    random_forest,
    svgp,
)
from .report import Options, Row, Table, measured, timed

DEFAULT, ROUGH, NOISE = "default", "rough field", "varying noise"
INGREDIENTS = ("forest", "random_trees", "boosted", "shallow_boosted", "slopes", "smooth", "linear", ROUGH, NOISE)
NUM_SPLITS, NUM_SPLITS_OF_LARGE, LARGE = 5, 2, 20_000
BOTH = ("random forest", "histogram boosting")
SCORES = ("NLPD", "RMSE", "coverage")
CLOSE, SAME_ERROR = 0.02, 1.01


def evidence(options: Options) -> Iterator[Table]:
    """Score every method on every split of every set; then rank them."""
    baselines = _baselines(options)
    less = {
        f"{DEFAULT} without {each}": partial(partition_gp, without=each) for each in INGREDIENTS[-options.pick(9, 2) :]
    }
    methods: dict[str, PredictMoments] = {**baselines, DEFAULT: partition_gp, **less}
    jobs = [
        {"data": name, "split": number, "method": method} for name, number in _splits(options) for method in methods
    ]

    @lru_cache(1)
    def split(name: str, number: int) -> Split:
        return split_of(read_data(options, name), number, options.pick(None, 40))

    def scored(name: str, number: int, method: str) -> Row:
        found = split(name, number)
        moments, seconds = timed(lambda: methods[method](found))
        return {"N": len(found.y), **scores(found.test_y, *moments), "seconds": seconds}

    title = f"Predictions of standardized targets, at most {MOST_TEST_ROWS:,} test rows"
    rows = yield from measured(options, "evidence", title, jobs, scored)
    yield from ranked(rows, DEFAULT, list(baselines))


def _splits(options: Options) -> Iterator[tuple[str, int]]:
    names = ["diabetes", "friedman1"] if options.data is None else list(SETS)
    names = options.pick(names, names[:1])
    sizes = {name: len(read_data(options, name).y) for name in names}
    for number, name in product(range(options.pick(NUM_SPLITS, 1)), names):
        if number < NUM_SPLITS_OF_LARGE or sizes[name] <= LARGE:
            yield name, number


def _baselines(options: Options) -> dict[str, PredictMoments]:
    trees, most = options.pick(200, 5), options.pick(2_500, 50)
    boosting: dict[str, PredictMoments] = {}
    if find_spec("catboost") and not options.is_smoke:
        boosting = {"CatBoost with uncertainty": catboost}
    return {
        "random forest": partial(random_forest, num_trees=trees),
        "histogram boosting": histogram_boosting,
        "histogram boosting, deviations by neighbors": neighbors_of_boosting,
        **boosting,
        f"exact GP, Matern-ARD (at most {most:,} rows)": partial(exact_gp, most=most, steps=options.pick(50, 2)),
        "SVGP, 512 inducing points": partial(svgp, num_inducing=512, steps=options.pick(2_000, 2)),
        "paper's forest kernel": partial(partition_gp, kernel=lambda x, y: paper_forest(x, y, trees)),
        "paper's fast cluster kernel": partial(
            partition_gp, kernel=lambda x, y: FastClusterKernel(x, trees, random_state=0)
        ),
    }


def partition_gp(split: Split, *, kernel: Any = "auto", without: str | None = None) -> Moments:
    """PredictMoments by the estimator, or by the one from which an ingredient of the default was taken."""
    options = ModelOptions(omitted_parts=(without,) if without else ())
    if without in (ROUGH, NOISE):
        options = ModelOptions(**{"least_rough_gain" if without == ROUGH else "least_noise_gain": np.inf})
    model = PartitionGPRegressor(kernel, random_state=0, options=options).fit(split.x, split.y)
    return model.predict(split.test_x, return_std=True)


# Ranks over data sets (Demsar 2006).


def ranked(rows: list[Row], own: str, others: list[str]) -> Iterator[Table]:
    """
    Yield means of all sets, ranks of the methods that are compared, and what the method's variants lose.

    :param rows: Scores with the columns data, split and method; those that failed have an error.
    :param own: The method to judge; its variants have its name and more.
    :param others: What it is compared with.
    """
    frame = pd.DataFrame(
        [row for row in rows if isfinite(row.get("NLPD", inf))], columns=["data", "split", "method", *SCORES]
    )
    if own not in set(frame.method):
        return
    means = _means(frame[frame.method.isin([own, *others])])
    densities = means["NLPD"].reindex(columns=[own, *others])
    by_set = [{"data": name, **row.dropna().to_dict()} for name, row in densities.iterrows()]
    yield Table("evidence_sets", "Negative log predictive density, means of splits", by_set)
    ranks = densities.rank(axis=1, na_option="bottom").mean()
    draw = partial(_picture, densities, ranks.to_dict(), own)
    title = "Over the sets; a method without a figure for a set has the last rank there"
    yield Table("evidence_ranks", title, _summaries(means, densities, ranks), draw=draw)
    of_split = frame.pivot_table(index=["data", "split"], columns="method", values="NLPD")
    variants = dict.fromkeys(row["method"] for row in rows if row["method"].startswith(f"{own} "))
    if losses := [_loss(name, (of_split[name] - of_split[own]).dropna()) for name in variants if name in of_split]:
        yield Table("evidence_ingredients", "What is lost without an ingredient, in nats, over sets and splits", losses)


def _means(frame: pd.DataFrame) -> pd.DataFrame:
    """Average over the splits of a set that all methods with any figures there have done."""
    in_split, in_set = (frame.groupby(by).method.transform("nunique") for by in (["data", "split"], "data"))
    return frame[in_split == in_set].groupby(["data", "method"], sort=False)[list(SCORES)].mean().unstack()


def _summaries(means: pd.DataFrame, densities: pd.DataFrame, ranks: pd.Series) -> list[Row]:
    best_error = means["RMSE"].reindex(columns=BOTH).min(axis=1).fillna(inf)
    columns = {
        "sets": densities.notna().sum(),
        f"within {CLOSE} of the best NLPD": densities.le(densities.min(axis=1) + CLOSE, axis=0).sum(),
        "RMSE at most 1 % above forest and boosting": means["RMSE"].le(SAME_ERROR * best_error, axis=0).sum(),
        "mean coverage": means["coverage"].mean(),
        "least coverage": means["coverage"].min(),
        "mean rank of the NLPD": ranks,
    }
    found = pd.DataFrame(columns).loc[ranks.sort_values(kind="stable").index]
    return [{"method": method, **row.dropna().to_dict()} for method, row in found.iterrows()]


def _loss(variant: str, losses: pd.Series) -> Row:
    return {
        "variant": variant,
        "sets and splits": len(losses),
        "mean": losses.mean(),
        "least": losses.min(),
        "most": losses.max(),
        f"worse by more than {CLOSE}": int((losses > CLOSE).sum()),
        f"better by more than {CLOSE}": int((losses < -CLOSE).sum()),
    }


def critical_difference(num_methods: int, num_sets: int) -> float:
    """Return by which two mean ranks differ significantly at 5 % (the Nemenyi test; Demsar 2006, section 3.2.2)."""
    quantile = studentized_range.ppf(0.95, num_methods, inf) / sqrt(2)
    return float(quantile * sqrt(num_methods * (num_methods + 1) / (6 * num_sets)))


def _picture(densities: pd.DataFrame, ranks: dict[str, float], own: str) -> Any:
    figure, (left, right) = panels(2, 5.2, 5.4)
    looks = styles([own, *(method for method in ranks if method != own)])
    order = sorted(ranks, key=lambda method: -ranks[method])
    best = ranks[order[-1]]
    left.axvspan(best, best + critical_difference(len(ranks), len(densities)), color="#EFEFEF", lw=0)
    for height, method in enumerate(order):
        left.plot(ranks[method], height, ms=9, **looks[method])
    left.set_yticks(range(len(order)), order)
    finish(left, "Ranks", xlabel="mean rank of the negative log density\n(gray: not significantly different)")
    gaps = densities.sub(densities[own], axis=0).drop(columns=own)[::-1]
    names = list(gaps.index)
    right.axvline(0, color=COLORS[0], lw=1.5)
    for method, column in gaps.items():
        right.plot(column, range(len(names)), ls="", ms=6, alpha=0.85, **looks[method])
    right.set_yticks(range(len(names)), names)
    right.set_xscale("symlog", linthresh=0.1, linscale=1)
    finish(right, "Negative log density on each set", xlabel=f"nats worse (right) or better (left)\nthan the {own}")
    return figure
