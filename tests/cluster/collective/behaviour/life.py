"""Checks of a strategy beside others, in a forked child, and when its model is saved."""

from __future__ import annotations

import atexit
import os
import signal
import unittest
from pathlib import Path

import numpy as np
import tensorflow as tf

import tf_strategies as tfs
from tests.cluster.collective.behaviour.models import keras, make_model, rows
from tests.support.processes import wait_until
from tests.support.replicas import require_equal_everywhere


def check_the_chief_alone_can_save(strategy, folder) -> None:
    x, y = rows(24)
    model = make_model(strategy, normalize=True)
    model.fit(x, y, batch_size=12, verbose=0)
    require_chief = (
        strategy.extended.should_checkpoint == (strategy.rank == 0) == strategy.extended.should_save_summary
    )
    assert require_chief
    if strategy.rank == 0:
        with strategy.scope():
            model.save(folder / "inside.keras")
        model.save(folder / "model.keras")
        model.save_weights(folder / "model.weights.h5")
        tf.train.Checkpoint(model=model, optimizer=model.optimizer).save(str(folder / "checkpoint"))
        if getattr(keras, "__version__", "2").startswith("2"):
            model.save(folder / "saved_model")
        for name in ("inside.keras", "model.keras"):
            again = keras.models.load_model(folder / name)
            assert type(again.distribute_strategy) is not type(strategy)
            for kept, weight in zip(again.get_weights(), model.get_weights()):
                np.testing.assert_array_equal(kept, weight)
        model.optimizer.gradient_accumulation_steps = int(model.optimizer.iterations.numpy()) + 1
        with unittest.TestCase().assertLogs("tf_strategies", "WARNING") as logged:
            model.save(folder / "accumulating.keras")
        assert any("gradients" in line and "BackupAndRestore" in line for line in logged.output), logged


def check_two_strategies_train_side_by_side(strategy, folder) -> None:
    other = tfs.CollectiveAllReduceStrategy(devices=["CPU:1", "CPU:0"])
    models = [make_model(strategy), make_model(other, normalize=True)]
    x, y = rows(24)
    for _ in range(2):
        for model in models:
            model.fit(x, y, batch_size=12, verbose=0)
    for model in models:
        require_equal_everywhere(strategy, model.get_weights())
    other.close()
    assert float(strategy.reduce("SUM", tf.ones([]), axis=None)) == strategy.size
    try:
        tfs.CollectiveAllReduceStrategy(tfs.CommunicationOptions(algorithm="ring"))
    except tfs.OptionsError as error:
        assert "algorithm='ring'" in str(error) and "algorithm='auto'" in str(error), error
    else:
        raise AssertionError("no error")


def check_a_forked_child_leaves_the_group_to_its_parent(strategy, folder) -> None:
    child = os.fork()
    if child == 0:
        try:
            try:
                strategy.reduce("SUM", tf.ones([]), axis=None)
            except tf.errors.CancelledError as error:
                (Path(folder) / f"told{strategy.rank}").write_text(str(error))
            strategy.close()
            atexit._run_exitfuncs()
        finally:
            os._exit(0)
    try:
        wait_until(lambda: os.waitpid(child, os.WNOHANG)[0] == child, 20, "the child's end")
    except AssertionError:
        os.kill(child, signal.SIGKILL)
        raise
    assert "forked" in (Path(folder) / f"told{strategy.rank}").read_text()
    assert float(strategy.reduce("SUM", tf.ones([]), axis=None)) == strategy.size
