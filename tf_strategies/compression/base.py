"""Defines the interface of compressors: the gradients they take, the state they keep, and how they add up over workers."""

from __future__ import annotations

import abc
import contextlib
from typing import Callable, Dict, List, NamedTuple, Optional, Protocol, Sequence, Tuple

import tensorflow as tf

from tf_strategies.errors import OptionsError
from tf_strategies.options import whole_number
from tf_strategies.types import TensorOrSlices, Unchecked

__all__ = [
    "Compressor",
    "Gradient",
    "Predicate",
    "Workers",
    "checked_compressor",
    "choice",
    "flag",
    "only_finite",
    "whole",
]

Predicate = Callable[[str, Tuple[int, ...]], bool]


class Workers(Protocol):
    """Exchanges values between the workers whose gradients are added up. Each method is a collective.

    Attributes:
        rank: the number of this worker.
        size: the number of workers; 1 if a server adds up the gradients of each worker separately.
    """

    rank: int
    size: int

    def add_up(
        self, tensors: Sequence[tf.Tensor], then: Callable[[List[tf.Tensor]], List[tf.Tensor]]
    ) -> List[tf.Tensor]:
        """Returns `then(sums)`, given the sum over workers of each tensor.

        `then` runs where the sums are needed.
        """

    def gather(
        self, tensor: tf.Tensor, name: str, then: Callable[[tf.Tensor], List[tf.Tensor]]
    ) -> List[tf.Tensor]:
        """Returns `then(joined)`, given the tensors of all workers, joined along axis 0 by rank.

        `then` runs where the sums are needed. The first dimensions of the tensors may differ.
        """

    def all_to_all(self, tensor: tf.Tensor, lengths: tf.Tensor, name: str) -> tf.Tensor:
        """Returns the rows that all workers send to this worker, by rank.

        `tensor` has the rows for worker 0 first. `lengths` [size] int64 has the number of rows for each
        worker.
        """


class Gradient(NamedTuple):
    """One worker's gradient of one variable.

    Attributes:
        value: float32 [n], the gradient flattened.
        number: a number that identifies the variable within an exchange, the same on all workers.
        slots: the compressor's state of the variable, by name: each slot is a variable, float32 [n], or as long as
            `Compressor.agreed_slots` says.
        shape: the shape of the variable.
    """

    value: tf.Tensor
    number: int
    slots: Dict[str, tf.Variable]
    shape: Tuple[int, ...]


class Compressor(abc.ABC):
    """Defines the interface of compressors. All workers must use equal compressors.

    Attributes:
        takes_slices: whether `tf.IndexedSlices` are compressed too, as dense gradients. Otherwise they are sent row by row.
        shows_what_is_not_finite: whether entries that are not finite stay so in the exchange.
        needs_all_workers: whether it exchanges twice, so that servers cannot add up what each worker sends.

    Args:
        min_elements: variables with fewer elements, and those with less than two dimensions, are not compressed.
        predicate: `(name, shape) -> bool`; chooses the variables that are compressed instead.

    Raises:
        OptionsError: an argument has a value that is not allowed.

    Example:
        >>> compression = tfs.compression.Quantize8(predicate=lambda name, shape: "embedding" not in name)
    """

    takes_slices = False
    shows_what_is_not_finite = False
    needs_all_workers = False

    def __init__(self, *, min_elements: int, predicate: Optional[Predicate]) -> None:
        if predicate is not None and not callable(predicate):
            raise OptionsError(
                f"predicate must be None or a function of a variable's name and shape; got {predicate!r}"
            )
        self.min_elements = whole("min_elements", min_elements, least=0)
        self.predicate = predicate

    @property
    def rounds_to(self) -> Optional[str]:
        """The type to which each entry is rounded, if that is all that happens to it."""
        return None

    @property
    def slots(self) -> Tuple[str, ...]:
        """The names of the slots of each compressed variable.

        Each worker has its own values. Only their sum over workers matters, and it is kept when the number of
        workers changes.
        """
        return ()

    def agreed_slots(self, shape: Tuple[int, ...]) -> Dict[str, int]:
        """Returns the lengths of further slots of a compressed variable of this shape, by name.

        Their values are equal on all workers.
        """
        del shape
        return {}

    @property
    def dense_slots(self) -> Tuple[str, ...]:
        """The names of the slots of each variable that is not compressed.

        Their values are equal on all workers.
        """
        return ()

    @property
    def replaces_momentum(self) -> float:
        """The momentum that the compressor applies instead of the optimizer; 0 for none."""
        return 0.0

    def takes(self, name: str, shape: Tuple[int, ...]) -> bool:
        """Returns True if the gradients of a variable are compressed."""
        if self.predicate is not None:
            return bool(self.predicate(name, shape))
        return len(shape) >= 2 and _elements(shape) >= self.min_elements

    def prepare(self, values: Sequence[TensorOrSlices], workers: int) -> List[TensorOrSlices]:
        """Returns a worker's gradients after the first stage, such as clipping.

        This includes gradients that are not compressed.
        """
        del workers
        return list(values)

    @abc.abstractmethod
    def add_up(self, gradients: Sequence[Gradient], step: tf.Tensor, workers: Workers) -> List[tf.Tensor]:
        """Returns the sums over workers. A collective.

        Args:
            gradients: the gradients to compress.
            step: [] int64, the number of earlier exchanges.

        Returns:
            For each gradient the approximate sum over workers, float32 [n], with the same bits on all
            workers.
        """

    def after(self, total: tf.Tensor, slots: Dict[str, tf.Variable]) -> tf.Tensor:
        """Returns the processed sum over workers of a gradient that was not compressed."""
        del slots
        return total

    def __repr__(self) -> str:
        """Returns a text that is equal for equal settings.

        Functions cannot be compared, and appear only by kind.
        """
        settings = (f"{name}={_in_words(value)}" for name, value in vars(self).items())
        return f"{type(self).__name__}({', '.join(settings)})"


def only_finite(values: tf.Tensor) -> tf.Tensor:
    """Returns the values with 0 for those that are not finite, so that residuals stay finite."""
    return tf.where(tf.math.is_finite(values), values, 0.0)


def checked_compressor(value: Unchecked) -> Optional[Compressor]:
    """Returns the compressor, or None if no compression was chosen.

    Raises:
        OptionsError: it is neither.
    """
    if value is not None and not isinstance(value, Compressor):
        raise OptionsError(
            f"compression must be None or one of tfs.compression, such as tfs.compression.TopK(0.01); got {value!r}"
        )
    return value


def whole(name: str, value: Unchecked, *, least: int, most: int = (1 << 63) - 1) -> int:
    """Returns a whole number from `least` to `most`.

    Raises:
        OptionsError: it is not.
    """
    number = whole_number(value)
    if number is None or not least <= number <= most:
        raise OptionsError(
            f"{name} must be a whole number, at least {least} and at most {most}; got {value!r}"
        )
    return number


def choice(name: str, value: Unchecked, allowed: Sequence[str]) -> str:
    """Returns one of the words that are allowed.

    Raises:
        OptionsError: the value is not allowed.
    """
    if value not in allowed:
        raise OptionsError(f"{name} must be one of {', '.join(map(repr, allowed))}; got {value!r}")
    return value


def flag(name: str, value: Unchecked) -> bool:
    """Returns the value if it is True or False.

    Raises:
        OptionsError: it is neither.
    """
    if not isinstance(value, bool):
        raise OptionsError(f"{name} must be True or False; got {value!r}")
    return value


def _elements(shape: Tuple[int, ...]) -> int:
    count = 1
    for extent in shape:
        count *= extent
    return count


def _in_words(value: object) -> str:
    if hasattr(value, "get_config"):
        with contextlib.suppress(NotImplementedError):
            return f"{type(value).__name__}({value.get_config()})"
    return "a function" if callable(value) else repr(value)
