"""Reaches other tasks, as the job would: at their address, at their data port, with large messages, and in memory."""

from __future__ import annotations

import asyncio
import time
from typing import Callable, Dict, Tuple

from tf_strategies.doctor import measuring, probing
from tf_strategies.doctor.facts.names import RESOLVE_SECONDS
from tf_strategies.doctor.link import SMALL_SEGMENT, Link, LinkError
from tf_strategies.doctor.memory import read_sample
from tf_strategies.doctor.records import Greeting, Probe
from tf_strategies.doctor.roster import Roster

__all__ = ["Reacher"]

_LATER_SECONDS = 0.3  # after the deadline: the other task may connect at the last moment


class Reacher:
    """Reaches other tasks.

    Args:
        roster: what this task knows.
        secret: of the cluster; empty if there is none.
        until: time.monotonic() after which no attempt begins.
        adopt: takes a connection over, with the greeting of the other end, and answers on it from then on.

    Attributes:
        trouble: why each task that is not reached yet is not, for progress.
    """

    def __init__(
        self, roster: Roster, secret: bytes, until: float, adopt: Callable[[Link, Greeting], object]
    ) -> None:
        self._roster, self._plan = roster, roster.plan
        self._secret, self._until, self._adopt = secret, until, adopt
        self.trouble: Dict[str, str] = {}

    async def probe(self, task: str) -> Probe:
        """Returns how a task was reached, at the latest some seconds after the deadline."""
        reaching_data = asyncio.ensure_future(self._reach_data(task))
        outcome, text, seconds, offset, memory = await self._reach(task)
        if outcome in probing.FINAL or task == self._plan.task:
            reaching_data.cancel()  # its data port stays unknown
        await asyncio.wait([reaching_data])
        kind, data_text, large = ("", "", "") if reaching_data.cancelled() else reaching_data.result()
        known = self._roster.known.get(task)
        port = 0 if known is None else known.data_port
        return Probe(outcome, text, kind, data_text, port, seconds, offset, large, memory)

    async def measure(self, task: str) -> Tuple[float, float, float]:
        """Returns what `measuring.measure_wire` returns of the wire to a task.

        Raises:
            LinkError: there is no connection.
            OSError: the connection ended.
        """
        if task not in self._roster.known:
            raise LinkError("other", "its data port is unknown")
        link = await self._open_data(task, "rate")
        try:
            return await asyncio.get_running_loop().run_in_executor(None, measuring.measure_wire, link.socket)
        finally:
            link.close()

    async def _reach(self, task: str) -> Tuple[str, str, float, float, str]:
        host, port = self._plan.split(task)
        name = self._roster.facts.names.get(host)
        if name is not None and name.seconds >= RESOLVE_SECONDS:  # it would take as long again
            return "unresolved", f"{host} does not resolve: {name.error}", 0.0, 0.0, ""

        async def attempt() -> Tuple[float, float]:
            try:
                link = await probing.open_link(host, port, self._secret, segment=SMALL_SEGMENT)
                await self._greet(link, task)
                ask = self._roster.answers[link]
                return await probing.round_trips(lambda: link.send({"kind": "ping"}), ask)
            except LinkError as failure:
                self.trouble[task] = str(failure)
                raise

        try:
            seconds, offset = await probing.until_it_works(attempt, self._until)
        except LinkError as failure:
            return failure.kind, str(failure)[:500], 0.0, 0.0, ""
        self.trouble.pop(task, None)
        return "ok", "", seconds, offset, self._read_memory(self._roster.known[task])

    async def _greet(self, link: Link, task: str) -> None:
        try:
            greeting = await self._roster.greet(link, "meet")
            if greeting.task != task:
                if (
                    greeting.digest != self._plan.digest
                ):  # of another TF_CONFIG: both ends are to hear of that
                    self._adopt(link, greeting)
                raise LinkError("wrong_task", f"{greeting.task} of host {greeting.host_name} answers there")
            if task == self._plan.task:
                self._roster.note_twin(greeting)
                self._roster.is_second = True
                raise LinkError("twin", "another process is this task")
        except BaseException:
            if link not in self._roster.links:
                link.close()
            raise
        self._adopt(link, greeting)
        self._roster.note_reached(link, greeting)

    def _read_memory(self, other: Greeting) -> str:
        facts = self._roster.facts
        if (other.host, other.pid_space) != (facts.host, facts.pid_space):
            return ""
        return read_sample(other.pid, other.sample, other.content)

    async def _reach_data(self, task: str) -> Tuple[str, str, str]:
        """Returns how the data port of a task was reached, as soon as it is known, and how large messages pass."""
        left = max(0.0, self._until - time.monotonic()) + _LATER_SECONDS
        try:
            await asyncio.wait_for(self._roster.met[task].wait(), left)
        except asyncio.TimeoutError:
            return "", "", ""
        if not self._roster.known[task].data_port:
            return "", "", ""

        async def attempt() -> str:
            return await probing.exchange_large(lambda: self._open_data(task, "data"))

        try:
            return "ok", "", await probing.until_it_works(attempt, self._until)
        except LinkError as failure:
            return failure.kind, str(failure)[:500], ""

    async def _open_data(self, task: str, purpose: str) -> Link:
        port = self._roster.known[task].data_port
        link = await probing.open_link(self._plan.split(task)[0], port, self._secret)
        try:
            await self._roster.greet(link, purpose)
        except BaseException:
            link.close()
            raise
        return link
