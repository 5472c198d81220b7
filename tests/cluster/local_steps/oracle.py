"""Computes what the workers of test_local_steps.py must: with several models in one process, each with the rows of a worker."""

from __future__ import annotations

from typing import Dict, List, Optional, Sequence, Tuple

import numpy as np
import tensorflow as tf

import tf_strategies as tfs
from tests.cluster.local_steps.task import BATCH, EPOCHS, Program, make_model, make_rows
from tf_strategies.local_steps.division import divided

__all__ = ["NEW", "weights_after"]


NEW = None  # a worker that has started again, and takes over the state of the first one


def weights_after(
    program: Program,
    size: int,
    replicas: int = 1,
    changes: Optional[Dict[int, Sequence[Optional[int]]]] = None,
    saves: bool = False,
) -> List[np.ndarray]:
    """Returns the weights after training with so many workers and replicas in each: NumPy averages them.

    `changes` has the ranks of the workers that go on after a step, or NEW, by the number of the step. With `saves`, the
    slots become their mean at each average, too.
    """
    models = [make_model(program) for _ in range(size)]
    for model in models:
        model.set_weights(models[0].get_weights())
        model.optimizer.build(model.trainable_variables)
    options, (x, y) = program.options, make_rows(program.repeats)
    averages = _Averages(models, options)
    changes = changes or {}
    steps = 0
    for _ in range(EPOCHS):
        for begin in range(0, len(x), BATCH):
            joint = x[begin : begin + BATCH], y[begin : begin + BATCH]
            together = steps < options.warmup_steps
            counts = np.zeros(len(models))
            for rank, model in enumerate(models):
                own = joint if together else _rows_of(joint, rank, len(models), replicas)
                _take_step(model, *own)
                counts[rank] = 1 if program.in_loop else len(own[0])
            steps += 1
            if together:
                averages = _Averages(models, options)
            else:
                averages.note_step(counts)
                if saves and not averages.is_in_round:
                    averages.end_epoch()
            if steps in changes:
                if averages.is_in_round:  # those that leave take part in an average
                    averages.end_epoch()
                models = [
                    _copy_of(models[0], program) if each is NEW else models[each] for each in changes[steps]
                ]
                averages = _Averages(models, options, before=averages)
                averages.end_epoch()
        if not program.in_loop:
            averages.end_epoch()
    averages.end_epoch()
    found = [np.asarray(each) for each in models[0].get_weights()]
    if not all(np.isfinite(each).all() for each in found):
        raise ValueError(f"{program} diverges, so that nothing can be compared")
    return found


class _Round:
    """The round of one weight: its value at the start, the rows of each worker since, and its velocity in the outer optimizer."""

    def __init__(self, start: np.ndarray, size: int) -> None:
        self.start, self.velocity = start, np.zeros_like(start)
        self.rows = np.zeros(size)

    def begin(self, start: np.ndarray) -> None:
        self.start = start
        self.rows[:] = 0


class _Averages:
    """Averages the models of all workers."""

    def __init__(
        self,
        models: List[tf.keras.Model],
        options: tfs.LocalSGD,
        before: Optional[_Averages] = None,
    ) -> None:
        self._models, self._options = models, options
        self._trained = [model.trainable_variables for model in models]
        self._rounds = [_Round(each.numpy(), len(models)) for each in self._trained[0]]
        for mine, old in zip(self._rounds, [] if before is None else before._rounds):
            mine.velocity = old.velocity
        self._fragments = divided([each.start.nbytes for each in self._rounds], options.fragments)
        self._rows, self._step = np.zeros(len(models)), 0  # since all weights were averaged
        self._sent: List[Tuple[int, int, np.ndarray, List[np.ndarray]]] = []

    @property
    def is_in_round(self) -> bool:
        return self._step > 0

    def note_step(self, rows: np.ndarray) -> None:
        options = self._options
        for each in self._rounds:
            each.rows += rows
        self._rows += rows
        self._step += 1
        self._receive(self._step - options.overlap_steps)
        for number, fragment in enumerate(self._fragments):
            if (
                self._step % options.sync_every
                == (number + 1) * options.sync_every // options.fragments % options.sync_every
            ):
                self._send(fragment)
                self._receive(self._step - options.overlap_steps)
        if (options.fragments, options.overlap_steps) == (1, 0) and self._step == options.sync_every:
            self._average_all()

    def end_epoch(self) -> None:
        """Averages all weights, and the slots of the optimizers."""
        self._average_all()
        for slots in zip(*(_slots(model) for model in self._models)):
            mean = np.mean([slot.numpy() for slot in slots], axis=0)
            for slot in slots:
                slot.assign(mean)

    def _average_all(self) -> None:
        self._receive(self._step)
        self._send([number for number, each in enumerate(self._rounds) if each.rows.sum()])
        self._receive(self._step)
        kept = {id(each) for each in self._trained[0]}
        for number, variable in enumerate(self._models[0].weights):
            if id(variable) not in kept and self._rows.sum():
                shares = self._rows / self._rows.sum()
                mean = sum(p * m.weights[number].numpy() for p, m in zip(shares, self._models))
                for model in self._models:
                    model.weights[number].assign(mean)
        self._rows[:], self._step = 0, 0

    def _send(self, numbers: List[int]) -> None:
        """Takes the step of the outer optimizer, which the workers do not know yet."""
        for number in numbers:
            found = self._rounds[number]
            values = [trained[number].numpy() for trained in self._trained]
            shares = found.rows / found.rows.sum()
            change = sum(share * (found.start - value) for share, value in zip(shares, values))
            found.velocity = self._options.outer_momentum * found.velocity + change
            step = change + self._options.outer_momentum * found.velocity
            found.begin(found.start - self._options.outer_learning_rate * step)
            self._sent.append((self._step, number, found.start, values))

    def _receive(self, until: int) -> None:
        """Adds what each worker has changed since to the weights that were sent until a step."""
        while self._sent and self._sent[0][0] <= until:
            _, number, start, values = self._sent.pop(0)
            for trained, value in zip(self._trained, values):
                trained[number].assign(start + (trained[number].numpy() - value))


def _rows_of(
    joint: Tuple[np.ndarray, np.ndarray], rank: int, size: int, replicas: int
) -> Tuple[np.ndarray, ...]:
    """Returns the rows of a worker: TensorFlow deals the parts of the replicas out to the workers in turn."""
    share = -(-len(joint[0]) // (size * replicas))
    starts = [number * share for number in range(rank, size * replicas, size)]
    return tuple(np.concatenate([each[start : start + share] for start in starts]) for each in joint)


def _take_step(model: tf.keras.Model, x: np.ndarray, y: np.ndarray) -> None:
    """Takes a step of the model. Without rows, its gradients are zero."""
    variables = model.trainable_variables
    if not len(x):
        model.optimizer.apply_gradients([(tf.zeros(each.shape), each) for each in variables])
        return
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
    model.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))


def _copy_of(model: tf.keras.Model, program: Program) -> tf.keras.Model:
    copy = make_model(program)
    copy.set_weights(model.get_weights())
    copy.optimizer.build(copy.trainable_variables)
    for mine, theirs in zip(_variables(copy), _variables(model)):
        mine.assign(theirs)
    return copy


def _variables(model: tf.keras.Model) -> List[tf.Variable]:
    listed = model.optimizer.variables
    return list(listed() if callable(listed) else listed)


def _slots(model: tf.keras.Model) -> List[tf.Variable]:
    return [each for each in _variables(model) if len(each.shape)]
