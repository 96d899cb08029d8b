"""Quadratures against dense functions of matrices, where Krylov spaces are ordinary and where they end."""

from __future__ import annotations

import pytest
import torch

from gpytorch_partition.linalg.lanczos import LanczosRun

DTYPES = [(torch.float32, 3e-5), (torch.float64, 1e-9)]

FUNCTIONS = {
    "inverse": lambda x: 1 / (x + 0.3),
    "logarithm": lambda x: torch.log(x + 0.3),
    "root": lambda x: x.clamp_min(0).sqrt(),
}


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def normal(*shape, seed=1):
    return torch.randn(*shape, generator=seeded(seed), dtype=torch.float64)


def spectrum(values):
    """A dense matrix with these eigenvalues and random eigenvectors."""
    vectors = torch.linalg.qr(normal(len(values), len(values), seed=2)).Q
    return (vectors * values) @ vectors.mT


def ordinary(size=90):
    return spectrum(torch.linspace(0.5, 6, size, dtype=torch.float64))


def leading(size=400):
    """Condition 1e6, with one eigenvalue far above the others."""
    values = torch.logspace(-3, 0, size, dtype=torch.float64)
    values[-1] = 1e3
    return spectrum(values)


def run_of(matrix, block, probes=None, steps=30, dtype=torch.float64, seed=0):
    matrix = matrix.to(dtype)
    probes = normal(len(matrix), 1, seed=3) if probes is None else probes
    run = LanczosRun(matrix.matmul, block.to(dtype), probes.to(dtype), seeded(seed))
    run.extend(steps)
    return run


def dense_forms(function, matrix, columns):
    """V^T f(K) V from all eigenvectors."""
    values, vectors = torch.linalg.eigh(matrix)
    coordinates = vectors.mT @ columns
    return coordinates.mT @ (function(values).unsqueeze(-1) * coordinates)


def block_forms(function, run):
    nodes, coefficients = run.block_quadrature()
    return coefficients.mT @ (function(nodes).unsqueeze(-1) * coefficients)


def probe_forms(function, run):
    nodes, weights = run.probe_quadratures()
    return run.probe_norms.double().square() * (weights * function(nodes)).sum(-1)


def assert_forms(run, matrix, block, tolerance, functions=FUNCTIONS):
    """Every entry of V^T f(K) V, relative to the lengths of the two columns that it belongs to."""
    lengths = block.norm(dim=0).clamp_min(1e-100)
    scale = lengths * lengths.unsqueeze(-1)
    for name in functions:
        error = block_forms(FUNCTIONS[name], run) - dense_forms(FUNCTIONS[name], matrix, block)
        assert (error / scale).abs().max() < tolerance, name


def assert_orthonormal(run, tolerance):
    basis = run.basis.double()
    assert (basis @ basis.mT - torch.eye(len(basis))).abs().max() < tolerance


@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
@pytest.mark.parametrize("width", [1, 2, 5])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_blocks_quadrature_is_dense_algebra(name, width, dtype, tolerance):
    matrix, block = ordinary(), normal(90, width)
    run = run_of(matrix, block, dtype=dtype, steps=25)
    assert_forms(run, matrix, block, tolerance, [name])


@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_probes_quadrature_is_dense_algebra(name, dtype, tolerance):
    matrix, probes = ordinary(), normal(90, 7) * torch.logspace(-2, 2, 7)
    run = run_of(matrix, normal(90, 2, seed=4), probes, dtype=dtype)
    expected = dense_forms(FUNCTIONS[name], matrix, probes).diagonal()
    torch.testing.assert_close(probe_forms(FUNCTIONS[name], run), expected, rtol=tolerance, atol=0)


def test_the_weights_of_a_probe_sum_to_one_and_the_coefficients_to_the_gram_matrix():
    block = normal(90, 3)
    run = run_of(ordinary(), block, steps=4)
    nodes, coefficients = run.block_quadrature()
    assert nodes.shape == (15,)
    assert (nodes == 0).sum() == 3
    torch.testing.assert_close(coefficients.mT @ coefficients, block.mT @ block)
    nodes, weights = run.probe_quadratures()
    assert nodes.shape == weights.shape == (1, 4)
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, dtype=torch.float64))


def test_few_steps_integrate_polynomials_exactly():
    """Gauss-Radau: k steps are exact for degree 2 k, and not for the next one."""
    matrix, block = ordinary(), normal(90, 2)
    run = run_of(matrix, block, steps=3)
    for degree, is_exact in ((5, True), (6, True), (7, False)):
        expected = dense_forms(lambda x, d=degree: x**d, matrix, block)
        error = (block_forms(lambda x, d=degree: x**d, run) - expected).abs().max() / expected.abs().max()
        assert (error < 1e-12) == is_exact


def test_block_quadratures_bound_inverse_forms_from_above():
    """However few the steps: what is not resolved yet makes no likelihood too large."""
    matrix, block = ordinary(), normal(90, 2)
    for steps in (2, 4, 8):
        run = run_of(matrix, block, steps=steps)
        for shift in (1e-8, 1e-3, 1.0):
            exact = dense_forms(lambda x, by=shift: 1 / (x + by), matrix, block).diagonal()
            assert (block_forms(lambda x, by=shift: 1 / (x + by), run).diagonal() >= exact * (1 - 1e-9)).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_does_not_matter_how_the_steps_are_cut_up(dtype):
    matrix, block, probes = ordinary(), normal(90, 2), normal(90, 3, seed=4)
    at_once = run_of(matrix, block, probes, steps=25, dtype=dtype)
    bit_by_bit = run_of(matrix, block, probes, steps=0, dtype=dtype)
    for _ in range(5):
        bit_by_bit.extend(5)
        bit_by_bit.block_quadrature(), bit_by_bit.probe_quadratures()
    assert at_once.num_steps == bit_by_bit.num_steps == 25
    for one, other in zip(
        (*at_once.block_quadrature(), *at_once.probe_quadratures(), at_once.basis),
        (*bit_by_bit.block_quadrature(), *bit_by_bit.probe_quadratures(), bit_by_bit.basis),
    ):
        assert torch.equal(one, other)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-3), (torch.float64, 1e-9)])
def test_a_large_leading_eigenvalue_does_not_come_back(dtype, tolerance):
    matrix, block = leading(), normal(400, 2)
    run = run_of(matrix, block, steps=120, dtype=dtype)
    nodes, _ = run.block_quadrature()
    assert int((nodes > 2).sum()) == 1
    assert_orthonormal(run, 100 * torch.finfo(dtype).eps)
    assert_forms(run, matrix, block, tolerance)


def test_copies_of_a_large_eigenvalue_do_not_harm_the_probes():
    matrix, probes = leading(), normal(400, 3, seed=5)
    run = run_of(matrix, normal(400, 1), probes, steps=120)
    nodes, _ = run.probe_quadratures()
    assert int((nodes > 2).sum(-1).min()) > 1
    expected = dense_forms(FUNCTIONS["logarithm"], matrix, probes).diagonal()
    torch.testing.assert_close(probe_forms(FUNCTIONS["logarithm"], run), expected, rtol=1e-9, atol=0)


@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
@pytest.mark.parametrize("case", ["rank three", "identity", "zero"])
def test_krylov_spaces_that_are_soon_exhausted(case, dtype, tolerance):
    values = torch.zeros(60, dtype=torch.float64)
    values[:3] = torch.tensor([9.0, 4.0, 1.0])
    matrix = {"rank three": spectrum(values), "identity": torch.eye(60).double(), "zero": 0 * spectrum(values)}[case]
    block, probes = normal(60, 2), normal(60, 2, seed=4)
    run = run_of(matrix, block, probes, dtype=dtype, steps=20)
    # The root is infinitely steep at 0, so rounding in a zero eigenvalue is not small there.
    assert_forms(run, matrix, block, tolerance, ["inverse", "logarithm"])
    assert_orthonormal(run, 100 * torch.finfo(dtype).eps)
    expected = dense_forms(FUNCTIONS["logarithm"], matrix, probes).diagonal()
    torch.testing.assert_close(probe_forms(FUNCTIONS["logarithm"], run), expected, rtol=3 * tolerance, atol=0)


def dependent_blocks():
    one, y = torch.ones(90, 1, dtype=torch.float64), normal(90, 1)
    return {
        "constant and ones": [3 * one, one],
        "zeros and ones": [0 * one, one],
        "ones and zeros": [one, 0 * one],
        "only zeros": [0 * one, 0 * one],
        "twice the same": [y, y, -2 * y, one],
        "small and ones": [1e-9 * y, one],
        "large and ones": [1e9 * y, one],
        "small constant and ones": [1e-9 * one, one],
        "small, then its multiple": [1e-9 * y, y],
        "first row zero": [one - torch.eye(90, 1).double()] * 2,
    }


@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
@pytest.mark.parametrize("case", dependent_blocks())
def test_dependent_columns_and_columns_of_very_different_lengths(case, dtype, tolerance):
    matrix, block = ordinary(), torch.cat(dependent_blocks()[case], -1)
    run = LanczosRun(matrix.to(dtype).matmul, block, normal(90, 1, seed=3).to(dtype), seeded())
    run.extend(30)
    assert_forms(run, matrix, block, tolerance)
    assert_orthonormal(run, 100 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_a_nearly_constant_column_has_beyond_the_constant_is_kept(dtype):
    matrix, one, rest = ordinary(), torch.ones(90, 1, dtype=torch.float64), normal(90, 1)
    block = torch.cat([1e4 * one + rest, one], -1)
    run = LanczosRun(matrix.to(dtype).matmul, block, normal(90, 1, seed=3).to(dtype), seeded())
    run.extend(25)
    nodes, coefficients = run.block_quadrature()
    deviation = coefficients[:, 0] - 1e4 * coefficients[:, 1]
    expected = dense_forms(FUNCTIONS["inverse"], matrix, rest).item()
    assert (deviation**2 * FUNCTIONS["inverse"](nodes)).sum().item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_columns_that_become_parallel_in_a_product_leave_the_basis_orthonormal(dtype):
    """K with one huge eigenvalue takes all columns nearly to the same line."""
    values = torch.linspace(0.5, 1, 200, dtype=torch.float64)
    values[-1] = 1e5
    matrix, block = spectrum(values), normal(200, 4)
    run = run_of(matrix, block, steps=20, dtype=dtype)
    assert_orthonormal(run, 100 * torch.finfo(dtype).eps)
    assert_forms(run, matrix, block, 0.02 if dtype == torch.float32 else 1e-9)


@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
@pytest.mark.parametrize("factor", [1e-9, 1e9])
def test_the_unit_of_the_matrix_does_not_matter(factor, dtype, tolerance):
    matrix, block = ordinary(), normal(90, 2)
    run = run_of(factor * matrix, block, steps=25, dtype=dtype)
    for function in FUNCTIONS.values():
        expected = dense_forms(function, matrix, block)
        found = block_forms(lambda x, f=function: f(x / factor), run)
        torch.testing.assert_close(found, expected, rtol=0, atol=tolerance * block.square().sum().item())
        expected = dense_forms(function, matrix, normal(90, 1, seed=3)).diagonal()
        found = probe_forms(lambda x, f=function: f(x / factor), run)
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=0)


@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 8, 31])
@pytest.mark.parametrize("width", [1, 2, 3])
def test_fewer_rows_than_steps_are_exact(size, width, dtype, tolerance):
    matrix = spectrum(torch.linspace(0.5, 6, size, dtype=torch.float64))
    block, probes = normal(size, width), normal(size, 2, seed=4)
    run = run_of(matrix, block, probes, dtype=dtype, steps=40)
    assert run.num_steps == run.basis.shape[0] == size
    assert_forms(run, matrix, block, tolerance)
    assert_orthonormal(run, 100 * torch.finfo(dtype).eps)
    expected = dense_forms(FUNCTIONS["logarithm"], matrix, probes).diagonal()
    torch.testing.assert_close(probe_forms(FUNCTIONS["logarithm"], run), expected, rtol=tolerance, atol=tolerance)


def test_one_seed_gives_the_same_bits_and_global_random_numbers_play_no_part():
    # Exhausted at once, so that the basis is made of random directions.
    matrix, block = torch.eye(60, dtype=torch.float64), torch.ones(60, 2, dtype=torch.float64)
    before = torch.get_rng_state()
    first = run_of(matrix, block, steps=10).basis
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(5)
    assert torch.equal(first, run_of(matrix, block, steps=10).basis)
    assert not torch.equal(first, run_of(matrix, block, steps=10, seed=1).basis)


def test_a_step_is_one_product():
    matrix, widths = ordinary(), []

    def matmul(columns):
        widths.append(columns.shape[1])
        return matrix @ columns

    run = LanczosRun(matmul, normal(90, 2), normal(90, 5, seed=3), seeded())
    run.extend(6)
    run.extend(0)
    assert widths == [7] * 6
