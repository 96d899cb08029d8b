"""
Solver settings: thread-safe context managers in the manner of `gpytorch.settings`.

Settings with a value (:class:`preconditioner`, :class:`probe_seed`, ...) are local to the thread (and to the asyncio
task) that enters them. A new thread begins with the defaults, as do those in which PyTorch computes gradients on a GPU;
`contextvars.copy_context().run(...)` takes the settings of its parent along. :class:`iterative` and :class:`no_debug`,
which set GPyTorch's, are counted: the first thread to enter sets them, the last one to leave restores them, and
meanwhile they hold in all threads. Contexts of `gpytorch.settings` and `linear_operator.settings` themselves are unsafe
in threads that overlap: enter them once, around all threads.
"""

from __future__ import annotations

import os
import threading
from contextvars import ContextVar
from types import TracebackType
from typing import Any, ClassVar

import gpytorch
import linear_operator
from linear_operator.settings import _value_context

PRECONDITIONERS = ("nystrom", "partition", "none")
VARIANCES = ("auto", "feature_space", "factor", "conjugate_gradients", "samples")


class _local_value(_value_context):  # noqa: N801
    """A setting whose value holds in the thread (and asyncio task) that enters it; the default is the process's."""

    _entered: ClassVar[ContextVar[tuple[tuple[object, Any], ...]]]

    def __init_subclass__(cls) -> None:
        cls._entered = ContextVar(cls.__name__, default=())

    @classmethod
    def value(cls) -> Any:
        """Return the value of the innermost context around the call, or the default."""
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
        self._leave(list(getattr(self, "_marks", ())))  # as in :class:`_counted`

    def _leave(self, marks: list[object]) -> None:
        for mark in marks:
            self._entered.set(tuple(entry for entry in self._entered.get() if entry[0] is not mark))
            self._marks.remove(mark)


class preconditioner(_local_value):  # noqa: N801 (named in lower case, as GPyTorch's settings)
    """
    Set the preconditioner of conjugate gradients (Default: `"nystrom"`).

    Use it to set `"none"` where a preconditioner costs more time than it saves, as for forests of leaves. It has an
    effect from `min_preconditioning_size` rows on, a setting of linear_operator.

    - `"nystrom"`: a low-rank factor of the kernel matrix (randomized Nystrom), for solves and for training.
    - `"partition"`: the average of the partitions' own inverses (Davies & Ghahramani 2014, eq. 9 and 10, corrected);
      for solves with flat partitions, not for training.
    - `"none"`: plain conjugate gradients.

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
    Set the rank of the Nystrom preconditioner (Default: 100).

    Use it to lower the rank where memory is short, or to raise it where one set-up serves many solves. A rank of l
    costs l products with the kernel and O(N l^2) once, O(N l) in every iteration and right-hand side, and l numbers per
    row, three times as many during the set-up. Solves for predictions use a rank of 4 l, 400 and half a GiB at most,
    where that is expected to save 30 iterations and 30 %; those for 128 or more posterior samples always use 4 l, up to
    a GiB.

    :raises ValueError: If it is less than 1.
    """

    _global_value: int = 100

    def __init__(self, value: int) -> None:
        if not value >= 1:
            raise ValueError(f"expected a preconditioner_rank of 1 or more, got {value!r}: try preconditioner('none')")
        super().__init__(value)


class probe_seed(_local_value):  # noqa: N801
    """
    Set the seed of probe vectors for log determinants, of the Nystrom sketch and of samples for variances (Default: 0).

    Use it to compare a few seeds, which shows how much a fit or a variance depends on chance. One seed gives the same
    probes at every call, as L-BFGS needs.

    Example:
        >>> with probe_seed(1):
        ...     probe_seed.value()
        1
    """

    _global_value: int = 0


class variance_tolerance(_local_value):  # noqa: N801
    """
    Set the relative accuracy of predictive variances found by conjugate gradients, above 0 and below 1 (Default: 0.01).

    Use it for intervals more exact than 1 % of the latent variance, or for faster ones. Each test point's solve runs
    until its latent variance is certain to be within this fraction of the exact one; variances are never too small. A
    pathwise sample's solve runs until the variance of its error, averaged over the training rows by their precision, is
    at most about this fraction of the sample's own variance. Where the noise is too small for float32 or conjugate
    gradients, solves are in float64, by a factor for up to 6,000 rows or clusters.

    :raises ValueError: If it is not.
    """

    _global_value: float = 0.01

    def __init__(self, value: float) -> None:
        if not 0 < value < 1:
            raise ValueError(f"expected a variance_tolerance above 0 and below 1, got {value!r}")
        super().__init__(value)


class num_variance_samples(_local_value):  # noqa: N801
    r"""
    Set the number of pathwise samples for estimates of predictive variances, two at least (Default: 512).

    Use it for more exact variances of very many points, or for faster ones. Each costs one solve, for any number of
    points. A variance (without the noise) is within :math:`\sqrt{2 / n}` of the exact one, a standard deviation within
    half of that (one standard error): 3.1 % for 512 samples. Draws are kept with a model, up to 2 GiB. Forests over
    several heights take fewer draws, of another kind, for the same error on average. Estimators take as many as
    deviations of new observations need, to within 3 % at 95 % of points, but no more than this number.

    :raises ValueError: If it is less than two.
    """

    _global_value: int = 512

    def __init__(self, value: int) -> None:
        if not value >= 2:
            raise ValueError(f"expected num_variance_samples of at least 2, got {value!r}")
        super().__init__(value)


class predictive_variances(_local_value):  # noqa: N801
    """
    Set the method of predictive variances above `max_cholesky_size` training rows (Default: `"auto"`).

    Use it where estimates from samples are too inexact, or to compare the methods.

    - `"feature_space"`: exact, from co-occurrence counts of clusters, for one partition kernel with one level of noise.
      `"auto"` takes it for up to 20,000 clusters, if its workspace of `40 p^2` bytes fits in half of the memory.
    - `"factor"`: exact, from a factor of the coefficients of a sum's columns
      (:class:`~gpytorch_partition.solvers.direct.FeatureFactor`); for sums of inducing points, linear kernels
      and coarse trees, 6,000 columns at most in all, and noise that float64 resolves.
    - `"conjugate_gradients"`: one solve per test point, to :class:`variance_tolerance`, never too small.
    - `"samples"`: from :class:`num_variance_samples` pathwise samples, solved to :class:`variance_tolerance`.
    - `"auto"`: the method expected to be fastest; samples only for more test points than samples.

    :raises ValueError: If it is any other value.

    Example:
        >>> with predictive_variances("conjugate_gradients"), variance_tolerance(1e-3):
        ...     predictive_variances.value(), variance_tolerance.value()
        ('conjugate_gradients', 0.001)
    """

    _global_value: str = "auto"

    def __init__(self, value: str) -> None:
        if value not in VARIANCES:
            raise ValueError(f"expected predictive_variances to be one of {VARIANCES}, got {value!r}")
        super().__init__(value)


_LOCK = threading.RLock()
_KINDS: list[type[_counted]] = []  # of counted contexts; the values of each hide those of the ones before
if hasattr(os, "register_at_fork"):  # where a thread may hold the lock as the process is forked
    os.register_at_fork(after_in_child=_LOCK._at_fork_reinit)  # type: ignore[attr-defined]


class _counted:  # noqa: N801
    """Values of GPyTorch's settings that the first thread to enter sets and the last one to leave restores."""

    _marks: ClassVar[set[object]]  # one for each context that is entered
    _before: ClassVar[dict[Any, Any]]  # values outside; empty while no context is entered

    def __init_subclass__(cls) -> None:
        cls._marks, cls._before = set(), {}
        _KINDS.append(cls)

    def __init__(self) -> None:
        self._own: list[object] = []

    @classmethod
    def _values(cls) -> dict[Any, Any]:
        raise NotImplementedError

    def __enter__(self) -> Any:
        mark = object()
        self._own.append(mark)
        with _LOCK:
            is_first = not self._marks
            self._marks.add(mark)
            for setting, value in self._values().items() if is_first else ():
                self._before[setting] = self._read(setting)
                self._write(setting, value)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave(self._own[-1:])

    def __del__(self) -> None:
        self._leave(list(getattr(self, "_own", ())))  # an interruption came before the first line of `__exit__`

    def _leave(self, marks: list[object]) -> None:
        with _LOCK:
            for mark in marks:
                if self._marks == {mark}:
                    for setting, value in self._before.items():
                        self._write(setting, value)
                    self._before.clear()
                self._marks.discard(mark)
                self._own.remove(mark)

    @classmethod
    def _read(cls, setting: Any) -> Any:
        kind = cls._hiding(setting)
        return kind._before[setting] if kind else getattr(setting, _attribute(setting))

    @classmethod
    def _write(cls, setting: Any, value: Any) -> None:
        if kind := cls._hiding(setting):
            kind._before[setting] = value
        else:
            setattr(setting, _attribute(setting), value)

    @classmethod
    def _hiding(cls, setting: Any) -> type[_counted] | None:
        """Return a later kind that is entered and sets `setting` too."""
        return next((kind for kind in _KINDS[_KINDS.index(cls) + 1 :] if setting in kind._before), None)


def _attribute(setting: Any) -> str:
    return "_state" if hasattr(setting, "_state") else "_global_value"


class iterative(_counted):  # noqa: N801
    """
    Compute by dense algebra up to 2,000 rows (GPyTorch: 800), and by iterative solvers above, also with BoTorch.

    Use it around training loops and predictions of your own models, above all where BoTorch is imported, which turns
    iterative solvers off and raises `max_cholesky_size` to 4,096. Fits and estimators of this package enter it
    themselves. Inside, conjugate gradients solve above 2,000 rows, with relative residuals of 1e-2 in training and 1e-4
    in predictions; log determinants take up to 100 Lanczos steps; joint covariances of more than 512 rows stay lazy.
    Settings given inside override these.

    Example:
        >>> with iterative(), linear_operator.settings.cg_tolerance(1e-3):
        ...     linear_operator.settings.cg_tolerance.value()
        0.001
    """

    @classmethod
    def _values(cls) -> dict[Any, Any]:
        return {
            linear_operator.settings._fast_covar_root_decomposition: True,
            linear_operator.settings._fast_log_prob: True,
            linear_operator.settings._fast_solves: True,
            linear_operator.settings.max_cholesky_size: 2000,
            linear_operator.settings.cg_tolerance: 1e-2,
            linear_operator.settings.max_lanczos_quadrature_iterations: 100,
            gpytorch.settings.eval_cg_tolerance: 1e-4,
            gpytorch.settings.max_eager_kernel_size: 512,
        }


class no_debug(_counted):  # noqa: N801
    """
    Set `gpytorch.settings.debug(False)`, counted as :class:`iterative` is.

    Use it around predictions at training inputs, about which GPyTorch warns.
    """

    @classmethod
    def _values(cls) -> dict[Any, Any]:
        return {gpytorch.settings.debug: False}


class eager_kernels(_counted):  # noqa: N801
    """Set `gpytorch.settings.lazily_evaluate_kernels(False)`, counted as :class:`iterative` is."""

    @classmethod
    def _values(cls) -> dict[Any, Any]:
        return {gpytorch.settings.lazily_evaluate_kernels: False}


class predictions(_counted):  # noqa: N801
    """
    Set `cg_tolerance(eval_cg_tolerance.value())`, counted as :class:`iterative` is, for several predictions.

    Threads that train meanwhile read :meth:`tolerance_outside`.
    """

    @classmethod
    def _values(cls) -> dict[Any, Any]:
        return {linear_operator.settings.cg_tolerance: gpytorch.settings.eval_cg_tolerance.value()}

    @classmethod
    def tolerance_outside(cls) -> float:
        """Return the `cg_tolerance` outside predictions."""
        setting = linear_operator.settings.cg_tolerance
        with _LOCK:
            return cls._before.get(setting, setting.value())


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
