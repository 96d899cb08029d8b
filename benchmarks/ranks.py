"""How methods rank over data sets (Demsar 2006), and what each ingredient of a method is worth."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from math import inf, isfinite, sqrt
from statistics import fmean
from typing import Any

from scipy.stats import rankdata, studentized_range

from .pictures import critical_differences
from .report import Bar, Row, Table

Means = dict[str, dict[str, Row]]  # the mean row of each method on each set

BOTH = ("random forest", "histogram boosting")
SCORES = ("NLPD", "RMSE", "coverage", "seconds", "CRPS")  # rows of earlier versions have no CRPS
CLOSE, SAME_ERROR = 0.02, 1.01
# Training rows of a set that has 1,000, of which a tenth are test rows.
MANY_ROWS = 900
LEAST_SHARE, COVERAGE, LEAST_COVERAGE = 0.75, (0.87, 0.93), 0.82


def ranked(rows: list[Row], own: str, others: list[str]) -> Iterator[Table]:
    """
    Means of all sets, ranks of the methods that are compared, and what the method's variants lose.

    :param rows: Scores with the columns data, split and method; those that failed have an error.
    :param own: The method to judge; its variants have its name and more.
    :param others: What it is compared with.
    """
    means = _means(rows, [own, *others])
    if not any(own in of_set for of_set in means.values()):
        return
    yield Table("evidence_sets", "Negative log predictive density, means of splits", _by_set(means, [own, *others]))
    ranks = _ranks(means, [own, *others])
    yield Table("evidence_ranks", "Over the sets", _summaries(means, ranks), picture=_picture(means, ranks, own))
    yield Table("evidence_bars", f"{own.capitalize()} against the bars", _bars(means, ranks, own))
    variants = dict.fromkeys(row["method"] for row in rows if row["method"].startswith(f"{own} "))
    if losses := [_loss(rows, own, variant) for variant in variants]:
        yield Table("evidence_ingredients", "What is lost without an ingredient, in nats, over sets and splits", losses)


def _means(rows: list[Row], methods: list[str]) -> Means:
    """Over the splits of a set that all methods with any figures there have done."""
    means: Means = {}
    done = [row for row in rows if isfinite(row.get("NLPD", inf)) and row["method"] in methods]
    for name in dict.fromkeys(row["data"] for row in done):
        of_set = [row for row in done if row["data"] == name]
        splits = {method: {row["split"] for row in of_set if row["method"] == method} for method in methods}
        common = set.intersection(*(numbers for numbers in splits.values() if numbers))
        means[name] = {
            method: _mean([row for row in of_set if row["method"] == method and row["split"] in common])
            for method in methods
            if splits[method] and common
        }
    return {name: of_set for name, of_set in means.items() if of_set}


def _mean(rows: list[Row]) -> Row:
    return {"N": rows[0]["N"], "splits": len(rows), **_scores(rows)}


def _scores(rows: list[Row]) -> Row:
    return {score: fmean(row[score] for row in rows) for score in SCORES if all(score in row for row in rows)}


def _by_set(means: Means, methods: list[str]) -> list[Row]:
    """A row for each set, a column for each method."""
    return [
        {"data": name, "N": first["N"], "splits": first["splits"]}
        | {method: found.get(method, {}).get("NLPD") for method in methods}
        for name, found in means.items()
        for first in [next(iter(found.values()))]
    ]


def _ranks(means: Means, methods: list[str], score: str = "NLPD") -> dict[str, float]:
    """Mean ranks by a score; what has no figure comes last, those that are equal share their ranks."""
    per_set = [rankdata([found.get(method, {}).get(score, inf) for method in methods]) for found in means.values()]
    return {method: float(fmean(column)) for method, column in zip(methods, zip(*per_set))}


def _summaries(means: Means, ranks: dict[str, float]) -> list[Row]:
    scored = {name: of_set for name, of_set in means.items() if all("CRPS" in mean for mean in of_set.values())}
    by_crps = _ranks(scored, list(ranks), "CRPS")
    rows = [
        _summary(means, method) | {"mean rank of the NLPD": rank, "mean rank of the CRPS": by_crps.get(method)}
        for method, rank in ranks.items()
    ]
    return sorted(rows, key=lambda row: row["mean rank of the NLPD"])


def _summary(means: Means, method: str) -> Row:
    found = [(of_set[method], of_set) for of_set in means.values() if method in of_set]
    return {
        "method": method,
        "sets": len(found),
        f"within {CLOSE} of the best NLPD": _share(mean["NLPD"] <= _best(of_set) + CLOSE for mean, of_set in found),
        "mean coverage": fmean(mean["coverage"] for mean, _ in found) if found else None,
        "least coverage": min((mean["coverage"] for mean, _ in found), default=None),
    }


def _best(of_set: dict[str, Row]) -> float:
    return min(mean["NLPD"] for mean in of_set.values())


def _share(held: Iterator[bool]) -> float:
    values = list(held)
    return sum(values) / max(1, len(values))


def _bars(means: Means, ranks: dict[str, float], own: str) -> list[Row]:
    """What the method is held to."""
    found = [(of_set[own], of_set) for of_set in means.values() if own in of_set]
    best_other = min(rank for method, rank in ranks.items() if method != own)
    coverage = fmean(mean["coverage"] for mean, _ in found)
    large = [mean["coverage"] for mean, _ in found if mean["N"] >= MANY_ROWS]
    bars = [
        Bar("mean rank of the NLPD less the best other's", ranks[own] - best_other, at_most=0.0),
        Bar(
            f"share of sets with an NLPD within {CLOSE} of the best",
            _share(mean["NLPD"] <= _best(of_set) + CLOSE for mean, of_set in found),
            at_least=LEAST_SHARE,
        ),
        Bar(
            f"share of sets with an RMSE at most 1 % above that of {' and '.join(BOTH)}",
            _share(mean["RMSE"] <= SAME_ERROR * min(_errors(of_set)) for mean, of_set in found),
            at_least=LEAST_SHARE,
        ),
        Bar("mean coverage of 90 % intervals, from below", coverage, at_least=COVERAGE[0]),
        Bar("mean coverage of 90 % intervals, from above", coverage, at_most=COVERAGE[1]),
        *([Bar("least coverage of sets of 1,000 rows or more", min(large), at_least=LEAST_COVERAGE)] if large else []),
    ]
    return [{"what": bar.what, "measured": bar.measured, "bar": bar} for bar in bars]


def _errors(of_set: dict[str, Row]) -> list[float]:
    """Of those whose errors ours are compared with."""
    return [of_set[other]["RMSE"] for other in BOTH if other in of_set] or [inf]


def _loss(rows: list[Row], own: str, variant: str) -> Row:
    """How much larger the NLPD is on the sets and splits that both have done."""
    scores = {
        method: {(row["data"], row["split"]): row["NLPD"] for row in rows if row["method"] == method and "NLPD" in row}
        for method in (own, variant)
    }
    losses = [scores[variant][key] - value for key, value in scores[own].items() if key in scores[variant]]
    return {
        "variant": variant,
        "sets and splits": len(losses),
        "mean": fmean(losses) if losses else None,
        "least": min(losses, default=None),
        "most": max(losses, default=None),
        f"worse by more than {CLOSE}": sum(loss > CLOSE for loss in losses),
        f"better by more than {CLOSE}": sum(loss < -CLOSE for loss in losses),
    }


def _picture(means: Means, ranks: dict[str, float], own: str) -> Any:
    if find_spec("matplotlib") is None:
        print('[no evidence_ranks.png: matplotlib is missing, pip install "gpytorch_partition[plot]"]', file=sys.stderr)
        return None
    gaps = {
        name: {method: mean["NLPD"] - found[own]["NLPD"] for method, mean in found.items() if method != own}
        for name, found in means.items()
        if own in found
    }
    return critical_differences(ranks, _critical_difference(len(ranks), len(means)), gaps, own)


def _critical_difference(num_methods: int, num_sets: int) -> float:
    """By which two mean ranks differ significantly at 5 % (the Nemenyi test; Demsar 2006, section 3.2.2)."""
    quantile = studentized_range.ppf(0.95, num_methods, inf) / sqrt(2)
    return float(quantile * sqrt(num_methods * (num_methods + 1) / (6 * num_sets)))
