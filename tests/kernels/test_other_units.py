"""A kernel says so, once, when a model gives it points in other units than the rows that it was built on."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from gpytorch.kernels import ScaleKernel
from sklearn.datasets import load_wine

from gpytorch_partition import (
    FastClusterKernel,
    OtherUnitsWarning,
    PartitionKernel,
    PartitionMixtureKernel,
    RandomForestKernel,
)
from tests.kernels import zoo

UNIT = torch.rand(120, 3, generator=torch.Generator().manual_seed(0))
RAW = torch.tensor([3.0, 100.0, -50.0]) + torch.tensor([40.0, 1e4, 300.0]) * UNIT
BUILD = {
    name: zoo.BUILD[name]
    for name in ("forest", "fast_cluster", "mondrian", "gamma_mondrian", "random_binning", "landmark")
}
BUILD["mixture"] = lambda x: PartitionMixtureKernel([zoo.BUILD["fast_cluster"](x)])
MIXED = torch.cat([UNIT[:, :1], UNIT[:, 1:].round()], -1)
IN_OTHER_UNITS = {
    "normalized": (RAW, UNIT),
    "standardized": (RAW, 3.4 * (UNIT - 0.5)),
    "not normalized": (UNIT, RAW),
    "centred": (1000 * (UNIT - 0.5), UNIT),
    "in five units": (5 * UNIT, UNIT),
    "beside binary columns": (torch.tensor([20.0, 1, 1]) * MIXED, MIXED),
}
pytestmark = pytest.mark.filterwarnings("ignore:.*got standard deviations from")


@pytest.fixture(params=BUILD)
def build(request):
    return BUILD[request.param]


def _warned(kernel, *points):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ScaleKernel(kernel)(*points).to_dense()
    return [str(warning.message) for warning in caught if warning.category is OtherUnitsWarning]


@pytest.mark.parametrize("case", IN_OTHER_UNITS)
def test_training_rows_in_other_units_are_told_once(build, case):
    built_on, given = IN_OTHER_UNITS[case]
    kernel = build(built_on)
    (message,) = _warned(kernel, given)
    judged = 1 if case == "beside binary columns" else 3
    assert f"{judged} of {judged} columns" in message
    assert "(input_transform(train_X), ...)" in message
    assert not _warned(kernel, given)


def test_predictions_in_other_units_are_told_without_training(build):
    kernel = build(RAW).eval()
    assert _warned(kernel, UNIT[:3], UNIT)


def test_a_saved_kernel_still_knows(build):
    kernel = build(RAW)
    twin = build(UNIT)
    twin.load_state_dict(kernel.state_dict())
    assert _warned(copy.deepcopy(twin).double(), UNIT)
    assert not _warned(twin, RAW)


@pytest.mark.parametrize(
    "points",
    [(UNIT[:9] / 1000,), (UNIT * 1.6 - 0.3,), (UNIT[:60],), (UNIT, UNIT + 5), (UNIT[:, [0, 1, 2]] + 0.1,)],
    ids=["few", "a little outside", "a part", "extrapolation", "a shift"],
)
def test_points_of_the_same_units_are_not_told(build, points):
    assert not _warned(build(UNIT), *points)


def test_test_points_alone_may_lie_anywhere(build):
    assert not _warned(build(UNIT).eval(), 0.99 + UNIT / 1000)
    assert not _warned(build(UNIT).eval(), UNIT[:60], 0.99 + UNIT / 1000)
    assert not _warned(build(UNIT).eval(), 5 + UNIT, UNIT[:60])


def test_rows_of_two_values_missing_ones_and_constants_are_no_units():
    x = torch.cat([(UNIT > 0.95).float(), torch.ones(120, 1), UNIT], -1)
    x[::3, 4] = torch.nan
    kernel = RandomForestKernel(x, zoo.Y, 5, random_state=0)
    assert not _warned(kernel, x[:50])
    assert _warned(kernel, torch.cat([x[:, :4], 1000 + x[:, 4:]], -1))


def test_only_active_columns_are_judged():
    kernel = FastClusterKernel(UNIT, 5, random_state=0, active_dims=(2,))
    assert not _warned(kernel, torch.cat([RAW[:, :2], UNIT[:, 2:]], -1))
    assert _warned(kernel, torch.cat([UNIT[:, :2], RAW[:, 2:]], -1))


def test_kernels_without_rows_know_no_range():
    assert not _warned(PartitionKernel(lambda x: x.floor().long()), UNIT + 1e6)
    assert not _warned(FastClusterKernel(RAW[:9], 5, height=1, random_state=0), UNIT)


@pytest.mark.parametrize("to", ["normalized", "standardized"])
def test_measured_columns_are_told(to):
    x = torch.from_numpy(load_wine().data)
    kernel = FastClusterKernel(x, 5, random_state=0)
    low, width = (x.amin(0), x.amax(0) - x.amin(0)) if to == "normalized" else (x.mean(0), x.std(0))
    for part in x.split(20):
        assert not _warned(kernel, part)
    assert _warned(kernel, (x - low) / width)
