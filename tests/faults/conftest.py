"""The default classifier of these tests has few trees."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpytorch_partition.estimators import classifier
from tests.faults.estimators_zoo import FEW_TREES


@pytest.fixture(autouse=True)
def _small_classifier(monkeypatch):
    monkeypatch.setattr(classifier, "_OPTIONS", replace(FEW_TREES, most_inducing_points=30))
