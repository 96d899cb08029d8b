"""What is common to models of one kind: their state as tensors and plain values, and what they predict."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from gpytorch.models import ExactGP
from torch import Tensor, nn

from gpytorch_partition.command_line.model_file import SavedModel, load_model, save_model
from gpytorch_partition.estimators import PartitionGPRegressor
from gpytorch_partition.kernels import EncodedKernel, StandardizedKernel
from gpytorch_partition.models import FeatureSpaceGP

Numbers = dict[str, Tensor]


class Kind(NamedTuple):
    """How a model is saved, restored from its unfitted twin, and asked for its numbers."""

    state: Callable[[Any], dict[str, Any]]
    restored: Callable[[Any, dict[str, Any]], Any]
    numbers: Callable[[Any, Tensor], Numbers]


# GPyTorch models.


def _loaded(model: ExactGP, state: dict[str, Any]) -> ExactGP:
    model.load_state_dict(state)
    return model.eval()


@torch.no_grad()
def _process_numbers(model: ExactGP, x: Tensor) -> Numbers:
    latent = model.eval()(x)
    observed = model.likelihood(latent, x)
    numbers = {"mean": latent.mean, "latent_variance": latent.variance, "observed_variance": observed.variance}
    return numbers | _labels(model, x)


def _labels(module: nn.Module, x: Tensor) -> Numbers:
    """Labels by all partition kernels of a module, side by side."""
    labels = list(_labels_within(module, x))
    return {"labels": torch.cat(labels, -1)} if labels else {}


def _labels_within(module: nn.Module, x: Tensor) -> Iterator[Tensor]:
    if hasattr(module, "cluster_ids"):
        yield module.cluster_ids(x)
        return
    if isinstance(module, StandardizedKernel):
        mean, scale = (module.state_dict()[f"units.{name}"].view(torch.float64) for name in ("mean", "scale"))
        x = (x - mean) / scale
    if isinstance(module, EncodedKernel):
        x = module.view(x)
    for child in module.children():
        yield from _labels_within(child, x)


PROCESS = Kind(lambda model: dict(model.state_dict()), _loaded, _process_numbers)


# Regressors.


def _regressor_numbers(regressor: PartitionGPRegressor, x: Tensor) -> Numbers:
    mean, deviation = regressor.predict(x.numpy(), return_std=True)
    state = regressor.to_state()
    inside = ((x - state["x_mean"]) / state["x_scale"]).to(state["train_x"])
    numbers = {"mean": torch.from_numpy(mean), "observed_variance": torch.from_numpy(deviation).square()}
    return numbers | _labels(regressor.kernel_, inside)


REGRESSOR = Kind(
    PartitionGPRegressor.to_state, lambda _, state: PartitionGPRegressor.from_state(state), _regressor_numbers
)


# Counted rows.


def _counted_state(model: FeatureSpaceGP) -> dict[str, Any]:
    return {"kernel": dict(model.kernel.state_dict()), "model": model.state_dict()}


def _counted(kernel: nn.Module, state: dict[str, Any]) -> FeatureSpaceGP:
    kernel.load_state_dict(state["kernel"])
    model = FeatureSpaceGP(kernel)
    model.load_state_dict(state["model"])
    return model


def _counted_numbers(model: FeatureSpaceGP, x: Tensor) -> Numbers:
    mean, variance = model.predict(x)
    return {"mean": mean.detach(), "latent_variance": variance.detach()} | _labels(model.kernel, x)


COUNTED = Kind(_counted_state, _counted, _counted_numbers)


# Model files of the command line, byte by byte.


def _file_state(model: SavedModel) -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.pt"
        save_model(path, model)
        return {"file": torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8)}


def _from_file(expected: SavedModel, state: dict[str, Any]) -> SavedModel:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.pt"
        path.write_bytes(state["file"].numpy().tobytes())
        model = load_model(path)
    assert (model.columns, model.target) == (expected.columns, expected.target)
    return model


MODEL_FILE = Kind(_file_state, _from_file, lambda model, x: _regressor_numbers(model.regressor, x))
