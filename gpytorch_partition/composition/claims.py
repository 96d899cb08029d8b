"""
The hooks by which classes of GPyTorch and linear_operator recognise partition kernels; all changes to them are here.

Sums such as `RBFKernel() + RandomForestKernel(...)` never call the forest, and GPyTorch's solves of them gave variances
25 to 700 % off. Instances of a few of its classes therefore become instances of this package's subclasses when they are
constructed around its kernels or operators. Constructed around anything else, they run no code of this package.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from linear_operator.operators import LinearOperator
from torch.distributions import Distribution
from torch.nn import Module

from gpytorch_partition.kernels.cluster_kernel import ClusterKernel
from gpytorch_partition.kernels.wrapper_kernels import IterativeKernel
from gpytorch_partition.operators.guards import involves_partitions


def is_concerned(argument: Any) -> bool:
    """Return whether an argument is a kernel or operator of this package, or a model, sum or distribution with one."""
    if isinstance(argument, Distribution):
        argument = vars(argument).get("_covar")
    if isinstance(argument, LinearOperator):
        return involves_partitions(argument)
    # A module whose constructor has not finished has no modules.
    has_modules = isinstance(argument, Module) and "_modules" in vars(argument)
    return has_modules and any(isinstance(module, ClusterKernel | IterativeKernel) for module in argument.modules())


def claim(foreign: type, own: Callable[..., Any]) -> None:
    """
    Replace instances of a foreign class by this package's own class when they are constructed around its objects.

    :param foreign: A class without a `__new__` of its own. Its subclasses stay unchanged.
    :param own: A subclass of `foreign`; or a function of the arguments that returns the replacement, or None for none.
    """

    # The signature of the class stays that of its `__init__`. It is static, for `instance.__new__(type(instance))`.
    @staticmethod  # type: ignore[misc]
    @wraps(foreign.__init__)  # type: ignore[misc]
    def construct(cls: type, *args: Any, **kwargs: Any) -> Any:
        replaced = None
        if cls is foreign and any(map(is_concerned, (*args, *kwargs.values()))):
            replaced = object.__new__(own) if isinstance(own, type) else own(*args, **kwargs)
        inherited = super(foreign, cls).__new__  # type: ignore[arg-type]
        if replaced is not None:
            return replaced
        return inherited(cls) if inherited is object.__new__ else inherited(cls, *args, **kwargs)

    foreign.__new__ = construct  # type: ignore[method-assign, assignment]
