"""Repeats the steps of `fit` that a lost server has taken with it.

All servers have gone back to a snapshot of an earlier step; see copies/snapshots.py. Each worker has kept the batches since that
step, and takes the same steps again, with the same state of metrics and random numbers. Keras does not notice: its callbacks have
seen these steps. Only the step that was cut off returns its results to Keras.
"""

from __future__ import annotations

import contextlib
import json
import time
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

import tensorflow as tf
from absl import logging

from tf_strategies._tf import compat
from tf_strategies.keras.types import Model
from tf_strategies.parameter_server.cluster.servers import Servers
from tf_strategies.parameter_server.cluster.variable_lists import KEPT_STEP, RESTORED_STEP, STEP_DONE
from tf_strategies.parameter_server.errors import ServerLostError
from tf_strategies.parameter_server.updates.step_recorder import RecordedStep, StepRecorder
from tf_strategies.parameter_server.variables.parts import Part
from tf_strategies.types import BatchIterator, Structure, TensorOrSlices

__all__ = ["RepeatedSteps"]

_LOOK_EVERY_SECONDS = 0.5
_POLL_SECONDS = 0.02
_BEGUN_BEFORE = 2  # snapshots that may have been begun, but not completed, when another one was the newest


class _Taken(NamedTuple):
    """A step that this worker has taken.

    Attributes:
        number: its number in the ledger.
        model: the model that it has trained.
        began: what it began with.
    """

    number: int
    model: Model
    began: RecordedStep


class _Again:
    """An iterator over the batch of a step that is taken again."""

    def __init__(self, step: RecordedStep) -> None:
        self.element_spec, self._elements = step.spec, [step.element]

    def get_next(self) -> Structure:
        return self._elements.pop()


class _Write(NamedTuple):
    """A write of a part of a variable between two steps, as by a callback."""

    part: Part
    how: str
    value: TensorOrSlices


class RepeatedSteps:
    """Keeps the steps of this worker that no complete snapshot contains, and repeats them when servers have gone back.

    Args:
        servers: the servers, which have copies.
        recorder: keeps what steps begin with.

    Attributes:
        is_repeating: whether steps are repeated now.
    """

    def __init__(self, servers: Servers, recorder: StepRecorder) -> None:
        self._servers, self._recorder = servers, recorder
        self._log: List[Union[_Taken, _Write]] = []
        self._cut_off: Optional[_Taken] = None
        self._fits = 0
        self._call: Optional[_Taken] = None
        self._checked: Optional[Model] = None
        self.is_repeating = False
        self._done = -1
        self._following, self._first_snapshot = 0, 0
        self._repeated_for = servers.generation
        self._looked = 0.0
        self._variables: Dict[str, tf.Variable] = {}
        self._restored = self._read(RESTORED_STEP)

    @contextlib.contextmanager
    def fitting(self) -> Iterator[None]:
        """Opens a context for the time of a `fit`. When it closes, a snapshot contains all of its steps."""
        if not self._fits:
            self._done = -1
            self._tell_done("-1")
        self._fits += 1
        try:
            yield
            if self._fits == 1:
                self._wait_for_snapshot()
                self._log = _since(self._log, self._done)
        finally:
            self._fits -= 1
            self._call = self._cut_off = self._checked = None
            if not self._fits:  # the steps of a `fit` that has failed are not repeated
                self._log = [each for each in self._log if isinstance(each, _Write)]

    @contextlib.contextmanager
    def calling(self, model: Model, data: BatchIterator) -> Iterator[BatchIterator]:
        """Opens a context for a call of the training function of a model. Yields the iterator to call it with."""
        if not self._fits or not hasattr(data, "element_spec"):
            self._recorder.took_others = True
            yield data
            return
        if model is not self._checked:
            _require_single_steps(model)
            self._checked = model
        began = self._recorder.begin(data)
        self._call = _Taken(-1, model, began)
        yield self._recorder.iterator(began)
        self._call = None
        number = self._recorder.number()
        if number < 0:
            raise NotImplementedError(
                f"the training function of {model.name} takes no step in strategy.run, so that none could be repeated after the "
                "loss of a server: leave make_train_function as it is, or leave replicas=2 out"
            )
        # Snapshots until now are of no use if the number was set, or if steps were taken that are not in the log.
        if number < self._following or self._recorder.took_others:
            self._recorder.took_others = False
            self._first_snapshot = self._newest()[0] + _BEGUN_BEFORE
        self._done = self._following = number + 1
        self._log.append(_Taken(number, model, began))
        if not self.is_repeating and time.monotonic() - self._looked > _LOOK_EVERY_SECONDS:
            self._looked = time.monotonic()
            self._log = _since(self._log, self._kept_step())

    def note_write(self, part: Part, how: str, value: TensorOrSlices) -> None:
        """Notes a write of a part of a variable outside of a step."""
        if self.is_repeating:
            return
        end = _end_of_steps(self._log)  # since the last step, the last write of each kind counts
        later = [each for each in self._log[end:] if not _is_replaced(each, part, how)]
        self._log[end:] = [*later, _Write(part, how, value)]

    def data_after_loss(self, data: BatchIterator) -> BatchIterator:
        """Returns the data for the call that was cut off, which is called again: its batch, if it had one."""
        cut_off, self._cut_off = self._cut_off, None
        if cut_off is None:
            return data
        cut_off.began.restore()
        return _Again(cut_off.began)

    def repeat(self) -> None:
        """Repeats what was lost. Call it when lost servers have come back.

        Raises:
            ServerLostError: the servers have not gone back to a snapshot, or a write cannot be repeated.
        """
        # A server that is lost just before this is called has been waited for within the first return.
        if not self.is_repeating and self._repeated_for != self._servers.generation:
            self.is_repeating = True
            try:
                with tf.device(None), compat.recording():  # a read or a write may have found the loss
                    self._repeat()
                self._repeated_for = self._servers.generation
            finally:
                self.is_repeating = False

    def _repeat(self) -> None:
        self._recorder.forget_iterators()
        if self._call is not None:
            self._cut_off, self._call = self._call, None
        own = [(variable, variable.read_value()) for variable in self._recorder.variables()]
        log = self._log
        while True:
            step = self._step_of_snapshot()
            generation = self._servers.generation
            log, self._log = _since(log, step), []
            count = sum(isinstance(each, _Taken) for each in log)
            if self._fits:
                logging.warning(
                    "%s repeats %d steps that the snapshot of the servers does not contain",
                    self._servers.name_of_worker(self._servers.rank),
                    count,
                )
            left = list(log)
            try:
                while left and self._servers.generation == generation:
                    self._repeat_one(left[0])
                    left.pop(0)
            except tf.errors.OpError as error:
                self._recorder.forget_iterators()
                if not self._servers.recover(error, generation):
                    raise
            if self._servers.generation == generation:
                break
            log = [*self._log, *left]  # a server was lost meanwhile
        for variable, value in own:
            variable.assign(value)

    def _repeat_one(self, item: Union[_Taken, _Write]) -> None:
        if isinstance(item, _Taken):
            item.began.restore()
            item.model.train_function(_Again(item.began))
            return
        part, how, value = item
        if how != "assign":
            raise ServerLostError(
                f"{part.variable.name} was changed by {how} outside of a step, and the snapshot does not contain it. That cannot "
                "be repeated: use assign, or start all servers and workers again"
            )
        with tf.device(part.device):
            self._servers.call(lambda: part.variable.assign(value))
        self._log.append(item)

    def _step_of_snapshot(self) -> int:
        """Returns the step to which the servers have gone back."""
        restored = self._read(RESTORED_STEP)
        if restored == self._restored:
            raise ServerLostError(
                f"{self._servers.last_lost} was lost and answers again, but the servers have not gone back to a snapshot: it was "
                "cut off, or was lost before the first snapshot was complete, or others were lost with it. Start all servers and "
                "workers again"
            )
        self._restored = restored
        _, snapshot, step = json.loads(restored)
        if snapshot < self._first_snapshot or self._recorder.took_others:
            raise ServerLostError(
                f"{self._servers.last_lost} was lost, and the servers have gone back to a snapshot. What came since cannot be "
                "repeated: steps outside of `fit`, or a checkpoint that was restored. Start all servers and workers again. If "
                "there is a checkpoint, training continues from it"
            )
        self._following = int(step)
        return self._following

    def _wait_for_snapshot(self) -> None:
        """Waits until a snapshot contains all steps of this worker, who could not repeat them later."""
        deadline, told = time.monotonic() + self._servers.timeout, -1
        while self._done >= 0 and self._kept_step() < self._done:
            if told != self._done:  # it changes if steps are repeated meanwhile
                told = self._done
                self._tell_done(str(told))
            if set(self._servers.call(self._servers.membership.submitters)) - {self._servers.rank}:
                break  # one that was restarted has further steps, and waits for this worker
            if time.monotonic() > deadline:
                logging.warning(
                    "%s: no snapshot contains the last steps yet, after %g s; if a server is lost now, they are lost, too",
                    self._servers.name_of_worker(self._servers.rank),
                    self._servers.timeout,
                )
                break
            time.sleep(_POLL_SECONDS)

    def _kept_step(self) -> int:
        """Returns the step of the newest complete snapshot; 0 if there is none."""
        snapshot, step = self._newest()
        return step if snapshot >= self._first_snapshot else 0

    def _newest(self) -> Tuple[int, int]:
        """Returns the number and the step of the newest complete snapshot; zeros if there is none."""
        snapshot, step = json.loads(self._read(KEPT_STEP) or "[0, 0]")
        return snapshot, step

    def _tell_done(self, step: str) -> None:
        name = STEP_DONE.format(self._servers.rank)
        self._servers.call(lambda: self._servers.write_entry(0, self._variable(name), tf.constant(step)))

    def _read(self, name: str) -> str:
        def read() -> str:
            variable = self._variable(name)
            return variable.numpy().decode() if variable.is_initialized() else ""

        return self._servers.call(read)

    def _variable(self, name: str) -> tf.Variable:
        if name not in self._variables:
            self._variables[name] = self._servers.named_variable(0, name, tf.TensorShape([]), tf.string)
        return self._variables[name]


def _end_of_steps(log: Sequence[Union[_Taken, _Write]]) -> int:
    """Returns the index after the last step."""
    return next((index for index in range(len(log), 0, -1) if isinstance(log[index - 1], _Taken)), 0)


def _is_replaced(item: Union[_Taken, _Write], part: Part, how: str) -> bool:
    """Returns True if a write makes no difference before another one of the same part."""
    return isinstance(item, _Write) and item.part is part and how in ("assign", item.how)


def _since(log: Sequence[Union[_Taken, _Write]], step: int) -> List[Union[_Taken, _Write]]:
    """Returns what a snapshot of a step does not contain. It may contain writes after the last step."""
    first = 0
    for index, each in enumerate(log):
        if isinstance(each, _Taken) and each.number < step:
            first = index + 1
    return list(log[first:])


def _require_single_steps(model: Model) -> None:
    given = getattr(model, "steps_per_execution", None)
    given = getattr(model, "_steps_per_execution", 1) if given is None else given
    if int(given) != 1:
        raise ValueError(
            f"SyncReplicasStrategy(replicas=2) repeats single steps after a server was lost; compile the model with "
            f"steps_per_execution=1 instead of {int(given)}"
        )
