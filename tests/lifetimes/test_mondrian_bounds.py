"""Numbers of cells and of trees against simulated Mondrian processes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gpytorch_partition import MondrianKernel
from gpytorch_partition.lifetimes import expected_cells, trees_for_error


def num_cells(widths, lifetime, random):
    """Cut the box after an exponential time with the sum of its widths, in a column by its width (section 2.2)."""
    lifetime -= random.exponential(1 / widths.sum())
    if lifetime < 0:
        return 1
    column = random.choice(len(widths), p=widths / widths.sum())
    parts = np.stack([widths, widths])
    parts[:, column] *= [share := random.rand(), 1 - share]
    return sum(num_cells(part, lifetime, random) for part in parts)


@pytest.mark.parametrize(("lifetime", "widths"), [(3.0, [1.0]), (2.0, [0.5, 1.5]), (1.0, [0.3, 1.0, 1.2])])
def test_expected_cells(lifetime, widths):
    random = np.random.RandomState(0)
    found = np.array([num_cells(np.array(widths), lifetime, random) for _ in range(4_000)])
    expected = expected_cells(lifetime, widths)
    assert abs(found.mean() - expected) < 3 * found.std() / 4_000**0.5
    bound = np.exp(lifetime * sum(widths))
    assert expected <= bound
    assert all((found > n).mean() <= bound / n for n in range(1, 40))  # proposition 3


def test_our_trees_have_as_many():
    x = torch.linspace(0, 1, 5_000, dtype=torch.float64).unsqueeze(-1)
    labels = MondrianKernel(x, 2_000, lifetime=4.0, random_state=0).cluster_ids(x)
    counts = 1 + (labels[1:] != labels[:-1]).sum(0).double()  # cells are intervals
    assert abs(counts.mean() - expected_cells(4.0, [1.0])) < 3 * counts.std() / 2_000**0.5 + 0.01


def largest_error(num_trees, seed, lifetime=2.0):
    x = torch.linspace(0, 1, 60, dtype=torch.float64).unsqueeze(-1)
    with torch.no_grad():
        found = MondrianKernel(x, num_trees, lifetime=lifetime, random_state=seed).double()(x).to_dense()
    return float((found - torch.exp(-lifetime * (x - x.T).abs())).abs().max())


def test_trees_for_an_error_everywhere():
    number = trees_for_error(0.3, 2.0, [1.0])
    assert all(largest_error(number, seed) < 0.3 for seed in range(5))
    assert any(largest_error(number // 200, seed) > 0.3 for seed in range(20))
    assert number > np.log(2 / 0.05) / (2 * 0.3**2)  # one pair alone (Hoeffding)


def test_trees_for_half_the_error_and_for_larger_boxes():
    number = trees_for_error(0.2, 2.0, [1.0, 2.0])
    assert 4 * number < trees_for_error(0.1, 2.0, [1.0, 2.0]) < 6 * number
    assert number < trees_for_error(0.2, 3.0, [1.0, 2.0]) < trees_for_error(0.2, 3.0, [1.0, 2.0, 0.5])
    assert number < trees_for_error(0.2, 2.0, [1.0, 2.0], probability=0.001)
    assert trees_for_error(0.2, 4.0, [0.5, 1.0]) == number  # only products count


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"error": 0}, "error between 1e-06 and 1, got 0"),
        ({"probability": 1}, "probability between 1e-06 and 1"),
        ({"lifetime": -1.0}, "a lifetime above 0 .* got -1"),
        ({"widths": [1.0, 0.0]}, r"widths above 0 .* a number for each column, got \[1.0, 0.0\]"),
        ({"widths": []}, "widths above 0"),
        ({"lifetime": "1"}, "a lifetime above 0"),
    ],
)
def test_numbers_out_of_range(options, told):
    with pytest.raises(ValueError, match=told):
        trees_for_error(**{"error": 0.1, "lifetime": 1.0, "widths": [1.0], **options})
