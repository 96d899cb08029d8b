"""What is said of long work where there is no terminal."""

from __future__ import annotations

import io
import sys
from time import sleep

import pytest

from gpytorch_partition import progress as module
from gpytorch_partition.progress import progress, quiet, ticking


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until it is told to go on."""
    now = [0.0]
    monkeypatch.setattr(module, "monotonic", lambda: now[0])
    return now


@pytest.mark.parametrize(("each", "said"), [(30.0, ["waiting: up to 2 minutes to go"]), (20.0, [])])
def test_the_first_item_tells_how_long_all_will_take(clock, caplog, each, said):
    for _ in progress(range(6), "waiting"):
        clock[0] += each
    assert [record.getMessage() for record in caplog.records] == said


def test_work_of_unknown_length_or_of_one_item_is_not_announced(clock, caplog):
    for items in (iter(range(6)), range(1), range(0)):
        for _ in progress(items, "waiting"):
            clock[0] += 1e6
    assert not caplog.records


def test_a_total_stands_in_for_a_length(clock, caplog):
    for _ in progress(iter(range(6)), "waiting", total=6):
        clock[0] += 60
    assert "up to 5 minutes" in caplog.text


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def at_once(monkeypatch):
    monkeypatch.setattr(module, "_DELAY", 0.0)
    monkeypatch.setattr(module, "_TICK", 0.01)


def test_a_clock_ticks_with_its_forecast_on_a_terminal(at_once, monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with ticking("fitting", 75.0):
        sleep(0.2)
    assert terminal.getvalue().count("fitting: 00:00 of about 01:15") > 2
    assert terminal.getvalue().split("01:15")[-1].strip() == ""  # wiped out
    assert "    " in terminal.getvalue().split("01:15")[-1]


def test_nothing_is_shown_where_it_is_not_a_terminal_or_wanted(at_once, monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with quiet(), ticking("fitting"):
        sleep(0.05)
        assert list(progress(range(3), "waiting")) == [0, 1, 2]
    monkeypatch.setattr(terminal, "isatty", lambda: False)
    with ticking("fitting"):
        sleep(0.05)
    assert terminal.getvalue() == ""
