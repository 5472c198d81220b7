"""Options of communication: frozen objects that are validated when they are made."""

from __future__ import annotations

import dataclasses
import math
import operator
import os
from typing import Callable, Sequence

from tf_strategies.addresses import is_unspecified, split_address
from tf_strategies.errors import OptionsError
from tf_strategies.types import JsonObject, Unchecked

ALGORITHMS = ("auto", "ring", "recursive_doubling", "halving_doubling", "binary_blocks", "hierarchical")
TRANSPORTS = ("auto", "shared_memory", "tcp", "ucx")
SECURITIES = ("auto", "tls")
PLACEMENTS = ("bytes", "round_robin")
SERVER_TRANSPORTS = ("auto", "grpc", "shared_memory", "tcp")
ARBITER = "TF_STRATEGIES_ARBITER"  # the environment variable
MOST_WORKERS = 4096  # of a group that grows, with those that are lost

HEARTBEAT_TIMEOUT = 10.0
"""The number of seconds after which a silent process counts as lost, if this ends training."""

ELASTIC_HEARTBEAT_TIMEOUT = 3.0
"""The same if the others go on."""

_KIB = 1 << 10
_MIB = 1 << 20
_PACK_RANGE = (1, 1 << 40)
_CHUNK_RANGE = (_KIB, 1 << 30)
_HEARTBEAT_RANGE = (3, 30)


@dataclasses.dataclass(frozen=True, init=False)
class CommunicationOptions:
    """Options of all-reduce and the other collectives. They must be equal on all workers, but for `timeout`.

    Args:
        algorithm: the algorithm of all-reduce. "auto" chooses by the number of workers, the bytes and the wire. The others are
            "ring", "recursive_doubling", "halving_doubling", "binary_blocks" and "hierarchical". "hierarchical" reduces within
            hosts first, and then between them; it needs equally many workers on each host, and TF_CONFIG must list the workers
            host by host.
        bytes_per_pack: gradients are packed into messages of at most this many bytes. A larger gradient is a message of its own.
        chunk_bytes: messages are sent and reduced in chunks of this many bytes, 1 KiB to 1 GiB. By default 256 KiB in shared
            memory and 1 MiB over a network.
        timeout: the number of seconds that a collective, or the start of the group, waits for other workers.
        heartbeat_timeout: the number of seconds, 3 to 30, without a sign of life after which another worker counts as lost,
            although its connections are open: it hangs, or the network is cut. A process that ends is noticed at once. By default
            10, and 3 with `elastic=`. Give a larger number where networks or virtual machines may stand still for longer.
        transport: "auto" uses shared memory between workers of one host, and TCP connections otherwise. "shared_memory" uses that
            alone, "tcp" TCP alone. The connections are made when the group starts, and both ends prove that they belong to it.
            "ucx" lets UCX choose, also between hosts: RDMA, TCP of its own, or what UCX_TLS names. It has no authentication:
            whoever reaches its ports can write into the process, so use it only on a network that nobody else reaches. If UCX_TLS
            is set in the environment, "auto" means "ucx".
        security: "auto" uses TLS between the workers if the environment variable TF_STRATEGIES_TLS names a folder with
            certificates, on all workers or on none. "tls" requires the variable. With TLS, both ends of every connection show a
            certificate, and everything between hosts is encrypted. See docs/security.md. `transport="ucx"` between hosts is
            refused then, because UCX does not encrypt.

    Raises:
        OptionsError: an option has a value that is not allowed. The message names both and what is accepted.

    Example:
        >>> CommunicationOptions(algorithm="ring", timeout=30).timeout
        30.0
    """

    algorithm: str
    bytes_per_pack: int
    chunk_bytes: int | None
    timeout: float
    heartbeat_timeout: float | None
    transport: str
    security: str

    def __init__(
        self,
        *,
        algorithm: str = "auto",
        bytes_per_pack: int = 8 * _MIB,
        chunk_bytes: int | None = None,
        timeout: float = 600.0,
        heartbeat_timeout: float | None = None,
        transport: str = "auto",
        security: str = "auto",
    ) -> None:
        values = {
            "algorithm": _choice("algorithm", algorithm, ALGORITHMS),
            "bytes_per_pack": _bytes("bytes_per_pack", bytes_per_pack, _PACK_RANGE),
            "chunk_bytes": None if chunk_bytes is None else _bytes("chunk_bytes", chunk_bytes, _CHUNK_RANGE),
            "timeout": _seconds("timeout", timeout),
            "heartbeat_timeout": None if heartbeat_timeout is None else _heartbeat_timeout(heartbeat_timeout),
            "transport": _choice("transport", transport, TRANSPORTS),
            "security": _choice("security", security, SECURITIES),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def digest_fields(self) -> JsonObject:
        """Returns the options that must agree between the workers of a group, by name."""
        return {name: value for name, value in dataclasses.asdict(self).items() if name != "timeout"}


@dataclasses.dataclass(frozen=True, init=False)
class ParameterServerOptions:
    """Options of parameter servers. They must be equal on all workers, but for `timeout`.

    Args:
        placement: which server holds a variable. "bytes": the server with the fewest bytes so far. "round_robin": each server in
            turn. A function `(name, shape, dtype, bytes_by_server) -> number of a server`, which must return the same number on
            all workers.
        partitioner: cuts large variables along axis 0 into parts, which are placed one by one. None, one of
            `tf.distribute.experimental.partitioners`, or a function `(shape, dtype) -> parts along each axis`.
        transport: what carries variables and gradients. "auto" uses shared memory between a worker and a server of one host, the
            network otherwise, and TensorFlow's gRPC if neither is available. The others are "shared_memory", "tcp" and "grpc".
            Everything else is always carried by gRPC.
        timeout: the number of seconds to wait for another process, such as a server that has not started yet.
        heartbeat_timeout: the number of seconds, 3 to 30, without an answer after which another process counts as lost, although
            its connections are open: it hangs, or the network is cut. A process that ends is noticed within two seconds. Give a
            larger number where networks or virtual machines may stand still for longer.

    Raises:
        OptionsError: an option has a value that is not allowed. The message names both and what is accepted.

    Example:
        >>> ParameterServerOptions(placement="round_robin").timeout
        600.0
    """

    placement: str | Callable[..., int]
    partitioner: Callable[..., Sequence[int]] | None
    transport: str
    timeout: float
    heartbeat_timeout: float

    def __init__(
        self,
        *,
        placement: str | Callable[..., int] = "bytes",
        partitioner: Callable[..., Sequence[int]] | None = None,
        transport: str = "auto",
        timeout: float = 600.0,
        heartbeat_timeout: float = HEARTBEAT_TIMEOUT,
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
        object.__setattr__(self, "heartbeat_timeout", _heartbeat_timeout(heartbeat_timeout))

    def describe(self) -> str:
        """Returns, as text, the options that must agree between workers.

        Placements are compared when variables are made.
        """
        placement = self.placement if isinstance(self.placement, str) else "a function"
        partitioner = "none" if self.partitioner is None else "a function"
        return (
            f"placement={placement}, partitioner={partitioner}, heartbeat_timeout={self.heartbeat_timeout:g}"
        )


@dataclasses.dataclass(frozen=True, init=False)
class Elastic:
    """Lets the other workers train on when some are lost, or are asked to end by SIGTERM. It must be equal on all workers.

    Args:
        min_workers: the fewest workers that train on. Training ends with an error when fewer are left.
        patience: after a failure, the number of seconds that the survivors wait for workers of which they do not know whether
            they are alive. Survivors that know of one another do not wait.
        copy_every: the number of steps between two copies of the weights, the optimizer's slots and so on. After a loss, the
            steps since the last copy are repeated, and callbacks see them again. A larger number costs less time.
        max_workers: the most workers that train at once. With a number, workers can join whose TF_CONFIG lists more workers than
            that of the others. None takes only workers of the TF_CONFIG with which the job began.
        arbiter: "host:port" of a `tfs-arbiter`, which decides between two halves of a group. None takes the environment variable
            TF_STRATEGIES_ARBITER, which `tfs-run --min-workers` sets. Without both, the half with rank 0 goes on.
        batch: "global": the global batch of `fit` stays, so each worker has more rows when others are lost, and fewer when they
            join. "per_worker": the rows of each worker stay. The global batch and the learning rate are proportional to the
            number of workers; they are as given for the workers with which the group began.

    Raises:
        OptionsError: an option has a value that is not allowed. The message names both and what is accepted.

    Example:
        >>> Elastic(min_workers=2).patience
        3.0
    """

    min_workers: int
    patience: float
    copy_every: int
    max_workers: int | None
    arbiter: str | None
    batch: str

    def __init__(
        self,
        *,
        min_workers: int = 1,
        patience: float = 3.0,
        copy_every: int = 1,
        max_workers: int | None = None,
        arbiter: str | None = None,
        batch: str = "global",
    ) -> None:
        for name, value in (("min_workers", min_workers), ("copy_every", copy_every)):
            number = whole_number(value)
            if number is None or number < 1:
                raise OptionsError(f"{name} must be a whole number, at least 1; got {value!r}")
            object.__setattr__(self, name, number)
        object.__setattr__(self, "patience", _seconds("patience", patience))
        most = None if max_workers is None else whole_number(max_workers)
        if max_workers is not None and (most is None or not self.min_workers <= most <= MOST_WORKERS):
            raise OptionsError(
                f"max_workers must be None or a whole number from min_workers={self.min_workers} to {MOST_WORKERS}; got "
                f"{max_workers!r}"
            )
        object.__setattr__(self, "max_workers", most)
        object.__setattr__(self, "arbiter", _arbiter(arbiter))
        object.__setattr__(self, "batch", _choice("batch", batch, ("global", "per_worker")))

    def digest_fields(self) -> JsonObject:
        """Returns the options by name. They must agree between the workers of a group."""
        return {f"elastic {name}": value for name, value in dataclasses.asdict(self).items()}


def _choice(name: str, value: object, allowed: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in allowed:
        raise OptionsError(f"{name} must be one of {', '.join(map(repr, allowed))}; got {value!r}")
    return value


def whole_number(value: Unchecked) -> int | None:
    """Returns the value as an int, or None if it is not a whole number. A bool or a float is not."""
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None


def _arbiter(given: Unchecked) -> str | None:
    address = os.environ.get(ARBITER, "") if given is None else given
    if given is None and not address:
        return None
    name = ARBITER if given is None else "arbiter"
    try:
        if not isinstance(address, str):
            raise ValueError("it is no text")
        check_arbiter(address)
    except ValueError as error:
        raise OptionsError(f'{name} must be an address, "host:port"; got {address!r}: {error}') from None
    return address


def check_arbiter(address: str) -> None:
    """Raises ValueError if an arbiter cannot have this address. The message says why."""
    split_address(address)
    if is_unspecified(address):
        raise ValueError("it must name one host")


def _bytes(name: str, value: object, limits: tuple[int, int]) -> int:
    low, high = limits
    number = whole_number(value)
    if number is None or not low <= number <= high:
        raise OptionsError(f"{name} must be a whole number of bytes from {low} to {high}; got {value!r}")
    return number


def heartbeat_timeout_of(options: CommunicationOptions, elastic: Elastic | None) -> float:
    """Returns the number of seconds after which a silent worker counts as lost."""
    default = HEARTBEAT_TIMEOUT if elastic is None else ELASTIC_HEARTBEAT_TIMEOUT
    return default if options.heartbeat_timeout is None else options.heartbeat_timeout


def _heartbeat_timeout(value: Unchecked) -> float:
    number = _seconds("heartbeat_timeout", value)
    least, most = _HEARTBEAT_RANGE
    if not least <= number <= most:
        raise OptionsError(f"heartbeat_timeout must be from {least} to {most} seconds; got {value!r}")
    return number


def _seconds(name: str, value: Unchecked) -> float:
    try:
        number = math.nan if isinstance(value, (bool, str)) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise OptionsError(f"{name} must be a finite number of seconds above 0; got {value!r}")
    return number
