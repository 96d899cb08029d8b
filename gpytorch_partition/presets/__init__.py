"""The default model and its kernel: parts, weights and noise are chosen from the data."""

from gpytorch_partition.presets.default import default_kernel as default_kernel
from gpytorch_partition.presets.default import default_model as default_model
from gpytorch_partition.presets.default import ensemble_model as ensemble_model
from gpytorch_partition.presets.options import Options as Options

__all__ = ["Options", "default_kernel", "default_model", "ensemble_model"]
