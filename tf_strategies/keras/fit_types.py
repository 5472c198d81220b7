"""Names the types of what `fit`, `evaluate` and `predict` work with: data, logs, steps and callbacks.

As in `types`, they are true of Keras 3, tf_keras and the Keras 2 of TensorFlow 2.15.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Protocol, Tuple, Union

from tf_strategies.types import Structure

if TYPE_CHECKING:
    import tensorflow as tf

__all__ = [
    "CSVLogger",
    "Callback",
    "CallbackList",
    "Callbacks",
    "Data",
    "DataAdapter",
    "DataLoop",
    "Dataset",
    "Keras2DataAdapter",
    "Logs",
    "ModelCheckpoint",
    "Params",
    "PropertyOrMethod",
    "StepFunction",
]

Logs = Dict[str, Any]
"""The values of losses and metrics, by name: numbers, arrays or tensors, and in some cases structures of them."""

Data = Any
"""The argument `x` of `fit`, `evaluate` and `predict`: an array, a structure of arrays, a dataset, or another source."""

Dataset = Union["tf.data.Dataset", "tf.distribute.DistributedDataset"]
"""A dataset, or the share of one that a strategy gives to a worker."""

DataLoop = Any
"""The object that goes through the data of `fit`: EpochIterator in Keras 3, DataHandler in Keras 2. They have no common
attributes."""

Params = Dict[str, Any]
"""What callbacks are told of a `fit`: the number of its epochs, of the steps of an epoch, and so on."""

PropertyOrMethod = Any
"""A property of Keras 3 that is a method of Keras 2."""

StepFunction = Callable[..., Structure]
"""The function that runs steps of `fit`, `evaluate` or `predict` on an iterator, and returns logs or predictions."""


class DataAdapter(Protocol):
    """The object behind a data loop that makes batches of arrays, generators or datasets."""

    on_epoch_end: Callable[[], None]
    has_partial_batch: PropertyOrMethod
    batch_size: PropertyOrMethod
    partial_batch_size: PropertyOrMethod


class Keras2DataAdapter(DataAdapter, Protocol):
    """A data adapter of Keras 2, tf_keras included."""

    def should_recreate_iterator(self) -> bool:
        """Returns True if each epoch has an iterator of its own."""


class Callback(Protocol):
    """A callback of `fit`, `evaluate` and `predict`."""

    def on_train_begin(self, logs: Optional[Logs] = None) -> None:
        """Runs when `fit` begins."""

    def on_epoch_end(self, epoch: int, logs: Optional[Logs] = None) -> None:
        """Runs at the end of each epoch, counted from 0."""


class ModelCheckpoint(Callback, Protocol):
    """The callback that saves models."""

    filepath: str
    verbose: int
    _save_model: Callable[..., object]


class CSVLogger(Callback, Protocol):
    """The callback that writes the logs of epochs to a file."""

    filename: str
    sep: str
    append: bool
    writer: object


class CallbackList(Protocol):
    """The callbacks of one call of `fit`, `evaluate` or `predict`."""

    callbacks: List[Callback]
    params: Optional[Params]

    def set_params(self, params: Params) -> None:
        """Tells the callbacks the number of epochs, and of the steps of an epoch."""


Callbacks = Union[Callback, List[Callback], Tuple[Callback, ...], None]
"""The argument `callbacks` of `fit`, `evaluate` and `predict`, which also take a CallbackList."""
