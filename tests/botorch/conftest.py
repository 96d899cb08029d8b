"""BoTorch changes settings of GPyTorch when it is imported: they hold in these tests, and nowhere else."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from tests import botorch_settings

collect_ignore_glob = [] if find_spec("botorch") else ["*"]


if find_spec("botorch"):
    import botorch  # noqa: F401
BOTORCHS = botorch_settings.current()  # `tests/conftest.py` sets GPyTorch's again before every test


@pytest.fixture(autouse=True)
def _botorchs_settings():
    before = botorch_settings.current()
    botorch_settings.change(BOTORCHS)
    yield
    botorch_settings.change(before)
