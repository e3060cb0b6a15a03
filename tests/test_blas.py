"""One thread for linear algebra, and as many as before when nobody needs that any more."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from sklearn.base import clone
from threadpoolctl import ThreadpoolController

from noisewise import BayesianFactorizer
from noisewise.engine.training import one_blas_thread


def blas_threads():
    return {one["num_threads"] for one in ThreadpoolController().select(user_api="blas").info()}


@pytest.fixture
def three():
    """Three threads, whatever the machine has, and free for anybody to change."""
    before = max(blas_threads(), default=0)
    if not before:
        pytest.skip("there is no BLAS whose threads could be told")
    in_another_thread(ThreadpoolController().limit, limits=3, user_api="blas")
    assert blas_threads() == {3}
    yield
    in_another_thread(ThreadpoolController().limit, limits=before, user_api="blas")


def in_another_thread(work, **named):
    """Do something in a thread that has ended when it is done."""
    thread = threading.Thread(target=work, kwargs=named)
    thread.start()
    thread.join()


def test_blas_has_one_thread_inside_and_as_many_as_before_outside(three):
    with one_blas_thread():
        assert blas_threads() == {1}
        with one_blas_thread():
            assert blas_threads() == {1}
        assert blas_threads() == {1}
    assert blas_threads() == {3}
    with pytest.raises(ArithmeticError), one_blas_thread():
        raise ArithmeticError
    assert blas_threads() == {3}


def test_the_last_to_leave_sets_it_back_in_whatever_order(three):
    first, second = one_blas_thread(), one_blas_thread()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert blas_threads() == {1}  # the second still needs it
    second.__exit__(None, None, None)
    assert blas_threads() == {3}


def test_a_thread_that_lives_on_does_not_keep_it_for_itself(three):
    """As those of a pool do: the first to come is there still when another is the last to leave."""
    entered, leave, end = threading.Event(), threading.Event(), threading.Event()

    def stay():
        with one_blas_thread():
            entered.set()
            leave.wait(60)
        left.set()
        end.wait(60)

    left = threading.Event()
    thread = threading.Thread(target=stay)
    thread.start()
    assert entered.wait(60)
    with one_blas_thread():
        leave.set()
        assert left.wait(60)
        assert blas_threads() == {1}
    assert blas_threads() == {3}
    end.set()
    thread.join()


@pytest.mark.filterwarnings("ignore:Predictions have not settled")
def test_fits_that_overlap_in_threads_leave_blas_as_it_was(three):
    """The first is inside when the second comes, and leaves before it."""
    rng = np.random.default_rng(0)
    X, y = np.array(list(np.ndindex(20, 15))), rng.normal(size=300)
    first_is_in, second_is_in, first_is_out = (threading.Event() for _ in range(3))
    model = BayesianFactorizer(rank=2, sweeps=4, burn_in=2, random_state=0, n_jobs=1)

    def first(info, state):
        first_is_in.set()
        second_is_in.wait(60)

    def second(info, state):
        second_is_in.set()
        first_is_out.wait(60)

    def fit(callback):
        clone(model).fit(X, y, callbacks=[callback])

    threads = [threading.Thread(target=fit, args=[callback]) for callback in (first, second)]
    threads[0].start()
    assert first_is_in.wait(60)
    threads[1].start()
    threads[0].join()
    first_is_out.set()
    threads[1].join()
    assert blas_threads() == {3}


LATER = """
from threadpoolctl import ThreadpoolController

def threads():
    return {one["num_threads"] for one in ThreadpoolController().select(user_api="blas").info()}

from noisewise.engine.training import one_blas_thread

with one_blas_thread():
    import scipy.linalg  # as a kernel does when it is compiled
    print(threads() or {1})
"""


def test_blas_that_is_loaded_later_has_one_thread_too():
    many = {f"{name}_NUM_THREADS": "3" for name in ("OPENBLAS", "MKL", "BLIS", "OMP")}
    done = subprocess.run(
        [sys.executable, "-c", LATER], env=os.environ | many, capture_output=True, text=True
    )
    assert done.stdout.strip() == "{1}", done.stderr
