"""The landmark kernel against its dense formula, and what it computes when."""

from __future__ import annotations

import copy

import gpytorch
import pytest
import torch
from gpytorch.kernels import Kernel, MaternKernel, PolynomialKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood

from gpytorch_partition import LandmarkKernel, encode_missing
from gpytorch_partition.models import PartitionGP

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(300, 3, generator=GENERATOR)
Y = X[:, 0].sin() + 0.3 * X[:, 1]
NEW = torch.randn(20, 3, generator=GENERATOR)


def _kernel(**kwargs):
    return LandmarkKernel(X, Y, 25, num_rows=100, random_state=0, **kwargs)


def _nystrom(base, landmarks, x1, x2):
    base, landmarks = copy.deepcopy(base).double(), landmarks.double()
    within = base(landmarks).to_dense() + 1e-8 * torch.eye(len(landmarks), dtype=torch.float64)
    return base(x1.double(), landmarks).to_dense() @ torch.linalg.solve(within, base(landmarks, x2.double()).to_dense())


@pytest.fixture
def evaluations(monkeypatch):
    """How many rows the Matern kernel is evaluated for."""
    rows, original = [], MaternKernel.forward
    monkeypatch.setattr(
        MaternKernel, "forward", lambda self, x1, x2, **kw: (rows.append(len(x1)), original(self, x1, x2, **kw))[1]
    )
    return rows


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_covariance_is_the_nystrom_approximation(dtype):
    kernel = _kernel().to(dtype)
    for x1, x2 in ((X, X), (NEW, X), (NEW, NEW)):
        expected = _nystrom(kernel.base_kernel, kernel.landmarks.landmarks, x1, x2).to(dtype)
        found = kernel(x1.to(dtype), x2.to(dtype))
        torch.testing.assert_close(found.to_dense(), expected, rtol=0, atol=1e-5)
        if x1 is x2:
            torch.testing.assert_close(found.diagonal(), expected.diagonal(), rtol=0, atol=1e-5)
            torch.testing.assert_close(kernel(x1.to(dtype), diag=True), expected.diagonal(), rtol=0, atol=1e-5)


def test_nearly_singular_landmarks_are_accurate_in_float32():
    base = RBFKernel().requires_grad_(False)
    base.lengthscale = 10.0
    kernel = LandmarkKernel.from_kernel(base, X[:100])
    torch.testing.assert_close(kernel(X).to_dense(), base(X).to_dense(), rtol=0, atol=1e-4)


class OwnRBF(Kernel):
    width = 1.0

    def forward(self, x1, x2, diag=False, **params):
        squares = self.covar_dist(x1, x2, square_dist=True, diag=diag) / self.width
        return squares.neg().exp()


@pytest.mark.parametrize(
    ("base", "name", "value"),
    [
        (MaternKernel(nu=0.5), "nu", 2.5),
        (PolynomialKernel(power=2), "power", 3),
        (ScaleKernel(MaternKernel(nu=0.5)), "base_kernel", RBFKernel().double()),
        (OwnRBF(), "width", 0.1),
        (OwnRBF(), "width", torch.tensor(0.1)),
    ],
)
def test_settings_of_the_base_kernel_that_change(base, name, value):
    kernel = LandmarkKernel.from_kernel(base.requires_grad_(False), X[:9]).double()
    kernel(X.double()).to_dense()
    setattr(kernel.base_kernel, name, value)
    kernel.requires_grad_(False)
    fresh = LandmarkKernel.from_kernel(copy.deepcopy(kernel.base_kernel), X[:9])
    assert torch.equal(kernel(X.double()).to_dense(), fresh(X.double()).to_dense())


def test_loadings_in_blocks_of_rows(monkeypatch):
    expected = _kernel()(X).to_dense()
    monkeypatch.setattr("gpytorch_partition.kernels.landmark_kernel._ENTRIES", 25 * 7)
    torch.testing.assert_close(_kernel()(X).to_dense(), expected)


def test_frozen_lengthscales_are_learned_and_loadings_computed_once(evaluations):
    kernel = _kernel()
    assert not any(parameter.requires_grad for parameter in kernel.parameters())
    lengthscale = kernel.base_kernel.lengthscale.flatten()
    assert lengthscale[2] > 3 * lengthscale[0]
    model = PartitionGP(X, Y, GaussianLikelihood(), kernel)
    mll = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    for _ in range(3):
        (-mll(model(X), Y)).backward()
    model.eval()
    with torch.no_grad():
        for shift in (0.1, 0.2, 0.3):
            model(NEW + shift).variance.sum().item()
    assert evaluations.count(300) == 1
    assert evaluations.count(20) == 3
    assert evaluations.count(25) == 1  # the factor of the inducing points
    kernel.base_kernel.lengthscale = 2 * lengthscale
    expected = _nystrom(kernel.base_kernel, kernel.landmarks.landmarks, X, X).float()
    torch.testing.assert_close(kernel(X).to_dense(), expected, rtol=0, atol=1e-5)


def test_gradients_with_respect_to_lengthscales_and_points():
    kernel = _kernel().double()
    kernel.base_kernel.requires_grad_(True)
    raw, x = kernel.base_kernel.raw_lengthscale, NEW.double().requires_grad_(True)
    vector = torch.randn(300, 1, dtype=torch.float64, generator=GENERATOR)
    total = (kernel(x, X.double()) @ vector).square().sum() + kernel(x).diagonal().sum()
    found = torch.autograd.grad(total, (raw, x))
    base = copy.deepcopy(kernel.base_kernel)
    landmarks = kernel.landmarks.landmarks
    root = torch.linalg.cholesky(base(landmarks).to_dense() + 1e-8 * torch.eye(25, dtype=torch.float64))
    left, right = (
        torch.linalg.solve_triangular(root, base(landmarks, points).to_dense(), upper=False).mT
        for points in (x, X.double())
    )
    dense = (left @ right.mT @ vector).square().sum() + left.square().sum()
    for first, second in zip(found, torch.autograd.grad(dense, (base.raw_lengthscale, x)), strict=True):
        torch.testing.assert_close(first, second, rtol=1e-5, atol=1e-7)


def test_units_of_columns_and_targets_change_nothing():
    units = torch.tensor([1e-3, 1.0, 1e4])
    kernel = LandmarkKernel(units * X, 100 * Y + 7, 25, num_rows=100, random_state=0)
    torch.testing.assert_close(kernel(units * X).to_dense(), _kernel()(X).to_dense(), rtol=0, atol=2e-3)


def test_the_seed_decides_all():
    state, same, other = _kernel().state_dict(), _kernel().state_dict(), LandmarkKernel(X, Y, 25, num_rows=100)
    assert all(torch.equal(state[name], same[name]) for name in state)
    assert not torch.equal(state["landmarks.bits"], other.state_dict()["landmarks.bits"])


class TestState:
    def test_of_any_kernel(self):
        kernel = LandmarkKernel.from_kernel(RBFKernel(ard_num_dims=3), X[:9])
        twin = LandmarkKernel.from_kernel(RBFKernel(ard_num_dims=3), None)
        twin.load_state_dict(kernel.state_dict())
        assert torch.equal(twin(NEW).to_dense(), kernel(NEW).to_dense())

    def test_an_incomplete_one_changes_nothing(self):
        kernel, other = _kernel(), LandmarkKernel(X[:, :2], Y, 7, num_rows=50, random_state=1, active_dims=(1, 0))
        expected, whole = kernel(X).to_dense(), other.state_dict()
        for name in whole:
            with pytest.raises(RuntimeError, match="Missing key"):
                kernel.load_state_dict({key: value for key, value in whole.items() if key != name})
            assert torch.equal(kernel(X).to_dense(), expected)


class TestBatches:
    def test_elements_share_loadings(self, evaluations):
        kernel = _kernel(batch_shape=(2,))
        expected = _kernel()(X).to_dense()
        evaluations.clear()
        covariance = kernel(X.expand(2, 300, 3)).evaluate_kernel()
        assert covariance.shape == (2, 300, 300)
        assert covariance.left_loadings.shape == (300, 25)
        assert evaluations.count(300) == 1
        torch.testing.assert_close(covariance.to_dense(), expected.expand(2, -1, -1))
        larger = kernel.expand_batch(3, 2)
        assert larger(X).evaluate_kernel().left_loadings.shape == (300, 25)
        torch.testing.assert_close(larger[1](X).to_dense()[1], expected)

    def test_a_base_kernel_has_none(self):
        with pytest.raises(ValueError, match="share"):
            LandmarkKernel.from_kernel(RBFKernel(batch_shape=torch.Size([2])), X[:5])


class TestErrors:
    @pytest.mark.parametrize(
        ("x", "y", "options", "message"),
        [
            (X, None, {}, "both"),
            (X.masked_fill(X > 2, torch.nan), Y, {}, "finite"),
            (encode_missing(X.masked_fill(X > 2, torch.nan)), Y, {}, "finite"),
            (X, Y.masked_fill(Y > 1, torch.nan), {}, "finite training targets"),
            (X, Y[:9], {}, "300 finite training targets"),
            (X, X, {}, "300 finite training targets"),
            (X[:1], Y[:1], {}, "rows that vary"),
            (X, torch.ones(300), {}, "targets that vary"),
            (torch.ones(300, 3), Y, {}, "rows that vary"),
            (X.expand(2, 300, 3), Y, {}, "one set of rows"),
            (X, Y, {"num_landmarks": 301}, "at most as many inducing points"),
            (X, Y, {"num_landmarks": 0}, "inducing points, 1 or more"),
            (X, Y, {"num_rows": 1}, "two rows or more"),
            (X, Y, {"random_state": "seed"}, "seed"),
            (X, Y, {"active_dims": (1, 1)}, "distinct numbers"),
        ],
    )
    def test_before_any_work(self, x, y, options, message, monkeypatch):
        monkeypatch.setattr("gpytorch_partition.kernels.landmark_kernel.learn_lengthscales", None)
        with pytest.raises(ValueError, match=message):
            LandmarkKernel(x, y, **options)

    def test_of_calls(self):
        kernel = _kernel()
        with pytest.raises(ValueError, match="3 columns, got points with 2"):
            kernel(X[:, :2])
        for points in (X.masked_fill(X > 2, torch.nan), encode_missing(X.masked_fill(X > 2, torch.nan))):
            with pytest.raises(ValueError, match="drop or impute"):
                kernel(points)
        with pytest.raises(RuntimeError, match="last_dim_is_batch"):
            kernel(X, last_dim_is_batch=True)
