"""Numbers and rows that cannot be used are refused by the name of what was given, with what to do."""

from __future__ import annotations

import pytest
import torch

from gpytorch_partition import (
    GammaMondrianKernel,
    MondrianKernel,
    RandomBinningKernel,
)
from gpytorch_partition.lifetimes import lifetime_sweep
from gpytorch_partition.models import FeatureSpaceGP
from tests.faults.estimators_zoo import rows

X = rows(0, 40)
x, y = torch.from_numpy(X), torch.from_numpy(X[:, 0])


@pytest.mark.parametrize("kernel", [GammaMondrianKernel, MondrianKernel, RandomBinningKernel])
def test_no_rows(kernel):
    with pytest.raises(ValueError, match=r"at least one row and one column \(N x D\), got shape \(0, 3\)"):
        kernel(x[:0], random_state=0)
    built = kernel(x, 5, random_state=0)
    for _ in range(2):  # the second time no rows are cached
        assert built(x[:0]).to_dense().shape == (0, 0)
        assert built(x, x[:0]).to_dense().shape == (40, 0)
        assert built(x[:0], x).to_dense().shape == (0, 40)


@pytest.mark.parametrize("method", ["add_rows", "remove_rows"])
@pytest.mark.parametrize("pair", [(X, X[:, 0]), (X, y), (x, X[:, 0]), (X.tolist(), y)], ids=["both", "x", "y", "list"])
def test_rows_that_are_no_tensors(method, pair):
    model = FeatureSpaceGP(MondrianKernel(x, 5, random_state=0))
    with pytest.raises(
        TypeError, match=r"as a tensor of real numbers, got (ndarray|list): torch\.as_tensor.*array_chunks"
    ):
        getattr(model, method)(*pair)
    with pytest.raises(TypeError, match="chunks of two parts, points and targets, got a Tensor"):
        model.add_chunks([x])


def test_very_short_lifetimes():
    kernel = MondrianKernel(x, 5, max_lifetime=4.0, random_state=0)
    sweep = lifetime_sweep(kernel, x, y - y.mean(), lifetimes=[1e-300, 1.0])
    assert bool(sweep.posterior().isfinite().all())
    assert abs(float(sweep.posterior().sum()) - 1) < 1e-12
    assert bool(sweep.predict(x)[0].isfinite().all())
    with pytest.raises(ValueError, match=r"expected lifetimes as numbers, or \"cuts\", got \['a'\]"):
        lifetime_sweep(kernel, x, y, lifetimes=["a"])
    with pytest.raises(ValueError, match="concentration=1e-300"):
        GammaMondrianKernel(x, 5, concentration=1e-300)
