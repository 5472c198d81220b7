"""Names the types of Keras in annotations. They are true of Keras 3, tf_keras and the Keras 2 of TensorFlow 2.15.

A process may have loaded two of them, and none is imported here. Each protocol lists the attributes that this package
uses and that all three have; those that it does not write are properties. Protocols named after one Keras list what only
that one has.
"""

from __future__ import annotations

from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    Optional,
    Protocol,
    Sequence,
    Tuple,
    Union,
)

from tf_strategies.keras.fit_types import Data
from tf_strategies.types import Structure, TensorLike, TensorOrSlices

if TYPE_CHECKING:
    import numpy as np
    import tensorflow as tf

__all__ = [
    "BatchNormalization",
    "Compression",
    "Config",
    "Discretization",
    "Gradients",
    "GradientsAndVariables",
    "Keras2CastVariable",
    "Keras2LossScaleOptimizer",
    "Keras2Model",
    "Keras2Optimizer",
    "Keras3LossScaleOptimizer",
    "Keras3Model",
    "Keras3Optimizer",
    "Keras3Variable",
    "Layer",
    "LearningRate",
    "LearningRateSchedule",
    "Lookup",
    "Loss",
    "Metric",
    "Model",
    "Operation",
    "Optimizer",
    "Replaced",
    "Variable",
]

Config = Dict[str, Any]
"""The settings of an object, as `get_config` returns them."""

Replaced = Any
"""A function, class or module of Keras or TensorFlow that a patch replaces, or its replacement."""


class Variable(Protocol):
    """A variable of Keras 3, or a `tf.Variable`. A Keras 3 variable holds a `tf.Variable` as its `value`."""

    @property
    def name(self) -> str: ...

    @property
    def shape(self) -> Union[Tuple[int, ...], tf.TensorShape]: ...

    @property
    def dtype(self) -> Union[str, tf.DType]: ...

    @property
    def trainable(self) -> bool: ...

    def assign(self, value: TensorLike) -> object:
        """Writes a value."""

    def assign_add(self, value: TensorLike) -> object:
        """Adds a value."""

    def assign_sub(self, value: TensorLike) -> object:
        """Subtracts a value."""

    def numpy(self) -> Union[np.ndarray[Any, np.dtype[Any]], np.number[Any]]:
        """Returns the value as a NumPy array, or as a number if it is a scalar."""


class Keras3Variable(Variable, Protocol):
    """A variable of Keras 3."""

    _autocast: bool

    @property
    def aggregation(self) -> str: ...

    @property
    def regularizer(self) -> Optional[Callable[[tf.Tensor], tf.Tensor]]: ...

    @property
    def value(self) -> tf.Variable:
        """The variable of TensorFlow that holds the value."""


class Keras2CastVariable(Variable, Protocol):
    """A variable of Keras 2 that casts its value while a layer is called in mixed precision."""

    _variable: tf.Variable

    @property
    def _cast_dtype(self) -> tf.DType: ...

    def _should_cast(self) -> bool:
        """Returns True while a layer is called that computes in another type."""


class Operation(Protocol):
    """A node of a functional model: a layer, or with Keras 3 an operation such as an addition."""

    @property
    def name(self) -> str: ...


class Layer(Operation, Protocol):
    """A layer."""

    @property
    def built(self) -> bool: ...

    @property
    def trainable(self) -> bool: ...

    @property
    def variables(self) -> Sequence[Variable]: ...

    @property
    def trainable_variables(self) -> Sequence[Variable]: ...

    @property
    def weights(self) -> Sequence[Variable]: ...

    def get_config(self) -> Config:
        """Returns the settings of the layer."""

    def _flatten_layers(self, *, recursive: bool = True, include_self: bool = True) -> Iterator[Layer]:
        """Yields the layers in this one."""


class Lookup(Layer, Protocol):
    """A layer that gives words or numbers an index."""

    def get_vocabulary(self) -> Sequence[Union[str, int]]:
        """Returns what the layer knows, by index."""


class Discretization(Layer, Protocol):
    """A layer that puts numbers into bins."""

    bin_boundaries: Optional[Sequence[float]]


class BatchNormalization(Layer, Protocol):
    """A batch normalization."""

    @property
    def scale(self) -> bool: ...


class Metric(Protocol):
    """A metric."""

    @property
    def name(self) -> str: ...

    @property
    def variables(self) -> Sequence[Variable]: ...

    def result(self) -> Structure:
        """Returns the value so far: a tensor, or a structure of tensors."""


class Loss(Protocol):
    """A loss function as an object."""

    @property
    def name(self) -> str: ...

    @property
    def reduction(self) -> Optional[str]: ...


class Optimizer(Protocol):
    """An optimizer, also one of `optimizers.legacy`, or a LossScaleOptimizer around another."""

    @property
    def iterations(self) -> TensorLike: ...

    @property
    def variables(self) -> Union[Sequence[Variable], Callable[[], Sequence[Variable]]]:
        """The state of the optimizer. It is a method in legacy optimizers."""

    def get_config(self) -> Config:
        """Returns the settings of the optimizer."""

    def apply_gradients(self, grads_and_vars: GradientsAndVariables) -> object:
        """Changes the variables by their gradients."""


class Keras3Optimizer(Optimizer, Protocol):
    """An optimizer of Keras 3."""

    @property
    def clipnorm(self) -> Optional[float]: ...

    @property
    def clipvalue(self) -> Optional[float]: ...

    @property
    def global_clipnorm(self) -> Optional[float]: ...

    @property
    def gradient_accumulation_steps(self) -> Optional[int]: ...

    @property
    def weight_decay(self) -> Optional[float]: ...

    @property
    def _trainable_variables(self) -> Sequence[Keras3Variable]: ...

    def apply(self, grads: Gradients, trainable_variables: Optional[Sequence[Variable]] = None) -> None:
        """Changes the variables by their gradients."""


class Keras2Optimizer(Optimizer, Protocol):
    """An optimizer of Keras 2."""

    @property
    def iterations(self) -> tf.Variable: ...

    def apply_gradients(
        self, grads_and_vars: GradientsAndVariables, *, experimental_aggregate_gradients: bool = True
    ) -> object:
        """Changes the variables by their gradients."""

    def _deduplicate_sparse_grad(self, grads: Gradients) -> Gradients:
        """Adds up the rows of sparse gradients that have the same index."""


class Keras2LossScaleOptimizer(Optimizer, Protocol):
    """A LossScaleOptimizer of Keras 2."""

    @property
    def dynamic(self) -> bool: ...

    @property
    def inner_optimizer(self) -> Keras2Optimizer: ...


class Keras3LossScaleOptimizer(Keras3Optimizer, Protocol):
    """A LossScaleOptimizer of Keras 3."""

    @property
    def inner_optimizer(self) -> Keras3Optimizer: ...


class Model(Layer, Protocol):
    """A model."""

    @property
    def layers(self) -> Sequence[Layer]: ...

    @property
    def metrics(self) -> Sequence[Metric]: ...

    @property
    def optimizer(self) -> Optional[Optimizer]: ...

    stop_training: bool

    @property
    def distribute_strategy(self) -> tf.distribute.Strategy:
        """The strategy in whose scope the model was made."""

    def call(self, inputs: Structure) -> Structure:
        """Returns the outputs for a batch of inputs."""

    def evaluate(self, x: Data = None, **kwargs: Any) -> Structure:
        """Returns the loss and the metrics over the data."""

    def save(self, filepath: str, *args: Any, **kwargs: Any) -> None:
        """Writes the model to a file or a folder."""

    def save_weights(self, filepath: str, *args: Any, **kwargs: Any) -> None:
        """Writes the weights to a file."""

    def load_weights(self, filepath: str, *args: Any, **kwargs: Any) -> object:
        """Reads the weights from a file."""


class Keras3Model(Model, Protocol):
    """A model of Keras 3."""

    _initial_epoch: int


class Keras2Model(Model, Protocol):
    """A model of Keras 2, tf_keras included."""

    _training_state: object


class Compression(Protocol):
    """The compressor of gradients of a strategy, one of `tfs.compression`."""

    @property
    def slots(self) -> Sequence[str]:
        """The names of the state that each variable has."""

    @property
    def replaces_momentum(self) -> float:
        """The momentum that is applied before gradients are added up; 0 for none."""


class LearningRateSchedule(Protocol):
    """A learning rate as a function of the step."""

    def __call__(self, step: TensorLike) -> TensorLike:
        """Returns the learning rate of a step."""

    def get_config(self) -> Config:
        """Returns the settings of the schedule."""


LearningRate = Union[float, "tf.Variable", LearningRateSchedule, Callable[[], TensorLike]]
"""The learning rate of an optimizer, as of `keras.optimizers.SGD`."""

Gradients = Sequence[Optional[TensorOrSlices]]
"""The gradient of each variable, None for a variable without one."""

GradientsAndVariables = Iterable[Tuple[Optional[TensorOrSlices], Variable]]
"""Pairs of a gradient, None for a variable without one, and its variable."""
