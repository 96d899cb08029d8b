"""Stored models are loaded and predict what they did, and fitting them anew gives the same numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.stored_models.files import FOLDER, libraries, read
from tests.stored_models.zoo import ZOO

# Other vector instructions (AVX2 beside AVX-512) moved numbers of a search by 2e-10 of the largest, those of a
# GammaMondrianKernel by 1e-8, and of the default, whose search stops where the density is flat, by up to 2e-3.
SEARCH_RTOL, GAMMA_RTOL, DEFAULT_RTOL = 1e-6, 1e-7, 5e-3

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
    _check(_numbers(entry, model, stored["rows"]), stored["numbers"], max(entry.rtol, _rtol_anew(name)))


def _rtol_anew(name):
    if name.startswith("regressor_auto"):
        return DEFAULT_RTOL
    return GAMMA_RTOL if name == "gamma_mondrian" else SEARCH_RTOL * ZOO[name].is_searched
