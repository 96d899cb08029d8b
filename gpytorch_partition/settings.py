"""
Solver settings, as context managers in the manner of `gpytorch.settings`, which several threads may be inside at once.

GPyTorch's own settings belong to the process: a context saves the value when it is made and restores it when it is
left, so that two threads which overlap in the same one see each other's values, and may leave one of them behind for
ever. Nothing here can change that. What is safe:

- Settings of this package with a value (:class:`preconditioner`, :class:`probe_seed`, ...) are local to the thread (and
  to the asyncio task) that enters them. A new thread begins with the defaults, as do those in which PyTorch computes
  gradients on a GPU; `contextvars.copy_context().run(...)` takes the settings of its parent along.
- :class:`iterative` and :class:`no_debug`, which are about GPyTorch's, are local to the thread that is inside too. So
  are contexts of the same settings of GPyTorch that are entered inside them. A new thread enters them itself.
- Contexts that GPyTorch enters by itself, as it evaluates kernels and predicts, are local to its thread
  (:mod:`gpytorch_partition.thread_settings`).

What is not: contexts of `gpytorch.settings` and `linear_operator.settings` that you enter elsewhere, in threads that
overlap. Enter them once, around all threads.
"""

from __future__ import annotations

from contextvars import ContextVar
from types import TracebackType
from typing import Any, ClassVar

import gpytorch
import linear_operator
from linear_operator.settings import _value_context

from gpytorch_partition.thread_settings import hold, is_held, is_inside, localized, release

PRECONDITIONERS = ("nystrom", "partition", "none")
VARIANCES = ("auto", "feature_space", "factor", "conjugate_gradients", "samples")


class _local_value(_value_context):  # noqa: N801
    """A setting whose value holds in the thread (and asyncio task) that enters it; the default is the process's."""

    _entered: ClassVar[ContextVar[tuple[tuple[object, Any], ...]]]

    def __init_subclass__(cls) -> None:
        cls._entered = ContextVar(cls.__name__, default=())

    @classmethod
    def value(cls) -> Any:
        """The value of the innermost context around the call, or the default."""
        entered = cls._entered.get()
        return entered[-1][1] if entered else cls._global_value

    def __init__(self, value: Any) -> None:
        self._value, self._marks = value, list[object]()

    def __enter__(self) -> None:
        mark = object()
        self._marks.append(mark)
        self._entered.set((*self._entered.get(), (mark, self._value)))

    def __exit__(self, *args: Any) -> None:
        own = [mark for mark, _ in self._entered.get() if mark in self._marks]
        self._leave(own[-1:])

    def __del__(self) -> None:
        self._leave(list(getattr(self, "_marks", ())))  # as of :class:`_local`

    def _leave(self, marks: list[object]) -> None:
        for mark in marks:
            self._entered.set(tuple(entry for entry in self._entered.get() if entry[0] is not mark))
            self._marks.remove(mark)


class preconditioner(_local_value):  # noqa: N801 (named in lower case, as GPyTorch's settings)
    """
    Which preconditioner conjugate gradients use from linear_operator's `min_preconditioning_size` rows on, 2,000 by
    default (Default: `"nystrom"`).

    Use it to do without one where it does not pay, as with the leaves of a forest, or to compare them.

    - `"nystrom"`: a randomized Nystrom factor; has a log determinant, so training uses it too.
    - `"partition"`: the average of the partitions' own inverses (Davies & Ghahramani 2014, eq. 9 and 10,
      corrected); for solves on flat partitions only, training runs without one.
    - `"none"`.

    See :mod:`gpytorch_partition.operators.preconditioners` for what each costs and gains.

    :param value: One of these.
    :raises ValueError: If it is none of them. With `"partition"`, solves with trees (`heights="all"`) and with sums of
        kernels raise one too.

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


class preconditioner_rank(_local_value):  # noqa: N801
    """
    Rank of the Nystrom preconditioner (Default: 100).

    Use it with less where memory is short, and with more where one set-up serves many solves; for a single solve, 50 to
    100 was fastest.

    A rank of l costs l products with the kernel and O(N l^2) once, O(N l) in every iteration and right-hand side, and
    l numbers held per row, three times as many during the set-up. Where 128 or more posterior samples are solved for,
    for variances or because they were asked for, a rank of 4 l is used, up to 2 GiB.

    Example:
        >>> with preconditioner_rank(50):
        ...     preconditioner_rank.value()
        50
    """

    _global_value: int = 100


class probe_seed(_local_value):  # noqa: N801
    """
    Seed of the probe vectors of log determinants, of the Nystrom sketch and of samples for variances (Default: 0).

    Use it to see how far a fit or a variance depends on what was drawn: compare those of a few seeds.

    One seed gives the same probes at every call, which makes the marginal likelihood a smooth deterministic function
    of the hyperparameters (as L-BFGS needs) without reading the global random state. Any integer is allowed.

    Example:
        >>> with probe_seed(7):
        ...     probe_seed.value()
        7
    """

    _global_value: int = 0


class variance_tolerance(_local_value):  # noqa: N801
    """
    Relative accuracy of predictive variances found by conjugate gradients (Default: 0.01).

    Use it where intervals must be more exact than 1 % of the latent variance, or may be less exact and faster.

    Each test point's solve runs until its latent variance is certain to be within this fraction of the exact one;
    variances are never too small. A pathwise sample's solve runs until the variance of its error, averaged over the
    training rows by their precision, is at most about this fraction of the sample's own variance. What float32 or
    conjugate gradients do not reach at a tiny noise is computed in float64, by a factor for up to 6,000 rows or
    clusters. A smaller tolerance costs more iterations, O(N m) each for a test point or a sample.

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


class num_variance_samples(_local_value):  # noqa: N801
    r"""
    Number of pathwise samples that predictive variances are estimated from (Default: 512).

    Use it where variances of very many points must be more exact (four times as many samples halve the error), or may
    be less exact and faster.

    Each costs one solve, for any number of points. A variance (without the noise) is within :math:`\sqrt{2 / n}` of
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


class predictive_variances(_local_value):  # noqa: N801
    """
    How predictive variances are computed above `max_cholesky_size` training rows (Default: `"auto"`).

    Use it where estimates from samples will not do, or to compare the methods.

    - `"feature_space"`: exact, from co-occurrence counts of clusters
      (:class:`~gpytorch_partition.inference.feature_space.feature_space.FeatureSpace`); for one partition kernel with
      one level of noise. `"auto"` takes it for up to 20,000 clusters, if its workspace of `40 p^2` bytes fits in
      half of the memory; 12,000 clusters take half a minute.
    - `"factor"`: exact, from a factor of the coefficients of a sum's columns
      (:class:`~gpytorch_partition.operators.feature_factor.FeatureFactor`); for sums of inducing points, linear kernels
      and coarse trees, 6,000 columns at most in all, and noise that float64 resolves.
    - `"conjugate_gradients"`: one solve per test point, to :class:`variance_tolerance`, never too small.
    - `"samples"`: from :class:`num_variance_samples` pathwise samples, solved to :class:`variance_tolerance`.
    - `"auto"`: the method expected to be fastest; samples only for more test points than samples.

    Raises `ValueError` for any other value.
    """

    _global_value: str = "auto"

    def __init__(self, value: str) -> None:
        if value not in VARIANCES:
            raise ValueError(f"expected predictive_variances to be one of {VARIANCES}, got {value!r}")
        super().__init__(value)


class _local:  # noqa: N801
    """Values for settings of GPyTorch that hold in the thread (and asyncio task) that is inside, in any order."""

    _values: ClassVar[dict[Any, Any]]

    def __init__(self) -> None:
        self._marks: list[object] = []

    def __enter__(self) -> Any:
        # Inside itself it changes nothing, so that values given in between still hold.
        self._marks.append(hold({} if is_inside(type(self)) else self._values, type(self)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if own := [mark for mark in self._marks if is_held(mark)]:
            self._leave(own[-1])

    def _leave(self, mark: object) -> None:
        release(mark)
        self._marks.remove(mark)

    def __del__(self) -> None:
        for mark in list(self._marks):  # left where an interruption came before the first line of `__exit__`
            self._leave(mark)


class iterative(_local):  # noqa: N801
    r"""
    Dense algebra up to 2,000 rows (GPyTorch: 800), and above it iterative solvers, also where BoTorch is imported.

    Use it around training loops and predictions of your own models, above all where BoTorch is imported; fits and
    estimators of this package are inside by themselves.

    BoTorch, once imported, turns iterative solvers off and raises `max_cholesky_size` to 4,096. Inside this context:

    - conjugate gradients rather than Cholesky above 2,000 rows, whatever BoTorch has set;
    - relative residuals of 1e-2 in training and 1e-4 in predictions, in every column, and up to 100 Lanczos steps in
      log determinants, for all kernels; solves with a partition kernel are that accurate outside too
      (:mod:`gpytorch_partition.operators.accuracy`);
    - joint covariances of more than 512 training and test rows stay lazy, whatever BoTorch has set.

    These settings of GPyTorch are global to the process elsewhere; inside, they belong to the thread: others see
    nothing of them, and a thread that is started inside is outside, until it enters the context itself.

    Settings given inside the context override these, also inside functions that enter the context again: entering it
    inside itself changes nothing.

    Example:
        >>> import gpytorch, linear_operator
        >>> with iterative(), linear_operator.settings.cg_tolerance(1e-3):
        ...     linear_operator.settings.cg_tolerance.value()
        0.001
    """

    _values: ClassVar[dict[Any, Any]] = {
        localized(linear_operator.settings._fast_covar_root_decomposition): True,
        localized(linear_operator.settings._fast_log_prob): True,
        localized(linear_operator.settings._fast_solves): True,
        localized(linear_operator.settings.max_cholesky_size): 2000,
        localized(linear_operator.settings.cg_tolerance): 1e-2,
        localized(linear_operator.settings.max_lanczos_quadrature_iterations): 100,
        localized(gpytorch.settings.eval_cg_tolerance): 1e-4,
        localized(gpytorch.settings.max_eager_kernel_size): 512,
    }


class no_debug(_local):  # noqa: N801
    """
    `gpytorch.settings.debug(False)`, local to a thread as :class:`iterative` is.

    Use it around code that predicts at training inputs on purpose, which GPyTorch warns of.

    Example:
        >>> with no_debug():
        ...     gpytorch.settings.debug.on()
        False
    """

    _values: ClassVar[dict[Any, Any]] = {localized(gpytorch.settings.debug): False}


__all__ = [
    "iterative",
    "no_debug",
    "num_variance_samples",
    "predictive_variances",
    "preconditioner",
    "preconditioner_rank",
    "probe_seed",
    "variance_tolerance",
]
