from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gpytorch_partition.clusters.cluster_index import BoundedClusterIndex, SeenClusterIndex, code_dtype

LABELS = st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.sampled_from([-1, 0, 7])), min_size=1, max_size=20)


@settings(derandomize=True, deadline=None, max_examples=50)
@given(LABELS, LABELS)
def test_codes_are_equal_exactly_when_seen_labels_are(seen, new):
    seen, new = torch.tensor(seen), torch.tensor(new)
    index = SeenClusterIndex(seen)
    seen_codes, new_codes = index.codes(seen), index.codes(new)
    assert torch.equal(seen_codes[:, None] == seen_codes[None], seen[:, None] == seen[None])
    assert torch.equal(new_codes[:, None] == seen_codes[None], new[:, None] == seen[None])
    assert int(max(seen_codes.max(), new_codes.max())) < index.num_clusters


def test_codes_of_a_partition_lie_in_a_range_of_their_own():
    labels = torch.randint(-50, 50, (40, 3), generator=torch.Generator().manual_seed(0))
    codes = SeenClusterIndex(labels).codes(torch.cat([labels, labels + 1000]))
    for left, right in zip(codes.unbind(-1), codes.unbind(-1)[1:]):
        assert left.max() < right.min()


def test_bounded_codes_are_offsets():
    index = BoundedClusterIndex(torch.tensor([3, 1, 4]), num_rows=5)
    assert index.num_clusters == 8
    assert index.codes(torch.tensor([[2, 0, 3]])).tolist() == [[2, 3, 7]]


def test_codes_grow_to_64_bits_only_when_they_must():
    assert code_dtype(2**31 - 1, 10) == torch.int32
    assert code_dtype(2**31, 10) == torch.int64
    assert code_dtype(10, 2**31) == torch.int64
