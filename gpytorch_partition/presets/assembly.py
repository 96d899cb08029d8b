"""The default model built from a choice, and its unfitted counterpart for `load_state_dict`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any

import torch
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import Kernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood, Likelihood
from gpytorch.likelihoods.noise_models import HomoskedasticNoise, Noise
from gpytorch.settings import prior_mode
from torch import Tensor

from gpytorch_partition.descriptions import counted, without_values
from gpytorch_partition.inputs.row_weights import RowWeights
from gpytorch_partition.inputs.standardization import Standardization
from gpytorch_partition.kernels import EncodedKernel, IterativeKernel, PartitionKernel, StandardizedKernel
from gpytorch_partition.likelihoods import (
    FITCGaussianLikelihood,
    ForestNoise,
    ForestNoiseGaussianLikelihood,
    StudentTLikelihood,
    StudentTNoise,
    WeightedGaussianLikelihood,
    WeightedNoise,
)
from gpytorch_partition.models import PartitionGP
from gpytorch_partition.presets.boosted_mean import BoostedMean, boosted_mean
from gpytorch_partition.presets.data import PartInputs, TrainingData
from gpytorch_partition.presets.options import Options, Setup
from gpytorch_partition.presets.parts import SMOOTH, new_parts, unfitted_parts
from gpytorch_partition.presets.weights_and_noise import Choice

_MOST_DENSE_ROWS = 2_000  # rows of a model with dense solves
_DESCRIBED = ("parts", "noise", "log_predictive_density", "view_columns")
_LARGEST_ROUNDING = 0.1  # rounding of covariances allowed in float32, in variances of the noise


class DefaultGP(PartitionGP):
    """
    A default model, with a description in plain values from which :func:`rebuilt` makes its unfitted counterpart.

    Predictions are posterior means, averaged with those of boosted trees if these have a share, plus an offset: the
    mean error of held-out rows, times the noise's deviation. The description has `"parts"`, their names; `"noise"`, its
    kind and the offset; `"log_predictive_density"` of held-out rows; and `"view_columns"`, the number of columns of the
    parts' view of categories and missing cells, or None.
    """

    def __init__(
        self,
        train_x: Tensor,
        train_y: Tensor,
        likelihood: Likelihood,
        kernel: Kernel,
        description: dict[str, Any],
        boosted: BoostedMean | None = None,
    ) -> None:
        super().__init__(train_x, train_y, likelihood, kernel)
        self.description = description
        self.boosted = boosted

    def __call__(self, *inputs: Tensor, **kwargs: Any) -> Any:
        found = super().__call__(*inputs, **kwargs)
        is_prior = self.training or prior_mode.on() or not self.train_inputs
        if is_prior or (self.boosted is None and not self._offset):
            return found
        x = self._as_rows(inputs[0])
        mean = self.share_of_rows(x) * found.mean + self._added(x).to(found.mean)
        return type(found)(mean, found.lazy_covariance_matrix)

    def get_fantasy_model(self, inputs: Tensor, targets: Tensor, **kwargs: Any) -> Any:
        """
        Return the model with more observations.

        The process gets their targets less the trees' part and the offset, divided by its own share of predictions.
        """
        x = self._as_rows(inputs)
        return super().get_fantasy_model(
            inputs, (targets - self._added(x).to(targets)) / self.share_of_rows(x), **kwargs
        )

    def level(self, x: Tensor) -> Tensor:
        x = self._as_rows(x)
        return self.share_of_rows(x) * super().level(x) + self._added(x)

    def share_of_rows(self, x: Tensor) -> Tensor:
        """Return one less the share of boosted trees (`*batch x N`)."""
        return super().share_of_rows(x) if self.boosted is None else 1 - self.boosted.share_at(x)

    def _as_rows(self, x: Tensor) -> Tensor:
        return self._encoded(x.unsqueeze(-1) if x.dim() == 1 else x)

    def _added(self, x: Tensor) -> Tensor:
        trees = x.new_zeros(x.shape[:-1]) if self.boosted is None else self.boosted.share_at(x) * self.boosted(x)
        return trees + self._offsets(x) if self._offset else trees

    @property
    def _offset(self) -> float:
        return self.description["noise"].get("offset", 0.0)

    def _offsets(self, x: Tensor) -> Tensor:
        forests = [module for module in self.likelihood.modules() if isinstance(module, ForestNoise)]
        ratios = forests[0].exponent * forests[0].log_ratio(x) if forests else x.new_zeros(x.shape[:-1])
        return self._offset * (0.5 * ratios).exp()

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        result = super().load_state_dict(*args, **kwargs)
        self.sum_precisely_if_needed()
        return result

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        own = [name.removeprefix(f"{prefix}boosted.") for name in state_dict if name.startswith(f"{prefix}boosted.")]
        trees = BoostedMean.unfitted(has_view=any(".view." in name for name in own)).to(self.train_targets.device)
        self.boosted = trees if own else None
        super()._load_from_state_dict(state_dict, prefix, *args)

    @torch.no_grad()
    def sum_precisely_if_needed(self) -> None:
        """
        Set sums over clusters to float64 where solves are dense and rounding in float32 may exceed the noise.

        Rounding is a share of the largest eigenvalue, which is less than the trace. In float32 some covariances had no
        Cholesky factor.
        """
        x, shape = self.train_inputs[0], self.train_targets.shape
        if len(x) > _MOST_DENSE_ROWS:
            return
        noise = self.likelihood.noise_covar([x], shape=shape).diagonal(dim1=-2, dim2=-1).min()
        rounding = torch.finfo(torch.float32).eps * self.covar_module(x, diag=True).sum()
        for module in self.covar_module.modules() if rounding > _LARGEST_ROUNDING * noise else ():
            if isinstance(module, PartitionKernel):
                module.sum_dtype = None

    def extra_repr(self) -> str:
        """Return the number of rows, and the weights of the parts."""
        if told := without_values(self):
            return told
        weights = [part.outputscale.item() for part in self.covar_module.modules() if type(part) is ScaleKernel][1:]
        told = ", ".join(f"{name} {weight:.3g}" for name, weight in zip(self.description["parts"], weights))
        return f"{counted(len(self.train_targets), 'row')}, weights: {told}"


def description_of(model: Any) -> dict[str, Any]:
    """Return the description of a model; its `"parts"` are None unless it is a default one."""
    if getattr(model, "description", None) is not None:
        return model.description
    return {**dict.fromkeys(_DESCRIBED), "noise": {}}


def rebuilt(description: Mapping[str, Any], train_x: Tensor, train_y: Tensor) -> DefaultGP | None:
    """Return the unfitted counterpart of a default model by its description; None for another kind of model."""
    own = own_description(description)
    if own["parts"] is None:
        return None
    parts, weights = unfitted_parts(train_x.shape[1], own["view_columns"]), dict.fromkeys(own["parts"], 1.0)
    noise: Noise = ForestNoise() if own["noise"]["noise_varies"] else HomoskedasticNoise()
    if own["noise"]["has_tails"]:
        noise = StudentTNoise(noise, torch.ones(len(train_x)))
    elif own["noise"]["has_weights"]:
        noise = WeightedNoise(noise, torch.ones(len(train_x)))
    likelihood = _likelihood(noise, own["noise"]["threshold"], parts, weights, None)
    kernel = IterativeKernel(weighted_parts(parts, weights, None))
    return DefaultGP(train_x, train_y, likelihood, kernel, own).eval()


def own_description(description: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a description that are its own, without others that were stored beside them."""
    return {name: description[name] for name in _DESCRIBED}


def unfitted_kernel(description: Mapping[str, Any], num_columns: int) -> IterativeKernel:
    """Return the kernel of a default model for `load_state_dict`, for rows of `num_columns` columns."""
    parts = unfitted_parts(num_columns, description["view_columns"])
    return IterativeKernel(weighted_parts(parts, dict.fromkeys(description["parts"], 1.0), None))


def assemble(choice: Choice, data: TrainingData, setup: Setup) -> DefaultGP:
    """Return a model of rows and targets in any units, with all values set and none left to train."""
    parts = new_parts(PartInputs.of(data, setup, choice.lengthscales), names=choice.outputscales)
    return assembled(choice, parts, data, setup.options, boosted_mean(choice, data, setup))


def assembled(
    choice: Choice,
    parts: Mapping[str, Kernel],
    data: TrainingData,
    options: Options,
    boosted: BoostedMean | None = None,
) -> DefaultGP:
    """Return the model of parts of unit scale, by name, that were built from these data."""
    unit = float(data.unit.scale) ** 2
    weights = {name: unit * weight for name, weight in choice.outputscales.items()}
    noise = _of_rows(choice, _noise(choice, unit, options), data)
    likelihood = _likelihood(noise, choice.threshold, parts, weights, data.columns)
    kernel = IterativeKernel(weighted_parts(parts, weights, data.columns))
    model = DefaultGP(data.rows, data.targets, likelihood, kernel, _description(choice, data), boosted)
    model.covar_module.outputscale = 1.0
    model.mean_module.constant = data.unit.mean
    model.sum_precisely_if_needed()
    return model.requires_grad_(False)


def _of_rows(choice: Choice, noise: Noise, data: TrainingData) -> Noise:
    """Divide the noise by weights of rows, and scale that of new observations where it differs."""
    weights = data.weights or RowWeights.of(torch.ones_like(data.targets))
    if choice.smooths_evenly:
        ratios = noise(data.rows, shape=data.targets.shape).diagonal() / noise.noise
        weights = replace(weights, values=weights.values * ratios.detach())
    if choice.tails is not None:
        return StudentTNoise(noise, weights.values, weights.unit, choice.tails.df, choice.tails.factor)
    if data.weights is None and choice.factor == 1:
        return noise
    return WeightedNoise(noise, weights.values, weights.unit, choice.factor)


def _description(choice: Choice, data: TrainingData) -> dict[str, Any]:
    unit = float(data.unit.scale)
    return {
        "parts": list(choice.outputscales),
        "noise": {
            "noise_varies": choice.noise_forest is not None,
            "threshold": choice.threshold,
            "has_weights": data.weights is not None or choice.factor != 1,
            "has_tails": choice.tails is not None,
            "weighs_rows": data.weights is not None,
            "long_tail": choice.long_tail,
            "offset": unit * choice.offset,
            "mean_error": [unit * value for value in choice.mean_error],
            "log_density_error": choice.log_density_error if data.blocks is None else None,
        },
        "log_predictive_density": choice.log_density,
        "view_columns": len(choice.lengthscales) if data.has_view else None,
    }


def _noise(choice: Choice, unit: float, options: Options) -> Noise:
    constraint = GreaterThan(0.5 * min(options.least_noise, choice.noise) * unit)  # calibration may scale it down
    if choice.noise_forest is None:
        noise = HomoskedasticNoise(noise_constraint=constraint)
    else:
        noise = ForestNoise.from_forest(choice.noise_forest, constraint)
        noise.exponent = choice.exponent
    noise.initialize(noise=choice.noise * unit)
    return noise


def _likelihood(
    noise: Noise,
    threshold: float | None,
    parts: Mapping[str, Kernel],
    outputscales: Mapping[str, float],
    columns: Standardization | None,
) -> Likelihood:
    """The likelihood of the noise; with a threshold, FITC's for the unspanned variance beyond it."""
    if threshold is not None:
        name, outputscale = SMOOTH.name, outputscales[SMOOTH.name]
        kernels = (_exact(parts[name]), parts[name])
        exact, approximation = (weighted_parts({name: kernel}, {name: outputscale}, columns) for kernel in kernels)
        fitc = FITCGaussianLikelihood(noise, exact, approximation, threshold * outputscale)
        return StudentTLikelihood(fitc.noise_covar) if isinstance(noise, StudentTNoise) else fitc
    if isinstance(noise, StudentTNoise):
        return StudentTLikelihood(noise)
    if isinstance(noise, WeightedNoise):
        likelihood = WeightedGaussianLikelihood(noise.weights, noise.base_noise, float(noise.unit))
        likelihood.noise_covar = noise
        return likelihood
    likelihood = ForestNoiseGaussianLikelihood() if isinstance(noise, ForestNoise) else GaussianLikelihood()
    likelihood.noise_covar = noise
    return likelihood


def _exact(smooth: Kernel) -> Kernel:
    if isinstance(smooth, EncodedKernel):
        return EncodedKernel(smooth.base_kernel.base_kernel, smooth.view)
    return smooth.base_kernel


def weighted_parts(
    parts: Mapping[str, Kernel], outputscales: Mapping[str, float], columns: Standardization | None
) -> StandardizedKernel:
    """Return the sum with fixed weights, for points in users' units; without units (None) to load a state into."""
    return StandardizedKernel(weighted_sum(parts, outputscales), columns).requires_grad_(False)


def weighted_sum(parts: Mapping[str, Kernel], outputscales: Mapping[str, float]) -> Kernel:
    """Return the sum of parts with these weights."""
    return reduce(add, (_scaled(parts[name], outputscale) for name, outputscale in outputscales.items()))


def _scaled(part: Kernel, outputscale: float) -> ScaleKernel:
    scaled = ScaleKernel(part)
    scaled.outputscale = outputscale
    return scaled
