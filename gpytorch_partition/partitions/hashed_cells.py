r"""
Hashes of keys, and cells that are hashed: bins of random grids (their kernel is the Laplace kernel), equal categories.

**Hashes.** A random number is a hash of a key, and so independent of the order in which numbers are drawn: the output
function of SplitMix64 (Steele, Lea & Flood 2014, "Fast splittable pseudorandom number generators"). A *salt*, 0 or
more, names the purpose of a number; numbers of one key with different salts are independent. All arithmetic, our own
logarithm included, is fixed to the last bit by IEEE 754, on any device, with any number of threads.

**Grids.** In one dimension a grid of pitch :math:`\delta` with a uniform shift has points at a distance r in one bin
with probability :math:`\max(0, 1 - r / \delta)`. Pitches of density :math:`\delta\, k''(\delta)` make it the kernel k
(Rahimi & Recht 2007, "Random features for large-scale kernel machines", section 4). For :math:`k(r) = e^{-r / \ell}`
that is a gamma distribution of shape 2 and scale :math:`\ell`. Dimensions have grids of their own, so their kernels
multiply.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from gpytorch_partition.descriptions import counted, listed
from gpytorch_partition.inputs.numbers import (
    MOST_PARTITIONS,
    bits_of,
    checked_count,
    floats_of,
    largest_exact,
    random_state_of,
    tensor_of,
)
from gpytorch_partition.inputs.training_rows import checked_rows, median_distance, warn_about_unequal_scales
from gpytorch_partition.linalg.parallel import SERIAL_NUMEL, for_each
from gpytorch_partition.partitions.partition import Partition

_SALT_STEP = 0x9E3779B97F4A7C15  # SplitMix64's increment: 2^64 over the golden ratio, made odd
_LN2 = 0.6931471805599453
# 2 atanh(f) = 2 f (1 + f^2/3 + f^4/5 + ...): with |f| < .172 the first omitted term is below 1e-17.
_ATANH_COEFFICIENTS = [1 / (2 * i + 1) for i in reversed(range(11))]


def hashed(keys: Tensor, salt: int) -> Tensor:
    """Return a new key (`*shape` int64) for each key; for a given salt, different keys have different new keys."""
    bits = keys + _signed((salt + 1) * _SALT_STEP)
    bits = (bits ^ _shifted_right(bits, 30)) * _signed(0xBF58476D1CE4E5B9)
    bits = (bits ^ _shifted_right(bits, 27)) * _signed(0x94D049BB133111EB)
    return bits ^ _shifted_right(bits, 31)


def uniforms(keys: Tensor, salt: int) -> Tensor:
    """Return a number for each key, uniform in the open interval (0, 1): odd multiples of :math:`2^{-53}` (float64)."""
    return (_shifted_right(hashed(keys, salt), 12).to(torch.float64) + 0.5) * 2.0**-52


def exponentials(keys: Tensor, salt: int) -> Tensor:
    """Return a positive number for each key, with the exponential distribution of mean 1 (float64)."""
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


class RandomBinningPartition(Partition):
    r"""
    Divide points by the bins of m random grids; their kernel tends to :math:`\exp(-\sum_d |x_d - x'_d| / \ell_d)`.

    :class:`~gpytorch_partition.RandomBinningKernel` uses it. Construct it yourself for bins without a kernel, such as
    to find rows near a point (Rahimi & Recht 2007, algorithm 2). A label is a 64-bit hash of the D numbers of a bin.

    :param x: `N x D` rows, for their width. (Default: None, an unfitted partition for `load_state_dict`.)
    :param num_partitions: Number m of grids. (Default: 200.)
    :param lengthscale: One number, or one for each column. (Default: the median L1 distance of rows.)
    :param random_state: Seed or `RandomState`; `None` is a fresh one, never NumPy's global one.
    :raises ValueError: If the rows or a number cannot be used.

    Example:
        >>> from math import exp
        >>> x = torch.tensor([[0.0, 0.0], [1.0, 2.0], [1e6, 0.0], [1e6, 0.1]])
        >>> grids = RandomBinningPartition(x, num_partitions=10000, lengthscale=[2.0, 4.0], random_state=0)
        >>> labels = grids.labels(x)
        >>> (labels[0] == labels[1]).double().mean(), exp(-1 / 2 - 2 / 4)
        (tensor(0.3722, dtype=torch.float64), 0.36787944117144233)
        >>> (labels[2] == labels[3]).double().mean(), exp(-0.1 / 4)
        (tensor(0.9766, dtype=torch.float64), 0.9753099120283326)
    """

    pitches: Tensor  # (m, D) bit patterns of float64
    shifts: Tensor  # (m, D) bit patterns of float64, between 0 and the pitches
    lengthscale_bits: Tensor  # (D,) bit patterns of float64

    def __init__(
        self,
        x: Tensor | None = None,
        num_partitions: int = 200,
        *,
        lengthscale: float | Sequence[float] | Tensor | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        super().__init__()
        for name, shape in (("pitches", (0, 0)), ("shifts", (0, 0)), ("lengthscale_bits", (0,))):
            self.register_buffer(name, torch.empty(shape, dtype=torch.int64))
        if x is not None:
            rows = checked_rows(x, type(self).__name__)
            num_partitions = checked_count(num_partitions, "grids", "num_partitions", MOST_PARTITIONS)
            random, shape = random_state_of(random_state), (num_partitions, rows.shape[1])
            lengthscales = _lengthscales(rows, lengthscale, random)
            pitches = torch.from_numpy(random.gamma(2.0, size=shape)).to(rows.device) * lengthscales
            shifts = torch.from_numpy(random.uniform(size=shape)).to(rows.device) * pitches
            self.pitches, self.shifts = bits_of(pitches), bits_of(shifts)
            self.lengthscale_bits = bits_of(lengthscales)

    @property
    def num_partitions(self) -> int:
        return self.pitches.shape[0]

    @property
    def num_features(self) -> int | None:
        return self.pitches.shape[1] if self.is_fitted else None

    @property
    def lengthscale(self) -> Tensor:
        """Return the lengthscales of the columns (`D`, float64), in units of x; empty while unfitted."""
        return floats_of(self.lengthscale_bits)

    def _described(self) -> str:
        return f"{counted(self.num_partitions, 'grid')}, lengthscales {listed(self.lengthscale.tolist())}"

    def _labels(self, x: Tensor) -> Tensor:
        labels = torch.zeros(self.num_partitions, x.shape[0], dtype=torch.int64, device=x.device)
        columns = x.to(torch.float64).T.contiguous()
        pitches, shifts = floats_of(self.pitches), floats_of(self.shifts)
        size = SERIAL_NUMEL if x.device.type == "cpu" else max(1, x.shape[0])

        def label(grid: int) -> None:
            for values, keys in zip(columns.split(size, 1), labels[grid].split(size)):
                keys.copy_(_bins(values, pitches[grid], shifts[grid]))

        for_each(label, range(self.num_partitions))
        return labels.T


def _bins(columns: Tensor, pitches: Tensor, shifts: Tensor) -> Tensor:
    keys = torch.zeros(columns.shape[1], dtype=torch.int64, device=columns.device)
    for values, pitch, shift in zip(columns, pitches, shifts):
        number = ((values - shift) / pitch).floor_()
        # Where the number overflows, every float64 has a bin of its own; adding 0 turns -0 into 0.
        number = torch.where(number.isinf(), values, number + 0.0)
        keys = hashed(keys ^ bits_of(number), 0)
    return keys


def _lengthscales(
    x: Tensor, lengthscale: float | Sequence[float] | Tensor | None, random: np.random.RandomState
) -> Tensor:
    if lengthscale is None:
        lengthscale = median_distance(x, random, "lengthscale")
    values = tensor_of(lengthscale, "a lengthscale, or one for each column").detach()
    values = torch.zeros(0) if values.is_complex() else values.to(x.device, torch.float64)
    if values.numel() not in (1, x.shape[1]) or not bool((values.isfinite() & (values > 0)).all()):
        raise ValueError(
            f"expected one positive, finite lengthscale, or one for each of {x.shape[1]} columns, got {lengthscale}"
        )
    if values.numel() == 1:
        warn_about_unequal_scales(x, RandomBinningPartition.__name__)
    return values.reshape(-1).expand(x.shape[1]).contiguous()


class GroupPartition(Partition):
    """
    Divide points into groups with equal categories in every column.

    :class:`~gpytorch_partition.GroupKernel` uses it, once for each level. Construct it yourself for a single level,
    which needs no weights: `PartitionKernel(GroupPartition(), active_dims=(0, 1))`.

    Categories are whole numbers; others, and numbers too large to be distinct in their dtype, raise a `ValueError`. A
    label is a 64-bit hash of a point's categories, so no list of categories is needed.

    Example:
        >>> labels = GroupPartition().labels(torch.tensor([[1.0, 0.0], [1.0, 3.0], [1.0, 0.0]])).squeeze(-1)
        >>> labels == labels[0]
        tensor([ True, False,  True])
    """

    num_partitions = 1

    def extra_repr(self) -> str:
        return "a group for each combination of categories"

    def _labels(self, x: Tensor) -> Tensor:
        keys = torch.zeros(x.shape[0], dtype=torch.int64, device=x.device)
        for categories in x.to(torch.float64).unbind(-1):
            keys = hashed(keys ^ bits_of(categories + 0.0), 0)  # adding 0 turns -0 into 0
        return keys.unsqueeze(-1)

    def _check_values(self, x: Tensor) -> None:
        super()._check_values(x)
        largest = largest_exact(x.dtype)
        if x.numel() and not float(x.abs().max()) < largest:
            raise ValueError(
                f"{type(self).__name__} expected codes of categories below {largest:,.0f}, got {float(x.abs().max())}: "
                f"larger ones are not told apart in {x.dtype}. Number them 0, 1, ..., by OrdinalEncoder, or as float64"
            )
        is_whole = x == x.round()
        if not is_whole.all():
            raise ValueError(
                f"{type(self).__name__} expected whole numbers, the codes of categories, got {float(x[~is_whole][0])}: "
                "give codes that are not standardized, as of scikit-learn's OrdinalEncoder. Estimators standardize "
                "columns for functions and classes: give them an instance, kernel=GroupKernel(columns)"
            )
