"""A value is kept while its source and options are the same, and only the last one of a key."""

from __future__ import annotations

import torch

from gpytorch_partition.clusters.cache import Cache, Key


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
    cache.forget()
    assert cache.peek(first) is None


def test_nothing_kept_has_a_graph():
    cache, key, source = Cache(), Key("square"), torch.nn.Linear(2, 1)
    assert not cache.get(key, source, lambda: source.weight**2).requires_grad
