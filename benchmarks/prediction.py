"""The cost of a predictive mean, once the first prediction has computed the weights of the clusters."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

import torch

from gpytorch_partition import settings
from gpytorch_partition.models import PartitionGP

from .measure import seconds
from .problems import fast_cluster_model, friedman
from .report import Options, Row, Table


def prediction(options: Options) -> Iterator[Table]:
    """
    Microseconds per test point.

    A stock ExactGP passes the training rows along with every test set, which costs O(N D) to copy and compare. The
    same predictions of a model with few training rows do not have that cost: the difference is its share.
    """
    num_rows = options.pick(100_000, 10_000, 2_000)
    model, small = _trained(num_rows), _trained(1_000)
    rows = [
        _measured(model, small, num_points, options.pick(9, 5, 1))
        for num_points in options.pick([1, 1_000, 100_000], [1, 1_000, 10_000], [1, 100])
    ]
    title = f"Predictive means after the first, FastClusterKernel (m = 100, h = 8), N = {num_rows:,}, 10 columns"
    yield Table("prediction", title, rows)


def _trained(num_rows: int) -> PartitionGP:
    model = fast_cluster_model(*friedman(num_rows)).eval()
    _predict(model, 1)
    return model


def _measured(model: PartitionGP, small: PartitionGP, num_points: int, repetitions: int) -> Row:
    times, small_times = zip(*[(_predict(model, num_points), _predict(small, num_points)) for _ in range(repetitions)])
    time, least = median(times), median(small_times)
    return {
        "test points": num_points,
        "milliseconds": 1000 * time,
        "microseconds per point": 1e6 * time / num_points,
        "the same with 1,000 training rows": 1e6 * least / num_points,
        "share of the training rows' O(N D)": max(0.0, 1 - least / time),
    }


def _predict(model: PartitionGP, num_points: int) -> float:
    """Seconds for the means of points that were never seen before."""
    points = torch.randn(num_points, model.train_inputs[0].shape[-1])
    with torch.no_grad(), settings.iterative():
        return seconds(lambda: model(points).mean)
