"""A fit that is interrupted leaves an estimator as it was: unfitted, or with its old model, whole."""

from __future__ import annotations

from functools import partial

import pytest
from sklearn.exceptions import NotFittedError

from tests.faults.estimators_zoo import CASES, answers, rows, same
from tests.faults.interrupts import differences, num_entries, places, process_state, stopped_at

OLD, NEW = rows(0), rows(1, 48)
SLOW = {
    "regressor, auto",
    "regressor, auto in a budget",
    "regressor, ensemble",
    "classifier, auto",
    "SVC, probabilities",
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in CASES])
def test_an_interrupted_fit_leaves_the_old_model_or_none(name):
    case = CASES[name]
    old_y, new_y = case.targets(OLD), case.targets(NEW)
    fitted = case.make().fit(OLD, old_y)
    before, attributes = answers(case, fitted, OLD), dict(vars(case.make()))
    count = num_entries(partial(case.make().fit, NEW, new_y))
    for entry in places(count, 3):
        fresh, state = case.make(), process_state()
        assert stopped_at(entry, partial(fresh.fit, NEW, new_y)), entry
        assert set(vars(fresh)) == set(attributes), (entry, set(vars(fresh)) ^ set(attributes))
        with pytest.raises((NotFittedError, AttributeError)):
            answers(case, fresh, NEW)
        is_stopped = stopped_at(entry, partial(fitted.fit, NEW, new_y))  # a second fit may take fewer steps
        assert differences(state, process_state()) == [], entry
        assert same(answers(case, fitted, OLD), before) or not is_stopped, entry
        fitted = fitted if is_stopped else case.make().fit(OLD, old_y)
    after = answers(case, case.make().fit(NEW, new_y), NEW)
    assert same(answers(case, fitted.fit(NEW, new_y), NEW), after)
    assert same(answers(case, fresh.fit(OLD, old_y), OLD), before)
