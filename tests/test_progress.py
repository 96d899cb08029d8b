"""Bars, stages and messages of long work, with and without a terminal."""

from __future__ import annotations

import io
import logging
import re
import sys
from functools import partial

import numpy as np
import pytest

from gpytorch_partition import progress as module
from gpytorch_partition.estimators import PartitionGPClassifier, PartitionGPRegressor
from gpytorch_partition.progress import doing, progress, recorded_stages, stage, verbosity
from tests.few_trees import few_trees

X = np.random.RandomState(0).rand(60, 2)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown_at_once(monkeypatch):
    """A terminal in the place of standard error, which the test itself replaces, as pytest does between its phases."""
    monkeypatch.setattr(module, "_DELAY", 0.0)
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    return terminal


def work():
    with doing("fitting"):
        for number in range(3):
            with stage("weighing"), stage(f"fold {number}", level=2):
                assert list(progress(range(3), "waiting")) == [0, 1, 2]


def test_a_terminal_has_a_line_of_what_is_done_and_bars(monkeypatch):
    terminal = shown_at_once(monkeypatch)
    work()
    shown = terminal.getvalue()
    assert "fitting: 00:00" in shown
    assert "\rfitting, fold 2: 00:00" in shown
    assert "waiting:   0%" in shown
    assert "seconds" not in shown  # which is for work without a terminal
    assert shown.replace("\x1b[A", "").rpartition("]")[2].strip() == ""  # wiped out


def test_nothing_is_shown_where_it_is_not_a_terminal_or_wanted(monkeypatch):
    terminal = shown_at_once(monkeypatch)
    with verbosity(False), verbosity(1):
        work()
    monkeypatch.setattr(terminal, "isatty", lambda: False)
    work()
    assert terminal.getvalue() == ""


def test_stages_are_counted_and_their_steps_are_not():
    with recorded_stages() as seconds:
        work()
    with stage("outside"):
        pass
    assert list(seconds) == ["weighing"]
    assert seconds["weighing"] > 0


def machines():
    regressor = partial(PartitionGPRegressor, options=few_trees(5, num_folds=2), random_state=0)
    y = np.sin(5 * X[:, 0])
    return {
        "fitting 60 rows, lengthscales and weights: ": lambda verbose: regressor(verbose=verbose).fit(X, y),
        "fitting 60 rows, choosing weights and link: ": lambda verbose: PartitionGPClassifier(
            "forest", 20, verbose=verbose
        ).fit(X, y > 0),
    }


@pytest.mark.slow
@pytest.mark.parametrize("line", machines())
def test_fits_say_their_stages_on_a_terminal(monkeypatch, line):
    terminal = shown_at_once(monkeypatch)
    fit = machines()[line]
    fit(0)
    with verbosity(0):
        fit(1)
    assert terminal.getvalue() == ""
    fit(None)
    assert line in terminal.getvalue()


@pytest.mark.slow
def test_without_a_terminal_stages_are_told_to_those_who_ask(capsys, caplog):
    fit = machines()["fitting 60 rows, lengthscales and weights: "]
    fit(None)
    fit(False)
    with verbosity(0):
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
