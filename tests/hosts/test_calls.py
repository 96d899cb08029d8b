"""The calls that compare the hosts with themselves leave nothing out."""

from __future__ import annotations

import linear_operator.operators as lo
from gpytorch import kernels

from tests.hosts.calls import KERNELS, OPERATORS, calls, digest


def test_every_operator_and_kernel_is_called():
    operators = {name.removesuffix("LinearOperator") for name in lo.__all__ if name.endswith("LinearOperator")}
    assert operators - set(OPERATORS) == {"", "Block", "KeOps"}  # base classes, and what needs another package
    other_inputs = {"DistributionalInputKernel", "GaussianSymmetrizedKLKernel", "IndexKernel"}
    assert set(kernels.__all__) - set(KERNELS) == {"Kernel", "keops", "MultiDeviceKernel"} | other_inputs


def test_calls_have_names_of_their_own_and_most_give_numbers():
    names = [name for name, _ in calls()]
    assert len(names) == len(set(names)) >= 1_000
    first = dict(list(calls())[:100])
    assert sum(":" not in digest(call) for call in first.values()) >= 95
