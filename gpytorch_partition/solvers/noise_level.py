"""Whether the noise is large enough beside the prior variance for numbers of a precision."""

from __future__ import annotations

import warnings

import torch
from linear_operator.operators import AddedDiagLinearOperator, LinearOperator, SumLinearOperator
from linear_operator.utils.warnings import NumericalWarning

from gpytorch_partition.operators.partition_linear_operator import PartitionLinearOperator

REMEDY = "Raise the noise (a constraint of the likelihood), or make the outputscale smaller."

# The least noise, as a share of the prior variance, at which dense algebra in float32 gives posterior variances to a
# percent, and the share that float64 resolves, in units of its roundoff and rows.
_LEAST_SHARE = 1e-2
_RESOLVED = 100.0
_ROUNDED = 10.0  # the same for entries in float32, in units of its roundoff and the root of the rows


def terms_of(noisy: AddedDiagLinearOperator) -> list[LinearOperator]:
    """Return the terms of the covariance without the noise."""
    covariance = noisy._linear_op.evaluate_kernel()
    return list(covariance.linear_ops) if isinstance(covariance, SumLinearOperator) else [covariance]


def is_delicate(noisy: AddedDiagLinearOperator) -> bool:
    """Return whether dense algebra in the operator's dtype may change posterior variances by more than a percent."""
    return noisy.dtype != torch.float64 and noisy.noise_share < _LEAST_SHARE


def too_little(noisy: AddedDiagLinearOperator) -> str:
    """Return the beginning of a message about noise that float64 does not resolve."""
    return f"the noise is {noisy.noise_share:.1e} of the prior variance, too little for a factor in float64"


def check_resolution(noisy: AddedDiagLinearOperator) -> None:
    """Warn if the noise is so small beside the prior variance that rounding in float64 hides it."""
    least = _RESOLVED * noisy.size(-1) * torch.finfo(torch.float64).eps
    if noisy.noise_share < least:
        warnings.warn(
            f"the noise is {noisy.noise_share:.1e} of the prior variance, and {noisy.size(-1):,} rows resolve "
            f"{least:.0e} of it in float64: means and variances may be wrong. {REMEDY}",
            NumericalWarning,
            stacklevel=2,
        )


def check_entries(noisy: AddedDiagLinearOperator) -> None:
    """Warn if the noise is below the float32 rounding of entries, where a term is no partition kernel's."""
    if noisy.dtype == torch.float64 or all(isinstance(term, PartitionLinearOperator) for term in terms_of(noisy)):
        return
    least = _ROUNDED * torch.finfo(noisy.dtype).eps * noisy.size(-1) ** 0.5
    if noisy.noise_share < least:
        warnings.warn(
            f"the noise is {noisy.noise_share:.1e} of the prior variance, and a sum with a kernel whose entries are "
            f"rounded to {noisy.dtype} resolves {least:.0e} of it: means and variances may be wrong. Use float64, "
            "or raise the noise (a constraint of the likelihood).",
            NumericalWarning,
            stacklevel=2,
        )
