"""The data, the kernels and the dense oracle of the clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from typing import Any

import gpytorch
import linear_operator
import torch
from gpytorch.kernels import Kernel, RBFKernel
from linear_operator import to_dense
from torch import Tensor

from gpytorch_partition import (
    FastClusterKernel,
    GammaMondrianKernel,
    IterativeKernel,
    LandmarkKernel,
    LocalLinearKernel,
    MondrianKernel,
    PartitionKernel,
    PartitionMixtureKernel,
    RandomBinningKernel,
    RandomForestKernel,
)

NUM_COLUMNS = 3
NUM_TEST = 40

KernelFactory = Callable[..., Kernel]


@dataclass(frozen=True)
class Problem:
    """Rows, targets (`N`, and two tasks `N x 2`) and test points, in float64."""

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor

    @property
    def two_tasks(self) -> Tensor:
        """Two targets that are correlated."""
        return torch.stack([self.train_y, self.train_x[:, 2].cos() - 0.5 * self.train_y], -1)


@cache
def problem(num_rows: int) -> Problem:
    """A smooth and a piecewise part, and noise of variance .04."""
    generator = torch.Generator().manual_seed(num_rows)
    x = torch.randn(num_rows + NUM_TEST, NUM_COLUMNS, generator=generator, dtype=torch.float64)
    noise = 0.2 * torch.randn(num_rows, generator=generator, dtype=torch.float64)
    train_x, test_x = x[:num_rows], x[num_rows:]
    return Problem(train_x, (2 * train_x[:, 0]).sin() + (train_x[:, 1] > 0).double() + noise, test_x)


def _signs_and_floors(x: Tensor) -> Tensor:
    return torch.cat([(x > 0).long(), x.floor().long(), (x + 0.5).floor().long()], -1)


def _mixture(x: Tensor, y: Tensor, **options: Any) -> Kernel:
    forest = RandomForestKernel(x, y, 15, random_state=0)
    return PartitionMixtureKernel([forest, FastClusterKernel(x, 15, random_state=0)], **options)


def _local_linear(x: Tensor, y: Tensor, **options: Any) -> Kernel:
    base = RandomForestKernel(x, y, 20, max_samples=0.2, min_samples_leaf=10, random_state=0)
    return LocalLinearKernel(base, NUM_COLUMNS, **options)


def _wrapped_sum(x: Tensor, y: Tensor, **options: Any) -> Kernel:
    forest = RandomForestKernel(x, y, 20, random_state=0, **options)
    return IterativeKernel(RBFKernel(**options) + forest)


# Few partitions, of every kind that the package has: what is tested are models, not kernels.
KERNELS: dict[str, Callable[..., Kernel]] = {
    "fast cluster": lambda x, y, **options: FastClusterKernel(x, 40, height=6, random_state=0, **options),
    "forest": lambda x, y, **options: RandomForestKernel(x, y, 30, random_state=0, **options),
    "forest's leaves": lambda x, y, **options: RandomForestKernel(x, y, 30, "leaf", random_state=0, **options),
    "learned heights": lambda x, y, **options: RandomForestKernel(x, y, 20, "learned", random_state=0, **options),
    "Mondrian": lambda x, y, **options: MondrianKernel(x, 30, lifetime=1.0, random_state=0, **options),
    "gamma Mondrian": lambda x, y, **options: GammaMondrianKernel(x, 20, lifetime=0.5, random_state=0, **options),
    "random binning": lambda x, y, **options: RandomBinningKernel(x, 30, random_state=0, **options),
    "function": lambda x, y, **options: PartitionKernel(_signs_and_floors, **options),
    "mixture": _mixture,
    "local linear": _local_linear,
    "landmark": lambda x, y, **options: LandmarkKernel(x, y, 50, num_rows=200, random_state=0, **options),
    "wrapped sum": _wrapped_sum,
}


@cache
def _built(name: str, num_rows: int, **options: Any) -> Kernel:
    rows = problem(num_rows)
    return KERNELS[name](rows.train_x, rows.train_y, **options)


def kernel_factory(name: str, num_rows: int) -> KernelFactory:
    """A function from a kernel's options (`batch_shape`) to a fresh kernel on the rows of a problem."""
    return lambda **options: deepcopy(_built(name, num_rows, **options))


class DenseKernel(Kernel):
    """The test double of a kernel: GPyTorch sees a dense matrix, and uses its own algebra."""

    def __init__(self, base_kernel: Kernel) -> None:
        super().__init__(batch_shape=base_kernel.batch_shape)
        self.base_kernel = base_kernel

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        if not isinstance(self.base_kernel, LandmarkKernel):  # the others have no gradient by x, and say so
            x1, x2 = x1.detach(), x2.detach()
        dense = to_dense(self.base_kernel(x1, x2, **params))
        return dense.diagonal(dim1=-2, dim2=-1) if diag else dense

    def __getitem__(self, index: Any) -> DenseKernel:
        return DenseKernel(self.base_kernel[index])

    def expand_batch(self, *sizes: Any) -> DenseKernel:
        return DenseKernel(self.base_kernel.expand_batch(*sizes))


def dense_factory(kernel: KernelFactory) -> KernelFactory:
    """The factory of the same kernels' test doubles."""
    return lambda **options: DenseKernel(kernel(**options))


@contextmanager
def dense_algebra() -> Iterator[None]:
    """Cholesky factors for everything."""
    with ExitStack() as stack:
        stack.enter_context(linear_operator.settings.fast_computations(False, False, False))
        stack.enter_context(linear_operator.settings.max_cholesky_size(10**6))
        stack.enter_context(gpytorch.settings.max_eager_kernel_size(10**6))
        yield
