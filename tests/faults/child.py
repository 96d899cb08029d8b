"""What child processes do: a module that a spawned one can import, which those of tests are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from gpytorch_partition.estimators import PartitionGPRegressor, PartitionSVC
from tests.faults.estimators_zoo import classes, numbers


def asked(model: Any, kernel: Any, X: np.ndarray) -> list[np.ndarray]:
    x = torch.from_numpy(X)
    refitted = PartitionGPRegressor("mondrian", 5, random_state=0).fit(X, numbers(X))
    svc = PartitionSVC(num_partitions=5, random_state=0).fit(X, classes(X))
    return [
        *model.predict(X, return_std=True),
        model.sample_y(X[:4], 3),
        (kernel(x) @ x).detach().numpy(),
        refitted.predict(X),
        svc.decision_function(X),
    ]


def answer(connection: Any, *args: Any) -> None:
    torch.set_num_threads(1)  # as in the parent: sums of several threads are rounded otherwise
    connection.send(asked(*args))
