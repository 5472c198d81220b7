"""Makes a task take part: it serves the others, reaches them, and passes reports up and orders down.

Each task reports to the first task that it has a connection with, in either direction, and that comes before it. So reports
reach the root, task 0, even where some connections are blocked. A task that is connected to none before it is a root itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from typing import Any, Dict, List, Tuple

from tf_strategies.doctor import measuring, probing
from tf_strategies.doctor.link import SMALL_SEGMENT, Link, LinkError
from tf_strategies.doctor.listening import Ports
from tf_strategies.doctor.memory import Sample, read_sample
from tf_strategies.doctor.plan import Plan
from tf_strategies.doctor.records import Facts, Greeting, Measured, Probe, Report
from tf_strategies.doctor.schema import from_json, to_json
from tf_strategies.doctor.serving import Callers

__all__ = ["Node"]

_GREETING_SECONDS = 5.0
_MEASURE_SECONDS = 12.0
_LATER_SECONDS = 0.3  # after the deadline: the other task may connect at the last moment


class Node:
    """A task among the others. All methods run in one event loop.

    Args:
        plan: the tasks.
        facts: of this task.
        ports: that it listens on.
        secret: of the cluster; empty if there is none.
        until: time.monotonic() after which it no longer tries to reach tasks that do not answer.

    Attributes:
        inbox: messages for the root: those that other tasks have passed up, as (kind, content).
        known: the greeting of each task that this one has a connection with, or had.
        is_second: whether another process listens as this task.
        trouble: why each task that is not reached yet is not, for progress.
    """

    def __init__(self, plan: Plan, facts: Facts, ports: Ports, secret: bytes, until: float) -> None:
        self.plan, self.until = plan, until
        self._facts, self._ports, self._secret = facts, ports, secret
        self._run, self._sample = secrets.token_hex(8), Sample()
        self._callers = Callers(2 * len(plan.tasks))
        self._links: List[Link] = []
        self._outgoing: Dict[str, Link] = {}
        self._met: Dict[str, asyncio.Event] = {each: asyncio.Event() for each in plan.tasks}
        self._routes: Dict[str, Link] = {}
        self._answers: Dict[Link, asyncio.Queue[Tuple[float, float]]] = {}
        self._readers: List[asyncio.Task[None]] = []
        self._heard: List[str] = []
        self._twins: Dict[str, str] = {}
        self.is_second = False
        self.inbox: asyncio.Queue[Tuple[str, Any]] = asyncio.Queue()
        self.known: Dict[str, Greeting] = {}
        self.trouble: Dict[str, str] = {}
        self.verdict: asyncio.Future[Dict[str, Any]] = asyncio.get_running_loop().create_future()

    def serve(self) -> None:
        """Starts to accept connections."""
        for listener in [*self._ports.control, *([self._ports.data] if self._ports.data else [])]:
            self._callers.serve(listener, self._secret, self._welcome)

    async def meet(self) -> Report:
        """Reaches all other tasks, or gives up at the deadline. Returns what this task knows then."""
        others = [each for each in self.plan.tasks if each != self.plan.task]
        if self._ports.listens != "ok" and self.plan.task in self.plan.addresses:
            others.append(self.plan.task)  # another process may be this task
        probes = dict(zip(others, await asyncio.gather(*map(self._probe, others))))
        probes.pop(self.plan.task, None)
        return Report(
            task=self.plan.task,
            run=self._run,
            digest=self.plan.digest,
            cluster=self.plan.addresses,
            listens=self._ports.listens,
            listens_text=self._ports.text,
            data_listens=self._ports.data_text,
            facts=self._facts,
            probes=probes,
            heard=sorted(set(self._heard)),
            twins=self._twins,
        )

    def parent(self) -> Link | None:
        """Returns the connection to the task that this one reports to; None if it is a root."""
        if self.is_second:
            return None
        before = [
            each
            for each in self._links
            if each.peer != self.plan.task and self.plan.place(each.peer) < self.plan.place(self.plan.task)
        ]
        ours = self._outgoing
        return min(
            before,
            key=lambda each: (self.plan.place(each.peer), ours.get(each.peer) is not each),
            default=None,
        )

    def connected(self) -> set[str]:
        """Returns the tasks that this one has a connection with now."""
        return {each.peer for each in self._links} - {self.plan.task}

    async def up(self, kind: str, record: Any) -> None:
        """Passes a record to the root, which may be this task."""
        link = self.parent()
        content = to_json(record)
        if link is None:
            self.inbox.put_nowait((kind, content))
        else:
            await link.send({"kind": kind, "content": content})

    async def measure(self, first: str, second: str) -> None:
        """Lets `first` measure the wire to `second`. The result goes to the root."""
        if first != self.plan.task:
            route = self._routes.get(first)
            if route is not None:
                await route.send({"kind": "measure", "first": first, "second": second})
            return
        try:
            trip, there, back = await asyncio.wait_for(self._measure(second), _MEASURE_SECONDS)
            result = Measured(first, second, trip, there, back, "")
        except (LinkError, OSError, asyncio.TimeoutError) as error:
            result = Measured(first, second, 0.0, 0.0, 0.0, (str(error) or "it took too long")[:500])
        await self.up("measured", result)

    async def tell_verdict(self, verdict: Dict[str, Any]) -> None:
        """Tells all tasks that have reported to this one."""
        for link in set(self._routes.values()):
            try:
                await link.send({"kind": "verdict", **verdict})
            except LinkError:
                continue

    async def close(self) -> None:
        """Ends all connections."""
        self._callers.close()
        self._ports.close()
        for each in self._readers:
            each.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)
        for link in self._links:
            link.close()

    # --- reaching others ---------------------------------------------------------------------------------------------------

    async def _probe(self, task: str) -> Probe:
        reaching_data = asyncio.ensure_future(self._reach_data(task))
        outcome, text, seconds, offset, memory = await self._reach(task)
        if outcome in probing.FINAL or task == self.plan.task:
            reaching_data.cancel()  # its data port stays unknown
        await asyncio.wait([reaching_data])
        kind, data_text, large = ("", "", "") if reaching_data.cancelled() else reaching_data.result()
        port = self.known[task].data_port if task in self.known else 0
        return Probe(outcome, text, kind, data_text, port, seconds, offset, large, memory)

    async def _reach(self, task: str) -> Tuple[str, str, float, float, str]:
        host, port = self.plan.split(task)

        async def attempt() -> Tuple[float, float]:
            try:
                link = await probing.open_link(host, port, self._secret, segment=SMALL_SEGMENT)
                await self._greet(link, task)
                return await self._trips(link)
            except LinkError as failure:
                self.trouble[task] = str(failure)
                raise

        try:
            seconds, offset = await probing.until_it_works(attempt, self.until)
        except LinkError as failure:
            return failure.kind, str(failure)[:500], 0.0, 0.0, ""
        self.trouble.pop(task, None)
        return "ok", "", seconds, offset, self._read_memory(self.known[task])

    async def _greet(self, link: Link, task: str) -> None:
        try:
            greeting = await self._exchange_greetings(link, "meet")
            if greeting.task != task:
                raise LinkError("wrong_task", f"{greeting.task} of host {greeting.host_name} answers there")
            if task == self.plan.task:
                self._note_twin(greeting)
                self.is_second = True
                raise LinkError("twin", "another process is this task")
        except BaseException:
            link.close()
            raise
        if task in self.known and self.known[task].run != greeting.run:
            self._note_twin(self.known[task])
        self._adopt(link, greeting)
        self._outgoing[task] = link
        self.known[task] = greeting
        self._met[task].set()

    async def _exchange_greetings(self, link: Link, purpose: str) -> Greeting:
        await link.send({"kind": "greeting", "content": self._greeting(purpose)})
        return _greeting_in(await link.receive(_GREETING_SECONDS))

    async def _trips(self, link: Link) -> Tuple[float, float]:
        return await probing.round_trips(lambda: link.send({"kind": "ping"}), self._answers[link])

    def _read_memory(self, other: Greeting) -> str:
        if (other.host, other.pid_space) != (self._facts.host, self._facts.pid_space):
            return ""
        return read_sample(other.pid, other.sample, other.content)

    async def _reach_data(self, task: str) -> Tuple[str, str, str]:
        """Returns how the data port of a task was reached, as soon as it is known, and how large messages pass."""
        try:
            await asyncio.wait_for(
                self._met[task].wait(), max(0.0, self.until - time.monotonic()) + _LATER_SECONDS
            )
        except asyncio.TimeoutError:
            return "", "", ""
        if not self.known[task].data_port or task == self.plan.task:
            return "", "", ""
        try:
            attempt = lambda: probing.exchange_large(lambda: self._open_data(task, "data"))  # noqa: E731
            return "ok", "", await probing.until_it_works(attempt, self.until)
        except LinkError as failure:
            return failure.kind, str(failure)[:500], ""

    async def _open_data(self, task: str, purpose: str) -> Link:
        link = await probing.open_link(self.plan.split(task)[0], self.known[task].data_port, self._secret)
        try:
            await self._exchange_greetings(link, purpose)
        except BaseException:
            link.close()
            raise
        return link

    async def _measure(self, task: str) -> Tuple[float, float, float]:
        if task not in self.known:
            raise LinkError("other", "its data port is unknown")
        link = await self._open_data(task, "rate")
        try:
            return await asyncio.get_running_loop().run_in_executor(None, measuring.measure_wire, link.socket)
        finally:
            link.close()

    # --- serving others ----------------------------------------------------------------------------------------------------

    async def _welcome(self, link: Link) -> None:
        """Serves a connection that another task has opened, until it ends."""
        greeting = _greeting_in(await link.receive(_GREETING_SECONDS))
        await link.send({"kind": "greeting", "content": self._greeting(greeting.purpose)})
        if greeting.purpose == "data":
            await measuring.answer_large(link)
        elif greeting.purpose == "rate":
            await asyncio.get_running_loop().run_in_executor(None, measuring.serve_wire, link.socket)
        elif greeting.purpose == "meet":
            self._notice(greeting)
            await self._adopt(link, greeting)

    def _notice(self, greeting: Greeting) -> None:
        task = greeting.task
        first = self.known.setdefault(task, greeting)
        if task == self.plan.task or first.run != greeting.run:
            self._note_twin(greeting)
            return
        self._heard.append(task)
        if task in self._met:
            self._met[task].set()

    def _note_twin(self, greeting: Greeting) -> None:
        self._twins[greeting.task] = f"process {greeting.pid} of host {greeting.host_name}"

    def _adopt(self, link: Link, greeting: Greeting) -> asyncio.Task[None]:
        """Reads the messages of a connection from now on."""
        link.peer = greeting.task
        self._links.append(link)
        self._answers[link] = asyncio.Queue()
        reader = asyncio.ensure_future(self._read(link))
        self._readers.append(reader)
        return reader

    async def _read(self, link: Link) -> None:
        try:
            while True:
                await self._handle(link, await link.receive())
        except (LinkError, ValueError, KeyError):
            pass  # it has ended, or says what no doctor says
        finally:
            self._links.remove(link)
            link.close()

    async def _handle(self, link: Link, message: Dict[str, Any]) -> None:
        kind = message["kind"]
        if kind == "ping":
            await link.send({"kind": "pong", "time": time.time()})
        elif kind == "pong":
            self._answers[link].put_nowait((time.time(), float(message["time"])))
        elif kind == "measure":
            order = self.measure(str(message["first"]), str(message["second"]))
            self._readers.append(asyncio.ensure_future(_quietly(order)))
        elif kind == "verdict":
            if link is self.parent() and not self.verdict.done():
                await self.tell_verdict(
                    {"errors": int(message["errors"]), "warnings": int(message["warnings"])}
                )
                self.verdict.set_result(message)
        elif kind in ("report", "library", "measured"):
            if kind == "report":
                self._routes[from_json(Report, message["content"]).task] = link
            above = self.parent()
            if above is None:
                self.inbox.put_nowait((kind, message["content"]))
            else:
                await above.send(message)

    def _greeting(self, purpose: str) -> Dict[str, Any]:
        facts = self._facts
        return to_json(
            Greeting(
                task=self.plan.task,
                run=self._run,
                digest=self.plan.digest,
                purpose=purpose,
                data_port=self._ports.data_port,
                host_name=facts.host_name,
                host=facts.host,
                pid_space=facts.pid_space,
                pid=facts.pid,
                sample=self._sample.address,
                content=self._sample.content,
            )
        )


def _greeting_in(message: Dict[str, Any]) -> Greeting:
    try:
        return from_json(Greeting, message["content"])
    except (KeyError, ValueError):
        raise LinkError("stranger", "it does not introduce itself as a doctor of this version does") from None


async def _quietly(work: Any) -> None:
    with contextlib.suppress(LinkError):  # the connection to the root has ended, and so has the measurement
        await work
