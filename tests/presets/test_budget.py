"""Smaller default models, and the search for the largest one that a budget allows, by a clock that the tests turn."""

from __future__ import annotations

import re

import pytest

from gpytorch_partition.presets.options import Options, fit_within, levels

SIZES = [(50, 2), (900, 8), (5_000, 30), (9_000, 8), (300_000, 3)]
SECONDS = [3.0, 10.0, 30.0, 100.0]  # of the models, the smallest first


class Machine:
    """A machine on which the models take what is given."""

    def __init__(self, choices, seconds):
        self.now, self.fitted = 0.0, []
        self.seconds = dict(zip([level.options for level in reversed(choices)], seconds))

    def clock(self):
        return self.now

    def fit(self, options):
        self.fitted.append(options)
        self.now += self.seconds[options]


def found(size, **options):
    return list(levels(*size, Options(**options)))


def names(level):
    return {re.sub(r"[\d,]+( of [\d,]+)?|all", "", text).strip() for text in level.left_out}


@pytest.mark.parametrize("size", SIZES)
def test_each_level_says_more(size):
    choices = found(size)
    for better, level in zip(choices, choices[1:]):
        assert names(better) <= names(level)
    assert len({level.left_out for level in choices}) == len({level.options for level in choices}) == len(choices)
    assert choices[0] == (Options(), ())


def test_rows_are_left_out_at_last_and_by_quarters():
    rows = [level.options.most_rows for level in found((300_000, 3))]
    assert rows == [float("inf")] * 4 + [75_000, 18_750, 4_687, 2_000]


def test_what_a_small_model_does_not_have_is_not_said_to_be_left_out():
    assert names(found((900, 8))[-1]) == {
        "trees",
        "inducing points",
        "rows that choose weights",
        "folds that choose weights",
    }
    assert "inducing points" not in names(found((256, 16))[-1])  # all rows are, however many there may be
    assert "all rough parts" in found((5_000, 8))[-1].left_out
    assert "rough parts" not in names(found((5_000, float("inf")))[-1])


def test_what_is_left_out_is_counted():
    few = found((256, 16), num_trees=20, num_slope_trees=10)[-1].left_out
    assert few[0] == "175 of 400 trees"  # (150 + 200) / 2 of 2 * 20 + 10 + 350
    assert found((9_000, 8))[-1].left_out[-1] == "7,000 of 9,000 rows"


@pytest.mark.parametrize(
    ("budget", "num_fitted", "seconds"),
    [(1.0, 1, 3.0), (17.0, 1, 3.0), (18.0, 2, 13.0), (63.0, 3, 43.0), (192.0, 3, 43.0), (193.0, 4, 143.0)],
)
def test_the_next_model_is_tried_where_five_times_the_seconds_of_the_last_are_left(budget, num_fitted, seconds):
    choices = found((300_000, 3))[-4:]
    machine = Machine(choices, SECONDS)
    kept = fit_within(budget, choices, machine.fit, machine.clock)
    assert machine.fitted == [level.options for level in choices[::-1][:num_fitted]]
    assert kept == choices[-num_fitted]
    assert machine.now == seconds
