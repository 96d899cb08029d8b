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
from statistics import fmean
from typing import Any

import numpy as np
from scipy.stats import rankdata, studentized_range

from gpytorch_partition import FastClusterKernel
from gpytorch_partition.estimators import PartitionGPRegressor
from gpytorch_partition.presets import Options as ModelOptions

from .clock import timed
from .contenders import Moments, Predict, catboost, exact_gp, histogram_boosting, random_forest, svgp
from .datasets import MOST_TEST_ROWS, SETS, Split, read_data, scores, split_of
from .plots import COLORS, finish, panels, styles
from .processes import paper_forest
from .report import Options, Row, Table, measured

DEFAULT, ROUGH, NOISE = "default", "rough field", "varying noise"
INGREDIENTS = ("forest", "random_trees", "boosted", "shallow_boosted", "slopes", "smooth", "linear", ROUGH, NOISE)
NUM_SPLITS, NUM_SPLITS_OF_LARGE, LARGE = 5, 2, 20_000
BOTH = ("random forest", "histogram boosting")
SCORES = ("NLPD", "RMSE", "coverage")
CLOSE, SAME_ERROR = 0.02, 1.01

Means = dict[str, dict[str, Row]]  # the mean row of each method on each set


def evidence(options: Options) -> Iterator[Table]:
    """Score every method on every split of every set; then rank them."""
    baselines = _baselines(options)
    less = {
        f"{DEFAULT} without {each}": partial(partition_gp, without=each) for each in INGREDIENTS[-options.pick(9, 2) :]
    }
    methods: dict[str, Predict] = {**baselines, DEFAULT: partition_gp, **less}
    jobs = [
        {"data": name, "split": number, "method": method} for name, number in _splits(options) for method in methods
    ]

    @lru_cache(1)
    def split(name: str, number: int) -> Split:
        return split_of(read_data(options, name), number, options.pick(None, 100))

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


def _baselines(options: Options) -> dict[str, Predict]:
    trees, most = options.pick(200, 5), options.pick(2_500, 50)
    boosting: dict[str, Predict] = {}
    if find_spec("catboost") and not options.is_smoke:
        boosting = {"CatBoost with uncertainty": catboost}
    return {
        "random forest": partial(random_forest, num_trees=trees),
        "histogram boosting": histogram_boosting,
        **boosting,
        f"exact GP, Matern-ARD (at most {most:,} rows)": partial(exact_gp, most=most, steps=options.pick(50, 2)),
        "SVGP, 512 inducing points": partial(svgp, num_inducing=512, steps=options.pick(2_000, 2)),
        "paper's forest kernel": partial(partition_gp, kernel=lambda x, y: paper_forest(x, y, trees)),
        "paper's fast cluster kernel": partial(
            partition_gp, kernel=lambda x, y: FastClusterKernel(x, trees, random_state=0)
        ),
    }


def partition_gp(split: Split, *, kernel: Any = "auto", without: str | None = None) -> Moments:
    """Predict by the estimator, or by the one from which an ingredient of the default was taken."""
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
    methods = [own, *others]
    means = _means(rows, methods)
    if not any(own in of_set for of_set in means.values()):
        return
    by_set = [
        {"data": name, **{method: found.get(method, {}).get("NLPD") for method in methods}}
        for name, found in means.items()
    ]
    yield Table("evidence_sets", "Negative log predictive density, means of splits", by_set)
    ranks = _ranks(means, methods)
    summaries = [_summary(means, method) | {"mean rank of the NLPD": rank} for method, rank in ranks.items()]
    summaries.sort(key=lambda row: row["mean rank of the NLPD"])
    yield Table("evidence_ranks", "Over the sets", summaries, draw=partial(_picture, means, ranks, own))
    variants = dict.fromkeys(row["method"] for row in rows if row["method"].startswith(f"{own} "))
    if losses := [_loss(rows, own, variant) for variant in variants]:
        yield Table("evidence_ingredients", "What is lost without an ingredient, in nats, over sets and splits", losses)


def _means(rows: list[Row], methods: list[str]) -> Means:
    means: Means = {}
    done = [row for row in rows if isfinite(row.get("NLPD", inf)) and row["method"] in methods]
    for name in dict.fromkeys(row["data"] for row in done):
        of_set = [row for row in done if row["data"] == name]
        splits = {method: {row["split"] for row in of_set if row["method"] == method} for method in methods}
        common = set.intersection(*(numbers for numbers in splits.values() if numbers))
        means[name] = {
            method: {
                score: fmean(row[score] for row in of_set if row["method"] == method and row["split"] in common)
                for score in SCORES
            }
            for method in methods
            if splits[method] and common
        }
    return {name: of_set for name, of_set in means.items() if of_set}


def _ranks(means: Means, methods: list[str]) -> dict[str, float]:
    per_set = [rankdata([found.get(method, {}).get("NLPD", inf) for method in methods]) for found in means.values()]
    return {method: float(fmean(column)) for method, column in zip(methods, zip(*per_set))}


def _summary(means: Means, method: str) -> Row:
    found = [(of_set[method], of_set) for of_set in means.values() if method in of_set]
    least = {score: [min(each[score] for each in of_set.values()) for _, of_set in found] for score in ("NLPD",)}
    errors = [min([of_set[each]["RMSE"] for each in BOTH if each in of_set], default=inf) for _, of_set in found]
    coverage = [mean["coverage"] for mean, _ in found]
    return {
        "method": method,
        "sets": len(found),
        f"within {CLOSE} of the best NLPD": sum(
            m["NLPD"] <= best + CLOSE for (m, _), best in zip(found, least["NLPD"])
        ),
        "RMSE at most 1 % above forest and boosting": sum(
            m["RMSE"] <= SAME_ERROR * e for (m, _), e in zip(found, errors)
        ),
        "mean coverage": fmean(coverage) if found else None,
        "least coverage": min(coverage, default=None),
    }


def _loss(rows: list[Row], own: str, variant: str) -> Row:
    found = {
        method: {(row["data"], row["split"]): row["NLPD"] for row in rows if row["method"] == method and "NLPD" in row}
        for method in (own, variant)
    }
    losses = [found[variant][key] - value for key, value in found[own].items() if key in found[variant]]
    return {
        "variant": variant,
        "sets and splits": len(losses),
        "mean": fmean(losses) if losses else None,
        "least": min(losses, default=None),
        "most": max(losses, default=None),
        f"worse by more than {CLOSE}": sum(loss > CLOSE for loss in losses),
        f"better by more than {CLOSE}": sum(loss < -CLOSE for loss in losses),
    }


def critical_difference(num_methods: int, num_sets: int) -> float:
    """Return by which two mean ranks differ significantly at 5 % (the Nemenyi test; Demsar 2006, section 3.2.2)."""
    quantile = studentized_range.ppf(0.95, num_methods, inf) / sqrt(2)
    return float(quantile * sqrt(num_methods * (num_methods + 1) / (6 * num_sets)))


def _picture(means: Means, ranks: dict[str, float], own: str) -> Any:
    figure, (left, right) = panels(2, 5.2, 5.4)
    looks = styles([own, *(method for method in ranks if method != own)])
    order = sorted(ranks, key=lambda method: -ranks[method])
    best = ranks[order[-1]]
    left.axvspan(best, best + critical_difference(len(ranks), len(means)), color="#EFEFEF", lw=0)
    for height, method in enumerate(order):
        left.plot(ranks[method], height, ms=9, **looks[method])
    left.set_yticks(range(len(order)), order)
    finish(left, "Ranks", xlabel="mean rank of the negative log density\n(gray: not significantly different)")
    names = [name for name, found in means.items() if own in found][::-1]
    right.axvline(0, color=COLORS[0], lw=1.5)
    for height, name in enumerate(names):
        for method in means[name].keys() - {own}:
            gap = means[name][method]["NLPD"] - means[name][own]["NLPD"]
            right.plot(gap, height, ms=6, alpha=0.85, **looks[method])
    right.set_yticks(range(len(names)), names)
    right.set_xscale("symlog", linthresh=0.1, linscale=1)
    finish(right, "Negative log density on each set", xlabel=f"nats worse (right) or better (left)\nthan the {own}")
    return figure
