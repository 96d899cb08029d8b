from __future__ import annotations

import numpy as np
import pytest
import torch

from gpytorch_partition import FastClusterKernel, MondrianKernel, RandomForestKernel
from gpytorch_partition.inputs.seeds import random_state_of

X = torch.randn(60, 2, generator=torch.Generator().manual_seed(0))


def test_none_neither_reads_nor_moves_the_global_state():
    np.random.seed(0)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    first = random_state_of(None).randint(2**31, size=4)
    np.random.seed(0)  # noqa: NPY002
    assert not np.array_equal(first, random_state_of(None).randint(2**31, size=4))
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002


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
    numpy_state, torch_state = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    build(seed)(X).to_dense()
    assert np.array_equal(numpy_state, np.random.get_state()[1])  # noqa: NPY002
    assert torch.equal(torch_state, torch.get_rng_state())


def test_nonsense_is_refused():
    with pytest.raises(ValueError, match="cannot be used to seed"):
        random_state_of("three")
