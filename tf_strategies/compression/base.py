"""Defines the interface of compressors: the gradients they take, the state they keep, and how they add up over workers."""

from __future__ import annotations

import abc
import contextlib
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Protocol, Sequence, Tuple

import tensorflow as tf

from tf_strategies.errors import OptionsError
from tf_strategies.options import whole_number

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
        rank: this one's number.
        size: how many there are. 1 where a server adds up what comes from each by itself.
    """

    rank: int
    size: int

    def add_up(
        self, tensors: Sequence[tf.Tensor], then: Callable[[List[tf.Tensor]], List[tf.Tensor]]
    ) -> List[tf.Tensor]:
        """Returns what `then` makes of the sum over workers of each tensor, where sums are wanted."""

    def gather(
        self, tensor: tf.Tensor, name: str, then: Callable[[tf.Tensor], List[tf.Tensor]]
    ) -> List[tf.Tensor]:
        """Returns what `then` makes of the tensors of all workers, joined along axis 0 by rank.

        `then` is called where sums are wanted.

        Their first dimensions may differ.
        """

    def all_to_all(self, tensor: tf.Tensor, lengths: tf.Tensor, name: str) -> tf.Tensor:
        """Returns the rows that all workers send to this one, by rank.

        `tensor` has the rows for worker 0 first; `lengths` [size] int64 counts those for each worker.
        """


class Gradient(NamedTuple):
    """One worker's gradient of one variable.

    Attributes:
        value: float32 [n], the gradient flattened.
        number: the same for this variable on all workers; no other variable of the same exchange has it.
        slots: what the compressor remembers of the variable, by name: each a variable, float32 [n].
    """

    value: tf.Tensor
    number: int
    slots: Dict[str, tf.Variable]


class Compressor(abc.ABC):
    """Is the base of all compressors. All workers must be given equal ones.

    Attributes:
        takes_slices: whether `tf.IndexedSlices` are compressed too, as dense gradients. Otherwise they are sent row by row.
        shows_what_is_not_finite: whether entries that are not finite are still not finite after the exchange.

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

    def __init__(self, *, min_elements: int, predicate: Optional[Predicate]) -> None:
        if predicate is not None and not callable(predicate):
            raise OptionsError(
                f"predicate must be None or a function of a variable's name and shape; got {predicate!r}"
            )
        self.min_elements = whole("min_elements", min_elements, least=0)
        self.predicate = predicate

    @property
    def slots(self) -> Tuple[str, ...]:
        """What is remembered of each variable that is taken, on each worker for itself. Sums over workers are what matters:
        they stay when the number of workers changes."""
        return ()

    @property
    def dense_slots(self) -> Tuple[str, ...]:
        """What is remembered of each other variable, the same on all workers."""
        return ()

    @property
    def replaces_momentum(self) -> float:
        """The momentum that is applied in place of the optimizer; 0 for none."""
        return 0.0

    def takes(self, name: str, shape: Tuple[int, ...]) -> bool:
        """Returns True if gradients of a variable are compressed."""
        if self.predicate is not None:
            return bool(self.predicate(name, shape))
        return len(shape) >= 2 and _elements(shape) >= self.min_elements

    def prepare(self, values: Sequence[Any], workers: int) -> List[Any]:
        """Returns what is done to a worker's own gradients first, those that go as they are included."""
        del workers
        return list(values)

    @abc.abstractmethod
    def add_up(self, gradients: Sequence[Gradient], step: tf.Tensor, workers: Workers) -> List[tf.Tensor]:
        """Returns the sums over workers. A collective.

        Args:
            gradients: those taken.
            step: [] int64, how many exchanges there were before.

        Returns:
            For each what stands for the sum over workers: float32 [n], the same bits on all of them.
        """

    def after(self, total: tf.Tensor, slots: Dict[str, tf.Variable]) -> tf.Tensor:
        """Returns what is done to the sum over workers of a gradient that went as it was."""
        del slots
        return total

    def __repr__(self) -> str:
        """Returns the same text for the same settings; functions, which cannot be compared, are only said to be there."""
        settings = (f"{name}={_in_words(value)}" for name, value in vars(self).items())
        return f"{type(self).__name__}({', '.join(settings)})"


def only_finite(values: tf.Tensor) -> tf.Tensor:
    """Returns the values with 0 in place of those that are not finite, so that residuals stay finite."""
    return tf.where(tf.math.is_finite(values), values, 0.0)


def checked_compressor(value: Any) -> Optional[Compressor]:
    """Returns the compressor, or None for none.

    Raises:
        OptionsError: it is neither.
    """
    if value is not None and not isinstance(value, Compressor):
        raise OptionsError(
            f"compression must be None or one of tfs.compression, such as tfs.compression.TopK(0.01); got {value!r}"
        )
    return value


def whole(name: str, value: Any, *, least: int, most: int = (1 << 63) - 1) -> int:
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


def choice(name: str, value: Any, allowed: Sequence[str]) -> str:
    """Returns one of the words that are allowed.

    Raises:
        OptionsError: it is none of them.
    """
    if value not in allowed:
        raise OptionsError(f"{name} must be one of {', '.join(map(repr, allowed))}; got {value!r}")
    return value


def flag(name: str, value: Any) -> bool:
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


def _in_words(value: Any) -> str:
    if hasattr(value, "get_config"):
        with contextlib.suppress(NotImplementedError):
            return f"{type(value).__name__}({value.get_config()})"
    return "a function" if callable(value) else repr(value)
