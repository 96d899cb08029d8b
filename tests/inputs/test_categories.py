"""Columns of codes, as a caller names them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gpytorch_partition.inputs.training_rows import checked_categories

X = torch.tensor([[0.5, 2.0], [0.1, torch.nan], [0.2, 0.0]])


def test_numbers_of_any_kind_and_missing_cells_are_taken():
    assert checked_categories({np.int64(1): np.int32(4)}, X) == {1: 4}
    assert checked_categories(None, X) == checked_categories({}, X) == {}


@pytest.mark.parametrize(
    ("categories", "expected"),
    [
        ([1], "a mapping of columns"),
        ({2: 3}, "numbers from 0 to 1, got 2"),
        ({-1: 3}, "numbers from 0 to 1, got -1"),
        ({"town": 3}, "got 'town'"),
        ({1: 0}, "the number of levels of column 1, 1 or more, got 0"),
        ({1: 2.5}, "got 2.5"),
        ({1: 2}, "codes from 0 to 1, or NaN, in column 1 of categories, got 2"),
        ({0: 3}, "in column 0 of categories, got 0.5"),
    ],
)
def test_what_cannot_be_used_is_told(categories, expected):
    with pytest.raises(ValueError, match=expected):
        checked_categories(categories, X)
