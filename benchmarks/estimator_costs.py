"""What estimators take: the default model, several targets and kernel machines, up to a million rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from gpytorch.kernels import Kernel
from sklearn.datasets import make_friedman1
from sklearn.ensemble import RandomForestRegressor
from torch import Tensor

from gpytorch_partition import FastClusterKernel, RandomForestKernel, default_kernel
from gpytorch_partition.estimators import (
    PartitionGPRegressor,
    PartitionKernelPCA,
    PartitionSpectralClustering,
    PartitionSVC,
    PartitionSVR,
)

from .clock import cpu_timed, peak_gib, seconds, timed
from .datasets import friedman, read_data, scores, split_of
from .report import Options, Row, Table, grid, measured

# Random training rows of sets. Those with two columns are the hard ones: a forest of them takes tenths of a second.
ROWS = {
    "yacht": (250,),
    "concrete": (900,),
    "satellite_temps": (1_100, 1_450, 2_500, 10_000),
    "california": (1_100, 5_000),
    "elevators": (1_100, 5_000),
    "kin40k": (2_500, 10_000),
}


def default_cost(options: Options) -> Iterator[Table]:
    """Compare `default_kernel` with ten random forests of 200 trees and ten seconds."""
    sizes = ROWS if options.data else {"diabetes": (390,), "friedman1": (1_350,)}
    sizes = options.pick(sizes, {"diabetes": (100,)})
    jobs = [{"data": name, "N": number} for name, numbers in sizes.items() for number in numbers]

    def compared(name: str, number: int) -> Row:
        split = split_of(read_data(options, name), 1, number)
        forest = seconds(lambda: RandomForestRegressor(200, random_state=0).fit(split.x, split.y))
        default = seconds(lambda: default_kernel(*split.tensors[:2], random_state=0))
        most = 10 * forest + 10
        return {"random forest (s)": forest, "default kernel (s)": default, "share of the most": default / most}

    title = "`default_kernel` beside ten random forests of 200 trees and ten seconds"
    yield from measured(options, "default_cost", title, jobs, compared)


def default_rows(options: Options) -> Iterator[Table]:
    """Measure a fit and 1,000 predictions from a thousand to a million rows, each size in a process of its own."""
    jobs = grid(N=options.pick((1_000, 10_000, 100_000, 1_000_000), (150,)))
    title = "The default model by number of rows of Friedman's function (10 columns, noise 1): CPU seconds"
    yield from measured(options, "default_rows", title, jobs, partial(options.apart, _taken))


def _taken(num_rows: int) -> Row:
    x, y = make_friedman1(num_rows, n_features=10, noise=1.0, random_state=0)
    new_x, new_y = make_friedman1(1_000, n_features=10, noise=1.0, random_state=1)
    model, fit = cpu_timed(lambda: PartitionGPRegressor(random_state=0).fit(x, y))
    row = {"fit (CPU s)": fit, "GiB at most": peak_gib()}
    moments, taken = cpu_timed(lambda: model.predict(new_x, return_std=True))
    return row | {"1,000 predictions (CPU s)": taken, "GiB with them": peak_gib(), **scores(new_y, *moments)}


def several_targets(options: Options) -> Iterator[Table]:
    """Measure fits and predictions of five targets with missing entries."""
    title = "Rows of 10 columns, 5 targets, 30 % of the entries missing, 200 trees"
    jobs = grid(rows=options.pick([1_000, 5_000, 20_000], [200]))
    yield from measured(options, "several_targets", title, jobs, partial(options.apart, _five_targets))


def _five_targets(num_rows: int) -> Row:
    random = np.random.RandomState(0)
    x = random.rand(num_rows + 1_000, 10)
    functions = np.stack([10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2, 10 * x[:, 3]], 1)
    signal = functions @ random.randn(2, 5)
    y = signal + random.randn(*signal.shape)
    y[:num_rows][random.rand(num_rows, 5) < 0.3] = np.nan
    rows = np.flatnonzero(~np.isnan(y[:num_rows]).all(1))
    model, fitting = timed(lambda: PartitionGPRegressor("forest", random_state=0).fit(x[rows], y[rows]))
    moments, predicting = timed(lambda: model.predict(x[num_rows:], return_std=True))
    return {"fit, s": fitting, "predictions, s": predicting, **scores(y[num_rows:], *moments), "peak GiB": peak_gib()}


def _flat_forest(x: Tensor, y: Any) -> Kernel:
    return RandomForestKernel(x, y, 50, "sampled", random_state=0)


def _clusters(x: Tensor, y: Any) -> Kernel:
    return FastClusterKernel(x, 100, random_state=0)


MACHINES: dict[str, Callable[[], Any]] = {
    "PartitionKernelPCA(2), 100 fast clusterings": lambda: PartitionKernelPCA(2, _clusters, random_state=0),
    "PartitionSpectralClustering(4), the same": lambda: PartitionSpectralClustering(4, _clusters, random_state=0),
    "PartitionSVC, 50 trees cut at random heights": lambda: PartitionSVC(kernel=_flat_forest, random_state=0),
    "PartitionSVR, the same trees": lambda: PartitionSVR(kernel=_flat_forest, random_state=0),
}


def machines(options: Options) -> Iterator[Table]:
    """Measure fits of kernel machines."""
    jobs = grid(machine=MACHINES, N=options.pick([10_000, 100_000, 1_000_000], [300]))
    title = "Kernel machines on Friedman's function (10 columns): fit, labels included"
    yield from measured(options, "machines", title, jobs, partial(options.apart, _fitted))


def _fitted(name: str, num_rows: int) -> Row:
    x, y = (values.double().numpy() for values in friedman(num_rows))
    return {"fit, s": seconds(lambda: MACHINES[name]().fit(x, y > 0 if "SVC" in name else y)), "peak GiB": peak_gib()}
