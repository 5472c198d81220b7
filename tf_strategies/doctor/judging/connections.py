"""Finds connections that are blocked, in which direction, and links that lose large packets."""

from __future__ import annotations

from typing import Dict, Iterator, List, Tuple

from tf_strategies.addresses import join_address
from tf_strategies.doctor.findings import Finding
from tf_strategies.doctor.judging.view import View, error, note, warning
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
    control: Dict[Tuple[str, str, bool], List[str]] = {}
    data: Dict[Tuple[str, str, int], List[str]] = {}
    for source, target, probe in _probes(view):
        if not _is_named_right(view, source, target):
            continue  # another finding says why
        if probe.control in _MEANINGS:
            control.setdefault((target.task, probe.control, _must_connect(view, target, probe)), []).append(
                source.task
            )
        elif probe.data in _MEANINGS:
            data.setdefault((target.task, probe.data, probe.data_port), []).append(source.task)
    for (task, kind, must), sources in control.items():
        yield (error if must else warning)(
            "control_port_blocked",
            f"{view.plan.names(sources)} -> {view.plan.name(task)}",
            f"TCP to {view.plan.addresses[task]} fails: {_MEANINGS[kind]}"
            + ("" if must else "; all-reduce uses this port only to say why a start failed"),
            f"let the firewalls of both hosts pass TCP to port {view.plan.split(task)[1]} in this direction",
        )
    for (task, kind, port), sources in data.items():
        yield (error if _uses_data_ports(view) else note)(
            "data_port_blocked",
            f"{view.plan.names(sources)} -> {view.plan.name(task)}",
            f"TCP to the data port {join_address(view.plan.host_of(task), port)} fails: {_MEANINGS[kind]}",
            "let the firewall pass TCP between the hosts on all ports, or set TF_STRATEGIES_PORTS to a range such as "
            "40000-40100 and let it pass those",
        )


def _is_named_right(view: View, source: Report, target: Report) -> bool:
    """Returns True if a task should reach another by its name, and the other listens."""
    if target.task not in view.plan.addresses or not view.expects_listening(target.task):
        return False
    name = source.facts.names.get(view.plan.host_of(target.task))
    if name is None or name.error:
        return False
    return not (all(each.startswith("127.") for each in name.addresses) and _apart(source, target))


def _must_connect(view: View, target: Report, probe: Probe) -> bool:
    """Returns True if the job needs the connection to the address of a task.

    Workers connect to the address of the first one, and to one another's data ports. Parameter servers need all addresses.
    """
    return _has_servers(view) or target.task == view.plan.tasks[0] or probe.data != "ok"


def _uses_data_ports(view: View) -> bool:
    """Returns True if the job uses data ports: parameter servers with a secret or TLS do not."""
    is_protected = all(each.facts.has_secret or each.facts.tls for each in view.ordered)
    return not (_has_servers(view) and is_protected)


def _has_servers(view: View) -> bool:
    return any(task.startswith("ps ") for task in view.plan.tasks)


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
