"""Tests import helpers that lie beside them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from tests import botorch_settings

# The matrices of the tests are small: a second thread costs more than it brings, most of all on a busy machine.
torch.set_num_threads(1)

sys.path.insert(0, str(Path(__file__).parent / "operators"))

_BEFORE = botorch_settings.current()  # some tests and modules import BoTorch, here or while they are collected


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    """Begin every test with GPyTorch's settings."""
    botorch_settings.change(_BEFORE)
