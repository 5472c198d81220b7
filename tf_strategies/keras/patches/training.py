"""Lists the patches of training, evaluation and prediction, of callbacks and logs, and of saving."""

from __future__ import annotations

from typing import Tuple

from tf_strategies.keras import callback_list, global_metrics, loops, metric_variables, saving
from tf_strategies.keras.patches.patch import KERAS3, Patch

__all__ = ["TRAINING"]

TRAINING: Tuple[Patch, ...] = (
    # Training, evaluation and prediction.
    Patch(
        "Model",
        "fit",
        loops.fit,
        "tells the strategy that training runs; refuses models that it cannot train",
    ),
    Patch("Model", "evaluate", loops.evaluate, "tells the strategy that the model is only evaluated"),
    Patch("Model", "predict", loops.predict, "the same, and returns rows in order"),
    Patch(
        "Model",
        "make_train_function",
        loops.train_function,
        "makes steps joint steps, also those of train_on_batch",
    ),
    Patch(
        "Model",
        "make_test_function",
        loops.test_function,
        "makes steps joint steps, also those of test_on_batch",
    ),
    Patch("Model", "train_on_batch", loops.train_on_batch, "lets the other workers take the same step"),
    Patch(
        "Model",
        "predict_on_batch",
        loops.predict_on_batch,
        "splits the batch, as Keras 2 does",
        KERAS3,
    ),
    Patch("Model", "make_predict_function", loops.predict_function, "lets the strategy call the steps"),
    # Callbacks and logs.
    Patch(
        "callbacks.CallbackList",
        "__init__",
        callback_list.init,
        "only the chief writes; all workers stop after the same step",
    ),
    Patch(
        "Model", "get_metrics_result", global_metrics.results, "makes the logs of a batch count all workers"
    ),
    Patch(
        "Model",
        "_get_metrics_result_or_logs",
        global_metrics.logs_of_epoch,
        "makes the logs of an epoch count all workers",
        KERAS3,
    ),
    Patch(
        "Model",
        "_validate_and_get_metrics_result",
        global_metrics.logs_of_epoch,
        "the same in Keras 2",
        until=KERAS3,
    ),
    Patch(
        "src.backend:Variable",
        "_initialize",
        metric_variables.initialize,
        "adds up the counts of replicas once",
        KERAS3,
        "3.10",
    ),
    Patch(
        "src.backend:Variable",
        "_initialize_with_initializer",
        metric_variables.initialize,
        "adds up the counts of replicas once",
        "3.5",
        "3.9",
    ),
    # Saving.
    Patch("Model", "save", saving.save, "lets one worker save alone"),
    Patch("Model", "save_weights", saving.alone, "lets one worker save alone"),
    Patch("Model", "load_weights", saving.alone, "lets one worker load alone"),
)
