"""Keeps what a task knows of the others: their greetings, and its connections with them."""

from __future__ import annotations

import asyncio
import secrets
from typing import Dict, List, Tuple

from tf_strategies.doctor.link import Link, LinkError
from tf_strategies.doctor.memory import Sample
from tf_strategies.doctor.plan import Plan
from tf_strategies.doctor.records import Facts, Greeting
from tf_strategies.doctor.schema import from_json, to_json
from tf_strategies.types import JsonObject

__all__ = ["Roster"]

_GREETING_SECONDS = 5.0


class Roster:
    """Holds what one task knows of the others.

    Args:
        plan: the tasks.
        facts: of this task.
        data_port: where this task listens for data, or 0.

    Attributes:
        plan, facts: as given.
        run: a random text of this process.
        known: the greeting of each task that this one has, or had, a connection with.
        met: set when a task is known.
        heard: the tasks that have connected to this one.
        twins: as in `records.Report`.
        is_second: whether another process listens as this task.
        links: all connections for messages.
        outgoing: those of them that this task has opened, by task.
        answers: of each connection, the answers to its questions, as (this clock, the other clock).
    """

    def __init__(self, plan: Plan, facts: Facts, data_port: int) -> None:
        self.plan, self.facts = plan, facts
        self.run, self._sample, self._data_port = secrets.token_hex(8), Sample(), data_port
        self.known: Dict[str, Greeting] = {}
        self.met: Dict[str, asyncio.Event] = {each: asyncio.Event() for each in plan.tasks}
        self.heard: List[str] = []
        self.twins: Dict[str, str] = {}
        self.is_second = False
        self.links: List[Link] = []
        self.outgoing: Dict[str, Link] = {}
        self.answers: Dict[Link, asyncio.Queue[Tuple[float, float]]] = {}

    def add(self, link: Link, task: str) -> None:
        """Adds a connection with a task."""
        link.peer = task
        self.links.append(link)
        self.answers[link] = asyncio.Queue()

    def note_caller(self, greeting: Greeting) -> None:
        """Notes a task that has connected to this one."""
        first = self.known.setdefault(greeting.task, greeting)
        if greeting.task == self.plan.task or first.run != greeting.run:
            self.note_twin(greeting)
            return
        self.heard.append(greeting.task)
        if greeting.task in self.met:
            self.met[greeting.task].set()

    def note_reached(self, link: Link, greeting: Greeting) -> None:
        """Notes a task that this one has connected to at its address, so that it is no twin."""
        before = self.known.get(greeting.task)
        if before is not None and before.run != greeting.run:
            self.note_twin(before)
        self.known[greeting.task] = greeting
        self.outgoing[greeting.task] = link
        self.met[greeting.task].set()

    def note_twin(self, greeting: Greeting) -> None:
        """Notes a further process that is the same task as another."""
        self.twins[greeting.task] = f"process {greeting.pid} of host {greeting.host_name}"

    def parent(self) -> Link | None:
        """Returns the connection to the task that this one reports to; None if it is a root."""
        if self.is_second:
            return None
        mine = self.plan.place(self.plan.task)
        before = [each for each in self.links if self.plan.place(each.peer) < mine]
        return min(
            before,
            key=lambda each: (self.plan.place(each.peer), self.outgoing.get(each.peer) is not each),
            default=None,
        )

    async def greet(self, link: Link, purpose: str) -> Greeting:
        """Introduces this task on a connection that it has opened. Returns the other one's greeting.

        Raises:
            LinkError: the connection has ended, or the other end says something else.
        """
        await link.send(self.greeting(purpose))
        return await self.read_greeting(link)

    async def read_greeting(self, link: Link) -> Greeting:
        """Returns the greeting of the other end of a connection.

        Raises:
            LinkError: the connection has ended, or the other end says something else.
        """
        message = await link.receive(_GREETING_SECONDS)
        try:
            return from_json(Greeting, message["content"])
        except (KeyError, ValueError):
            raise LinkError(
                "stranger", "it does not introduce itself as a doctor of this version does"
            ) from None

    def greeting(self, purpose: str) -> JsonObject:
        """Returns the greeting of this task."""
        content = Greeting(
            task=self.plan.task,
            run=self.run,
            digest=self.plan.digest,
            purpose=purpose,
            data_port=self._data_port,
            host_name=self.facts.host_name,
            host=self.facts.host,
            pid_space=self.facts.pid_space,
            pid=self.facts.pid,
            sample=self._sample.address,
            content=self._sample.content,
        )
        return {"kind": "greeting", "content": to_json(content)}
