"""Missing values and categories in models: forests whose trees know them give kernels that do."""

from __future__ import annotations

import pytest
import torch
from gpytorch.kernels import LinearKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood

from gpytorch_partition import RandomForestKernel, encode_missing, fit_exact_gp
from gpytorch_partition.models import PartitionGP
from gpytorch_partition.partitions import ForestPartition, grow_forest
from tests.kernels.zoo import Model

GENERATOR = torch.Generator().manual_seed(0)
COMPLETE = torch.randn(300, 4, generator=GENERATOR, dtype=torch.float64)
IS_MISSING = torch.rand(300, 4, generator=GENERATOR) < 0.2
X = COMPLETE.masked_fill(IS_MISSING, torch.nan)
Y = COMPLETE[:, 0].sin() + 2.0 * IS_MISSING[:, 1]
NEW = X[:50].flip(-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_code_is_nan_to_the_trees(dtype):
    partition = ForestPartition(grow_forest(X, Y, num_trees=20, random_state=0))
    labels = partition.labels(X.to(dtype))
    assert torch.equal(partition.labels(encode_missing(X.to(dtype))), labels)
    assert torch.equal(partition.labels(encode_missing(X).to(dtype)), labels)


def test_cut_trees_send_missing_values_where_whole_ones_do():
    whole = ForestPartition(grow_forest(X, Y, num_trees=5, random_state=0))
    heights, labels = whole.layout.heights, whole.labels(X)
    assert torch.equal(whole.cut(heights).labels(X), labels)
    assert torch.equal(whole.cut(heights).labels(encode_missing(X)), labels)
    for tree, coarse in enumerate(whole.cut(heights // 2).labels(X).unbind(1)):
        assert all(len(coarse[labels[:, tree] == leaf].unique()) == 1 for leaf in labels[:, tree].unique())
    with pytest.raises(ValueError, match="TreeCutPartition expected finite points"):
        whole.cut(heights).labels(X.nan_to_num(torch.inf))


def test_missing_values_pass_through_the_model():
    """Whether a value is missing explains the targets: trees that split on it predict the size of the step."""
    model = PartitionGP(X, Y, GaussianLikelihood(), RandomForestKernel(X, Y, 50, random_state=0))
    fit_exact_gp(model, model.likelihood)
    is_missing = torch.tensor([[0.0, torch.nan, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]], dtype=torch.float64)
    missing, there = model.eval()(is_missing).mean.tolist()
    assert missing - there == pytest.approx(2.0, abs=0.4)


def test_a_users_own_model_takes_the_code():
    kernel = RandomForestKernel(X, Y, 20, random_state=0)
    with pytest.raises(ValueError, match="encode_missing"):
        fit_exact_gp(Model(X, Y, ScaleKernel(kernel)), GaussianLikelihood())
    own, ready = (
        Model(encode_missing(X), Y, ScaleKernel(kernel)).double(),
        PartitionGP(X, Y, GaussianLikelihood(), kernel),
    )
    for model in (own, ready):
        fit_exact_gp(model, model.likelihood)
    torch.testing.assert_close(own.eval()(encode_missing(NEW)).mean, ready.eval()(NEW).mean)


@pytest.mark.parametrize("x", [torch.ones(2, 2, dtype=torch.float16), torch.ones(2, 2, dtype=torch.int64), [[1.0]]])
def test_numbers_without_room_for_the_code(x):
    with pytest.raises(TypeError, match="float32 or float64"):
        encode_missing(x)


@pytest.mark.parametrize("other", [RBFKernel(), ScaleKernel(LinearKernel())])
def test_kernels_of_gpytorch_do_not_read_the_code(other):
    kernel = ScaleKernel(RandomForestKernel(COMPLETE, Y, 10, random_state=0)) + other
    with pytest.raises(ValueError, match="without missing values"):
        PartitionGP(X, Y, GaussianLikelihood(), kernel)
    model = PartitionGP(COMPLETE, Y, GaussianLikelihood(), kernel).eval()
    with pytest.raises(ValueError, match="without missing values"):
        model(X)
