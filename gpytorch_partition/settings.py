"""Settings of the solvers, in GPyTorch's manner: a context manager each, with its value inside the context."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import Any

import gpytorch
import linear_operator
from linear_operator.settings import _value_context

PRECONDITIONERS = ("nystrom", "partition", "none")
VARIANCES = ("auto", "feature_space", "conjugate_gradients", "samples")


class preconditioner(_value_context):  # noqa: N801 (settings are spelled as GPyTorch's)
    """
    Which preconditioner conjugate gradients use from linear_operator's `min_preconditioning_size` rows on, 2,000 by
    default (Default: `"nystrom"`).

    - `"nystrom"`: a randomized Nystrom factor; has a log determinant, so training uses it too.
    - `"partition"`: the average of the partitions' own inverses (Davies & Ghahramani 2014, eq. 9 and 10,
      corrected); for solves on flat partitions only, training runs without one.
    - `"none"`.

    See :mod:`gpytorch_partition.operators.preconditioners` for what each costs and gains.

    :param value: One of these.
    :raises ValueError: If it is none of them. With `"partition"`, solves for trees (`heights="all"`) and sums raise
        one.

    Example:
        >>> with preconditioner("none"):
        ...     preconditioner.value()
        'none'
    """

    _global_value: str = "nystrom"

    def __init__(self, value: str) -> None:
        if value not in PRECONDITIONERS:
            raise ValueError(f"expected a preconditioner among {PRECONDITIONERS}, got {value!r}")
        super().__init__(value)


class preconditioner_rank(_value_context):  # noqa: N801
    """
    Rank of the Nystrom preconditioner (Default: 100).

    A rank of l costs l products with the kernel and O(N l^2) once, O(N l) in every iteration and right-hand side, and
    l numbers held per row, three times as many during the set-up. Where 128 or more samples are solved for, for
    variances or by name, a rank of 4 l is used, up to 2 GiB.

    Example:
        >>> with preconditioner_rank(50):
        ...     preconditioner_rank.value()
        50
    """

    _global_value: int = 100


class probe_seed(_value_context):  # noqa: N801
    """
    Seed of the probe vectors of log determinants and of the Nystrom sketch (Default: 0).

    One seed gives the same probes at every call, which makes the marginal likelihood a smooth deterministic function
    of the hyperparameters (fit for L-BFGS) without reading the global random state. Any integer will do.

    Example:
        >>> with probe_seed(7):
        ...     probe_seed.value()
        7
    """

    _global_value: int = 0


class variance_tolerance(_value_context):  # noqa: N801
    """
    Relative accuracy of predictive variances found by conjugate gradients (Default: 0.01).

    Each test point's solve runs until its latent variance is certain to be within this fraction of the exact one;
    errors are on the side of too large a variance. A pathwise sample's solve runs until the variance of its error,
    averaged over the training rows by their precision, is about this fraction of its own at most; in float32 rounding
    allows no noise below some 1e-7 outputscales. A smaller one costs more iterations, O(N m) each for a test point or a
    sample.

    :param value: Above 0 and below 1.
    :raises ValueError: If it is not.

    Example:
        >>> with variance_tolerance(0.1):
        ...     variance_tolerance.value()
        0.1
    """

    _global_value: float = 0.01

    def __init__(self, value: float) -> None:
        if not 0 < value < 1:
            raise ValueError(f"expected a variance_tolerance above 0 and below 1, got {value!r}")
        super().__init__(value)


class num_variance_samples(_value_context):  # noqa: N801
    r"""
    Pathwise samples that predictive variances are estimated from (Default: 512).

    Each costs a solve, however many points there are. A variance (without the noise) is within :math:`\sqrt{2 / n}` of
    the exact one, a standard deviation within half of that (one standard error): 3.1 % for 512 samples.

    Raises `ValueError` for less than two.

    Example:
        >>> with num_variance_samples(128):
        ...     num_variance_samples.value()
        128
    """

    _global_value: int = 512

    def __init__(self, value: int) -> None:
        if not value >= 2:
            raise ValueError(f"expected num_variance_samples of at least 2, got {value!r}")
        super().__init__(value)


class predictive_variances(_value_context):  # noqa: N801
    """
    How predictive variances are computed above `max_cholesky_size` training rows (Default: `"auto"`).

    - `"feature_space"`: exact, from counts of clusters
      (:class:`~gpytorch_partition.inference.feature_space.feature_space.FeatureSpace`); for one partition kernel with
      one level of noise. Chosen for up to 20,000 clusters, if the `40 p^2` bytes that they take meanwhile fit in half
      of the memory; 12,000 clusters take half a minute.
    - `"conjugate_gradients"`: a solve per point, to :class:`variance_tolerance`, never too small.
    - `"samples"`: from :class:`num_variance_samples` pathwise samples, solved to :class:`variance_tolerance`.
    - `"auto"`: what is expected to be fastest; samples only for more points than samples.

    Raises `ValueError` for any other value.
    """

    _global_value: str = "auto"

    def __init__(self, value: str) -> None:
        if value not in VARIANCES:
            raise ValueError(f"expected predictive_variances to be one of {VARIANCES}, got {value!r}")
        super().__init__(value)


class iterative:  # noqa: N801
    r"""
    Solver settings that make the marginal likelihood and its gradient right for partition kernels.

    GPyTorch's own defaults (relative residual 1, 20 Lanczos steps) and solver leave the gradient with respect to the
    noise 28 % off and the likelihood .05 nats per datum too high on a forest kernel, because the spectrum of these
    kernels decays slowly. BoTorch, once imported, turns iterative solvers off altogether. Inside this context:

    - conjugate gradients rather than Cholesky above 2,000 rows, whatever BoTorch has set;
    - relative residuals of 1e-2 in training and 1e-4 for predictive means, in every column;
    - up to 100 Lanczos steps in log determinants;
    - joint covariances of more than 512 training and test rows stay lazy, whatever BoTorch has set.

    As all settings of GPyTorch these belong to the process, not to a thread.

    Settings given inside the context win over these; the context entered again inside itself changes nothing, so
    that they also win inside functions that enter it. Cost: about 3 times the products of GPyTorch's defaults.

    Example:
        >>> import gpytorch, linear_operator
        >>> with iterative(), linear_operator.settings.cg_tolerance(1e-3):
        ...     linear_operator.settings.cg_tolerance.value()
        0.001
    """

    _depth = 0

    def __init__(self) -> None:
        self._stacks: list[ExitStack] = []

    def __enter__(self) -> iterative:
        self._stacks.append(ExitStack())
        if iterative._depth == 0:
            for context in self._contexts():
                self._stacks[-1].enter_context(context)
        iterative._depth += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        iterative._depth -= 1
        self._stacks.pop().close()

    @staticmethod
    def _contexts() -> list[Any]:
        return [
            linear_operator.settings.fast_computations(covar_root_decomposition=True, log_prob=True, solves=True),
            linear_operator.settings.max_cholesky_size(2000),
            linear_operator.settings.cg_tolerance(1e-2),
            linear_operator.settings.max_lanczos_quadrature_iterations(100),
            gpytorch.settings.eval_cg_tolerance(1e-4),
            gpytorch.settings.max_eager_kernel_size(512),
        ]


__all__ = [
    "iterative",
    "num_variance_samples",
    "predictive_variances",
    "preconditioner",
    "preconditioner_rank",
    "probe_seed",
    "variance_tolerance",
]
