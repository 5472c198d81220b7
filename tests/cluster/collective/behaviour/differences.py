"""Checks that what differs between workers is an error on all."""

from __future__ import annotations

import tensorflow as tf

from tests.cluster.collective.behaviour.models import make_model, rows


def check_another_batch_size_on_one_worker_is_an_error_on_all(strategy, folder) -> None:
    x, y = rows(60)
    model = make_model(strategy)
    try:
        model.fit(tf.data.Dataset.from_tensor_slices((x, y)).batch(12 + strategy.rank), verbose=0)
    except ValueError as error:
        assert "batches of 12" in str(error) and "batches of 13" in str(error) and "worker 1 (" in str(error)
    else:
        raise AssertionError("no error")


def check_another_model_on_one_worker_is_an_error_on_all(strategy, folder) -> None:
    try:
        make_model(strategy, hidden=8 + (strategy.rank == 1))
    except tf.errors.InvalidArgumentError as error:
        assert "[5,8]" in str(error) and "[5,9]" in str(error) and "initial value" in str(error), error
    else:
        raise AssertionError("no error")
