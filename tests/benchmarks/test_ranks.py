"""Ranks, bars and losses against what was worked out by hand."""

import pytest

from benchmarks import ranks


def row(data, split, method, density, error=1.0, coverage=0.9, num_rows=2_000):
    return {
        "data": data,
        "split": split,
        "method": method,
        "N": num_rows,
        "NLPD": density,
        "RMSE": error,
        "coverage": coverage,
        "seconds": 1.0,
    }


OTHERS = ["random forest", "histogram boosting"]
ROWS = [
    row("a", 0, "default", 0.0),
    row("a", 0, "random forest", 0.1),
    row("a", 0, "histogram boosting", 0.2, error=0.9),
    row("a", 1, "default", 0.2),  # the others have not done this split
    row("b", 0, "default", 0.5, coverage=0.8, num_rows=500),
    row("b", 0, "random forest", 0.49),
    row("b", 0, "histogram boosting", 0.7),
    row("a", 0, "default without trees", 0.3),
    row("b", 0, "default without trees", 0.4),
    {"data": "b", "split": 1, "method": "default without trees", "error": "MemoryError"},
]


def tables(rows=ROWS):
    return {table.name: table for table in ranks.ranked(rows, "default", OTHERS)}


def test_means_are_over_common_splits_only():
    (a, b) = tables()["evidence_sets"].rows
    assert a == {"data": "a", "N": 2_000, "splits": 1, "default": 0.0, "random forest": 0.1, "histogram boosting": 0.2}
    assert b["N"] == 500


def test_mean_ranks_and_what_is_close_to_the_best():
    found = {row["method"]: row for row in tables()["evidence_ranks"].rows}
    mean_ranks = {method: row["mean rank of the NLPD"] for method, row in found.items()}
    assert mean_ranks == {"default": 1.5, "random forest": 1.5, "histogram boosting": 3.0}
    shares = {method: row["within 0.02 of the best NLPD"] for method, row in found.items()}
    assert shares == {"default": 1.0, "random forest": 0.5, "histogram boosting": 0.0}
    assert found["default"]["mean coverage"] == pytest.approx(0.85)


def test_ranks_by_crps_are_over_sets_that_have_it():
    rows = [each | {"CRPS": -each["NLPD"]} if each["data"] == "a" and "NLPD" in each else each for each in ROWS]
    found = {each["method"]: each["mean rank of the CRPS"] for each in tables(rows)["evidence_ranks"].rows}
    assert found == {"default": 3.0, "random forest": 2.0, "histogram boosting": 1.0}
    assert tables()["evidence_ranks"].rows[0]["mean rank of the CRPS"] is None


def test_a_method_without_a_figure_comes_last():
    rows = [row for row in ROWS if (row["data"], row["method"]) != ("b", "random forest")]
    found = {row["method"]: row for row in tables(rows)["evidence_ranks"].rows}
    assert found["random forest"]["mean rank of the NLPD"] == 2.5
    assert found["random forest"]["sets"] == 1


def test_what_is_not_a_number_has_failed():
    rows = [row("c", 0, method, float("nan") if method == "random forest" else 1.0) for method in ["default", *OTHERS]]
    found = {row["method"]: row for row in tables(ROWS + rows)["evidence_ranks"].rows}
    assert found["random forest"]["sets"] == 2
    assert found["default"]["sets"] == 3
    assert not tables(rows[1:])


def test_bars():
    held = {row["what"]: (row["measured"], row["bar"].holds) for row in tables()["evidence_bars"].rows}
    assert held["mean rank of the NLPD less the best other's"] == (0.0, True)
    assert held["share of sets with an NLPD within 0.02 of the best"] == (1.0, True)
    error = "share of sets with an RMSE at most 1 % above that of random forest and histogram boosting"
    assert held[error] == (0.5, False)
    assert held["mean coverage of 90 % intervals, from below"] == (pytest.approx(0.85), False)
    assert held["least coverage of sets of 1,000 rows or more"] == (0.9, True)


def test_what_an_ingredient_is_worth():
    (loss,) = tables()["evidence_ingredients"].rows
    assert loss["sets and splits"] == 2
    assert loss["mean"] == pytest.approx(0.1)
    assert (loss["least"], loss["most"]) == (pytest.approx(-0.1), pytest.approx(0.3))
    assert (loss["worse by more than 0.02"], loss["better by more than 0.02"]) == (1, 1)


def test_the_critical_difference_is_that_of_demsar():
    """Demsar 2006, section 3.2.2: four methods on fourteen sets."""
    assert ranks._critical_difference(4, 14) == pytest.approx(1.25, abs=0.005)
