"""What the default model takes: seconds of its kernel beside forests, and of a fit up to a million rows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from sklearn.datasets import make_friedman1
from sklearn.ensemble import RandomForestRegressor

from gpytorch_partition import default_kernel
from gpytorch_partition.estimators import PartitionGPRegressor

from .clock import cpu_timed, peak_gib, seconds
from .datasets import read_data, scores, split_of
from .report import Options, Row, Table, measured

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
    jobs = [{"N": size} for size in options.pick((1_000, 10_000, 100_000, 1_000_000), (150,))]
    title = "The default model by number of rows of Friedman's function (10 columns, noise 1): CPU seconds"
    yield from measured(options, "default_rows", title, jobs, partial(options.apart, _taken))


def _taken(num_rows: int) -> Row:
    x, y = make_friedman1(num_rows, n_features=10, noise=1.0, random_state=0)
    new_x, new_y = make_friedman1(1_000, n_features=10, noise=1.0, random_state=1)
    model, fit = cpu_timed(lambda: PartitionGPRegressor(random_state=0).fit(x, y))
    row = {"fit (CPU s)": fit, "GiB at most": peak_gib()}
    moments, taken = cpu_timed(lambda: model.predict(new_x, return_std=True))
    return row | {"1,000 predictions (CPU s)": taken, "GiB with them": peak_gib(), **scores(new_y, *moments)}
