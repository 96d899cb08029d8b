"""Checks of kernels that callers give."""

from __future__ import annotations

from typing import Any

from gpytorch.kernels import Kernel


def checked_kernel(kernel: Any) -> Kernel:
    """
    Check that a value is a kernel, of this package or GPyTorch's, and return it.

    :raises TypeError: If the value is anything else, also a class of kernels.
    """
    if isinstance(kernel, Kernel):
        return kernel
    got = f"the class {kernel.__name__}: build one" if isinstance(kernel, type) else f"a {type(kernel).__name__}"
    raise TypeError(f"expected a kernel, of this package or GPyTorch's, got {got}")
