r"""
Diagnosis of a kernel's partitions as an ensemble: strength, correlation, and the standard error of the kernel.

Each partition alone is a predictor, the mean of the targets in a point's cluster: with its share :math:`k_r` of the
kernel, the Nadaraya-Watson estimate :math:`\sum_j k_r(x, x_j) y_j / \sum_j k_r(x, x_j)`. Breiman (2001, "Random
forests", sections 2.2 and 11) bounds the error of such an ensemble by the strength of its members and the correlation
of their errors; Zhu (2008, section 3.3) calls this the secret of ensembles. The kernel itself is a mean over
partitions, whose standard error lemma 3.2 of Davies & Ghahramani (2014) bounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpytorch_partition.operators.partition_linear_operator import PartitionLinearOperator

_SUMS_AT_ONCE = 2**22  # (point, partition, column) of a block
_MOST_POINTS = 10_000  # points to judge by; more are sampled
_NUM_PAIRS = 10_000  # pairs of points whose kernel is looked at
_Quality = tuple[float, float, float, float, float]  # the fields of a diagnosis from strength to error bound
_ROUNDING = 1e-9  # relative difference of equal sums, and the rest of a sum without its only term


@dataclass(frozen=True)
class KernelDiagnosis:
    """
    The result of :meth:`~gpytorch_partition.PartitionKernel.diagnose`; print it.

    Errors are mean squared ones, in squared units of the targets, or shares of wrong classes.

    Example:
        >>> found = KernelDiagnosis(100, 5_000, False, False, 0.4, 0.5, 0.6, 0.31, 0.3, 0.02, 0.05)
        >>> found.num_partitions_for(0.01)
        2500
        >>> print(found)
        100 partitions, judged by 5,000 rows, each without its own target
        strength (R squared of one partition)        0.400
        correlation of the partitions' errors        0.500
        error of one partition                       0.600
        error of all together                        0.310
        Breiman's bound for infinitely many          0.300
        standard error of the kernel, mean           0.020
        standard error of the kernel, largest        0.050
        partitions for a largest standard error .02  625
        partitions for a largest standard error .01  2,500
    """

    num_partitions: int  #: m
    num_points: int  #: number of points on which the partitions were judged
    are_new: bool  #: whether these were new points, not rows of the clusters, each without its own target
    are_classes: bool  #: whether the targets were classes
    #: Classes: the mean margin s, the share of the partitions' votes for the right class less that for the best of the
    #: others, -1 to 1. Regression: R squared of a single partition, on average.
    strength: float
    correlation: float  #: mean correlation of the partitions' raw margins, or of their errors
    member_error: float  #: mean error of a single partition's predictions
    ensemble_error: float  #: error of the majority of all partitions, or of their mean
    #: Breiman's bound of the error of infinitely many: with the correlation c, for classes c (1 - s^2) / s^2, which may
    #: be above 1, and is infinite without strength; for regression c times the member error.
    error_bound: float
    #: Standard error of k(x, x') over the draws of partitions: root of the mean square over random pairs of points.
    mean_standard_error: float
    max_standard_error: float  #: the largest of these pairs

    def num_partitions_for(self, standard_error: float) -> int:
        """
        Return the number of partitions with which the standard error of k(x, x') is at most this for all sampled pairs.

        The error falls as one over the square root of their number; a `ValueError` if it is not above 0.
        """
        if not 0 < standard_error < math.inf:
            raise ValueError(f"expected a positive standard error of the kernel, such as 0.01, got {standard_error}")
        wanted = self.num_partitions * (self.max_standard_error / standard_error) ** 2
        return max(1, math.ceil(wanted * (1 - 1e-9)))  # 2500.0000000001 is 2500

    def __str__(self) -> str:
        points = "new points" if self.are_new else "rows, each without its own target"
        strength, alike = ("mean margin", "margins") if self.are_classes else ("R squared of one partition", "errors")
        lines = {
            f"strength ({strength})": f"{self.strength:.3f}",
            f"correlation of the partitions' {alike}": f"{self.correlation:.3f}",
            "error of one partition": f"{self.member_error:.3f}",
            "error of all together": f"{self.ensemble_error:.3f}",
            "Breiman's bound for infinitely many": f"{self.error_bound:.3f}",
            "standard error of the kernel, mean": f"{self.mean_standard_error:.3f}",
            "standard error of the kernel, largest": f"{self.max_standard_error:.3f}",
            "partitions for a largest standard error .02": f"{self.num_partitions_for(0.02):,}",
            "partitions for a largest standard error .01": f"{self.num_partitions_for(0.01):,}",
        }
        width = max(map(len, lines))
        head = f"{self.num_partitions:,} partitions, judged by {self.num_points:,} {points}"
        return "\n".join([head, *(f"{name:{width}}  {value}" for name, value in lines.items())])


def diagnosis(
    covariance: PartitionLinearOperator, y: Any, targets: Any, are_classes: bool | None, random: np.random.RandomState
) -> KernelDiagnosis:
    """
    Return strength, correlation and standard errors of a kernel, by at most 10,000 points and pairs of rows.

    :param covariance: `N' x N` of points and rows; rows and columns are one object if the points are the rows.
    :param y: `N` targets of the rows, a tensor or an array.
    :param targets: `N'` targets of the points.
    :param are_classes: Whether targets are classes; None decides by the dtype of y.
    :raises ValueError: If there is one partition only, targets do not match the rows, are not finite, or do not vary.
    """
    num_points, num_members = covariance.left.num_rows, covariance.left.num_partitions
    if num_members < 2:
        raise ValueError("expected two or more partitions for a standard error, got one: build the kernel with more")
    y, targets = _checked_targets(y, covariance.right.num_rows, "x"), _checked_targets(targets, num_points, "points")
    are_classes = not np.issubdtype(y.dtype, np.floating) if are_classes is None else are_classes
    _check_kinds(y, targets, are_classes)
    judged = torch.from_numpy(random.permutation(num_points)[:_MOST_POINTS])
    if are_classes:
        names, numbers = np.unique(np.concatenate([y, targets]), return_inverse=True)
        known, truth = torch.from_numpy(numbers).split([len(y), num_points])
        quality = _class_quality(covariance, known, judged, truth[judged], len(names))
    else:
        known, truth = (torch.from_numpy(values.astype(np.float64)) for values in (y, targets))
        quality = _regression_quality(covariance, known, judged, truth[judged])
    errors = standard_errors(covariance, *_pairs(covariance, judged, random))
    typical, largest = float(errors.square().mean().sqrt()), float(errors.max())
    are_new = not covariance.is_symmetric
    return KernelDiagnosis(num_members, len(judged), are_new, are_classes, *quality, typical, largest)


def _checked_targets(values: Any, number: int, name: str) -> np.ndarray:
    found = values.detach().cpu().numpy() if torch.is_tensor(values) else np.asarray(values)
    if found.shape != (number,):
        raise ValueError(f"expected one target for each of the {number} rows of {name}, got shape {found.shape}")
    is_floating = np.issubdtype(found.dtype, np.floating)
    has_missing = found.dtype == object and any(each is None or each != each for each in found)
    if has_missing or (is_floating and not np.isfinite(found).all()):
        raise ValueError("expected finite targets, got None, NaN or infinity: drop these rows")
    if len(np.unique(found)) < 2:
        raise ValueError(f"expected targets of {name} that vary, got one value only: give rows with different targets")
    return found


def _check_kinds(y: np.ndarray, targets: np.ndarray, are_classes: bool) -> None:
    are_names = [values.dtype.kind not in "fiub" for values in (y, targets)]
    if are_names[0] != are_names[1]:
        raise ValueError(
            f"expected targets of x and points of one kind, got {y.dtype} and {targets.dtype}: name classes alike"
        )
    if are_names[0] and not are_classes:
        raise ValueError(f"expected numbers as targets, got {y.dtype}: give classes=True, or None")


def _pairs(covariance: PartitionLinearOperator, judged: Tensor, random: np.random.RandomState) -> tuple[Tensor, Tensor]:
    first = judged[torch.from_numpy(random.randint(len(judged), size=_NUM_PAIRS))]
    num_rows = covariance.right.num_rows
    if not covariance.is_symmetric:
        return first, torch.from_numpy(random.randint(num_rows, size=_NUM_PAIRS))
    return first, (first + torch.from_numpy(random.randint(1, num_rows, size=_NUM_PAIRS))) % num_rows


def _regression_quality(covariance: PartitionLinearOperator, y: Tensor, points: Tensor, targets: Tensor) -> _Quality:
    r"""
    Return strength, correlation, errors and their bound for regression (Breiman 2001, section 11).

    With the errors :math:`e_r` of the members and their root mean squares :math:`\sigma_r`, :math:`\bar\rho =
    \overline{e_r e_q} / \bar\sigma^2` over all pairs :math:`r \ne q`, whose sum is :math:`(\sum_r e_r)^2 - \sum_r
    e_r^2`. This costs a product for two columns and :math:`O(n m)`. If rows and columns of the covariance are one
    object, each point is judged without its own target.

    :param y: `N` targets of the rows (float64).
    :param points: `n` numbers of the points to judge by (of N'), with their targets.
    """
    num_members, mean = covariance.left.num_partitions, y.mean()
    squares, products, by_all = torch.zeros(num_members, dtype=y.dtype), 0.0, 0.0
    sums = torch.stack([y - mean, torch.ones_like(y)], -1)
    for place, (totals, weights) in _member_sums(covariance, sums, points):
        guesses = torch.where(weights > 0, totals.squeeze(-1) / weights, 0)
        errors = guesses - (targets[place] - mean).unsqueeze(-1)
        squares += errors.square().sum(0)
        products += float(errors.sum(-1).square().sum() - errors.square().sum())
        by_all += float(errors.mean(-1).square().sum())
    squares, shared = squares / len(points), products / (len(points) * num_members * (num_members - 1))
    member_error, deviation = float(squares.mean()), float(squares.sqrt().mean())
    correlation = shared / deviation**2 if deviation else 1.0
    strength = 1 - member_error / float(targets.var(correction=0))
    return strength, correlation, member_error, by_all / len(points), correlation * member_error


def _class_quality(
    covariance: PartitionLinearOperator, y: Tensor, points: Tensor, targets: Tensor, num_classes: int
) -> _Quality:
    r"""
    Return the same for classes, numbered 0 ... C - 1 (Breiman 2001, section 2.2).

    A member votes for the heaviest class in the point's cluster. Ties, also of votes, and clusters without other rows
    go to the class that is more frequent among all rows. The margin of a point is the share of the votes for its class
    less the largest share of the others, :math:`\hat\jmath`; s is the mean margin, and :math:`\bar\rho =
    \mathrm{var}(\text{margin}) / \bar\sigma^2`, :math:`\sigma_r` the standard deviation of the raw margin :math:`1[h_r
    = y] - 1[h_r = \hat\jmath]` of a member.
    """
    members = torch.nn.functional.one_hot(y, num_classes).double()
    order = members.sum(0).argsort(descending=True, stable=True)
    sums = torch.cat([members[:, order], torch.ones(len(y), 1, dtype=torch.double)], -1)
    votes = torch.cat([order[_first_largest(totals)] for _, (totals, _) in _member_sums(covariance, sums, points)])
    shares = torch.stack([(votes == number).double().mean(-1) for number in range(num_classes)], -1)
    right = torch.nn.functional.one_hot(targets, num_classes).bool()
    best, other = shares.masked_fill(right, -1).max(-1)
    margins = shares[right] - best
    raw = (votes == targets.unsqueeze(-1)).double() - (votes == other.unsqueeze(-1)).double()
    strength, deviation = float(margins.mean()), float(raw.std(0, correction=0).mean())
    correlation = float(margins.var(correction=0)) / deviation**2 if deviation else 1.0
    bound = correlation * (1 - strength**2) / strength**2 if strength > 0 else math.inf
    member_error = float((votes != targets.unsqueeze(-1)).double().mean())
    majority = order[_first_largest(shares[:, order])]
    return strength, correlation, member_error, float((majority != targets).double().mean()), bound


def standard_errors(covariance: PartitionLinearOperator, first: Tensor, second: Tensor) -> Tensor:
    """
    Return the standard errors of the kernel at pairs of rows (`q`, float64), over independent draws of its partitions.

    For flat partitions, each of m with a kernel of 0 or 1, this is the root of :math:`k (1 - k) / m`, at most 1 / (4 m)
    (lemma 3.2 of Davies & Ghahramani 2014).
    """
    left, right, effects = covariance.left, covariance.right, covariance.cluster_operator.double()
    size = max(1, _SUMS_AT_ONCE // left.num_partitions)
    found = []
    for one, other in zip(first.split(size), second.split(size)):
        shares = effects._get_indices(left.codes[one].long(), right.codes[other].long())
        found.append(shares.std(-1, correction=0) * left.num_partitions**0.5)  # sd(k_r) / sqrt(m), with k_r = m S
    return torch.cat(found)


def _first_largest(totals: Tensor) -> Tensor:
    """Return the number of the first column within rounding of the largest, along the last dimension."""
    return (totals >= (1 - _ROUNDING) * totals.amax(-1, keepdim=True)).int().argmax(-1)


def _member_sums(
    covariance: PartitionLinearOperator, values: Tensor, points: Tensor
) -> Iterator[tuple[slice, tuple[Tensor, Tensor]]]:
    r"""
    Yield blocks of `points`: their slice, the sums :math:`\sum_j k_r(x, x_j) v_j` (`b x m x c`), and those of weights.

    A weight is :math:`k_r(x, x_j)`, and their sum (`b x m`) 0 where a point is alone in its cluster. Values of the rows
    (`N x (c + 1)`) have ones in the last column.
    """
    effects, codes = covariance.cluster_operator.double(), covariance.left.codes
    table = effects @ covariance.right.cluster_sums(values)
    own = effects.diagonal() if covariance.is_symmetric else None
    size = max(1, _SUMS_AT_ONCE // (codes.shape[-1] * values.shape[-1]))
    for start in range(0, len(points), size):
        place = slice(start, start + size)
        chosen = points[place]
        clusters = codes[chosen].long()
        sums = table[clusters]
        if own is not None:
            weight = own[clusters].unsqueeze(-1)
            sums = sums - weight * values[chosen].unsqueeze(-2)
            sums = torch.where(sums[..., -1:] > _ROUNDING * weight, sums, 0)
        yield place, (sums[..., :-1], sums[..., -1])
