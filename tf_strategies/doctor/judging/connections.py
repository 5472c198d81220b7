"""Finds connections that are blocked, in which direction, and links that lose large packets."""

from __future__ import annotations

from typing import Dict, Iterator, List, Tuple

from tf_strategies.doctor.findings import Finding
from tf_strategies.doctor.judging.view import View, error, note
from tf_strategies.doctor.records import Probe, Report

__all__ = ["find"]

_MEANINGS = {
    "silent": "no answer came, as behind a firewall that drops packets",
    "refused": "the connection is refused, as by a firewall that rejects, or by a task that has ended",
    "unreachable": "the host or its network cannot be reached",
    "forbidden": "this host or a router forbids the connection",
    "closed": "the connection is closed before anything is said",
    "mute": "it connects, and no answer comes",
    "stranger": "another program answers there",
    "other": "the connection fails",
}


def find(view: View) -> Iterator[Finding]:
    """Yields findings about connections between tasks that have reported."""
    yield from _blocked(view)
    yield from _black_holes(view)
    yield from _mtus(view)
    yield from _secrets(view)


def _probes(view: View) -> Iterator[Tuple[Report, Report, Probe]]:
    for report in view.ordered:
        for task, probe in report.probes.items():
            if task in view.reports:
                yield report, view.reports[task], probe


def _blocked(view: View) -> Iterator[Finding]:
    groups: Dict[Tuple[str, str, str, str], List[str]] = {}
    for source, target, probe in _probes(view):
        name = (
            source.facts.names.get(view.plan.host_of(target.task))
            if target.task in view.plan.addresses
            else None
        )
        if name is None or name.error or not view.expects_listening(target.task):
            continue  # another finding says why
        if (
            name.addresses
            and all(each.startswith("127.") for each in name.addresses)
            and _apart(source, target)
        ):
            continue
        if probe.control in _MEANINGS:
            groups.setdefault((target.task, probe.control, "control", ""), []).append(source.task)
        elif probe.data in _MEANINGS:
            at = f"{view.plan.host_of(target.task)}:{probe.data_port}"
            groups.setdefault((target.task, probe.data, "data", at), []).append(source.task)
    for (task, kind, port, at), sources in groups.items():
        where = f"{view.plan.names(sources)} -> {view.plan.name(task)}"
        if port == "control":
            yield error(
                "control_port_blocked",
                where,
                f"TCP to {view.plan.addresses[task]} fails: {_MEANINGS[kind]}",
                f"let the firewalls of both hosts pass TCP to port {view.plan.split(task)[1]} in this direction",
            )
        else:
            yield error(
                "data_port_blocked",
                where,
                f"TCP to the data port {at} fails: {_MEANINGS[kind]}",
                "let the firewall pass TCP between the hosts on all ports, or set TF_STRATEGIES_PORTS to a range such as "
                "40000-40100 and let it pass those",
            )


def _apart(source: Report, target: Report) -> bool:
    return source.facts.host != target.facts.host


def _black_holes(view: View) -> Iterator[Finding]:
    seen = set()
    for source, target, probe in _probes(view):
        if probe.large not in ("out", "in"):
            continue
        sender, receiver = (source, target) if probe.large == "out" else (target, source)
        ends = frozenset((sender.facts.host, receiver.facts.host))
        if ends in seen:
            continue
        seen.add(ends)
        yield error(
            "mtu_black_hole",
            f"{view.plan.name(sender.task)} -> {view.plan.name(receiver.task)}",
            f"small packets pass and large ones vanish; the MTU is {_mtu(sender)} and {_mtu(receiver)}, and some link between "
            "them passes less",
            "set the MTU of both interfaces to what the network passes (ip link set dev NAME mtu 1500), or let the switches "
            "pass jumbo frames and the firewalls ICMP 'fragmentation needed'",
        )


def _mtus(view: View) -> Iterator[Finding]:
    mtus: Dict[int, str] = {}
    for report in view.ordered:
        if report.facts.mtu and report.facts.interface != "lo":
            mtus.setdefault(report.facts.mtu, report.task)
    if len(mtus) > 1:
        listed = ", ".join(f"{mtu} ({task})" for mtu, task in sorted(mtus.items()))
        yield note(
            "mtu_differs",
            view.plan.names(list(mtus.values())),
            f"their interfaces have different MTUs: {listed}",
            "set the same MTU on all hosts of one network",
        )


def _mtu(report: Report) -> str:
    return f"{report.facts.mtu or 'unknown'} on {report.facts.interface or '?'} of {report.task}"


def _secrets(view: View) -> Iterator[Finding]:
    refused: Dict[str, List[str]] = {}
    for report in view.ordered:
        for task, probe in report.probes.items():
            if probe.control == "secret":
                refused.setdefault(task, []).append(report.task)
    if not refused or any(each.facts.secret_error for each in view.ordered):
        return
    task = next(iter(refused))
    reason = view.reports[refused[task][0]].probes[task].control_text
    yield error(
        "secret_differs",
        view.plan.names(list(refused)),
        f"{view.plan.names(refused[task])} cannot trust it: {reason}",
        "give all tasks the same file as TF_STRATEGIES_SECRET_FILE (docs/security.md)",
    )
