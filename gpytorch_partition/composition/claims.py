"""
How classes of GPyTorch and linear_operator learn of partition kernels: the one place where they are changed.

`RBFKernel() + RandomForestKernel(...)` and the likes never ask the forest: GPyTorch looks up neither a reflected `+`
of a kernel or an operator, nor the prediction strategy of a term. It solved such sums with tolerances and Lanczos roots
under which variances were 25 to 700 % off. So a few of these classes, when they are constructed around a partition
kernel or its operator, become a subclass of this package. Constructed around anything else, they are what they were.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any


def claim(foreign: type, replacement: Callable[..., Any]) -> None:
    """
    Let a function decide what the construction of a class gives.

    :param foreign: A class without a `__new__` of its own. Its subclasses are not concerned.
    :param replacement: Gets the arguments of the construction. It returns what takes the place of the new object,
        uninitialized if it is of a subclass, or None for an object as it was.

    Example:
        >>> class Sum:
        ...     def __init__(self, *terms): self.terms = terms
        >>> class OwnSum(Sum): pass
        >>> claim(Sum, lambda *terms: object.__new__(OwnSum) if "own" in terms else None)
        >>> type(Sum("own", "other")).__name__, type(Sum("other")).__name__
        ('OwnSum', 'Sum')
    """

    # The signature of the class stays that of its `__init__`.
    @wraps(foreign.__init__)  # type: ignore[misc]
    def construct(cls: type, *args: Any, **kwargs: Any) -> Any:
        is_concerned = cls is foreign and (args or kwargs)
        replaced = replacement(*args, **kwargs) if is_concerned else None
        return object.__new__(cls) if replaced is None else replaced

    foreign.__new__ = construct  # type: ignore[method-assign, assignment]
