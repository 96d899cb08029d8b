"""What partitions are worth as an ensemble: strength, correlation, standard errors, and their cost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from gpytorch_partition import FastClusterKernel, MondrianKernel, RandomForestKernel

from .classification_sets import classification
from .measure import in_own_process, peak_gib, timed
from .problems import friedman
from .report import Options, Row, Table

KERNELS = {
    "forest": lambda x, y, m: RandomForestKernel(x, y.double(), m, random_state=0),
    "forest leaves": lambda x, y, m: RandomForestKernel(x, y.double(), m, "leaf", random_state=0),
    "fast cluster": lambda x, y, m: FastClusterKernel(x, m, random_state=0),
    "Mondrian": lambda x, y, m: MondrianKernel(x, m, random_state=0),
}


def diagnosis(options: Options) -> Iterator[Table]:
    """Kernels on spambase, judged by their own rows and by new ones; seconds for many rows."""
    yield Table("diagnosis", "Spam: partitions as an ensemble, by their own rows and new ones", list(_judged(options)))
    number = options.pick(1_000_000, 50_000, 2_000)
    title = f"kernel.diagnose of {number:,} x 10 rows, 100 partitions"
    yield Table(
        "diagnosis_speed", title, [in_own_process(_timed, name, number) for name in ("fast cluster", "Mondrian")]
    )


def _judged(options: Options) -> Iterator[Row]:
    X, y, test_X, test_y = classification(options, "spambase", options.pick(None, 2_000, 300))
    center, scale = X.mean(0), X.std(0) + 1e-12
    x, new = ((torch.from_numpy(values) - center) / scale for values in (X, test_X))
    for name, make in KERNELS.items():
        for num_partitions in options.pick((25, 100, 400), (25, 100), (5,)):
            kernel: Any = make(x, torch.from_numpy(y), num_partitions)
            for points in (None, (new, test_y)):
                yield {"kernel": name, "partitions": num_partitions, **_row(kernel, x, y, points)}


def _row(kernel: Any, x: Tensor, y: Any, points: Any) -> Row:
    found = kernel.diagnose(x, y, points=points)
    return {
        "judged by": "new rows" if found.are_new else "its rows, without their own",
        "strength": found.strength,
        "correlation": found.correlation,
        "error of one (%)": 100 * found.member_error,
        "of all (%)": 100 * found.ensemble_error,
        "standard error, mean": found.mean_standard_error,
        "largest": found.max_standard_error,
        "partitions for .01": found.num_partitions_for(0.01),
    }


def _timed(name: str, num_rows: int) -> Row:
    x, y = friedman(num_rows)
    classes = (y > y.median()).long()
    lifetime = {"lifetime": 0.1} if name == "Mondrian" else {}
    kernel: Any = {"Mondrian": MondrianKernel, "fast cluster": FastClusterKernel}[name](
        x, 100, random_state=0, **lifetime
    )
    _, labels = timed(lambda: kernel(x).evaluate_kernel())
    _, first = timed(lambda: kernel.diagnose(x, y))
    _, second = timed(lambda: kernel.diagnose(x, classes))
    return {
        "kernel": name,
        "labels (s)": labels,
        "regression (s)": first,
        "classes (s)": second,
        "peak GiB": peak_gib(),
    }
