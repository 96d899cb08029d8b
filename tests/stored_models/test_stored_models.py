"""Stored models are loaded and predict what they did, and fitting them anew gives the same numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.stored_models.files import FOLDER, libraries, read
from tests.stored_models.zoo import ZOO

# A search stops where the likelihood is flat to rounding; with other vector instructions numbers moved by 2e-10.
SEARCH_RTOL = 1e-6

NAMES = sorted(path.name.removesuffix(".pt.xz") for path in FOLDER.glob("*.pt.xz"))


def _check(found, expected, rtol):
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        if name == "labels":
            assert torch.equal(found[name], values)
        else:
            assert found[name].dtype == values.dtype
            np.testing.assert_allclose(found[name], values, rtol=rtol, atol=rtol * values.abs().max(), err_msg=name)


def _numbers(entry, model, rows):
    with entry.context():
        return entry.kind.numbers(model, rows.new)


def test_there_are_enough_and_all_are_stored():
    assert len(NAMES) >= 20
    assert set(NAMES) == ZOO.keys()


@pytest.mark.filterwarnings("ignore:Negative variance values:gpytorch.utils.warnings.NumericalWarning")
@pytest.mark.parametrize("name", NAMES)
def test_a_stored_model_gives_the_same_numbers(name):
    entry, stored = ZOO[name], read(name)
    model = entry.kind.restored(entry.unfitted(stored["rows"]), stored["state"])
    _check(_numbers(entry, model, stored["rows"]), stored["numbers"], entry.rtol)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if ZOO[name].is_searched else []) for name in NAMES]
)
def test_fitting_anew_gives_the_same_numbers(name):
    entry, stored = ZOO[name], read(name)
    if stored["libraries"] != libraries():
        pytest.skip("other versions of the libraries that were there: they may grow other trees")
    model = entry.fitted(stored["rows"])
    rtol = max(entry.rtol, SEARCH_RTOL) if entry.is_searched else entry.rtol
    _check(_numbers(entry, model, stored["rows"]), stored["numbers"], rtol)
