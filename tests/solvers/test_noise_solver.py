"""What linear_operator's suite does not look at: log determinants, gradients, preconditioners, guards."""

from __future__ import annotations

import math
from unittest.mock import patch

import linear_operator
import pytest
import torch
from linear_operator.operators import ConstantDiagLinearOperator, DenseLinearOperator, DiagLinearOperator

from gpytorch_partition import FastClusterKernel, RandomForestKernel, settings
from gpytorch_partition.linalg.conjugate_gradients import relative_residual
from gpytorch_partition.linalg.factors import NystromFactor
from gpytorch_partition.operators import (
    PartitionLinearOperator,
    PartitionSumLinearOperator,
)
from gpytorch_partition.solvers import PartitionAddedDiagLinearOperator, preconditioners
from gpytorch_partition.solvers.iterative_solvers import ConjugateGradients, is_hard
from gpytorch_partition.solvers.preconditioners import nystrom_preconditioner, partition_inverse
from tests.operators.operator_zoo import low_rank

made = preconditioners.nystrom_factor_of
N = 300
X = torch.randn(N, 4, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
Y = X[:, 0].sin() + X[:, 1].abs() + 0.3 * torch.randn(N, generator=torch.Generator().manual_seed(6)).double()


def _covariance(name: str) -> PartitionLinearOperator:
    if name == "forest":
        kernel = RandomForestKernel(X, Y, 30, random_state=0)
    elif name == "leaf":
        kernel = RandomForestKernel(X, Y, 30, heights="leaf", random_state=0)
    else:
        kernel = FastClusterKernel(X, 30, height=6, random_state=0)
    return kernel.double()(X).evaluate_kernel()


@pytest.fixture(params=["forest", "leaf", "fast_cluster"])
def covariance(request):
    return _covariance(request.param)


@pytest.fixture
def small_settings():
    """Iterative everything, preconditioner on, at a size where dense algebra can check it."""
    with (
        settings.iterative(),
        linear_operator.settings.max_cholesky_size(10),
        linear_operator.settings.min_preconditioning_size(10),
        settings.preconditioner_rank(40),
    ):
        yield


def _noises(kind: str) -> DiagLinearOperator:
    if kind == "constant":
        return ConstantDiagLinearOperator(torch.tensor([0.05], dtype=torch.float64), diag_shape=N)
    return DiagLinearOperator(0.05 + 0.1 * torch.rand(N, generator=torch.Generator().manual_seed(0)).double())


def _check_samples(samples: torch.Tensor, covariance: torch.Tensor) -> None:
    """Zero-mean samples (`n x N`): variances along all eigenvectors, and along each, within sampling error."""
    values, vectors = torch.linalg.eigh(covariance)
    variances = (samples @ vectors).square().mean(0) / values
    standard_error = (2 / len(samples)) ** 0.5
    assert (variances.mean() - 1).abs() < 4 * standard_error / len(values) ** 0.5
    assert (variances - 1).abs().max() < 5 * standard_error


@pytest.mark.parametrize("kind", ["constant", "per_row"])
class TestNystromTriple:
    def test_inverse_determinant_and_samples_are_of_one_matrix(self, covariance, kind):
        noise = _noises(kind)
        with settings.preconditioner_rank(40):
            preconditioner = nystrom_preconditioner(covariance * 2.5, noise)
        dense = preconditioner.to_dense()
        torch.testing.assert_close(dense, dense.mT)
        vectors = torch.randn(N, 3, generator=torch.Generator().manual_seed(1)).double()
        inverse = preconditioner.inverse_closure()
        torch.testing.assert_close(inverse(dense @ vectors), vectors, rtol=1e-6, atol=1e-7)
        torch.testing.assert_close(preconditioner.log_determinant(), torch.linalg.slogdet(dense).logabsdet)
        samples = preconditioner.sample(8_000, torch.Generator().manual_seed(2))
        _check_samples(samples.mT, dense)

    def test_gradients_of_the_determinant_agree_with_the_bilinear_derivative(self, covariance, kind):
        scale = torch.tensor(1.7, dtype=torch.float64, requires_grad=True)
        noise = _noises(kind).requires_grad_(True)
        preconditioner = nystrom_preconditioner(covariance * scale, noise)
        (by_determinant,) = torch.autograd.grad(preconditioner.log_determinant(), scale)
        inverse = torch.linalg.inv(preconditioner.to_dense()).detach()
        by_trace = preconditioner._bilinear_derivative(inverse, torch.eye(N).double())[0]
        torch.testing.assert_close(by_trace, by_determinant)


def test_nystrom_factor_is_computed_once_for_all_scales_and_noises(covariance):
    with patch.object(
        PartitionLinearOperator, "_matmul", autospec=True, side_effect=PartitionLinearOperator._matmul
    ) as product:
        nystrom_preconditioner(covariance, _noises("constant"))
        first = product.call_count
        nystrom_preconditioner(covariance * 3.0, _noises("per_row"))
        assert first > 0
        assert product.call_count == first


@pytest.mark.parametrize("kind", ["constant", "per_row"])
@pytest.mark.parametrize("name", ["leaf", "fast_cluster"])
def test_partition_preconditioner_is_the_mean_of_the_inverses(name, kind):
    covariance, noise = _covariance(name) * 2.0, _noises(kind)
    expected = torch.zeros(N, N).double()
    for partition in range(covariance.left.num_partitions):
        code = covariance.left.codes[:, partition]
        single = 2.0 * (code[:, None] == code[None]).double()
        expected += torch.linalg.inv(single + noise.to_dense()) / covariance.left.num_partitions
    vectors = torch.randn(N, 3, generator=torch.Generator().manual_seed(0)).double()
    torch.testing.assert_close(partition_inverse(covariance, noise)(vectors), expected @ vectors)


def _low_rank(falls_by: float, num_rows: int = 2_500) -> PartitionAddedDiagLinearOperator:
    """A covariance of 300 directions, whose eigenvalues fall by a factor, and noise far below them."""
    generator = torch.Generator().manual_seed(1)
    basis = torch.linalg.qr(torch.randn(num_rows, 300, generator=generator, dtype=torch.float64)).Q
    values = 1_000 * torch.logspace(0, -math.log10(falls_by), 300, dtype=torch.float64)
    return low_rank(torch.tensor(1.0).double(), basis * values.sqrt()).add_diagonal(torch.tensor(0.5).double())


def test_solves_take_a_larger_rank_where_that_saves_iterations(monkeypatch):
    """Likelihoods keep the usual rank, and a spectrum that hardly falls, or too little memory, has no larger one."""
    ones = torch.ones(2_500, 1).double()
    with settings.preconditioner_rank(50):
        steep, even = _low_rank(1e4), _low_rank(1.5)
        solution = ConjugateGradients(steep).within(steep.matmul(ones), relative_residual(1e-6)).solution
        torch.testing.assert_close(solution, ones, rtol=0, atol=1e-3)
        for noisy, rank in ((steep, 200), (even, 50)):
            assert noisy.nystrom().factor.root.shape[-1] == 50
            assert noisy._nystrom_of_solves.factor.root.shape[-1] == rank
        usual = steep.nystrom()
        assert steep.expected_iterations == usual.iterations - usual.saved_iterations
        assert even.expected_iterations == even.nystrom().iterations
        assert steep.iterations < 0.8 * steep.nystrom().iterations
        for rank in (120, 90):  # a memory of so many columns
            monkeypatch.setattr(preconditioners, "_MOST_BYTES", 8 * 2_500 * rank)
            assert steep.nystrom().larger_rank == (rank if rank >= 2 * 50 else None)


def _of_eigenvalues(quarters, shifts, rank=8) -> preconditioners.NystromPreconditioner:
    """A batch of preconditioners of 2,500 rows, by the eigenvalues at a quarter of the rank and at its end."""
    values = torch.tensor(quarters).unsqueeze(-1).expand(-1, rank).clone()
    values[:, : rank // 4], values[:, rank // 4 + 1 :] = 1e6, torch.tensor(shifts).unsqueeze(-1)
    gram, root = torch.diag_embed(values - torch.tensor(shifts).unsqueeze(-1)), torch.zeros(len(shifts), 2_500, rank)
    noise = DiagLinearOperator(torch.tensor([0.5, 0.25]).repeat(1_250))  # whose reciprocal is 3 on average
    return preconditioners.NystromPreconditioner(
        torch.tensor(1.0), noise, factor=NystromFactor(root, gram, torch.tensor(shifts))
    )


@pytest.mark.parametrize(("fall", "larger"), [(8.0, 32), (2.0, None)])
def test_iterations_of_known_eigenvalues(fall, larger):
    """The slowest element of a batch decides, and the least fall of its eigenvalues."""
    found = _of_eigenvalues([16.0 * 33, fall * 33], [33.0, 33.0])
    assert found.iterations == pytest.approx(15 * (1 + 3 * 33) ** 0.5)
    assert _of_eigenvalues([9.0, 33.0], [9.0, 33.0]).iterations == found.iterations
    assert found.saved_iterations == pytest.approx(150 * (1 - fall**-0.25))
    assert found.larger_rank == larger
    assert _of_eigenvalues([16.0], [1.0]).larger_rank is None  # saves half of 30 iterations
    assert _of_eigenvalues([16.0 * 33], [33.0], rank=220).larger_rank is None  # 400 is less than twice as much


def test_both_ranks_are_kept_with_the_rows_and_settings_are_read_at_every_solve(small_settings, monkeypatch):
    monkeypatch.setattr(preconditioners, "_LEAST_SAVED", -1)
    monkeypatch.setattr(preconditioners, "_LEAST_SHARE", -1)
    covariance, ranks = _covariance("forest"), []
    noted = {"side_effect": lambda operator, rank: ranks.append(rank) or made(operator, rank)}
    with settings.preconditioner_rank(20), patch.object(preconditioners, "nystrom_factor_of", **noted):
        for level in (0.1, 0.2):
            noisy = covariance.add_diagonal(torch.tensor(level).double())
            assert noisy.nystrom() is not noisy._nystrom_of_solves
        with settings.preconditioner("none"):
            assert noisy.preconditioner_inverse() is None
    assert ranks == [20, 60]


@pytest.mark.parametrize(("scale", "noise"), [(0.0, 0.5), (0.0, 0.0), (1.0, 0.0)])
def test_a_covariance_or_a_noise_of_zero_has_a_number_of_iterations(scale, noise):
    covariance = low_rank(torch.tensor(scale).double(), X)
    with linear_operator.settings.min_preconditioning_size(10), settings.preconditioner_rank(3):
        noisy = covariance.add_diagonal(torch.tensor(noise).double())
        assert noisy.nystrom() is not None
        assert is_hard(noisy) == (scale > 0)


def test_iterations_are_expected_by_the_spectrum():
    """A large prior variance of few directions takes few iterations, which the noise alone does not tell."""
    noisy = _low_rank(1e4) + low_rank(torch.tensor(1e6).double(), torch.ones(2_500, 1).double())
    for rank, few in ((250, True), (20, False)):
        with settings.preconditioner_rank(rank):
            noisy = PartitionAddedDiagLinearOperator(noisy._linear_op, noisy._diag_tensor)
            assert (noisy.expected_iterations < 150) == few
            assert is_hard(noisy) != few


def test_partition_preconditioner_refuses_trees(small_settings):
    noisy = _covariance("forest") + _noises("constant")
    with settings.preconditioner("partition"), pytest.raises(ValueError, match="flat partitions"):
        noisy.solve(Y.unsqueeze(-1))


def test_gpytorchs_default_tolerance_does_not_stop_at_zero(covariance):
    """A relative residual of 1 is what zero has: the data would not count."""
    noisy = covariance + _noises("constant")
    exact = torch.linalg.solve(noisy.to_dense(), Y.unsqueeze(-1))
    with linear_operator.settings.max_cholesky_size(10):
        assert linear_operator.settings.cg_tolerance.value() == 1
        solution = noisy.solve(Y.unsqueeze(-1))
        form = noisy.inv_quad(Y.unsqueeze(-1))
    assert (solution - exact).norm() < 0.05 * exact.norm()
    assert abs(form - Y @ exact.squeeze(-1)) < 0.01 * form


def test_unknown_preconditioner():
    with pytest.raises(ValueError, match="expected a preconditioner among"):
        settings.preconditioner("ilu")


def test_marginal_likelihood_is_deterministic_and_reads_no_global_state(covariance, small_settings):
    def value(seed):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        result = (covariance + _noises("constant")).inv_quad_logdet(Y.unsqueeze(-1), logdet=True)
        assert torch.equal(torch.get_rng_state(), before)
        return torch.stack(result)

    assert torch.equal(value(0), value(1))
    with settings.probe_seed(1):
        other = value(0)
    assert not torch.equal(other[1], value(0)[1])


def test_samples_of_a_noisy_covariance(covariance):
    noisy = covariance + _noises("per_row")
    torch.manual_seed(0)
    samples = noisy.zero_mean_mvn_samples(8_000)
    dense = noisy.to_dense()
    assert samples.shape == (8_000, N)
    _check_samples(samples, dense)


class TestAlgebraKeepsTheClass:
    """Wherever noise is added, the result is ours: with the preconditioner, the solver and the guards."""

    dense = DenseLinearOperator(0.1 * torch.eye(N).double())

    @pytest.mark.parametrize(
        "change",
        [
            lambda k: k * 2.0,
            lambda k: k.mul(torch.tensor([[[1.0]], [[2.0]]]).double()),
            lambda k: k.detach(),
            lambda k: k.mT,
            lambda k: k + k,
            lambda k: k + 0,
            lambda k: k + TestAlgebraKeepsTheClass.dense,
            lambda k: k + torch.tensor(0.3).double().expand(N, N),
            lambda k: k + linear_operator.operators.RootLinearOperator(X),
            lambda k: k + linear_operator.operators.LowRankRootLinearOperator(X),
            lambda k: linear_operator.operators.ZeroLinearOperator(N, N) + k,
            lambda k: (k + k)[..., :200, :200],
            lambda k: (k + TestAlgebraKeepsTheClass.dense).expand(3, N, N),
            lambda k: k.to(torch.float32),
            lambda k: k.unsqueeze(0),
        ],
    )
    def test_then_noise(self, covariance, change):
        changed = change(covariance)
        assert isinstance(changed, PartitionLinearOperator | PartitionSumLinearOperator)
        assert isinstance(
            changed + ConstantDiagLinearOperator(torch.ones(1), changed.size(-1)), PartitionAddedDiagLinearOperator
        )
        assert isinstance(changed.add_jitter(1e-3), PartitionAddedDiagLinearOperator)

    @pytest.mark.parametrize("rows", [slice(None, 50), slice(0, N), slice(-3, None), torch.tensor([3, 1, 7])])
    def test_indexing_one_side_at_a_time_keeps_the_root(self, covariance, rows):
        for operator in (covariance, covariance + covariance, covariance + _noises("per_row")):
            part = operator[rows, :][:, rows]
            expected = operator.to_dense()[rows][:, rows]
            torch.testing.assert_close(part.to_dense(), expected)
            torch.manual_seed(0)
            _check_samples(part.zero_mean_mvn_samples(2_000), expected)

    def test_an_index_changed_in_place_selects_other_rows(self, covariance):
        rows, dense = torch.arange(3), covariance.to_dense()
        first = covariance[rows, :]
        rows += 100
        torch.testing.assert_close(covariance[rows, :].to_dense(), dense[rows])
        torch.testing.assert_close(first.to_dense(), dense[:3])

    @pytest.mark.parametrize("kind", ["constant", "per_row"])
    def test_a_batch_of_noises_on_one_covariance(self, covariance, kind):
        values = _noises(kind)._diagonal()[: 1 if kind == "constant" else N]
        for operator in (covariance, covariance + covariance):
            noisy = operator.add_diagonal(torch.stack([values, 3 * values]))
            expected = operator.to_dense() + torch.stack([values, 3 * values]).expand(2, N).diag_embed()
            torch.testing.assert_close(noisy.to_dense(), expected)
            torch.testing.assert_close(noisy[..., 5:9, 5:9].to_dense(), expected[..., 5:9, 5:9])
            torch.testing.assert_close(noisy[1].to_dense(), expected[1])
            torch.testing.assert_close(noisy.unsqueeze(0).to_dense(), expected.unsqueeze(0))
            torch.testing.assert_close(noisy.solve(Y.unsqueeze(-1)), torch.linalg.solve(expected, Y.unsqueeze(-1)))
            assert noisy.zero_mean_mvn_samples(3).shape == (3, 2, N)

    @pytest.mark.parametrize("size", [2, N - 1, N + 1])
    def test_a_diagonal_of_another_length_is_refused_at_once(self, covariance, size):
        for operator in (covariance, covariance + covariance):
            with pytest.raises(ValueError, match=f"shape \\({N}, {N}\\) to add, got \\({size}, {size}\\)"):
                operator.add_diagonal(torch.ones(size).double())

    def test_noise_added_twice(self, covariance):
        noisy = covariance + _noises("constant") + _noises("per_row")
        expected = covariance.to_dense() + _noises("constant").to_dense() + _noises("per_row").to_dense()
        assert isinstance(noisy, PartitionAddedDiagLinearOperator)
        torch.testing.assert_close(noisy.to_dense(), expected)

    def test_nonsense_is_refused(self, covariance):
        with pytest.raises(TypeError, match="to add"):
            covariance + "noise"


class TestGuards:
    @pytest.fixture(scope="class")
    def large(self):
        x = torch.randn(1200, 2, generator=torch.Generator().manual_seed(0))
        return FastClusterKernel(x, 10, random_state=0)(x).evaluate_kernel()

    @pytest.mark.parametrize(
        "task",
        [
            lambda k: k.add_jitter(1.0).cholesky(),
            lambda k: k.cholesky(),
            lambda k: k.eigh(),
            lambda k: k.svd(),
            lambda k: k.add_jitter(1.0).root_inv_decomposition(),
            lambda k: k.root_inv_decomposition(),
            lambda k: k.root_decomposition().root.to_dense(),
        ],
    )
    def test_dense_work_is_refused_with_the_remedy(self, large, task):
        with pytest.raises(RuntimeError, match=r"max_cholesky_size is 800.*iterative\(\)"):
            task(large)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("noise", [0.0, 1.0])
    def test_new_rows_and_low_ranks_are_added_without_roots(self, large, noise, dtype):
        covariance = large.to(dtype=dtype)
        covariance = covariance.add_jitter(noise) if noise else covariance
        dense, factor = covariance.to_dense(), torch.randn(1200, 2, dtype=dtype)
        torch.testing.assert_close(covariance.add_low_rank(factor).to_dense(), dense + factor @ factor.mT)
        covariance.root_decomposition()  # which is kept
        wider = covariance.cat_rows(factor.mT, 9 * torch.eye(2, dtype=dtype)).to_dense()
        torch.testing.assert_close(wider[:1200], torch.cat([dense, factor], 1))
        torch.testing.assert_close(wider[1200:], torch.cat([factor.mT, 9 * torch.eye(2, dtype=dtype)], 1))

    def test_unless_it_is_asked_for(self, large):
        assert large.to_dense().shape == (1200, 1200)
        with linear_operator.settings.max_cholesky_size(2000):
            product = large * large
        torch.testing.assert_close(product.to_dense(), large.to_dense() ** 2)

    def test_botorch_flags_are_named(self, large):
        with (
            linear_operator.settings.fast_computations(False, False, False),
            pytest.raises(RuntimeError, match="BoTorch"),
        ):
            large.add_jitter(1.0).solve(torch.ones(1200, 1))
        with linear_operator.settings.fast_computations(False, False, False), settings.iterative():
            large.add_jitter(1.0).solve(torch.ones(1200, 1))
