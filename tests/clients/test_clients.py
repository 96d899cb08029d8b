"""
Models of GPyTorch's examples with this package's kernels: exact, or refused with a remedy, never silently wrong.

The fast tests run every client at 300 rows with flat partitions, slow ones with trees. Others run nearly all at 500
rows where GPyTorch's dense algebra ends at 200, with one kernel each, in the default settings and one other, and every
kernel with three clients; those whose covariances are combined in different ways at the 1,500 rows of the page. Cases
of one test have one oracle, which takes most of the time. `python -m tests.clients check` runs every cell of the page.
"""

from __future__ import annotations

from itertools import cycle
from pathlib import Path

import pytest
from gpytorch.settings import max_eager_kernel_size
from linear_operator.settings import max_cholesky_size, num_trace_samples

from tests.clients.everyone import RECIPES
from tests.clients.measure import deviations
from tests.clients.problems import KERNELS
from tests.clients.table import page

PAGE = Path(__file__).parents[2] / "docs" / "clients.md"
# Two outcomes at each row, or solves that do not converge: a minute or more at 1,500 rows, for the oracle alone.
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
# Its targets have a scale of 5: at 1,000 rows means were 1.1e-3 off.
WIDE = "Dirichlet classification"
ROTATED = zip([name for name in RECIPES if name not in LARGE], cycle(KERNELS), cycle(["fast_pred_var", "iterative"]))
ROTATED = [case for case in ROTATED if case[0] != WIDE]


def _check(*case):
    assert not deviations(*case)


def _check_above_the_limit(client, kernel, mode):
    """More probe vectors make up for fewer rows: what they leave of a likelihood per datum is in 1 / sqrt(N probes)."""
    with max_cholesky_size(200), max_eager_kernel_size(200), num_trace_samples(40):
        _check(RECIPES[client], kernel, 500, mode)


@pytest.mark.parametrize("client", RECIPES)
def test_300_rows_and_a_flat_kernel(client):
    _check(RECIPES[client], "fast cluster", 300, "default")


@pytest.mark.slow
@pytest.mark.parametrize("client", RECIPES)
def test_300_rows_and_trees(client):
    _check(RECIPES[client], "forest", 300, "fast_pred_var")


@pytest.mark.slow
@pytest.mark.parametrize("client", COMBINED)
def test_1500_rows_and_trees(client):
    _check(RECIPES[client], "forest", 1500, "default")


def test_rows_of_which_some_have_no_target():
    """Solved around all rows, at GPyTorch's tolerance, the gradient was 15 % off."""
    _check_above_the_limit("missing targets, mask", "local linear", "default")


@pytest.mark.slow
@pytest.mark.parametrize(("client", "kernel", "mode"), ROTATED)
def test_above_the_limit(client, kernel, mode):
    _check_above_the_limit(client, kernel, "default")
    _check_above_the_limit(client, kernel, mode)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["default", "iterative"])
def test_1500_rows_of_wide_targets(mode):
    _check(RECIPES[WIDE], "learned heights", 1500, mode)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("client", ["exact GP", "batch of models", "SVGP, inducing points fixed"])
def test_every_kernel(client, kernel):
    _check(RECIPES[client], kernel, 300, "iterative")
    if (client, kernel) != ("batch of models", "gamma Mondrian"):  # whose oracle takes 20 seconds
        _check_above_the_limit(client, kernel, "default")


@pytest.mark.slow
def test_two_tasks_above_the_limit():
    _check_above_the_limit("LCM", "forest", "default")


def test_the_page_says_what_is_tested():
    assert PAGE.read_text() == page(), "run `python -m tests.clients table > docs/clients.md`"
