"""Lets some workers run a block first, while the others wait as long as it takes."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Collection, Optional, Type

from tf_strategies.collective.calls.rendezvous import Rendezvous
from tf_strategies.texts import described

__all__ = ["Turn"]

_WHY_LENGTH = 2000
_MOST_SECONDS = 5.0  # below the time after which the coordinator warns of a worker that does not take part


class Turn:
    """Opens a block for some workers. The others wait at its end until they have left it.

    While a worker is in its block, a thread of it tells the waiting workers so. Therefore, the block may take longer than the
    timeout of the group.

    Args:
        rendezvous: of the group.
        call: the call, for messages.
        owners: the ranks of the workers that run the block.
        timeout: the timeout of the group, in seconds.
    """

    def __init__(self, rendezvous: Rendezvous, call: str, owners: Collection[int], timeout: float) -> None:
        self._rendezvous, self._call = rendezvous, call
        self._mine = rendezvous.group.rank in owners
        self._interval = min(_MOST_SECONDS, timeout / 4)
        self._left = threading.Event()
        self._why = ""  # the error of this worker's block
        self._others = ""  # the errors of the other workers' blocks
        self._failure: Optional[BaseException] = None  # of the messages
        self._abandoned = False
        self._thread: Optional[threading.Thread] = None

    def __enter__(self) -> bool:
        """Returns True on the workers that run the block."""
        self._rendezvous.require_possible(self._call)
        self._rendezvous.turn = self._call
        if self._mine and self._rendezvous.group.size > 1:
            self._thread = threading.Thread(
                target=self._tell, name=f"tf_strategies {self._call}", daemon=True
            )
            self._thread.start()
        return self._mine

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        """Waits for the other workers.

        Raises:
            RuntimeError: the block of another worker has failed. The message has the text of its error.
        """
        try:
            self._abandoned = error is not None and not isinstance(error, Exception)
            self._why = described(error, _WHY_LENGTH)
            self._left.set()
            if self._abandoned or self._rendezvous.group.size == 1:
                return
            if self._thread is not None:
                self._thread.join()
            else:
                self._tell()
        finally:
            self._rendezvous.turn = ""
        if error is None and self._failure is not None:
            raise self._failure
        if error is None and self._others:
            raise RuntimeError(f"{self._call}: {self._others}")

    def _tell(self) -> None:
        """Exchanges the states of the workers until one has failed, or all have left the block."""
        try:
            while not self._left.wait(self._interval):
                if self._over(busy=True):
                    return
            while not self._abandoned and not self._over(busy=False):
                pass
        except BaseException as failure:
            self._failure = failure

    def _over(self, *, busy: bool) -> bool:
        states = self._rendezvous.meet(self._call, busy=busy, why="" if busy else self._why)
        group = self._rendezvous.group
        failed = [rank for rank, state in enumerate(states) if state.get("why")]
        self._others = "; ".join(
            f"{group.name_of(rank)} has failed in the block: {states[rank]['why']}"
            for rank in failed
            if rank != group.rank
        )
        return bool(failed) or not any(state.get("busy") for state in states)
