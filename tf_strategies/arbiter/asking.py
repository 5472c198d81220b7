"""Asks an arbiter, within a limited time."""

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
    """Asks the arbiter at an address.

    Args:
        address: "host:port".
        secret: of the cluster; b"" if it has none.
        tls: the certificate of this task, or None.
        within: the number of seconds in which it must answer. No question is sent later.
    """

    def __init__(self, address: str, secret: bytes, tls: TlsFiles | None, within: float) -> None:
        self._address, self._secret, self._tls, self._within = address, secret, tls, within

    def silence(self) -> str:
        """Returns why it does not answer and what to do, or "" if it answers."""
        answer = self._ask({"type": "ready"})
        if isinstance(answer, str):
            return answer
        if answer["type"] == "here":
            return ""
        return f"no arbiter is at {self._address}, but something else; start it with: tfs-arbiter {self._address} --votes FILE"

    def objection(self, vote: Vote) -> str:
        """Returns why half of a group may not go on and what to do, or "" if it may."""
        answer = self._ask(
            {"type": "vote", "group": vote.group, "ranks": sorted(vote.ranks), "names": list(vote.names)}
        )
        if isinstance(answer, str):
            return f"{answer}; then restart all workers"
        if answer["type"] == "granted":
            return ""
        return f"the arbiter at {self._address} refuses it: {answer.get('message')}"

    def _ask(self, message: Message) -> Message | str:
        """Returns the answer, or why there is none and what to do. Tries again until the time is over."""
        until = time.monotonic() + self._within
        reason = "there is no answer"
        while time.monotonic() < until:
            try:
                answer, disagreement = self._try(message, until)
            except queue.Empty:
                break
            except (OSError, UnicodeError) as error:  # the name of the host cannot be resolved now
                answer, disagreement = str(error), ""
            if not isinstance(answer, str):
                return answer
            if disagreement:  # which time does not change
                return f"the arbiter at {self._address} is another one: {answer}; correct {disagreement} there or here"
            reason = answer
            time.sleep(max(0.0, min(until - time.monotonic(), _RETRY_SECONDS)))
        remedy = f"start it with: tfs-arbiter {self._address} --votes FILE"
        return f"the arbiter at {self._address} does not answer ({reason}); {remedy}"

    def _try(self, message: Message, until: float) -> tuple[Message | str, str]:
        """Returns the answer, or why there is none and the environment variable about which the two ends disagree.

        Raises:
            OSError: the name of the host cannot be resolved now.
            queue.Empty: the time is over.
        """
        answers: queue.SimpleQueue[Message | str] = queue.SimpleQueue()

        def on_message(link: Link, message: Message) -> None:
            answers.put(message)

        def on_closed(link: Link, reason: str) -> None:
            answers.put(reason)

        link = RemoteLink(self._address, self._secret, on_message, on_closed, self._tls)
        try:
            left = until - time.monotonic()  # looking up the name may have taken long
            if left <= 0:
                raise queue.Empty
            link.send(message)
            answer = answers.get(timeout=left)
        finally:
            link.close()
        return answer, link.refused
