"""What a budget leaves out, by a clock that the tests turn."""

from __future__ import annotations

import re

import pytest

from gpytorch_partition.presets.budget import fit_within, levels
from gpytorch_partition.presets.options import Options
from gpytorch_partition.stages import OutOfTimeError, check_time, recorded_stages, stage, time_limit

SIZES = [(50, 2), (900, 8), (5_000, 30), (100_000, 3)]


class Machine:
    """A machine that is so many times as slow as expected, which may differ from one attempt to the next."""

    def __init__(self, choices, *slowness):
        self.now, self.fitted, self.kept = 0.0, [], None
        self.seconds = {level.options: level.seconds for level in choices}
        self.slowness = list(slowness)

    def clock(self):
        return self.now

    def fit(self, options):
        self.fitted.append(options)
        slowness = self.slowness.pop(0) if len(self.slowness) > 1 else self.slowness[0]
        for _ in range(1_000):
            check_time()
            self.now += slowness * self.seconds[options] / 1_000
        self.kept = options


def plain(text):
    """What is left out, without how many of it."""
    return re.sub(r"[\d,]+", "", text)


@pytest.mark.parametrize("size", SIZES)
def test_each_level_is_cheaper_and_says_more(size):
    found = levels(*size, Options())
    for better, level in zip(found, found[1:]):
        assert level.seconds < better.seconds
        assert {plain(text) for text in better.left_out} <= {plain(text) for text in level.left_out}
    assert len({level.left_out for level in found}) == len(found)
    assert found[0] == (Options(), (), found[0].seconds)


def test_what_a_small_model_does_not_have_is_not_said_to_be_left_out():
    told = " ".join(levels(900, 8, Options())[-1].left_out)
    assert "rough" not in told
    assert "calibration" not in told
    assert "700" not in told
    assert "of 900 rows" in told
    assert "rough" in " ".join(levels(5_000, 8, Options())[-1].left_out)
    assert "rough" not in " ".join(levels(5_000, 30, Options())[-1].left_out)


def test_each_thing_that_is_left_out_has_an_effect_of_its_own():
    """A change of a number that so few rows do not reach is told by no word."""
    few = [level.left_out for level in levels(256, 16, Options())]
    assert few[1] == ("half of the trees",)  # all of 256 rows are inducing points, however many there may be
    assert few[-1] == ("half of the trees", "weights by more than 200 rows", "weights by more than 3 folds")
    assert "inducing points above 500" in levels(560, 16, Options())[1].left_out
    (_, trees, *_) = levels(256, 16, Options(num_trees=20, num_slope_trees=10))
    assert trees.left_out == ("44 % of the trees",)  # (150 + 200) / 2 of 40 + 10 + 350


def test_tables_with_categories_have_no_rough_parts_to_leave_out():
    assert "rough" in " ".join(levels(5_000, 8, Options())[-1].left_out)
    of_tables = levels(5_000, 8, Options(), has_view=True)
    assert "rough" not in " ".join(of_tables[-1].left_out)
    assert of_tables[0].seconds < levels(5_000, 8, Options())[0].seconds


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("slowness", [(0.5,), (1.0,), (5.0,), (1.0, 4.0), (4.0, 1.0), (1.0, 0.3, 6.0)])
@pytest.mark.parametrize("budget", [10.0, 30.0, 100.0, 1000.0])
def test_a_budget_is_kept_and_used(size, slowness, budget):
    choices = levels(*size, Options())
    machine = Machine(choices, *slowness)
    kept = fit_within(budget, choices, machine.fit, machine.clock)
    assert machine.kept == kept.options
    least = max(slowness) * choices[-1].seconds
    assert machine.now <= max(1.2 * budget, 0.5 * budget + least)
    if len(slowness) == 1 and kept != choices[0]:  # then the next better one would not have been done in time
        better = choices[choices.index(kept) - 1].seconds
        margin = 1.15 * (better / kept.seconds) ** 0.2
        assert machine.now + margin * slowness[0] * better > budget


def test_a_budget_that_is_large_enough_costs_nothing():
    choices = levels(900, 8, Options())
    machine = Machine(choices, 1.0)
    assert fit_within(10 * choices[0].seconds, choices, machine.fit, machine.clock) == choices[0]
    assert len(machine.fitted) == 1


def test_an_attempt_that_takes_too_long_is_given_up_for_what_was_done_before():
    choices = levels(5_000, 8, Options())
    machine = Machine(choices, 1.0, 100.0)
    kept = fit_within(30.0, choices, machine.fit, machine.clock)
    assert machine.kept == kept.options == machine.fitted[0] != machine.fitted[1]
    assert machine.now < 1.2 * 30


def test_the_least_is_fitted_whatever_it_takes():
    choices = levels(900, 8, Options())
    machine = Machine(choices, 100.0)
    assert fit_within(0.01, choices, machine.fit, machine.clock) == choices[-1]
    assert machine.now == pytest.approx(100 * choices[-1].seconds)


def test_stages_end_when_the_time_is_over():
    now = [0.0]
    with recorded_stages() as seconds, time_limit(2.0, lambda: now[0]):
        with stage("first"):
            now[0] = 3.0
        with pytest.raises(OutOfTimeError), stage("second"):
            pass
    check_time()  # outside there is no limit
    assert list(seconds) == ["first"]
