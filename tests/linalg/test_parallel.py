"""Pieces of work on several threads."""

from __future__ import annotations

import pytest
import torch

from gpytorch_partition.linalg.parallel import for_each


@pytest.fixture(params=[1, 3])
def num_threads(request, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: request.param)


@pytest.mark.usefixtures("num_threads")
def test_every_piece_is_worked_on_once():
    counts = torch.zeros(50)
    for_each(lambda i: counts[i].add_(1), range(50))
    assert torch.equal(counts, torch.ones(50))


@pytest.mark.usefixtures("num_threads")
def test_errors_reach_the_caller():
    with pytest.raises(ZeroDivisionError):
        for_each(lambda i: 1 // i, [2, 0])
