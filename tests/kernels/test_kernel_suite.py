"""GPyTorch's own suite for every kernel, and what it leaves out."""

from __future__ import annotations

import copy
import io
import pickle
import unittest

import pytest
import torch
from gpytorch.kernels import AdditiveKernel, RBFKernel, ScaleKernel
from gpytorch.test.base_kernel_test_case import BaseKernelTestCase
from linear_operator import to_dense
from sklearn.cluster import KMeans
from sklearn.ensemble import RandomForestRegressor

from gpytorch_partition import (
    ClusteringKernel,
    FastClusterKernel,
    GammaMondrianKernel,
    IterativeKernel,
    LandmarkKernel,
    MondrianKernel,
    PartitionKernel,
    RandomForestKernel,
    encode_missing,
)
from gpytorch_partition.operators import PartitionLinearOperator, PathSumLinearOperator
from tests.kernels.zoo import BUILD, OUTER, ROWS, UNFITTED, X, Y, kernel_of, rows_of


class _KernelSuite(BaseKernelTestCase):
    name: str

    def create_kernel_no_ard(self, **options):
        return BUILD[self.name](X, **options)

    def create_data_single_batch(self):
        return torch.randn(2, 3, 10)

    def create_data_double_batch(self):
        return torch.randn(3, 2, 50, 10)

    def _check_active_dims(self, dims):
        x, build = self.create_data_no_batch(), BUILD[self.name]
        kernel, basic = build(X, active_dims=dims), build(X[:, dims])
        self.assertAllClose(kernel(x).to_dense(), basic(x[:, dims]).to_dense())
        if isinstance(kernel, PartitionKernel):
            self.assertTrue(torch.equal(kernel.cluster_ids(x), basic.cluster_ids(x[:, dims])))

    def test_active_dims_list(self):
        self._check_active_dims([0, 2, 4, 6])

    def test_active_dims_range(self):
        self._check_active_dims(list(range(3, 9)))

    def test_kernel_dtype_device(self):
        kernel = self.create_kernel_no_ard()
        assert kernel.dtype == torch.float32
        assert kernel.double().dtype == torch.float64


for _name in BUILD:
    if _name not in ROWS and _name != "standardized":  # which has the columns of its rows
        globals()[f"Test_{_name}"] = type(f"Test_{_name}", (_KernelSuite, unittest.TestCase), {"name": _name})

# Kernels with a partition that was drawn from rows, in rising order of what they do with it.
OF_ROWS = [
    "fast_cluster",
    "isolation",
    "clustering",
    "gaussians",
    "mondrian",
    "gamma_mondrian",
    "random_binning",
    "forest",
    "sampled_heights",
    "depth",
    "leaf",
    "learned",
    "tree_weights",
]


def test_a_cut_mondrian_kernel_keeps_all_but_the_lifetime():
    kernel = MondrianKernel(X, 20, lifetime=0.3, random_state=0, active_dims=(4, 1), batch_shape=(2,)).double()
    x = X.double()
    kernel(x).to_dense()
    cut, drawn = kernel.cut(0.1), MondrianKernel(X, 20, lifetime=0.1, random_state=0, active_dims=(4, 1)).double()
    assert (cut.lifetime, kernel.lifetime, cut.batch_shape) == (0.1, 0.3, (2,))
    torch.testing.assert_close(cut(x).to_dense(), drawn(x).to_dense().expand(2, -1, -1))


@pytest.fixture(params=OF_ROWS)
def kernel(request):
    return kernel_of(request.param)


def _share_of_equal_labels(kernel, x1, x2):
    return (kernel.cluster_ids(x1)[:, None] == kernel.cluster_ids(x2)[None]).float().mean(-1)


@pytest.mark.parametrize("name", ["fast_cluster", "mondrian", "random_binning", "clustering", "sampled", "leaf"])
def test_flat_kernels_are_the_share_of_equal_labels(name):
    kernel, x = kernel_of(name), torch.randn(30, 10, generator=torch.Generator().manual_seed(1)) * 2
    torch.testing.assert_close(kernel(x).to_dense(), _share_of_equal_labels(kernel, x, x))
    torch.testing.assert_close(kernel(x, X).to_dense(), _share_of_equal_labels(kernel, x, X))
    torch.testing.assert_close(kernel(X, x).to_dense(), _share_of_equal_labels(kernel, X, x))
    assert kernel.cluster_ids(x).dtype == torch.int64


def test_heights_are_depths_of_the_trees_and_all_their_average():
    forest = RandomForestRegressor(8, min_samples_leaf=3, random_state=0).fit(X.numpy(), Y.numpy())
    highest = max(estimator.get_depth() for estimator in forest.estimators_)
    average, at_depth = torch.zeros(40, 40), torch.zeros(highest + 1, 40, 40)
    for estimator in forest.estimators_:
        paths = torch.from_numpy(estimator.decision_path(X[:40].numpy()).toarray())
        depth_of_leaf, shared = paths.sum(1) - 1, paths @ paths.T
        for depth in range(highest + 1):
            # The cut at depth d compares nodes at min(d, depth of the leaf): equal when the paths agree that far.
            reach = 1 + depth_of_leaf.clamp(max=depth)
            same = (shared >= torch.maximum(reach[:, None], reach[None])).float() / 8
            at_depth[depth] += same
            average += same / (estimator.get_depth() + 1) * (depth <= estimator.get_depth())
    kernel = RandomForestKernel.from_forest(forest)
    torch.testing.assert_close(kernel(X[:40]).to_dense(), average, rtol=1e-4, atol=1e-5)
    for depth in (0, 1, 3, highest, 99):
        kernel = RandomForestKernel.from_forest(forest, depth)
        torch.testing.assert_close(kernel(X[:40]).to_dense(), at_depth[min(depth, highest)])


@pytest.mark.parametrize("heights", ["deep", -1, 2.5, True, None, [1], 10**30], ids=str)
def test_heights_that_are_none(heights):
    with pytest.raises(ValueError, match="heights to be one of .* or a depth from 0 on, got"):
        RandomForestKernel(X, Y, 5, heights=heights)


def test_evaluates_to_our_operator(kernel):
    operator = kernel(X).evaluate_kernel()
    assert isinstance(operator, PartitionLinearOperator)
    assert operator.is_symmetric
    is_tree = isinstance(operator.cluster_operator, PathSumLinearOperator)
    assert is_tree == (
        isinstance(kernel, GammaMondrianKernel) or getattr(kernel, "heights", None) in ("all", "learned")
    )


@pytest.mark.parametrize("wrap", [lambda kernel: kernel, ScaleKernel])
@pytest.mark.parametrize(("kernel_dtype", "x_dtype"), [(torch.float32, torch.float64), (torch.float64, torch.float32)])
def test_the_wider_dtype_wins(kernel, wrap, kernel_dtype, x_dtype):
    kernel, x = wrap(kernel).to(kernel_dtype), X.to(x_dtype)
    covariance, v = kernel(x).evaluate_kernel(), torch.ones(120, 2, dtype=torch.float64)
    assert covariance.dtype == (covariance @ v).dtype == covariance.diagonal().dtype == torch.float64
    torch.testing.assert_close(covariance @ v, covariance.to_dense() @ v)


@pytest.mark.parametrize("name", BUILD)
def test_copies_are_equal_and_kernels_of_their_own(name):
    kernel, x = kernel_of(name), rows_of(name)
    expected = kernel(x).to_dense()
    copies = [copy.deepcopy(kernel)]
    if name != "sampled":  # whose functions are drawn anew where they are loaded
        copies.append(pickle.loads(pickle.dumps(kernel)))
    for twin in copies:
        assert torch.equal(twin(x).to_dense(), expected)
        assert twin.double().dtype == torch.float64
        with torch.no_grad():
            for parameter in twin.parameters():
                parameter += torch.rand(parameter.shape)
        assert kernel.dtype == torch.float32
        assert torch.equal(kernel(x).to_dense(), expected)


@pytest.mark.parametrize("name", UNFITTED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_state_fits_an_unfitted_twin(name, dtype):
    kernel, x = kernel_of(name).to(dtype), rows_of(name)
    with torch.no_grad():
        for parameter in kernel.parameters():
            if parameter.requires_grad:
                parameter += 0.3 * torch.rand(parameter.shape)
    buffer = io.BytesIO()
    torch.save(kernel.state_dict(), buffer)
    buffer.seek(0)
    twin = UNFITTED[name]().to(dtype)
    with pytest.raises(RuntimeError, match="not fitted"):
        twin(x).to_dense()
    twin.load_state_dict(torch.load(buffer, weights_only=True))
    assert torch.equal(twin(x[:30] * 1, x).to_dense(), kernel(x[:30] * 1, x).to_dense())
    trained = [[key for key, value in each.named_parameters() if value.requires_grad] for each in (twin, kernel)]
    assert trained[0] == trained[1]


@pytest.mark.parametrize("name", [name for name in BUILD if name not in OUTER])
def test_batches_are_indexed_and_expanded_at_every_depth(name):
    x = rows_of(name)[:7]
    single = to_dense(kernel_of(name)(x).evaluate_kernel()).detach()
    scale = ScaleKernel(kernel_of(name, batch_shape=torch.Size([2])), batch_shape=torch.Size([2]))
    scale.outputscale = torch.tensor([1.0, 3.0])
    smooth = RBFKernel(batch_shape=torch.Size([2]))
    for kernel, rest in ((scale, 0), (IterativeKernel(scale), 0), (AdditiveKernel(scale, smooth), smooth[0](x))):
        element, expected = copy.deepcopy(kernel)[1], 3 * single + (rest and rest.to_dense())
        assert element.batch_shape == ()
        torch.testing.assert_close(to_dense(element(x)), expected)
        if not rest:  # GPyTorch expands no sums
            larger = kernel.expand_batch(4, 2)
            torch.testing.assert_close(to_dense(larger(x))[3, 1], expected)
            torch.testing.assert_close(to_dense(larger[2, 1](x)), expected)


@pytest.mark.parametrize("name", [*OF_ROWS, "landmark"])
def test_loading_another_state_forgets_the_old_labels_and_loadings(name):
    kernel = kernel_of(name)
    kernel(X).to_dense()
    extra = {RandomForestKernel: Y, LandmarkKernel: Y, ClusteringKernel: KMeans(4)}.get(type(kernel), 7)
    other = type(kernel)(X.flip(0), extra)
    kernel.load_state_dict(other.state_dict())
    assert torch.equal(kernel(X).to_dense(), other(X).to_dense())


@pytest.mark.parametrize("name", ["gamma_mondrian", "mondrian", "random_binning"])
def test_no_rows(name):
    kernel = kernel_of(name)
    for _ in range(2):  # the second time no rows are cached
        assert kernel(X[:0]).to_dense().shape == (0, 0)
        assert kernel(X, X[:0]).to_dense().shape == (120, 0)
        assert kernel(X[:0], X).to_dense().shape == (0, 120)


class TestErrors:
    def test_gradient_with_respect_to_inputs(self, kernel):
        said = "(?s)no gradient with respect to the inputs.*optimize_acqf_cells.*optimize_acqf_discrete"
        with pytest.raises(RuntimeError, match=said):
            kernel(X.clone().requires_grad_(True)).to_dense()

    def test_missing_values_are_for_trees_that_know_them(self, kernel):
        if isinstance(kernel, RandomForestKernel):
            pytest.skip("its trees know them")
        x = X.clone()
        x[3, 2] = torch.nan
        with pytest.raises(ValueError, match="no clusters for missing values"):
            kernel(encode_missing(x))

    @pytest.mark.parametrize("wrap", [lambda kernel: kernel, ScaleKernel, lambda kernel: ScaleKernel(kernel) + kernel])
    def test_failed_call_keeps_active_dims(self, wrap):
        permuted = wrap(FastClusterKernel(X, 50, random_state=0, active_dims=tuple(range(9, -1, -1))))
        expected = permuted(X).to_dense()
        x = X.clone()
        x[0, 0] = float("nan")
        with pytest.raises(ValueError, match="finite"):
            permuted(x).to_dense()
        with pytest.raises(RuntimeError, match="no gradient"):
            permuted(X.clone().requires_grad_(True)).to_dense()
        torch.testing.assert_close(permuted(X).to_dense(), expected, rtol=0, atol=0)

    @pytest.mark.parametrize("dims", [(-1,), (), (1, 1), (0.5,), 3])
    def test_impossible_active_dims(self, dims):
        with pytest.raises(ValueError, match="distinct numbers of columns"):
            FastClusterKernel(X, 5, active_dims=dims)

    def test_active_dims_beyond_the_columns(self):
        with pytest.raises(ValueError, match="at least 13 columns, got 10"):
            FastClusterKernel(X, 5, active_dims=(2, 12))

    def test_last_dim_is_batch(self, kernel):
        with pytest.raises(RuntimeError, match=r"last_dim_is_batch.* AdditiveKernel\(\*\[\w+\(..., active_dims=\(i,\)"):
            kernel(X, last_dim_is_batch=True)

    def test_targets_missing(self):
        with pytest.raises(ValueError, match="both"):
            RandomForestKernel(X)

    def test_batched_training_inputs(self):
        with pytest.raises(ValueError, match="one set of rows"):
            FastClusterKernel(X.expand(2, 120, 10))

    def test_state_of_another_kernel(self):
        with pytest.raises(RuntimeError):
            FastClusterKernel().load_state_dict(MondrianKernel(X, 5).state_dict())

    def test_incomplete_state_changes_nothing(self, kernel):
        if isinstance(kernel, FastClusterKernel):
            other = FastClusterKernel(X + 1, 5, random_state=1, active_dims=(1, 0))
        elif isinstance(kernel, ClusteringKernel):
            other = ClusteringKernel(X + 1, KMeans(4), 5, random_state=1, active_dims=(1, 0))
        elif isinstance(kernel, MondrianKernel):
            other = MondrianKernel(X + 1, 5, random_state=1, active_dims=(1, 0))
        elif isinstance(kernel, RandomForestKernel):
            names = ["all", "sampled", "learned", "leaf", 2, "all"]
            heights = names[names.index(kernel.heights) + 1]
            other = RandomForestKernel(X + 1, Y, 5, heights=heights, random_state=1)
        else:
            pytest.skip("its partitions are a function, which is no state")
        expected, dense, whole = kernel.cluster_ids(X), kernel(X).to_dense(), other.state_dict()
        for name in whole:
            with pytest.raises(RuntimeError, match="Missing key"):
                kernel.load_state_dict({key: value for key, value in whole.items() if key != name})
            assert torch.equal(kernel.cluster_ids(X), expected)
            assert torch.equal(kernel(X).to_dense(), dense)
