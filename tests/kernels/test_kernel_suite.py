"""GPyTorch's own suite for every kernel, and what it leaves out."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
import unittest

import gpytorch
import pytest
import torch
from gpytorch.kernels import ScaleKernel
from gpytorch.test.base_kernel_test_case import BaseKernelTestCase
from sklearn.cluster import KMeans
from sklearn.ensemble import ExtraTreesClassifier, RandomForestRegressor
from sklearn.mixture import GaussianMixture

from gpytorch_partition import (
    ClusteringKernel,
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
    encode_missing,
)
from gpytorch_partition.inputs.numbers import bits_of
from gpytorch_partition.operators import PartitionLinearOperator, PathSumLinearOperator
from gpytorch_partition.partitions import MondrianPartition

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(120, 10, generator=GENERATOR)
Y = X[:, 0].sin() + X[:, 1].abs()


class _KernelSuite(BaseKernelTestCase):
    @staticmethod
    def build(x, **kwargs):
        raise NotImplementedError

    def create_kernel_no_ard(self, **kwargs):
        return self.build(X, **kwargs)

    def create_data_single_batch(self):
        return torch.randn(2, 3, 10)

    def create_data_double_batch(self):
        return torch.randn(3, 2, 50, 10)

    def _check_active_dims(self, dims):
        x = self.create_data_no_batch()
        kernel, basic = self.build(X, active_dims=dims), self.build(X[:, dims])
        self.assertAllClose(kernel(x).to_dense(), basic(x[:, dims]).to_dense())
        self.assertTrue(torch.equal(kernel.cluster_ids(x), basic.cluster_ids(x[:, dims])))

    def test_active_dims_list(self):
        self._check_active_dims([0, 2, 4, 6])

    def test_active_dims_range(self):
        self._check_active_dims(list(range(3, 9)))


class TestPartition(_KernelSuite, unittest.TestCase):
    @staticmethod
    def build(x, **kwargs):
        return PartitionKernel(lambda x: (2 * x).floor().long(), **kwargs)

    def test_kernel_pickle_unpickle(self):
        pickle.loads(pickle.dumps(PartitionKernel(_signs)))


def _signs(x):
    return (x > 0).long()


def _random_floors(seed):
    shift = torch.rand((), generator=torch.Generator().manual_seed(seed))
    return lambda x: (x.sum(-1) + shift).floor().long()


class TestFastCluster(_KernelSuite, unittest.TestCase):
    @staticmethod
    def build(x, **kwargs):
        return FastClusterKernel(x, 20, random_state=0, **kwargs)


class TestIsolation(_KernelSuite, unittest.TestCase):
    @staticmethod
    def build(x, **kwargs):
        return FastClusterKernel(x, 20, num_centers=8, columns="all", projection=3, random_state=0, **kwargs)


class TestClustering(_KernelSuite, unittest.TestCase):
    @staticmethod
    def build(x, **kwargs):
        return ClusteringKernel(x, KMeans(5), 5, rows=0.5, projection=2, random_state=0, **kwargs)


class TestMixtures(_KernelSuite, unittest.TestCase):
    @staticmethod
    def build(x, **kwargs):
        return ClusteringKernel(x, GaussianMixture(3, reg_covar=0.1), 5, columns=0.5, random_state=0, **kwargs)


class TestSampled(_KernelSuite, unittest.TestCase):
    @staticmethod
    def build(x, **kwargs):
        return PartitionKernel.from_sampler(_random_floors, 5, random_state=0, **kwargs)


class TestMondrian(_KernelSuite, unittest.TestCase):
    @staticmethod
    def build(x, **kwargs):
        return MondrianKernel(x, 20, lifetime=0.3, random_state=0, **kwargs)


class TestGammaMondrian(_KernelSuite, unittest.TestCase):
    @staticmethod
    def build(x, **kwargs):
        return GammaMondrianKernel(x, 20, lifetime=0.3, max_lifetime=2.0, random_state=0, **kwargs)


class TestRandomBinning(_KernelSuite, unittest.TestCase):
    @staticmethod
    def build(x, **kwargs):
        return RandomBinningKernel(x, 20, random_state=0, **kwargs)


class TestRandomForest(_KernelSuite, unittest.TestCase):
    @staticmethod
    def build(x, **kwargs):
        return RandomForestKernel(x, Y, 10, random_state=0, **kwargs)


class TestRandomForestSampled(_KernelSuite, unittest.TestCase):
    @staticmethod
    def build(x, **kwargs):
        return RandomForestKernel(x, Y, 10, heights="sampled", random_state=0, **kwargs)


class TestRandomForestLeaf(_KernelSuite, unittest.TestCase):
    @staticmethod
    def build(x, **kwargs):
        return RandomForestKernel(x, Y, 10, heights="leaf", random_state=0, **kwargs)


class TestRandomForestLearned(_KernelSuite, unittest.TestCase):
    @staticmethod
    def build(x, **kwargs):
        return RandomForestKernel(x, Y, 10, heights="learned", random_state=0, **kwargs)


class TestRandomForestImpurity(_KernelSuite, unittest.TestCase):
    @staticmethod
    def build(x, **kwargs):
        return RandomForestKernel(x, Y, 10, heights="impurity", random_state=0, **kwargs)


class TestRandomForestTreeWeights(_KernelSuite, unittest.TestCase):
    @staticmethod
    def build(x, **kwargs):
        kernel = RandomForestKernel(x, Y, 10, heights="leaf", random_state=0, **kwargs)
        kernel.partition.tree_weights = bits_of(torch.arange(1, 11).double() / 5.5)  # as of an ensemble that has them
        return kernel


class TestMixture(_KernelSuite, unittest.TestCase):
    @staticmethod
    def build(x, active_dims=None, **kwargs):
        forest = RandomForestKernel(x, Y, 10, "learned", random_state=0, active_dims=active_dims)
        mondrian = MondrianKernel(x, 20, lifetime=0.3, random_state=0, active_dims=active_dims)
        return PartitionMixtureKernel([forest, mondrian], [1, 2], **kwargs)


class TestScaledMixture(_KernelSuite, unittest.TestCase):
    @staticmethod
    def build(x, batch_shape=(), **kwargs):
        return ScaleKernel(TestMixture.build(x, batch_shape=batch_shape, **kwargs), batch_shape=torch.Size(batch_shape))

    def _check_active_dims(self, dims):
        x = self.create_data_no_batch()
        self.assertAllClose(
            self.build(X, active_dims=dims)(x).to_dense(), self.build(X[:, dims])(x[:, dims]).to_dense()
        )


class TestIterative(_KernelSuite, unittest.TestCase):
    @staticmethod
    def build(x, **kwargs):
        dims = kwargs.pop("active_dims", None)
        forest = RandomForestKernel(x, Y, 10, random_state=0, active_dims=dims, **kwargs)
        return IterativeKernel(gpytorch.kernels.ScaleKernel(forest, **kwargs))

    def _check_active_dims(self, dims):
        x = self.create_data_no_batch()
        kernel, basic = self.build(X, active_dims=dims), self.build(X[:, dims])
        self.assertAllClose(kernel(x).to_dense(), basic(x[:, dims]).to_dense())

    def test_kernel_dtype_device(self):
        kernel = self.create_kernel_no_ard()
        assert kernel.dtype == torch.float32
        assert kernel.double().dtype == torch.float64


class TestLocalLinear(_KernelSuite, unittest.TestCase):
    @staticmethod
    def build(x, **kwargs):
        forest = RandomForestKernel(x, Y, 10, random_state=0, **kwargs)
        return LocalLinearKernel(forest, len(kwargs.get("active_dims") or x[0]), **kwargs)

    def _check_active_dims(self, dims):
        x = self.create_data_no_batch()
        kernel, basic = self.build(X, active_dims=dims), self.build(X[:, dims])
        self.assertAllClose(kernel(x).to_dense(), basic(x[:, dims]).to_dense())


class TestLandmark(_KernelSuite, unittest.TestCase):
    @staticmethod
    def build(x, **kwargs):
        return LandmarkKernel(x, Y, 20, num_rows=60, random_state=0, **kwargs)

    def _check_active_dims(self, dims):
        x = self.create_data_no_batch()
        kernel, basic = self.build(X, active_dims=dims), self.build(X[:, dims])
        self.assertAllClose(kernel(x).to_dense(), basic(x[:, dims]).to_dense())


KERNELS = {
    "fast_cluster": TestFastCluster.build,
    "isolation": TestIsolation.build,
    "clustering": TestClustering.build,
    "mixtures": TestMixtures.build,
    "mondrian": TestMondrian.build,
    "gamma_mondrian": TestGammaMondrian.build,
    "random_binning": TestRandomBinning.build,
    "forest": TestRandomForest.build,
    "sampled": TestRandomForestSampled.build,
    "leaf": TestRandomForestLeaf.build,
    "learned": TestRandomForestLearned.build,
    "tree_weights": TestRandomForestTreeWeights.build,
}


def test_a_cut_mondrian_kernel_keeps_all_but_the_lifetime():
    kernel = MondrianKernel(X, 20, lifetime=0.3, random_state=0, active_dims=(4, 1), batch_shape=(2,)).double()
    x = X.double()
    kernel(x).to_dense()
    cut, drawn = kernel.cut(0.1), MondrianKernel(X, 20, lifetime=0.1, random_state=0, active_dims=(4, 1)).double()
    assert (cut.lifetime, kernel.lifetime, cut.batch_shape) == (0.1, 0.3, (2,))
    torch.testing.assert_close(cut(x).to_dense(), drawn(x).to_dense().expand(2, -1, -1))


@pytest.fixture(params=KERNELS)
def kernel(request):
    return KERNELS[request.param](X)


def _share_of_equal_labels(kernel, x1, x2):
    return (kernel.cluster_ids(x1)[:, None] == kernel.cluster_ids(x2)[None]).float().mean(-1)


@pytest.mark.parametrize("name", ["fast_cluster", "mondrian", "random_binning", "clustering", "sampled", "leaf"])
def test_flat_kernels_are_the_share_of_equal_labels(name):
    kernel, x = KERNELS[name](X), torch.randn(30, 10, generator=torch.Generator().manual_seed(1)) * 2
    torch.testing.assert_close(kernel(x).to_dense(), _share_of_equal_labels(kernel, x, x))
    torch.testing.assert_close(kernel(x, X).to_dense(), _share_of_equal_labels(kernel, x, X))
    torch.testing.assert_close(kernel(X, x).to_dense(), _share_of_equal_labels(kernel, X, x))
    assert kernel.cluster_ids(x).dtype == torch.int64


def test_all_heights_are_the_average_over_every_depth():
    forest = RandomForestRegressor(8, min_samples_leaf=3, random_state=0).fit(X.numpy(), Y.numpy())
    kernel = RandomForestKernel.from_forest(forest)
    expected = torch.zeros(40, 40)
    for tree, estimator in enumerate(forest.estimators_):
        paths = estimator.decision_path(X[:40].numpy()).toarray()
        height = estimator.get_depth()
        depth_of_leaf = paths.sum(1) - 1
        shared = paths @ paths.T
        for depth in range(height + 1):
            # The cut at depth d compares nodes at min(d, depth of the leaf): equal when the paths agree that far.
            reach = 1 + torch.tensor(depth_of_leaf).clamp(max=depth)
            same = (torch.tensor(shared) >= torch.maximum(reach[:, None], reach[None])).float()
            expected += same / (height + 1) / len(forest.estimators_)
        assert tree < 8
    torch.testing.assert_close(kernel(X[:40]).to_dense(), expected, rtol=1e-4, atol=1e-5)


def test_evaluates_to_our_operator(kernel):
    operator = kernel(X).evaluate_kernel()
    assert isinstance(operator, PartitionLinearOperator)
    assert operator.is_symmetric
    is_tree = isinstance(operator.cluster_operator, PathSumLinearOperator)
    assert is_tree == (
        isinstance(kernel, GammaMondrianKernel) or getattr(kernel, "heights", None) in ("all", "learned")
    )


def test_positive_semidefinite_with_unit_diagonal(kernel):
    covariance = kernel(X).to_dense().double()
    torch.testing.assert_close(covariance.diagonal(), torch.ones(120, dtype=torch.float64))
    assert torch.linalg.eigvalsh(covariance).min() > -1e-6


def test_indexing_and_expanding_a_batch_keep_active_dims():
    kernel = FastClusterKernel(X, 5, random_state=0, active_dims=(1, 3), batch_shape=(2,))
    expected = FastClusterKernel(X[:, [1, 3]], 5, random_state=0)(X[:, [1, 3]]).to_dense()
    torch.testing.assert_close(kernel[0](X).to_dense(), expected)
    torch.testing.assert_close(kernel.expand_batch(3, 2)(X).to_dense()[2, 1], expected)
    assert kernel.expand_batch(torch.Size([3, 2])).batch_shape == (3, 2)


def test_saved_active_dims_are_loaded():
    kernel = FastClusterKernel(X, 5, random_state=0, active_dims=(1, 3))
    twin = FastClusterKernel()
    twin.load_state_dict(kernel.state_dict())
    assert torch.equal(twin.cluster_ids(X), kernel.cluster_ids(X))


@pytest.mark.parametrize("wrap", [lambda kernel: kernel, ScaleKernel])
@pytest.mark.parametrize(("kernel_dtype", "x_dtype"), [(torch.float32, torch.float64), (torch.float64, torch.float32)])
def test_the_wider_dtype_wins(kernel, wrap, kernel_dtype, x_dtype):
    kernel, x = wrap(kernel).to(kernel_dtype), X.to(x_dtype)
    covariance, v = kernel(x).evaluate_kernel(), torch.ones(120, 2, dtype=torch.float64)
    assert covariance.dtype == (covariance @ v).dtype == covariance.diagonal().dtype == torch.float64
    torch.testing.assert_close(covariance @ v, covariance.to_dense() @ v)


def test_lazy_diagonal_needs_no_call(kernel):
    torch.testing.assert_close(kernel(X).diagonal(), torch.ones(120))
    mixed = kernel(X[:5], X[5:10], diag=True)
    torch.testing.assert_close(mixed, kernel(X[:5], X[5:10]).to_dense().diagonal())


@pytest.mark.parametrize("change", [torch.nn.Module.double, torch.nn.Module.half, copy.deepcopy])
def test_labels_survive_every_change(kernel, change):
    before = kernel.cluster_ids(X)
    changed = change(kernel)
    assert torch.equal(changed.cluster_ids(X), before)
    assert torch.equal(changed.cluster_ids(X.double()), before)


def test_changing_a_deepcopy_leaves_the_original(kernel):
    twin = copy.deepcopy(kernel)
    other = type(kernel)() if not isinstance(kernel, PartitionKernel) else None
    twin.double()
    assert kernel.dtype == torch.float32
    assert other is None
    buffers, shared = dict(kernel.named_buffers()), dict(copy.deepcopy(kernel).named_buffers())
    partition_buffers = [name for name in buffers if name.startswith("partition.")]
    assert partition_buffers
    assert all(buffers[name].data_ptr() == shared[name].data_ptr() for name in partition_buffers)


def test_state_fits_an_unfitted_twin(kernel):
    buffer = io.BytesIO()
    torch.save(kernel.state_dict(), buffer)
    buffer.seek(0)
    twin = type(kernel)()
    with pytest.raises(RuntimeError, match="not fitted"):
        twin(X)
    twin.load_state_dict(torch.load(buffer, weights_only=True))
    assert torch.equal(twin.cluster_ids(X), kernel.cluster_ids(X))
    assert torch.equal(twin(X).to_dense(), kernel(X).to_dense())
    assert twin.num_partitions == kernel.num_partitions


def test_loading_another_state_forgets_the_old_labels(kernel):
    kernel(X).to_dense()
    extra = {RandomForestKernel: Y, ClusteringKernel: KMeans(4)}.get(type(kernel), 7)
    other = type(kernel)(X.flip(0), extra)
    kernel.load_state_dict(other.state_dict())
    torch.testing.assert_close(kernel(X).to_dense(), other(X).to_dense())


def test_botorch_style_rollback_of_the_state(kernel):
    before = kernel.cluster_ids(X)
    state = {name: value.detach().to("cpu").clone() for name, value in kernel.state_dict().items()}
    for name, value in kernel.state_dict().items():
        value[...] = state[name]
    assert torch.equal(kernel.cluster_ids(X), before)


@pytest.mark.slow
def test_another_process_predicts_bit_identically(tmp_path):
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = _Model(X, Y, likelihood, RandomForestKernel(X, Y, 10, random_state=0))
    model.eval()
    with torch.no_grad():
        mean = model(X[:20] + 0.1).mean
    torch.save({"state": model.state_dict(), "x": X, "y": Y, "mean": mean}, tmp_path / "model.pt")
    code = _MODEL_SOURCE + (
        f"saved = torch.load({str(tmp_path / 'model.pt')!r}, weights_only=True)\n"
        "model = _Model(saved['x'], saved['y'], gpytorch.likelihoods.GaussianLikelihood(), RandomForestKernel())\n"
        "model.load_state_dict(saved['state']); model.eval()\n"
        "with torch.no_grad(): mean = model(saved['x'][:20] + 0.1).mean\n"
        "assert torch.equal(mean, saved['mean'])\n"
    )
    result = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


_MODEL_SOURCE = """
import gpytorch, torch
from gpytorch_partition import RandomForestKernel
class _Model(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood, kernel):
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(kernel)
    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))
"""


class _Model(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood, kernel):
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(kernel)

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def test_training_rows_are_labelled_once(kernel, monkeypatch):
    calls = []
    name = "_grown" if isinstance(kernel.partition, MondrianPartition) else "_labels"
    original = getattr(type(kernel.partition), name)
    monkeypatch.setattr(type(kernel.partition), name, lambda self, x: (calls.append(x.shape[0]), original(self, x))[1])
    model = _Model(X, Y, gpytorch.likelihoods.GaussianLikelihood(), kernel)
    mll = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    for _ in range(3):
        (-mll(model(X), Y)).backward()
    model.eval()
    for shift in (0.1, 0.2):
        model(X[:7] + shift).mean.sum().item()
    assert calls.count(120) == 1


@pytest.mark.parametrize("classifier", [False, True])
def test_from_forest(classifier):
    if classifier:
        forest = ExtraTreesClassifier(5, random_state=0).fit(X.numpy(), (Y > 0.5).numpy())
    else:
        forest = RandomForestRegressor(5, random_state=0).fit(X.numpy(), Y.numpy())
    kernel = RandomForestKernel.from_forest(forest, heights="leaf")
    leaves = torch.tensor(forest.apply(X.numpy()))
    expected = (leaves[:, None] == leaves[None]).float().mean(-1)
    torch.testing.assert_close(kernel(X).to_dense(), expected)


class TestErrors:
    def test_gradient_with_respect_to_inputs(self, kernel):
        with pytest.raises(RuntimeError, match="no gradient with respect to the inputs"):
            kernel(X.clone().requires_grad_(True)).to_dense()

    def test_nan(self, kernel):
        x = X.clone()
        x[3, 2] = torch.inf if isinstance(kernel, RandomForestKernel) else torch.nan
        with pytest.raises(ValueError, match="finite"):
            kernel(x)

    def test_missing_values_are_for_trees_that_know_them(self, kernel):
        if isinstance(kernel, RandomForestKernel):
            pytest.skip("its trees know them")
        x = X.clone()
        x[3, 2] = torch.nan
        with pytest.raises(ValueError, match="no clusters for missing values"):
            kernel(encode_missing(x))

    def test_wrong_width(self, kernel):
        with pytest.raises(ValueError, match="built on 10 columns, got points with 3"):
            kernel(X[:, :3])

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

    def test_integer_inputs(self, kernel):
        with pytest.raises(ValueError, match="floating point"):
            kernel(torch.zeros(4, 10, dtype=torch.int64))

    def test_last_dim_is_batch(self, kernel):
        with pytest.raises(RuntimeError, match=r"last_dim_is_batch.* AdditiveKernel\(\*\[\w+\(..., active_dims=\(i,\)"):
            kernel(X, last_dim_is_batch=True)

    def test_unknown_heights(self):
        with pytest.raises(ValueError, match="heights"):
            RandomForestKernel(X, Y, heights="some")

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
            names = ["all", "sampled", "learned", "leaf", "all"]
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

    def test_not_a_function(self):
        with pytest.raises(TypeError, match="expected a function"):
            PartitionKernel(3)
