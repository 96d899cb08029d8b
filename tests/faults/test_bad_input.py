"""
Bad input to every public entry point: a result, or an error that says what was expected; never one from the depths.

`entry_points.py` has an entry for each public name. Hypothesis draws an argument of one of them and a value of a wrong
type, shape or size; the slow test tries every value for every argument.
"""

from __future__ import annotations

import re
import signal
import traceback
import warnings
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.faults.entry_points import ENTRIES, TENSORS, WITHOUT_INPUT, cases, public_names, wrong_values

_SECONDS = 60  # until a call counts as hanging
# How this package's errors say what was expected; scikit-learn's checks of its own conventions are taken as they are.
_EXPLAINS = re.compile(
    r"expected|must be|should be|was built on|is not fitted|no direction|minimum of|drop or impute|leave these"
)
_SCIKIT_LEARN = ("sklearn/utils", "sklearn/base")


class HangError(Exception):
    """A call did not end."""


@pytest.fixture
def alarm():
    """Ends calls that hang, where the system can."""
    if not hasattr(signal, "SIGALRM"):
        yield lambda seconds: None
        return

    def stop(*_):
        raise HangError

    before = signal.signal(signal.SIGALRM, stop)
    yield signal.alarm
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def name_of(entry: str) -> str:
    """The public name of a case, such as `FeatureSpaceGP` of `FeatureSpaceGP.predict`."""
    return re.split(r"[.\[(]", entry)[0]


def outcome(entry: str, argument: str, value: object, alarm) -> str | None:
    """What is wrong with a call that gives an argument this value; None for nothing."""
    call, right = ENTRIES[entry]
    try:
        alarm(_SECONDS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call(**{**right, argument: value})
    except HangError:
        return f"did not end in {_SECONDS} s"
    except (ValueError, TypeError, RuntimeError) as error:
        last = Path(traceback.extract_tb(error.__traceback__)[-1].filename).as_posix()
        is_own = "gpytorch_partition/" in last and "/tests/" not in last and _EXPLAINS.search(str(error))
        is_checked = is_own or any(place in last for place in _SCIKIT_LEARN)
        return None if is_checked else f"{type(error).__name__} from {last}: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        alarm(0)
    return None


def test_every_public_name_is_covered():
    """A new name gets an entry, or is named as one without input."""
    covered = {name_of(entry) for entry in ENTRIES}
    assert public_names() - covered - WITHOUT_INPUT == set()
    assert public_names() >= WITHOUT_INPUT


@pytest.mark.slow
@pytest.mark.parametrize("entry", ENTRIES)
def test_right_arguments_are_right(entry):
    """Else nothing would be seen of wrong ones."""
    call, right = ENTRIES[entry]
    call(**right)


FAST = [case for case in cases() if not case[0].startswith(("default_", "ensemble_model", "PartitionGPRegressor"))]


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_bad_input_is_told(data, alarm):
    entry, argument = data.draw(st.sampled_from(FAST))
    value = data.draw(st.sampled_from(wrong_values(argument)))
    assert outcome(entry, argument, value, alarm) is None, (entry, argument, value)


NUMBERS = st.one_of(st.floats(), st.integers(-(2**70), 0), st.text(max_size=3), st.booleans(), st.binary(max_size=2))


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_number_is_taken_or_told(data, alarm):
    """Numbers, texts and bytes of any kind; counts up to 0 only, since a billion trees is what was asked for."""
    entry, argument = data.draw(st.sampled_from([case for case in FAST if case[1] not in TENSORS]))
    value = data.draw(NUMBERS)
    assert outcome(entry, argument, value, alarm) is None, (entry, argument, value)


@pytest.mark.slow
@pytest.mark.parametrize(("entry", "argument"), cases())
def test_all_bad_input_is_told(entry, argument, alarm):
    wrong = {repr(value)[:60]: outcome(entry, argument, value, alarm) for value in wrong_values(argument)}
    assert {value: what for value, what in wrong.items() if what is not None} == {}
