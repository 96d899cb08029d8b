"""The view of kernels of numbers against scikit-learn's encoders and medians, and kernels on it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel
from sklearn.model_selection import KFold
from sklearn.preprocessing import TargetEncoder

from gpytorch_partition import FastClusterKernel, RandomForestKernel, encode_missing
from gpytorch_partition.inputs.row_weights import RowWeights
from gpytorch_partition.kernels import EncodedKernel
from gpytorch_partition.presets.data import PartInputs
from gpytorch_partition.presets.options import Options, Setup
from gpytorch_partition.presets.parts import new_parts
from gpytorch_partition.tables import NumberView, needs_view, view_in_folds

RANDOM = np.random.RandomState(0)
X = RANDOM.randn(200, 4)
X[:, 1], X[:, 3] = RANDOM.randint(30, size=200), RANDOM.randint(3, size=200)
Y = torch.from_numpy(RANDOM.randn(30)[X[:, 1].astype(int)] + 0.3 * RANDOM.randn(200))
X[::7, 0] = X[::5, 1] = X[::11, 3] = np.nan
ROWS, CATEGORIES = torch.from_numpy(X), {1: 31, 3: 4}
VIEW = NumberView(ROWS, CATEGORIES, Y)


def test_numbers_medians_one_hot_columns_and_mean_targets():
    seen = VIEW(ROWS)
    assert seen.shape == (200, VIEW.num_columns) == (200, 1 + 1 + 1 + 4)
    np.testing.assert_allclose(seen[:, 0], np.where(np.isnan(X[:, 0]), np.nanmedian(X[:, 0]), X[:, 0]))
    means = TargetEncoder(target_type="continuous").fit(X[:, [1]], Y).transform(X[:, [1]])[:, 0]
    np.testing.assert_allclose(seen[:, 1], (means - means.mean()) / means.std())
    np.testing.assert_allclose(seen[:, 3:], X[:, [3]] == np.arange(4))


def test_rows_of_a_group_have_mean_targets_of_other_groups():
    groups = torch.arange(200) // 10
    view, rows = view_in_folds(ROWS, CATEGORIES, Y, np.random.RandomState(0), groups=groups)
    folds = (-2 - rows[:, 1]) // 32
    assert len(folds.unique()) == 5
    for group in groups.unique():
        assert len(folds[groups == group].unique()) == 1
    others = folds != folds[0]
    np.testing.assert_allclose(view(rows)[0, 1], NumberView(ROWS[others], CATEGORIES, Y[others])(ROWS[:1])[0, 1])


def test_unknown_levels_are_missing_ones():
    new = torch.tensor([[0.0, 31.0, 0.0, 4.0], [0.0, -1.0, 0.0, torch.nan], [0.0, 1e6, 0.0, -1.0]], dtype=torch.float64)
    seen = VIEW(new)
    assert torch.equal(seen, seen[:1].expand_as(seen))
    assert not seen[:, 3:].any()
    assert torch.equal(VIEW(encode_missing(ROWS)), VIEW(ROWS))
    assert torch.equal(VIEW(ROWS.view(2, 100, 4)).view(200, -1), VIEW(ROWS))


def test_state_and_precision():
    copy = NumberView()
    with pytest.raises(RuntimeError, match="not fitted"):
        copy(ROWS)
    copy.load_state_dict(VIEW.state_dict())
    assert torch.equal(copy(ROWS), VIEW(ROWS))
    assert torch.equal(copy.float()(ROWS), VIEW(ROWS))  # no change of dtype rounds it
    with pytest.raises(ValueError, match="expected 4 columns"):
        copy(ROWS[:, :3])


def test_training_rows_do_not_see_their_own_targets():
    """Levels of single rows: the mean of their own targets would be the target."""
    levels = torch.arange(200.0, dtype=torch.float64)[:, None]
    noise = torch.from_numpy(RANDOM.randn(200))
    view, rows = view_in_folds(levels, {0: 200}, noise, np.random.RandomState(0))
    seen = view(rows)[:, 0]
    assert len(seen.unique()) <= 5  # the mean of all rows of the other folds
    assert len(NumberView(levels, {0: 200}, noise)(levels).unique()) == 200
    view, rows = view_in_folds(ROWS[:, [0, 3]], {1: 4}, Y, np.random.RandomState(0))
    assert torch.equal(view(rows), NumberView(ROWS[:, [0, 3]], {1: 4}, Y)(ROWS[:, [0, 3]]))


@pytest.mark.parametrize("kind", [RBFKernel, FastClusterKernel])
def test_a_kernel_of_the_view(kind):
    seen = VIEW(ROWS)
    base = RBFKernel().double() if kind is RBFKernel else FastClusterKernel(seen, 20, random_state=0).double()
    kernel = EncodedKernel(base, VIEW)
    torch.testing.assert_close(kernel(ROWS, ROWS[:9]).to_dense(), base(seen, seen[:9]).to_dense())
    torch.testing.assert_close(kernel(ROWS, diag=True), base(seen, diag=True))
    copy = EncodedKernel(RBFKernel().double() if kind is RBFKernel else FastClusterKernel().double())
    copy.load_state_dict(kernel.state_dict())
    torch.testing.assert_close(copy(ROWS).to_dense(), kernel(ROWS).to_dense())
    forest = RandomForestKernel(ROWS, Y, 10, categories=[1, 3], random_state=0).double()
    both = (kernel + forest)(ROWS).to_dense()
    torch.testing.assert_close(both, base(seen).to_dense() + forest(ROWS).to_dense())


def test_many_categories_are_not_one_hot():
    levels = torch.from_numpy(RANDOM.randint(9, size=(200, 30)).astype(float))
    levels[:, 0] = levels[:, 0] % 2
    assert NumberView(levels[:, :9], dict.fromkeys(range(9), 9), Y).num_columns == 81
    assert NumberView(levels, {0: 2, **dict.fromkeys(range(1, 30), 9)}, Y).num_columns == 2 + 29
    view, rows = view_in_folds(levels, {0: 2, **dict.fromkeys(range(1, 30), 9)}, Y, RANDOM)
    assert view(rows).shape == (200, 31)


def test_what_needs_a_view():
    assert needs_view(ROWS, {})
    assert needs_view(ROWS[:, [2]], {0: 3})
    assert needs_view(encode_missing(ROWS[:, [0]]), {})
    assert not needs_view(ROWS[:, [2]], {})


def test_rows_in_folds_are_seen_by_the_targets_of_other_folds():
    view, rows = view_in_folds(ROWS, CATEGORIES, Y, np.random.RandomState(0))
    assert torch.equal(view(ROWS), VIEW(ROWS))
    folds = list(KFold(5, shuffle=True, random_state=np.random.RandomState(0)).split(ROWS))
    for kept, held_out in folds:
        other = NumberView(ROWS[kept], CATEGORIES, Y[kept])
        torch.testing.assert_close(view(rows)[held_out][:, 1:], other(ROWS[held_out])[:, 1:])
    assert torch.equal(rows[:, [2, 3]].nan_to_num(9), ROWS[:, [2, 3]].nan_to_num(9))  # numbers and one-hot columns
    assert torch.equal(view(rows.float()), view(rows).float())


class TestWeights:
    """A row of weight w counts as w rows."""

    RANDOM = np.random.RandomState(3)
    COPIES = RANDOM.randint(1, 5, 80)
    CELLS = np.stack([RANDOM.randint(0, 15, 80).astype(float), RANDOM.rand(80)], 1)
    CELLS[RANDOM.rand(80, 2) < 0.1] = np.nan
    TARGETS = RANDOM.randn(80, 2) + np.nan_to_num(CELLS[:, :1])

    def views(self, folds=None):
        x, y, copies = torch.from_numpy(self.CELLS), torch.from_numpy(self.TARGETS), torch.from_numpy(self.COPIES)
        many = torch.arange(80).repeat_interleave(copies)
        weighed = NumberView(x, {0: 16}, y, folds, weights=copies)
        copied = NumberView(x[many], {0: 16}, y[many], None if folds is None else folds[many])
        return weighed, copied, x

    @pytest.mark.parametrize("folds", [None, torch.arange(80) % 3])
    def test_as_that_many_rows_up_to_the_scale_of_mean_targets(self, folds):
        weighed, copied, x = self.views(folds)
        rows = x if folds is None else weighed.in_folds(x, folds)
        found, expected = weighed(rows), copied(rows)
        assert torch.equal(found[:, 2], expected[:, 2])  # numbers, and their median
        for column in (0, 1):
            some = slice(None) if folds is None else folds == 1  # each fold has a scale of its own
            slope, offset = np.polyfit(expected[some, column], found[some, column], 1)
            torch.testing.assert_close(found[some, column], slope * expected[some, column] + offset)
            assert 0.8 < slope < 1.25

    def test_they_matter(self):
        x, y = torch.tensor([[0.0], [1.0], [torch.nan]]).double(), torch.zeros(3).double()
        assert NumberView(x, y=y, weights=torch.tensor([1.0, 5.0, 1.0]))(x)[2, 0] == 1.0
        assert NumberView(x, y=y, weights=torch.tensor([5.0, 1.0, 1.0]))(x)[2, 0] == 0.0

    def test_a_fit_of_weighed_rows_sees_their_mean_targets(self):
        x, y = torch.from_numpy(self.CELLS), torch.from_numpy(self.TARGETS[:, 0])
        weights = RowWeights.of(torch.from_numpy(self.COPIES))
        setup = Setup(np.random.RandomState(0), None, Options(num_trees=5))
        inputs = PartInputs(x, y, None, setup, {0: 16}, True, weights)
        part = new_parts(inputs, names=["linear"])["linear"]
        assert torch.equal(part.view(x), NumberView(x, {0: 16}, y, weights=weights.capped)(x))
        assert not torch.equal(part.view(x), NumberView(x, {0: 16}, y)(x))
