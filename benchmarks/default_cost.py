"""What the default kernel costs, beside ten random forests of 200 trees and ten seconds."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from sklearn.ensemble import RandomForestRegressor

from gpytorch_partition import default_kernel

from .measure import seconds
from .predictors import Split
from .regression_sets import read_data, split_of
from .report import Bar, Options, Row, Table

# Random training rows of sets. Those with two columns are the hard ones: a forest of them takes tenths of a second.
ROWS = {
    "yacht": (250,),
    "concrete": (900,),
    "satellite_temps": (1_100, 1_450, 2_500, 10_000),
    "california": (1_100, 5_000),
    "elevators": (1_100, 5_000),
    "kin40k": (2_500, 10_000),
}
NUM_FORESTS, NUM_TREES, SECONDS = 10, 200, 10.0


def default_cost(options: Options) -> Iterator[Table]:
    """Seconds of `default_kernel`, and whether they are within the bar."""
    title = f"`default_kernel` beside {NUM_FORESTS} random forests of {NUM_TREES} trees and {SECONDS:.0f} seconds"
    rows: list[Row] = []
    for name, num_rows in _jobs(options):
        rows.append({"data": name} | _measured(split_of(read_data(options, name), 1, num_rows)))
        yield Table("default_cost", title, rows, complete=False)
    yield Table("default_cost", title, rows)


def _jobs(options: Options) -> list[tuple[str, int]]:
    if options.data is None:
        return options.pick([("diabetes", 390), ("friedman1", 1_350)], [("diabetes", 390)], [("diabetes", 100)])
    jobs = [(name, num_rows) for name, sizes in ROWS.items() for num_rows in sizes]
    return options.pick(jobs, jobs[:2], jobs[:1])


def _measured(split: Split) -> Row:
    x, y = torch.from_numpy(split.x), torch.from_numpy(split.y)
    forest = seconds(lambda: RandomForestRegressor(NUM_TREES, random_state=0).fit(split.x, split.y))
    default = seconds(lambda: default_kernel(x, y, random_state=0))
    most = NUM_FORESTS * forest + SECONDS
    return {
        "N": len(x),
        "D": x.shape[1],
        "random forest (s)": forest,
        "default kernel (s)": default,
        "at most (s)": most,
        "bar": Bar("seconds of the default kernel, as a share of the most", default / most, at_most=1.0),
    }
