"""Makes a task take part: it serves the others, reaches them, and passes reports up and orders down.

Each task reports to the first task that it has a connection with, in either direction, and that comes before it. So reports
reach the root, task 0, even where some connections are blocked. A task that is connected to none before it is a root itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Awaitable, Dict, List, Tuple

from tf_strategies.doctor import measuring
from tf_strategies.doctor.link import Link, LinkError
from tf_strategies.doctor.listening import Ports
from tf_strategies.doctor.plan import Plan
from tf_strategies.doctor.reaching import Reacher
from tf_strategies.doctor.records import Facts, Greeting, Measured, Report
from tf_strategies.doctor.roster import Roster
from tf_strategies.doctor.schema import from_json, to_json
from tf_strategies.doctor.serving import Callers
from tf_strategies.types import Json, JsonObject

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = ["Node"]

_MEASURE_SECONDS = 7.0
_SPARE_MESSAGES = 64


class Node:
    """A task among the others. All methods run in one event loop.

    Args:
        plan: the tasks.
        facts: of this task.
        ports: that it listens on.
        secret: of the cluster; empty if there is none.
        until: time.monotonic() after which it no longer tries to reach tasks that do not answer.

    Attributes:
        plan, until: as given.
        inbox: messages for the root: what other tasks, and this one, have passed up, as (kind, content).
        verdict: of the root, once it has judged.
    """

    def __init__(self, plan: Plan, facts: Facts, ports: Ports, secret: bytes, until: float) -> None:
        self.plan, self.until = plan, until
        self._ports, self._secret = ports, secret
        self._roster = Roster(plan, facts, ports.data_port)
        self._reacher = Reacher(self._roster, secret, until, self._adopt)
        self._callers = Callers(2 * len(plan.tasks))
        self._routes: Dict[str, Link] = {}
        self._working: List[asyncio.Task[None]] = []
        # A root takes them out all the time; what does not fit is from nobody who keeps to the protocol.
        self.inbox: asyncio.Queue[Tuple[str, Json]] = asyncio.Queue(_SPARE_MESSAGES + 4 * len(plan.tasks))
        self.verdict: asyncio.Future[JsonObject] = asyncio.get_running_loop().create_future()

    @property
    def is_second(self) -> bool:
        """True if another process listens as this task."""
        return self._roster.is_second

    @property
    def is_root(self) -> bool:
        """True if this task reports to no other."""
        return self._roster.parent() is None

    @property
    def trouble(self) -> Dict[str, str]:
        """Why each task that is not reached yet is not."""
        return self._reacher.trouble

    def serve(self) -> None:
        """Starts to accept connections."""
        for listener in [*self._ports.control, *([self._ports.data] if self._ports.data else [])]:
            self._callers.serve(listener, self._secret, self._welcome)

    async def meet(self) -> Report:
        """Reaches all other tasks, or gives up at the deadline. Returns what this task knows then."""
        others = [each for each in self.plan.tasks if each != self.plan.task]
        if self._ports.listens != "ok" and self.plan.task in self.plan.addresses:
            others.append(self.plan.task)  # another process may be this task
        probes = dict(zip(others, await asyncio.gather(*map(self._reacher.probe, others))))
        probes.pop(self.plan.task, None)
        return Report(
            task=self.plan.task,
            run=self._roster.run,
            digest=self.plan.digest,
            cluster=self.plan.addresses,
            listens=self._ports.listens,
            listens_text=self._ports.text,
            data_listens=self._ports.data_text,
            facts=self._roster.facts,
            probes=probes,
            heard=sorted(set(self._roster.heard)),
            twins=self._roster.twins,
        )

    def connected(self) -> set[str]:
        """Returns the tasks that this one has a connection with now."""
        return {each.peer for each in self._roster.links} - {self.plan.task}

    async def up(self, kind: str, record: DataclassInstance) -> None:
        """Passes a record to the root, which may be this task.

        Raises:
            LinkError: the connection has ended.
        """
        await self._pass_up(kind, to_json(record))

    async def measure(self, first: str, second: str) -> None:
        """Lets `first` measure the wire to `second`. The result goes to the root.

        Raises:
            LinkError: the connection has ended.
        """
        if first != self.plan.task:
            route = self._routes.get(first)
            if route is not None:
                await route.send({"kind": "measure", "first": first, "second": second})
            return
        try:
            trip, there, back = await asyncio.wait_for(self._reacher.measure(second), _MEASURE_SECONDS)
            result = Measured(first, second, trip, there, back, "")
        except (LinkError, OSError, asyncio.TimeoutError) as error:
            result = Measured(first, second, 0.0, 0.0, 0.0, (str(error) or "it took too long")[:500])
        await self.up("measured", result)

    async def tell_verdict(self, verdict: JsonObject) -> None:
        """Tells all tasks that have reported to this one."""
        for link in set(self._routes.values()):
            with contextlib.suppress(LinkError):
                await link.send({"kind": "verdict", **verdict})

    async def close(self) -> None:
        """Ends all connections."""
        self._callers.close()
        self._ports.close()
        for each in self._working:
            each.cancel()
        await asyncio.gather(*self._working, return_exceptions=True)

    async def _welcome(self, link: Link) -> None:
        """Serves a connection that another task has opened, until it ends."""
        greeting = await self._roster.read_greeting(link)
        await link.send(self._roster.greeting(greeting.purpose))
        if greeting.purpose == "data":
            await measuring.answer_large(link)
        elif greeting.purpose == "rate":
            await asyncio.get_running_loop().run_in_executor(None, measuring.serve_wire, link.socket)
        elif greeting.purpose == "meet":
            self._roster.note_caller(greeting)
            await self._adopt(link, greeting)

    def _adopt(self, link: Link, greeting: Greeting) -> asyncio.Task[None]:
        """Reads the messages of a connection from now on."""
        self._roster.add(link, greeting.task)
        reader = asyncio.ensure_future(self._read(link))
        self._working.append(reader)
        return reader

    async def _read(self, link: Link) -> None:
        try:
            while True:
                await self._handle(link, await link.receive())
        except (LinkError, ValueError, LookupError, ArithmeticError, TypeError):
            pass  # it has ended, or says what no doctor says
        finally:
            self._roster.links.remove(link)
            link.close()

    async def _handle(self, link: Link, message: JsonObject) -> None:
        kind = message["kind"]
        if kind == "ping":
            await link.send({"kind": "pong", "time": time.time()})
        elif kind == "pong":
            self._roster.answers[link].put_nowait((time.time(), float(message["time"])))
        elif kind == "measure":
            order = self.measure(str(message["first"]), str(message["second"]))
            self._working.append(asyncio.ensure_future(_quietly(order)))
        elif kind == "verdict":
            if link is self._roster.parent() and not self.verdict.done():
                counts = {name: int(message[name]) for name in ("errors", "warnings")}
                await self.tell_verdict(counts)
                self.verdict.set_result(counts)
        elif kind in ("report", "library", "measured"):
            if kind == "report":
                self._routes[from_json(Report, message["content"]).task] = link
            await self._pass_up(kind, message["content"])

    async def _pass_up(self, kind: str, content: Json) -> None:
        above = self._roster.parent()
        if above is None:
            with contextlib.suppress(asyncio.QueueFull):
                self.inbox.put_nowait((kind, content))
        else:
            await above.send({"kind": kind, "content": content})


async def _quietly(work: Awaitable[None]) -> None:
    with contextlib.suppress(LinkError):  # the connection to the root has ended, and so has the measurement
        await work
