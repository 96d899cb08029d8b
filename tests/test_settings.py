"""Settings when several threads are inside them at once: every step is ordered by events, none by time."""

from __future__ import annotations

import _thread
import threading
from contextlib import nullcontext

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


@pytest.mark.parametrize("context", [settings.iterative, settings.no_debug])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["first out first", "last out first"])
def test_threads_that_overlap_are_inside_for_themselves(threads, context, order):
    before = _watched()
    with context():
        inside = _watched()
    assert inside != before
    contexts = context(), context()
    for thread, entered in zip(threads, contexts):
        thread.do(entered.__enter__)
    for number in order:
        assert threads[number].do(_watched) == inside
        assert _watched() == before
        threads[number].do(lambda number=number: contexts[number].__exit__(None, None, None))
        assert threads[number].do(_watched) == before
    assert _watched() == before


def test_an_inner_override_ends_where_it_should(threads):
    before, tolerance = _watched(), linear_operator.settings.cg_tolerance
    outer, other = settings.iterative(), settings.iterative()
    threads[0].do(outer.__enter__)
    threads[1].do(other.__enter__)
    inner = threads[0].do(lambda: tolerance(1e-3))
    threads[0].do(inner.__enter__)
    with settings.iterative():
        assert tolerance.value() == 1e-2
    assert threads[0].do(_nested) == 1e-3
    assert threads[1].do(_nested) == 1e-2
    threads[0].do(lambda: inner.__exit__(None, None, None))
    assert threads[0].do(tolerance.value) == 1e-2
    assert tolerance.value() == before["cg_tolerance"]
    threads[0].do(lambda: outer.__exit__(None, None, None))
    assert threads[1].do(tolerance.value) == 1e-2
    threads[1].do(lambda: other.__exit__(None, None, None))
    assert _watched() == before


def _nested():
    with settings.iterative():
        return linear_operator.settings.cg_tolerance.value()


def test_contexts_of_gpytorch_inside_belong_to_the_thread_and_outside_to_the_process(threads):
    size, solves = linear_operator.settings.max_cholesky_size, linear_operator.settings.fast_computations
    with size(5), solves(solves=False):
        assert (threads[0].do(size.value), threads[0].do(solves.solves.on)) == (5, False)
        with settings.iterative():
            assert (size.value(), solves.solves.on()) == (2000, True)
            with size(7), solves(solves=False):
                assert (size.value(), solves.solves.on(), solves.solves.off()) == (7, False, True)
                assert (threads[0].do(size.value), threads[0].do(solves.solves.on)) == (5, False)
            assert (size.value(), solves.solves.on()) == (2000, True)
            size._set_value(9)
            assert (size.value(), threads[0].do(size.value)) == (9, 5)
        assert (size.value(), solves.solves.on()) == (5, False)
    assert (size.value(), solves.solves.on()) == (800, True)


def test_threads_that_python_does_not_know_see_the_newest():
    # PyTorch computes gradients on a GPU in such threads.
    found, done = [], threading.Event()

    def look():
        found.append(_watched())
        done.set()

    before = _watched()
    for context, wanted in ((settings.iterative(), 1e-3), (nullcontext(), before["cg_tolerance"])):
        with context, linear_operator.settings.cg_tolerance(wanted):
            _thread.start_new_thread(look, ())
            assert done.wait(60)
            done.clear()
    assert found[0]["max_cholesky_size"] == 2000
    assert found[0]["cg_tolerance"] == 1e-3
    assert found[1] == before


def test_a_context_whose_exit_is_interrupted_ends_when_it_is_forgotten():
    before = _watched()
    context = settings.iterative()
    context.__enter__()
    del context  # the statement `with` forgets it where an interruption comes before the first line of `__exit__`
    assert _watched() == before


def test_many_threads_at_once_leave_the_process_as_it_was():
    before, seen = _watched(), set()
    barrier = threading.Barrier(8)

    def work():
        barrier.wait()
        for _ in range(200):
            with settings.iterative():
                seen.add(linear_operator.settings.cg_tolerance.value())

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {1e-2}
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
