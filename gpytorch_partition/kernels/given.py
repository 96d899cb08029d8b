"""Kernels that callers give, checked."""

from __future__ import annotations

from typing import Any

from gpytorch.kernels import Kernel


def checked_kernel(kernel: Any) -> Kernel:
    """
    A kernel, of this package or GPyTorch's.

    :raises TypeError: If it is anything else, a class of kernels among it.
    """
    if isinstance(kernel, Kernel):
        return kernel
    got = f"the class {kernel.__name__}: build one" if isinstance(kernel, type) else f"a {type(kernel).__name__}"
    raise TypeError(f"expected a kernel, of this package or GPyTorch's, got {got}")
