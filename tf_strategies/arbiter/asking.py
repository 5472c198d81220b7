"""Asks an arbiter."""

from __future__ import annotations

import queue
import time

from tf_strategies.arbiter.votes import Vote
from tf_strategies.control_plane.link import Link
from tf_strategies.control_plane.messages import Message
from tf_strategies.control_plane.remote_link import RemoteLink
from tf_strategies.tls import TlsFiles

__all__ = ["Arbiter"]

_RETRY_SECONDS = 0.2


class Arbiter:
    """Is an arbiter as its address names it.

    Args:
        address: "host:port".
        secret: of the cluster; b"" if it has none.
        tls: the certificate of this task, or None.
        within: the number of seconds in which it must answer.
    """

    def __init__(self, address: str, secret: bytes, tls: TlsFiles | None, within: float) -> None:
        self._address, self._secret, self._tls, self._within = address, secret, tls, within

    def silence(self) -> str:
        """Returns why it does not answer, or "" if it does."""
        answer = self._ask({"type": "ready"})
        return answer if isinstance(answer, str) else ""

    def objection(self, vote: Vote) -> str:
        """Returns why half of a group may not go on and what to do, or "" if it may."""
        answer = self._ask(
            {"type": "vote", "group": vote.group, "ranks": sorted(vote.ranks), "names": list(vote.names)}
        )
        if isinstance(answer, str):
            return f"{answer}; see its log, then restart all workers"
        if answer["type"] == "granted":
            return ""
        return f"the arbiter at {self._address} refuses it: {answer.get('message')}"

    def _ask(self, message: Message) -> Message | str:
        """Returns the answer, or why there is none. Tries again until the time is over."""
        until = time.monotonic() + self._within
        reason = "there is no answer"
        while (left := until - time.monotonic()) > 0:
            try:
                answer, is_final = self._try(message, left)
            except queue.Empty:
                break
            except OSError as error:  # the name of the host cannot be resolved now
                answer, is_final = str(error), False
            if not isinstance(answer, str):
                return answer
            reason = answer
            if is_final:
                break
            time.sleep(max(0.0, min(until - time.monotonic(), _RETRY_SECONDS)))
        return f"the arbiter at {self._address} does not answer ({reason})"

    def _try(self, message: Message, seconds: float) -> tuple[Message | str, bool]:
        """Returns the answer, or why there is none and whether time does not change that."""
        answers: queue.SimpleQueue[Message | str] = queue.SimpleQueue()

        def on_message(link: Link, message: Message) -> None:
            answers.put(message)

        def on_closed(link: Link, reason: str) -> None:
            answers.put(reason)

        link = RemoteLink(self._address, self._secret, on_message, on_closed, self._tls)
        try:
            link.send(message)
            answer = answers.get(timeout=seconds)
        finally:
            link.close()
        return answer, bool(link.refused)
