"""
Models of GPyTorch's examples with this package's kernels: exact, or refused with a remedy, never silently wrong.

The fast tests run every client at 300 rows, and at 1,500 those whose covariances are combined in different ways. The
slow ones run nearly all at 1,500 rows, with one kernel each, in the default settings and one other, and every kernel
with three clients. `python -m tests.clients check` runs every cell.
"""

from __future__ import annotations

from itertools import cycle
from pathlib import Path

import pytest

from tests.clients.everyone import RECIPES
from tests.clients.measure import deviations
from tests.clients.problems import KERNELS
from tests.clients.table import page

PAGE = Path(__file__).parents[2] / "docs" / "clients.md"
# A minute or more at 1,500 rows, which are 3,000 numbers, for the oracle alone.
LARGE = ("multitask", "multitask, ScaleKernel", "multitask, correlated noise", "multitask, one noise", "LCM")
LARGE += ("LCM of two such kernels", "Bernoulli classification at all rows")
COMBINED = (
    "exact GP",
    "RBF + kernel",
    "kernel + constant",
    "sum(-3) over a batch of kernels",
    "kernel * RBF",
    "Hadamard multitask",
    "fantasies",
)
ROTATED = list(zip([name for name in RECIPES if name not in LARGE], cycle(KERNELS)))
OTHER_MODES = [(*case, mode) for case, mode in zip(ROTATED, cycle(["fast_pred_var", "iterative"]))]


def _check(*case):
    assert not deviations(*case)


@pytest.mark.parametrize("client", RECIPES)
def test_300_rows_and_a_flat_kernel(client):
    _check(RECIPES[client], "fast cluster", 300, "default")


@pytest.mark.parametrize("client", RECIPES)
def test_300_rows_and_trees(client):
    _check(RECIPES[client], "forest", 300, "fast_pred_var")


@pytest.mark.slow
@pytest.mark.parametrize("client", COMBINED)
def test_1500_rows_and_trees(client):
    _check(RECIPES[client], "forest", 1500, "default")


def test_1500_rows_of_which_some_have_no_target():
    """Solved around all rows, at GPyTorch's tolerance, the gradient was 15 % off."""
    _check(RECIPES["missing targets, mask"], "local linear", 1500, "default")


@pytest.mark.slow
@pytest.mark.parametrize(("client", "kernel"), ROTATED)
def test_1500_rows(client, kernel):
    _check(RECIPES[client], kernel, 1500, "default")


@pytest.mark.slow
@pytest.mark.parametrize(("client", "kernel", "mode"), OTHER_MODES)
def test_1500_rows_in_other_settings(client, kernel, mode):
    _check(RECIPES[client], kernel, 1500, mode)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("client", ["exact GP", "batch of models", "SVGP, inducing points fixed"])
def test_every_kernel(client, kernel):
    _check(RECIPES[client], kernel, 300, "iterative")
    _check(RECIPES[client], kernel, 1500, "default")


@pytest.mark.slow
def test_1500_rows_of_two_tasks():
    _check(RECIPES["LCM"], "forest", 1500, "iterative")


def test_the_page_says_what_is_tested():
    assert PAGE.read_text() == page(), "run `python -m tests.clients table > docs/clients.md`"
