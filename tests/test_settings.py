"""Settings when several threads are inside them at once: every step is ordered by events, none by time."""

from __future__ import annotations

import threading

import gpytorch
import linear_operator
import pytest

from gpytorch_partition import settings

WATCHED = {
    "covar_root_decomposition": linear_operator.settings.fast_computations.covar_root_decomposition.on,
    "log_prob": linear_operator.settings.fast_computations.log_prob.on,
    "solves": linear_operator.settings.fast_computations.solves.on,
    "max_cholesky_size": linear_operator.settings.max_cholesky_size.value,
    "cg_tolerance": linear_operator.settings.cg_tolerance.value,
    "lanczos": linear_operator.settings.max_lanczos_quadrature_iterations.value,
    "eval_cg_tolerance": gpytorch.settings.eval_cg_tolerance.value,
    "max_eager_kernel_size": gpytorch.settings.max_eager_kernel_size.value,
    "debug": gpytorch.settings.debug.on,
    "lazily_evaluate_kernels": gpytorch.settings.lazily_evaluate_kernels.on,
}


def _watched():
    return {name: read() for name, read in WATCHED.items()}


class _Thread:
    """A thread that does one step at a time, when told."""

    def __init__(self):
        self._step, self._told, self._done, self._error = None, threading.Event(), threading.Event(), None
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self._thread.start()

    def _loop(self):
        while True:
            self._told.wait()
            self._told.clear()
            if self._step is None:
                return
            try:
                self._result, self._error = self._step(), None
            except BaseException as error:
                self._error = error
            self._done.set()

    def do(self, step):
        self._step = step
        self._told.set()
        assert self._done.wait(60)
        self._done.clear()
        if self._error is not None:
            raise self._error
        return self._result

    def stop(self):
        self._step = None
        self._told.set()
        self._thread.join(60)


@pytest.fixture
def threads():
    both = _Thread(), _Thread()
    yield both
    for thread in both:
        thread.stop()


@pytest.mark.parametrize("context", [settings.iterative, settings.no_debug, settings.eager_kernels])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["first out first", "last out first"])
def test_threads_that_overlap_share_the_settings_and_the_last_restores_them(threads, context, order):
    before = _watched()
    with context():
        inside = _watched()
    assert inside != before
    contexts = context(), context()
    for thread, entered in zip(threads, contexts):
        thread.do(entered.__enter__)
    for number in order:
        assert threads[number].do(_watched) == inside
        threads[number].do(lambda number=number: contexts[number].__exit__(None, None, None))
    assert _watched() == before


def test_an_inner_override_ends_where_it_should(threads):
    before, tolerance = _watched(), linear_operator.settings.cg_tolerance
    outer, other = settings.iterative(), settings.iterative()
    threads[0].do(outer.__enter__)
    threads[1].do(other.__enter__)
    inner = threads[0].do(lambda: tolerance(1e-3))
    threads[0].do(inner.__enter__)
    with settings.iterative():
        assert tolerance.value() == 1e-3
    threads[0].do(lambda: inner.__exit__(None, None, None))
    assert tolerance.value() == 1e-2
    threads[0].do(lambda: outer.__exit__(None, None, None))
    assert threads[1].do(tolerance.value) == 1e-2
    threads[1].do(lambda: other.__exit__(None, None, None))
    assert _watched() == before


@pytest.mark.parametrize("first_in", [0, 1], ids=["predictions first", "iterative first"])
@pytest.mark.parametrize("first_out", [0, 1], ids=["predictions first", "iterative first"])
def test_predictions_hide_other_tolerances_but_from_training(threads, first_in, first_out):
    before, tolerance = _watched(), linear_operator.settings.cg_tolerance
    contexts = settings.predictions(), settings.iterative()
    for number in (first_in, 1 - first_in):
        threads[number].do(contexts[number].__enter__)
    wanted = 1e-4 if first_in else before["eval_cg_tolerance"]
    assert (tolerance.value(), settings.predictions.tolerance_outside()) == (wanted, 1e-2)
    threads[first_out].do(lambda: contexts[first_out].__exit__(None, None, None))
    left = wanted if first_out else 1e-2
    outside = before["cg_tolerance"] if first_out else 1e-2
    assert (tolerance.value(), settings.predictions.tolerance_outside()) == (left, outside)
    threads[1 - first_out].do(lambda: contexts[1 - first_out].__exit__(None, None, None))
    assert _watched() == before


def test_a_context_whose_exit_is_interrupted_ends_when_it_is_forgotten():
    before = _watched()
    context = settings.iterative()
    context.__enter__()
    del context  # the statement `with` forgets it where an interruption comes before the first line of `__exit__`
    assert _watched() == before


@pytest.mark.parametrize(
    ("setting", "values"),
    [
        (settings.preconditioner, ("none", "partition")),
        (settings.preconditioner_rank, (7, 8)),
        (settings.probe_seed, (7, 8)),
        (settings.variance_tolerance, (0.2, 0.3)),
        (settings.num_variance_samples, (7, 8)),
        (settings.predictive_variances, ("samples", "feature_space")),
    ],
)
def test_a_setting_of_this_package_is_local_to_its_thread(threads, setting, values):
    default = setting.value()
    contexts = [setting(value) for value in values]
    for thread, context in zip(threads, contexts):
        thread.do(context.__enter__)
    assert [thread.do(setting.value) for thread in threads] == list(values)
    assert setting.value() == default
    for thread, context in zip(threads, contexts):
        thread.do(lambda context=context: context.__exit__(None, None, None))
        assert thread.do(setting.value) == default


def test_one_context_can_be_entered_again():
    setting = settings.probe_seed(5)
    with setting, settings.probe_seed(6), setting:
        assert settings.probe_seed.value() == 5
        settings.probe_seed._set_value(1)  # the default of the process, as of any setting of GPyTorch
    assert settings.probe_seed.value() == 1
    settings.probe_seed._set_value(0)
