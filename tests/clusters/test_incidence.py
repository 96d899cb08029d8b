"""Products with the one-hot matrix, codes of labels, and values that are kept with rows."""

from __future__ import annotations

import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gpytorch_partition.clusters.cache import Cache, Key
from gpytorch_partition.clusters.cluster_index import BoundedClusterIndex, SeenClusterIndex, code_dtype
from gpytorch_partition.clusters.incidence import Incidence
from tests.operators.operator_zoo import one_hot, rows

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


def _random(shape, counts):
    return rows(0, shape, counts, singletons=False)


def _check(incidence, columns, dtype, batch=()):
    generator = torch.Generator().manual_seed(1)
    dense = one_hot(incidence).to(dtype)
    table = torch.randn(*batch, incidence.num_clusters, columns, generator=generator, dtype=dtype)
    values = torch.randn(*batch, incidence.num_rows, columns, generator=generator, dtype=dtype)
    torch.testing.assert_close(incidence.row_values(table), dense @ table, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(incidence.cluster_sums(values), dense.mT @ values, rtol=1e-5, atol=1e-3)


@DTYPES
@pytest.mark.parametrize("columns", [1, 3, 17])
def test_products_are_those_of_the_one_hot_matrix(dtype, columns):
    _check(_random((50,), (1, 4, 60)), columns, dtype)


@DTYPES
def test_clusters_of_several_blocks(dtype):
    """More than 1,024 rows in a cluster: sums of sums, no row lost at a seam and none counted twice."""
    incidence = _random((5000,), (1, 2, 3000))
    _check(incidence, 2, dtype)
    sizes = incidence.cluster_sums(torch.ones(5000, 1, dtype=dtype)).squeeze(-1)
    assert torch.equal(sizes, torch.bincount(incidence.codes.flatten().long(), minlength=3003).to(dtype))


def test_float32_sums_of_many_rows_keep_their_digits():
    incidence = Incidence(torch.zeros(2_000_000, 1, dtype=torch.int32), num_clusters=1)
    values = torch.rand(2_000_000, 1, generator=torch.Generator().manual_seed(0))
    exact = values.double().sum()
    assert abs(float(incidence.cluster_sums(values)) - exact) / exact < 1e-6


@DTYPES
@pytest.mark.parametrize(
    ("own", "batch"),
    [((), (2,)), ((), (3, 2)), ((2,), (2,)), ((2,), (3, 2)), ((2,), ()), ((1,), (4,)), ((3, 1), (3, 2)), ((3, 2), ())],
)
def test_batches(dtype, own, batch):
    _check(_random((*own, 7), (2, 5)), 3, dtype, batch)


@DTYPES
@pytest.mark.parametrize("rows", [slice(None, None, 3), slice(2, 8, 2), slice(0, 0), torch.tensor([7, 1, 1])])
def test_products_of_selected_rows(dtype, rows):
    incidence = _random((9,), (2, 5))
    picked = incidence.select(rows)
    assert torch.equal(picked.codes, incidence.codes[rows])
    _check(picked, 3, dtype)


def test_pickle_keeps_codes_only():
    incidence = _random((9,), (2, 5))
    incidence.cluster_sums(torch.ones(9, 1))
    anything: Key[torch.Tensor] = Key("anything")
    incidence.cache.get(anything, torch.nn.Linear(1, 1), lambda: torch.ones(3))
    copy = pickle.loads(pickle.dumps(incidence))
    assert torch.equal(copy.codes, incidence.codes)
    assert copy.cache.peek(anything) is None
    assert incidence.cache.peek(anything) is not None
    assert "members" not in copy.__dict__


@pytest.mark.parametrize("batch", [(), (2,)])
def test_products_have_gradients_which_are_those_of_the_dense_matrix(batch):
    generator, Z = torch.Generator().manual_seed(0), _random((*batch, 6), (3, 2))
    table = torch.randn(*batch, 5, 2, dtype=torch.float64, generator=generator, requires_grad=True)
    values = torch.randn(*batch, 6, 2, dtype=torch.float64, generator=generator, requires_grad=True)
    assert torch.autograd.gradcheck(Z.row_values, table)
    assert torch.autograd.gradcheck(Z.cluster_sums, values)
    assert torch.autograd.gradgradcheck(lambda table: Z.row_values(table**2), table)


LABELS = st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.sampled_from([-1, 0, 7])), min_size=1, max_size=20)


@settings(derandomize=True, deadline=None, max_examples=50)
@given(LABELS, LABELS)
def test_codes_are_equal_exactly_when_seen_labels_are(seen, new):
    seen, new = torch.tensor(seen), torch.tensor(new)
    index = SeenClusterIndex.of(seen)
    seen_codes, new_codes = index.codes(seen), index.codes(new)
    assert torch.equal(seen_codes[:, None] == seen_codes[None], seen[:, None] == seen[None])
    assert torch.equal(new_codes[:, None] == seen_codes[None], new[:, None] == seen[None])
    assert int(max(seen_codes.max(), new_codes.max())) < index.num_clusters


def test_bounded_codes_are_offsets():
    index = BoundedClusterIndex(torch.tensor([3, 1, 4]), num_rows=5)
    assert index.num_clusters == 8
    assert index.codes(torch.tensor([[2, 0, 3]])).tolist() == [[2, 3, 7]]


def test_codes_grow_to_64_bits_only_when_they_must():
    assert code_dtype(2**31 - 1, 10) == torch.int32
    assert code_dtype(2**31, 10) == torch.int64
    assert code_dtype(10, 2**31) == torch.int64


def _counting(values):
    return lambda: values.append(1) or len(values)


def test_a_value_is_computed_anew_when_a_tensor_or_an_option_differs():
    cache, key, source, calls = Cache(), Key("number"), torch.nn.Linear(2, 1), []
    first = cache.get(key, source, _counting(calls), "option")
    assert cache.get(key, source, _counting(calls), "option") == first == 1
    assert cache.get(key, source, _counting(calls), "another") == 2
    with torch.no_grad():
        source.weight[0, 0] += 1  # in place: a copy was compared
    assert cache.get(key, source, _counting(calls), "another") == 3
    assert cache.get(key, source.double(), _counting(calls), "another") == 4


def test_keys_of_the_same_name_are_different_keys():
    cache, source = Cache(), torch.nn.Linear(2, 1)
    first, second = Key("number"), Key("number")
    cache.get(first, source, lambda: 1)
    assert cache.peek(first) == 1
    assert cache.peek(second) is None


def test_nothing_kept_has_a_graph():
    cache, key, source = Cache(), Key("square"), torch.nn.Linear(2, 1)
    assert not cache.get(key, source, lambda: source.weight**2).requires_grad
