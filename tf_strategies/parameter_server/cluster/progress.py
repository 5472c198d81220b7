"""Keeps the progress of each worker in a fit on the servers, so that a restarted worker continues from there.

Every server holds a mark, the same on all servers, which the chief writes when the variables are ready. A
restarted server has no mark. Workers then know that the variables on the servers do not belong together, and
wait until the chief has restored them. The first server also holds the records. Each record is written in one
operation.
"""

from __future__ import annotations

import secrets
import time
from typing import Dict, List, Optional, Sequence, Tuple

import tensorflow as tf

from tf_strategies.errors import BootstrapError
from tf_strategies.keras.shared_progress import Pace, RefusedError, SharedProgress
from tf_strategies.parameter_server.cluster.peer_entries import PeerEntries
from tf_strategies.parameter_server.cluster.servers import Servers
from tf_strategies.texts import utf8

__all__ = ["ServerProgress"]

_OPEN, _REFUSED = b"+", b"-"
_POLL_SECONDS = 0.05


class ServerProgress(SharedProgress):
    """Keeps the progress of one fit on the servers.

    Args:
        servers: the servers, and this worker's rank among the workers that use them.
        number: the number of the fit, from 0; the same on all workers.
        pace: how the workers go through their batches.
    """

    def __init__(self, servers: Servers, number: int, pace: Pace) -> None:
        self.rank = servers.rank
        self.size = servers.size
        self.pace = pace
        self._peer_entries = PeerEntries(servers.rank, servers.size, wait=pace is Pace.IN_STEP)
        self._servers = servers
        self._number = number
        self._texts: Dict[Tuple[int, str], tf.Variable] = {}

    def name_of(self, rank: int) -> str:
        return self._servers.name_of_worker(rank)

    def is_open(self) -> bool:
        marks = self._marks()
        return marks[0].startswith(_OPEN) and len(set(marks)) == 1

    def is_torn(self) -> bool:
        return not self.is_open() and any(mark.startswith(_OPEN) for mark in self._marks())

    def open(self, records: Sequence[bytes]) -> None:
        mark = _OPEN + secrets.token_hex(8).encode()
        self._write(0, "begin", [mark, *records])
        for server in range(1, len(self._servers.devices)):
            self._write(server, "begin", [mark])

    def refuse(self, reason: str) -> None:
        self._write(0, "begin", [_REFUSED, utf8(reason), *[b""] * (self.size - 1)])

    def wait_until_open(self) -> None:
        deadline = time.monotonic() + self._servers.timeout
        while not self.is_open():
            begin = self._read(0, "begin", 1 + self.size)
            if begin is not None and begin[0] == _REFUSED:
                raise RefusedError(f"{self.name_of(0)} could not begin: {begin[1].decode(errors='replace')}")
            if time.monotonic() > deadline:
                raise BootstrapError(
                    f"{self.name_of(self.rank)} waited {self._servers.timeout:g} s for {self.name_of(0)} to begin fit "
                    f"{self._number}, or to restore it; look at that worker's log, and check that all workers "
                    "run the same script"
                )
            time.sleep(_POLL_SECONDS)

    def keep(self, record: bytes, moment: str) -> None:
        self._write(0, f"of {self.rank}", [self._marks()[0], moment.encode(), record])

    def records(self, moment: str = "") -> List[bytes]:
        begin = self._read(0, "begin", 1 + self.size)
        if begin is None:
            return [b""] * self.size
        mark, *first = begin
        if moment:
            self._peer_entries.find(lambda rank: self._record(rank, mark, moment))
        latest = [self._record(rank, mark) for rank in range(self.size)]
        return [given if kept is None else kept for kept, given in zip(latest, first)]

    def step(self) -> int:
        return self._servers.call(self._servers.membership.step)

    def set_step(self, step: int) -> None:
        self._servers.call(self._servers.membership.set_step, step)

    def wait_for_others(self) -> str:
        if self.pace is not Pace.OWN:
            return ""
        try:
            self._servers.call(self._servers.membership.enter, self._number + 1)
        except tf.errors.DeadlineExceededError as error:
            return error.message
        return ""

    def _record(self, rank: int, mark: bytes, moment: str = "") -> Optional[bytes]:
        """Returns the record that a worker has saved since the fit was opened.

        With a moment, it returns only a record of that moment.
        """
        kept = self._read(0, f"of {rank}", 3)
        if kept is None or kept[0] != mark or moment.encode() not in (b"", kept[1]):
            return None
        return kept[2]

    def _marks(self) -> List[bytes]:
        """Returns the mark of each server, b"" for none."""
        lengths = [1 + self.size, *[1] * (len(self._servers.devices) - 1)]
        found = [self._read(server, "begin", length) for server, length in enumerate(lengths)]
        return [b"" if texts is None else texts[0] for texts in found]

    def _read(self, server: int, name: str, length: int) -> Optional[List[bytes]]:
        def read() -> Optional[List[bytes]]:
            variable = self._text(server, name, length)
            return list(variable.numpy()) if variable.is_initialized() else None

        return self._servers.call(read)

    def _write(self, server: int, name: str, texts: Sequence[bytes]) -> None:
        def write() -> None:
            variable = self._text(server, name, len(texts))
            self._servers.write_entry(server, variable, tf.constant(list(texts), tf.string))

        self._servers.call(write)

    def _text(self, server: int, name: str, length: int) -> tf.Variable:
        key = server, name
        if key not in self._texts:
            shared = f"fit {self._number}/{name}"
            self._texts[key] = self._servers.named_variable(
                server, shared, tf.TensorShape([length]), tf.string
            )
        return self._texts[key]
