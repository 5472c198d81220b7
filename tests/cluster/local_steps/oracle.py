"""Computes what the workers of test_local_steps.py must: with several models in one process, each with the rows of a worker."""

from __future__ import annotations

from typing import List, Tuple

import numpy as np
import tensorflow as tf

from tests.cluster.local_steps.task import BATCH, EPOCHS, Program, make_model, make_rows

__all__ = ["weights_after"]


def weights_after(program: Program, size: int, replicas: int = 1) -> List[np.ndarray]:
    """Returns the weights after training with so many workers and replicas in each: NumPy averages them."""
    models = [make_model(program) for _ in range(size)]
    for model in models:
        model.set_weights(models[0].get_weights())
        model.optimizer.build(model.trainable_variables)
    options, (x, y) = program.options, make_rows()
    velocities = [np.zeros_like(each.numpy()) for each in models[0].trainable_variables]
    steps = taken = 0
    start, rows = _values(models[0].trainable_variables), np.zeros(size)

    def average() -> None:
        nonlocal start, taken
        if not taken:
            return
        shares = rows / rows.sum()
        kept = {id(each) for each in models[0].trainable_variables}
        for number, variable in enumerate(models[0].weights):
            if id(variable) not in kept:
                _assign_all(
                    models, number, sum(p * m.weights[number].numpy() for p, m in zip(shares, models))
                )
        for number, before in enumerate(start):
            parts = [model.trainable_variables[number].numpy() for model in models]
            change = sum(share * (before - part) for share, part in zip(shares, parts))
            velocities[number] = options.momentum * velocities[number] + change
            step = change + options.momentum * velocities[number]
            for model in models:
                model.trainable_variables[number].assign(before - options.learning_rate * step)
        start, taken = _values(models[0].trainable_variables), 0
        rows[:] = 0

    for _ in range(EPOCHS):
        for begin in range(0, len(x), BATCH):
            joint = x[begin : begin + BATCH], y[begin : begin + BATCH]
            together = steps < options.warmup_steps
            for rank, model in enumerate(models):
                own = joint if together else _rows_of(joint, rank, size, replicas)
                _take_step(model, *own)
                rows[rank] += 0 if together else len(own[0])
            steps += 1
            if together:
                start = _values(models[0].trainable_variables)
                continue
            taken += 1
            if taken == options.sync_every:
                average()
        average()
        for slots in zip(*(_slots(model) for model in models)):
            mean = np.mean([slot.numpy() for slot in slots], axis=0)
            for slot in slots:
                slot.assign(mean)
    return [np.asarray(each) for each in models[0].get_weights()]


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


def _slots(model: tf.keras.Model) -> List[tf.Variable]:
    listed = model.optimizer.variables
    listed = listed() if callable(listed) else listed
    return [each for each in listed if len(each.shape)]


def _values(variables: List[tf.Variable]) -> List[np.ndarray]:
    return [each.numpy() for each in variables]


def _assign_all(models: List[tf.keras.Model], number: int, value: np.ndarray) -> None:
    for model in models:
        model.weights[number].assign(value)
