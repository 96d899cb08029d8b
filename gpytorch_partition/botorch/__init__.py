"""
Bayesian optimization with BoTorch (`pip install "gpytorch_partition[botorch]"`).

Importing it registers the package's kernels with BoTorch's pathwise samplers, `draw_matheron_paths` and
`draw_kernel_feature_paths` of `botorch.sampling.pathwise`, which then draw functions of models with these kernels.
"""

try:
    import botorch as _  # noqa: F401
except ImportError as error:
    raise ImportError(
        'gpytorch_partition.botorch expected BoTorch, which is not installed: pip install "gpytorch_partition[botorch]"'
    ) from error

from gpytorch_partition.botorch.optimize import optimize_acqf_cells
from gpytorch_partition.botorch.pathwise import PartitionFeatureMap

__all__ = ["PartitionFeatureMap", "optimize_acqf_cells"]
