"""Models of earlier versions are loaded and predict what they did, and fitting them anew gives the same numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.stored_models.files import FOLDER, libraries, read
from tests.stored_models.zoo import ZOO

# A search stops where the likelihood is flat to rounding; with other vector instructions numbers moved by 2e-10.
SEARCH_RTOL = 1e-6

NAMES = sorted(path.name.removesuffix(".pt.xz") for path in FOLDER.glob("*.pt.xz"))

# The default model is chosen otherwise now: lengthscales have a prior, noise is calibrated on models that use it.
CHOSEN_OTHERWISE = ("regressor_auto_even", "regressor_auto_many", "regressor_auto_missing", "regressor_auto_uneven")


def _that_stay(name, rows, numbers):
    """
    Of rows with holes the noise is not all that is unknown, which these did not know: only those
    without are compared.
    """
    if name not in ("regressor_forest", "regressor_auto_missing"):
        return numbers
    is_complete = ~rows.new.isnan().any(1)
    return {each: values[is_complete] for each, values in numbers.items()}


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
    found = _numbers(entry, model, stored["rows"])
    _check(*(_that_stay(name, stored["rows"], numbers) for numbers in (found, stored["numbers"])), entry.rtol)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if ZOO[name].is_searched else []) for name in NAMES]
)
def test_fitting_anew_gives_the_same_numbers(name):
    if name in CHOSEN_OTHERWISE:
        pytest.skip("the default model is chosen otherwise now; tests/quality holds what it predicts")
    entry, stored = ZOO[name], read(name)
    if stored["libraries"] != libraries():
        pytest.skip("other versions of the libraries that were there: they may grow other trees")
    model = entry.fitted(stored["rows"])
    rtol = max(entry.rtol, SEARCH_RTOL) if entry.is_searched else entry.rtol
    expected, found = stored["numbers"], _numbers(entry, model, stored["rows"])
    _check(*(_that_stay(name, stored["rows"], numbers) for numbers in (found, expected)), rtol)
