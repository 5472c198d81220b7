"""The C functions of ops/communicator/c_api.h, with Python's types."""

from __future__ import annotations

import ctypes
import dataclasses
import json

from tf_strategies.control_plane import MOST_WIRES, Pace
from tf_strategies.errors import BootstrapError, Code
from tf_strategies.native import c_text, loader
from tf_strategies.slow_wire import sent_over
from tf_strategies.texts import utf8
from tf_strategies.types import JsonObject

_TEXT_BYTES = 4096
_ADDRESS_BYTES = 64 << 10
_RECORDS_BYTES = 512 << 10


@dataclasses.dataclass(frozen=True)
class Failure:
    """A failure that the data plane saw, before the control plane has decided on the cause."""

    code: Code
    message: str
    instance: int
    peer: int


@dataclasses.dataclass(frozen=True)
class Waiting:
    """The oldest outstanding collective of a communicator.

    Attributes:
        instance: its number.
        seconds: how long it has waited.
        quiet: the seconds since the communicator last moved data.
        description: the collective in words.
    """

    instance: int
    seconds: float
    quiet: float
    description: str


def _core() -> ctypes.CDLL:
    core = loader.core()
    for name in (
        "tfs_last_error",
        "tfs_worker_address",
        "tfs_communicator_describe_instance",
        "tfs_communicator_oldest_waiting",
        "tfs_communicator_stats",
        "tfs_communicator_records",
    ):
        getattr(core, name).restype = ctypes.c_int64
    return core


def _raise_if_failed(core: ctypes.CDLL, code: int, what: str) -> None:
    if code:
        reason = c_text.read(core.tfs_last_error) or b""
        raise BootstrapError(f"{what}: {reason.decode(errors='replace')}")


def open_worker(*, transports: str, net_devices: str) -> tuple[int, bytes, bool]:
    """Opens the transport. Returns its id, this rank's wire address, and whether ranks of one host need no network."""
    core = _core()
    worker, shares_memory = ctypes.c_int64(), ctypes.c_int()
    code = core.tfs_worker_open(
        utf8(transports), utf8(net_devices), ctypes.byref(worker), ctypes.byref(shares_memory)
    )
    _raise_if_failed(core, code, "the transport could not be opened")
    address = c_text.read(core.tfs_worker_address, worker, capacity=_ADDRESS_BYTES)
    return worker.value, address or b"", bool(shares_memory.value)


def close_worker(worker: int) -> None:
    _core().tfs_worker_close(ctypes.c_int64(worker))


def transport_of_worker(worker: int, *, rank: int, addresses: list[bytes], same_host: list[bool]) -> int:
    """Connects a worker to all ranks, and returns the id of the transport. The worker is consumed."""
    core, size, transport = _core(), len(addresses), ctypes.c_int64()
    code = core.tfs_transport_of_worker(
        ctypes.c_int64(worker),
        rank,
        size,
        b"".join(addresses),
        (ctypes.c_int64 * size)(*map(len, addresses)),
        (ctypes.c_uint8 * size)(*same_host),
        ctypes.byref(transport),
    )
    _raise_if_failed(core, code, f"rank {rank} could not connect to its peers")
    return transport.value


def transport_of_sockets(*, rank: int, sockets: list[int], tls_folder: str = "") -> int:
    """Takes over the connections to all ranks, -1 for this one, and returns the id of the transport.

    With `tls_folder` everything on the connections is encrypted, with the certificates there.
    """
    core, transport = _core(), ctypes.c_int64()
    code = core.tfs_transport_of_sockets(
        rank,
        len(sockets),
        (ctypes.c_int * len(sockets))(*sockets),
        utf8(tls_folder),
        ctypes.byref(transport),
    )
    _raise_if_failed(core, code, f"rank {rank} could not use its connections")
    return transport.value


def transport_by_host(
    worker: int, *, rank: int, addresses: list[bytes], sockets: list[int], tls_folder: str = ""
) -> int:
    """Connects a worker to the ranks of its host, and returns the id of a transport to them and over the sockets to the others.

    Args:
        worker: is consumed.
        rank: this rank.
        addresses: of all ranks; b"" for those that have a socket.
        sockets: of all ranks, taken over; -1 for those of this host.
        tls_folder: of the certificates for the sockets; "" for no TLS.
    """
    core, size, transport = _core(), len(addresses), ctypes.c_int64()
    code = core.tfs_transport_by_host(
        ctypes.c_int64(worker),
        rank,
        size,
        b"".join(addresses),
        (ctypes.c_int64 * size)(*map(len, addresses)),
        (ctypes.c_int * size)(*sockets),
        utf8(tls_folder),
        ctypes.byref(transport),
    )
    _raise_if_failed(core, code, f"rank {rank} could not connect to its peers")
    return transport.value


def open_communicator(
    transport: int,
    *,
    ranks_per_host: int,
    ranks_here: int,
    by_network: bool,
    peer_names: list[str],
    algorithm: str,
    chunk_bytes: int | None,
    timeout: float,
    verdict_timeout: float,
) -> int:
    """Makes the communicator of a group and returns its id. The transport is consumed. Without `chunk_bytes` the wire decides.

    A failure waits `verdict_timeout` seconds for `abort`. Then it ends the collectives of this worker with its own cause.
    """
    core, communicator = _core(), ctypes.c_int64()
    code = core.tfs_communicator_open(
        ctypes.c_int64(transport),
        ranks_per_host,
        ranks_here,
        int(by_network),
        utf8("\n".join(peer_names)),
        utf8(algorithm),
        ctypes.c_int64(chunk_bytes or 0),
        ctypes.c_double(timeout),
        ctypes.c_double(verdict_timeout),
        ctypes.byref(communicator),
    )
    _raise_if_failed(core, code, "no communicator could be opened")
    return communicator.value


def close(communicator: int) -> None:
    _core().tfs_communicator_close(ctypes.c_int64(communicator))


def also_call(former: int, communicator: int) -> None:
    """Lets operations that were made for `former`, which is closed, use the communicator."""
    _core().tfs_communicator_also_call(ctypes.c_int64(former), ctypes.c_int64(communicator))


def abort(communicator: int, code: int, message: str) -> None:
    _core().tfs_communicator_abort(ctypes.c_int64(communicator), int(code), utf8(message))


def wait_failure(communicator: int, *, timeout: float) -> Failure | None:
    """Returns the next failure, or None when there is none within `timeout` seconds.

    Raises:
        KeyError: there will be none any more (`end_failures`, `close`).
    """
    code, instance, peer, size = ctypes.c_int(), ctypes.c_int(), ctypes.c_int(), ctypes.c_int64()
    message = ctypes.create_string_buffer(_TEXT_BYTES)
    found = _core().tfs_communicator_wait_failure(
        ctypes.c_int64(communicator),
        int(timeout * 1000),
        ctypes.byref(code),
        ctypes.byref(instance),
        ctypes.byref(peer),
        message,
        ctypes.c_int64(_TEXT_BYTES),
        ctypes.byref(size),
    )
    if found < 0:
        raise KeyError(communicator)
    if not found:
        return None
    text = message.raw[: min(size.value, _TEXT_BYTES)].decode(errors="replace")
    return Failure(Code(code.value), text, instance.value, peer.value)


def end_failures(communicator: int) -> None:
    """Stops reporting failures."""
    _core().tfs_communicator_end_failures(ctypes.c_int64(communicator))


def describe_instance(communicator: int, instance: int) -> str:
    """Returns what this rank last asked for on an instance, in words."""
    text = c_text.read(_core().tfs_communicator_describe_instance, ctypes.c_int64(communicator), instance)
    return "nothing: its communicator is closed" if text is None else text.decode(errors="replace")


def oldest_waiting(communicator: int) -> Waiting | None:
    instance, seconds, quiet = ctypes.c_int(-1), ctypes.c_double(), ctypes.c_double()
    text = c_text.read(
        _core().tfs_communicator_oldest_waiting,
        ctypes.c_int64(communicator),
        ctypes.byref(instance),
        ctypes.byref(seconds),
        ctypes.byref(quiet),
    )
    if text is None or instance.value < 0:
        return None
    return Waiting(instance.value, seconds.value, quiet.value, text.decode(errors="replace"))


def stats(communicator: int) -> JsonObject:
    """Returns the counts of `tfs_communicator_stats`; empty when the communicator is closed."""
    text = c_text.read(_core().tfs_communicator_stats, ctypes.c_int64(communicator))
    return {} if text is None else json.loads(text)


def pace(communicator: int, rank: int) -> Pace | None:
    """Returns how far this rank is; None when the communicator is closed."""
    counts = stats(communicator)
    if not counts:
        return None
    wires = sorted(sent_over(counts["connections"], rank), key=lambda each: -each.bytes)
    return Pace(
        sum(each["calls"] for each in counts["collectives"]),
        counts["seconds_outstanding"],
        tuple(wires[:MOST_WIRES]),
    )


def records(communicator: int) -> JsonObject:
    """Returns the object of `tfs_communicator_records`; empty when the communicator is closed."""
    text = c_text.read(
        _core().tfs_communicator_records, ctypes.c_int64(communicator), capacity=_RECORDS_BYTES
    )
    return {} if text is None else json.loads(text.decode(errors="replace"))
