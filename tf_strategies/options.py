"""How workers communicate, as data: one frozen object, validated once."""

from __future__ import annotations

import dataclasses
import math
import operator
from typing import Any, Callable

from tf_strategies.errors import OptionsError

ALGORITHMS = ("auto", "ring", "recursive_doubling", "halving_doubling", "binary_blocks", "hierarchical")
TRANSPORTS = ("auto", "shared_memory", "tcp")
PLACEMENTS = ("bytes", "round_robin")
SERVER_TRANSPORTS = ("auto", "grpc", "shared_memory", "tcp")

_KIB = 1 << 10
_MIB = 1 << 20
_PACK_RANGE = (1, 1 << 40)
_CHUNK_RANGE = (_KIB, 1 << 30)


@dataclasses.dataclass(frozen=True, init=False)
class CommunicationOptions:
    """Options of collective communication, the same on every worker (only `timeout` may differ).

    Args:
        algorithm: the all-reduce algorithm: "auto" (chosen by group, bytes and wire), "ring", "recursive_doubling",
            "halving_doubling", "binary_blocks", or "hierarchical" (inside hosts first, then across; each host needs as many
            workers as the others, and TF_CONFIG lists them host by host).
        bytes_per_pack: gradients are packed into all-reduces of up to this many bytes; a larger one goes alone.
        chunk_bytes: transfer and reduction are pipelined in chunks of this many bytes, 1 KiB to 1 GiB. By default of 256 KiB in
            shared memory and 1 MiB over a network.
        timeout: seconds a collective, and the forming of the group, may wait for other workers.
        transport: "auto" (shared memory where peers share a host, else the network), "shared_memory", "tcp".

    Raises:
        OptionsError: naming the option, the value received and what is accepted.

    Example:
        >>> CommunicationOptions(algorithm="ring", timeout=30).timeout
        30.0
    """

    algorithm: str
    bytes_per_pack: int
    chunk_bytes: int | None
    timeout: float
    transport: str

    def __init__(
        self,
        *,
        algorithm: str = "auto",
        bytes_per_pack: int = 8 * _MIB,
        chunk_bytes: int | None = None,
        timeout: float = 600.0,
        transport: str = "auto",
    ) -> None:
        values = {
            "algorithm": _choice("algorithm", algorithm, ALGORITHMS),
            "bytes_per_pack": _bytes("bytes_per_pack", bytes_per_pack, _PACK_RANGE),
            "chunk_bytes": None if chunk_bytes is None else _bytes("chunk_bytes", chunk_bytes, _CHUNK_RANGE),
            "timeout": _seconds("timeout", timeout),
            "transport": _choice("transport", transport, TRANSPORTS),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def digest_fields(self) -> dict[str, Any]:
        """Returns the options that must agree between the workers of a group, by name."""
        return {name: value for name, value in dataclasses.asdict(self).items() if name != "timeout"}


@dataclasses.dataclass(frozen=True, init=False)
class ParameterServerOptions:
    """Options of parameter servers, the same on every worker (only `timeout` may differ).

    Args:
        placement: which server holds a variable: "bytes" (the one with the fewest bytes so far), "round_robin", or a function
            `(name, shape, dtype, bytes_by_server) -> number of a server` that decides alike on all workers.
        partitioner: cuts large variables along axis 0 into parts that are placed one by one: None, or one of
            `tf.distribute.experimental.partitioners`, or a function `(shape, dtype) -> parts along each axis`.
        transport: what carries variables and gradients: "auto" (shared memory where worker and server share a host, else the
            network, and TensorFlow's gRPC where neither can be had), "shared_memory", "tcp", "grpc". All else is gRPC's always.
        timeout: seconds that anything may wait for another process: for servers to come up, for workers to come back.

    Raises:
        OptionsError: naming the option, the value received and what is accepted.

    Example:
        >>> ParameterServerOptions(placement="round_robin").timeout
        600.0
    """

    placement: str | Callable[..., int]
    partitioner: Callable[..., Any] | None
    transport: str
    timeout: float

    def __init__(
        self,
        *,
        placement: str | Callable[..., int] = "bytes",
        partitioner: Callable[..., Any] | None = None,
        transport: str = "auto",
        timeout: float = 600.0,
    ) -> None:
        if not callable(placement):
            _choice("placement", placement, PLACEMENTS)
        if partitioner is not None and not callable(partitioner):
            raise OptionsError(
                f"partitioner must be None or a function of shape and dtype; got {partitioner!r}"
            )
        object.__setattr__(self, "placement", placement)
        object.__setattr__(self, "partitioner", partitioner)
        object.__setattr__(self, "transport", _choice("transport", transport, SERVER_TRANSPORTS))
        object.__setattr__(self, "timeout", _seconds("timeout", timeout))

    def describe(self) -> str:
        """Returns what must agree between workers, in words; where variables really go is compared as they are made."""
        placement = self.placement if isinstance(self.placement, str) else "a function"
        return f"placement={placement}, partitioner={'none' if self.partitioner is None else 'a function'}"


def _choice(name: str, value: Any, allowed: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in allowed:
        raise OptionsError(f"{name} must be one of {', '.join(map(repr, allowed))}; got {value!r}")
    return value


def whole_number(value: Any) -> int | None:
    """Returns the value as an int; None where it is none, as a bool or a float."""
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None


def _bytes(name: str, value: Any, limits: tuple[int, int]) -> int:
    low, high = limits
    number = whole_number(value)
    if number is None or not low <= number <= high:
        raise OptionsError(f"{name} must be a whole number of bytes from {low} to {high}; got {value!r}")
    return number


def _seconds(name: str, value: Any) -> float:
    try:
        number = math.nan if isinstance(value, (bool, str)) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise OptionsError(f"{name} must be a finite number of seconds above 0; got {value!r}")
    return number
