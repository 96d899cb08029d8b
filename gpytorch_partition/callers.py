"""The stack level of warnings, which point to the user's line that called this package."""

from __future__ import annotations

import sys

# This package, and those that call it on behalf of a user.
_OF_LIBRARIES = {"gpytorch_partition", "sklearn", "joblib", "torch", "gpytorch", "linear_operator", "botorch"}


def level_of_caller() -> int:
    """
    Return the `stacklevel` by which :func:`warnings.warn` points to the user's line.

    The line is the first one outside this package and those that call it (scikit-learn's cross-validations, decorators
    of torch). Python's filters show a warning once for each such line. Call it in the function that warns.

    Example:
        >>> exec("print(level_of_caller())", {"__name__": "a_script", "level_of_caller": level_of_caller})
        1
    """
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _OF_LIBRARIES:
        level, frame = level + 1, frame.f_back
    return level
