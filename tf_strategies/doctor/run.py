"""Runs the examination of this task, alone or among the others."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import sys
import time
from pathlib import Path
from typing import List

from tf_strategies.cluster import Cluster
from tf_strategies.doctor import table
from tf_strategies.doctor.examination import Examination
from tf_strategies.doctor.facts import environment
from tf_strategies.doctor.facts.collect import collect_facts, with_gpus
from tf_strategies.doctor.facts.names import resolve_all
from tf_strategies.doctor.findings import Finding, Severity
from tf_strategies.doctor.judging import View, judge
from tf_strategies.doctor.library import load_library
from tf_strategies.doctor.link import LinkError
from tf_strategies.doctor.listening import open_ports
from tf_strategies.doctor.node import Node
from tf_strategies.doctor.plan import Plan
from tf_strategies.doctor.records import Library, Report, Resolution

__all__ = ["Options", "examine"]

_LIBRARY_SECONDS = 22.0  # from the start, unless the option `wait` is more
_BEFORE_MEASURING_SECONDS = 16.0  # from the start: loading TensorFlow would disturb measurements on few cores
_VERDICT_SECONDS = 60.0  # the task that leads may have started later
_SAY_SECONDS = 3.0


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of the command line.

    Attributes:
        wait: seconds that a task tries to reach those that do not answer; more than 22 also give the operations so long to load.
        strict: whether warnings count as errors.
        json: a file for all that was found; None for none.
        tries_library: whether the operations are loaded.
    """

    wait: float = 10.0
    strict: bool = False
    json: Path | None = None
    tries_library: bool = True

    @property
    def library_seconds(self) -> float:
        """Returns the seconds that the operations may take to load."""
        return max(_LIBRARY_SECONDS, self.wait)


async def examine(cluster: Cluster | None, options: Options) -> int:
    """Examines this task among the others, or this host alone. Returns the exit status.

    Args:
        cluster: None for this host alone.
        options: of the command line.
    """
    if cluster is None:
        print("TF_CONFIG is not set: this host is examined alone\n", flush=True)
        return await _alone(options)
    return await _Doctor(Plan.of(cluster), options).run()


async def _alone(options: Options) -> int:
    plan = Plan("this host", {})
    report = Report(
        task=plan.task,
        run="",
        digest=plan.digest,
        cluster={},
        listens="ok",
        listens_text="",
        data_listens="",
        facts=with_gpus(collect_facts(None, os.environ, {})),
        probes={},
        heard=[],
        twins={},
    )
    libraries = [await load_library(plan.task, options.library_seconds)] if options.tries_library else []
    return _conclude(View(plan, {plan.task: report}, libraries), options)


class _Doctor:
    """Runs one task among the others."""

    def __init__(self, plan: Plan, options: Options) -> None:
        self._plan, self._options = plan, options
        self._start = time.monotonic()

    async def run(self) -> int:
        """Returns the exit status."""
        loop = asyncio.get_running_loop()
        plan = self._plan
        names = await loop.run_in_executor(None, resolve_all, plan.hosts)
        address = plan.addresses.get(plan.task, "")
        ports = open_ports(address, names[plan.host_of(plan.task)] if address else Resolution([], "", 0.0))
        facts = collect_facts(plan, os.environ, names)
        secret, _ = environment.secret_of(os.environ)
        node = Node(plan, facts, ports, secret, self._start + self._options.wait)
        node.serve()
        library: asyncio.Task[Library] | None = None
        # One task of a host is enough for both.
        asking = loop.run_in_executor(None, with_gpus, facts) if plan.is_first_of_host else None
        if self._options.tries_library and plan.is_first_of_host:
            library = asyncio.ensure_future(load_library(self._plan.task, self._options.library_seconds))
        saying = asyncio.ensure_future(self._say(node))
        try:
            report = await node.meet()
            if asking is not None:
                report = dataclasses.replace(report, facts=await asking)
            if node.is_root:
                return await self._lead(node, report, library)
            return await self._follow(node, report, library)
        finally:
            for task in (saying, library):
                if task is not None:
                    task.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await task
            await node.close()

    async def _lead(self, node: Node, report: Report, library: asyncio.Task[Library] | None) -> int:
        if node.is_second:  # the others talk to the first
            view = View(self._plan, {report.task: report})
            return _conclude(
                view, self._options, [each for each in judge(view) if each.code == "duplicate_task"]
            )
        if self._plan.task not in self._plan.addresses:
            return await self._lead_none(report, library)
        examination = Examination(node, report, expects_libraries=self._options.tries_library)
        passing = asyncio.ensure_future(_pass_up(node, library))
        try:
            await examination.collect()
            await examination.wait_for_libraries(self._left(_BEFORE_MEASURING_SECONDS))
            await examination.measure()
            # Those of tasks that have started later.
            await examination.wait_for_libraries(self._options.library_seconds)
        finally:
            passing.cancel()
        view = examination.view()
        findings = judge(view)
        counts = {level: sum(each.severity is level for each in findings) for level in Severity}
        await node.tell_verdict({"errors": counts[Severity.ERROR], "warnings": counts[Severity.WARNING]})
        return _conclude(view, self._options, findings)

    async def _lead_none(self, report: Report, library: asyncio.Task[Library] | None) -> int:
        """Concludes for an evaluator that has reached nobody: it works without the others, who do not wait for it."""
        print(
            "no other task was reached; an evaluator needs none, and so this host is examined alone\n",
            flush=True,
        )
        libraries = [] if library is None else [await library]
        alone = dataclasses.replace(report, probes={})
        return _conclude(View(Plan(report.task, {}), {report.task: alone}, libraries), self._options)

    async def _follow(self, node: Node, report: Report, library: asyncio.Task[Library] | None) -> int:
        """Reports to the root, and does what it orders until it has judged."""
        try:
            await node.up("report", report)
            passing = asyncio.ensure_future(_pass_up(node, library))
            try:
                verdict = await asyncio.wait_for(self._verdict(node), self._options.wait + _VERDICT_SECONDS)
            finally:
                passing.cancel()
        except (LinkError, asyncio.TimeoutError):
            print("the task that leads the examination has ended: this is what this task knows\n", flush=True)
            return _conclude(
                View(self._plan, {report.task: report}, [], [], frozenset(node.connected())), self._options
            )
        bad = verdict["errors"] or (self._options.strict and verdict["warnings"])
        return int(bool(bad))

    async def _verdict(self, node: Node) -> dict[str, int]:
        """Returns the verdict; raises LinkError when no task is left that could give it."""
        while not node.verdict.done():
            if node.is_root:
                raise LinkError("closed", "the connection has ended")
            await asyncio.wait([node.verdict], timeout=0.2)
        return node.verdict.result()

    def _left(self, seconds: float) -> float:
        return max(0.1, self._start + seconds - time.monotonic())

    async def _say(self, node: Node) -> None:
        """Says on stderr what takes long, if no task before this one does."""
        said = ""
        while True:
            await asyncio.sleep(_SAY_SECONDS)
            text = "the tasks have met; their hosts and the wires between them are examined"
            if node.trouble:
                task, reason = next(iter(node.trouble.items()))
                more = f", and for {len(node.trouble) - 1} more" if len(node.trouble) > 1 else ""
                text = f"waiting for {self._plan.name(task)}{more}: {reason}"
            if node.is_root and text != said:
                print(f"tfs-doctor: {text}", file=sys.stderr, flush=True)
                said = text


async def _pass_up(node: Node, library: asyncio.Task[Library] | None) -> None:
    if library is not None:
        with contextlib.suppress(LinkError):
            await node.up("library", await asyncio.shield(library))


def _conclude(view: View, options: Options, findings: List[Finding] | None = None) -> int:
    """Prints what was found. Returns the exit status."""
    found = judge(view) if findings is None else findings
    print(table.draw(view, found, strict=options.strict), flush=True)
    if options.json is not None:
        content = {
            **dataclasses.asdict(view),
            "alive": sorted(view.alive),
            "findings": [_as_json(each) for each in found],
        }
        options.json.write_text(json.dumps(content, indent=2) + "\n")
    return table.summary(found, strict=options.strict)


def _as_json(finding: Finding) -> dict[str, str]:
    return {**dataclasses.asdict(finding), "severity": finding.severity.word}
