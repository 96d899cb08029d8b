"""Small files of each kind that the package writes, how they are read, and what is damaged in them."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from gpytorch_partition import FastClusterKernel, MondrianKernel, RandomForestKernel
from gpytorch_partition.command_line.errors import CommandError
from gpytorch_partition.command_line.model_file import FORMAT, load_model
from gpytorch_partition.estimators import PartitionGPRegressor, saved_regressor
from gpytorch_partition.files import FileFormat
from gpytorch_partition.models import FeatureSpaceGP
from gpytorch_partition.models import feature_space_gp as counted
from gpytorch_partition.tables import TableEncoder
from tests.stored_models.files import read

Content = dict[str, Any]


class Kind(NamedTuple):
    """A kind of files: what is in one, and what it predicts once it is read."""

    format: FileFormat
    content: Content
    predicted: Callable[[Path], np.ndarray]
    errors: tuple[type[Exception], ...]  # that damaged ones may give


def _model_file(state: Content) -> Content:
    is_table = state.get("encoder") is not None
    table = TABLE if is_table else {f"x{number}": Y for number in range(state["train_x"].shape[1])}
    reader = TableEncoder().fit({**table, "y": Y}).to_state()
    return {"columns": list(table), "reader": reader, "target": "y", "id": None, "regressor": state}


def _predicted(path: Path) -> np.ndarray:
    regressor = load_model(path).regressor
    is_table = regressor.encoder_ is not None
    rows = {name: values[:8] for name, values in TABLE.items()} if is_table else NEW[:, : regressor.n_features_in_]
    mean, deviation = regressor.predict(rows, return_std=True)
    return np.concatenate([mean, deviation])


def _predicted_in_python(path: Path) -> np.ndarray:
    return np.concatenate(PartitionGPRegressor.load(path).predict(NEW, return_std=True))


def _stored(name: str) -> Content:
    return read(name)["state"]


def _fitted(kernel: Any, **options: Any) -> Content:
    return PartitionGPRegressor(kernel, 4, random_state=0, **options).fit(X, Y).to_state()


def _of_counts(kernel: Any, empty: Any) -> Kind:
    model = FeatureSpaceGP(kernel)
    model.add_rows(torch.from_numpy(X), torch.from_numpy(Y))
    model.fit()
    content = {"kernel": dict(kernel.state_dict()), "model": model.state_dict(), "max_clusters": 1000}
    new = torch.from_numpy(NEW)

    def predicted(path: Path) -> np.ndarray:
        return torch.cat(FeatureSpaceGP.load(path, deepcopy(empty)).predict(new)).detach().numpy()

    return Kind(counted._FORMAT, content, predicted, (ValueError, RuntimeError))


RANDOM = np.random.RandomState(0)
X, NEW = RANDOM.randn(30, 4), RANDOM.randn(8, 4)
Y = X[:, 0] + 0.3 * RANDOM.randn(30)
SEVERAL = np.stack([Y, -Y + 0.2 * RANDOM.randn(30)], 1)


TABLE = {
    "size": X[:, 0],
    "color": np.array(["red", "green", "blue"] * 10, dtype=object),
    "town": np.array([f"t{number % 13}" for number in range(30)], dtype=object),
    "day": np.datetime64("2020-01-01") + np.arange(30),
}


def _states() -> dict[str, Callable[[], Content]]:
    return {
        "mondrian": lambda: _fitted("mondrian"),
        "fast_cluster": lambda: _fitted("fast_cluster"),
        "forest": lambda: _fitted("forest"),
        "several": lambda: PartitionGPRegressor("forest", 4, random_state=0).fit(X, SEVERAL).to_state(),
        "weighted": lambda: PartitionGPRegressor("forest", 4, random_state=0).fit(X, Y, 1 + abs(X[:, 1])).to_state(),
        "auto": lambda: _stored("regressor_auto_uneven"),
        "table": lambda: PartitionGPRegressor("fast_cluster", 4, random_state=0).fit(TABLE, Y).to_state(),
        "missing": lambda: _stored("regressor_auto_missing"),
        "rough": lambda: _stored("regressor_auto_even"),
    }


MODELS = tuple(_states())
IN_PYTHON = "saved in Python"
COUNTS = (IN_PYTHON, "counted_forest", "counted_mondrian", "counted_fast_cluster")


def kind(name: str) -> Kind:
    """A kind of files by name."""
    if name in MODELS:
        return Kind(FORMAT, _model_file(_states()[name]()), _predicted, (CommandError,))
    if name == IN_PYTHON:
        content = {"regressor": _fitted("mondrian", dtype=np.str_("float32"))}
        return Kind(saved_regressor._FORMAT, content, _predicted_in_python, (ValueError, RuntimeError))
    rows, targets = torch.from_numpy(X), torch.from_numpy(Y)
    kernels: dict[str, Callable[[], Any]] = {
        "counted_forest": lambda: RandomForestKernel(rows, targets, 3, random_state=0),
        "counted_mondrian": lambda: MondrianKernel(rows, 3, random_state=0),
        "counted_fast_cluster": lambda: FastClusterKernel(rows, 3, height=3, random_state=0),
    }
    kernel = kernels[name]()
    return _of_counts(kernel, type(kernel)())
