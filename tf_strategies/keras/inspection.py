"""Reads how a model of any Keras was built and compiled: losses, decays, normalizations and where they are added up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterator, List, NamedTuple, Set, Tuple

from tf_strategies.keras.loaded import classes_of
from tf_strategies.keras.types import BatchNormalization, Layer, Model, Operation, Variable
from tf_strategies.types import Kwargs

if TYPE_CHECKING:
    from typing import TypeGuard  # not in Python 3.9

__all__ = [
    "ResidualSum",
    "compile_arguments",
    "decayed_vectors",
    "is_vector",
    "layers_of",
    "name_of",
    "normalizations",
    "regularized_vectors",
    "residual_sums",
    "starts_at_zero",
    "takes_joint_statistics",
]

_VECTORS = ("bias", "gamma", "beta")
_OF_VECTORS = ("bias_regularizer", "gamma_regularizer", "beta_regularizer")
_ADDITIONS = ("__operators__.add", "math.add")


class ResidualSum(NamedTuple):
    """A sum of tensors of which some come from batch normalizations.

    Attributes:
        name: the name of the layer or operation that adds.
        ends: the normalizations that end a branch, without those that other branches begin with.
    """

    name: str
    ends: Tuple[BatchNormalization, ...]


def layers_of(model: Model) -> List[Layer]:
    """Returns the layers of a model at any depth."""
    return list(model._flatten_layers(include_self=False))


def name_of(variable: Variable) -> str:
    """Returns the name of a variable with those of its layers, "dense/kernel"."""
    return str(getattr(variable, "path", variable.name)).partition(":")[0]


def is_vector(variable: Variable) -> bool:
    """Returns True for biases, γ and β of normalizations, and other variables with fewer than two dimensions.

    Biases of attention have a dimension for the heads, and those of a GRU one for its two products.
    """
    return len(variable.shape) < 2 or name_of(variable).rpartition("/")[2] in _VECTORS


def compile_arguments(model: Model) -> Kwargs:
    """Returns the arguments of `model.compile` as they were given; empty if it was not called."""
    return dict(getattr(getattr(model, "_compile_config", None), "config", None) or {})


def normalizations(model: Model) -> List[BatchNormalization]:
    """Returns the batch normalizations that are trained."""
    return [layer for layer in layers_of(model) if _is_normalization(layer) and layer.trainable]


def takes_joint_statistics(layer: BatchNormalization) -> bool:
    """Returns True if a batch normalization takes its statistics over the rows of all replicas."""
    return getattr(layer, "synchronized", False) or isinstance(layer, _joint_normalizations())


def starts_at_zero(layer: BatchNormalization) -> bool:
    """Returns True if γ of a normalization is 0 before training."""
    initializer = getattr(layer, "gamma_initializer", None)
    constant = getattr(initializer, "value", None)
    is_zero = isinstance(constant, (int, float)) and constant == 0
    return is_zero or isinstance(initializer, classes_of("initializers", "Zeros"))


def regularized_vectors(model: Model) -> List[str]:
    """Returns the layers and arguments that regularize a bias, or γ or β of a normalization: "dense.bias_regularizer"."""
    found = [
        f"{layer.name}.{name}"
        for layer in layers_of(model)
        for name in _OF_VECTORS
        if getattr(layer, name, None) is not None
    ]
    return list(dict.fromkeys(found))


def decayed_vectors(model: Model) -> List[Variable]:
    """Returns the trainable biases, γ and β to which the optimizer applies weight decay."""
    optimizer: Any = getattr(model, "optimizer", None)
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    if not getattr(optimizer, "weight_decay", None):
        return []
    vectors = [variable for variable in _trainable(model) if is_vector(variable)]
    if hasattr(optimizer, "excludes"):
        return [variable for variable in vectors if not optimizer.excludes(variable)]
    return [variable for variable in vectors if optimizer._use_weight_decay(variable)]


def residual_sums(model: Model) -> Iterator[ResidualSum]:
    """Yields the sums of a functional model, and of those inside of it, that add up a batch normalization.

    Subclassed models have no graph that shows them.
    """
    seen: Set[int] = set()
    for part in (model, *layers_of(model)):
        for step in getattr(part, "operations", None) or _layers_of_graph(part):
            if id(step) in seen or not _is_sum(step):
                continue
            seen.add(id(step))
            for added in _calls(step):
                ends = [one for one in added if _is_normalization(one) and not _leads_to_others(one, added)]
                if len(added) > 1 and ends:
                    yield ResidualSum(step.name, tuple(ends))


def _trainable(model: Model) -> List[Variable]:
    try:
        return list(model.trainable_variables)
    except ValueError:  # a Sequential of Keras 2 that has no weights yet
        return []


def _is_normalization(layer: Operation) -> TypeGuard[BatchNormalization]:
    return isinstance(layer, (*classes_of("layers", "BatchNormalization"), *_joint_normalizations()))


def _joint_normalizations() -> Tuple[type, ...]:
    return classes_of("layers.experimental", "SyncBatchNormalization")  # of Keras 2


def _layers_of_graph(model: Layer) -> List[Layer]:
    return list(model.layers) if getattr(model, "_is_graph_network", False) else []  # type: ignore[attr-defined]


def _is_sum(step: Operation) -> bool:
    additions = (*classes_of("layers", "Add"), *classes_of("src.ops.numpy", "Add"))
    return isinstance(step, additions) or getattr(step, "symbol", None) in _ADDITIONS


def _calls(step: Operation) -> Iterator[List[Operation]]:
    """Yields the layers or operations whose outputs a step gets, for each of its calls."""
    for node in getattr(step, "_inbound_nodes", ()):
        tensors = getattr(node, "keras_inputs", None)  # of Keras 2; its other lists contain constants
        tensors = node.input_tensors if tensors is None else tensors
        yield [tensor._keras_history[0] for tensor in tensors]


def _leads_to_others(one: Operation, added: List[Operation]) -> bool:
    """Returns True if another of the added values was computed from this one, which is then the shortcut."""
    waiting = [other for other in added if other is not one]
    seen: Set[int] = set()
    while waiting:
        step = waiting.pop()
        if step is one:
            return True
        if id(step) not in seen:
            seen.add(id(step))
            waiting.extend(before for call in _calls(step) for before in call)
    return False
