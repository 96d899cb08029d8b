"""docs/repeated_measurements.md: its kernels are the covariances of random effects, and its model finds them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from gpytorch.kernels import LinearKernel
from scipy.optimize import minimize
from scipy.stats import multivariate_normal

from gpytorch_partition import GroupKernel, LocalLinearKernel

EXAMPLES = re.findall(
    r"```python\n(.*?)```", (Path(__file__).parents[1] / "docs" / "repeated_measurements.md").read_text(), re.DOTALL
)
RANDOM = np.random.RandomState(0)
SITE, PATIENT, YEARS = RANDOM.randint(3, size=40), RANDOM.randint(5, size=40), RANDOM.randn(40)
ROWS = torch.from_numpy(np.stack([SITE, PATIENT, YEARS], 1))
SAME_SITE, SAME_PATIENT = SITE[:, None] == SITE, PATIENT[:, None] == PATIENT
NESTED = 0.5 * SAME_SITE + 0.5 * (SAME_SITE & SAME_PATIENT)
LINE = 0.25 * np.outer(YEARS, YEARS)


def slopes(groups):
    kernel = LocalLinearKernel(groups, 1, active_dims=(2,))
    kernel.variance = 0.25
    return kernel


def line():
    kernel = LinearKernel(active_dims=(2,))
    kernel.variance = 0.25
    return kernel


@pytest.mark.parametrize(
    ("kernel", "covariance"),
    [
        (GroupKernel((1,)), SAME_PATIENT),
        (GroupKernel((0, 1), nested=True), NESTED),
        (GroupKernel((0, 1)), 0.5 * SAME_SITE + 0.5 * SAME_PATIENT),
        (slopes(GroupKernel((1,))), SAME_PATIENT * (1 + LINE)),
        (slopes(GroupKernel((0, 1), nested=True)), NESTED * (1 + LINE)),
        (slopes(GroupKernel((1,))) + line(), SAME_PATIENT * (1 + LINE) + LINE),
    ],
    ids=["levels", "nested", "crossed", "slopes", "nested slopes", "slopes and a line"],
)
def test_kernels_are_covariances_of_random_effects(kernel, covariance):
    assert np.abs(kernel.double()(ROWS).to_dense().detach().numpy() - covariance).max() < 1e-6


def most_likely(patient, years, y):
    """The mixed model's standard deviations of levels, slopes and noise by maximum likelihood, from dense matrices."""
    same, line = (patient[:, None] == patient).astype(float), np.outer(years, years)

    def minus_log_likelihood(position):
        level, slope, shared, noise = np.exp(position[:4])
        covariance = same * (level + slope * line) + shared * line + noise * np.eye(len(y))
        return -multivariate_normal.logpdf(y, np.full(len(y), position[4]), covariance)

    return np.exp(minimize(minus_log_likelihood, [0.0, 0, 0, 0, 0], options={"gtol": 1e-3}).x[[0, 1, 3]] / 2)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the model is trained by L-BFGS")
def test_the_page_finds_what_a_dense_computation_finds(capsys):
    page = {"__name__": "page"}
    exec(compile("\n".join(EXAMPLES), "repeated_measurements.md", "exec"), page)
    chosen = page["known"]
    dense = 10 * most_likely(page["patient"][chosen], page["years"][chosen], page["pressure"][chosen] / 10 - 12)
    assert page["deviations"] == pytest.approx(dense, rel=0.02)
    shares = re.findall(r"hold (\d+) %", capsys.readouterr().out)
    slopes_hold, visits, patients, *by_folds = map(int, shares[:7])
    assert min(slopes_hold, visits, patients, *by_folds[:3]) > 80
    assert by_folds[3] < 80  # a forest, of new patients
