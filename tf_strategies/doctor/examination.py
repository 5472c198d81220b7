"""Runs the examination of a root: waits for the reports, has wires measured, and judges."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from typing import Callable, Dict, List, Tuple

from tf_strategies.doctor.judging import View, pairs
from tf_strategies.doctor.node import Node
from tf_strategies.doctor.records import Library, Measured, Report
from tf_strategies.doctor.rounds import tournament
from tf_strategies.doctor.schema import from_json
from tf_strategies.types import Json

__all__ = ["Examination"]

_GRACE_SECONDS = 8.0  # for reports, after the deadline for meeting the others
_LOOK_SECONDS = 0.5  # a connection may end without a message
_ROUND_SECONDS = 8.0
_ALL_ROUNDS_SECONDS = 10.0
_AGAIN = 2  # times that a wire is measured alone before it is called slow
_MOST_AGAIN = 4  # wires


class Examination:
    """Collects what a root knows.

    Args:
        node: this task.
        mine: its own report.
        expects_libraries: whether the first task of each host tries the operations.
    """

    def __init__(self, node: Node, mine: Report, *, expects_libraries: bool) -> None:
        self._node = node
        self._expects_libraries = expects_libraries
        self._reports: Dict[str, Report] = {mine.task: mine}
        self._libraries: Dict[str, Library] = {}
        self._measured: Dict[Tuple[str, str], Measured] = {}

    def view(self) -> View:
        """Returns what is known now."""
        return View(
            plan=self._node.plan,
            reports=dict(self._reports),
            libraries=list(self._libraries.values()),
            measured=list(self._measured.values()),
            alive=frozenset(self._alive()),
        )

    async def collect(self) -> None:
        """Waits for the reports of all tasks until the deadline, and some seconds more for those that are there.

        A task that nobody trusts also stays until then, so that the others can say so.
        """
        tasks = set(self._node.plan.tasks)
        left = max(0.0, self._node.until - time.monotonic())
        await self._until(lambda: tasks <= set(self._reports), left)
        await self._until(lambda: self._awaited() <= set(self._reports), _GRACE_SECONDS)

    async def wait_for_libraries(self, seconds: float) -> None:
        """Waits until the operations were tried on each host, and so many seconds at most."""
        if self._expects_libraries:
            await self._until(lambda: self._triers() <= set(self._libraries), seconds)

    async def measure(self) -> None:
        """Has the wires between hosts measured, in rounds, and those again that seem slow."""
        end = time.monotonic() + _ALL_ROUNDS_SECONDS
        for pairs_of_round in tournament(self._ends()):
            if time.monotonic() < end:
                await self._measure([found for pair in pairs_of_round for found in self._initiators(pair)])
        view = self.view()
        wires = [each for each in self._measured.values() if pairs.is_wire(view, each)]
        failed = [each for each in self._measured.values() if each.error]
        for slow in [*failed, *pairs.slow_pairs(wires)][:_MOST_AGAIN]:
            for _ in range(_AGAIN):
                if time.monotonic() < end + _ROUND_SECONDS:
                    await self._measure_again(slow)

    def _alive(self) -> set[str]:
        """Returns the tasks that this one, or one that has reported, is or was connected with."""
        return self._node.connected().union(*(_met_by(report) for report in self._reports.values()))

    def _awaited(self) -> set[str]:
        """Returns the tasks whose reports may still come: not those whose connection with this one has ended."""
        gone = _met_by(self._reports[self._node.plan.task]) - self._node.connected()
        return self._alive() - gone

    def _triers(self) -> set[str]:
        plan = self._node.plan
        return {
            task for task in self._reports if task in plan.addresses and plan.for_task(task).is_first_of_host
        }

    def _ends(self) -> List[str]:
        """Returns a task of each host; two of a single host, whose loopback interface is then measured."""
        able = [task for task in self._node.plan.tasks if task in self._reports]
        able = [task for task in able if self._reports[task].listens == "ok"]
        first_of: Dict[str, str] = {}
        for task in able:
            first_of.setdefault(self._reports[task].facts.host, task)
        return list(first_of.values()) if len(first_of) > 1 else able[:2]

    def _initiators(self, pair: Tuple[str, str]) -> List[Tuple[str, str]]:
        """Returns the pair with the task first that can connect to the other; an empty list if neither can."""
        for first, second in (pair, pair[::-1]):
            probe = self._reports[first].probes.get(second)
            if probe is not None and probe.data == "ok" and probe.large == "ok":
                return [(first, second)]
        return []

    async def _measure(self, round_: List[Tuple[str, str]]) -> None:
        orders = [self._node.measure(first, second) for first, second in round_]
        await asyncio.gather(*orders, return_exceptions=True)  # a task that cannot be ordered gives no result
        await self._until(lambda: set(round_) <= set(self._measured), _ROUND_SECONDS)
        for first, second in round_:
            silent = Measured(first, second, 0.0, 0.0, 0.0, f"no result came within {_ROUND_SECONDS:g} s")
            self._measured.setdefault((first, second), silent)

    async def _measure_again(self, before: Measured) -> None:
        """Measures a wire alone, and keeps the better values."""
        pair = (before.first, before.second)
        first = self._measured.pop(pair)
        await self._measure([pair])
        again = self._measured[pair]
        if first.error or again.error:
            self._measured[pair] = first if again.error else again
            return
        self._measured[pair] = dataclasses.replace(
            again,
            seconds=min(first.seconds, again.seconds),
            there=max(first.there, again.there),
            back=max(first.back, again.back),
        )

    async def _until(self, is_done: Callable[[], bool], seconds: float) -> None:
        """Takes in messages until something holds, and so many seconds at most."""
        end = time.monotonic() + seconds
        while not is_done() and time.monotonic() < end:
            with contextlib.suppress(asyncio.TimeoutError):
                left = max(0.0, end - time.monotonic())
                kind, content = await asyncio.wait_for(self._node.inbox.get(), min(left, _LOOK_SECONDS))
                with contextlib.suppress(ValueError):  # from no doctor of this version
                    self._take(kind, content)

    def _take(self, kind: str, content: Json) -> None:
        if kind == "report":
            report = from_json(Report, content)
            self._reports.setdefault(report.task, report)
        elif kind == "library":
            library = from_json(Library, content)
            self._libraries[library.task] = library
        elif kind == "measured":
            measured = from_json(Measured, content)
            self._measured[measured.first, measured.second] = measured


def _met_by(report: Report) -> set[str]:
    """Returns the tasks that one was connected with when it reported."""
    return set(report.heard) | {task for task, probe in report.probes.items() if probe.control == "ok"}
