"""
Counter-based random numbers: each is a hash of a key, and so independent of the order in which numbers are drawn.

The hash is the output function of SplitMix64 (Steele, Lea & Flood 2014, "Fast splittable pseudorandom number
generators"). A *salt*, 0 or more, names the purpose of a number; numbers of one key with different salts are
independent. All arithmetic is 64-bit integer or elementwise float64 arithmetic that IEEE 754 fixes to the last bit, a
logarithm of our own included. Numbers thus do not depend on the device, the number of threads or the position in a
tensor.
"""

from __future__ import annotations

import torch
from torch import Tensor

_SALT_STEP = 0x9E3779B97F4A7C15  # SplitMix64's increment: 2^64 over the golden ratio, made odd
_LN2 = 0.6931471805599453
# 2 atanh(f) = 2 f (1 + f^2/3 + f^4/5 + ...): with |f| < .172 the first omitted term is below 1e-17.
_ATANH_COEFFICIENTS = [1 / (2 * i + 1) for i in reversed(range(11))]


def hashed(keys: Tensor, salt: int) -> Tensor:
    """
    Return new keys (`*shape` int64) of keys: for a given salt a bijection of the 64-bit integers.

    Example:
        >>> hashed(torch.tensor([0, 1]), salt=0)
        tensor([-2152535657050944081, -7995527694508729151])
    """
    bits = keys + _signed((salt + 1) * _SALT_STEP)
    bits = (bits ^ _shifted_right(bits, 30)) * _signed(0xBF58476D1CE4E5B9)
    bits = (bits ^ _shifted_right(bits, 27)) * _signed(0x94D049BB133111EB)
    return bits ^ _shifted_right(bits, 31)


def uniforms(keys: Tensor, salt: int) -> Tensor:
    """
    Return numbers of keys, uniform in the open interval (0, 1): odd multiples of :math:`2^{-53}` (float64).

    Example:
        >>> uniforms(torch.tensor([1, 2, 3]), salt=0)
        tensor([0.5666, 0.5912, 0.1135], dtype=torch.float64)
    """
    return (_shifted_right(hashed(keys, salt), 12).to(torch.float64) + 0.5) * 2.0**-52


def exponentials(keys: Tensor, salt: int) -> Tensor:
    """
    Return numbers of keys with the exponential distribution of mean 1, all positive (float64); divide them by a rate.

    Example:
        >>> exponentials(torch.tensor([1, 2, 3]), salt=0)
        tensor([0.5682, 0.5256, 2.1764], dtype=torch.float64)
    """
    return -_log(uniforms(keys, salt))


def _log(values: Tensor) -> Tensor:
    """Natural logarithm, accurate to about 1e-16, from elementwise sums, products and quotients only."""
    mantissa, exponent = torch.frexp(values)
    small = mantissa < 0.5**0.5
    mantissa = torch.where(small, 2 * mantissa, mantissa)
    exponent = exponent.to(torch.float64) - small.to(torch.float64)
    f = (mantissa - 1) / (mantissa + 1)
    square = f * f
    series = torch.zeros_like(f)
    for coefficient in _ATANH_COEFFICIENTS:
        series.mul_(square).add_(coefficient)
    return exponent * _LN2 + 2 * f * series


def _shifted_right(bits: Tensor, places: int) -> Tensor:
    return (bits >> places) & (2 ** (64 - places) - 1)


def _signed(constant: int) -> int:
    constant %= 2**64
    return constant - 2**64 if constant >= 2**63 else constant
