"""Where a warning points to: the line of the user's that called this package."""

from __future__ import annotations

import sys

# Packages whose lines a user has not written: this one, and those that call it on behalf of a user.
_OF_LIBRARIES = {"gpytorch_partition", "sklearn", "joblib", "torch", "gpytorch", "linear_operator", "botorch"}


def level_of_caller() -> int:
    """
    The `stacklevel` by which :func:`warnings.warn`, in the function that asks, points to the first line outside this
    package and those that it is called by (scikit-learn's cross-validations, decorators of torch).

    A warning that points there says whose call it is about, and is shown once for each such line, as Python's filters
    have it, not once for all.

    Example:
        >>> exec("print(level_of_caller())", {"__name__": "a_script", "level_of_caller": level_of_caller})
        1
    """
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _OF_LIBRARIES:
        level, frame = level + 1, frame.f_back
    return level
