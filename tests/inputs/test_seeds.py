from __future__ import annotations

import numpy as np
import pytest
import torch

from gpytorch_partition import FastClusterKernel, MondrianKernel, RandomForestKernel
from gpytorch_partition.inputs.numbers import random_state_of
from tests.random_states import untouched_random_states

X = torch.randn(60, 2, generator=torch.Generator().manual_seed(0))


def test_none_neither_reads_nor_moves_the_global_state():
    np.random.seed(0)  # noqa: NPY002
    with untouched_random_states():
        first = random_state_of(None).randint(2**31, size=4)
        assert not np.array_equal(first, random_state_of(None).randint(2**31, size=4))


@pytest.mark.parametrize("seed", [None, 0])
@pytest.mark.parametrize(
    "build",
    [
        lambda seed: RandomForestKernel(X, X[:, 0], 3, heights="sampled", random_state=seed),
        lambda seed: FastClusterKernel(X, 3, random_state=seed),
        lambda seed: MondrianKernel(X, 3, random_state=seed),
    ],
)
def test_kernels_leave_global_states_alone(build, seed):
    with untouched_random_states():
        build(seed)(X).to_dense()


def test_nonsense_is_refused():
    with pytest.raises(ValueError, match="cannot be used to seed"):
        random_state_of("three")
