"""What is said of long work, with and without a terminal."""

from __future__ import annotations

import io
import logging
import os
import re
import struct
import sys
from contextlib import suppress
from functools import partial
from threading import Thread
from time import sleep

import numpy as np
import pytest

from gpytorch_partition import progress as module
from gpytorch_partition.estimators import PartitionGPClassifier, PartitionGPRegressor
from gpytorch_partition.presets import Options
from gpytorch_partition.progress import progress, quiet, ticking

X = np.random.RandomState(0).rand(60, 2)


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
    assert terminal.getvalue().count("00:00 of about 01:15: fitting") > 2
    assert terminal.getvalue().split("fitting")[-1].strip() == ""  # wiped out
    assert "    " in terminal.getvalue().split("fitting")[-1]


def test_nothing_is_shown_where_it_is_not_a_terminal_or_wanted(at_once, monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with quiet(), ticking("fitting"):
        sleep(0.05)
        assert list(progress(range(3), "waiting")) == [0, 1, 2]
    monkeypatch.setattr(terminal, "isatty", lambda: False)
    with ticking("fitting"):
        sleep(0.05)
    assert terminal.getvalue() == ""


@pytest.fixture
def terminal():
    """A terminal of 24 lines, and what was written to it."""
    pty, fcntl, termios = (pytest.importorskip(name) for name in ("pty", "fcntl", "termios"))
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))
    written: list[bytes] = []
    reader = Thread(target=read_into, args=(written, ours), daemon=True)
    reader.start()
    with os.fdopen(its, "w") as file:
        yield file, written
    reader.join()
    os.close(ours)


def read_into(written, descriptor):
    """Until the other end is closed, as a terminal that is never read blocks who writes."""
    with suppress(OSError):
        while found := os.read(descriptor, 2**16):
            written.append(found)


def test_a_terminal_that_does_not_tell_its_size_is_one(terminal, at_once, monkeypatch):
    """As those of containers and of batch systems, of 0 lines of 0 characters."""
    fcntl, termios = pytest.importorskip("fcntl"), pytest.importorskip("termios")
    file, written = terminal
    fcntl.ioctl(file.fileno(), termios.TIOCSWINSZ, struct.pack("HHHH", 0, 0, 0, 0))
    monkeypatch.setattr(sys, "stderr", file)
    with ticking("fitting"):
        wait_for(written, "\r00:00: fitting")
    for _ in progress(range(3), "waiting"):
        sleep(0.15)
    wait_for(written, "waiting:  67%")


def machines():
    few_trees = Options(num_trees=5, num_slope_trees=5, num_boosted_trees=5, num_shallow_boosted_trees=5, num_folds=2)
    regressor = partial(PartitionGPRegressor, options=few_trees, random_state=0)
    y = np.sin(5 * X[:, 0])
    return {
        "fitting 60 rows, choosing weights and noise, weights": lambda verbose: regressor(verbose=verbose).fit(X, y),
        "fitting 60 rows, choosing weights and link": lambda verbose: PartitionGPClassifier(
            "forest", 20, verbose=verbose
        ).fit(X, y > 0),
    }


@pytest.mark.slow
@pytest.mark.parametrize("stage", machines())
def test_fits_say_their_stages_on_a_terminal(terminal, monkeypatch, stage):
    fit, (file, written) = machines()[stage], terminal
    monkeypatch.setattr(sys, "stderr", file)
    monkeypatch.setattr(module, "_DELAY", 0.0)
    monkeypatch.setattr(module, "_TICK", 0.002)
    fit(0)
    with quiet():
        fit(1)
    assert not written
    fit(None)
    with ticking("comparing"):
        fit(1)
    file.flush()
    shown = wait_for(written, f": comparing, {stage}")
    assert re.search(rf"\r[\d:]+( of about [\d:]+)?: {stage}", shown)
    assert "seconds" not in shown  # which is for those who have no terminal


def wait_for(written, text):
    """What was written, when a text is there, or after a while."""
    for _ in range(100):
        if text in (shown := b"".join(written).decode()):
            return shown
        sleep(0.05)
    raise AssertionError(f"expected {text!r}, got {shown[-300:]!r}")


@pytest.mark.slow
def test_without_a_terminal_stages_are_told_to_those_who_ask(capsys, caplog):
    fit = machines()["fitting 60 rows, choosing weights and noise, weights"]
    fit(None)
    fit(False)
    with quiet():
        fit(2)
    assert capsys.readouterr() == ("", "")
    fit(True)
    told = capsys.readouterr().err
    assert re.search(r"gpytorch_partition: choosing weights and noise: \d+\.\d seconds\n", told)
    assert "fold 1 of 2" not in told
    fit(2)
    assert "gpytorch_partition:   fold 1 of 2: " in capsys.readouterr().err
    with caplog.at_level(logging.INFO):
        fit(1)
    assert "choosing weights and noise: " in caplog.text
    assert capsys.readouterr().err == ""
