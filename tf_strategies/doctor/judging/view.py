"""Holds what is known of all tasks, for those who judge."""

from __future__ import annotations

import dataclasses
from typing import Dict, List, Sequence

from tf_strategies.addresses import is_loopback
from tf_strategies.doctor.findings import Finding, Severity
from tf_strategies.doctor.plan import Plan
from tf_strategies.doctor.records import Library, Measured, Report

__all__ = ["View", "error", "note", "warning"]


@dataclasses.dataclass(frozen=True)
class View:
    """Holds what a root knows.

    Attributes:
        plan: the cluster as the root sees it.
        reports: task -> its report.
        libraries: of the first task of each host.
        measured: the wires.
        alive: tasks that were connected, and whose report may be missing.
    """

    plan: Plan
    reports: Dict[str, Report]
    libraries: Sequence[Library] = ()
    measured: Sequence[Measured] = ()
    alive: frozenset[str] = frozenset()

    @property
    def ordered(self) -> List[Report]:
        """The reports in the order of the tasks."""
        return [self.reports[each] for each in sorted(self.reports, key=self.plan.place)]

    @property
    def root(self) -> Report:
        """The report of the task that judges."""
        return self.reports[self.plan.task]

    def by_host(self) -> Dict[str, List[Report]]:
        """Returns the reports of each host, by its identity, in order."""
        found: Dict[str, List[Report]] = {}
        for each in self.ordered:
            found.setdefault(each.facts.host, []).append(each)
        return found

    def twins(self) -> Dict[str, List[str]]:
        """Returns, for each task that two processes are, the further ones in words."""
        found: Dict[str, List[str]] = {}
        for report in self.ordered:
            for task, other in report.twins.items():
                if other not in found.setdefault(task, []):
                    found[task].append(other)
        return found

    def expects_listening(self, task: str) -> bool:
        """Returns True if others can connect to a task, as far as its own report says: its name is right, its port free."""
        report = self.reports.get(task)
        return report is None or (report.listens == "ok" and not self.is_hidden(report))

    def is_hidden(self, report: Report) -> bool:
        """Returns True if a task listens on a loopback address, by its own name, where other hosts do not reach it."""
        if report.task not in self.plan.addresses or not self.plan.several_hosts:
            return False
        host = self.plan.host_of(report.task)
        found = report.facts.names.get(host)
        # Hosts named 127.x share this machine on purpose.
        if found is None or not found.addresses or is_loopback(self.plan.addresses[report.task]):
            return False
        others = [each for each in self.reports.values() if each.facts.host != report.facts.host]
        if any(report.task in each.probes and each.probes[report.task].control == "ok" for each in others):
            return False
        return all(each.startswith("127.") or each == "::1" for each in found.addresses)


def error(code: str, where: str, text: str, remedy: str) -> Finding:
    """Returns a finding that keeps the job from working."""
    return Finding(code, Severity.ERROR, where, text, remedy)


def warning(code: str, where: str, text: str, remedy: str) -> Finding:
    """Returns a finding that makes the job slower, or may stop it later."""
    return Finding(code, Severity.WARNING, where, text, remedy)


def note(code: str, where: str, text: str, remedy: str) -> Finding:
    """Returns a finding that is good to know."""
    return Finding(code, Severity.NOTE, where, text, remedy)
