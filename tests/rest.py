"""
With RUN_THE_REST in the environment, pytest runs what has not passed here before: CI first without the extras.

Tests of data frames are: with pyarrow installed, pandas holds text in another way.
"""

from __future__ import annotations

import pytest

PASSED = "gpytorch_partition/passed"  # in pytest's cache
OF_FRAMES = ("tests/tables/", "tests/command_line/", "tests/estimators/test_tables.py")


class Rest:
    """What has passed before, and in this run."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.passed = set(config.cache.get(PASSED, []))

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        rest = [item for item in items if item.nodeid not in self.passed or item.nodeid.startswith(OF_FRAMES)]
        self.config.hook.pytest_deselected(items=list({*items} - {*rest}))
        items[:] = rest

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self.passed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        if not hasattr(self.config, "workerinput"):  # workers tell the process that started them
            self.config.cache.set(PASSED, sorted(self.passed))


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Rest(config))
