"""Adds up over workers on a thread, beside the training of this worker."""

from __future__ import annotations

import itertools
import threading
from typing import Callable, List, Optional, Sequence, Tuple

import tensorflow as tf

from tf_strategies import at_exit
from tf_strategies.native.instances import runs_beside_others

__all__ = ["SumsBeside"]

_Totals = Tuple[List[tf.Tensor], List[tf.Tensor]]
_EXIT_SECONDS = 2.0
_numbers = itertools.count()


class SumsBeside:
    """Adds up over workers, one sum after the other, in the order of the calls, which must be the same on all workers.

    The collectives have numbers of their own, because those of the functions that train may run at the same time. A function is
    traced on the thread of the caller, so that all workers give out the numbers in the same order.

    Args:
        sums: returns the sums over workers of two lists of tensors. A collective.
    """

    def __init__(self, sums: Callable[[Sequence[tf.Tensor], Sequence[tf.Tensor]], _Totals]) -> None:
        name = f"sums beside training {next(_numbers)}"  # two strategies may have sums at the same time

        def add_up(changes: Sequence[tf.Tensor], others: Sequence[tf.Tensor]) -> _Totals:
            runs_beside_others(name)
            return sums(changes, others)

        self._function = tf.function(add_up, autograph=False)
        self._last: Optional[_Sum] = None

    def __call__(self, changes: Sequence[tf.Tensor], others: Sequence[tf.Tensor]) -> Callable[[], _Totals]:
        """Begins to add up. Returns a function that waits for the sums and returns them, or raises their error."""
        given = [list(changes), list(others)]
        function = self._function.get_concrete_function(
            *tf.nest.map_structure(tf.TensorSpec.from_tensor, given)
        )
        self._last = _Sum(lambda: function(*given), self._last)
        self._last.start()
        return self._last.result


class _Sum(threading.Thread):
    """Computes a sum after another one. Its collectives have deadlines, and fail if a worker is lost."""

    def __init__(self, compute: Callable[[], _Totals], before: Optional[_Sum]) -> None:
        super().__init__(name="tf_strategies sums", daemon=True)
        self._compute: Optional[Callable[[], _Totals]] = compute
        self._before = before
        self._totals: Optional[_Totals] = None
        self._failure: Optional[BaseException] = None

    def run(self) -> None:
        at_exit.register(self._wait_at_exit)
        try:
            if self._before is not None:
                self._before.join()
            if self._compute is not None:
                self._totals = self._compute()
        except BaseException as failure:
            self._failure = failure
        finally:
            self._before = self._compute = None
            at_exit.unregister(self._wait_at_exit)

    def result(self) -> _Totals:
        """Waits for the sums and returns them once. Raises their error."""
        self.join()
        if self._failure is not None:
            raise self._failure
        totals, self._totals = self._totals, None
        if totals is None:
            raise RuntimeError("the sums of weights were read before")
        return totals

    def _wait_at_exit(self) -> None:
        """Waits before the group is closed: a thread that returns from TensorFlow later would end the process with a signal."""
        self.join(_EXIT_SECONDS)
