"""A model of any table: random small ones of all kinds that break numerical methods, and factorizations that fail."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

import gpytorch_partition
from gpytorch_partition.estimators import PartitionGPRegressor
from gpytorch_partition.kernels import PartitionKernel
from gpytorch_partition.presets import Options
from tests.presets.random_tables import SMALL, check, random_table

PACKAGE = Path(gpytorch_partition.__file__).parent
HELPERS = {"factors.py"}  # which factorize for other modules
SOLVERS = ("operators/", "solvers/", "inference/prediction/")  # whose dense solves fail in the end if every jitter does


@pytest.mark.parametrize("first", [0, *(pytest.param(each, marks=pytest.mark.slow) for each in range(10, 140, 10))])
def test_random_small_tables_have_models(first):
    for seed in range(first, first + 10):
        check(random_table(seed))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_random_small_tables_have_default_models(seed):
    check(random_table(seed, num_rows=60), Options())


@pytest.mark.parametrize("seed", [1037, 1137])
def test_a_table_of_hardly_any_noise_is_summed_in_float64(seed):
    model = check(random_table(seed))
    sums = [kernel.sum_dtype for kernel in model.kernel_.modules() if isinstance(kernel, PartitionKernel)]
    assert sums
    assert not any(sums)
    restored = PartitionGPRegressor.from_state(model.to_state())
    X = random_table(seed).new
    for one, other in zip(model.predict(X, return_std=True), restored.predict(X, return_std=True)):
        assert_array_equal(one, other)


@pytest.mark.parametrize("targets", [pytest.param(0, marks=pytest.mark.slow), slice(2)], ids=["one", "several"])
def test_a_table_without_noise_may_be_calibrated_to_less_than_the_least(targets):
    random = np.random.RandomState(0)
    X = random.randn(1_600, 3)
    options, y = replace(SMALL, fewest_choosing_rows=100, choosing_share=0.06), X[:, targets]
    model = PartitionGPRegressor(random_state=0, options=options).fit(X, y)
    assert np.min(model.noise_ / y.var(0)) < 0.5 * options.least_noise
    assert_allclose(model.predict(X), y, atol=2e-5)


class Failing:
    """A factorization that fails the first times that each line of the package asks for it."""

    def __init__(self, function: Callable[..., Any], failure: Callable[..., Any], times: int) -> None:
        self.function, self.failure, self.times = function, failure, times
        self.calls: Counter[tuple[str, int]] = Counter()

    def __call__(self, matrix: torch.Tensor, *args: Any, **options: Any) -> Any:
        place = _asking_line()
        self.calls[place] += 1
        times = 1 if place[0].startswith(SOLVERS) else self.times
        return (self.failure if self.calls[place] <= times else self.function)(matrix, *args, **options)


def _asking_line() -> tuple[str, int]:
    frame = sys._getframe(2)
    while not (path := Path(frame.f_code.co_filename)).is_relative_to(PACKAGE) or path.name in HELPERS:
        frame = frame.f_back
    return str(path.relative_to(PACKAGE)), frame.f_lineno


def _raise(matrix: torch.Tensor, *_: Any, **__: Any) -> None:
    raise torch.linalg.LinAlgError(f"a factorization of {len(matrix)} rows fails")


def _report_failure(matrix: torch.Tensor, *_: Any, **__: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return matrix.clone(), torch.ones(matrix.shape[:-2], dtype=torch.int32)


FAILURES = {"cholesky_ex": _report_failure, "cholesky": _raise, "eigh": _raise}


def predictions(num_rows: int) -> list[np.ndarray]:
    random = np.random.RandomState(0)
    X, new = random.rand(num_rows, 2), random.rand(30, 2)
    y = np.sin(6 * X[:, 0]) + X[:, 1] + 0.1 * random.randn(num_rows)
    model = PartitionGPRegressor(random_state=0, options=SMALL).fit(X, y)
    return model.predict(new, return_std=True)


@pytest.mark.filterwarnings("ignore:A not p.d., added jitter", "ignore:expected 10 rows or more")
@pytest.mark.parametrize("times", [1, 5])
@pytest.mark.parametrize("num_rows", [8, 60, pytest.param(1_300, marks=pytest.mark.slow)])
def test_every_factorization_may_fail(num_rows, times, monkeypatch):
    expected = predictions(num_rows)
    failing = {name: Failing(getattr(torch.linalg, name), failure, times) for name, failure in FAILURES.items()}
    for name, function in failing.items():
        monkeypatch.setattr(torch.linalg, name, function)
    found = predictions(num_rows)
    assert any(function.calls for function in failing.values())
    for one, other in zip(found, expected):
        assert_allclose(one, other, atol=1e-3 * expected[1].mean())
