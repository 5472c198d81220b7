"""Lists the patches of data."""

from __future__ import annotations

from typing import Tuple

from tf_strategies.keras import data_loop, first_batch
from tf_strategies.keras.patches.patch import KERAS3, Patch

__all__ = ["DATA"]

_HANDLER = "src.engine.data_adapter:DataHandler"
_ITERATOR = "src.backend.tensorflow.trainer:TFEpochIterator"

DATA: Tuple[Patch, ...] = (
    Patch(
        _ITERATOR,
        "__init__",
        data_loop.init_iterator_keras3,
        "counts steps after the data are split",
        KERAS3,
    ),
    Patch(
        "src.trainers.data_adapters",
        "is_tf_dataset",
        data_loop.accept_distributed_data,
        "Keras before 3.9 does not know data of distribute_datasets_from_function",
        KERAS3,
        "3.9",
    ),
    Patch(_ITERATOR, "tf_sync", data_loop.wait_for_steps, "goes on when lost variables come back", KERAS3),
    Patch(_HANDLER, "sync", data_loop.wait_for_steps, "goes on when lost variables come back", until=KERAS3),
    Patch(_ITERATOR, "reset", data_loop.reset_iterator_keras3, "keeps the count of steps", "3.7"),
    Patch(
        "Model",
        "_maybe_symbolic_build",
        first_batch.build,
        "builds a model without taking a batch",
        "3.5",
    ),
    Patch(
        _HANDLER,
        "__init__",
        data_loop.init_handler_keras2,
        "shuffles arrays in the same order on all workers",
        until=KERAS3,
    ),
    Patch(
        _HANDLER,
        "_configure_dataset_and_inferred_steps",
        data_loop.configure_steps_keras2,
        "counts steps after the data are split",
        until=KERAS3,
    ),
    Patch(
        _HANDLER,
        "enumerate_epochs",
        data_loop.enumerate_epochs_keras2,
        "uses the number of batches of each worker",
        until=KERAS3,
    ),
)
